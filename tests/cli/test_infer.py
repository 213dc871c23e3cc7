"""`columns: infer`: what the first run finds is pinned in the state, and a pipeline over it is the one that declares these columns."""

import datetime as dt
import json
from contextlib import suppress
from decimal import Decimal

import polars as pl
import pytest
import yaml

from ddcli.commands.check import check
from ddcli.commands.plan import preview
from ddcli.compare.diff import diff
from ddcli.driver.run import run
from ddcli.errors import DdError, InputError, StateError
from ddcli.pipeline_tests.run import run_tests
from ddcli.store.state.manifest import read_newest
from ddcli.store.tables.compression import packed
from tests.cases import cases
from tests.draws import chance, many
from tests.formats.test_damaged_text import BAD, as_csv, as_json, damaged, some_rows

VALUES = {
    "int64": ["1", "-7", "12"],
    "decimal(18, 2)": ["1.5", "2.25", "-3"],
    "date": ["2024-01-31", "2023-12-01"],
    "bool": ["true", "false"],
    "string": ["x", "007", "31.12.2024", "1,5", "NA", "a b"],
    "datetime[us]": ["2024-01-31 10:00:00", "2024-01-31T10:00"],
}


def pipeline(folder, **given):
    said = {"inputs": {"a": {"path": "in/", "format": "append", "columns": "infer", **given}}, "outputs": {"a": "out/"}}
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / "p.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
    return folder / "p.yaml"


def write(folder, name, columns, rows, kind):
    if kind == "csv":
        lines = [
            ",".join(columns),
            *(",".join(f'"{value}"' if "," in value else value for value in row) for row in rows),
        ]
        (folder / f"in/{name}.csv").write_text("\n".join(lines) + "\n")
    else:
        text = [json.dumps({c: v for c, v in zip(columns, row, strict=True) if v}) for row in rows]
        (folder / f"in/{name}.ndjson").write_text("\n".join(text) + "\n")


def held(folder):
    frames = [pl.read_parquet(path).drop("time") for path in sorted((folder / "out").glob("*.parquet"))]
    return [frame.select(names := sorted(frame.columns)).sort(names).rows() for frame in frames]


@pytest.mark.parametrize("number", range(many(12)))
def test_a_pipeline_is_the_one_that_declares_what_was_found(number, tmp_path):
    random = chance("infer", number)
    columns = {f"c{at}": random.choice(list(VALUES)) for at in range(random.randrange(1, 6))}
    kind, folders = random.choice(["csv", "ndjson"]), [tmp_path / "inferred", tmp_path / "declared"]
    seen = {name: set() for name in columns}
    pipelines = [pipeline(folder) for folder in folders]
    for part in range(3):
        rows = [
            ["" if random.random() < 0.2 else random.choice(VALUES[form]) for form in columns.values()]
            for _ in range(random.randrange(1, 6))
        ]
        if part == 0:  # all that there is of a type
            rows += [[VALUES[form][at % len(VALUES[form])] for form in columns.values()] for at in range(6)]
        for row in rows:
            for name, value in zip(columns, row, strict=True):
                seen[name].add(value)
        for folder in folders:
            write(folder, str(part), columns, rows, kind)
        if part == 0:
            wanted = {name: f"{form}?" for name, form in columns.items()}
            assert preview(pipelines[0]).inferred["a"].startswith("its columns are inferred now, from '0.")
            pipeline(folders[1], columns=wanted)
        now = (dt.datetime(2024, 1, 1 + part)).isoformat()  # noqa: DTZ001 - times have no zone
        for path in pipelines:
            run(path, now=now)
        assert held(folders[0]) == held(folders[1])
        pinned = read_newest(folders[0] / ".dd/p").inputs["a"].schema["pinned"]
        assert pinned == {"columns": wanted, "file": f"0.{kind}"}
        found = check(pipelines[0]).to_json()["inputs"]["a"]
        assert found["inferred"] == {**pinned, "known": True}


