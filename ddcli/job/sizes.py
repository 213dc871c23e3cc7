"""The size of a run: the numbers of its shards and passes, in memory or out of core, and its budget. A pure function of sizes.

The number of shards belongs to the state, and is chosen once. The number of passes belongs to a run, and is a multiple of it: a
shard that has outgrown the memory is taken in several passes, each over its share of the keys. A run of few rows has one pass over all shards.

The budget has the bounds of file and command, which the run's cost is compared with before it commits.
"""

from __future__ import annotations

import math
import os
import re
import time as clock
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import OUTPUT, Counts
from ddcli.errors import BudgetError, Span, UsageError, did_you_mean, suggestion
from ddcli.job.summary import size_of
from ddcli.screen import plural, shell
from ddcli.spec.model import EXAMPLES, UNITS, WORK_CLASSES, parse_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddcli.engine.counts import RowCounts
    from ddcli.engine.operators.join import PairRoom
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.plan.pipeline_file import OperatorPlace
    from ddcli.spec.model import Bounds, Budget
    from ddcli.store.state.entries import ArrangementEntry


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

        Shard by shard a part passes the cache, and the C library reuses its memory: the system would have to clear that of a larger one.
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


EACH = "operator."
"""The prefix on the command line of the names of bounds on each operator."""


@frozen
class RunBound:
    """A bound: its name, such as `budget.rows`, the most that it allows, and its place in the file, if it has one."""

    name: str
    most: float
    span: Span | None = None


@frozen
class RunCost:
    """The cost of a run so far: its operators' counts, the seconds by the clock, and the bytes that it wrote, by operator or output."""

    counts: Counts
    seconds: float = 0.0
    bytes: Mapping[str, int] = field(default_factory=dict)

    def by_operator(self, what: str) -> dict[str, float]:
        """Return rows, seconds or bytes by operator. Rows are not counted for loops, whose operators count, or for outputs, which only write."""
        if what == "bytes":
            return {**self.bytes}
        own = {name: count for name, count in self.counts.items() if not count.turns}
        if what == "seconds":
            return {name: count.seconds for name, count in own.items()}
        return {name: count.rows for name, count in own.items() if not name.startswith(OUTPUT)}


@dataclass(frozen=True)
class RunBudget:
    """The bounds of a run, of each operator, and of the operators of some collections, by unit; the run began at `began`."""

    run: Mapping[str, RunBound]
    operator: Mapping[str, RunBound]
    collections: Mapping[str, Mapping[str, RunBound]] = field(default_factory=dict)
    work: Mapping[str | None, tuple[str, Span | None]] = field(default_factory=dict)
    """The worst class of work that is allowed, by collection; under None that of all others."""
    whole: str = "the run"
    """The name in messages of the work that `run` bounds."""
    began: float = field(default_factory=clock.perf_counter)

    def check(self, spent: RunCost, places: Callable[[], Mapping[str, OperatorPlace]]) -> None:
        """Raise BudgetError, at the operator that took most, if a run has exceeded a bound; `places` returns the operators' places in the file."""
        for what, limit in self.run.items():
            found = spent.by_operator(what)
            took = spent.seconds if what == "seconds" else sum(found.values())
            if took > limit.most:
                raise _exceeded(limit, what, took, self.whole, found, spent.counts, places())
        if not self.operator and not any(self.collections.values()):
            return
        for what in UNITS:
            limits = [limits[what] for limits in (self.operator, *self.collections.values()) if what in limits]
            if not limits:
                continue
            least = min(limit.most for limit in limits)
            for name, took in sorted(spent.by_operator(what).items(), key=lambda each: -each[1]):
                if took > least:  # `places` is costly, so it is called only for an error
                    place = places().get(name)
                    own = self.collections.get(place.collection or "", {}) if place else {}
                    limit_of = own.get(what) or self.operator.get(what)
                    if limit_of and took > limit_of.most:
                        raise _exceeded(limit_of, what, took, None, {name: took}, spent.counts, places())

    def check_work(self, graph: PhysicalGraph, places: Callable[[], Mapping[str, OperatorPlace]]) -> list[BudgetError]:
        """Return an error for each operator of a plan whose work is of a worse class than the file allows, at its place."""
        if not self.work:
            return []
        errors = []
        for node in graph.nodes:
            found, place = node.work, places().get(node.fingerprint)
            most, span = self.work.get(place.collection if place else None) or self.work.get(None) or (None, None)
            if found is None or most is None or WORK_CLASSES.index(found) <= WORK_CLASSES.index(most):
                continue
            details = node.details()
            how = f" ({'; '.join(details)})" if details else ""
            errors.append(
                BudgetError(
                    f"{place.path if place else 'the pipeline'}: work: {found}, but the budget is {most}: "
                    f"{place.kind if place else 'an operator'}{how}",
                    span=place.span if place else span,
                    hint=f"`--budget work={found}` allows this"
                    if span is None
                    else f"the budget is at {span}; `collections: {{NAME: {{work: {found}}}}}` in it allows this for one collection",
                )
            )
        return errors


