"""What the text of a module says of its functions, judged by Python itself: the module is imported, its source asked for, it is called."""

import ast
import hashlib
import importlib
import inspect
import sys
import textwrap

import pytest

from ddcli.errors import SpecError
from ddcli.expressions.python import define

KNOWN = {
    "plain": "def f(record):\n    # a comment\n    return {'a': 1}",
    "with defaults": "def f(a, b=1, *, c=2):\n    return a",
    "any number": "def f(*all, **more):\n    return all",
    "one and more": "def f(first, /, *rest):\n    return first",
    "none": "def f():\n    return 1",
    "three": "def f(a, b, c):\n    return 1",
    "by its name": "def f(a, *, b):\n    return 1",
    "a lambda": "f = lambda record: {'a': record}",
    "a lambda of its own lines": "f = (\n    lambda record, other: {\n        'a': record\n    }\n)",
    "a typed lambda": "from typing import Any\nf: Any = lambda record: record",
    "another name": "def g(a, b):\n    return a\nf = g",
    "the last of two": "def f(a):\n    return 1\ndef f(a, b):\n    return 2",
    "after a branch": "if True:\n    def f(a):\n        return 1\ndef f(a, b):\n    return 2",
    "in a branch": "if True:\n    def f(a, b):\n        '''Text\n        in lines.'''\n        return 1",
    "with a string beyond the margin": "if True:\n    def f(a, b):\n        return '''x\ny'''",
    "a method of that name, too": "class C:\n    def f(self):\n        return 1\ndef f(a):\n    return C",
    "a name in a comprehension": "def f(a):\n    return 1\nx = [f for f in range(3)]",
    "unicode": "def f(größe):\n    return 'ä€'",
    "a generator": "def f(record):\n    yield record",
    "imported from beside": "from other import g as f",
    "imported from a package": "from package.inner import h as f",
    "imported by a package": "from package import h as f",
    "of the environment": "from textwrap import dedent as f",
}
SEEN_LATER = {
    "decorated": "import functools\ndef d(g):\n    @functools.wraps(g)\n    def h(*a):\n        return g(*a)\n    return h\n@d\ndef f(a, b):\n    return 1",
    "a class": "class f:\n    def __init__(self, a):\n        pass",
    "partial": "import functools\ndef g(a, b):\n    return 1\nf = functools.partial(g, 1)",
    "made of another": "import functools\ndef d(g):\n    return functools.wraps(g)(lambda *a: g(*a))\ndef g(a, b):\n    return 1\nf = d(g)",
    "an object": "class C:\n    def __call__(self, a):\n        return a\nf = C()",
    "compiled": "from math import sqrt as f",
}
ODD = {
    "one of two": "try:\n    from nowhere_at_all import f\nexcept ImportError:\n    def f(a):\n        return a",
    "of a star": "from other import *",
    "made while it runs": "globals()['f'] = lambda a: a",
    "of __getattr__": "def __getattr__(name):\n    return lambda a: a",
    "of a function": "def make():\n    global f\n    f = lambda a: a\nmake()",
    "unpacked": "f, g = (lambda a: a), 1",
    "with": "import contextlib\nwith contextlib.nullcontext(lambda a: a) as f:\n    pass",
    "of a loop": "for f in [lambda a: a]:\n    pass",
    "matched": "match [len]:\n    case [f]:\n        pass",
    "of a walrus": "(f := len)",
}
WRONG = {
    "async": ("async def f(a):\n    return a", "`f` of module `written` is `async`"),
    "a number": ("f = 1", "is not a function"),
    "a list": ("f = [len]", "is not a function"),
    "a module": ("import os as f", "is not a function"),
    "nothing": ("def g(a):\n    return a", "has no function `f`"),
    "no Python": ("def f(a:\n    return a", "written.py:1: this is not valid Python"),
    "a null": ("def f(a):\n    return '\0'", "this is not valid Python"),
    "a circle": ("from written import f", "in a circle"),
    "too deep": ("f = " + "-" * 100_000 + "1", "this is not valid Python"),
}
CALLED = 6
"""Functions are called with up to so many arguments."""


@pytest.fixture
def module(tmp_path):
    """Return a function that writes a module, and gives its folder."""
    (tmp_path / "other.py").write_text("def g(a, b=2):\n    return a\n\n\ndef f(a):\n    return a\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("from .inner import h\n")
    (tmp_path / "package/inner.py").write_text("def h(a, b):\n    return a\n")

    def write(text):
        (tmp_path / "written.py").write_text(text + "\n")
        return str(tmp_path)

    yield write
    for name in ("written", "other", "package", "package.inner"):
        sys.modules.pop(name, None)


def run(folder, monkeypatch):
    """Return the function as Python imports it."""
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("written").f


def source_hash(function):
    """Return the hash that states of older versions have of a function, by the source that Python says it has."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        return hashlib.sha256(ast.unparse(ast.parse(text)).encode()).hexdigest()[:12]
    except (OSError, TypeError, SyntaxError):
        return ""


def takes(function, count):
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("text", KNOWN.values(), ids=KNOWN)
def test_what_is_taken_and_meant_is_what_python_says(module, monkeypatch, text):
    folder = module(text)
    found = define("written:f", folder)
    function = run(folder, monkeypatch)
    assert found.meaning == source_hash(function)
    assert found.unseen == ""
    assert [found.refusal(n) is None for n in range(CALLED)] == [takes(function, n) for n in range(CALLED)]


@pytest.mark.parametrize("text", SEEN_LATER.values(), ids=SEEN_LATER)
def test_what_a_text_leaves_open_is_let_pass_and_still_told_apart(module, monkeypatch, text):
    folder = module(text)
    found = define("written:f", folder)
    assert found.unseen
    assert not any(map(found.refusal, range(CALLED)))
    assert found.meaning == source_hash(run(folder, monkeypatch))


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_names_that_are_bound_in_odd_ways_are_let_pass(module, monkeypatch, text):
    folder = module(text)
    assert define("written:f", folder).unseen
    assert callable(run(folder, monkeypatch))


@pytest.mark.parametrize(("text", "problem"), WRONG.values(), ids=WRONG)
def test_what_is_certainly_wrong_is_refused(module, text, problem):
    with pytest.raises(SpecError) as caught:
        define("written:f", module(text))
    assert problem in caught.value.problem


def test_a_name_nearby_is_suggested(module):
    with pytest.raises(SpecError) as caught:
        define("written:pirce", module("def price(a):\n    return a"))
    assert caught.value.hint == "did you mean `price`?"


@pytest.mark.parametrize(
    "name", ["nowhere", "os.nowhere", "written.f", "a..b", "package.nowhere", "folder", "json.nowhere"]
)
def test_modules_that_are_not_there(module, tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError, match="there is no module"):
        define(f"{name}:f", module("f = 1"))


@pytest.mark.parametrize(
    "name", ["json.decoder:py_scanstring", "os.path:join", "math:sqrt", "textwrap:dedent", "package.inner:h"]
)
def test_modules_that_are(module, name):
    define(name, module("f = 1"))


@pytest.mark.parametrize(("change", "same"), [("  # euros", True), ("\n\n", True), (" + 0", False)])
def test_only_what_a_function_does_tells_it_apart(module, change, same):
    before = define("written:f", module("def f(a):\n    return a")).meaning
    assert (define("written:f", module(f"x = 1\ndef f(a):\n    return a{change}")).meaning == before) == same
