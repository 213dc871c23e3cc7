"""Random lives of two pipelines, one of which imports an arrangement of the other and lags behind it: whatever either does meanwhile, a command that
succeeds leaves the importer's outputs as plain Python computes them, and a question that is answered is answered right.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shlex
import shutil
from collections import Counter

import pytest

from tests import draws
from tests.draws import many, some
from tests.harness import Folder, contents

EXPORTER = """\
name: main
clock: {clock}
inputs: {{a: {{path: in/, format: append, {time}columns: {{id: int64, g: int64, v: int64{column}}}}}}}
collections:
  bya: {{from: a, apply: [{{project: [id, g, v]}}, {{filter: v >= {least}}}, {{arrange: {{by: [g], export: bya}}}}]}}
  sizes: {{from: bya, apply: [{{reduce: {{by: [g], n: count(*)}}}}]}}
outputs: {{{outputs}}}
"""
IMPORTER = """\
name: imp
clock: event
{shards}inputs:
  b: {{import: {{state: .dd/main/, arrangement: bya}}}}
  o: {{path: ino/, format: append, time: t, late: arrive, columns: {{g: int64, c: int64, t: {kind}}}}}
collections:
{collections}outputs:
{outputs}"""


def groups(rows):
    found = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found


MEANINGS = {
    "totals": (
        "select g, count(*) as n, sum(v + {k}) as s from b group by g",
        lambda b, o, k: [(g, len(rows), sum(v + k for _, _, v in rows)) for g, rows in groups(b).items()],
    ),
    "largest": (
        "select g, count(*) as n, max(v) + {k} as s from b group by g",
        lambda b, o, k: [(g, len(rows), max(v for _, _, v in rows) + k) for g, rows in groups(b).items()],
    ),
    "records": ("select g, id as n, v + {k} as s from b", lambda b, o, k: [(g, i, v + k) for i, g, v in b]),
    "pairs": (
        "select x.g, x.id as n, y.id + {k} as s from b x join b y on x.g = y.g and x.v < y.v",
        lambda b, o, k: [(g, i, j + k) for i, g, v in b for j, h, w in b if g == h and v < w],
    ),
    "newest": (
        "select g, id as n, v + {k} as s from b qualify row_number() over (partition by g order by id desc) = 1",
        lambda b, o, k: [(g, i, v + k) for g, rows in groups(b).items() for i, _, v in [max(rows)]],
    ),
    "beside": (
        "select b.g, b.id as n, coalesce(o.c, 0) + {k} as s from b left join o on b.g = o.g",
        lambda b, o, k: [(g, i, c + k) for i, g, _ in b for c in ([c for h, c in o if h == g] or [0])],
    ),
    "lone": (
        "select o.g, o.c as n, {k} as s from o where not exists (select 1 from b where b.g = o.g)",
        lambda b, o, k: [(g, c, k) for g, c in o if all(h != g for _, h, _ in b)],
    ),
}


class Pair:
    """Two pipelines in a folder, and what plain Python knows of them: `files` and `own` have the rows of their inputs, `exported` those
    of the exporter's last commit, `imported` those of the importer's.
    """

    def __init__(self, shop, chance, clock):
        self.shop, self.chance, self.arrival = shop, chance, clock == "arrival"
        self.time = self.last = 0
        self.files, self.own, self.exported, self.imported = {}, {}, [], []
        self.least, self.more, self.k, self.shards = 0, 0, 0, None
        self.wanted = chance.sample([*MEANINGS], 2)
        self.waits, self.exporter_saved, self.importer_saved = False, None, None
        self.seen, self.log = Counter(), []
        self.write()
        self.supply_own()

    # --- files ----------------------------------------------------------------------------------------------------------

    def write(self):
        outputs = "bya: out/bya/" + (f", sizes: out/sizes{self.more}/" if self.more else "")
        time, column = ("", "") if self.arrival else ("time: t, ", ", t: int64")
        text = EXPORTER.format(
            clock="arrival" if self.arrival else "event", time=time, column=column, least=self.least, outputs=outputs
        )
        self.shop.write("main.yaml", text)
        collections = "".join(
            f"  {name}: {{sql: '{MEANINGS[name][0].format(k=self.k)}'}}\n" for name in sorted(self.wanted)
        )
        self.shop.write(
            "imp.yaml",
            IMPORTER.format(
                kind="'datetime[us]'" if self.arrival else "int64",
                shards=f"shards: {self.shards}\n" if self.shards else "",
                collections=collections,
                outputs="".join(f"  {name}: down/{name}/\n" for name in sorted(self.wanted)),
            ),
        )

    def write_rows(self, name):
        rows = "".join(f"{i},{g},{v}{'' if self.arrival else f',{t}'}\n" for i, g, v, t in self.files[name])
        self.shop.write(f"in/{name}", f"id,g,v{'' if self.arrival else ',t'}\n{rows}")

    def write_own(self, name):
        at = "2000-01-01 00:00:00" if self.arrival else "0"
        self.shop.write(f"ino/{name}", "g,c,t\n" + "".join(f"{g},{c},{at}\n" for g, c in self.own[name]))

    # --- commands -------------------------------------------------------------------------------------------------------

    def call(self, *arguments, allowed=(0,)):
        done = self.shop(*arguments)
        self.log.append(f"{shlex.join(map(str, arguments))}: {done.code} {done.err[:200]}")
        assert done.code in allowed, (done.code, done.err)
        self.seen[arguments[0], done.code] += 1
        return done

    def export(self, *options):
        self.call("run", "main.yaml", "-q", *options)
        self.exported = [row[:3] for rows in self.files.values() for row in rows if row[2] >= self.least]

    def release(self):
        for path in (self.shop.folder / ".dd/main/holds").glob("imp-*.json"):
            self.call("state", "release", "main.yaml", "--reader", path.stem)

    def insist(self, *arguments):
        """Do what is refused as long as another pipeline reads what it takes back."""
        if self.call(*arguments, allowed=(0, 4)).code:
            self.release()
            self.call(*arguments)

    # --- the exporter's life ----------------------------------------------------------------------------------------------

    def supply(self):
        self.time += 1
        name = f"{self.time}.csv"
        rows = [(10 * self.time + at, self.chance.randrange(4), self.chance.randrange(6)) for at in range(2)]
        self.files[name] = [(*row, self.time) for row in rows]
        self.write_rows(name)
        self.export()

    def filter(self):
        self.least = self.chance.randrange(3)
        self.write()
        self.export("--apply")

    def output_more(self):
        self.more += 1
        self.write()
        self.export("--apply")

    def refresh_exporter(self):
        self.export("--full-refresh", self.chance.choice(["all", "bya"]))

    def retract(self):
        if len(self.files) > 1:
            name = self.chance.choice([*self.files])
            (self.shop.folder / "in" / name).unlink()
            del self.files[name]
            self.insist("retract", "main.yaml", f"in/{name}", "-q")
            self.export()

    def forget(self):
        gone = self.chance.randrange(4)
        for name, rows in self.files.items():
            self.files[name] = [row for row in rows if row[1] != gone]
            self.write_rows(name)
        self.call("forget", "main.yaml", "--input", "a", "--where", f"g = {gone}", "-q")
        self.export()

    def reshard(self):
        self.call("state", "reshard", "main.yaml", "--shards", self.chance.randint(1, 4))

    def compact(self):
        self.call("state", "compact", "main.yaml")

    def reopen(self):
        if not self.arrival and self.time > 1:
            first = self.chance.randint(1, self.time)
            self.insist("state", "reopen", "main.yaml", "--from", first, "-q")
            self.exported = [r[:3] for rows in self.files.values() for r in rows if r[2] >= self.least and r[3] < first]
            if self.chance.random() < 0.5:
                self.export()

    def save_or_restore(self):
        """Save a copy of the exporter, or put it back: then it goes on from there, mostly with other rows."""
        places = [".dd/main", "out", "in"]
        if self.exporter_saved is None:
            self.exporter_saved = self.copied(places, "saved"), (self.least, self.more)
            self.kept = copy.deepcopy((self.files, self.exported))
            return
        self.put_back(places, self.exporter_saved[0])
        self.least, self.more = self.exporter_saved[1]
        self.files, self.exported = copy.deepcopy(self.kept)
        self.exporter_saved = None
        self.write()
        if self.chance.random() < 0.8:
            self.supply()

    def copied(self, places, name):
        target = self.shop.folder / name
        shutil.rmtree(target, ignore_errors=True)
        for place in places:
            if (self.shop.folder / place).exists():
                shutil.copytree(self.shop.folder / place, target / place)
        return target

    def put_back(self, places, source):
        for place in places:
            shutil.rmtree(self.shop.folder / place, ignore_errors=True)
            if (source / place).exists():
                shutil.copytree(source / place, self.shop.folder / place)

    # --- the importer's life ----------------------------------------------------------------------------------------------

    def take(self, *arguments):
        """Run the importer: if it is refused, as the message says."""
        done = self.call("run", "imp.yaml", "-q", *arguments, allowed=(0, 4))
        if done.code and (done := self.call("run", "imp.yaml", "-q", "--full-refresh", "all", allowed=(0, 4))).code:
            hinted = next((line for line in done.err.splitlines() if "dd state reopen" in line), None)
            assert hinted, done.err
            if self.call(
                *shlex.split(hinted.split("`")[1])[1:], "-q", allowed=(0, 4)
            ).code:  # its file has changed, too
                self.supply()
                self.call("run", "imp.yaml", "-q", "--full-refresh", "all")
            self.call("run", "imp.yaml", "-q")
        self.imported = [*self.exported]
        if self.waits and self.time == self.last:
            self.supply()
            self.take()
        self.waits, self.last = False, self.time
        self.judge()

    def edit(self):
        self.k = self.chance.randrange(100)
        self.write()
        self.take("--apply")

    def want_more(self):
        left = [name for name in MEANINGS if name not in self.wanted]
        if left:
            self.wanted.append(self.chance.choice(left))
            self.write()
            self.take()

    def refresh(self):
        self.take("--full-refresh", self.chance.choice(["all", *self.wanted]))

    def supply_own(self):
        name = f"{len(self.log)}.csv"
        self.own[name] = [(self.chance.randrange(5), self.chance.randrange(100))]
        self.write_own(name)
        self.waits = True

    def retract_own(self):
        if len(self.own) > 1 and not self.waits:
            name = self.chance.choice([*self.own])
            if self.call("retract", "imp.yaml", f"ino/{name}", "-q", allowed=(0, 4)).code == 0:
                (self.shop.folder / "ino" / name).unlink()
                del self.own[name]
                self.judge()
                self.take()

    def forget_own(self):
        if self.waits:
            return
        gone = self.chance.randrange(5)
        known = copy.deepcopy(self.own)
        for name, rows in known.items():
            self.own[name] = [row for row in rows if row[0] != gone]
            self.write_own(name)
        forget = ("forget", "imp.yaml", "--input", "o", "--where", f"g = {gone}", "-q")
        if self.call(*forget, allowed=(0, 4)).code:
            self.own = known
            for name in known:
                self.write_own(name)
        else:  # the import has begun anew, as of now
            self.imported = [*self.exported]
            self.judge()

    def reopen_importer(self):
        if not self.arrival and self.time > 1:
            self.call("state", "reopen", "imp.yaml", "--from", self.time + 1, "-q", allowed=(0, 2, 4))
            self.take()

    def reshard_importer(self):
        if not self.waits:
            self.call("state", "reshard", "imp.yaml", "--shards", self.chance.randint(1, 4))
            self.judge()

    def compact_importer(self):
        if not self.waits:
            self.call("state", "compact", "imp.yaml")
            self.judge()

    def choose_shards(self):
        self.shards = self.chance.choice([None, 1, 3])
        self.write()
        self.take()

    def save_or_restore_importer(self):
        if self.waits:
            return
        places = [".dd/imp", "down", "ino"]
        if self.importer_saved is None:
            facts = self.own, self.imported, self.k, self.shards, self.wanted
            self.importer_saved = self.copied(places, "saved-importer"), copy.deepcopy(facts)
            return
        self.put_back(places, self.importer_saved[0])
        self.own, self.imported, self.k, self.shards, self.wanted = self.importer_saved[1]
        self.importer_saved = None
        self.write()
        self.judge()

    # --- what is right ----------------------------------------------------------------------------------------------------

    def meaning(self, name):
        own = [row for rows in self.own.values() for row in rows]
        return Counter(MEANINGS[name][1](self.imported, own, self.k))

    def judge(self):
        for name in self.wanted:
            log = self.shop.folder / f"down/{name}"
            assert (contents(log) if [*log.glob("*.parquet")] else {}) == self.meaning(name), name

    def ask(self):
        """Ask about the importer's last commit, which the exporter may have left behind."""
        if self.waits:
            return
        name = self.chance.choice(self.wanted)
        meant = self.meaning(name)
        done = self.call("sql", "--from", "imp.yaml", f"select g, n, s from {name}", "-o", "jsonl", allowed=(0, 4))
        if done.code == 0:
            rows = [json.loads(line) for line in done.out.splitlines()]
            assert Counter((row["g"], row["n"], row["s"]) for row in rows) == meant, name
        asked = self.chance.randrange(5)
        rows = [row for row in meant if row[0] == asked]
        done = self.call("why", "imp.yaml", name, f"g={asked}", "-o", "json", allowed=(0, 1, 4))
        if done.code != 4:
            assert (done.code == 0) == bool(rows), f"why {name} g={asked}"
        for each in json.loads(done.out)["records"] if done.code == 0 else ():
            assert (each["record"]["g"], each["record"]["n"], each["record"]["s"]) in meant
            assert each["checked"]


