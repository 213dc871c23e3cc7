"""A disk that fails to read: whichever read of an input, a log, a table or the state it is, also within polars, the error names a file.

A library that is loaded before all others fails one read of a file below a folder, of those of all threads.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.crash.nursery import Nursery
from tests.draws import EFFORT, TURN, WHOLE, some

LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static long seen;
static int fails(int fd) {
    char link[64], path[4096];
    const char *folder = getenv("FAIL_BELOW");
    if (!folder) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    if (strncmp(path, folder, strlen(folder)) || __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST) != atol(getenv("FAIL_AT"))) return 0;
    FILE *note = fopen(getenv("FAIL_NOTE"), "w");
    fputs(path, note);
    fclose(note);
    errno = EIO;
    return 1;
}
#define READS(name, parameters, arguments) \
    ssize_t name parameters { \
        static ssize_t (*next) parameters; \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        return fails(fd) ? -1 : next arguments; \
    }
READS(read, (int fd, void *data, size_t size), (fd, data, size))
READS(pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
READS(pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
"""
PIPELINE = """\
name: p
inputs:
  a: {path: in/, format: append, columns: {k: int64, g: int64}}
  u: {path: up/, format: upsert, key: [g], columns: {g: int64, name: string}}
collections:
  c: {sql: "select u.name, count(*) as n from a join u on a.g = u.g group by u.name"}
outputs:
  c: {path: out/, keep: 1 hour}
  t: {from: c, as: table, parquet: t.parquet}
  q: {from: c, as: table, to: "sqlite:///t.db"}
  d: {from: c, as: table, delta: lake/}
"""
COMMANDS = {
    "run": ["run", "p.yaml"],
    "refresh": ["run", "p.yaml", "--full-refresh", "all"],
    "retract": ["retract", "p.yaml", "in/1.csv"],
    "log": ["log", "out", "--as-of", "latest"],
    "compact": ["log", "compact", "p.yaml"],
    "feed": ["feed", "out", "--consumer", "k", "--into", "feed.db"],
    "query": ["query", "p.yaml", "c", "name=x1"],
    "why": ["why", "p.yaml", "c", "name=x1"],
    "verify": ["state", "verify", "p.yaml"],
    "reshard": ["state", "reshard", "p.yaml", "--shards", "2"],
    "diff": ["diff", "in/1.csv", "in/2.csv"],
    "sql": ["sql", "--from", "p.yaml", "select count(*) as n from a"],
}
STREAMED = ("log", "compact", "feed", "diff", "sql", "why")
"""The commands over whole logs or files, in which polars reads many and names none: there the place may be the log."""
READ, DONE = (2, 3, 4, 5), (0, 1)
"""Exit codes: a pipeline file or an input is refused, a state can't be read, the disk fails; and those of a command that could do without the read."""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no compiler of C")
    folder = tmp_path_factory.mktemp("library")
    (folder / "reads.c").write_text(LIBRARY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "reads.so", "reads.c", "-ldl"], cwd=folder, check=True)
    return folder / "reads.so"


@pytest.fixture(scope="module")
def nursery(library):
    """Return the parent of processes in which reads fail."""
    parent = Nursery(variables={"LD_PRELOAD": str(library), "RUST_BACKTRACE": "0"})
    yield parent
    parent.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory, nursery):
    """Return a folder with a pipeline that has run three times, and new files for it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "p.yaml").write_text(PIPELINE)
    for name in ("in", "up"):
        (folder / name).mkdir()
    for number in range(1, 5):
        (folder / f"in/{number}.csv").write_text("k,g\n" + "".join(f"{number}{row},{row % 3}\n" for row in range(6)))
        (folder / f"up/{number}.csv").write_text(f"g,name\n{number % 3},x{number}\n")
        if number < 4:
            (ran,) = nursery.run(folder, {"command": ["run", "p.yaml"]})
            assert ran["code"] == 0, ran["said"]
    return folder


@pytest.mark.parametrize("name", [*some(COMMANDS)])
def test_a_read_that_fails_ends_in_a_documented_exit_code(made, nursery, tmp_path, name):
    note, wrong = tmp_path / "note", list[str]()
    for at in count() if EFFORT >= WHOLE else count(2 * TURN, 19):
        folder = tmp_path / "work"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
        note.unlink(missing_ok=True)
        fails = {"FAIL_BELOW": f"{folder}/", "FAIL_AT": str(at + 1), "FAIL_NOTE": str(note)}
        (result,) = nursery.run(folder, {"command": COMMANDS[name], "variables": fails})
        if not note.exists():
            break
        path = Path(note.read_text())
        named = result["code"] in READ and (path.name.removesuffix("-journal") in result["said"] or name in STREAMED)
        if not (named or result["code"] in DONE) or "Traceback" in result["said"]:
            wrong.append(f"read {at + 1}, of {path.relative_to(folder)}: {result['code']} {result['said']}")
    assert at >= 19
    assert not wrong, "\n".join(wrong)