def run_budget(budget: Budget | None, given: Mapping[str, str], *, work: bool = False) -> RunBudget | None:
    """Return the budget of a run: the file's, with the bounds of the call in place of its own. Raises UsageError for a bound that does not exist.

    None if there is no bound at all. With `work` the call may bound only the class of work.
    """
    run = {**_limits(budget.run, "budget")} if budget else {}
    operator = {**_limits(budget.operator, "budget.operator")} if budget else {}
    classes: dict[str | None, tuple[str, Span | None]] = {}
    collections: dict[str, Mapping[str, RunBound]] = {}
    if budget:
        for name, bounds in budget.collections:
            collections[name.value] = _limits(bounds, f"budget.collections.{name.value}")
        named = [(None, budget.run), *((name.value, bounds) for name, bounds in budget.collections)]
        classes = {name: (bounds.work.value, bounds.work.span) for name, bounds in named if bounds.work}
    for bound, text in given.items():
        _check_known(bound, work=work)
        if work:
            if text not in WORK_CLASSES:
                hint = suggestion(text, WORK_CLASSES, f"classes: {', '.join(WORK_CLASSES)}", mark="")
                raise UsageError(f"--budget work={text}: there is no such class of work", hint=hint)
            classes[None] = text, None
            continue
        limits, what = (operator, bound.removeprefix(EACH)) if bound.startswith(EACH) else (run, bound)
        limits.pop(what, None)
        if text != "none":
            try:
                limits[what] = RunBound(f"--budget {bound}", parse_bound(what, text))
            except ValueError:
                hint = f"write it as {EXAMPLES[what]}; `{bound}=none` lifts the file's bound"
                raise UsageError(f"--budget {bound}={text}: not a number of {what}", hint=hint) from None
    found = RunBudget(run, operator, collections, classes)
    return found if run or operator or collections or classes else None


def _check_known(name: str, *, work: bool) -> None:
    """Raise UsageError for a name that is no bound of a run, or of a check of `work`."""
    of_run, of_check = [*UNITS, *(EACH + what for what in UNITS)], ["work"]
    names, others = (of_check, of_run) if work else (of_run, of_check)
    if name in others:
        one, other = ("dd check", "dd run") if work else ("dd run", "dd check")
        hint = f"bounds of `{one}`: {', '.join(names)}; `budget` in the file takes the bounds of both"
        raise UsageError(f"--budget {name}: this is a bound of `{other}`, not of `{one}`", hint=hint)
    if name not in names:
        near = did_you_mean(name, names)
        listed = f"bounds: {', '.join(names)}"
        raise UsageError(
            f"--budget {name}: there is no such bound", hint=f"did you mean {near}? {listed}" if near else listed
        )


def _limits(bounds: Bounds, path: str) -> dict[str, RunBound]:
    texts = {"rows": bounds.rows, "seconds": bounds.seconds, "bytes": bounds.bytes}
    return {
        what: RunBound(f"{path}.{what}", parse_bound(what, text.value), text.span)
        for what, text in texts.items()
        if text
    }


def _exceeded(
    limit: RunBound,
    what: str,
    took: float,
    whole: str | None,
    by_operator: Mapping[str, float],
    counts: Mapping[str, RowCounts],
    places: Mapping[str, OperatorPlace],
) -> BudgetError:
    """Return the error of a bound that an operator, or all of them together (`whole`), have exceeded, at the place of the one that took most."""
    most = max(by_operator, key=lambda each: (by_operator[each], each), default="")
    place = places.get(most)
    words = place.words if place else "an operator"
    problem = (
        f"{limit.name}: {whole or words} took {_figure(what, took)}, and the budget is {_figure(what, limit.most)}"
    )
    if whole and most:
        problem += f"; most of it, {_figure(what, by_operator[most])}, {words}"
    if what == "rows" and most in counts:
        count = counts[most]
        problem += f" ({count.rows_in:,} in, {count.rows_out:,} out, {count.rows_read:,} read)"
    lift = limit.name.removeprefix("--budget ").removeprefix("budget.")
    return BudgetError(
        problem,
        span=place.span if place else limit.span,
        hint=f"nothing was committed. The budget is {_where(limit.span)}; `{shell('dd', 'run', '--budget', f'{lift}=none')}` runs without it"
        if not limit.name.startswith("budget.collections")
        else f"nothing was committed. The budget is {_where(limit.span)}",
    )


def _where(span: Span | None) -> str:
    return f"at {span}" if span else "the command's"


def _figure(what: str, value: float) -> str:
    if what == "bytes":
        return size_of(value)
    return f"{value:,.0f} {plural(round(value), 'row')}" if what == "rows" else f"{value:,.3g} s"


def written_bytes(
    number: int, arrangements: Mapping[str, ArrangementEntry], outputs: Mapping[str, int]
) -> dict[str, int]:
    """Return the bytes that the commit with this number writes: of its `arrangements` by operator, and of outputs by name."""
    from ddcli.plan.physical import WAITING

    own = f"{number:09d}-"
    found = {OUTPUT + name: size for name, size in outputs.items()}
    for name, entry in arrangements.items():
        operator = name.removesuffix(WAITING)
        size = sum(file.size for file in entry.files if file.name.startswith(own))
        found[operator] = found.get(operator, 0) + size
    return found
