"""`dd branch`: random histories of main and a branch, which may die at any file operation, judged by plain sums; and what merges refuse."""

import json
import shutil
from collections import Counter
from contextlib import contextmanager, suppress
from unittest import mock
from unittest.mock import Mock

import pytest

from ddcli.commands import branch
from ddcli.commands.branch import begin, branches, drop, merge
from ddcli.driver.run import run
from ddcli.errors import UsageError
from ddcli.spec.file import branch_file
from ddcli.store.files import lock
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import take_lock
from ddcli.store.state.directory import read_holds
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import compact_state, verify
from tests.draws import chance, many
from tests.harness import contents, files
from tests.meanwhile import meanwhile
from tests.store.support import Dead, Faulty

TEXT = """\
name: shop
inputs:
  sales: {path: sales/, format: append, columns: {person: int64, amount: int64}}
  people: {path: people/, format: upsert, key: [person], columns: {person: int64, city: string}}
collections:
  spent:
    from: sales
    apply:
      - filter: amount >= 2
      - join: {with: people, on: [person]}
      - reduce: {by: [city], amount: sum(amount), sales: count(*)}
outputs:
  spent: out/
  large: {from: sales, path: large/}
"""
HEADERS = {"sales": "person,amount", "people": "person,city"}
MAIN, BRANCH = range(4), range(4, 8)
"""The people whose city either side changes: keys that both change are conflicts."""


@contextmanager
def dying(at):
    """Have the process die at its file operation of this number; yield the record of all operations."""
    record = Faulty(at)
    with mock.patch.object(Files, "do", lambda _, *given: Files_do(record, *given)):
        yield record


whole = Files.do


def Files_do(record, operation, path, action):  # noqa: N802 - stands for the method
    if record.dead:
        raise Dead
    record.log.append((operation, path))
    if len(record.log) - 1 == record.at:
        record.dead = True
        raise Dead
    return whole(record, operation, path, action)


def meant(least, sales, people):
    """Return the records of both outputs by the rows of the files that count, in the order in which they were read."""
    city = dict(row for rows in people for row in rows)
    groups = {}
    for person, amount in (row for rows in sales for row in rows):
        if amount >= least and person in city:
            total, count = groups.get(city[person], (0, 0))
            groups[city[person]] = total + amount, count + 1
    spent = {(name, *group): 1 for name, group in groups.items()}
    return spent, dict(Counter(row for rows in sales for row in rows))


def merge_or_drop(pipeline):
    """Merge the branch, or drop what is left of it where a merge has died while it dropped it."""
    try:
        assert merge("q4", pipeline)[1] == []
    except UsageError:
        with suppress(UsageError):  # nothing is left
            drop("q4", pipeline)