def test_files_that_disagree_are_refused_with_what_was_pinned(tmp_path):
    path = pipeline(tmp_path, format="upsert", key="id")
    said = 'its columns are pinned by the first run, from \'1.csv\': {id: "int64", v: "int64?"}'
    write(tmp_path, "1", ["id", "v"], [["1", "2"]], "csv")
    run(path)
    for columns, row, problem in (
        (["id", "v"], ["2", "x"], "'x' in column 'v' can't be read as int64"),
        (["id"], ["2"], "the file has no column 'v'"),
        (["id", "v", "w"], ["2", "3", "4"], "the file has a column 'w' that the log's other files don't have"),
    ):
        write(tmp_path, "2", columns, [row], "csv")
        with pytest.raises(InputError) as caught:
            run(path)
        assert problem in caught.value.problem
        assert said in caught.value.hint
    write(tmp_path, "2", ["id", "v"], [["2", ""]], "csv")
    assert run(path).changed


def test_a_pin_is_changed_by_declaring_columns_or_by_beginning_anew(tmp_path):
    path = pipeline(tmp_path)
    write(tmp_path, "1", ["id", "v"], [["1", "2"]], "csv")
    run(path)
    (tmp_path / "in/1.csv").write_text("id,v\n1,2.5\n")
    with pytest.raises(InputError, match="has changed"):
        run(path)
    with pytest.raises(StateError, match="would have other columns"):
        run(path, refresh=frozenset())
    run(path, refresh=frozenset(), rewrite=frozenset({"a"}))
    assert read_newest(tmp_path / ".dd/p").inputs["a"].schema["pinned"]["columns"]["v"] == "decimal(18, 2)?"
    pipeline(tmp_path, columns={"id": "int64?", "v": "decimal(18, 2)?"})
    write(tmp_path, "2", ["id", "v"], [["2", "4"]], "csv")
    assert not run(path).rebuilt, "the columns are the same"
    path = pipeline(tmp_path)
    assert not run(path).changed
    write(tmp_path, "3", ["id", "v"], [["2", "4"]], "csv")
    run(path)
    assert read_newest(tmp_path / ".dd/p").inputs["a"].schema["pinned"]["columns"]["v"] == "decimal(18, 2)?"


def test_events_and_paths(tmp_path):
    path = pipeline(tmp_path, format="debezium", key="id")
    event = {"before": None, "after": {"id": 1, "v": 1.5}, "op": "c", "ts_ms": 1, "source": {"lsn": 1}}
    (tmp_path / "in/day=3").mkdir()
    (tmp_path / "in/day=3/1.ndjson").write_text(json.dumps({"schema": {}, "payload": event}))
    run(path)
    pinned = read_newest(tmp_path / ".dd/p").inputs["a"].schema["pinned"]["columns"]
    assert pinned == {"id": "int64", "v": "decimal(18, 2)?", "day": "int64?"}


def test_without_text_there_is_nothing_to_infer(tmp_path):
    path = pipeline(tmp_path)
    with pytest.raises(InputError, match="no files yet, so its columns are unknown"):
        run(path)
    pl.DataFrame({"id": [1]}).write_parquet(tmp_path / "in/1.parquet")
    run(path)
    assert "pinned" not in read_newest(tmp_path / ".dd/p").inputs["a"].schema


def test_tests_have_the_columns_that_are_found(tmp_path):
    path = pipeline(tmp_path)
    expect = "{collection: a, contents: [{id: 2, v: x}]}"
    path.write_text(f"{path.read_text()}tests: [{{name: t, given: {{a: [{{id: 2, v: x}}]}}, expect: {expect}}}]\n")
    write(tmp_path, "1", ["id", "v"], [["1", "y"]], "csv")
    (outcome,) = run_tests(path).outcomes
    assert (outcome.failures, outcome.skipped) == ((), None)


