"""Checks in the plan: inputs without the rows that are put aside, the columns of violations in their logs, and the types of measures; and the
names and columns that tables of outputs can have, where each value must come back as it was.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from ddcli.errors import SpecError, Text, Unbuilt, placing, suggestion
from ddcli.plan.operators.table import apply_operators
from ddcli.plan.relation import concat
from ddcli.spec import model
from ddcli.spec.model import DATABASE, UNCHECKED, owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.relation import BindContext, Relation
    from ddcli.spec.model import CheckSpec, OutputSpec, TargetSpec


def checked_input(
    raw: Relation, name: str, spec: model.Spec, around: BindContext, named: Callable[[str], Relation | None]
) -> Relation:
    """Return an input without the rows that its checks put aside; `named` returns other collections.

    Each row is kept or put aside by itself, so a row comes back as soon as what it refers to is there.
    """

    def source(given: model.Source) -> Relation:
        assert isinstance(given, Text), "checks refer to collections by name"
        found = named(given.value)
        if found is None:
            raise Unbuilt
        return found

    found = raw
    for of, operators in spec.quarantines.get(name, ()):
        check = spec.checks[of.value]
        with placing(check.place, check.span):
            parts = [apply_operators(found, part, source, around) for part in operators]
            found = parts[0] if len(parts) == 1 else concat(parts, check.span, "from")
    return found


def logged(relation: Relation, check: CheckSpec, own: Sequence[str], around: BindContext) -> Relation:
    """Return the violations of a check as its log has them: columns that the log has itself, `time` and `diff`, get other names."""
    renamed: list[tuple[Text, Text]] = []
    for name in own:
        if name in relation.schema:
            number = 1
            while f"{name}_{number}" in relation.schema:
                number += 1
            renamed.append((Text(name, check.span), Text(f"{name}_{number}", check.span)))
    if not renamed:
        return relation

    def none(_: model.Source) -> Relation:
        raise AssertionError("renaming has no other side")

    rename = model.Operator("rename", {"columns": tuple(renamed)}, check.span, check.place)
    return apply_operators(relation, (rename,), none, around)


def refused_measures(check: CheckSpec, schema: Schema) -> Iterator[SpecError]:
    """Yield an error for each measure whose values have no change that is a number, or no age."""
    for measure in check.measures:
        kind = schema.get(measure.column or "")
        if kind is None:
            continue
        timed = kind.kind in ("date", "datetime")
        if check.kind == "fresh" and not timed:
            problem = f"{check.place}.fresh: '{measure.name}' is {kind.required()}, and a time has an age"
            yield SpecError(problem, span=check.span, hint="for example `fresh: {max(updated_at): 2h}`")
        if check.kind == "change" and not kind.is_numeric:
            problem = (
                f"{check.place}.change: '{measure.name}' is {kind.required()}, and a change is measured of numbers"
            )
            yield SpecError(problem, span=check.span, hint="for example `change: {sum(amount): [-20%, +30%]}`")


def circles(spec: model.Spec, references: Callable[[model.CollectionSpec], Iterator[str]]) -> list[SpecError]:
    """Return an error for a check that puts rows of an input aside for a collection that is computed from that input: its rows would decide about themselves."""
    uses: dict[str, list[str]] = {name: list(references(each)) for name, each in spec.collections.items()}
    owner = owners(spec.collections)
    for name, given in spec.quarantines.items():
        uses[name] = [other for check, _ in given for other in _others(spec.collections[check.value], references)]
    graph = {name: [owner.get(other, other) for other in others] for name, others in uses.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        (name,) = [each for each in dict.fromkeys(circle) if each in spec.quarantines][:1] or [""]
        check = spec.checks[spec.quarantines[name][0][0].value] if name else next(iter(spec.checks.values()))
        problem = f"{check.place}: rows of '{name}' would be put aside for a collection that is computed from them: {' -> '.join(circle)}"
        return [SpecError(problem, span=check.span, hint="use `otherwise: fail`, or refer to another input")]
    return []


def _others(collection: model.CollectionSpec, references: Callable[[model.CollectionSpec], Iterator[str]]) -> list[str]:
    """Return the names to which the collection of a check refers beside its input."""
    return [name for name in references(collection) if not name.endswith(UNCHECKED)]


def raw_name(name: str, quarantines: Mapping[str, object]) -> str:
    """Return the input that a name means: one with the ending of checks means the input with all of its rows."""
    raw = name.removesuffix(UNCHECKED)
    return raw if raw in quarantines else name


SHARED = frozenset({"int32", "int64", "float32", "float64", "bool", "date", "string", "binary", "decimal"})
KINDS = {
    "delta": SHARED | {"int8", "int16"},
    "iceberg": SHARED,
    "duckdb": SHARED | {"int8", "int16", "uint8", "uint16", "uint32", "uint64"},
    "ducklake": SHARED | {"int8", "int16", "uint8", "uint16", "uint32", "uint64"},
    "sqlite": SHARED | {"int8", "int16", "uint8", "uint16", "uint32"},
    "postgres": SHARED | {"int16"},
    "spark": SHARED | {"int8", "int16"},
}
"""Kinds of types that a table holds as they are, beside lists of them and timestamps in microseconds, without a zone or in UTC."""
STRUCTS = frozenset({"delta", "iceberg", "ducklake", "duckdb", "spark"})
"""Tables that hold structs of such types."""
NAMES = {
    "delta": "Delta Lake",
    "iceberg": "Iceberg",
    "ducklake": "DuckLake",
    "duckdb": "DuckDB",
    "sqlite": "SQLite",
    "postgres": "Postgres",
    "spark": "Spark",
}
OWN = {
    **dict.fromkeys(("sqlite", "duckdb"), frozenset({"rowid"})),
    "spark": frozenset({"diff", "dd_gone"}),
    "postgres": frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}),
}
"""Columns that each table of a database has."""
OURS = frozenset({"dd_at", "dd_diff", "dd_stays"})
"""Columns that rows of a change have on their way into a database."""
TABLES = frozenset({"dd_changes", "dd_commits", "dd_feeds", "dd_found", "dd_frame", "dd_wanted"})
"""Tables of our own in a database: they can be neither outputs' nor feeds'."""
HISTORY = ("valid_from", "valid_to", "is_current")
"""Columns that a history has beside its records' columns."""
LONGEST = 63
"""Bytes of a name in Postgres, which cuts longer ones."""
UNFIT = frozenset(" ,;{}()\n\t=")
"""Characters that names of Delta's columns don't have."""


