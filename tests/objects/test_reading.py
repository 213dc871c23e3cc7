"""Logs and states in an object store are looked into, and converted, as those in files are.

`dd feed` from an output and a state in an object store.
"""

import itertools
import threading
from collections import Counter

import pytest

import ddcli
from ddcli.commands.convert import convert_input
from ddcli.compare.against import compare_against
from ddcli.compare.columns import Settings
from ddcli.driver.run import run
from ddcli.driver.watch import WatchLoop
from ddcli.errors import LockedError, UsageError
from ddcli.feed.delivery import OutputFeed
from ddcli.provenance.bisection import bisect
from ddcli.provenance.verification import COVERED, verify
from ddcli.query import Lookup
from ddcli.sources.change_log import read_log
from ddcli.store.files.objects import ObjectPath
from ddcli.store.tables.files import Tables
from tests.crash.shop import Shop
from tests.objects.shop import Remote


@pytest.fixture
def there(tmp_path, bucket):
    """Return a shop all of which is in a bucket, after two runs."""
    shop = Remote(Shop.make(tmp_path / "remote"), bucket)
    for step in range(2):
        shop.supply(step)
        shop.run()
    return shop


def held(frame):
    return Counter({row[:-1]: row[-1] for row in frame.rows()})


def test_a_log_is_read(there):
    for name, rows in there.rows().items():
        log = f"{there.bucket}/out/{name}"
        found = ddcli.read_log(log, as_of="latest").rows()
        assert found
        summed = Counter()
        for (*record, _), count in rows.items():
            summed[tuple(record)] += count
        assert {tuple(row[:-1]): row[-1] for row in found} == {record: n for record, n in summed.items() if n}


def test_a_key_is_looked_up(there):
    """And after the next commit what that says."""
    lookups = {name: Lookup.open(there.local.folder / "shop.yaml", name) for name in there.rows()}
    for step in (2, 3):
        for name, lookup in lookups.items():
            whole = ddcli.read_log(f"{there.bucket}/out/{name}", as_of="latest")
            for key in lookup.keys:
                for values in set(whole.select(key).rows()):
                    rows = lookup.rows(dict(zip(key, values, strict=True)))
                    wanted = Counter(
                        {
                            row: n
                            for row, n in held(whole).items()
                            if tuple(row[whole.columns.index(c)] for c in key) == values
                        }
                    )
                    assert held(rows) == wanted
            assert lookup.keys
        there.supply(step)
        there.run()
        for lookup in lookups.values():
            assert lookup.refresh()
            assert not lookup.refresh()


def test_an_input_is_converted_to_there(there):
    pipeline, target = there.local.folder / "shop.yaml", there.bucket / "copied"
    convert_input(pipeline, "sales", target)
    assert held(ddcli.read_log(str(target), as_of="latest")) == held(
        ddcli.read_log(f"{there.bucket}/in/sales", as_of="latest")
    )
    with pytest.raises(UsageError, match="the target is not empty"):
        convert_input(pipeline, "sales", target)
    with pytest.raises(UsageError, match="is not replaced"):
        convert_input(pipeline, "sales", target, force=True)


def test_inputs_are_watched_by_looking(there, monkeypatch):
    """An object store tells of nothing."""
    monkeypatch.setattr("ddcli.driver.watch.PATIENCE", 0.05)
    summaries = []

    def tell(summary):
        summaries.append(summary)
        if summary.changed and len([one for one in summaries if one.changed]) == 1:
            there.supply(3)
        elif summary.changed:
            standing._stop.set()

    standing = WatchLoop(
        there.local.folder / "shop.yaml", None, lambda ready: there.run(ready=ready), tell, pytest.fail, pytest.fail
    )
    there.supply(2)
    watchdog = threading.Timer(300, standing._stop.set)
    watchdog.start()
    standing.run()
    watchdog.cancel()
    assert [summary.inputs["sales"].files for summary in summaries if summary.changed] == [1, 1]


