"""The tables that follow outputs' logs: each is brought up to its log after the run has committed, by one commit of its own.

Our commit comes first, and a log only grows: so the updates for a table are fixed before it takes them in. A commit of
the table has a unique number, which is announced before and in the table after it: the next process finds whether it was made,
and makes no commit twice. If the log was written anew, or the table has changed since its last commit, all rows are replaced.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from ddcli.engine.lanes import decode
from ddcli.engine.pool import Pool
from ddcli.engine.times import LEAST
from ddcli.errors import DdError, StateError
from ddcli.expressions.types import in_utc, order_among, parse_schema
from ddcli.job.paths import catalog_of
from ddcli.job.tables import catalogue_file, check_catalog, check_server, is_followed, place_in, place_of, stated
from ddcli.plan.physical import HISTORY
from ddcli.spec.model import DATABASE, SPARK
from ddcli.store.files.access import locate, real
from ddcli.store.files.gate import INVISIBLE, Files
from ddcli.store.log.joint_files import updates_after
from ddcli.store.log.writer import DIFF
from ddcli.store.state.outputs import output_paths, read_owned, tags_metadata
from ddcli.store.targets.change import Change, HistoryChange, history_columns
from ddcli.store.targets.database import DuckdbDatabase, PostgresDatabase, SqliteDatabase
from ddcli.store.targets.database_table import DatabaseTable
from ddcli.store.targets.mark import (
    COMMITTED,
    CommitKey,
    CommitRecord,
    FollowerCommits,
    directory_of,
    number_after,
    read_marks,
    write_marks,
)
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.job.request import Request
    from ddcli.spec.model import TargetSpec
    from ddcli.store.batch.stored_batch import KeyLookup
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import FileEntry, OutputEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.targets.database import Database
    from ddcli.store.targets.file_table import Loader
    from ddcli.store.targets.mark import TableFile, Target


def follow(request: Request, state: State, loader: Loader | None = None) -> dict[str, str]:
    """Bring the tables of all outputs up to their logs; return where those are that had to be. Under the state's lock. `loader` has tasks write heavy ones.

    Raises the first error when all were tried.
    """
    manifest, done = state.manifest, dict[str, str]()
    if manifest is None or is_followed(request.spec, request.base, request.state, manifest):
        return done
    errors: list[DdError] = []
    for name, output in request.spec.outputs.items():
        if output.target is not None and name in manifest.outputs:
            try:
                if _follow(name, output.target, request, state, manifest, loader):
                    done[name] = output.target.place.value
            except DdError as error:
                errors.append(_at_the_output(error, name, output.target))
    if errors:
        raise errors[0]
    return done


class TableBehind(StateError):
    """A table without its output's last commit, which the next run completes."""


def compare_table(request: Request, manifest: Manifest, name: str) -> tuple[str, pl.DataFrame, int] | None:
    """Return the place of an output's table with contents, and its difference to the log; None where there is no such table. Changes nothing.

    The difference has the output's columns and DIFF: the multiplicity by the log less that in the table; and the number of rows of the table that are like none of the output.

    Raises TableBehind for a table that is not up to its log, and errors of the table.
    """
    output, log = request.spec.outputs[name], manifest.outputs[name]
    spec = output.target
    if spec is None or not spec.table:
        return None
    done = read_marks(directory_of(request.state, name)).done
    if done is None or (done.log, done.upto) != place_in(log, spec, request.base):
        raise TableBehind("the table lacks the last commit: the next run completes it", place=spec.place.value)
    path = output_paths(request.state, manifest)[name]
    change = _change(request, name, path, spec, manifest, log, list(log.files), 0, whole=True)
    with _opened(spec, request, CommitKey(manifest.identity, name), Files(), None) as target:
        rows, others = target.difference(change)
    frame = decode(rows, change.layout, change.pool).with_columns(pl.Series(DIFF, rows[:, -1]))
    return spec.place.value, frame, others


def _at_the_output(error: DdError, name: str, target: TargetSpec) -> DdError:
    """Return an error of a table as one that names the output."""
    if not error.problem.startswith("output"):
        error.problem = f"outputs.{name}.{target.kind}: {error.problem}"
    hint = (error.hint or "").replace(INVISIBLE, COMMITTED)
    error.hint = (
        hint if COMMITTED in hint else "; ".join(filter(None, (hint, f"{COMMITTED}: the next run completes it")))
    )
    return error


