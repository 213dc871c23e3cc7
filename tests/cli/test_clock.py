"""The clock of arrivals: whose default it is, what a run's time is, what moves with it, and what does not go with it."""

import datetime as dt
import json
import shlex
import time

import polars as pl
import pytest

import ddcli
from ddcli.errors import UsageError
from tests.harness import contents, snapshot

ORDERS = """\
dd: 1
name: orders
inputs:
  orders: {path: orders/, format: upsert, key: [id], columns: {id: int64, placed: "datetime[us]", n: int64}}
collections:
  week: {from: orders, apply: [{temporal_filter: {from: placed, until: placed + interval '7 days'}}, {project: [id, n]}]}
outputs: {week: out/}
"""


def moment(*parts):
    """Return a timestamp of UTC, as columns without a zone have it."""
    return dt.datetime(*parts)  # noqa: DTZ001


def csv(*rows):
    return "id,placed,n\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows)


@pytest.fixture
def week(shop):
    """Return the shop with the orders of the last seven days."""
    shop.write("orders.yaml", ORDERS)
    shop.write("orders/1.csv", csv((1, "2024-01-01 00:00:00", 10), (2, "2024-01-05 00:00:00", 20)))
    return shop


def ran(shop, *arguments, code=0):
    result = shop("run", "orders.yaml", *arguments)
    assert result.code == code, result.err
    return result.err


def test_a_file_for_a_day_that_was_seen_is_taken_in_at_its_run(week):
    """A second file for a day, one dated 2204, one that corrects the first: none is late, and none closes anything."""
    ran(week, "--now", "2024-01-06")
    week.write("orders/0.csv", csv((1, "2024-01-01 00:00:00", 11), (3, "2024-01-01 12:00:00", 30)))
    week.write("orders/2204.csv", csv((4, "2204-01-01 00:00:00", 40)))
    assert "at 2024-01-06 12:00:00," in ran(week, "--now", "2024-01-06 12:00")
    assert contents(week.folder / "out") == {(1, 11): 1, (2, 20): 1, (3, 30): 1}
    times = pl.read_parquet(week.folder / "out/*.parquet")["time"].unique().to_list()
    assert sorted(times) == [moment(2024, 1, 6), moment(2024, 1, 6, 12)]


def test_now_moves_with_every_run_that_has_something_due(week):
    ran(week, "--now", "2024-01-06")
    before = snapshot(week.folder)
    assert "nothing new since 2024-01-06 00:00:00" in ran(week, "--now", "2024-01-07 23:59:59")
    assert snapshot(week.folder) == before
    ran(week, "--now", "2024-01-08")
    assert contents(week.folder / "out") == {(2, 20): 1}
    assert "nothing new since 2024-01-08" in ran(week, "--now", "2024-01-11")
    ran(week, "--now", "2025-01-01")
    assert contents(week.folder / "out") == {}
    assert "nothing new" in ran(week)
    # The contents at every time are those of that time, whichever run wrote them.
    read = {day: ddcli.read_log(str(week.folder / "out"), as_of=moment(2024, 1, day)).height for day in (7, 9, 13)}
    assert read == {7: 2, 9: 1, 13: 0}


def test_what_is_due_is_known_after_a_change_of_the_pipeline(week):
    ran(week, "--now", "2024-01-06")
    week.write("orders.yaml", ORDERS.replace("7 days", "3 days"))
    ran(week, "--apply", "--now", "2024-01-06 01:00")
    assert contents(week.folder / "out") == {(2, 20): 1}
    assert "nothing new" in ran(week, "--now", "2024-01-07")
    ran(week, "--now", "2024-01-08")
    assert contents(week.folder / "out") == {}


def test_the_time_of_a_run_never_goes_back(week):
    ran(week, "--now", "2024-01-06")
    week.write("orders/2.csv", csv((3, "2024-01-05 00:00:00", 1)))
    err = ran(week, "--now", "2024-01-05", code=2)
    assert "2024-01-05 00:00:00 is before 2024-01-06 00:00:00.000001" in err
    ahead = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).replace(tzinfo=None)
    ran(week, "--now", ahead.isoformat())
    week.write("orders/3.csv", csv((5, ahead.isoformat(" "), 1)))
    assert "is ahead of the clock: this one's is just after it" in ran(week)
    times = pl.read_parquet(week.folder / "out/*.parquet")["time"].max()
    assert times == ahead + dt.timedelta(microseconds=1)


def test_a_time_far_ahead_of_the_clock_is_refused(week):
    """No later run could have an earlier one: "now" would stay there."""
    err = ran(week, "--now", "2204-01-01", code=2)
    assert "more than a day ahead of the clock" in err
    assert not (week.folder / ".dd").exists()
    ran(week)


