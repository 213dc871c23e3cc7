"""Checks of random pipelines, judged by plain Python over the collections after each run: what is visible, what is put aside, and what each check counts."""

import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.errors import CheckError, CheckErrors
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.harness import contents, files, write_log
from tests.judge.sizes import cut
from tests.judge.test_arrival import die
from tests.spark.support import Here, started

ORDERS, PEOPLE = ("id", "person", "amount", "status"), ("pid", "city")
KEPT = ("fail", "warn", "quarantine")
NEWEST = "max(case when amount > 2 then timestamp '9999-01-01' else timestamp '2000-01-01' end)"
"""A time that is fresh if a row has an amount above 2, whatever the time is."""


class Rows:
    """Conditions of single rows, each in the file's words and in Python: whether a row violates it."""

    def __init__(self, people):
        self.people = people

    def not_null(self, columns):
        return lambda row: any(row[ORDERS.index(column)] is None for column in columns)

    def row(self, condition):
        at = {
            "amount >= 0 and amount < 4": lambda row: row[2] is not None and not 0 <= row[2] < 4,
            "id <> person": lambda row: row[1] is not None and row[0] == row[1],
            "status = 'open' or amount > 1": lambda row: (
                row[3] is not None and row[3] != "open" and row[2] is not None and row[2] <= 1
            ),
        }
        return at[condition]

    def in_(self, columns):
        ((column, values),) = columns.items()
        return lambda row: row[ORDERS.index(column)] is not None and row[ORDERS.index(column)] not in values

    def refers(self, columns):
        known = {pid for pid, _ in self.people}
        assert list(columns) == ["person"]
        return lambda row: row[1] is not None and row[1] not in known


@st.composite
def a_check(draw):
    """Give a check as a file has it."""
    kind = draw(st.sampled_from(["unique", "not_null", "row", "in", "refers", "sql", "change", "fresh"]))
    given = {
        "unique": st.sampled_from([["id"], ["person"], ["person", "status"]]),
        "not_null": st.sampled_from([["amount"], ["person", "status"]]),
        "row": st.sampled_from(["amount >= 0 and amount < 4", "id <> person", "status = 'open' or amount > 1"]),
        "in": st.sampled_from([{"status": ["open", "paid"]}, {"amount": [0, 1, 2, 3]}]),
        "refers": st.just({"person": "people.pid"}),
        "sql": st.just("select status, count(*) as n from orders group by status having count(*) > 3"),
        "change": st.sampled_from(
            [{"rows": [-2, 3]}, {"sum(amount)": ["-50%", "100%"]}, {"rows": "80%"}, {"removed": 1}, {"removed": "40%"}]
        ),
        "fresh": st.just({NEWEST: "2h"}),
    }
    single = kind in ("not_null", "row", "in", "refers")
    check = {kind: draw(given[kind]), "otherwise": draw(st.sampled_from(KEPT if single else KEPT[:2]))}
    if kind != "sql":
        check["of"] = draw(st.sampled_from(["orders", "open"])) if check["otherwise"] != "quarantine" else "orders"
    return check


@st.composite
def histories(draw):
    """Give the updates of some runs: orders and people, some of which are taken back later."""
    order = st.tuples(
        st.integers(0, 5),
        st.sampled_from([None, 0, 1, 2]),
        st.sampled_from([None, -1, 0, 1, 3, 5]),
        st.sampled_from([None, "open", "open", "paid", "lost"]),
    )
    steps, there = [], []
    for _ in range(draw(st.integers(1, 4))):
        gone = draw(st.lists(st.sampled_from(there), max_size=2, unique=True)) if there else []
        new = draw(st.lists(order, max_size=4))
        there = [row for row in dict.fromkeys([*there, *new]) if row not in gone or row in new]
        people = draw(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["Rome", "Oslo"])), min_size=1, max_size=2))
        steps.append((new, gone, people))
    return steps


@st.composite
def edits(draw):
    """Give the edits of a list of checks before each run: a check comes or goes, is another under its name, or gets another name."""
    edit = st.tuples(
        st.sampled_from(["add", "remove", "change", "rename", "limit"]),
        st.integers(0, 3),
        a_check(),
    )
    return draw(st.lists(st.none() | st.lists(edit, min_size=1, max_size=2), min_size=4, max_size=4))


