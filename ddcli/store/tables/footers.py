"""The columns that files state, read without polars and without a row, so that `dd check` starts quickly.

A run asks polars, which reads the rows afterwards. Both must find the same columns: a test compares them over all types.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from dataclasses import field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import InputError, did_you_mean, first_line
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.expressions.types import (
    INTEGERS,
    MAX_PRECISION,
    NESTED,
    Type,
    from_polars,
    is_field_name,
)
from ddcli.store.files.changes import ARROW, ENCRYPTED, MAGIC, PARQUET_ENDINGS
from ddcli.store.tables.compression import DAMAGED, Damage, unpacked
from ddcli.store.tables.input_path import (
    AVRO,
    CSV,
    EXCEL,
    IPC,
    KINDS,
    NDJSON,
    ORC,
    PARQUET,
    TEXTS,
    bare,
    by_column,
    name_of_kind,
    names_in_file,
    packing_of,
    refuse_patterns,
    types_of_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.expressions.types import Schema
    from ddcli.store.tables.input_path import FormerNames, Partition


T = TypeVar("T")


PLAIN = {name: name for name in (*INTEGERS, "bool", "null")} | {"float": "float32", "double": "float64"}
PLAIN |= dict.fromkeys(("string", "large_string", "string_view"), "string")
PLAIN |= dict.fromkeys(("binary", "large_binary", "binary_view", "fixed_size_binary"), "binary")
PLAIN |= {"date32": "date", "time32": "time", "time64": "time"}
"""Arrow's names of types without parameters that count."""
TEXT = Type("string", nullable=True)
UNREADABLE = ("list", "struct", "binary", "duration", "null")
"""The kinds of types whose values have no text of their own; lists and structs are read from JSON."""
EMPTY = "the file is empty: it has no bytes"
OTHERWISE = "write the file again, and if that doesn't help, without the column, with other types or in another format"
"""The hint for a file that is whole and can't be read."""
STREAM = b"\xff\xff\xff\xff"
HEAD, LAST = 1 << 20, 16
"""The bytes of a file's ends that show that it is whole: Avro has the mark of its last bytes in its header, too."""


@frozen
class Unfit:
    """A type that records can't have, by its name; for a struct also its fields."""

    name: str
    fields: Mapping[str, Type | Unfit] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


def hint_of(path: Path) -> str:
    """Return the hint for a file that is none of its kind: another kind, if the name left it open, needs an ending."""
    ending = PurePath(bare(path.name)).suffix
    if ending in KINDS or ending in PARQUET_ENDINGS:
        return DAMAGED
    return f"it is read as Parquet, as its name has none of the endings of other kinds: {', '.join(sorted(KINDS))}"


def why_unread(path: Path, kind: str, error: BaseException) -> tuple[str, str]:
    """Return the problem of a file of a binary kind that its reader refuses, and a hint: either it is not whole, or the reader's reason."""
    reason = first_line(error)
    if reason.startswith("the file is not whole"):  # of its packing
        return reason, DAMAGED
    head, tail = _ends_of(path)
    if kind == IPC and head.startswith(STREAM):
        return (
            "the file is a stream of Arrow IPC, which has no footer",
            "write it in the file format, also known as Feather",
        )
    whole = {
        PARQUET: tail[-4:] == head[:4] and tail[-4:] in (MAGIC, ENCRYPTED),
        IPC: tail[-6:] == head[:6] == ARROW,
        ORC: tail[-4:-1] == head[:3] == b"ORC",
        AVRO: head.startswith(b"Obj\x01") and tail in head[len(b"Obj\x01") :],
    }
    if not whole[kind]:
        return f"the file is not whole {kind}: {reason}", hint_of(path)
    return f"the file can't be read as {kind}: {reason}", OTHERWISE


def _ends_of(path: Path) -> tuple[bytes, bytes]:
    """Return the first bytes of a file, and the last ones: as many as Avro has between blocks."""
    try:
        with unpacked(path) as file:
            if packing_of(path.name):
                head = data = file.read()
                return head[:HEAD], data[-LAST:]
            head = file.read(HEAD)
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST))
            return head, file.read(LAST)
    except (OSError, Damage):
        return b"", b""