EXPORTER_STEPS = [Pair.supply] * 6 + [Pair.filter, Pair.output_more, Pair.refresh_exporter, Pair.retract, Pair.forget]
EXPORTER_STEPS += [Pair.reshard, Pair.compact, Pair.reopen, Pair.release, *[Pair.save_or_restore] * 2]
IMPORTER_STEPS = [
    Pair.take,
    Pair.edit,
    Pair.want_more,
    Pair.refresh,
    Pair.supply_own,
    Pair.retract_own,
    Pair.forget_own,
]
IMPORTER_STEPS += [Pair.reopen_importer, Pair.reshard_importer, Pair.compact_importer, Pair.choose_shards]
IMPORTER_STEPS += [Pair.save_or_restore_importer, *[Pair.ask] * 3]


@pytest.mark.in_turn
@pytest.mark.parametrize("clock", [*some(["arrival", "event"])])
def test_an_importer_that_lags_is_right_or_refused(tmp_path, capfd, clock):
    for case in range(many(24)):
        folder = tmp_path / str(case)
        folder.mkdir()
        pair = Pair(Folder(folder, capfd), draws.chance("lagging", clock, case), clock)
        with contextlib.chdir(folder):
            pair.supply()
            pair.take()
            try:
                for _ in range(12):
                    for _ in range(pair.chance.choice([0, 1, 1, 2])):
                        pair.chance.choice(EXPORTER_STEPS)(pair)
                    pair.chance.choice(IMPORTER_STEPS)(pair)
            except AssertionError as error:
                error.add_note(f"{clock} {case}:\n" + "\n".join(pair.log))
                raise
        shutil.rmtree(folder)
