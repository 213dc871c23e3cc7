"""The rooms of the house: each package names its files, and nothing lies flat that has a room."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import ddcli

ROOT = Path(ddcli.__file__).parent
PACKAGES = sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("__init__.py") if path.parent != ROOT)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_files(package):
    folder = ROOT / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = re.findall(r"^\* (\w+): \S", text, re.MULTILINE)
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert sorted(named) == sorted(there)


def test_few_modules_lie_flat():
    assert {path.stem for path in ROOT.glob("*.py")} == {
        "__init__",
        "__main__",
        "dataclass",
        "errors",
        "progress",
        "screen",
    }


def test_public_names_can_be_listed_and_imported():
    assert set(ddcli.__all__) <= set(dir(ddcli))
    for name in ddcli.__all__:
        assert getattr(importlib.import_module("ddcli"), name) is not None