def test_digits_that_a_column_found_has_not_are_refused_or_put_aside(tmp_path):
    many_rows = [[str(row), "2.5", "2024-01-31 10:00:00.5"] for row in range(5_000)]
    for kind, folder in (("csv", tmp_path / "c"), ("ndjson", tmp_path / "n")):
        path = pipeline(folder)
        write(folder, "1", ["id", "rate", "at"], [["1", "2.50", "2024-01-31 10:00:00"]], kind)
        run(path)
        for rate, at, problem in (
            ("0.004", "", "'0.004' in column 'rate' has more digits than decimal(18, 2)"),
            ("", "2024-01-31 10:00:00.1234567", "'2024-01-31 10:00:00.1234567' in column 'at' has more digits"),
            ("1.999x", "", "'1.999x' in column 'rate' can't be read as decimal(18, 2)"),
        ):
            write(folder, "2", ["id", "rate", "at"], [["2", "1.5", ""], ["3", rate, at]], kind)
            with pytest.raises(InputError) as caught:
                run(path)
            assert problem in caught.value.problem
            assert f"2.{kind}:{3 if kind == 'csv' else 2}" in caught.value.place
            assert "pinned by the first run" in caught.value.hint
        write(folder, "2", ["id", "rate", "at"], [["2", "1.5000", "2024-01-31 10:00:00.1234560"]], kind)
        run(path)
        (tmp_path / kind).mkdir()
        long = pipeline(tmp_path / kind)
        write(tmp_path / kind, "1", ["id", "rate", "at"], [*many_rows, ["5000", "1.999", ""]], kind)
        with pytest.raises(InputError, match="has more digits") as caught:
            run(long)
        assert f"1.{kind}:{5002 if kind == 'csv' else 5001}" in caught.value.place
    said = "errors: quarantine\n" + (tmp_path / "csv/p.yaml").read_text()
    (tmp_path / "csv/p.yaml").write_text(said)
    assert run(tmp_path / "csv/p.yaml").changed
    frame = pl.read_parquet(tmp_path / "csv/out/*.parquet")
    assert frame.height == 5_000


@pytest.mark.parametrize("content", [b"\n", b"\xef\xbb\xbf", b""])
def test_a_file_without_a_header_is_one_in_every_command(content, tmp_path):
    path = pipeline(tmp_path, columns={"id": "int64"})
    (tmp_path / "in/1.csv").write_bytes(content)
    with pytest.raises(InputError) as caught:
        run(path)
    (error,) = check(path).errors
    assert error.problem.endswith(f"1.csv: {caught.value.problem}")
    assert error.hint == caught.value.hint
    assert caught.value.problem == ("the file has no header" if content else "the file is empty: it has no bytes")


