r"""Text for a screen: a terminal, a log of GitHub, a comment, a page.

Texts on a screen come from pipeline files, data, file names and other people's exceptions. `visible` is the one
function between these and a screen: each character that would steer a terminal, begin a line, change the order of letters
or be invisible is written as Python writes it, `\x1b` or `\u202e`. Code that composes a line passes foreign text
through `visible`, or the whole line to `say`, which does the same; doing it twice changes nothing.

JSON has escapes of its own (`json_text`), which a reader turns back into the same text.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.text import Text

LOGGING = r"##(?=\w*\[)"
"""The begin of a command of GitHub or Azure anywhere in a line, `##[error]`."""
HIDDEN = (
    r"\x7f-\x9f"  # DEL, C1
    "\u2028\u2029"  # separators of lines and paragraphs
    "\ufff9-\ufffb\U00013430-\U0001343f"  # marks of annotations and of hieroglyphs' layout
    # Unicode's Default_Ignorable_Code_Point: marks of direction, joiners, fillers, variation selectors, tags
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
SUSPECT, JSON_SUSPECT = rf"[\x00-\x1f{HIDDEN}]|##", f"[{HIDDEN}]|##"
"""Patterns, for polars, that find all text, and all JSON, that `visible` and `json_visible` change, and hardly any other."""
_COMMAND = re.compile(r"(\s*):(?=:)")
_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


def visible(text: str) -> str:
    r"""Return a text on one line, with escapes for the characters that a screen would not show as they are.

    >>> print(visible("a\x1b[31m\nb\u202e"), visible("\udcff"), visible("##[error]"), visible("größer → 日本"))
    a\x1b[31m\nb\u202e \udcff \x23#[error] größer → 日本
    """
    if text.isascii() and text.isprintable() and "##" not in text:
        return text  # as nearly all are: the pattern that finds the others takes 10 ms to compile
    return unseen().sub(_escape, text)


@cache
def unseen() -> re.Pattern[str]:
    """Return the pattern of characters that `visible` escapes."""
    return re.compile(rf"[\x00-\x1f{HIDDEN}\ud800-\udfff]|{LOGGING}")


def _escape(found: re.Match[str]) -> str:
    return r"\x23#" if found[0] == "##" else found[0].encode("unicode_escape").decode()


def as_line(text: str) -> str:
    """Return a text as a line of its own: in GitHub Actions a `::` at its beginning, which would be a command, is escaped too."""
    text = visible(text)
    return _COMMAND.sub(r"\1\\x3a", text, count=1) if in_actions() and _COMMAND.match(text) else text


def shell(*words: object) -> str:
    r"""Return a command as a person can paste it into a shell, also after `visible`.

    >>> shell("dd", "run", "my sales/sales.yaml")
    "dd run 'my sales/sales.yaml'"
    >>> print(shell("dd", "retract", "it's\n\x1b[31m\x85.csv"))
    dd retract $'it\'s\n\x1b[31m\u0085.csv'
    """
    return " ".join(_shell_word(str(each)) for each in words)


def _shell_word(word: str) -> str:
    from shlex import quote

    if visible(word) == word:
        return quote(word)
    text = word.replace("\\", "\\\\").replace("'", "\\'")
    text = unseen().sub(lambda found: re.sub(r"^\\x(?=[7-9a-f])", r"\\u00", _escape(found)), text)
    return f"$'{text}'"


def near(text: str) -> str:
    """Return a text in which paths below the working directory are relative to it.

    >>> near(f"{os.getcwd()}/in/a.csv is gone"), near("/elsewhere/in/a.csv"), near(f"/mnt{os.getcwd()}/in")[:5]
    ('in/a.csv is gone', '/elsewhere/in/a.csv', '/mnt/')
    """
    try:
        here = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 - as text: pathlib would take more calls
    except OSError:  # somebody removed it
        return text
    return (
        re.sub(rf"(?<![^\s'\"`(:=]){re.escape(here)}(?=[^\s'\"`])", "", text)
        if here in text and len(here) > 1
        else text
    )


def columns(stream: TextIO) -> int | None:
    """Return the number that COLUMNS states, or the width of the stream's terminal; None if the stream is no terminal."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return int(stated)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (AttributeError, OSError, ValueError):
        return None


def in_actions() -> bool:
    """Return whether this is a step of a workflow in GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def say(*lines: str, err: bool = False, file: TextIO | None = None, styled: bool = False) -> None:
    """Write lines to stdout, stderr or a file; a newline in a line becomes an escape.

    Lines that are `styled` keep their colours; the caller has made the rest of them visible.
    """
    import click

    shown = map(_styled if styled else as_line, lines)
    click.echo("\n".join(shown), file, err=err, color=_wants_colours() if styled else None)


def _wants_colours() -> bool | None:
    """Return whether the environment asks for colours, or for none; None: a terminal gets them."""
    return False if os.environ.get("NO_COLOR") else True if os.environ.get("FORCE_COLOR") else None


def coloured(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """Return a text, visible, in a colour, for lines that `say` writes `styled`."""
    import click

    return (
        click.style(visible(text), colour, bold=True if bold else None) if text and (colour or bold) else visible(text)
    )


def _styled(line: str) -> str:
    return "".join(part if at % 2 else visible(part) for at, part in enumerate(_STYLE.split(line)))


def markup(text: str) -> str:
    r"""Return a text as HTML and XML have it, in elements and in attributes.

    >>> print(markup("<a href='x'> & \x07"))
    &lt;a href=&#x27;x&#x27;&gt; &amp; \x07
    """
    from html import escape

    return escape(visible(text), quote=True)


def markdown(text: str) -> str:
    r"""Return a text as Markdown has it, outside of code: nothing in it means anything.

    >>> print(markdown("<b> | *a*"))
    &lt;b&gt; \| \*a\*
    """
    from html import escape

    return _MARKDOWN.sub(r"\\\1", escape(visible(text), quote=False))


def rich_text(text: str, style: str = "") -> Text:
    """Return text for rich, in one style."""
    from rich.text import Text

    return Text(visible(text), style)


def say_own(text: str, *, err: bool = False) -> None:
    """Write a text as it is: a script, or a workflow command, in which foreign text is escaped already."""
    import click

    click.echo(text, err=err)


def json_text(tree: Any, indent: int | None = None) -> str:
    r"""Return JSON in ASCII, on one line without an `indent`. NaN and infinities must be words already: see `json_number`.

    >>> json_text({"a": "\x1b\u202e"})
    '{"a": "\\u001b\\u202e"}'
    """
    import json

    return json_visible(json.dumps(tree, indent=indent, allow_nan=False))


def json_visible(text: str) -> str:
    r"""Return JSON in which JSON's escapes stand for the characters that a screen would not show as they are; its value is the same.

    >>> json_visible('["größer\u202e"]')
    '["größer\\u202e"]'
    """
    return unseen().sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    import json

    if found[0] == "\n":
        return "\n"  # between values: in a string JSON has it in an escape
    return r"\u0023#" if found[0] == "##" else json.dumps(found[0])[1:-1]


def json_number(value: float) -> float | str:
    """Return a float as JSON has it: NaN and infinities, for which it has no number, as the text that `cast(text as float64)` reads.

    >>> json_number(1.5), json_number(float("nan")), json_number(float("-inf"))
    (1.5, 'NaN', '-Infinity')
    """
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124


def json_value(value: Any) -> Any:
    """Return a value of a row, perhaps a list or a struct, as JSON has it; as its text if JSON has no such type.

    >>> from datetime import date
    >>> json_value((1, None, [float("nan"), date(2024, 2, 1)]))
    [1, None, ['NaN', '2024-02-01']]
    """
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, dict):
        return {name: json_value(each) for name, each in value.items()}
    if isinstance(value, float):
        return json_number(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def in_columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield rows of texts as lines of a table, the columns `right` aligned to the right.

    >>> list(in_columns([["name", "rows"], ["a", "12"]], right=[1]))
    ['name  rows', 'a       12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            text.rjust(width) if at in right else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def prepare() -> None:
    """Have stdout take any text: characters that its encoding lacks are written as escapes, as on stderr."""
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115 - as above
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def plural(count: int, word: str) -> str:
    """Return a word in the number that a count needs.

    >>> plural(1, "batch"), plural(2, "batch"), plural(0, "row")
    ('batch', 'batches', 'rows')
    """
    return word if count == 1 else word + ("es" if word.endswith("ch") else "s")
