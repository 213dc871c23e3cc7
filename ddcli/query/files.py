"""The files that a query names itself, `from 'orders.csv'`, as the inputs of a request that has no pipeline file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text, UsageError
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.expressions.statement import read_statement, tables_of
from ddcli.expressions.types import ARRIVAL
from ddcli.job.clock import RunClock, time_now
from ddcli.job.paths import DEFAULT_STATE
from ddcli.job.request import Request
from ddcli.spec.model import InputSpec, Spec
from ddcli.store.parquet.footers import CSV, TEXTS, name_of_kind
from ddcli.store.tables.input_path import NothingFound
from ddcli.store.tables.inventory import list_input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.errors import Span

QUOTES = ("'", '"')


@dataclass
class NamedFiles:
    """The files of a query as the inputs of a request; notes on them, and the columns that are left out of each file, with their types."""

    request: Request
    notes: tuple[tuple[Span, str], ...]
    left_out: Mapping[str, Mapping[str, str]]

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


def named_files(text: Text) -> NamedFiles:
    """Return a request whose inputs are the files of a query, named by their paths; each of their rows is a record.

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
        csv = _csv(paths)
        if csv is not None:
            delimiter = json.dumps(csv.delimiter)
            notes.append(
                (each.span, f"'{each.value}' is read with {delimiter} between its fields, as its header looks")
            )
        left = left_out[each.value] = _unfit(paths)
        if left and all_columns:
            shown = ", ".join(f"'{name}' ({kind})" for name, kind in left.items())
            notes.append((each.span, f"'{each.value}' has columns of types that records can't have, left out: {shown}"))
        if all_columns and _has_unnamed(paths, csv):
            notes.append((each.span, f"'{each.value}' has a column without a name, left out"))
        time = (Text(ARRIVAL, each.span),)
        given = InputSpec(each, each, time, format="append", csv=csv, ignored=tuple(left), infers=True)
        inputs[each.value] = given
    spec = Spec(Text("query", text.span), base / "query", inputs, {}, {}, clock="arrival")
    clock = RunClock(arrival=True, now=time_now(None))
    request = Request(spec, "", base, base / DEFAULT_STATE, {}, None, lambda _line: None, clock=clock)
    return NamedFiles(request, tuple(notes), left_out)


def _csv(paths: Sequence[Path]) -> Dialect | None:
    """Return the options of CSV files, if the header of the first shows another delimiter than its name implies."""
    path = next((path for path in paths if name_of_kind(path) == CSV), None)
    if path is None:
        return None
    from ddcli.store.tables.first_rows import delimiter_of

    delimiter = delimiter_of(path, DEFAULT)
    return None if delimiter is None else Dialect(delimiter)


def _has_unnamed(paths: Sequence[Path], csv: Dialect | None) -> bool:
    """Return whether the header of the first CSV file lacks the name of a column."""
    path = next((path for path in paths if name_of_kind(path) == CSV), None)
    if path is None:
        return False
    from ddcli.store.tables.csv_records import names_of

    dialect = DEFAULT if csv is None else replace(DEFAULT, delimiter=csv.delimiter)
    return "" in names_of(path, dialect)


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
