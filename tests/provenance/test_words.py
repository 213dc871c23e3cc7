"""Names of the plan's own columns are in no command's words: a person never wrote them."""

import re

import pytest

INTERNAL = re.compile(r"[#$][a-z]+\d|#[a-z]+\b|\$\d|\w#\d")
PIPELINE = """\
inputs:
  sales: {{path: in/, format: append, columns: {{region: string, amount: int64?, day: date}}}}
collections:
  found:
    sql: |
      {statement}
outputs: {{found: out/}}
"""
STATEMENTS = {
    "a sum": "select region, sum(amount) + 1 as a from sales group by region having count(*) > 0",
    "a subquery as a value": "select region, amount - (select min(amount) from sales) as a from sales",
    "subqueries in conditions": "select region, count(distinct day) as a from sales where day >= (select min(day) from sales) group by region having sum(amount) > 1",
    "correlated": "select region, amount as a from sales s where amount >= (select max(amount) from sales t where t.region = s.region)",
    "a correlated value": "select s.region, (select max(t.amount) from sales t where t.region = s.region) as a from sales s",
    "keys that differ": "select s.region, t.amount as a from sales s join sales t on upper(s.region) = lower(t.region) where s.region = 'n' and t.region = 'n' union all select region, 1 from sales",
    "exists": "select region, amount as a from sales s where exists (select 1 from sales t where t.region = s.region and t.amount > 1)",
    "not in": "select region, amount as a from sales where region not in (select region from sales where amount = 2)",
    "windows": "select region, lag(amount) over (partition by region order by day) as a, sum(amount) over (partition by upper(region) order by day rows 1 preceding) as b from sales",
    "qualified": "select region, amount as a from sales qualify row_number() over (partition by lower(region) order by amount + 1 desc) = 1",
    "a self join": "select s.region, t.amount as a from sales s join sales t on s.region = t.region and s.amount < t.amount",
    "an outer join": "select s.region, t.amount as a from sales s left join sales t on lower(s.region) = upper(t.region)",
    "a cross join": "select s.region, t.amount as a from sales s cross join sales t",
    "rollup": "select region, day, sum(amount) as a from sales group by rollup (region, day)",
    "computed keys": "select upper(region) as region, max(amount) as a from sales group by upper(region), amount % 2",
    "sets": "select region, amount as a from sales except select region, amount from sales where amount = 2",
    "limits": "select region, sum(amount) as a from sales group by region order by sum(amount) desc limit 1",
    "distinct on": "select distinct on (region) region, amount as a from sales order by region, amount + 1",
    "filtered": "select region, sum(amount) filter (where day > date '2026-01-01') as a from sales group by region",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_no_command_shows_a_name_of_the_plans_own(shop, statement):
    shop.write("in/1.csv", "region,amount,day\nn,1,2026-01-01\ns,2,2026-01-02\nn,5,2026-01-03\nw,,2026-01-03\n")
    shop.write("p.yaml", PIPELINE.format(statement=statement))
    assert shop("run", "p.yaml").code == 0
    called = [
        ("why", "p.yaml", "found", "region=n"),
        ("why", "p.yaml", "found", "region=N", "-o", "json"),
        ("why", "p.yaml", "found", "region=q"),
        ("why", "p.yaml", "found", "region=n", "a=2"),
        ("explain", "p.yaml"),
        ("plan", "p.yaml"),
        ("state", "ls", "p.yaml"),
        ("run", "p.yaml", "--dry-run", "--profile"),
    ]
    shown = [(command, shop(*command)) for command in called]
    assert all(ending.code == 0 or (command[0] == "why" and ending.code == 1) for command, ending in shown), shown
    wrong = [(command, text) for command, ending in shown for text in INTERNAL.findall(ending.out + ending.err)]
    assert not wrong, "\n".join(f"{each}" for each in wrong)
    assert any(ending.code == 0 for command, ending in shown if command[0] == "why")


ABSENT = [
    ("select s.amount, t.day from sales s join sales t on s.region = t.region", "amount=1 day=2026-01-02", "no two with the same region"),
    ("select s.amount, t.day from sales s join sales t on s.region = lower(t.region)", "amount=1 day=2026-01-02", "no two with region = lower(region)"),
    ("select s.region, t.day from sales s join sales t on s.region = lower(t.region)", "region=n day=2026-01-02", "map lower(region) returns another value for: {region: 's'"),
    ("select upper(region) as region, max(day) as day from sales group by upper(region)", "region=N day=2026-01-02", "the group has other values: {upper(region): 'N', max(day): 2026-01-03}"),
    ("select upper(region) as region, day from sales group by upper(region), day having count(*) > 1", "region=N day=2026-01-01", "count(*) > 1 is not true of: {upper(region): 'N', day: 2026-01-01, count(*): 1}"),
    ("select region, day from sales qualify row_number() over (order by day) = 2", "region=n day=2026-01-01", "row_number() = 2 is not true of: {region: 'n', amount: 1, day: 2026-01-01, row_number(): 1}"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "asked", "says"), ABSENT)
def test_the_reason_of_an_absence_has_the_values(shop, statement, asked, says):
    shop.write("in/1.csv", "region,amount,day\nn,1,2026-01-01\ns,2,2026-01-02\nn,5,2026-01-03\n")
    shop.write("p.yaml", PIPELINE.format(statement=statement))
    result = shop("why", "p.yaml", "found", *asked.split())
    assert (result.code, says in result.out) == (1, True), result.out
