"""The clock of a pipeline: rows have the time of the run that reads them, or that of their time column."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from ddcli.errors import Text
from ddcli.expressions.types import ARRIVAL
from ddcli.spec.model import LOGS, Clock, InputSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ddcli.spec.reader import Notes

CLOCKS: tuple[str, ...] = get_args(Clock)


def default_clock(inputs: Collection[InputSpec]) -> Clock:
    """Return the clock of a file that names none: `arrival` where no input is a log of changes and none speaks of times."""
    logs = (given.format in LOGS and not given.table for given in inputs)
    return "event" if any(logs) or any(map(_speaks_of_times, inputs)) else "arrival"


def on_arrival(given: InputSpec, notes: Notes) -> InputSpec:
    """Return an input whose rows have the time of the run that reads them; report keys that don't fit that."""
    path = f"inputs.{given.name.value}"
    if given.arrangement is not None:
        hint = "read an output of that pipeline as a log instead, `path: ../out/orders/`: its updates get the times of this one's runs; or write `clock: event`, under which each other input needs a time column"
        notes.refuse(
            path, "an imported arrangement has the times of its pipeline, not those of runs", given.name.span, hint
        )
    elif given.named is not None and (given.table or given.format not in LOGS):
        hint = "leave `time` out, or write `clock: event`"
        if not given.table:
            hint = f"leave `time` out: '{given.named.value}' is a data column as any other; or write `clock: event`"
        problem = "under `clock: arrival` the time of a row is the run that reads it"
        notes.refuse(f"{path}.time", problem, given.named.span, hint)
    elif given.max_ahead is not None:
        problem, hint = (
            "under `clock: arrival` no row is ahead of the clock",
            "leave `max_ahead` out, or write `clock: event`",
        )
        notes.refuse(f"{path}.max_ahead", problem, given.max_ahead.span, hint)
    elif given.late != "error":
        problem, hint = "under `clock: arrival` no row is late", "leave `late` out, or write `clock: event`"
        notes.refuse(f"{path}.late", problem, given.name.span, hint)
    ignored = tuple(text.value for text in given.time) if given.format == "updates" and not given.table else ()
    return replace(given, time=(Text(ARRIVAL, given.name.span),), ignored=given.ignored or ignored)


def on_event(given: InputSpec, notes: Notes) -> None:
    """Report keys of an input that don't fit the times of a column."""
    if given.table and given.named is None:
        hint = "write `time: version` (an integer) or `time: committed` (a timestamp) under it"
        hint += arrival_hint(given.beside) if given.beside else ", or `clock: arrival` at the top of the file"
        notes.refuse(
            f"inputs.{given.name.value}", "the rows of a table have no time of their own", given.name.span, hint
        )
    if given.format == "snapshots" and given.order_by is not None:
        hint = "leave `order_by` out: the time decides which table is newer"
        hint += arrival_hint(given.beside) if given.beside else "; or write `clock: arrival`"
        notes.refuse(
            f"inputs.{given.name.value}.order_by", "tables are in the order of their time", given.order_by.span, hint
        )


def beside_import(inputs: Sequence[tuple[Text, InputSpec]]) -> list[tuple[Text, InputSpec]]:
    """Return the inputs of a file, each with the name of an import beside it, if there is one: hints then don't propose `clock: arrival`."""
    name = next((given.name.value for _, given in inputs if given.arrangement is not None), "")
    return [(text, replace(given, beside=name)) for text, given in inputs]


def arrival_hint(name: str) -> str:
    """Return the end of a hint where `clock: arrival` would help if this name weren't an import."""
    return f"; `clock: arrival` needs an output of the other pipeline, read as a log, in place of the import '{name}'"


def _speaks_of_times(given: InputSpec) -> bool:
    return given.named is not None or given.late != "error" or given.max_ahead is not None
