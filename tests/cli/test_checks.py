"""Checks: a run commits nothing where one fails, reports where one warns, and leaves out the rows that one puts aside; each command that changes a state obeys."""

import contextlib
import json
import re
import shutil
import signal
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import CheckError
from ddcli.store.state.manifest import read_newest
from tests.cases import cases
from tests.cli.test_watch import Watch
from tests.draws import some
from tests.harness import contents, files
from tests.spark.support import Here, started
from tests.store.support import Dead, Faulty

COLUMNS = '{id: int64, person: int64?, amount: int64?, at: "datetime[us]?"}'
BASE = f"""\
inputs:
  orders: {{path: orders/, format: append, columns: {COLUMNS}}}
  people: {{path: people/, format: append, columns: {{pid: int64, city: string}}}}
collections:
  sums: {{from: orders, apply: [{{reduce: {{by: [person], total: sum(amount)}}}}]}}
outputs: {{orders: out/orders/, sums: out/sums/}}
checks:
"""
HEAD = "id,person,amount,at\n"


@pytest.fixture
def checked(shop):
    """Return a folder whose pipeline has the checks that the test writes, with two orders and their people."""

    def write(checks, base=BASE):
        return shop.write("p.yaml", base + "".join(f"  - {check}\n" for check in checks))

    def order(name, *rows):
        shop.write(f"orders/{name}.csv", HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows))

    shop.checks, shop.order = write, order
    shop.write("people/1.csv", "pid,city\n1,Rome\n2,Oslo\n")
    order("1", (1, 1, 10, "2024-01-01T00:00"), (2, 2, 20, "2024-01-01T01:00"))
    return shop


def left_alone(shop, *arguments):
    """Run what a check stops; return its message. Nothing is there that was not."""
    before = files(shop.folder / "out", shop.folder / ".dd")
    result = shop("run", "p.yaml", *arguments)
    assert result.code == 7, result.err
    assert files(shop.folder / "out", shop.folder / ".dd") == before
    return result.err


@cases("""
check → row → words
{unique: [id], of: orders}                       → 1,2,5,          → {id: 1, rows: 2}
{not_null: [person, amount], of: orders}         → 3,,5,           → {id: 3, person: null, amount: 5, at: null}
{row: amount < 50, of: orders}                   → 3,1,50,         → {id: 3, person: 1, amount: 50, at: null}
{in: {person: [1, 2]}, of: orders}               → 3,4,5,          → {id: 3, person: 4, amount: 5, at: null}
{refers: {person: people.pid}, of: orders}       → 3,4,5,          → {person: 4, rows: 1}
{row: total < 50, of: sums}                      → 3,2,30,         → {person: 2, total: 50}
{sql: select sum(amount) from orders having sum(amount) > 50} → 3,2,30, → 60
sql: select sum(amount) from orders having sum(amount) > 50  # rows are violations → 3,2,30, → 60
{change: {rows: 49%}, of: orders}                → 3,2,30,         → rows changed from 2 to 3 (+50.0%), outside of 49%
{change: {"sum(amount)": [-5, 20]}, of: orders}  → 3,2,30,         → sum(amount) changed from 30 to 60 (+100.0%), outside of [-5, 20]
""")
def test_a_run_that_a_check_stops(checked, check, row, words):
    checked.checks([check])
    assert checked("run", "p.yaml").code == 0
    checked.write("orders/2.csv", f"{HEAD}{row}\n")
    err = left_alone(checked)
    assert words in err
    assert "nothing is committed" in err
    assert left_alone(checked, "--dry-run") == err
    checked.write("orders/2.csv", HEAD)  # the file is read again
    assert checked("run", "p.yaml").code == 0


def test_the_first_run(checked):
    checked.checks(["{row: amount < 20, of: orders}"])
    assert "1 violation: 1 new" in left_alone(checked)
    assert not (checked.folder / ".dd/p/manifest").exists() or not [*(checked.folder / ".dd/p/manifest").iterdir()]


def test_nulls_violate_no_condition(checked):
    checked.order("2", (1, "", "", ""), (1, "", "", ""))
    checks = ["{row: amount < 50, of: orders}", "{in: {person: [1, 2]}, of: orders}"]
    checked.checks([*checks, "{refers: {person: people.pid}, of: orders}", "{unique: [person], of: orders}"])
    assert checked("run", "p.yaml").code == 0


def test_several_checks_fail(checked):
    checked.checks(
        ["{row: amount < 20, of: orders}", "{unique: [id], of: orders, otherwise: warn}", "{row: id > 1, of: orders}"]
    )
    err = left_alone(checked)
    assert [line.partition(" error: ")[2][:9] for line in err.splitlines() if " error: " in line] == [
        "checks[0]",
        "checks[2]",
    ]


def test_a_warning_commits(checked):
    checked.checks(["{row: amount < 20, of: orders, otherwise: warn}"])
    result = checked("run", "p.yaml")
    assert (result.code, "warn   orders_row_amount_20: 1 violation: 1 new" in result.err) == (0, True)
    checked.order("2", (3, 1, 30, ""), (4, 1, 40, ""))
    assert "3 violations: 2 new, 1 known" in checked("run", "p.yaml").err
    assert "checks" not in checked("run", "p.yaml").err
    log = checked("sql", "--from", "p.yaml", "select id from orders_row_amount_20 order by id", "-o", "csv")
    assert log.out.split() == ["id", "2", "3", "4"]


