"""Shards of an operator, made now or on first use: a task with one shard of a stage makes no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Lazily(Sequence[T]):
    """The results of `make` for each of `count` shards, made once each. Threads may ask for different shards."""

    def __init__(self, make: Callable[[int], T], count: int) -> None:
        self._make = make
        self._made: dict[int, T] = {}
        self._shards = range(count)

    def __len__(self) -> int:
        return len(self._shards)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...

    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [self[shard] for shard in self._shards[at]]
        shard = self._shards[at]
        if shard not in self._made:
            self._made[shard] = self._make(shard)
        return self._made[shard]


def shards_of(make: Callable[[int], T], count: int, *, lazily: bool) -> Sequence[T]:
    """Return the shards of an operator, made now or when each is first asked for."""
    return Lazily(make, count) if lazily else [make(shard) for shard in range(count)]
