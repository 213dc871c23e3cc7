"""Random histories of an output and of its consumers: what a consumer has acknowledged adds up to the output, whatever was killed meanwhile."""

from collections import Counter

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import LockedError, UsageError
from ddcli.feed.delivery import OutputFeed
from ddcli.store.log import joint_files
from ddcli.store.state.upkeep import compact_state
from tests import draws
from tests.draws import many
from tests.harness import contents, write_log

PIPELINE = """\
dd: 1
name: shop
inputs:
  orders: {path: in/, columns: {k: int64, region: string, time: int64, diff: int64}}
collections:
  totals: {from: orders, apply: [{reduce: {by: [region], n: count(*), last: max(k)}}]}
outputs:
  totals: out/totals/
  orders: out/orders/
"""
OUTPUTS = ("totals", "orders")
"""A log whose records replace each other, and one of rows."""


class History:
    """An output's history, and what each of its consumers holds that adds up what it has acknowledged."""

    def __init__(self, folder, chance):
        self.folder, self.chance, self.time = folder, chance, 0
        folder.mkdir()
        (folder / "shop.yaml").write_text(PIPELINE)
        self.held = {(output, name): Counter() for output in OUTPUTS for name in ("mail", "index")}
        self.given = {each: {} for each in self.held}
        """What each was given and may still acknowledge, by position."""
        self.rows = Counter()

    def feed(self, output):
        return OutputFeed.open(f"out/{output}", self.folder)

    def supply(self):
        """Have rows come and go at the next time, some that were there before, and run."""
        for _ in range(self.chance.randrange(1, 4)):
            rows = [(self.chance.randrange(4), self.chance.choice("ab"), self.time, 1) for _ in range(3)]
            there = [record for record, count in self.rows.items() if count]
            rows += [(*self.chance.choice(there), self.time, -1)] if there else []
            changed = Counter()
            for k, region, _, diff in rows:
                changed[k, region] += diff
            rows = [(*record, self.time, diff) for record, diff in changed.items() if diff]
            self.rows.update(changed)
            types = {"k": pl.Int64, "region": pl.String, "time": pl.Int64, "diff": pl.Int64}
            write_log(self.folder / f"in/{self.time}.parquet", rows, types)
            self.time += 1
        run(self.folder / "shop.yaml")

    def edit(self):
        """Change the pipeline, and have its outputs corrected."""
        count = self.chance.choice(["count(*)", "count(*) + 1", "2 * count(*)"])
        (self.folder / "shop.yaml").write_text(PIPELINE.replace("count(*)", count))
        run(self.folder / "shop.yaml", apply=True)

    def reopen(self):
        """Open some times again that were closed; the next run closes them."""
        run(self.folder / "shop.yaml", reopen=str(self.chance.randrange(self.time)))

    def compact(self):
        compact_state(self.folder / ".dd/shop", written=[self.folder / "out" / output for output in OUTPUTS])

    def get(self):
        """Give a consumer what is new; see that it is what it lacks, each record once. It may die before it acknowledges that."""
        output, name = who = self.chance.choice([*self.held])
        found = next(self.feed(output).follow(name, [None]))
        rows = [*found.changes.iter_rows()]
        delta = Counter({row[:-1]: row[-1] for row in rows})
        assert len(delta) == len(rows)
        assert all(delta.values())
        after = Counter(self.held[who])
        after.update(delta)
        assert {record: count for record, count in after.items() if count} == contents(self.folder / "out" / output)
        if found.files:
            self.given[who][found.since, found.position] = delta

    def acknowledge(self):
        """Acknowledge something that was offered, now or earlier, by this process or by another one of the consumer."""
        output, name = who = self.chance.choice([*self.held])
        if not self.given[who]:
            if name in {one.name for one, _ in self.feed(output).consumers()}:
                assert self.feed(output).acknowledge(name).offered == ()
                return
            with pytest.raises(UsageError, match="has no consumer"):
                self.feed(output).acknowledge(name)
            return
        since, position = at = self.chance.choice([*self.given[who]])
        newest = max(self.given[who])
        known = {one.name: one for one, _ in self.feed(output).consumers()}[name]
        if self.chance.random() < 0.5 and newest[0] == known.acknowledged:
            at = newest
            assert self.feed(output).acknowledge(name).acknowledged == at[1]
        elif at == (known.before, known.acknowledged):
            return
        elif since != known.acknowledged:
            with pytest.raises(LockedError, match="another process"):
                self.feed(output).acknowledge(name, since, position)
            return
        else:
            self.feed(output).acknowledge(name, since, position)
        self.held[who].update(self.given[who][at])
        for _ in range(2):  # done again, it does nothing
            self.feed(output).acknowledge(name, *at)

    def judge(self):
        """Have every consumer get and acknowledge all that is left: it holds the output's contents."""
        for output, name in self.held:
            found = next(self.feed(output).follow(name, [None]))
            self.held[output, name].update({row[:-1]: row[-1] for row in found.changes.iter_rows()})
            if found.files:
                self.feed(output).acknowledge(name)
            held = {record: count for record, count in self.held[output, name].items() if count}
            assert held == contents(self.folder / "out" / output)
            again = next(self.feed(output).follow(name, [None]))
            assert (again.files, again.changes.height) == (0, 0)


def test_what_a_consumer_acknowledged_adds_up_to_the_output(tmp_path, monkeypatch):
    """Through runs, edits, reopenings and compactions; two consumers an output, some of whom die with what they got. Files grow in some cases."""
    for case in range(many(6)):
        monkeypatch.setattr(joint_files, "APART", [64, 0, 2][case % 3])
        history = History(tmp_path / str(case), draws.chance(f"feed {case}"))
        history.supply()
        steps = [history.supply] * 3 + [history.get] * 6 + [history.acknowledge] * 5
        steps += [history.edit, history.reopen, history.compact]
        for _ in range(30):
            history.chance.choice(steps)()
        history.judge()
