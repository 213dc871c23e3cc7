"""Debezium's events: a row before and after a change, the kind of the change, and its place in the source's log."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from ddcli.dataclass import dataclass
from ddcli.errors import InputError, Span, Text
from ddcli.expressions.types import Type
from ddcli.store.formats.base import INT64, BadRow, ConvertedRows, Format, Upserted, UpsertFormat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.expressions.types import Schema
    from ddcli.store.tables.kinds import Footer

OP, BEFORE, AFTER = "op", "before", "after"
NO_BEFORE, NO_AFTER = "before is null", "after is null"
OPS = ("c", "r", "u", "d")
TRUNCATE = "t"


@dataclass(frozen=True)
class Debezium(Format):
    """Without a key an event retracts the row before and inserts the row after. With one, it states the key's present record, and
    of a key's events at one time the last by `order` counts: so a repeated event does no harm.
    """

    nested: ClassVar[bool] = True
    key: tuple[str, ...] = field(default=(), kw_only=True)  # type: ignore[misc]
    order: str = field(default="source.lsn", kw_only=True)

    enveloped = judges = True

    def images(self, name: str) -> list[str]:
        return [name] if name in self.time else [f"{AFTER}.{name}", f"{BEFORE}.{name}"]

    def declared(self) -> Schema | None:
        if self.data is None or self.columns is None:
            return None
        images = {f"{side}.{name}": kind.or_null() for side in (BEFORE, AFTER) for name, kind in self.data.items()}
        times = {name: self.columns.get(name, INT64) for name in self.time}
        order = {self.order: INT64} if self.key else {}
        return {**order, **times, OP: Type("string", nullable=True), **images}

    def footer(self, path: Path, found: Footer) -> Footer:
        sides = {OP: [OP], AFTER: [name for name in found if name.startswith(f"{AFTER}.")]}
        for name, columns in sides.items():
            if not columns or columns[0] not in found:
                raise InputError(
                    f"the file has no column '{name}', which each event of Debezium has",
                    place=str(path),
                    hint="an event has `before`, `after`, `op` and `ts_ms`; for flattened rows set `flattened: true`",
                )
        rows = {name.removeprefix(f"{AFTER}."): found[name] for name in sides[AFTER]}
        return rows | {name: found[name] for name in self.time if name in found}

    def wanted(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*self.key, *columns]))

    def reads(self, columns: Sequence[str], found: Footer) -> list[str]:
        before = self.key or columns
        order = [self.order] if self.key else []
        times = [name for name in columns if name in self.time]
        rows = [name for name in columns if name not in self.time]
        images = [*(f"{BEFORE}.{name}" for name in before), *(f"{AFTER}.{name}" for name in rows)]
        return [OP, NO_BEFORE, NO_AFTER, *order, *times, *images]

    def turn(self, raw: pl.DataFrame, columns: Sequence[str]) -> ConvertedRows:
        import polars as pl

        raw = raw.with_row_index(ROW).filter(~(pl.col(OP).is_null() & pl.col(NO_BEFORE) & pl.col(NO_AFTER)))
        if self.key:
            raw = raw.filter(pl.col(OP).ne_missing(TRUNCATE))
        self._check(raw)
        _refuse_unavailable(raw)
        after = pl.col(OP) != "d"
        if not self.key:
            sides = [
                raw.filter(condition).select(ROW, pl.lit(diff).alias(DIFF), *_renamed(side, columns))
                for side, condition, diff in ((BEFORE, pl.col(OP).is_in(["u", "d"]), -1), (AFTER, after, 1))
            ]
            both = pl.concat(sides, how="vertical_relaxed")
            return ConvertedRows(both.drop(ROW, DIFF), both[DIFF].cast(pl.Int64), both[ROW])
        keys = [
            pl.when(after).then(pl.col(f"{AFTER}.{name}")).otherwise(pl.col(f"{BEFORE}.{name}")).alias(name)
            for name in self.key
        ]
        others = _renamed(AFTER, [name for name in columns if name not in (*self.key, *self.time)])
        others += [pl.col(name) for name in columns if name in self.time]
        frame = raw.select(*keys, *others, pl.col(OP).alias(HIDDEN + OP), pl.col(self.order).alias(HIDDEN + self.order))
        return ConvertedRows(frame, None, raw[ROW])

    def truncating(self) -> tuple[str, str, str] | None:
        return (OP, TRUNCATE, self.order) if self.key else None

    def upserted(self, frame: pl.DataFrame) -> Upserted | None:
        import polars as pl

        if not self.key:
            return None
        order = frame[HIDDEN + self.order]
        if order.null_count():
            raise BadRow(
                order.is_null().arg_true(),
                f"'{self.order}' is null",
                "each event needs its place in the source's log: see `order_by`",
            )
        return frame[HIDDEN + OP] != "d", order.cast(pl.Int64)

    def _check(self, raw: pl.DataFrame) -> None:
        """Refuse events that don't define a change by their row alone."""
        import polars as pl

        whole = [
            (
                ~pl.col(OP).is_in(OPS) | pl.col(OP).is_null(),
                "is not a known change of a row",
                f"known are {', '.join(OPS)}",
            )
        ]
        whole.append(((pl.col(OP) != "d") & pl.col(NO_AFTER), "comes without `after`", "such an event has no meaning"))
        condition = pl.col(OP) == "d" if self.key else pl.col(OP).is_in(["u", "d"])
        if not self.key:
            whole.insert(
                0, (pl.col(OP) == TRUNCATE, "needs to know all rows", "name the table's `key` under the input")
            )
        hint = "name the table's `key` under the input, or let the source log whole rows (REPLICA IDENTITY FULL)"
        whole.append((condition & pl.col(NO_BEFORE), "comes without `before`", hint))
        for failing, problem, hint in whole:
            found = raw.select(failing).to_series()
            if found.any():
                op = raw[OP].filter(found)
                same = op.eq_missing(op[0])
                raise BadRow(raw[ROW].filter(found).filter(same), f"the op {op[0]!r} {problem}", hint)


