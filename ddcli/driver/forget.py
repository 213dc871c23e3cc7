"""`dd forget`: one commit that removes all files which may have held some rows of inputs, and writes what they have without these."""

from __future__ import annotations

import shlex
import time as clock
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ddcli.driver.execute import execute
from ddcli.driver.run import open_state, say_committed
from ddcli.driver.tables import errors_at_tables, update_followers
from ddcli.engine.jit.settings import set_announce
from ddcli.errors import DdError, Span, SpecError, StateError, Text, UnknownColumn, UsageError, suggestion
from ddcli.expressions.types import ColumnScope, in_zone
from ddcli.job.corrections import ErasureRequest, ForgettingSummary
from ddcli.job.request import imports, newest_of, read_request, refuse_code
from ddcli.job.summary import forget_examples
from ddcli.store.log.rows import RowCondition
from ddcli.store.log.schema import LogSchema
from ddcli.store.state.directory import read_holds
from ddcli.store.state.entries import Size
from ddcli.store.state.outputs import check_aside
from ddcli.store.state.shared_arrangements import advance_holds, reading, taken_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ddcli.job.request import Request
    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.manifest import Manifest


def forget(
    path: Path,
    where: str,
    inputs: Sequence[str] = (),
    *,
    state: Path | None = None,
    dry_run: bool = False,
    if_locked: IfLocked = "fail",
    no_code: bool = False,
    memory: int | None = None,
    workers: int | None = None,
    say: Callable[[str], None] | None = None,
) -> ForgettingSummary:
    """Remove the rows of some inputs for which a condition holds from all files of the pipeline file at `path`; return the summary.

    No time is closed. State, outputs and side logs are then as if these rows had never been: by `erasure`, or from the input files that were
    taken in, read again as they are now, by `migration`. The
    commit that names the new files also removes the old ones: a process that dies before it has changed nothing, and after it the next `State.open` finishes.

    Raises a DdError, after which state and outputs are as they were.
    """
    started = clock.perf_counter()
    say = say or (lambda _line: None)
    set_announce(say)
    plain = read_request(path, state, say=say, runs=True)
    plain = plain.asking(resources=plain.asked.resources.limited(memory, workers, "local"))
    plain = plain.deciding(apply=True, refresh=frozenset())
    refuse_code(plain.spec, no_code=no_code)
    if plain.branch:
        hint = "drop the branch, or merge it, and forget the rows in main"
        raise UsageError("a branch has files of main that keep the rows", place=str(path), hint=hint)
    known = newest_of(plain)
    request = with_forgotten_rows(plain, known, where, inputs)
    check_aside(request.aside)
    with nullcontext() if dry_run else open_state(request, if_locked, known) as held:
        if held is not None and held.manifest is not None:
            if held.manifest != known:
                request = with_forgotten_rows(plain, held.manifest, where, inputs)
            _refuse_readers(request.state)
        _refuse_rows_there(request, held.manifest if held is not None else known)
        before = held.manifest if held is not None else known
        wanted = {} if held is None else imports(request)
        try:
            with (
                reading(request.spec.name.value, request.state, wanted, if_locked) as shared,
                errors_at_tables(request),
                update_followers(request, held),
            ):
                execute(request.deciding(shared=shared), before, held)
            after = held.manifest if held is not None else before
            if held is not None:
                if after is not None and wanted:
                    advance_holds(request.spec.name.value, request.state, taken_of(after, wanted))
                forget_examples(request.state, held.files)
                _refuse_readers(request.state)
        except DdError as error:
            say_committed(error, committed=held is not None and held.manifest is not before)
            raise
    found = request.decided.forgetting
    assert found is not None, "it was asked for"
    assert before is not None, "a state without a manifest is refused"
    assert after is not None, "a commit makes one"
    return ForgettingSummary(
        request.spec.name.value,
        clock.perf_counter() - started,
        dry_run,
        found.inputs,
        found.rewritten,
        len(found.kept),
        sum(file.size for file in found.kept),
        Size.of(before.files).bytes,
        Size.of(after.files).bytes,
        found.still_in,
        [
            name
            for name, output in request.spec.outputs.items()
            if output.target is not None and output.target.kind != "parquet"
        ],
        [hold.reader for hold in read_holds(request.state)],
    )


