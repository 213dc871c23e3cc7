"""The query that holds what `auto cdc` makes of a source's changes.

The rows of a key are read in the order of `sequence by`, however they arrive: so a late row changes what it would have changed in time, as in Spark.
Rows of one key at one place of that order have no defined order in Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.commands.projects.translation import quoted
from ddcli.commands.sdp.definitions import ColumnList
from ddcli.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.commands.sdp.definitions import ChangeFlow

START, END = "__START_AT", "__END_AT"
"""The columns of an interval, as Spark names them; the end of one that lasts is null."""


def needs_columns(flow: ChangeFlow) -> bool:
    """Return whether the query of a flow names all columns of its source."""
    return flow.history or flow.ignores_nulls


def change_query(flow: ChangeFlow, source: str, columns: Sequence[str], sequence: str, deletes: str) -> str:
    """Return the query of a flow, given its translated conditions; `columns`: the source's columns, if the query needs them. Raises SpecError."""
    if not needs_columns(flow):
        listed = ", ".join(map(quoted, flow.columns.names))
        if flow.columns.excluded:
            listed = f"* exclude ({listed})" if listed else "*"
        return _present(listed, _names(flow.keys), source, f"({sequence})", f"coalesce(({deletes}), false)")
    keys = _selected(ColumnList(flow.keys, excluded=False), columns)
    chosen = _selected(flow.columns, columns)
    values = [name for name in chosen if name not in keys]
    deleted = f"coalesce(({deletes}), false)"
    # Changes may arrive twice.
    tables = [f"__rows as (select distinct *, ({sequence}) as __sequence, {deleted} as __deleted from {source})"]
    if flow.ignores_nulls:
        tables += _filled(keys, values)
    rows = "__filled" if flow.ignores_nulls else "__rows"
    if flow.history:
        tables += _runs(rows, keys, _selected(flow.tracked, values))
        query = f"select {_names(chosen)}, {START}, {END} from __intervals where __ends and not __deleted"
    else:
        query = _present(_names(chosen), _names(keys), rows, "__sequence", "__deleted")
    return "with\n  " + ",\n  ".join(tables) + f"\n{query}"


def _present(listed: str, keys: str, rows: str, sequence: str, deleted: str) -> str:
    """Return the query of the last row of each key, if that is no deletion."""
    last = f"select distinct on ({keys}) * from {rows} order by {keys}, {sequence} desc"
    return f"select {listed} from ({last}) where not {deleted}"


def _runs(rows: str, keys: Sequence[str], tracked: Sequence[str]) -> list[str]:
    """Return the tables of the intervals: consecutive rows of a key with the same tracked values are one, with the last of these rows."""
    order = f"over (partition by {_names(keys)} order by __sequence)"
    changed = [f"{quoted(name)} is distinct from lag({quoted(name)}) {order}" for name in tracked]
    begins = " or ".join(["__deleted", f"coalesce(lag(__deleted) {order}, true)", *changed])
    start, end = f"max(case when __begins then __sequence end) {order} as {START}", f"lead(__sequence) {order} as {END}"
    ends = f"coalesce(lead(__begins) {order}, true) as __ends"
    return [
        f"__runs as (select *, {begins} as __begins from {rows})",
        f"__intervals as (select *, {start}, {end}, {ends} from __runs)",
    ]


def _filled(keys: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return the tables of rows in which a null is the last other value of its column since the key's last deletion."""
    there = [f"case when not __deleted then {quoted(name)} end" for name in values]
    life, order = f"partition by {_names(keys)}, __life", "order by __sequence"
    deleted = f"sum(case when __deleted then 1 else 0 end) over (partition by {_names(keys)} {order})"
    counts = "".join(f", count({each}) over ({life} {order}) as __at_{at}" for at, each in enumerate(there))
    filled = "".join(
        f", max({each}) over ({life}, __at_{at}) as {quoted(name)}"
        for at, (name, each) in enumerate(zip(values, there, strict=True))
    )
    return [
        f"__lives as (select *, {deleted} as __life from __rows)",
        f"__counted as (select *{counts} from __lives)",
        f"__filled as (select {_names(keys)}, __sequence, __deleted{filled} from __counted)",
    ]


def _selected(listed: ColumnList, columns: Sequence[str]) -> list[str]:
    """Return the columns that a list means. Raises SpecError for one that is not there."""
    there = {name.lower(): name for name in columns}
    if missing := next((name for name in listed.names if name.lower() not in there), None):
        raise SpecError(f"there is no column `{missing}`", hint=f"columns: {', '.join(columns)}")
    named = {name.lower() for name in listed.names}
    return [name for lower, name in there.items() if (lower in named) != listed.excluded]


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
