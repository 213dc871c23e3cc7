"""`make docs` builds a site where each link has a target, and fails where one has none, or where a page can't be found from the README."""

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


def build(root, readme, **pages):
    """Build a site as the Makefile says; return what was printed, and whether it was a success."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "conf.py", root / "docs")
    (root / "README.md").write_text(readme)
    for name, text in pages.items():
        (root / "docs" / f"{name}.md").write_text(text)
    (recipe,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-m sphinx" in line]
    words = recipe.strip().removeprefix("$(BIN)/python").split()
    done = subprocess.run([sys.executable, *words], cwd=root, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr, done.returncode == 0


def test_pages_whose_links_have_targets_become_a_site(tmp_path):
    root = tmp_path / "root"
    text, built = build(root, README, one=PAGE)
    assert (text, built) == ("", True)
    page = (root / "build" / "docs" / "index.html").read_text()
    assert 'href="docs/one.html#second-part"' in page
    assert ">Begin<" in page


@pytest.mark.slow
def test_each_link_without_a_target_is_reported_and_none_makes_a_site(tmp_path):
    broken = {
        "two": "no such page: [two](docs/two.md)",
        "third-part": "no such heading of a page: [third](docs/one.md#third-part)",
        "usage": "no such heading here: [usage](#usage)",
        "picture.svg": "![no such picture](docs/picture.svg)",
    }
    for wanted, line in broken.items():
        text, built = build(tmp_path / "root", f"{README}\n{line}\n", one=PAGE)
        assert not built, line
        assert "README.md:11: WARNING" in text, line
        assert wanted in text, line


def test_a_page_that_the_readme_lacks_is_reported(tmp_path):
    text, built = build(tmp_path / "root", README, one=PAGE, lost="# Lost\n")
    assert not built
    assert "docs/lost.md: WARNING: document isn't included in any toctree" in text
