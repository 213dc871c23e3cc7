"""NDJSON and JSON as kinds of files: one object for each line, objects one after the other, or in an array.

Kafka Connect and Debezium write some values by default as days, milliseconds or microseconds, and decimals as bytes in base64; the schema beside the payload names the encoding. A value is
decoded if its column is declared as what it means, `date` for days; an int64 stays as it is written. A value that the encoding can't have stays as it is, too, so that a cast refuses it.
"""

from __future__ import annotations

import glob
import json
from base64 import b64decode
from binascii import Error as Base64Error
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.engine.kernels.text_syntax import BLANK, LONG, ROWS
from ddcli.expressions.json_text import Digits, written
from ddcli.expressions.moments import FIRST_DAY, LAST_DAY
from ddcli.store.tables.input_path import NDJSON
from ddcli.store.tables.json_values import (
    ExactColumns,
    has_mark,
    is_read_by_polars,
    numbered_lines,
    payload_and_schema,
    payload_of,
)
from ddcli.store.tables.kinds import lazy_frame
from ddcli.store.tables.text_kind import TextKind
from ddcli.store.tables.text_syntax import ENVELOPES, SPACE, TOMBSTONES, Syntax, judge_json, whole_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np

    from ddcli.expressions.types import Schema, Type
    from ddcli.store.tables.compression import Damage
    from ddcli.store.tables.kinds import Footer

    Decode = Callable[[Any], str]
    Step = tuple[tuple[str, ...], Decode]


class Ndjson(TextKind):
    """One JSON object for each line. A missing key is null; blank lines are ignored."""

    name = NDJSON

    def __init__(
        self, declared: Schema, *, nested: bool = False, enveloped: bool = False, rounds: bool = False
    ) -> None:
        super().__init__(declared, nested=nested, rounds=rounds)
        self._enveloped = enveloped
        self._misshapen: dict[Path, dict[int, tuple[str, str]]] = {}
        self._watched = ExactColumns(declared, nested=nested)
        self._syntax = Syntax(self._watched, tombstones=enveloped)

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
            or not is_read_by_polars(path)
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
        return self._enveloped and bool(self._marks(path)[ENVELOPES])

    def _marks(self, path: Path) -> np.ndarray:
        """Return the marks of a file's lines, which are looked through if they were not yet."""
        if path not in self._syntax.marks:
            with suppress(OSError):  # the reader of the rows reports it
                self.find_damage(path)
        return self._syntax.marks[path]

    def find_damage(self, path: Path) -> Damage | None:
        return self._syntax.json_damage(path)

    def known_rows(self, path: Path) -> int | None:
        marks = self._syntax.marks.get(path)
        if marks is None or (self._enveloped and (marks[TOMBSTONES] or marks[ENVELOPES])):
            return None
        return int(marks[ROWS])

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


def names_in_objects(path: Path) -> list[str]:
    """Return the keys of the objects of an NDJSON file. Raises the errors of polars, and OSError."""
    if is_read_by_polars(path) and not has_mark(path):
        return list(pl.scan_ndjson(str(path), infer_schema_length=None).collect_schema())
    names: dict[str, None] = {}
    for lines in whole_lines(path):
        names |= dict.fromkeys(pl.read_ndjson(lines, infer_schema_length=None).columns if lines.strip() else ())
    return list(names)


DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
DAYS = (f"{DEBEZIUM}Date", f"{CONNECT}Date")
TICKS = {"Timestamp": 3, "MicroTimestamp": 6, "NanoTimestamp": 9, "Time": 3, "MicroTime": 6, "NanoTime": 9}
"""The decimal places of a second that numbers of these types count."""
DECIMAL, VARIABLE = f"{CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400


