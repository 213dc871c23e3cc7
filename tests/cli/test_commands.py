"""How commands end: wrong use, locks, interrupts, broken pipes, bugs; and what is said."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import ddcli.driver.execute
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import Lock
from ddcli.store.state.transaction import Transaction
from tests.harness import ROOT, contents, files

PROCESSES = Path("/proc")
needs_processes = pytest.mark.skipif(not PROCESSES.exists(), reason="no list of the files that a process has open")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rum", "orders.yaml"], "error: no such command 'rum'\nhint: did you mean 'run'?\nusage: dd "),
        (["zzz"], "error: no such command 'zzz'\nhint: the commands are: bisect, branch, check, checks, "),
        (
            ["query"],
            "error: missing argument 'PIPELINE'\nhint: `dd query -h` lists arguments and options\nusage: dd query ",
        ),
        (["run", "orders.yaml", "--unti", "3"], "error: no such option '--unti'\nhint: did you mean"),
        (["run", "orders.yaml", "more"], "more: error: there is no such pipeline file"),
        (["run", "orders.yaml", "--if-locked", "maybe"], "'maybe' is not one of 'fail', 'wait', 'skip'"),
        (["run", "orders.yaml", "--state", "orders.yaml"], "is a file"),
        (["run", "order.yaml"], "order.yaml: error: there is no such pipeline file"),
        (["run", "orders"], "orders: error: the directory has no pipeline file"),
        (["--nope"], "error: no such option '--nope'\n"),
        (["state"], "\n  adopt    Give a state to another pipeline file.\n"),
    ],
)
def test_wrong_use_ends_with_2(orders, arguments, said):
    result = orders(*arguments)
    assert result.code == 2
    assert said in result.err
    assert not result.out
    assert not any(path.exists() for path in orders.kept)


QUERIES = """\
name: queries
inputs: {orders: orders/}
collections:
  windows: {sql: "select region, sum(amount) over (partition by upper(region) order by amount + 1) s, amount in (select amount + 1 from orders) x from orders"}
  firsts: {sql: "select distinct on (upper(region)) region, amount from orders order by upper(region), amount + 1 desc"}
  groups: {sql: "select upper(region) r, amount % 2 p, count(distinct amount + 1) n, median(amount * 2) m from orders group by upper(region), amount % 2 having count(*) > 0"}
  outer: {sql: "select a.region, (select max(b.amount) from orders b where b.region = a.region and b.amount < a.amount) as before from orders a where exists (select 1 from orders c where c.amount > a.amount + 1)"}
  sets: {sql: "select region, rank() over (order by amount) from orders except all select region, 1 from orders"}
  sides: {sql: "select a.amount, b.region from orders a full join firsts b on a.amount + 1 = b.amount and upper(a.region) = upper(b.region)"}
outputs:
  windows: out/windows
  firsts: out/firsts
  groups: out/groups
  outer: out/outer
  sets: out/sets
  sides: out/sides
"""
OURS = re.compile(r"[#$]\w")
"""The names of columns that a plan adds."""


def test_no_command_shows_a_name_that_the_plan_adds(orders):
    """A person has never written it, and can't find it anywhere."""
    orders.write("orders.yaml", QUERIES)
    commands = [
        "check",
        "check --budget work=constant",
        "plan",
        "explain",
        "run --profile -v",
        "state ls",
        "explain",
        "plan",
    ]
    commands += [f"query orders.yaml {name}" for name in ("windows", "firsts", "groups", "outer", "sets", "sides")]
    commands += ["run --budget operator.rows=1 --full-refresh all"]
    for command in commands:
        result = orders(*command.split())
        assert result.code in {0, 2, 6}, result
        shown = [line for line in (result.out + result.err).splitlines() if OURS.search(line)]
        assert not shown, (command, shown)
    orders.write("orders.yaml", QUERIES.replace("upper", "lower").replace("+ 1", "+ 2").replace("% 2", "% 3"))
    for command in ("run", "plan", "plan --counts", "explain", "run --apply"):
        result = orders(*command.split())
        assert result.code in {0, 4}, result
        shown = [line for line in (result.out + result.err).splitlines() if OURS.search(line)]
        assert not shown, (command, shown)


@pytest.mark.parametrize(
    "command", ["check", "plan", "explain", "lineage", "test", "run", "verify --slice 1/2", "state ls", "state verify"]
)
def test_without_a_name_the_pipeline_is_the_only_one_of_the_directory(orders, command):
    orders("run", "orders.yaml")
    orders.write("compose.yaml", "services: {}\n")
    found, named = orders(*command.split()), orders(*command.split(), "orders.yaml")
    assert found.code == named.code
    assert re.sub(r"[\d.]+ s\b", "", found.out) == re.sub(r"[\d.]+ s\b", "", named.out)
    orders.write("below/other.yaml", (orders.folder / "orders.yaml").read_text())
    assert orders(*command.split()).code == found.code
    orders.write("others.yaml", (orders.folder / "orders.yaml").read_text())
    several = orders(*command.split())
    assert several.code == 2
    assert several.err == (
        "error: no pipeline is named, and this directory has several: orders.yaml, others.yaml\nhint: name one of them\n"
    )
    for name in ("orders.yaml", "others.yaml"):
        (orders.folder / name).unlink()
    for _ in range(2):
        none = orders(*command.split())
        assert (none.code, "this directory has n" in none.err or "no pipeline file" in none.err) == (2, True)
        (orders.folder / "compose.yaml").unlink(missing_ok=True)


