"""Manifests: what is written is read back, and what is damaged or newer is refused."""

import json

import pytest

from ddcli.engine.times import LEAST
from ddcli.errors import InputError, StateError
from ddcli.store.files.gate import Files, checksum
from ddcli.store.state import manifest
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.entries import ArrangementEntry, FileEntry, InputEntry, InputFile, OutputEntry
from ddcli.store.state.manifest import FORMAT, Manifest, manifest_path, read_manifest, read_newest
from ddcli.store.state.outputs import progress_bytes, read_progress
from tests.crash.shop import Shop

FRONTIER = ((3, 0), (0, 4))
MANIFEST = Manifest(
    "pipé",
    FRONTIER,
    number=7,
    pipeline="ab",
    plan="cd",
    engine="1.0",
    inputs={
        "in": InputEntry(
            FRONTIER,
            (InputFile("a/b.parquet", 5, 6, "ff", done=True), InputFile("c", 1, 2)),
            {"columns": {"k": "int64"}, "time": {"t": "date"}, "diff": True},
            ledger=(FileEntry("000000001-0000.parquet", 1, 2, "cccccccc", None, (), footer="dddddddd"),),
            keys=(FileEntry("000000002-0000.parquet", 3, 4, "cccccccc", None, (), footer="dddddddd"),),
        )
    },
    arrangements={
        "arr": ArrangementEntry(
            "f",
            ((0, 0),),
            FRONTIER,
            ("k",),
            {"k": "int64?"},
            ((FileEntry("000000001-0000.parquet", 1, 2, "cccccccc", None, FRONTIER, ((0, 0),)),), ()),
        )
    },
    outputs={
        "out": OutputEntry(
            "../out", {"k": "string"}, (FileEntry("updates-0-1.parquet", 1, 2, "cccccccc", FRONTIER, ()),)
        )
    },
    publish=(("../out/.updates-0-1.parquet.000000007.dd-tmp", "../out/updates-0-1.parquet"),),
    secret="0f" * 16,
    cache={
        "time": {"time": "int64"},
        "seen": [2],
        "plan": {
            "generations": [],
            "work": {"totals": "groups"},
            "outline": {"nodes": {"a": ["filter", "x", []]}, "outputs": {"out": "a"}},
        },
    },
    identity="0123456789abcdef" * 2,
)


@pytest.fixture
def written(tmp_path):
    path = manifest_path(tmp_path, 7)
    path.parent.mkdir()
    path.write_bytes(MANIFEST.to_bytes())
    return path


def rewrite(path, changes, drop=()):
    """Change fields of a manifest's JSON."""
    tree = json.loads(path.read_bytes()) | changes
    for name in ("crc32", *drop):
        del tree[name]
    rest = json.dumps(tree, separators=(",", ":")).encode()[1:]
    path.write_bytes(b'{"crc32":"%s",' % checksum(rest).encode() + rest)


def test_a_manifest_is_read_as_it_was_written(written, tmp_path):
    assert read_manifest(written) == MANIFEST
    assert read_newest(tmp_path) == MANIFEST
    assert json.loads(written.read_text())["format"] == FORMAT


def test_the_newest_manifest_is_the_truth_and_temporary_ones_are_none(written, tmp_path):
    newer = MANIFEST.numbered(1_000, ())
    manifest_path(tmp_path, 1_000).write_bytes(newer.to_bytes())
    (written.parent / ".000001001.json.000001001.dd-tmp").write_bytes(b"torn")
    (written.parent / "note.json").write_bytes(b"mine")
    assert read_newest(tmp_path) == newer


def test_no_directory_is_no_state(tmp_path):
    assert read_newest(tmp_path / "none") is None


def test_every_flipped_byte_and_every_truncation_is_noticed(written):
    data = written.read_bytes()
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :]):
            written.write_bytes(damaged)
            with pytest.raises(StateError) as caught:
                read_manifest(written)
            assert caught.value.exit_code == 4
            assert caught.value.place == str(written)


def test_a_damaged_newest_manifest_is_never_skipped(written, tmp_path):
    manifest_path(tmp_path, 8).write_bytes(b"{}")
    with pytest.raises(StateError, match="damaged") as caught:
        read_newest(tmp_path)
    assert "000000008.json" in caught.value.render()