def _follow(
    name: str, spec: TargetSpec, request: Request, state: State, manifest: Manifest, loader: Loader | None
) -> bool:
    """Bring a table up to its log, in a commit at most; return whether there was one."""
    log, directory = manifest.outputs[name], directory_of(request.state, name)
    spec = _with_certain_key(spec, log)
    marks = read_marks(directory)
    key = CommitKey(state.identity, name)
    with _opened(spec, request, key, state.files, marks.done, loader) as target:
        held = target.number()
        marks = _settled(marks, held, target, directory, state.files)
        known = marks.done if marks.done is not None and held == marks.done.number else None
        target.check(known)
        identity, upto = place_in(log, spec, request.base)
        if known is not None and (known.log, known.upto) == (identity, upto):
            write_marks(directory, state.files, FollowerCommits(replace(known, left=target.left()), None))
            return False
        path = output_paths(request.state, manifest)[name]
        change_of = partial(_change, request, name, path, spec, manifest)
        since = known if known is not None and known.log == identity else None
        # The log has got columns or wider types since. Marks of older versions have no columns.
        grown = since.columns if since is not None and since.columns not in ({}, log.schema) else None
        rewrites = grown is not None and any(grown[name] != kind for name, kind in log.schema.items() if name in grown)
        newer = None if since is None or rewrites else updates_after(path, log.files, since.upto)
        if newer is None:
            target.check(None)
            known, newer = None, (list(log.files), 0)
        files, rows = newer
        large = known is not None and spec.table and 4 * _rows(files) >= _rows(log.files)
        if large and loader is not None and loader.wants(change_of(log, files, rows, whole=False)):
            known, files, rows = None, list(log.files), 0  # tasks write the table anew
        change = change_of(log, files, rows, whole=known is None)
        if grown is not None:
            change = replace(change, former=change_of(replace(log, schema=grown), (), 0, whole=False).columns)
        number = number_after(max(held or 0, marks.done.number if marks.done else 0))
        coming = CommitRecord(number, identity, upto, columns=log.schema)

        def announce(pieces: Sequence[TableFile]) -> None:
            nonlocal coming
            coming = replace(coming, pieces=tuple(pieces))
            write_marks(directory, state.files, FollowerCommits(marks.done, coming))

        target.publish(number, change, known, announce)
        write_marks(directory, state.files, FollowerCommits(replace(coming, left=target.left()), None))
        return True


def _with_certain_key(spec: TargetSpec, log: OutputEntry) -> TargetSpec:
    """Return a target without a key of its table in a database, where a record of a history may have a null in it: that record would be in its way for ever."""
    kinds = parse_schema(log.schema)
    unsure = spec.history and any(kinds[text.value].nullable for text in spec.history)
    return replace(spec, key=()) if unsure else spec


def _change(
    request: Request,
    name: str,
    path: Path,
    spec: TargetSpec,
    manifest: Manifest,
    log: OutputEntry,
    files: Sequence[FileEntry],
    known: int,
    *,
    whole: bool,
) -> Change:
    """Return the change that a table takes in: the updates of some files of its log but for the `known` first ones, or of the `whole` log."""
    if spec.kind == SPARK and not spec.key:
        files, known, whole = list(log.files), 0, True  # such a table is overwritten
    _, owner = read_owned(path)
    order = owner.order if owner is not None and spec.table and spec.kind != DATABASE else ()
    footer = (tags_metadata(owner.tags, owner.state) if owner is not None else None) or {}
    moved = dict if spec.kind == "parquet" else _of_instants
    schema, time = moved(parse_schema(log.schema)), parse_schema(manifest.cache["time"])
    secret, shown = bytes.fromhex(manifest.identity), order_among(order, log.schema)
    if spec.history:
        columns = history_columns(schema, moved(time))
        key, track = ([text.value for text in texts] for texts in (spec.history, spec.track))
        given = name, path, files, columns, time, secret, whole, True, known, shown, None, footer
        lookup = None if whole else _past(request.state, name, manifest, key)
        begin = None if spec.begin is None else real(locate(request.base, spec.begin.value))
        return HistoryChange(*given, log_files=list(log.files), key=key, track=track, lookup=lookup, begin=begin)
    return Change(name, path, files, schema, time, secret, whole, spec.table, known, shown, None, footer)


