"""The names and values in the files of a state, which are checked, as others may write to its disk; and its small documents.

A checksum detects damage, not an adversary, who would compute another. So no value of a manifest is taken for a path, and
no file is renamed or removed, unless its name has a form of ours. A check raises ValueError; the reader of a file names the file.

A document is a JSON file with a record that is replaced as a whole. A reader sees the content of before or of after a write, and a write is on the disk when it returns. The files lie where others may write: JSON that
has a key twice, a number that is none, or anything else than the record's parser accepts is damage, and the file is named. So no document is
taken for another, and none is read in part. Imports no third-party library.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ddcli.errors import StateError
from ddcli.expressions.types import parse_type
from ddcli.store.files.access import read_bytes
from ddcli.store.files.gate import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ddcli.store.files.gate import Files


PLAIN = "[0-9A-Za-z_+-]"
MARK = "(?:-[0-9a-f]{12})?"
"""The mark that the holder of a lock in an object store adds to the names of files that aren't committed."""
ARRANGEMENT = re.compile("[0-9A-Za-z][0-9A-Za-z_-]{0,199}")
SHARD = re.compile("[0-9]{1,6}")
BATCH = re.compile(r"[0-9]{9}-[0-9A-Za-z_-]+\.parquet")
BUNDLE = re.compile(rf"[0-9]{{9}}(?:-{PLAIN}+)?\.tar")
SEGMENT = re.compile(rf"[0-9]{{9}}-{PLAIN}+\.json")
UPDATES = re.compile(rf"updates-{PLAIN}+\.parquet")
NAMED = re.compile(r"\w[\w-]*")
"""A directory of a state that is named as an input or an output is."""
MIRROR = re.compile(rf"tables/{NAMED.pattern}")
OF_OUTPUT = re.compile(rf"updates-{PLAIN}+\.parquet|_progress\.json")
"""The files that a commit publishes."""
FOLDER = re.compile(rf"updates-{PLAIN}+")
"""The folder in an output's directory with the files of a large commit."""
PART = re.compile(r"[0-9]{4,6}\.parquet")
"""A file in such a folder."""
OF_LOG = re.compile(rf"{UPDATES.pattern}|{FOLDER.pattern}/{PART.pattern}")
"""The path of a file of updates in an output's directory."""
WAITING = re.compile(
    rf"\.(?:updates-{PLAIN}+(?:\.[0-9]{{4,6}})?\.parquet|_progress\.json|\.table\.json|{BATCH.pattern}|{BUNDLE.pattern}|{SEGMENT.pattern})\.[0-9]{{9}}{MARK}{re.escape(TEMPORARY)}"
)
"""The names that files of outputs have until a commit publishes them, or batches, bundles and segments until it names them."""
WAITING_FOLDER = re.compile(rf"\.updates-{PLAIN}+\.[0-9]{{9}}{MARK}{re.escape(TEMPORARY)}")
"""The names that folders of large commits have until then."""
HALF_MANIFEST = re.compile(rf"\.[0-9]{{9}}\.json\.[0-9]{{9}}{re.escape(TEMPORARY)}")
READER = re.compile(r"\w[\w.-]{0,199}")
HOLD = re.compile(rf"{READER.pattern}\.json")
HALF_HOLD = re.compile(rf"\.{READER.pattern}\.json(?:\.[0-9]{{9}})?{re.escape(TEMPORARY)}")
"""Earlier versions put no number into these names."""
CONSUMER = re.compile("[0-9A-Za-z_][0-9A-Za-z_.-]{0,99}")
"""A consumer of an output: a part of a file's name, the same on every file system."""
OF_CONSUMER = re.compile(rf"[0-9a-f]{{16}}-{CONSUMER.pattern}\.json")
HALF_CONSUMER = re.compile(rf"\.{OF_CONSUMER.pattern}(?:\.[0-9]{{9}})?{re.escape(TEMPORARY)}")
RUN = re.compile(r"[0-9]{9}\.json")


