"""The resources of a run: memory, threads and the engine; and its size: the numbers of its shards and passes, in memory or out of core, a pure function of sizes.

The number of shards belongs to the state, and is chosen once. The number of passes belongs to a run, and is a multiple of it: a
shard that has outgrown the memory is taken in several passes, each over its share of the keys. A run of few rows has one pass over all shards.
Imports no third-party library: most runs need no Spark.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.process import processors
from ddcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.engine.operators.join import PairRoom


BASE = 180 << 20
"""The bytes that a run has resident before it has read a row: Python, polars, pyarrow, kernels."""

LANE = 8
"""Bytes of a number in a lane."""

WORKING = 10
"""The bytes resident at the peak of a step for each byte of its input updates, measured on joins with as many matches as rows."""

JOINED = 5
"""The bytes resident at the peak of a step for each byte of the rows of a join that has many more than its input, measured from 3 to 4."""

GROWTH = 12
"""The rows that a loop works on, as a multiple of its input: the updates of its rounds stay in memory. Measured from 2 to 19."""

SHARD = 4_000_000
"""The rows of new updates for which a state has one more shard: fewer would make small files, more would make long steps."""

LEAST_ROWS = 50_000
"""Rows of a slice, at the least: fewer would be read one row group at a time."""

STREAMED = 500_000
"""The number of new updates from which on they go through memory in parts, and traces are written as soon as all readers have stepped."""

PART = 24 << 20
"""The bytes of such a part, as lanes: it fits the cache, and is read, filtered and distributed before the next one."""

MUCH = 100_000
"""The rows for which another process is worth while, as a task costs 50 ms by itself; in a loop, another thread."""

SLICE = 16
"""The slices of the size of one that a thread reads that would fit in memory: a slice is read, encoded, and distributed to several readers."""

SLICED = 64 << 20
"""The bytes of a slice, as lanes, at most: larger ones take longer, as the system has to clear the memory."""

MOST_PASSES = 1 << 12


@frozen
class Sizes:
    """The sizes of a run: the `shards` of new arrangements, the `passes` of this run, the `threads` that do them side by side.

    In memory, `most` and `room` are None; else `most` rows are read at once, and `room` bytes of the updates between stages stay
    in memory. A join may emit `joined` bytes of rows: in memory all shards together, else each shard at once, but no more than `PART`.
    """

    shards: int
    passes: int
    threads: int
    most: int | None = None
    room: int | None = None
    joined: int = SLICED

    @property
    def pairs(self) -> PairRoom:
        """The room for rows of joins.

        Shard by shard a part passes the cache, and the C library reuses its memory: the system would have to clear a larger part's memory.
        But each shard that it is exchanged to should get some of its rows.

        >>> [Sizes(passes, passes, 1, 50_000, 0).pairs.size >> 20 for passes in (4, 1 << 16)]
        [24, 64]
        """
        from ddcli.engine.operators.join import PairRoom  # with numpy, which a run with nothing new does without

        apart = self.room is not None
        return PairRoom(min(self.joined, max(PART, self.passes << 10)) if apart else self.joined, each=apart)

    def streams(self, rows: int) -> bool:
        """Return whether this number of rows is streamed through memory in parts."""
        return self.room is None and rows >= STREAMED

    def spread(self, rows: int, slots: int, *, new: bool) -> Sizes:
        """Return the sizes for processes that do `slots` tasks at once: out of core, and with a share of a large run for each.

        A `new` state has as many shards as there are shares. The passes are a multiple of all shards: of a kept state's they are one already.

        >>> Sizes(1, 1, 1).spread(10_000_000, 4, new=True)
        Sizes(shards=4, passes=4, threads=1, most=2500000, room=0, joined=67108864)
        >>> Sizes(1, 1, 1).spread(1_000, 4, new=True)
        Sizes(shards=1, passes=2, threads=1, most=50000, room=0, joined=67108864)
        >>> Sizes(16, 16, 1).spread(100_000_000, 255, new=True).passes, Sizes(16, 16, 1).spread(100_000_000, 19, new=False).passes
        (255, 32)
        """
        apart = max(1, min(slots, rows // MUCH))
        shards = max(self.shards, apart) if new else self.shards
        whole = shards if new else math.lcm(self.passes, shards)
        passes = whole * -(-max(2, apart, self.passes) // whole)
        most = max(LEAST_ROWS, min(self.most or rows, -(-rows // slots)))
        return Sizes(shards, passes, self.threads, most, self.room or 0, min(self.joined, SLICED))


def sizes(
    rows: int,
    width: int,
    kept: frozenset[int],
    threads: int,
    memory: int,
    wanted: int | None = None,
    *,
    looped: bool = False,
    calls: bool = False,
    apart: bool = False,
    joined: int = 0,
) -> Sizes:
    """Return the sizes of a run over `rows` updates of at most `width` lanes, whose state has arrangements of `kept` shards.

    In a `looped` run the updates grow, and threads share far fewer than are worth a shard of their own, which every
    later run would step. In a large run that `calls` functions that remember, one thread calls while others encode and write the results of a shard. Few rows pass all shards in one pass, unless each shard is to be taken `apart`: an operator's step costs
    more than a shard's share of the rows. A join has `joined` rows, where an attempt in memory had no room for them.

    >>> sizes(1_000, 4, frozenset(), 2, 2 << 30)
    Sizes(shards=1, passes=1, threads=1, most=None, room=None, joined=391747993)
    >>> sizes(50_000_000, 4, frozenset(), 2, 2 << 30)
    Sizes(shards=32, passes=32, threads=2, most=1912832, room=391747993, joined=61210624)
    >>> sizes(1_000_000, 4, frozenset(), 2, 8 << 30, looped=True)
    Sizes(shards=1, passes=2, threads=2, most=None, room=None, joined=1680238182)
    >>> sizes(1_000_000, 4, frozenset(), 2, 8 << 30, calls=True).passes, sizes(400_000, 4, frozenset(), 2, 8 << 30, calls=True).passes
    (8, 1)
    >>> sizes(1_000, 4, frozenset([8]), 2, 2 << 30).passes, sizes(200_000, 4, frozenset([8]), 2, 2 << 30).passes
    (1, 8)
    >>> sizes(1_000_000, 4, frozenset(), 2, 1 << 30, joined=40_000_000)
    Sizes(shards=1, passes=64, threads=2, most=864256, room=176999628, joined=27656192)
    """
    row = width * LANE * WORKING
    working = rows * row * (GROWTH if looped else 1)
    fits = working + BASE <= memory
    free = max(memory - BASE, memory // 4)
    passes = 1 if fits else _above(working * threads / (0.6 * free))
    shards = max(kept) if kept else wanted or max(_above(rows / SHARD), passes)
    if joined:
        fits, passes = False, max(passes, _above(joined * row * threads / (0.6 * free)))
    common = math.lcm(*kept, shards)
    if fits and (looped or (calls and rows >= STREAMED)):
        passes = max(1, min(threads if looped else 4 * threads, rows // MUCH))
    passes = min(common * -(-passes // common), MOST_PASSES * common)
    if fits and rows < MUCH and not apart:
        passes = 1
    if fits:
        return Sizes(shards, passes, min(threads, passes), joined=free // JOINED)
    passes = max(passes, 2 * common if common == 1 else common)
    part = min(free // (SLICE * threads), SLICED)
    return Sizes(shards, passes, min(threads, passes), max(LEAST_ROWS, part // (width * LANE)), free // 5, part)


def rows_together(rows: int, width: int, cut: Sizes, *, apart: bool = True) -> int | None:
    """Return the number of rows of `width` lanes that are read together, of `rows` in all; None: all of them.

    It is larger where rows can't be read `apart` from those before them, as in text.

    >>> rows_together(10_000_000, 8, Sizes(4, 4, 2)), rows_together(1_000, 8, Sizes(1, 1, 1)), rows_together(1_000, 8, Sizes(2, 2, 2))
    (393216, None, 50000)
    """
    if cut.most is not None:
        return cut.most
    if apart and cut.streams(rows):
        return max(LEAST_ROWS, PART // (width * LANE))
    return max(LEAST_ROWS, -(-rows // cut.passes)) if cut.passes > 1 else None


def rows_held(memory: int) -> int:
    """Return the number of rows of an input that may be in memory as they are read."""
    return memory // 512


def rows_read(memory: int) -> int:
    """Return the number of rows that are read together if their width is unknown."""
    return max(LEAST_ROWS, memory // 4096)


def parse_size(text: str) -> int:
    """Return a number of bytes: `1GiB`, `512MB`, `2g`. Raises ValueError.

    >>> parse_size("1.5 GiB"), parse_size("512MB")
    (1610612736, 512000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if match is None or (match[3] and not match[2]):
        raise ValueError(text)
    # A bare letter means powers of 1024, as in Java and ulimit.
    base = 1024 if match[3] or not text.lower().rstrip().endswith("b") else 1000
    return int(float(match[1]) * base ** " kmgt".index(match[2] or " "))


def default_memory() -> int:
    """Return three quarters of the memory that this process may have: the machine's, or the limit of its control group."""
    return machine_memory() * 3 // 4


def machine_memory() -> int:
    """Return the bytes of memory that this process may have."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.strip().isdigit() else memory


def _above(count: float) -> int:
    """Return the least power of two that is no less."""
    return 1 << max(0, math.ceil(math.log2(max(count, 1))))


REMOTE = "sc://"
"""The prefix of a Spark Connect address, behind which Spark's driver runs."""
Engine = Literal["auto", "local", "spark"]


@dataclass(frozen=True)
class SparkOptions:
    """The choice of a Spark: its master, or the address of Spark Connect, with settings; or an existing session."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    session: Any = None

    @classmethod
    def of(
        cls, master: str | None, remote: str | None, conf: Mapping[str, str] | None = None, session: Any = None
    ) -> Self:
        """Return the options that a person asks for. Raises UsageError where they name more than one place."""
        if master is not None and remote is not None:
            raise UsageError("Spark is in one place: a master or the address of Spark Connect", hint="give one of them")
        if remote is not None and not remote.startswith(REMOTE):
            hint = "write it as sc://host:15002, or give a master"
            raise UsageError("this is not an address of Spark Connect", place=remote, hint=hint)
        return cls(master or remote, conf or {}, session)

    def before(self, other: SparkOptions) -> SparkOptions:
        """Return these options, completed by another's."""
        return SparkOptions(self.master or other.master, {**other.conf, **self.conf}, self.session or other.session)

    @property
    def ready(self) -> bool:
        """Return whether Spark's address is known, and pyspark is installed."""
        known = self.session is not None or self.master is not None or "spark.master" in self.conf
        return known and find_spec("pyspark") is not None


@dataclass(frozen=True)
class Resources:
    """The resources of a run: memory, threads, and the engine to compute on."""

    memory: int = field(default_factory=default_memory)
    """The bytes that the process may have resident."""
    workers: int = field(default_factory=processors)
    """The threads that step shards."""
    engine: Engine = "auto"
    """The engine; `auto`: Spark, if its address is known, for the stages that exceed this machine's memory."""
    spark: SparkOptions = field(default_factory=SparkOptions)

    def limited(
        self,
        memory: int | None = None,
        workers: int | None = None,
        engine: Engine | None = None,
        spark: SparkOptions | None = None,
    ) -> Resources:
        """Return the resources with those that are given in place of these."""
        return Resources(
            memory or self.memory,
            workers or self.workers,
            engine or self.engine,
            spark.before(self.spark) if spark else self.spark,
        )