def columns_of_text(path: Path, declared: Schema | None, dialect: Dialect = DEFAULT) -> Schema:
    """Return the types that the pipeline declares for the columns of text; refuse the file if it declares none, or one whose values have no text."""
    kind = name_of_kind(path)
    if declared is None:
        raise InputError(
            f"a file of text, {kind}, has no column types",
            place=str(path),
            hint=f"declare them under the input's `columns`, or write `columns: infer`; by its first rows, `columns: {_proposed(path, dialect)}`",
        )
    for name, column in declared.items():
        if not _is_readable(column):
            raise InputError(
                f"column '{name}' is {column.required()}, which can't be read from {kind}",
                place=str(path),
                hint="declare it as string, or write the files as Parquet",
            )
    return declared


def _is_readable(column: Type) -> bool:
    """Return whether values of a type can be read from text: lists and structs from JSON."""
    inner = [column.inner] if column.inner is not None else [kind for _, kind in column.fields]
    return all(map(_is_readable, inner)) if inner else column.kind not in UNREADABLE


@dataclass
class Footers:
    """The columns of an input's files; as for `Tables`, which has the same of polars.

    `declared` are the types of text's columns, `partitions` the columns in files' paths, `nested`: fields of structs are columns too,
    `dialect` is for CSV, `former` the other names that files may have for columns, `absent` those that a file may lack.
    """

    declared: Schema | None
    partitions: Mapping[Path, Partition]
    nested: bool = False
    times: tuple[str, ...] = ()
    dialect: Dialect = DEFAULT
    former: FormerNames = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._partitioned = types_of_partitions(self.partitions.values(), self.times, self.declared)

    def footer(self, path: Path) -> dict[str, Type | Unfit]:
        """Return the columns of a file, or refuse it: InputError. Imports pyarrow for Parquet and Arrow IPC."""
        try:
            own = self._own(path)
        except OSError as error:
            raise InputError(f"the file can't be read: {error.strerror or error}", place=str(path)) from None
        refuse_patterns(str(path), own, self.declared)
        structs = [(name, dict(column.fields)) for name, column in own.items() if self.nested]
        fields = {f"{name}.{inner}": column for name, inside in structs for inner, column in inside.items()}
        given = (*self.partitions.get(path, {}), *self.absent)
        beside = {name: self._partitioned[name] for name in given if name not in own}
        return own | fields | beside

    def _own(self, path: Path) -> dict[str, Type | Unfit]:
        """Return the columns that a file has itself, by the names that the input has for them."""
        found = self._in_file(path)
        if name_of_kind(path) == NDJSON or not self.former:
            return found
        names = names_in_file(path, self.former, found)
        declared = {name: kind.or_null() for name, kind in (self.declared or {}).items() if name in names}
        return by_column(names, found) | (declared if name_of_kind(path) in TEXTS else {})

    def _in_file(self, path: Path) -> dict[str, Type | Unfit]:
        """Return the columns that a file has itself, by its own names."""
        kind, dialect = name_of_kind(path), self.dialect.of(bare(path.name), self.partitions.get(path, {}))
        types = columns_of_text(path, self.declared, dialect) if kind in TEXTS else {}
        if kind == NDJSON:
            return {name: column.or_null() for name, column in types.items()}
        if not path.stat().st_size:
            raise InputError(EMPTY, place=str(path), hint=DAMAGED)
        if kind == CSV:
            return {name: types.get(name, TEXT).or_null() for name in _names(path, dialect)}
        if kind == EXCEL:
            from ddcli.store.tables.sheets import names_of_sheet

            return {name: types.get(name, TEXT).or_null() for name in names_of_sheet(path)}
        if kind == AVRO:
            return _read_avro(path)
        return stated(path)


def _proposed(path: Path, dialect: Dialect) -> str:
    """Return the columns that a file of text seems to have, as they would be declared; else an example."""
    from ddcli.store.tables.column_types import propose

    try:
        found = propose(path, dialect, json_lines=name_of_kind(path) == NDJSON) if name_of_kind(path) != EXCEL else None
    except (OSError, InputError):
        found = None
    return found or "{id: int64, name: string?}"


