"""Columns that files have under several names: rows are the same under each, in every kind of files with names."""

import json
from collections import Counter

import openpyxl
import polars as pl
import pytest

from ddcli.commands.check import check
from ddcli.errors import UsageError
from ddcli.plan.pipeline_file import parse_spec
from tests.draws import chance
from tests.formats.avro import avro_file

NAMES = ("area", "Area_Name", "Area/Name")
COLUMNS = '{day: date, area: {type: string?, from: [Area_Name, "Area/Name"]}, n: {type: int64, from: count}}'


def pipeline(shop, columns=COLUMNS, keys="format: append"):
    text = f"clock: arrival\ninputs: {{t: {{path: in/, {keys}, columns: {columns}}}}}\noutputs: {{t: out/}}\n"
    shop.write("p.yaml", text)


def write(shop, file, names, rows):
    """Write rows of an area and a number, in columns of these names."""
    kind = file.rpartition(".")[2]
    path = shop.folder / "in" / file
    path.parent.mkdir(exist_ok=True)
    table = [dict(zip(("other", "day", *names), (7, "2024-03-01", *row), strict=True)) for row in rows]
    if kind == "csv":
        lines = [",".join(map(json.dumps, ("other", "day", *names)))]
        lines += [",".join("" if each is None else str(each) for each in row.values()) for row in table]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "ndjson":
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    elif kind == "avro":
        types = {"day": {"type": "int", "logicalType": "date"}, names[0]: ["null", "string"]}
        fields = [{"name": name, "type": types.get(name, "long")} for name in ("other", "day", *names)]
        schema = {"type": "record", "name": "r", "fields": fields}
        path.write_bytes(avro_file(schema, [row | {"day": 19783} for row in table]))
    elif kind == "xlsx":
        book = openpyxl.Workbook()
        book.active.append(["other", "day", *names])
        for row in table:
            book.active.append(list(row.values()))
        book.save(path)
    else:
        frame = pl.DataFrame(table, schema_overrides=dict.fromkeys(names[:1], pl.String))
        frame = frame.with_columns(pl.col("day").str.to_date())
        (frame.write_parquet if kind == "parquet" else frame.write_ipc)(path)


def held(shop):
    found = Counter()
    for row in json.loads(shop("log", "out", "--as-of", "latest", "-o", "json").out):
        found[row["area"], row["n"]] += row["diff"]
    return found


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "arrow", "avro", "xlsx"])
def test_rows_are_the_same_under_each_name(shop, kind):
    random, expected = chance(kind), Counter()
    pipeline(shop)
    for run in range(2):
        for file in range(3):
            # Avro has no slash in a name.
            names = random.choice(NAMES[:2] if kind == "avro" else NAMES), random.choice(["n", "count"])
            rows = [(random.choice(["x", "y", None]), random.randint(0, 9)) for _ in range(4)]
            write(shop, f"{run}{file}.{kind}", names, rows)
            expected.update(rows)
        assert not check(shop.folder / "p.yaml").errors
        assert shop("run", "p.yaml").code == 0
        assert held(shop) == expected


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "avro", "xlsx"])
def test_a_file_with_several_of_the_names_is_refused(shop, kind):
    pipeline(shop, "{day: date, area: {type: string?, from: Area_Name}, n: {type: int64, from: area_2}, other: int64}")
    write(shop, f"1.{kind}", ("area", "n"), [("x", 1)])
    assert shop("run", "p.yaml").code == 0
    write(shop, f"2.{kind}", ("n", "area_2"), [("1", 1)])
    found = shop("run", "p.yaml")
    assert found.code == 3
    assert f"in/2.{kind}: error: the file has several columns for 'n': n, area_2\nhint: remove all but one" in found.err


def test_a_value_that_does_not_fit_is_named_by_column_line_and_text(shop):
    pipeline(shop)
    write(shop, "1.csv", ("Area/Name", "count"), [("x", 1), ("y", "1.5")])
    assert "in/1.csv:3: error: '1.5' in column 'n' can't be read as int64" in shop("run", "p.yaml").err


def test_a_later_file_without_a_column_is_asked_for_its_new_name(shop):
    pipeline(shop, "{day: date, area: string, n: int64, other: int64}")
    write(shop, "1.csv", ("area", "n"), [("x", 1)])
    assert shop("run", "p.yaml").code == 0
    write(shop, "2.csv", ("Province_State", "n"), [("y", 2)])
    hint = "if it has it as 'Province_State' now, state both names under the input's `columns`: "
    proposed = "area: {type: string, from: [Province_State]}"
    assert f"in/2.csv: error: the file has no column 'area'\nhint: {hint}`{proposed}`" in shop("run", "p.yaml").err
    pipeline(shop, f"{{day: date, {proposed}, n: int64, other: int64}}")
    assert "+1 -0" in shop("run", "p.yaml").err  # the state goes on: no other row is read
    assert held(shop) == Counter({("x", 1): 1, ("y", 2): 1})


