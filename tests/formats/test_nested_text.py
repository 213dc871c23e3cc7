"""Lists and structs of text: random JSON in CSV and NDJSON is read as Python's `json` and plain casts read it, or refused."""

import csv
import io
import json
import pickle
import random
import re
from datetime import date
from decimal import Decimal

import polars as pl
import pytest
import yaml

from ddcli.driver.run import run
from ddcli.errors import InputError, SpecErrors
from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME, Type, parse_type
from ddcli.store.formats.base import Append
from ddcli.store.log.reader import LogReader
from ddcli.store.tables import text_syntax
from ddcli.store.tables.inventory import list_input
from tests.draws import many

LEAVES = ["int64", "int64?", "string?", "float64?", "decimal(9, 2)?", "date?", "bool?"]
VALUES = {
    "int64": [0, -7, 2**53 + 1, "5"],
    "string": [
        "",
        "a b",
        'say "hi"',
        "é",
        "[1]",
        1,
        True,
        [1, "x"],
        {"k": None},
        "C:\\new",
        "a\tb",
        "\x01",
        ["\b\n"],
        {'k"\\': "\\"},
    ],
    "float64": [0.5, 3, "1e3", -2.25],
    "decimal": [1.25, "2.50", 12345678901.25, 3],
    "date": ["2024-01-31"],
    "bool": [True, False, "true"],
}
WRONG = ["x y", {}, [], {"a": 1}, [[]], 1.255, None, "2024-02-30"]


def some_type(chance, depth=0):
    if depth == 2 or (depth and chance.random() < 0.5):
        return chance.choice(LEAVES)
    null = chance.choice(["", "?"])
    if chance.random() < 0.5:
        return f"list[{some_type(chance, depth + 1)}]{null}"
    names = chance.sample(["a", "b", "c"], chance.randrange(1, 4))
    return f"struct[{', '.join(f'{name}: {some_type(chance, depth + 1)}' for name in names)}]{null}"


def some_value(chance, kind):
    if chance.random() < 0.02:
        return chance.choice(WRONG)
    if kind.nullable and chance.random() < 0.15:
        return None
    if kind.inner is not None:
        return [some_value(chance, kind.inner) for _ in range(chance.randrange(4))]
    if kind.fields:
        members = {name: some_value(chance, inner) for name, inner in kind.fields if chance.random() < 0.9}
        return members | ({"other": 1} if chance.random() < 0.2 else {})
    return chance.choice(VALUES[kind.kind])


class Refused(Exception):
    """A value that is not of its type."""


def wanted(value, kind):
    """Return the value of a type that a value of JSON is. Raises Refused."""
    if value is None:
        if not kind.nullable:
            raise Refused
        return None
    if kind.inner is not None:
        if not isinstance(value, list):
            raise Refused
        return [wanted(each, kind.inner) for each in value]
    if kind.fields:
        if not isinstance(value, dict):
            raise Refused
        return {name: wanted(value.get(name), inner) for name, inner in kind.fields}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if kind.kind == "string":
        return text
    if kind.kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind.kind == "int64" and re.fullmatch(r"-?\d+", text):
        return int(text)
    if kind.kind == "date" and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise Refused from None
    number = re.fullmatch(r"-?\d+(\.\d+)?", text)
    if kind.kind == "float64" and (number or text == "1e3"):
        return float(text)
    if kind.kind == "decimal" and number and Decimal(text) == round(Decimal(text), 2) and abs(Decimal(text)) < 10**7:
        return Decimal(text).quantize(Decimal("0.01"))
    raise Refused


def written(values, kind):
    if kind == "csv":
        text = io.StringIO()
        rows = [[at, "" if value is None else json.dumps(value)] for at, value in enumerate(values)]
        csv.writer(text, lineterminator="\n").writerows([["id", "v"], *rows])
        return text.getvalue()
    return "".join(json.dumps({"id": at, "v": value}) + "\n" for at, value in enumerate(values))


