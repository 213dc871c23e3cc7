"""The examples in docstrings are so, their first words are a verb or a noun, and no sentence points at a noun by `of which` or `those of`."""

import ast
import doctest
import importlib
import io
import re
import tokenize
from pathlib import Path

import pytest

import ddcli

FOLDER = Path(ddcli.__file__).parent
MODULES = sorted(
    ".".join(["ddcli", *path.relative_to(FOLDER).with_suffix("").parts])
    for path in FOLDER.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
HIDDEN_NOUN = re.compile(
    r"(How|Of|By|Whether|Whose|Where|Which|When|Why|From|To|In|On|For|With|(Return|Yield),? (whose|of))\b"
)
"""The begin of a sentence that hides its noun and must be read twice: `How a row is kept` for `The way a row is kept`."""
POINTERS = re.compile(r"\b(of which|by which|those of)\b", re.IGNORECASE)
"""Words that point at a noun that is out of sight: `whose`, `that ... by`, or the noun itself reads at once."""


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert found.attempted, "no example was found"
    assert not found.failed


def docstrings(module):
    """Yield the line and the docstring of a parsed module and of its classes, functions and attributes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for part in node.body:
                if (
                    isinstance(part, ast.Expr)
                    and isinstance(part.value, ast.Constant)
                    and isinstance(part.value.value, str)
                ):
                    yield part.lineno, part.value.value.strip()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""How it is kept."""\nx = 1', [1]),
        ('"""The kept rows."""\nclass A:\n    """How a row is kept."""', [3]),
        ('def f():\n    """Whether it is kept."""', [2]),
        ('x = 1\n"""How many are kept."""', [2]),
        ('async def f():\n    """Return whether it is kept."""', []),
        ('def f():\n    """Whatever it is."""', []),
    ],
)
def test_hidden_nouns_are_found(text, lines):
    assert [line for line, found in docstrings(ast.parse(text)) if HIDDEN_NOUN.match(found)] == lines


def comments(text):
    """Yield the line and the text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Rows, of which the last counts."""', [1]),
        ('def f():\n    """Return the rows.\n\n    And those of others.\n    """', [4]),
        ("x = 1  # the key by which it is found", [1]),
        ('x = "those of others"  # their rows, whose key it is', []),
    ],
)
def test_pointers_are_found(text, lines):
    assert [line for line, _ in pointing(text)] == lines


def pointing(text):
    """Return the lines of docstrings and comments that point at a noun instead of using it; most texts have none of the words, and are not parsed."""
    if not POINTERS.search(text):
        return []
    lines = [
        (first + at, line)
        for first, found in [*docstrings(ast.parse(text)), *comments(text)]
        for at, line in enumerate(found.splitlines())
    ]
    return sorted((at, line) for at, line in lines if POINTERS.search(line))


def test_docstrings_and_comments_use_the_noun():
    found = [
        f"{path.relative_to(FOLDER.parent)}:{line}: {text.strip()}"
        for path in sorted(FOLDER.rglob("*.py"))
        for line, text in pointing(path.read_text(encoding="utf-8"))
    ]
    assert not found, "use the noun: `rows whose key is new` for `rows of which the key is new`\n" + "\n".join(found)


def test_docstrings_begin_with_a_verb_or_a_noun():
    found = [
        f"{path.relative_to(FOLDER.parent)}:{line}: {text.splitlines()[0]}"
        for path in sorted(FOLDER.rglob("*.py"))
        if re.search(rf'"\s*{HIDDEN_NOUN.pattern}', source := path.read_text(encoding="utf-8"))
        for line, text in docstrings(ast.parse(source))
        if HIDDEN_NOUN.match(text)
    ]
    assert not found, "name the thing: `The kept rows` for `Which rows are kept`\n" + "\n".join(found)