def test_a_run_under_a_clock_that_was_ahead_is_taken_back(week, monkeypatch):
    now = time.time_ns()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now + 1500 * 86_400 * 10**9)
        ran(week)
    assert ddcli.read_log(str(week.folder / "out")).height == 0, "then, no order is of the last week"
    today = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    week.write("orders/2.csv", csv((3, f"{today} 00:00:00", 5)))
    for _ in range(2):
        err = ran(week, code=4)
        assert "is more than a day ahead of the clock" in err
        (command,) = [line for line in err.splitlines() if "dd state reopen" in line]
    arguments = shlex.split(command.split("`")[1])[1:]
    assert week(*arguments).code == 0
    assert "more than a day" not in ran(week)
    assert contents(week.folder / "out") == {(3, 5): 1}


def test_programs_say_the_time_too(week):
    summary = ddcli.run(week.folder / "orders.yaml", now="2024-01-06")
    assert summary.time == "2024-01-06 00:00:00"
    with pytest.raises(UsageError, match="is not a time"):
        ddcli.run(week.folder / "orders.yaml", now="noon")


def test_plan_check_and_test_know_the_clock(week):
    assert week("check", "orders.yaml").code == 0
    ran(week, "--now", "2024-01-06")
    assert "nothing to do" not in week("plan", "orders.yaml").out  # order 1 has left the week since
    week.write(
        "orders.yaml",
        ORDERS + "tests:\n  - name: a week\n    steps:\n"
        "      - {time: 2024-01-02, given: {orders: [{id: 1, placed: 2024-01-01, n: 1}]}, expect: {collection: week, contents: [{id: 1}]}}\n"
        "      - {time: 2024-01-09, expect: {collection: week, contents: []}}\n",
    )
    result = week("test", "orders.yaml")
    assert result.code == 0, result.out


@pytest.mark.parametrize(
    ("inputs", "clock"),
    [
        ("{path: a/, format: append, columns: {id: int64}}", "arrival"),
        ("{path: a/, format: append, time: id, columns: {id: int64}}", "event"),
        ("{path: a/, format: append, late: quarantine, columns: {id: int64}}", "event"),
        ("{path: a/, columns: {id: int64}}", "event"),
        ("{path: a/, format: debezium, columns: {id: int64}}", "event"),
    ],
)
def test_the_default(tmp_path, inputs, clock):
    from ddcli.plan.pipeline_file import parse_spec

    spec = parse_spec(f"dd: 1\nname: p\ninputs: {{a: {inputs}}}\noutputs: {{a: out/}}\n", "p.yaml")
    assert spec.clock == clock
    assert spec.inputs["a"].arrives is (clock == "arrival")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("format: append, time: id", "inputs.a.time: under `clock: arrival` the time of a row is the run"),
        ("format: append, late: arrive", "inputs.a.late: under `clock: arrival` no row is late"),
        ("format: append, max_ahead: 2 days", "inputs.a.max_ahead: under `clock: arrival` no row is ahead"),
    ],
)
def test_what_does_not_go_with_it(shop, keys, problem):
    text = f"dd: 1\nname: p\nclock: arrival\ninputs: {{a: {{path: a/, {keys}}}}}\noutputs: {{a: out/}}\n"
    shop.write("p.yaml", text)
    assert problem in shop("check", "p.yaml").err


