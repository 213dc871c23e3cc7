"""Columns that files have under several names, as they were renamed at some time: the name that each file has.

Rows are read by the file's own names, and have the columns' names from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ddcli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    FormerNames = Mapping[str, tuple[str, ...]]
    """The other names of columns that files may have, by column."""

T = TypeVar("T")


def names_in_file(path: Path, former: FormerNames, found: Collection[str]) -> dict[str, str]:
    """Return a file's names of columns, of those that it has under another name. Raises InputError if it has a column under several.

    >>> from pathlib import Path
    >>> names_in_file(Path("a.csv"), {"area": ("Province_State", "Province/State")}, ["Province/State", "deaths"])
    {'area': 'Province/State'}
    """
    names = {}
    for column, others in former.items():
        having = [name for name in (column, *others) if name in found]
        if len(having) > 1:
            raise InputError(
                f"the file has several columns for '{column}': {', '.join(having)}",
                place=str(path),
                hint=f"remove all but one from the file, or take one out of the input's `columns: {{{column}: {{from: ...}}}}`",
            )
        if having and having[0] != column:
            names[column] = having[0]
    return names


def in_file(names: Mapping[str, str], columns: Mapping[str, T]) -> dict[str, T]:
    """Return a mapping of columns as one of the names that a file has for them.

    >>> in_file({"area": "Province/State"}, {"area": "string", "deaths": "int64"})
    {'Province/State': 'string', 'deaths': 'int64'}
    """
    return {names.get(column, column): value for column, value in columns.items()}


def by_column(names: Mapping[str, str], found: Mapping[str, T]) -> dict[str, T]:
    """Return a mapping of a file's names as one of columns.

    >>> by_column({"area": "Province/State"}, {"Province/State": "string", "deaths": "int64"})
    {'area': 'string', 'deaths': 'int64'}
    """
    columns = {name: column for column, name in names.items()}
    return {columns.get(name, name): value for name, value in found.items()}
