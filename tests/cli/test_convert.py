"""`dd convert`: what is converted says what it said, in every format and kind of file; and what is refused."""

import json
import random
from collections import Counter
from datetime import date, datetime
from decimal import Decimal

import polars as pl
import pytest

import ddcli
from tests.draws import some
from tests.formats.support import WRITERS
from tests.harness import snapshot

TIMES = range(4)
COLUMNS = {"k": pl.Int64, "v": pl.Int64, "s": pl.String}
TYPES = "{k: int64, v: int64?, s: string?"


def held(updates):
    """Return what updates (record, time, diff) hold at each time."""
    found = {}
    for at in TIMES:
        found[at] = Counter()
        for record, time, diff in updates:
            if time <= at:
                found[at][record] += diff
    return {at: Counter({r: n for r, n in counts.items() if n}) for at, counts in found.items()}


def frame(rows, **more):
    return pl.DataFrame(rows, schema=COLUMNS | more, orient="row")


def as_updates(rng):
    updates = [
        (
            (rng.randrange(3), rng.choice([None, 1, 2]), rng.choice([None, "a", "b"])),
            rng.choice(TIMES),
            rng.choice([-1, 1, 2]),
        )
        for _ in range(20)
    ]
    rows = frame([(*record, time, diff) for record, time, diff in updates], time=pl.Int64, diff=pl.Int64)
    return rows, ["--columns", TYPES + "}"], held(updates)


def as_append(rng):
    rows, _, _ = as_updates(rng)
    records = [((k, v, s), time, 1) for k, v, s, time, _ in rows.rows()]
    return rows.drop("diff"), ["--format", "append", "--columns", TYPES + "}"], held(records)


def states(rng):
    """Return what each key has at each time."""
    found = {}
    now = {}
    for time in TIMES:
        for key in range(4):
            if rng.random() < 0.5:
                now = {**now, key: rng.choice([None, (rng.randrange(3), rng.choice(["a", "b"]))])}
        found[time] = {key: value for key, value in now.items() if value is not None}
    return found


def meant(found):
    return {at: Counter({(key, *value): 1 for key, value in now.items()}) for at, now in found.items()}


def changes(found):
    """Yield key, time, what it had before and what it has now, None for nothing, where that is not the same."""
    before = {}
    for time, now in found.items():
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                yield key, time, before.get(key), now.get(key)
        before = now


def as_upsert(rng):
    found = states(rng)
    rows = [(key, *(now or (None, None)), time) for key, time, _, now in changes(found)]
    options = ["--format", "upsert", "--key", "k", "--columns", TYPES + "}"]
    return frame([*rows, (9, None, None, 0)], time=pl.Int64), options, meant(found)


def as_snapshots(rng):
    found = states(rng)
    found = {time: now or {0: (1, "a")} for time, now in found.items()}
    rows = [(key, *value, time) for time, now in found.items() for key, value in now.items()]
    return frame(rows, time=pl.Int64), ["--format", "snapshots", "--key", "k", "--columns", TYPES + "}"], meant(found)


def as_delta_cdf(rng):
    rows, found = [], states(rng)
    for key, time, before, now in changes(found):
        if before:
            rows.append((key, *before, time, "update_preimage" if now else "delete"))
        if now:
            rows.append((key, *now, time, "update_postimage" if before else "insert"))
    rows = frame(
        [*rows, (9, 0, "a", 0, "insert"), (9, 0, "a", 0, "delete")], _commit_version=pl.Int64, _change_type=pl.String
    )
    return rows, ["--format", "delta_cdf", "--columns", TYPES + "}"], meant(found)


MADE = {
    "updates": as_updates,
    "append": as_append,
    "upsert": as_upsert,
    "snapshots": as_snapshots,
    "delta_cdf": as_delta_cdf,
}


def as_of(directory, at):
    return Counter({row[:-1]: row[-1] for row in ddcli.read_log(directory, as_of=at).rows()})


