"""`dd import dbt`: the pipeline holds each day what DuckDB makes of the same models, and what can't be imported is listed."""

import datetime as dt
import json
import shutil
from collections import Counter

import duckdb
import polars as pl
import pytest
import yaml

from tests.draws import EFFORT, chance, many
from tests.harness import ROOT, Folder, contents

PROJECT = ROOT / "fixtures" / "dbt"
FIRST = dt.date(2024, 1, 1)
STATUS = ["placed", "shipped", "returned"]
EDITS = {
    "fct_orders": ("sum(i.quantity) as quantity", "sum(i.quantity) + 0 as quantity, max(i.category) as category"),
    "customer_orders": ("<> 'returned'", "= 'shipped'"),
}
"""Two edits of models, in words that dbt leaves as they are."""


@pytest.fixture
def project(tmp_path, capsys, monkeypatch):
    shutil.copytree(PROJECT, tmp_path / "dbt")
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, capsys)


def edit(folder, *models, old="", new="", **fields):
    """Edit what dbt compiled of some models."""
    path = folder.folder / "dbt/target/manifest.json"
    tree = json.loads(path.read_text())
    for model in models:
        node = next(each for each in tree["nodes"].values() if each["name"] == model)
        assert old in node["compiled_code"]
        node["compiled_code"] = node["compiled_code"].replace(old, new) if old else node["compiled_code"] + new
        for name, value in fields.items():
            node[name] = {**node[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(tree))


class Shop:
    """The tables of the sources, day by day, as files of changes and as rows."""

    def __init__(self, folder, rng, orders):
        self.folder, self.rng, self.next = folder, rng, 1
        self.customers, self.orders, self.items = {}, {}, []
        self.day, self.last = FIRST, 0
        for at in range(40):
            self.customers[at] = (at, f"c{at}", rng.choice(["north", "south", "west", None]), "U", self.now())
        self.write("customers", self.customers.values())
        self.history = {f"{one[0]}-": (f"{one[0]}-", one[0], one[2], one[4], None) for one in self.customers.values()}
        self.write("customer_history", self.history.values())
        self.place(orders, [FIRST - dt.timedelta(days=rng.randrange(60)) for _ in range(orders)])

    def now(self):
        self.last += 1
        return dt.datetime.combine(self.day, dt.time()) + dt.timedelta(microseconds=self.last)

    def place(self, count, days):
        """Write orders with their items."""
        new, items = [], []
        for placed in days[:count]:
            one = self.next
            self.next += 1
            new.append((one, self.rng.randrange(5, 45), "placed", placed, "U", self.now()))
            items += [(one, self.rng.randrange(1, 22), self.rng.randrange(4)) for _ in range(2)]
        self.put(new)
        self.items += items
        self.write("order_items", items)

    def put(self, rows):
        for row in rows:
            self.orders[row[0]] = row
            if row[4] == "D":
                del self.orders[row[0]]
        self.write("orders", rows)

    def change(self, days):
        """Let days pass: orders, some of them late, others that change or go, customers who move."""
        self.day += dt.timedelta(days=days)
        late = [self.day - dt.timedelta(days=self.rng.choice([0, 0, 0, 1, 5])) for _ in range(6)]
        self.place(6, late)
        touched = [self.orders[one] for one in self.rng.sample(sorted(self.orders), 4)]
        self.put([(*row[:2], STATUS[at % 3], row[3], "UD"[at == 3], self.now()) for at, row in enumerate(touched)])
        one = self.rng.choice(sorted(self.customers))
        row = self.customers[one]
        moved = (one, row[1], self.rng.choice(["north", "south"]), "UD"[self.rng.random() < 0.2], self.now())
        self.write("customers", [moved])
        old = [each for each in self.history.values() if each[1] == one and each[4] is None]
        new = [(*each[:4], moved[4]) for each in old] + [(f"{one}-{moved[4]}", one, moved[2], moved[4], None)]
        self.history |= {each[0]: each for each in new}
        self.write("customer_history", new)
        self.customers[one] = moved
        if moved[3] == "D":
            del self.customers[one]

    def write(self, name, rows):
        schema = TABLES[name]
        self.last += 1
        path = self.folder / "dbt/landing" / name / f"{self.last:09}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame(rows, schema).write_parquet(path)

    def database(self, nodes):
        """Return a database with the sources, the seeds, and all models built anew."""
        base = duckdb.connect(":memory:", config={"threads": 1})
        base.execute("attach ':memory:' as shop")
        rows = {"raw.customers": self.customers.values(), "raw.orders": self.orders.values()}
        rows |= {"raw.order_items": self.items, "snapshots.customer_history": self.history.values()}
        for name, table in rows.items():
            schema, _, short = name.partition(".")
            base.execute(f"create schema if not exists shop.{schema}")
            base.register("given", frame(table, TABLES[short]).to_arrow())
            base.execute(f"create table shop.{name} as from given")
        for seed in ("regions", "products"):
            base.execute(f"create table shop.main.{seed} as from '{PROJECT}/seeds/{seed}.csv'")
        waiting = [
            each for each in nodes if each["resource_type"] == "model" and each["config"]["materialized"] != "ephemeral"
        ]
        built = {each["unique_id"] for each in nodes if each not in waiting}
        while waiting:
            node = next(
                each
                for each in waiting
                if all(one in built or one.startswith("source") for one in each["depends_on"]["nodes"])
            )
            base.execute(f"create table {node['relation_name']} as {node['compiled_code']}")
            built.add(node["unique_id"])
            waiting.remove(node)
        return base


TABLES = {
    "customers": {"id": pl.Int64, "name": pl.String, "region": pl.String, "op": pl.String, "updated_at": pl.Datetime},
    "orders": {
        "id": pl.Int64, "customer_id": pl.Int64, "status": pl.String, "placed": pl.Date, "op": pl.String, "updated_at": pl.Datetime,
    },
    "order_items": {"order_id": pl.Int64, "product_id": pl.Int64, "quantity": pl.Int64},
    "customer_history": {
        "dbt_scd_id": pl.String, "id": pl.Int64, "region": pl.String, "dbt_valid_from": pl.Datetime, "dbt_valid_to": pl.Datetime,
    },
}  # fmt: skip


def frame(rows, schema):
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def plain(value):
    return round(float(value), 6) if isinstance(value, int | float) or hasattr(value, "as_tuple") else value


def same(shop, nodes, project):
    """Hold every output against the model that DuckDB builds of all rows; return how many were compared."""
    base, compared = shop.database(nodes), 0
    for place in sorted((project.folder / "dbt/out").iterdir()):
        ours = Counter()
        for record, count in (contents(place) if any(place.glob("*.parquet")) else {}).items():
            ours[tuple(map(plain, record))] += count
        theirs = Counter(tuple(map(plain, row)) for row in base.sql(f"from shop.main.{place.name}").fetchall())
        assert ours == theirs, place.name
        compared += bool(theirs)
    return compared


def rows_of(result):
    """Return how many rows the operators of a run were handed."""
    assert result.code == 0, result.err
    return sum(each["rows_in"] for each in json.loads(result.out)["operators"])


@pytest.mark.in_turn
def test_each_day_holds_what_a_full_rebuild_holds(project):
    """Rows come five days late, some go, days are skipped, two models are edited; a day's work is a part of a rebuild's."""
    rng = chance("dbt")
    days = round(max(6, min(60, 6 * EFFORT)))
    shop = Shop(project.folder, rng, 3000)
    edits = {days // 3: "fct_orders", 2 * days // 3: "customer_orders"}
    assert project("import", "dbt", "dbt").code == 0
    worked = []
    for day in range(days):
        options = []
        if day in edits:
            edit(project, edits[day], **dict(zip(("old", "new"), EDITS[edits[day]], strict=True)))
            assert project("import", "dbt", "dbt", "--force").code == 0
            options = ["--apply", *(["--rewrite", "fct_orders"] if edits[day] == "fct_orders" else [])]
        if day:
            shop.change(1 if rng.random() < 0.8 else 3)
        if day and day not in edits:
            worked.append(rows_of(project("run", "dbt/dd.yaml", "--profile", "-o", "json")))
        else:
            assert project("run", "dbt/dd.yaml", *options).code == 0
        nodes = list(json.loads((project.folder / "dbt/target/manifest.json").read_text())["nodes"].values())
        assert same(shop, nodes, project) >= 8
    shutil.rmtree(project.folder / "dbt/.dd")
    shutil.rmtree(project.folder / "dbt/out")
    rebuilt = rows_of(project("run", "dbt/dd.yaml", "--profile", "-o", "json"))
    assert sum(worked) / len(worked) <= 0.05 * rebuilt, (worked, rebuilt)
    found = json.loads(project("checks", "dbt/dd.yaml", "-o", "json").out)["checks"]
    wrong = {name: each["otherwise"] for name, each in found.items() if not each["passed"]}
    assert wrong == {
        "relationships_fct_orders_customer_id__id__ref_stg_customers_": "warn"
    }  # customers 40 to 44 don't exist
    assert len(found) == 7


def test_what_cannot_be_taken_over_is_listed_by_file_and_line(project):
    edit(
        project,
        "dim_customers",
        old="select c.id",
        new="select map([1], [2]) as s, c.id",
    )
    edit(project, "category_months", new="\nlimit 3 offset", raw_code="")
    edit(project, "last_orders", language="python")
    edit(project, "customer_moves", new=' union all select 1, 2, "max"(now()) from elsewhere')
    edit(project, "idle_customers", config={"post-hook": [{"sql": "select 1"}]})
    result = project("import", "dbt", "dbt", "-o", "json")
    assert result.code == 1
    left = {each["problem"]: each for each in json.loads(result.out)["left_out"]}
    problems = "\n".join(left)
    for words in (
        "model `dim_customers`: ",
        "model `last_orders`: it is written in python",
        "model `category_months`: this can't be read as SQL",
        "model `customer_moves`: `elsewhere` is not a model, seed, snapshot or source of the project",
        "model `idle_customers`: its post-hook can't be imported",
        "model `customer_orders`: it reads `dim_customers`, which is left out",
    ):
        assert words in problems, problems
    (dim,) = (each for problem, each in left.items() if problem.startswith("model `dim_customers`"))
    assert (dim["file"], dim["line"]) == ("target/compiled/shop/models/marts/dim_customers.sql", 1)
    assert project("check", "dbt/dd.yaml").code == 0


def test_what_waits_for_files_is_noted(project):
    """Whether a model may be taken over can depend on types: of a table whose files are not there, nothing is known."""
    note = "models of inputs whose columns are not known are not checked: import again, with `--force`"
    assert note not in project("import", "dbt", "dbt", "first.yaml").err
    path = project.folder / "dbt/target/manifest.json"
    tree = json.loads(path.read_text())
    source = tree["sources"]["source.shop.raw.order_items"]
    source["meta"] = source["config"]["meta"] = {}
    path.write_text(json.dumps(tree))
    assert note in project("import", "dbt", "dbt").err


def replace(project, name, old, new):
    """Write something else into a file that dbt wrote."""
    path = project.folder / "dbt/target" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


WRONG = {
    "an incremental compile": (
        ("run_results.json", '"full_refresh": true', '"full_refresh": false'),
        "model `fct_orders`: its `is_incremental()` may be true in what dbt compiled",
        "hint: run `dbt compile --full-refresh`",
    ),
    "an input with a wrong key": (
        ("manifest.json", '"format": "append"', '"format": "parquet"'),
        "inputs.order_items.format",
        "hint: ",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_the_project_is_listed(project, case):
    change, problem, hint = WRONG[case]
    replace(project, *change)
    result = project("import", "dbt", "dbt")
    assert result.code == 1
    assert problem in result.err
    assert hint in result.err


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("map([1], [2]) as most", "no function is named `map`"),
        ("(select 1 from elsewhere) as x", "`elsewhere` is not a model, seed, snapshot or source"),
        ("c.nothing", "no column is named `c.nothing`"),
    ],
)
def test_a_query_that_means_something_else_is_left_out_at_its_place(project, change, problem):
    edit(project, "dim_customers", old="c.name,", new=f"c.name,\n  {change},")
    result = project("import", "dbt", "dbt")
    assert result.code == 1
    assert (
        f"dim_customers.sql:2:{3 if 'elsewhere' not in change else 18}: error: model `dim_customers`: {problem}"
        in result.err
    )


def test_a_with_that_hides_a_model_is_left_out(project):
    old = "select id, name from"
    edit(project, "idle_customers", old=old, new="with fct_orders as (select 1 as customer_id)\nselect id, name from")
    result = project("import", "dbt", "dbt")
    assert result.code == 1
    assert "a `with` has a table `fct_orders`" in result.err


def test_words_of_duckdb_keep_their_meaning(project):
    """A quotient of integers, a falling order with nulls, and `${`, which stands for a variable in pipelines."""
    text = "with n as (select * from (values (1), (3), (null)) t(x))\nselect x / 2 as half, '${HOME}' as home from n order by x desc limit 2"
    tree = json.loads((project.folder / "dbt/target/manifest.json").read_text())
    for node in tree["nodes"].values():
        if node["name"] == "idle_customers":
            node["compiled_code"] = text
    (project.folder / "dbt/target/manifest.json").write_text(json.dumps(tree))
    Shop(project.folder, chance("words"), 3)
    assert project("import", "dbt", "dbt").code == 0
    assert project("run", "dbt/dd.yaml", "-q").code == 0
    assert contents(project.folder / "dbt/out/idle_customers") == {(0.5, "${HOME}"): 1, (1.5, "${HOME}"): 1}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"metadata": 3}', '{"metadata": {"adapter_type": "duckdb"}, "nodes": [1], "sources": {}}']
)
def test_what_is_no_manifest_is_refused(project, text):
    (project.folder / "dbt/target/manifest.json").write_text(text)
    result = project("import", "dbt", "dbt")
    assert result.code == 2
    assert "hint: compile" in result.err
    assert not (project.folder / "dbt/dd.yaml").exists()


