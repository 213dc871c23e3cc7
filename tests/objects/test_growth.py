"""Files of outputs that grow in an object store, and a pipeline that reads them there."""

from ddcli.driver.run import run
from ddcli.sources.change_log import read_log
from ddcli.store.log import lineage
from tests.crash.shop import Shop
from tests.objects.shop import Remote

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