class ConnectValues:
    """Decodes the rows of an input, whose columns are declared; a name with a dot is a field of a struct if they are `nested`."""

    def __init__(self, declared: Schema, *, nested: bool) -> None:
        self._wanted = {
            tuple(name.partition(".")[::2]) if nested and "." in name else (name,): kind.kind
            for name, kind in declared.items()
            if kind.kind in ("date", "time", "datetime", "decimal")
        }
        self._steps: dict[str, list[Step]] = {}

    def decoded(self, payload: bytes, schema: str) -> bytes:
        """Return an object with its encoded values decoded, by its schema, which is JSON."""
        if (steps := self._steps.get(schema)) is None:
            steps = self._steps[schema] = list(self._decoders(schema)) if self._wanted else []
        if not steps:
            return payload
        tree = json.loads(payload, parse_int=Digits, parse_float=Digits)
        for path, decode in steps:
            _decode(tree, path, decode)
        return written(tree).encode()

    def _decoders(self, schema: str) -> Iterator[Step]:
        """Yield the columns that are encoded, and how they are decoded."""
        try:
            whole = json.loads(schema)["fields"]
            named: list[tuple[dict[str, Any], tuple[str, ...]]] = [(field, (field["field"],)) for field in whole]
            named += [(each, (field["field"], each["field"])) for field in whole for each in field.get("fields", ())]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
        for field, path in named:
            kind = self._wanted.get(path)
            if kind is not None and (decode := _decoder(field, kind)) is not None:
                yield path, decode


def _decoder(field: dict[str, Any], kind: str) -> Decode | None:
    """Return how a field's value becomes a text of the declared kind of type; None where it is not encoded."""
    name = str(field.get("name", ""))
    if kind == "decimal":
        if name == VARIABLE:
            return _variable
        scale = (field.get("parameters") or {}).get("scale", "0")
        return partial(_decimal, scale=int(scale)) if name == DECIMAL and str(scale).isdecimal() else None
    if name in DAYS:
        return _date if kind in ("date", "datetime") else None
    if not name.startswith((DEBEZIUM, CONNECT)):
        return None
    short = name.rpartition(".")[2]
    places = TICKS.get(short)
    if places is None or short.endswith("Time") != (kind == "time"):
        return None
    return partial(_time if kind == "time" else _moment, places=places)


def _decode(tree: Any, path: tuple[str, ...], decode: Decode) -> None:
    """Put the decoded value in place of the one at a path, if there is one that can be decoded."""
    *outer, name = path
    for each in outer:
        tree = tree.get(each) if isinstance(tree, dict) else None
    if isinstance(tree, dict) and tree.get(name) is not None:
        try:
            tree[name] = decode(tree[name])
        except (ValueError, OverflowError, TypeError, KeyError, Base64Error):
            return


def _date(days: str) -> str:
    return (EPOCH + timedelta(days=int(days))).date().isoformat()


def _moment(ticks: str, places: int) -> str:
    """Return the text of a timestamp.

    >>> _moment("-1", places=6)
    '1969-12-31 23:59:59.999999'
    """
    seconds, rest = divmod(int(ticks), 10**places)
    return f"{(EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(' ')}.{rest:0{places}}"


def _time(ticks: str, places: int) -> str:
    """Return the text of a time of a day.

    >>> _time("45000123", places=3)
    '12:30:00.123'
    """
    seconds, rest = divmod(int(ticks), 10**places)
    if not 0 <= seconds < DAY:
        raise ValueError(ticks)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:0{places}}"


def _decimal(value: str, scale: int) -> str:
    """Return the digits of a number whose bytes are in base64, the highest first.

    >>> _decimal("/w==", scale=2), _decimal("AfQ=", scale=2), _decimal("AfQ=", scale=0)
    ('-0.01', '5.00', '500')
    """
    if isinstance(value, Digits):
        raise TypeError(value)
    number = int.from_bytes(b64decode(value, validate=True), "big", signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' * (number < 0)}{whole}{'.' * bool(scale)}{fraction}"


def _variable(value: dict[str, Any]) -> str:
    """Return the digits of a number that has its scale beside it."""
    return _decimal(value["value"], scale=int(value["scale"]))
