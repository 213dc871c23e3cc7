"""Real processes, killed at any moment or racing for one state, with new input arriving in between."""

import random
import socket

from tests.crash.shop import Shop
from tests.draws import many

KILLS = max(20, many(100))
ENDS = {"", "changed", "nothing new"}
"""What runs say, also those that are killed."""


def test_a_loop_of_kills(tmp_path, nursery):
    """It ends when enough were killed, and each way in which a run ends was seen."""
    draw = random.Random(KILLS)
    shop = Shop.make(tmp_path)
    shop.supply(0)
    usual = nursery.run(shop.folder, {})[0]["seconds"]
    steps, killed, seen = 1, 0, set()
    while killed < KILLS / 2 or seen < ENDS:
        if draw.random() < 0.4:
            shop.supply(steps)
            steps += 1
        (end,) = nursery.run(shop.folder, {"kill": draw.uniform(0, usual * 1.2)})
        assert end["code"] in {0, -9}, end
        killed += end["code"] == -9
        # What a killed run leaves undone is the next one's to do, too: without this, runs that take longer than at first all die.
        usual = usual * 1.1 if end["code"] else max(usual / 1.2, end["seconds"])
        seen.add(end["said"])
    assert nursery.run(shop.folder, {})[0]["code"] == 0
    assert shop.rows() == shop.meant(steps)
    assert not [name for name in shop.files() if name.endswith(".dd-tmp")]
    assert seen == ENDS


def test_runs_that_race_for_one_state(tmp_path, nursery):
    """There are more steps where nobody was in another's way."""
    shop = Shop.make(tmp_path)
    refused = steps = 0
    while steps < many(8) or not refused:
        shop.supply(steps)
        steps += 1
        modes = [{"options": {"if_locked": mode}} for mode in ("fail", "wait", "skip")]
        ends = nursery.run(shop.folder, *modes)
        assert [end["said"] for end in ends].count("changed") == 1, ends
        assert shop.number == steps
        assert ends[1]["code"] == 0
        for end in ends:
            if end["code"] == 75:
                refused += 1
                assert "LOCK: error: the state is in use by " in end["said"]
                if "a process that has just started" in end["said"]:  # between taking the lock and writing who has it
                    continue
                assert f" on {socket.gethostname()}, started 20" in end["said"]
                assert "nursery.py" in end["said"]
            else:
                assert end["said"] in {"changed", "nothing new"}
    assert shop.rows() == shop.meant(steps)
