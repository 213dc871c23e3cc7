"""Inputs of every kind of file and format are read from an object store as from here."""

import io
from collections import Counter
from contextlib import nullcontext

import polars as pl
import pytest

from ddcli.commands.check import check
from ddcli.driver.run import run
from ddcli.errors import CheckError, CheckErrors, InputError
from ddcli.store.files.objects import ObjectPath
from tests.judge.sizes import cut
from tests.spark.support import Here, started
from tests.store.support import LOCKS

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


EXECUTORS = {
    "memory": nullcontext,
    "streams": lambda: cut(3, 1, streams=True),
    "out of core": lambda: cut(3, 4),
    "tasks": lambda: started(Here(5)),
}


def held(bucket):
    """Return the bytes of all objects but locks."""
    return {str(path): path.read_bytes() for path, _ in bucket.below() if path.name not in LOCKS}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_that_a_check_stops_leaves_state_and_outputs_byte_for_byte(bucket, tmp_path, executor):
    """So do an edit, a refresh and a withdrawal, on the first run and later; then the run that it lets pass commits."""
    spec = tmp_path / "p.yaml"
    text = (
        f"name: p\nstate: '{bucket}/state/'\ninputs:\n"
        f"  a: {{path: '{bucket}/in/', format: append, columns: {{k: int64, v: 'string?'}}}}\n"
        f"  b: {{path: '{bucket}/other/', format: append, columns: {{k: int64}}}}\n"
        "collections: {n: {from: a, apply: [{reduce: {by: [v], n: count(*)}}]}}\n"
        f"outputs: {{a: '{bucket}/out/a/', n: '{bucket}/out/n/'}}\nchecks:\n"
        "  - {refers: {k: b.k}, of: a, name: known}\n  - {row: n < 3, of: n, name: few}\n"
        "  - {not_null: [v], of: a, otherwise: quarantine}\n"
    )
    spec.write_text(text)
    engine = "spark" if executor == "tasks" else "local"

    def stopped(*names, **options):
        before = held(bucket)
        with pytest.raises((CheckError, CheckErrors)) as caught:
            run(spec, engine=engine, **options)
        assert {each.verdict["title"] for each in getattr(caught.value, "errors", [caught.value])} == {*names}
        assert held(bucket) == before

    rows = pl.DataFrame({"k": [1, 2, 3], "v": ["x", "y", None]})
    put(bucket / "other/1.parquet", pl.DataFrame({"k": [2, 3]}), "parquet")
    put(bucket / "in/1.parquet", rows, "parquet")
    with EXECUTORS[executor]():
        stopped("known")
        put(bucket / "other/2.parquet", pl.DataFrame({"k": [1]}), "parquet")
        run(spec, engine=engine)
        put(bucket / "in/2.parquet", pl.DataFrame({"k": [7, 1, 2], "v": ["x", "x", None]}), "parquet")
        stopped("known", "few")
        stopped("known", "few", refresh=frozenset())
        spec.write_text(text + "  - {row: k > 1, of: a, name: large}\n")
        stopped("known", "few", "large", apply=True)
        spec.write_text(text)
        stopped("known", "few", withdraw=[bucket / "other/2.parquet"])
        run(spec, engine=engine, accept=["known", "few"], reason="a trial")
    found = pl.concat(
        pl.read_parquet(io.BytesIO(data)) for path, data in held(bucket / "out/n").items() if path.endswith("parquet")
    )
    assert Counter(
        found.select("v", "n", "diff").group_by("v", "n").sum().filter(pl.col("diff") != 0).rows()
    ) == Counter([("x", 3, 1), ("y", 1, 1)])


def test_text_that_can_not_be_read_is_found_at_its_line(bucket, tmp_path):
    spec = tmp_path / "p.yaml"
    columns = "columns: {k: int64}"
    spec.write_text(
        f"dd: 1\nname: p\ninputs: {{a: {{path: '{bucket}/in/', format: append, {columns}}}}}\noutputs: {{a: out/}}\n"
    )
    (bucket / "in/a.csv").put(b"k,time\n1,0\nx,0\n")
    with pytest.raises(InputError, match="'x' in column 'k' can't be read as int64") as caught:
        run(spec)
    assert caught.value.place == f"{bucket}/in/a.csv:3"


@pytest.mark.parametrize("kind", WRITERS)
def test_columns_are_checked_without_fetching_whole_objects(bucket, tmp_path, kind):
    """What text holds is declared; then no store is asked."""
    text = kind in {"csv", "ndjson"}
    spec = tmp_path / "p.yaml"
    columns = ", columns: {k: int64, v: string?, at: int64}" if text else ""
    spec.write_text(
        f"dd: 1\nname: p\ninputs: {{a: {{path: '{bucket}/in/', format: append, time: at{columns}}}}}\noutputs: {{a: out/}}\n"
    )
    put(bucket / f"in/a.{kind}", FRAME, kind)
    found = check(spec)
    assert found.errors == ()
    assert list(found.inputs["a"].schema.columns) == ["k", "v"]
    assert found.inputs["a"].files == (0 if text else 1)
    looked = "inputs.a: its files, in an object store, were not looked at; its columns are as declared"
    assert found.remarks == ([looked] if text else [])
    if not text:
        (bucket / f"in/b.{kind}").put(b"no such file")
        (error,) = check(spec).errors
        assert "the file is not whole" in error.problem


def test_types_of_text_are_proposed_from_a_bucket(bucket, tmp_path):
    spec = tmp_path / "p.yaml"
    spec.write_text(f"dd: 1\nname: p\ninputs: {{a: {{path: '{bucket}/in/', time: at}}}}\noutputs: {{a: out/}}\n")
    put(bucket / "in/a.csv", FRAME, "csv")
    (error,) = check(spec).errors
    assert error.hint.endswith("`columns: {k: int64, v: string?, at: int64}`")


def test_a_check_fetches_little_of_a_large_object(bucket, tmp_path, monkeypatch):
    spec = tmp_path / "p.yaml"
    spec.write_text(f"dd: 1\nname: p\ninputs: {{a: {{path: '{bucket}/in/', time: at}}}}\noutputs: {{a: out/}}\n")
    put(bucket / "in/a.parquet", pl.DataFrame({"k": range(500_000), "at": 0}), "parquet")
    fetched = []
    ask = ObjectPath.read_ranges

    def noted(path, ranges):
        fetched.extend(end - start for start, end in ranges)
        return ask(path, ranges)

    monkeypatch.setattr(ObjectPath, "read_ranges", noted)
    assert check(spec).errors == ()
    # The file's end twice; in Azure's store, whose tags are those of times, its beginning and end for their digest, too.
    assert sum(fetched) <= 4 * 65536 < (bucket / "in/a.parquet").head()["size"] // 2
