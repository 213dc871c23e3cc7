"""A scratch copy of the repository's root, in which commands that are shown to people are run as they are shown."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import click

from ddcli.cli.main import cli, main
from ddcli.engine import secret
from tests.secret import SECRET

ROOT = Path(__file__).resolve().parent.parent
SHOWN = ("pipelines", "fixtures", "README.md", "docs", "Makefile", "pyproject.toml")
WRITTEN = shutil.ignore_patterns(".dd", "__pycache__")
PROGRAMS = {"dd", "ddcli"}
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
SHELL = re.compile(r"[|&;<>$`*?(){}~#\\\n=]|^cd ")


@dataclass(frozen=True)
class Result:
    """How a command ended, what it said in the order in which a terminal shows it, and what of it on stdout."""

    code: int
    said: str
    out: str = ""


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


def copy_root(folder):
    """Copy what a person who cloned the repository has, but for code and tests."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHOWN:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=WRITTEN)
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


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
    code = 0
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.TextIOWrapper(Both(said, out), encoding="utf-8", write_through=True)),
        contextlib.redirect_stderr(io.TextIOWrapper(Both(said), encoding="utf-8", write_through=True)),
        mock.patch.object(sys, "stdin", io.StringIO()),
        mock.patch.object(secret, "urandom", return_value=SECRET),  # else no two runs show rows in one order
        mock.patch.object(sys, "path", [*sys.path]),
        mock.patch.dict(os.environ, environment(), clear=True),
    ):
        try:
            main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    return Result(code, said.getvalue().decode(), out.getvalue().decode())


def _by_bash(line, folder):
    env = environment() | {"PATH": f"{programs(folder)}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return Result(done.returncode, done.stdout)


def environment():
    """Return the environment of a person at a terminal: on GitHub commands say more."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}


def programs(folder):
    """Return a folder with `dd`, `ddcli` and `python` as an installation has them."""
    place = folder.parent / f"{folder.name}-bin"
    if not place.exists():
        place.mkdir()
        starts = {
            name: f"import sys; sys.argv[0] = '{name}'; from ddcli.cli.coreutils import main; main()"
            for name in PROGRAMS
        }
        calls = {"python": "", **{name: f'-c "{start}"' for name, start in starts.items()}}
        for name, call in calls.items():
            (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
            (place / name).chmod(0o755)
    return place
