"""Tables of other programs around a run: those that are inputs are mirrored before it, those that are outputs follow it."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ddcli.errors import DdError, InputError, StateError, UsageError
from ddcli.spec.model import SPARK
from ddcli.store.files.access import fs, reading
from ddcli.store.state.manifest import read_newest
from ddcli.store.tables.inventory import RESTORE
from ddcli.store.tables.listing import PUT_BACK, fingerprint_of, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.job.request import Request
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import InputFile
    from ddcli.store.targets.file_table import Loader

T = TypeVar("T")
ATTEMPTS = 3
"""The number of attempts to read a state that others change meanwhile."""


@contextmanager
def errors_of_spark() -> Iterator[None]:
    """Turn errors of Spark, which reads or writes a table, into errors for people."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "grpc"):
            raise
        from ddcli.runtime.spark.session import shortened

        raise shortened(str(error)) from error


@contextmanager
def with_session(request: Request, *, of_outputs: bool = False) -> Iterator[Request]:
    """Yield a request with a session of Spark, if some of its inputs (or `of_outputs`) are tables of Spark; a Spark that was started here is stopped.

    Raises UsageError at such a table where no Spark is named.
    """
    spec, spark = request.spec, request.asked.resources.spark
    inputs = [given.origin or given.path for given in spec.tables.values() if given.table == SPARK]
    outputs = [each.target.place for each in spec.outputs.values() if each.target and each.target.kind == SPARK]
    tables = outputs if of_outputs else inputs
    if not tables or spark.session is not None:
        yield request
        return
    from ddcli.engine.jit.settings import cache_dir
    from ddcli.job.tables import STARTS
    from ddcli.runtime.placement import check_installed, start

    check_installed(spark)
    if not spark.ready:
        raise UsageError("this is a table of Spark, and no Spark is named", span=tables[0].span, hint=STARTS)
    request.asked.progress.begin("starting Spark")
    found = start(spark, spec.name.value, cache_dir())
    try:
        yield request.asking(resources=replace(request.asked.resources, spark=replace(spark, session=found.session)))
    finally:
        found.close()


def update_mirrors(request: Request, state: State) -> Request:
    """Return a request with the mirrors in its open state brought up to their tables."""
    from ddcli.job.tables import mirror_tables

    session = request.asked.resources.spark.session
    with errors_of_spark():
        spec = mirror_tables(request.spec, request.base, request.state, state.files, state.manifest, session)
    return replace(request, spec=spec)


def join_mirrors(request: Request, state: State) -> None:
    """Join the small files of mirrors, where there are many that were taken in wholly, and commit that."""
    manifest = state.manifest
    if manifest is None or not fs(state.directory).is_local:
        return
    from ddcli.store.mirrors.mirror import FILES, due, finish_addition, joint_updates, mirror_of, read_mark

    inputs = dict(manifest.inputs)
    with state.begin() as transaction:
        for name in request.spec.tables:
            directory = mirror_of(state.directory, name)
            mark = read_mark(directory)
            if name not in inputs or mark is None or len(inputs[name].files) < FILES:
                continue
            # The files of the last addition stay: a run that settles the mirror renames them, if they still have temporary names.
            files = sorted(inputs[name].files, key=lambda file: file.path)
            older = [file for file in files if file.path not in mark.files]
            last = older[len(older) - due([file.size for file in older]) :]
            if not last or not all(_is_taken(file, arrives=request.clock.arrival) for file in last):
                continue
            addition, _, part = last[-1].path.removesuffix(".parquet").partition("-")
            path = directory / f"{addition}-{int(part) + 1:04d}.parquet"
            data = joint_updates([(directory / file.path, file.at) for file in last])
            transaction.add_output(path, data, first=True)
            for file in last:
                transaction.retire(directory / file.path)
            content = fingerprint_of(io.BytesIO(data), len(data))
            rows = total(file.rows for file in last)
            joint = replace(last[-1], path=path.name, size=len(data), fingerprint=content, rows=rows)
            others = [file for file in files if file not in last]
            inputs[name] = replace(inputs[name], files=tuple(sorted([*others, joint], key=lambda file: file.path)))
        if inputs != manifest.inputs:
            transaction.commit(replace(manifest, inputs=inputs))
            for name in request.spec.tables:
                finish_addition(mirror_of(state.directory, name), state.files)


def _is_taken(file: InputFile, *, arrives: bool) -> bool:
    """Return whether all rows of a file of a mirror are in the state, and none was put aside."""
    return file.done and file.since is None and not file.withdrawn and (file.at is not None) == arrives


