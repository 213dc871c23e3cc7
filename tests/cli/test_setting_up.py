"""Setting up: what `dd init` makes works, what `dd doctor` finds is so, shells complete, editors get a schema."""

import json
import re
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest
import yaml
from click.shell_completion import BashComplete

from ddcli.cli import doctor
from ddcli.cli.main import COMMANDS, COMPLETE, cli
from ddcli.engine.jit import load
from ddcli.plan.pipeline_file import json_schema
from ddcli.version import install_command
from tests.harness import ROOT, contents, snapshot

MADE = [
    ".github/workflows/dd.yml",
    ".gitignore",
    "data/orders/2024-01-01.csv",
    "data/orders/2024-01-02.csv",
    "sales.yaml",
]


def test_what_init_makes_is_checked_run_and_kept_up_to_date(shop):
    result = shop("init", "new/sales", "-o", "json")
    assert result.code == 0
    assert json.loads(result.out)["directory"] == "new/sales"
    assert sorted(json.loads(result.out)["files"]) == MADE
    folder = shop.folder / "new/sales"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == MADE
    for command in ("check", "test", "run"):
        result = shop(command, "new/sales/sales.yaml")
        assert result.code == 0, result.out + result.err
    found = {row[:2] for row in contents(folder / "out/sales")}
    assert found == {("north", 2), ("east", 1)}
    shop.write(
        "new/sales/data/orders/2024-01-03.csv", "order_id,region,status,amount,day\n5,west,paid,1.00,2024-01-03\n"
    )
    assert shop("run", "new/sales/sales.yaml").code == 0
    assert {row[:2] for row in contents(folder / "out/sales")} == found | {("west", 1)}
    ignored = (folder / ".gitignore").read_text().splitlines()
    assert {"out/", ".dd/"} <= set(ignored)