def test_a_file_that_exists_is_kept(project):
    project.write("dbt/dd.yaml", "mine")
    assert project("import", "dbt", "dbt").code == 2
    assert (project.folder / "dbt/dd.yaml").read_text() == "mine"


def test_a_source_without_a_place_is_a_question(project):
    replace(project, "manifest.json", '"dd": {', '"other": {')
    result = project("import", "dbt", "dbt")
    assert result.code == 0, result.err
    noted = (
        "note: inputs.customers, inputs.order_items, inputs.orders: the path of its files: set it in the source's `meta"
    )
    assert noted in result.err
    assert "there is no file" not in result.err, "the note says more"
    assert '"path": "sources/raw/orders/"' in (project.folder / "dbt/dd.yaml").read_text()


def test_files_at_an_external_location_are_an_input(project):
    """As dbt-duckdb has it, whose compiled SQL then names the files."""
    path = project.folder / "dbt/target/manifest.json"
    tree = json.loads(path.read_text())
    (source,) = (each for each in tree["sources"].values() if each["name"] == "order_items")
    source["meta"] = {"external_location": "landing/{name}/*.csv"}
    source["source_meta"], source["config"]["meta"] = {}, {}
    source["relation_name"], old = "'landing/order_items/*.csv'", source["relation_name"]
    types = {"order_id": "BIGINT", "product_id": "integer", "quantity": "bigint"}
    source["columns"] = {name: {"name": name, "data_type": kind} for name, kind in types.items()}
    for node in tree["nodes"].values():
        if node.get("compiled_code"):
            node["compiled_code"] = node["compiled_code"].replace(old, source["relation_name"])
    path.write_text(json.dumps(tree))
    result = project("import", "dbt", "dbt")
    assert result.code == 0, result.err
    text = (project.folder / "dbt/dd.yaml").read_text()
    assert (
        '"order_items": {"path": "landing/order_items/*.csv", "format": "append", "columns": {"order_id": "int64?"'
        in text
    )
    assert "from order_items as" in text


