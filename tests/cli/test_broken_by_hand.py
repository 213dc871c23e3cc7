"""What people do to a pipeline of their own over a CSV file, and whether the message alone says what to do about it.

Each case is an edit of the right pipeline or its data; the answer names the place, the problem and a hint.
"""

import pytest

from ddcli.plan.operators.table import OPERATORS
from tests.cases import cases
from tests.harness import contents

PIPELINE = """\
dd: 1
name: expenses
inputs:
  expenses:
    path: in/
    format: append
    time: day
    columns: {day: date, person: string, category: string, amount: "decimal(10, 2)"}
collections:
  by_person:
    from: expenses
    apply:
      - filter: category <> 'rent'
      - reduce: {by: [person], total: sum(amount)}
outputs:
  by_person: out/by_person/
"""
DATA = """\
day,person,category,amount
2024-03-01,ann,food,12.40
2024-03-01,bob,rent,800
2024-03-02,ann,travel,45.10
"""


@pytest.fixture
def mine(shop):
    """Return a shop with the pipeline and its data, both right."""
    shop.write("expenses.yaml", PIPELINE)
    shop.write("in/1.csv", DATA)
    return shop


def test_nothing_is_wrong_before(mine):
    assert mine("check", "expenses.yaml").code == 0
    assert mine("run", "expenses.yaml").code == 0
    assert [row[0] for row in contents(mine.folder / "out/by_person", None)] == ["ann"]


@cases("""
case → before → after → place → problem → hint
a tab → expenses:⏎    path: → expenses:⏎\tpath: → 5:1 → a tab in the indentation → indent with spaces
a bracket that is open → [person] → [person → 14:49 → '}' is unexpected → quote the expression
a quote that is open → sum(amount) → 'sum(amount) → 14:39 → a quote is not closed → close it
a colon less → by_person:⏎    from → by_person⏎    from → 11:9 → a colon in a place → the indentation
a space less → from: expenses⏎    apply: → from: expenses⏎   apply: → 12:4 → does not fit those above it → check the indentation
no space after a colon → total: s → total:s → 14:32 → found nothing → space after the colon: `total: sum
no list → - filter: category <> 'rent'⏎      - reduce → reduce → 13:7 → must be a list of operators, found a mapping → begin each item with `- `
a comma in a plain value → "decimal(10, 2)" → decimal(10, 2) → 8:68 → a comma cuts → "decimal(10, 2)"
no space after a key → path: in/ → path:in/ → 5:5 → a colon without a space → write `key: value`
nothing to apply → ⏎      - filter: category <> 'rent'⏎      - reduce: {by: [person], total: sum(amount)} → → 12:5 → found nothing → `- `
a key → format: → formt: → 6:5 → unknown key 'formt' → did you mean `format`?
a section → collections: → colections: → 9:1 → unknown key 'colections' → did you mean `collections`?
an operator → reduce: → redcue: → 14:9 → unknown operator 'redcue' → did you mean `reduce`?
an input → from: expenses → from: expense → 11:11 → is named 'expense' → did you mean `expenses`?
a column → sum(amount) → sum(amuont) → 14:43 → no column is named `amuont` → did you mean `amount`?
a function → sum(amount) → summ(amount) → 14:39 → no function is named `summ` → did you mean `sum`?
a type → day: date → day: dat → 8:20 → unknown type 'dat' → did you mean `date`?
a circle → from: expenses → from: [expenses, by_person] → 11:22 → depends on itself → that takes `iterate`
an operator of SQL's → - reduce: → - group_by: → 14:9 → unknown operator 'group_by' → that is `reduce` here
a sign of another language → <> 'rent' → <> 'x' && true → 13:33 → unexpected `&&` → write `and`
text in double quotes → 'rent' → "rent" → 13:29 → no column is named `rent` → single quotes: 'rent'
a sum of texts → sum(amount) → sum(person) → 14:43 → sum expects numbers, got string
text and number → 'rent' → 12 → 13:29 → needs arguments of one type, got string and int64 → cast one
a column that the file hasn't → category: s → categry: s → 5:11 → no column 'categry' → mean 'category'?
no time → append⏎    time: day⏎ → updates⏎ → 5:11 → no column 'time' → `clock: arrival`
types that text doesn't say → ⏎    columns: {day: date, person: string, category: string, amount: "decimal(10, 2)"} → → 5:11 → has no column types → `columns: {day: date, person: string, category: string, amount: "decimal(18, 2)"}`
""")
def test_a_pipeline_file_that_is_wrong(mine, case, before, after, place, problem, hint):
    """A check says it, a run says the same."""
    assert before in PIPELINE
    mine.write("expenses.yaml", PIPELINE.replace(before, after, 1))
    result = mine("check", "expenses.yaml")
    assert result.code in {2, 3}
    first = result.err[: result.err.find("\nexpenses.yaml:")] if "\nexpenses.yaml:" in result.err else result.err
    assert first.startswith(f"expenses.yaml:{place}: error: "), result.err
    assert problem in first.splitlines()[0]
    assert hint in first.partition("hint: ")[2]
    again = mine("run", "expenses.yaml")
    assert (again.code, problem in again.err) == (result.code, True)
    assert not (mine.folder / "out").exists()


