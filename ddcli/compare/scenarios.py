"""Scenarios: what the outputs of a pipeline would be if its inputs had other files, or other values in some rows, several times over, in one call.

Each scenario is a dry run of its own above the newest commit, with the files that it adds and leaves out, and the new values of rows. It reads of the state the rows with the keys of its changes, and no scenario
sees another's: so ten of them cost ten small changes and one start; rows that get new values are looked for once, for all scenarios. A result is the difference to the committed outputs, which is exact.
"""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.compare.against import base_request, chosen_files, compare_on_newest
from ddcli.dataclass import dataclass
from ddcli.driver.run import dry_run
from ddcli.errors import SpecError, SpecErrors, Text, UsageError, suggestion
from ddcli.expressions.coerce import Mismatch, adapts, convert
from ddcli.expressions.parse import parse_scalar
from ddcli.expressions.tree import Literal
from ddcli.expressions.types import ARRIVAL, ColumnScope, in_zone
from ddcli.job.request import read_request, refuse_code
from ddcli.sinks.side_logs import ReceivedUpdates
from ddcli.spec.file import read_text
from ddcli.spec.shapes import Key, Many, NodePlace, Notes, Pairs, Record, Refused
from ddcli.spec.tree import parse_tree
from ddcli.spec.values import ExpressionText, Words, path_fault
from ddcli.store.files.access import locate
from ddcli.store.log.rows import RowChange, RowCondition
from ddcli.store.log.schema import LogSchema
from ddcli.store.log.writer import DIFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type
    from ddcli.job.request import Request
    from ddcli.spec.model import InputSpec
    from ddcli.store.state.manifest import Manifest

SCENARIO = "scenario"
EXAMPLE = "{with: orders+=fix.csv}"
WHERE = "where"
VALUES = "{price: price * 1.1, where: region = 'north'}"


@dataclass
class Scenario:
    """The files that inputs have beside those that were read, the files that they lack, and, by input, the new values of columns as written, with a condition named `where`."""

    added: list[tuple[str, Path]]
    without: list[Path]
    values: tuple[tuple[Text, tuple[tuple[Text, Text], ...]], ...]