def test_an_accepted_violation(checked):
    checked.checks(["{name: no large ones, row: amount < 20, of: orders}"])
    assert "takes a reason" in checked("run", "p.yaml", "--accept", "no large ones").err
    assert "no check is named" in checked("run", "p.yaml", "--accept", "x", "--reason", "r").err
    assert checked("run", "p.yaml", "--accept", "no large ones", "--reason", "it is Christmas").code == 0
    result = checked("checks", "p.yaml")
    assert result.code == 7
    assert "it is Christmas" in result.out
    checked.order("2", (3, 1, 5, ""))
    told = left_alone(checked)
    assert "1 violation: 0 new, 1 known" in told  # for one commit only
    assert "{id: 2, person: 2, amount: 20, at: 2024-01-01 01:00:00}" in told


def test_acceptances_of_one_commit(checked):
    names = ["a", "b", "c", "d", "e"]
    checked.checks([f"{{name: {name}, row: amount < 20, of: orders}}" for name in names])
    accepted = [word for name in names for word in ("--accept", name)]
    assert checked("run", "p.yaml", *accepted, "--reason", "late").code == 0
    shown = [line.split()[1] for line in checked("checks", "p.yaml").out.splitlines() if line.startswith("accepted")]
    assert shown == names


def test_reports(checked):
    checked.checks(["{row: amount < 20, of: orders}", "{unique: [id], of: orders}"])
    stopped = checked("run", "p.yaml", "--summary", "s.json", "-o", "json")
    assert stopped.code == 7
    error = json.loads((checked.folder / "s.json").read_text())["error"]
    assert json.loads(stopped.out) == {"error": error}
    assert error["exit_code"] == 7
    assert [(each["title"], each["violations"], each["first"]) for each in error["checks"]] == [
        ("orders_row_amount_20", 1, ["{id: 2, person: 2, amount: 20, at: 2024-01-01 01:00:00}"])
    ]
    assert "orders_unique_id: no run has judged it" in checked("checks", "p.yaml").out
    summary = checked("run", "p.yaml", "--accept", "orders_row_amount_20", "--reason", "x", "-o", "json")
    assert json.loads(summary.out)["checks"]["orders_unique_id"]["passed"]
    assert json.loads(summary.out)["outputs"].keys() == {"orders", "sums"}
    assert checked("checks", "p.yaml", "--junit", "c.xml").code == 7
    suite = ET.parse(checked.folder / "c.xml").getroot()[0]  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    found = json.loads(checked("checks", "p.yaml", "-o", "json").out)
    assert {name: each["violations"] for name, each in found["checks"].items()} == {
        "orders_row_amount_20": 1,
        "orders_unique_id": 0,
    }


def test_a_run_writes_junit(checked):
    """Of a run that a check stops, too: its failures have the rows of files; of a dry run its own verdicts."""

    def run(*options):
        done = checked("run", "p.yaml", "--junit", "r.xml", *options)
        suite = ET.parse(checked.folder / "r.xml").getroot()[0]  # noqa: S314 - our own
        cases = {case.get("name"): [(part.tag, part.text) for part in case] for case in suite}
        return done.code, suite.get("failures"), cases

    checked.checks(
        ["{row: amount < 25, of: orders, name: small}", "{unique: [id], of: orders, name: once, otherwise: warn}"]
    )
    checked.order("2", (2, 5, 30, ""))
    code, failures, cases = run()
    assert (code, failures, cases["once"]) == (7, "1", [("skipped", None)])
    ((kind, text),) = cases["small"]
    assert kind == "failure"
    assert text.splitlines()[0].endswith(": checks[0]: 1 violation: 1 new")
    assert text.splitlines()[1:] == ["{id: 2, person: 5, amount: 30, at: null}  (orders/2.csv:2)"]
    checked.order("2", (2, 5, 3, ""), (2, 6, 3, ""))
    warned = {"small": [], "once": [("system-out", "warn   once: 1 violation: 1 new")]}
    assert run("--dry-run") == run() == (0, "0", warned)
    assert run() == (0, "0", {"small": [], "once": [("system-out", "warn   once: 1 violation")]})
    checked.order("3", (3, 5, 30, ""))
    code, failures, cases = run("--accept", "small", "--reason", "a gift")
    assert (code, failures) == (0, "0")
    ((kind, text),) = cases["small"]
    assert (kind, text.startswith("accept small: 1 violation: 1 new (accepted by "), "a gift" in text) == (
        "system-out",
        True,
        True,
    )


def test_several_pipelines_write_one_junit_file(checked):
    """A suite for each: one that passes, one that a check stops, one that is skipped for it, and one that fails by itself."""
    inputs = "inputs: {orders: {path: orders/, format: append, columns: {id: int64, amount: int64}}}\n"
    checked.checks(["{row: amount < 20, of: orders, name: small}", "{unique: [id], of: orders, name: once}"])
    checked.write("a.yaml", inputs + "outputs: {orders: out/a/}\nchecks: [{unique: [id], of: orders, name: alone}]\n")
    checked.write("q.yaml", "inputs: {orders: out/orders/}\noutputs: {copy: {path: out/copy/, from: orders}}\n")
    checked.write("z.yaml", inputs.replace("id:", "it:") + "outputs: {orders: out/z/}\n")

    def suites(file):
        return {suite.get("name"): suite for suite in ET.parse(checked.folder / file).getroot()}  # noqa: S314 - our own

    done = checked("run", ".", "--junit", "r.xml")
    assert done.code == 7
    found = suites("r.xml")
    outcomes = {
        name: [(case.get("name"), *(part.tag for part in case)) for case in suite] for name, suite in found.items()
    }
    assert outcomes == {
        "a": [("alone",)],
        "p": [("small", "failure"), ("once", "skipped")],
        "q": [("run", "skipped")],
        "z": [("run", "error")],
    }
    counts = {name: tuple(map(suite.get, ("tests", "failures", "errors", "skipped"))) for name, suite in found.items()}
    assert counts == {
        "a": ("1", "0", "0", "0"), "p": ("2", "1", "0", "1"), "q": ("1", "0", "0", "1"), "z": ("1", "0", "1", "0")
    }  # fmt: skip
    assert found["q"][0][0].get("message") == "p.yaml, which it reads from, was not brought up to date"
    assert "it" in found["z"][0][0].text

    (checked.folder / "z.yaml").unlink()
    accepted = checked("run", "p.yaml", "--accept", "small", "--reason", "x")
    assert accepted.code == 0
    several = checked("checks", ".", "--junit", "c.xml")
    assert several.code == 7
    assert several.out.splitlines()[:3] == [
        "a:", "  ok    alone", "p:"
    ]  # fmt: skip
    assert "q: no checks" in several.err
    assert [*suites("c.xml")] == ["a", "p", "q"]
    values = json.loads(checked("checks", "p.yaml", "a.yaml", "-o", "json").out)["pipelines"]
    assert values == [json.loads(checked("checks", name, "-o", "json").out) for name in ("p.yaml", "a.yaml")]
    assert checked("checks", "a.yaml", "q.yaml").code == 0
    refused = checked("checks", "a.yaml", "p.yaml", "--state", ".dd/p")
    assert (refused.code, "--state is for one pipeline" in refused.err) == (2, True)


