"""Kinds of text: CSV and JSON. Each value is read as `cast(text as type)` reads it, so there is one meaning of text everywhere.

What can't be read that way is found at its line.
"""

from __future__ import annotations

import glob
import json
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import polars as pl

from ddcli.engine.kernels.text_syntax import BLANK, LONG
from ddcli.errors import InputError, first_line
from ddcli.expressions.lower import Lowering
from ddcli.expressions.moment_format import iso
from ddcli.expressions.tree import Cast, Column
from ddcli.store.parquet import footers
from ddcli.store.parquet.footers import TEXT
from ddcli.store.tables.compression import packing_of
from ddcli.store.tables.csv_records import (
    DAMAGED,
    QUOTES,
    Damage,
    DamagedError,
    has_bare_quote,
    in_quotes,
    names_of,
    no_header,
    not_text,
    opened,
    records,
    refuse_encoding,
    refuse_long_names,
)
from ddcli.store.tables.dialect import UTF_8
from ddcli.store.tables.json_numbers import ExactColumns
from ddcli.store.tables.json_values import is_values, numbered_lines, payload_of
from ddcli.store.tables.kinds import lazy_frame
from ddcli.store.tables.text_syntax import BLOCK, SPACE, Syntax, judge_csv, judge_json, whole_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from ddcli.expressions.types import Schema, Type
    from ddcli.store.tables.dialect import Dialect
    from ddcli.store.tables.kinds import Footer

WRITTEN = "written "
"""What is put before a column's name for its text as a cast reads it."""
FRACTION = {"ms": 3, "us": 6, "ns": 9}
"""Digits of a second that timestamps of a unit have."""
RENAMED = "_duplicated_"
"""What polars adds to a name that a header has twice."""


