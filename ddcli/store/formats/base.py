"""The base of all formats, the plain ones: `updates`, whose rows are updates, and `append`, whose rows are inserted; and upserts and snapshots, whose rows state what holds from their time on.

A format returns the columns of a log for its readers (`footer`), the columns of the files that it reads for some of these
(`reads`), and the updates of rows (`turn`). It sees rows alone: files, times, types and late rows are the reader's.
polars is not imported before there are rows: a check asks for columns only.

In upserts each row is the record of its key from its time on, or states that the key has no record from then on. In snapshots all rows of one time
are the whole table as it was then.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.expressions.tree import MapStep
from ddcli.expressions.types import ColumnScope, Type

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.errors import Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.store.tables.input_path import FormerNames
    from ddcli.store.tables.kinds import Footer


INT64 = Type("int64")
PAYLOAD = "payload"
"""The key of an object that may have a row as its value, where no column has this name."""


class ConvertedRows(NamedTuple):
    """The updates that rows became: data columns, diffs (None: each +1), and the number of each one's row (None: all, in order)."""

    frame: pl.DataFrame
    diffs: pl.Series | None = None
    rows: pl.Series | None = None


CLOCK_HINT = ", or write `clock: arrival` at the top of the file: the time of a row is then the run that reads it"


Upserted = tuple["pl.Series", "pl.Series | None"]
"""The meaning of rows that replace the record of their key: whether the key has a record, and the order that decides among rows at one time; None: they have none."""


