"""The blocks of a document as a reader follows them: written to files, run, and what they print compared with what is shown.

Which language does what is said in `follow`. Only what can't be the same each time is masked: how long, how large, today.

    python -m tests.shown FILE...       # follows other documents, and says which blocks are wrong
"""

from __future__ import annotations

import contextlib
import datetime as dt
import difflib
import io
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import click
import duckdb
import yaml

from ddcli.cli.coreutils import meant_for_coreutils
from ddcli.errors import DdError, SpecErrors
from ddcli.plan.pipeline_file import parse_spec
from tests.harness import PROGRAMS, ROOT, copy_root, parse, run

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w./-]+\.\w+)\n")
UNKNOWN = re.compile(r"no input(?:, collection or output| or collection)? is named '(\w+)'")
COMPILING = re.compile(r"^compiling (?:\d+ )?kernels?\b.*\n", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?")
NOW = "<now>"
MASKS = [
    (re.compile(r"\b(?:start|\d{8}T\d{6}(?:f\d+)?)-\d{8}T\d{6}(?:f\d+)?\b"), "<times>"),
    (re.compile(r"\b\d[\d.,]* ?[kMG]? (?:rows|updates|records)/s\b"), "<rate>"),
    (re.compile(r"\b\d[\d.,]* ?(?:µs|us|ms|s|min|h)\b"), "<time>"),
    (re.compile(r"\b\d[\d.,]* ?(?:[kMGT]?B|[KMGT]iB)(?:/s)?(?!\w)"), "<size>"),
    (re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,}\b"), "<hash>"),
    (re.compile(r"\bprocess \d+"), "process <id>"),
    (re.compile(r"([-─━═])\1+"), r"\1"),
    (re.compile(r"[ \t]+"), " "),
]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line that it begins in."""

    language: str
    text: str
    line: int


def sections(document):
    """Return the blocks of each `## ` section, by its title."""
    parts = re.split(r"^## (.*)\n", document, flags=re.MULTILINE)
    titles, texts = ["the beginning", *parts[1::2]], parts[0::2]
    found, line = {}, 1
    for title, text in zip(titles, texts, strict=True):
        found[title] = [
            Block(block[1], block[2], line + text[: block.start()].count("\n")) for block in BLOCK.finditer(text)
        ]
        line += text.count("\n") + 1
    return found


def follow_section(blocks, folder):
    """Follow the blocks of a section in a copy of the repository's root, which is made at `folder`."""
    copy_root(folder)
    for block in blocks:
        try:
            follow(block, folder)
        except BaseException as error:
            error.add_note(f"the block of {block.language} at line {block.line}")
            raise


def follow(block, folder):
    """Do in a folder what a block says, and fail if it isn't as it says."""
    named = NAMED.match(block.text)
    match block.language:
        case "yaml" if named and named[1].startswith(".github/"):
            follow_workflow(block.text, folder)
        case "yaml" if "apiVersion:" in block.text:
            check_manifest(block.text)
        case "ini":
            check_unit(block.text, named[1], folder)
        case "yaml" if re.search(r"^dd:", block.text, re.MULTILINE):
            follow_pipeline(block.text, named and named[1], folder)
        case "yaml":
            check_fragment(block.text)
            if named:  # for another to include
                (folder / named[1]).parent.mkdir(parents=True, exist_ok=True)
                (folder / named[1]).write_text(block.text)
        case "console":
            follow_console(block.text, folder)
        case "sh":
            check_script(block.text)
        case "sql":
            with contextlib.chdir(folder):
                duckdb.sql(block.text).fetchall()
        case "python" | "csv" if named:
            (folder / named[1]).write_text(block.text.removeprefix(named[0]) if block.language == "csv" else block.text)
        case "python":
            follow_program(block.text, folder)
        case language:
            assert language in {"text", "json", "csv", "mermaid"}, f"what is a block of {language}?"


def follow_pipeline(text, name, folder):
    """Write a whole pipeline under its name and check it; without a name it must be one of those in pipelines/."""
    if name is None:
        known = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "pipelines").glob("*.yaml")}
        same = [name for name, whole in known.items() if plain(text) in {plain(whole), plain(whole, tests=False)}]
        assert same, "it has no name in its first line, and is none of those in pipelines/"
        name = same[0]
    else:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    result = run(f"dd check {name}", folder)
    assert result.code == 0, result.said


