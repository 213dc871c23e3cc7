"""Runs whose output is a table, killed at any moment: of Delta Lake, Iceberg, and Postgres. Each commit is made once."""

from __future__ import annotations

from collections import Counter

import pytest

from ddcli.store.targets.mark import TABLE, directory_of, read_marks
from tests.draws import EFFORT, chance, many
from tests.tables.database_followers import DatabaseFollower
from tests.tables.followers import Follower

MANY = 200
KILLS = many(2) if EFFORT <= 1 else MANY
WAIT = {"options": {"if_locked": "wait"}}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgres"])
def test_a_loop_of_kills(tmp_path, nursery, request, kind):
    """Most kills come between the moment when a commit is announced, or made, and the run's end; a run may race another one.

    Each fifth comes when the table's commit is made, and it is not known to be: as soon as the run would write that.
    """
    if kind == "postgres":
        request.getfixturevalue("execute")("create schema marts")
        each = DatabaseFollower(tmp_path / "shop", request.getfixturevalue("database"), keyed=True)
    else:
        each = Follower(tmp_path / "shop", kind)
    draw, marks = chance("kills", kind), directory_of(each.folder / ".dd/shop", "t")
    each.supply(draw)
    (end,) = nursery.run(each.folder, {})
    assert end["code"] == 0, end
    usual, killed, moments = {"run": end["seconds"], "marks": end["seconds"] / 2, "table": 0.02}, 0, Counter()
    since = {"marks": marks / TABLE}
    if kind != "postgres":
        since["table"] = each.path / {"delta": "_delta_log", "iceberg": "catalog.db"}[kind]
    while killed < KILLS:
        span = draw.choice(["run", *since])
        if span in since or draw.random() < 0.6:
            each.supply(draw)
        more = {"since": str(since[span])} if span in since else {}
        runs = [WAIT | more | {"kill": draw.uniform(0, usual[span] * 1.2)}]
        known = killed % 5 == 0
        if known:
            each.supply(draw)
            settled = read_marks(marks).next is not None  # then the run first writes what became of that commit
            runs = [WAIT | {"kill_at_mark": 2 + settled}]
        elif draw.random() < 0.2:
            runs.append(WAIT | {"kill": draw.uniform(0, usual["run"] * 2)})
        before = each.commits()
        ends = nursery.run(each.folder, *runs)
        assert {end["code"] for end in ends} <= {0, -9}, ends
        dead = sum(end["code"] == -9 for end in ends)
        killed += dead
        if known:
            assert (dead, read_marks(marks).next is not None, each.commits() != before) == (1, True, True)
        else:
            usual[span] = usual[span] * 1.1 if ends[0]["code"] else max(usual[span] / 1.2, ends[0]["later"])
        if dead and read_marks(marks).next is not None:
            moments["made" if each.commits() != before else "announced"] += 1
    each.supply(draw)
    ends = nursery.run(each.folder, WAIT, WAIT)
    assert [end["code"] for end in ends] == [0, 0], ends
    each.check()
    numbers = [number >> 20 for number in each.commits()]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 1 if kind == "postgres" else len(numbers) > 1
    print(
        f"{kind}: {killed} killed, {moments['announced']} before a commit that was announced, {moments['made']} after"
    )
    assert KILLS < MANY or moments.total() > MANY / 50
