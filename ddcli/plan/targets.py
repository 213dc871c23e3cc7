"""Which columns the tables can hold that follow outputs: a value has to come back as what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.expressions.types import Schema, Type
    from ddcli.spec.model import OutputSpec

SHARED = frozenset({"int32", "int64", "float32", "float64", "bool", "date", "string", "binary", "decimal"})
KINDS = {"delta": SHARED | {"int8", "int16"}, "iceberg": SHARED}
"""Kinds of types that a table holds as they are, beside lists of them and timestamps in microseconds, without a zone or in UTC."""
NAMES = {"delta": "Delta Lake", "iceberg": "Iceberg"}
UNFIT = frozenset(" ,;{}()\n\t=")
"""Characters that names of Delta's columns don't have."""


def refused_columns(output: OutputSpec, schema: Schema, time: Schema) -> Iterator[SpecError]:
    """Yield an error for each column of an output that its table can't hold. `schema` are the columns of its contents, `time` those of its log's times."""
    target = output.target
    if target is None or target.kind not in KINDS:
        return
    columns = schema if target.table else schema | time
    place = f"outputs.{output.name.value}.{target.kind}"

    def refused(problem: str, hint: str) -> SpecError:
        return SpecError(f"{place}: {problem}", span=target.place.span, hint=hint)

    if not columns:
        yield refused("a table has columns, and this output has none", "select one")
    seen: dict[str, str] = {}
    for name, kind in columns.items():
        if target.kind == "delta" and UNFIT & {*name}:
            yield refused(
                f"Delta Lake has no column with a name such as '{name}'",
                "rename it: without spaces and any of `,;{}()=`",
            )
        if (other := seen.setdefault(name.casefold(), name)) != name:
            yield refused(
                f"'{name}' and '{other}' are one column to readers of {NAMES[target.kind]}", "rename one of them"
            )
        if not _holds(target.kind, kind):
            yield refused(
                f"{NAMES[target.kind]} can't hold the column '{name}' of type {kind.required()}",
                _hint(kind),
            )


def _holds(target: str, kind: Type) -> bool:
    if kind.kind == "list":
        return kind.inner is not None and _holds(target, kind.inner)
    if kind.kind == "datetime":
        return kind.unit == "us" and kind.zone in (None, "UTC")
    return kind.kind in KINDS[target]


def _hint(kind: Type) -> str:
    if kind.kind == "datetime":
        return "cast it to datetime[us], or to datetime[us, UTC] if it has a zone"
    if kind.kind in ("int8", "int16", "uint8", "uint16"):
        return "cast it to int32"
    if kind.is_integer:
        return 'cast it to int64, or to "decimal(20, 0)"'
    return "cast it to another type, such as int64 or string, or write `parquet: FILE`, which holds all types"