@pytest.mark.parametrize("kind", [*some(WRITERS)])
@pytest.mark.parametrize("form", MADE)
def test_what_is_converted_says_what_it_said(shop, form, kind):
    """At every time; and a table of it has each record as often as it is there."""
    rng = random.Random(f"{form} {kind}")
    for at in range(2):
        rows, options, wanted = MADE[form](rng)
        (shop.folder / f"in{at}").mkdir()
        half = rng.randrange(rows.height)
        for part, those in enumerate((rows[:half], rows[half:])):
            WRITERS[kind](those, shop.folder / f"in{at}/{part}.{kind}")
        done = shop("convert", f"in{at}", f"out/{at}", *options)
        assert done.code == 0, done.err
        for time in TIMES:
            assert as_of(f"out/{at}", time) == wanted[time], time
        table = shop("convert", f"out/{at}", f"{at}.parquet", "--as-of", TIMES[-1])
        if min(wanted[TIMES[-1]].values(), default=0) < 0:
            assert (table.code, "which a table can't hold" in table.err) == (3, True)
            assert not (shop.folder / f"{at}.parquet").exists()
        else:
            assert Counter(pl.read_parquet(f"{at}.parquet").rows()) == wanted[TIMES[-1]]


def test_debezium(shop):
    events = [
        {"op": "c", "before": None, "after": {"k": 1, "v": 5}, "ts_ms": 10, "source": {"lsn": 1}},
        {"op": "u", "before": {"k": 1, "v": 5}, "after": {"k": 1, "v": 6}, "ts_ms": 20, "source": {"lsn": 2}},
        {"op": "d", "before": {"k": 1, "v": 6}, "after": None, "ts_ms": 30, "source": {"lsn": 3}},
    ]
    shop.write("in/a.ndjson", "".join(json.dumps(event) + "\n" for event in events))
    for more in ([], ["--key", "k"]):
        done = shop("convert", "in", "out", "--format", "debezium", "--columns", "k: int64, v: int64", "--force", *more)
        assert done.code == 0, done.err
        assert [as_of("out", at) for at in (9, 10, 20, 30)] == [{}, {(1, 5): 1}, {(1, 6): 1}, {}]


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson", "arrow"])
def test_a_table_of_every_kind_reads_back(shop, ending):
    """A record that is there twice is there twice; and what is written is an input again, with the same values."""
    rows = [
        (1, Decimal("1.50"), datetime.fromisoformat("2024-01-02 03:04:05.000006"), date(2024, 1, 2), 'a,b\n"c"', 0, 2),
        (2, None, None, None, "", 0, 1),
        (3, None, None, None, None, 9, 1),
    ]
    schema = {"i": pl.Int64, "d": pl.Decimal(10, 2), "at": pl.Datetime("us"), "day": pl.Date, "s": pl.String}
    log = pl.DataFrame(rows, schema=schema | {"time": pl.Int64, "diff": pl.Int64}, orient="row")
    (shop.folder / "log").mkdir()
    log.write_parquet("log/a.parquet")
    done = shop("convert", "log", f"table.{ending}", "--as-of", 5, "-o", "json")
    assert json.loads(done.out) == {"target": str(shop.folder / f"table.{ending}"), "rows": 3}
    types = '{i: int64, d: "decimal(10, 2)?", at: "datetime[us]?", day: date?, s: string?}'
    back = shop("convert", f"table.{ending}", "back", "--format", "append", "--time", "i", "--columns", types)
    assert back.code == 0, back.err
    found = ddcli.read_log("back").select("d", "at", "day", "s", "diff")
    assert found.equals(
        pl.DataFrame([(*rows[0][1:5], 2), (None, None, None, "", 1)], schema=found.schema, orient="row"),
        null_equal=True,
    )


