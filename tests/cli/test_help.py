"""Every command tells how it is used, and what its help shows works."""

import inspect
import json
import os
import re
import shutil

import click
import pytest

from ddcli.cli.main import cli
from tests.draws import some
from tests.harness import copy_root, parse, run, words_of


def commands(group, path=()):
    """Yield every command of a group, groups included, with its path of names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))


def examples(command):
    """Return the lines of a command's help that show how it is called.

    A comment `# exit 1` says how it ends, else with 0. With another comment it can't be run here, or goes on for ever;
    what needs Spark has tests of its own.
    """
    block = re.search(r"^Examples?:\n((?:  .*\n?)+)", inspect.cleandoc(command.help or ""), re.MULTILINE)
    return [line.strip() for line in block[1].replace("\\\n", " ").splitlines()] if block else []


COMMANDS = {" ".join(path): command for path, command in [((), cli), *commands(cli)]}
SHOWN = [line for command in COMMANDS.values() for line in examples(command)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_tells_how_it_is_used(name):
    command = COMMANDS[name]
    assert examples(command), "no `Example:` or `Examples:` in its help"
    assert all(line.startswith(f"dd {name}".strip()) or name == "" for line in examples(command))
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert not [each.name for each in options if not each.help], "options without help"
    for each in options:
        if isinstance(each.type, click.Choice) and "json" in each.type.choices:
            assert "JSON" in command.help, "help doesn't say what its JSON is"
    assert name == "" or command.short_help or isinstance(command, click.Group)


def in_json(command):
    """Return an example of a command that gives JSON; None if it has no JSON, or no example that can be run."""
    choices = [option.type.choices for option in command.params if isinstance(option.type, click.Choice)]
    lines = [line for line in examples(command) if "#" not in line and "spark" not in line and words_of(line)]
    lines = [line for line in lines if re.search(r" -o json\b", line)] or [
        f"{line} -o json" for line in lines if " -o " not in line
    ]
    return lines[0] if lines and any("json" in each for each in choices) else None


JSON = {name: line for name, command in COMMANDS.items() if (line := in_json(command))}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return a copy of the repository's root in which the pipeline of the examples was run up to a time."""
    folder = copy_root(tmp_path_factory.mktemp("examples") / "root")
    result = run("dd run pipelines/airborne.yaml --until 720", folder)
    assert result.code == 0, result.said
    return folder


@pytest.mark.parametrize("line", [*some(SHOWN)])
def test_what_help_shows_works(ran, tmp_path, line):
    line, comment, code = re.fullmatch(r"(.*?)(\s+# (?:exit (\d+)|.*))?", line).groups()
    if "spark" in line or (comment and not code):
        parse(line)
        return
    folder = shutil.copytree(ran, tmp_path / "root")
    result = run(line, folder)
    assert result.code == int(code or 0), result.said
    assert "Traceback" not in result.said


def test_calling_a_command_here_writes_nothing_to_the_environment(tmp_path, monkeypatch):
    """Threads of libraries read it: `same_environment` tells what became of them."""
    written = []
    for write in ("putenv", "unsetenv"):
        monkeypatch.setattr(os, write, lambda *arguments: written.append(arguments))
    assert run("dd functions week -o json", tmp_path).code == 0
    assert written == []


@pytest.mark.parametrize("name", [*some(JSON)])
def test_json_has_the_shape_that_help_tells(ran, tmp_path, name):
    result = run(JSON[name], shutil.copytree(ran, tmp_path / "root"))
    found = json.loads(result.out)
    told = COMMANDS[name].help.partition("JSON:")[2]
    told += COMMANDS["run"].help if "`dd run -o json`" in told else ""
    for key in found if isinstance(found, dict) else ():  # a list holds records, whose columns are the log's
        assert re.search(rf"\b{key}\b", told), f"its help doesn't tell of `{key}`"


SHARED = {
    "-o": "--output", "--output": "-o", "-n": "--dry-run", "-k": "--key", "--key": "-k",
    "-q": "--quiet", "-v": "--verbose", "-f": "--follow", "-w": "--workers", "-a": "--arrangement",
}  # fmt: skip
"""Options with a short form: which they are, in every command."""


def test_options_mean_the_same_in_all_commands():
    kinds = {}
    for name, command in COMMANDS.items():
        for each in command.params:
            if not isinstance(each, click.Option) or each.hidden:
                continue
            for option in each.opts:
                assert SHARED.get(option, option) in each.opts, (name, option)
                takes = bool if each.is_flag else click.Choice if isinstance(each.type, click.Choice) else str
                if option == "--select":  # what is listed, by name; states have names, too, of which there are few
                    continue
                assert kinds.setdefault(option, takes) is takes, (name, option)
            assert ("-o" in each.opts) == (
                isinstance(each.type, click.Choice) and "json" in each.type.choices and each.opts != ["--log-format"]
            )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dd log out/airborne -n 3", "dd log out/airborne --limit 3"),
        ("dd log out/airborne -k carrier=HA --key flights=1", "dd log out/airborne carrier=HA flights=1"),
        ("dd check pipelines/scc.yaml --format json", "dd check pipelines/scc.yaml -o json"),
        ("dd explain pipelines/scc.yaml --format svg", "dd explain pipelines/scc.yaml -o svg"),
        (
            "dd test pipelines/airborne.yaml -k nothing --format json",
            "dd test pipelines/airborne.yaml --only nothing -o json",
        ),
        (
            "dd why pipelines/airborne.yaml airborne carrier=HA --at 719",
            "dd why pipelines/airborne.yaml airborne carrier=HA --as-of 719",
        ),
    ],
)
def test_an_old_spelling_works_and_is_not_shown(ran, old, new):
    first, second = run(old, ran), run(new, ran)
    assert (first.code, first.out) == (second.code, second.out)
    assert second.said
    name = old.split()[1]
    shown = run(f"dd {name} --help", ran).out
    gone = {
        "log": r" -n\b| -k\b|--key",
        "check": "--format",
        "explain": "--format",
        "test": r" -k\b|--format",
        "why": r"--at\b",
    }
    assert not re.search(gone[name], shown)
