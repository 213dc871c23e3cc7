"""What the README shows is so: its pipeline is the one in pipelines/, its program runs, its operators and exit codes exist."""

import contextlib
import io
import re
from pathlib import Path

from ddcli import errors
from ddcli.spec.operators import OPERATORS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_pipeline_is_the_one_in_pipelines():
    (shown,) = blocks("yaml")
    written = (ROOT / "pipelines" / "airborne.yaml").read_text()
    assert "".join(re.sub(r" *#.*", "", line) for line in written.splitlines(keepends=True)).strip() == shown.strip()


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
