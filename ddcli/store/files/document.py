"""Small documents of a state: JSON files, each a record that is replaced as a whole.

A reader sees the content of before or of after a write, and a write is on the disk when it returns. The files lie where others may write: JSON that
has a key twice, a number that is none, or anything else than the record's parser accepts is damage, and the file is named. So no document is
taken for another, and none is read in part. Imports no third-party library.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ddcli.errors import StateError
from ddcli.store.files.access import read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ddcli.store.files.gate import Files

T = TypeVar("T")
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The errors of content that `dd` never writes."""


class Document(Generic[T]):
    """A kind of document: `parse` makes a record of its JSON and its path, and raises one of `DAMAGED`; `plain` makes JSON of a record.

    `problem` and `hint` belong to the error for a damaged one.
    """

    def __init__(
        self, parse: Callable[[dict[str, Any], Path], T], plain: Callable[[T], dict[str, Any]], problem: str, hint: str
    ) -> None:
        self._parse, self._plain = parse, plain
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
        return self._parse(parsed(read_bytes(path)), path)

    def write(self, path: Path, record: T, files: Files, number: int = 0) -> None:
        """Replace a file, or make it; `number` distinguishes this attempt's temporary file from others'."""
        files.put(path, self.data(record), number)

    def data(self, record: T) -> bytes:
        """Return the content of a record's file."""
        return json.dumps(self._plain(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


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
