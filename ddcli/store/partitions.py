"""Hive partitions: directories named `year=2024` say what a column has in all files below them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.expressions.types import Schema

NULL = "__HIVE_DEFAULT_PARTITION__"
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

Partition = dict[str, str | None]


def partition_of(path: str) -> Partition:
    """Return the columns that the directories of a relative path say.

    >>> partition_of("year=2024/place=New%20York/a.parquet")
    {'year': '2024', 'place': 'New York'}
    """
    found: Partition = {}
    for directory in path.split("/")[:-1]:
        name, equals, value = directory.partition("=")
        if equals and name:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return found


def guess_types(partitions: Iterable[Partition]) -> Schema:
    """Return a type for each partition column that is not declared: int64 if all its values are integers, else string."""
    values: dict[str, set[str | None]] = {}
    for partition in partitions:
        for name, value in partition.items():
            values.setdefault(name, set()).add(value)
    return {
        name: Type(
            "int64" if all(text is None or INTEGER.fullmatch(text) for text in found) else "string", nullable=True
        )
        for name, found in values.items()
    }
