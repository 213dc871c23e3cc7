"""Inputs of every kind of file and format are read from an object store as from here."""

import io

import polars as pl
import pytest

from ddcli.errors import InputError
from ddcli.pipeline import run

FRAME = pl.DataFrame({"k": [1, 2], "v": ["x", None], "at": [0, 0]})
WRITERS = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "csv": pl.DataFrame.write_csv,
    "ndjson": pl.DataFrame.write_ndjson,
}


def put(path, frame, kind):
    data = io.BytesIO()
    WRITERS[kind](frame, data)
    path.put(data.getvalue())


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_file(bucket, tmp_path, kind):
    spec = tmp_path / "p.yaml"
    columns = "columns: {k: int64, v: string?, day: date}"
    spec.write_text(
        f"dd: 1\nname: p\ninputs: {{a: {{path: '{bucket}/in/', format: snapshots, time: day, {columns}}}}}\n"
        "outputs: {a: out/}\n"
    )
    put(bucket / f"in/day=2024-01-01/a.{kind}", FRAME.drop("at"), kind)
    run(spec)
    put(bucket / f"in/day=2024-01-02/a.{kind}", FRAME.drop("at").tail(1), kind)
    run(spec)
    found = pl.read_parquet(tmp_path / "out/*.parquet").select("k", "v", "diff").rows()
    assert sorted(found) == [(1, "x", -1), (1, "x", 1), (2, None, 1)]


def test_late_rows_are_put_aside_in_a_bucket(bucket, tmp_path):
    spec = tmp_path / "p.yaml"
    given = f"path: '{bucket}/in/', format: append, time: at, late: quarantine, quarantine: '{bucket}/late/'"
    spec.write_text(f"dd: 1\nname: p\nstate: '{bucket}/state/'\ninputs: {{a: {{{given}}}}}\noutputs: {{a: out/}}\n")
    put(bucket / "in/a.parquet", FRAME, "parquet")
    run(spec)
    put(bucket / "in/b.parquet", FRAME.with_columns(at=pl.Series([-1, 5])), "parquet")
    assert run(spec).inputs["a"].late == 1
    (path,) = (path for path, _ in (bucket / "late").below())
    assert pl.read_parquet(io.BytesIO(path.read_bytes())).select("k", "time").rows() == [(1, -1)]


def test_text_that_can_not_be_read_is_found_at_its_line(bucket, tmp_path):
    spec = tmp_path / "p.yaml"
    columns = "columns: {k: int64}"
    spec.write_text(
        f"dd: 1\nname: p\ninputs: {{a: {{path: '{bucket}/in/', format: append, {columns}}}}}\noutputs: {{a: out/}}\n"
    )
    (bucket / "in/a.csv").put(b"k,time\n1,0\nx,0\n")
    with pytest.raises(InputError, match="column 'k' is int64, and 'x' is none") as caught:
        run(spec)
    assert caught.value.place == f"{bucket}/in/a.csv:3"