def _names(path: Path, dialect: Dialect) -> list[str]:
    """Return the names of a CSV file's columns, or refuse it."""
    from ddcli.store.tables.csv_records import names_of, no_header, refuse_encoding

    refuse_encoding(path, dialect)
    if names := names_of(path, dialect):
        return names
    raise no_header(path)


def _read_arrow(file: BinaryIO, kind: str, path: Path) -> dict[str, Type | Unfit]:
    """Return the columns that a file of Parquet or Arrow IPC states."""
    import pyarrow as pa

    try:
        if kind == PARQUET:
            from pyarrow import parquet

            schema = _as_polars(parquet.ParquetFile(file))
        elif kind == ORC:
            from pyarrow import orc

            schema = orc.ORCFile(file).schema
        else:
            schema = pa.ipc.open_file(file).schema
            _refuse_unread(path, schema)
    except (pa.ArrowException, ValueError) as error:
        problem, hint = why_unread(path, kind, error)
        raise InputError(problem, place=str(path), hint=hint) from None
    return {column.name: _from_arrow(column.type, wide=kind != IPC) for column in schema}


def odd_columns(schema: Any) -> dict[str, bool]:
    """Return the columns of a schema of Arrow whose type polars doesn't read in files of Arrow IPC, or contains one, and whether it panics at that, however few columns it reads."""
    from pyarrow import types

    panics = (types.is_interval, types.is_union, types.is_run_end_encoded, types.is_list_view, types.is_large_list_view)
    found = dict[str, bool]()
    left = [(column.name, column.type) for column in schema]
    while left:
        name, kind = left.pop()
        inner = getattr(
            kind, "storage_type", getattr(kind, "value_type", None)
        )  # of an extension; of a dictionary or a list
        parts = [kind.field(at).type for at in range(kind.num_fields)]
        left += [(name, part) for part in (parts or ([] if inner is None else [inner]))]
        if any(is_one(kind) for is_one in panics):
            found[name] = True
        elif types.is_decimal256(kind):
            found.setdefault(name, False)
    return found


def _refuse_unread(path: Path, schema: Any) -> None:
    """Refuse a file of Arrow IPC when polars reads no column of it for the type of one."""
    for name, panics in odd_columns(schema).items():
        if panics:
            raise InputError(
                f"column '{name}' is {schema.field(name).type}, a type with which the file can't be read",
                place=str(path),
                hint="write the file without the column, or the column in another type",
            )


def _as_polars(file: Any) -> Any:
    """Return the columns of a file of Parquet as polars takes them: Arrow's `date64` is a timestamp, which pyarrow doesn't return."""
    import pyarrow as pa

    schema = file.schema_arrow
    stored = (file.metadata.metadata or {}).get(b"ARROW:schema")
    if stored is None or "date32" not in str(schema):
        return schema
    written = pa.ipc.read_schema(pa.py_buffer(b64decode(stored)))
    for at, column in enumerate(schema):
        if column.name in written.names and "date64" in str(written.field(column.name).type):
            schema = schema.set(at, written.field(column.name))
    return schema


def stated(path: Path) -> dict[str, Type | Unfit]:
    """Return the columns that a file of Parquet or Arrow IPC states. Imports pyarrow; raises OSError and InputError."""
    with path.open("rb") as file:
        return _read_arrow(file, name_of_kind(path), path)


def decimal_beyond(path: Path) -> str | None:
    """Return the problem of a file of Parquet or Arrow IPC with decimals of more than 38 digits, which polars can't read."""
    try:
        found = stated(path)
    except (OSError, InputError):
        return None
    for name, column in found.items():
        if isinstance(column, Unfit) and column.name.startswith("decimal("):
            return f"column '{name}' is {column}, a type that records can't have"
    return None


