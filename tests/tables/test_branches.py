"""Branches and scenarios over tables: main and a branch each hold the table as their last run found it, whatever the other does and wherever one dies."""

from collections import Counter
from contextlib import suppress
from itertools import product

import pytest

from ddcli.commands.branch import begin, branches, drop, merge
from ddcli.compare.scenarios import scenarios
from ddcli.driver.run import run
from ddcli.errors import UsageError
from ddcli.spec.file import branch_file
from ddcli.store.state.directory import read_holds
from ddcli.store.state.upkeep import compact_state, verify
from tests.draws import chance, many, some
from tests.harness import contents
from tests.store.support import Dead, Faulty
from tests.tables.followers import through
from tests.tables.test_forgotten import made


def counted(rows, least):
    """Return what the reduction holds of some rows."""
    groups = {}
    for (k, v), count in rows.items():
        if least is None or (k is not None and k >= least):
            n, total, known = groups.get(v, (0, 0, 0))
            groups[v] = (n + count, total + (k or 0) * count, known + (k is not None) * count)
    return {(v, n, total if known else None): 1 for v, (n, total, known) in groups.items() if n}


class History:
    """A table, a pipeline over it and a branch of that."""

    def __init__(self, folder, kind, time, draw):
        self.folder, self.kind, self.draw = folder, kind, draw
        self.table, self.file, _ = made(folder, kind, draw, time)
        self.own = branch_file(self.file, "b")
        self.held, self.least = {}, {"": None, "@b": None}

    def now(self):
        given = {"columns": ["k", "v"]} if self.kind == "delta" else {}
        return Counter(self.table.contents(**given))

    def maybe_dying(self, action):
        """Do what may die at any file operation, and then do it again."""
        with through(Faulty(self.draw.randrange(60), after=self.draw.random() < 0.5)), suppress(Dead):
            return action()
        with through(None):
            return action()

    def runs(self, side, **options):
        self.maybe_dying(lambda: run(self.own if side else self.file, **options))
        self.held[side] = self.now()

    def check(self):
        for side, held in self.held.items():
            assert contents(self.folder / f"out/orders{side}") == held, side
            assert contents(self.folder / f"out/n{side}") == counted(held, self.least[side]), side

    def step(self):
        kind = self.draw.choice(["change", "change", "main", "branch", "edit", "compact"])
        if kind == "change":
            self.table.change()
        elif kind in ("main", "branch"):
            self.runs("@b" if kind == "branch" else "")
        elif kind == "edit" and self.least["@b"] is None:
            self.least["@b"] = 1
            self.own.write_text(self.own.read_text().replace("apply: [{", "apply: [{filter: k >= 1}, {"))
            self.runs("@b", apply=True)
        elif kind == "compact":
            compact_state(self.folder / ".dd/p")

    def merge(self):
        """Merge the branch; where that died while it dropped the branch, drop what is left."""
        with suppress(UsageError):
            assert merge("b", self.file)[1] == []
        with suppress(UsageError):
            drop("b", self.file)


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@pytest.mark.parametrize(
    ("kind", "time", "seed"), [*some(product(["delta", "iceberg", "sqlite"], [False, True], range(many(2))))]
)
def test_a_random_history(tmp_path, kind, time, seed):
    history = History(tmp_path, kind, time, chance("branches", kind, time, seed))
    while not history.now():
        history.table.change()
    history.runs("")
    history.maybe_dying(lambda: branches(history.file) or begin("b", history.file))
    history.runs("@b")  # publishes the outputs of a branch that died just after it began
    for _ in range(7):
        history.step()
        history.check()
    history.table.change()
    history.maybe_dying(history.merge)
    history.held, history.least = {"": history.now()}, {"": history.least["@b"]}
    history.check()
    state = tmp_path / ".dd/p"
    assert (branches(history.file), read_holds(state), verify(state)[2]) == ([], (), [])
    history.table.change()
    history.runs("")
    history.check()


def moved(rows):
    """Return the rows in which `v` is not null and below `c`, with a greater `k`."""
    found = Counter()
    for (k, v), count in rows.items():
        found[k if k is None or v is None or v >= "c" else k + 10, v] += count
    return found


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@pytest.mark.parametrize(("kind", "time"), [*product(["delta", "iceberg", "sqlite"], [False, True])])
def test_new_values_of_a_table_s_rows(tmp_path, kind, time):
    """The effect on outputs of a scenario is the difference of two tables; a version that no run has read yet makes none."""
    history = History(tmp_path, kind, time, chance("scenarios of tables", kind, time))
    (tmp_path / "s.yaml").write_text("s: {set: {orders: {k: k + 10, where: v < 'c'}}}\n")
    for _ in range(many(3)):
        history.table.change()
        if not history.now():
            continue
        history.runs("")
        before, after = history.held[""], moved(history.held[""])
        history.table.change()
        found = scenarios(history.file, tmp_path / "s.yaml")
        for name, old, new in (("orders", before, after), ("n", counted(before, None), counted(after, None))):
            effect = Counter(new)
            effect.subtract(old)
            rows = {tuple(row[1:-1]): row[-1] for row in found[name].rows()} if name in found else {}
            assert rows == {row: diff for row, diff in effect.items() if diff}, name
