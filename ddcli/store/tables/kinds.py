"""The kinds of files that tables come in: Parquet, Arrow IPC, CSV, NDJSON, by the endings of their names.

Parquet and IPC say themselves what their columns are. Of text the pipeline says it: each value is read as `cast(text as type)`
reads it, so there is one meaning of text everywhere. What can't be read that way is found at its line.
"""

from __future__ import annotations

import glob
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
from polars.io.plugins import register_io_source

from ddcli.engine.kernels.text_syntax import BLANK, LONG
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.store.parquet import footers
from ddcli.store.parquet.footers import TEXT, refuse_long_names, refuse_names_twice
from ddcli.store.tables.json_numbers import ExactColumns
from ddcli.store.tables.text_syntax import SPACE, Damage, Syntax, judge_csv, judge_json, opened, records, whole_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from ddcli.expressions.types import Schema

RENAMED = "_duplicated_"
"""What polars adds to a name that a header has twice."""
Footer = dict[str, Any]
"""Columns and their types: polars', or where it is not imported those of `store.footers`."""


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

    def find_damage(self, path: Path) -> Damage | None:
        """Return what is wrong with a file that its reader would pass over, if anything is."""

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

    def find_damage(self, path: Path) -> Damage | None:
        return None

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        return Damage(f"the file is not whole {self.name}: {str(error).splitlines()[0]}", str(path))


class Ipc(Parquet):
    """Arrow IPC files, also known as Feather; not streams, which have no footer."""

    name = footers.IPC

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.scan_ipc(list(paths), glob=False, hive_partitioning=False)


class TextKind:
    """What CSV and NDJSON share: values are text until they are cast to the `declared` types."""

    name: str

    def __init__(self, declared: Schema, *, nested: bool = False) -> None:
        self.declared, self.nested = declared, nested
        self._syntax = Syntax()
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
        line = next(islice(self._lines(path), row, None), None)
        return f"{path}:{line}" if line else str(path)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        with opened(path) as file:
            line = next((line for line, text in enumerate(file, start=1) if "\ufffd" in text), None)
        if line is not None:
            return Damage("the line is not UTF-8", f"{path}:{line}", "save the file as UTF-8")
        return Damage(f"the file is not whole {self.name}: {str(error).splitlines()[0]}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        """Give the line in which each row ends."""
        raise NotImplementedError


class Csv(TextKind):
    """CSV with a header. An empty field is null, one of two quotes is empty text; a line without any value is passed over."""

    name = footers.CSV

    def footer(self, path: Path) -> Footer:
        header = list(self.scan([path]).collect_schema())
        refuse_long_names(header, path)
        if any(RENAMED in name for name in header):
            refuse_names_twice(path)
        return {name: self.declared[name].to_polars() if name in self.declared else pl.String() for name in header}

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        lines = pl.scan_csv(list(paths), infer_schema=False, glob=False)
        return lines.filter(~pl.all_horizontal(pl.all().is_null()))

    def find_damage(self, path: Path) -> Damage | None:
        return self._syntax.csv_damage(path)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        return judge_csv(path) or super().why_damaged(path, error)

    def _lines(self, path: Path) -> Iterator[int]:
        for record in islice(records(path), 1, None):
            if not record.empty:
                yield record.last


class Ndjson(TextKind):
    """One JSON object a line. A key that isn't there is null; blank lines are passed over."""

    name = footers.NDJSON

    def __init__(self, declared: Schema, *, nested: bool = False) -> None:
        super().__init__(declared, nested=nested)
        self._watched = ExactColumns(declared, nested=nested)
        self._syntax = Syntax(self._watched)

    def footer(self, path: Path) -> Footer:
        return {name: kind.to_polars() for name, kind in self.declared.items()}

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        schema = pl.Schema()
        fields: dict[str, list[pl.Field]] = {}
        for name in self.declared:
            struct, dot, inner = name.partition(".")
            if self.nested and dot:
                fields.setdefault(struct, []).append(pl.Field(inner, pl.String()))
                schema[struct] = pl.Struct(fields[struct])
            else:
                schema[name] = pl.String()
        marks = [self._marks(path) for path in paths]
        if any(found[LONG] for found in marks):
            return pl.concat(
                self._exact_scan(path, schema) if found[LONG] else self._plain_scan([path], schema, found[BLANK])
                for path, found in zip(paths, marks, strict=True)
            )
        return self._plain_scan(paths, schema, any(found[BLANK] for found in marks))

    def _plain_scan(self, paths: Sequence[Path], schema: pl.Schema, blank: bool) -> pl.LazyFrame:
        scan = pl.scan_ndjson([glob.escape(str(path)) for path in paths], schema=schema)
        if blank:
            # Where polars skips rows it counts lines, blank ones, too; a condition keeps it from skipping.
            scan = scan.filter(pl.first().is_null() | pl.first().is_not_null())
        return scan

    def _exact_scan(self, path: Path, schema: pl.Schema) -> pl.LazyFrame:
        """Return the rows of a file in which numbers have more digits than polars reads."""

        def frames(
            columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None
        ) -> Iterator[pl.DataFrame]:
            for lines in whole_lines(path):
                exact = b"\n".join(self._watched.exact(line) for line in lines.split(b"\n") if line.strip())
                frame = pl.read_ndjson(exact, schema=schema) if exact else pl.DataFrame(schema=schema)
                frame = frame.select(columns or pl.all()).head(frame.height if rows is None else rows)
                rows = None if rows is None else rows - frame.height
                yield frame if predicate is None else frame.filter(predicate)
                if rows == 0:
                    return

        return register_io_source(frames, schema=schema, is_pure=True)

    def _marks(self, path: Path) -> np.ndarray:
        """Return what is noted of a file's lines, which are looked through if they were not yet."""
        if path not in self._syntax.marks:
            with suppress(OSError):  # whoever collects the rows says so
                self.find_damage(path)
        return self._syntax.marks[path]

    def find_damage(self, path: Path) -> Damage | None:
        return self._syntax.json_damage(path)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        return judge_json(path) or super().why_damaged(path, error)

    def _lines(self, path: Path) -> Iterator[int]:
        with opened(path) as file:
            yield from (line for line, text in enumerate(file, start=1) if text.strip(SPACE))


TABLES: dict[str, Kind] = {kind.name: kind for kind in (Parquet(), Ipc())}
TEXTS: dict[str, type[Csv | Ndjson]] = {kind.name: kind for kind in (Csv, Ndjson)}


def kind_of(path: Path, declared: Schema | None, *, nested: bool = False) -> Kind:
    """Return the kind of a file; `declared` are the types of the columns that text has, if the pipeline says any."""
    name = footers.name_of_kind(path)
    return TABLES[name] if name in TABLES else TEXTS[name](footers.columns_of_text(path, declared), nested=nested)
