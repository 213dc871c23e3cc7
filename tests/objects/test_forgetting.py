"""Rows that are forgotten where inputs, state and outputs are in an object store."""

import io
from contextlib import suppress

import polars as pl
import pytest

from ddcli.driver.forget import forget
from ddcli.driver.run import run
from tests.crash.shop import RUNS, Shop
from tests.harness import contents
from tests.objects.shop import Remote
from tests.objects.test_archive import made, names
from tests.store.support import Dead, Faulty
from tests.tables.followers import through


def test_nothing_is_left_in_any_object(tmp_path, bucket):
    there, here = Remote(Shop.make(tmp_path / "remote"), bucket), Shop.make(tmp_path / "here")
    for step in range(RUNS):
        for shop in (there, here):
            shop.supply(step)
            shop.run()
    before = {str(path) for path, _ in bucket.below()}
    found = forget(there.local.folder / "shop.yaml", "person = 1", ["sales", "people"])
    forget(here.folder / "shop.yaml", "person = 1", ["sales", "people"])
    assert found.rewritten
    assert there.rows() == here.rows()
    assert not [row for row in there.rows()["known"] if row[0] == 1]
    left = {str(path) for path, _ in bucket.below()}
    assert not [name for name in left if "dd-tmp" in name]
    assert before - left
    assert not forget(there.local.folder / "shop.yaml", "person = 1", ["sales", "people"]).rewritten


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_archived_objects_are_replaced(tmp_path, bucket, kind, monkeypatch):
    """The process may die between the objects and the commit: repeated, the command takes them as they are."""
    file = made(tmp_path, bucket)
    for at, keys in enumerate([(1, 2), (1,), (3,)]):
        frame = pl.DataFrame({"k": keys})
        (bucket / f"in/{at}.{kind}").put(frame.write_csv().encode() if kind == "csv" else parquet(frame))
    run(file)
    counted = Faulty()
    with through(counted):
        forget(file, "k = 4")
    for number in (len(counted.log) // 2, len(counted.log)):
        with through(Faulty(number)), suppress(Dead):
            forget(file, "k = 1")
    assert not forget(file, "k = 1").still_in
    left = {name: (bucket / name).read_bytes() for name in names(bucket)}
    read = (lambda data: pl.read_csv(data)) if kind == "csv" else pl.read_parquet  # noqa: PLW0108 - of bytes
    assert [read(io.BytesIO(data))["k"].to_list() for data in left.values()] == [[2], [], [3]]
    (bucket / f"in/new.{kind}").put(
        pl.DataFrame({"k": [5]}).write_csv().encode() if kind == "csv" else parquet(pl.DataFrame({"k": [5]}))
    )
    run(file)
    run(file, refresh=frozenset())
    assert contents(tmp_path / "out") == {(2,): 1, (3,): 1, (5,): 1}


def parquet(frame):
    data = io.BytesIO()
    frame.write_parquet(data)
    return data.getvalue()
