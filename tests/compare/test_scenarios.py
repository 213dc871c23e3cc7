"""`dd run --scenarios`: the rows that come and go in each scenario, beside a fresh run over the inputs as they would be."""

import json
import shutil
import tempfile
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import polars as pl
import pytest

from ddcli.compare.scenarios import scenarios
from ddcli.driver import changed_rows, execute
from ddcli.driver.run import run
from ddcli.errors import DdError, UsageError
from tests.draws import chance, many, some
from tests.harness import ORDER_COLUMNS, contents, files

TEXT = """\
name: shop
inputs:
  sales: {path: sales/, format: append, columns: {person: int64, amount: int64}}
  people: {path: people/, format: upsert, key: [person], columns: {person: int64, city: string}}
collections:
  spent:
    from: sales
    apply:
      - join: {with: people, on: [person]}
      - reduce: {by: [city], amount: sum(amount), sales: count(*), most: max(amount)}
outputs:
  spent: out/spent/
  large: {from: sales, path: out/large/}
"""
HEADERS = {"sales": "person,amount", "people": "person,city"}


def write(draw, path, name):
    rows = [f"{draw.randrange(4)},{draw.choice('xyz') if name == 'people' else draw.randrange(9)}" for _ in range(5)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEADERS[name], *rows]) + "\n")


def drawn(draw, folder, number):
    """Return the files that a scenario adds, or those that it leaves out."""
    added, without = [], []
    if draw.random() < 0.4:
        without = [draw.choice(sorted((folder / name).iterdir())) for name in HEADERS if draw.random() < 0.7]
    else:
        added = [name for name in HEADERS if draw.random() < 0.7]
    for name in added:
        write(draw, folder / f"more/{number}-{name}.csv", name)
    return added, without


@pytest.mark.parametrize("number", range(many(4)))
def test_each_scenario_is_a_fresh_run_of_the_inputs_as_they_would_be(number):
    draw = chance("scenarios", number)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "p.yaml").write_text(TEXT)
        for each in range(3):
            for name in HEADERS:
                write(draw, folder / name / f"{each}.csv", name)
            run(folder / "p.yaml")
        wanted, text = {}, ""
        for each in range(4):
            added, without = drawn(draw, folder, each)
            if added or without:
                wanted[f"s{each}"] = added, without
                lists = (
                    [f"{name}+=more/{each}-{name}.csv" for name in added],
                    [f"{p.parent.name}/{p.name}" for p in without],
                )
                text += f"s{each}: {json.dumps({k: v for k, v in zip(('with', 'without'), lists, strict=True) if v})}\n"
        if not wanted:
            return
        (folder / "s.yaml").write_text(text)
        kept = files(folder)
        found = scenarios(folder / "p.yaml", folder / "s.yaml")
        assert files(folder) == kept
        for name, (added, without) in wanted.items():
            fresh = folder / f"fresh-{name}"
            for each in HEADERS:
                shutil.copytree(folder / each, fresh / each)
            for path in without:
                (fresh / path.parent.name / path.name).unlink()
            (fresh / "p.yaml").write_text(TEXT)
            run(fresh / "p.yaml")
            for each in added:
                shutil.copy(folder / f"more/{name[1:]}-{each}.csv", fresh / each / "9.csv")
            run(fresh / "p.yaml")
            for output in ("spent", "large"):
                whole = Counter(contents(folder / "out" / output))
                if output in found:
                    for scenario, *record, diff in found[output].rows():
                        if scenario == name:
                            whole[tuple(record)] += diff
                assert +whole == +Counter(contents(fresh / "out" / output)), (name, output, text)


@pytest.fixture
def shop(orders):
    orders.log("fix/1.parquet", [("west", 9, 9, 1)], **ORDER_COLUMNS)
    assert orders("run", "orders.yaml").code == 0
    return orders