class History:
    """A pipeline in a folder, and a branch of it: what each side has read, by file, in its order."""

    def __init__(self, folder, draw, place=None):
        self.folder, self.draw, self.place = folder, draw, place or folder
        self.pipeline, self.state = folder / "shop.yaml", self.place / ".dd/shop"
        self.text = TEXT
        if place is not None:
            self.text = TEXT.replace(" out/", f" {place}/out/").replace(" large/", f" {place}/large/")
            self.text = self.text.replace("inputs:", f"state: {self.state}\ninputs:")
        self.pipeline.write_text(self.text)
        self.rows = {}
        """The rows of each file in the inputs or beside them."""
        self.read = {"main": [], "branch": []}
        self.gone = {"main": set(), "branch": set()}
        self.least = {"main": 2, "branch": 2}
        self.number = 0
        self.beside = []

    def file(self, keys, where=""):
        """Write a file of an input, or beside it; return its input and its path."""
        name = self.draw.choice(sorted(HEADERS))
        self.number += 1
        path = self.folder / (where or name) / f"{self.number}.csv"
        path.parent.mkdir(exist_ok=True)
        if name == "sales":
            rows = [(self.draw.randrange(8), self.draw.randrange(5)) for _ in range(4)]
        else:
            rows = [(key, self.draw.choice("ab")) for key in self.draw.sample(keys, 2)]
        path.write_text(HEADERS[name] + "".join(f"\n{a},{b}" for a, b in rows) + "\n")
        self.rows[path] = name, rows
        return name, path

    def maybe_dying(self, action, tries=1):
        """Do what may die once, and then do it again."""
        for _ in range(tries):
            try:
                with dying(self.draw.randrange(60)):
                    return action()
            except Dead:
                continue
        return action()

    def runs(self, side, **options):
        """Run a side; it reads the files in the inputs that are new to it."""
        pipeline = self.pipeline if side == "main" else branch_file(self.pipeline, "q4")
        added = [path for _, path in options.get("added", ())]
        if side == "branch" and self.draw.random() < 0.4:
            with meanwhile(self.upkeep, self.draw.randrange(1, 40)):
                run(pipeline, **options)
        else:
            self.maybe_dying(lambda: run(pipeline, **options))
        seen = {path for path in self.rows if path.parent != self.folder / "beside"}
        self.read[side] += sorted(seen - {*self.read[side]}, key=str) + added
        self.gone[side] |= {*options.get("withdraw", ())}
        self.check(side)

    def upkeep(self):
        """Have main do what changes its files, and not what it holds: the branch may be in the middle of a run."""
        kind = self.draw.choice(["compact", "refresh", "run"])
        if kind == "compact":
            compact_state(self.state)
        elif kind == "refresh":
            run(self.pipeline, refresh=frozenset())
        else:
            run(self.pipeline)
        seen = {path for path in self.rows if path.parent != self.folder / "beside"}
        if kind != "compact":
            self.read["main"] += sorted(seen - {*self.read["main"]}, key=str)

    def check(self, side):
        left = [self.rows[path] for path in self.read[side] if path not in self.gone[side]]
        found = [contents(self.place / f"{name}{'@q4' * (side == 'branch')}") for name in ("out", "large")]
        parts = ([rows for name, rows in left if name == wanted] for wanted in HEADERS)
        assert found == [*meant(self.least[side], *parts)], side

    def step(self):
        """Do something to main or to the branch."""
        kind = self.draw.choice(["file", "main", "branch", "with", "without", "retract", "edit", "upkeep"])
        known = [path for path in self.read["branch"] if self.rows[path][0] == "sales" and path not in self.beside]
        if kind == "file":
            self.file(MAIN)
        elif kind in ("main", "branch"):
            self.runs(kind)
        elif kind == "with":
            name, path = self.file(BRANCH, "beside")
            self.beside.append(path)
            self.runs("branch", added=[(name, path)], joint=True)
        elif kind in ("without", "retract"):
            side = "branch" if kind == "without" else "main"
            found = [
                path
                for path in known
                if path in self.read["main"] and path not in self.gone["main"] | self.gone["branch"]
            ]
            if found:
                self.runs(side, withdraw=[self.draw.choice(found)], joint=side == "branch")
        elif kind == "edit":
            self.least["branch"] = self.draw.randrange(1, 4)
            branch_file(self.pipeline, "q4").write_text(self.text.replace(">= 2", f">= {self.least['branch']}"))
            self.runs("branch", apply=True)
        else:
            self.upkeep()

    def merge(self):
        """Merge the branch: main is what one run over the files of both would have made of it."""
        before = read_newest(self.state).number
        self.maybe_dying(lambda: merge_or_drop(self.pipeline), tries=2)
        seen = {path for path in self.rows if path.parent != self.folder / "beside"}
        self.read["main"] += sorted(seen - {*self.read["main"]}, key=str)
        self.read["main"] += [path for path in self.beside if path not in self.gone["branch"]]
        self.gone["main"] |= self.gone["branch"]
        self.least["main"] = self.least["branch"]
        self.check("main")
        assert read_newest(self.state).number >= before
        assert branches(self.pipeline) == []
        assert read_holds(self.state) == ()
        assert verify(self.state)[2] == []
        assert not branch_file(self.pipeline, "q4").exists()
        for name in ("out@q4", "large@q4"):
            place = self.place / name
            assert list(place.below() if self.place != self.folder else place.rglob("*")) == []
        self.runs("main")


@pytest.mark.parametrize("case", range(many(12)))
def test_a_merge_equals_a_run_over_the_union(tmp_path, case):
    merged(History(tmp_path, chance("branch", case)))


def merged(history, steps=8):
    """Begin a branch, have both sides do things, and merge it."""
    for name in HEADERS:
        (history.folder / name).mkdir()
    for _ in range(3):
        history.file(MAIN)
    history.runs("main")
    history.maybe_dying(lambda: branches(history.pipeline) or begin("q4", history.pipeline))
    history.read["branch"] = [*history.read["main"]]
    for _ in range(steps):
        history.step()
    history.runs("branch")
    history.check("main")
    history.merge()


