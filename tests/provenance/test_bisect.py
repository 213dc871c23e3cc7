"""`dd bisect`: random histories with injected faults, judged by sums in plain Python; and what it says of runs, edits and questions."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.provenance.bisection import MOST_TRIALS, _Tries
from tests.draws import many

PIPELINE = """\
name: sales
inputs:
  orders: {path: in/orders/, columns: {id: int64, customer: int64, amount: int64}}
  customers: {path: in/customers.csv, format: upsert, key: customer, columns: {customer: int64, region: string}}
collections:
  sales:
    sql: >-
      select region, count(*) as n, sum(amount) as total, max(amount) as most from orders join customers using (customer)
      where amount <> 0 group by region
  large: {from: orders, apply: [{filter: amount > 90}]}
outputs: {sales: out/sales/, large: out/large/}
"""
REGIONS = ("north", "south", "west")
CASES = {
    "total": ("select total from sales where region = 'north'", ("--good", "> 200"), lambda rows: sum(a for _, r, a in rows if r == "north") > 200),
    "sum": ("select sum(total) as t from sales", ("--bad", "t < 0"), lambda rows: sum(a for _, _, a in rows) >= 0),
    "most": ("select region, most from sales", ("--good", "most < 80"), lambda rows: all(a < 80 for _, _, a in rows)),
    "rows": ("select id from large", ("--bad", "count(*) > 1"), lambda rows: not sum(a > 90 for _, _, a in rows) > 1),
    "joined": (
        "select s.region from sales s join large l on l.amount = s.most", ("--bad", "count(*) >= 1"),
        lambda rows: not any(a == max(b for _, q, b in rows if q == r) for _, _, a in rows if a > 90 for r in REGIONS if any(q == r for _, q, _ in rows)),
    ),
}  # fmt: skip


def history(chance, times):
    """Return orders by time, of which some at one time are wrong: much too small, or much too large."""
    orders, number = {time: [] for time in range(times)}, 0
    wrong = chance.randrange(2, times)
    for time in range(times):
        for _ in range(chance.randrange(4, 9)):
            number += 1
            orders[time].append((number, chance.randrange(9), chance.randrange(20, 60)))
    for _ in range(chance.randrange(2, 5)):
        at = chance.randrange(len(orders[wrong]))
        number, customer, _ = orders[wrong][at]
        orders[wrong][at] = (number, chance.choice((customer, 0)), chance.choice((-9000, -9000, 95, 99)))
    return orders


def rows_of(orders, times, without=()):
    """Return the orders up to a time with their regions, but for some."""
    return [
        (number, REGIONS[customer % 3], amount)
        for time in range(times)
        for number, customer, amount in orders[time]
        if number not in without
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_first_failure_and_the_fewest_rows_are_found(shop, case):
    """The time is the first after one that held; without the rows it would hold, and would not with any one of them."""
    query, condition, holds = CASES[case]
    chance, found = random.Random(case), Counter()
    for number in range(max(3, many(4))):  # of two histories of `total` none fails
        place = f"{number}/"
        orders = history(chance, 8)
        shop.write(place + "p.yaml", PIPELINE)
        shop.write(
            place + "in/customers.csv",
            "customer,region,time\n" + "".join(f"{at},{REGIONS[at % 3]},0\n" for at in range(9)),
        )
        for time, made in orders.items():
            lines = "".join(f"{n},{customer},{amount},{time},1\n" for n, customer, amount in made)
            shop.write(place + f"in/orders/{time}.csv", "id,customer,amount,time,diff\n" + lines)
        assert shop("run", place + "p.yaml", "-q").code == 0
        states = [holds(rows_of(orders, time + 1)) for time in range(8)]
        failing = next(
            (at for at in range(8) if not states[at] and (condition[0] == "--bad" or any(states[:at]))), None
        )
        result = shop("bisect", place + "p.yaml", query, *condition, "-o", "json")
        if failing is None:
            assert result.code == 1
            found["none"] += 1
            continue
        assert result.code == 0, result.err
        answer = json.loads(result.out)
        assert answer["at"] == str(failing)
        again = next((at for at in range(failing, 8) if states[at]), None)
        assert answer["holds_again"] == (None if again is None else str(again))
        culprits = {each["record"]["id"] for each in answer["updates"]}
        assert culprits <= {n for n, _, _ in orders[failing]}
        assert culprits
        assert holds(rows_of(orders, failing + 1, culprits))
        for one in culprits:
            assert not holds(rows_of(orders, failing + 1, culprits - {one}))
        for each in answer["updates"]:
            line = [n for n, _, _ in orders[failing]].index(each["record"]["id"]) + 2
            assert each["at"] == [{"file": f"{place}in/orders/{failing}.csv:{line}", "row": None}]
        found["found"] += 1
    assert found["found"]


SIMPLE = """\
name: s
inputs: {o: {path: in/, columns: {id: int64, amount: int64}}}
collections: {c: {from: o, apply: [{filter: amount > 0}]}}
outputs: {c: out/}
"""


@pytest.fixture
def simple(shop):
    """Return a shop whose number is wrong from the second run on, by two lines that follow each other."""
    shop.write("p.yaml", SIMPLE)
    shop.write("in/1.csv", "id,amount,time,diff\n1,100,1,1\n2,200,1,1\n")
    assert shop("run", "p.yaml", "-q").code == 0
    shop.write("in/2.csv", "id,amount,time,diff\n3,5,2,1\n4,5000,2,1\n5,6000,2,1\n6,5,2,1\n")
    assert shop("run", "p.yaml", "-q").code == 0
    return shop


def test_lines_name_the_values_the_run_the_file_and_its_lines(simple):
    result = simple("bisect", "p.yaml", "select sum(amount) as s from c", "--good", "< 1000")
    lines = result.out.splitlines()
    assert lines[0] == "fails at 2: 11310; before: 300  (good: s < 1000)"
    assert lines[1].startswith("run: commit 2, begun ")
    assert lines[1].endswith("the pipeline file was as before")
    assert lines[2:] == ["o: in/2.csv, lines 3 to 4", "without them it would be 310"]


def test_an_edit_of_the_file_is_no_fault_of_the_rows(simple):
    """The run that corrects the output is named, and that it did so for an edit."""
    simple.write("p.yaml", SIMPLE.replace("amount > 0", "amount > 150"))
    assert simple("run", "p.yaml", "-q", "--apply").code == 0
    simple.write("in/3.csv", "id,amount,time,diff\n7,7,3,1\n")
    assert simple("run", "p.yaml", "-q").code == 0
    result = simple("bisect", "p.yaml", "select count(*) as n from c", "--good", "> 4")
    lines = result.out.splitlines()
    assert lines[0] == "fails at 3: 3; before: 6  (good: n > 4)"
    assert "edited" in lines[1]
    assert not any("without" in line for line in lines)


def test_rows_of_several_inputs_are_named_also_after_an_edit(shop):
    """The number is wrong by an order that is new and one whose customer has moved: without only one of these rows it would be, too. The edit in the range is not at fault."""
    text = (
        "name: s\ninputs:\n  o: {path: in/, columns: {id: int64, customer: int64, amount: int64}}\n"
        "  c: {path: customers/, format: upsert, key: customer, columns: {customer: int64, region: string}}\n"
        "collections: {t: {from: o, apply: [{filter: amount > 0}, {join: {with: c, on: [customer]}}]}}\noutputs: {t: out/}\n"
    )
    shop.write("p.yaml", text)
    shop.write("in/1.csv", "id,customer,amount,time,diff\n1,1,200,1,1\n2,2,300,1,1\n")
    shop.write("customers/1.csv", "customer,region,time\n1,south,0\n2,south,0\n3,north,0\n")
    assert shop("run", "p.yaml", "-q").code == 0
    shop.write("p.yaml", text.replace("amount > 0", "amount > 150"))
    assert shop("run", "p.yaml", "-q", "--apply").code == 0
    shop.write("in/2.csv", "id,customer,amount,time,diff\n3,3,100,2,1\n4,1,500,2,1\n")
    assert shop("run", "p.yaml", "-q").code == 0
    shop.write("in/3.csv", "id,customer,amount,time,diff\n5,1,170,3,1\n6,3,700,3,1\n")
    shop.write("customers/2.csv", "customer,region,time\n1,south,3\n2,north,3\n")
    assert shop("run", "p.yaml", "-q").code == 0
    result = shop("bisect", "p.yaml", "select count(*) as n from t where region = 'north'", "--good", "< 1")
    lines = result.out.splitlines()
    assert lines[0] == "fails at 3: 2; before: 0  (good: n < 1)"
    assert "commit 4" in lines[1]
    assert sorted(lines[2:4]) == ["c: customers/2.csv, line 3", "o: in/3.csv, line 3"]
    assert lines[4:] == ["without them it would be 0"]


def test_a_check_is_asked_by_its_name(simple):
    """When it got its first violation, and by which row; its condition is its own."""
    check = "checks:\n  - row: amount < 5500\n    of: c\n    name: not too much\n    otherwise: warn\n"
    simple.write("p.yaml", SIMPLE + check)
    assert simple("reset", "p.yaml", "--outputs", "--yes").code == 0
    assert simple("run", "p.yaml", "-q").code == 0
    result = simple("bisect", "p.yaml", "not too much")
    lines = result.out.splitlines()
    assert (result.code, lines[0].split(":")[0]) == (0, "fails at 2"), result.err
    assert "o: in/2.csv, line 4" in lines
    both = simple("bisect", "p.yaml", "not too much", "--good", "> 1")
    assert (both.code, "which has a condition of its own" in both.err) == (2, True)
    simple.write(
        "p.yaml", SIMPLE + "checks:\n  - change: {rows: [-10%, +50%]}\n    of: c\n    name: size\n    otherwise: warn\n"
    )
    size = simple("bisect", "p.yaml", "size")
    assert (size.code, "it has no rows to search for" in size.err) == (2, True)


def test_a_replaced_file_is_named_and_not_taken_for_an_edit(shop):
    shop.write(
        "p.yaml",
        """\