def _past(state: Path, name: str, manifest: Manifest, key: Sequence[str]) -> KeyLookup | None:
    """Return the arrangement of an output by the key of its history; None where the state has none with all times since the log's beginning."""
    from ddcli.store.batch.stored_batch import KeyLookup

    identity = manifest.exports.get(HISTORY + name)
    entry = manifest.arrangements.get(identity) if identity is not None else None
    if identity is None or entry is None or set(entry.key) != set(key) or entry.since != ((LEAST,),):
        return None
    return KeyLookup(state, identity, entry, 1, Pool(manifest.secret_bytes))


def _settled(
    marks: FollowerCommits, held: int | None, target: Target, directory: Path, files: Files
) -> FollowerCommits:
    """Return the marks of a table after it was seen whether an announced commit was made."""
    if marks.next is None:
        return marks
    if held == marks.next.number:
        target.discard(marks.next.number, ())
        settled = FollowerCommits(replace(marks.next, left=target.left()), None)
    else:
        there = {piece.name for piece in marks.done.pieces} if marks.done else set()
        target.discard(marks.next.number, [piece for piece in marks.next.pieces if piece.name not in there])
        settled = FollowerCommits(marks.done, None)
    write_marks(directory, files, settled)
    return settled


def _rows(files: Sequence[FileEntry]) -> int:
    return sum(file.rows for file in files)


def _of_instants(columns: Schema) -> Schema:
    """Return the types of columns in a table, which keeps instants without a zone of their own."""
    return {name: in_utc(kind) for name, kind in columns.items()}


@contextmanager
def _opened(
    spec: TargetSpec,
    request: Request,
    key: CommitKey,
    files: Files,
    known: CommitRecord | None,
    loader: Loader | None = None,
) -> Iterator[Target]:
    """Yield the table that an output names. Only the modules of its kind are imported."""
    if spec.kind == "parquet":
        from ddcli.store.targets.file_table import ParquetTarget

        yield ParquetTarget(place_of(spec, request.base), key, files)
    elif spec.kind == "iceberg":
        from ddcli.store.targets.iceberg import IcebergTarget

        catalog, properties = catalog_of(spec.catalog)
        check_catalog(properties)
        iceberg = IcebergTarget(spec.place.value, catalog, properties, key, contents=spec.table)
        iceberg.loader = loader
        yield iceberg
    elif spec.kind == "ducklake":
        from ddcli.store.targets.ducklake import DuckLakeTarget

        check_server(spec.place.value)
        file = catalogue_file(spec.place.value, request.base)
        yield DuckLakeTarget(spec.place.value, file, spec.called, key, files, contents=spec.table)
    elif spec.kind == SPARK:
        from ddcli.store.targets.spark_table import SparkTable

        session = request.asked.resources.spark.session
        if session is None:
            problem = "this is a table of Spark, and no session of Spark is here to read it"
            raise StateError(problem, place=spec.place.value, hint="read it in Spark")
        yield SparkTable(session, stated(spec), key, request.spec.outputs, known)
    elif spec.kind == DATABASE:
        database: Database
        if spec.product == "postgres":
            database = PostgresDatabase(spec.place.value)
            check_server(spec.place.value)
        else:
            database = (DuckdbDatabase if spec.product == "duckdb" else SqliteDatabase)(place_of(spec, request.base))
        parts = [spec.called] if spec.product == "sqlite" else spec.called.split(".")
        unique = [text.value for text in spec.key]
        with database.kept_open():
            yield DatabaseTable(database, parts, key, request.spec.outputs, unique, stated(spec))
    else:
        from ddcli.store.targets.delta import DeltaTarget

        check_package("deltalake")
        delta = DeltaTarget(place_of(spec, request.base), key, files, known, contents=spec.table)
        delta.loader = loader
        yield delta
