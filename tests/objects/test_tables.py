"""Tables in an object store, and mirrors of tables in a state there."""

import datetime as dt
import io
import json
import os

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from polars.testing import assert_frame_equal

from ddcli import read_log
from ddcli.commands.check import check
from ddcli.driver.forget import forget
from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from ddcli.expressions.types import parse_type
from ddcli.store.files.objects import ObjectPath
from ddcli.store.targets.change import history_columns, read_beginning
from tests.draws import chance, many
from tests.tables.histories import checkpoint_with_sidecar


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("bucket", "where"), [("s3", "table"), ("s3", "state"), ("gs", "table"), ("az", "table")], indirect=["bucket"]
)
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
    if table.startswith("az:"):  # deltalake itself refuses to append there: "Invalid table version"
        return
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


def test_a_history_that_begins_from_an_object(tmp_path, bucket):
    """Another object in its place writes the table anew; a missing one is an error, and a run with nothing new changes nothing."""
    begin, file = ObjectPath.parse(f"{bucket}/snapshots/before.parquet"), tmp_path / "p.yaml"

    def put(*rows):
        kinds = {"k": pl.Int64, "v": pl.String, "dbt_valid_from": pl.Int64, "dbt_valid_to": pl.Int64}
        pl.DataFrame([*rows], kinds, orient="row").write_parquet(made := io.BytesIO())
        begin.put(made.getvalue())

    def held():
        return sorted(pl.read_parquet(tmp_path / "h.parquet").select("k", "v", "valid_from", "valid_to").rows())

    output = f"{{as: history, key: [k], begin: '{begin}', parquet: h.parquet}}"
    file.write_text(f"name: p\nstate: {bucket}/state\ninputs: {{a: in/}}\noutputs: {{a: {output}}}\n")
    (tmp_path / "in").mkdir()
    frame = pl.DataFrame({"k": [1, 2], "v": ["x", "y"], "time": [3, 3], "diff": [1, 1]})
    frame.write_parquet(tmp_path / "in/0.parquet")
    with pytest.raises(EngineError, match=r"the history begins from this file, which can't be read"):
        run(file)
    put((1, "x", 0, None), (2, "x", 1, None))
    assert not check(file).errors
    run(file)
    assert held() == [(1, "x", 0, None), (2, "x", 1, 3), (2, "y", 3, None)]
    assert not run(file).changed
    put((1, "x", 1, None), (2, "x", 2, None))
    run(file)
    assert held() == [(1, "x", 1, None), (2, "x", 2, 3), (2, "y", 3, None)]
    pl.DataFrame({"k": [1, 1], "v": ["x", "z"], "time": [5, 5], "diff": [-1, 1]}).write_parquet(
        tmp_path / "in/1.parquet"
    )
    run(file)
    assert held() == [(1, "x", 1, 5), (1, "z", 5, None), (2, "x", 2, 3), (2, "y", 3, None)]


def test_a_commit_reads_what_its_keys_need_of_the_file_from_which_a_history_begins(tmp_path, bucket, monkeypatch):
    """And of the output's log the times of its first file."""
    begin, file = ObjectPath.parse(f"{bucket}/snapshots/before.parquet"), tmp_path / "p.yaml"
    read, whole = [], []
    ranges, everything = ObjectPath.read_ranges, ObjectPath.read_bytes
    monkeypatch.setattr(
        ObjectPath,
        "read_ranges",
        lambda path, asked: read.extend((path, end - start) for start, end in asked) or ranges(path, asked),
    )
    monkeypatch.setattr(ObjectPath, "read_bytes", lambda path: whole.append(path) or everything(path))
    keys, text = range(4000), [f"{chance('text', at).getrandbits(400):x}" for at in range(4000)]
    rows = pl.DataFrame({"k": keys, "v": text}).with_columns(
        valid_from=pl.lit(0, pl.Int64), valid_to=pl.lit(None, pl.Int64)
    )
    rows.write_parquet(made := io.BytesIO(), row_group_size=500)
    begin.put(made.getvalue())
    output = f"{{as: history, key: [k], begin: '{begin}', parquet: h.parquet}}"
    file.write_text(f"name: p\nstate: {bucket}/state\ninputs: {{a: in/}}\noutputs: {{a: {output}}}\n")
    (tmp_path / "in").mkdir()
    now = dict(zip(keys, text, strict=True))
    for step in range(4):
        key = 700 * step
        frame = pl.DataFrame({"k": [key, key], "v": [now[key], "z"], "time": [step + 5] * 2, "diff": [-1, 1]})
        first = pl.DataFrame({"k": keys, "v": text}).with_columns(time=pl.lit(5, pl.Int64), diff=pl.lit(1, pl.Int64))
        (frame if step else pl.concat([first, frame])).write_parquet(tmp_path / f"in/{step}.parquet")
        now[key] = "z"
        read.clear()
        whole.clear()
        run(file)
        size = sum(count for path, count in read if path == begin)
        assert begin not in whole
        assert (size > 150_000) if not step else (0 < size < 60_000), size
        if step:
            assert not [path for path, count in read if "logs/a/" in str(path) and count > 10_000]
            assert len({path for path in whole if "logs/a/updates" in str(path)}) == 1  # the one with the changes
    held = pl.read_parquet(tmp_path / "h.parquet")
    assert held.filter("is_current").select("k", "v").sort("k").rows() == sorted(now.items())
    assert held.filter(~pl.col("is_current")).sort("k").select("k", "valid_from", "valid_to").rows() == [
        (700 * step, 0, step + 5) for step in range(4)
    ]


