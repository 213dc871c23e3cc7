"""`dd sql` and `dd functions`: what they print, in which order, as of when, and what they refuse."""

import json
import tempfile
from decimal import Decimal
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.cli.reference import IN_FROM, search
from ddcli.query.statement import answer_of_files
from tests.draws import many
from tests.harness import snapshot

PIPELINE = """\
inputs: {orders: {path: in/}}
collections:
  totals: {sql: "select customer, sum(amount) as total from orders group by customer"}
outputs:
  totals: out/totals/
"""
TYPES = {"customer": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}


def shopped(shop):
    shop.write("p.yaml", PIPELINE)
    shop.log("in/1.parquet", [("ann", 3, 0, 1), ("bob", 5, 0, 2), ("cid", None, 1, 1)], **TYPES)
    return lambda query, *more: shop("sql", query, "--from", "p.yaml", *more)


def test_an_answer_is_as_of_the_last_commit_and_commits_nothing(shop):
    sql = shopped(shop)
    query = "select customer, total from totals order by total desc, customer"
    rows = [{"customer": "bob", "total": 10}, {"customer": "ann", "total": 3}, {"customer": "cid", "total": None}]
    assert json.loads(sql(query, "-o", "json").out) == rows  # as a first run would have it
    assert shop("run", "p.yaml").code == 0
    shop.log("in/2.parquet", [("ann", 20, 5, 1)], **TYPES)
    before = snapshot(shop.folder)
    assert json.loads(sql(query, "-o", "json").out) == rows
    latest = sql("select customer from totals order by total desc nulls last limit 1", "--as-of", "latest")
    assert latest.out.split() == ["customer", "ann"]
    assert sql("select count(*) as n from orders", "--as-of", "0", "-o", "csv").out == "n\n3\n"
    assert snapshot(shop.folder) == before


def test_rows_stand_as_often_as_they_are_there_in_the_order_that_is_asked_for(shop):
    sql = shopped(shop)
    assert sql("select customer from orders order by amount desc, customer desc", "-o", "csv").out.split() == [
        "customer", "bob", "bob", "ann", "cid",
    ]  # fmt: skip
    assert sql("select distinct amount as a from orders order by a nulls first", "-o", "csv").out.split("\n")[1:4] == ["", "3", "5"]  # fmt: skip
    cut = sql("select amount from orders", "--limit", "2")
    assert cut.out.split() == ["amount", "3", "5"]
    assert "cut by --limit: there are 4 rows" in cut.err


def test_a_mistake_is_shown_at_its_place(shop):
    sql = shopped(shop)
    wrong = sql("select customer,\n  totl from totals")
    assert wrong.code == 2
    assert wrong.err.startswith("query:2:3: error: no column is named `totl`")
    other = sql("select 1 as x from total")
    assert other.code == 2
    assert "hint: did you mean `totals`?" in other.err
    open_ = sql("select 1 as x from orders", "--as-of", "7")
    assert open_.code == 0  # without a state the inputs have no end
    assert shop("run", "p.yaml").code == 0
    assert "7 is not closed" in sql("select 1 as x from orders", "--as-of", "7").err


def test_functions_are_listed_and_searched(shop):
    found = shop("functions", "strpos")
    assert found.out.splitlines()[0] == "strpos(text: string, part: string) -> int64"
    listed = json.loads(shop("functions", "-o", "json").out)
    assert {"substring", "sum", "/"} <= {each["name"] for each in listed}
    assert next(each for each in listed if each["name"] == "/")["elsewhere"][0]["duckdb"] == "cast('inf' as float64)"
    missing = shop("functions", "subtring")
    assert (missing.code, missing.err) == (1, "no function has 'subtring' in it\nhint: did you mean 'substring'?\n")


def test_words_for_functions_that_make_rows_have_an_example_that_runs(shop):
    shop.write("t.csv", 'n,payload\n2,"{""items"": [1, 2]}"\n')
    for word, example in IN_FROM.items():
        done = shop("functions", word)
        if not search(word):
            assert done.code == 1
            assert f"hint: it makes rows, so it is written in `from`: {example}; see docs/sql.md\n" in done.err
        tables = "from (select n, payload, [1, 2] as tags from 't.csv') as t"
        result = shop("sql", f"select * {example.strip('`').replace('from t', tables)}")
        assert result.code == 0, result.err
        assert len(result.out.splitlines()) == 3


ORDERS = "id,amount,day\n1,2.50,2024-01-31\n2,3.00,2024-02-01\n"


