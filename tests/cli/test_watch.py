"""`dd run --watch`: rounds as inputs change, files that are still being written, errors that pass, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from tests.cli.support import ROOT, contents, write_log

LOG = {"region": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}


class Watch:
    """A watch in a process of its own, whose log is read object by object."""

    def __init__(self, folder, *options, environment=None):
        command = [sys.executable, "-m", "ddcli", "run", "orders.yaml", "--watch", "--log-format", "json", *options]
        env = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
        self.process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
        self.watchdog = threading.Timer(100, self.process.kill)
        self.watchdog.start()
        self.said = []

    def until(self, event, **facts):
        """Read on to the next object of an event that has these facts."""
        for line in self.process.stderr:
            self.said.append(json.loads(line))
            if self.said[-1]["event"] == event and facts.items() <= self.said[-1].items():
                return self.said[-1]
        raise AssertionError(f"it ended with {self.process.wait()}, having said {self.said}")

    def run(self):
        """Read on to the next run that changed something."""
        while True:
            summary = self.until("run")["summary"]
            if summary["changed"]:
                return summary

    def end(self, number=signal.SIGINT):
        """Send a signal; return the exit code and what else was said."""
        self.process.send_signal(number)
        rest = [json.loads(line) for line in self.process.stderr]
        return self.process.wait(), rest


@pytest.fixture
def watch():
    """Return what starts a watch, and ends it with the test."""
    started = []

    def start(*arguments, **options):
        started.append(Watch(*arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.watchdog.cancel()
        one.process.kill()
        one.process.wait()
        one.process.stderr.close()


def amounts(shop):
    """Return what the output says in the end."""
    return {region: (orders, amount) for region, orders, amount in contents(shop.folder / "out/totals")}


def arrive(shop, name, *rows):
    """Write a file beside and rename it, as who writes for others should."""
    write_log(shop.folder / "arriving", rows, LOG)
    (shop.folder / "arriving").replace(shop.folder / name)


def test_each_change_of_the_inputs_is_taken_in(orders, watch):
    """In files that appear by a rename, directories that come later, and through links; a later round is quick."""
    watching = watch(orders.folder)
    watching.until("watching")
    assert watching.run()["upper"] == "3"
    arrive(orders, "orders/2.parquet", ("north", 1, 3, 1))
    assert watching.run()["inputs"]["orders"]["rows"] == 1
    (orders.folder / "orders/2024").mkdir()
    arrive(orders, "orders/2024/3.parquet", ("west", 2, 4, 1))
    watching.run()
    arrive(orders, "elsewhere.parquet", ("west", 3, 5, 1))
    (orders.folder / "orders/4.parquet").symlink_to(orders.folder / "elsewhere.parquet")
    watching.run()
    assert amounts(orders) == {"north": (2, 6), "south": (1, 7), "west": (2, 5)}
    code, rest = watching.end()
    assert (code, [one["event"] for one in rest]) == (0, ["stopped"])


def test_a_file_that_is_being_written_is_left_alone_until_it_is_whole(orders, watch):
    """It is told of once; what else is new is taken meanwhile."""
    watching = watch(orders.folder)
    watching.run()
    write_log(orders.folder / "whole", [("west", 9, 4, 1)], LOG)
    data = (orders.folder / "whole").read_bytes()
    with (orders.folder / "orders/2.parquet").open("wb") as file:
        file.write(data[: len(data) // 2])
        file.flush()
        told = watching.until("incomplete")
        assert told["file"] == str(orders.folder / "orders/2.parquet")
        arrive(orders, "orders/3.parquet", ("north", 1, 3, 1))
        assert watching.run()["inputs"]["orders"]["files"] == 1
        file.write(data[len(data) // 2 :])
    # It has rows at 4, after those of the other file: nothing is late.
    assert watching.run()["inputs"]["orders"]["rows"] == 1
    assert amounts(orders)["west"] == (1, 9)
    assert [one["event"] for one in watching.said].count("incomplete") == 1
    assert not [one for one in watching.said if one["level"] == "error"]


def test_an_input_that_is_refused_is_told_and_the_watch_goes_on(orders, watch):
    """And so for a pipeline file that is broken for a while."""
    watching = watch(orders.folder)
    watching.run()
    (orders.folder / "orders/2.parquet").write_bytes(b"PAR1" + bytes(40) + b"\x04\x00\x00\x00PAR1")
    told = watching.until("error")
    assert told["error"]["exit_code"] == 3
    assert told["error"]["place"].endswith("orders/2.parquet")
    (orders.folder / "orders/2.parquet").unlink()
    arrive(orders, "orders/3.parquet", ("north", 1, 3, 1))
    watching.run()
    whole = (orders.folder / "orders.yaml").read_text()
    orders.write("orders.yaml", whole + "colections: {}\n")
    told = watching.until("error")
    assert "colections" in told["message"]
    orders.write("orders.yaml", whole)
    arrive(orders, "orders/4.parquet", ("north", 1, 4, 1))
    watching.run()
    assert amounts(orders)["north"] == (3, 7)
    assert watching.end(signal.SIGTERM)[0] == 0


def test_an_input_that_is_not_there_yet_is_waited_for(orders, watch):
    (orders.folder / "orders").rename(orders.folder / "later")
    watching = watch(orders.folder)
    assert "no file or directory" in watching.until("error")["message"]
    (orders.folder / "later").rename(orders.folder / "orders")
    assert watching.run()["upper"] == "3"


def test_what_needs_a_decision_ends_the_watch(orders, watch):
    """A changed pipeline would rewrite outputs, and nobody is there to say that this is meant."""
    watching = watch(orders.folder)
    watching.run()
    whole = (orders.folder / "orders.yaml").read_text()
    orders.write("orders.yaml", whole.replace("sum(amount)", "max(amount)"))
    assert watching.until("error")["error"]["exit_code"] == 4
    assert watching.process.wait() == 4


def test_wrong_use_ends_at_once(orders):
    for arguments, said in (
        (["--until", 3], "--until is one time"),
        (["--dry-run"], "a dry run commits nothing"),
    ):
        found = orders("run", "orders.yaml", "--watch", *arguments)
        assert (found.code, said in found.err) == (2, True)
    orders.write("orders.yaml", "dd: 1\nname: orders\n")
    assert orders("run", "orders.yaml", "--watch").code == 2


def test_a_round_in_progress_is_given_up(orders, watch):
    """A function of the pipeline says that it is at work, and works for long: state and outputs stay as they are."""
    orders.write(
        "slow.py",
        "import pathlib, time\ndef wait(record):\n    pathlib.Path('at-work').touch()\n    for _ in range(1000):\n        time.sleep(0.05)\n    return record\n",
    )
    slow = "- map: {function: slow:wait, columns: {region: string?, amount: int64?}}\n      - reduce"
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text().replace("- reduce", slow))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        (orders.folder / "at-work").unlink(missing_ok=True)
        watching = watch(orders.folder)
        watching.until("watching")
        while not (orders.folder / "at-work").exists():
            assert watching.process.poll() is None
        ended, rest = watching.end(number)
        assert (ended, rest[-1]["event"]) == (code, "stopped")
        assert not (orders.folder / "out").exists()
        assert orders("state", "ls", "orders.yaml").code == 4, "nothing was committed"


def test_looking_is_enough_where_nothing_is_told(orders, watch):
    """As on a network file system."""
    watching = watch(orders.folder, environment={"WATCHFILES_FORCE_POLLING": "1"})
    watching.run()
    arrive(orders, "orders/2.parquet", ("north", 1, 3, 1))
    assert watching.run()["inputs"]["orders"]["rows"] == 1


def test_a_person_is_told_in_lines(orders):
    """On the terminal, and not of rounds in which nothing happened."""
    command = [sys.executable, "-m", "ddcli", "run", "orders.yaml", "--watch"]
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as process:
        lines = [process.stderr.readline() for _ in range(5)]
        process.send_signal(signal.SIGINT)
        lines += process.stderr.readlines()
    assert process.returncode == 0
    assert lines[0] == "watching the inputs of orders.yaml; Ctrl-C ends it\n"
    assert lines[1].startswith("orders: times to before 3, ")
    assert lines[-1] == "stopped\n"
