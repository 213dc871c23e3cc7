"""Registers: the files of an input or of an output. There are ever more of them, and few change in a run.

The latest entries are in the manifest, which is written whole each time. When there are more than `LATELY` they move into a segment, a
file of the state that never changes, as batches do: together with newer segments that are not much smaller. So there are few
segments, an entry is written again some dozen times in all, and the entries that a run writes don't depend on the number before it.
An entry replaces an older one of the same key. A reader of an older manifest finds the segments that this one names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

from ddcli.dataclass import frozen
from ddcli.engine.trace import policy
from ddcli.errors import StateError
from ddcli.store.files.gate import checksum
from ddcli.store.state.document import CHECKSUM, SEGMENT, count_of, named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ddcli.store.files.gate import Written

LATELY = 64
"""The number of a register's entries that are in the manifest."""
SEGMENTS = "registers"
"""The directory of a state with its segments."""


class RegisterEntry(Protocol):
    """An entry of a register; the first value of its row is its key."""

    @property
    def key(self) -> str:
        """Return the key, which no other entry has."""

    def to_row(self) -> list[Any]:
        """Return it as JSON has it."""

    @classmethod
    def from_row(cls, row: list[Any]) -> Self:
        """Return the entry that `to_row` wrote. Raises ValueError, TypeError or IndexError for a row that it can't have written."""


T = TypeVar("T", bound=RegisterEntry)


@frozen
class Segment:
    """A file of entries: its name in the directory of segments, its size and checksum, and the number of its entries."""

    name: str
    size: int
    checksum: str
    count: int
    data: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def from_row(cls, row: list[Any], read: Callable[[str], bytes]) -> Self:
        """Return the segment that a manifest describes by `row`, with its content. Raises StateError if that is damaged."""
        name, size, sum_, count = row
        named(SEGMENT, name), count_of(size), named(CHECKSUM, sum_), count_of(count)
        data = read(name)
        if len(data) != size or checksum(data) != sum_:
            raise StateError(
                "the file is damaged: its bytes are not those that were written", place=f"{SEGMENTS}/{name}"
            )
        return cls(name, size, sum_, count, data)

    def to_row(self) -> list[Any]:
        """Return the row that a manifest holds of it."""
        return [self.name, self.size, self.checksum, self.count]


