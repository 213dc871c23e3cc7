"""CSV: records of fields, read by polars where the dialect is plain."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import polars as pl

from ddcli.errors import InputError, first_line
from ddcli.expressions.moments import iso
from ddcli.store.parquet import footers
from ddcli.store.tables.compression import DAMAGED, UTF_8, Damage
from ddcli.store.tables.csv_records import (
    QUOTES,
    has_bare_quote,
    in_quotes,
    names_of,
    no_header,
    records,
    refuse_encoding,
    refuse_long_names,
)
from ddcli.store.tables.json_kind import _is_read_by_polars
from ddcli.store.tables.kinds import lazy_frame
from ddcli.store.tables.text_kind import TextKind
from ddcli.store.tables.text_syntax import BLOCK, Syntax, judge_csv

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import Schema, Type
    from ddcli.store.tables.kinds import Footer

RENAMED = "_duplicated_"
"""The text that polars adds to a name that a header has twice."""


class Csv(TextKind):
    """CSV. An empty field is null, one of two quotes is empty text; a record without any value is ignored.

    If the dialect is plain, polars reads whole files; else it gets their records, as Python's `csv` separates them.
    """

    name = footers.CSV

    def __init__(self, declared: Schema, dialect: Dialect, *, rounds: bool = False) -> None:
        self.dialect = dialect
        super().__init__(declared, rounds=rounds)
        self._syntax = Syntax(dialect=dialect)
        self._looked_through: set[Path] = set()
        self._names: dict[Path, dict[str, str]] = {}

    def _forms(self) -> dict[str, pl.Expr]:
        forms = {name: self._as_cast(name, kind) for name, kind in self.declared.items()}
        return super()._forms() | {name: form for name, form in forms.items() if form is not None}

    def _as_cast(self, name: str, kind: Type) -> pl.Expr | None:
        """Return a column's text as a cast reads it, where the dialect has it written otherwise."""
        text = pl.col(name)
        if kind.is_integer or kind.is_float or kind.kind == "decimal":
            return self._number(text, kind)
        form = self.dialect.form_of(kind)
        return iso(text, form) if form else None

    def _number(self, text: pl.Expr, kind: Type) -> pl.Expr | None:
        """Return the text of numbers with a point and no marks between thousands, null for text with marks elsewhere; None where the dialect has them so."""
        decimal, thousands = self.dialect.decimal, self.dialect.thousands
        has_comma = decimal != "." and not kind.is_integer
        if thousands is None and not has_comma:
            return None
        if thousands is not None:
            mark, sign = re.escape(thousands), re.escape(decimal)
            text = text.str.strip_chars(" ")
            grouped = text.str.contains(rf"^[+-]?[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+(?:{sign}[0-9]*)?$")
            without = text.str.replace_all(thousands, "", literal=True)
            text = pl.when(grouped).then(without).when(~text.str.contains(thousands, literal=True)).then(text)
        if has_comma:
            text = pl.when(~text.str.contains(".", literal=True)).then(text.str.replace(decimal, ".", literal=True))
        return text

    def footer(self, path: Path) -> Footer:
        refuse_encoding(path, self.dialect)
        if self._is_read_by_polars(path):
            try:
                header = list(self._plain_scan([path]).collect_schema())
            except pl.exceptions.NoDataError:
                if not path.stat().st_size:
                    raise
                raise no_header(path) from None
            refuse_long_names(header, path)
        elif not path.stat().st_size:
            raise InputError(footers.EMPTY, place=str(path), hint=DAMAGED)
        else:
            header = names_of(path, self.dialect)
            if not header:
                raise no_header(path)
        return {name: self.declared[name].to_polars() if name in self.declared else pl.String() for name in header}

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        if all(self._is_read_by_polars(path) and not self._has_bare_quotes(path) for path in paths):
            lines = self._plain_scan(paths)
            lines = lines.filter(~pl.all_horizontal(pl.all().is_null()))
        else:
            lines = pl.concat([self._records_scan(path) for path in paths])
        if self.dialect.null:
            lines = lines.with_columns(pl.when(~pl.all().is_in(self.dialect.null)).then(pl.all()))
        return lines

    def _is_read_by_polars(self, path: Path) -> bool:
        return self.dialect.is_plain and _is_read_by_polars(path)

    def _has_bare_quotes(self, path: Path) -> bool:
        """Return whether polars might take a quote within a field for the end of one. Reads through the file if that was not done yet."""
        if path not in self._looked_through:
            with suppress(OSError):  # the reader of the rows reports it
                self.find_damage(path)
        return path in self._syntax.bare

    def _plain_scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        lines = pl.scan_csv(
            [*map(str, paths)],
            infer_schema=False,
            glob=False,
            separator=self.dialect.separator,
            quote_char=self.dialect.quote,
        )
        renamed = self._renamed(paths[0], lines)
        return lines.rename(renamed) if renamed else lines

    def _renamed(self, path: Path, lines: pl.LazyFrame) -> dict[str, str]:
        """Return polars' names of columns that it renames: it leaves quotes in a name twice, and adds to a name that two columns have."""
        if path not in self._names:
            found = list(lines.collect_schema())
            marks = (RENAMED, "\n", self.dialect.quote or "\n")
            doubtful = any(mark in name for name in found for mark in marks)
            names = names_of(path, self.dialect) if doubtful else found
            if len(names) != len(found):
                raise InputError("the header can't be read", place=f"{path}:1", hint=QUOTES.format("comma"))
            self._names[path] = {one: other for one, other in zip(found, names, strict=True) if one != other}
        return self._names[path]

    def _records_scan(self, path: Path) -> pl.LazyFrame:
        """Return the rows of a file that polars can't read as it is."""
        schema = pl.Schema(dict.fromkeys(names_of(path, self.dialect), pl.String()))

        def frames() -> Iterator[pl.DataFrame]:
            for text in self._blocks(path):
                # polars drops a byte order mark before the first record that it gets, which the file has within.
                yield pl.read_csv(
                    (BOM_UTF8 if text.startswith("\ufeff") else b"") + text.encode(),
                    has_header=False,
                    schema=schema,
                    separator=self.dialect.separator,
                    quote_char=self.dialect.quote,
                )

        return lazy_frame(frames, schema)

    def _blocks(self, path: Path) -> Iterator[str]:
        """Yield the records of a file that have a value, some at a time, as they are written. Raises Damage."""
        texts, size = list[str](), 0
        for record in islice(records(path, self.dialect), int(self.dialect.has_header), None):
            if record.empty:
                continue
            bare = has_bare_quote(record, self.dialect)
            texts.append(in_quotes(record, self.dialect) if bare else record.text)
            if not texts[-1].endswith("\n"):
                texts.append("\n")
            size += len(record.text)
            if size > BLOCK:
                yield "".join(texts)
                texts, size = [], 0
        if texts:
            yield "".join(texts)

    def find_damage(self, path: Path) -> Damage | None:
        self._looked_through.add(path)
        return self._syntax.csv_damage(path)

    def known_rows(self, path: Path) -> int | None:
        return self._syntax.rows.get(path)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        if damage := judge_csv(path, self.dialect):
            return damage
        if self.dialect.encoding == UTF_8:
            return super().why_damaged(path, error)
        return Damage(f"the file can't be read: {first_line(error)}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        for record in islice(records(path, self.dialect), int(self.dialect.has_header), None):
            if not record.empty:
                yield record.last