def test_a_report_names_the_rows_that_violate_a_check(checked):
    """Those of this run and of earlier ones, as far as they make the violation."""
    checked.checks(
        [
            "{row: amount < 20, of: orders, name: small}",
            "{unique: [id], of: orders, name: once}",
            "{sql: 'select person, count(*) as n from orders group by person having count(*) > 3', name: few}",
        ]
    )
    checked.order("2", (2, 5, 20, ""), (10, 5, 1, ""))
    assert checked("run", "p.yaml", "--accept", "small", "--accept", "once", "--reason", "x").code == 0
    checked.order("3", (7, 5, 30, ""), (2, 5, 1, ""), (8, 5, 1, ""), (9, 6, 1, ""))
    done = checked("run", "p.yaml", "--summary", "s.json")
    assert done.code == 7
    assert "{id: 7, person: 5, amount: 30, at: null}  (orders/3.csv:2)\n" in done.err
    (named,) = re.findall(r"{person: 5, n: 5}  \((.*), \.\.\.\)\n", done.err)
    rows = {"orders/2.csv:2", "orders/2.csv:3", "orders/3.csv:2", "orders/3.csv:3", "orders/3.csv:4"}
    assert len(rows & {*named.split(", ")}) == 3
    found = json.loads((checked.folder / "s.json").read_text())["error"]["checks"]
    once = next(each for each in found if each["title"] == "once")
    assert set(once["rows"][0]) <= {"orders/1.csv:3", "orders/2.csv:2", "orders/3.csv:3"}
    assert "orders/3.csv:3" in once["rows"][0]


def test_no_row_is_named_where_the_inputs_are_large(checked, monkeypatch):
    monkeypatch.setattr("ddcli.provenance.explanation.LARGEST", 10)
    checked.checks(["{row: amount < 20, of: orders}"])
    done = checked("run", "p.yaml")
    assert done.code == 7
    assert "orders/1.csv" not in done.err


def test_rows_put_aside_come_back(checked):
    checked.checks(
        [
            "{refers: {person: people.pid}, of: orders, otherwise: quarantine}",
            "{row: amount > 0, of: orders, otherwise: quarantine}",
        ]
    )
    checked.order("2", (3, 7, 30, ""), (4, "", 40, ""), (5, 8, -1, ""))
    assert "aside  orders_refers_person: 2 rows put aside: 2 new" in checked("run", "p.yaml").err
    assert sorted(row[0] for row in contents(checked.folder / "out/orders")) == [1, 2, 4]
    listed = {each["of"]: each for each in json.loads(checked("state", "ls", "p.yaml", "-o", "json").out)["aside"]}
    assert {name: (each["why"], each["rows"]) for name, each in listed.items()} == {
        "orders_refers_person": ("check", 2),
        "orders_row_amount_0": ("check", 1),
    }
    assert sum(contents(Path(listed["orders_refers_person"]["path"])).values()) == 2
    checked.write("people/2.csv", "pid,city\n7,Cork\n8,Cork\n")
    assert "aside  orders_row_amount_0: 1 row put aside" in checked("run", "p.yaml").err
    assert sorted(row[0] for row in contents(checked.folder / "out/orders")) == [1, 2, 3, 4]
    assert not contents(checked.folder / ".dd/p/logs/orders_refers_person")
    lines = checked("state", "ls", "p.yaml").out.splitlines()
    assert [line.split()[:3] for line in lines[-2:]] == [["put", "aside", "of"], ["check", "orders_row_amount_0", "1"]]


