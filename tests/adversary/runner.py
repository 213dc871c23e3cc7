"""Calls commands in processes of their own, with limits; each is forked from one that has imported everything, which is quick.

Run as a program it reads lines of JSON and answers each with a line. Nothing of polars may be called before the fork: its threads
would be missing in the child.

The processes have no network, where this machine lets us take it from them, and the kernel counts what they try to send. Where it
doesn't, and for what programs they start, Python's audit events tell.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import itertools
import json
import os
import pkgutil
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
FILE_SIZE = 1 << 28
SAID = 20_000
"""Bytes of what a command says that are looked at."""
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2
CAPABILITIES = 0x20080522
NEW_USERS, NEW_NETWORK = 0x10000000, 0x40000000
SPARE = 6 << 30
"""Bytes of address space that a command may ask for: so that one that asks for all doesn't take the machine with it."""
REACHING = frozenset({
    "socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.exec", "os.system",
    "os.posix_spawn", "os.fork", "os.forkpty", "webbrowser.open",
})  # fmt: skip
"""Python's audit events of what reaches out of the process."""


@dataclass(frozen=True)
class Ending:
    """How a command ended: with which code (negative: a signal), and what it said.

    `seconds` are those of a processor, `bytes` the most that was resident. `left` are processes and scratch files that are still there,
    `reached` is what it did towards other processes and machines.
    """

    code: int
    said: str
    seconds: float
    bytes: int
    left: list[str]
    timed_out: bool
    reached: list[str] = field(default_factory=list)


@dataclass
class Runner:
    """The parent of all processes."""

    process: subprocess.Popen = field(init=False)
    scratch: tempfile.TemporaryDirectory = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="dd-adversary-scratch-")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversary.runner"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
            | {
                "PYTHONPATH": str(ROOT),
                "POLARS_MAX_THREADS": "1",
                "TMPDIR": self.scratch.name,
                "GITHUB_ACTIONS": "true",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, arguments: Sequence[str], seconds: float) -> Ending:
        """Call `dd` with these arguments in a folder, for so many seconds of a processor at most, and three times that in all."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps([str(folder), list(arguments), seconds]) + "\n")
        self.process.stdin.flush()
        return Ending(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        self.process.stdin.close()
        self.process.wait(300)
        self.process.stdout.close()
        self.scratch.cleanup()


def main() -> None:
    """Import and load all that a command needs, then answer."""
    alone = leave_network()
    import ddcli

    for module in pkgutil.walk_packages(ddcli.__path__, "ddcli."):
        if "runtime" not in module.name and "starter" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from ddcli.engine.jit import load, registry

    for name in list(registry.kernel_names()):
        load.load_kernel(registry.find_kernel(name))
    gc.freeze()  # else each child that looks for cycles copies all this memory
    for line in sys.stdin:
        folder, arguments, seconds = json.loads(line)
        before = sent() if alone else 0
        ending = call(folder, arguments, seconds)
        if alone and sent() != before:
            ending.reached.append("the network")
        print(json.dumps(asdict(ending)), flush=True)


def leave_network() -> bool:
    """Leave for a network of our own, in which there is nothing; return whether that is possible here."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if not libc.unshare(NEW_NETWORK):
        return True
    if libc.unshare(NEW_USERS | NEW_NETWORK):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def sent() -> int:
    """Return how often somebody in our network tried to send something, as the kernel counts."""
    found = 0
    for name in ("snmp", "snmp6"):
        lines = [line.split() for line in Path(f"/proc/self/net/{name}").read_text().splitlines()]
        pairs = itertools.pairwise(lines) if name == "snmp" else [(line[:1], line[1:]) for line in lines]
        for names, values in pairs:
            found += sum(
                int(value)
                for key, value in zip(names, values, strict=False)
                if key.endswith(SENDING) and value.isdigit()
            )
    return found


SENDING = ("OutNoRoutes", "OutRequests", "ActiveOpens", "OutDatagrams")


def call(folder: str, arguments: list[str], seconds: float) -> Ending:
    """Call a command, and end it if it takes longer."""
    said, reached = os.memfd_create("said"), os.memfd_create("reached")
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        child(folder, arguments, seconds, said, reached)
    timed_out = False
    while not (ended := os.wait4(pid, os.WNOHANG))[0]:
        if time.monotonic() - began > 3 * seconds:
            timed_out = True
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    left = session(pid)
    for other, _ in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    usage = ended[2]
    return Ending(
        os.waitstatus_to_exitcode(ended[1]),
        said_in(said),
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss << 10,
        [name for _, name in left] + ([] if timed_out else scratch_left()),
        timed_out,
        said_in(reached).splitlines(),
    )


def said_in(file: int) -> str:
    """Return what was written to a file in memory, whole lines of it where it is much, and close it."""
    data = os.pread(file, SAID, 0)
    os.close(file)
    return (data[: data.rfind(b"\n") + 1] if len(data) == SAID else data).decode(errors="surrogateescape")


def scratch_left() -> list[str]:
    """Return what is in the scratch directory, and empty it."""
    found = list(Path(os.environ["TMPDIR"]).iterdir())
    for path in found:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return [f"scratch {path.name}" for path in found]


def child(folder: str, arguments: list[str], seconds: float, said: int, reached: int) -> None:
    """Become a process that calls a command, as if a shell had; never return."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, to in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(descriptor, to)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
        most = address_space() + SPARE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        obey_modes()
        sys.addaudithook(lambda event, args: note(reached, event, args) if event in REACHING else None)
        from ddcli.cli.main import main as dd

        sys.argv = ["dd", *arguments]
        try:
            dd(arguments)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:  # noqa: BLE001 - a child must not become a second parent
        os.write(said, f"Traceback of the runner: {error!r}".encode())
    finally:
        os._exit(code)


def note(reached: int, event: str, args: tuple) -> None:
    """Write down what reaches out of the process."""
    os.write(reached, f"{event}: {args!r:.200}\n".encode(errors="backslashreplace"))


def address_space() -> int:
    """Return how many bytes of address space this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def obey_modes() -> None:
    """Have root obey the modes of files, as everybody else must."""
    if os.getuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
    data = (ctypes.c_uint32 * 6)()
    if libc.capget(header, data):
        return
    data[0] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    libc.capset(header, data)


def session(leader: int) -> list[tuple[int, str]]:
    """Return the processes of a session that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, _, _, of = rest.split()[:4]
        if int(of) == leader and state not in "ZX":
            found.append((int(path.name), name))
    return found


if __name__ == "__main__":
    main()
