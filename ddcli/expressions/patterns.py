"""Patterns of texts: the patterns of `like`, and regular expressions with the syntax and the meaning of RE2, the engine of DuckDB.

polars computes them in Rust's syntax. Both are nearly one; where they differ, a pattern is written otherwise, or refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ddcli.expressions.coerce import Mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.tree import Expression

LOOKING = re.compile(r"(?<!\[)\^|\$|\\[bBAz]")
"""The parts of a regular expression that look at the text around a match."""
REPETITION = re.compile(r"([*+?]|\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\})\??")
FLAGS = re.compile(r"\(\?([a-zA-Z-]*)[):]")
POSIX = re.compile(r"\[:\^?(.*?):\]")
POSIX_NAMES = "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit"
RANGE = re.compile(r"-[^\]]", re.DOTALL)
PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))")
NUMBER = re.compile(r"\\x(\{[0-9a-fA-F]+\}|[0-9a-fA-F]{2})")
CATEGORIES = re.compile(r"L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|C[cfo]|Any")
SETS = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
"""The characters of `\\d` and its like, which are more in Rust."""
MOST_TIMES = 1000
"""The largest bound of a repetition in RE2."""

FLAGS_AT = {
    "regexp_like": 2,
    "regexp_full_match": 2,
    "regexp_split_to_array": 2,
    "regexp_replace": 3,
    "regexp_extract": 3,
    "regexp_extract_all": 3,
}
"""The position of the flags among the arguments."""


@lru_cache(maxsize=256)
def in_rust(pattern: str) -> str:
    r"""Return a regular expression in Rust's syntax; raises Mismatch if it has no meaning in RE2, or another one that Rust lacks.

    >>> print(in_rust(r"[a&&b]\d{ 2}"))
    [a\&\&b][0-9]\{ 2}
    """
    found, at, before = "", 0, ""
    while at < len(pattern):
        repetition = REPETITION.match(pattern, at)
        if repetition:
            _check_repetition(repetition, before)
            at, written = repetition.end(), repetition[0]
        elif pattern[at] == "\\":
            at, written = _escaped(pattern, at)
        elif pattern[at] == "[":
            at, written = _brackets(pattern, at)
        else:
            flags = FLAGS.match(pattern, at)
            if flags and (unknown := set(flags[1]) - set("imsU-")):
                raise Mismatch(f"the pattern is wrong: it has the flag `{min(unknown)}`", hint="one of i, m, s, U")
            at, written = at + 1, "\\{" if pattern[at] == "{" else pattern[at]
        found += written
        before = repetition[0] if repetition else ""
    return found


def _check_repetition(repetition: re.Match[str], before: str) -> None:
    """Check a repetition behind another one, or behind something else; raises Mismatch."""
    if before:
        problem = f"the pattern is wrong: `{before}{repetition[0]}` repeats a repetition"
        raise Mismatch(problem, hint="possessive quantifiers are not supported; `(?:a+)+` repeats `a+`")
    if any(int(times or 0) > MOST_TIMES for times in repetition.group(2, 4)):
        raise Mismatch(f"the pattern is wrong: `{repetition[0]}` repeats more than {MOST_TIMES} times")


def _escaped(pattern: str, at: int, *, inside: bool = False) -> tuple[int, str]:
    """Return the end of what a backslash begins, in brackets with `inside`, and how Rust writes it."""
    letter = pattern[at + 1 : at + 2]
    part = "\\" + letter
    if named := PROPERTY.match(pattern, at):
        word = named[3] or named[4]
        negative = (named[1] == "P") != bool(named[2])
        prefix = "" if CATEGORIES.fullmatch(word) else "Script="
        return named.end(), f"\\{'P' if negative else 'p'}{{{prefix}{word}}}"
    if number := NUMBER.match(pattern, at):
        return number.end(), number[0]
    if letter in ("u", "U"):
        raise Mismatch(f"the pattern is wrong: it has no escape `{part}`", hint="`\\x{e9}` is é")
    if characters := SETS.get(letter.lower()):
        part = characters if inside and letter.islower() else f"[{'^' * letter.isupper()}{characters}]"
    elif letter in ("b", "B") and not inside:
        part = f"(?-u:{part})"
    elif letter in ("<", ">"):
        part = letter
    return at + 1 + len(letter), part


def _brackets(pattern: str, at: int) -> tuple[int, str]:
    """Return the end of the brackets that begin at a place, and how Rust writes them: in RE2 they hold no brackets and no operators of sets."""
    start = at + 1 + pattern.startswith("^", at + 1)
    found, at, ends_range = pattern[at:start], start, False
    while at == start or not pattern.startswith("]", at):
        if at >= len(pattern):
            raise Mismatch("the pattern is wrong: unclosed `[`")
        if named := POSIX.match(pattern, at):
            if named[1] not in POSIX_NAMES.split():
                raise Mismatch(f"the pattern is wrong: it has no class `{named[0]}`")
            after, written = named.end(), named[0]
        elif pattern[at] == "\\":
            after, written = _escaped(pattern, at, inside=True)
        else:
            after, written = at + 1, f"\\{pattern[at]}" if pattern[at] in "[]&~-^" else pattern[at]
        is_set = bool(named) or (pattern[at] == "\\" and pattern[at + 1 : at + 2].lower() in (*SETS, "p"))
        found, at = found + written, after
        ends_range = not is_set and not ends_range and RANGE.match(pattern, at) is not None
        if ends_range:
            found, at = found + "-", at + 1
    return at + 1, found + "]"


def check_pattern(function: str, constants: Mapping[int, object], args: Sequence[Expression]) -> None:
    """Check the regular expression, the group and the flags of a call; raises Mismatch."""
    groups = _groups_of(str(constants[1]), args[1])
    whole = not constants[1] and function == "regexp_split_to_array"
    if function in ("regexp_extract_all", "regexp_split_to_array") and _finds_nothing(str(constants[1])) and not whole:
        problem = "all matches need a pattern that matches no empty text"
        raise Mismatch(problem, args[1], "write `+` instead of `*`")
    if function in ("regexp_extract", "regexp_extract_all") and len(args) > 2:
        group = constants[2]
        if not isinstance(group, int) or not 0 <= group <= groups:
            raise Mismatch(f"the pattern has no group {group}", args[2], f"it has {groups}")
        if group and function == "regexp_extract_all" and LOOKING.search(str(constants[1])):
            problem = "groups of all matches need a pattern without `^`, `$` and `\\b`"
            raise Mismatch(problem, args[1], "match what is around with a group of its own")
    at = FLAGS_AT.get(function, len(args))
    flags = "cisg" if function == "regexp_replace" else "cis"
    if wrong := set(str(constants.get(at, ""))) - set(flags):
        hint = f"one of {', '.join(flags)}"
        raise Mismatch(f"{function} has no flag `{min(wrong)}`", args[at], hint)
    if function == "regexp_replace":
        wanted = [int(each) for each in re.findall(r"\\(\d)", str(constants[2]).replace("\\\\", ""))]
        if wanted and max(wanted) > groups:
            raise Mismatch(f"the pattern has no group {max(wanted)}", args[2], f"it has {groups}")


def _groups_of(pattern: str, arg: Expression) -> int:
    """Return the number of groups of a regular expression; raises Mismatch when it isn't one."""
    import polars as pl

    try:
        written = in_rust(pattern)
        pl.Series([""]).str.contains(written)
    except Mismatch as mismatch:
        raise Mismatch(mismatch.problem, arg, mismatch.hint) from None
    except pl.exceptions.ComputeError as error:
        complaint = [line for line in str(error).splitlines() if line.startswith("error: ")]
        why = complaint[0].removeprefix("error: ") if complaint else "see RE2's syntax"
        raise Mismatch(f"the pattern is wrong: {why}", arg) from None
    fields = pl.select(pl.lit("").str.extract_groups(written)).to_series().dtype
    return len(getattr(fields, "fields", ()))


def _finds_nothing(pattern: str) -> bool:
    """Return whether a regular expression matches an empty text: DuckDB finds other numbers of such matches."""
    import polars as pl

    return bool(pl.Series(["", "ab  1."]).str.extract_all(in_rust(pattern)).list.contains("").any())


def like_pattern(pattern: str, escape: str, args: Sequence[Expression] = ()) -> list[str | None]:
    """Return a LIKE pattern as pieces: text is itself, `%` is None, `_` is the empty text.

    >>> like_pattern("a%_", "")
    ['a', None, '']
    """
    if len(escape) > 1:
        raise Mismatch("the escape is one character", args[2] if len(args) > 2 else None)
    pieces: list[str | None] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if escape and character == escape:
            position += 1
            if position >= len(pattern) or pattern[position] not in ("%", "_", escape):
                raise Mismatch(f"`{escape}` escapes nothing in the pattern", args[1] if len(args) > 1 else None)
            character = pattern[position]
        elif character in "%_":
            pieces.append(None if character == "%" else "")
            position += 1
            continue
        if pieces and pieces[-1]:
            pieces[-1] += character
        else:
            pieces.append(character)
        position += 1
    return pieces
