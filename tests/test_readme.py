"""What the README and the pages in docs/ show is so: every block in it is followed, generated parts are up to date, tables are complete."""

import re

import pytest

from ddcli import errors
from ddcli.circuit.groups import MOST_COPIES
from ddcli.cli import diff
from ddcli.cli.diff import DIFFERENT
from ddcli.cli.main import BUG, INTERRUPTED, NO_READER
from ddcli.cli.plan import WORK
from ddcli.cli.run import LEAST_MEMORY
from ddcli.compare.output import LIMIT
from ddcli.compare.sides import MOST_OF_TEXT
from ddcli.errors import LONGEST
from ddcli.expressions import modules, python, syntax_tree
from ddcli.expressions.stage import LONGEST_SERIES
from ddcli.expressions.tree import MAX_DEPTH
from ddcli.expressions.types import MAX_PRECISION
from ddcli.job.summary import KEPT
from ddcli.plan.operators.table import OPERATORS
from ddcli.provenance.trace import MOST
from ddcli.spec import tree, values
from ddcli.spec.model import GUARD
from ddcli.store.files.access import LARGEST, SMALL
from ddcli.store.files.objects import PART, PARTS
from ddcli.store.tables.csv_records import LONGEST_NAME
from tests import generated, shown
from tests.harness import ROOT

README = (ROOT / "README.md").read_text()
SECTIONS = shown.sections(README)
PAGES = {f"docs/{path.name}": path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
OTHERS = {name: (ROOT / name).read_text() for name in ("CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md")}
DOCUMENTS = {"README.md": README, **PAGES, **OTHERS}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_can_be_followed(tmp_path, title):
    shown.follow_section(SECTIONS[title], tmp_path / "root")


@pytest.mark.parametrize("page", [*PAGES, *OTHERS])
def test_a_page_can_be_followed(tmp_path, page):
    """From top to bottom, in one folder."""
    shown.follow_section(
        [block for blocks in shown.sections(DOCUMENTS[page]).values() for block in blocks], tmp_path / "root"
    )


@pytest.mark.parametrize(("page", "section"), generated.PAGES.items())
def test_generated_parts_are_up_to_date(page, section):
    text = PAGES[f"docs/{page}"]
    assert generated.written(text, section) == text, "run `make reference`"


@pytest.mark.parametrize("picture", generated.PICTURES)
def test_pictures_are_up_to_date(picture):
    assert (ROOT / "docs" / picture).read_text() == generated.PICTURES[picture](), "run `make reference`"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_conflict_of_a_merge_is_left(name):
    assert not re.search(r"^(<{7}|={7}|>{7})( |$)", DOCUMENTS[name], re.MULTILINE)


def test_the_readme_is_short_and_leads_to_every_page():
    assert len(README.splitlines()) <= 250
    assert [page for page in (*PAGES, *OTHERS) if f"]({page})" not in README] == []


def test_every_folder_of_tests_is_named_with_how_to_add_a_case():
    page = OTHERS["tests/README.md"]
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert set(re.findall(r"^\| `(\w+)` \| \S.* \| \S.* \|$", page, re.MULTILINE)) == folders
    assert [path.name for path in (ROOT / "tests").glob("*.py") if f"`{path.name}`" not in page] == []
    named = re.findall(r"^\| `(\w+)` .*", page, re.MULTILINE)
    for folder, row in zip(named, re.findall(r"^\| `\w+` (.*)", page, re.MULTILINE), strict=True):
        for file in re.findall(r"`(\w+(?:/\w+)?\.py)`", row):
            place = ROOT / "tests" / (file if "/" in file else f"{folder}/{file}")
            assert place.exists() or "COMMAND" in file, file


@pytest.mark.parametrize("name", DOCUMENTS)
def test_code_stands_between_fences(name):
    fenced = shown.BLOCK.sub("", DOCUMENTS[name])
    assert "```" not in fenced, "a fence without a language, or without an end"
    assert not re.search(r"^    \S", fenced, re.MULTILINE)


def test_every_pipeline_with_a_loop_is_in_the_table():
    page = PAGES["docs/loops.md"]
    table = page[page.index("| pipeline | maintains |") :]
    loops = [path.name for path in (ROOT / "pipelines").glob("*.yaml") if "iterate:" in path.read_text()]
    assert sorted(re.findall(r"^\| `(\w+\.yaml)`", table, re.MULTILINE)) == sorted(loops)


def test_every_operator_is_in_the_table():
    page = PAGES["docs/pipelines.md"]
    table = page[page.index("| operator | result | keys |") :]
    assert [name for name in OPERATORS if f"`{name}" not in table] == []


def test_every_exit_code_is_in_the_table():
    codes = {
        error.exit_code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "exit_code")
    }
    codes |= {0, DIFFERENT, WORK, BUG, INTERRUPTED, NO_READER}
    assert [code for code in codes if f"| {code} |" not in PAGES["docs/running.md"]] == []


def test_limits_are_those_of_the_code():
    page = PAGES["docs/limits.md"]
    figures = [
        *(tree.MAX_DEPTH, tree.MAX_NODES, values.LONGEST_NAME, values.LONGEST_PATH, values.LONGEST_NUMBER),
        *(
            python.NAMES,
            GUARD,
            syntax_tree.MAX_NESTING,
            MAX_DEPTH,
            MAX_PRECISION,
            LONGEST_NAME,
            LONGEST,
            LIMIT,
            KEPT,
            MOST,
        ),
        MOST_OF_TEXT,
        LONGEST_SERIES,
    ]
    written = [f"{figure:,}".replace(",", " ") for figure in figures]
    assert [figure for figure in written if not re.search(rf"(?<!\d )(?<!\d){figure}(?! ?\d)", page)] == []
    powers = [(MOST_COPIES, "2^30"), (LEAST_MEMORY, "256 MiB"), (SMALL, "1 MiB"), (PART * PARTS, "144 GiB")]
    powers += [
        (LARGEST, "1 GiB"),
        (modules.LARGEST, "1 MiB"),
        (modules.ALL, "8 MiB"),
        (diff.LEAST_MEMORY, "384 MiB"),
    ]
    sizes = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    for figure, text in powers:
        number, _, unit = text.partition(" ")
        assert text in page
        assert figure == (int(number) * sizes[unit] if unit else 2**30), text