def refused_columns(output: OutputSpec, target: TargetSpec, schema: Schema, time: Schema) -> Iterator[SpecError]:
    """Yield an error for each column of an output that its table can't hold. `schema` are the columns of its contents, `time` its log's time columns."""
    columns = schema if target.table else schema | time
    if target.history:
        if errors := [*_refused_history(output, target, schema, time)]:
            yield from errors
            return
        columns = schema | dict.fromkeys(HISTORY, next(iter(time.values())))
    if target.product in KINDS:
        yield from _refused_in_table(output, target, columns)


def _refused_in_table(output: OutputSpec, target: TargetSpec, columns: Schema) -> Iterator[SpecError]:
    """Yield an error for each column that a table of its kind can't hold."""
    place = f"outputs.{output.name.value}.{target.kind}"

    def refused(problem: str, hint: str) -> SpecError:
        return SpecError(f"{place}: {problem}", span=target.place.span, hint=hint)

    if not columns:
        yield refused("a table has columns, and this output has none", "select one")
    for text in target.key:
        if text.value not in columns:
            hint = suggestion(text.value, columns, f"its columns are: {', '.join(columns)}")
            problem = f"outputs.{output.name.value}.key: there is no column '{text.value}'"
            yield SpecError(problem, span=text.span, hint=hint)
    if problem := _refused_table(target):
        yield refused(problem, "name another `table`")
    seen: dict[str, str] = {}
    for name, kind in columns.items():
        if target.kind == "delta" and UNFIT & {*name}:
            yield refused(
                f"Delta Lake has no column with a name such as '{name}'",
                "rename it: without spaces and any of `,;{}()=`",
            )
        if name.casefold() in OWN.get(target.product, ()) or (target.kind == DATABASE and name in OURS):
            yield refused(f"a table of {NAMES[target.product]} has a column '{name}' of its own", "rename it")
        if too_long := too_long_name(target.product, name):
            yield refused(too_long, "rename it")
        if target.product != "postgres" and (other := seen.setdefault(name.casefold(), name)) != name:
            yield refused(
                f"'{name}' and '{other}' are one column to readers of {NAMES[target.product]}", "rename one of them"
            )
        if not holds(target.product, kind):
            yield refused(
                f"{NAMES[target.product]} can't hold the column '{name}' of type {kind.required()}",
                _hint(target.product, kind),
            )
        elif unfit := _refused_field(target, kind):
            yield refused(f"{NAMES[target.product]} can't hold the column '{name}': {unfit}", "rename the field")


