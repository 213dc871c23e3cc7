"""Requests whose tables are mirrored as they are now: in the state, for a run, or apart, for whoever only looks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.job.request import Request
    from ddcli.store.state.directory import State


def mirrored(request: Request, state: State) -> Request:
    """Return a request with the mirrors in its open state brought up to their tables."""
    if not request.spec.tables:
        return request
    from ddcli.job.tables import mirror_tables

    return replace(request, spec=mirror_tables(request.spec, request.base, request.state, state.files))


@contextmanager
def tables_as_now(request: Request, *, wanted: bool = True) -> Iterator[Request]:
    """Return a request with mirrors that have what is in the tables now, where that is wanted; its state stays as it is."""
    if not (wanted and request.spec.tables):
        yield request
        return
    from ddcli.job.tables import mirrored_apart

    with mirrored_apart(request.spec, request.base) as spec:
        yield replace(request, spec=spec)
