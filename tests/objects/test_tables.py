"""Tables in an object store, and mirrors of tables in a state there."""

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from ddcli import read_log
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
