"""The change data feed of a Delta table: rows with the kind of their change, at the version of the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import InputError
from ddcli.expressions.types import Type
from ddcli.store.formats.base import BadRow, ConvertedRows, Format

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.expressions.types import Schema
    from ddcli.store.tables.kinds import Footer

CHANGE, VERSION, TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
DIFFS = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}


class DeltaCdf(Format):
    """The format of the feed: `_change_type` decides the diff; the commit's columns are no data."""

    judges = True

    def declared(self) -> Schema | None:
        declared = super().declared()
        return None if declared is None else {CHANGE: Type("string"), **declared}

    def footer(self, path: Path, found: Footer) -> Footer:
        if CHANGE not in found:
            raise InputError(
                f"the file has no column '{CHANGE}', which each file of a change data feed has",
                place=str(path),
                hint="write the result of `DeltaTable.load_cdf()`, or `table_changes(...)` in SQL, to Parquet",
            )
        return {
            name: kind for name, kind in found.items() if name in self.time or name not in (CHANGE, VERSION, TIMESTAMP)
        }

    def reads(self, columns: Sequence[str], found: Footer) -> list[str]:
        return [*columns, CHANGE]

    def turn(self, raw: pl.DataFrame, columns: Sequence[str]) -> ConvertedRows:
        import polars as pl

        diffs = raw[CHANGE].replace_strict(DIFFS, default=None, return_dtype=pl.Int64)
        if diffs.null_count():
            rows = diffs.is_null().arg_true()
            problem = f"'{CHANGE}' is {raw[CHANGE][rows[0]]!r}"
            raise BadRow(
                rows.filter(raw[CHANGE][rows].eq_missing(raw[CHANGE][rows[0]])),
                problem,
                f"a change is one of {', '.join(DIFFS)}",
            )
        return super().turn(raw, columns)._replace(diffs=diffs)