def test_a_column_named_time_is_data_as_any_other(shop):
    """It may be of a key, have tags, and be missing from files, which no time may."""
    kind = "{type: 'int64?', optional: true, tags: [pii]}"
    shop.write(
        "p.yaml",
        "dd: 1\nname: p\nclock: arrival\ninputs:\n  a: {path: a/, format: upsert, key: [time], columns: {time: int64, n: int64}}\n"
        f"  b: {{path: b/, format: append, columns: {{time: {kind}, n: int64}}}}\ncollections:\n"
        "  c: {sql: 'select time as at, n from a'}\n  d: {sql: 'select time as at, n from b'}\noutputs: {c: c/, d: d/}\n",
    )
    shop.write("a/1.csv", "time,n\n1,2\n2,3\n")
    shop.write("b/1.csv", "time,n\n1,2\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("a/2.csv", "n,time\n4,1\n")
    shop.write("b/2.csv", "n\n4\n")
    assert shop("run", "p.yaml").code == 0
    assert contents(shop.folder / "c") == {(1, 4): 1, (2, 3): 1}
    assert contents(shop.folder / "d") == {(1, 2): 1, (None, 4): 1}
    event = (shop.folder / "p.yaml").read_text().replace("arrival", "event")
    shop.write("p.yaml", event.replace("key: [time]", "key: [n]").replace(", tags: [pii]", ""))
    assert "inputs.b.columns: 'time' is the time, so each file must have it" in shop("check", "p.yaml").err
    shop.write("p.yaml", event.replace("int64?", "int64").replace("optional: true, ", ""))
    error = shop("check", "p.yaml").err
    assert "inputs.a.key: 'time' is the time" in error
    assert "inputs.b.columns: 'time' is the time, which no command hides" in error


def test_a_log_and_a_file_without_times_ask_for_the_clock(shop):
    shop.log("log/1.parquet", [("a", 1, 1)], k=pl.String, time=pl.Int64, diff=pl.Int64)
    shop.write("names/1.csv", "k,name\na,Ann\n")
    text = """\
dd: 1
name: p
inputs: {log: log/, names: {path: names/, format: append, columns: {k: string, name: string}}}
collections: {c: {from: log, apply: [{join: {with: names, on: [k]}}]}}
outputs: {c: out/}
"""
    shop.write("p.yaml", text)
    result = shop("check", "p.yaml")
    assert (result.code, "write `clock: arrival` at the top" in result.err) == (3, True)
    shop.write("p.yaml", text.replace("inputs:", "clock: arrival\ninputs:"))
    assert shop("check", "p.yaml").code == 0
    assert shop("run", "p.yaml").code == 0
    assert contents(shop.folder / "out") == {("a", "Ann"): 1}


def test_a_state_keeps_its_clock(shop):
    shop.write("a/1.csv", "id,time\n1,5\n")
    text = "dd: 1\nname: p\ninputs: {a: {path: a/, format: append, TIMEcolumns: {id: int64, time: int64}}}\noutputs: {a: out/}\n"
    shop.write("p.yaml", text.replace("TIME", "time: time, "))
    assert shop("run", "p.yaml").code == 0
    shop.write("p.yaml", text.replace("TIME", "").replace("time: int64", "t: int64?"))
    shop.write("a/2.csv", "id,t\n1,5\n")
    result = shop("run", "p.yaml", "--apply")
    assert (result.code, "write `clock: event` into the file" in result.err) == (4, True)
    assert shop("run", "p.yaml", "--until", "9").code == 2


def test_times_are_said_in_words(week):
    now = dt.datetime.now(dt.UTC)
    ran(week, "--now", (now - dt.timedelta(days=5)).isoformat())
    week.write("orders/2.csv", csv((3, now.date() - dt.timedelta(days=2), 1)))
    ran(week, "--now", (now - dt.timedelta(hours=2)).isoformat())
    counts = {
        at: len(json.loads(week("log", "out", "--as-of", at, "-o", "json").out or "[]"))
        for at in ("-6d", "-4d", "-1h", "now", "-1w", "-90m")
    }
    assert counts == {"-6d": 0, "-4d": 0, "-1h": 1, "now": 1, "-1w": 0, "-90m": 1}
    assert week("why", "orders.yaml", "week", "id=3", "--as-of", "now").code == 0
    assert "1 added" in week("diff", "out", "--from", "-1d", "--to", "now", "--key", "id").out
    assert "is not a time" in week("log", "out", "--as-of", "-3x").err


@pytest.mark.parametrize(
    ("kind", "rows", "first"),
    [
        ("append", "k,name\na,Ann\n", "its columns are: k, name; name the time column under the input's `time`"),
        (
            "snapshots, order_by: name",
            "k,time,name\na,1,Ann\n",
            "leave `order_by` out: the time decides which table is newer",
        ),
    ],
)
def test_beside_an_import_no_hint_asks_for_the_clock_that_it_forbids(shop, kind, rows, first):
    shop.log("log/1.parquet", [("a", 1, 1)], k=pl.String, time=pl.Int64, diff=pl.Int64)
    text = """\
dd: 1
name: exporter
inputs: {log: log/}
collections: {c: {from: log, apply: [{arrange: {by: [k], export: by_k}}]}}
outputs: {c: out/c/}
"""
    shop.write("exporter.yaml", text)
    assert shop("run", "exporter.yaml").code == 0
    shop.write("names/1.csv", rows)
    text = f"""\
dd: 1
name: p
inputs:
  log: {{import: {{state: .dd/exporter/, arrangement: by_k}}}}
  names: {{path: names/, format: {kind}, columns: {{k: string, name: string}}}}
collections: {{c: {{from: names, apply: [{{join: {{with: log, on: [k]}}}}]}}}}
outputs: {{c: out/p/}}
"""
    shop.write("p.yaml", text)
    wanted = "needs an output of the other pipeline, read as a log, in place of the import 'log'"
    for command in ("check", "run"):
        err = shop(command, "p.yaml").err
        assert f"hint: {first}; `clock: arrival` {wanted}" in err
    shop.write("p.yaml", text.replace("inputs:", "clock: arrival\ninputs:"))
    assert "or write `clock: event`, under which each other input needs a time column" in shop("check", "p.yaml").err
    text = text.replace("{import: {state: .dd/exporter/, arrangement: by_k}}", "out/c/").replace(", order_by: name", "")
    shop.write("p.yaml", text.replace("inputs:", "clock: arrival\ninputs:"))
    assert shop("check", "p.yaml").code == 0, "what the hints say is accepted"