def test_an_older_format_asks_for_its_version(written):
    rewrite(written, {"format": FORMAT - 1})
    with pytest.raises(StateError, match="older version") as caught:
        read_manifest(written)
    assert caught.value.place == str(written)
    assert "dd reset PIPELINE --outputs" in caught.value.hint


@pytest.mark.parametrize("secret", ["5", "zz" * 16, "ab" * 15, 5, None])
def test_a_secret_of_another_form_is_refused(written, secret):
    rewrite(written, {"secret": secret})
    with pytest.raises(StateError, match="has content that `dd` never writes"):
        read_manifest(written)


def test_a_newer_format_asks_for_a_newer_version(written):
    written.write_bytes(b'{"format": 99, "whatever": 1}')
    with pytest.raises(StateError, match="newer version") as caught:
        read_manifest(written)
    assert "run a newer `dd`" in caught.value.hint


def test_ten_thousand_consumed_files_are_read_quickly(written):
    files = tuple(InputFile(f"part-{i:05d}.parquet", 1000 + i, 10**18 + i, "ab" * 16, done=True) for i in range(10_000))
    many = Manifest("p", ((1,),), number=7, inputs={"in": InputEntry(((1,),), files, MANIFEST.inputs["in"].schema)})
    written.write_bytes(many.to_bytes())
    assert read_manifest(written) == many


def test_checksums_are_of_the_bytes_written(tmp_path):
    got = Files().write(tmp_path / "f", memoryview(b"batch"))
    assert (got.size, got.checksum) == (5, "f80b52d4")


@pytest.mark.parametrize("commits", [[2, 1], [-1, 1], ["1", 2], [1], [1, 2, 3], [1, None]])
def test_an_outputs_file_of_commits_that_are_none_is_refused(commits):
    row = FileEntry("updates-0-1.parquet", 1, 2, "cccccccc", FRONTIER, (), first=1, commit=3).to_row()
    assert FileEntry.from_row(row).to_row() == row
    with pytest.raises((ValueError, TypeError)):
        FileEntry.from_row([*row[:-2], *commits])


def test_what_a_run_has_committed_is_what_is_read(tmp_path):
    """A watch's next round takes it as it is in memory: it is the same as what the file says."""
    shop = Shop.make(tmp_path)
    path = tmp_path / "shop.yaml"
    for step in range(4):
        shop.supply(step)
        if step == 3:
            path.write_text(path.read_text().replace("sum(amount)", "max(amount)"))
        shop.run(apply=step == 3)
        number = shop.number
        known = manifest_path(shop.state, number)
        assert known in manifest._LATELY
        committed = read_newest(shop.state)
        manifest._LATELY.clear()
        assert read_newest(shop.state) == committed
        assert read_newest(shop.state) is not committed


@pytest.mark.parametrize("upper", [((5,),), ((3, 0), (0, 4)), ((LEAST, 4), (3, LEAST)), ()])
def test_progress_is_read_as_written(tmp_path, upper):
    (tmp_path / PROGRESS).write_bytes(progress_bytes(upper))
    assert read_progress(tmp_path) == upper


def test_the_least_coordinate_is_written_as_null(tmp_path):
    (tmp_path / PROGRESS).write_bytes(progress_bytes(((LEAST, 4), (3, LEAST))))
    assert (tmp_path / PROGRESS).read_text() == '{"upper": [[null, 4], [3, null]]}\n'


def test_a_log_may_have_no_progress(tmp_path):
    assert read_progress(tmp_path) is None
    (tmp_path / "file").touch()
    assert read_progress(tmp_path / "file") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"upper": 5}',
        '{"upper": [5]}',
        '{"upper": [[]]}',
        '{"upper": [[1.5]]}',
        '{"upper": [[true]]}',
        '{"upper": [[1], [1, 2]]}',
        '{"upper": [null]}',
        '{"upper": [[9223372036854775808]]}',
    ],
)
def test_senseless_progress_is_refused(tmp_path, text):
    (tmp_path / PROGRESS).write_text(text)
    with pytest.raises(InputError, match="progress") as caught:
        read_progress(tmp_path)
    assert caught.value.place == str(tmp_path / PROGRESS)
