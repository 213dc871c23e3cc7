"""Random edits against a state while main runs, retracts, compacts, forgets, edits its file and computes all anew, before and during a comparison: judged by plain sums."""

import json
from collections import Counter

import pytest

from ddcli.driver.forget import forget
from ddcli.driver.run import run
from ddcli.store.files.access import locate
from ddcli.store.state.upkeep import compact_state
from tests.draws import chance, many, some
from tests.meanwhile import meanwhile

TEXT = """\
name: shop
STATEinputs:
  sales: {path: sales/, format: append, columns: {person: int64, amount: int64}}
  people: {path: people/, format: upsert, key: [person], columns: {person: int64, city: string}}
collections:
  spent:
    from: sales
    apply:
      - filter: amount >= LEAST
      - join: {with: people, on: [person]}
      - reduce: {by: [city], amount: HOW(amount), sales: count(*)}
      - filter: sales >= COUNT
outputs:
  spent: OUT/spent/
  large: {from: sales, path: OUT/large/}
"""
NAMES = {"spent": ("city", "amount", "sales"), "large": ("person", "amount")}


class Pipeline:
    """A pipeline in a folder, its state in a place of its own, and the rows that main has read."""

    def __init__(self, folder, draw, place=""):
        self.folder, self.draw, self.place = folder, draw, place
        self.sales, self.people, self.number = {}, {}, 0
        self.settings = 2, "sum", 1
        self.pipeline = folder / "shop.yaml"
        self.pipeline.write_text(self.text(self.settings))
        self.state = locate(folder, f"{place}state")
        for _ in range(3):
            self.supply()
        run(self.pipeline)

    def text(self, settings):
        values = dict(zip(("LEAST", "HOW", "COUNT"), map(str, settings), strict=True))
        values |= {"OUT": f"{self.place}out", "STATE": f"state: {self.place}state\n"}
        text = TEXT
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    def drawn(self):
        return self.draw.randrange(5), self.draw.choice(["sum", "max"]), self.draw.randrange(3)

    def supply(self):
        self.number += 1
        for name, rows, last in (("sales", self.sales, lambda: self.draw.randrange(9)), ("people", self.people, None)):
            keys = range(4) if last is None else self.draw.choices(range(4), k=4)
            path = self.folder / name / f"{self.number}.csv"
            rows[path] = [(key, self.draw.choice("ab") if last is None else last()) for key in keys]
            self.write(path, rows[path])

    def write(self, path, rows):
        path.parent.mkdir(exist_ok=True)
        header = "person,amount" if path.parent.name == "sales" else "person,city"
        path.write_text(header + "".join(f"\n{a},{b}" for a, b in rows) + "\n")

    def act(self, kinds=("run", "retract", "compact", "refresh", "edit", "forget")):
        """Do something that changes main's state, or moves its files."""
        kind = self.draw.choice(kinds)
        if kind == "run":
            self.supply()
            run(self.pipeline)
        elif kind == "retract" and len(self.sales) > 1:
            path = self.draw.choice(sorted(self.sales))
            run(self.pipeline, withdraw=[path], strict=True)
            del self.sales[path]
            path.unlink()
        elif kind == "compact":
            compact_state(self.state)
        elif kind == "refresh":
            run(self.pipeline, refresh=frozenset(), apply=True)
        elif kind == "edit":
            self.settings = self.drawn()
            self.pipeline.write_text(self.text(self.settings))
            run(self.pipeline, apply=True)
        elif kind == "forget":
            person = self.draw.randrange(4)
            forget(self.pipeline, f"person = {person}", ["sales"])
            for path, rows in self.sales.items():
                rows[:] = [row for row in rows if row[0] != person]
                self.write(path, rows)
            forget(self.pipeline, f"person = {person}", ["sales"])

    def meant(self, settings):
        """Return the records of both outputs under some settings of the file."""
        least, how, fewest = settings
        city = dict(row for path in sorted(self.people, key=lambda path: int(path.stem)) for row in self.people[path])
        groups = {}
        for person, amount in (row for rows in self.sales.values() for row in rows):
            if amount >= least and person in city:
                groups.setdefault(city[person], []).append(amount)
        of = {"sum": sum, "max": max}[how]
        spent = Counter((name, of(each), len(each)) for name, each in groups.items() if len(each) >= fewest)
        return {"spent": spent, "large": Counter(row for rows in self.sales.values() for row in rows)}

    def effect(self, settings):
        """Return the records that the file of some settings removes from each output of main, or adds."""
        before, after = self.meant(self.settings), self.meant(settings)
        return {name: (before[name] - after[name], after[name] - before[name]) for name in before}


def shown(tree):
    """Return the records that a comparison shows, in the form of `Pipeline.effect`."""
    found = {name: (Counter(), Counter()) for name in tree["outputs"]}
    for name, each in tree["outputs"].items():
        for change in each["changes"]:
            record = tuple(change["row"][column] for column in NAMES[name])
            found[name][change["change"] == "added"][record] += change["count"]
    return found


MEANWHILE = ("run", "retract", "compact", "refresh", "edit", "forget")


def history(shop, draw, place="", rounds=4, kinds=MEANWHILE, reads=None):
    """Compare edits with a state, while main does something before each comparison and during it, after a number of reads."""
    for name in ("prod", "co"):
        (shop.folder / name).mkdir()
    main = Pipeline(shop.folder / "prod", draw, place)
    for _ in range(rounds):
        main.act()
        settings = main.drawn()
        (shop.folder / "co/shop.yaml").write_text(main.text(settings))
        expected = [main.effect(settings)]
        with meanwhile(lambda: main.act(kinds), reads or draw.randrange(2, 60)):
            result = shop("diff", "--against", str(main.state), "co/shop.yaml", "-o", "json", "--limit", "1000")
        expected.append(main.effect(settings))
        assert result.code in (0, 1), result.err
        tree = json.loads(result.out)
        assert shown(tree) in expected, (settings, main.settings)
        assert tree["same"] == (result.code == 0)


@pytest.mark.parametrize("number", range(many(4)))
def test_the_effect_of_an_edit_is_the_difference_of_two_fresh_states(shop, number):
    history(shop, chance("against", number))


@pytest.mark.parametrize("reads", [*some(range(2, 10))])
def test_rows_are_forgotten_while_outputs_are_compared(shop, reads):
    """The logs are rewritten under their names: those of one commit and arrangements of another would be no effect of the edit."""
    history(shop, chance("forgotten", reads), rounds=1, kinds=("forget",), reads=reads)
