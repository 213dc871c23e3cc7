"""The examples in docstrings are so."""

import doctest
import importlib
from pathlib import Path

import pytest

import ddcli

FOLDER = Path(ddcli.__file__).parent
MODULES = sorted(
    ".".join(["ddcli", *path.relative_to(FOLDER).with_suffix("").parts])
    for path in FOLDER.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert found.attempted, "no example was found"
    assert not found.failed