def test_late_failed_and_unreadable_rows_are_listed_beside_those_that_a_check_puts_aside(shop):
    given = "{path: in/, columns: {id: int64, amount: int64, time: int64}, format: append, late: quarantine}"
    shop.write(
        "p.yaml",
        f"clock: event\nerrors: quarantine\ninputs: {{orders: {given}}}\n"
        "collections: {halves: {from: orders, apply: [{map: {id: id, half: 10 // amount}}]}}\noutputs: {halves: out/}\n"
        "checks: [{row: id > 0, of: orders, otherwise: quarantine}]\n",
    )
    shop.write("in/1.csv", "id,amount,time\n1,0,5\n0,1,5\n2,x,5\n3,5,5\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("in/2.csv", "id,amount,time\n4,5,3\n5,5,9\n")
    assert shop("run", "p.yaml").code == 0
    found = json.loads(shop("state", "ls", "p.yaml", "-o", "json").out)["aside"]
    assert [(each["why"], each["of"], each["rows"]) for each in found] == [
        ("late", "orders", 1),
        ("failed", "", 1),
        ("unreadable", "orders", 1),
        ("check", "orders_row_id_0", 1),
    ]
    assert all(sum(contents(Path(each["path"])).values()) == 1 for each in found if each["why"] != "unreadable")
    for number, each in enumerate(found[:3]):  # a check's rows are in its verdict
        damaged = min(Path(each["path"]).glob("*.parquet"))
        whole = damaged.read_bytes()
        if number % 2:
            pl.DataFrame({"diff": ["no number"]}).write_parquet(damaged)
        else:
            damaged.write_bytes(b"a file")
        refused = shop("state", "ls", "p.yaml")
        assert (refused.code, "the file is not one of a log" in refused.err, damaged.name in refused.err) == (
            4,
            True,
            True,
        )
        damaged.write_bytes(whole)


def test_an_edit_and_new_files_are_one_commit_where_rows_are_put_aside(shop):
    """So are an edit, a file that is withdrawn and new ones: each part corrects what the one before it wrote to the logs of such rows."""

    def edit(divisor):
        given = "{path: in/, columns: {id: int64, amount: int64, time: int64}, format: append, late: quarantine}"
        shop.write(
            "p.yaml",
            f"clock: event\nerrors: quarantine\ninputs: {{orders: {given}}}\n"
            f"collections: {{halves: {{from: orders, apply: [{{map: {{id: id, half: 10 // ({divisor})}}}}]}}}}\n"
            "outputs: {halves: out/}\nchecks: [{row: half < 10, of: halves}]\n",
        )

    def rows():
        found = json.loads(shop("state", "ls", "p.yaml", "-o", "json").out)["aside"]
        assert shop("state", "verify", "p.yaml").code == 0
        counts = {each["why"]: each["rows"] for each in found}
        # A commit that others have become has the number after theirs.
        return [counts.get(why, 0) for why in ("late", "failed", "unreadable")], read_newest(
            shop.folder / ".dd/p"
        ).number

    edit("amount")
    shop.write("in/1.csv", "id,amount,time\n1,0,5\n2,x,5\n3,5,5\n")
    assert shop("run", "p.yaml").code == 0
    assert rows() == ([0, 1, 1], 1)
    edit("amount - 5")
    shop.write("in/2.csv", "id,amount,time\n4,5,3\n5,5,9\n6,6,9\n7,y,9\n")  # 6 violates
    assert "{id: 6, half: 10}" in left_alone(shop, "--apply")
    shop.write("in/2.csv", "id,amount,time\n4,5,3\n5,5,9\n6,7,9\n7,y,9\n")
    assert shop("run", "p.yaml", "--apply").code == 0
    assert rows() == ([1, 3, 2], 4)  # late: 4; failed: 3, 5 and, before the edit, 1; unreadable: 2 and 7
    assert contents(shop.folder / "out") == {(1, -2): 1, (6, 5): 1}
    edit("amount - 7")
    shop.write("in/3.csv", "id,amount,time\n8,7,11\n9,z,11\n10,9,2\n")
    run(shop.folder / "p.yaml", apply=True, withdraw=[shop.folder / "in/2.csv"], joint=True)
    assert rows() == ([1, 1, 2], 8)  # late: 10; failed: 8; unreadable: 2 and 9
    assert contents(shop.folder / "out") == {(1, -1): 1, (3, -5): 1}


def test_a_new_check_of_an_old_state(checked):
    checked.checks(["{unique: [id], of: orders}"])
    assert checked("run", "p.yaml").code == 0
    checked.checks(["{unique: [id], of: orders}", "{row: amount < 20, of: orders}"])
    assert "1 violation: 1 new" in left_alone(checked)
    assert "1 violation: 1 new" in left_alone(checked, "--full-refresh", "all")
    checked.checks(["{row: amount < 21, of: orders}"])
    assert checked("run", "p.yaml").code == 0
    checked.checks(["{unique: [id], of: orders}"])  # one that was there before
    assert checked("run", "p.yaml").code == 0


def test_another_measure_has_no_change_yet(checked):
    """The sum of persons is no change of the sum of amounts, though the check has kept its name."""
    checked.checks(["{name: steady, change: {sum(amount): 10%}, of: orders}"])
    assert checked("run", "p.yaml").code == 0
    checked.checks(["{name: steady, change: {sum(person): 10%}, of: orders}"])
    result = checked("run", "p.yaml", "--apply")
    assert (result.code, "ok     1 check" in result.err) == (0, True)
    checked.write("orders/2.csv", HEAD + "9,90,1,2024-01-01T00:00\n")
    result = checked("run", "p.yaml")
    assert (result.code, "sum(person) changed from 3 to 93" in result.err) == (7, True), result.err


def test_another_measure_has_no_change_after_forgotten_rows(checked):
    """The state keeps what it measured also where only the files with the rows were written again."""
    archived = BASE.replace("path: orders/,", "path: orders/, consumed: {archive: archive/},")
    checked.checks(["{name: steady, change: {sum(amount): 10%}, of: orders}"], archived)
    assert checked("run", "p.yaml").code == 0
    assert checked("forget", "p.yaml", "--input", "orders", "--where", "id = 1").code == 0
    checked.checks(["{name: steady, change: {sum(person): 10%}, of: orders}"], archived)
    result = checked("run", "p.yaml", "--apply")
    assert (result.code, "ok     1 check" in result.err) == (0, True), result.err


def test_a_check_is_removed_on_spark(checked):
    """Nothing is left to compute."""
    kept, removed = "{row: amount < 50, of: orders}", "{row: amount < 60, of: orders}"
    checked.checks([kept, removed])
    with started(Here(0)):
        run(checked.folder / "p.yaml", engine="spark")
        checked.checks([kept])
        run(checked.folder / "p.yaml", engine="spark", apply=True)
    assert [*read_newest(checked.folder / ".dd/p").cache["checks"]] == ["orders_row_amount_50"]


def test_other_columns_of_violations(checked):
    checked.checks(["{row: amount < 20, of: orders, otherwise: warn}"])
    assert checked("run", "p.yaml").code == 0
    checked.checks(
        ["{row: amount < 20, of: orders, otherwise: warn}"], BASE.replace(", at:", ', at: "datetime[us]?", more:')
    )
    checked.write(
        "orders/1.csv", HEAD.replace("at", "at,more") + "1,1,10,2024-01-01T00:00,\n2,2,20,2024-01-01T01:00,\n"
    )
    assert checked("run", "p.yaml", "--full-refresh", "all", "--rewrite", "orders").code == 0
    log = checked.folder / ".dd/p/logs/orders_row_amount_20"
    assert [row[0] for row in contents(log)] == [2]
    assert "1 violation" in checked("checks", "p.yaml").out


def test_other_commands_that_commit(checked):
    checked.checks(["{refers: {person: people.pid}, of: orders}"])
    assert checked("run", "p.yaml").code == 0
    before = files(checked.folder / "out", checked.folder / ".dd")
    result = checked("retract", "p.yaml", "people/1.csv")
    assert (result.code, "2 violations: 2 new" in result.err) == (7, True)
    assert files(checked.folder / "out", checked.folder / ".dd") == before
    assert checked("run", "p.yaml", "--full-refresh", "all").code == 0
    accepted = checked("retract", "p.yaml", "people/1.csv", "--accept", "orders_refers_person", "--reason", "closed")
    assert (accepted.code, "accept orders_refers_person: 2 violations: 2 new (accepted by " in accepted.err) == (
        0,
        True,
    )
    assert "closed: 2 violations" in checked("checks", "p.yaml").out
    assert checked("run", "p.yaml", "--full-refresh", "all").code == 7


def test_an_edit_and_new_rows_are_one_commit(checked):
    """So are withdrawn files and new ones: a check sees what is there after both, and what was there before both."""
    bound = "{change: {rows: 40%, removed: 1}, of: orders, name: steady}"
    checked.checks([bound])
    assert checked("run", "p.yaml").code == 0
    checked.order("2", (3, 1, 50, ""))
    checked.checks([bound, "{row: amount < 50, of: orders, name: small}"])
    told = left_alone(checked, "--apply")
    assert ("small" in told, "rows changed from 2 to 3 (+50.0%)" in told) == (True, True)
    assert left_alone(checked, "--full-refresh", "all") == told
    checked.checks([bound, "{row: amount < 20, of: orders, name: small}"])
    checked.order("2")
    assert "small" in left_alone(checked, "--apply")


def test_a_corrected_file_heals_what_its_withdrawal_breaks(checked):
    checked.checks(
        [
            "{refers: {person: people.pid}, of: orders, name: known}",
            "{change: {rows: 0%}, of: people, name: as many}",
            "{sql: 'select 1 as x from people having count(*) <> 2', name: two}",
        ]
    )
    assert checked("run", "p.yaml").code == 0
    checked.write("people/2.csv", "pid,city\n2,Oslo\n1,Bern\n")
    done = checked("retract", "p.yaml", "people/1.csv")
    assert (done.code, "3 checks" in done.err) == (0, True), done.err
    checked.write("people/3.csv", "pid,city\n2,Oslo\n3,Bern\n")
    before = files(checked.folder / "out", checked.folder / ".dd")
    failed = checked("retract", "p.yaml", "people/2.csv")
    assert (failed.code, "the check 'known' of 'orders' failed: 1 violation: 1 new" in failed.err) == (7, True)
    assert "{person: 1, rows: 1}" in failed.err
    assert files(checked.folder / "out", checked.folder / ".dd") == before


def test_a_merge_is_judged_once(checked):
    """A branch withdraws the file with the rows that its new check forbids; one that withdraws another file is stopped."""
    checked.checks(["{unique: [id], of: orders, name: once}"])
    checked.order("2", (3, 1, 90, ""))
    assert checked("run", "p.yaml").code == 0
    for name, file, code in (("bad", "orders/1.csv", 7), ("good", "orders/2.csv", 0)):
        assert checked("branch", "new", name, "p.yaml").code == 0
        edited = checked.folder / f"p@{name}.yaml"
        edited.write_text(edited.read_text() + "  - {row: amount < 50, of: orders, name: small}\n")
        reason = ["--accept", "small", "--reason", "x"] if code else []
        done = checked("run", "p.yaml", "--branch", name, "--apply", "--without", file, *reason)
        assert done.code == 0, done.err
        before = files(checked.folder / "out/orders", checked.folder / ".dd/p")
        done = checked("branch", "merge", name, "p.yaml")
        assert done.code == code, done.err
        assert ("p.yaml has the edit of the branch\n" in done.err) == (code == 0)
        assert code == 0 or files(checked.folder / "out/orders", checked.folder / ".dd/p") == before
    assert sorted(row[0] for row in contents(checked.folder / "out/orders")) == [1, 2]
    assert checked("checks", "p.yaml").out.split() == ["ok", "once", "ok", "small"]


@pytest.mark.in_turn
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_deaths_of_an_edit_with_new_rows(checked, engine, monkeypatch):
    """Whatever operation is the last: readers see the rows before or those after, also when the next run is stopped by a check."""
    folder, counts = checked.folder, []
    edit = ["{row: amount < 30, of: orders, name: small}", "{unique: [id], of: orders, name: once}"]

    def begin():
        checked.checks(edit[:1])
        for path in [*folder.glob("orders/[2-9].csv")]:
            path.unlink()
        for place in (folder / ".dd", folder / "out"):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder / "saved", folder, dirs_exist_ok=True)
        checked.checks(edit, BASE.replace("sum(amount)", "max(amount)"))
        checked.order("2", (3, 1, 25, ""))

    def visible():
        return sorted(row[0] for row in contents(folder / "out/orders")), dict(contents(folder / "out/sums"))

    def dies(at):
        operations = Faulty(at)
        with monkeypatch.context() as patch, started(Here(at or 0)):
            patch.setattr("ddcli.store.state.directory.Files", lambda: operations)
            with contextlib.suppress(Dead):
                run(folder / "p.yaml", apply=True, engine=engine)
        counts.append(len(operations.log))

    checked.checks(edit[:1])
    assert checked("run", "p.yaml").code == 0
    for name in (".dd", "out"):
        shutil.copytree(folder / name, folder / "saved" / name)
    before, after = ([1, 2], {(1, 10): 1, (2, 20): 1}), ([1, 2, 3], {(1, 25): 1, (2, 20): 1})
    begin()
    dies(None)
    assert visible() == after
    for at in some(range(counts[0])):
        begin()
        dies(at)
        rows, sums = visible()
        assert (rows in (before[0], after[0]), sums in (before[1], after[1])) == (True, True), at
        checked.order("3", (1, 2, 1, ""))  # the next run is stopped, and finishes or removes the work of this one
        with started(Here(at)), pytest.raises(CheckError):
            run(folder / "p.yaml", apply=True, engine=engine)
        assert visible() in (before, after), at
        (folder / "orders/3.csv").unlink()
        with started(Here(at)):
            run(folder / "p.yaml", apply=True, engine=engine)
        assert visible() == after, at


