"""The kinds of files that tables come in: Parquet, Arrow IPC, CSV, NDJSON, told apart by the endings of their names.

Parquet and IPC say themselves what their columns are. Of text the pipeline says it: each value is read as `cast(text as type)`
reads it, so there is one meaning of text everywhere. What can't be read that way is found at its line.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import polars as pl

from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.store import footers
from ddcli.store.footers import DAMAGED, TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

    from ddcli.expressions.types import Schema

Footer = dict[str, Any]
"""Columns and their types: polars', or where it is not imported those of `store.footers`."""


class Damage(NamedTuple):
    """What is wrong with a file that can't be read, where, and what to do about it."""

    problem: str
    place: str
    hint: str = DAMAGED


class Kind(Protocol):
    """A way to write a table into a file."""

    name: str

    def footer(self, path: Path) -> Footer:
        """Return the columns of a file with their polars types; may raise what polars and the system raise."""

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        """Return all columns of files that agree."""

    def failing(self, names: Sequence[str]) -> Mapping[str, pl.Expr]:
        """Return, for those columns of a scan that are text still, which rows hold what their type can't."""

    def typed(self, names: Sequence[str]) -> list[pl.Expr]:
        """Return columns of a scan in the types of the footer."""

    def place(self, path: Path, row: int) -> str:
        """Return where a person finds a row."""

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        """Return what is wrong with a file that can't be read."""


class Parquet:
    """Parquet."""

    name = footers.PARQUET

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.scan_parquet(list(paths), glob=False, hive_partitioning=False)  # a name with * is a name

    def footer(self, path: Path) -> Footer:
        return dict(self.scan([path]).collect_schema())

    def failing(self, names: Sequence[str]) -> Mapping[str, pl.Expr]:
        return {}

    def typed(self, names: Sequence[str]) -> list[pl.Expr]:
        return [pl.col(name) for name in names]

    def place(self, path: Path, row: int) -> str:
        return str(path)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        return Damage(f"the file is not whole {self.name}: {str(error).splitlines()[0]}", str(path))


class Ipc(Parquet):
    """Arrow IPC files, also known as Feather; not streams, which have no footer."""

    name = footers.IPC

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.scan_ipc(list(paths), glob=False, hive_partitioning=False)


class Text:
    """What CSV and NDJSON share: values are text until they are cast to the `declared` types."""

    name: str

    def __init__(self, declared: Schema, *, nested: bool = False) -> None:
        self.declared, self.nested = declared, nested
        low = Lowering()
        self._typed = {
            name: low.value(Cast(Column(name, TEXT), kind.or_null(), try_=True)).alias(name)
            for name, kind in declared.items()
            if kind.kind != "string"
        }

    def failing(self, names: Sequence[str]) -> Mapping[str, pl.Expr]:
        return {name: pl.col(name).is_not_null() & self._typed[name].is_null() for name in names if name in self._typed}

    def typed(self, names: Sequence[str]) -> list[pl.Expr]:
        return [self._typed.get(name, pl.col(name)) for name in names]

    def place(self, path: Path, row: int) -> str:
        line = next((line for at, line in enumerate(self._lines(path)) if at == row), None)
        return f"{path}:{line}" if line else str(path)

    def _lines(self, path: Path) -> Iterator[int]:
        """Give the line in which each row ends."""
        raise NotImplementedError

    @staticmethod
    def _not_utf8(path: Path) -> Damage | None:
        """Return where a file is not UTF-8, if it isn't."""
        with _opened(path) as file:
            line = next((line for line, text in enumerate(file, start=1) if "\ufffd" in text), None)
        return None if line is None else Damage("the line is not UTF-8", f"{path}:{line}", "save the file as UTF-8")


class Csv(Text):
    """CSV with a header. An empty field is null, one of two quotes is empty text; a line without any value is passed over."""

    name = footers.CSV

    def footer(self, path: Path) -> Footer:
        header = list(self.scan([path]).collect_schema())
        return {name: self.declared[name].to_polars() if name in self.declared else pl.String() for name in header}

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        lines = pl.scan_csv(list(paths), infer_schema=False, glob=False)
        return lines.filter(~pl.all_horizontal(pl.all().is_null()))

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        with _opened(path) as file:
            records = csv.reader(file)
            header = next(records, [])
            for record in records:
                if len(record) > len(header):
                    problem = f"the line has {len(record)} fields, the header {len(header)}"
                    return Damage(problem, f"{path}:{records.line_num}", "quote a value that has a comma")
        return self._not_utf8(path) or Damage(f"the file is not whole CSV: {str(error).splitlines()[0]}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        with _opened(path) as file:
            records = csv.reader(file)
            next(records, None)
            for record in records:
                if any(record):
                    yield records.line_num


class Ndjson(Text):
    """One JSON object a line. A key that isn't there is null; blank lines are passed over."""

    name = footers.NDJSON

    def footer(self, path: Path) -> Footer:
        return {name: kind.to_polars() for name, kind in self.declared.items()}

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        schema: dict[str, pl.DataType] = {}
        fields: dict[str, list[pl.Field]] = {}
        for name in self.declared:
            struct, dot, inner = name.partition(".")
            if self.nested and dot:
                fields.setdefault(struct, []).append(pl.Field(inner, pl.String()))
                schema[struct] = pl.Struct(fields[struct])
            else:
                schema[name] = pl.String()
        return pl.scan_ndjson([glob.escape(str(path)) for path in paths], schema=schema)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        with _opened(path) as file:
            for line, text in enumerate(file, start=1):
                try:
                    whole = not text.strip() or isinstance(json.loads(text.rstrip("\r\n")), dict)
                except ValueError as wrong:
                    column = getattr(wrong, "colno", 1)
                    return Damage(f"not JSON: {getattr(wrong, 'msg', wrong)}", f"{path}:{line}:{column}")
                if not whole:
                    return Damage("wants a JSON object on each line", f"{path}:{line}")
        return self._not_utf8(path) or Damage(f"the file is not whole NDJSON: {str(error).splitlines()[0]}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        with _opened(path) as file:
            yield from (line for line, text in enumerate(file, start=1) if text.strip())


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        whole = io.BytesIO(path.read_bytes())  # not by its name: an object has none that the system knows
        return gzip.open(whole, "rt", encoding="utf-8", errors="replace", newline="")
    return path.open(encoding="utf-8", errors="replace", newline="")


TABLES: dict[str, Kind] = {kind.name: kind for kind in (Parquet(), Ipc())}
TEXTS: dict[str, type[Csv | Ndjson]] = {kind.name: kind for kind in (Csv, Ndjson)}


def kind_of(path: Path, declared: Schema | None, *, nested: bool = False) -> Kind:
    """Return the kind of a file; `declared` are the types of the columns that text has, if the pipeline says any."""
    name = footers.name_of_kind(path)
    return TABLES[name] if name in TABLES else TEXTS[name](footers.columns_of_text(path, declared), nested=nested)
