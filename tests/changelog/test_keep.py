"""Logs with `keep:`, whatever reads them and whoever dies meanwhile: a log at the times it remembers, and what readers hold, are what the input adds up to."""

import shutil
from collections import Counter
from itertools import product
from pathlib import Path

import polars as pl
import pytest

import ddcli.store.state.directory
from ddcli import read_log as read_changes
from ddcli.driver.run import run
from ddcli.errors import DdError, InputError, StateError, UsageError
from ddcli.feed.delivery import OutputFeed
from ddcli.feed.targets import open_target
from ddcli.sinks import log_compaction
from ddcli.sinks.log_compaction import compact
from ddcli.store.log import joint_files
from tests.draws import chance, many, some
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
CLAIMED = WRITER.replace("keep: 3", "keep: 3, claims: 7").replace("keep: 1", "keep: 1, claims: 4")
CLAIMS = {"rows": 7, "totals": 4}
OUTPUTS = ("rows", "totals")
PIPELINES = {"a": WRITER, "r": READER, "i": IMPORTER}


class Kept:
    """A writer of logs that are summed up, and those who read them: another pipeline, an importer, two consumers a log and a target.

    With `claims`, some are passed: a `gone` consumer, and whoever comes late. Each gets exactly what it lacks, or is refused and begins anew.
    """

    def __init__(self, folder, draw, monkeypatch, *, claims=False):
        self.folder, self.draw, self.monkeypatch, self.time = folder, draw, monkeypatch, 0
        folder.mkdir()
        for name, text in PIPELINES.items():
            (folder / f"{name}.yaml").write_text(text)
        self.claims = claims
        if claims:
            (folder / "a.yaml").write_text(CLAIMED)
        self.got, self.passed = Counter(), 0
        """By who reads a log up to which time it has all; and how many were passed."""
        self.forced = Counter()
        """By log before which time it may have been summed up whoever lacked it."""
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
        try:
            self.dying(lambda: run(self.folder / "r.yaml"))
        except InputError as error:
            (output,) = (each for each in OUTPUTS if f"out/{each}/" in error.place)
            self.may_be_passed(output, "r", error, "--full-refresh all")
            self.dying(lambda: run(self.folder / "r.yaml", refresh=frozenset(), apply=True))
        self.seen["r"] = self.got["r"] = self.seen["a"]
        for output, path in (("rows", "r"), ("totals", "rt")):
            assert contents(self.folder / "out" / path) == self.meant[self.seen["a"] - 1][output]

    def arrange(self):
        self.dying(lambda: run(self.folder / "i.yaml"))
        meant = {(region, n): 1 for region, n, _ in self.meant[self.seen["a"] - 1]["totals"]}
        assert contents(self.folder / "out/i") == meant

    def compact(self):
        before = None if self.draw.random() < 0.5 else str(self.draw.randrange(self.time))
        target = self.draw.choice(["a.yaml", "out/rows", "out/totals"])
        passing = self.claims and self.draw.random() < 0.5
        for output in OUTPUTS if passing else ():
            self.forced[output] = max(self.forced[output], int(before or self.time))
        self.dying(lambda: compact(target, self.folder, before, pass_claims=passing))

    def feed(self):
        """Give a consumer what it lacks; it may die before it acknowledges that."""
        self.give(self.draw.choice([*self.held]))

    def give(self, who):
        output, name = who
        found = OutputFeed.open(f"out/{output}", self.folder)
        try:
            got = next(found.follow(name, [None]))
        except StateError as error:
            assert name in found.passed()
            self.may_be_passed(output, who, error, "--drop")
            found.drop(name)
            self.held[who] = Counter()
            got = next(found.follow(name, [None]))
        after = Counter(self.held[who])
        after.update({row[:-1]: row[-1] for row in got.changes.iter_rows()})
        assert {record: n for record, n in after.items() if n} == self.meant[self.seen["a"] - 1][output]
        if got.files and self.draw.random() < 0.6:
            found.acknowledge(name, got.since, got.position)
            self.held[who], self.got[who] = after, self.seen["a"]

    def transfer(self):
        """Deliver to a target, which has each change once: what it would lack is refused, and it is as it was."""
        output = self.draw.choice(OUTPUTS)
        place, found = self.folder / "fed" / output, OutputFeed.open(f"out/{output}", self.folder)
        deliver = lambda: found.transfer("target", lambda each: open_target(str(place), output, each, Path("/")))  # noqa: E731
        before = sorted(place.glob("*.parquet"))
        try:
            deliver()
        except StateError as error:
            assert sorted(place.glob("*.parquet")) == before
            self.may_be_passed(output, place, error, "both start again")
            shutil.rmtree(place)
            found.drop("target")
            deliver()
        held = Counter()
        for path in place.glob("*.parquet"):
            held.update({row[:-2]: 0 for row in pl.read_parquet(path).iter_rows()})
            for *record, diff, _ in pl.read_parquet(path).iter_rows():
                held[tuple(record)] += diff
        assert {record: n for record, n in held.items() if n} == self.meant[self.seen["a"] - 1][output]
        self.got[place] = self.seen["a"]

    def may_be_passed(self, output, who, error, hint):
        """See that whoever is refused is further behind than claims hold a log back, or than what was summed up by hand, and learns from the message how to begin anew."""
        assert self.claims
        assert "were summed up" in error.problem
        assert hint in error.hint
        assert self.got[who] < max(self.seen["a"] - CLAIMS[output], self.forced[output])
        self.passed += 1

    def leave(self):
        """Have a consumer of each log get what there is, and never come back."""
        for output in OUTPUTS:
            found = OutputFeed.open(f"out/{output}", self.folder)
            next(found.follow("gone", [None]))
            found.acknowledge("gone")
            self.got[output, "gone"] = self.seen["a"]

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


@pytest.mark.parametrize(("case", "claims"), [*some(product(range(many(3)), [False, True]))])
def test_logs_that_are_summed_up(tmp_path, monkeypatch, case, claims):
    """Runs, readers, consumers and summing up by hand in a random order, of which each may die at any file operation.

    In some cases files grow, so there are fewer to sum up, or none.
    """
    apart = [64, 0, 64 if claims else 2][case % 3]
    monkeypatch.setattr(joint_files, "APART", apart)
    monkeypatch.setattr(log_compaction, "FILES", 2)
    kept = Kept(tmp_path / "shop", chance("keep", case), monkeypatch, claims=claims)
    kept.supply()
    kept.write()
    if claims:
        kept.leave()
    steps = [kept.write] * 5 + [kept.read] * 2 + [kept.feed] * 3 + [kept.compact, kept.arrange]
    steps = (
        [kept.write] * 12 + [kept.read, kept.arrange, kept.transfer, kept.compact] + [kept.feed] * 3
        if claims
        else steps
    )
    for _ in range(30):
        kept.draw.choice(steps)()
        kept.look()
    for output, name in kept.held:
        if name == "mail":
            kept.transfer()
        kept.give((output, name))
        found = OutputFeed.open(f"out/{output}", kept.folder)
        found.acknowledge(name)
        if claims:
            assert ("gone" in found.passed()) == bool(apart)
    kept.read()
    compact("a.yaml", kept.folder)
    kept.look()
    kept.arrange()
    summed = [path.name for path in (kept.folder / "out").rglob("*-summed*.parquet")]
    assert len(summed) == (len(OUTPUTS) if apart else 0)
    assert kept.deaths
    assert kept.answered
    assert bool(kept.refused) == bool(apart)
