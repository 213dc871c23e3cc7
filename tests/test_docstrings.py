"""The examples in docstrings are so, their first words are a verb or a noun, and their first lines name the thing."""

import ast
import doctest
import importlib
import re
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
    r"(What|How|Of|By|Whether|Who|Whose|Where|Which|When|Why|From|To|In|On|For|With|(Return|Yield),? (what|whose|of))\b"
)
"""The begin of a sentence that hides its noun and must be read twice: `What is kept` for `The kept rows`."""
VAGUE = re.compile(r"\b(what(ever)?|who(ever|m)?|(some|no)body|says?|said|saying|tells?|told|goes)\b", re.IGNORECASE)
"""Words that stand for the row, the reader or the stage; and for report, print, state or run."""


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert found.attempted, "no example was found"
    assert not found.failed


def docstrings(text):
    """Yield the line and the docstring of a module and of its classes, functions and attributes."""
    for node in ast.walk(ast.parse(text)):
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
        ('"""What is kept."""\nx = 1', [1]),
        ('"""The kept rows."""\nclass A:\n    """How a row is kept."""', [3]),
        ('def f():\n    """Whether it is kept."""', [2]),
        ('x = 1\n"""How many are kept."""', [2]),
        ('async def f():\n    """Return whether it is kept."""', []),
        ('def f():\n    """Whatever it is."""', []),
    ],
)
def test_hidden_nouns_are_found(text, lines):
    assert [line for line, found in docstrings(text) if HIDDEN_NOUN.match(found)] == lines


def first_line(text):
    """Return the first line of a docstring without the names in it."""
    return re.sub(r"`[^`]*`", "", text.splitlines()[0])


@pytest.mark.parametrize(
    ("text", "vague"),
    [
        ("Return what was read.", True),
        ("Return the lock, whoever holds it.", True),
        ("Note what a row says.", True),
        ("Tell which rows were read.", True),
        ("Return the word `what` of a message.", False),
        ("Return the rows.\n\nIt does so for who asks.", False),
        ("Return the whole of it, whose rows are known.", False),
    ],
)
def test_vague_words_are_found(text, vague):
    assert bool(VAGUE.search(first_line(text))) == vague


def test_first_lines_name_the_thing():
    found = [
        f"{path.relative_to(FOLDER.parent)}:{line}: {text.splitlines()[0]}"
        for path in sorted(FOLDER.rglob("*.py"))
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if VAGUE.search(first_line(text))
    ]
    assert not found, "name the thing: `the input rows of a run` for `what a run read`\n" + "\n".join(found)


def test_docstrings_begin_with_a_verb_or_a_noun():
    found = [
        f"{path.relative_to(FOLDER.parent)}:{line}: {text.splitlines()[0]}"
        for path in sorted(FOLDER.rglob("*.py"))
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if HIDDEN_NOUN.match(text)
    ]
    assert not found, "name the thing: `The kept rows` for `What is kept`\n" + "\n".join(found)
