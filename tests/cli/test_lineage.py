"""`dd lineage`: sources and influences of columns, in both directions and across pipelines, in each format."""

import json
import re

import pytest

from tests.harness import ROOT

SALES = """\
dd: 1
name: sales
inputs:
  orders: {path: in/orders/, columns: {id: int64, customer: int64, amount: float64, status: string, note: string?}}
  customers: {path: in/customers/, format: upsert, key: [id], order_by: version, delete_when: gone,
              columns: {id: int64, name: string, version: int64, gone: bool}}
  legs: {path: in/legs/, columns: {a: int64, b: int64, miles: int64, seen: bool}}
collections:
  paid: {sql: "select o.*, c.name from orders o left join customers c on o.customer = c.id where o.status = 'paid'"}
  totals: {sql: "select name, sum(amount) as total, count(*) as n, max(id) as latest from paid group by name"}
  numbered: {sql: "select id, row_number() over (partition by customer order by amount desc) as place, lag(note) over (order by id) as before from orders"}
  open: {sql: "select id from orders where customer not in (select id from customers)"}
  ways:
    sql: |
      with recursive w as (select a, b, miles from legs union select w.a, l.b, w.miles + l.miles from w join legs l on w.b = l.a and l.seen where w.miles < 9)
      select a, b, miles from w
  constant: {sql: "select 1 as one, upper(note) || name as text from paid"}
checks: [{row: amount > 0, of: orders, name: positive}]
outputs: {totals: out/totals/, numbered: out/numbered/, open: out/open/, ways: out/ways/, constant: out/constant/}
"""
MONTH = """\
dd: 1
name: month
inputs: {totals: {path: out/totals/, columns: {name: string?, total: float64, n: int64, latest: int64}}}
collections: {best: {sql: "select name, round(total) as rounded from totals where n > 3"}}
outputs: {best: {from: best, path: out/best/}}
"""


@pytest.fixture
def sales(shop):
    """Return a shop with a pipeline of each kind of dependency."""
    shop.write("sales.yaml", SALES)
    return shop


def lineage(shop, *words):
    """Return the sources and the influences of each column."""
    result = shop("lineage", *words, "-o", "json")
    assert result.code == 0, result.err
    return {
        f"{each['name']}.{each['column']}": tuple(
            {f"{one['name']}.{one['column']}" for one in each[part]} for part in ("sources", "influences")
        )
        for each in json.loads(result.out)["columns"]
    }


JOINED = {"orders.status", "orders.customer", "customers.id", "customers.version", "customers.gone"}


@pytest.mark.parametrize(
    ("column", "sources", "influences"),
    [
        ("totals.name", {"customers.name"}, JOINED),
        ("totals.total", {"orders.amount"}, JOINED | {"customers.name"}),
        ("totals.n", set(), JOINED | {"customers.name"}),
        ("totals.latest", {"orders.id"}, JOINED | {"customers.name"}),
        ("numbered.id", {"orders.id"}, set()),
        ("numbered.before", {"orders.note"}, {f"orders.{name}" for name in ("id", "customer", "amount", "status")}),
        ("open.id", {"orders.id"}, {"orders.customer", "customers.id", "customers.gone", "customers.version"}),
        ("ways.a", {"legs.a"}, {"legs.b", "legs.miles", "legs.seen"}),
        ("ways.b", {"legs.b"}, {"legs.a", "legs.miles", "legs.seen"}),
        ("ways.miles", {"legs.miles"}, {"legs.a", "legs.b", "legs.seen"}),
        ("constant.one", set(), JOINED),
        ("constant.text", {"orders.note", "customers.name"}, JOINED),
    ],
)
def test_a_column_has_the_sources_and_influences_that_its_definition_has(sales, column, sources, influences):
    assert lineage(sales, "sales.yaml", column) == {column: (sources, influences)}


def test_an_input_is_followed_to_what_it_reaches(sales):
    column = {"orders.status"}
    assert lineage(sales, "sales.yaml", "orders.status") == {
        **{f"totals.{name}": (set(), column) for name in ("name", "total", "n", "latest")},
        # Ties of an order are broken by the other columns.
        **{f"numbered.{name}": (set(), column) for name in ("place", "before")},
        **{f"constant.{name}": (set(), column) for name in ("one", "text")},
    }
    assert {each for each, (sources, _) in lineage(sales, "sales.yaml", "orders").items() if sources} >= {
        "open.id",
        "totals.total",
    }


