"""Files of logs that grow: what their footers say of earlier versions, and runs that read them meanwhile."""

import polars as pl
import pyarrow.parquet as pq
import pytest

from ddcli.driver.run import run
from ddcli.errors import InputError, RewrittenError
from ddcli.store.log import joint_files
from ddcli.store.log.joint_files import KEY, read_versions, rows_of, rows_through
from ddcli.store.log.reader import LogReader
from tests.harness import contents, write_log

WRITER = """\
dd: 1
name: a
inputs: {rows: in/}
outputs: {rows: out/a/}
"""
READER = """\
dd: 1
name: b
inputs: {rows: out/a/}
outputs: {rows: out/b/}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a writer whose file grows with each commit, and a reader."""
    monkeypatch.setattr(joint_files, "APART", 0)
    (tmp_path / "a.yaml").write_text(WRITER)
    (tmp_path / "b.yaml").write_text(READER)
    return tmp_path


def produce(folder, time):
    write_log(folder / f"in/{time}.parquet", [(time % 3, time, 1)], ["k", "time", "diff"])
    run(folder / "a.yaml")


def test_the_footer_has_the_versions_before(folder):
    for time in range(3):
        produce(folder, time)
    (path,) = (folder / "out/a").glob("*.parquet")
    versions = read_versions(path)
    assert [each[:2] for each in versions] == [(1, 1), (2, 2)]
    assert rows_of(path, versions[1].fingerprint) == 2
    assert rows_of(path, "another") is None
    assert [rows_through(path, commit) for commit in range(4)] == [None, 1, 2, 2]
    assert pl.read_parquet(path)["time"].to_list() == [0, 1, 2]


def test_a_commit_encodes_the_file_anew(folder):
    """In one row group, however many commits there were. Whatever else the footer's metadata had stays."""
    for time in range(7):
        produce(folder, time)
        (path,) = (folder / "out/a").glob("*.parquet")
        found = pq.read_metadata(path)
        assert found.num_row_groups == 1
        assert pl.read_parquet(path)["time"].to_list() == [*range(time + 1)] == pq.read_table(path)["time"].to_pylist()
        assert [rows_through(path, commit) for commit in range(1, time + 1)] == [*range(1, time + 1)]
        assert found.metadata.keys() - {KEY.encode()} == {b"ARROW:schema"}


@pytest.mark.parametrize(
    "said", ["no JSON", "[1]", "[[1, 2]]", '[[1, -2, "x"]]', '[[1, 4, "x"]]', '[[1, 2.0, "x"]]', "[" * 100_000]
)
def test_versions_that_make_no_sense_are_none(tmp_path, said):
    path = tmp_path / "log.parquet"
    pl.DataFrame({"k": [1, 2, 3]}).write_parquet(path, metadata={KEY: said})
    assert read_versions(path) == ()
    path.write_bytes(b"no Parquet")
    assert read_versions(path) == ()


@pytest.mark.parametrize("files", [1, 2])
def test_a_file_that_grows_while_it_is_read_is_read_as_it_was(folder, monkeypatch, files):
    """As the only file, which is read in one go; and after others."""
    if files > 1:
        monkeypatch.setattr(joint_files, "COMMITS", 0)
        produce(folder, 0)
        monkeypatch.undo()
        monkeypatch.setattr(joint_files, "APART", 0)
    produce(folder, 1)
    take, times = LogReader.take, iter(range(10, 20))

    def taken(reader, *arguments):
        found = take(reader, *arguments)
        if (time := next(times)) < 13:
            produce(folder, time)
        return found

    monkeypatch.setattr(
        LogReader,
        "take",
        lambda reader, *given: taken(reader, *given) if "out" in str(reader.listing.root) else take(reader, *given),
    )
    run(folder / "b.yaml")
    assert sum(contents(folder / "out/b").values()) == files
    monkeypatch.setattr(LogReader, "take", take)
    run(folder / "b.yaml")
    assert contents(folder / "out/b") == contents(folder / "out/a")


def test_a_log_that_is_written_anew_while_it_is_read(folder, monkeypatch):
    produce(folder, 0)
    produce(folder, 1)
    take, rewritten = LogReader.take, []

    def taken(reader, *arguments):
        found = take(reader, *arguments)
        if "out" in str(reader.listing.root):
            rewritten.append(None)
            run(folder / "a.yaml", rewrite=frozenset({"rows"}))
        return found

    monkeypatch.setattr(LogReader, "take", taken)
    with pytest.raises(RewrittenError):
        run(folder / "b.yaml")
    assert len(rewritten) > 1
    monkeypatch.setattr(LogReader, "take", take)
    produce(folder, 5)  # closes the time at which the log begins anew
    run(folder / "b.yaml")
    assert contents(folder / "out/b") == contents(folder / "out/a")


def test_a_file_that_another_log_has_in_its_place_is_refused(folder):
    produce(folder, 0)
    run(folder / "b.yaml")
    (path,) = (folder / "out/a").glob("*.parquet")
    frame = pl.read_parquet(path)
    versions = f'[[1,1,"{"0" * 32}"]]'
    pl.concat([frame, frame]).write_parquet(path, metadata={KEY: versions})
    with pytest.raises(InputError, match="has changed"):
        run(folder / "b.yaml")


def test_rows_that_a_reader_has_closed_are_late_in_a_file_that_has_grown(folder):
    produce(folder, 0)
    run(folder / "b.yaml", until="10")
    produce(folder, 5)
    with pytest.raises(InputError, match=r"late rows: row 1 .* the time 5"):
        run(folder / "b.yaml")
