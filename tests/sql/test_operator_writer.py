"""What `dd explain -o yaml` writes of a query has the results of the query."""

import random

import polars as pl
import pytest
import yaml

from ddcli.commands.check import check as check_file
from ddcli.commands.explain import written, written_pipeline
from ddcli.errors import DdError, SpecError
from ddcli.plan import logical
from ddcli.plan.build import build_collections
from ddcli.plan.node import Unwritten
from ddcli.plan.pipeline_file import parse_spec
from tests.adversary.pipelines import QUERIES
from tests.adversary.yaml_text import restyled
from tests.draws import chance, many
from tests.reference.expressions import Fails
from tests.reference.model import Model, total
from tests.sql.asof import AsofStatements
from tests.sql.generate import Statements
from tests.sql.judge import TABLES, bound, records, schema, states
from tests.sql.test_judge import STATEMENTS
from tests.sql.windows import WindowStatements

PIPELINE = """\
inputs:
  orders: {path: in/}
collections:
  # what each has spent
  totals:
    sql: |
      select customer, sum(amount) as total, '$${x}' as note
      from orders o where exists (select 1 from orders p where p.customer = o.customer and p.amount > 3)
      group by customer
    apply:
      - filter: total > 3   # no less
  names: {sql: "select distinct customer from orders order by customer limit 2"}
  reached:
    sql: |
      with recursive r(n) as (select min(amount) from orders union select n + 1 from r where n < 7)
      select n from r where n is not null
outputs: {totals: out/totals/, names: out/names/, reached: out/reached/}
"""


FRAMES = """\
inputs:
  orders: {path: in/, columns: {customer: string, amount: int64, time: int64}}
collections:
  sums:
    sql: |
      select amount, sum(amount) over (order by amount rows 1 preceding) as a,
        sum(amount) over (order by amount rows 2 preceding) as b
      from orders
outputs: {sums: out/}
"""


def rebuilt(text):
    """Return the node of a statement, and that of what is written of it."""
    node = bound(text)
    known = {logical.Source((), schema(name), name).fingerprint: name for name in TABLES}
    collections = written("answer", node, known, {"answer", *TABLES})
    columns = {name: {"path": f"{name}/", "columns": TABLES[name] | {"time": "int64"}} for name in TABLES}
    tree = {"inputs": columns, "collections": collections, "outputs": {"answer": "out/"}}
    spec = parse_spec(yaml.safe_dump(tree, sort_keys=False), "p.yaml")
    return node, build_collections(spec, {name: schema(name) for name in TABLES})["answer"].node


def check(text, seed):
    node, other = rebuilt(text)
    assert list(other.schema) == list(node.schema)
    for rows in states(random.Random(seed), 1):
        inputs = {name: total(table.items()) for name, table in rows.items()}
        try:
            expected = records(Model(inputs, (0,), frozenset(TABLES)).output(node).items())
        except Fails:
            continue
        assert records(Model(inputs, (0,), frozenset(TABLES)).output(other).items()) == expected, text


@pytest.mark.parametrize("text", STATEMENTS[::3])
def test_operators_have_the_results_of_a_statement(text):
    check(text, 1)


def test_operators_have_the_results_of_random_statements():
    tried = 0
    for seed in range(many(40)):
        kind = (WindowStatements, AsofStatements, Statements, Statements)[seed % 4]
        try:
            check(kind(chance(seed)).statement(), seed)
        except (Unwritten, SpecError):
            continue
        tried += 1
    assert tried > many(40) // 2


def test_a_file_with_queries_is_written_with_operators(shop):
    shop.write("p.yaml", PIPELINE)
    types = {"customer": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
    shop.log("in/1.parquet", [("ann", 3, 0, 1), ("bob", 5, 0, 2), ("cid", 9, 1, 1)], **types)
    written_file = shop("explain", "p.yaml", "-o", "yaml")
    assert written_file.code == 0, written_file.err
    assert "sql" not in [
        line.split(":")[0].strip(" -{") for line in written_file.out.replace("sql: select 1 as", "").splitlines()
    ]
    assert "# what each has spent" in written_file.out
    assert "- filter: total > 3   # no less" in written_file.out
    shop.write("q.yaml", written_file.out)
    assert shop("check", "q.yaml").code == 0
    compared = shop("diff", "p.yaml", "q.yaml")
    assert compared.code == 0, compared.out + compared.err


def test_a_query_without_operators_for_it_stays(shop):
    shop.write("p.yaml", FRAMES)
    found = shop("explain", "p.yaml", "-o", "yaml")
    assert found.out == FRAMES
    assert "note: sums stays SQL" in found.err


def test_a_column_called_by_a_keyword_is_written_in_quotes(tmp_path):
    (tmp_path / "p.yaml").write_text(
        """inputs: {a: {path: in/, format: append, columns: {comment: string, on: int64, show: int64}}}
collections: {c: {sql: 'select comment, "on" + show as "using" from a where "on" > 0'}}
outputs: {c: out/}
"""
    )
    (tmp_path / "q.yaml").write_text(written_pipeline(tmp_path / "p.yaml")[0])
    (tmp_path / "in").mkdir()
    assert check_file(tmp_path / "q.yaml").errors == ()


@pytest.mark.parametrize("aliased", [False, True])
def test_queries_in_any_style_of_yaml_are_written_with_operators(shop, aliased):
    """`?` in braces, a control character in an escape; and an anchor, whose query stays as it is."""
    shop.write("in/a.csv", "n,until\n1,2026-01-01\n")
    anchor, alias = ("&q ", "*q") if aliased else ("", "select n from a")
    text = f"""inputs: {{a: {{path: in/, format: append, columns: {{n: int64, until: date?}}}}}}
collections: {{b: {{sql: {anchor}select n from a}}, c: {{sql: {alias}}}, d: {{sql: "select n, '\\x7f' as t from a"}}}}
outputs: {{b: {{path: b/}}, c: {{path: c/}}, d: {{path: d/}}}}
"""
    shop.write("p.yaml", text)
    found = shop("explain", "p.yaml", "-o", "yaml")
    assert found.code == 0, found.err
    assert ("note: b stays SQL, as no operators are written for text that has an alias" in found.err) is aliased
    assert found.out.count("sql") == (2 if aliased else 0)
    shop.write("q.yaml", found.out)
    assert shop("diff", "p.yaml", "q.yaml").code == 0


def test_what_is_written_for_a_file_in_any_style_is_a_pipeline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in/sales").mkdir(parents=True)
    (tmp_path / "in/sales/1.csv").write_text("day,region,amount\n1,north,2\n")
    (tmp_path / "in/dated.csv").write_text("day,region,amount,until\n1,north,3,2026-03-01\n")
    source, drawn, tried = tmp_path / "p.yaml", chance("styles"), 0
    for _ in range(many(150)):
        source.write_bytes(restyled(QUERIES, drawn))
        try:
            if check_file(source).errors:
                continue
        except DdError:
            continue
        (tmp_path / "q.yaml").write_text(written_pipeline(source)[0])
        assert check_file(tmp_path / "q.yaml").errors == (), source.read_text()
        tried += 1
    assert tried > many(150) // 20
