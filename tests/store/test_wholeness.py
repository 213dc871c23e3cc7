"""Which files count as whole while others may be writing them."""

import os
import time

import polars as pl
import pytest

from ddcli.store.files.changes import Wholeness


@pytest.fixture
def told():
    """Return what was told of, and what says of files whether they are whole."""
    found = []
    return found, Wholeness(found.append)


@pytest.mark.parametrize(("name", "write"), [("a.parquet", "write_parquet"), ("a.arrow", "write_ipc")])
def test_every_beginning_of_a_file_is_a_part(tmp_path, told, name, write):
    """Told of once; and again only when it was whole in between."""
    found, whole = told
    path = tmp_path / name
    getattr(pl.DataFrame({"v": [1, 2, 3]}), write)(path)
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        assert not whole(path), end
    assert found == [path]
    path.write_bytes(data)
    assert whole(path)
    path.write_bytes(data[:-1])
    assert not whole(path)
    assert found == [path, path]


def test_text_is_whole_when_it_was_left_alone(tmp_path, told, monkeypatch):
    """There is no other way to tell; whoever waits is told that time alone may change it."""
    found, whole = told
    path = tmp_path / "a.csv"
    path.write_text("v\n1\n")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    os.utime(path, (now, now))
    assert not whole(path)
    assert whole.unsettled
    os.utime(path, (now - 2, now - 2))
    assert whole(path)
    assert found == [], "every file of text is new for a moment"


def test_a_file_that_is_gone_is_left_to_who_reads_it(tmp_path, told):
    assert told[1](tmp_path / "gone.parquet")
