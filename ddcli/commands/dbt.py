"""A compiled dbt project as a pipeline: the nodes of `target/manifest.json` as typed values, those that can become part of it, and the reasons why the others can't."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.commands.projects import (
    UNWRITABLE,
    Edit,
    ForeignProject,
    ImportedQuery,
    ProjectImporter,
    ProjectNode,
    Translation,
    closing,
    edited,
    margins,
    span,
    table_edits,
    unreadable,
)
from ddcli.errors import Span, SpecError, UsageError
from ddcli.expressions.tree import deep_calls
from ddcli.expressions.types import parse_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.commands.projects import ImportedProject


REFUSED = {
    **dict.fromkeys(
        ("corr", "regr_slope", "regr_intercept", "regr_r2"),
        ("it is null here where DuckDB has NaN: of one row, and of equal ones", "write it by sums and `nullif`"),
    ),
    **dict.fromkeys(
        ("median", "quantile_cont", "percentile_cont"),
        (
            "of decimals it is a float here, and in DuckDB a decimal of as many digits",
            "write it of `cast(x as double)`",
        ),
    ),
    **dict.fromkeys(
        ("array_to_string", "list_to_string"),
        ("of a list of only nulls it is an empty text here, and null in DuckDB", "filter the nulls before"),
    ),
}
"""The functions whose values may be others here than in DuckDB, unless they are of floats."""
FLOATS = ("DOUBLE", "FLOAT8", "REAL", "FLOAT")


def translate(code: str, file: str, names: Mapping[tuple[str, ...], str]) -> Translation:
    """Return a compiled query with the names of its tables in the pipeline. Raises SpecError if it can't be translated.

    `names` has the pipeline's names of relations by their parts, in lower case.
    """
    code = code.replace("\r\n", "\n")
    if bad := UNWRITABLE.search(code):
        raise SpecError("a pipeline file can't hold this character", span=span(file, code, bad.start()))
    try:
        tokens = DuckDB().tokenize(code)
        with deep_calls():
            trees = sqlglot.parse(code, dialect="duckdb")
    except (SqlglotError, RecursionError) as error:
        at, column, problem = unreadable(error)
        lines = code.split("\n")
        place = Span(file, at, column, 1, lines[at - 1] if at <= len(lines) else "")
        raise SpecError(problem, span=place) from None
    if len(trees) != 1 or trees[0] is None:
        problem = "there is no query" if not any(trees) else "there are several statements"
        raise SpecError(problem, span=span(file, code, 0), hint="a model is one `select`")
    edits = [*table_edits(trees[0], code, file, names), *_numbers(code, file, tokens)]
    edits += [(at.start() - 1, at.start(), "$$") for at in re.finditer(r"(?<=\$)\{", code)]
    edits += margins(code)
    edits.sort()
    return Translation(edited(code, edits), file, code, tuple(edits))


def _numbers(code: str, file: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that make quotients and means of decimals floats; refuse functions that may differ."""
    for at, token in enumerate(tokens):
        word = token.text.lower() if token.token_type != TokenType.STRING else ""
        called = at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.L_PAREN
        if token.token_type == TokenType.SLASH:
            yield token.start, token.end + 1, "* 1e0 /"
        elif word in ("avg", "mean") and called:
            inside = tokens[at + 2 : closing(tokens, at + 1)]
            if inside and inside[0].text.lower() in ("distinct", "all"):
                inside = inside[1:]
            if inside:
                yield inside[0].start, inside[0].start, "cast("
                yield inside[-1].end + 1, inside[-1].end + 1, " as double)"
        elif word in REFUSED and called and not _is_of_floats(tokens[at + 2 : closing(tokens, at + 1)]):
            problem, hint = REFUSED[word]
            raise SpecError(f"`{word}`: {problem}", span=span(file, code, token.start, len(word)), hint=hint)


def _is_of_floats(tokens: Sequence[Token]) -> bool:
    """Return whether the argument of a call is a cast to a float."""
    words = [token.text.upper() for token in tokens[:2]]
    cast = words == ["CAST", "("] and any(token.text.upper() in FLOATS for token in tokens)
    return cast or any(one.text == "::" and other.text.upper() in FLOATS for one, other in pairwise(tokens))