def test_the_effect_of_an_edit_is_read_from_a_state_in_a_bucket(tmp_path, there, monkeypatch):
    """With credentials that can only read: any other request would fail."""
    kept = {str(path): path.read_bytes() for path, _ in there.bucket.below()}
    here = tmp_path / "checkout" / "shop.yaml"
    here.parent.mkdir()
    here.write_text((there.local.folder / "shop.yaml").read_text().replace("sum(amount)", "max(amount)"))
    for name in ("put", "appender", "replace", "copy_apart", "unlink", "unlink_with"):
        monkeypatch.setattr(ObjectPath, name, None)
    found = compare_against(here, there.state, lambda _name: Settings(("city",), frozenset(), False, {}, None))
    assert found.outputs["spent"].changed.height
    assert found.outputs["known"].same
    assert {str(path): path.read_bytes() for path, _ in there.bucket.below()} == kept


def test_a_consumer_is_fed_from_an_object_store(tmp_path, bucket):
    """Its position lies beside the state; of two who acknowledge the same, one does."""
    there = Remote(Shop.make(tmp_path / "remote"), bucket, frozenset(("in", "out", "state")))
    held = Counter()
    for step in range(3):
        there.supply(step)
        there.run()
        feed = OutputFeed.open(str(there.place("out/known")), tmp_path)
        found, again = (next(feed.follow("mail", [None])) for _ in range(2))
        assert again.token == found.token
        held.update({row[:-1]: row[-1] for row in found.changes.iter_rows()})
        assert feed.acknowledge("mail", found.since, found.position).acknowledged == step + 1
    with pytest.raises(LockedError, match="another process"):
        feed.acknowledge("mail", 0, 1)
    meant = Counter()
    for record, diff in there.rows()["known"].items():
        meant[record[:-1]] += diff
    assert +held == +meant
    ((consumer, files),) = feed.consumers()
    assert (consumer.acknowledged, files) == (3, 0)


REMEMBERED = """\
name: p
state: {bucket}/state/
clock: arrival
inputs: {{rows: {{path: {bucket}/in/, columns: {{k: int64, v: int64}}}}}}
collections:
  answers:
    from: rows
    apply: [project: [k], {{map: {{function: {{call: 'remembering:answer', memo: true}}, columns: {{k: int64, call: int64}}}}}}]
  sums: {{from: rows, apply: [{{reduce: {{by: [k], s: sum(v)}}}}]}}
outputs: {{answers: {bucket}/out/answers/, sums: {bucket}/out/sums/}}
"""


def only_here(scan, folder):
    """Return the scan of tables that refuses files of an object store below a folder."""

    def checked(tables, paths, *rest):
        assert not any(path.is_relative_to(folder) for path in paths), paths
        return scan(tables, paths, *rest)

    return checked


def test_questions_about_a_state_in_a_bucket_and_functions_that_remember(tmp_path, bucket, monkeypatch):
    """A function that answers differently at each call: what is withdrawn cancels. The state has the slices that were verified; the rows of a wrong sum are found."""
    path = tmp_path / "p.yaml"
    path.write_text(REMEMBERED.format(bucket=bucket))
    (tmp_path / "remembering.py").write_text(
        "from itertools import count\nCALLS = count()\n\ndef answer(record):\n    return record | {'call': next(CALLS)}\n"
    )
    for day, rows in enumerate(("1,2\n2,3", "2,4\n3,5", "2,-90\n4,1")):
        (bucket / f"in/{day}.csv").put(f"k,v\n{rows}\n".encode())
        run(path, now=f"2020-01-0{day + 1}")
    for part in ((None, 2), (None, 2), None):
        found = verify(path, part)
        assert found.same, found
        assert found.slice is None or found.slice.covered
    assert COVERED.read(bucket / "state/verified.json").numbers == (0, 1)
    plain = ObjectPath.open
    for part in ((0, 1), None):  # each object of a log is fetched once, and nothing else reads it
        fetched = Counter()
        with monkeypatch.context() as patched:
            patched.setattr(ObjectPath, "open", lambda file, *mode: fetched.update([file]) or plain(file, *mode))  # noqa: B023 - this round's
            patched.setattr(Tables, "scan", only_here(Tables.scan, bucket / "out"))
            assert verify(path, part).same
        logs = {
            file: count
            for file, count in fetched.items()
            if file.suffix == ".parquet" and file.is_relative_to(bucket / "out")
        }
        assert {file.parent.name for file in logs} == {"answers", "sums"}
        assert {*logs.values()} == {1}
    wrong = bisect(path, "select s from sums where k = 2", good="> 0")
    assert [(each.record["v"], each.at[0].file) for each in wrong.culprits] == [(-90, f"{bucket}/in/2.csv:2")]
    before = read_log(str(bucket / "out/answers"), as_of="latest").select("k", "call", "diff").sort("k").rows()
    assert [(k, diff) for k, _, diff in before] == [(1, 1), (2, 3), (3, 1), (4, 1)]
    monkeypatch.setattr("remembering.CALLS", itertools.count(100))
    run(path, withdraw=[bucket / "in/1.csv"], now="2020-01-04")
    (bucket / "in/3.csv").put(b"k,v\n3,9\n5,1\n")
    run(path, now="2020-01-05")
    after = read_log(str(bucket / "out/answers"), as_of="latest").select("k", "call", "diff").sort("k").rows()
    known = {k: call for k, call, _ in before}
    assert after == [(1, known[1], 1), (2, known[2], 2), (3, known[3], 1), (4, known[4], 1), (5, 100, 1)]
    assert verify(path, None).same