def test_more_violations_than_are_noted(checked, monkeypatch):
    """Their number alone is known, in the first run, too, and for a check that has another meaning now."""
    monkeypatch.setattr("ddcli.sinks.side_logs.MOST", 1)
    monkeypatch.setattr("ddcli.sinks.outputs.MOST", 1)
    checked.checks(["{row: amount < 1, of: orders, name: small}"])
    told = left_alone(checked)
    assert ("2 violations; nothing is committed" in told, "{id:" in told) == (True, False)
    assert checked("run", "p.yaml", "--accept", "small", "--reason", "x").code == 0
    checked.checks(["{unique: [amount], of: orders, name: small}"])
    checked.order("2", (3, 1, 10, ""), (4, 1, 20, ""))
    told = left_alone(checked, "--apply")
    assert ("2 violations; nothing is committed" in told, "{" in told.partition("^")[2]) == (True, False)


def test_the_times_before_a_violation_can_be_closed(shop):
    """Under the clock of events a check sees the state after the run, and a correction at the time of the mistake heals it."""
    shop.write(
        "p.yaml",
        "clock: event\ninputs: {a: {path: in/, columns: {k: int64, v: int64}}}\noutputs: {a: out/}\nchecks: [{row: v < 5, of: a}]\n",
    )
    kinds = {"k": int, "v": int, "time": int, "diff": int}
    shop.log("in/1.parquet", [(1, 1, 0, 1), (2, 9, 3, 1), (3, 1, 4, 1)], **kinds)
    assert shop("run", "p.yaml").code == 7
    assert not (shop.folder / "out").exists() or not contents(shop.folder / "out")
    assert shop("run", "p.yaml", "--until", "3").code == 0
    assert contents(shop.folder / "out") == {(1, 1): 1}
    before = files(shop.folder / "out", shop.folder / ".dd")
    assert shop("run", "p.yaml").code == shop("run", "p.yaml", "--until", "4").code == 7
    assert files(shop.folder / "out", shop.folder / ".dd") == before
    shop.log("in/2.parquet", [(2, 9, 3, -1), (2, 4, 4, 1)], **kinds)
    assert shop("run", "p.yaml").code == 0
    assert contents(shop.folder / "out") == {(1, 1): 1, (2, 4): 1, (3, 1): 1}