def edited(checks, edits, number):
    """Return the checks after some edits; one keeps its kind and measures where only its limit or consequence changes."""
    found = [*checks]
    for at, (word, place, new) in enumerate(edits):
        name = {"name": f"new {number} {at}"}
        if word == "add" or not found:
            found.append({**new, **name})
            continue
        place %= len(found)
        old = found[place]
        if word == "remove":
            del found[place]
        elif word == "change":
            found[place] = {**new, "name": old["name"]}
        elif word == "rename":
            found[place] = {**old, **name}
        elif "change" in old:
            ((measure, bound),) = old["change"].items()
            found[place] = {**old, "change": {measure: 1 if measure == "removed" else "50%" if bound != "50%" else 2}}
        elif old["otherwise"] != "quarantine":
            found[place] = {**old, "otherwise": "warn" if old["otherwise"] == "fail" else "fail"}
    return found


COMMANDS = st.lists(
    st.none() | st.just("refresh") | st.tuples(st.sampled_from(["orders", "people"]), st.integers(0, 3), st.booleans()),
    min_size=4,
    max_size=4,
)
"""For each run whether it is a full refresh, or withdraws a file of an input, which is removed afterwards or stays."""


def judged(check, orders, people, before):
    """Return the violations of a check as a multiset, or whether its measure is out of range, by its definition; `before` are the rows of the last commit."""
    kind = next(name for name in check if name not in ("otherwise", "of", "name"))
    rows, given = rows_of(check, orders), check[kind]
    if kind == "unique":
        groups = Counter()
        for row, n in rows.items():
            key = tuple(row[ORDERS.index(column)] for column in given)
            if None not in key:
                groups[key] += n
        return Counter({(*key, n): 1 for key, n in groups.items() if n > 1})
    if kind == "sql":
        groups = Counter()
        for row, n in rows.items():
            groups[row[3]] += n
        return Counter({(status, n): 1 for status, n in groups.items() if n > 3})
    if kind == "fresh":
        return not any((row[2] or 0) > 2 for row in +rows)
    if kind == "change":
        ((name, bound),) = given.items()
        return before is not None and out_of_range(name, bound, rows, rows_of(check, before))
    if kind == "refers" and check["otherwise"] != "quarantine":
        groups, known = Counter(), {pid for pid, _ in people}
        for row, n in rows.items():
            groups[row[1]] += n
        return Counter({(key, n): 1 for key, n in groups.items() if key is not None and key not in known})
    bad = getattr(Rows(people), kind + "_" * (kind == "in"))(given)
    return Counter({row: n for row, n in rows.items() if bad(row)})


def rows_of(check, orders):
    """Return the rows of the collection that a check is of."""
    return Counter({row: n for row, n in orders.items() if check.get("of") != "open" or row[3] == "open"})


def out_of_range(name, bound, rows, before):
    """Return whether a measure changed by too much."""
    if name == "removed":
        part = isinstance(bound, str)
        most = float(bound.rstrip("%")) / 100 * before.total() if part else bound
        return (before - rows).total() > most
    old, new = (
        held.total() if name == "rows" else sum((row[2] or 0) * n for row, n in held.items()) for held in (before, rows)
    )
    ends = bound if isinstance(bound, list) else [f"-{bound}", bound]
    least, most = (float(end.rstrip("%")) / 100 * abs(old) if isinstance(end, str) else end for end in ends)
    return not least <= new - old <= most


TWICE = {
    "checks": [{"change": {"removed": 1}, "otherwise": "fail", "of": "open"}],
    "steps": [([(4, 2, 5, "open"), (4, 2, 5, "open")], [], [(0, "Rome")]), ([], [(4, 2, 5, "open")], [(0, "Oslo")])],
    "chance": None,
    "deaths": [None] * 4,
    "arrives": False,
    "changes": [None] * 4,
    "commands": [None] * 4,
}
"""A row that is there twice is removed twice, by one update."""
STOPPED = {
    "checks": [{"unique": ["id"], "otherwise": "fail", "of": "orders"}],
    "steps": [([(4, 2, 5, "open")], [], [(0, "Rome")]), ([(4, 2, 5, "open")], [], [(0, "Oslo")])],
    "chance": None,
    "deaths": [None] * 4,
    "changes": [None] * 4,
    "commands": [None, "refresh", None, None],
}
"""A refresh that a check stops after its first part, which tasks have computed: the commit before stays, with its files."""
TYPES = {
    "orders": {"id": int, "person": int, "amount": int, "status": str},
    "people": {"pid": int, "city": str},
}