def scenarios(
    pipeline: Path,
    file: Path,
    state: Path | None = None,
    memory: int | None = None,
    *,
    no_code: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> dict[str, pl.DataFrame]:
    """Return, by output, the rows that come and go in the scenarios of a file: each scenario's name, the record, and the change of its multiplicity.

    Writes nothing, takes no lock. Raises SpecErrors for a file of another form, StateError without a state, and the errors of a run.
    """
    wanted = read_scenarios(file)
    directory = read_request(pipeline, state, say=say).state

    def attempt(manifest: Manifest) -> dict[str, pl.DataFrame]:
        request = base_request(pipeline, directory, manifest, memory, say)
        refuse_code(request.spec, no_code=no_code)
        if manifest.pipeline != request.digest:
            hint = "run it first; `dd diff --against` shows what an edit would do"
            raise UsageError(
                "the pipeline has changed since its state was made", place=str(request.spec.path), hint=hint
            )
        changed = _changes_of_rows(request, manifest, wanted)
        concerned = {}
        if any(changed.values()):
            from ddcli.driver.changed_rows import find_concerned

            by_input: dict[str, list[RowChange]] = {}
            for changes in changed.values():
                for name, change in changes.items():
                    by_input.setdefault(name, []).append(change)
            concerned = find_concerned(request, manifest, by_input)
        parts: dict[str, list[pl.DataFrame]] = {name: [] for name in request.outputs if name not in request.spec.checks}
        for name, scenario in wanted.items():
            for output, rows in _changes(request.deciding(concerned=concerned), manifest, scenario, changed[name]):
                if output in parts:
                    parts[output].append(rows.select(pl.lit(name).alias(SCENARIO), pl.all()))
        return {output: pl.concat(each) for output, each in parts.items() if each}

    return compare_on_newest(directory, attempt, say)


def _changes(
    request: Request, manifest: Manifest, scenario: Scenario, changed: dict[str, RowChange]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each output that a scenario changes, with the records that it adds and takes away."""
    request, found = chosen_files(request, manifest, scenario.added, scenario.without)
    if changed:
        withdrawn = dict.fromkeys(changed, frozenset[str]()) | {**request.decided.withdrawn}
        request = request.deciding(changed=changed, withdrawn=withdrawn)
    with tempfile.TemporaryDirectory(prefix="dd-scenario-", ignore_cleanup_errors=True) as scratch:
        received = ReceivedUpdates(Path(scratch))
        dry_run(request.asking(receives=received.add), manifest, found=found)
        for name, files in received.files.items():
            columns = [
                column for column in pl.read_ipc_schema(files[0]) if column not in {DIFF, *manifest.cache["time"]}
            ]
            parts = [*received.scan(name, columns, DIFF)]
            summed = pl.concat(parts).group_by(columns).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
            if (rows := summed.collect()).height:
                yield name, rows.sort([each for each, kind in rows.schema.items() if not kind.is_nested()])


def _changes_of_rows(
    request: Request, manifest: Manifest, wanted: Mapping[str, Scenario]
) -> dict[str, dict[str, RowChange]]:
    """Return the changes of rows in each scenario, by input. Raises SpecErrors with everything that is wrong."""
    errors: list[SpecError] = []
    found: dict[str, dict[str, RowChange]] = {}
    for name, scenario in wanted.items():
        found[name] = {}
        for word, values in scenario.values:
            try:
                found[name][word.value] = _row_change(request, manifest, word, values)
            except SpecError as error:
                errors.append(error)
    if errors:
        raise SpecErrors(errors)
    return found


def _row_change(request: Request, manifest: Manifest, word: Text, values: Sequence[tuple[Text, Text]]) -> RowChange:
    """Return the change of an input's rows. Raises SpecError for an input or a column whose rows can't get other values, or a wrong expression."""
    given, known = request.spec.inputs.get(word.value), manifest.inputs.get(word.value)
    if given is None or known is None:
        hint = suggestion(word.value, request.spec.inputs, f"inputs: {', '.join(request.spec.inputs)}")
        raise SpecError(f"there is no input {word.value!r}", span=word.span, hint=hint)
    if given.arrangement is not None:
        raise SpecError(
            f"the input {word.value!r} is an arrangement of another pipeline, whose rows are not its own",
            span=word.span,
            hint="change the rows in a scenario of that pipeline",
        )
    schema = LogSchema.from_json(known.schema)
    scope, where, found = ColumnScope(schema.columns), None, []
    with in_zone(request.spec.timezone):
        fixed = _fixed(given, schema)
        for column, text in values:
            if column.value == WHERE:
                where = parse_scalar(text, scope)
                if where.type.kind != "bool":
                    raise SpecError(f"the condition is {where.type}, not true or false", span=text.span)
                continue
            name = scope.name(column.value, column.span)
            if name in fixed:
                raise SpecError(f"{name!r} can't get other values: {fixed[name]}", span=column.span)
            found.append((name, _fitting(parse_scalar(text, scope), schema.columns[name], text)))
    if not found:
        raise SpecError("no column gets a value", span=word.span, hint=f"for example `{VALUES}`")
    key = frozenset(text.value for text in given.key)
    condition = None if where is None else RowCondition(where, frozenset(schema.columns), key)
    return RowChange(tuple(found), condition)


def _fixed(given: InputSpec, schema: LogSchema) -> dict[str, str]:
    """Return the columns of an input whose values stay, each with the reason: keys, times and orders decide which rows are records, and when."""
    found = {ARRIVAL: "it is the time at which the file arrived"} if given.arrives else {}
    if given.flattened:
        own = (name for name in schema.columns if name.startswith("__"))
        found |= dict.fromkeys(own, "Debezium writes it next to the row's own columns")
    scope = ColumnScope(schema.columns | schema.time)
    for key, text in (("delete_when", given.delete_when), ("order_by", given.order_by)):
        if text is not None and not given.format.startswith("debezium"):
            found |= dict.fromkeys(parse_scalar(text, scope).columns(), f"the input's `{key}` reads it")
    if given.file_name is not None:
        found |= dict.fromkeys(re.findall(r"\{(\w+)", given.file_name.value), "it is a part of the file's name")
    found |= dict.fromkeys((text.value for text in given.time), "it is the time of the rows")
    return found | dict.fromkeys((text.value for text in given.key), "it is in the input's `key`")


def _fitting(value: Expression, kind: Type, text: Text) -> Expression:
    """Return a value in the type of its column; numbers are converted as by `cast`, which rounds."""
    both = value.type.is_numeric and kind.is_numeric
    literal = isinstance(value, Literal) and adapts(value, kind)
    if not (both or literal or value.type.required() == kind.required()):
        raise SpecError(
            f"the value is {value.type.required()}, and the column {kind.required()}",
            span=text.span,
            hint=f"write `cast(... as {kind.required().sql})`",
        )
    if value.type.nullable and not kind.nullable:
        raise SpecError(
            "the value may be null, and the column's may not",
            span=text.span,
            hint="write `coalesce(..., 0)`, or another value for null",
        )
    try:
        return convert(value, kind)
    except Mismatch as error:
        raise error.at(text.span) from None


def read_scenarios(file: Path) -> dict[str, Scenario]:
    """Return the scenarios of a file, by name. Paths are relative to it. Raises SpecErrors with everything that is wrong."""
    tree = parse_tree(read_text(file, "file of scenarios"), str(file))
    notes, base = Notes(errors=tree.errors), file.parent

    def built(_: NodePlace, given: dict[str, Any]) -> Scenario:
        added = []
        for text in given.get("added", ()):
            name, sign, path = text.value.partition("+=")
            if not (name and sign and path):
                raise notes.refuse(
                    "", f"{text.value!r} names no input and file", text.span, "for example orders+=fix.csv"
                )
            added.append((name, locate(base, path)))
        return Scenario(added, [locate(base, text.value) for text in given.get("without", ())], given.get("values", ()))

    values = Pairs(Words("a column"), ExpressionText(), f"a mapping from columns to expressions, as `{VALUES}`")
    files = Many(Words("a file", fault=path_fault), "files", alone=True)
    keys = {
        "with": Key(files, argument="added", about="files that inputs have beside theirs"),
        "without": Key(files, about="files of inputs that are left out"),
        "set": Key(
            Pairs(Words("an input"), values, "a mapping from inputs to new values"),
            argument="values",
            about="new values of columns, in the rows of an input for which `where` holds",
        ),
    }
    shape = Pairs(
        Words("a name"), Record(built, keys, "a scenario", EXAMPLE, least=1), "a mapping of scenarios", things=True
    )
    if tree.root is None and not notes.errors:
        raise UsageError("the file has no scenarios", place=str(file), hint=f"for example `fix: {EXAMPLE}`")
    found: tuple[tuple[Text, Scenario], ...] = ()
    with suppress(Refused):
        if tree.root is not None:
            found = shape.read(tree.root, NodePlace("", Text("", tree.root.span), ""), notes)
    if notes.errors:
        raise SpecErrors(notes.errors)
    return {name.value: scenario for name, scenario in found}
