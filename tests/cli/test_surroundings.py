"""A process without stderr, without a directory, on a file system without locks, with files that vanish: a documented exit code.

What a process may not do: a run that meets a limit of its own ends with that limit in its hint, and the next run makes up for it.
"""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from ddcli import read_log
from ddcli.errors import EngineError
from ddcli.store.files.access import reading
from ddcli.store.tables import json_kind
from ddcli.store.tables.files import Tables
from ddcli.store.tables.kinds import damaged

PIPELINE = "inputs: {a: {path: in/, format: append, columns: {k: int64}}}\noutputs: {a: out/}\n"


@pytest.fixture
def small(shop):
    shop.write("p.yaml", PIPELINE)
    shop.write("in/1.csv", "k\n1\n")
    return shop


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_daemon_that_has_closed_its_streams(small, closed):
    """A file that is opened next must not get the number of a stream, and messages in it."""
    command = f"exec {sys.executable} -m ddcli run p.yaml {closed}"
    assert subprocess.run(["sh", "-c", command], cwd=small.folder, check=False).returncode == 0
    assert small("log", "out", "--as-of", "latest").out.split() == ["k", "diff", "1", "1"]


def test_a_directory_that_was_removed(small):
    (small.folder / "gone").mkdir()
    command = f"cd gone && rmdir ../gone && exec {sys.executable} -m ddcli run ../p.yaml"
    result = subprocess.run(["sh", "-c", command], cwd=small.folder, capture_output=True, text=True, check=False)
    assert (result.returncode, "the current directory does not exist any more" in result.stderr) == (2, True)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(small, monkeypatch, number):
    def no_lock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_lock)
    result = small("run", "p.yaml")
    assert result.code == 5
    assert "LOCK: error: the file system has no lock for the file" in result.err


def test_a_file_that_is_removed_while_it_is_looked_at(small, monkeypatch):
    small.write("in/2.ndjson", '{"k": 2}\n' * 50_000)
    look = json_kind.Ndjson._has_envelopes

    def removed(self, path):
        path.unlink(missing_ok=True)
        return look(self, path)

    monkeypatch.setattr(json_kind.Ndjson, "_has_envelopes", removed)
    result = small("run", "p.yaml")
    assert result.code == 3
    problem = "in/2.ndjson: error: the file can't be read: No such file or directory\n"
    assert f"{problem}hint: another program has removed it meanwhile: run again\n" in result.err


@pytest.mark.parametrize("text", ["Input/output error (os error 5)", None])
def test_an_error_of_the_disk_names_the_file_that_is_read(tmp_path, text):
    """Polars names none, and Python none but the one that it opens."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"x")
    error = OSError(text) if text else OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(EngineError) as caught, reading(path):
        raise error
    assert (caught.value.place, caught.value.problem) == (str(path), "the file can't be read: Input/output error")


def test_an_error_that_nobody_knows_of_is_one_of_the_disk(small, monkeypatch):
    def fails(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "somewhere/file")

    monkeypatch.setattr("ddcli.driver.run.read_request", fails)
    result = small("run", "p.yaml")
    assert result.code == 5
    assert "somewhere/file: error: the system can't read or write: Input/output error" in result.err


LIMITS = {
    "RLIMIT_FSIZE": ((1 << 10, 1 << 14), "let a process write larger files, `ulimit -f`"),
    "RLIMIT_NOFILE": ((6,), "let a process open more files, `ulimit -n`"),
}


@pytest.mark.parametrize(("name", "limit"), [(name, limit) for name, (limits, _) in LIMITS.items() for limit in limits])
def test_a_run_that_meets_a_limit(shop, name, limit):
    rows = "".join(f"{at},{at * 7919 % 10007:x}{at * 104729 % 1299709:x},0\n" for at in range(4000))
    (shop.folder / "in").mkdir()
    shop.write("in/1.csv", f"k,v,t\n{rows}")
    shop.write(
        "p.yaml",
        "inputs: {i: {path: in/, format: append, time: t, columns: {k: int64, v: string, t: int64}}}\n"
        "collections: {g: {from: i, apply: [distinct]}}\noutputs: {g: out/}\n",
    )
    script = f"""
import resource, sys
from ddcli.cli.main import main
resource.setrlimit(resource.{name}, ({limit}, resource.getrlimit(resource.{name})[1]))
main(["run", "p.yaml"])
"""
    stopped = shop.process(script=script)
    assert stopped.code in {3, 4, 5}, stopped.err
    assert LIMITS[name][1] in stopped.err
    assert shop("run", "p.yaml").code == 0
    assert read_log(shop.folder / "out").height == 4000


def test_a_file_that_polars_could_not_open_is_not_damaged(tmp_path):
    """It panics where there is no file left with which to begin its threads."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    panic = 'called `Result::unwrap()` on an `Err` value: Os { code: 24, message: "Too many open files" }'
    found = damaged(Tables().kind(path), path, RuntimeError(panic))
    assert (found.problem, found.hint) == ("the file can't be read: Too many open files", LIMITS["RLIMIT_NOFILE"][1])