@settings(
    max_examples=many(40), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    checks=st.lists(a_check(), min_size=1, max_size=4),
    steps=histories(),
    chance=st.none() | st.tuples(st.sampled_from([1, 3]), st.integers(0, 9), st.booleans()),
    seed=st.none() | st.integers(0, 9),
    deaths=st.lists(st.none() | st.integers(0, 40), min_size=4, max_size=4),
    arrives=st.booleans(),
    changes=st.just([None] * 4) | edits(),
    commands=st.just([None] * 4) | COMMANDS,
)
@example(**TWICE, seed=None)
@example(**TWICE, seed=1)
@example(**STOPPED, seed=1, arrives=False)
def test_no_violating_commit_is_visible(checks, steps, chance, seed, deaths, arrives, changes, commands):
    """Of logs of changes, or of files that are replaced where rows of theirs are gone (`arrives`); by runs, refreshes, withdrawals and edits of the checks."""
    kept = {"format": "append", "changed": "replace"} if arrives else {}
    said = {
        "inputs": {
            "orders": {
                "path": "in/orders/",
                **kept,
                "columns": {"id": "int64", "person": "int64?", "amount": "int64?", "status": "string?"},
            },
            "people": {"path": "in/people/", **kept, "columns": {"pid": "int64", "city": "string"}},
        },
        "collections": {"open": {"from": "orders", "apply": [{"filter": "status = 'open'"}]}},
        "outputs": {"orders": "out/orders/", "open": "out/open/"},
    }
    with (
        tempfile.TemporaryDirectory() as place,
        nullcontext() if chance is None else cut(*chance[:2], streams=chance[2]),
        started(Here(seed or 0)),
    ):
        shop = Shop(Path(place), said, [{**check, "name": f"check {at}"} for at, check in enumerate(checks)], arrives)
        for number, ((new, gone, arrived), change, command) in enumerate(zip(steps, changes, commands, strict=False)):
            options = {"engine": "local" if seed is None or (seed + number) % 2 else "spark"}
            withdraws = isinstance(command, tuple) and change is None and number > 0
            if change is not None:  # an edit comes alone, not with files that are withdrawn or replaced
                gone = [] if arrives else gone
                shop.checks = edited(shop.checks, change, number)
                options["apply"] = True
            if withdraws:  # under the clock of events, files that are new then are read later
                new, gone, arrived = (new, [], arrived) if arrives else ([], [], [])
            before = {name: shop.files(name) for name in TYPES}
            shop.write(number, new, gone, arrived)
            file = shop.withdrawn(before[command[0]], *command[:2]) if withdraws else None
            if file is not None:
                options["withdraw"] = [file]
            elif command == "refresh":
                options["refresh"] = frozenset()
            shop.judge(deaths[number], options)
            if file is not None and (arrives or command[2]):
                file.unlink()