def _refuse_unavailable(raw: pl.DataFrame) -> None:
    """Refuse events in which the mark of an absent value stands in place of the value: it would become the record's."""
    import polars as pl

    for name, dtype in raw.schema.items():
        mark = {pl.String(): UNAVAILABLE, pl.Binary(): UNAVAILABLE.encode()}.get(dtype)
        if dtype == pl.List(pl.String):
            found = raw[name].list.contains(UNAVAILABLE).fill_null(value=False)
        elif mark is not None:
            found = (raw[name] == mark).fill_null(value=False)
        else:
            continue
        if found.any():
            column = name.removeprefix(f"{AFTER}.").removeprefix(f"{BEFORE}.")
            rows = raw[ROW].filter(found) if ROW in raw.columns else found.arg_true()
            problem = (
                f"the event lacks the value of '{column}', which did not change: it has '{UNAVAILABLE}' in its place"
            )
            raise BadRow(rows, problem, WHOLE)


UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's word for a large value (TOAST) that the source's log doesn't repeat."""
WHOLE = "let the source log whole rows (REPLICA IDENTITY FULL), or leave the column out of the declared `columns`"
DELETED = "__deleted"
ROW, DIFF, HIDDEN = "row of the event", "diff of the row", "hidden "


def _renamed(side: str, columns: Sequence[str]) -> list[pl.Expr]:
    import polars as pl

    return [pl.col(f"{side}.{name}").alias(name) for name in columns]


class Flattened(UpsertFormat):
    """Rows as the transform ExtractNewRecordState leaves them: the row after, and added columns whose names begin with `__`."""

    enveloped = judges = True

    def bound(self, columns: Schema, time: Schema) -> Self:
        is_bool = DELETED in columns and columns[DELETED].kind == "bool"
        deletes = {DELETED: DELETED if is_bool else f"{DELETED} = 'true'", "__op": "__op = 'd'"}
        orders = {name: name for name in ("__lsn", "__source_lsn")}
        delete_when = self.delete_when or self._first(deletes, columns)
        order_by = self.order_by or self._first(orders, columns)
        return super(Flattened, replace(self, delete_when=delete_when, order_by=order_by)).bound(columns, time)

    def turn(self, raw: pl.DataFrame, columns: Sequence[str]) -> ConvertedRows:
        _refuse_unavailable(raw)
        return super().turn(raw, columns)

    @staticmethod
    def _first(choices: dict[str, str], columns: Schema) -> Text | None:
        return next((Text(text, Span("", 1, 1)) for name, text in choices.items() if name in columns), None)
