"""Stand-ins for parts of libraries: whoever needs a part gets it, in whatever way it is asked for."""

import importlib.util
import sys

import pytest

from ddcli.cli import deferred

FILES = {
    "__init__.py": "from lib.part import act, tidy\n",
    "part/__init__.py": "from lib.part.inner import VALUE\nIMPORTED = True\ndef act(n, *, by=2): return n * by + VALUE\ndef tidy(): return act\nclass Kind: pass\n",
    "part/inner.py": "VALUE = 1\n",
    "part/beside.py": "import lib.part.inner\ndef value(): return lib.part.inner.VALUE\n",
}


@pytest.fixture
def lib(tmp_path, monkeypatch):
    """Give a library with a part that is deferred."""
    for name, text in FILES.items():
        (tmp_path / "lib" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "lib" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(deferred, "PARTS", {"lib.part": frozenset({"act", "tidy"})})
    before = set(sys.modules)
    deferred.defer()
    yield importlib.import_module("lib")
    for name in set(sys.modules) - before:
        del sys.modules[name]


def waits():
    return isinstance(sys.modules["lib.part"], deferred.Deferred) and "lib.part.inner" not in sys.modules


def test_a_function_that_nobody_calls_imports_nothing(lib):
    assert waits()
    assert lib.act.__name__ == "act"
    for name in ("__file__", "__warningregistry__", "__wrapped__"):
        assert not hasattr(sys.modules["lib.part"], name)
    found = importlib.util.find_spec("lib.part")
    assert found is not None
    assert found.name == "lib.part"
    assert waits()
    deferred.defer()  # again: what is there stays
    assert waits()


def test_a_function_that_is_called_is_that_of_the_part(lib):
    assert lib.act(3, by=5) == 16
    assert not isinstance(sys.modules["lib.part"], deferred.Deferred)
    assert lib.part is sys.modules["lib.part"]
    assert lib.tidy() is lib.part.act
    with pytest.raises(TypeError):
        lib.act()


def test_anything_else_imports_the_part(lib):
    part = importlib.import_module("lib.part")
    assert waits()
    assert part.IMPORTED
    assert importlib.import_module("lib.part").Kind is part.Kind
    with pytest.raises(AttributeError, match="nothing"):
        part.nothing  # noqa: B018 - what is asked for


def test_modules_within_are_imported_before_and_after(lib):
    beside = importlib.import_module("lib.part.beside")
    assert beside.value() == 1
    inner = sys.modules["lib.part.inner"]
    assert lib.act(1) == 3
    assert sys.modules["lib.part"].beside is beside
    assert sys.modules["lib.part"].inner is inner
    assert beside.value() == 1


def test_what_stands_in_for_parts_of_the_libraries_that_are_installed(lib, monkeypatch):
    """Their names are those of functions, and of modules that others take nothing else from."""
    monkeypatch.undo()
    for name, functions in deferred.PARTS.items():
        module = importlib.import_module(name)
        for each in functions:
            assert callable(getattr(module, each))
            assert not isinstance(getattr(module, each), type)