def test_an_output_of_another_pipeline_is_followed_through_it(sales):
    sales.write("month.yaml", MONTH)
    assert lineage(sales, "month.yaml")["best.rounded"] == ({"totals.total"}, {"totals.n"})
    assert lineage(sales, ".", "best.rounded") == {"best.rounded": ({"orders.amount"}, JOINED | {"customers.name"})}
    result = sales("lineage", ".", "month/best.name")
    assert result.out.splitlines()[:2] == ["month/best.name string?", "  from        sales/customers.name"]
    reached = sales("lineage", ".", "orders.amount").out
    assert "month/best.rounded float64\n  from  sales/orders.amount" in re.sub(" +from +", "  from  ", reached)


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["totls.total"], "no input, collection or output, and no column of one, is named 'totls.total'", "did you mean 'totals.total'?"),
        (["zzz"], "is named 'zzz'", "they are: orders, customers, legs, paid,"),
        (["orders.id", "totals.n"], "inputs are followed to outputs, and outputs to inputs", "call the command once for each"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_is_refused(sales, words, problem, hint):
    result = sales("lineage", "sales.yaml", *words)
    assert result.code == 2
    assert problem in result.err
    assert hint in result.err


def test_drawn_names_mean_nothing_to_a_browser(sales):
    text = (
        'dd: 1\nname: p\ninputs: {a: {path: in/, columns: {"<b>\\"]": int64}}}\noutputs: {o: {from: a, path: out/}}\n'
    )
    sales.write("p.yaml", text)
    page = sales("lineage", "p.yaml", "-o", "html").out
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    lines = sales("lineage", "p.yaml", "-o", "mermaid").out.splitlines()
    assert lines == ["flowchart LR", '  c0["a.#60;b#62;#34;#93;"]', '  c1["o.#60;b#62;#34;#93;"]', "  c0 --> c1"]


def test_the_examples_have_a_lineage(shop):
    for name in ("airborne", "risk", "scc", "delays", "skip_level"):
        assert lineage(shop, str(ROOT / f"pipelines/{name}.yaml"))


def test_a_file_without_a_valid_part_is_refused(shop):
    """With its errors, as by any other command."""
    shop.write("p.yaml", "name: p\ninputs: 3\n")
    result = shop("lineage", "p.yaml")
    assert (result.code, "inputs" in result.err) == (2, True), result.err
    assert "bug" not in result.err


EDITED = "sum(amount) * 2 as total, count(*) as n"
REACH = [
    "totals.total: goes into totals.total",
    "paid.name: goes into totals.name, constant.text; decides about totals.total, totals.n, totals.latest",
]


def test_plan_and_diff_name_what_an_edit_reaches(sales):
    sales.write("in/orders/1.csv", "id,customer,amount,status,note,time,diff\n1,7,2.5,paid,,1,1\n")
    sales.write("in/customers/1.csv", "id,name,version,gone,time\n7,Ann,1,false,1\n")
    sales.write("in/legs/1.csv", "a,b,miles,seen,time,diff\n1,2,3,true,1,1\n")
    edited = SALES.replace("sum(amount) as total, count(*) as n", EDITED).replace(
        "select o.*, c.name from", "select o.*, upper(c.name) as name from"
    )
    sales.write("edited.yaml", edited)
    assert sales("run", "sales.yaml").code == 0
    notes = sales("diff", "sales.yaml", "edited.yaml").out.splitlines()
    against = json.loads(sales("diff", "edited.yaml", "--against", ".dd/sales", "-o", "json").out)["notes"]
    sales.write("sales.yaml", edited)
    planned = sales("plan", "sales.yaml").out.splitlines()
    reached = json.loads(sales("plan", "sales.yaml", "-o", "json").out)["reached"]
    for line in REACH:
        assert f"note: edited: {line}" in notes
        assert f"edited: {line}" in against
        assert f"  reach   {line}" in planned
        assert line.partition(":")[0] in [each["edited"] for each in reached]
    # Nothing else is edited but what reads the new name in place.
    assert {each["edited"].removeprefix("records of ").partition(".")[0] for each in reached} == {
        "paid",
        "totals",
        "constant",
    }