@pytest.mark.parametrize(("delimiter", "name"), [(";", "semicolon"), ("\t", "tab"), ("|", "bar")])
def test_a_later_file_with_another_delimiter_is_asked_for_that(shop, delimiter, name):
    pipeline(shop, "{day: date, area: string, n: int64}")
    write(shop, "1.csv", ("area", "n"), [("x", 1)])
    assert shop("run", "p.yaml").code == 0
    shop.write("in/2.csv", "other,day,area,n\n7,2024-03-01,y,2\n".replace(",", delimiter))
    err = shop("run", "p.yaml").err
    assert f"its columns seem to be separated by a {name}: save it with the delimiter of the other files" in err


def test_a_row_of_json_without_a_column_is_asked_for_its_new_name(shop):
    """A value that is not there is null in JSON. One that is null is no other column's, and columns of JSON that mean nothing are passed over."""
    pipeline(shop)
    (shop.folder / "in").mkdir()
    shop.write("in/1.ndjson", '{"day": "2024-03-01", "n": 1}\n{"day": "2024-03-01", "Count": 2, "other": 7}\n')
    err = shop("run", "p.yaml").err
    assert "in/1.ndjson:2: error: column 'n' has a null" in err
    assert "if it has it as another name (it has Count, other) now, state both names" in err
    assert "`n: {type: int64, from: [count, NAME]}`" in err
    shop.write("in/1.ndjson", '{"day": "2024-03-01", "N": 1}\n')
    assert "`n: {type: int64, from: [count, N]}`" in shop("run", "p.yaml").err
    for row in ('{"day": "2024-03-01", "count": null, "other": 7}', '{"day": "2024-03-01"}'):
        shop.write("in/1.ndjson", row + "\n")
        assert "if it may hold nulls, declare it with '?'" in shop("run", "p.yaml").err


def test_a_later_file_without_the_time_is_asked_for_its_new_name(shop):
    shop.write(
        "p.yaml",
        "clock: event\ninputs: {t: {path: in/, format: append, time: day, columns: {day: date, n: int64}}}\noutputs: {t: out/}\n",
    )
    shop.write("in/1.csv", "day,n\n2024-03-01,1\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("in/2.csv", "n,Date\n2,2024-03-02\n")
    err = shop("run", "p.yaml").err
    assert "the file has no column 'day'\nhint: if it has it as 'Date' now, state both names" in err
    assert "`day: {type: date, from: [Date]}`" in err


def test_names_that_would_give_json_other_rows_are_refused_until_all_is_read_anew(shop):
    pipeline(shop, "{day: date, area: string?, n: int64}")
    write(shop, "1.ndjson", ("Area_Name", "n"), [("x", 1)])
    assert shop("run", "p.yaml").code == 0
    assert held(shop) == Counter({(None, 1): 1})
    pipeline(shop, "{day: date, area: {type: string?, from: Area_Name}, n: int64}")
    write(shop, "2.ndjson", ("area", "n"), [("y", 2)])
    assert "were read with other names of its column 'area'" in shop("run", "p.yaml").err
    assert shop("run", "p.yaml", "--full-refresh", "all").code == 0
    assert held(shop) == Counter({("x", 1): 1, ("y", 2): 1})


def test_a_replaced_file_may_have_another_name_for_a_column(shop):
    pipeline(shop, keys="format: upsert, key: n, changed: replace")
    write(shop, "1.csv", ("Area/Name", "n"), [("x", 1), ("y", 2)])
    assert shop("run", "p.yaml").code == 0
    write(shop, "1.csv", ("Area_Name", "count"), [("x", 1), ("zz", 2)])
    assert "(+1 -1)" in shop("run", "p.yaml").err
    assert held(shop) == Counter({("x", 1): 1, ("zz", 2): 1})


@pytest.mark.parametrize(
    ("keys", "columns", "problem"),
    [
        ("format: append", "{a: {type: int64, from: b}, b: int64}", "'b' is a name of two columns"),
        ("format: append", "{a: {type: int64, from: b}, c: {type: int64, from: [b]}}", "'b' is a name of two columns"),
        ("format: append", "{a: {type: int65, from: b}}", "unknown type 'int65'"),
        ("format: append, csv: {header: false}", "{a: {type: int64, from: b}}", "files without a header have no names"),
        ("format: debezium, key: a", "{a: {type: int64, from: b}}", "events of Debezium have one table's columns"),
    ],
    ids=["a column", "twice", "type", "no header", "debezium"],
)
def test_names_that_mean_nothing_are_refused(keys, columns, problem):
    text = f"inputs: {{t: {{path: in/, {keys}, columns: {columns}}}}}\noutputs: {{t: out/}}\n"
    with pytest.raises(UsageError, match=problem):
        parse_spec(text, "p.yaml")