def _refused_history(output: OutputSpec, target: TargetSpec, schema: Schema, time: Schema) -> Iterator[SpecError]:
    """Yield the errors of an output's history: unknown columns, columns that it has itself, and times without an order."""
    place = f"outputs.{output.name.value}"
    if len(time) > 1:
        problem = f"{place}: the log's times have several coordinates, and a history is one along a single time"
        yield SpecError(problem, span=target.place.span, hint="write the contents, `as: table`, or the log")
    for what, texts in (("key", target.history), ("track", target.track)):
        for text in texts:
            if text.value not in schema:
                hint = suggestion(text.value, schema, f"its columns are: {', '.join(schema)}")
                yield SpecError(f"{place}.{what}: there is no column '{text.value}'", span=text.span, hint=hint)
    for name in HISTORY:
        if name in schema:
            problem = f"{place}: '{output.source.value}' has a column '{name}', as the history itself has"
            yield SpecError(problem, span=target.place.span, hint="rename it")


def _refused_field(target: TargetSpec, kind: Type) -> str:
    """Return which name of a struct's field, however deep inside a type, a table can't have."""
    if kind.inner is not None:
        return _refused_field(target, kind.inner)
    seen: dict[str, str] = {}
    for name, _ in kind.fields:
        if target.kind == "delta" and UNFIT & {*name}:
            return f"it has no field with a name such as '{name}'"
        if (other := seen.setdefault(name.casefold(), name)) != name:
            return f"'{name}' and '{other}' are one field to its readers"
    return next(filter(None, (_refused_field(target, each) for _, each in kind.fields)), "")


def _refused_table(target: TargetSpec) -> str:
    """Return why an output can't have a table of this name in a database."""
    if target.kind != DATABASE:
        return ""
    *_, last = parts = target.called.split(".")
    if last.lower() in TABLES:
        return f"'{target.called}' is a table that `dd` itself makes"
    return next(filter(None, (too_long_name(target.product, part) for part in parts)), "")


def too_long_name(product: str, name: str) -> str:
    """Return the problem of a name that a database would cut, so that it becomes another one."""
    cut = product == "postgres" and len(name.encode()) > LONGEST
    return f"Postgres has no names of more than {LONGEST} bytes, as '{name}' is" if cut else ""


def holds(target: str, kind: Type, *, fed: bool = False) -> bool:
    """Return whether a table holds the values of a type as they are; a `fed` one of DuckDB has timestamps of more units."""
    if kind.kind == "list":
        assert kind.inner is not None
        flat = target == "postgres" and kind.inner.kind == "list"
        return target != "sqlite" and not flat and holds(target, kind.inner, fed=fed)
    if kind.kind == "struct":
        return target in STRUCTS and all(holds(target, each, fed=fed) for _, each in kind.fields)
    if kind.kind == "datetime":
        return kind.unit == "us" or (fed and target == "duckdb" and (kind.zone is None or kind.unit == "ms"))
    return kind.kind in KINDS[target]


def _hint(target: str, kind: Type) -> str:
    if kind.kind == "datetime":
        return "cast it to datetime[us], or to timestamptz if it has a zone"
    if kind.kind in ("int8", "int16", "uint8", "uint16"):
        return "cast it to int32"
    if kind.is_integer:
        return 'cast it to int64, or to "decimal(20, 0)"'
    if kind.kind == "struct" or (kind.inner is not None and kind.inner.kind == "struct"):
        if target in STRUCTS:
            return "cast the field that it can't hold, or write `parquet: FILE`, which holds all types"
        return "write its fields as columns of their own, `s.a`, or write `parquet: FILE`, which holds all types"
    return "cast it to another type, such as int64 or string, or write `parquet: FILE`, which holds all types"