def test_reopening_and_forgetting_are_not_stopped(shop):
    shop.write(
        "p.yaml",
        "clock: event\ninputs: {a: {path: a/, columns: {k: int64}}, b: {path: b/, columns: {id: int64}}}\noutputs: {a: out/}\n"
        "checks: [{refers: {k: b.id}, of: a}]\n",
    )
    shop.log("a/1.parquet", [(1, 0, 1), (2, 0, 1)], k=int, time=int, diff=int)
    shop.log("b/1.parquet", [(1, 0, 1), (2, 3, 1)], id=int, time=int, diff=int)
    assert shop("run", "p.yaml").code == 0
    assert shop("state", "reopen", "p.yaml", "--from", "2").code == 0
    assert "1 violation" in shop("checks", "p.yaml").out
    assert shop("run", "p.yaml").code == 0
    assert shop("checks", "p.yaml").code == 0
    assert shop("forget", "p.yaml", "--input", "b", "--where", "id = 1").code == 0
    assert (shop("checks", "p.yaml").code, contents(shop.folder / ".dd/p/logs/a_refers_k")) == (7, {(1, 1): 1})


def test_downstream_pipelines_are_skipped(checked):
    checked.checks(["{row: amount < 20, of: orders}"])
    checked.write("q.yaml", "inputs: {orders: out/orders/}\noutputs: {copy: {path: out/copy/, from: orders}}\n")
    result = checked("run", "p.yaml", "q.yaml")
    assert result.code == 7
    assert "q.yaml: skipped" in result.err


