"""What the README shows is so: its pipelines are those in pipelines/, its program runs, its operators and exit codes exist."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from ddcli import errors
from ddcli.spec.operators import OPERATORS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("which", "name"), list(enumerate(["airborne", "reachable"])))
def test_a_pipeline_is_the_one_in_pipelines(which, name):
    written = (ROOT / "pipelines" / f"{name}.yaml").read_text()
    without_tests = written.partition("\ntests:")[0]
    lines = [re.sub(r" *#.*", "", line) for line in without_tests.splitlines()]
    assert "\n".join(line for line in lines if line) == blocks("yaml")[which].strip()


def test_every_pipeline_with_a_loop_is_in_the_table():
    table = README[README.index("| pipeline | keeps up to date |") : README.index("## Runs")]
    loops = [path.name for path in (ROOT / "pipelines").glob("*.yaml") if "iterate:" in path.read_text()]
    assert sorted(re.findall(r"^\| `(\w+\.yaml)`", table, re.MULTILINE)) == sorted(loops)


def test_the_program_prints_what_it_says():
    (program,) = blocks("python")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "README.md", "exec"), {})  # noqa: S102 - our own text
    assert f"# {said.getvalue().strip()}" in program


def test_every_operator_is_in_the_table():
    table = README[README.index("| operator | gives |") : README.index("Expressions are SQL")]
    assert [name for name in OPERATORS if f"`{name}" not in table] == []


def test_every_exit_code_is_in_the_table():
    codes = {
        error.exit_code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "exit_code")
    }
    assert [code for code in codes if f"| {code} |" not in README] == []
