"""Logs with `keep:`, whatever reads them and whoever dies meanwhile: a log at the times it remembers, and what readers hold, are what the input adds up to."""

from collections import Counter

import polars as pl
import pytest

import ddcli.driver.keep
import ddcli.store.state.directory
from ddcli import read_log as read_changes
from ddcli.driver.run import run
from ddcli.errors import DdError, UsageError
from ddcli.feed.delivery import OutputFeed
from ddcli.sinks.log_compaction import compact
from ddcli.store.log import lineage
from tests.draws import chance, many
from tests.harness import contents, write_log
from tests.store.support import Dead, Faulty

WRITER = """\
name: a
inputs: {rows: in/}
collections:
  totals: {from: rows, apply: [{reduce: {by: [region], n: count(*), last: max(k)}}]}
  by_region: {from: rows, apply: [{arrange: {by: [region], export: by_region}}]}
outputs:
  rows: {path: out/rows/, keep: 3}
  totals: {path: out/totals/, keep: 1}
"""
READER = "name: r\ninputs: {rows: out/rows/, totals: out/totals/}\noutputs: {rows: out/r/, totals: out/rt/}\n"
IMPORTER = """\
name: i
inputs: {rows: {import: {state: .dd/a/, arrangement: by_region}}}
collections: {counts: {from: rows, apply: [{reduce: {by: [region], n: count(*)}}]}}
outputs: {counts: out/i/}
"""
OUTPUTS = ("rows", "totals")
PIPELINES = {"a": WRITER, "r": READER, "i": IMPORTER}


class Kept:
    """A writer of logs that are summed up, and those who read them: another pipeline, an importer, two consumers a log."""

    def __init__(self, folder, draw, monkeypatch):
        self.folder, self.draw, self.monkeypatch, self.time = folder, draw, monkeypatch, 0
        folder.mkdir()
        for name, text in PIPELINES.items():
            (folder / f"{name}.yaml").write_text(text)
        self.rows, self.meant = Counter(), {}
        self.held = {(output, name): Counter() for output in OUTPUTS for name in ("mail", "index")}
        self.seen, self.deaths, self.refused, self.answered = dict.fromkeys(PIPELINES, 0), 0, 0, 0

    def supply(self):
        """Have rows come and go at the next times."""
        for _ in range(self.draw.randrange(1, 4)):
            there = [record for record, count in self.rows.items() if count]
            changed = Counter((self.draw.randrange(4), self.draw.choice("ab")) for _ in range(2))
            changed.subtract(self.draw.sample(there, min(len(there), self.draw.randrange(2))))
            rows = [(*record, self.time, diff) for record, diff in changed.items() if diff]
            self.rows.update(changed)
            write_log(
                self.folder / f"in/{self.time:04}.parquet",
                rows,
                {"k": pl.Int64, "region": pl.String, "time": pl.Int64, "diff": pl.Int64},
            )
            self.meant[self.time] = {"rows": {record: n for record, n in self.rows.items() if n}}
            regions = {region for _, region in self.meant[self.time]["rows"]}
            self.meant[self.time]["totals"] = {self.total(region): 1 for region in regions}
            self.time += 1

    def total(self, region):
        rows = {k: n for (k, one), n in self.rows.items() if one == region and n}
        return (region, sum(rows.values()), max(rows))

    def dying(self, what):
        """Do something whose process may die at some operation, again and again, until it is done."""
        while self.draw.random() < 0.4:
            files = Faulty(self.draw.randrange(60), after=self.draw.random() < 0.3)
            with self.monkeypatch.context() as patch:
                patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                try:
                    return what()
                except Dead:
                    self.deaths += 1
            self.look()
        return what()

    def write(self):
        if self.draw.random() < 0.8:
            self.supply()
        before = self.seen["a"]
        self.seen["a"] = (before, self.time)  # if it dies, either
        self.dying(lambda: run(self.folder / "a.yaml"))
        self.seen["a"] = self.time

    def read(self):
        self.dying(lambda: run(self.folder / "r.yaml"))
        self.seen["r"] = self.seen["a"]
        for output, path in (("rows", "r"), ("totals", "rt")):
            assert contents(self.folder / "out" / path) == self.meant[self.seen["a"] - 1][output]

    def arrange(self):
        self.dying(lambda: run(self.folder / "i.yaml"))
        meant = {(region, n): 1 for region, n, _ in self.meant[self.seen["a"] - 1]["totals"]}
        assert contents(self.folder / "out/i") == meant

    def compact(self):
        before = None if self.draw.random() < 0.5 else str(self.draw.randrange(self.time))
        target = self.draw.choice(["a.yaml", "out/rows", "out/totals"])
        self.dying(lambda: compact(target, self.folder, before))

    def feed(self):
        """Give a consumer what it lacks; it may die before it acknowledges that."""
        output, name = who = self.draw.choice([*self.held])
        found = OutputFeed.open(f"out/{output}", self.folder)
        got = found.deliver(name)
        after = Counter(self.held[who])
        after.update({row[:-1]: row[-1] for row in got.changes.iter_rows()})
        assert {record: n for record, n in after.items() if n} == self.meant[self.seen["a"] - 1][output]
        if got.files and self.draw.random() < 0.6:
            found.acknowledge(name, got.since, got.position)
            self.held[who] = after

    def look(self):
        """See each log as of its end, and at a time, which it may have forgotten; what `dd log` shows is one commit's."""
        first, last = self.seen["a"] if isinstance(self.seen["a"], tuple) else (self.seen["a"],) * 2
        for output in OUTPUTS:
            shown = self.as_of(output, "latest")
            assert shown in [self.meant[time - 1][output] for time in {first, last} if time] or not first, shown
            if not first:
                continue
            at = self.draw.randrange(first)
            shown = self.as_of(output, at)
            if isinstance(shown, UsageError):
                assert "the log remembers nothing before" in shown.problem
                assert at < self.time - 1
                self.refused += 1
            else:
                assert shown == self.meant[at][output], at
                self.answered += 1

    def as_of(self, output, at):
        """Return the contents of a log as of a time, or the error."""
        try:
            rows = read_changes(self.folder / "out" / output, as_of=at).rows()
        except DdError as error:
            return error
        return {tuple(row): diff for *row, diff in rows}


@pytest.mark.parametrize("case", range(many(3)))
def test_logs_that_are_summed_up(tmp_path, monkeypatch, case):
    """Runs, readers, consumers and summing up by hand in a random order, of which each may die at any file operation.

    In some cases files grow, so there are fewer to sum up, or none.
    """
    apart = [64, 0, 2][case % 3]
    monkeypatch.setattr(lineage, "APART", apart)
    monkeypatch.setattr(ddcli.driver.keep, "FILES", 2)
    kept = Kept(tmp_path / "shop", chance("keep", case), monkeypatch)
    kept.supply()
    kept.write()
    steps = [kept.write] * 5 + [kept.read] * 2 + [kept.feed] * 3 + [kept.compact, kept.arrange]
    for _ in range(30):
        kept.draw.choice(steps)()
        kept.look()
    for output, name in kept.held:
        found = OutputFeed.open(f"out/{output}", kept.folder)
        found.deliver(name)
        found.acknowledge(name)
    kept.read()
    compact("a.yaml", kept.folder)
    kept.look()
    kept.arrange()
    summed = [path.name for path in (kept.folder / "out").rglob("*-summed*.parquet")]
    assert len(summed) == (len(OUTPUTS) if apart else 0)
    assert kept.deaths
    assert kept.answered
    assert bool(kept.refused) == bool(apart)