def read(folder, column, most):
    columns = {"id": parse_type("int64"), "v": column, ARRIVAL: ARRIVAL_TIME}
    reader = LogReader(list_input("in", folder).with_arrival(0), Append((ARRIVAL,), columns))
    reader.largest_time()
    rows = []
    for part in reader.take(["id", "v"], None, (), most).slices:
        frame = pickle.loads(pickle.dumps(part)).read().frame  # noqa: S301 - as a task of another process gets it
        assert frame["v"].dtype == column.to_polars()
        rows += frame.select("id", "v").rows()
    return [value for _, value in sorted(rows, key=lambda row: row[0])]


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_random_json_is_read_as_python_reads_it_or_refused(tmp_path, monkeypatch, kind, compiled):
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    (tmp_path / "in").mkdir()
    seen = {"read": 0, "refused": 0}
    for seed in range(many(120)):
        chance = random.Random(f"nested {seed}")
        column = parse_type(some_type(chance))
        assert isinstance(column, Type)
        values = [some_value(chance, column) for _ in range(chance.randrange(1, 7))]
        (tmp_path / f"in/a.{kind}").write_text(written(values, kind))
        try:
            want = [wanted(value, column) for value in values]
        except Refused:
            want = None
        try:
            found = read(tmp_path, column, chance.choice([None, 2]))
        except InputError:
            found = None
        assert found == want, (seed, str(column), values)
        seen["refused" if want is None else "read"] += 1
    assert min(seen.values()) > many(120) // 20, seen


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
def test_lists_and_objects_in_a_column_of_text_keep_their_escapes(tmp_path, monkeypatch, compiled):
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    (tmp_path / "in").mkdir()
    values = [["C:\\new"], {"a": {"b": "\t"}}, {'k"': 1}, {"k\\": [1]}, ["\n", '"'], ["\u0001\u00e9"]]
    (tmp_path / "in/a.ndjson").write_text(written(values, "ndjson"))
    assert [json.loads(text) for text in read(tmp_path, parse_type("string"), None)] == values


def pipeline(folder, column, **more):
    said = {"path": "in/", "format": "append", "columns": {"id": "int64", "v": column}}
    file = {"inputs": {"a": said}, "outputs": {"a": "out/"}, **more}
    (folder / "in").mkdir(exist_ok=True)
    (folder / "p.yaml").write_text(yaml.safe_dump(file))
    return folder / "p.yaml"


def test_runs_take_in_what_files_add(tmp_path):
    path = pipeline(tmp_path, "list[struct[sku: string, n: int64?]]")
    (tmp_path / "in/1.ndjson").write_text('{"id": 1, "v": [{"sku": "x", "n": 2}, {"sku": "y"}]}\n')
    run(path)
    (tmp_path / "in/2.csv").write_text('id,v\n2,"[]"\n')
    run(path)
    rows = (
        pl.concat(map(pl.read_parquet, sorted((tmp_path / "out").glob("*.parquet"))))
        .sort("id")
        .select("id", "v")
        .rows()
    )
    assert rows == [(1, [{"sku": "x", "n": 2}, {"sku": "y", "n": None}]), (2, [])]


def test_a_value_that_is_none_is_refused_at_its_line_or_put_aside(tmp_path):
    path = pipeline(tmp_path, "list[int64]")
    (tmp_path / "in/1.csv").write_text('id,v\n1,"[1]"\n2,"[1, ""x""]"\n')
    with pytest.raises(InputError) as caught:
        run(path)
    assert caught.value.place == f"{tmp_path}/in/1.csv:3"
    assert caught.value.problem == "'[1, \"x\"]' in column 'v' can't be read as list[int64]"
    run(pipeline(tmp_path, "list[int64]", errors="quarantine"))
    assert pl.read_parquet(tmp_path / "out/*.parquet").select("id", "v").rows() == [(1, [1])]
    (log,) = tmp_path.glob(".dd/*/errors/_unparsed/a/*.parquet")
    assert pl.read_parquet(log).select("line", "column", "text", "reason").rows() == [
        (3, "v", '[1, "x"]', "no list[int64]")
    ]


def test_bytes_and_lengths_of_time_have_no_text_within_a_list_either(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("id,v\n1,[]\n")
    with pytest.raises((InputError, SpecErrors), match=r"column 'v' is list\[binary\], which can't be read from CSV"):
        run(pipeline(tmp_path, "list[binary]"))