def test_a_query_without_a_pipeline_names_files(shop):
    shop.write("in/orders.csv", ORDERS)
    shop.write("in/more.csv", "id,amount,day\n3,4.25,2024-02-02\n")
    shop.write("nothing/orders.csv", "id,amount,day\n")
    before = snapshot(shop.folder)

    def rows(query):
        found = shop("sql", query, "-o", "csv")
        assert (found.code, found.err) == (0, "")
        return found.out.split("\n", 1)[1].splitlines()

    assert rows("select orders.day, o.amount * 2 from 'in/orders.csv' o join 'in/orders.csv' using (id)") == [
        "2024-01-31,5.00",
        "2024-02-01,6.00",
    ]
    assert rows("with big as (select * from 'in/*.csv' where amount >= 3) select id from big order by id desc") == [
        "3",
        "2",
    ]
    assert rows("select count(*) as n, sum(amount) as total from 'in/'") == ["3,9.75"]
    assert rows("select count(*) as n, min(id) as first from 'nothing/orders.csv'") == ["0,"]
    assert rows("select 1 + 1 as two") == ["2"]
    past = "select year(d) as y from (values (date '1969-12-31'), (date '2024-01-31'), (date '9999-01-01')) t(d)"
    assert rows(f"{past} where d <= current_date order by d") == ["1969", "2024"], "no row anywhere has a time"
    assert snapshot(shop.folder) == before


def test_what_a_query_without_a_pipeline_cannot_name_is_refused(shop):
    shop.write("orders.csv", ORDERS)
    for query, place, hint in (
        ("select * from orders", "query:1:15", "`--from PIPELINE`"),
        ("select * from orders.csv", "query:1:22", "`from 'orders.csv'`"),
        ("select * from ''", "query:1:15", "`from 'orders.csv'`"),
        (
            "select id from 'orders.csv' where id in (select id from 'more.csv')",
            "more.csv",
            "relative to the current directory",
        ),
        ("select amont from 'orders.csv'", "query:1:8", "did you mean `amount`?"),
        ("select * from read_csv('orders.csv')", "query:1:15", "`from 'orders.csv'`"),
    ):
        found = shop("sql", query)
        assert found.code in (2, 3)
        assert found.out == ""
        assert found.err.startswith(place)
        assert hint in found.err
    assert shop("sql", "select 1 as x", "--as-of", "3").code == 2
    assert shop("sql", "select 1 as x", "--state", "s").code == 2


def test_an_answer_has_the_row_of_aggregates_of_nothing_also_where_no_input_has_had_a_row(shop):
    shop.write("p.yaml", PIPELINE)
    shop.log("in/1.parquet", [], **TYPES)
    assert (
        shop("sql", "select count(*) as n, sum(amount) as s from orders", "--from", "p.yaml", "-o", "csv").out
        == "n,s\n0,\n"
    )


DIGITS = st.text("0123456789", min_size=1, max_size=42)
NUMBERS = st.builds(lambda sign, whole, rest: sign + (whole.lstrip("0") or "0") + rest, st.sampled_from(["", "-", "+"]), DIGITS, st.just("") | DIGITS.map(".{}".format))  # fmt: skip


@settings(max_examples=many(60))
@given(
    st.lists(NUMBERS, min_size=1, max_size=4) | st.lists(st.integers(-(10**20), 10**20).map(str), min_size=1),
    st.booleans(),
)
def test_what_is_found_reads_every_number_without_loss(values, json_lines):
    if json_lines:  # it has no plus, and its reader no number of more digits than a decimal
        values = [value.lstrip("+")[:36].rstrip(".") for value in values]
    ending = "ndjson" if json_lines else "csv"
    lines = [f'{{"a": {value}}}' for value in values] if json_lines else ["a", *values]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"a.{ending}").write_text("\n".join(lines) + "\n")
        found = answer_of_files(f"select a from '{folder}/a.{ending}'").rows["a"].to_list()
    exact = [Decimal(repr(value) if isinstance(value, float) else value) for value in found]
    assert sorted(exact) == sorted(map(Decimal, values))
    parts = [value.lstrip("+-").partition(".") for value in values]
    digits = sum(max(len(part[at]) for part in parts) for at in (0, 2))
    assert digits > 38 or not any(isinstance(value, str) for value in found)


def test_columns_that_no_record_can_have_are_left_out_of_a_file(shop):
    columns = {"s": [[1]], "i": [7], "l": [[1, 2]]}
    (shop.folder / "in").mkdir(exist_ok=True)
    pl.DataFrame(columns).cast({"s": pl.Array(pl.Int64, 1)}).write_parquet(shop.folder / "in/a.parquet")
    for query in ("select i from 'in/a.parquet'", "select count(*) as i from 'in/a.parquet' having count(*) = 1"):
        found = shop("sql", query, "-o", "csv")
        assert (found.code, found.err) == (0, "")
    for query in ("select * from 'in/a.parquet'", "select o.* from 'in/' o", "from 'in/a.parquet'"):
        found = shop("sql", query, "-o", "json")
        assert json.loads(found.out) == [{"i": 7, "l": [1, 2]}]
        assert "left out: 's' (Array(Int64, shape=(1,)))" in found.err
    for query in ("select s from 'in/a.parquet'", "select i from 'in/a.parquet' o where o.S is null"):
        refused = shop("sql", query)
        assert refused.code == 2
        assert "column 's' of 'in/a.parquet' is Array(Int64, shape=(1,)), a type that records can't have" in refused.err
    assert "no column is named `t`" in shop("sql", "select t from 'in/a.parquet'").err


