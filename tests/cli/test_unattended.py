"""Runs that nobody watches: what they say and leave for cron and for workflows, and that these can start them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ddcli.cli.main import cli
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import Lock
from tests.harness import ORDER_COLUMNS, ROOT, contents


def objects(text):
    """Return the objects of lines of JSON, each with what all of them have."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(list(one)[:4] == ["at", "level", "event", "message"] for one in found)
    return found


def test_quiet_says_errors_alone(orders):
    assert orders("run", "orders.yaml", "-q").err == ""
    (orders.folder / "orders/1.parquet").unlink()
    for form in ("text", "json"):
        failed = orders("run", "orders.yaml", "-q", "--log-format", form)
        assert failed.code == 3
        assert "has vanished" in failed.err


def test_a_log_of_objects(orders):
    """One a line, whatever happens: a run, warnings, nothing new, an error, one that is skipped."""
    (done,) = objects(orders("run", "orders.yaml", "--log-format", "json").err)
    assert (done["level"], done["event"], done["summary"]["changed"]) == ("info", "run", True)
    assert done["summary"]["outputs"]["totals"]["rows"] == 6
    (same,) = objects(orders("run", "orders.yaml", "--log-format", "json").err)
    assert same["message"] == "orders: nothing new (times before 3 are closed)"
    with_late = (
        (orders.folder / "orders.yaml").read_text().replace("orders: orders/", "orders: {path: orders/, late: advance}")
    )
    orders.write("orders.yaml", with_late)
    orders.log("orders/2.parquet", [("north", 1, 0, 1), ("north", 1, 4, 1)], **ORDER_COLUMNS)
    done, warned = objects(orders("run", "orders.yaml", "--log-format", "json").err)
    assert (warned["level"], warned["message"]) == ("warning", "late   orders: 1 row moved up to the first open time")
    orders.write("orders/3.parquet", "no parquet")
    failed = orders("run", "orders.yaml", "--log-format", "json")
    (error,) = objects(failed.err)
    assert failed.code == error["error"]["exit_code"] == 3
    assert error["error"]["place"].endswith("3.parquet")
    assert {"problem", "place", "hint", "exit_code"} == set(error["error"])
    (orders.folder / "orders/3.parquet").unlink()
    orders.log("orders/3.parquet", [("north", 1, 9, 1)], **ORDER_COLUMNS)
    lock = Lock(orders.folder / ".dd/orders", Files(), "fail")
    skipped = orders("run", "orders.yaml", "--log-format", "json", "--if-locked", "skip")
    (said,) = objects(skipped.err)
    assert (skipped.code, said["event"]) == (0, "skipped")
    failed = orders("run", "orders.yaml", "--log-format", "json")
    assert failed.code == objects(failed.err)[0]["error"]["exit_code"] == 75
    lock.release()


