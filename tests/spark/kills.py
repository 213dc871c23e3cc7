"""Kills at any moment on a cluster: the driver, its JVM, workers, executors, and Python processes of executors, while readers look at the outputs.

`python -m tests.spark.kills --kills 20` has the state and the outputs in files; with `--store` in a bucket of a server that it starts. It prints the
number of each kind of kill. Tasks write all updates of outputs to files; a commit is one file or a folder of them, by turns, or with
`--one-file` always one file: then DuckDB, too, looks into the bucket, where a folder does not come all at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.store.files.objects import ObjectPath
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify_state
from tests.crash.readers import READERS, contents, digest
from tests.crash.shop import OUTPUTS, Shop
from tests.harness import ROOT
from tests.objects.conftest import s3_server
from tests.objects.shop import Remote
from tests.spark.servers import ON_THIS_MACHINE, Standalone, children, standalone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DRIVER = """
import json, sys
import ddcli.runtime.scheduler, ddcli.sinks.outputs
from ddcli.driver.run import run
from ddcli.engine.jit.settings import cache_dir
from ddcli.errors import DdError
from ddcli.job.options import SparkOptions
from ddcli.runtime.placement import start

master, settings = json.loads(sys.argv[1])
ddcli.runtime.scheduler.INLINE = 0
start(SparkOptions(master, settings), "shop", cache_dir())  # which all runs of this process find
print("ready", flush=True)
for line in sys.stdin:
    path, ddcli.sinks.outputs.WHOLE = json.loads(line)
    try:
        run(path, engine="spark")
        print("done", flush=True)
    except DdError as error:
        print(json.dumps(error.render()), flush=True)
        if "has ended" in error.problem:
            sys.exit(1)
"""
KINDS = ("python", "executor", "worker", "driver", "java")
SHARES = (45, 25, 10, 15, 5)
"""How often of a hundred times each of these is killed: to start a driver takes long."""
ENDING = {"driver", "java"}
"""The kinds whose death ends a run."""
MOST = 6
"""The kills of one run, at most: Spark does a task again after the death of its process, so one run meets several."""


def below(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have."""
    found = children(process)
    return [*found, *(each for child in found for each in below(child))]


def is_python(process: int) -> bool:
    """Return whether a process runs Spark's Python."""
    with suppress(OSError):
        return b"pyspark" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