@pytest.fixture
def branched(shop):
    """Return a folder with the pipeline, run once, and a branch."""
    shop.write("shop.yaml", TEXT)
    shop.write("sales/1.csv", "person,amount\n1,5\n2,7\n")
    shop.write("sales/2.csv", "person,amount\n1,1\n2,2\n")
    shop.write("people/1.csv", "person,city\n1,a\n2,b\n")
    for call in (("run",), ("branch", "new", "q4")):
        done = shop(*call, "shop.yaml")
        assert done.code == 0, done.err
    return shop


def test_a_branch_is_seen_by_all_commands_and_touches_nothing_of_main(branched):
    shop = branched
    own = [shop.folder / name for name in ("out", "large", ".dd/shop/arrangements", ".dd/shop/manifest", "shop.yaml")]
    before = files(*own)
    shop.write("fix.csv", "person,amount\n2,100\n")
    assert shop("run", "shop.yaml", "--branch", "q4", "--with", "sales+=fix.csv", "--without", "sales/2.csv").code == 0
    shop.write("shop@q4.yaml", TEXT.replace(">= 2", ">= 6"))
    assert shop("run", "shop@q4.yaml", "--apply").code == 0
    assert files(*own) == before
    expected = {("b", 107, 2): 1}
    assert contents(shop.folder / "out@q4") == expected
    assert (
        shop("sql", "select * from spent", "--from", "shop.yaml", "--branch", "q4", "-o", "csv").out
        == "city,amount,sales\nb,107,2\n"
    )
    assert shop("verify", "shop@q4.yaml", "--all").code == 0
    assert shop("state", "verify", "shop@q4.yaml").code == 0
    for command in ("inputs", "explain", "plan", "lineage", "checks", "check"):
        assert shop(command, "shop@q4.yaml").code == 0, command
    assert "fix.csv" in shop("inputs", "shop@q4.yaml").out
    assert "out@q4" in shop("explain", "shop@q4.yaml").out
    assert "fix.csv" in shop("why", "shop@q4.yaml", "spent", "city=b").out
    compared = shop("diff", "shop.yaml@main", "shop.yaml@q4", "--key", "spent=city", "--select", "spent", "-o", "json")
    rows = json.loads(compared.out)["outputs"]["spent"]["rows"]
    assert (compared.code, rows) == (1, {"same": 0, "removed": 1, "changed": 1, "added": 0})
    (listed,) = json.loads(shop("branch", "ls", "shop.yaml", "-o", "json").out)
    assert (listed["added"], listed["withdrawn"], listed["edited"]) == (
        {"sales": ["fix.csv"]},
        {"sales": ["2.csv"]},
        True,
    )
    assert shop("branch", "drop", "q4", "shop.yaml").code == 0
    assert (files(*own), (shop.folder / "shop@q4.yaml").exists()) == (before, True)
    gone = shop("run", "shop.yaml", "--branch", "q5")
    assert (gone.code, gone.err.splitlines()[0]) == (2, "shop.yaml: error: there is no branch 'q5'")
    assert shop("branch", "ls", "shop.yaml").err == "no branches; `dd branch new NAME shop.yaml` begins one\n"
    assert shop("branch", "drop", "q4", "shop.yaml").code == 2


def test_conflicts_are_listed_by_row_and_nothing_is_written(branched):
    shop = branched
    shop.write("fix.csv", "person,city\n1,c\n3,c\n4,c\n")
    shop.write("more.csv", "person,amount\n1,9\n")
    added = ("--with", "people+=fix.csv", "--with", "sales+=more.csv")
    assert shop("run", "shop.yaml", "--branch", "q4", *added, "--without", "sales/1.csv").code == 0
    shop.write("shop@q4.yaml", TEXT.replace(">= 2", ">= 6"))
    shop.write("shop.yaml", TEXT.replace(">= 2", ">= 3"))
    shop.write("people/2.csv", "person,city\n3,d\n5,d\n")
    shop.write("sales/more.csv", "person,amount\n1,9\n")
    assert shop("run", "shop.yaml", "--apply").code == 0
    shop.write("people/3.csv", "person,city\n4,e\n")  # main has not read it yet
    before = files(shop.folder)
    merged = shop("branch", "merge", "q4", "shop.yaml", "-o", "json")
    assert (merged.code, files(shop.folder)) == (1, before)
    assert json.loads(merged.out)["conflicts"] == [
        {"what": "shop.yaml", "main": "edited", "branch": "edited"},
        {"what": "sales: more.csv", "main": "read as more.csv", "branch": "added from more.csv"},
        {"what": "people: person=3", "main": "2.csv: city=d", "branch": "fix.csv: city=c"},
        {"what": "people: person=4", "main": "3.csv: city=e", "branch": "fix.csv: city=c"},
    ]