def test_fresh_rows(checked):
    checked.checks(["{fresh: {max(at): 2h}, of: orders}", "{fresh: {max(at): 100 days}, of: people}"])
    assert "no column is named `at`" in checked("check", "p.yaml").err
    checked.checks(["{fresh: {max(at): 2h}, of: orders}"])
    assert "max(at) is 3 hours old, more than 2h" in left_alone(checked, "--now", "2024-01-01T04:00")
    assert checked("run", "p.yaml", "--now", "2024-01-01T03:00").code == 0
    assert checked("run", "p.yaml", "--now", "2024-01-01T03:00:00.1").code == 7  # nothing is new, and it is too old
    accepted = ("--accept", "orders_fresh", "--reason", "a holiday")
    assert checked("run", "p.yaml", "--now", "2024-01-01T03:00:00.1", *accepted).code == 0
    assert checked("checks", "p.yaml", "--now", "2024-01-01T03:00").code == 0
    assert "max(at) is" in checked("checks", "p.yaml").out


def test_commands_that_describe_a_state(checked):
    checked.checks(["{unique: [id], of: orders}"])
    assert checked("run", "p.yaml", "--profile").code == 0
    for command in (
        ["explain", "p.yaml"],
        ["plan", "p.yaml"],
        ["state", "ls", "p.yaml"],
        ["state", "verify", "p.yaml"],
    ):
        assert checked(*command).code == 0, command
    assert checked("why", "p.yaml", "orders_unique_id", "id=1").code == 1
    assert checked("reset", "p.yaml", "--outputs", "--yes").code == 0
    assert checked("run", "p.yaml").code == 0


def test_the_picture_of_a_pipeline_has_the_verdicts(checked):
    checked.checks(
        ["{row: amount < 20, of: orders, name: small, otherwise: warn}", "{unique: [id], of: orders, name: once}"]
    )

    def said():
        view = json.loads(checked("explain", "p.yaml", "-o", "json").out)
        return {each["names"][0]: each["says"][1:] for each in view["operators"] if each["kind"] == "output"}

    judged = {"small": ["check: no run has judged it"], "once": ["check: no run has judged it"]}
    assert said() == {"orders": [], "sums": []} | judged
    assert checked("run", "p.yaml").code == 0
    assert said() == {"orders": [], "sums": [], "small": ["check: 1 violation"], "once": ["check: ok"]}
    for form in ("text", "html", "svg"):
        assert "check: 1 violation" in checked("explain", "p.yaml", "-o", form).out, form


def test_versions_are_compared_by_their_violations(checked):
    checked.checks(["{row: amount < 20, of: orders, name: small}"])
    (checked.folder / "q.yaml").write_text(
        (checked.folder / "p.yaml").read_text().replace("amount < 20", "amount < 10")
    )
    result = checked("diff", "p.yaml", "q.yaml")
    assert result.code == 1, result.err
    assert "small" in result.out


def test_long_names(checked):
    checked.checks(
        [
            f"{{row: {' and '.join(['amount < 20'] * 50)}, of: orders, otherwise: warn}}",
            f"{{name: {'x' * 200}, unique: [id], of: orders}}",
        ]
    )
    assert "its name has more than 120 bytes" in checked("check", "p.yaml").err
    checked.checks([f"{{row: {' and '.join(['amount < 20'] * 50)}, of: orders, otherwise: warn}}"])
    assert "1 violation" in checked("run", "p.yaml").err


