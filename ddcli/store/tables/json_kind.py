"""NDJSON and JSON: one object for each line, objects one after the other, or in an array."""

from __future__ import annotations

import glob
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.engine.kernels.text_syntax import BLANK, LONG
from ddcli.expressions.json_text import Digits, written
from ddcli.expressions.years import FIRST_DAY, LAST_DAY
from ddcli.store.parquet import footers
from ddcli.store.tables.compression import is_padded, packing_of
from ddcli.store.tables.json_values import (
    ExactColumns,
    has_mark,
    is_values,
    numbered_lines,
    payload_and_schema,
    payload_of,
)
from ddcli.store.tables.kinds import lazy_frame
from ddcli.store.tables.text_kind import TextKind
from ddcli.store.tables.text_syntax import SPACE, TOMBSTONES, Syntax, judge_json, whole_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np

    from ddcli.expressions.types import Schema, Type
    from ddcli.store.tables.csv_records import Damage
    from ddcli.store.tables.kinds import Footer


class Ndjson(TextKind):
    """One JSON object for each line. A missing key is null; blank lines are ignored."""

    name = footers.NDJSON

    def __init__(
        self, declared: Schema, *, nested: bool = False, enveloped: bool = False, rounds: bool = False
    ) -> None:
        super().__init__(declared, nested=nested, rounds=rounds)
        self._enveloped = enveloped
        self._envelopes: dict[Path, bool] = {}
        self._misshapen: dict[Path, dict[int, tuple[str, str]]] = {}
        self._watched = ExactColumns(declared, nested=nested)
        self._syntax = Syntax(self._watched, tombstones=enveloped)
        from ddcli.store.tables.connect_values import ConnectValues

        self._values = ConnectValues(declared, nested=nested)

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
            bool(found[LONG] or found[TOMBSTONES])
            or path in self._syntax.preceded
            or not _is_read_by_polars(path)
            or self._has_envelopes(path)
            or path in self._misshapen
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
        """Return the rows of a file that polars can't read as it is: numbers have more digits, it is packed otherwise, or begins with a byte order mark."""

        def frames() -> Iterator[pl.DataFrame]:
            for first, objects in self._objects(path):
                for row in self._misshapen.get(path, ()):
                    if first <= row < first + len(objects):
                        objects[row - first] = self._without_misshapen(objects[row - first])
                exact = b"\n".join(map(self._watched.exact, objects))
                yield pl.read_ndjson(exact, schema=schema) if exact else pl.DataFrame(schema=schema)

        return lazy_frame(frames, schema)

    def _objects(self, path: Path) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the objects of a file, some at a time, each time with the number of the first."""
        first = 0
        for lines in whole_lines(path):
            objects = [line for line in lines.split(b"\n") if line.strip()]
            if self._enveloped:
                objects = [self._values.decoded(*each) for line in objects if (each := payload_and_schema(line))[0]]
            yield first, objects
            first += len(objects)

    def misshapen(self, path: Path) -> dict[int, tuple[str, str]]:
        """Return column and text of values that would have to be objects and are none, by row; from now on they are read as null.

        None of a file that is not UTF-8, which is refused as a whole.
        """
        if path not in self._misshapen:
            found: dict[int, tuple[str, str]] = {}
            for first, objects in self._objects(path):
                for row, line in enumerate(objects, start=first):
                    try:
                        tree = _tree(line)
                    except UnicodeDecodeError:
                        return {}
                    if name := next((one for one, value in tree.items() if self._is_misshapen(one, value)), None):
                        found[row] = name, written(tree[name])
            self._misshapen[path] = found
        return self._misshapen[path]

    def _cast(self, name: str, kind: Type) -> pl.Expr:
        """Return a column as a cast of its text; in events a date may be a number of days, as Debezium writes it."""
        value = super()._cast(name, kind)
        if not (self.nested and kind.kind == "date"):
            return value
        days = pl.col(name).cast(pl.Int32, strict=False)
        inside = days.is_between(FIRST_DAY, LAST_DAY) & pl.col(name).str.contains("^-?[0-9]+$")
        return pl.when(inside).then(days.cast(pl.Date)).otherwise(value)

    @property
    def _structs(self) -> list[str]:
        """The columns that are objects."""
        parts = [name.partition(".") for name in self.declared if self.nested]
        return list(dict.fromkeys(struct for struct, dot, _ in parts if dot))

    def _is_misshapen(self, name: str, value: object) -> bool:
        return value is not None and not isinstance(value, dict) and name in self._structs

    def _without_misshapen(self, line: bytes) -> bytes:
        tree = _tree(line)
        return written(
            {name: None if self._is_misshapen(name, value) else value for name, value in tree.items()}
        ).encode()

    def _has_envelopes(self, path: Path) -> bool:
        """Return whether objects of a file may have their events as payload, beside a schema."""
        if self._enveloped and path not in self._envelopes:
            self._envelopes[path] = any(b'"payload"' in lines for lines in whole_lines(path))
        return self._enveloped and self._envelopes[path]

    def _marks(self, path: Path) -> np.ndarray:
        """Return the marks of a file's lines, which are looked through if they were not yet."""
        if path not in self._syntax.marks:
            with suppress(OSError):  # the reader of the rows reports it
                self.find_damage(path)
        return self._syntax.marks[path]

    def find_damage(self, path: Path) -> Damage | None:
        return self._syntax.json_damage(path)

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        return judge_json(path, tombstones=self._enveloped) or super().why_damaged(path, error)

    def _lines(self, path: Path) -> Iterator[int]:
        enveloped = self._enveloped and (self._has_envelopes(path) or bool(self._marks(path)[TOMBSTONES]))
        for line, text in numbered_lines(path):
            if text.strip(SPACE) and (not enveloped or payload_of(text.encode())):
                yield line


def _tree(line: bytes) -> dict[str, Any]:
    """Return an object of JSON with its numbers as they are written."""
    return json.loads(line, parse_int=Digits, parse_float=Digits)  # type: ignore[no-any-return]


def _is_read_by_polars(path: Path) -> bool:
    """Return whether polars unpacks a file, if it is packed, and finds one object in each line."""
    return packing_of(path.name) in ("", ".gz") and not is_values(path) and not is_padded(path)


def names_in_objects(path: Path) -> list[str]:
    """Return the keys of the objects of an NDJSON file. Raises the errors of polars, and OSError."""
    if _is_read_by_polars(path) and not has_mark(path):
        return list(pl.scan_ndjson(path, infer_schema_length=None).collect_schema())
    names: dict[str, None] = {}
    for lines in whole_lines(path):
        names |= dict.fromkeys(pl.read_ndjson(lines, infer_schema_length=None).columns if lines.strip() else ())
    return list(names)
