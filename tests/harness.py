"""What tests of the whole share: a folder with pipelines and logs, commands run there, and what they leave.

A command is called in this process (`Folder`), in one of its own (`Folder.process`), or as a person types it in a copy of the root (`run`).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import click
import polars as pl

from ddcli.cli import startup
from ddcli.cli.main import cli, main
from ddcli.cli.startup import PLAIN
from ddcli.engine import pool
from ddcli.store.files.objects import ObjectPath
from tests.secret import SECRET
from tests.store.support import LOCKS

ROOT = Path(__file__).resolve().parent.parent
SHOWN = ("pipelines", "fixtures", "README.md", "docs", "Makefile", "pyproject.toml")
WRITTEN = shutil.ignore_patterns(".dd", "__pycache__")
PROGRAMS = {"dd", "ddcli"}
ORDERS = """\
dd: 1
name: orders
inputs:
  orders: orders/
collections:
  totals:
    from: orders
    apply:
      - reduce: {by: [region], orders: count(*), amount: sum(amount)}
outputs:
  totals: out/totals/
"""
"""A pipeline over the log of the fixture `orders`."""
ORDER_COLUMNS = {"region": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
"""The columns of that log."""
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
SHELL = re.compile(r"[|&;<>$`*?(){}~#\\\n=]|^cd ")


@dataclass(frozen=True)
class Result:
    """How a command ended, what it wrote to stdout and stderr, or `said` to a terminal that shows both."""

    code: int
    out: str
    err: str = ""
    said: str = ""


@dataclass
class Folder:
    """A folder with pipelines and logs, in which commands run."""

    folder: Path
    capture: object

    def __call__(self, *arguments):
        """Run a command in this process."""
        self.capture.readouterr()
        code = called(map(str, arguments))
        return Result(code, *self.capture.readouterr())

    def process(self, *arguments, script=None, **options):
        """Run a command, or a Python script, in a process of its own."""
        command = [sys.executable, *(["-c", script] if script else ["-m", "ddcli"]), *map(str, arguments)]
        env = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
        options = {"capture_output": True, "text": True, "timeout": 300} | options
        done = subprocess.run(command, cwd=self.folder, env=env, check=False, **options)
        return Result(done.returncode, done.stdout or "", done.stderr or "")

    def importing(self, modules, *arguments):
        """Run a command in a process of its own; the last line of its output lists those of the modules that it has imported."""
        script = f"""
import sys
from ddcli.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print([name for name in {modules} if name in sys.modules])
"""
        return self.process(*arguments, script=script)

    def write(self, name, text):
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def log(self, name, rows, **types):
        """Write a file of a log: rows of the columns `types`, time and diff."""
        write_log(self.folder / name, rows, types)

    @property
    def kept(self):
        """The folders that a run must leave as they are when it fails."""
        return self.folder / ".dd", self.folder / "out"


def await_answer(ask, refused, server):
    """Wait until a server, a process, answers what is asked: no longer with an error that is `refused`."""
    deadline = time.monotonic() + 300
    while True:
        try:
            ask().close()
        except refused:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server doesn't answer"
            time.sleep(0.05)
        else:
            return


def called(arguments):
    """Call the command in this process, and return its exit code."""
    try:
        main([*arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def assert_no_time(folder, pipeline, until, problem):
    """Assert that a run until something that is no time is wrong use, whether there is a state or not."""
    for _ in range(2):
        result = folder("run", pipeline, "--until", until)
        assert result.code == 2
        assert result.err.startswith(f"error: {problem}")
        assert "hint: " in result.err
        folder("run", pipeline, "-q")


# Logs.


def write_log(path, rows, schema, **options):
    """Write rows (data, time, diff) as a Parquet file; `schema` gives their columns' names, or polars types by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(path, **options)


def read_log(directory):
    """Return all updates of a log as DuckDB and polars see them: `*.parquet` in the directory, and in its folders of large commits."""
    if isinstance(directory, ObjectPath):
        files = (path.read_bytes() for path, _ in directory.below() if path.name.endswith(".parquet"))
        return pl.concat(pl.read_parquet(io.BytesIO(each)) for each in files)
    return pl.read_parquet([directory / "*.parquet", directory / "updates-*/*.parquet"])