class Shop:
    """A pipeline with checks, its files, and what they mean."""

    def __init__(self, folder, said, checks, arrives):
        self.folder, self.said, self.checks, self.arrives = folder, said, checks, arrives
        self.rows = {"orders": Counter(), "people": Counter()}
        self.gone = set()
        self.last, self.judged = None, []
        """The rows of the last commit, and the checks that it had."""
        self.died = False

    def write(self, number, new, gone, arrived):
        """Have files come, with the rows that are new and without those that are gone."""
        updates = Counter(new)
        updates.subtract({row: self.rows["orders"][row] for row in gone if self.rows["orders"][row]})
        for name, each in {"orders": updates, "people": Counter(arrived)}.items():
            self.rows[name].update(each)
            if number == 0 or +each or -each:
                write(self.folder / "in" / name, number, each, TYPES[name], arrives=self.arrives)

    def files(self, name):
        """Return the files of an input that can be withdrawn."""
        return [path for path in sorted((self.folder / "in" / name).glob("*.parquet")) if path not in self.gone]

    def withdrawn(self, paths, name, at):
        """Return a file that can be withdrawn, and take its rows out; None where each one has a row that another one takes back."""
        own, found = len(TYPES[name]), []
        for path in paths:
            updates = Counter()
            for row in pl.read_parquet(path).rows():
                updates[row[:own]] += row[-1] if not self.arrives else 1
            if all(self.rows[name][row] >= n for row, n in updates.items()):
                found.append((path, updates))
        if not found:
            return None
        path, updates = found[at % len(found)]
        self.rows[name].subtract(updates)
        self.gone.add(path)
        return path

    def measured_before(self, check):
        """Return the rows of the last commit for a check whose measure that commit had."""
        old = next((each for each in self.judged if each["name"] == check["name"]), None)
        same = old is not None and measure_of(old) == measure_of(check)
        return self.last if same else None

    def judge(self, death, options):
        """Run, and hold what it leaves against the definition."""
        folder = self.folder
        (folder / "p.yaml").write_text(yaml.safe_dump(self.said | {"checks": self.checks}, sort_keys=False))
        raw, people = (+self.rows[name] for name in ("orders", "people"))
        aside = [check for check in self.checks if check["otherwise"] == "quarantine"]
        wanted = {id(check): judged(check, raw, people, None) for check in aside}
        kept = Counter({row: n for row, n in raw.items() if not any(row in wanted[id(check)] for check in aside)})
        stopping, verdicts = [], {}
        for check in self.checks:
            name = check["name"].replace(" ", "_")
            if check["otherwise"] == "quarantine":
                verdicts[name] = wanted[id(check)]
                continue
            found = judged(check, kept, people, self.measured_before(check))
            if isinstance(found, Counter):
                verdicts[name] = found
            if found and check["otherwise"] == "fail":
                stopping.append(name)
        before, committed = files(folder / "out", folder / ".dd"), read_newest(folder / ".dd/p")
        reason = {"accept": stopping, "reason": "a trial"} if stopping else {}
        if stopping:
            with pytest.raises((CheckError, CheckErrors)) as caught:
                run(folder / "p.yaml", **options)
            told = getattr(caught.value, "errors", [caught.value])
            assert sorted(each.verdict["title"].replace(" ", "_") for each in told) == sorted(stopping)
            after_failure = files(folder / "out", folder / ".dd")
            # Opening a state removes the leftovers of a run that died.
            assert after_failure == {
                path: held for path, held in before.items() if not self.died or path in after_failure
            }
            assert read_newest(folder / ".dd/p") == committed
            if options.keys() == {"engine"}:  # a dry run of others does not read new files
                with pytest.raises((CheckError, CheckErrors)):
                    run(folder / "p.yaml", dry_run=True, **options)
        if death is None or not die(folder, folder / "p.yaml", None, death, **options, **reason):
            self.died = self.died or death is not None
            run(folder / "p.yaml", **options, **reason)
        manifest = read_newest(folder / ".dd/p")
        if manifest is None:  # there is no row at all
            assert not raw
            return
        assert contents(folder / "out/orders") == kept
        assert contents(folder / "out/open") == {row: n for row, n in kept.items() if row[3] == "open"}
        for name, found in verdicts.items():
            assert contents(folder / ".dd/p/logs" / name) == found, name
            assert manifest.cache["checks"][name]["violations"] == found.total()
        assert manifest.cache.get("checks", {}).keys() == {check["name"].replace(" ", "_") for check in self.checks}
        assert {each["check"] for each in manifest.cache.get("accepted", ())} >= set(stopping)
        self.last, self.judged = kept, self.checks


def measure_of(check):
    """Return what the measure of a check of a change is of."""
    return check.get("of"), [*check.get("change", ())]


def write(place, number, updates, types, *, arrives):
    """Write the updates of a run as a log, or the rows that come as a file, and earlier files without those that go."""
    if not arrives:
        rows = [(*row, number, n) for row, n in updates.items() if n]
        write_log(place / f"{number}.parquet", rows, types | {"time": int, "diff": int})
        return
    gone = Counter({row: -n for row, n in updates.items() if n < 0})
    for path in [*place.glob("*.parquet")]:
        left = []
        for row in (before := pl.read_parquet(path).rows()):
            if gone[row] > 0:
                gone[row] -= 1
            else:
                left.append(row)
        if len(left) < len(before):
            write_log(path, left, types)
    write_log(place / f"{number}.parquet", list((+updates).elements()), types)