def test_the_commands_of_the_workflow_that_init_makes_pass(shop):
    assert shop("init").code == 0
    workflow = yaml.safe_load((shop.folder / ".github/workflows/dd.yml").read_text())
    commands = [
        step["run"].split() for step in workflow["jobs"]["check"]["steps"] if "run" in step and "if" not in step
    ]
    assert commands.pop(0)[:2] == ["pip", "install"]
    for program, *arguments in commands:
        assert program == "ddcli"
        result = shop(*arguments)
        assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("source", "step"),
    [
        (
            {"url": "https://example.com/dd.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "pip install 'ddcli @ git+https://example.com/dd.git@ab12'",
        ),
        ({"url": "file:///srv/dd.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}, None),
        ({"url": "file:///srv/dd", "dir_info": {}}, None),
        (None, None),
    ],
)
def test_the_workflow_installs_from_where_this_program_came_from(shop, monkeypatch, source, step):
    """Where GitHub can't read that, a person is asked: the name alone could be registered by anybody."""
    monkeypatch.setattr("ddcli.version.origin", lambda: source)
    monkeypatch.setattr("ddcli.cli.init.origin", lambda: source)
    assert shop("init").code == 0
    text = (shop.folder / ".github/workflows/dd.yml").read_text()
    (installation,) = [
        each["run"] for each in yaml.safe_load(text)["jobs"]["check"]["steps"] if "pip install" in each.get("run", "")
    ]
    assert installation == (step or "pip install 'ddcli @ git+https://git.example.com/dd.git'")
    assert ("# ?" in text) is (step is None)


def test_a_workflow_below_the_root_of_a_repository_is_noted(shop):
    """GitHub looks for workflows in the root alone."""
    assert "GitHub" not in shop("init", "alone").err
    (shop.folder / ".git").mkdir()
    assert shop("init", "a b/sales").err == (
        "note: GitHub runs workflows only from the root of a repository: move a b/sales/.github/workflows/dd.yml to "
        ".github/workflows/dd.yml, with `defaults: {run: {working-directory: a b/sales}}`\n"
        "next: dd run 'a b/sales/sales.yaml'\n"
    )
    assert "GitHub" not in shop("init").err


def test_init_overwrites_nothing(shop):
    shop.write("data/orders/2024-01-02.csv", "mine")
    before = snapshot(shop.folder)
    result = shop("init")
    assert result.code == 2
    assert result.err.startswith(".: error: these files exist already: data/orders/2024-01-02.csv\nhint: ")
    assert snapshot(shop.folder) == before


def test_a_file_is_no_directory(shop):
    """It would have become a folder of that name."""
    for more in ((), ("--from", ".")):
        result = shop("init", "sales.yaml", *more)
        assert (result.code, "hint: for example `dd init sales`" in result.err) == (2, True), result
    assert not [*shop.folder.iterdir()]


def test_init_leaves_a_gitignore_as_it_is(shop):
    shop.write(".gitignore", "mine\n")
    result = shop("init")
    assert result.code == 0
    assert ".gitignore exists already" in result.err
    assert (shop.folder / ".gitignore").read_text() == "mine\n"


def test_init_where_nothing_can_be_written(shop):
    shop.write("file", "")
    result = shop("init", "file/below")
    assert result.code == 2
    assert "error: can't write there: Not a directory" in result.err


def test_the_schema_is_the_readers(shop):
    assert json.loads(shop("schema").out) == json_schema()


def completions(*words):
    """Return what bash would be offered for the last of the words, with its kind."""
    found = BashComplete(cli, {}, "ddcli", COMPLETE).get_completions(list(words[1:-1]), words[-1])
    return [(item.type, item.value) for item in found]


def test_commands_options_and_pipeline_files_are_completed(orders):
    orders.write("below/pipelines.yml", "")
    orders.write("below/deeper/none.yaml", "")
    orders.write(".hidden/none.yaml", "")
    assert completions("dd", "ch") == [("plain", "check"), ("plain", "checks")]
    assert ("plain", "verify") in completions("dd", "state", "")
    assert completions("dd", "run", "orders.yaml", "--unt") == [("plain", "--until")]
    assert completions("dd", "check", "") == [("plain", "below/pipelines.yml"), ("plain", "orders.yaml")]
    assert completions("dd", "check", "below/") == [
        ("plain", "below/deeper/none.yaml"),
        ("plain", "below/pipelines.yml"),
    ]
    assert completions("dd", "check", "zzz") == [("file", "zzz")]
    for name in ("my orders.yaml", "my'orders.yaml", "my$orders.yaml"):
        orders.write(name, "")
        assert completions("dd", "check", "m") == [("file", "m")]  # the shell puts quotes around it
        assert completions("dd", "check", "ord") == [("plain", "orders.yaml")]
        (orders.folder / name).unlink()
    orders.write("möhren.yaml", "")
    assert completions("dd", "check", "m") == [("plain", "möhren.yaml")]


def test_outputs_of_several_pipelines_are_completed(shop):
    """Those of all files that are named so far and of directories, also behind `+`; of files that can't be read none."""
    for name, output in (("a.yaml", "apples"), ("b.yaml", "amounts"), ("below/c.yaml", "ages")):
        shop.write(name, f"inputs: {{i: in/}}\noutputs: {{{output}: {{path: out/{output}, from: i}}}}\n")
    shop.write("broken.yaml", "inputs: {")
    files = ("a.yaml", "b.yaml", "below")
    names = ["ages", "amounts", "apples"]
    for sign in ("", "+"):
        wanted = [("plain", sign + name) for name in names]
        assert completions("dd", "run", *files, "--select", sign) == wanted
        assert completions("dd", "run", *files, "--select", f"{sign}am") == wanted[1:2]
        assert completions("dd", "run", "a.yaml", "broken.yaml", "--select", sign) == wanted[2:]
        assert completions("dd", "run", "a.yaml", "nowhere.yaml", "--select", sign) == []
        assert completions("dd", "run", *files, "--select", "ages", "--select", f"{sign}z") == []


def test_columns_of_a_collection_are_completed(shop):
    """Those of inputs, collections and outputs; none that would need quotes, and none where the file can't be read."""
    shop.write("in/1.csv", "region,amount\nnorth,1\n")
    text = """inputs: {a: {path: in/, format: append, columns: {region: string, amount: int64}}}
collections: {b: {sql: 'select region as place, amount + 1 as "in $" from a'}}
outputs: {c: {path: out/, from: b}}
"""
    shop.write("p.yaml", text)
    for command in ("why", "query"):
        assert completions("dd", command, "p.yaml", "a", "") == [("plain", "amount="), ("plain", "region=")]
        assert completions("dd", command, "p.yaml", "a", "re") == [("plain", "region=")]
        assert completions("dd", command, "p.yaml", "a", "amount=1", "re") == [("plain", "region=")]
        assert completions("dd", command, "p.yaml", "a", "region=n") == []
        for name in ("b", "c"):
            assert completions("dd", command, "p.yaml", name, "") == [("plain", "place=")]
        assert completions("dd", command, "p.yaml", "nothing", "") == []
    shop.write("p.yaml", "inputs: {")
    assert completions("dd", "why", "p.yaml", "a", "") == []


def test_a_command_that_is_not_there_is_no_reason_to_complain(shop):
    assert ("plain", "run") in completions("dd", "nope", "")


@pytest.mark.parametrize("program", ["dd", "ddcli"])
def test_bash_completes(orders, program):
    """The script runs `ddcli`: a `dd` of the system's without operands would wait for its input."""
    folder = orders.folder / "bin"
    for name, text in {"ddcli": f'exec {sys.executable} -m ddcli "$@"', "dd": "echo wrong >&2"}.items():
        orders.write(f"bin/{name}", f"#!/bin/sh\n{text}\n").chmod(0o755)
    script = f"""
eval "$(ddcli completion bash)"
complete -p {program} | grep -q _ddcli_completion || exit 1
COMP_WORDS=({program} check ord); COMP_CWORD=2
_ddcli_completion {program} ord check
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("orders.yaml\n", "", 0)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_name_both_programs(shop, shell):
    script = shop("completion", shell).out
    for program in ("dd", "ddcli"):
        assert re.search(
            rf"^ *(complete --no-files --command|compdef _ddcli_completion) {program}\b", script, re.MULTILINE
        )
    assert f"{COMPLETE}={shell}_complete ddcli" in script.replace("COMP_WORDS=(commandline -cp) ", "").replace(
        "COMP_CWORD=(commandline -t) ", ""
    )


def test_doctor_finds_what_is_there(orders):
    result = orders("doctor", "orders.yaml", "-o", "json")
    facts = json.loads(result.out)
    assert result.code == (1 if facts["problems"] else 0)
    assert facts["python"]["version"] == sys.version.split()[0]
    assert facts["packages"]["polars"] == sys.modules["polars"].__version__
    assert facts["kernels"]["compiled"] <= facts["kernels"]["of"]
    assert 0 < facts["machine"]["default_memory"] < facts["machine"]["memory"]
    assert facts["state"]["path"] == str(orders.folder / ".dd/orders")
    assert 0 < facts["state"]["free"] <= facts["state"]["total"]
    assert facts.keys() == {
        *("dd", "python", "platform", "packages", "machine", "kernels", "java", "state", "problems"),
    }
    told = orders("doctor").out
    assert all(f"\n{name} " in told for name in ("python", "polars", "processors", "memory", "kernels", "disk"))


def test_doctor_says_what_keeps_pipelines_from_running(orders, monkeypatch):
    missing = {"polars", "numba", "pyspark"}
    monkeypatch.setattr(doctor, "package_version", lambda name: None if name in missing else "1")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=5_000_000, total=10**9))
    monkeypatch.setattr(load, "is_kept", lambda _: False)
    result = orders("doctor", "orders.yaml")
    assert result.code == 1
    assert "polars      not installed\n" in result.out
    assert f"pyspark     not installed: {install_command('spark')}\n" in result.out
    assert [line for line in result.err.splitlines() if line.startswith("error: ")] == [
        "error: the package polars is missing",
        "error: there are no compiled kernels for this processor, nor numba, which compiles them",
        "error: 5.0 MB are free at .dd/orders",
    ]


def test_doctor_knows_the_packages_that_are_needed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert list(doctor.NEEDED) == [re.split(r"[<>=]", text)[0] for text in project["dependencies"]]


def test_doctor_lists_the_packages_of_every_extra():
    """Of these, pandas and llvmlite are parts of what is listed; `dev` has what tests need."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    del extras["dev"]
    named = {(re.split(r"[\[<>=]", text)[0], extra) for extra, texts in extras.items() for text in texts}
    assert named - set(doctor.EXTRAS.items()) == {("llvmlite", "compile"), ("pandas", "spark")}
    assert set(doctor.EXTRAS.items()) - named == {("sqlalchemy", "iceberg")}


def test_names_in_the_pipeline_are_completed(orders):
    assert completions("dd", "run", "orders.yaml", "--full-refresh", "t") == [("plain", "totals")]
    assert completions("dd", "query", "orders.yaml", "") == [("plain", "orders"), ("plain", "totals")]
    assert completions("dd", "query", "gone.yaml", "") == []


def test_every_command_that_takes_a_pipeline_completes_it(orders):
    for name in ("check", "doctor", "explain", "plan", "query", "run", "test", "why"):
        assert name not in COMMANDS or completions("dd", name, "ord") == [("plain", "orders.yaml")], name
    assert completions("dd", "state", "ls", "ord") == [("plain", "orders.yaml")]
