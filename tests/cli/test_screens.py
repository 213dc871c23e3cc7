"""Nothing hostile reaches a screen: names and values from outside through every command, and each byte that it says is looked at."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from rich.console import Console

from ddcli.cli.arguments import PIPELINE
from ddcli.render.live import LiveProgress
from ddcli.screen import visible
from tests.harness import ROOT, Folder, write_log
from tests.screens import raw, unfit_for_screen

EVIL = "\x1b[35;5mEVIL\x1b]0;t\x07\n::error ::forged\r\t\x9b31m\x7f\u202egnp\u200b\u2066\U000e0041##[error]x"
COLUMN, VALUE, FILE = f"c{EVIL}", f"::error ::v{EVIL}", f"f{EVIL.replace('/', '')}.parquet"
TYPES = {COLUMN: pl.String, "n": pl.Int64, "x": pl.Float64, "time": pl.Int64, "diff": pl.Int64}
OURS = r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\r?\x1b\[2K|\x1b\[1A"
"""What steers a terminal for our colours, and for the progress of a run that takes a while."""
NOT_NULL = f'"{COLUMN}" is not null'
NAN = float("nan")


def clean(text, *, annotations=False, github=True):
    """Fail if a text is not fit for a screen, or for a log of GitHub."""
    assert not unfit_for_screen(text, annotations=annotations, github=github), text


def name(text):
    """Return a text as YAML has it, in quotes."""
    return (
        '"' + "".join(f"\\U{ord(letter):08x}" if raw(letter) or letter in '\n"\\' else letter for letter in text) + '"'
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module", autouse=True)
def somewhere(folder):
    """Once for all tests: threads of polars that have read an object store read the environment, and die if it moves meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("GITHUB_ACTIONS", "true")
        patch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
        patch.setenv("PYTHONPATH", str(folder))
        yield


@pytest.fixture
def dd(folder, capfdbinary):
    """Run a command, and have everything that it says looked at; return its code, stdout and stderr."""

    def run(*arguments, codes=(0,), annotations=False, csv=False):
        shop = Folder(folder, capfdbinary)
        result = shop(*arguments)
        out, err = result.out.decode(), result.err.decode()
        assert result.code in codes, (result.code, err)
        if not csv:
            clean(out, annotations=annotations)
        clean(err, annotations=True)
        return out, err

    return run


def pipeline(title, *, more="", apply="", path=f"in{EVIL}/", tests=""):
    """Return a pipeline over the hostile input."""
    return f"""\
dd: 1
name: {title}
inputs:
  orders: {{path: {name(path)}, {more}}}
collections:
  totals:
    from: orders
    apply:
      - inspect: {name(EVIL)}
      - filter: {name(NOT_NULL)}
{apply}      - reduce: {{by: [{name(COLUMN)}], n: sum(n), x: max(x)}}
outputs:
  totals: {name(f"out{EVIL}/{title}/")}
{tests}"""


@pytest.fixture(scope="module")
def made(folder):
    """Write the hostile directory."""
    rows = [(VALUE, 1, 1.5, 0, 1), (f"b{EVIL}", 2, NAN, 1, 1), ("nice", 3, float("-inf"), 1, 1)]
    write_log(folder / f"in{EVIL}" / FILE, rows, TYPES)
    write_log(folder / f"old{EVIL}" / FILE, [(VALUE, 7, 1.0, 0, 1), ("gone", 7, None, 0, 1)], TYPES)
    tests = (
        f"tests:\n  - name: {name(EVIL)}\n    given: {{orders: [{{{name(COLUMN)}: {name(VALUE)}, n: 1, x: 1.0}}]}}\n"
    )
    tests += f"    expect: {{collection: totals, contents: [{{{name(COLUMN)}: {name(EVIL)}, n: 1, x: 1.0}}]}}\n"
    (folder / "p.yaml").write_text(pipeline("p", tests=tests))
    (folder / f"p{EVIL.replace('/', '')}.yaml").write_text(pipeline("q", more="late: advance"))
    (folder / "wrong.yaml").write_text(
        pipeline("wrong", apply=f"      - filter: {name(f'{EVIL} > 1')}\n      - {name(EVIL)}: 1\n")
    )
    (folder / "raw.yaml").write_text(f"dd: 1\nname: '{EVIL}'\n")
    cast = name(f'cast("{COLUMN}" as int64)')
    (folder / "fails.yaml").write_text(pipeline("fails", apply=f"      - extend: {{n: {cast}}}\n"))
    (folder / "hostile_functions.py").write_text(f"def fail(row):\n    raise ValueError({EVIL!r})\n")
    function = "{function: 'hostile_functions:fail', columns: {m: int64}}"
    (folder / "python.yaml").write_text(
        pipeline(
            "python", apply=f"      - map: {function}\n      - extend: {{{name(COLUMN)}: \"'a'\", n: m, x: 1.0}}\n"
        )
    )
    (folder / "late.yaml").write_text(pipeline("late"))
    return folder