NAME = re.compile(r"[A-Za-z_]\w*")
TABLES = ("table", "incremental", "external", "materialized_view")
"""The materializations that become outputs; a view becomes one if nothing reads it."""
PLAIN = {"limit": None, "fail_calc": "count(*)", "warn_if": "!= 0", "error_if": "!= 0"}
"""The settings of a test that fails if it finds a row."""


def import_project(project: Path, target: Path) -> ImportedProject:
    """Return the project as a pipeline file for the place `target`. Raises UsageError if no part of it can be imported."""
    return _DbtImporter(read_manifest(project), project, target).run()


class _DbtImporter(ProjectImporter):
    """Imports a dbt project."""

    program = "dbt"

    def input_of(self, node: ProjectNode) -> tuple[dict[str, Any], str]:
        """Return the input of a node for the pipeline file, and a remark."""
        if node.kind == "snapshot":
            self.found.notes.append(f"{node.file}: the snapshot `{node.name}` is an input: dbt still takes it")
        return input_of(node, self.folder, self.target.absolute().parent)

    def is_history(self, node: ProjectNode) -> bool:
        """Return whether a snapshot becomes a history: no model reads it, and no `meta` names the table that dbt keeps, but as its beginning."""
        read = any(node.id in each.reads for each in self.project.nodes.values())
        own = node.meta.get(OWN)
        kept = isinstance(own, dict) and "begin" not in own
        return node.kind == "snapshot" and node.code is not None and not read and not kept

    def take(self, node: ProjectNode, relations: dict[tuple[str, ...], str]) -> None:
        """Take a model or a test over as a query or a check. Raises SpecError if it can't be imported."""
        self.refuse(node)
        if node.kind == "test" and self.check(node):
            return
        assert node.code is not None
        history = _history(node) if node.kind == "snapshot" else None
        query = translate(node.code, node.compiled or node.file, relations)
        readers = (each for each in self.project.nodes.values() if node.id in each.reads and each.kind == "model")
        otherwise = _otherwise(node) if node.kind == "test" else ""
        output = not otherwise and (history is not None or node.materialized in TABLES or not any(readers))
        self.queries[node.id] = ImportedQuery(
            node.id, self.names[node.id], query, written=output, otherwise=otherwise, history=history
        )
        about = f"{node.file}: the snapshot `{node.name}` is a history"
        if history is not None and "begin" in history:
            self.found.notes.append(f"{about}: dbt's rows, and from the first run on those by the times of runs")
        elif history is not None:
            self.found.notes.append(
                f"{about} from the first run on, by the times of runs, and a record that is gone has an end; "
                f"to begin with dbt's rows, write its table to a Parquet file and set `meta: {{{OWN}: {{begin: snapshots/{node.name}.parquet}}}}`; "
                f"to keep dbt's table as an input, set `meta: {{{OWN}: {{path: ...}}}}`"
            )
        if node.materialized == "incremental":
            self.found.notes.append(
                f"{node.file}: `{node.name}` is incremental: here it is always what a full refresh would hold"
            )
        for hook in ("pre-hook", "post-hook"):
            if node.kind == "model" and node.config.get(hook):
                self.found.left_out.append(
                    SpecError(f"model `{node.name}`: its {hook} can't be imported", place=node.file)
                )

    def refuse(self, node: ProjectNode) -> None:
        """Refuse a node without a query, or whose compiled query may be another one."""
        if node.language != "sql":
            raise SpecError(
                f"it is written in {node.language}", place=node.file, hint="write it in SQL, or as `function` by hand"
            )
        known = (*TABLES, "view", "test", "snapshot")
        if node.materialized not in known:
            raise SpecError(f"the materialization `{node.materialized}` is not one of dbt's own", place=node.file)
        if node.code is None:
            raise SpecError("it is not compiled", place=node.file, hint="run `dbt compile --full-refresh`")
        if INCREMENTAL in node.macros and (not self.project.full_refresh or node.config.get("full_refresh") is False):
            forced = node.config.get("full_refresh") is False
            problem = "its `is_incremental()` may be true in what dbt compiled"
            hint = "take `full_refresh: false` out of its config" if forced else "run `dbt compile --full-refresh`"
            raise SpecError(problem, place=node.file, hint=hint)
        if node.kind == "test":
            for name, usual in PLAIN.items():
                if (node.config.get(name) or usual) != usual:
                    raise SpecError(f"its `{name}` can't be imported", place=node.file)

    def check(self, node: ProjectNode) -> bool:
        """Turn a generic test into a check of our own kinds, and return whether that is possible."""
        of, column, kwargs = str(node.test.get("of")), node.test.get("column"), node.test.get("kwargs", {})
        known = of in self.queries or self.names.get(of) in self.inputs
        if not known or not column or node.test["package"] or node.config.get("where"):
            return False
        values = kwargs.get("values")
        what: dict[str, Any]
        if node.test["name"] in ("not_null", "unique"):
            what = {node.test["name"]: [column]}
        elif node.test["name"] == "accepted_values" and isinstance(values, list) and _are_plain(values):
            what = {"in": {column: values}}
        else:  # `relationships` counts rows, and a check of ours values
            return False
        name = {"name": self.names[node.id]} | ({"otherwise": "warn"} if _otherwise(node) == "warn" else {})
        self.checks[node.id] = what | {"of": self.names[of]} | name
        return True


