"""The layout of the packages: each names its files, and no file lies outside of the package it belongs to."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
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


def test_the_page_of_the_tests_names_their_packages_and_files():
    folder = Path(__file__).parent
    rows = re.findall(r"^\| (`.*?) \|", (folder / "README.md").read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    packages = {path.parent.name for path in folder.glob("*/*.py")}
    there = [path.name for path in folder.glob("*.py")] + [*packages]
    assert sorted(named) == sorted(there)


def test_few_modules_lie_flat():
    flat = {"__init__", "__main__", "dagster", "dataclass", "errors", "privacy", "screen", "version"}
    assert {path.stem for path in ROOT.glob("*.py")} == flat


def test_no_two_modules_import_each_other():
    """No import leads back to where it began, whether it is done at once or in a function; for types alone it may within a package.

    That is a package right below `ddcli`. A part may so name the type of the whole that it belongs to.
    """
    graph = _imports()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
    assert len(graph) > 300
    assert "ddcli.errors" in graph["ddcli.driver.run"]


@cache
def _modules() -> dict[str, list[tuple[ast.AST, bool]]]:
    """Return the package's modules, each with its imports, and whether these are for types alone."""
    found = {}
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        nodes = [*_statements(tree)]
        guarded = [
            node for node in nodes if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        ]
        for_types = {node for each in guarded for node in _statements(each)}
        name = ".".join(["ddcli", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        found[name] = [(node, node in for_types) for node in imports]
    return found


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node, however deep: expressions, which are most of a tree, have none."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, part, ()):
            yield each
            yield from _statements(each)


def _imports() -> dict[str, set[str]]:
    """Return the modules of the package, each with those that it imports anywhere in its text, but for its package's types."""
    modules = _modules()

    def module(name: str) -> str | None:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        return name or None

    graph = {}
    for name, nodes in modules.items():
        graph[name] = set()
        for node, for_types in nodes:
            if isinstance(node, ast.Import):
                found = {module(alias.name) for alias in node.names}
            else:
                assert not node.level, f"{name}:{node.lineno}: imports are absolute"
                found = {module(f"{node.module}.{alias.name}") for alias in node.names}
            inside = {other for other in found if other and other.split(".")[:2] == name.split(".")[:2]}
            graph[name] |= found - {name, None} - (inside if for_types else set())
    return graph


def test_public_names_can_be_listed_and_imported():
    assert set(ddcli.__all__) <= set(dir(ddcli))
    for name in ddcli.__all__:
        assert getattr(importlib.import_module("ddcli"), name) is not None
