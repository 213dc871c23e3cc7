"""Small documents of a state: JSON files, each a record that is replaced as a whole.

A reader sees the content of before or of after a write, and a write is on the disk when it returns. The files lie where others may write: JSON that
has a key twice, a number that is none, or anything else than the record's parser accepts is damage, and the file is named. So no document is
taken for another, and none is read in part. Imports no third-party library.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ddcli.errors import StateError
from ddcli.store.files.access import read_bytes
from ddcli.store.state.names import columns_of, count_of, integers_of, list_of, mapping_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ddcli.store.files.gate import Files

T = TypeVar("T")
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The errors of content that `dd` never writes."""


def optional(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader of values that may be null."""
    return lambda value: None if value is None else reader(value)


def tuple_of(reader: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a reader of lists of values, each as `reader` returns it."""
    return lambda values: tuple(map(reader, list_of(values)))


READERS: dict[str, Callable[[Any], Any]] = {
    "str": text_of,
    "int": count_of,
    "int | None": optional(count_of),
    "tuple[str, ...]": tuple_of(text_of),
    "tuple[int, ...]": tuple_of(count_of),
    "dict[str, int]": integers_of,
    "dict[str, str]": columns_of,
    "dict[str, Any]": mapping_of,
}
"""The readers of fields of these types: each returns a value of JSON in the type, or raises one of `DAMAGED`."""


def record_of(kind: type[T], tree: Mapping[str, Any], **readers: Callable[[Any], Any]) -> T:
    """Return the record of a dataclass that JSON has as `tree`, with each field as a reader returns it: one of these, or the one of the field's type.

    A field that is missing has its default, if there is one. Raises one of `DAMAGED`, also for a field that the class doesn't have.
    """
    known = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: (readers.get(name) or READERS[known[name]])(value) for name, value in tree.items()})


class Document(Generic[T]):
    """A kind of document: a dataclass whose JSON is read as `record_of` does, with these `readers`.

    `problem` and `hint` belong to the error for a damaged one. `check` raises one of `DAMAGED` for a record that can't be at its path.
    """

    def __init__(
        self,
        kind: type[T],
        problem: str,
        hint: str,
        check: Callable[[T, Path], None] | None = None,
        **readers: Callable[[Any], Any],
    ) -> None:
        self._kind, self._check, self._readers = kind, check, readers
        self.problem, self.hint = problem, hint

    def read(self, path: Path) -> T | None:
        """Return the record of a file; None where there is no file. Raises StateError for a damaged one."""
        try:
            return self.try_read(path)
        except FileNotFoundError:
            return None
        except DAMAGED:
            raise StateError(self.problem, place=str(path), hint=self.hint) from None

    def try_read(self, path: Path) -> T:
        """Return the record of a file. Raises FileNotFoundError, or one of `DAMAGED`."""
        found = record_of(self._kind, parsed(read_bytes(path)), **self._readers)
        if self._check is not None:
            self._check(found, path)
        return found

    def write(self, path: Path, record: T, files: Files, number: int = 0) -> None:
        """Replace a file, or make it; `number` distinguishes this attempt's temporary file from others'."""
        files.put(path, self.data(record), number)

    def data(self, record: T) -> bytes:
        """Return the content of a record's file."""
        return json.dumps(record, default=_plain, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _plain(value: Any) -> Any:
    """Return the JSON of a dataclass: its row, if it has one, else its fields."""
    if hasattr(value, "to_row"):
        return value.to_row()
    return {field.name: getattr(value, field.name) for field in fields(value)}


def parsed(data: bytes) -> Any:
    r"""Return the value of JSON as the standard has it. Raises ValueError for other texts, and for an object with a key twice.

    >>> parsed(b'{"a": [1, null]}')
    {'a': [1, None]}
    >>> parsed(b'{"a": 1, "\\u0061": 2}')
    Traceback (most recent call last):
    ...
    ValueError: an object has a key twice
    >>> parsed(b'[NaN]')
    Traceback (most recent call last):
    ...
    ValueError: no number: NaN
    """
    return json.loads(data, object_pairs_hook=_object, parse_constant=_refused)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _refused(text: str) -> NoReturn:
    raise ValueError(f"no number: {text}")
