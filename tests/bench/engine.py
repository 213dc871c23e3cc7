"""The cases of the engine alone: through the library, from matrices in memory to output in memory, with one worker.

    python -m tests.bench.engine CASE ROWS [WORKERS]

runs one case in this process and prints its figures, in seconds, and, but of `change`, its peak in bytes before they are checked, as JSON;
the workers are for `moves`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from ddcli.api import Dataflow
from tests.bench.data import CHANGED, KEYS, NARROW, SEED, random_rows
from tests.bench.processes import peak_of_this_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.api import Input, Output

SINGLES = 2_000
BATCHES = 100


def skip_level(workers: int = 1) -> tuple[Dataflow, Input, Output]:
    """Return the dataflow of the manager's manager."""
    dataflow = Dataflow(workers)
    manages = dataflow.input("manages", {"manager": "int64", "employee": "int64"})
    above = manages.join(manages, on={"manager": "employee"}, name="up")
    return dataflow, manages, above.map(employee="employee", manager="manager", skip_manager="up.manager").output()


def grouped(aggregate: str) -> tuple[Dataflow, Input, Output]:
    """Return the dataflow of one aggregate of each key's values."""
    dataflow = Dataflow()
    numbers = dataflow.input("numbers", {"key": "int64", "value": "int64"})
    return dataflow, numbers, numbers.reduce(["key"], result=aggregate).output()


def load(rows: int) -> dict[str, float]:
    """Load people in one step."""
    _warm()
    dataflow, manages, output = skip_level()
    found, seconds = _loaded(dataflow, manages, output, _people(rows))
    peak = peak_of_this_process()
    # All but the first, who has no manager.
    assert len(found) == rows - 1
    return {"load": seconds, "peak": peak}