def test_the_input_of_a_pipeline(orders):
    """As its file says it is, relative to that file; and JSON says what was done."""
    done = orders("convert", "orders.yaml", "copied", "--input", "orders", "-o", "json")
    found = json.loads(done.out)
    assert found["inputs"]["orders"]["rows"] == found["outputs"]["orders"]["rows"] == 4
    assert sorted(ddcli.read_log("copied").rows()) == sorted(ddcli.read_log("orders").rows())
    assert (
        "4 updates (+3 -1) at times before 3, of 4 rows in 1 file"
        in orders("convert", "orders.yaml", "again", "--input", "orders").err
    )
    assert not any(path.exists() for path in orders.kept), "the state is nobody's"
    assert orders("convert", "orders", "some", "--until", 1).code == 0
    assert ddcli.read_log("some")["amount"].to_list() == [10]


def test_nothing_is_overwritten_by_chance(orders):
    """With --force a log is replaced, or a file; but no directory that holds anything else."""
    assert orders("convert", "orders", "made").code == 0
    before = snapshot(orders.folder / "made")
    refused = orders("convert", "orders", "made")
    assert (refused.code, "--force replaces a log" in refused.err) == (2, True)
    assert snapshot(orders.folder / "made") == before
    assert orders("convert", "orders", "made", "--force", "--until", 1).code == 0
    assert ddcli.read_log("made").height == 1
    orders.write("made/mine.txt", "mine")
    refused = orders("convert", "orders", "made", "--force")
    assert (refused.code, "'mine.txt' is not part of a log" in refused.err) == (2, True)
    assert orders("convert", "orders", "orders.yaml", "--force").code == 2
    assert orders("convert", "orders", "orders", "--force").code == 2
    assert orders("convert", "orders", "a.csv", "--as-of", "latest").code == 0
    assert orders("convert", "orders", "a.csv", "--as-of", "latest").code == 2
    assert orders("convert", "orders", "a.csv", "--as-of", "latest", "--force").code == 0


def test_what_fails_leaves_what_was_there(orders):
    """Nothing half-written, and no leavings beside it."""
    assert orders("convert", "orders", "made").code == 0
    before = snapshot(orders.folder / "made")
    orders.write("orders/2.parquet", "no parquet")
    names = sorted(path.name for path in orders.folder.iterdir())
    refused = orders("convert", "orders", "made", "--force")
    assert refused.code == 3
    assert "2.parquet" in refused.err
    assert orders("convert", "orders", "a.csv", "--as-of", "latest").code == 3
    assert snapshot(orders.folder / "made") == before
    assert sorted(path.name for path in orders.folder.iterdir()) == names


def test_wrong_use_is_told_in_the_words_of_the_options(orders):
    orders.write("a.csv", "k,time\n1,0\n")
    orders.write("b.csv", "k\n1\n")
    for arguments, said in (
        (["a.csv", "out"], "hint: name them: --columns '{k: int64, time: int64}'"),
        (["orders", "out", "--format", "upsert"], "--key is missing"),
        (["orders", "out", "--order-by", "amount"], "the format 'updates' has no key 'order_by'"),
        (["orders", "out", "--columns", "{region: strin}"], "strin"),
        (["orders", "out", "--columns", "region"], "not a mapping of columns to types"),
        (["orders", "out.txt", "--as-of", 1], "does not end like a known kind of file"),
        (["orders", "out.csv", "--as-of", 1, "--key", "region"], "--as-of and --key don't go together"),
        (["orders.yaml", "out", "--input", "orders", "--key", "region"], "--input and --key don't go together"),
        (["orders.yaml", "out", "--input", "ordes"], "did you mean 'orders'?"),
        (["nowhere", "out"], "no file or directory 'nowhere'"),
        (["orders", "out", "--time", "tme"], "no column 'tme'"),
        (["b.csv", "out", "--columns", "{k: int64}"], "its columns are: k; name the time column with --time"),
    ):
        found = orders("convert", *arguments)
        assert found.code in {2, 3}, found
        assert said in found.err, found.err
        assert "options:" not in found.err
        assert "inputs.log" not in found.err
        assert "under the input" not in found.err
    assert not (orders.folder / "out").exists()
