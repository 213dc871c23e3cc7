"""Seeds, sources and snapshots as inputs of a pipeline file."""

from __future__ import annotations

import csv
import io
import os
import re
from typing import TYPE_CHECKING, Any

from ddcli.expressions.types import parse_type

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.commands.projects.takeover import ProjectNode

OWN = "dd"
"""The key of a source's, seed's or snapshot's `meta` for its input, in the form of a pipeline file."""
TYPES = {
    "tinyint": "int8",
    "smallint": "int16",
    "integer": "int32",
    "int": "int32",
    "bigint": "int64",
    "long": "int64",
    "hugeint": "int64",
    "real": "float32",
    "float": "float32",
    "double": "float64",
    "double precision": "float64",
    "text": "string",
    "char": "string",
    "timestamp": "datetime[us]",
    "datetime": "datetime[us]",
    "timestamptz": "datetime[us, UTC]",
    "timestamp with time zone": "datetime[us, UTC]",
    "numeric": "decimal(18, 3)",
    "decimal": "decimal(18, 3)",
    "blob": "binary",
}
"""The types of DuckDB that have another name here."""
SCD = {
    "dbt_scd_id": "string",
    "dbt_updated_at": "datetime[us]?",
    "dbt_valid_from": "datetime[us]?",
    "dbt_valid_to": "datetime[us]?",
}
"""The columns that dbt adds to a snapshot."""


def input_of(node: ProjectNode, project: Path, folder: Path) -> tuple[dict[str, Any], str]:
    """Return the input of a node for a pipeline file in `folder`, and a remark; the remark is empty if the project states everything."""
    if isinstance(own := node.meta.get(OWN), dict):
        return own, ""
    if node.kind == "seed":
        return _seed(node, project, folder)
    if node.kind == "snapshot":
        columns = {**_columns(node), **SCD} if node.types else {}
        found = {"path": f"snapshots/{node.name}/", "format": "upsert", "key": ["dbt_scd_id"]} | _declared(columns)
        return (
            found,
            "? the path of the rows of dbt's snapshot, relative to this file: its history can't be computed from the present rows",
        )
    location = str(node.meta.get("external_location") or "")
    columns = _columns(node)
    if re.fullmatch(r"'[^']+'", location):
        path = location.strip("'")
        form = {"path": path if "://" in path else _from(project / path, folder), "format": "append"}
        text = re.search(r"\.(csv|tsv|json|ndjson|jsonl)(\.\w+)?$", path)
        return form | (_declared(columns) or ({"columns": "infer"} if text else {})), ""
    form = {"path": f"sources/{node.source}/{node.name}/", "format": "append"} | _declared(columns)
    return (
        form,
        f"? the path of its files: set it in the source's `meta: {{{OWN}: {{path: ...}}}}`, relative to this file",
    )


def _seed(node: ProjectNode, project: Path, folder: Path) -> tuple[dict[str, Any], str]:
    path = project / node.file
    found: dict[str, Any] = {"path": _from(path, folder), "format": "append"}
    delimiter = str(node.config.get("delimiter") or ",")
    given = _columns(node)
    try:
        text = path.read_text(encoding="utf-8-sig")
        header = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except (OSError, ValueError, csv.Error, TypeError):
        header, text = [], ""
    named = {name.lower(): kind for name, kind in given.items()}
    whole = header and all(name.lower() in named for name in header)
    found["columns"] = {name: named[name.lower()] for name in header} if whole else "infer"
    if delimiter != ",":
        found["csv"] = {"delimiter": delimiter}
    remarks = []
    if given and not whole:
        remarks.append(f"the project has types of {', '.join(given)} alone: all columns are inferred")
    between = re.escape(delimiter)
    if re.search(rf"^{between}+$", text, re.MULTILINE):
        remarks.append("a line without any value is a row of nulls in dbt, and none here")
    if re.search(rf'(?:^|{between})""(?:$|{between})', text, re.MULTILINE):
        remarks.append('an empty text, `""`, is a null in dbt, and a text here: delete the quotation marks in the file')
    return found, "; ".join(remarks)


def _columns(node: ProjectNode) -> dict[str, str]:
    """Return the columns whose types the project states; all are nullable."""
    types = {**node.types, **{str(name): str(kind) for name, kind in node.config["column_types"].items()}}
    found = {}
    for name, kind in types.items():
        plain = re.sub(r"\s+", " ", kind.strip().lower())
        ours = TYPES.get(plain) or re.sub(r"^numeric(?=\()", "decimal", re.sub(r"^varchar\(.*", "string", plain))
        if plain and parse_type(ours) is not None:
            found[name] = f"{ours}?"
    return found


def _declared(columns: dict[str, str]) -> dict[str, Any]:
    return {"columns": columns} if columns else {}


def _from(path: Path, folder: Path) -> str:
    return os.path.relpath(path.absolute(), folder.absolute())