@pytest.mark.parametrize("form", ["upsert, key: [person]", "snapshots"])
def test_added_files_that_main_would_read_in_another_order_are_a_conflict(shop, form):
    """The branch reads them one after the other, and main in one run, by their names."""
    text = f"name: p\ninputs: {{people: {{path: people/, format: {form}, columns: {{person: int64, city: string}}}}}}\noutputs: {{people: out/}}\n"
    shop.write("p.yaml", text)
    for name, city in (("people/m.csv", "a"), ("z.csv", "b"), ("a.csv", "c"), ("zz.csv", "c")):
        shop.write(name, f"person,city\n1,{city}\n2,{city}{name}\n")
    for call in ("run p.yaml", "branch new q p.yaml", *(f"run p@q.yaml --with people+={name}.csv" for name in "za")):
        assert shop(*call.split()).code == 0
    expected = contents(shop.folder / "out@q")
    merged = shop("branch", "merge", "q", "p.yaml", "-o", "json")
    found = [tuple(each.values()) for each in json.loads(merged.out)["conflicts"]]
    rows = [
        (f"people: person={key}", f"z.csv: city=b{'z.csv' * at}", f"a.csv: city=c{'a.csv' * at}")
        for at, key in enumerate((1, 2))
    ]
    assert (merged.code, found) == (1, rows if "key" in form else [("people: the newest snapshot", "z.csv", "a.csv")])
    assert shop("run", "p@q.yaml", "--without", "a.csv", "--with", "people+=zz.csv").code == 0
    assert shop("branch", "merge", "q", "p.yaml").code == 0
    assert contents(shop.folder / "out") == {(1, "c"): 1, (2, "czz.csv"): 1} != expected


def test_a_merge_and_a_run_of_the_branch_come_one_after_the_other(branched, monkeypatch):
    """Else the run's changes would be dropped with the branch. A merge that is refused has done nothing; one that waits takes in what the run has changed."""
    shop, base = branched, branched.folder
    shop.write("fix.csv", "person,amount\n2,100\n")
    shop.write("shop@q4.yaml", TEXT.replace(">= 2", ">= 6"))
    (directory,) = (base / ".dd/shop/branches").iterdir()
    own = [base / name for name in ("out", ".dd/shop/manifest", "shop.yaml")]
    before, held = files(*own), take_lock(directory, Files())
    refused = shop("branch", "merge", "q4", "shop.yaml")
    assert (refused.code, "--if-locked wait" in refused.err, files(*own)) == (75, True, before)

    def waits(_seconds):
        held.release()
        assert shop("run", "shop@q4.yaml", "--apply", "--with", "sales+=fix.csv").code == 0

    def runs(*given, **options):
        assert shop("run", "shop@q4.yaml", "--without", "fix.csv").code == 75
        return run(*given, **options)

    monkeypatch.setattr(lock, "time", Mock(sleep=waits))
    monkeypatch.setattr(branch, "run", runs)
    assert shop("branch", "merge", "q4", "shop.yaml", "--if-locked", "wait").code == 0
    assert contents(base / "out") == {("b", 107, 2): 1}
    assert not directory.exists()


def test_a_merge_that_is_refused_as_main_has_run_meanwhile_leaves_main_as_it_is(branched, monkeypatch):
    shop = branched
    shop.write("fix.csv", "person,city\n1,c\n")
    shop.write("shop@q4.yaml", TEXT.replace(">= 2", ">= 6"))
    assert shop("run", "shop@q4.yaml", "--apply", "--with", "people+=fix.csv").code == 0

    def runs(*given, **options):
        edited = (shop.folder / "shop.yaml").read_text()
        shop.write("shop.yaml", TEXT)  # as the other run had read it
        shop.write("people/2.csv", "person,city\n1,d\n")
        assert shop("run", "shop.yaml").code == 0
        shop.write("shop.yaml", edited)
        return run(*given, **options)

    monkeypatch.setattr(branch, "run", runs)
    merged = shop("branch", "merge", "q4", "shop.yaml")
    assert (merged.code, "conflict with the branch: people: person=1" in merged.err) == (4, True)
    assert (shop.folder / "shop.yaml").read_text() == TEXT
    assert contents(shop.folder / "out") == {("d", 5, 1): 1, ("b", 9, 2): 1}