def _refuse_readers(directory: Path) -> None:
    """Raise StateError while another pipeline reads the state: the files that it reads stay until it has ended."""
    for hold in read_holds(directory):
        if hold.branch:
            raise StateError(
                f"the branch '{hold.branch}' has files of the state that may hold the rows",
                place=str(directory),
                hint=f"merge it first, or drop it: `dd branch drop {hold.branch} PIPELINE`",
            )
        if hold.manifest is not None:
            raise StateError(
                f"another pipeline, '{hold.reader}', reads the state right now: files that it reads stay",
                place=str(directory),
                hint=f"repeat this command when it has ended (if it was killed, run it again first); or drop its hold, `dd state release PIPELINE --reader {shlex.quote(hold.reader)}`",
            )


def _refuse_rows_there(request: Request, manifest: Manifest | None) -> None:
    """Raise StateError for a table that still has rows that are to be forgotten."""
    if request.spec.tables and manifest is not None and request.decided.forgetting is not None:
        from ddcli.job.tables import refuse_rows_there

        refuse_rows_there(request.spec, request.base, manifest, request.decided.forgetting.conditions)


def with_forgotten_rows(request: Request, manifest: Manifest | None, where: str, inputs: Sequence[str]) -> Request:
    """Return the request that takes everything in anew without the rows of some inputs for which a condition holds, and closes no time.

    `inputs` names these inputs; if empty, the one input that has the columns of the condition is meant. Raises SpecError for a wrong condition, UsageError
    where several inputs may be meant, StateError without a state.
    """
    if manifest is None:
        hint = "the first `dd run` makes a state; there is nothing to forget"
        raise StateError("there is no state here", place=str(request.state), hint=hint)
    conditions = _conditions(request, manifest, where, inputs)
    return request.deciding(
        refresh=frozenset(),
        apply=True,
        rewrite=frozenset(request.outputs),
        forgetting=ErasureRequest(conditions, frozenset(request.spec.tables)),
        closes=False,
    )


def _conditions(request: Request, manifest: Manifest, where: str, inputs: Sequence[str]) -> dict[str, RowCondition]:
    """Return the inputs whose rows are to be forgotten, each with the condition."""
    known = [name for name in request.spec.inputs if name in manifest.inputs]
    for name in inputs:
        if name not in known:
            hint = suggestion(name, known, f"inputs: {', '.join(known)}")
            raise UsageError(f"the state has no input named '{name}'", place=str(request.spec.path), hint=hint)
    if inputs:
        return {name: _condition(request, manifest, name, where) for name in dict.fromkeys(inputs)}
    found: dict[str, RowCondition] = {}
    missing: UnknownColumn | None = None
    for name in known:
        try:
            found[name] = _condition(request, manifest, name, where)
        except UnknownColumn as error:
            missing = missing or error
    if not found and missing is not None:
        if len(known) > 1:
            missing.hint = f"no input has all columns of the condition; inputs: {', '.join(known)}"
        raise missing
    if len(found) > 1:
        names = " ".join(f"--input {shlex.quote(name)}" for name in found)
        raise UsageError(
            f"{len(found)} inputs have the columns of the condition: {', '.join(found)}",
            place=str(request.spec.path),
            hint=f"name the inputs whose rows to forget: {names}",
        )
    return found


def _condition(request: Request, manifest: Manifest, name: str, where: str) -> RowCondition:
    """Return the condition over the columns of an input as the state knows them."""
    from ddcli.expressions.parse import parse_scalar

    span = Span("--where", 1, 1, len(where), where)
    given = request.spec.inputs[name]
    columns = LogSchema.from_json(manifest.inputs[name].schema).columns
    with in_zone(request.spec.timezone):
        expression = parse_scalar(Text(where, span), ColumnScope(columns))
    if expression.type.kind != "bool":
        raise SpecError(f"the condition is {expression.type}, not true or false", span=span)
    if not expression.columns():
        hint = "`dd reset PIPELINE --outputs` removes everything"
        raise SpecError("the condition names no column: it holds for all rows or none", span=span, hint=hint)
    return RowCondition(expression, frozenset(columns), frozenset(text.value for text in given.key))