DEEP = '{"id": 1, "note": ' + "[" * 50_000 + "]" * 50_000 + "}\n"
DAMAGED = {case: (kind, text, line, problem) for case, (kind, text, line, problem, _) in BAD.items()}
DAMAGED |= {
    "deep values": ("ndjson", DEEP, ":1", "values are nested too deep"),
    "deep values of an array": ("json", f"[{DEEP}]", ":1", "values are nested too deep"),
    "no value": ("ndjson", '{"id": }\n', ":1:8", "not JSON: Expecting value"),
    "an object that is cut": ("json", '[{"id": 1}, {"id"]', ":1:18", "not JSON: Expecting"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_text_is_refused_with_its_line_where_columns_are_to_be_found(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind, text, line, problem = DAMAGED[case]
    path = pipeline(tmp_path, path=f"in/a.{kind}")
    (tmp_path / f"in/a.{kind}").write_text(text, newline="")
    with pytest.raises(InputError) as caught:
        run(path)
    assert caught.value.place.endswith(f"a.{kind}{line}"), caught.value
    assert problem in caught.value.problem


@pytest.mark.parametrize("number", range(many(40)))
def test_damaged_text_is_read_or_refused_where_columns_are_to_be_found(number, tmp_path):
    drawn = chance("infer damage", number)
    kind = drawn.choice(["csv", "ndjson"])
    text = (as_csv if kind == "csv" else as_json)(drawn, some_rows(drawn))
    path = pipeline(tmp_path)
    (tmp_path / f"in/a.{kind}").write_bytes(damaged(drawn, text.replace("time", "at").encode()))
    with suppress(DdError):  # any other is a bug of ours
        run(path)


def test_a_column_without_a_name_is_left_out_with_a_note(tmp_path):
    """As of an index that pandas writes."""
    path = pipeline(tmp_path)
    notes = []
    for name, rows in (("a.csv", ",x\n0,5\n"), ("b.csv", ",x\n0,6\n1,7\n"), ("c.csv", "x\n8\n")):
        (tmp_path / "in" / name).write_text(rows)
        run(path, say=notes.append)
    assert sorted(held(tmp_path)) == [[(1, 5)], [(1, 6), (1, 7)], [(1, 8)]]
    assert """{x: "int64?"}; a column without a name is left out; later files""" in notes[0]
    assert check(path).errors == ()


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("rows", [2, 2000])
def test_cut_packed_json_is_refused_in_every_command(packing, rows, tmp_path):
    """A small file is seen to be cut where its first bytes are read, a large one further on."""
    text = "".join(f'{{"id": {at}}}\n' for at in range(rows))
    place = pipeline(tmp_path)
    cut, whole = tmp_path / "in" / f"a.ndjson{packing}", tmp_path / "whole.ndjson"
    cut.write_bytes(packed(text.encode(), cut.name)[:-6])
    whole.write_text(text)
    for command in (
        lambda: preview(place),
        lambda: run(place),
        lambda: diff(cut, whole, key=["id"]),
        lambda: diff(whole, cut, key=["id"]),
    ):
        with pytest.raises(InputError, match="the file is not whole"):
            command()


def inferred(folder, text, **csv):
    """Return the types of the columns of a CSV file, and the remark on them; or the error."""
    path = pipeline(folder, **({"csv": csv} if csv else {}))
    (folder / "in/1.csv").write_text(text)
    try:
        found = preview(path)
        run(path)
    except DdError as error:
        return error
    return read_newest(folder / ".dd/p").inputs["a"].schema["pinned"]["columns"], found.inferred["a"]


@cases(
    """
    values → options → type → doubt
    +4912345 +4912346 →  → string? → 'v' is text, because of plus signs
    +1 -2 0 →  → int64? →
    +1.5 +2.5 →  → decimal(18, 2)? →
    True False →  → bool? →
    TRUE false →  → bool? →
    2024-01-31T10:00:00+00 2024-01-31T10:00:00.25+05:30 →  → datetime[us, UTC]?
    .5 -.25 5. →  → decimal(18, 2)?
    1.042988767141319988e-02 2 →  → float64?
    1e400 2 →  → string?
    12345678901234567.25 1e3 →  → string?
    .5e3 -.25 →  → float64?
    _1.5 2_ →  → decimal(18, 2)?
    _+49 2 →  → string? → because of plus signs
    _true false →  → bool?
    _2024-01-31 2024-02-01 →  → date?
    _a b →  → string?
    t f →  → string? → 'v' is bool, if t and f stand for true and false
    1.000 2.500 →  → float64? → read with a decimal sign in '1.000'; if it marks thousands
    1.000 12 → delimiter: ; → string? → '1.000' has a decimal sign or a mark between thousands
    1.000 0.125 → delimiter: ; → float64? →
    1.000 1234 → delimiter: ; → float64? →
    1.000 2.5 → delimiter: ; → float64? →
    1,000 2,500 → delimiter: ; → string? → '1,000' has a decimal sign or a mark between thousands
    1,000 2,500 →  → string? → '1,000' has a decimal sign or a mark between thousands
    1,000 2.5 →  → string? → numbers have ',' between thousands
    1.250 1,250.5 → thousands: , → float64?
    1.250 2.000 → thousands: , → float64? →
    1.000 12 → thousands: . → int64? →
    1.234.567 12 → thousands: . → int64? →
    1.234,56 500,00 → thousands: . → decimal(18, 2)? →
    1.234,56 500,00 →  → string? → numbers have '.' between thousands: see `thousands`
    1'234.5 7 → thousands: ' → decimal(18, 2)? →
    """
)
def test_doubtful_values_are_text_or_a_note(values, options, type, doubt, tmp_path):  # noqa: A002 - the column's word
    name, _, value = options.partition(": ")
    csv = {name: value} if name else {}
    delimiter = csv.get("delimiter", ",")
    text = f"v{delimiter}w\n" + "".join(f'"{each.replace("_", " ")}"{delimiter}x\n' for each in values.split())
    columns, remark = inferred(tmp_path, text, **csv)
    assert columns["v"] == type
    assert doubt in remark if doubt else ";" not in remark.partition("}")[2], remark


MARKS = [("", "."), ("", ","), (",", "."), (".", ","), ("'", "."), (" ", ","), ("\u202f", ",")]
"""The mark between thousands and the decimal sign of programs and countries."""


def as_written(number, mark, sign):
    """Return the text of a number with a mark between thousands and a decimal sign."""
    whole, _, rest = f"{number:,f}".partition(".")
    return whole.replace(",", mark) + (sign + rest if rest else "")


@pytest.mark.parametrize("number", range(many(40)))
def test_numbers_with_marks_are_these_numbers_or_a_doubt(number, tmp_path):
    """A file's writer knows its numbers. Columns found are read as these numbers or as text, or the remark names the column."""
    random = chance("marks", number)
    mark, sign = random.choice(MARKS)
    stated = random.choice([{}, {"thousands": mark} if mark else {}, {"decimal": sign}, {"decimal": sign}])
    stated |= {"thousands": mark} if mark and stated and random.random() < 0.7 else {}
    delimiter = random.choice([",", ";"])
    csv = stated | ({"delimiter": ";"} if delimiter == ";" else {})
    path = pipeline(tmp_path, **({"csv": csv} if csv else {}))
    forms = {
        f"n{at}": (random.choice([0, 0, 1, 2, 3]), random.choice([2, 4, 7])) for at in range(random.randrange(1, 4))
    }
    written, types, remark = [], {}, ""
    for part in range(2):
        rows = []
        for at in range(random.randrange(1, 5)):
            values = {
                name: Decimal(random.choice([1, 1, 1, -1]) * random.randrange(10**most)).scaleb(-digits)
                for name, (digits, most) in forms.items()
            }
            rows.append({"id": f"r{part}{at}"} | values)
        lines = [delimiter.join(["id", *forms])]
        lines += [
            delimiter.join([row["id"], *(f'"{as_written(row[name], mark, sign)}"' for name in forms)]) for row in rows
        ]
        (tmp_path / f"in/{part}.csv").write_text("\n".join(lines) + "\n")
        try:
            remark = remark or preview(path).inferred["a"].partition("}")[2]
            run(path, now=f"2024-01-0{part + 1}")
        except DdError:
            assert part or not stated or (mark and "thousands" not in stated), "all is stated"
            (tmp_path / f"in/{part}.csv").unlink()
            continue
        written += rows
        types = types or read_newest(tmp_path / ".dd/p").inputs["a"].schema["pinned"]["columns"]
    frames = [pl.read_parquet(each) for each in sorted((tmp_path / "out").glob("*.parquet"))]
    found = {row["id"]: row for frame in frames for row in frame.rows(named=True)}
    assert set(found) == {row["id"] for row in written}
    for row in written:
        for name in forms:
            text = as_written(row[name], mark, sign)
            if types[name].startswith("string"):
                assert found[row["id"]][name] == text
            elif f"'{name}'" not in remark:
                assert (
                    Decimal(repr(found[row["id"]][name]) if types[name].startswith("float") else found[row["id"]][name])
                    == row[name]
                ), (text, types[name], csv)


def test_a_first_line_that_is_no_header_is_refused_until_it_is_stated(tmp_path):
    for at, (text, line, hint) in enumerate(
        (
            ("1,Emma,2.5\n2,Persuasion,3\n", ":1", "`csv: {header: true}`"),
            ("2024-01-31;true\n2024-02-01;false\n", "", '`csv: {delimiter: ";"}`'),
            ("sep=;\nid;v\n1;2\n", ":1", '`csv: {delimiter: ";", skip: 1}`'),
            ("5 6\n7 8\n", "", '`csv: {delimiter: " "}`'),
        )
    ):
        found = inferred(tmp_path / str(at), text)
        assert isinstance(found, InputError)
        assert (found.place, hint in found.hint) == (f"{tmp_path / str(at)}/in/1.csv{line}", True)
    columns, _ = inferred(tmp_path / "row", "1,Emma,2.5\n2,Persuasion,3\n", header=False)
    assert columns == {"column0": "int64?", "column1": "string?", "column2": "decimal(18, 2)?"}
    assert held(tmp_path / "row") == [[(1, "Emma", Decimal("2.50"), 1), (2, "Persuasion", Decimal("3.00"), 1)]]
    write(tmp_path / "row", "2", ["3", "Sanditon", "4"], [], "csv")
    run(tmp_path / "row/p.yaml")
    assert held(tmp_path / "row")[:1] == [[(3, "Sanditon", Decimal("4.00"), 1)]]
    columns, _ = inferred(tmp_path / "names", "1,Emma,2.5\n2,Persuasion,3\n", header=True)
    assert columns == {"1": "int64?", "Emma": "string?", "2.5": "int64?"}
    path = pipeline(tmp_path / "names")
    assert not run(path).changed, "a header that is stated is the default"


def test_columns_without_names_are_left_out_however_many(tmp_path):
    """As of commas at the ends of lines, which spreadsheets write."""
    for at, csv in enumerate(({}, {"comment": "#"})):
        columns, remark = inferred(tmp_path / str(at), "a,,b,,\n1,2,3,4,\n,,,5,\n", **csv)
        assert columns == {"a": "int64?", "b": "int64?"}
        assert remark.endswith("; a column without a name is left out")
        assert held(tmp_path / str(at)) == [[(None, None, 1), (1, 3, 1)]]