def test_the_command(shop):
    shop.write("s.yaml", "west: {with: orders+=fix/1.parquet}\nless: {without: [orders/1.parquet]}\n")
    kept = files(shop.folder)
    result = shop("run", "orders.yaml", "--scenarios", "s.yaml", "-o", "json")
    rows = json.loads(result.out)["totals"]
    assert {"scenario": "west", "region": "west", "amount": 9, "orders": 1, "diff": 1} in [
        {key: row[key] for key in ("scenario", "region", "amount", "orders", "diff")} for row in rows
    ]
    assert {row["scenario"] for row in rows} == {"west", "less"}
    text = shop("run", "orders.yaml", "--scenarios", "s.yaml")
    assert (text.code, text.out.startswith("totals:\nscenario")) == (0, True)
    assert files(shop.folder) == kept


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file has no scenarios"),
        ("a: {sets: x}", "unknown key 'sets'"),
        ("a: {set: x}", "must be a mapping from inputs to new values"),
        ("a: {set: {orders: {amount: [1]}}}", "must be an expression"),
        ("a: {set: {order: {amount: 1}}}", "did you mean 'orders'?"),
        ("a: {set: {orders: {amounts: 1}}}", "amount"),
        ("a: {set: {orders: {where: amount > 1}}}", "no column gets a value"),
        ("a: {set: {orders: {amount: 1, where: amount + 1}}}", "the condition is int64?, not true or false"),
        ("a: {set: {orders: {amount: region}}}", "the value is string, and the column int64"),
        ("a: {set: {orders: {time: 3}}}", "time"),
    ],
)
def test_broken_files(shop, text, problem):
    shop.write("s.yaml", text)
    result = shop("run", "orders.yaml", "--scenarios", "s.yaml")
    assert (result.code, problem in result.err) == (2, True), result


def test_values_that_a_column_can_not_have(tmp_path, monkeypatch):
    """Keys and orders decide which rows are records; nulls and values of another type would be no rows of the input."""
    monkeypatch.chdir(tmp_path)
    columns = json.dumps(KINDS | {"arrived": "date"})
    (tmp_path / "p.yaml").write_text(
        f"name: p\ninputs:\n  rows: {{path: rows/, {FORMATS['ordered']}, columns: {columns}}}\noutputs:\n  all: {{from: rows, path: out/}}\n"
    )
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/1.csv").write_text("id,version,gone,city,price,n,arrived\n1,2,false,x,3.00,4,2024-01-31\n")
    run(Path("p.yaml"))

    def asked(**values):
        (tmp_path / "s.yaml").write_text(json.dumps({"a": {"set": {"rows": values}}}))
        return scenarios(Path("p.yaml"), Path("s.yaml"))

    for values, problem in (
        ({"id": "2"}, "'id' can't get other values: it is in the input's `key`"),
        ({"version": "2"}, "'version' can't get other values: the input's `order_by` reads it"),
        ({"gone": "true"}, "'gone' can't get other values: the input's `delete_when` reads it"),
        ({"n": "nullif(n, 4)"}, "the value may be null, and the column's may not"),
        ({"n": "city"}, "the value is string, and the column int64"),
        ({"n": "price * 1e18 * 1e18"}, "1"),
        ({"n": "9223372036854775807 + n"}, "integer overflow"),
        ({"arrived": "'2024-02-30'"}, "2024-02-30"),
        ({"where": "n > 3"}, "no column gets a value"),
    ):
        with pytest.raises(DdError) as refused:
            asked(**values)
        assert problem in str(refused.value), values
    assert asked(arrived="'2024-02-29'")["all"].height == 2
    assert asked(n="9223372036854775807 + n", where="id = 2") == {}


def test_what_would_lose_files_is_refused(tmp_path, monkeypatch):
    """A file that is left out has the table of people built anew, before the added file is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(TEXT)
    for each in range(2):
        for name in HEADERS:
            write(chance(each), tmp_path / name / f"{each}.csv", name)
    run(Path("p.yaml"))
    write(chance(3), tmp_path / "more.csv", "people")
    (tmp_path / "s.yaml").write_text("a: {with: people+=more.csv, without: people/1.csv}")
    with pytest.raises(UsageError, match="can't be added and left out"):
        scenarios(Path("p.yaml"), Path("s.yaml"))


@pytest.mark.parametrize(("left", "rows"), [("1", {}), ("2", {("a", 2): -1, ("a", 1): 1, ("b", 1): 1})])
def test_a_snapshot_that_is_left_out(shop, left, rows):
    """With copies of the files in the state, too: the newest of the others counts."""
    shop.write(
        "p.yaml",
        "inputs: {t: {path: in/, format: snapshots, changed: replace, columns: {k: string, v: int64}}}\noutputs: {t: tables/}\n",
    )
    for number, text in enumerate(("k,v\na,1\nb,1\n", "k,v\na,2\n"), start=1):
        shop.write(f"in/{number}.csv", text)
        assert shop("run", "p.yaml").code == 0
    shop.write("s.yaml", f"s: {{without: in/{left}.csv}}\n")
    found = scenarios(shop.folder / "p.yaml", shop.folder / "s.yaml")
    assert {tuple(row[1:-1]): row[-1] for each in found.values() for row in each.rows()} == rows


def test_options_that_do_not_fit(shop):
    shop.write("s.yaml", "a: {with: orders+=fix/1.parquet}")
    for option in ("--watch", "--dry-run"):
        result = shop("run", "orders.yaml", "--scenarios", "s.yaml", option)
        assert (result.code, f"--scenarios and {option} don't go together" in result.err) == (2, True), result


def test_a_file_that_is_missing(shop):
    result = shop("run", "orders.yaml", "--scenarios", "none.yaml")
    assert (result.code, "no such file of scenarios" in result.err) == (2, True), result


CLOCKS = {"arrival": ("", ""), "event": (", time: time", "time")}
FORMATS = {
    "append": "format: append",
    "updates": "format: updates, diff: diff",
    "upsert": "format: upsert, key: [id]",
    "ordered": "format: upsert, key: [id], order_by: version, delete_when: gone",
    "snapshots": "format: snapshots, key: [id]",
    "tables": "format: snapshots",
}
KINDS = {"id": "int64", "version": "int64", "gone": "bool", "city": "string?", "price": "decimal(8, 2)", "n": "int64"}
PIPELINE = """\
name: shop
inputs:
  rows: {{path: rows/, {kind}{time}, columns: {columns}}}
  names: {{path: names/, format: upsert, key: [city]{time}, columns: {names}}}