RUNS = "runs"
VERIFIED = "verified.json"
"""The file of a state with the slices that `dd verify` has covered."""
HALF_VERIFIED = re.compile(rf"\.verified\.json\.[0-9]{{9}}{re.escape(TEMPORARY)}")
TABLE = ".table.json"
"""The file with the mark of a mirror: the version of the table that it has reached."""


PROGRESS = "_progress.json"
SCRATCH = re.compile(r"[0-9]{6}|[0-9a-f]{8}-[0-9A-Za-z-]+-[0-9]{4}")
"""The files of a run's scratch directory: the files of one process, and the files of tasks."""
BRANCHES = "branches"
"""The directory of a state in which its branches are."""
BRANCH = re.compile(r"(\w[\w-]*)@([0-9]{9})")
"""The directory of a branch: its name, and the number of the commit that it began at."""
CHECKSUM = re.compile("[0-9a-f]{8}")
IDENTITY = re.compile("(?:[0-9a-f]{32})?")
"""The identity of a state: none before its first commit."""
CONTENTS = re.compile("[0-9a-f]{24}")
"""The fingerprint of an output's contents."""
LOG = re.compile("(?:[0-9a-f]{16})?")
"""The identity of an output's log."""
LONGEST = 4096
"""Characters of the longest path."""
LEAST, BEYOND = -(1 << 63), 1 << 63


def named(form: re.Pattern[str], text: Any) -> str:
    """Return a text that has the form of a name."""
    if not isinstance(text, str) or not form.fullmatch(text):
        raise ValueError(f"no name of {form.pattern}: {text!r:.80}")
    return text


def text_of(value: Any) -> str:
    """Return a value that is a text. Raises ValueError for any other."""
    if not isinstance(value, str):
        raise ValueError(f"no text: {value!r:.80}")  # noqa: TRY004 - one kind of error for all that a file may have wrong
    return value


def list_of(values: Any) -> list[Any]:
    """Return a value that is a list. Raises ValueError for any other."""
    if not isinstance(values, list):
        raise ValueError(f"no list: {values!r:.80}")  # noqa: TRY004 - as in text_of
    return values


def texts_of(values: Any) -> list[str]:
    """Return a value that is a list of texts. Raises ValueError for any other."""
    return [text_of(value) for value in list_of(values)]


def path_of(value: Any) -> str:
    """Return a value that may be a path: no name of a file has a zero byte, and none can be opened that is too long. Raises ValueError."""
    text = text_of(value)
    if not text or "\0" in text or len(text) > LONGEST:
        raise ValueError(f"no path: {text!r:.80}")
    return text


def path_inside(value: Any) -> str:
    """Return a relative path that stays below the directory that it is relative to."""
    text = path_of(value)
    if text.startswith("/") or (".." in text and ".." in text.split("/")):
        raise ValueError(f"a path that leads out: {text!r:.80}")
    return text


def count_of(value: Any) -> int:
    """Return a number of things, or of bytes."""
    if type(value) is not int or not 0 <= value < BEYOND:
        raise ValueError(f"no number of things: {value!r:.80}")
    return value


def integer_of(value: Any) -> int:
    """Return an integer of 64 bits."""
    if type(value) is not int or not LEAST <= value < BEYOND:
        raise ValueError(f"no integer: {value!r:.80}")
    return value


def integers_of(value: Any) -> dict[str, int]:
    """Return a value that is a mapping to integers of 64 bits."""
    return {name: integer_of(each) for name, each in mapping_of(value).items()}


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a value that is a mapping: JSON's have texts for keys. Raises ValueError for any other."""
    if not isinstance(value, dict):
        raise ValueError(f"no mapping: {value!r:.80}")  # noqa: TRY004 - as in text_of
    return value


def columns_of(value: Any) -> dict[str, str]:
    """Return columns with the texts of their types, which all are types."""
    for text in mapping_of(value).values():
        if not isinstance(text, str) or not _is_type(text):
            raise ValueError(f"no type: {text!r:.80}")
    return mapping_of(value)


@lru_cache(maxsize=1024)
def _is_type(text: str) -> bool:
    return parse_type(text) is not None


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
