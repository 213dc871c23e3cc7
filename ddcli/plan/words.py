"""Expressions and columns of a plan in the words of the pipeline file.

A plan has columns of its own. `texts` are their contents in the words of the file, by the columns' quoted names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddcli.expressions.tree import Column, ExplodeStep, FilterStep, Literal, MapStep, UnnestStep, quoted

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from ddcli.expressions.tree import Expression, Step
    from ddcli.expressions.types import Schema


ALL = "$all"
"""The key of a collection that is one group: one constant."""
SIDE = "$side"
"""The column of an as-of join's rows that marks them as of the left or the right."""
AT = "$at"
"""The column that an as-of join compares, as lanes of the rows."""
OWN = re.compile(
    r"\$(\d+(\.n)?|(value|argument|partition|sort|window)\d+|order\d*(\.\d+)?|from|until|round|all|records|rows\d|present|side|at)"
    r"|#[\w.#$]+"
)
"""Columns that the plan adds: the file doesn't name them."""
INTERNAL = re.compile(r'"#([a-z]+)[\w.#$]*"')
"""A column of a query's plan whose expression is somewhere else: its word is shown."""
NUMBERED = re.compile(r"(?P<name>[^#]+)(#\d+)+")
NUMBERED_TEXT = re.compile(r'"(\w[^"#]*)(?:#\d+)+"')
"""A column of a query that has the name of another one, with numbers behind it; and its place in an expression."""
SECOND_KEY = re.compile(r"(?P<key>.+)\$\d+", re.DOTALL)
"""A column that stands for two keys exists twice, the second time under such a name."""
MADE = {"$from": "from {}", "$until": "until {}", "$round": "at round {}"}
INTERVAL = re.compile("interval '(-?[0-9]+)' microsecond")
UNITS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "microsecond": 1}
"""Microseconds of each unit in which an interval is shown."""
NOT_NULL = re.compile(r'not \(([\w.]+|"[^"]*") is null\)')


