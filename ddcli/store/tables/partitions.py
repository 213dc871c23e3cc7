"""Columns from paths: Hive partitions, which are directories named `year=2024`, and parts of files' names, `people-{day}.csv`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME, Type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.expressions.types import Schema

NULL = "__HIVE_DEFAULT_PARTITION__"
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

Partition = dict[str, str | None]


def partition_of(path: str) -> Partition:
    """Return the columns that the directories of a relative path state.

    >>> partition_of("year=2024/place=New%20York/a.parquet")
    {'year': '2024', 'place': 'New York'}
    """
    found: Partition = {}
    for directory in path.split("/")[:-1]:
        name, equals, value = directory.partition("=")
        if equals and name:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return found


def named_by(pattern: str, path: str) -> Partition | None:
    """Return the columns in the name of a file, None for one that the pattern doesn't fit.

    >>> named_by("people-{day}.csv", "in/people-2024-01-02.csv")
    {'day': '2024-01-02'}
    """
    parts = re.split(r"\{(\w+)\}", pattern)
    expression = "".join(f"(?P<{part}>.+?)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    found = re.fullmatch(expression, path.rpartition("/")[2])
    return None if found is None else dict(found.groupdict())


def types_of_partitions(partitions: Iterable[Partition], times: Iterable[str], declared: Schema | None) -> Schema:
    """Return a type for each column of paths: the declared one; else int64 if all its values are integers, else string; a time
    may also be a date.
    """
    values: dict[str, set[str | None]] = {}
    for partition in partitions:
        for name, value in partition.items():
            values.setdefault(name, set()).add(value)
    guessed = {name: Type(_guess(found, may_be_date=name in times), nullable=True) for name, found in values.items()}
    return guessed | {name: kind.or_null() for name, kind in (declared or {}).items()} | {ARRIVAL: ARRIVAL_TIME}


def _guess(values: set[str | None], *, may_be_date: bool) -> str:
    for kind, form in (("int64", INTEGER), *([("date", DATE)] if may_be_date else [])):
        if all(text is None or form.fullmatch(text) for text in values):
            return kind
    return "string"
