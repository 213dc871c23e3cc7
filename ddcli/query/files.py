"""The files that a query names itself, `from 'orders.csv'`, as the inputs of a request that has no pipeline file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text, UsageError
from ddcli.expressions.csv_dialect import DEFAULT
from ddcli.expressions.statement import read_statement, tables_of
from ddcli.expressions.types import ARRIVAL
from ddcli.job.clock import RunClock, time_now
from ddcli.job.paths import DEFAULT_STATE
from ddcli.job.request import Request
from ddcli.sources.inference import shown_doubt
from ddcli.spec.model import InputSpec, Spec
from ddcli.store.log.reader import LogReader
from ddcli.store.parquet.footers import CSV, TEXTS, name_of_kind
from ddcli.store.tables.compression import bare
from ddcli.store.tables.input_path import NothingFound
from ddcli.store.tables.inventory import list_input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ddcli.errors import Span
    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.sources.readers import Reader

QUOTES = ("'", '"')


@dataclass
class NamedFiles:
    """The files of a query as the inputs of a request; notes on them, and the columns that are left out of each file, with their types."""

    request: Request
    notes: tuple[tuple[Span, str], ...]
    left_out: Mapping[str, Mapping[str, str]]
    places: Mapping[str, Span]
    columns: AbstractSet[str] | None
    """The names in the query, in small letters; None if it reads all columns."""

    def doubts(self, readers: Mapping[str, Reader]) -> list[tuple[Span, str]]:
        """Return notes on doubts about the columns that the query reads."""
        return [
            (self.places[path], f"'{path}': {shown_doubt((name, doubt))}")
            for path, reader in readers.items()
            if isinstance(reader, LogReader) and reader.pinned is not None
            for name, doubt in reader.pinned.doubts.items()
            if self.columns is None or name.lower() in self.columns
        ]

    def explained(self, error: SpecError) -> SpecError:
        """Return an error of a query; if it lacks a column that was left out, the error that states why."""
        if error.span is None or not error.problem.startswith(("no column", "no table")):
            return error
        at = error.span.column - 1
        parts = error.span.source[at : at + error.span.length].lower().replace('"', "").split(".")
        for path, columns in self.left_out.items():
            for name, kind in columns.items():
                if name.lower() in parts:
                    problem = f"column '{name}' of '{path}' is {kind}, a type that records can't have"
                    return SpecError(problem, span=error.span, hint="write its parts as columns of their own")
        return error


def named_files(text: Text, dialect: Dialect | None = None) -> NamedFiles:
    """Return a request whose inputs are the files of a query, named by their paths; each of their rows is a record. `dialect` is that of CSV.

    The request's state is never read. Raises UsageError for a table without quotes, which can't be a file.
    """
    inputs: dict[str, InputSpec] = {}
    notes: list[tuple[Span, str]] = []
    left_out: dict[str, Mapping[str, str]] = {}
    base, tree = Path.cwd(), read_statement(text)
    all_columns = any(
        isinstance(node, exp.Star) and isinstance(node.parent, exp.Select | exp.Column) for node in tree.nodes
    )
    for each in tables_of(tree):
        if not _is_quoted(each.span):
            path = each.value if "." in each.value else f"{each.value}.csv"
            hint = f"write a file in quotes, `from '{path}'`; a pipeline's table needs `--from PIPELINE`"
            raise UsageError(f"no table is named `{each.value}`: the query has no pipeline", span=each.span, hint=hint)
        if not each.value.strip():
            raise UsageError("the path of a file is empty", span=each.span, hint="name one: `from 'orders.csv'`")
        try:
            listing = list_input(each.value, base)
        except NothingFound as error:
            error.hint = "check the path; it is relative to the current directory"
            raise
        paths = [listing.path(file) for file in listing.files]
        csv, look = _dialect(paths, dialect)
        if look:
            notes.append(
                (each.span, f"'{each.value}' is read as {_shown(look)}, by its look; `--csv` states it otherwise")
            )
        left = left_out[each.value] = _unfit(paths)
        if left and all_columns:
            shown = ", ".join(f"'{name}' ({kind})" for name, kind in left.items())
            notes.append((each.span, f"'{each.value}' has columns of types that records can't have, left out: {shown}"))
        time = (Text(ARRIVAL, each.span),)
        given = InputSpec(each, each, time, format="append", csv=csv, ignored=tuple(left), infers=True)
        inputs[each.value] = given
    spec = Spec(Text("query", text.span), base / "query", inputs, {}, {}, clock="arrival")
    clock = RunClock(arrival=True, now=time_now(None))
    request = Request(spec, "", base, base / DEFAULT_STATE, {}, None, lambda _line: None, clock=clock)
    names = None if all_columns else {node.name.lower() for node in tree.nodes if isinstance(node, exp.Identifier)}
    places = {name: given.path.span for name, given in inputs.items()}
    return NamedFiles(request, tuple(notes), left_out, places, names)


def _dialect(paths: Sequence[Path], stated: Dialect | None) -> tuple[Dialect | None, dict[str, Any]]:
    """Return the dialect of CSV files, None for other files, and the options that the first file shows."""
    path = next((path for path in paths if name_of_kind(path) == CSV), None)
    if path is None:
        return None, {}
    from ddcli.store.tables.csv_look import look_of
    from ddcli.store.tables.csv_records import refuse_encoding

    dialect = stated or DEFAULT
    refuse_encoding(path, dialect)
    look = look_of(path, dialect)
    # What is settled is not looked at again.
    settled = replace(dialect, delimiter=dialect.of(bare(path.name), ()).separator, header=dialect.has_header)
    return replace(settled, **look), look


def _shown(options: Mapping[str, object]) -> str:
    """Return options of CSV as a pipeline file has them."""
    return "`csv: {" + ", ".join(f"{name}: {json.dumps(value)}" for name, value in options.items()) + "}`"


def _unfit(paths: Sequence[Path]) -> dict[str, str]:
    """Return the columns, of the first file that states its columns' types, whose type records can't have."""
    path = next((path for path in paths if name_of_kind(path) not in TEXTS), None)
    if path is None:
        return {}
    from ddcli.store.tables.files import Tables
    from ddcli.store.tables.wider_types import type_of

    return {name: str(kind) for name, kind in Tables().footer(path).items() if type_of(kind) is None}


def _is_quoted(span: Span) -> bool:
    """Return whether a name is in quotes at its place."""
    return span.source[span.column - 1 : span.column] in QUOTES
