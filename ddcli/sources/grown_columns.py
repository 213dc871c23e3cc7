"""`columns: grow`: the columns of an input as its files have had them so far, which its state pins, and new files may add to.

A column that came after the first file is null in files without it: so it is optional from then on, and no row that was read gets another value. Each
file must have the columns of the first one: a file without one of them may have it under another name, and nulls in its place would be wrong in silence.

A type becomes one that holds the values of both: an integer or a float of more bits, a decimal of more digits, a finer timestamp. Columns of text
have types that their first rows show, as for `columns: infer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.types import ARRIVAL, Type, parse_type
from ddcli.sources.inference import PinnedColumns, columns_in_state, infer_columns, inferred, some_of
from ddcli.sources.input_format import format_of
from ddcli.store.log.schema import columns_from_paths, columns_of_file
from ddcli.store.parquet.footers import NDJSON, TEXTS, Footers, name_of_kind
from ddcli.store.tables.wider_types import wider

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.spec.model import InputSpec
    from ddcli.store.state.entries import InputEntry
    from ddcli.store.tables.listing import Listing


def pinned(given: InputSpec, listing: Listing, entry: InputEntry | None) -> PinnedColumns | None:
    """Return the columns that an input's files show and its state pins; None where it declares them, and where its files state them and they don't grow."""
    return grown(given, listing, entry) if given.grows else inferred(given, listing, entry)


def grown(given: InputSpec, listing: Listing, entry: InputEntry | None) -> PinnedColumns | None:
    """Return the columns of an input: those that its state has (`entry`), with what its new files add; None where there are neither."""
    known = columns_in_state(given, entry) if entry is not None else None
    files = listing.new if known is not None else listing.files
    if known is None and not files:
        return None
    found = _columns_in(given, listing, [listing.path(file) for file in files])
    if known is None:
        path = listing.path(files[0])
        base, columns = {*found[path]}, dict[str, Type]()
    else:
        columns = {name: kind for name, text in known.columns.items() if (kind := parse_type(text)) is not None}
        base = {*columns} - {*known.optional}
    fixed = _fixed(given)
    news = []
    for file in files:
        for name, kind in found[listing.path(file)].items():
            before = columns.get(name)
            columns[name] = kind.or_null(name not in fixed) if before is None else wider(before, kind)
            if known is not None and before != columns[name]:
                was = "new column" if before is None else f"{before}, and now"
                news.append(f"'{name}': {was} {columns[name]}, by '{file.path}'")
    optional = [name for name in columns if name not in base and name not in fixed]
    shown = {name: str(kind) for name, kind in columns.items()}
    first = known.file if known is not None else files[0].path
    return PinnedColumns(shown, first, known=known is not None, optional=tuple(optional), news=tuple(news), grows=True)


def _fixed(given: InputSpec) -> set[str]:
    """Return the columns that each file must have: of the key, the time and the diff."""
    return {*(text.value for text in (*given.key, *given.time)), *([given.diff.value] if given.diff else [])}


def _columns_in(given: InputSpec, listing: Listing, paths: list[Path]) -> dict[Path, Schema]:
    """Return the columns of each file by its own account: of text by the first rows of some files, and of all that have names which these lack."""
    log = format_of(given)
    texts = [path for path in paths if name_of_kind(path) in TEXTS]
    found: dict[Path, Schema] = {}
    if len(texts) < len(paths):
        from ddcli.store.tables.files import Tables

        tables = Tables(None, columns_from_paths(log, listing), times=log.time, former=log.former)
        for path in paths:
            if path not in texts:
                found[path] = columns_of_file(log, path, tables.footer(path))
    if texts:
        found |= _columns_in_text(given, listing, texts)
    return {path: found[path] for path in paths}


def _columns_in_text(given: InputSpec, listing: Listing, paths: list[Path]) -> dict[Path, Schema]:
    log = format_of(given)
    # The types don't matter: headers state the names.
    headers = Footers({ARRIVAL: Type("int64")}, columns_from_paths(log, listing), times=log.time, dialect=log.dialect)
    names = {path: {*headers.footer(path)} - {ARRIVAL} for path in paths if name_of_kind(path) != NDJSON}
    looked_at = some_of(paths)
    seen = {name for path in looked_at for name in names.get(path, ())}
    looked_at += [path for path in paths if path not in looked_at and not names.get(path, {""}) <= seen]
    columns, _ = infer_columns(given, listing, looked_at)
    kinds = {name: kind for name, text in columns.items() if (kind := parse_type(text)) is not None}
    return {
        path: {name: kind for name, kind in kinds.items() if path not in names or name in names[path]} for path in paths
    }
