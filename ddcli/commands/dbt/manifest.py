"""The project that dbt compiled: the nodes of `target/manifest.json` as typed values."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from typing import TYPE_CHECKING, Any

from ddcli.commands.projects.takeover import ForeignProject, ProjectNode
from ddcli.errors import UsageError
from ddcli.expressions.types import parse_type

if TYPE_CHECKING:
    from pathlib import Path


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


LARGEST = 1 << 30
"""The most bytes of a manifest."""
COMPILE = "compile the project with `dbt compile --full-refresh`"
INCREMENTAL = "macro.dbt.is_incremental"
UNREAD = {"unit_tests": "unit test"}
"""The parts of a manifest that are neither tables nor tests of one, and the name of one of them."""
APART = {
    "metrics": ("metric", "metrics"),
    "semantic_models": ("semantic model", "semantic models"),
    "saved_queries": ("saved query", "saved queries"),
    "exposures": ("exposure", "exposures"),
}
"""The parts of a manifest that produce no data, and the nouns for one of them and for several."""


def read_manifest(project: Path) -> ForeignProject:
    """Return the project that dbt compiled. Raises UsageError if there is none, or it was compiled for another database than DuckDB."""
    path = project / "target" / "manifest.json"
    tree = _read(path)
    try:
        adapter = tree["metadata"].get("adapter_type")
        if adapter != "duckdb":
            hint = "compile it with dbt-duckdb: in SQL of another database the same words have other meanings"
            raise UsageError(f"compiled for {adapter or 'no database'}", place=str(path), hint=hint)
        named = str(tree["metadata"].get("project_name") or project.resolve().name)
        found = [_node(each) for part in ("nodes", "sources") for each in tree[part].values()]
        unread = tuple(
            (kind, str(each["name"]), str(each.get("original_file_path", "")))
            for part, kind in UNREAD.items()
            for each in (tree.get(part) or {}).values()
        )
        counts = [(len(tree.get(part) or {}), nouns) for part, nouns in APART.items()]
        apart = tuple(f"{count} {nouns[count > 1]}" for count, nouns in counts if count)
        nodes = {each.id: each for each in found}
        return ForeignProject(named, nodes, _is_full_refresh(path, tree), unread, apart)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"this is not a manifest of dbt's: {type(error).__name__}: {error}"
        raise UsageError(problem, place=str(path), hint=COMPILE) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            problem = "there is no such file" if not path.exists() else "this is not a plain file"
            raise UsageError(problem, place=str(path), hint=COMPILE)
        if path.stat().st_size > LARGEST:
            raise UsageError(f"larger than {LARGEST >> 30} GiB", place=str(path))
        tree = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"can't read it: {error.strerror}", place=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", place=str(path), hint=COMPILE) from None
    if not isinstance(tree, dict):
        raise UsageError("this is not a manifest of dbt's", place=str(path), hint=COMPILE)
    return tree


def _is_full_refresh(path: Path, tree: dict[str, Any]) -> bool:
    """Return whether dbt wrote the manifest under `--full-refresh`, by the results of the same call."""
    beside = path.with_name("run_results.json")
    if not beside.is_file() or beside.stat().st_size > LARGEST:
        return False
    results = _read(beside)
    same = results["metadata"].get("invocation_id") == tree["metadata"].get("invocation_id")
    return bool(same and results["args"].get("full_refresh"))


def _node(each: dict[str, Any]) -> ProjectNode:
    config, columns = dict(each.get("config") or {}), dict(each.get("columns") or {})
    config["column_types"] = _mapping(config.get("column_types"))
    relation: tuple[str, ...] = ()
    kind, code = str(each["resource_type"]), each.get("compiled_code")
    name = str(each.get("identifier") or each.get("alias") or each["name"])
    if each.get("relation_name"):
        relation = tuple(str(part).lower() for part in (each.get("database"), each.get("schema"), name) if part)
    meta = {**_mapping(each.get("source_meta")), **_mapping(config.get("meta")), **_mapping(each.get("meta"))}
    if kind == "source" and meta.get("external_location"):
        meta["external_location"] = str(each["relation_name"])  # it has the names of the source filled in
        relation = (meta["external_location"].strip("'").lower(),)
    about = each.get("test_metadata")
    test = {}
    if kind == "test" and about:
        test = {"name": about["name"], "kwargs": dict(about.get("kwargs") or {}), "of": each.get("attached_node")}
        test |= {"package": about.get("namespace"), "column": each.get("column_name")}
    depends = each.get("depends_on") or {}
    return ProjectNode(
        id=str(each["unique_id"]),
        name=name if kind in ("model", "snapshot", "seed") else str(each["name"]),
        kind=kind,
        file=str(each.get("original_file_path") or ""),
        compiled=str(each.get("compiled_path") or each.get("original_file_path") or ""),
        code=None if code is None else str(code),
        relation=relation,
        reads=tuple(map(str, depends.get("nodes") or ())),
        macros=tuple(map(str, depends.get("macros") or ())),
        config=config,
        types={str(column): str(_mapping(given).get("data_type") or "") for column, given in columns.items()},
        meta=meta,
        language=str(each.get("language") or "sql"),
        source=str(each.get("source_name") or ""),
        alias=name,
        test=test,
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
