"""Follow a source that has to be asked, and print what changes as it becomes final.

    python pipelines/poll.py                            # the flights in the air over New York until 08:00 of 2013-01-01
    python pipelines/poll.py --until 600 --every 15 --late 120

Such a source answers two questions. `fetch()`: what has come in since it was asked last? Updates come in any order, at
times of their own. `low_watermark()`: which times are complete, that is, before which time will no update be fetched any
more? The former go into an input session at their times. The latter advances the session, and with it the dataflow:
what it gives for a time is given once, when no late update can change it.

Here the source replays the log in fixtures/flights as if every message were up to an hour late.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from ddcli import Dataflow

if TYPE_CHECKING:
    from collections.abc import Iterator

FLIGHTS = Path(__file__).parent.parent / "fixtures" / "flights" / "flights"
COLUMNS = {"carrier": "string", "flight": "int32", "status": "string"}

Update = tuple[tuple[Any, ...], int, int]
"""(record, time, diff)."""


class Source(Protocol):
    """Something that gives updates when it is asked."""

    def fetch(self) -> list[Update]:
        """Return the updates that have come in since the last call."""

    def low_watermark(self) -> int:
        """Return a time before which no later `fetch` will give an update."""


class Replay:
    """The log of flights, each of its updates up to `late` minutes after its time, `every` so many minutes of its clock."""

    def __init__(self, every: int, late: int, seed: int = 1) -> None:
        self.now, self.every, self.late = 0, every, late
        delay = random.Random(seed)
        rows = pl.read_parquet(FLIGHTS, columns=[*COLUMNS, "time", "diff"]).iter_rows()
        arriving = [(when + delay.randint(0, late), record, when, diff) for *record, when, diff in rows]
        self.coming = sorted(arriving, reverse=True)  # the next one last

    def fetch(self) -> list[Update]:
        """Let the clock go on, and return what has arrived meanwhile, in the order of arriving."""
        self.now += self.every
        arrived = []
        while self.coming and self.coming[-1][0] <= self.now:
            _, record, when, diff = self.coming.pop()
            arrived.append((tuple(record), when, diff))
        return arrived

    def low_watermark(self) -> int:
        """Return the first time whose messages may still be on their way."""
        return max(0, self.now - self.late + 1)


def follow(source: Source, until: int, pause: float = 0) -> Iterator[list[Update]]:
    """Poll until all times before `until` are complete; after each poll, yield the changes that it made final."""
    dataflow = Dataflow()
    flights = dataflow.input("flights", COLUMNS)
    airborne = flights.filter("status = 'departed'").reduce(by=["carrier"], flights="count(*)")
    output, probe = airborne.output(), airborne.probe()
    is_open = probe.less_than(until)
    while is_open():
        for record, when, diff in source.fetch():
            flights.update_at(record, when, diff)  # perhaps for a time that other updates are still awaited for
        flights.advance_to(min(source.low_watermark(), until))
        flights.flush()
        dataflow.step()
        yield output.updates()
        if is_open():
            time.sleep(pause)


def main() -> None:
    """Read the arguments, and print every change of a carrier's number of flights in the air."""
    parser = argparse.ArgumentParser(description="Count the flights in the air over New York, minute by minute.")
    parser.add_argument("--until", type=int, default=480, metavar="MINUTE", help="since midnight (default: 480)")
    parser.add_argument("--every", type=int, default=60, metavar="MINUTES", help="between two polls (default: 60)")
    parser.add_argument("--late", type=int, default=60, metavar="MINUTES", help="how late messages come (default: 60)")
    parser.add_argument(
        "--pause", type=float, default=0, metavar="SECONDS", help="really between two polls (default: 0)"
    )
    arguments = parser.parse_args()
    source = Replay(arguments.every, arguments.late)
    for changes in follow(source, arguments.until, arguments.pause):
        print(f"-- asked at {clock(source.now)}, complete to before {clock(source.low_watermark())}")
        for (carrier, flights), when, diff in changes:
            print(f"{clock(when)}  {diff:+}  {carrier} {flights}")


def clock(minute: int) -> str:
    """Return a minute since midnight as a clock shows it.

    >>> clock(485)
    '08:05'
    """
    return f"{minute // 60:02}:{minute % 60:02}"


if __name__ == "__main__":
    main()
