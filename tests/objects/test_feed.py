"""`dd feed` from an output and a state in an object store."""

from collections import Counter

import pytest

from ddcli.errors import LockedError
from ddcli.feed.delivery import OutputFeed
from tests.crash.shop import Shop
from tests.objects.shop import Remote


def test_a_consumer_is_fed_from_an_object_store(tmp_path, bucket):
    """Its position lies beside the state; of two who acknowledge the same, one does."""
    there = Remote(Shop.make(tmp_path / "remote"), bucket, frozenset(("in", "out", "state")))
    held = Counter()
    for step in range(3):
        there.supply(step)
        there.run()
        feed = OutputFeed.open(str(there.place("out/known")), tmp_path)
        found = feed.deliver("mail")
        assert feed.deliver("mail").token == found.token
        held.update({row[:-1]: row[-1] for row in found.changes.iter_rows()})
        assert feed.acknowledge("mail", found.since, found.position).acknowledged == step + 1
    with pytest.raises(LockedError, match="another process"):
        feed.acknowledge("mail", 0, 1)
    meant = Counter()
    for record, diff in there.rows()["known"].items():
        meant[record[:-1]] += diff
    assert +held == +meant
    ((consumer, files),) = feed.consumers()
    assert (consumer.acknowledged, files) == (3, 0)