class TextKind:
    """What CSV and NDJSON share: values are text until they are cast to the `declared` types."""

    name: str

    def __init__(self, declared: Schema, *, nested: bool = False, exact: bool = False) -> None:
        self.declared, self.nested, self.exact = declared, nested, exact
        self._syntax = Syntax()
        self._written: dict[str, pl.Expr] = {}
        """Of columns whose texts are not as a cast reads them: these texts as it does, null where they can't be."""
        self._typed = self._casts()

    def _casts(self) -> dict[str, pl.Expr]:
        """Return the columns that are no text, as casts of it."""
        return {
            name: self._cast(name, kind).alias(name) for name, kind in self.declared.items() if kind.kind != "string"
        }

    def _cast(self, name: str, kind: Type) -> pl.Expr:
        """Return a column as a cast of its text; where it has to be `exact`, null for digits that the cast would cut."""
        text = WRITTEN + name if name in self._written else name
        value = Lowering().value(Cast(Column(text, TEXT), kind.or_null(), try_=True))
        digits = (
            kind.scale if kind.kind == "decimal" else FRACTION[kind.unit or "us"] if kind.kind == "datetime" else None
        )
        if not self.exact or digits is None:
            return value
        return pl.when(~pl.col(text).str.contains(rf"\.[0-9]{{{digits}}}[0-9]*[1-9]")).then(value)

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

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        with opened(path) as file:
            line = next((line for line, text in enumerate(file, start=1) if "\ufffd" in text), None)
        if line is not None:
            return not_text(path, line, UTF_8)
        return Damage(f"the file is not whole {self.name}: {first_line(error)}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        """Give the line in which each row ends."""
        raise NotImplementedError


class Csv(TextKind):
    """CSV. An empty field is null, one of two quotes is empty text; a record without any value is passed over.

    Where the dialect is plain, polars reads whole files; else it is handed their records, as Python's `csv` parts them.
    """

    name = footers.CSV

    def __init__(self, declared: Schema, dialect: Dialect, *, exact: bool = False) -> None:
        super().__init__(declared, exact=exact)
        self.dialect = dialect
        self._syntax = Syntax(dialect=dialect)
        self._written = {
            name: written for name, kind in declared.items() if (written := self._as_cast(name, kind)) is not None
        }
        self._typed = self._casts()
        self._looked_through: set[Path] = set()
        self._names: dict[Path, dict[str, str]] = {}

    def _as_cast(self, name: str, kind: Type) -> pl.Expr | None:
        """Return a column's text as a cast reads it, where the dialect has it written otherwise."""
        text = pl.col(name)
        if self.dialect.decimal != "." and (kind.is_float or kind.kind == "decimal"):
            comma = text.str.replace(self.dialect.decimal, ".", literal=True)
            return pl.when(~text.str.contains(".", literal=True)).then(comma)
        form = {"date": self.dialect.date_format, "datetime": self.dialect.timestamp_format}.get(kind.kind)
        return iso(text, form) if form else None

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
        """Say whether polars might take a quote within a field for the end of one. Looks through the file if nobody has yet."""
        if path not in self._looked_through:
            with suppress(OSError):  # whoever collects the rows says so
                self.find_damage(path)
        return path in self._syntax.bare

    def _plain_scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        lines = pl.scan_csv(
            list(paths),
            infer_schema=False,
            glob=False,
            separator=self.dialect.separator,
            quote_char=self.dialect.quote,
        )
        renamed = self._renamed(paths[0], lines)
        return lines.rename(renamed) if renamed else lines

    def _renamed(self, path: Path, lines: pl.LazyFrame) -> dict[str, str]:
        """Return what polars calls columns that have other names: it leaves quotes in a name twice, and adds to a name that two columns have."""
        if path not in self._names:
            found = list(lines.collect_schema())
            marks = (RENAMED, "\n", self.dialect.quote or "\n")
            doubtful = any(mark in name for name in found for mark in marks)
            names = names_of(path, self.dialect) if doubtful else found
            if len(names) != len(found):
                raise InputError("the header can't be read", place=f"{path}:1", hint=QUOTES.format("comma"))
            self._names[path] = {one: other for one, other in zip(found, names, strict=True) if one != other and other}
        return self._names[path]

    def _records_scan(self, path: Path) -> pl.LazyFrame:
        """Return the rows of a file that polars can't read as it is."""
        schema = pl.Schema(dict.fromkeys(names_of(path, self.dialect), pl.String()))

        def frames() -> Iterator[pl.DataFrame]:
            for text in self._blocks(path):
                yield pl.read_csv(
                    text.encode(),
                    has_header=False,
                    schema=schema,
                    separator=self.dialect.separator,
                    quote_char=self.dialect.quote,
                )

        return lazy_frame(frames, schema)

    def _blocks(self, path: Path) -> Iterator[str]:
        """Give the records of a file that have a value, some at a time, as they are written. Raises InputError."""
        texts, size = list[str](), 0
        try:
            for record in islice(records(path, self.dialect), int(self.dialect.header), None):
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
        except DamagedError as error:
            raise InputError(error.damage.problem, place=error.damage.place, hint=error.damage.hint) from None
        if texts:
            yield "".join(texts)

    def find_damage(self, path: Path) -> Damage | None:
        self._looked_through.add(path)
        return self._syntax.csv_damage(path)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        if damage := judge_csv(path, self.dialect):
            return damage
        if self.dialect.encoding == UTF_8:
            return super().why_damaged(path, error)
        return Damage(f"the file can't be read: {first_line(error)}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        for record in islice(records(path, self.dialect), int(self.dialect.header), None):
            if not record.empty:
                yield record.last


class Ndjson(TextKind):
    """One JSON object a line. A key that isn't there is null; blank lines are passed over."""

    name = footers.NDJSON

    def __init__(self, declared: Schema, *, nested: bool = False, enveloped: bool = False, exact: bool = False) -> None:
        super().__init__(declared, nested=nested, exact=exact)
        self._enveloped = enveloped
        self._envelopes: dict[Path, bool] = {}
        self._misshapen: dict[Path, dict[int, tuple[str, str]]] = {}
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
        exact = [
            bool(found[LONG]) or not _is_read_by_polars(path) or self._has_envelopes(path) or path in self._misshapen
            for path, found in zip(paths, marks, strict=True)
        ]
        if any(exact):
            return pl.concat(
                self._exact_scan(path, schema) if by_line else self._plain_scan([path], schema, found[BLANK])
                for path, found, by_line in zip(paths, marks, exact, strict=True)
            )
        return self._plain_scan(paths, schema, any(found[BLANK] for found in marks))

    def _plain_scan(self, paths: Sequence[Path], schema: pl.Schema, blank: bool) -> pl.LazyFrame:
        scan = pl.scan_ndjson([glob.escape(str(path)) for path in paths], schema=schema)
        if blank:
            # Where polars skips rows it counts lines, blank ones, too; a condition keeps it from skipping.
            scan = scan.filter(pl.first().is_null() | pl.first().is_not_null())
        return scan

    def _exact_scan(self, path: Path, schema: pl.Schema) -> pl.LazyFrame:
        """Return the rows of a file that polars can't read as it is: numbers have more digits, or it is packed otherwise."""

        def frames() -> Iterator[pl.DataFrame]:
            for first, objects in self._objects(path):
                for row in self._misshapen.get(path, ()):
                    if first <= row < first + len(objects):
                        objects[row - first] = self._without_misshapen(objects[row - first])
                exact = b"\n".join(map(self._watched.exact, objects))
                yield pl.read_ndjson(exact, schema=schema) if exact else pl.DataFrame(schema=schema)

        return lazy_frame(frames, schema)

    def _objects(self, path: Path) -> Iterator[tuple[int, list[bytes]]]:
        """Give the objects of a file, some at a time, each time with the number of the first."""
        first = 0
        for lines in whole_lines(path):
            objects = [line for line in lines.split(b"\n") if line.strip()]
            if self._enveloped:
                objects = [payload for line in objects if (payload := payload_of(line))]
            yield first, objects
            first += len(objects)

    def misshapen(self, path: Path) -> dict[int, tuple[str, str]]:
        """Return column and text of values that would have to be objects and are none, by row; from now on they are read as null."""
        if path not in self._misshapen:
            found: dict[int, tuple[str, str]] = {}
            for first, objects in self._objects(path):
                for row, line in enumerate(objects, start=first):
                    tree = json.loads(line)
                    if name := next((one for one, value in tree.items() if self._is_misshapen(one, value)), None):
                        found[row] = name, json.dumps(tree[name], ensure_ascii=False)
            self._misshapen[path] = found
        return self._misshapen[path]

    @property
    def _structs(self) -> list[str]:
        """The columns that are objects."""
        parts = [name.partition(".") for name in self.declared if self.nested]
        return list(dict.fromkeys(struct for struct, dot, _ in parts if dot))

    def _is_misshapen(self, name: str, value: object) -> bool:
        return value is not None and not isinstance(value, dict) and name in self._structs

    def _without_misshapen(self, line: bytes) -> bytes:
        tree = json.loads(line)
        return json.dumps(
            {name: None if self._is_misshapen(name, value) else value for name, value in tree.items()}
        ).encode()

    def _has_envelopes(self, path: Path) -> bool:
        """Say whether objects of a file may have their events as payload, beside a schema."""
        if self._enveloped and path not in self._envelopes:
            self._envelopes[path] = any(b'"payload"' in lines for lines in whole_lines(path))
        return self._enveloped and self._envelopes[path]

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
        enveloped = self._has_envelopes(path)
        for line, text in numbered_lines(path):
            if text.strip(SPACE) and (not enveloped or payload_of(text.encode())):
                yield line


def _is_read_by_polars(path: Path) -> bool:
    """Say whether polars unpacks a file, if it is packed, and finds its objects one a line."""
    return packing_of(path.name) in ("", ".gz") and not is_values(path)


def names_in_objects(path: Path) -> list[str]:
    """Return the keys of the objects of an NDJSON file. Raises what polars raises, and OSError."""
    if _is_read_by_polars(path):
        return list(pl.scan_ndjson(path, infer_schema_length=None).collect_schema())
    names: dict[str, None] = {}
    for lines in whole_lines(path):
        names |= dict.fromkeys(pl.read_ndjson(lines, infer_schema_length=None).columns if lines.strip() else ())
    return list(names)