@pytest.fixture(scope="module")
def run_once(made):
    """Run the pipeline whose state and output others look at."""
    done = subprocess.run(
        [sys.executable, "-m", "ddcli", "run", "p.yaml", "--verbose", "--profile", "--summary", "run.json"],
        cwd=made,
        env=os.environ | {"PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "page.md"},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    clean(done.stdout.decode())
    clean(done.stderr.decode())
    clean((made / "page.md").read_text())
    clean((made / "run.json").read_text())
    json.loads((made / "run.json").read_text())
    return made


LOG = [f"out{EVIL}/p"]
KEY = f"{COLUMN}={VALUE}"
SHOWS = {
    "check": ["check", "p.yaml", f"p{EVIL.replace('/', '')}.yaml"],
    "plan": ["plan", "late.yaml"],
    "why": ["why", "p.yaml", "totals", KEY],
    "why changed": ["why", "p.yaml", "totals", KEY, "--change"],
    "query": ["query", "p.yaml", "totals", KEY],
    "log": ["log", *LOG],
    "log as of": ["log", *LOG, "--as-of", "latest"],
    "log of a key": ["log", *LOG, "-k", KEY],
    "explain": ["explain", "p.yaml"],
    "explain as mermaid": ["explain", "p.yaml", "--format", "mermaid"],
    "explain as svg": ["explain", "p.yaml", "--format", "svg"],
    "explain as html": ["explain", "p.yaml", "--format", "html"],
    "state ls": ["state", "ls", "p.yaml"],
    "state verify": ["state", "verify", "p.yaml"],
    "state compact": ["state", "compact", "p.yaml"],
    "state gc": ["state", "gc", "p.yaml"],
    "doctor": ["doctor", "p.yaml"],
    "init": ["init", f"made{EVIL}"],
    "convert": ["convert", *LOG, f"converted{EVIL}.parquet", "--as-of", "latest"],
    "schema": ["schema"],
    "functions": ["functions"],
    "sql": ["sql", "select * from totals", "--from", "p.yaml"],
}
ENDS = {
    "check": (["check", "wrong.yaml"], 2),
    "check for github": (["check", "wrong.yaml", "--format", "github"], 2),
    "check as json": (["check", "wrong.yaml", "-o", "json"], 2),
    "what is no YAML": (["check", "raw.yaml"], 2),
    "what is no YAML for github": (["check", "raw.yaml", "--format", "github"], 2),
    "a pipeline that is not there": (["run", f"gone{EVIL}.yaml"], 2),
    "an option that is not there": (["run", "p.yaml", f"--nope{EVIL}"], 2),
    "an option's value": (["run", "p.yaml", f"--memory={EVIL}"], 2),
    "a command that is not there": ([EVIL], 2),
    "an argument too many": (["schema", EVIL], 2),
    "a record that is not there": (["why", "p.yaml", "totals", f"{COLUMN}={EVIL}"], 1),
    "a collection that is not there": (["why", "p.yaml", EVIL, "a=1"], 2),
    "a key that is not there": (["query", "p.yaml", "totals", f"{EVIL}=1"], 2),
    "a function that is not there": (["functions", EVIL], 1),
    "a table that is not there": (["sql", f'select * from "{EVIL}"', "--from", "p.yaml"], 2),
    "a log that is not there": (["log", EVIL], 3),
    "a log without that key": (["log", *LOG, "-k", f"{COLUMN}={EVIL}"], 1),
    "a column that is not there": (["log", *LOG, "-k", f"{EVIL}=1"], 2),
    "columns that are none": (["log", *LOG, "--columns", EVIL], 2),
    "a time that is none": (["log", *LOG, "--as-of", EVIL], 2),
    "a cast that fails": (["run", "fails.yaml"], 3),
    "a cast that fails, as JSON": (["run", "fails.yaml", "--log-format", "json"], 3),
    "a function that fails": (["run", "python.yaml"], 3),
    "a function that fails, with its traceback": (["run", "python.yaml", "--debug"], 3),
    "a test": (["test", "p.yaml"], 1),
    "a test as JSON": (["test", "p.yaml", "-o", "json"], 1),
    "a test for github": (["test", "p.yaml", "--format", "github"], 1),
    "diff": (["diff", f"old{EVIL}", *LOG, "--key", COLUMN], 1),
    "diff of rows": (["diff", f"old{EVIL}", *LOG], 1),
    "diff as markdown": (["diff", f"old{EVIL}", *LOG, "--key", COLUMN, "-o", "markdown"], 1),
    "diff as html": (["diff", f"old{EVIL}", *LOG, "--key", COLUMN, "-o", "html"], 1),
    "diff as json": (["diff", f"old{EVIL}", *LOG, "--key", COLUMN, "-o", "json"], 1),
    "diff of pipelines": (["diff", "p.yaml", f"p{EVIL.replace('/', '')}.yaml", "-o", "markdown"], 0),
    "a key that diff lacks": (["diff", f"old{EVIL}", *LOG, "--key", EVIL], 2),
    "a file of columns that lack types": (["convert", f"{EVIL}.csv", "x"], 3),
    "a reader that is not there": (["state", "release", "p.yaml", "--reader", EVIL], 2),
    "an arrangement that is not there": (["state", "show", "p.yaml", "-a", EVIL], 2),
}


@pytest.mark.parametrize("what", SHOWS)
def test_what_is_shown_is_shown_on_any_screen(run_once, dd, what):
    out, _ = dd(*SHOWS[what])
    if what in {"why", "why changed", "query", "log", "log as of", "log of a key"}:
        assert r"\x1b[35;5mEVIL" in out


@pytest.mark.parametrize("what", ENDS)
def test_what_is_wrong_is_told_on_any_screen(run_once, dd, what):
    arguments, code = ENDS[what]
    out, err = dd(*arguments, codes=(code,), annotations="github" in what)
    if "as json" in what:
        json.loads(out)
    if "as JSON" in what and "log-format" in arguments:
        for line in err.splitlines():
            assert line.startswith("::") or json.loads(line)


def test_a_terminal_gets_our_colours_only(run_once, folder):
    commands = [SHOWS["why"], [*SHOWS["log"], "-o", "csv"], ENDS["diff"][0]]
    for arguments in commands:
        said = on_a_terminal(folder, arguments)
        assert "EVIL" in said, said
        clean(re.sub(OURS, "", said.replace("\r\n", "\n")), github=False)
        assert "\x1b[35;5m" not in said


def on_a_terminal(folder, arguments):
    """Return what a command writes to a terminal, a wide one."""
    ours, theirs = pty.openpty()
    env = os.environ | {"PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "", "COLUMNS": "5000", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "ddcli", *arguments]
    with subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 1 << 16):
                said += part
        except OSError:
            pass  # the other end is closed
        os.close(ours)
        process.wait(300)
    return said.decode()


def test_progress_shows_names_on_any_screen():
    said = io.StringIO()
    live = LiveProgress(said)
    live.what = EVIL
    live.say(EVIL)
    console = Console(file=said, width=500)
    console.print(live)
    clean(said.getvalue())
    assert said.getvalue().count("EVIL") == 2


def test_a_shell_completes_no_name_that_would_steer_it(run_once):
    found = {item.value for item in PIPELINE.shell_complete(None, None, "p")}
    assert found == {"p.yaml", "python.yaml"}


NOT_UTF8 = os.fsdecode(b"n\xffo.yaml")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", NOT_UTF8], 0),
        (["run", NOT_UTF8], 0),
        (["explain", NOT_UTF8], 0),
        (["run", "bytes.yaml"], 3),
        (["check", "bytes.yaml", "-o", "json"], 3),
        (["plan", "bytes.yaml"], 3),
        (["log", "bytes"], 3),
        (["log", NOT_UTF8], 2),
        (["diff", "bytes", "bytes"], 3),
        (["query", "p.yaml", "totals", f"{COLUMN}={NOT_UTF8}"], 2),
        (["run", "p.yaml", "--state", NOT_UTF8], 2),
        (["init", NOT_UTF8 + "x"], 0),
        ([NOT_UTF8], 2),
    ],
)
def test_names_that_are_no_utf8_are_told(run_once, dd, folder, arguments, code):
    (folder / NOT_UTF8).write_text(pipeline("n"))
    write_log(folder / "bytes" / "1.parquet", [(VALUE, 1, 1.5, 0, 1)], TYPES)
    (folder / "bytes" / "1.parquet").rename(folder / "bytes" / os.fsdecode(b"\xff.parquet"))
    (folder / "bytes.yaml").write_text(pipeline("bytes", path="bytes/"))
    dd(*arguments, codes=(code,))