class BadRow(Exception):
    """Rows that mean nothing in the format: their numbers among the given rows, the problem, and a hint."""

    def __init__(self, rows: pl.Series, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.rows, self.problem, self.hint = rows, problem, hint

    @property
    def row(self) -> int:
        """The first of them."""
        return int(self.rows[0])


@dataclass(frozen=True)
class Format:
    """The meaning of an input's rows. `columns` are those that the pipeline declares: data, and times where files are text."""

    nested: ClassVar[bool] = False
    """True: fields of structs are read, as columns named with dots."""
    tables: ClassVar[bool] = False
    """True: all rows of one time are a whole table."""
    key: ClassVar[tuple[str, ...]] = ()

    time: tuple[str, ...] = ("time",)
    columns: Schema | None = None
    diff: str | None = field(default=None, kw_only=True)
    file_name: str | None = field(default=None, kw_only=True)
    """A pattern of files' names, in which columns are in braces."""
    dialect: Dialect = field(default=DEFAULT, kw_only=True)
    """The dialect of CSV files."""
    late: str = field(default="error", kw_only=True)
    """The treatment of rows at times that were closed: `error`, `arrive` or `quarantine`."""
    lasting: bool = field(default=False, kw_only=True)
    """True: the order of a key's rows decides across times."""
    ignored: tuple[str, ...] = field(default=(), kw_only=True)
    """The columns of files that are no data: the times of a log whose updates have the times of runs."""
    absent: tuple[str, ...] = field(default=(), kw_only=True)
    """Columns that a file may lack: they came later, and are null in its rows."""
    unites: bool = field(default=False, kw_only=True)
    """True: the log has the columns of all files, as one that a pipeline writes; a file may lack some, and have them in narrower types."""
    former: FormerNames = field(default_factory=dict, kw_only=True)
    """The other names that files may have for columns."""
    inferred: str = field(default="", kw_only=True)
    """The addition to an error about columns that were not declared."""
    rounds: bool = field(default=False, kw_only=True)
    """True: decimals of text with more digits than their column has are rounded."""
    quarantines: bool = field(default=False, kw_only=True)
    """True: rows of text that can't be read are left out, for a side log."""
    clock_hint: str = field(default=CLOCK_HINT, kw_only=True)
    """The end of the hint for a file without a time column: that the clock of arrivals needs none, or why it can't be."""

    @property
    def adds_up(self) -> bool:
        """Return whether rows are updates: two equal ones are one with twice the diff; others come once each."""
        return not self.key

    @property
    def enveloped(self) -> bool:
        """Return whether objects of JSON may be the payload of others, beside a schema, as Kafka Connect writes them."""
        return False

    @property
    def judges(self) -> bool:
        """Return whether a row may have no meaning although each of its values has its type."""
        return False

    def images(self, name: str) -> list[str]:
        """Return the columns of a file that may have the value of a data column, the first that has one."""
        return [name]

    @property
    def data(self) -> Schema | None:
        """The declared data columns, if any are declared."""
        if self.columns is None:
            return None
        others = {*self.time, self.diff, *self.ignored}
        return {name: kind for name, kind in self.columns.items() if name not in others}

    def declared(self) -> Schema | None:
        """Return the types of the files' own columns, if any are declared; text files have no others."""
        if self.columns is None:
            return None
        return {**dict.fromkeys([*self.time, *([self.diff] if self.diff else [])], INT64), **self.columns}

    def bound(self, columns: Schema, time: Schema) -> Self:
        """Return the format of a log that has these columns. Raises SpecError if it names others."""
        return self

    def footer(self, path: Path, found: Footer) -> Footer:
        """Return the columns that the log has, of those that a file has. Raises InputError for a file of another format."""
        return found

    def wanted(self, columns: Sequence[str]) -> list[str]:
        """Return the data columns that are needed to compute some of them."""
        return list(columns)

    def reads(self, columns: Sequence[str], found: Footer) -> list[str]:
        """Return the columns to read of a file for these data columns."""
        return [*columns, *([self.diff] if self.diff in found and self.diff else [])]

    def turn(self, raw: pl.DataFrame, columns: Sequence[str]) -> ConvertedRows:
        """Return the updates that rows become; `raw` has the columns of `reads`. Raises `BadRow`."""
        import polars as pl

        frame = pl.DataFrame([raw[name] for name in columns]) if columns else raw.drop(raw.columns)
        return ConvertedRows(frame, raw[self.diff] if self.diff in raw.columns and self.diff else None)

    def truncating(self) -> tuple[str, str, str] | None:
        """Return the column and the value that mark rows which delete the records of all keys, and the column of their order; None without such rows."""
        return None

    def upserted(self, frame: pl.DataFrame) -> Upserted | None:
        """Return the meaning of typed rows for their keys; None for a format without keys."""
        return None


class Append(Format):
    """Each row is inserted at its time."""

    @property
    def enveloped(self) -> bool:
        return PAYLOAD not in (self.columns or {})


@dataclass(frozen=True)
class Updates(Format):
    """Each row is an update: data, time, and a diff; where no file has such a column, +1."""

    diff: str | None = field(default="diff", kw_only=True)


ORDERED = "an integer, a float, a date, a datetime or a decimal of up to 18 digits"


@dataclass(frozen=True)
class UpsertFormat(Format):
    """The format of upserts: the last row of a key at a time, by `order_by`, is its record. The key has none if `delete_when` is true, or
    (without such a condition) all columns beside the key are null.
    """

    key: tuple[str, ...] = field(default=(), kw_only=True)  # type: ignore[misc]
    delete_when: Text | None = field(default=None, kw_only=True)
    order_by: Text | None = field(default=None, kw_only=True)
    deletes: Expression | None = field(default=None, kw_only=True)
    orders: Expression | None = field(default=None, kw_only=True)
    kinds: Schema = field(default_factory=dict, kw_only=True)

    @property
    def enveloped(self) -> bool:
        return PAYLOAD not in (self.columns or {})

    @property
    def judges(self) -> bool:
        return self.orders is not None

    def bound(self, columns: Schema, time: Schema) -> Self:
        scope = ColumnScope(columns | time)
        deletes = _parsed(self.delete_when, scope)
        if deletes and self.delete_when and deletes.type.kind != "bool":
            raise SpecError(
                f"`delete_when` is {deletes.type}, not a condition",
                span=self.delete_when.span,
                hint="for example `delete_when: op = 'D'`",
            )
        orders = parsed_order(self.order_by, scope)
        return replace(self, deletes=deletes, orders=orders, kinds=columns | time)

    def wanted(self, columns: Sequence[str]) -> list[str]:
        used = [name for e in (self.deletes, self.orders) if e for name in sorted(e.columns())]
        every = [name for name in self.kinds if name not in self.time] if self.deletes is None else []
        return list(dict.fromkeys([*self.key, *columns, *used, *every]))

    def upserted(self, frame: pl.DataFrame) -> Upserted | None:

        present = ~self.deleted(frame)
        if self.orders is None:
            return present, None
        order = self._value(frame, self.orders)
        if order.null_count():
            raise BadRow(
                order.is_null().arg_true(), "`order_by` is null", "each row needs an order among the rows of its key"
            )
        return present, order

    def deleted(self, frame: pl.DataFrame) -> pl.Series:
        """Return, for each row, whether it deletes the record of its key."""
        import polars as pl

        if self.deletes is not None:
            return self._value(frame, self.deletes).fill_null(value=False)
        values = [name for name in self.kinds if name not in self.key and name not in self.time]
        if not values:
            return pl.repeat(value=False, n=frame.height, dtype=pl.Boolean, eager=True)
        return frame.select(pl.all_horizontal(pl.col(values).is_null())).to_series()

    def _value(self, frame: pl.DataFrame, expression: Expression) -> pl.Series:
        return value_of(frame, expression, self.kinds)


def value_of(frame: pl.DataFrame, expression: Expression, kinds: Schema) -> pl.Series:
    """Return an expression's values over the rows of a frame, whose columns are of these types."""
    from ddcli.expressions.stage import FusedSteps

    stage = FusedSteps({name: kinds[name] for name in frame.columns}, (MapStep((("value", expression),)),))
    return stage.run(frame).frame["value"]


def parsed_order(text: Text | None, scope: ColumnScope) -> Expression | None:
    """Return the expression of an `order_by`; raise SpecError for one whose values have no order."""
    orders = _parsed(text, scope)
    if (
        orders
        and text
        and (orders.type.required().lanes != 1 or orders.type.kind in ("string", "binary", "list", "struct", "null"))
    ):
        raise SpecError(
            f"`order_by` is {orders.type}, by which rows can't be put in order here",
            span=text.span,
            hint=f"order by {ORDERED}",
        )
    return orders


def _parsed(text: Text | None, scope: ColumnScope) -> Expression | None:
    """Return an expression that was given. Only then is the parser imported."""
    if text is None:
        return None
    from ddcli.expressions.parse import parse_scalar

    return parse_scalar(text, scope)


@dataclass(frozen=True)
class SnapshotsFormat(Format):
    """Each time's rows replace the rows of the time before. With a `key`, no two rows of one time have the same.

    Where rows have the time of the run that takes them in, those with the greatest `order_by` are the newest table.
    """

    tables: ClassVar[bool] = True

    key: tuple[str, ...] = field(default=(), kw_only=True)  # type: ignore[misc]
    order_by: Text | None = field(default=None, kw_only=True)
    orders: Expression | None = field(default=None, kw_only=True)
    kinds: Schema = field(default_factory=dict, kw_only=True)

    @property
    def adds_up(self) -> bool:
        return False

    @property
    def judges(self) -> bool:
        return self.order_by is not None

    def bound(self, columns: Schema, time: Schema) -> Self:
        orders = parsed_order(self.order_by, ColumnScope(columns | time))
        return replace(self, orders=orders, kinds=columns | time)

    def wanted(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*self.key, *columns, *self.ordering()]))

    def ordering(self) -> list[str]:
        """Return the columns that `order_by` reads."""
        return sorted(self.orders.columns()) if self.orders else []

    def ordered(self, frame: pl.DataFrame) -> pl.Series:
        """Return the order of typed rows. Raises `BadRow`."""
        assert self.orders is not None, "tables without an order"
        order = value_of(frame.select(self.ordering()), self.orders, self.kinds)
        if order.null_count():
            raise BadRow(order.is_null().arg_true(), "`order_by` is null", "each row needs the order of its table")
        return order
