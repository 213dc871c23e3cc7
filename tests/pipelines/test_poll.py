"""The polling example: whatever the order and the polls, each time's changes are given once, complete and in time."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter

import polars as pl
import pytest

from tests.draws import some
from tests.pipelines.support import ROOT

UNTIL = 540


@pytest.fixture(scope="module")
def poll():
    spec = importlib.util.spec_from_file_location("poll", ROOT / "pipelines" / "poll.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["poll"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def expected():
    """Return the flights in the air of each carrier at each minute, summed up by polars."""
    log = pl.read_parquet(ROOT / "fixtures" / "flights" / "flights").filter(status="departed")
    return [
        dict(log.filter(pl.col("time") <= now).group_by("carrier").agg(pl.col("diff").sum()).iter_rows())
        for now in range(UNTIL)
    ]


@pytest.mark.parametrize(("every", "late", "seed"), [*some([(60, 60, 1), (7, 90, 2), (600, 0, 3), (45, 400, 4)])])
def test_the_changes_sum_up_to_what_is_in_the_air_at_every_minute(poll, expected, every, late, seed):
    source = poll.Replay(every, late, seed)
    found, complete = [], 0
    for changes in poll.follow(source, UNTIL):
        assert all(complete <= when < source.low_watermark() for _, when, _ in changes), "not final, or late"
        complete = source.low_watermark()
        found += changes
    assert [when for _, when, _ in found] == sorted(when for _, when, _ in found)
    assert max(when for _, when, _ in found) < UNTIL
    for now in range(0, UNTIL, 10):
        there = Counter()
        for record, when, diff in found:
            if when <= now:
                there[record] += diff
        assert {record for record, count in there.items() if count} == {
            (carrier, flights) for carrier, flights in expected[now].items() if flights
        }
        assert set(there.values()) <= {0, 1}


def test_messages_come_out_of_order(poll):
    """Else the test before would test little."""
    source = poll.Replay(60, 60)
    times = [when for _ in range(12) for _, when, _ in source.fetch()]
    assert times != sorted(times)


def test_the_program_prints_the_changes():
    command = [sys.executable, "pipelines/poll.py", "--until", "330", "--every", "120"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert said == (
        "-- asked at 02:00, complete to before 01:01\n"
        "-- asked at 04:00, complete to before 03:01\n"
        "-- asked at 06:00, complete to before 05:01\n"
        "-- asked at 08:00, complete to before 07:01\n"
        "05:17  +1  UA 1\n"
    )