# --- data formats say what is there -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_says_what_is_there(run_once, dd, form):
    out, _ = dd("log", *LOG, "--as-of", "latest", "-o", form)
    rows = json.loads(out) if form == "json" else [json.loads(line) for line in out.splitlines()]
    assert {row[COLUMN]: row["x"] for row in rows} == {VALUE: 1.5, f"b{EVIL}": "NaN", "nice": "-Infinity"}


def test_csv_says_what_is_there(run_once, dd):
    out, _ = dd("log", *LOG, "--as-of", "latest", "-o", "csv", csv=True)
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert {row[COLUMN] for row in rows} == {VALUE, f"b{EVIL}", "nice"}
    read = pl.read_csv(out.encode())
    assert set(read[COLUMN]) == {VALUE, f"b{EVIL}", "nice"}


def test_why_as_json_says_what_is_there(run_once, dd):
    out, _ = dd("why", "p.yaml", "totals", KEY, "-o", "json")
    (record,) = json.loads(out)["records"]
    assert record["record"][COLUMN] == VALUE
    reason = record["reason"]
    while reason["because"]:
        (reason,) = reason["because"]
    assert [place["file"] for place in reason["updates"][0]["at"]] == [f"in{EVIL}/{FILE}"]


def test_junit_is_xml(run_once, dd, folder):
    dd("test", "p.yaml", "--junit", "junit.xml", codes=(1,))
    text = (folder / "junit.xml").read_text()
    assert not raw(text)
    (case,) = ET.fromstring(text).iter("testcase")  # noqa: S314 - our own
    assert case.get("name") == visible(EVIL)