def test_a_bug_is_an_object_as_well(orders, monkeypatch):
    monkeypatch.setattr("ddcli.driver.execute.execute", lambda *_: 1 // 0)
    failed = orders("run", "orders.yaml", "--log-format", "json", "--summary", "run.json")
    (said,) = objects(failed.err)
    assert failed.code == said["error"]["exit_code"] == 70
    assert "ZeroDivisionError" in said["message"]
    assert json.loads((orders.folder / "run.json").read_text())["error"]["exit_code"] == 70


def test_an_interrupt_is_recorded(orders, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ddcli.driver.execute.execute", interrupt)
    failed = orders("run", "orders.yaml", "--summary", "run.json")
    assert failed.code == 130
    assert failed.err == "interrupted; state and outputs are as they were\n"
    assert json.loads((orders.folder / "run.json").read_text())["error"]["problem"] == failed.err.strip()


def test_the_summary_is_left_in_a_file(orders):
    """Of each run that which it was: done, failed, skipped; whole, and with nothing beside it."""
    run = lambda *options: orders("run", "orders.yaml", "--summary", "left/run.json", *options)  # noqa: E731
    assert run().code == 2, "there is no such folder"
    assert not any(path.exists() for path in orders.kept)
    (orders.folder / "left").mkdir()
    read = lambda: json.loads((orders.folder / "left/run.json").read_text())  # noqa: E731
    assert run("-o", "json").code == 0
    assert set(read()) == {"pipeline", "began", "ended", "exit_code", "summary", "skipped", "error"}
    assert (read()["pipeline"], read()["exit_code"], read()["error"]) == ("orders.yaml", 0, None)
    assert read()["summary"]["changed"] is True
    assert read()["began"] <= read()["ended"]
    orders.write("orders/2.parquet", "no parquet")
    failed = run()
    assert (failed.code, read()["exit_code"], read()["summary"]) == (3, 3, None)
    assert read()["error"]["problem"] in failed.err
    orders.write("orders.yaml", "dd: 1\n")
    assert run().code == 2
    assert read()["error"]["exit_code"] == 2
    assert [path.name for path in (orders.folder / "left").iterdir()] == ["run.json"]


def test_sizes_and_rates_are_said_when_asked_for(orders):
    said = orders("run", "orders.yaml", "-v").err.splitlines()
    assert said[1].startswith("  read   orders: 4 updates in 1 file, ")
    assert said[1].endswith("kB")
    assert said[-1].startswith("  rate   ")
    assert said[-1].endswith("B/s")


def test_in_github_actions(orders, monkeypatch):
    """Errors are annotations, and the workflow's page has a table; the exit codes are the same."""
    page = orders.folder / "page.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(orders.folder))
    page.write_text("before\n")
    assert orders("run", "orders.yaml", "--until", 1).code == 0
    lines = page.read_text().splitlines()
    assert lines[:2] == ["before", lines[1]]
    assert lines[1].startswith("### orders: times until 1, ")
    assert "| read | `orders` | 1 | | |" in lines
    assert "| wrote | `totals` | 1 | 1 | 0 |" in lines
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text().replace("sum(amount)", "sum(amont)"))
    failed = orders("run", "orders.yaml")
    assert failed.code == 2
    assert failed.err.startswith("::error file=orders.yaml,line=9,col=")
    assert "did you mean `amount`?" in failed.err.split("\n", 1)[1], "and the error as always"
    assert "### orders: failed" in page.read_text()
    monkeypatch.delenv("GITHUB_ACTIONS")
    before = page.read_text()
    assert not orders("run", "orders.yaml").err.startswith("::error")
    assert page.read_text() == before


@pytest.fixture
def installed(orders):
    """Return a shop in which `.venv/bin/ddcli` is our program."""
    script = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom ddcli.cli.coreutils import main\nmain()\n"
    orders.write(".venv/bin/ddcli", script).chmod(0o755)
    return orders


def test_the_line_of_a_crontab_that_is_documented_runs(installed):
    """As cron runs it: by sh, in the home directory, with hardly any environment and no terminal."""
    text = next(line.strip() for line in cli.get_command(None, "run").help.splitlines() if "/srv/shop" in line)
    times, command = text.split(" cd ")
    assert len(times.split()) == 5
    command = "cd " + command.replace("/srv/shop", str(installed.folder))
    home = installed.folder / "home"
    home.mkdir()
    bare = {
        "HOME": str(home),
        "LOGNAME": "shop",
        "SHELL": "/bin/sh",
        "PATH": "/usr/bin:/bin",
        "XDG_CACHE_HOME": cache(),
    }
    for expected in (True, False):
        done = subprocess.run(
            ["/bin/sh", "-c", command], env=bare, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "cron mails whatever is said"
        assert json.loads((installed.folder / "run.json").read_text())["summary"]["changed"] is expected
    assert contents(installed.folder / "out/totals") == {("north", 1, 5): 1, ("south", 1, 7): 1}


def cache():
    """Return the cache directory of this machine's user: a bare environment has none, and compiling takes half a minute."""
    from ddcli.engine.jit.settings import cache_dir

    return str(cache_dir().parent)


def test_the_workflow_that_init_makes_runs(installed):
    """Each step as Actions runs it: by `bash -e`, in the repository's root; all but the installation from PyPI. A pull request gets the effect as a comment."""
    assert installed("init", "repository").code == 0
    root = installed.folder / "repository"
    steps = yaml.safe_load((root / ".github/workflows/dd.yml").read_text())["jobs"]["check"]["steps"]
    installed.write("bin/gh", '#!/bin/sh\necho "$@" > comment.txt\n').chmod(0o755)
    env = {
        "PATH": f"{installed.folder}/.venv/bin:{installed.folder}/bin:{os.environ['PATH']}", "PR": "7", "STATE": ".dd/sales", "HOME": str(Path.home()), "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(root), "GITHUB_STEP_SUMMARY": str(root / "page.md"),
    }  # fmt: skip
    ran = []
    for step in steps:
        if "run" in step and not step["run"].startswith("pip install"):
            done = subprocess.run(
                ["bash", "-e", "-c", step["run"]],
                env=env,
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            ran.append(step["run"].split()[1])
    assert ran == ["check", "test", "run", "diff"]
    assert (root / "comment.txt").read_text() == "pr comment 7 --body-file diff.md --edit-last --create-if-none\n"
    assert (root / "diff.md").read_text().startswith("### ✅ <code>sales</code>")
    assert (root / "page.md").read_text().startswith("### sales: at 20")
