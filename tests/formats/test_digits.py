"""Digits that a column of text lacks are refused wherever text is read, or rounded where the input asks for it."""

import gzip
from datetime import datetime
from decimal import Decimal

import polars as pl
import pytest
import yaml

from ddcli.driver.run import run
from ddcli.errors import InputError

COLUMNS = {"id": "int64", "price": "decimal(12, 2)?", "at": "datetime[ms]?"}
ROWS = {
    "csv": 'id,price,at\n{},"{}",{}\n',
    "csv.gz": "id,price,at\n{},{},{}\n",
    "tsv": "id\tprice\tat\n{}\t{}\t{}\n",
    "ndjson": '{{"id": {}, "price": {}, "at": "{}"}}\n',
    "json": '[{{"id": {}, "price": "{}", "at": "{}"}}]',
}


def place(folder, kind, *row, **given):
    folder.mkdir(exist_ok=True)
    text = ROWS[kind].format(*row).encode()
    (folder / f"1.{kind}").write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    said = {"path": f"1.{kind}", "format": "append", "columns": COLUMNS, **given}
    (folder / "p.yaml").write_text(yaml.safe_dump({"inputs": {"a": said}, "outputs": {"a": "out/"}}))
    return folder / "p.yaml"


@pytest.mark.parametrize("kind", ROWS)
def test_more_digits_than_a_declared_column_has_are_refused(kind, tmp_path):
    for price in ("1.2575", "0.004", "-0.0000001"):
        with pytest.raises(InputError) as caught:
            run(place(tmp_path, kind, 1, price, "2024-01-31 10:00:00.125"))
        assert caught.value.problem == f"'{price}' in column 'price' has more digits than decimal(12, 2)"
        assert "`rounding: half_up`" in caught.value.hint
    with pytest.raises(InputError) as caught:
        run(place(tmp_path, kind, 1, "1.25", "2024-01-31 10:00:00.1255", rounding="half_up"))
    assert "'2024-01-31 10:00:00.1255' in column 'at' has more digits" in caught.value.problem
    assert "rounding" not in caught.value.hint
    run(place(tmp_path, kind, 1, "1.250", "2024-01-31 10:00:00.125000"))
    (row,) = pl.read_parquet(tmp_path / "out/*.parquet").select("price", "at").rows()
    assert row == (Decimal("1.25"), datetime(2024, 1, 31, 10, 0, 0, 125_000))  # noqa: DTZ001 - it has no zone


@pytest.mark.parametrize("kind", ROWS)
def test_rounding_is_half_up_where_it_is_asked_for(kind, tmp_path):
    for at, (price, rounded) in enumerate((("1.2575", "1.26"), ("0.004", "0.00"), ("-2.345", "-2.35"), ("2", "2.00"))):
        run(place(tmp_path / str(at), kind, 1, price, "2024-01-31", rounding="half_up"))
        assert str(pl.read_parquet(tmp_path / str(at) / "out/*.parquet")["price"][0]) == rounded


def test_other_readers_of_text_refuse_them_too(shop):
    shop.write("in/1.csv", "id,time,price\n1,5,1.2575\n")
    for command in (
        ("log", "in/1.csv", "--columns", "{id: int64, time: int64, price: 'decimal(12, 2)'}", "--as-of", "latest"),
        ("convert", "in/1.csv", "2.parquet", "--columns", "{id: int64, time: int64, price: 'decimal(12, 2)'}"),
    ):
        found = shop(*command)
        assert found.code != 0, command
        assert "'1.2575' in column 'price' has more digits" in found.err, command


def test_values_of_paths_are_held_to_their_digits(tmp_path):
    path = place(tmp_path, "csv", 1, "1", "")
    said = yaml.safe_load(path.read_text())
    (tmp_path / "in/rate=1.255").mkdir(parents=True)
    (tmp_path / "in/rate=1.255/1.csv").write_text("id\n1\n")
    said["inputs"]["a"] |= {"path": "in/", "columns": {"id": "int64", "rate": "decimal(4, 2)"}}
    path.write_text(yaml.safe_dump(said))
    with pytest.raises(InputError, match=r"the path has rate=1.255, which is no decimal\(4, 2\)"):
        run(path)


def test_dates_in_names_of_files_are_written_as_those_in_them(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/day=2024-02-03").mkdir()
    (tmp_path / "in/01-22-2020.csv").write_text("id\n1\n")
    (tmp_path / "in/2020-01-23.csv").write_text("id\n2\n")
    (tmp_path / "in/20200124.csv").write_text("id\n3\n")
    said = {"path": "in/*.csv", "format": "append", "file_name": "{day}.csv", "columns": {"id": "int64", "day": "date"}}
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump({"inputs": {"a": said}, "outputs": {"a": "out/"}}))
    with pytest.raises(InputError, match="day=01-22-2020, which is no date") as caught:
        run(path)
    assert "`csv: {date_format: ...}`" in caught.value.hint
    path.write_text(
        yaml.safe_dump({"inputs": {"a": said | {"csv": {"date_format": "%m-%d-%Y"}}}, "outputs": {"a": "out/"}})
    )
    run(path)
    days = [str(day) for day in pl.read_parquet(tmp_path / "out/*.parquet").sort("id")["day"]]
    assert days == ["2020-01-22", "2020-01-23", "2020-01-24"]


@pytest.mark.parametrize(
    ("text", "is_read"), [("2024-01-31", True), ("2024-01-31 00:00:00", True), ("2024-01-31 10:00", False)]
)
def test_a_date_is_not_cut_of_a_timestamp(text, is_read, tmp_path):
    (tmp_path / "1.csv").write_text(f"id,day\n1,{text}\n")
    said = {"path": "1.csv", "format": "append", "columns": {"id": "int64", "day": "date"}}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"inputs": {"a": said}, "outputs": {"a": "out/"}}))
    if is_read:
        run(tmp_path / "p.yaml")
        assert str(pl.read_parquet(tmp_path / "out/*.parquet")["day"][0]) == "2024-01-31"
        return
    with pytest.raises(InputError, match=f"'{text}' in column 'day' can't be read as date"):
        run(tmp_path / "p.yaml")


def test_rounding_without_text_is_refused(tmp_path):
    pl.DataFrame({"id": [1]}).write_parquet(tmp_path / "1.parquet")
    said = {"path": "1.parquet", "format": "append", "rounding": "half_up"}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"inputs": {"a": said}, "outputs": {"a": "out/"}}))
    with pytest.raises(InputError, match="no file of the input is text, so its `rounding` is not used"):
        run(tmp_path / "p.yaml")