def columns(schema: Schema, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the types of columns by name; columns of the plan's own are named by their expressions, such as `count(*)`."""
    found: dict[str, str] = {}
    for name, type_ in schema.items():
        words = name
        if OWN.fullmatch(name):
            held = texts.get(quoted(name))
            words = MADE.get(name, "{}").format(held) if held else name.strip("#$.0123456789") or "value"
        elif named(name) != name:
            taken = named(name) in schema or named(name) in found
            words = f"{named(name)} ({name.count('#') + 1})" if taken else named(name)
        if name != ALL and not is_copy(name, schema):
            found[words] = str(type_)
    return found


def expression(text: str, texts: Mapping[str, str]) -> str:
    """Return an expression in which the plan's own columns are replaced by their texts, the longest names first."""
    for own in sorted(texts, key=len, reverse=True):
        text = text.replace(own, texts[own])
    return _plain(text)


def _plain(text: str) -> str:
    """Return a text with words for the plan's own columns whose expressions are unknown."""
    text = in_units(text)
    return NUMBERED_TEXT.sub(r"\1", INTERNAL.sub(r"\1", text)) if "#" in text else text


def in_units(text: str) -> str:
    """Return a text with each interval in the largest unit that divides it.

    >>> in_units("interval '604800000000' microsecond"), in_units("a + interval '5400000000' microsecond")
    ("interval '7' day", "a + interval '90' minute")
    """
    return INTERVAL.sub(_in_units, text)


def _in_units(found: re.Match[str]) -> str:
    size = int(found[1])
    unit, one = next((unit, one) for unit, one in UNITS.items() if size % one == 0)
    return f"interval '{size // one}' {unit}"


def step(given: Step, texts: dict[str, str]) -> str:
    """Return a step for people: of a map only the computed columns. `texts` gets the texts of the plan's own columns."""

    def text(each: Expression) -> str:
        return without_parentheses(expression(each.text(), texts))

    if isinstance(given, FilterStep):
        return f"where {text(given.condition)}"
    if isinstance(given, MapStep):
        made = [(name, text(each)) for name, each in given.columns if each.text() != quoted(name)]
        texts |= {quoted(name): value for name, value in made if OWN.fullmatch(name)}
        return ", ".join(filter(None, (_made(name, value) for name, value in made)))
    if isinstance(given, UnnestStep):
        return _made(given.name, expression(given.call.text(), texts))
    if isinstance(given, ExplodeStep):
        return f"times {text(given.weight)}"
    return given.function


def title(given: Step) -> str:
    """Return an operator's step in words, with its columns as the plan names them; "" if it only picks and renames columns."""
    if isinstance(given, MapStep):
        computed = [
            without_parentheses(each.text())
            if OWN.fullmatch(name)
            else f"{quoted(name)}: {without_parentheses(each.text())}"
            for name, each in given.columns
            if not isinstance(each, Column) and not (OWN.fullmatch(name) and isinstance(each, Literal))
        ]
        return f"map {', '.join(computed)}" if computed else ""
    if isinstance(given, FilterStep):
        return f"filter {without_parentheses(given.condition.text())}"
    if isinstance(given, UnnestStep):
        return f"flat_map {quoted(given.name)}: {given.call.text()}"
    if isinstance(given, ExplodeStep):
        return f"explode {without_parentheses(given.weight.text())}"
    return f"function {given.function}"


def _made(name: str, value: str) -> str:
    """Return a computed column for people: one of the plan's own by its purpose, "" for a copy of a key or a constant."""
    if name in MADE:
        return MADE[name].format(value)
    if name in (ALL, SIDE, AT) or is_copy(name, (value,)):
        return ""
    if OWN.fullmatch(name):
        return value
    return "" if named(name) == value else f"{named(name)}: {value}"


def named(name: str) -> str:
    """Return the name that a query has for a column, without the numbers that the plan adds.

    >>> named("day#2"), named("day")
    ('day', 'day')
    """
    numbered = NUMBERED.fullmatch(name)
    return numbered["name"] if numbered else name


def pairs(columns_: Iterable[tuple[str, str]]) -> str:
    """Return the pairs of columns of a join."""
    names = [(named(one), named(other)) for one, other in columns_]
    return "on " + ", ".join(one if one == other else f"{one} = {other}" for one, other in names)


def key(names: Iterable[str], texts: Mapping[str, str]) -> str:
    """Return the columns of a key; the one of a single group of all rows is ours, not the file's."""
    whole = tuple(names)
    shown = [copied(name, whole) for name in whole if name != ALL]
    return ", ".join(column(name, texts) for name in shown) or "all"


def column(name: str, texts: Mapping[str, str]) -> str:
    """Return a column in the words of the pipeline file."""
    if quoted(name) in texts:
        return without_parentheses(texts[quoted(name)])
    return _plain(quoted(name)) if name.startswith("#") else named(name)


def is_copy(name: str, others: Container[str]) -> bool:
    """Return whether a column is a second copy of one of these, as a join needs it that names a column twice."""
    found = SECOND_KEY.fullmatch(name)
    return found is not None and found["key"] in others


def copied(name: str, whole: Sequence[str]) -> str:
    """Return the column of a key that another of its columns is a copy of, or the column itself: see `plan.joins.keyed`."""
    return name.rpartition("$")[0] if is_copy(name, whole) else name


def without_parentheses(text: str) -> str:
    """Return an expression as a person would write it, without the parentheses around all of it.

    >>> without_parentheses("(a + b)"), without_parentheses("(a) + (b)"), without_parentheses("(not (x is null))")
    ('a + b', '(a) + (b)', 'x is not null')
    """
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            text = text[1:-1] if at and at == len(text) - 1 else text
            break
    return NOT_NULL.sub(r"\1 is not null", text)


NO_COLUMN = {"#row": "1"}
"""The column for records without columns, which a pipeline file can't state."""


def assignments(columns: Iterable[tuple[str, Expression]]) -> dict[str, str]:
    """Return computed columns as a pipeline file has them."""
    return {name: str(each) for name, each in columns}


def sort_keys(keys: Iterable[tuple[str, bool]]) -> list[str]:
    """Return sort keys, as (column, descending), as a pipeline file has them."""
    return [quoted(name) + (" desc" if descending else "") for name, descending in keys]
