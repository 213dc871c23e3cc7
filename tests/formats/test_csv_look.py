"""The look of CSV files: random tables with and without a header, in any of the usual delimiters, are seen as they were written."""

import csv
import io
import random

import duckdb
import pytest

from ddcli.errors import InputError
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME, parse_type
from ddcli.store.formats.base import Append
from ddcli.store.log.reader import LogReader
from ddcli.store.tables.column_types import look_of
from ddcli.store.tables.files import Tables
from ddcli.store.tables.inventory import list_input
from tests.draws import many

VALUES = {
    "int": lambda c: str(c.randrange(-99, 10**6)),
    "float": lambda c: repr(c.uniform(-5, 5)),
    "scientific": lambda c: f"{c.uniform(-5, 5):e}",
    "date": lambda c: f"20{c.randrange(10, 30)}-{c.randrange(1, 13):02}-{c.randrange(1, 29):02}",
    "day": lambda c: f"{c.randrange(1, 29):02}.{c.randrange(1, 13):02}.2024",
    "time": lambda c: f"2024-01-{c.randrange(1, 29):02} {c.randrange(24):02}:30:00",
    "bool": lambda c: c.choice(["true", "False"]),
    "text": lambda c: c.choice(["Ann", "b c", "x-1", "No. 5", "O'Neil", "a,b", "c;d"]),
}
NAMES = ["id", "name", "Price 2", "day", "x", "Größe", "unit price", "A1", "col_7"]


def table(chance):
    """Return the kinds of columns and their rows."""
    kinds = [chance.choice(list(VALUES)) for _ in range(chance.randrange(1, 6))]
    rows = [[VALUES[kind](chance) for kind in kinds] for _ in range(chance.randrange(1, 9))]
    for row in rows[2:]:  # the one before shows its type
        if len(row) > 1 and chance.random() < 0.2:
            row[chance.randrange(len(row))] = chance.choice(["", "NA"])
    return kinds, rows


def written(rows, delimiter):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue()


def test_random_tables_look_as_they_are_written(tmp_path):
    path, rowlike = tmp_path / "a.csv", 0
    for seed in range(many(400)):
        chance = random.Random(f"look {seed}")
        kinds, rows = table(chance)
        delimiter = chance.choice([",", ";", "\t", "|"])
        named = chance.random() < 0.5
        if not named:  # `a,b` in each record would be two columns
            rows = [[value.replace("a,b", "a").replace("c;d", "c") for value in row] for row in rows]
        excel = named and chance.random() < 0.1
        head = [chance.sample(NAMES, len(kinds))] if named else []
        path.write_text((f"sep={delimiter}\n" if excel else "") + written([*head, *rows], delimiter))
        wanted = {"delimiter": delimiter} if delimiter != "," and len(kinds) > 1 else {}
        wanted |= {"delimiter": delimiter, "skip": 1} if excel else {}
        wanted |= {"header": False} if not named and set(kinds) != {"text"} else {}
        assert look_of(path, DEFAULT) == wanted, (seed, path.read_text())
        assert look_of(path, Dialect(delimiter, skip=int(excel), header=named)) == {}
        rowlike += "header" in wanted
        if "header" in wanted and not excel and len(rows) > 1:
            assert duckdb.read_csv(str(path), header=False, delimiter=delimiter, all_varchar=True).shape[0] == len(rows)
    assert rowlike > many(400) // 5


@pytest.mark.parametrize(
    "text",
    [
        "country,1990,1991,1992\nFrance,1.5,2.5,3.5\n",  # years
        "0,1,2,3\n5.1,3.5,1.4,0.2\n4.9,3.0,1.4,0.2\n",  # as pandas numbers columns
        ",x\n0,5\n1,6\n",  # as pandas writes an index
        "id,name\n",
        "name\nAnn\n",
        "full name\nann lee\nbob ray\n",
        "a,b\n,\n",
        "",
    ],
)
def test_a_header_of_odd_names_is_none_the_less_one(text, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    assert look_of(tmp_path / "a.csv", DEFAULT) == {}


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1,Ann\n2,Bob\n", "if the first line is a row and no header: `csv: {header: false}`"),
        ("sep=;\nid;name\n1;Ann\n", "set `csv: {skip: 1}` under the input, and `delimiter`"),
        ("id;name\n1;Ann\n", 'set `csv: {delimiter: ";"}` under the input'),
    ],
)
def test_declared_columns_that_a_file_lacks_have_a_hint_by_its_look(text, hint, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    log = Append((ARRIVAL,), {"id": parse_type("int64"), ARRIVAL: ARRIVAL_TIME})
    with pytest.raises(InputError, match="the file has no column 'id'") as caught:
        LogReader(list_input("a.csv", tmp_path).with_arrival(0), log)
    assert hint in caught.value.hint


def test_another_encoding_is_noticed_before_the_look(tmp_path, shop):
    shop.write(
        "p.yaml", "clock: arrival\ninputs: {a: {path: a.csv, format: append, columns: infer}}\noutputs: {a: out/}\n"
    )
    (shop.folder / "a.csv").write_bytes("id;name\n1;Jürg\n".encode("utf-16"))
    for command in (("sql", "select * from 'a.csv'"), ("run", "p.yaml"), ("check", "p.yaml")):
        found = shop(*command)
        assert found.code != 0
        assert "the file is UTF-16, not UTF-8" in found.err, command
        assert "`csv: {encoding: utf-16}`" in found.err, command


def test_marks_between_thousands_have_a_hint(tmp_path):
    (tmp_path / "a.csv").write_text('id\n"1,234"\n')
    tables = Tables({"id": parse_type("int64")})
    with pytest.raises(InputError, match="'1,234' in column 'id' can't be read as int64") as caught:
        tables.collect([tmp_path / "a.csv"], ["id"])
    assert '`csv: {thousands: ","}`' in caught.value.hint
