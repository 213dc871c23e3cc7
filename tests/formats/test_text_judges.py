"""Random tables as programs write them, DuckDB, polars and Python's `csv` and `json`, read in several runs, against all of them read by DuckDB at once."""

import csv
import json
import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import duckdb
import polars as pl
import pytest
import yaml

from ddcli.driver.run import run
from tests.draws import many

TYPES = {
    "int64": ("bigint", pl.Int64),
    "float64": ("double", pl.Float64),
    "decimal(12, 2)": ("decimal(12, 2)", pl.Decimal(12, 2)),
    "bool": ("boolean", pl.Boolean),
    "date": ("date", pl.Date),
    "datetime[us]": ("timestamp", pl.Datetime("us")),
    "datetime[us, UTC]": ("timestamptz", pl.Datetime("us", "UTC")),
    "string": ("varchar", pl.String),
}
TEXTS = ["a", "b c", 'say "hi"', "x,y", "two\nlines", "é東", "NULL", "0012", " pad ", "'", "\\N", "# x"]
START = datetime(2024, 1, 1)  # noqa: DTZ001 - a timestamp without a zone


def some_value(chance, kind):
    if chance.random() < 0.15:
        return None
    match kind:
        case "int64":
            return chance.choice([0, -1, 2**62, chance.randrange(10**6)])
        case "float64":
            return chance.choice([0.1, -2.5e-7, 1e22, chance.uniform(-9, 9)])
        case "decimal(12, 2)":
            return Decimal(chance.randrange(-(10**6), 10**6)).scaleb(-2)
        case "bool":
            return chance.random() < 0.5
        case "date":
            return date(2024, 1, 1) + timedelta(days=chance.randrange(400))
        case "datetime[us]":
            return START + timedelta(microseconds=chance.choice([0, 10**6, 1_500_000, 123_456]))
        case "datetime[us, UTC]":
            return START.replace(tzinfo=UTC) + timedelta(minutes=chance.randrange(10**6))
    return chance.choice(TEXTS)


def by_python(path, frame):
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(frame.columns)
            writer.writerows(frame.rows())
        return
    rows = [{name: value for name, value in row.items() if value is not None} for row in frame.to_dicts()]
    path.write_text("".join(json.dumps(row, default=plain) + "\n" for row in rows))


def plain(value):
    return float(value) if isinstance(value, Decimal) else str(value)


def by_polars(path, frame):
    (frame.write_csv if path.suffix == ".csv" else frame.write_ndjson)(path)


def by_duckdb(path, frame):
    duckdb.from_arrow(frame.to_arrow()).query(
        "t", f"copy t to '{path}' (format {'csv' if path.suffix == '.csv' else 'json'})"
    )


WRITERS = {"python": by_python, "polars": by_polars, "duckdb": by_duckdb}


def held(folder, names):
    """Return the rows of an output's log, each as often as it stands there."""
    count: Counter = Counter()
    for path in (folder / "out").glob("*.parquet"):
        for *row, diff in pl.read_parquet(path).select(*names, "diff").iter_rows():
            count[tuple(row)] += diff
    return +count


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
@pytest.mark.parametrize("writer", WRITERS)
def test_runs_read_what_duckdb_reads(kind, writer, tmp_path):
    for seed in range(many(12)):
        chance = random.Random(f"judges {kind} {writer} {seed}")
        folder = tmp_path / str(seed)
        (folder / "in").mkdir(parents=True)
        columns = {"id": "int64"} | {f"c{at}": chance.choice(list(TYPES)) for at in range(chance.randrange(1, 6))}
        said = {"path": "in/", "format": "append", "columns": {name: f"{kind_}?" for name, kind_ in columns.items()}}
        path = folder / "p.yaml"
        path.write_text(yaml.safe_dump({"clock": "arrival", "inputs": {"a": said}, "outputs": {"a": "out/"}}))
        number = 0
        for part in range(chance.randrange(1, 4)):
            for file in range(chance.randrange(1, 3)):
                rows = []
                for _ in range(chance.randrange(1, 8)):
                    number += 1
                    rows.append([number, *(some_value(chance, each) for each in list(columns.values())[1:])])
                schema = {name: TYPES[each][1] for name, each in columns.items()}
                frame = pl.DataFrame(rows, schema=schema, orient="row")
                WRITERS[writer](folder / f"in/{part}-{file}.{kind}", frame)
            run(path, now=datetime(2024, 1, 1 + part, tzinfo=UTC).isoformat())
        types = {name: TYPES[each][0] for name, each in columns.items()}
        asked = f"read_csv('{folder}/in/*.csv', columns={types}, header=true, delim=',', quote='\"', escape='\"', nullstr='', allow_quoted_nulls=false)"
        if kind == "ndjson":
            asked = f"read_json('{folder}/in/*.ndjson', columns={types}, format='newline_delimited')"
        duckdb.sql("set timezone = 'UTC'")
        wanted = Counter(duckdb.sql(f"from {asked}").fetchall())
        assert held(folder, columns) == wanted, (seed, columns)


def test_a_table_of_postgres_is_read(tmp_path):
    r"""As `\\copy t to '1.csv' csv header` writes it: booleans are letters, and offsets have no minutes."""
    (tmp_path / "1.csv").write_text(
        'id,at,ok,tags\n1,2024-02-03 01:02:03+00,t,"[""a""]"\n2,2024-02-03 01:02:03.25+05:30,f,\n'
    )
    columns = {"id": "int64", "at": "datetime[us, UTC]", "ok": "bool", "tags": "list[string]?"}
    said = {"path": "1.csv", "format": "append", "columns": columns}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"inputs": {"a": said}, "outputs": {"a": "out/"}}))
    run(tmp_path / "p.yaml")
    rows = pl.read_parquet(tmp_path / "out/*.parquet").sort("id").select(*columns).rows()
    assert rows == [
        (1, datetime(2024, 2, 3, 1, 2, 3, tzinfo=UTC), True, ["a"]),
        (2, datetime(2024, 2, 2, 19, 32, 3, 250_000, tzinfo=UTC), False, None),
    ]