def test_a_test_that_is_wrong_leaves_its_model(project):
    path = project.folder / "dbt/target/manifest.json"
    tree = json.loads(path.read_text())
    for node in tree["nodes"].values():
        if node["name"] == "not_null_fct_orders_id":
            node["column_name"] = "number"
    path.write_text(json.dumps(tree))
    result = project("import", "dbt", "dbt", "-o", "json")
    assert result.code == 1
    found = json.loads(result.out)
    (left,) = found["left_out"]
    assert (left["file"], found["models"]) == ("models/marts/marts.yml", 11)
    assert left["problem"].startswith("test `not_null_fct_orders_id`: ")
    assert project("check", "dbt/dd.yaml").code == 0


def test_a_test_of_a_source_is_a_check_of_its_kind(project):
    """Such a test is attached to no node in the manifest."""
    path = project.folder / "dbt/target/manifest.json"
    tree = json.loads(path.read_text())
    (test,) = [node for node in tree["nodes"].values() if node["name"] == "not_null_stg_customers_id"]
    (source,) = [each for each, node in tree["sources"].items() if node["name"] == "order_items"]
    test |= {"attached_node": None, "column_name": "order_id", "depends_on": {**test["depends_on"], "nodes": [source]}}
    path.write_text(json.dumps(tree))
    assert project("import", "dbt", "dbt").code == 0
    found = '{"not_null": ["order_id"], "of": "order_items", "name": "not_null_stg_customers_id"}'
    assert found in (project.folder / "dbt/dd.yaml").read_text()