def contents(directory, until=None):
    """Return the collection that a log holds before a time: each record with its multiplicity."""
    log = read_log(directory)
    if until is not None:
        log = log.filter(pl.col("time") < until)
    columns = [name for name in log.columns if name not in ("time", "diff")]
    summed = log.group_by(columns).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return {tuple(row[:-1]): row[-1] for row in summed.rows()}


# Files.


def snapshot(*directories):
    """Return bytes and modification times of all files below some directories, and the directories themselves."""
    found = {}
    for directory in directories:
        for path in [directory, *sorted(directory.rglob("*"))] if directory.exists() else ():
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, path.read_bytes() if path.is_file() else None)
    return found


def files(*directories):
    """Return the bytes of all files below some directories but locks, whose holder a run may note without harm."""
    found = snapshot(*directories).items()
    return {path: data for path, (_, data) in found if data is not None and path.name not in LOCKS}


def copy_root(folder):
    """Copy what a person who cloned the repository has, but for code and tests."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHOWN:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=WRITTEN)
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


# Lines that people type.


class Both(io.RawIOBase):
    """Writes into two files."""

    def __init__(self, *files):
        self.files = files

    def writable(self):
        return True

    def write(self, data):
        for file in self.files:
            file.write(data)
        return len(data)


def words_of(line):
    """Return the arguments of a line that is one plain call of ours, None for one that needs a shell."""
    bare = QUOTED.sub("", line)
    if SHELL.search(re.sub(r"\b[\w.-]+=[\w.-]", "", bare)):
        return None
    program, *arguments = shlex.split(line)
    return arguments if program in PROGRAMS else None


def parse(line):
    """Parse a call of ours without running it: its command and its options exist."""
    _, *arguments = shlex.split(line, comments=True)
    context = cli.make_context("dd", arguments)
    while isinstance(context.command, click.Group):
        name, command, arguments = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, arguments, parent=context)


def run(line, folder):
    """Run a line as a person would type it: in this process where it is a plain call of ours, else by bash."""
    arguments = words_of(line)
    return _by_bash(line, folder) if arguments is None else _here(arguments, folder)


def _here(arguments, folder):
    said, out = io.BytesIO(), io.BytesIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.TextIOWrapper(Both(said, out), encoding="utf-8", write_through=True)),
        contextlib.redirect_stderr(io.TextIOWrapper(Both(said), encoding="utf-8", write_through=True)),
        mock.patch.object(sys, "stdin", io.StringIO()),
        mock.patch.object(pool, "urandom", return_value=SECRET),  # else no two runs show rows in one order
        mock.patch.object(sys, "path", [*sys.path]),
        same_environment(),
    ):
        code = called(arguments)
    return Result(code, out.getvalue().decode(), said=said.getvalue().decode())


def _by_bash(line, folder):
    env = os.environ | {"PATH": f"{programs(folder)}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, timeout=300, check=False, **streams)
    return Result(done.returncode, "", said=done.stdout)


@contextlib.contextmanager
def same_environment():
    """Undo what is changed in the environment meanwhile, and write nothing else there.

    Threads of libraries read it at any moment; polars' one for object stores does ten times a second, for ever after. The C library frees its list
    of variables when it makes a longer one. So who removes all and sets them again, as `mock.patch.dict` does, has them read freed memory.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name not in before]:
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


LIST_MODULES = """
import os, sys
from pathlib import Path
leave = os._exit
def told(code):
    Path("modules").write_text(chr(10).join(sys.modules))
    leave(code)
os._exit = told
from ddcli.cli.coreutils import main
main()
"""


def imported_by(folder, *arguments):
    """Run a command in `folder` as users have it, in a process of its own, with our start; return the modules that it imported, without those that something stands in for."""
    command = [sys.executable, "-c", LIST_MODULES, *map(str, arguments)]
    env = {name: value for name, value in os.environ.items() if name != PLAIN} | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=300)
    found = set((folder / "modules").read_text().split())
    (folder / "modules").unlink()
    return found - startup.PARTS.keys()


def programs(folder):
    """Return a folder with `dd`, `ddcli` and `python` as an installation has them."""
    place = folder.parent / f"{folder.name}-bin"
    if not place.exists():
        place.mkdir()
        start = "import sys; sys.argv[0] = '{}'; from ddcli.cli.coreutils import main; main()"
        for name, call in {"python": "", **{name: f'-c "{start.format(name)}"' for name in PROGRAMS}}.items():
            (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
            (place / name).chmod(0o755)
    return place
