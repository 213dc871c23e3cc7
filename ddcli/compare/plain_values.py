"""A comparison as JSON: one object, or a line for each change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.compare.cells import plain, rows_of
from ddcli.compare.pairs import ADDED, CHANGED, REMOVED
from ddcli.compare.sentences import notes, verdict
from ddcli.screen import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.compare.difference import Difference


def to_json(found: Difference, limit: int | None) -> dict[str, Any]:
    """Return the difference as JSON, with at most `limit` changed rows (None: all)."""
    first = found.first(limit) if limit != 0 else None
    rows = [] if first is None else [row.to_json() for row in rows_of(first, found.compared, plain)]
    allowed = found.settings.max_changed
    return {
        "same": found.same,
        "ok": found.ok,
        "verdict": verdict(found),
        "a": found.a.to_json(),
        "b": found.b.to_json(),
        "key": list(found.compared.key) or None,
        "max_changed": None if allowed is None else str(allowed),
        "rows": {"same": found.same_rows, **{change: found.counts[change] for change in (REMOVED, CHANGED, ADDED)}},
        "cells": {name: count for name, count in found.cells.items() if count},
        "columns": [
            {"column": each.column, "change": each.change, "a": each.a, "b": each.b, "note": each.note}
            for each in found.columns
        ],
        "notes": notes(found),
        "changes": rows,
        "changes_left_out": found.changes.height - len(rows),
    }


def json_lines(found: Difference, limit: int | None, output: str | None = None) -> Iterator[str]:
    """Yield a line for each changed row, in order of the key; in no order if all are wanted and don't fit in memory.

    `output` is the name of the pipeline's output that is compared.
    """
    named = {} if output is None else {"output": output}
    streams = limit is None and not found.changes.fits
    for frame in found.changes.frames() if streams else (found.first(limit),):
        for row in rows_of(frame, found.compared, plain):
            yield json_text({**named, **row.to_json()})