def test_hostile_values_in_a_manifest_end_with_a_message(project):
    """Any value of a node may be of any kind: nothing is a bug of ours, and nothing is written outside."""
    path = project.folder / "dbt/target/manifest.json"
    tree = json.loads(path.read_text())
    rng = chance("hostile dbt")
    for _ in range(many(25)):
        nodes = json.loads(json.dumps(tree))
        for _ in range(3):
            node = rng.choice([*nodes["nodes"].values(), *nodes["sources"].values()])
            spot = rng.choice([node, node["config"], *([node["test_metadata"]] if node.get("test_metadata") else [])])
            spot[rng.choice(sorted(spot))] = rng.choice(
                [None, 3, [], [1], {}, {"a": 1}, "", "\ud800", "../../x", "a\nb", "(" * 9999]
            )
        path.write_text(json.dumps(nodes))
        result = project("import", "dbt", "dbt", "--force", "--debug")
        assert result.code in {0, 1, 2}, result.err
    assert sorted(each.name for each in project.folder.iterdir()) == ["dbt"]


def test_a_seed_that_dbt_reads_otherwise_is_noted(project):
    path = project.folder / "dbt/seeds/regions.csv"
    text = path.read_text().rstrip("\n") + "\n"
    assert "inputs.regions" not in project("import", "dbt", "dbt", "p.yaml").err
    path.write_text(text + '"",x\n')
    err = project("import", "dbt", "dbt", "p.yaml", "--force").err
    assert 'inputs.regions: an empty text, `""`, is a null in dbt' in err
    assert "a line without any value" not in err
    path.write_text(text + ",\nx,y\n")
    err = project("import", "dbt", "dbt", "p.yaml", "--force").err
    assert "inputs.regions: a line without any value is a row of nulls in dbt, and none here" in err