collections:
  total: {{sql: "select sum(n) as n, count(*) as c, min(price) as least from rows where n > 2"}}
  cities:
    from: rows
    apply:
      - join: {{with: names, on: [city]}}
      - reduce: {{by: [name], n: sum(n), price: sum(price), most: max(n)}}
outputs:
  total: out/total/
  cities: out/cities/
  all: {{from: rows, path: out/all/}}
"""
CHANGES = [
    (
        {"price": "price * 1.1", "where": "city = 'x'"},
        lambda row: {"price": rounded(row["price"] * Decimal("1.1"))} if row["city"] == "x" else {},
    ),
    ({"n": "n + id"}, lambda row: {"n": row["n"] + row["id"]}),
    (
        {"n": "0", "city": "coalesce(city, 'y')", "where": "n > 4"},
        lambda row: {"n": 0, "city": row["city"] or "y"} if row["n"] > 4 else {},
    ),
    (
        {"city": "cast(null as string)", "n": "n - 1", "where": "city is null or price < 3"},
        lambda row: {"city": None, "n": row["n"] - 1} if row["city"] is None or row["price"] < 3 else {},
    ),
    (
        {"n": "price", "price": "n", "where": "id = 3"},
        lambda row: (
            {"n": int(row["price"].quantize(1, ROUND_HALF_UP)), "price": rounded(Decimal(row["n"]))}
            if row["id"] == 3
            else {}
        ),
    ),
]


def rounded(value):
    return value.quantize(Decimal("0.01"), ROUND_HALF_UP)


def rows_of(draw, kind, step, clock):
    """Return the rows of a file: of a key one at most, where its rows have no order."""
    keys = draw.sample(range(6), draw.randrange(1, 5)) if "key" in FORMATS[kind] else draw.choices(range(6), k=6)
    return [
        {
            "id": key,
            "version": 10 * step + at if draw.random() < 0.7 else -10 * step - at,
            "gone": draw.random() < 0.2,
            "city": draw.choice(["x", "y", "z", None]),
            "price": Decimal(draw.randrange(600)) / 100,
            "n": draw.randrange(8),
            "diff": draw.choice([1, 1, 2]),
        }
        | ({"time": step} if clock == "event" else {})
        for at, key in enumerate(keys)
    ]


def store(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {"price": pl.Decimal(8, 2), "city": pl.String, "gone": pl.Boolean}
    pl.DataFrame(rows, schema_overrides={name: kind for name, kind in kinds.items() if name in rows[0]}).write_parquet(
        path
    )


@pytest.mark.parametrize("kind", [*some(FORMATS)])
def test_new_values_are_a_fresh_run_of_changed_rows(kind, monkeypatch):
    """By the difference alone, where the format allows that, and by the definition, which reads the inputs again."""
    for number in range(many(4)):
        draw = chance("values", kind, number)
        with tempfile.TemporaryDirectory() as place:
            compare_values(Path(place), draw, kind, [*CLOCKS][number % 2], monkeypatch)


def compare_values(folder, draw, kind, clock, monkeypatch):
    differs = "snapshots" not in FORMATS[kind]
    names = {"city": "string", "name": "string"}
    time, column = CLOCKS[clock]
    more = {column: "int64"} if column else {}
    columns = KINDS | more | ({"diff": "int64"} if kind == "updates" else {})
    text = "clock: arrival\n" * (clock == "arrival") + PIPELINE.format(
        kind=FORMATS[kind], time=time, columns=json.dumps(columns), names=json.dumps(names | more)
    )
    steps = [rows_of(draw, kind, step, clock) for step in range(3)]
    towns = [[{"city": draw.choice("xyz"), "name": draw.choice("ab")} | dict.fromkeys(more, step)] for step in range(3)]
    wanted = {f"s{at}": draw.choice(CHANGES) for at in range(2)}
    added = draw.random() < 0.4 and differs
    extra = rows_of(draw, kind, 3, clock)

    def made(place, changed=lambda row: row):
        place.mkdir(exist_ok=True)
        (place / "p.yaml").write_text(text)
        for step, (rows, town) in enumerate(zip(steps, towns, strict=True)):
            store(place / f"rows/{step}.parquet", [changed(row) for row in rows])
            store(place / f"names/{step}.parquet", town)
            run(place / "p.yaml")

    made(folder)
    store(folder / "more.parquet", extra)
    more = {"with": "rows+=more.parquet"} if added else {}
    lines = {name: {"set": {"rows": values}} | more for name, (values, _) in wanted.items()}
    (folder / "s.yaml").write_text(json.dumps(lines))
    kept, found = files(folder), []
    if differs:
        with monkeypatch.context() as patched:
            patched.setattr(execute, "_rebuild", lambda *_: pytest.fail("it was built anew"))
            found.append(scenarios(folder / "p.yaml", folder / "s.yaml"))
    if not added:
        with monkeypatch.context() as patched:
            patched.setattr(changed_rows, "find_concerned", lambda *_: {})
            found.append(scenarios(folder / "p.yaml", folder / "s.yaml"))
    assert files(folder) == kept
    for name, (values, new) in wanted.items():
        made(folder / name, lambda row, new=new: row | new(row))
        if added:
            store(folder / name / "rows/3.parquet", [row | new(row) for row in extra])
            run(folder / name / "p.yaml")
        for output in ("total", "cities", "all"):
            before, after = (contents(place / "out" / output) for place in (folder, folder / name))
            effects = [each[output].rows() if output in each else [] for each in found]
            for rows in effects:
                whole = Counter(before)
                for scenario, *record, diff in rows:
                    if scenario == name:
                        whole[tuple(record)] += diff
                assert {record: count for record, count in whole.items() if count} == after, (name, output, values)


EVENTS = [
    (("c", None, (1, "x", 1)), ("c", None, (2, "y", 2)), ("c", None, (3, "z", 7))),
    (("u", (1, "x", 1), (1, "x", 5)), ("d", (2, "y", 2), None), ("c", None, (4, "x", 4))),
]


@pytest.mark.parametrize(
    "kind",
    ["delta: lake", "path: events/, format: debezium", "path: events/, format: debezium, key: [id], order_by: ts_ms"],
)
def test_new_values_in_tables_and_events(shop, kind):
    """Rows that an event or a later version of a table took away get none; `where` sees the latest row of a key."""
    shop.write(
        "p.yaml",
        f"name: p\nclock: arrival\ninputs: {{rows: {{{kind}, columns: {{id: int64, city: string, n: int64}}}}}}\n"
        "collections: {sums: {from: rows, apply: [{reduce: {by: [city], n: sum(n)}}]}}\noutputs: {sums: sums/}\n",
    )
    shop.write(
        "s.yaml",
        "more: {set: {rows: {n: n + 10, where: city = 'x' and n > 4}}}\nmoved: {set: {rows: {city: \"'q'\"}}}\n",
    )
    rows = {}
    for number, events in enumerate(EVENTS):
        names = ("id", "city", "n")
        lines = []
        for at, (operation, old, new) in enumerate(events):
            before, after = (row and dict(zip(names, row, strict=True)) for row in (old, new))
            lines.append({"op": operation, "ts_ms": 10 * number + at, "before": before, "after": after})
            rows.pop((before or {}).get("id"), None)
            rows |= {after["id"]: after} if after else {}
        shop.write(f"events/{number}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        pl.DataFrame([*rows.values()]).write_delta("lake", mode="overwrite")
        assert shop("run", "p.yaml", "-q").code == 0
    found = scenarios(shop.folder / "p.yaml", shop.folder / "s.yaml")["sums"]
    assert sorted(found.rows()) == [
        ("more", "x", 9, -1), ("more", "x", 19, 1), ("moved", "q", 16, 1), ("moved", "x", 9, -1), ("moved", "z", 7, -1),
    ]  # fmt: skip
