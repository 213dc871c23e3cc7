"""The rows of tables in files: if a file can't be read, or has a forbidden value, the error names that file and its first such row.

Rows are only searched once a cheap count has shown that there is one to find.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.errors import InputError
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.expressions.moments import RANGE, leaves_years, year_of
from ddcli.expressions.types import ARRIVAL, FLOATS, INTEGERS
from ddcli.store.parquet.pages import PageReader
from ddcli.store.parquet.row_groups import is_large, row_count
from ddcli.store.tables.endings import TABLES, kind_of
from ddcli.store.tables.footers import TEXT, renamed_hint
from ddcli.store.tables.input_path import (
    NDJSON,
    PARQUET,
    Partition,
    bare,
    by_column,
    in_file,
    name_of_kind,
    names_in_file,
    packing_of,
    refuse_patterns,
    types_of_partitions,
)
from ddcli.store.tables.json_values import numbered_lines
from ddcli.store.tables.kinds import READ_ERRORS, damaged, refused, unreadable
from ddcli.store.tables.wider_types import first_misfit, widen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema, Type
    from ddcli.store.tables.input_path import FormerNames
    from ddcli.store.tables.kinds import Footer, Kind

WHOLLY = frozenset({*INTEGERS, *FLOATS, "bool", "string", "binary"})
"""The kinds of types that hold all values which polars may have in theirs: files may have dates in the year 20000, and decimals with too many digits."""
TOGETHER = 64
MANY = 1 << 20
"""Rows of a row group that are not held at once where they are only looked through."""
FAILING = "\0failing in "
NUMBER = "\0number of the row"
DOT, IS_NULL = ".", " is null"


LINE = re.compile(r":[0-9]+$")
"""The end of a place that has a line."""


def row_words(row: int, place: str) -> str:
    """Return the number of a row for people; none if its place is the line of a text."""
    return "" if LINE.search(place) else f"row {row} (counted from 0)"


@dataclass
class Tables:
    """The files of an input as tables that can be read by a few columns and rows.

    `declared` are the types of text's columns. `partitions` are the columns that files' directories state, if the file lacks
    them. `nested`: fields of structs are columns too, `source.lsn`, and `before is null` is true where a struct is null.
    `dialect` is for CSV. `enveloped`: objects of JSON may be the payload of others, beside a schema.
    """

    declared: Schema | None = None
    partitions: dict[Path, Partition] = field(default_factory=dict)
    nested: bool = False
    times: tuple[str, ...] = ()
    dialect: Dialect = DEFAULT
    enveloped: bool = False
    rounds: bool = False
    """True: decimals of text with more digits than their column has are rounded."""
    former: FormerNames = field(default_factory=dict)
    """The other names that files may have for columns."""
    absent: tuple[str, ...] = ()
    """Declared columns that a file may lack: they are null in its rows. (JSON lacks none.)"""
    remark: str = ""
    """The addition to the hint about a value that doesn't fit its type, if the types were inferred."""
    passed: dict[Path, pl.Series] = field(default_factory=dict)
    """The numbers of rows of text that can't be read, by file: they are left out, but counted in the numbers of later rows."""
    _kinds: dict[object, Kind] = field(default_factory=dict)
    _names: dict[Path, dict[str, str]] = field(default_factory=dict)
    _lacked: dict[Path, Partition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.partitioned = types_of_partitions(self.partitions.values(), self.times, self.declared)

    @cached_property
    def _pages(self) -> PageReader:
        return PageReader()

    def footer(self, path: Path) -> Footer:
        """Return the columns of a file with their polars types, or refuse the file."""
        kind = self.kind(path)
        with refused(kind, path):
            found = kind.footer(path)
        found = by_column(self._names_in(path), found)
        refuse_patterns(str(path), found, self.declared)
        beside = {name: self.partitioned[name].to_polars() for name in self._beside(path, found)}
        structs = [(name, dtype) for name, dtype in found.items() if self.nested and isinstance(dtype, pl.Struct)]
        fields = {f"{name}{DOT}{inner.name}": inner.dtype for name, struct in structs for inner in struct.fields}
        return found | fields | beside

    def check(self, path: Path, columns: Footer) -> None:
        """Refuse a file in which something is wrong that its reader would ignore or alter: to be done before rows are read of it."""
        kind = self.kind(path)
        with refused(kind, path):
            found = kind.find_damage(path) or kind.find_altered(path, self._own(path, columns))
        if found is not None:
            raise found

    def _own(self, path: Path, columns: Footer) -> Footer:
        """Return the columns of a file that are read, of structs whole ones."""
        read = {
            name.partition(DOT)[0] if self.nested else name
            for name in (columns if self.declared is None else self.declared)
        }
        beside = self._given(path)
        own = {name: dtype for name, dtype in columns.items() if name in read and name not in beside}
        return in_file(self._names_in(path), own)

    def kind(self, path: Path) -> Kind:
        """Return the kind of a file."""
        return self._kind(path, self._names_in(path))

    def _kind(self, path: Path, names: Mapping[str, str]) -> Kind:
        """Return the kind of a file that has these names for columns."""
        if (stated := TABLES.get(name_of_kind(path))) is not None:
            return stated
        partition = {} if self.dialect.has_header else self.partitions.get(path, {})
        alike = (packing_of(path.name), bare(path.name).rpartition(".")[2], *partition, *names.items())
        if (known := self._kinds.get(alike)) is None:
            dialect = self.dialect.of(bare(path.name), partition)
            known = self._kinds[alike] = kind_of(
                path,
                in_file(names, self.declared) if names and self.declared is not None else self.declared,
                dialect,
                nested=self.nested,
                enveloped=self.enveloped,
                rounds=self.rounds,
            )
        return known

    def _names_in(self, path: Path) -> dict[str, str]:
        """Return the names that a file has for columns, where these are others."""
        if not self.former:
            return {}
        if path not in self._names:
            self._names[path] = names_in_file(path, self.former, self._found_in(path))
        return self._names[path]

    def _found_in(self, path: Path) -> Collection[str]:
        """Return the columns that a file has itself; of JSON, those under any of the columns' names that have a value."""
        kind = self._kind(path, {})
        with refused(kind, path):
            if kind.name != NDJSON:
                return kind.footer(path)
            every = {name: TEXT for column, others in self.former.items() for name in (column, *others)}
            texts = kind_of(path, every, self.dialect, enveloped=self.enveloped)
            found = texts.scan([path]).select(pl.all().is_not_null().any()).collect(engine="streaming")
        return [name for name in every if found[name].any()]

    def alike(self, path: Path, found: Footer) -> tuple[object, ...]:
        """Return the key that files have in common that can be read in one scan."""
        apart = (path,) if path in self.passed else ()
        names = self._names_in(path).items()
        return (self.kind(path), *apart, *names, *found.items(), *self._given(path).items())

    def collect(
        self, paths: Sequence[Path], columns: Sequence[str], rows: tuple[int, int] | None = None
    ) -> pl.DataFrame:
        """Return columns of files of one kind. Raises the error of the first damaged file, with its place."""
        scan = self.scan(paths, columns, rows)
        return self._checked(paths, self._collected(paths, columns, scan), columns, rows)

    def collect_each(self, paths: Sequence[Path], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Read columns of each file, some files at a time: 1 000 small ones take 0.2 s, and 0.5 s one by one."""
        if [*columns] == [ARRIVAL]:
            known = [arrived for path in paths if (arrived := self._arrival(path)) is not None]
            if len(known) == len(paths):
                yield from (time.new_from_index(0, rows).to_frame() for rows, time in known)
                return
        if len(paths) == 1:
            yield self.collect(paths, columns)
            return
        for first in range(0, len(paths), TOGETHER):
            part = paths[first : first + TOGETHER]
            try:
                frames = pl.collect_all([self.scan([path], columns) for path in part])
            except (OSError, *READ_ERRORS):
                yield from [self.collect([path], columns) for path in part]
            else:
                yield from [
                    self._checked([path], frame, columns, None) for path, frame in zip(part, frames, strict=True)
                ]

    def _arrival(self, path: Path) -> tuple[int, pl.Series] | None:
        """Return the number of rows of a file and their time of arrival, where that number is known, so that it takes no query; None for others.

        A file of a mirror that stands for several has the times of its rows itself.
        """
        known, kind = self.partitions.get(path, {}).get(ARRIVAL), self.kind(path)
        if known is None:
            return None
        if kind.name == PARQUET:
            rows = row_count(path, ARRIVAL)
        else:
            rows = self.known_rows(path)
            if rows is not None and ARRIVAL not in self._beside(
                path, by_column(self._names_in(path), kind.footer(path))
            ):
                return None
        if rows is None:
            return None
        return rows, pl.Series(ARRIVAL, [int(known)], pl.Int64).cast(self.partitioned[ARRIVAL].to_polars())

    def known_rows(self, path: Path) -> int | None:
        """Return the number of rows of a file, if it is known without a reading of them."""
        return None if path in self.passed else self.kind(path).known_rows(path)

    def count_rows(self, path: Path) -> int:
        """Return the number of rows of a file."""
        if (count := self.known_rows(path)) is not None:
            return count
        rows: int = self._collected([path], (), self._read([path]).select(pl.len())).item()
        return rows

    def place(self, path: Path, row: int) -> str:
        """Return the place of a row of a file for people."""
        return self.kind(path).place(path, self.number(path, row))

    def number(self, path: Path, row: int) -> int:
        """Return the number that a row of a file has if those are counted, too, that can't be read."""
        for passed in self.passed.get(path, ()):
            row += passed <= row
        return row

    def flagged(self, path: Path, columns: Sequence[str], rows: tuple[int, int]) -> pl.DataFrame:
        """Return some rows of a file with the flags of values that failed to be of their types."""
        return self._collected([path], columns, self.scan([path], columns, rows))

    def misshapen(self, path: Path) -> dict[int, tuple[str, str]]:
        """Return column and text of values of JSON that would have to be objects, by row: from now on they are read as null."""
        from ddcli.store.tables.json_kind import Ndjson

        kind = self.kind(path)
        return kind.misshapen(path) if isinstance(kind, Ndjson) else {}

    def texts(self, path: Path, name: str, rows: pl.Series) -> list[str | None]:
        """Return a column of text in some rows of a file, as it is written."""
        with refused(self.kind(path), path):
            scan = self._text([path], name)
        found: list[str | None] = self._collected([path], (), scan).to_series()[rows].to_list()
        return found

    def _read(self, paths: Sequence[Path]) -> pl.LazyFrame:
        """Return all columns of files that are alike, without the rows that can't be read."""
        kind = self.kind(paths[0])
        with refused(kind, paths[0]):
            scan = kind.scan(paths)
        passed = self.passed.get(paths[0])
        if passed is None:
            return scan
        assert len(paths) == 1, "a file with skipped rows is like no other"
        return scan.with_row_index(NUMBER).filter(~pl.col(NUMBER).is_in(passed.implode())).drop(NUMBER)

    def rows_together(self, path: Path, most: int) -> int:
        """Return the best number of rows, at most `most`, of a file's slices: whole row groups, if several fit."""
        group = self._pages.groups(path).rows if self.kind(path).name == PARQUET else 0
        return most // group * group if 0 < group <= most else most

    def streamed(self, paths: Sequence[Path], scan: pl.LazyFrame, columns: Sequence[str] = ()) -> pl.DataFrame:
        """Return the result of a query over a scan of these columns of files, streaming their rows, or refuse the first damaged file."""
        return self._collected(paths, columns, scan, "streaming")

    def ends(self, path: Path, columns: Sequence[str]) -> tuple[int, pl.DataFrame, bool]:
        """Return the number of rows, the least and the largest value of each column as two rows, and whether one has a null; the file streams by, once."""
        if [*columns] == [ARRIVAL] and (arrived := self._arrival(path)) is not None:
            rows, time = arrived
            return rows, pl.DataFrame([time.new_from_index(0, 2)]), False
        if self.kind(path).name == PARQUET and self._pages.groups(path).rows > MANY:
            return self._ends_by_slices(path, columns)
        asked = {"min": pl.Expr.min, "max": pl.Expr.max, "nulls": pl.Expr.null_count}
        wanted = [of(pl.col(name)).alias(f"{what}\0{name}") for what, of in asked.items() for name in columns]
        scan = self.scan([path], columns).select(*wanted, pl.len().alias("rows\0"), pl.col(f"^{FAILING}.*$").any())
        found = self._collected([path], columns, scan, "streaming")
        if any(found.select(pl.col(f"^{FAILING}.*$")).row(0) if found.width > len(wanted) + 1 else ()):
            self.collect([path], columns)
        least, largest, nulls = (
            found.select(pl.col(f"{what}\0{name}").alias(name) for name in columns) for what in asked
        )
        return found.item(0, "rows\0"), pl.concat([least, largest]), any(nulls.row(0))

    def _ends_by_slices(self, path: Path, columns: Sequence[str]) -> tuple[int, pl.DataFrame, bool]:
        rows, frames, nulls = self.count_rows(path), list[pl.DataFrame](), False
        for first in range(0, rows, MANY):
            frame = self.collect([path], columns, (first, MANY))
            nulls = nulls or any(series.null_count() for series in frame)
            frames += [frame.min(), frame.max()]
        found = pl.concat(frames)
        return rows, pl.concat([found.min(), found.max()]), nulls

    def refuse_nulls(self, path: Path, frame: pl.DataFrame, names: Iterable[str], what: str) -> None:
        """Refuse a null in any of these columns of a whole file; `what` is the message's word for such a column."""
        for name in names:
            if frame[name].null_count():
                raise self.null(path, frame[name].is_null().arg_max() or 0, what, name)

    def null(self, path: Path, row: int, what: str, name: str) -> InputError:
        """Return the error for a null in a row of a file; in JSON also for a value that the row has under another name, or not at all."""
        kind = self.declared[name] if self.declared and name in self.declared else "int64"
        hint = (
            f"if it may hold nulls, declare it with '?' under the input's `columns`: `{name}: \"{kind}?\"`"
            if what == "column"
            else "each row must have one"
        )
        if what == "diff column":
            hint += "; if all rows are inserted, write `format: append`"
        if self.declared is not None and (others := self._undeclared(path, row, name)):
            hint = renamed_hint(name, self.declared[name], others, self.former)
        place = self.place(path, row)
        where = f", first in {words}" if (words := row_words(row, place)) else ""
        return InputError(f"{what} '{name}' has a null{where}", place=place, hint=hint)

    def _undeclared(self, path: Path, row: int, missing: str) -> list[str]:
        """Return the names in a row of JSON that are no columns', if it lacks a name of a declared one; none of other rows."""
        kind = self.kind(path)
        if kind.name != NDJSON or self.nested or self.declared is None or missing not in self.declared:
            return []
        (line,) = kind.lines(path, [row])
        found = json.loads(next(text for number, text in numbered_lines(path) if number == line))
        inner = found.get("payload") if self.enveloped else None
        names = [*(inner if isinstance(inner, dict) else found)]
        known = {name for each in self.declared for name in (each, *self.former.get(each, ()))}
        lacks = {missing, *self.former.get(missing, ())}.isdisjoint(names)
        return [name for name in names if name not in known] if lacks else []

    def fit(self, paths: Sequence[Path], series: pl.Series, wanted: Type) -> pl.Series:
        """Return a column in its type; where a value is out of the type's range, name the file that has it and the first row."""
        if wanted.kind in WHOLLY and series.dtype == wanted.to_polars():
            return series
        try:
            return widen(series, wanted)
        except OverflowError:
            for path in paths:
                whole = self.collect([path], [series.name])[series.name]
                if (row := first_misfit(whole, wanted)) is not None:
                    one = whole[row : row + 1]
                    dated = leaves_years(one)
                    value = f"the year {year_of(one)}" if dated else str(one[0])
                    raise InputError(
                        f"column '{series.name}' has a value out of the range of {wanted}: {value}, first in row {row} (counted from 0)",
                        place=str(path),
                        hint=RANGE if dated else None,
                    ) from None
            raise

    def scan(self, paths: Sequence[Path], columns: Sequence[str], rows: tuple[int, int] | None = None) -> pl.LazyFrame:
        """Return columns of files that are alike, in their types, and of text which values failed to be of theirs."""
        try:
            return self._scan(paths, columns, rows)
        except OSError as error:
            for path in paths if len(paths) > 1 and error.filename is None else ():
                self.scan([path], columns)
            raise unreadable(str(error.filename or paths[0]), error) from None

    def _scan(self, paths: Sequence[Path], columns: Sequence[str], rows: tuple[int, int] | None) -> pl.LazyFrame:
        kind = self.kind(paths[0])
        there = self._names_in(paths[0])
        names = {name: there.get(name, name) for name in columns}
        scan = self._slice(paths[0], [*names.values()], rows) if rows else self._read(paths)
        if self.nested:
            scan = scan.with_columns(*_taken_apart([*names], scan.collect_schema()))
        beside = {}
        if self._given(paths[0]):
            beside = self._beside(paths[0], by_column(there, kind.footer(paths[0])))
        own = [name for column, name in names.items() if column not in beside]
        flags = [failing.alias(FAILING + name) for name, failing in by_column(there, kind.failing(own)).items()]
        values = [self._partition_value(paths[0], name, text) for name, text in beside.items() if name in names]
        return (
            kind.prepared(scan, own)
            .with_columns(*kind.typed(own), *values, *flags)
            .select(
                *(pl.col(name).alias(column) for column, name in names.items()),
                *(flag.meta.output_name() for flag in flags),
            )
        )

    def _slice(self, path: Path, names: Sequence[str], rows: tuple[int, int]) -> pl.LazyFrame:
        """Return some rows of a file; large row groups of Parquet are not read whole."""
        kind = self.kind(path)
        if kind.name == PARQUET and is_large(path) and self._pages.suits(path, rows[1]):
            found = kind.footer(path)
            used = {part for name in names for part in (name, name.partition(DOT)[0], name.removesuffix(IS_NULL))}
            own = {name: dtype for name, dtype in found.items() if name in used}
            frame = self._pages.read(path, list(own), rows) if own else None
            if frame is not None:
                return frame.cast(pl.Schema(own)).lazy()
        return self._read([path]).slice(*rows)

    def _beside(self, path: Path, found: Footer) -> Partition:
        """Return the values of columns that a file's directories state and the file doesn't have itself (all for NDJSON, whose columns are unknown)."""
        own = () if self.kind(path).name == NDJSON else found
        return {name: text for name, text in self._given(path).items() if name not in own}

    def _given(self, path: Path) -> Partition:
        """Return the values of columns that a file's path states, and null for those that the file lacks."""
        known = self.partitions.get(path, {})
        if not self.absent:
            return known
        if path not in self._lacked:
            kind = self.kind(path)
            found = self.absent if kind.name == NDJSON else by_column(self._names_in(path), kind.footer(path))
            self._lacked[path] = dict.fromkeys(name for name in self.absent if name not in found)
        return self._lacked[path] | known

    def _text(self, paths: Sequence[Path], name: str) -> pl.LazyFrame:
        """Return a column of text as it is written."""
        scan, there = self._read(paths), self._names_in(paths[0]).get(name, name)
        return scan.with_columns(*_taken_apart([there], scan.collect_schema())).select(pl.col(there).alias(name))

    def from_path(self, path: Path, names: Iterable[str]) -> pl.DataFrame | None:
        """Return one row with the values of columns in a file's path, None where the path lacks one."""
        known = self._given(path)
        if not all(name in known for name in names):
            return None
        return pl.select([self._partition_value(path, name, known[name]) for name in names])

    def _partition_value(self, path: Path, name: str, text: str | None) -> pl.Expr:
        wanted = self.partitioned[name]
        if name == ARRIVAL:
            return pl.lit(int(text or 0), pl.Int64).cast(wanted.to_polars()).alias(name)
        if text is None or wanted.kind == "string":
            return pl.lit(text, wanted.to_polars()).alias(name)
        from ddcli.store.tables.text_kind import value_in_path

        return value_in_path(path, name, text, wanted, rounds=self.rounds).alias(name)

    def _collected(
        self, paths: Sequence[Path], columns: Sequence[str], scan: pl.LazyFrame, engine: str = "auto"
    ) -> pl.DataFrame:
        """Return the rows of a scan of files, or name the first damaged one."""
        try:
            return scan.collect(engine=engine)  # type: ignore[call-overload,no-any-return]
        except (OSError, *READ_ERRORS) as error:
            for path in paths if len(paths) > 1 and getattr(error, "filename", None) is None else ():
                self.collect([path], columns)
            if isinstance(error, OSError):
                raise unreadable(str(error.filename or paths[0]), error) from None
            raise damaged(self.kind(paths[0]), paths[0], error) from None

    def _checked(
        self, paths: Sequence[Path], frame: pl.DataFrame, columns: Sequence[str], rows: tuple[int, int] | None
    ) -> pl.DataFrame:
        """Return a frame without the flags of failing values, or name the first of them."""
        flags = [name for name in frame.columns if name.startswith(FAILING)]
        for flag in flags:
            if not frame[flag].any():
                continue
            if len(paths) > 1:
                for path in paths:
                    self.collect([path], columns)
            name, row = flag.removeprefix(FAILING), (rows[0] if rows else 0) + (frame[flag].arg_max() or 0)
            value = self._collected(paths, columns, self._text(paths, name).slice(row, 1)).item()
            from ddcli.store.tables.text_kind import TextKind

            kind = self.kind(paths[0])
            assert isinstance(kind, TextKind)
            problem, hint = kind.misfit(name, self._names_in(paths[0]).get(name, name), value, self.dialect)
            hint += f"; {self.remark}" if self.remark else ""
            raise InputError(problem, place=self.place(paths[0], row), hint=hint)
        return frame.drop(flags) if flags else frame


def _taken_apart(names: Sequence[str], found: pl.Schema) -> Iterator[pl.Expr]:
    """Yield the columns that are fields of structs, or true where a struct is null."""
    for name in names:
        struct, dot, inner = name.partition(DOT)
        if name not in found and dot:
            yield pl.col(struct).struct.field(inner).alias(name)
        elif name.endswith(IS_NULL):
            yield pl.col(name.removesuffix(IS_NULL)).is_null().alias(name)
