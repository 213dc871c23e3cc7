"""What the README shows is so: every block in it is followed, generated parts are up to date, tables are complete."""

import re

import pytest

from ddcli import errors
from ddcli.cli.diff import DIFFERENT
from ddcli.cli.main import BUG, INTERRUPTED, NO_READER
from ddcli.cli.plan import WORK
from ddcli.spec.operators import OPERATORS
from tests import generated, shown
from tests.scratch import ROOT

README = (ROOT / "README.md").read_text()
SECTIONS = shown.sections(README)


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_can_be_followed(tmp_path, title):
    shown.follow_section(SECTIONS[title], tmp_path / "root")


def test_generated_parts_are_up_to_date():
    assert generated.written(README) == README, "run `make reference`"


def test_code_stands_between_fences():
    fenced = shown.BLOCK.sub("", README)
    assert "```" not in fenced, "a fence without a language, or without an end"
    assert not re.search(r"^    \S", fenced, re.MULTILINE)


def test_every_pipeline_with_a_loop_is_in_the_table():
    table = README[README.index("| pipeline | keeps up to date |") : README.index("## Inputs")]
    loops = [path.name for path in (ROOT / "pipelines").glob("*.yaml") if "iterate:" in path.read_text()]
    assert sorted(re.findall(r"^\| `(\w+\.yaml)`", table, re.MULTILINE)) == sorted(loops)


def test_every_operator_is_in_the_table():
    table = README[README.index("| operator | gives |") : README.index("## Expressions")]
    assert [name for name in OPERATORS if f"`{name}" not in table] == []


def test_every_exit_code_is_in_the_table():
    codes = {
        error.exit_code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "exit_code")
    }
    codes |= {0, DIFFERENT, WORK, BUG, INTERRUPTED, NO_READER}
    assert [code for code in codes if f"| {code} |" not in README] == []