def _history(node: ProjectNode) -> dict[str, Any]:
    """Return the key of a snapshot's history, the columns whose changes begin a new row, and the file that it begins from. Raises SpecError for a strategy of others."""
    config = node.config
    keys = config.get("unique_key")
    found: dict[str, Any] = {"key": [keys] if isinstance(keys, str) else keys}
    if config.get("strategy") == "timestamp":
        found["track"] = [config.get("updated_at")]
    elif config.get("strategy") != "check":
        raise SpecError(f"the strategy `{config.get('strategy')}` is not one of dbt's own", place=node.file)
    elif config.get("check_cols") != "all":
        columns = config.get("check_cols")
        found["track"] = [columns] if isinstance(columns, str) else columns
    for what, columns in found.items():
        if (
            not isinstance(columns, list)
            or not columns
            or not all(isinstance(each, str) and NAME.fullmatch(each) for each in columns)
        ):
            problem = f"its {'`unique_key`' if what == 'key' else 'columns of the strategy'} must be names of columns"
            raise SpecError(problem, place=node.file, hint="compute them in the snapshot's query")
    own = node.meta.get(OWN)
    return found | own if isinstance(own, dict) else found


def _otherwise(node: ProjectNode) -> str:
    """Return the consequence of a test's severity."""
    return "fail" if str(node.config.get("severity") or "ERROR").upper() == "ERROR" else "warn"


def _are_plain(values: list[Any]) -> bool:
    """Return whether values are texts, as dbt compares them."""
    return bool(values) and all(isinstance(value, str) for value in values)


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
    depends = each.get("depends_on") or {}
    reads = tuple(map(str, depends.get("nodes") or ()))
    if kind == "test" and about:
        of = each.get("attached_node") or (
            reads[0] if len(reads) == 1 else None
        )  # dbt attaches tests of sources to none
        test = {"name": about["name"], "kwargs": dict(about.get("kwargs") or {}), "of": of}
        test |= {"package": about.get("namespace"), "column": each.get("column_name")}
    return ProjectNode(
        id=str(each["unique_id"]),
        name=name if kind in ("model", "snapshot", "seed") else str(each["name"]),
        kind=kind,
        file=str(each.get("original_file_path") or ""),
        compiled=str(each.get("compiled_path") or each.get("original_file_path") or ""),
        code=None if code is None else str(code),
        relation=relation,
        reads=reads,
        macros=tuple(map(str, depends.get("macros") or ())),
        config=config,
        types={str(column): str(_mapping(given).get("data_type") or "") for column, given in columns.items()},
        meta=meta,
        language=str(each.get("language") or "sql"),
        source=str(each.get("source_name") or ""),
        test=test,
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
