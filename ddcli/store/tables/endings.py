"""The kind of a file by the ending of its name; a kind is imported when there is a file of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.store.tables import footers
from ddcli.store.tables.input_path import AVRO, CSV, EXCEL, ORC, name_of_kind
from ddcli.store.tables.kinds import Ipc, Kind, Parquet

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import Schema

TABLES: dict[str, Kind] = {kind.name: kind for kind in (Parquet(), Ipc())}
"""The kinds that every file of them is read by alike."""


def kind_of(
    path: Path,
    declared: Schema | None,
    dialect: Dialect,
    *,
    nested: bool = False,
    enveloped: bool = False,
    rounds: bool = False,
) -> Kind:
    """Return the kind of a file of none of `TABLES`; `declared` are the types of the columns that text has, if the pipeline declares any.

    `rounds`: decimals of text with more digits than their column has are rounded, else refused.
    """
    name = name_of_kind(path)
    if name in (ORC, AVRO):
        from ddcli.store.tables.whole_files import WHOLE

        return WHOLE[name]
    columns = footers.columns_of_text(path, declared, dialect)
    if name == EXCEL:
        from ddcli.store.tables.whole_files import Workbooks

        return Workbooks(columns, rounds=rounds)
    from ddcli.store.tables.json_kind import Ndjson
    from ddcli.store.tables.text_kind import Csv

    if name == CSV:
        return Csv(columns, dialect, rounds=rounds)
    return Ndjson(columns, nested=nested, enveloped=enveloped, rounds=rounds)