class Register(Sequence[T]):
    """Entries, in the order in which their keys came. They are parsed when they are first used."""

    def __init__(self, kind: type[T], segments: tuple[Segment, ...] = (), recent: Iterable[T] = ()) -> None:
        self.kind = kind
        self.segments = segments
        self.recent = tuple(recent)
        """The entries that are in no segment, or differ from theirs."""
        self._rows: dict[str, list[Any]] | None = None
        self._parsed: dict[str, T] | None = None
        """The entries of the segments."""
        self._entries: dict[str, T] | None = None

    def keys(self) -> Collection[str]:
        """Return the keys."""
        return (self.rows() | {entry.key: [] for entry in self.recent}).keys()

    def by_key(self) -> dict[str, T]:
        """Return the entries by their keys."""
        if self._parsed is None:
            try:
                self._parsed = {key: self.kind.from_row(row) for key, row in self.rows().items()}
            except (ValueError, TypeError, IndexError) as error:
                raise _senseless(self.segments, error) from None
        if self._entries is None:
            self._entries = self._parsed | {entry.key: entry for entry in self.recent}
        return self._entries

    def pick(self, keys: Iterable[str]) -> list[T]:
        """Return the entries with some of its keys. No others are looked at."""
        recent = {entry.key: entry for entry in self.recent}
        try:
            return [recent.get(key) or self.kind.from_row(self.rows()[key]) for key in keys]
        except (ValueError, TypeError, IndexError) as error:
            raise _senseless(self.segments, error) from None

    def plus(self, entries: Iterable[T]) -> Register[T]:
        """Return the register with more entries; one of a key that it has takes the place of that."""
        return self._with(_by_key((*self.recent, *entries)).values())

    def become(self, now: Sequence[T]) -> Register[T]:
        """Return a register with the entries of `now`, and as few new ones as possible."""
        if isinstance(now, Register):
            return now
        before, wanted = self.by_key(), {entry.key: entry for entry in now}
        if before.keys() - wanted.keys():  # entries are never removed from a segment
            return Register(self.kind, (), now)
        changed = {
            key: entry for key, entry in wanted.items() if (old := before.get(key)) is not entry and old != entry
        }
        if not changed:
            return self
        return self._with(({entry.key: entry for entry in self.recent} | changed).values())

    def _with(self, recent: Iterable[T]) -> Register[T]:
        """Return the register with other recent entries; segments that are parsed are not parsed again."""
        found = Register(self.kind, self.segments, recent)
        found._rows, found._parsed = self._rows, self._parsed
        return found

    def stored(self, write: Callable[[bytes], tuple[str, Written]]) -> Register[T]:
        """Return the register as a manifest may name it, with few recent entries; `write` makes a segment."""
        if len(self.recent) <= LATELY:
            return self
        stay = policy.fold([*(segment.count for segment in self.segments), len(self.recent)])
        rows = Register(self.kind, self.segments[stay:]).rows()
        rows |= {entry.key: entry.to_row() for entry in self.recent}
        data = segment_bytes(list(rows.values()))
        name, written = write(data)
        segment = Segment(name, written.size, written.checksum, len(rows), data)
        return Register(self.kind, (*self.segments[:stay], segment))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest holds of it."""
        segments = [segment.to_row() for segment in self.segments]
        return {"segments": segments, "files": [entry.to_row() for entry in self.recent]}

    @classmethod
    def from_json(cls, kind: type[T], tree: dict[str, Any], read: Callable[[str], bytes]) -> Register[T]:
        """Return the register from its part of a manifest; `read` returns the content of a segment."""
        segments = tuple([Segment.from_row(row, read) for row in tree["segments"]])
        return Register(kind, segments, [kind.from_row(row) for row in tree["files"]])

    def rows(self) -> dict[str, list[Any]]:
        """Return the rows of all segments by their keys."""
        if self._rows is None:
            found: dict[str, list[Any]] = {}
            try:
                for segment in self.segments:
                    found |= _rows_of(segment.data, segment.count)
            except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
                raise _senseless(self.segments, error) from None
            self._rows = found
        return self._rows

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[T]:
        return iter(self.by_key().values())

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Register({tuple(self)})"


@lru_cache(maxsize=64)
def _rows_of(data: bytes, count: int) -> dict[str, list[Any]]:
    """Return the rows of a segment by their keys. A run reads the same manifest several times: each segment is parsed once."""
    found = {row[0]: row for row in json.loads(data)}
    if not {*map(type, found)} <= {str}:
        raise ValueError("an entry whose key is no text")
    if len(found) != count:
        raise ValueError(f"it has {len(found)} entries, not {count}")
    return found


def segment_bytes(rows: list[list[Any]]) -> bytes:
    """Return the content of a segment: JSON, an entry a line."""
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return ("[" + ",\n".join(lines) + "]\n").encode()


def keys_of(entries: Sequence[T]) -> Collection[str]:
    """Return the keys of some entries, in their order."""
    return entries.keys() if isinstance(entries, Register) else {entry.key: None for entry in entries}.keys()


def pick(entries: Sequence[T], keys: Iterable[str]) -> list[T]:
    """Return the entries with some keys."""
    if isinstance(entries, Register):
        return entries.pick(keys)
    known = {entry.key: entry for entry in entries}
    return [known[key] for key in keys]


def last_of(entries: Sequence[T]) -> T | None:
    """Return the entry whose key came last, None without entries."""
    if isinstance(entries, Register) and not entries.recent:
        return next(iter(entries.pick([*entries.keys()][-1:])), None)
    return next(reversed(entries.recent if isinstance(entries, Register) else entries), None)


def more(entries: Sequence[T], new: Iterable[T]) -> Sequence[T]:
    """Return entries with new ones after them; one of a key that they have takes the place of that."""
    if isinstance(entries, Register):
        return entries.plus(new)
    return tuple(_by_key((*entries, *new)).values())


def _by_key(entries: Iterable[T]) -> dict[str, T]:
    return {entry.key: entry for entry in entries}


def _senseless(segments: Sequence[Segment], error: Exception) -> StateError:
    names = ", ".join(segment.name for segment in segments)
    return StateError(
        f"a register of the state has content that `dd` never writes: {error}", place=f"{SEGMENTS}/{names}"
    )
