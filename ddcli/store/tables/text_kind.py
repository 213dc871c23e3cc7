"""The base of kinds of text. Each value is read as by `cast(text as type)`, so text has one meaning everywhere."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import first_line
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.store.parquet.footers import TEXT
from ddcli.store.tables.csv_records import Damage, not_text, opened
from ddcli.store.tables.encodings import UTF_8
from ddcli.store.tables.text_syntax import Syntax
from ddcli.store.tables.wider_types import more_digits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema, Type
    from ddcli.store.tables.kinds import Footer

WRITTEN = "\0written "
"""The prefix of a column's name for its text as a cast reads it."""


def exact_cast(text: str, kind: Type, *, rounds: bool) -> pl.Expr:
    """Return a column of text as a cast of it; null where the text has digits that the cast would cut, or round unless that is asked for."""
    value = _plain_cast(text, kind)
    cut = more_digits(kind, rounds=rounds)
    return value if cut is None else pl.when(~pl.col(text).str.contains(cut)).then(value)


def _plain_cast(text: str, kind: Type) -> pl.Expr:
    return Lowering().value(Cast(Column(text, TEXT), kind.or_null(), try_=True))


def _cast(texts: pl.Series, kind: Type, *, rounds: bool) -> pl.Series:
    """Return texts as values of a plain type, null where they are none."""
    if kind.kind == "string":
        return texts
    return texts.alias("text").to_frame().select(exact_cast("text", kind, rounds=rounds)).to_series()


class TextKind:
    """The base of CSV and NDJSON: values are text until they are cast to the `declared` types."""

    name: str

    def __init__(self, declared: Schema, *, nested: bool = False, rounds: bool = False) -> None:
        self.declared, self.nested, self.rounds = declared, nested, rounds
        self._syntax = Syntax()
        self._written = self._forms()
        """The texts of columns that a cast reads in another form, in that form, and the values of lists and structs; null where there is none."""
        self._typed = self._casts()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_written", "_typed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._written = self._forms()
        self._typed = self._casts()

    def _forms(self) -> dict[str, pl.Expr]:
        """Return the columns that a cast doesn't read as they are written."""
        nested = {name: kind for name, kind in self.declared.items() if kind.depth}
        if not nested:
            return {}
        from ddcli.store.tables.nested_text import nested_value

        cast = partial(_cast, rounds=self.rounds)
        return {name: nested_value(pl.col(name), kind, cast) for name, kind in nested.items()}

    def _casts(self) -> dict[str, pl.Expr]:
        """Return the columns that are no text, as casts of it."""
        return {
            name: self._cast(name, kind).alias(name) for name, kind in self.declared.items() if kind.kind != "string"
        }

    def _cast(self, name: str, kind: Type) -> pl.Expr:
        """Return a column as a cast of its text, null where that is refused."""
        text = WRITTEN + name if name in self._written else name
        return pl.col(text) if kind.depth else exact_cast(text, kind, rounds=self.rounds)

    def has_more_digits(self, name: str, value: str) -> bool:
        """Return whether a text that is none of its column's type is one but for its digits."""
        kind = self.declared[name]
        if kind.kind not in ("decimal", "datetime"):
            return False
        row = self.prepared(pl.LazyFrame({name: [value]}, schema={name: pl.String()}), [name])
        text = WRITTEN + name if name in self._written else name
        return row.select(_plain_cast(text, kind)).collect().item() is not None

    def failing(self, names: Sequence[str]) -> Mapping[str, pl.Expr]:
        return {name: pl.col(name).is_not_null() & self._typed[name].is_null() for name in names if name in self._typed}

    def prepared(self, scan: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
        written = [self._written[name].alias(WRITTEN + name) for name in names if name in self._written]
        return scan.with_columns(written) if written else scan

    def typed(self, names: Sequence[str]) -> list[pl.Expr]:
        return [self._typed.get(name, pl.col(name)) for name in names]

    def place(self, path: Path, row: int) -> str:
        line = next(islice(self._lines(path), row, None), None)
        return f"{path}:{line}" if line else str(path)

    def lines(self, path: Path, rows: Sequence[int]) -> list[int | None]:
        wanted, found = set(rows), dict[int, int]()
        last = rows[-1] if rows else -1
        for row, line in enumerate(islice(self._lines(path), last + 1)):
            if row in wanted:
                found[row] = line
        return [found.get(row) for row in rows]

    def find_altered(self, path: Path, columns: Footer) -> Damage | None:
        return None

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        with opened(path) as file:
            line = next((line for line, text in enumerate(file, start=1) if "\ufffd" in text), None)
        if line is not None:
            return not_text(path, line, UTF_8)
        return Damage(f"the file is not whole {self.name}: {first_line(error)}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        """Yield the line in which each row ends."""
        raise NotImplementedError