JOINED = """\
name: p
state: {bucket}/state/
clock: arrival
inputs:
  sales: {{path: {bucket}/sales/, columns: {{item: int64, n: int64}}}}
  prices: {{path: {bucket}/prices/, format: upsert, key: [item], changed: replace, columns: {{item: int64, price: int64}}}}
collections:
  totals: {{sql: "select item, sum(n * price) as total from sales join prices using (item) group by item"}}
outputs: {{totals: {bucket}/out/totals/}}
"""


def test_wrong_rows_of_several_inputs_in_a_bucket_are_found_and_an_edit(tmp_path, bucket):
    """A row of one input that suffices; rows of both, each of which suffices; a file that was replaced; a run after an edit."""
    path = tmp_path / "p.yaml"
    path.write_text(JOINED.format(bucket=bucket))
    days = (
        ("1,2\n2,1", "1,10\n2,5"),
        ("1,1\n3,1", "1,-10\n3,4"),  # 1: 3 * -10
        ("2,50", "1,10\n2,60"),  # 2: 51 * 60; of 1 * 60 and 51 * 5 each is above 50, too
    )

    def commit(day, **options):
        run(path, now=f"2020-01-0{day}", **options)

    def found(query, **condition):
        wrong = bisect(path, query, **condition)
        places = {(each.input, *each.record.values(), each.at[0].file) for each in wrong.culprits}
        return wrong.at[:10], places, wrong

    for day, (sales, prices) in enumerate(days, 1):
        (bucket / f"sales/{day}.csv").put(f"item,n\n{sales}\n".encode())
        (bucket / f"prices/{day}.csv").put(f"item,price\n{prices}\n".encode())
        commit(day)
    query = "select total from totals where item = {}"
    at, places, wrong = found(query.format(1), good="> 0")
    assert (at, places) == ("2020-01-02", {("prices", 1, -10, f"{bucket}/prices/2.csv:2")})
    assert wrong.without is not None
    assert wrong.without.rows() == [(30,)]
    at, places, _ = found(query.format(2), bad="> 50")
    assert at == "2020-01-03"
    assert places == {("sales", 2, 50, f"{bucket}/sales/3.csv:2"), ("prices", 2, 60, f"{bucket}/prices/3.csv:3")}
    (bucket / "prices/2.csv").put(b"item,price\n1,-10\n3,400\n")
    commit(4)
    at, places, wrong = found(query.format(3), bad="> 50")
    assert (at, places) == ("2020-01-04", {("prices", 3, 400, f"{bucket}/prices/2.csv:3")})
    assert wrong.corrected == ["2.csv"]
    path.write_text(path.read_text().replace("sum(n * price)", "sum(n * price) + 5000"))
    commit(5, apply=True)
    _, places, wrong = found(query.format(3), bad="> 5000")
    assert (places, [*wrong.rebuilt]) == (set(), ["totals"])
