"""Inputs that are tables of other programs: each is read from its mirror in the state, which a run brings up to the table first.

Where nothing is newer, that costs a look at a name for each table, and no third-party library is imported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.errors import InputError, Text
from ddcli.expressions.types import Type, parse_type
from ddcli.spec.model import TABLE_TIMES
from ddcli.store.files.access import real
from ddcli.store.files.objects import locate
from ddcli.store.mirrors.delta_commits import UnknownChange, is_newer
from ddcli.store.mirrors.mirror import add, log_files, mirror_of, read_mark, settle

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.files.gate import Files
    from ddcli.store.mirrors.delta import DeltaSource


def at_mirrors(spec: Spec, base: Path, state: Path) -> Spec:
    """Return the file with each input that is a table at its mirror in this state, with the columns that it has now."""
    if not any(given.table for given in spec.inputs.values()):
        return spec
    return replace(
        spec,
        inputs={
            name: _at_mirror(given, base, mirror_of(state, name)) if given.table else given
            for name, given in spec.inputs.items()
        },
    )


def _at_mirror(given: InputSpec, base: Path, directory: Path) -> InputSpec:
    origin = given.origin or given.path
    given = replace(given, path=replace(origin, value=str(directory)), origin=origin)
    mark = read_mark(directory)
    if mark is None:
        return with_columns_of(given, open_table(given, base).columns)
    kinds = {name: parse_type(text) for name, text in mark.columns.items()}
    return with_columns_of(given, {name: kind for name, kind in kinds.items() if kind is not None})


def with_columns_of(given: InputSpec, columns: Schema) -> InputSpec:
    """Return an input that declares those of a table's columns that the file declares, or all; and its mirror's own."""
    span = given.name.span
    own = {column: Type("int64") for column in (TABLE_TIMES["version"], *([given.diff.value] if given.diff else []))}
    own |= {TABLE_TIMES["committed"]: Type("datetime", unit="us", zone="UTC")}
    chosen = {name: (Text(name, span), kind) for name, kind in columns.items()} if given.follows else given.columns
    return replace(given, columns={**(chosen or {}), **{name: (Text(name, span), kind) for name, kind in own.items()}})


def open_table(given: InputSpec, base: Path) -> DeltaSource:
    """Return the table that an input names, as it is now. Raises InputError at the input for one that can't be read."""
    from ddcli.store.mirrors.delta import DeltaSource

    origin = given.origin or given.path
    try:
        return DeltaSource(real(locate(base, origin.value)))
    except InputError as error:
        raise InputError(f"inputs.{given.name.value}: {error.problem}", span=origin.span, hint=error.hint) from None


def is_behind(spec: Spec, base: Path) -> bool:
    """Say whether a table seems to have changed since it was mirrored."""
    for given in spec.inputs.values():
        if given.origin is not None:
            mark = read_mark(locate(base, given.path.value))
            if mark is None or is_newer(real(locate(base, given.origin.value)), mark.version):
                return True
    return False


def mirror_tables(spec: Spec, base: Path, state: Path, files: Files) -> Spec:
    """Bring the mirrors up to their tables, and return the file with the columns that these have then. Under the state's lock."""
    for given in spec.inputs.values():
        if given.origin is None:
            continue
        directory = locate(base, given.path.value)
        settle(directory, files)
        mark = read_mark(directory)
        if mark is not None and not is_newer(real(locate(base, given.origin.value)), mark.version):
            continue
        source = open_table(given, base)
        try:
            if mark is None:
                end, frames = source.whole()
                add(directory, files, frames, end)
            elif (found := source.changes(mark, stepwise=not given.arrives)) is not None:
                end, frames = found
                add(directory, files, frames, end)
        except UnknownChange:  # the log or a file is gone
            assert mark is not None, "a whole table needs no log"
            end, frames = source.difference(mark, log_files(directory))
            add(directory, files, frames, end)
    return at_mirrors(spec, base, state)
