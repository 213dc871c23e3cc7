"""Tables in an object store, and mirrors of tables in a state there."""

import os

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from ddcli import read_log
from ddcli.driver.forget import forget
from ddcli.driver.run import run


@pytest.mark.parametrize("where", ["table", "state"])
def test_a_table_of_delta_lake(tmp_path, bucket, where):
    table = f"{bucket}/table" if where == "table" else str(tmp_path / "table")
    state = f"state: {bucket}/state\n" if where == "state" else ""
    file = tmp_path / "p.yaml"
    file.write_text(f"name: p\n{state}inputs: {{orders: {{delta: '{table}'}}}}\noutputs: {{orders: out/}}\n")
    write_deltalake(table, pl.DataFrame({"k": [1, 2, 3]}))
    run(file)
    DeltaTable(table).delete("k = 2")
    run(file)
    assert read_log(tmp_path / "out", as_of="latest").rows() == [(1, 1), (3, 1)]
    assert not run(file).changed
    assert forget(file, "k = 2").inputs["orders"].rows == 2
    assert 2 not in read_log(tmp_path / "out")["k"]
    write_deltalake(table, pl.DataFrame({"k": [4]}), mode="append")
    run(file)
    assert read_log(tmp_path / "out", as_of="latest").rows() == [(1, 1), (3, 1), (4, 1)]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_an_output_that_is_a_table(tmp_path, bucket, kind):
    """Its log is in the state, which is in the bucket, too."""
    place = f"{bucket}/lake/t" + (".parquet" if kind == "parquet" else "")
    file = tmp_path / "p.yaml"
    log = "inputs: {orders: in/}\n"
    file.write_text(f"name: p\nstate: {bucket}/state\n{log}outputs: {{orders: {{as: table, {kind}: '{place}'}}}}\n")
    (tmp_path / "in").mkdir()
    for time, rows in enumerate([[(1, 1), (2, 1), (2, 1)], [(2, -1), (3, 1)]]):
        frame = pl.DataFrame(rows, ["k", "diff"], orient="row").with_columns(time=pl.lit(time, pl.Int64))
        frame.write_parquet(tmp_path / f"in/{time}.parquet")
        assert run(file).tables == {"orders": place}
        assert not run(file).changed
    options = {"aws_endpoint_url": os.environ["AWS_ENDPOINT_URL"], "aws_allow_http": "true"}
    table = pl.read_delta(place) if kind == "delta" else pl.read_parquet(place, storage_options=options)
    assert table["k"].sort().to_list() == [1, 2, 3]
