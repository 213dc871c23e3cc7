"""Tables with a log that names the files that count: Delta Lake, Iceberg, Hudi.

Their directories also have files that newer ones have superseded. To read all of them would return rows that are not in the table, so
such a directory is refused. Imports no third-party library.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ddcli.errors import InputError
from ddcli.named_tuple import NamedTuple
from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DELTA, ICEBERG, HUDI = "Delta Lake", "Iceberg", "Hudi"
LOGS = {"_delta_log": DELTA, ".hoodie": HUDI}
METADATA, SNAPSHOT = "metadata", ".metadata.json"
CHANGES = "_change_data"
"""The directory of a Delta table with its change feed: none of these files is superseded."""
DATA = "data"
"""The directory in which an Iceberg table keeps its files."""
HINTS = {
    DELTA: "as an input write `{delta: %s}` in its place; elsewhere write the table's rows to files of their own, as DuckDB's `delta_scan` reads them",
    ICEBERG: "as an input write `{iceberg: {catalog: NAME, table: NAMESPACE.TABLE}}` in its place; elsewhere write the table's rows to files of their own, as DuckDB's `iceberg_scan` reads them",
    HUDI: "write the table's rows to files of their own, as Spark reads them",
}


class LakeTable(NamedTuple):
    """A table with a log: its directory, the log in it, and its format."""

    directory: str
    log: str
    format: str


def table_of(path: str) -> LakeTable | None:
    """Return the table whose log a file belongs to, by the file's path alone.

    >>> table_of("lake/orders/_delta_log/00000000000000000000.json").directory
    'lake/orders'
    >>> table_of("lake/orders/part-0.parquet")
    """
    parts = path.split("/")
    for at, name in enumerate(parts[:-1]):
        if name in LOGS:
            return LakeTable("/".join(parts[:at]), name, LOGS[name])
    if len(parts) > 1 and parts[-2] == METADATA and parts[-1].endswith(SNAPSHOT):
        return LakeTable("/".join(parts[:-2]), METADATA, ICEBERG)
    return None


def refuse_lake_tables(directories: Iterable[Path]) -> None:
    """Raise InputError if one of some directories, or one above, is such a table."""
    seen = set()
    for directory in directories:
        for place in _candidates(directory):
            if place in seen:
                break
            seen.add(place)
            if table := _table_at(place):
                raise refusal(table, place)


def refusal(table: LakeTable, directory: Path) -> InputError:
    """Return the error for a file or directory inside of such a table."""
    return InputError(
        f"this is a table of {table.format}: only its log, `{table.log}/`, knows which of its files count",
        place=str(directory),
        hint=HINTS[table.format].replace("%s", str(directory)),
    )


def _candidates(directory: Path) -> Iterator[Path]:
    """Yield the directories that may be the table to which a directory belongs.

    In an object store each look is a request, and the objects below have been listed: there only the directories above partitions are looked at.
    """
    if not isinstance(directory, ObjectPath):
        yield directory
    for below, place in pairwise((directory, *directory.parents)):
        partition = "=" in below.name or below.name == DATA
        if below.name == CHANGES or (isinstance(directory, ObjectPath) and not partition):
            return
        yield place


def _table_at(directory: Path) -> LakeTable | None:
    for name, kind in LOGS.items():
        if (directory / name).is_dir():
            return LakeTable(str(directory), name, kind)
    try:
        names = [path.name for path in (directory / METADATA).iterdir()]
    except OSError:
        return None
    return LakeTable(str(directory), METADATA, ICEBERG) if any(name.endswith(SNAPSHOT) for name in names) else None
