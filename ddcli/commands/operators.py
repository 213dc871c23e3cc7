"""A pipeline file whose SQL collections are rewritten as operators."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ddcli.commands.check import bound_pipeline
from ddcli.dataclass import dataclass
from ddcli.spec import model
from ddcli.spec.file import read_text
from ddcli.spec.syntax import compose

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.plan.pipeline_file import BoundPipeline

WIDE = 1 << 20
"""The most columns of a line, so that none is broken."""

ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""The characters that JSON's texts may have and YAML's may not, or that it would change."""


@dataclass(frozen=True)
class WrittenPipeline:
    """The text of a pipeline file, and the collections that stay SQL, with the reason."""

    text: str
    left: dict[str, str]


def written_pipeline(path: Path) -> WrittenPipeline:
    """Return the pipeline file at `path` with operators in place of its queries, or raise its errors.

    All else in the file stays as it is written, and so do queries in included files and in the bodies of loops.
    """
    import yaml

    from ddcli.plan.node import Unwritten

    bound = bound_pipeline(path)
    text = read_text(path).removeprefix("\ufeff")
    root = compose(text)
    several = _shared(root)
    taken = set(bound.relations)
    left: dict[str, str] = {}
    edits: list[tuple[int, int, str]] = []
    for section, collections in root.value:
        if section.value != "collections" or not isinstance(collections, yaml.MappingNode):
            continue
        for key, value in collections.value:
            spec = bound.spec.collections.get(key.value)
            if spec is None or not isinstance(spec.sources, model.Query) or not isinstance(value, yaml.MappingNode):
                continue
            (sql,) = [entry for entry in value.value if entry[0].value == "sql"]
            if several & {id(node) for node in (collections, key, value, *sql)}:
                left[key.value] = "text that has an alias"
                continue
            try:
                made = _written(bound, key.value, spec.sources, taken)
            except Unwritten as reason:
                left[key.value] = str(reason)
                continue
            edits += _edits(text, key, value, sql, made, collections)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return WrittenPipeline(text, left)


def _written(bound: BoundPipeline, name: str, query: model.Query, taken: set[str]) -> dict[str, Any]:
    """Return the collections of operators that compute a query, the last under the query's name."""
    from ddcli.expressions.zones import in_zone
    from ddcli.plan.sql.context import Times
    from ddcli.plan.sql.operator_writer import written
    from ddcli.plan.sql.statement import bind

    relations = bound.relations
    inputs = [relations[each].node for each in bound.spec.inputs]
    times = Times(tuple(bound.time.values()), bound.spec.clock == "arrival")
    with in_zone(bound.spec.timezone):
        found, _ = bind(query.text, relations.__getitem__, lambda: inputs, None, times)
    known = {relations[each.value].node.fingerprint: each.value for each in query.tables}
    return written(name, found.node, known, taken)


def _shared(root: Any) -> set[int]:
    """Return the ids of a tree's nodes that aliases repeat: an edit of one would be an edit of all."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            found.add(id(node))
            continue
        seen.add(id(node))
        if node.id == "sequence":
            waiting += node.value
        elif node.id == "mapping":
            waiting += [each for entry in node.value for each in entry]
    return found


def _edits(
    text: str, key: Any, value: Any, sql: Any, made: dict[str, Any], collections: Any
) -> list[tuple[int, int, str]]:
    """Return edits that replace a collection's entry `sql`, and put further collections before it."""
    *others, own = made.items()
    further = any(entry[0].value == "apply" for entry in value.value)
    if further and "apply" in own[1]:  # the query's own operators come before those behind it
        name = f"{own[0]}_1"
        others, own = [*others, (name, own[1])], (own[0], {"from": name})
    start, end = sql[0].start_mark.index, sql[1].end_mark.index
    end -= len(text[start:end]) - len(text[start:end].rstrip())
    edits = [(start, end, _entries(own[1], value, sql[0].start_mark.column))]
    if others:
        at = key.start_mark
        before = _entries(dict(others), collections, at.column)
        between = ", " if collections.flow_style else "\n" + " " * at.column
        edits.append((at.index, at.index, before + between))
    return edits


def _entries(values: dict[str, Any], mapping: Any, column: int) -> str:
    """Return entries in the style of a mapping: in braces, or each on a line of its own, indented to a column."""
    import yaml

    values = _escaped(values)
    if mapping.flow_style:
        written = ", ".join(
            f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
        )
        return ESCAPED.sub(lambda each: f"\\u{ord(each[0]):04x}", written)
    lines = yaml.safe_dump(values, sort_keys=False, width=WIDE, allow_unicode=True).rstrip("\n").split("\n")
    return ("\n" + " " * column).join(lines)


def _escaped(value: Any) -> Any:
    """Return a value in whose texts `${` is escaped, so that it begins no variable."""
    if isinstance(value, dict):
        return {_escaped(name): _escaped(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
