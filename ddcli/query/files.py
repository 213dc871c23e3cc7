"""The files that a query names itself, `from 'orders.csv'`, as the inputs of a request that has no pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.errors import Text, UsageError
from ddcli.expressions.statement import read_statement, tables_of
from ddcli.expressions.types import ARRIVAL
from ddcli.job.clock import RunClock, time_now
from ddcli.job.request import DEFAULT_STATE, Request
from ddcli.spec.model import InputSpec, Spec

if TYPE_CHECKING:
    from ddcli.errors import Span

QUOTES = ("'", '"')


def files_request(text: Text) -> Request:
    """Return a request whose inputs are the files that a query names, under their paths; each of their rows is a record.

    Its state is never read. Raises UsageError for a table without quotes, which no file is.
    """
    inputs: dict[str, InputSpec] = {}
    for each in tables_of(read_statement(text)):
        if not _is_quoted(each.span):
            hint = f"a file goes in quotes, `from '{each.value}.csv'`; a pipeline's table needs `--from PIPELINE`"
            raise UsageError(f"no table is named `{each.value}`: the query has no pipeline", span=each.span, hint=hint)
        if not each.value.strip():
            raise UsageError("the path of a file is empty", span=each.span, hint="name one: `from 'orders.csv'`")
        time = (Text(ARRIVAL, each.span),)
        inputs[each.value] = InputSpec(each, each, time, format="append", infers=True)
    base = Path.cwd()
    spec = Spec(Text("query", text.span), base / "query", inputs, {}, {}, clock="arrival")
    return Request(
        spec,
        "",
        base,
        base / DEFAULT_STATE,
        {},
        None,
        lambda _line: None,
        clock=RunClock(arrival=True, now=time_now(None)),
    )


def _is_quoted(span: Span) -> bool:
    """Say whether a name stands in quotes at its place."""
    return span.source[span.column - 1 : span.column] in QUOTES
