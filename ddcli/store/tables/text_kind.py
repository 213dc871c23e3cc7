"""The base of kinds of text, and CSV. Each value is read as by `cast(text as type)`, so text has one meaning everywhere.

CSV has records of fields, which polars reads where the dialect is plain.

A file can be written again without some of its rows: all other rows stay as they were written, to the byte.
"""

from __future__ import annotations

import io
import re
from codecs import BOM_UTF8
from collections import Counter
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import InputError, first_line
from ddcli.expressions.json_text import Members, NoJsonError, as_text, is_array, read_json
from ddcli.expressions.lower import Lowering
from ddcli.expressions.moments import iso
from ddcli.expressions.tree import Cast, Column, Literal
from ddcli.privacy import preview, unnamed
from ddcli.store.tables import footers
from ddcli.store.tables.compression import DAMAGED, UTF_8, WIDE, Damage, packed, unpacked
from ddcli.store.tables.csv_records import (
    QUOTES,
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
from ddcli.store.tables.footers import TEXT
from ddcli.store.tables.input_path import CSV, IPC, NDJSON, PARQUET
from ddcli.store.tables.json_values import is_read_by_polars
from ddcli.store.tables.kinds import Kind, lazy_frame
from ddcli.store.tables.text_syntax import BLOCK, Syntax, judge_csv
from ddcli.store.tables.wider_types import more_digits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import Schema, Type
    from ddcli.store.tables.kinds import Footer

    ValueCast = Callable[[pl.Series, Type], pl.Series]


COMPACT = re.compile(r"[0-9]{8}")
PATH_FORMS = {
    "date": "a date is written 2024-01-31 or 20240131, in the name of a CSV file also as `csv: {date_format: ...}` states; ",
    "datetime": "a timestamp is written 2024-01-31 06:30, in the name of a CSV file also as `csv: {timestamp_format: ...}` states; ",
}
"""The forms of values in paths, for hints, by kind."""


def value_in_path(path: Path, name: str, text: str, wanted: Type, *, rounds: bool) -> pl.Expr:
    """Return the value of a text in a file's path. Raises InputError for a text that is none of its column's type."""
    if wanted.kind == "date" and COMPACT.fullmatch(text):
        text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
    value = pl.lit(None) if wanted.depth else Lowering().value(Cast(Literal(text, TEXT), wanted, try_=True))
    cut = more_digits(wanted, rounds=rounds)
    if pl.select(value).item() is None or (cut and re.search(cut, text)):
        raise InputError(
            f"the path has {name}={text}, which is no {wanted.required()}",
            place=str(path),
            hint=f"{PATH_FORMS.get(wanted.kind, '')}declare another type for it under the input's `columns`, or move the file",
        )
    return value.cast(wanted.to_polars())


WRONG = object()
"""A value that is not of its type."""
ROW, VALUE = "row", "value"


def nested_value(text: pl.Expr, kind: Type, cast: ValueCast) -> pl.Expr:
    """Return the lists or structs of a column of text, null where a text is none; `cast` turns texts into values of a plain type, null where it can't."""
    return text.map_batches(partial(_column, kind, cast), return_dtype=kind.to_polars(), is_elementwise=True)


def _column(kind: Type, cast: ValueCast, texts: pl.Series) -> pl.Series:
    found, wrong = _read([_tree(text) for text in texts], kind.or_null(), cast)
    return pl.select(pl.when(~wrong).then(found)).to_series().alias(texts.name)


def _tree(text: str | None) -> Any:
    """Return the value of a JSON text."""
    try:
        return None if text is None else read_json(text)
    except NoJsonError:
        return WRONG


def _read(values: Sequence[Any], kind: Type, cast: ValueCast) -> tuple[pl.Series, pl.Series]:
    """Return values of JSON as a column of a type, and the rows of those that are not of it."""
    wrong = [value is WRONG or (value is None and not kind.nullable) for value in values]
    if kind.inner is not None:
        found, bad = _lists(values, kind.inner, cast)
    elif kind.fields:
        found, bad = _structs(values, kind, cast)
    else:
        texts = pl.Series([None if value is WRONG else as_text(value) for value in values], dtype=pl.String)
        found = cast(texts, kind)
        bad = texts.is_not_null() & found.is_null()
    return found, bad | pl.Series(wrong, dtype=pl.Boolean)


def _lists(values: Sequence[Any], inner: Type, cast: ValueCast) -> tuple[pl.Series, pl.Series]:
    rows = [row for row, value in enumerate(values) if is_array(value) for _ in value]
    found, wrong = _read([each for value in values if is_array(value) for each in value], inner, cast)
    parts = pl.DataFrame([pl.Series(ROW, rows, pl.Int64), found.alias(VALUE), wrong.alias("wrong")])
    lists = parts.group_by(ROW, maintain_order=True).agg(VALUE, pl.col("wrong").any())
    whole = pl.DataFrame(
        {
            ROW: pl.int_range(len(values), eager=True),
            "is_list": pl.Series(map(is_array, values), dtype=pl.Boolean),
            "is_other": pl.Series([not is_array(value) and value is not None for value in values], dtype=pl.Boolean),
        }
    ).join(lists, on=ROW, how="left", maintain_order="left")
    none = pl.lit(pl.Series([[]], dtype=pl.List(inner.to_polars())))
    return (
        whole.select(pl.when("is_list").then(pl.coalesce(VALUE, none))).to_series(),
        whole.select(pl.col("is_other") | pl.col("wrong").fill_null(value=False)).to_series(),
    )


def _structs(values: Sequence[Any], kind: Type, cast: ValueCast) -> tuple[pl.Series, pl.Series]:
    objects = [_object(value) for value in values]
    there = pl.Series([isinstance(each, dict) for each in objects], dtype=pl.Boolean)
    wrong = pl.Series([each is WRONG for each in objects], dtype=pl.Boolean)
    fields: list[pl.Series] = []
    for name, inner in kind.fields:
        found, bad = _read([each.get(name) if isinstance(each, dict) else None for each in objects], inner, cast)
        fields.append(found.alias(name))
        wrong = wrong | (bad & there)
    whole = pl.DataFrame(fields).to_struct()
    return pl.select(pl.when(there).then(whole)).to_series(), wrong


def _object(value: Any) -> Any:
    """Return the members of an object by name; WRONG for another value, and where a name occurs twice."""
    if value is None:
        return None
    once = isinstance(value, Members) and max(Counter(name for name, _ in value).values(), default=1) == 1
    return dict(value) if once else WRONG


WRITTEN = "\0written "
"""The prefix of a column's name for its text as a cast reads it."""


@lru_cache(maxsize=1 << 12)
def exact_cast(text: str, kind: Type, *, rounds: bool) -> pl.Expr:
    """Return a column of text as a cast of it; null where the text has digits that the cast would cut, or round unless that is asked for.

    It is kept, as a run asks for it several times, and for a list's or struct's values with each batch of rows.
    """
    value = _plain_cast(text, kind)
    cut = more_digits(kind, rounds=rounds)
    return value if cut is None else pl.when(~pl.col(text).str.contains(cut)).then(value)


def _plain_cast(text: str, kind: Type) -> pl.Expr:
    value = Lowering().value(Cast(Column(text, TEXT), kind.or_null(), try_=True))
    # A cast takes exponents; how many digits such a text has is not seen from it, so files have none.
    return value if kind.kind != "decimal" else pl.when(~pl.col(text).str.contains("[eE]")).then(value)


def _cast(texts: pl.Series, kind: Type, *, rounds: bool) -> pl.Series:
    """Return texts as values of a plain type, null where they are none."""
    if kind.kind == "string":
        return texts
    return texts.alias("text").to_frame().select(exact_cast("text", kind, rounds=rounds)).to_series()


class TextKind(Kind):
    """The base of CSV and NDJSON: values are text until they are cast to the `declared` types."""

    def __init__(self, declared: Schema, *, nested: bool = False, rounds: bool = False) -> None:
        self.declared, self.nested, self.rounds = declared, nested, rounds
        self._syntax = Syntax()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_written", "_typed")}

    @cached_property
    def _written(self) -> dict[str, pl.Expr]:
        """The texts of columns that a cast reads in another form, in that form, and the values of lists and structs; null where there is none."""
        return self._forms()

    @cached_property
    def _typed(self) -> dict[str, pl.Expr]:
        """The columns that are no text, as casts of it."""
        return {
            name: self._cast(name, kind).alias(name) for name, kind in self.declared.items() if kind.kind != "string"
        }

    def _forms(self) -> dict[str, pl.Expr]:
        """Return the columns that a cast doesn't read as they are written."""
        nested = {name: kind for name, kind in self.declared.items() if kind.depth}
        if not nested:
            return {}

        cast = partial(_cast, rounds=self.rounds)
        return {name: nested_value(pl.col(name), kind, cast) for name, kind in nested.items()}

    def _cast(self, name: str, kind: Type) -> pl.Expr:
        """Return a column as a cast of its text, null where that is refused."""
        text = WRITTEN + name if name in self._written else name
        return pl.col(text) if kind.depth else exact_cast(text, kind, rounds=self.rounds)

    def misfit(self, column: str, name: str, value: str, dialect: Dialect) -> tuple[str, str]:
        """Return problem and hint of a text in a column that is no value of its type; `name` is the column's in the file."""
        kind = self.declared[name].required()
        # Where the fields of a line have another order, the text may be a hidden column's.
        shown = unnamed(preview(column, value))
        if self._has_more_digits(name, value):
            hint = "declare the column with more digits under the input's `columns`"
            hint += ", or let decimals be rounded: `rounding: half_up`" if kind.kind == "decimal" else ""
            return f"{shown!r} in column '{column}' has more digits than {kind}", hint
        hint = f"{dialect.hint(kind, value)}correct the file, or declare another type under the input's `columns`"
        return f"{shown!r} in column '{column}' can't be read as {kind}", hint

    def _has_more_digits(self, name: str, value: str) -> bool:
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

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        with opened(path) as file:
            line = next((line for line, text in enumerate(file, start=1) if "\ufffd" in text), None)
        if line is not None:
            return not_text(path, line, UTF_8)
        return Damage(f"the file is not whole {self.name}: {first_line(error)}", str(path))

    def _lines(self, path: Path) -> Iterator[int]:
        """Yield the line in which each row ends."""
        raise NotImplementedError


RENAMED = "_duplicated_"
"""The text that polars adds to a name that a header has twice."""


class Csv(TextKind):
    """CSV. An empty field is null, one of two quotes is empty text; a record without any value is ignored.

    If the dialect is plain, polars reads whole files; else it gets their records, as Python's `csv` separates them.
    """

    name = CSV

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
        return self.dialect.is_plain and is_read_by_polars(path)

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


def without_rows(path: Path, kind: Kind, rows: Collection[int], dialect: Dialect) -> bytes:
    """Return the content of a file without the rows of these numbers. Raises InputError for a kind from which no rows can be left out."""
    if kind.name in (PARQUET, IPC):
        left = (
            kind.scan([path]).with_row_index("\0row").filter(~pl.col("\0row").is_in(list(rows))).drop("\0row").collect()
        )
        data = io.BytesIO()
        if kind.name == PARQUET:
            left.write_parquet(data)
        else:
            left.write_ipc(data, compression="zstd")
        return data.getvalue()
    lines = {line for line in kind.lines(path, sorted(rows)) if line is not None}
    with unpacked(path) as file:
        text = file.read()
    parts = text.split(b"\n")
    written = [*(part + b"\n" for part in parts[:-1]), *parts[-1:]]
    if kind.name == CSV and dialect.encoding not in WIDE:
        ends = {record.last: record.first for record in records(path, dialect)}
        lines = {line for last in lines for line in range(ends[last], last + 1)}
    elif kind.name != NDJSON or _first(text) != b"{":
        raise InputError(
            "rows can't be left out of a file of this kind",
            place=str(path),
            hint="remove the rows from the file, and repeat the command",
        )
    return packed(b"".join(part for line, part in enumerate(written, start=1) if line not in lines), path.name)


def _first(text: bytes) -> bytes:
    """Return the first byte that is no space: in a file of JSON objects a brace."""
    return text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
