"""`make docs` builds a site where each link has a target, and fails where one has none, or where a page can't be found from the README."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.harness import ROOT

README = """# dd

Read the [first page](docs/one.md), there the [second part](docs/one.md#second-part), or [set it up](#install).

## Install

| to | |
| --- | --- |
| begin | [One](docs/one.md) |
"""
PAGE = "# One\n\n## Second part\n\nBack to [the start](../README.md#install).\n"


BUILDER = """
import json, os, sys
import furo, myst_parser, sphinx.builders.html, sphinx.cmd.build
sys.stderr.flush()
for line in sys.stdin:
    root, words = json.loads(line)
    read, write = os.pipe()
    if not (child := os.fork()):
        os.chdir(root)
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.close(write)
        code = sphinx.cmd.build.main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    print(json.dumps([text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)
"""
"""A process that has imported Sphinx, which takes longer than to build these sites, and builds each in a child."""


@pytest.fixture(scope="module")
def builder():
    """Return the process that builds sites."""
    with subprocess.Popen(
        [sys.executable, "-c", BUILDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def build(builder, tmp_path):
    """Return what builds a site as the Makefile says, and returns its folder, what was printed, and whether it was a success."""
    (recipe,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-m sphinx" in line]
    words = recipe.strip().removeprefix("$(BIN)/python -m sphinx ").split()

    def make(readme, **pages):
        root = tmp_path / "root"
        shutil.rmtree(root, ignore_errors=True)
        (root / "docs").mkdir(parents=True)
        shutil.copy(ROOT / "docs" / "conf.py", root / "docs")
        (root / "README.md").write_text(readme)
        for name, text in pages.items():
            (root / "docs" / f"{name}.md").write_text(text)
        builder.stdin.write(json.dumps([str(root), words]) + "\n")
        builder.stdin.flush()
        text, code = json.loads(builder.stdout.readline())
        return root, text, code == 0

    return make


def test_pages_whose_links_have_targets_become_a_site(build):
    root, text, built = build(README, one=PAGE)
    assert (text, built) == ("", True)
    page = (root / "build" / "docs" / "index.html").read_text()
    assert 'href="docs/one.html#second-part"' in page
    assert ">Begin<" in page


def test_each_link_without_a_target_is_reported_and_none_makes_a_site(build):
    broken = {
        "two": "no such page: [two](docs/two.md)",
        "third-part": "no such heading of a page: [third](docs/one.md#third-part)",
        "usage": "no such heading here: [usage](#usage)",
        "picture.svg": "![no such picture](docs/picture.svg)",
    }
    for wanted, line in broken.items():
        _, text, built = build(f"{README}\n{line}\n", one=PAGE)
        assert not built, line
        assert "README.md:11: WARNING" in text, line
        assert wanted in text, line


def test_a_page_that_the_readme_lacks_is_reported(build):
    _, text, built = build(README, one=PAGE, lost="# Lost\n")
    assert not built
    assert "docs/lost.md: WARNING: document isn't included in any toctree" in text