def test_a_column_without_a_name_is_left_out_with_a_note(shop):
    """As of an index that pandas writes."""
    for name, text in (("a.csv", ",x\n0,5\n1,6\n"), ("b.csv", ";x\n0;5\n1;6\n")):
        shop.write(name, text)
        found = shop("sql", f"select * from '{name}'", "-o", "csv")
        assert (found.code, found.out) == (0, "x\n5\n6\n")
        assert f"'{name}': a column without a name is left out" in found.err
    assert "without a name" not in shop("sql", "select x from 'a.csv'").err


def test_a_file_without_rows_and_one_that_is_not_there_are_refused_as_such(shop):
    for name, content in (("a.json", "[]"), ("b.json", ""), ("c.ndjson", "\n")):
        shop.write(name, content)
        refused = shop("sql", f"select * from '{name}'")
        assert (refused.code, refused.err.split("\n")[0]) == (
            3,
            f"{name}: error: the file has no row to find columns from",
        )
    for name in ("nope.csv", "no*.csv"):
        refused = shop("sql", f"select * from '{name}'")
        assert (refused.code, refused.err.split("\n")[1]) == (
            3,
            "hint: check the path; it is relative to the current directory",
        )


def test_no_delimiter_makes_a_file_silently_one_column(shop):
    for delimiter in (";", "|", "\t"):
        shop.write("a.csv", f"a{delimiter}b\n1,5{delimiter}2\n")
        found = shop("sql", "select * from 'a.csv'", "-o", "json")
        assert json.loads(found.out) == [{"a": "1,5", "b": 2}]
        assert f"note: 'a.csv' is read as `csv: {{delimiter: {json.dumps(delimiter)}}}`, by its appearance" in found.err
        given = 'inputs: {a: {path: a.csv, format: append, columns: infer, csv: {decimal: "."}}}\noutputs: {a: out/}\n'
        shop.write("p.yaml", "clock: arrival\n" + given)
        refused = shop("run", "p.yaml")
        assert refused.code == 3
        assert f"`csv: {{delimiter: {json.dumps(delimiter)}}}`" in refused.err
    for content in ("tags\na;b\nc;d\n", "a,b;c\n1,2;3\n", "a\n1\n"):
        shop.write("a.csv", content)
        found = shop("sql", "select * from 'a.csv'", "-o", "csv")
        assert (found.code, found.err, found.out) == (0, "", content)


def test_csv_is_read_as_it_looks_with_a_note_or_as_it_is_stated(shop):
    """Files without a header, of other endings, with marks between thousands: no row is lost in silence."""
    shop.write("routes.dat", '2B,410,"Kazan, International"\n2B,411,\\N\n')
    found = shop("sql", "select * from 'routes.dat'", "-o", "csv")
    assert found.out == 'column0,column1,column2\n2B,410,"Kazan, International"\n2B,411,\\N\n'
    assert "note: 'routes.dat' is read as `csv: {header: false}`, by its appearance" in found.err
    found = shop(
        "sql", "select column1 as n from 'routes.dat' where column2 is null", "--csv", r"{header: false, null: '\N'}"
    )
    assert (found.out.split(), found.err) == (["n", "411"], "")
    found = shop("sql", "select * from 'routes.dat'", "--csv", "{header: true}", "-o", "json")
    assert [list(row) for row in json.loads(found.out)] == [["2B", "410", "Kazan, International"]]
    shop.write("sales.csv", "sep=;\nland;umsatz\nDE;1.234,50\nFR;99,00\n")
    found = shop("sql", "select sum(umsatz) as s from 'sales.csv'", "--csv", '{thousands: "."}', "-o", "csv")
    assert found.out == "s\n1333.50\n"
    assert '`csv: {delimiter: ";", skip: 1}`' in found.err
    found = shop("sql", "select * from 'sales.csv'")
    assert "'umsatz' is text, as numbers have '.' between thousands: see `thousands`" in found.err
    assert "umsatz" not in shop("sql", "select land from 'sales.csv'").err
    shop.write(
        "p.yaml", "clock: arrival\ninputs: {a: {path: sales.csv, format: append, columns: infer}}\noutputs: {a: out/}\n"
    )
    refused = shop("sql", "select 1 from a", "--from", "p.yaml", "--csv", "{header: true}")
    assert (refused.code, "the pipeline states how its files are written" in refused.err) == (2, True)
