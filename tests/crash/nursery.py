"""Real processes that run a pipeline and die, made quickly: each is forked from one that has imported everything.

Run as a program it reads lines of JSON, each a list of runs to start side by side, and answers each with a line: how they ended.
Nothing of polars may be called before the fork: its threads would be missing in the child.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IDENTITY = "0" * 32
"""Of the states of all shops, where what they write is compared byte by byte."""
LATELY = 1
"""Entries of a register that stand in a manifest: a shop's runs make segments."""
LISTS = {"LATELY": 1, "MOST": 3}
"""Batches that stand in a manifest, and in a list: a shop's runs make lists, and write them again."""
BUNDLES = {"FEW": 0, "SMALL": 1200, "MOST_BUNDLES": 0}
"""Limits of bundles: of a shop's batches most go into one, some are too large, and each commit moves what is left of the one before."""
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Nursery:
    """The parent of all, as those who want processes see it."""

    modules: tuple[str, ...] = ()
    """What its children would import otherwise, each by itself."""
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery", *self.modules],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1"} | self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, *runs: dict[str, Any]) -> list[dict[str, Any]]:
        """Start runs in a folder side by side and return how each ended: `code` (negative: a signal), `said`, `seconds`,
        `later` (those that `kill` counts).

        A run may have: `options` of `ddcli.driver.run.run`, `die_at` (the file operation before which it exits), `kill_at_mark` (it is killed before it writes so many marks of a table), `kill`
        (the seconds after which it is killed), `since` (a file: they count from when it is replaced), `large` (the updates of
        an output that are written by themselves). Or it has a `command`, the arguments of `dd`, and `variables` of its environment.
        """
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"folder": str(folder), "runs": runs}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(300)
        self.process.stdout.close()


def main() -> None:
    """Import and load all that a run needs, then answer."""
    for module in (
        "driver.execute",
        "driver.run",
        "plan.operators.table",
        "spec.document",
        "expressions.reductions",
        "expressions.stage",
    ):
        importlib.import_module(f"ddcli.{module}")
    import tests.store.support  # noqa: F401

    for module in sys.argv[1:]:
        importlib.import_module(module)
    from ddcli.engine.jit import load, registry

    for name in list(registry.kernel_names()):
        load.load_kernel(registry.find_kernel(name))
    gc.freeze()  # else each child that looks for cycles copies all this memory
    for line in sys.stdin:
        asked = json.loads(line)
        started = [(*start(Path(asked["folder"]), run), run) for run in asked["runs"]]
        print(json.dumps([end(*child) for child in started]), flush=True)


def start(folder: Path, run: dict[str, Any]) -> tuple[int, int, float]:
    """Fork a process that does a run; return its id, a pipe on which it says what it has to say, and the time."""
    reader, writer = os.pipe()
    run["was"] = modified(run.get("since"))
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader, time.monotonic()
    code = 70
    try:
        os.close(reader)
        code, said = child(folder, run)
        os.write(writer, said.encode())
    finally:
        os._exit(code)


def child(folder: Path, run: dict[str, Any]) -> tuple[int, str]:
    """Do a run as the command does, and return its exit code and message."""
    import ddcli.driver.execute
    import ddcli.sinks.outputs
    import ddcli.store.state.batch_lists
    import ddcli.store.state.directory
    import ddcli.store.state.register
    from ddcli.driver.run import run as pipeline
    from ddcli.errors import DdError
    from ddcli.store.state.document import TABLE
    from tests.secret import SECRET
    from tests.store.support import Faulty

    class Exit(Faulty):
        marks = 0

        def do(self, operation, path, action):
            if len(self.log) == self.at:
                os._exit(9)
            self.marks += operation == "write" and TABLE in path.name
            if self.marks == run.get("kill_at_mark"):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().do(operation, path, action)

    ddcli.store.state.register.LATELY = LATELY
    for name, value in BUNDLES.items():
        setattr(ddcli.store.state.batch_lists, name, value)
    for name, value in LISTS.items():
        setattr(ddcli.store.state.batch_lists, name, value)
    if "identity" in run:
        ddcli.store.state.directory.new_identity = lambda: run["identity"]
        ddcli.driver.execute.new_secret = lambda: SECRET
    if "large" in run:
        ddcli.sinks.outputs.LARGE = run["large"]
    if "die_at" in run or "kill_at_mark" in run:
        ddcli.store.state.directory.Files = lambda: Exit(run.get("die_at"))
    os.environ.update(run.get("variables", {}))
    os.chdir(folder)
    if "command" in run:
        return command(run["command"])
    try:
        summary = pipeline(folder / "shop.yaml", **run.get("options", {}))
    except DdError as error:
        return error.exit_code, error.render()
    except BaseException as error:  # noqa: BLE001 - a child must not become a second parent
        return 70, repr(error)
    return 0, "changed" if summary.changed else "nothing new"


def command(arguments: list[str]) -> tuple[int, str]:
    """Run a command, and return its exit code and what it wrote."""
    from ddcli.cli.main import main as dd

    written = os.memfd_create("written")
    for stream in (1, 2):
        os.dup2(written, stream)
    code = 0
    try:
        dd(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stdout.flush()
    return code, os.pread(written, 1 << 15, 0).decode()


def end(pid: int, reader: int, started: float, run: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a process, or put one to it."""
    while modified(run.get("since")) == run["was"] is not None and not select.select([reader], [], [], 0.0005)[0]:
        pass
    begun = time.monotonic() if run["was"] is not None else started
    left = run.get("kill", 300) - (time.monotonic() - begun)
    if not select.select([reader], [], [], max(left, 0))[0]:
        os.kill(pid, signal.SIGKILL)
    said = os.read(reader, 1 << 16).decode()  # empty when it died; a run that has said something ends by itself
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    ended = time.monotonic()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "said": said,
        "seconds": ended - started,
        "later": ended - begun,
    }


def modified(path: str | None) -> int | None:
    """Return when a file was written, None without one."""
    return Path(path).stat().st_mtime_ns if path else None


if __name__ == "__main__":
    main()