dd: 1
name: p
clock: arrival
inputs: {w: {path: in/, format: append, columns: {id: int64, v: int64}, changed: replace}}
collections: {g: {from: w, apply: [{reduce: {m: max(v)}}]}}
outputs: {g: out/g/}
""",
    )
    shop.write("in/1.csv", "id,v\n1,5\n")
    assert shop("run", "p.yaml", "-q").code == 0
    shop.write("in/1.csv", "id,v\n1,50\n")
    assert shop("run", "p.yaml", "-q").code == 0
    result = shop("bisect", "p.yaml", "select * from g", "--bad", "m > 40")
    assert result.code == 0, result.err
    assert "it replaced or withdrew files: 1.csv" in result.out
    assert "edited" not in result.out
    assert "w: in/1.csv, line 2" in result.out


@pytest.mark.parametrize("clock", ["arrival", "event"])
def test_a_check_that_had_failed_is_explained_from_a_withdrawn_file_that_is_still_there(shop, clock):
    """The state has no copy of the file; `dd why` reads it, too, until rows of the input are forgotten."""
    text = CORRECTED.replace("CLOCK", clock).replace("FORMAT", FORMATS[0]).replace(", changed: replace", "")
    shop.write("p.yaml", text + "checks: [{unique: [id], of: w, name: one row of an id}]\n")
    for name, rows in {1: ["1,1,5", "2,1,6"], 2: ["3,1,7", "2,2,8", "4,2,9"], 3: ["5,3,1"]}.items():
        header, tail = ("id,g,v,time", f",{name}") if clock == "event" else ("id,g,v", "")
        shop.write(f"in/{name}.csv", "\n".join([header, *(row + tail for row in rows)]) + "\n")
        accepted = ("--accept", "one row of an id", "--reason", "try") if name > 1 else ()
        assert shop("run", "p.yaml", "-q", *accepted).code == 0
    before = json.loads(shop("bisect", "p.yaml", "one row of an id", "-o", "json").out)
    assert shop("retract", "p.yaml", "in/2.csv", "-q").code == 0
    after = json.loads(shop("bisect", "p.yaml", "one row of an id", "-o", "json").out)
    for found in (before, after):
        ((line,),) = ([at["file"] for at in each["at"]] for each in found["updates"])
        assert (line, found["run"]["number"]) == ("in/2.csv:3", 2)
    assert (before["holds_again"] is None) == (after["holds_again"] is not None)
    result = shop("why", "p.yaml", "g", "g=2", "--as-of", found["at"])
    assert all(line in result.out for line in ("in/2.csv:3", "in/2.csv:4")), result
    first = shop.folder / "in/1.csv"
    forgotten = shop("forget", "p.yaml", "--where", "id = 2")
    first.write_text("".join(line for line in first.read_text().splitlines(keepends=True) if line[0] != "2"))
    assert (forgotten.code, shop("forget", "p.yaml", "--where", "id = 2").code) == (0, 0)
    assert "2.csv" not in shop("why", "p.yaml", "g", "g=2", "--as-of", found["at"]).out


CORRECTED = """\
dd: 1
name: p
clock: CLOCK
inputs: {w: {path: in/, FORMAT, columns: {id: int64, g: int64, v: int64}, changed: replace}}
collections: {g: {from: w, apply: [{reduce: {by: [g], total: sum(v)}}]}}
outputs: {g: out/g/}
"""
FORMATS = ("format: append", "format: upsert, key: [id]")


@pytest.mark.parametrize("clock", ["arrival", "event"])
@pytest.mark.parametrize("form", FORMATS)
def test_one_bad_row_is_named_where_files_are_replaced_or_withdrawn_too(shop, clock, form):
    """Of a history of added, replaced and withdrawn files exactly the row that was made wrong is named: it came with a new or a corrected file, or it went with one."""
    for number in range(many(12)):
        chance = random.Random(f"{clock} {form} {number}")
        place, kept, files, wrong = f"{number}/", 0, {}, chance.randrange(2, 7)
        shop.write(place + "p.yaml", CORRECTED.replace("CLOCK", clock).replace("FORMAT", form))

        def write(name, rows, place=place):
            time = int(name)
            header, tail = ("id,g,v,time", f",{time}") if clock == "event" else ("id,g,v", "")
            shop.write(f"{place}in/{name}.csv", "\n".join([header, *(f"{i},{g},{v}{tail}" for i, g, v in rows)]) + "\n")

        for step in range(8):
            kind = chance.choice(["add", "replace", "withdraw"]) if step > 1 and len(files) > 1 else "add"
            if kind == "add":
                name, rows = (
                    f"{step + 1}",
                    [(kept + at, chance.randrange(3), chance.randrange(1, 50)) for at in range(chance.randrange(2, 6))],
                )
                kept += len(rows)
            else:
                name = chance.choice([*files])
                rows = [(i, g, chance.randrange(1, 50)) for i, g, _ in files[name]]
            bad, culprit = chance.randrange(len(rows)), None
            if step == wrong and kind != "withdraw":
                rows[bad] = (*rows[bad][:2], -10_000)
                culprit = (f"{place}in/{name}.csv:{bad + 2}", False)
            elif step == wrong:
                # One that only a large row's absence makes wrong: it is added first, in a file of its own.
                name = f"{step + 1}"
                files[name] = [(9_000, 0, 100_000)]
                write(name, files[name])
                assert shop("run", place + "p.yaml", "-q").code == 0
                culprit = (f"{place}in/{name}.csv:2", True)
            if kind == "withdraw":
                (shop.folder / f"{place}in/{name}.csv").unlink()
                del files[name]
            else:
                files[name] = rows
                write(name, rows)
            result = (
                shop("run", place + "p.yaml", "-q")
                if kind != "withdraw"
                else shop("retract", place + "p.yaml", f"{place}in/{name}.csv", "-q")
            )
            assert result.code == 0, (kind, result)
            if culprit is not None:
                break
        limit = ("> 90000",) if culprit[1] else ("> -1000",)
        result = shop(
            "bisect", place + "p.yaml", "select coalesce(sum(total), 0) as t from g", "--good", *limit, "-o", "json"
        )
        assert result.code == 0, (kind, result)
        found = json.loads(result.out)
        assert [(at["file"], each["went"]) for each in found["updates"] for at in each["at"]] == [culprit], (
            kind,
            found,
        )
        assert found["replaced"] == ([] if kind == "add" else [f"{name}.csv"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("select 1 from c", "--good", "> 1", "--bad", "> 1"), "state one condition, `--good` or `--bad`"),
        (("select amount from c",), "a condition is needed"),
        (("amounts",), "no check is named 'amounts'"),
        (("select amount from o", "--good", "> 1"), "no collection is named `o`"),
        (("select amount from c", "--good", "amount"), "is int64, not true or false"),
        (("select amount from c", "--good", "> 0"), "does not fail"),
        (("select amount from c", "--good", "< 0"), "has never held"),
    ],
)
def test_what_is_wrong(simple, arguments, says):
    result = simple("bisect", "p.yaml", *arguments)
    assert result.code in (1, 2)
    assert says in result.err


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("total >", "error: `total >` is not a whole condition\nhint: for example"),
        ("sum(total", "error: `sum(total` is not a whole condition\n"),
        ("total > 0) as x, (1", "error: `total > 0) as x, (1` is not a whole condition\n"),
        ("total > 0) from sales where (n > 1", "error: `total > 0) from sales where (n > 1` is not a whole condition\n"),
        ("totl > 3", "condition:1:1: error: no column is named `totl`\n           1 | totl > 3\n"),
        ("total > 3\nand n < 'x'", "condition:2:9: error: `<` needs arguments of one type, got int64 and string\n           2 | and n < 'x'\n"),
        ("> 'x'", "condition:1:9: error: `>` needs arguments of one type"),
        ("total + 1", "error: the condition `total + 1` is int64, not true or false\n"),
    ],
)  # fmt: skip
def test_an_error_in_a_condition_is_at_its_place(shop, condition, message):
    """A person has not written the query in which it is evaluated."""
    shop.write("sales.yaml", f"clock: arrival\n{PIPELINE}")
    shop.write("in/orders/0.csv", "id,customer,amount\n1,0,5\n")
    shop.write("in/customers.csv", "customer,region\n0,north\n")
    assert shop("run", "sales.yaml").code == 0
    done = shop("bisect", "sales.yaml", "select total, n from sales -- all", "--good", condition)
    assert done.code == 2
    assert done.err.startswith(message)
    assert "verdict" not in done.err


@given(st.data())
def test_the_least_set_works_and_all_of_it_is_needed(data):
    """Whether more elements always work where some do, or not; and few needed ones take few tries."""
    count = data.draw(st.integers(1, 40))
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    other = data.draw(st.sets(st.integers(0, count - 1), min_size=1) | st.none())
    spoils = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    tried = []

    def works(some):
        tried.append(some)
        assert len(some) == len({*some})
        fits = needed <= {*some} or (other is not None and other <= {*some})
        return fits and (len(some) == count or not spoils <= {*some} or not spoils)

    found = _Tries().least([*range(count)], works)
    assert len(found) == count or works(found)
    assert not any(works([one for one in found if one != each]) for each in found if len(found) > 1)
    if other is None and not spoils:
        assert {*found} == needed
        assert len(tried) <= 2 * (len(needed) + 1) * (2 + (count // len(needed)).bit_length())


def test_four_needed_of_a_thousand_take_few_tries():
    tries = _Tries()
    assert sorted(tries.least([*range(1_000)], lambda some: {3, 4, 5, 997} <= {*some})) == [3, 4, 5, 997]
    assert MOST_TRIALS - tries.left < 45