def test_rows_of_keys_in_an_object_are_those_of_a_file_here(tmp_path, bucket):
    """With few and many row groups, columns of other types and names, nulls, and rows that dbt marks as deleted."""
    for seed in range(many(20)):
        draw = chance("beginning", seed)
        texts = ["", "a", "é", "a.b", None, "z" * 200]
        kinds = {"k": draw.choice([pl.Int64, pl.Int32]), "t.u": pl.String, "d": pl.Date, "f": pl.Float64}
        kinds |= {"l": pl.List(pl.Int64), "dbt_valid_from": pl.Int64, "dbt_valid_to": pl.Int64}
        marked = draw.random() < 0.5
        kinds |= {"dbt_is_deleted": pl.String} if marked else {}
        days = [dt.date(2024, 1, day) for day in (1, 2, 3)]
        rows = [
            (
                draw.choice([None, draw.randrange(40)]),
                draw.choice(texts),
                draw.choice([None, *days]),
                draw.choice([None, 0.5]),
                draw.choice([None, [], [1, None]]),
                draw.randrange(9),
                draw.choice([None, 9]),
                *([draw.choice(["True", "False", None])] if marked else []),
            )
            for _ in range(draw.randrange(1, 60))
        ]
        frame = pl.DataFrame(rows, kinds, orient="row")
        frame = frame.sort("k") if draw.random() < 0.5 else frame
        frame.write_parquet(
            made := io.BytesIO(), row_group_size=draw.choice([3, 7, 100]), statistics=draw.random() < 0.8
        )
        (tmp_path / "b.parquet").write_bytes(made.getvalue())
        (there := ObjectPath.parse(f"{bucket}/{seed}.parquet")).put(made.getvalue())
        columns = {"k": "int64?", "t.u": "string?", "d": "date?", "f": "float64?", "l": "list[int64?]?"}
        schema = {name: parse_type(text) for name, text in columns.items()}
        schema = history_columns(schema, {"time": parse_type("int64")})
        key = draw.choice([["k"], ["t.u"], ["d"], ["f"], ["k", "t.u"], ["d", "k"], ["f", "k"]])
        some = (
            frame.cast({"k": pl.Int64})
            .select(key)
            .sample(draw.randint(1, 2), with_replacement=True, seed=seed)
            .unique()
        )
        here, found = (read_beginning(path, schema, some) for path in (tmp_path / "b.parquet", there))
        left = (each.join(some, on=key, how="semi", nulls_equal=True) for each in (here, found))
        assert_frame_equal(*left)
        assert_frame_equal(read_beginning(tmp_path / "b.parquet", schema), read_beginning(there, schema))
        assert read_beginning(there, schema, rows=False).schema == here.schema


@pytest.mark.parametrize("where", ["a commit", "a deletion vector", "a sidecar"])
def test_the_log_of_a_table_in_a_bucket_names_only_files_of_the_table(tmp_path, bucket, where):
    """Its package follows a path to any object of the bucket."""
    place, pipeline = tmp_path / "t", tmp_path / "p.yaml"
    write_deltalake(place, pl.DataFrame({"k": [1, 2]}))
    write_deltalake(place, pl.DataFrame({"k": [3]}), mode="append")
    checkpoint_with_sidecar(place, alone=True)
    pipeline.write_text(f"name: p\ninputs: {{orders: {{delta: '{bucket}/t'}}}}\noutputs: {{orders: out/}}\n")
    _upload(place, bucket / "t")
    if where != "a sidecar":  # a table of the same version is not read again
        run(pipeline)
        assert read_log(tmp_path / "out", as_of="latest").rows() == [(1, 1), (2, 1), (3, 1)]
    (data,) = [path for path in place.glob("*.parquet") if pl.read_parquet(path).height == 1]
    ObjectPath.parse(f"{bucket}/elsewhere/secret.parquet").put(data.read_bytes())
    path = "../elsewhere/secret.parquet"
    add = {"path": path, "partitionValues": {}, "size": data.stat().st_size, "modificationTime": 1, "dataChange": True}
    if where == "a sidecar":
        (checkpoint,) = (place / "_delta_log").glob("*.checkpoint.*.json")
        actions = [json.loads(line) for line in checkpoint.read_text().splitlines()]
        actions[-1]["sidecar"]["path"] = f"../../{path}"
        checkpoint.write_text("\n".join(map(json.dumps, actions)))
    else:
        if where == "a deletion vector":
            vector = {"storageType": "p", "pathOrInlineDv": f"{bucket}/elsewhere/v", "offset": 1, "sizeInBytes": 1, "cardinality": 1}  # fmt: skip
            add |= {"path": data.name, "deletionVector": vector}
        (place / "_delta_log/00000000000000000002.json").write_text(json.dumps({"add": add}))
    _upload(place, bucket / "t")
    with pytest.raises(InputError, match="names a file outside of its folder"):
        run(pipeline)


def _upload(folder, target):
    for path in folder.rglob("*"):
        if path.is_file():
            ObjectPath.parse(f"{target}/{path.relative_to(folder)}").put(path.read_bytes())
