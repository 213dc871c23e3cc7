"""Listing an input: whose files count, and what happened to those already taken in."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from ddcli.driver.run import run
from ddcli.errors import InputError
from ddcli.sources.change_log import read_log
from ddcli.store.tables.input_path import find_files, places_of
from ddcli.store.tables.inventory import list_input
from tests.draws import chance


def write(path, data=b"x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def paths(files):
    return [file.path for file in files]


def done(listing):
    return [replace(file, done=True) for file in listing.to_read]


def test_a_directory_is_listed_with_what_is_below_it_in_order(tmp_path):
    for name in ("b.parquet", "a.parquet", "year=2013/c.parquet", "a/z.PARQUET", "README.md", "a/x.csv", "a/x.txt"):
        write(tmp_path / "log" / name)
    listing = list_input("log", tmp_path)
    assert listing.root == tmp_path / "log"
    assert paths(listing.new) == ["a.parquet", "a/x.csv", "a/z.PARQUET", "b.parquet", "year=2013/c.parquet"]
    assert [listing.path(file).read_bytes() for file in listing.new] == [b"x"] * 5


def test_hidden_private_and_unfinished_files_are_ignored(tmp_path):
    hidden = (".a.parquet", "_a.parquet", "_temporary/0/a.parquet", ".staging/a.parquet")
    unfinished = ("a.parquet.tmp", "a.parquet.part", "a.parquet~", ".updates-0-1.parquet.000000001.dd-tmp")
    for name in (*hidden, *unfinished, "_progress.json"):
        write(tmp_path / name)
    assert list_input(".", tmp_path).new == ()
    assert list_input(str(tmp_path), tmp_path).new == ()
    write(tmp_path / "good")
    assert paths(list_input("**/*", tmp_path).new) == ["good"]


def test_one_file_is_taken_whatever_it_is_called(tmp_path):
    write(tmp_path / "_mine.tmp")
    assert paths(list_input("_mine.tmp", tmp_path).new) == ["_mine.tmp"]


def test_a_glob_is_listed_below_its_fixed_part(tmp_path):
    for name in ("log/2013/a.parquet", "log/2014/b.parquet", "log/2014/b.csv", "log/2015.parquet/inner"):
        write(tmp_path / name)
    listing = list_input("log/*/*.parquet", tmp_path)
    assert listing.root == tmp_path / "log"
    assert paths(listing.new) == ["2013/a.parquet", "2014/b.parquet"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path):
    write(tmp_path / "a[1].parquet")
    assert paths(list_input("a[1].parquet", tmp_path).new) == ["a[1].parquet"]


@pytest.mark.parametrize("path", ["nothing", "nothing/*.parquet", "log/*.parquet"])
def test_what_is_not_there_is_refused(tmp_path, path):
    (tmp_path / "log").mkdir()
    with pytest.raises(InputError) as caught:
        list_input(path, tmp_path)
    assert path in caught.value.problem
    assert "relative to the pipeline file" in caught.value.hint


def test_a_link_to_nothing_is_refused(tmp_path):
    (tmp_path / "a.parquet").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"a link to .*gone.*, which is not there") as caught:
        list_input(".", tmp_path)
    assert "a.parquet" in caught.value.place


def test_consumed_files_are_told_from_new_and_waiting_ones(tmp_path):
    for name in "abc":
        write(tmp_path / f"{name}.pq")
    a, b, c = list_input(".", tmp_path).new
    write(tmp_path / "d.pq")
    listing = list_input(".", tmp_path, [replace(a, done=True), b, replace(c, done=True)])
    assert (paths(listing.done), paths(listing.waiting), paths(listing.new)) == (["a.pq", "c.pq"], ["b.pq"], ["d.pq"])
    assert paths(listing.to_read) == ["b.pq", "d.pq"]


def test_a_touched_file_is_unchanged(tmp_path):
    file = write(tmp_path / "a.parquet")
    consumed = done(list_input(".", tmp_path))
    os.utime(file, ns=(1, 1))
    listing = list_input(".", tmp_path, consumed)
    assert listing.done == (replace(consumed[0], mtime_ns=1),)


@pytest.mark.parametrize(
    ("data", "change"), [(b"xy", "it had 1 bytes and has 2"), (b"y", "the same size and other content")]
)
def test_a_changed_consumed_file_is_refused(tmp_path, data, change):
    file = write(tmp_path / "a.parquet")
    consumed = done(list_input(".", tmp_path))
    file.write_bytes(data)
    os.utime(file, ns=(1, 1))
    with pytest.raises(InputError, match=change) as caught:
        list_input(".", tmp_path, consumed)
    assert caught.value.exit_code == 3
    assert caught.value.place == str(file)
    assert "recompute everything" in caught.value.hint


def test_a_file_that_was_rewritten_within_its_time_is_refused_when_it_is_read_again(tmp_path):
    file = write(tmp_path / "a.parquet")
    stamp = file.stat().st_mtime_ns
    (entry,) = list_input(".", tmp_path).new
    file.write_bytes(b"y")
    os.utime(file, ns=(stamp, stamp))
    for consumed, again in (
        (entry, lambda listing: listing),
        (replace(entry, done=True), lambda listing: listing.past()),
        (replace(entry, done=True), lambda listing: listing.whole()),
    ):
        listing = list_input(".", tmp_path, [consumed])  # looks at names, sizes and times alone
        with pytest.raises(InputError, match="changed: it has the same size and other content") as caught:
            again(listing).verify()
        assert caught.value.exit_code == 3
        assert caught.value.place == str(file)
        assert "put the file back" in caught.value.hint
    list_input(".", tmp_path, [replace(entry, done=True)]).verify()


def test_a_vanished_consumed_file_is_refused(tmp_path):
    file = write(tmp_path / "log" / "a.parquet")
    consumed = done(list_input("log", tmp_path))
    file.unlink()
    with pytest.raises(InputError, match="vanished") as caught:
        list_input("log", tmp_path, consumed)
    assert caught.value.place == str(file)


def test_the_fingerprint_sees_beginning_and_end_of_a_large_file(tmp_path):
    data = bytearray(chance("contents").randbytes(300_000))
    file = write(tmp_path / "a", data)
    seen = {list_input("a", tmp_path).new[0].fingerprint}
    for at in (0, 4095, -1, -65536):
        changed = bytearray(data)
        changed[at] ^= 1
        file.write_bytes(changed)
        seen.add(list_input("a", tmp_path).new[0].fingerprint)
    assert len(seen) == 5


def test_what_a_run_with_nothing_new_needs_imports_no_third_party_library():
    code = (
        "import sys, ddcli.store.tables.listing, ddcli.store.state.manifest, ddcli.store.state.directory, ddcli.store.state.outputs;"
        "print(sorted({'polars','numpy','pyarrow','numba','llvmlite','click','sqlglot'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", ["in/*.csv", "../[[]ab]/in/*.csv", "./in/1.*", "in/**"])
def test_the_directory_of_a_pipeline_is_no_pattern(tmp_path, path):
    """A pipeline in a directory called `[ab]` reads none of the files of `a` beside it."""
    for folder in ("[ab]", "a"):
        (tmp_path / folder / "in").mkdir(parents=True)
        (tmp_path / folder / "in" / "1.csv").write_text(f"k\n{folder}\n")
    base = tmp_path / "[ab]"
    root, files = find_files(path, base, [])
    assert [root / file.path for file in files] == [base / "in" / "1.csv"]
    assert places_of(path, base)[0] == root


def test_a_file_in_a_directory_with_the_name_of_a_pattern_is_withdrawn(tmp_path):
    (base := tmp_path / "x [1]*" / "in{a}").mkdir(parents=True)
    for name in ("a[0]*.csv", "b.csv"):
        (base / name).write_text("k\n1\n")
    pipeline = base.parent / "p.yaml"
    pipeline.write_text(
        "inputs: {a: {path: 'in{a}/', format: append, columns: {k: int64}}}\noutputs: {a: out/}\n", encoding="utf-8"
    )
    run(pipeline)
    run(pipeline, withdraw=[base / "a[0]*.csv"])
    assert read_log(base.parent / "out", as_of="latest").rows() == [(1, 1)]
