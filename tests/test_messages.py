"""Messages quote what comes from elsewhere, however much that is, fit the screen that they go to, and are in plain words."""

import ast
import os
import re

import pytest

from ddcli.cli.messages import annotation
from ddcli.errors import LONGEST, InputError, Span, SpecError
from tests.harness import ROOT
from tests.test_docstrings import docstrings


@pytest.mark.parametrize("shown", [lambda error: error.render(), annotation], ids=["text", "annotation"])
def test_a_message_has_a_bounded_length(shown):
    """A file of zeros is one name of a column, of as many characters as the file has bytes."""
    hint = "its columns are " + "x" * LONGEST * 2 + "; say which"
    text = shown(InputError("no column " + "\0" * 10_000_000, place="in/a.csv", hint=hint))
    assert "in/a.csv: " in text
    assert "no column \\x00\\x00" in text
    assert text.endswith("; say which")
    assert len(text) < 6 * LONGEST


@pytest.mark.parametrize("width", [36, 60, 80, 500, None])
@pytest.mark.parametrize("at", [0, 1, 30, 58, 59, 100, 140, 145])
def test_a_mark_is_below_its_token(monkeypatch, width, at):
    """Neither of the two lines is longer than the terminal is wide, so it wraps none."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    source = ("x" * at + "token" + "y" * 150)[:150]
    _, line, mark = SpecError("wrong", span=Span("p.yaml", 7, at + 1, 5, source)).lines()
    start, end = mark.index("^"), len(mark)
    assert line[start:end] == "token"[: end - start]
    assert end - start == 5
    assert max(len(line), len(mark)) <= (width or 500)
    if (width or 500) > 180:
        assert line.endswith(source), "there is room for all of it"


def test_paths_are_as_they_are_called_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside, outside = tmp_path / "in" / "a.csv", tmp_path.parent / "b.csv"
    error = InputError(f"as '{inside}' is, and {outside}", place=str(inside), hint=f"see {inside}:3 and /mnt{inside}")
    assert error.lines() == [
        f"in/a.csv: error: as 'in/a.csv' is, and {outside}",
        f"hint: see in/a.csv:3 and /mnt{inside}",
    ]
    assert error.place == str(inside), "what programs read stays as it is"
    monkeypatch.chdir(os.sep)
    assert error.lines()[0].startswith(f"{inside}: error: ")


def test_only_commands_in_hints_name_the_pipeline(monkeypatch):
    """A column may be called as the word in the commands' place is; and names have what a shell would take for its own."""
    hint = "did you mean 'PIPELINE'? or `dd retract PIPELINE FILE`, or `dd reset PIPELINE --outputs`; `from PIPELINE`"
    assert InputError("wrong", place="in/a.csv", hint=hint).hint == hint
    monkeypatch.setattr("ddcli.errors._pipeline", "my `p`.yaml")
    assert InputError("wrong", place="in/FILE PIPELINE.csv", hint=hint).hint == (
        "did you mean 'PIPELINE'? or `dd retract 'my `p`.yaml' 'in/FILE PIPELINE.csv'`, or "
        "`dd reset 'my `p`.yaml' --outputs`; `from PIPELINE`"
    )
    assert InputError("wrong", hint="`dd retract PIPELINE FILE`").hint == "`dd retract 'my `p`.yaml' FILE`"


REFUSED = {
    r"wants (a|an|one|the|true|\{|`)|^wants $": "must be, must have",
    r"(needs?|of) itself": "depends on itself",
    r"(taken?|takes) over": "imported",
    r"carr(y|ies) (it )?on\b": "maintain, continue",
    r"(is|are|was|were|already|not) taken in\b": "read",
    r"to before": "until, up to",
    r"stated? it in|files lie": "set it in, the path of its files",
    r"^ *passed |passed over": "skipped, too far behind",
    r"no column .* is kept|kept by another key": "the state has no, the state keeps it by",
    r"still to come": "later",
}
"""Words that a native reader takes for a translation, and what they stand for."""
ANY_REFUSED = re.compile("|".join(f"(?:{word})" for word in REFUSED))


def refused_words(text):
    """Return the refused words in a text, each with a better one."""
    if not ANY_REFUSED.search(text):
        return []
    return [f"{found[0]!r}: {better}" for word, better in REFUSED.items() if (found := re.search(word, text))]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("wants a mapping, found 'x'", True),
        ("collections.a: needs itself: a -> a", True),
        ("metric `x` can't be taken over", True),
        ("times to before 480", True),
        ("  passed  orders: a.csv: it was withdrawn", True),
        ("3 passed, 1 failed", False),
        ("must be a mapping, found 'x'", False),
    ],
)
def test_refused_words_are_found(text, refused):
    assert bool(refused_words(text)) is refused


def test_messages_and_pages_are_in_plain_words():
    found = []
    for path in sorted((ROOT / "ddcli").rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        documented = {line for line, _ in docstrings(module)}
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno not in documented:
                found += [f"{path.relative_to(ROOT)}:{node.lineno}: {each}" for each in refused_words(node.value)]
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{path.relative_to(ROOT)}:{at}: {each}" for each in refused_words(line)]
    assert not found, "\n".join(found)
