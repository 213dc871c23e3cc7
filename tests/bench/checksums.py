"""Compare results that are too large to be held side by side: by sums that are the same only for the same rows.

A sum over updates, each times its diff, is the sum over the accumulated collection; so a log need not be accumulated
to be compared with a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Checksum = tuple[int, ...]


def of_table(path: Path, columns: Sequence[str]) -> Checksum:
    """Return the number of rows of a Parquet file and the sums of its columns and of its rows' hashes."""
    return of_query(f"select 1 as diff, * from read_parquet('{path}')", columns)


def of_log(folder: Path, columns: Sequence[str], time: int | None = None) -> Checksum:
    """Return the same of a change log's collection as of `time`, or of all its updates."""
    until = "" if time is None else f" where time <= {time}"
    return of_query(f"select * from read_parquet('{folder}/*.parquet'){until}", columns)


def of_query(query: str, columns: Sequence[str]) -> Checksum:
    """Return the same of the rows of a query with a column `diff`."""
    # Hashes are cut to 48 bits, so that they fit, and so does a sum of very many.
    terms = [*(f"{column}::hugeint" for column in columns), f"(hash({', '.join(columns)}) >> 16)::hugeint"]
    sums = ", ".join(f"sum(diff::hugeint * {term})::varchar" for term in terms)
    ((*found,),) = duckdb.sql(f"select sum(diff)::varchar, {sums} from ({query})").fetchall()
    return tuple(int(value or 0) for value in found)