@pytest.mark.parametrize("end", ["merge", "drop"])
def test_a_renamed_output_leaves_nothing_of_the_branch(branched, end):
    shop, base = branched, branched.folder
    shop.write(
        "shop@q4.yaml",
        TEXT.replace("  spent:\n    from", "  paid:\n    from").replace("  spent: out/", "  paid: paid/"),
    )
    assert shop("run", "shop.yaml", "--branch", "q4", "--apply").code == 0
    assert {path.name for path in base.glob("*@q4")} == {"out@q4", "paid@q4", "large@q4"}
    before = contents(base / "out")
    assert shop("branch", end, "q4", "shop.yaml").code == 0
    assert not files(*base.glob("*@q4"))
    assert contents(base / ("paid" if end == "merge" else "out")) == before


def test_a_merge_is_one_commit_at_whatever_operation_it_dies(branched):
    """An edit, a file more and a file less: main has all of it or nothing, and the merge, repeated, does the rest."""
    shop, base = branched, branched.folder
    shop.write("fix.csv", "person,amount\n2,100\n")
    assert shop("run", "shop.yaml", "--branch", "q4", "--with", "sales+=fix.csv", "--without", "sales/2.csv").code == 0
    shop.write("shop@q4.yaml", TEXT.replace(">= 2", ">= 6"))
    before, after = {("a", 5, 1): 1, ("b", 9, 2): 1}, {("b", 107, 2): 1}
    numbers = {"large": [{(1, 5): 1, (2, 7): 1, (1, 1): 1, (2, 2): 1}, {(1, 5): 1, (2, 7): 1, (2, 100): 1}]}
    kept = base.parent / f"{base.name}-kept"
    shutil.copytree(base, kept)

    def again():
        for path in base.iterdir():  # the folder stays: commands run there
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(kept, base, dirs_exist_ok=True)

    with dying(None) as record:
        merge("q4", base / "shop.yaml")
    seen = set()
    changes = [at for at, (operation, _) in enumerate(record.log) if operation != "sync"]
    draw = chance("deaths of a merge")
    for at in {*draw.sample(changes, min(len(changes), many(40))), changes[0], changes[-1]}:
        again()
        with dying(at), pytest.raises(Dead):
            merge("q4", base / "shop.yaml")
        state = base / ".dd/shop"
        committed = read_newest(state).number > 1
        seen.add(committed)
        merge_or_drop(base / "shop.yaml")
        assert contents(base / "out") == after, at
        assert contents(base / "large") == numbers["large"][1], at
        assert verify(state)[2] == []
    assert seen == {False, True}
    again()
    assert contents(base / "out") == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            TEXT.replace("path: sales/,", "path: sales/, consumed: forget,"),
            "its files may be gone once main has read them",
        ),
        (TEXT.replace(">= 2", ">= 3"), "the pipeline has changed since its state was made"),
    ],
)
def test_what_a_branch_can_not_follow_is_refused(branched, text, problem):
    branched.write("shop.yaml", text)
    before = files(branched.folder)
    refused = branched("branch", "new", "other", "shop.yaml")
    assert (refused.code > 0, problem in refused.err, files(branched.folder)) == (True, True, before), refused.err


def test_what_main_refuses_while_there_is_a_branch(branched):
    for call in (
        ("forget", "shop.yaml", "--input", "sales", "--where", "person = 1"),
        ("forget", "shop@q4.yaml", "--input", "sales", "--where", "person = 1"),
        ("reset", "shop.yaml", "--yes"),
        ("state", "release", "shop.yaml", "--reader", "branch.q4"),
        ("run", "shop.yaml", "--with", "sales+=sales/1.csv"),
        ("branch", "new", "q4", "shop.yaml"),
        ("branch", "new", "q5", "shop@q4.yaml"),
        ("branch", "new", "main", "shop.yaml"),
    ):
        refused = branched(*call)
        assert (refused.code > 0, "branch" in refused.err) == (True, True), call
    assert branched("branch", "drop", "q4", "shop.yaml").code == 0
    assert branched("forget", "shop.yaml", "--input", "sales", "--where", "person = 1").code == 0