def plain(text, *, tests=True):
    """Return a pipeline file's lines without comments, and without its tests if these don't count."""
    text = text if tests else re.sub(r"^tests:.*\n(?:[ #].*\n|\n)*", "", text, flags=re.MULTILINE)
    lines = [re.sub(r"\s*(^|\s)#.*", "", line).rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def check_fragment(text):
    """Read a part of a pipeline with the least around it: names that it uses and doesn't have become inputs."""
    given = set()
    while True:
        try:
            parse_spec(completed(text, given), "fragment.yaml")
        except SpecErrors as error:
            missing = {found[1] for each in error.errors if (found := UNKNOWN.search(each.problem))}
            if not missing or missing <= given:
                raise
            given |= missing
        else:
            return


def completed(text, given):
    """Return a whole pipeline around sections, or around a list of operators."""
    inputs = "".join(f"  {name}: fragment/in/{name}/\n" for name in sorted(given))
    if re.match(r"(#.*\n|\n)*- ", text):
        operators = "".join(f"      {line}\n" for line in text.splitlines())
        text = f"collections:\n  result:\n    from: given\n    apply:\n{operators}"
        inputs += "  given: fragment/in/given/\n"
    there = set(re.findall(r"^(\w+):", text, re.MULTILINE))
    if "inputs" in there:
        text = re.sub(r"^inputs:.*\n", lambda found: found[0] + inputs, text, flags=re.MULTILINE)
    elif inputs:
        text += f"inputs:\n{inputs}"
    else:
        text += "inputs: {fragment: fragment/in/}\n"
    if "outputs" not in there:
        (name, *_) = re.findall(r"^(?:inputs|collections):\n(?:  #.*\n|\n)*  (\w+):", text, re.MULTILINE) or [
            "fragment"
        ]
        text += f"outputs: {{out: {{path: fragment/out/, from: {name}}}}}\n"
    return "dd: 1\nname: fragment\n" + re.sub(r"^(dd|name):.*\n", "", text, flags=re.MULTILINE)


def follow_console(text, folder):
    """Run the lines that begin with `$ `, and compare what they print with the lines below them."""
    for line in re.findall(r"^(?!\$ |> ).*", text.partition("$ ")[0], re.MULTILINE):
        assert not line, "a console block begins with a command"
    for command, shown in re.findall(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        command = re.sub(r"^> ", "", command, flags=re.MULTILINE).rstrip("\n")
        result = run(command, folder)
        assert result.code != 70, result.said
        compare(command, shown, result.said.replace(f"{folder}/", "").replace(str(folder), "."))


def compare(command, shown, said):
    """Fail if a command printed anything else than is shown; a line `...` stands for any lines."""
    today = dt.datetime.now().astimezone().date().isoformat()
    said = masked(DATE.sub(lambda found: NOW if found[0].startswith(today) else found[0], COMPILING.sub("", said)))
    shown = masked(shown)
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else dated(line) + r"\n" for line in shown.splitlines())
    if not re.fullmatch(pattern, said):
        lines = difflib.unified_diff(shown.splitlines(), said.splitlines(), "shown", "printed", lineterm="")
        raise AssertionError("\n".join([f"`{command}` prints something else", *lines]))


def dated(line):
    """Return the pattern of a line: a date may have been today's when it was written, a hash may be all digits."""
    parts = re.split(f"({DATE.pattern})", line)
    pattern = "".join(f"(?:{re.escape(part)}|{NOW})" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return pattern.replace("<hash>", r"(?:<hash>|\d{7,}|[a-f]{7,})")


def masked(text):
    """Return lines without what differs from run to run and from width to width."""
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    lines = [line.strip() for line in text.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def check_script(text):
    """Check what a test can't run: it is a script, and the calls of ours in it name commands and options that exist."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|\||[;|]", re.sub(r"^[*\d](\S* +){5}", "", line)):
            words = shlex.split(re.sub(r"\s\d?>+\s?\S+", "", part), comments=True)
            if words and words[0] in PROGRAMS and not meant_for_coreutils(words[1:]):
                parse(shlex.join(words))


def check_unit(text, name, folder):
    """Have systemd check a unit, where it is installed, but for the programs and users that it names; and check our calls in it."""
    for line in text.splitlines():
        if line.startswith("ExecStart="):
            check_script(line.removeprefix("ExecStart="))
    if shutil.which("systemd-analyze"):
        unit = folder / Path(name).name
        unit.write_text(re.sub(r"^(ExecStart=)\S+", r"\g<1>/bin/true", text, flags=re.MULTILINE))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert str(unit) not in done.stderr, done.stderr


def check_manifest(text):
    """Check our calls in the manifest of a container."""
    containers = yaml.safe_load(text)["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    for each in containers:
        parse(shlex.join(["ddcli", *each["args"]]))


def follow_workflow(text, folder):
    """Run the steps of a workflow that aren't about setting up, and have them succeed."""
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    for step in steps:
        if "run" in step and not step["run"].startswith("pip "):
            result = run(step["run"], folder)
            assert result.code == 0, result.said


def follow_program(text, folder):
    """Run a Python program; if its last line is a comment, or ends with one, that is what it prints."""
    said = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(said),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
    ):
        exec(compile(text, "README.md", "exec"), {})  # noqa: S102 - our own text
    *_, last = text.strip().splitlines()
    if "# " in last:
        compare("the program", last.partition("# ")[2] + "\n", said.getvalue())


def main(files):
    """Follow documents, and print what is wrong in them."""
    wrong = 0
    for file in files:
        for title, blocks in sections(Path(file).read_text()).items():
            with tempfile.TemporaryDirectory() as place:
                try:
                    follow_section(blocks, Path(place) / "root")
                except (AssertionError, DdError, click.ClickException, duckdb.Error) as error:
                    print(f"{file}, {title}: {', '.join(error.__notes__)}: {error}")
                    wrong += 1
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
