"""Rows that are forgotten where inputs, state and outputs are in an object store.

Files of outputs in an object store: no name gets other content, and a pipeline reads those to which earlier versions have added.
"""

import io
import threading
from contextlib import suppress

import polars as pl
import pytest

import ddcli.store.state.directory
from ddcli.driver.forget import forget
from ddcli.driver.run import run
from ddcli.errors import UsageError
from ddcli.sinks import outputs
from ddcli.sinks.log_compaction import compact
from ddcli.sources.change_log import read_log
from ddcli.store.files import access
from ddcli.store.files.gate import Files
from ddcli.store.log import joint_files
from tests.crash.shop import RUNS, Shop
from tests.draws import chance
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


READER = """\
dd: 1
name: reader
state: reader-state/
inputs: {{spent: {bucket}/out/spent/}}
outputs: {{spent: read/}}
"""


class Watched(Faulty):
    """Looks after each operation at the objects of outputs that readers by a glob would find: their content never changes."""

    def __init__(self, place, seen, at=None, *, after=False):
        super().__init__(at, after=after)
        self.place, self.seen, self.looking = place, seen, threading.Lock()

    def do(self, operation, path, action):
        try:
            return super().do(operation, path, action)
        finally:
            with self.looking:
                for each, _ in self.place.below():
                    if each.name.endswith(".parquet") and not each.name.startswith("."):
                        data = each.read_bytes()
                        assert self.seen.setdefault(each.key, data) == data, each


def test_no_object_of_an_output_gets_other_content(tmp_path, bucket, monkeypatch):
    """Whatever request is a run's last one: a reader by a glob takes several requests to read an object, and would mix two contents."""
    monkeypatch.setattr(joint_files, "APART", 0)
    there, draw = Remote(Shop.make(tmp_path / "remote"), bucket), chance("content")
    seen, steps = {}, 6
    for step in range(steps):
        there.supply(step)
        dying = Watched(bucket / "out", seen, draw.randrange(30), after=draw.random() < 0.5)
        monkeypatch.setattr(ddcli.store.state.directory, "Files", lambda dying=dying: dying)
        with suppress(Dead):
            there.run()
    whole = Watched(bucket / "out", seen)
    monkeypatch.setattr(ddcli.store.state.directory, "Files", lambda: whole)
    there.run()
    assert there.rows() == there.local.meant(steps)
    assert len(seen) > 4


def test_a_reader_goes_on_where_objects_have_grown(tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(joint_files, "APART", 0)
    monkeypatch.setattr(outputs, "fs", access.Disk)  # as in versions before December 2026
    there = Remote(Shop.make(tmp_path / "remote"), bucket)
    path = there.local.folder / "reader.yaml"
    path.write_text(READER.format(bucket=bucket))
    for step in range(4):
        there.supply(step)
        assert there.run().changed
        if step != 1:
            assert run(path).changed
    assert there.rows() == there.local.meant(4)
    names = [each.name for each, _ in (bucket / "out/spent").below() if each.name.endswith(".parquet")]
    assert names == ["updates-start-1.parquet"]
    found = joint_files.read_versions(bucket / "out/spent" / names[0])
    assert [each.commit for each in found] == [1, 2, 3]
    shown = read_log(there.local.folder / "read", consolidate=True)
    assert {tuple(record): diff for *record, diff in shown.iter_rows()} == there.local.meant(4)["spent"]


def test_what_is_old_is_summed_up_and_whoever_dies_leaves_every_row_once(tmp_path, bucket, monkeypatch):
    """Whatever request is the last one: a reader of the log goes on with it, `dd log` shows each row once, and the next compaction ends it."""
    there = Remote(Shop.make(tmp_path / "remote"), bucket)
    reader = there.local.folder / "reader.yaml"
    reader.write_text(READER.format(bucket=bucket))
    for step in range(3):
        there.supply(step)
        there.run()
    run(reader)
    log = str(bucket / "out/spent")
    latest = read_log(log, as_of="latest").rows()
    assert compact(log, tmp_path, dry=True)[0].files == 3
    for number in sorted({*chance("summed up").sample(range(20), 4), 1 << 20}):
        dying = Faulty(number)
        monkeypatch.setattr(ddcli.store.state.directory, "Files", lambda dying=dying: dying)
        with suppress(Dead):
            compact(log, tmp_path)
        assert read_log(log, as_of="latest").rows() == latest
    monkeypatch.setattr(ddcli.store.state.directory, "Files", Files)
    (name,) = [each.name for each, _ in (bucket / "out/spent").below() if each.name.endswith(".parquet")]
    assert "-summed" in name
    with pytest.raises(UsageError, match="the log remembers nothing before"):
        read_log(log, as_of=0)
    there.supply(3)
    there.run()
    assert run(reader).changed
    shown = read_log(there.local.folder / "read", as_of="latest")
    assert shown.equals(read_log(log, as_of="latest"))
    assert shown.rows() != latest