def moves(rows: int, workers: int = 1) -> dict[str, float]:
    """Load people and everyone's move, each at its own time, in one step."""
    _warm(workers=workers)
    people = _people(rows)
    who = people[:, 1]
    updates = np.concatenate([people, people, np.stack([who // 3, who], axis=1)])
    times = np.concatenate([np.zeros(rows, np.int64), who, who])
    diffs = np.repeat([1, -1, 1], rows)
    dataflow, manages, output = skip_level(workers)
    start = time.perf_counter()
    manages.insert_many(updates, times, diffs)
    del people, who, updates, times, diffs
    manages.advance_to(rows + 1)
    dataflow.step()
    parts = output.parts()
    seconds, peak = time.perf_counter() - start, peak_of_this_process()
    # In the end everyone has a manager's manager who had one: p // 9 > 0 is not asked for, p // 3 > 0 is.
    assert sum(found[:, -1].sum() for found in parts) == rows - 2
    assert sum((found[:, -1] * found[:, 2]).sum() for found in parts) == (np.arange(rows + 1) // 9).sum()
    return {"moves": seconds, "peak": peak}


def change(rows: int) -> dict[str, float]:
    """Await moves over people that are loaded: one, and `CHANGED` together; of many, the median and 99th percentile.

    First in the order of people, as the classic example and the reference figures have it, where the rows of one change lie beside
    those of the last; then of people anywhere, who are in no cache.
    """
    dataflow, manages, output = skip_level()
    manages.insert_many(_people(rows))
    manages.advance_to(1)
    dataflow.step()
    kept = [output.lanes()]
    singles, batch = min(SINGLES, rows // 8), min(CHANGED, rows // 8)
    together = batch * max(min(BATCHES, (rows // 2 - singles) // batch), 1)
    in_order = np.arange(1, rows + 1)
    anywhere = np.random.default_rng(SEED).permutation(in_order[singles + together :])
    moved = np.zeros(rows + 1, np.bool_)
    figures = {}
    for name, people in (("", in_order), ("_anywhere", anywhere)):
        one = _move_singly(dataflow, manages, output, people[:singles].tolist(), kept)
        some = [
            people[at : at + batch] for at in range(singles, min(singles + together, len(people) - batch + 1), batch)
        ]
        batches = [
            np.concatenate([np.stack([who // 2, who], axis=1), np.stack([who // 3, who], axis=1)]) for who in some
        ]
        many = _replace(dataflow, manages, output, batches, kept)
        moved[people[: singles + len(some) * batch]] = True
        figures[f"one{name}_p50"] = statistics.median(one)
        figures[f"one{name}_p99"] = sorted(one)[len(one) * 99 // 100]
        figures[f"batch{name}_p50"] = statistics.median(many)
    everyone = np.arange(rows + 1)
    manager = np.where(moved, everyone // 3, everyone // 2)
    updates = np.concatenate(kept)
    assert updates[:, -1].sum() == np.count_nonzero(manager)
    assert (updates[:, -1] * updates[:, 2]).sum() == manager[manager].sum()
    return figures


def _move_singly(
    dataflow: Dataflow, manages: Input, output: Output, people: list[int], kept: list[np.ndarray]
) -> list[float]:
    """Move one person after the other, awaiting the output each time, and return the seconds that each took."""
    seconds = []
    for who in people:
        start = time.perf_counter()
        manages.remove((who // 2, who))
        manages.insert((who // 3, who))
        manages.advance_to(manages.time + 1)
        manages.flush()
        dataflow.step()
        found = output.lanes()
        seconds.append(time.perf_counter() - start)
        kept.append(found)
    return seconds


def least(rows: int) -> dict[str, float]:
    """Load rows, then replace `CHANGED` of them at a time, keeping the least value of each key."""
    return _grouped(rows, "min(value)", lambda values: int(values.min()))


def count(rows: int) -> dict[str, float]:
    """Load rows, then replace `CHANGED` of them at a time, keeping the number of each key."""
    return _grouped(rows, "count(*)", len)


def _loaded(dataflow: Dataflow, given: Input, output: Output, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Return what the output holds after a step over rows, and the seconds that it took. The rows are let go of, if nobody else has them."""
    start = time.perf_counter()
    given.insert_many(rows)
    del rows
    given.advance_to(1)
    dataflow.step()
    return output.lanes(), time.perf_counter() - start


def _grouped(rows: int, aggregate: str, plain: Callable[[np.ndarray], int]) -> dict[str, float]:
    _warm(aggregate)
    table = random_rows(rows, NARROW)
    dataflow, numbers, output = grouped(aggregate)
    loaded, seconds = _loaded(dataflow, numbers, output, table)
    batch = min(CHANGED, rows // 4)
    random = np.random.default_rng(SEED + 1)
    count = min(rows // batch, BATCHES)
    batches = []
    for some in random.choice(rows, count * batch, replace=False).reshape(count, batch):
        fresh = table[some]
        # Every other row goes to another key.
        fresh[::2, 0] = random.integers(0, max(rows // KEYS, 1), len(fresh[::2]))
        fresh[:, 1] = random.integers(0, NARROW, batch)
        batches.append(np.concatenate([table[some], fresh]))
        table[some] = fresh
    kept = [loaded]
    together = _replace(dataflow, numbers, output, batches, kept)
    peak = peak_of_this_process()
    _check_groups(np.concatenate(kept), table, plain)
    return {"load": seconds, "batch_p50": statistics.median(together), "peak": peak}


def _check_groups(updates: np.ndarray, table: np.ndarray, plain: Callable[[np.ndarray], int]) -> None:
    """Refuse figures where the keys that were seen first do not have what their rows give."""
    for key in np.unique(table[:1000, 0])[:20]:
        of_key = updates[updates[:, 0] == key]
        held: dict[int, int] = {}
        for _, value, _, diff in of_key.tolist():
            held[value] = held.get(value, 0) + diff
        expected = plain(table[table[:, 0] == key, 1])
        assert {value: times for value, times in held.items() if times} == {expected: 1}


def _replace(
    dataflow: Dataflow, given: Input, output: Output, batches: list[np.ndarray], kept: list[np.ndarray]
) -> list[float]:
    """Await each batch, whose first half leaves and whose second half enters, and return the seconds that each took."""
    seconds = []
    for updates in batches:
        diffs = np.repeat([-1, 1], len(updates) // 2)
        start = time.perf_counter()
        given.insert_many(updates, diff=diffs)
        given.advance_to(given.time + 1)
        dataflow.step()
        found = output.lanes()
        seconds.append(time.perf_counter() - start)
        kept.append(found)
    return seconds


def _people(rows: int) -> np.ndarray:
    who = np.arange(1, rows + 1)
    return np.stack([who // 2, who], axis=1)


def _warm(aggregate: str | None = None, workers: int = 1) -> None:
    """Load the kernels, by a dataflow over little."""
    dataflow, given, output = grouped(aggregate) if aggregate else skip_level(workers)
    for time_now in (1, 2):
        given.insert_many(_people(1000))
        given.advance_to(time_now)
        dataflow.step()
        output.lanes()


CASES = {"load": load, "moves": moves, "change": change, "least": least, "count": count}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](*map(int, sys.argv[2:]))))
