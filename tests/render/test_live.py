"""What is shown of a run while it works: on a terminal only, after a while only, and nothing is left of it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from ddcli.render import live
from ddcli.render.live import LiveProgress, bar
from ddcli.render.units import amount

PATIENCE = 300
"""Seconds that a test waits for what must come."""


class Terminal:
    """A terminal, as a program sees it (`stream`), and what was written to it (`text`)."""

    def __init__(self):
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")
        self.text = ""

    def read(self, until=None):
        """Read on until some text is there, or, without it, all that is there."""
        end = time.monotonic() + PATIENCE
        while until is None or until not in self.text:
            assert time.monotonic() < end, (until, self.text)
            if not select.select([self.master], [], [], 0 if until is None else 0.1)[0]:
                if until is None:
                    break
                continue
            self.text += os.read(self.master, 1 << 16).decode()
        return self.text

    def close(self):
        self.stream.close()
        os.close(self.master)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    found = Terminal()
    yield found
    found.close()


def test_stages_rows_and_bytes_are_shown_and_gone(terminal, monkeypatch):
    monkeypatch.setattr(live, "PATIENCE", 0)
    progress = LiveProgress(terminal.stream)
    progress.begin("stage 1 of 2: join", 4)
    progress.read(1_234_567, 5_000_000)
    progress.advance()
    terminal.read("[#####               ] 1/4  stage 1 of 2: join")
    terminal.read("read 1.2 M rows (5.0 MB")
    progress.follow(2, 1, 1)
    terminal.read("2/4, 1 at work, 1 failed and retried")
    progress.say("a line [of text]")
    terminal.read("a line [of text]")
    progress.begin("stage 2 of 2: reduce")
    progress.wrote(10, 100)
    terminal.read("wrote 10 rows (100 B")
    progress.end()
    assert terminal.read().endswith("\x1b[2K"), "the line is empty again"
    terminal.text = ""
    progress.say("bye")
    assert terminal.read("bye") == "bye\r\n"
    progress.begin("once more")
    assert "10 rows" not in terminal.read("once more")
    progress.end()
    progress.end()


def test_a_short_run_shows_nothing_and_imports_no_rich(shop, terminal):
    """Though it is on a terminal; and where it is on none, a long one neither."""
    shop.write(
        "p.yaml",
        "dd: 1\nname: p\ninputs: {a: {path: in.csv, columns: {k: int64, time: int64}}}\noutputs: {o: {path: out/, from: a}}\n",
    )
    shop.write("in.csv", "k,time\n1,0\n")
    script = """
import sys
from ddcli.cli.main import main
from ddcli.render import live
live.PATIENCE = float(sys.argv.pop())
try:
    main(sys.argv[1:])
finally:
    assert not [name for name in sys.modules if name.split(".")[0] == "rich"], "rich"
"""
    command = [sys.executable, "-c", script, "run", "p.yaml"]
    options = {
        "cwd": shop.folder,
        "env": os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))},
    }
    done = subprocess.run([*command, "--dry-run", "0"], capture_output=True, check=False, **options)
    assert (done.returncode, b"\x1b" in done.stderr, b"1 update" in done.stderr) == (0, False, True)
    assert subprocess.run([*command, "60"], stderr=terminal.stream, check=False, **options).returncode == 0
    assert "\x1b" not in terminal.read("state ")


def test_quiet_is_quiet(shop, terminal):
    shop.write(
        "p.yaml",
        "dd: 1\nname: p\ninputs: {a: {path: in.csv, columns: {k: int64, time: int64}}}\noutputs: {o: {path: out/, from: a}}\n",
    )
    shop.write("in.csv", "k,time\n1,0\n")
    script = "from ddcli.cli.main import main\nfrom ddcli.render import live\nlive.PATIENCE = 0\nimport sys\nmain(sys.argv[1:])"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*sys.path]))}
    command = [sys.executable, "-c", script, "run", "p.yaml", "--quiet"]
    assert subprocess.run(command, cwd=shop.folder, env=env, stderr=terminal.stream, check=False).returncode == 0
    assert not terminal.read()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1000, "1.0 k"), (999_960, "1.0 M"), (2.5e9, "2.5 G"), (3e12, "3.0 T")]
)
def test_amounts(count, text):
    assert amount(count) == text


def test_a_bar_is_never_over_full():
    assert bar(9, 3, 6) == "[######]"
    assert bar(0, 3, 6) == "[      ]"