class Driver:
    """A process that runs the pipeline on a cluster, one run after the other; another one where it was killed."""

    def __init__(self, master: str, log: Path) -> None:
        self.settings = json.dumps([master, ON_THIS_MACHINE])
        self.log = log
        self.process: subprocess.Popen[str] | None = None

    def begin(self, path: Path, whole: int) -> subprocess.Popen[str]:
        """Begin a run; return the process."""
        if self.process is None or self.process.poll() is not None:
            self.close()
            with self.log.open("a") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", DRIVER, self.settings],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == "ready\n", self.log.read_text()[-2000:]
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(path), whole]) + "\n")
        self.process.stdin.flush()
        return self.process

    def close(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            with suppress(OSError):
                self.process.kill()
            self.process.wait(300)


def victims(kind: str, driver: subprocess.Popen[str], workers: list[int]) -> list[int]:
    """Return the processes of a kind."""
    if kind == "driver":
        return [driver.pid]
    if kind == "java":
        return [child for child in children(driver.pid) if not is_python(child)]
    if kind == "worker":
        return workers
    executors = [child for worker in workers for child in children(worker)]
    started = executors or children(driver.pid)
    return executors if kind == "executor" else [each for one in started for each in below(one) if is_python(each)]


@contextmanager
def looking(out: Callable[[str], Any], given: argparse.Namespace) -> Iterator[dict[str, dict[str, set[str]]]]:
    """Have a thread of each reader look at the outputs again and again; yield the digests of what each has seen so far."""
    seen: dict[str, dict[str, set[str]]] = {reader: {name: set() for name in OUTPUTS} for reader in READERS}
    ended, errors = threading.Event(), list[BaseException]()

    def look(reader: str) -> None:
        try:
            while not ended.is_set():
                for name in OUTPUTS:
                    seen[reader][name].add(digest(READERS[reader](out(name))))
                time.sleep(0.2)  # the others need the processors, too
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            errors.append(error)

    able = {"dd log", "format dd", *(["duckdb"] if given.one_file else [])} if given.store else READERS
    names = [name for name in READERS if name in able]
    threads = [threading.Thread(target=look, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


@contextmanager
def cluster(master: str | None, folder: Path) -> Iterator[Standalone]:
    """Yield a cluster that is started, or one without workers, where tasks are in the driver's JVM."""
    if master is not None:
        yield Standalone(master, [], int)
        return
    with standalone(folder) as found:
        yield found


def kill(shop: Any, path: Path, folder: Path, given: argparse.Namespace) -> Counter[str]:
    """Kill so many times, for so many seconds at most; raise AssertionError where a run, or what a reader has seen, is wrong. Return the kills by kind."""
    draw, done, steps, usual = random.Random(given.seed), Counter[str](), 0, 10.0
    sizes = [1 << 30] if given.one_file else [1, 1 << 30]
    until = time.monotonic() + given.seconds
    with cluster(given.master, folder) as (master, workers, start), ExitStack() as ending:
        driver = Driver(master, folder / "driver.log")
        ending.callback(driver.close)
        with looking(lambda name: shop.place(f"out/{name}"), given) as seen:
            while done.total() < given.kills and time.monotonic() < until:
                if draw.random() < 0.8 or not steps:
                    shop.supply(steps)
                    steps += 1
                process = driver.begin(path, draw.choice(sizes))
                killed, began = list[str](), time.monotonic()
                ended = threading.Event()
                lines: list[str] = []

                def read(
                    process: subprocess.Popen[str] = process, lines: list[str] = lines, ended: Any = ended
                ) -> None:
                    assert process.stdout is not None
                    lines.append(process.stdout.readline())
                    ended.set()

                reader = threading.Thread(target=read)
                reader.start()
                for _ in range(MOST):
                    if ended.wait(draw.uniform(0, usual)):
                        break
                    kind = draw.choices(KINDS, SHARES)[0]
                    if not (found := victims(kind, process, workers)):
                        continue
                    victim = draw.choice(found)
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                        done[kind] += 1
                        killed.append(kind)
                    if kind == "worker":
                        at = workers.index(victim)
                        workers[at] = start(at)
                    if kind in ENDING:
                        break
                reader.join(600)
                assert not reader.is_alive(), "a run has not ended"
                if lines == ["done\n"]:
                    usual = 0.7 * usual + 0.3 * min(
                        time.monotonic() - began, 2 * usual
                    )  # a new cluster takes long once
                elif ENDING & set(killed):
                    driver.close()
                print(
                    f"{done.total():4} {' '.join(killed) or '-':30} {time.monotonic() - began:6.1f} s  {''.join(lines).strip()[:150] or 'killed'}",
                    flush=True,
                )
            for _ in range(2):
                process = driver.begin(path, sizes[0])
                assert process.stdout is not None
                last = process.stdout.readline()
            assert last == "done\n", last
    assert shop.rows() == (shop if isinstance(shop, Shop) else shop.local).meant(steps)
    allowed = [contents((shop if isinstance(shop, Shop) else shop.local).meant(steps), now) for now in range(steps + 1)]
    for reader, found in seen.items():
        for name, digests in found.items():
            assert digests <= {each[name] for each in allowed}, (reader, name)
    print({reader: {name: len(digests) for name, digests in found.items()} for reader, found in seen.items()})
    state = shop.state
    assert not list(verify_state(state, read_newest(state)))
    return done


def main() -> None:
    """Kill, and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--master", help="local[2,4], for example, instead of a cluster of two workers")
    parser.add_argument("--store", action="store_true", help="state and outputs in an object store")
    parser.add_argument("--one-file", action="store_true", help="no commit is a folder of files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, ExitStack() as ending:
        folder = Path(place)
        shop: Any = Shop.make(folder / "shop")
        path = folder / "shop/shop.yaml"
        if given.store:
            url = ending.enter_context(s3_server(folder / "server.log"))
            request = urllib.request.Request(f"{url}/kills", method="PUT")  # noqa: S310 - our own server
            urllib.request.urlopen(request).close()  # noqa: S310 - our own server
            shop = Remote(shop, ObjectPath.parse("s3://kills"), frozenset({"out", "state"}))
        path.write_text(path.read_text().replace("name: shop\n", "name: shop\nshards: 4\n"))
        print(dict(kill(shop, path, folder, given)))


if __name__ == "__main__":
    main()
