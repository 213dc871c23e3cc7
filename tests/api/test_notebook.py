"""The notebook of the documentation, run by a kernel: each result shows itself as a picture, a table or trees.

The examples in the library's documentation are so.
"""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from ddcli import api
from tests.harness import ROOT, copy_root


def test_the_notebook_runs_and_its_results_show_themselves(tmp_path):
    root = copy_root(tmp_path / "root")
    found = nbformat.read(ROOT / "docs/notebook.ipynb", as_version=4)
    # As Jupyter does, it runs in its own folder.
    docs = {"metadata": {"path": str(root / "docs")}}
    NotebookClient(found, timeout=300, kernel_name="python3", resources=docs).execute()
    cells = [cell for cell in found.cells if cell.cell_type == "code"]
    shown = [cell.outputs[-1].data.get("text/html", "") for cell in cells]
    run, drawing, log, difference, trees = shown
    assert run.startswith("<pre>airborne: times until 600")
    assert drawing.startswith("<svg ")
    assert "carrier" in log
    assert "<th>changed</th>" in difference
    assert "flights" in trees
    assert "HA" in trees


def test_outside_of_a_notebook_nothing_of_ipython_is_imported(tmp_path):
    text = "import sys, ddcli; assert not [name for name in sys.modules if name.startswith(('IPython', 'ddcli.'))]"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=300, cwd=tmp_path)


MODULES = [module.name for module in pkgutil.iter_modules(api.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name):
    module = importlib.import_module(f"ddcli.api.{name}")
    assert doctest.testmod(module).failed == 0