def test_removed_rows(shop):
    base = BASE.replace("format: append, columns: {id", "format: snapshots, columns: {id", 1)
    shop.write("p.yaml", base + "  - {change: {removed: 40%}, of: orders}\n")
    shop.write("people/1.csv", "pid,city\n1,Rome\n")
    shop.write("orders/1.csv", HEAD + "".join(f"{at},1,1,\n" for at in range(5)))
    assert shop("run", "p.yaml").code == 0
    shop.write("orders/2.csv", HEAD + "".join(f"{at},1,1,\n" for at in range(2)))
    assert "3 rows removed of 5, more than 40%" in left_alone(shop)
    shop.write("orders/2.csv", HEAD + "".join(f"{at},1,1,\n" for at in range(3)))
    assert shop("run", "p.yaml").code == 0
    shop.write("p.yaml", base + "  - {change: {removed: 0%}, of: orders}\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("orders/3.csv", HEAD + "".join(f"{at},1,1,\n" for at in range(2)))
    assert "1 row removed of 3, more than 0%" in left_alone(shop)


def test_numbers_as_yaml_writes_them(shop):
    """NaN, infinities and other bases are no SQL."""
    shop.write(
        "p.yaml",
        "inputs: {t: {path: in/, format: append, columns: {f: float64, n: int64}}}\noutputs: {t: out/}\n"
        "checks: [{in: {f: [.nan, -.Inf, 1.5], n: [0x1F, 0o17, +3, -4]}, of: t}]\n",
    )
    shop.write("in/1.csv", "f,n\nNaN,31\n-inf,15\n1.5,3\n1.5,-4\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("in/2.csv", "f,n\ninf,31\n1.5,30\n")
    assert "2 violations" in shop("run", "p.yaml").err


def test_a_test_expects_violations(checked):
    checked.checks(["{row: amount < 20, of: orders, name: small}"])
    test = "tests:\n  - {name: s, given: {orders: [{id: 1, person: 1, amount: 30}]}, expect: {collection: small, contents: [{id: 1, person: 1, amount: 30}]}}\n"
    path = checked.folder / "p.yaml"
    path.write_text(path.read_text() + test)
    assert checked("test", "p.yaml").code == 0, checked("test", "p.yaml").err
    path.write_text(path.read_text().replace("amount: 30}]}}", "amount: 31}]}}"))
    assert checked("test", "p.yaml").code == 1


def test_columns_of_the_log(shop):
    shop.write(
        "p.yaml",
        "inputs: {a: {path: a/, format: append, columns: {time: int64, diff: int64}}}\ncollections: {b: {from: a, apply: [{project: [time]}, {rename: {time: t}}]}}\noutputs: {b: out/}\nchecks: [{row: diff > 0, of: a, otherwise: warn}]\n",
    )
    shop.write("a/1.csv", "time,diff\n1,0\n")
    assert "1 violation" in shop("run", "p.yaml").err
    assert contents(shop.folder / ".dd/p/logs/a_row_diff_0") == Counter({(1, 0): 1})


def test_a_watch_goes_on(checked):
    checked.write("orders.yaml", BASE + "  - {row: amount < 50, of: orders}\n")
    watch = Watch(checked.folder, {})
    try:
        assert watch.run()["checks"]["orders_row_amount_50"]["passed"]
        checked.order("2", (3, 1, 50, ""))
        assert watch.until("error")["error"]["exit_code"] == 7
        checked.order("2", (3, 1, 49, ""))
        assert watch.run()["outputs"]["orders"]["rows"] == 1
        assert watch.end(signal.SIGTERM)[0] == 0
    finally:
        watch.watchdog.cancel()
        watch.process.kill()
        watch.process.communicate()


@cases("""
check → message
{unique: [id], of: orders, otherwise: quarantine}                           → 8:6: checks[0]: `unique` is not a property of a single row, so no row can be put aside for it
{row: total > 1, of: sums, otherwise: quarantine}                           → 8:26: checks[0]: rows of inputs can be put aside, and 'sums' is computed
{refers: {person: sums.person}, of: orders, otherwise: quarantine}          → 8:6: checks[0]: rows of 'orders' would be put aside for a collection that is computed from them: sums
{unique: [id], row: id > 1, of: orders}                                     → 8:20: checks[0]: a check is of one kind, and this is unique and row
{of: orders}                                                                → 8:5: checks[0]: a check is of one kind, and this is of none
{unique: [id]}                                                              → 8:6: checks[0]: the key 'of' is missing
{unique: [id], of: others}                                                  → 8:24: checks[0]: no input or collection is named 'others'
{sql: select 1 from orders, of: orders}                                     → 8:6: checks[0]: a query names its inputs itself
{change: {removed: 5%}, of: people}                                         → 8:15: checks[0]: removed rows are counted in the log of an output, and 'people' is none
{change: {rows: [5%, 6]}, of: orders}                                       → 8:21: checks[0].change.rows: one end is a percentage, the other is not
{change: {rows: [6, 5]}, of: orders}                                        → 8:21: checks[0].change.rows: the least change is greater than the greatest
{change: {max(at): 5%}, of: orders}                                         → 8:6: checks[0].change: 'max(at)' is datetime[us], and a change is measured of numbers
{fresh: {max(id): 2h}, of: orders}                                          → 8:6: checks[0].fresh: 'max(id)' is int64, and a time has an age
{fresh: {max(at): soon}, of: orders}                                        → 8:23: checks[0].fresh.max(at): 'soon' can't be a length of time
{row: amont > 1, of: orders}                                                → 8:11: checks[0].row: no column is named `amont`
{in: {person: [null]}, of: orders}                                          → 8:20: checks[0].in.person[0]: must be a value, found nothing
{refers: {person: people}, of: orders}                                      → 8:23: checks[0].refers.person: must be a column of a collection, found 'people'
{name: sums, unique: [id], of: orders}                                      → 8:12: checks[0]: its name, 'sums', is taken
{row: amount > , of: orders}                                                → 8:18: checks[0].row: something is missing after `>`
{row: amount, of: orders}                                                   → 8:11: checks[0].row: a condition is a bool, not int64?
{row: 'amount > 1) or (true', of: orders}                                   → 8:22: checks[0].row: unexpected `)`
{refers: {person: people.idd}, of: orders}                                  → 8:30: checks[0].refers: no column is named `idd`
{refers: {person: people.pid, id: sums.person}, of: orders}                 → 8:39: checks[0].refers: all columns refer to one collection, and these to 'people' and 'sums'
{refers: {person: people.city}, of: orders}                                 → 8:15: checks[0].refers: 'person' is int64?, and 'city', to which it refers, is string
{refers: {person: people.city}, of: orders, otherwise: quarantine}          → 8:15: checks[0].refers: `on` pairs 'person', which is int64?, with 'city', which is string
{change: {rows: -5%}, of: orders}                                           → 8:21: checks[0].change.rows: '-5%' is one direction of a change
{change: {removed: [1%, 5%]}, of: orders}                                   → 8:15: checks[0].change.removed: removed rows have one bound, the most
{fresh: 2h, of: orders}                                                     → 8:13: checks[0].fresh: must be a mapping of a time to its greatest age, such as {max(updated_at): 2h}, found '2h'
{row: id > 1, of: itself, name: itself}                                     → 8:23: collections.itself: depends on itself: itself -> itself
""")
def test_refused_checks(checked, check, message):
    checked.checks([check])
    err = checked("check", "p.yaml").err
    place, _, problem = message.partition(": ")
    assert f"p.yaml:{place}: error: {problem}" in err, err
    assert err.endswith("1 error in 1 of 1 file\n"), err
