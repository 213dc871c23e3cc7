"""`dd forget` among runs of its pipeline and of one that imports from it, all killed at any moment: in the end no byte has the rows, and nothing else is lost.

Rows that are forgotten, when the process dies at any file operation, also twice in a row.
"""

import shutil
from collections import Counter
from itertools import count

import polars as pl

from ddcli.driver.forget import forget
from tests.draws import chance, many, some
from tests.harness import contents, read_log, write_log
from tests.store.support import Dead, Faulty

ROUNDS = max(3, many(10))
EXPORTER = """\
dd: 1
name: a
inputs: {rows: in/}
collections:
  totals: {from: rows, apply: [{reduce: {by: [region], n: count(*), most: max(amount)}}]}
  people: {from: rows, apply: [{arrange: {by: [person], export: people}}]}
outputs: {totals: out/totals/, rows: {path: out/rows/, keep: 2}}
"""
IMPORTER = """\
dd: 1
name: i
inputs: {people: {import: {state: .dd/a/, arrangement: people}}}
collections: {counts: {from: people, apply: [{reduce: {by: [person], n: count(*), amount: sum(amount)}}]}}
outputs: {counts: out/counts/}
"""
SCHEMA = {"person": pl.String, "region": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
MEANWHILE = (
    "reads the state right now",  # the importer keeps files that are to go
    "a file that was already read has changed",  # rows were removed there, and are not forgotten yet
    "rows of it were forgotten",
)
"""What a run or a forgetting may be refused for while others are at work."""


class Exporter:
    """A pipeline over files of rows of persons, and one that imports them by person."""

    def __init__(self, folder, draw):
        self.folder, self.draw, self.time = folder, draw, 0
        self.parts, self.gone = {}, set()
        for name, text in (("a", EXPORTER), ("i", IMPORTER)):
            (folder / f"{name}.yaml").write_text(text)

    def supply(self):
        """Write a file of new rows."""
        rows = [
            (f"MARK-{self.draw.randrange(self.time, self.time + 12):04}", self.draw.choice("abc"), amount, self.time, 1)
            for amount in range(4)
        ]
        self.parts[self.time] = [row for row in rows if row[0] not in self.gone]
        self.write(self.time)
        self.time += 1

    def write(self, time):
        write_log(self.folder / f"in/{time:04}.parquet", self.parts[time], SCHEMA)

    def choose(self):
        """Remove the rows of a person from the files, and return the command that forgets them."""
        person = self.draw.choice(sorted({row[0] for part in self.parts.values() for row in part}))
        self.gone.add(person)
        for time, part in self.parts.items():
            left = [row for row in part if row[0] != person]
            if left != part:
                self.parts[time] = left
                self.write(time)
        return ["forget", "a.yaml", "--where", f"person = '{person}'", "--if-locked", "wait"]

    def check(self):
        """See that outputs are those of the rows that are there, and that of others there is no byte."""
        rows = [row for part in self.parts.values() for row in part]
        assert contents(self.folder / "out/rows") == Counter(row[:3] for row in rows)
        regions = {row[1] for row in rows}
        found = {
            (each, sum(row[1] == each for row in rows), max(row[2] for row in rows if row[1] == each))
            for each in regions
        }
        assert contents(self.folder / "out/totals") == dict.fromkeys(found, 1)
        people = {row[0] for row in rows}
        counts = {
            (each, sum(row[0] == each for row in rows), sum(row[2] for row in rows if row[0] == each))
            for each in people
        }
        assert contents(self.folder / "out/counts") == dict.fromkeys(counts, 1)
        for path in [
            *(self.folder / ".dd/a").rglob("*"),
            *(self.folder / "out/rows").rglob("*"),
            *(self.folder / "out/totals").rglob("*"),
        ]:
            data = path.read_bytes() if path.is_file() else b""
            if path.suffix == ".parquet":
                data += pl.read_parquet(path).write_json().encode()
            assert not [person for person in self.gone if person.encode() in data], path


def test_a_forgetting_among_others(tmp_path, nursery):
    """Each round's rows are forgotten by a process that is killed at any moment, beside others; then by one that has its time.

    There are more rounds where all that was to be killed ended before, as on a fast machine, or nobody else ended well, as on a slow one.
    """
    draw = chance("forgetting")
    exporter = Exporter(tmp_path, draw)
    runs = [["run", f"{name}.yaml", "--quiet", "--if-locked", "wait"] for name in "ai"]
    exporter.supply()
    for run in runs:
        assert nursery.run(tmp_path, {"command": run})[0]["code"] == 0
    usual, seen, rounds = 1.0, Counter(), 0
    while rounds < ROUNDS or not (seen[-9] and seen[0]):
        rounds += 1
        for _ in range(draw.randrange(1, 3)):
            exporter.supply()
            (end,) = nursery.run(tmp_path, {"command": runs[0]})
            assert end["code"] == 0, end
        forgetting = exporter.choose()
        racing = [forgetting, *draw.sample([*runs, runs[1], forgetting], draw.randrange(1, 4))]
        draw.shuffle(racing)
        kills = [{"kill": draw.uniform(0, usual * 1.5)} if draw.random() < 0.6 else {} for _ in racing]
        ends = nursery.run(tmp_path, *({"command": each} | kill for each, kill in zip(racing, kills, strict=True)))
        for end in ends:
            told = [each for each in MEANWHILE if each in end["said"]]
            assert end["code"] in {0, -9} or told, end
            seen.update([told[0] if told else end["code"]])
        for command in (runs[1], forgetting, *runs):  # the importer, if it was killed, keeps files until it runs
            (end,) = nursery.run(tmp_path, {"command": command})
            assert end["code"] == 0, (end, seen)
            usual = (usual + end["seconds"]) / 2
        exporter.check()


STEP = 3
"""Every so many operations the process dies: one by one takes half a minute."""


def without(shop):
    return forget(shop.folder / "shop.yaml", "person = 1", ["sales", "people"])


def test_death_at_every_operation(every_stage, tmp_path, through):
    before = every_stage["merge"].shop.copy(tmp_path / "before")
    whole = before.copy(tmp_path / "whole")
    assert without(whole).rewritten
    after = whole.settled()
    assert 1 not in read_log(whole.folder / "out/known")["person"].to_list()
    outcomes = set()
    for at in some(count(step=STEP)):
        shop = before.copy(tmp_path / "shop")
        files = Faulty(at)
        try:
            through(shop, files, without)
        except Dead:
            outcomes.add(shop.number - before.number)
            if shop.number == before.number:
                try:
                    through(shop, Faulty(at // 2), without)
                except Dead:
                    if shop.number == before.number:
                        without(shop)
        assert shop.settled() == after, f"dead before operation {at}: {files.log[-1]}"
        shutil.rmtree(shop.folder)
        if not files.dead:
            break
    assert outcomes == {0, 1}