def read_settled(request: Request, look: Callable[[], T]) -> T:
    """Return the result of `look` on a state without its lock; look again if a run has joined files of a mirror meanwhile.

    The files are gone then, and a reader of an older commit takes their rows in the joint file for new ones.
    """
    if not request.spec.tables:
        return look()
    for _ in range(ATTEMPTS):
        before = _mirror_files(request)
        try:
            found = look()
        except DdError:
            if before <= _mirror_files(request):
                raise
            continue
        if before <= _mirror_files(request):
            return found
    raise StateError("the state is committed faster than it can be read", place=str(request.state))


def _mirror_files(request: Request) -> set[tuple[str, str]]:
    """Return the files of mirrors that are in the newest commit, each with the name of its input."""
    manifest = read_newest(request.state)
    inputs = {} if manifest is None else manifest.inputs
    return {(name, file.path) for name in request.spec.tables if name in inputs for file in inputs[name].files}


@contextmanager
def tables_as_now(request: Request, *, wanted: bool = True) -> Iterator[Request]:
    """Yield a request with mirrors of the tables as they are now, where that is `wanted`; its state stays as it is."""
    if not (wanted and request.spec.tables):
        yield request
        return
    from ddcli.job.request import newest_of
    from ddcli.job.tables import mirror_apart

    with mirror_apart(request.spec, request.base, newest_of(request), request.asked.resources.spark.session) as spec:
        yield replace(request, spec=spec)


@contextmanager
def update_followers(request: Request, state: State | None) -> Iterator[dict[str, str]]:
    """Bring tables that are outputs up to their logs after the block, whether it succeeds or not: the run before may have died.

    Yield a mapping that has these tables and their places when all is done.
    """
    done: dict[str, str] = {}
    if state is None or not request.spec.has_targets:
        yield done
        return
    try:
        yield done
    except DdError:
        with suppress(DdError):  # the first error is the one to report
            _follow(request, state)
        raise
    done.update(_follow(request, state))


def _follow(request: Request, state: State) -> dict[str, str]:
    """Bring tables that are outputs up to their logs, through Spark's session where they are its tables; return their places."""
    from ddcli.job.tables import is_followed
    from ddcli.sinks.followers import follow

    if state.manifest is None or is_followed(request.spec, request.base, request.state, state.manifest):
        return {}
    with with_session(request, of_outputs=True) as connected, errors_of_spark():
        return follow(connected, state, _loader(connected))


def _loader(request: Request) -> Loader | None:
    """Return the way to have tasks on Spark write files of tables; None where the run may not use Spark, so that it imports nothing for it."""
    resources = request.asked.resources
    if resources.engine == "local" or not (resources.engine == "spark" or resources.spark.ready):
        return None
    from ddcli.runtime.table_load import TableLoader

    return TableLoader(request)


FORGOTTEN = "if `dd forget` was interrupted, repeat it; otherwise restore the state from a backup, or start again: `dd reset PIPELINE --outputs`"
"""The hint for a mirror's file that differs from the one that a run has taken in."""
ROW = re.compile(r"(,?) (?:first )?in row ([0-9]+)(?: \(counted from 0\))?")
"""The form in which a message names a row of a file."""


@contextmanager
def errors_at_tables(request: Request) -> Iterator[None]:
    """Have errors of a mirror's files name the table and the record: no person wrote these files, or can mend them."""
    try:
        yield
    except InputError as error:
        file = Path(error.place or "")
        given = next((one for one in request.spec.tables.values() if Path(one.path.value) == file.parent), None)
        if given is None or given.origin is None:
            raise
        hint = FORGOTTEN if error.choices[:1] in (PUT_BACK[:1], RESTORE[:1]) else error.hint
        problem = ROW.sub(lambda found: _record(file, int(found[2])), error.problem)
        whole = f"inputs.{given.name.value}: {problem}"
        raise InputError(whole, span=given.origin.span, hint=hint) from None


def _record(path: Path, row: int) -> str:
    """Return a record of a mirror as a message shows it: its values, but for times, which may be beyond all calendars."""
    import polars as pl

    from ddcli.store.mirrors.source import OWN

    with reading(path) as file:
        frame = pl.scan_parquet(file).slice(row, 1).select(~pl.selectors.temporal()).drop(OWN, strict=False).collect()
    shown = ", ".join(f"{name} = {value}" for name, value in (frame.row(0, named=True) if frame.height else {}).items())
    return f", in the record where {shown}" if shown else ""