def _read_avro(path: Path) -> dict[str, Type | Unfit]:
    """Return the columns of an Avro file; polars knows more."""
    import polars as pl

    from ddcli.store.tables.avro import columns_of_avro

    try:
        found = columns_of_avro(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        problem, hint = why_unread(path, AVRO, error)
        raise InputError(problem, place=str(path), hint=hint) from None
    return {
        name: Unfit(dtype) if isinstance(dtype, str) else from_polars(dtype, nullable=True) or Unfit(str(dtype))
        for name, dtype in found.items()
    }


def _from_arrow(column: Any, *, wide: bool, depth: int = 0) -> Type | Unfit:
    """Return our type for one of Arrow's, with nulls, or `Unfit` if records can't have it. Seconds become milliseconds; decimals of 256 bits fit only if `wide`."""
    from pyarrow import types

    if depth > NESTED:
        return Unfit(str(column))
    if types.is_dictionary(column):
        return _from_arrow(column.value_type, wide=wide)
    if types.is_list(column) or types.is_large_list(column):
        inner = _from_arrow(column.value_type, wide=wide, depth=depth + 1)
        return Unfit(str(column)) if isinstance(inner, Unfit) else Type("list", nullable=True, inner=inner)
    if types.is_struct(column):
        fields = {each.name: _from_arrow(each.type, wide=wide, depth=depth + 1) for each in column}
        kinds = {name: kind for name, kind in fields.items() if isinstance(kind, Type) and is_field_name(name)}
        if not kinds or len(kinds) < column.num_fields:
            return Unfit(str(column), fields)
        return Type("struct", nullable=True, fields=tuple(kinds.items()))
    if types.is_decimal(column):
        if not 0 <= column.scale <= column.precision <= MAX_PRECISION:
            return Unfit(f"decimal({column.precision}, {column.scale})")
        if not wide and types.is_decimal256(column):
            return Unfit(str(column))
        return Type("decimal", nullable=True, precision=column.precision, scale=column.scale)
    if types.is_timestamp(column) or types.is_duration(column):
        unit = "ms" if column.unit == "s" else column.unit
        zone = column.tz if types.is_timestamp(column) else None
        return Type("datetime" if types.is_timestamp(column) else "duration", nullable=True, unit=unit, zone=zone)
    if getattr(column, "extension_name", "") == "arrow.uuid":
        return Type("binary", nullable=True)
    name = str(column).partition("[")[0]
    if name == "date64":
        return Type("datetime", nullable=True, unit="ms")
    return Type(PLAIN[name], nullable=True) if name in PLAIN else Unfit(str(column))


def renamed_hint(missing: str, kind: Type, others: Sequence[str], former: FormerNames) -> str:
    """Return the hint for a file that lacks a column of this type and has `others`: one may be the column under a new name, or a line with another delimiter."""
    if len(others) == 1 and (delimiter := _delimiter_around(missing, others[0])):
        return f"its columns seem to be separated by a {delimiter}: save it with the delimiter of the other files"
    new = did_you_mean(missing, others) or (others[0] if len(others) == 1 else None)
    given = ", ".join(map(_in_yaml, [*former.get(missing, ()), new or "NAME"]))
    where = f"'{new}'" if new else "another name (it has " + ", ".join(others) + ")"
    return (
        f"if it has it as {where} now, state both names under the input's `columns`: "
        f"`{_in_yaml(missing)}: {{type: {_in_yaml(str(kind))}, from: [{given}]}}`"
    )


def _delimiter_around(name: str, header: str) -> str | None:
    """Return the delimiter, in words, of a header that was read as the name of one column and has this name in it."""
    from ddcli.store.tables.csv_records import DELIMITERS

    found = (mark for mark in ",;\t|" if mark in header and name in (each.strip('" ') for each in header.split(mark)))
    return next((DELIMITERS[mark] for mark in found), None)


def _in_yaml(word: str) -> str:
    """Return a name or a type as it is written in a pipeline file, in quotes where it needs them."""
    return word if re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII) else json.dumps(word, ensure_ascii=False)


def name_of(found: pl.DataType | Type | Unfit) -> str:
    """Return the name of a column's type for messages, which is the same for all readers."""
    if isinstance(found, Unfit | Type):
        return str(found)
    import polars as pl

    return f"decimal({found.precision}, {found.scale})" if isinstance(found, pl.Decimal) else str(found)
