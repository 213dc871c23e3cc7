"""The site that `make docs` builds, with Sphinx, from the README and the pages beside this file.

Sphinx reads each page where it lies, so a link that works on a forge or in an editor works on the site. The navigation is the README's
table of pages; a page that the table lacks is an error, as are a link and an anchor without a target.
"""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

project = "dd"
html_title = "dd"
html_theme = "furo"
html_show_copyright = False
html_show_sphinx = False

# The source folder is the project's: `sphinx-build -c docs . build/docs`. It searches no folder that has no pages.
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "tests/README.md"]
exclude_patterns = [".*", "build", "ddcli", "fixtures", "out", "pipelines"]

extensions = ["myst_parser"]
myst_heading_anchors = 6  # anchors as GitHub makes them, of headings of every depth


def setup(app: Sphinx) -> None:
    """Extend Sphinx, which calls this."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)


def add_navigation(_: Sphinx, name: str, source: list[str]) -> None:
    """Append a tree of pages to the README's text: a part for each row of its table."""
    if name == root_doc:
        for part, row in re.findall(r"^\| (\w[\w ]*) \| (\[.*\)) \|$", source[0], re.MULTILINE):
            pages = re.findall(r"\[([^]]*)\]\(([^)]*)\.md\)", row)
            entries = "\n".join(f"{title} <{page}>" for title, page in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part.capitalize()}\n{entries}\n```\n"


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Write the README's page a second time, by the name that a server shows for a folder."""
    if error is None:
        folder = Path(app.outdir)
        shutil.copyfile(folder / f"{root_doc}.html", folder / "index.html")
