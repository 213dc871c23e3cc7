"""The columns that an edit of a pipeline file gives another meaning, and the columns of outputs that they reach.

A column of a collection is edited if it is computed in another way from the columns of other collections and inputs, and so are a collection's records
if other ones are there: a filter, a join, a group. Both are compared between collections of one name, each only up to the collections that it names.
So an edit is found once, where it was made, and is followed from there as lineage is.
"""

from __future__ import annotations

import re
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ddcli.errors import DdError
from ddcli.expressions.steps import MapStep
from ddcli.named_tuple import NamedTuple
from ddcli.plan import groupings, joins, logical
from ddcli.plan.bound import BoundPipeline
from ddcli.plan.lineage import PRESENCE, reached, readers_of
from ddcli.plan.loops import Leave, OfLoop
from ddcli.plan.node import Graph, digest
from ddcli.plan.pipeline_file import parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.plan.node import Node
    from ddcli.plan.relation import Relation

Meanings = dict[str | None, str]
"""The digest of the meaning of each column, and of a collection's records under `PRESENCE`."""
SECTIONS = re.compile(r"^(?:collections|checks|tests|include):.*?(?=^[^\s#]|\Z)", re.MULTILINE | re.DOTALL)
"""The sections of a file that collections of an earlier text replace, or that need other collections."""
MOST = 12
"""Columns that a line names, at most."""


class Reach(NamedTuple):
    """The columns of outputs that an edited column, or the records of an edited collection, reaches: by value, or because it decides about them."""

    edited: str
    values: tuple[str, ...]
    decides: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return the reach in a line."""
        parts = [
            (verb, _listed(names))
            for verb, names in (("goes into", self.values), ("decides about", self.decides))
            if names
        ]
        return f"{self.edited}: {'; '.join(f'{verb} {names}' for verb, names in parts) or 'reaches no output'}"

    @property
    def note(self) -> str:
        """Return the reach as a comparison's note."""
        return f"edited: {self.words}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST
    return ", ".join(names[:MOST] if more > 1 else names) + (f" and {more} more" if more > 1 else "")


def reach_of_edits(before: BoundPipeline | None, now: BoundPipeline) -> list[Reach]:
    """Return what each edit reaches among the outputs that both have; all columns count as edited of a collection with a new name, and of an output of another one.

    Without `before` nothing is known to be edited.
    """
    if before is None:
        return []
    known, present = _meanings(before.relations), _meanings(now.relations)
    named = {name: relation.node for name, relation in now.relations.items()}
    sources = {name: output.source.value for name, output in before.spec.outputs.items() if name not in now.spec.checks}
    outputs = {name: output.source.value for name, output in now.spec.outputs.items() if name in sources}
    readers = readers_of(Graph(named).nodes())
    columns = [
        (output, named[source].fingerprint, column)
        for output, source in outputs.items()
        for column in named[source].schema
    ]
    found = [
        Reach(f"outputs.{name}", tuple(f"{name}.{column}" for column in named[source].schema), ())
        for name, source in outputs.items()
        if source != sources[name]
    ]
    for name, meanings in ((each, found) for each, found in present.items() if each not in now.spec.checks):
        for column in (each for each, meaning in meanings.items() if known.get(name, {}).get(each) != meaning):
            at = named[name].fingerprint, column
            by_value = reached([at], readers[True]) if column is not PRESENCE else set()
            every = reached({at, *by_value}, readers[False])
            values = [f"{output}.{each}" for output, node, each in columns if (node, each) in by_value]
            decides = [f"{output}.{each}" for output, node, each in columns if {(node, each), (node, PRESENCE)} & every]
            if name not in known and not values and not decides:
                continue
            edited = f"records of {name}" if column is PRESENCE else f"{name}.{column}"
            found.append(Reach(edited, tuple(values), tuple(each for each in decides if each not in values)))
    return found


def _meanings(relations: Mapping[str, Relation]) -> dict[str, Meanings]:
    """Return the meanings of the columns of each collection and input, up to the others that it names."""
    names: dict[str, str] = {}
    for name, relation in relations.items():
        names.setdefault(relation.node.fingerprint, name)
    every: dict[str, Meanings] = {}

    def of(node: Node, column: str | None) -> str:
        name = names.get(node.fingerprint)
        return every[node.fingerprint][column] if name is None else digest(["named", name, column])

    for node in Graph({name: relation.node for name, relation in relations.items()}).nodes():
        every[node.fingerprint] = dict(_of_node(node, of))
    return {name: every[relation.node.fingerprint] for name, relation in relations.items()}


def _of_node(node: Node, of: Any) -> Iterator[tuple[str | None, str]]:
    if isinstance(node, OfLoop | Leave):  # a loop is edited as a whole
        yield from ((each, digest([node.fingerprint, each])) for each in (PRESENCE, *node.schema))
        return
    whole = [type(node).__name__, *map(str, node.wording)]
    computed, records = dict(_expressions(node)), whole
    if isinstance(node, logical.Apply) and isinstance(node.step, MapStep):
        records = []
    elif isinstance(node, groupings.Reduce):
        records = [expression.text() for _, expression in node.by]
    for column, kind in node.schema.items():
        # One that only passes has the meaning that it has below, whatever else the operator does.
        sources = [of(node.inputs[at], name) for at, name in node.value_sources(column)]
        if column in computed:
            own: Any = computed[column]
        elif isinstance(node, logical.Apply | joins.Join) and node.column_origins().get(column):
            own = None
        else:
            own = [whole, column, [of(node.inputs[at], name) for at, name in node.value_dependencies(column)]]
        yield column, digest([str(kind), own, sources])
    needs = [of(node.inputs[at], name) for at, name in node.presence_dependencies()]
    yield PRESENCE, digest([records, [of(child, PRESENCE) for child in node.inputs], needs])


def _expressions(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the texts of the columns that a map or a reduction computes."""
    if isinstance(node, logical.Apply) and isinstance(node.step, MapStep):
        yield from ((name, expression.text()) for name, expression in node.step.columns)
    elif isinstance(node, groupings.Reduce):
        yield from ((name, expression.text()) for name, expression in node.by)
        calls = [call.text() for call in node.calls]
        for name, expression in node.results:
            used = [
                calls[int(each[1:])] for each in expression.columns() if each.startswith("$") and each[1:].isdecimal()
            ]
            yield name, f"{expression.text()} {used}"


def before_edits(now: BoundPipeline, outline: Mapping[str, Any]) -> BoundPipeline | None:
    """Return the pipeline with the collections that a state's plan was made of, by their texts in its outline; None where they can't be read any more."""
    texts = [text for name, text in outline.get("collections", {}).items() if text.startswith(f"{name}:")]
    try:
        rest = SECTIONS.sub("", now.spec.path.read_text(encoding="utf-8"))
        spec = parse_spec(f"{rest}\ncollections:\n{indent(chr(10).join(texts), '  ')}\n", str(now.spec.path))
        found = BoundPipeline(spec, now.schemas, now.time, now.keys)
        _ = found.relations
    except (DdError, OSError, ValueError):
        return None
    return found