def test_all_errors_of_a_file_are_told_at_once_each_at_its_place(orders):
    orders.write(
        "orders.yaml",
        """\
dd: 1
name: orders
inputs: {orders: orders/}
collections:
  one: {from: orders, apply: [{filter: amont > 0}]}
  two: {from: orders, apply: [{map: {a: uppr(region), b: regio}}]}
  three: {from: two, apply: [{project: [nothing]}]}
outputs: {one: out/one/, two: out/two/, three: out/three/}
""",
    )
    result = orders("run", "orders.yaml")
    assert result.code == 2
    assert [
        re.split(": no (?:column|function) ", line)[0] for line in result.err.splitlines() if ": error: " in line
    ] == [
        "orders.yaml:5:40: error: collections.one.apply[0].filter",
        "orders.yaml:6:41: error: collections.two.apply[0].map",
        "orders.yaml:6:58: error: collections.two.apply[0].map",
    ]
    assert "hint: did you mean `amount`? (in scope: amount, region)" in result.err
    assert "           5 |   one: {from: orders, apply: [{filter: amont > 0}]}\n" in result.err
    assert "             |                                        ^^^^^\n" in result.err


def test_a_traceback_is_shown_only_when_asked_for(orders):
    (orders.folder / "orders/1.parquet").unlink()
    told = orders.process("run", "orders.yaml")
    assert told.code == 3
    assert "Traceback" not in told.err
    debug = orders.process("run", "orders.yaml", "--debug")
    assert debug.code == 3
    assert "Traceback" in debug.err
    assert debug.err.endswith(told.err)


def test_a_bug_is_called_one(orders, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(ddcli.driver.execute, "execute", broken)
    result = orders("run", "orders.yaml")
    assert result.code == 70
    assert result.err.splitlines() == [
        "error: this is a bug of ours: ZeroDivisionError: oh",
        "hint: run again with --debug and report the traceback",
    ]


def test_out_of_memory_is_no_bug(orders, monkeypatch):
    def greedy(*_):
        raise MemoryError

    monkeypatch.setattr(ddcli.driver.execute, "execute", greedy)
    result = orders("run", "orders.yaml")
    assert result.code == 5
    assert result.err.startswith("error: out of memory")


@pytest.fixture
def locked(orders):
    """Return a shop whose state is in use by this process."""
    orders("run", "orders.yaml")
    orders.write(
        "orders.yaml", (orders.folder / "orders.yaml").read_text() + "# changed, so there is a reason to look\n"
    )
    lock = Lock(orders.folder / ".dd/orders", Files())
    yield orders, lock
    lock.release()


def test_a_state_in_use_ends_with_75_and_the_name_of_who_uses_it(locked):
    shop, _ = locked
    before = files(*shop.kept)
    result = shop.process("run", "orders.yaml")
    assert result.code == 75
    assert (
        f".dd/orders/LOCK: error: the state is in use by process {os.getpid()} on {socket.gethostname()}" in result.err
    )
    assert "--if-locked wait" in result.err
    assert files(*shop.kept) == before


def test_a_state_in_use_may_be_skipped(locked):
    shop, _ = locked
    result = shop("run", "orders.yaml", "--if-locked", "skip")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith(f"skipped: the state is in use by process {os.getpid()}")
    assert not shop("run", "orders.yaml", "--if-locked", "skip", "-q").err


def has_open(process, path):
    with suppress(FileNotFoundError):  # one was closed meanwhile
        return any(file.readlink() == path for file in (PROCESSES / str(process) / "fd").iterdir())
    return False


def waiting(shop, before="signal"):
    """Start a run that waits for the lock, and return it when it does; a module is imported before."""
    # A test run in the background of a shell ignores SIGINT, and what it starts does too.
    script = f"""
import signal, sys
from ddcli.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
import {before}
main(sys.argv[1:])
"""
    command = [sys.executable, "-c", script, "run", "orders.yaml", "--if-locked", "wait"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(command, cwd=shop.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not has_open(run.pid, shop.folder / ".dd/orders/LOCK"):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return run


@needs_processes
def test_a_state_in_use_may_be_waited_for(locked):
    shop, lock = locked
    run = waiting(shop)
    lock.release()
    _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert "nothing new" in err


@needs_processes
@pytest.mark.parametrize("imported", ["signal", "polars"])
def test_an_interrupted_run_ends_with_130_and_leaves_all_as_it_was(locked, imported):
    """Whether it has imported polars by then, which handles the signal in its way, or not."""
    shop, _ = locked
    before = files(*shop.kept)
    run = waiting(shop, imported)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=300)
    assert run.returncode == 130
    assert err == "interrupted; state and outputs are as they were\n"
    assert files(*shop.kept) == before


def test_an_interrupt_within_the_work_ends_with_130(orders, monkeypatch):
    orders("run", "orders.yaml", "--until", "1")
    before = files(*orders.kept)

    commit = Transaction.commit

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "commit", interrupted)
    result = orders("run", "orders.yaml")
    assert (result.code, result.err) == (130, "interrupted; state and outputs are as they were\n")
    assert files(*orders.kept) == before
    monkeypatch.setattr(Transaction, "commit", commit)
    assert orders("run", "orders.yaml").code == 0
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 1, 7): 1}


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_goes_away_ends_the_command_in_silence(orders, stream):
    ours, theirs = os.pipe()
    os.close(ours)
    other = {"stdout": "stderr", "stderr": "stdout"}[stream]
    options = {"capture_output": False, stream: theirs, other: subprocess.PIPE}
    result = orders.process("run", "orders.yaml", "-o", "json" if stream == "stdout" else "text", **options)
    os.close(theirs)
    assert result.code == 141
    assert not result.out
    assert not result.err
    # What was to be told was told after the commit.
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 1, 7): 1}
