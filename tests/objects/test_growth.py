"""Files of outputs that grow in an object store, and a pipeline that reads them there."""

from contextlib import suppress

import pytest

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.errors import UsageError
from ddcli.sinks.log_compaction import compact
from ddcli.sources.change_log import read_log
from ddcli.store.files.gate import Files
from ddcli.store.log import lineage
from tests.crash.shop import Shop
from tests.draws import chance
from tests.objects.shop import Remote
from tests.store.support import Dead, Faulty

READER = """\
dd: 1
name: reader
state: reader-state/
inputs: {{spent: {bucket}/out/spent/}}
outputs: {{spent: read/}}
"""


def test_a_reader_goes_on_where_objects_have_grown(tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(lineage, "APART", 0)
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
    found = lineage.read_versions(bucket / "out/spent" / names[0])
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