@cases("""
case → before → after → place → problem → hint
a number that is none → 800 → 8oo → 1.csv:3 → '8oo' in column 'amount' can't be read as decimal(10, 2) → correct the file
a date of another country → 2024-03-02 → 02.03.2024 → 1.csv:4 → '02.03.2024' in column 'day' can't be read as date → written 2013-01-31
a comma in a number → 45.10 → 1,045.10 → 1.csv:4 → the line has 5 fields, the header 4 → has a comma
semicolons → , → ; → 1.csv → no column 'day' → the header has ';' between its names
an empty field → bob → → 1.csv:3 → column 'person' has a null → `person: "string?"`
nothing at all → day,person,category,amount⏎2024-03-01,ann,food,12.40⏎2024-03-01,bob,rent,800⏎2024-03-02,ann,travel,45.10⏎ → → 1.csv → the file is empty → write the file again
another encoding → bob → b\udcf6b → 1.csv:3 → the line is not UTF-8 → save the file as UTF-8
""")
def test_data_that_are_wrong(mine, case, before, after, place, problem, hint):
    assert before in DATA
    (mine.folder / "in/1.csv").write_bytes(DATA.replace(before, after).encode(errors="surrogateescape"))
    result = mine("run", "expenses.yaml")
    assert result.code == 3
    assert result.err.startswith(f"in/{place}: error: "), result.err
    assert problem in result.err.splitlines()[0]
    assert hint in result.err.partition("hint: ")[2]
    assert not (mine.folder / "out").exists()


def test_a_path_that_is_not_there_is_noted_by_a_check_and_refused_by_a_run(mine):
    mine.write("expenses.yaml", PIPELINE.replace("path: in/", "path: inn/"))
    result = mine("check", "expenses.yaml")
    assert result.code == 0
    assert result.err == "expenses.yaml: note: inputs.expenses: no files here; its columns are as declared\n"
    result = mine("run", "expenses.yaml")
    assert result.code == 3
    assert "there is no file or directory 'inn/'" in result.err


def test_rows_that_come_late_are_found_at_their_line(mine):
    assert mine("run", "expenses.yaml").code == 0
    mine.write("in/2.csv", "day,person,category,amount\n2024-03-09,eve,food,1\n2024-03-01,eve,food,1\n")
    result = mine("run", "expenses.yaml")
    assert result.code == 3
    assert result.err.startswith("in/2.csv:3: error: late rows: this row has the time 2024-03-01")
    assert "`late: quarantine`" in result.err
    mine.write("expenses.yaml", PIPELINE.replace("    time: day", "    time: day\n    late: quarantine"))
    assert mine("run", "expenses.yaml").code == 0


@pytest.mark.parametrize("name", ["expenses", "expense.yaml", "expenses.yml"])
def test_a_file_that_is_called_otherwise(mine, name):
    result = mine("run", name)
    assert (result.code, result.err) == (
        2,
        f"{name}: error: there is no such pipeline file\nhint: did you mean 'expenses.yaml'?\n",
    )


def test_a_file_that_is_no_pipeline(mine):
    result = mine("check", "in/1.csv")
    assert result.err.startswith(f"in/1.csv:1:1: error: must be a mapping, found '{DATA[:60]}".replace("\n", " "))
    assert "..." in result.err


@pytest.mark.parametrize("change", ["appended", "gone"])
def test_a_file_that_was_taken_in_and_changed(mine, change):
    """The hint's second way works: recompute everything."""
    assert mine("run", "expenses.yaml").code == 0
    file = mine.folder / "in/1.csv"
    if change == "appended":
        file.write_text(DATA + "2024-03-04,eve,food,1.00\n")
    else:
        file.rename(file.with_name("3.csv"))
    result = mine("run", "expenses.yaml")
    assert result.code == 3
    assert "in/1.csv: error: a file that was already read has " in result.err
    way = "and new rows into a file of their own" if change == "appended" else "`missing: retract` under the input"
    assert way in result.err
    assert "`dd run expenses.yaml --full-refresh all`" in result.err
    result = mine("run", "expenses.yaml", "--full-refresh", "all")
    assert result.code == 0, result.err
    found = {row[0] for row in contents(mine.folder / "out/by_person")}
    assert found == ({"ann", "eve"} if change == "appended" else {"ann"})


def test_other_names_of_operators_lead_to_operators():
    words = [word for row in OPERATORS.values() for word in row.other_words]
    assert len(words) == len(set(words)) > 30
    assert not {name.replace("_", "") for name in OPERATORS} & set(words)
