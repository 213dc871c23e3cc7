"""The surroundings of operators: traces, pools, facts about inputs, the receiver of failing records, and shards that are made on first use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import polars as pl

    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.memo import FormerAnswers
    from ddcli.engine.pool import Pool
    from ddcli.engine.trace.spine import Trace
    from ddcli.expressions.types import Type
    from ddcli.sources.input_format import InputFacts

    Failed = Callable[[np.ndarray, Layout, Pool, Sequence[str]], None]
    """Receives updates on which an expression fails, with their layout, the pool of their values, and why, each."""


T = TypeVar("T")


class Traces(Protocol):
    """Returns the trace of a stateful node: an empty one, or the one that a state holds under its fingerprint."""

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int, by: Sequence[int] | None = None
    ) -> Trace:
        """Return a shard's trace of the arrangement `identity`, whose records have these keys and values.

        `by` are the lanes that partition its rows, by default the key's.
        """

    def former(self, identity: str, key: Layout, value: Layout, nt: int, shard: int) -> FormerAnswers | None:
        """Return a shard's results of a function that remembers, where a state holds them and its trace does not."""
        return None


@dataclass(frozen=True)
class CircuitContext:
    """The data that all scopes share. `pools` has a pool for each shard, perhaps the same one; `show` receives the updates of an `inspect`; `time` has the coordinates' types.

    `joined` are the identities of arrangements that only joins read.
    """

    traces: Traces
    pools: Sequence[Pool]
    show: Callable[[str, pl.DataFrame], None]
    time: Sequence[Type]
    facts: Mapping[str, InputFacts] = field(default_factory=dict)
    failed: Failed | None = None
    joined: frozenset[str] = frozenset()


class LazyShards(Sequence[T]):
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
    return LazyShards(make, count) if lazily else [make(shard) for shard in range(count)]
