"""`dd run --watch`: rounds as inputs change, files that are still being written, errors that pass, and how it ends."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ddcli.driver.run import run
from ddcli.driver.watch import WatchLoop, came_at_once, is_whole, look
from ddcli.job.inputs import find_inputs
from ddcli.job.options import WatchCache
from ddcli.job.request import read_request
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import Lock
from ddcli.store.state.outputs import progress_bytes
from tests.harness import ORDER_COLUMNS, ROOT, contents, write_log

SLOW = """\
import pathlib, time
def wait(record):
    pathlib.Path("at-work").touch()
    for _ in range(1000):
        time.sleep(0.05)
    return record
"""


class Watch:
    """A watch in a process of its own, whose log is read object by object."""

    def __init__(self, folder, environment):
        command = [sys.executable, "-m", "ddcli", "run", "orders.yaml", "--watch", "--log-format", "json"]
        env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
        self.process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
        self.watchdog = threading.Timer(300, self.process.kill)
        self.watchdog.start()
        self.said = []

    def until(self, event):
        """Read on to the next object of an event."""
        for line in self.process.stderr:
            self.said.append(json.loads(line))
            if self.said[-1]["event"] == event:
                return self.said[-1]
        raise AssertionError(f"it ended with {self.process.wait()}, having said {self.said}")

    def run(self):
        """Read on to the next run, which changed something: others are not told of."""
        summary = self.until("run")["summary"]
        assert summary["changed"]
        return summary

    def end(self, number):
        """Send a signal; return the exit code and what else was said."""
        self.process.send_signal(number)
        rest = [json.loads(line) for line in self.process.stderr]
        return self.process.wait(), rest


@pytest.fixture
def watch():
    """Return what starts a watch, which ends with the test."""
    started = []

    def start(folder, **environment):
        started.append(Watch(folder, environment))
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
    write_log(shop.folder / "arriving", rows, ORDER_COLUMNS)
    (shop.folder / "arriving").replace(shop.folder / name)


def edit(shop, text):
    """Replace the pipeline file at once: nobody sees a part of it."""
    shop.write("arriving", text).replace(shop.folder / "orders.yaml")


def test_a_round_follows_each_change_whatever_comes_between(orders, watch):
    """Files by a rename, by a link, in a new directory, half-written, damaged; the pipeline file broken for a while, and then
    changed so that a person has to decide.
    """
    watching = watch(orders.folder)
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

    write_log(orders.folder / "whole", [("west", 9, 7, 1)], ORDER_COLUMNS)
    data = (orders.folder / "whole").read_bytes()
    with (orders.folder / "orders/5.parquet").open("wb") as file:
        file.write(data[: len(data) // 2])
        file.flush()
        assert watching.until("incomplete")["file"] == str(orders.folder / "orders/5.parquet")
        arrive(orders, "orders/6.parquet", ("north", 1, 6, 1))
        assert watching.run()["inputs"]["orders"]["files"] == 1
        file.write(data[len(data) // 2 :])
    # It has rows at 7, after those of the other file: nothing is late.
    assert watching.run()["inputs"]["orders"]["rows"] == 1
    assert amounts(orders)["west"] == (3, 14)
    assert [one["event"] for one in watching.said].count("incomplete") == 1, "it is told of once"

    (orders.folder / "orders/7.parquet").write_bytes(b"PAR1" + bytes(40) + b"\x04\x00\x00\x00PAR1")
    told = watching.until("error")["error"]
    assert (told["exit_code"], told["place"].endswith("orders/7.parquet")) == (3, True)
    (orders.folder / "orders/7.parquet").unlink()
    arrive(orders, "orders/8.parquet", ("north", 1, 8, 1))
    watching.run()
    whole = (orders.folder / "orders.yaml").read_text()
    edit(orders, whole + "colections: {}\n")
    assert "colections" in watching.until("error")["message"]
    edit(orders, whole)
    arrive(orders, "orders/9.parquet", ("north", 1, 9, 1))
    watching.run()
    assert amounts(orders)["north"] == (5, 9)

    edit(orders, whole.replace("sum(amount)", "max(amount)"))
    assert watching.until("error")["error"]["exit_code"] == 4
    assert watching.process.wait() == 4


def test_an_input_that_is_not_there_is_waited_for_where_nothing_is_told(orders, watch):
    """As on a network file system: looking is enough."""
    (orders.folder / "orders").rename(orders.folder / "later")
    watching = watch(orders.folder, WATCHFILES_FORCE_POLLING="1")
    assert "no file or directory" in watching.until("error")["message"]
    (orders.folder / "later").rename(orders.folder / "orders")
    assert watching.run()["upper"] == "3"
    arrive(orders, "orders/2.parquet", ("north", 1, 3, 1))
    watching.run()
    code, rest = watching.end(signal.SIGTERM)
    assert (code, [one["event"] for one in rest]) == (0, ["stopped"])


def test_a_round_in_progress_is_given_up(orders, watch):
    """A function of the pipeline says that it is at work, and works for long: state and outputs stay as they are."""
    orders.write("slow.py", SLOW)
    slow = "- map: {function: slow:wait, columns: {region: string?, amount: int64?}}\n      - reduce"
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text().replace("- reduce", slow))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        (orders.folder / "at-work").unlink(missing_ok=True)
        watching = watch(orders.folder)
        watching.until("watching")
        while not (orders.folder / "at-work").exists():
            assert watching.process.poll() is None
            time.sleep(0.01)
        ended, rest = watching.end(number)
        assert (ended, rest[-1]["event"]) == (code, "stopped")
        assert not list((orders.folder / "out").rglob("*.parquet"))
        assert orders("state", "ls", "orders.yaml").code == 4, "nothing was committed"


def test_another_text_of_a_function_is_another_pipeline(orders, watch):
    """Also where its module is imported already: what was kept is never mixed with what another function gives."""
    orders.write("prices.py", "def price(record):\n    return record\n")
    price = "- map: {function: prices:price, columns: {region: string?, amount: int64?}}\n      - reduce"
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text().replace("- reduce", price))
    watching = watch(orders.folder)
    watching.run()
    orders.write("prices.py", "def price(record):\n    return record | {'amount': 2 * record['amount']}\n")
    arrive(orders, "orders/9.parquet", ("north", 1, 9, 1))
    error = watching.until("error")["error"]
    assert error["exit_code"] == 4
    assert "prices:price" in error["problem"]
    assert watching.process.wait() == 4


def test_a_person_is_told_in_lines(orders):
    """And Ctrl-C ends it."""
    command = [sys.executable, "-m", "ddcli", "run", "orders.yaml", "--watch"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, cwd=orders.folder) as process:
        lines = [process.stderr.readline() for _ in range(5)]
        process.send_signal(signal.SIGINT)
        lines += process.stderr.readlines()
    assert process.returncode == 0
    assert lines[0] == "watching the inputs of orders.yaml; Ctrl-C ends it\n"
    assert lines[1].startswith("orders: times until 3, ")
    assert lines[-1] == "stopped\n"


def test_another_run_is_let_be_and_its_end_waited_for(orders, monkeypatch):
    """What is new is taken in when the state is free, without any input changing."""
    monkeypatch.setattr("ddcli.driver.watch.UNLOCKED", 0.1)
    (orders.folder / ".dd/orders").mkdir(parents=True)
    lock = Lock(orders.folder / ".dd/orders", Files(), "fail")
    told = []

    def refuse(error):
        told.append(error.exit_code)
        lock.release()

    def done(summary):
        told.append(summary.upper)
        standing._stop.set()

    pipeline = orders.folder / "orders.yaml"
    standing = WatchLoop(pipeline, None, lambda ready: run(pipeline, ready=ready), done, refuse, pytest.fail)
    watchdog = threading.Timer(300, standing._stop.set)
    watchdog.start()
    standing.run()
    watchdog.cancel()
    assert told == [75, "3"]


def test_a_round_lists_no_input_again_that_was_just_looked_at(orders):
    """But one whose progress speaks of files that came since; and nobody else lists what is not there any more."""
    pipeline, watch_cache = orders.folder / "orders.yaml", WatchCache()
    request = read_request(pipeline).asking(watch_cache=watch_cache)

    def listed():
        return {file.path for file in find_inputs(request, None)["orders"].listing.new}

    known = listed()
    look(pipeline, request, watch_cache.listings)
    arrive(orders, "orders/2.parquet", ("north", 1, 3, 1))
    assert listed() == known
    assert listed() == known | {"2.parquet"}, "it was for one round"
    look(pipeline, request, watch_cache.listings)
    arrive(orders, "orders/3.parquet", ("north", 1, 3, 1))
    (orders.folder / "orders/_progress.json").write_bytes(progress_bytes(((4,),)))
    assert listed() == known | {"2.parquet", "3.parquet"}, "its progress is newer than what was seen"
    (orders.folder / "orders/_progress.json").unlink()
    arrive(orders, "orders/updates-3-4.parquet", ("north", 1, 3, 1))
    look(pipeline, request, watch_cache.listings)
    (orders.folder / "orders/updates-3-4.parquet").unlink()
    assert listed() == known | {"2.parquet", "3.parquet"}, "a log may be summed up meanwhile"


def test_whole_files_are_taken_in_at_once_others_when_nothing_changes(orders):
    """Files of several inputs may belong together: if none says how far it is, they are waited for."""
    pipeline = orders.folder / "orders.yaml"
    request = read_request(pipeline)
    before = look(pipeline, request)
    assert not is_whole(request, before, before)

    def after(change):
        change()
        found = is_whole(request, before, now := look(pipeline, request))
        assert now != before
        return found

    new = orders.folder / "orders/2.parquet"
    assert after(lambda: arrive(orders, "orders/2.parquet", ("north", 1, 3, 1)))
    assert after(lambda: (orders.folder / "orders/_progress.json").write_bytes(progress_bytes(((4,),))))
    assert not after(lambda: (orders.folder / "orders/3.csv").write_text("region\n"))
    (orders.folder / "orders/3.csv").unlink()
    data = new.read_bytes()
    assert not after(lambda: new.write_bytes(data[:-1]))
    new.write_bytes(data)
    before = look(pipeline, request)
    assert not after(lambda: arrive(orders, "orders/2.parquet", ("north", 1, 3, 1), ("north", 2, 3, 1))), "another"
    assert not after(new.unlink)
    text = pipeline.read_text()
    pipeline.write_text(text + "# changed\n")
    assert not is_whole(request, before, look(pipeline, request))

    other = "  more: {path: more/, columns: {region: string, amount: int64}}\n"
    pipeline.write_text(text.replace("inputs:\n", f"inputs:\n{other}"))
    request = read_request(pipeline)
    before = look(pipeline, request)
    assert not after(lambda: arrive(orders, "orders/4.parquet", ("north", 1, 4, 1))), "more/ has no progress"
    write_log(orders.folder / "more/1.parquet", [("north", 1, 4, 1)], ORDER_COLUMNS)
    (orders.folder / "more/_progress.json").write_bytes(progress_bytes(((4,),)))
    before = look(pipeline, request)
    assert after(lambda: arrive(orders, "orders/5.parquet", ("north", 1, 4, 1)))


def test_a_directory_renamed_into_place_has_all_files_of_its_time(orders):
    """Others of several inputs may come one after another, also in directories."""
    pipeline = orders.folder / "orders.yaml"
    text = pipeline.read_text()
    inputs = "inputs:\n  more: {{path: in/{}/more.parquet, columns: {{region: string, amount: int64}}}}\n"

    def after(folder, *names, into="in", name="orders.parquet", at_last=lambda _place: None):
        """Return whether files that come in a directory are taken in at once."""
        path = text.replace("orders: orders/", f"orders: in/{folder}/{name}")
        assert path != text
        pipeline.write_text(path.replace("inputs:\n", inputs.format(folder)))
        request = read_request(pipeline)
        (orders.folder / into).mkdir(parents=True, exist_ok=True)
        before = look(pipeline, request)
        new = orders.folder / "new"
        new.mkdir()
        for each in names:
            write_log(new / each, [("north", 1, 4, 1)], ORDER_COLUMNS)
        time.sleep(0.05)  # the times of files have ticks
        target = orders.folder / into / f"{len([*orders.folder.rglob('*')])}"
        new.rename(target)
        at_last(target)
        now = look(pipeline, request)
        assert now != before
        assert not is_whole(request, before, now)
        return came_at_once(request, before, now)

    assert after("*", "orders.parquet", "more.parquet")
    assert after("*", "orders.parquet")
    assert after("b/*", "orders.parquet", "more.parquet", into="in/b")
    assert not after("**", "orders.parquet", "more.parquet"), "others may be in other directories"
    assert not after("*", "orders.csv", name="*.csv"), "a text may still be written"
    known = next(iter((orders.folder / "in").glob("*/orders.parquet"))).parent

    def written(place):
        (place / "more.parquet").write_bytes((known / "orders.parquet").read_bytes())

    assert not after("*", "orders.parquet", at_last=written), "it is still being filled"
    assert not after("*", "orders.parquet", at_last=lambda _place: written(known)), "not only in new ones"

    def cut(place):
        (place / "orders.parquet").write_bytes(b"PAR1")

    assert not after("*", "orders.parquet", at_last=cut), "a file without its end"


def test_included_files_are_watched_also_one_that_is_not_there_yet(orders):
    pipeline, part = orders.folder / "orders.yaml", orders.folder / "part.yaml"
    standing = WatchLoop(pipeline, None, *[print] * 4)
    request, text = standing._request(), pipeline.read_text()
    pipeline.write_text(f"include: part.yaml\n{text}")
    broken = standing._again(request)
    assert (broken.digest, broken.included) == (request.digest, (part,))
    before = look(pipeline, broken)
    part.write_text("x-a: 1\n")
    assert look(pipeline, broken) != before
    mended = standing._again(broken)
    assert (mended.digest != request.digest, mended.included) == (True, (part,))
    before = look(pipeline, mended)
    part.write_text("x-a: 12\n")
    assert look(pipeline, mended) != before


def test_wrong_use_ends_at_once(orders):
    for arguments, said in (
        (["--until", 3], "--watch and --until don't go together"),
        (["--dry-run"], "--watch and --dry-run don't go together"),
    ):
        found = orders("run", "orders.yaml", "--watch", *arguments)
        assert (found.code, said in found.err) == (2, True)
    orders.write("orders.yaml", "dd: 1\nname: orders\n")
    assert orders("run", "orders.yaml", "--watch").code == 2


def test_a_round_begins_when_something_is_due(tmp_path, watch):
    """Under the clock of arrivals records leave by themselves: no file comes, and none changes. It has more time where the first round came too late."""
    for seconds in (3, 12, 48, 192):
        place = tmp_path / str(seconds)
        (place / "orders").mkdir(parents=True)
        end = dt.datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=seconds)
        (place / "orders/1.csv").write_text(f"id,until\n1,{end}\n2,2999-01-01 00:00:00\n")
        (place / "orders.yaml").write_text("""\
inputs: {a: {path: orders/, format: append, columns: {id: int64, until: "datetime[us]"}}}
collections: {c: {from: a, apply: [{temporal_filter: {until: until}}, {project: [id]}]}}
outputs: {c: out/}
""")
        one = watch(place)
        if one.run()["outputs"]["c"]["inserted"] == 2:
            break
    assert one.run()["outputs"]["c"]["retracted"] == 1
    assert dt.datetime.now(dt.UTC).replace(tzinfo=None) >= end
    assert contents(place / "out") == {(2,): 1}
    assert one.end(signal.SIGTERM)[0] == 0