def snapshot(project, **config):
    """Add a snapshot to the manifest that no model reads, and import the project."""
    path = project.folder / "dbt/target/manifest.json"
    tree = json.loads(path.read_text())
    node = json.loads(json.dumps(tree["nodes"]["snapshot.shop.customer_history"]))
    node |= {
        "unique_id": "snapshot.shop.places",
        "name": "places",
        "alias": "places",
        "relation_name": None,
        "meta": {},
    }
    node["compiled_code"] = node["compiled_code"].replace("select *", "select id, region, updated_at")
    node["config"] |= {"meta": {}, **config}
    tree["nodes"]["snapshot.shop.places"] = node
    path.write_text(json.dumps(tree))
    return project("import", "dbt", "dbt", "--force")


@pytest.mark.parametrize(
    ("config", "track"),
    [
        ({}, [(1, "n"), (1, "n"), (1, "s"), (2, "s")]),
        ({"strategy": "check", "check_cols": "all"}, [(1, "n"), (1, "n"), (1, "s"), (2, "s")]),
        ({"strategy": "check", "check_cols": ["region"]}, [(1, "n"), (1, "s"), (2, "s")]),
        (
            {"strategy": "check", "check_cols": ["region"], "meta": {"dd": {"begin": "before.parquet"}}},
            [(1, "n"), (1, "s"), (1, "w"), (2, "s"), (9, "e")],
        ),
    ],
)
def test_a_snapshot_that_no_model_reads_is_a_history(project, config, track):
    """One row for each state of a record that dbt's strategy distinguishes, if a run follows each change; behind those that dbt has kept, if they are named."""
    done = snapshot(project, **config)
    begin = {"begin": "before.parquet"} if "meta" in config else {}
    assert f"the snapshot `places` is a history{':' if begin else ' from the first run on'}" in done.out + done.err
    days = [dt.datetime(2023, month, 1) for month in (1, 2)]  # noqa: DTZ001 - as dbt has it
    kept = [(1, "w", days[0], *days), (1, "n", days[1], days[1], None), (9, "e", days[0], days[0], None)]
    columns = ["id", "region", "updated_at", "dbt_valid_from", "dbt_valid_to"]
    pl.DataFrame(kept, columns, orient="row").write_parquet(project.folder / "before.parquet")
    text = (project.folder / "dbt/dd.yaml").read_text()
    wanted = {"as": "history", "key": ["id"], "parquet": "out/places.parquet"} | begin
    columns = {"timestamp": ["updated_at"], "check": config.get("check_cols")}[config.get("strategy", "timestamp")]
    assert yaml.safe_load(text)["outputs"]["places"] == wanted | ({"track": columns} if columns != "all" else {})
    sql = "select id, region, updated_at from customers"
    project.write(
        "h.yaml",
        yaml.safe_dump(
            {
                "name": "h",
                "inputs": {
                    "customers": {
                        "path": "landed/",
                        "columns": {"id": "int64", "region": "string", "updated_at": "datetime[us]"},
                        "format": "upsert",
                        "key": ["id"],
                    }
                },
                "collections": {"places": {"sql": sql}},
                "outputs": {"places": yaml.safe_load(text)["outputs"]["places"]},
            }
        ),
    )
    for day, rows in enumerate((["1,n"], ["1,n"], ["1,s", "2,s"]), start=1):
        written = "".join(f"{row},2024-01-0{day} 00:00:00\n" for row in rows)
        project.write(f"landed/{day}.csv", f"id,region,updated_at\n{written}")
        assert project("run", "h.yaml").code == 0
    rows = pl.read_parquet(project.folder / "out/places.parquet")
    assert sorted(rows.select("id", "region").rows()) == track
    if begin:  # of the same region before and after the first run
        assert rows.filter(region="n")["valid_from"].to_list() == days[1:]
    assert rows.filter("is_current").select("id", "region").sort("id").rows() == [(1, "s"), (2, "s")]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"strategy": "mine"}, "the strategy `mine` is not one of dbt's own"),
        ({"unique_key": "id || region"}, "its `unique_key` must be names of columns"),
        ({"updated_at": "cast(updated_at as date)"}, "its columns of the strategy must be names of columns"),
        ({"unique_key": "nr"}, "there is no column 'nr'"),
    ],
)
def test_a_snapshot_that_is_no_history_is_left_out_with_the_reason(project, config, problem):
    done = snapshot(project, **config)
    assert problem in done.out + done.err
    assert "places" not in yaml.safe_load((project.folder / "dbt/dd.yaml").read_text())["outputs"]


def test_an_imported_file_can_be_extended(project):
    assert project("import", "dbt", "dbt", "shop.yaml", "--force").code in (0, 1)
    own = "include: shop.yaml\nclock: arrival\ncollections: {late: {from: fct_orders}}\noutputs: {late: out/late/}\n"
    project.write("own.yaml", own)
    found = project("check", "own.yaml")
    assert found.code == 0, found.err
    assert "late:" in found.out
    project.write("own.yaml", own.replace("arrival", "event"))
    assert "the including file has another `clock`" in project("check", "own.yaml").err
