"""The files of a pipeline's inputs, each with its state, for `dd inputs`; the wait until a log is complete, for `dd wait`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import cache
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.engine.times import Frontier, box
from ddcli.errors import InputError, UsageError
from ddcli.job.inputs import change_rules, find_time
from ddcli.job.paths import state_at, state_of
from ddcli.job.summary import read_runs, shown_time
from ddcli.plan.pipeline_file import load_spec
from ddcli.store.files.access import fs, locate
from ddcli.store.files.changes import Waker
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import check_pipeline
from ddcli.store.tables.inventory import list_input
from ddcli.store.texts import format_frontier, format_time, json_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ddcli.spec.model import InputSpec
    from ddcli.store.state.entries import InputFile
    from ddcli.store.state.manifest import Manifest


STATES = (
    "new", "waiting", "read", "grown", "changed", "missing", "repaired", "withdrawn", "archived", "forgotten", "skipped",
)  # fmt: skip
"""The states of a file, in the order of its life; `docs/running.md` explains them."""


class InputFileState(NamedTuple):
    """A file of an input and its state, one of `STATES`. Runs have read so many of its `rows`, and found so many `late`; the last of these made the commit `commit` at the time `read_at`.

    What a state of an earlier version hasn't counted is None. `why` is the error, or the reason why the file is skipped.
    """

    file: str
    state: str
    bytes: int | None = None
    modified: str | None = None
    rows: int | None = None
    late: int | None = None
    commit: int | None = None
    read_at: str | None = None
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return self._asdict() | {"read_at": json_time(self.read_at)}


def input_files(path: Path, state: Path | None = None) -> dict[str, list[InputFileState]]:
    """Return the files of each input of a pipeline file, in the order of their paths; none for tables and arrangements.

    Reads no rows, writes nothing and takes no lock. Raises InputError for an input whose path is missing and that nothing was read of.
    """
    spec, base = load_spec(path), path.absolute().parent
    state = state_at(path, state or state_of(spec, base))
    manifest = read_newest(state)
    if manifest is not None:
        check_pipeline(state, manifest, path)

    @cache
    def began() -> dict[int, str]:
        return {each.number: shown_time(each.began) for each in read_runs(state)}

    return {
        name: sorted(_of_input(given, base, name, manifest, began), key=lambda each: (each.file, each.state))
        if given.in_files and not given.arrangement
        else []
        for name, given in spec.inputs.items()
    }


def _of_input(
    given: InputSpec, base: Path, name: str, manifest: Manifest | None, began: Callable[[], Mapping[int, str]]
) -> Iterator[InputFileState]:
    entry = manifest.inputs.get(name) if manifest is not None else None
    consumed = entry.files if entry is not None else ()
    kinds = list(find_time(manifest).values()) if manifest is not None else []
    replaced = {(each.path, each.commit): each.until for each in (entry.replaced if entry is not None else ())}

    def described(file: InputFile, state: str, why: str | None = None) -> InputFileState:
        modified = datetime.fromtimestamp(file.mtime_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if file.at is not None:  # a file keeps its time of arrival when it is replaced
            read_at: str | None = format_time((replaced.get((file.path, file.commit), file.at),), kinds)
        else:
            read_at = began().get(file.commit) if file.commit else None
        late, commit = (None, None) if file.rows is None else (file.late, file.commit)
        place = file.archived or file.path
        return InputFileState(place, state, file.size, modified, file.rows, late, commit, read_at, why)

    refused: list[tuple[InputFile, InputError]] = []
    try:
        listing = list_input(
            given.path.value,
            base,
            consumed,
            change_rules(given, time_ns() // 1000, consumed),
            emptied=entry is not None and not entry.files,
            refused=refused,
        )
    except InputError as error:
        if not consumed:
            raise
        yield from (described(file, "missing", error.problem) for file in consumed if not file.withdrawn)
        return
    for file in listing.new:
        yield described(file, "repaired" if file.path in listing.amended else "new")
    for file in listing.waiting:
        if file.key not in listing.gone:
            yield described(file, "grown" if file.path in listing.grown else "waiting")
    for file in listing.done:
        if file.key in listing.gone:
            continue
        was = listing.renamed.get(file.path)
        why = f"it was read as '{was}', and is the same" if was is not None else None
        yield described(file, "archived" if file.archived else "forgotten" if file.forgotten else "read", why)
    yield from (described(file, "withdrawn") for file in listing.withdrawn)
    for file in consumed:
        if file.key in listing.gone:
            yield described(file, "missing", "it is gone, and its rows stay")
        if file.key in listing.changed:
            gone = not listing.path(file).exists()
            what = ("missing", "takes out") if gone else ("changed", "replaces")
            yield described(file, what[0], f"the next run {what[1]} its rows")
    for file, refusal in refused:
        gone = not listing.path(file).exists()
        yield described(file, "missing" if gone else "changed", refusal.problem)
    withdrawn = {file.path for file in listing.withdrawn}
    yield from (
        InputFileState(each.path, "skipped", why=each.why) for each in listing.passed if each.path not in withdrawn
    )


PATIENCE = 1.0
"""Seconds between two looks, if the system reports no change."""
AGE = re.compile(r"\d{1,6}\s*[smhdw]")
CALENDAR = ("date", "datetime")


def wait(
    log: str, base: Path, complete: str | None, newer_than: str | None, most: float | None, say: Callable[[str], None]
) -> bool:
    """Return True once the log has closed the times before `complete`, and those that are older than `newer_than`; False after `most` seconds.

    A log that does not exist yet is waited for. `say` gets the obstacle once it is known, if the wait isn't over at once.
    """
    if complete is None and newer_than is None:
        hint = "`--complete T` waits for the times before T, `--newer-than 2h` for times that are at most as old"
        raise UsageError("the wait has no end", hint=hint)
    if newer_than is not None and not AGE.fullmatch(newer_than):
        raise UsageError(f"'{newer_than}' is no age", hint="write it as 90s, 30m, 2h, 1d or 1w")
    wanted = [
        *([] if complete is None else [("--complete", complete)]),
        *([] if newer_than is None else [("--newer-than", f"-{newer_than}")]),
    ]
    place, waker, began, told = locate(base, log), Waker(PATIENCE), time.monotonic(), ""
    if fs(place).is_local and place.is_file():
        hint = "name the directory of an output: `dd state ls PIPELINE` lists them"
        raise UsageError("this is a file, and a log is a directory", place=log, hint=hint)
    while True:
        missing = _missing(log, base, place, wanted)
        if missing is None:
            return True
        left = None if most is None else most - (time.monotonic() - began)
        if missing != told:
            say(missing)
            told = missing
        if left is not None and left <= 0:
            return False
        waker.wait([place, place.parent], left)


def _missing(log: str, base: Path, place: Path, wanted: list[tuple[str, str]]) -> str | None:
    """Return the times that a log still lacks, in words; None if it has all."""
    from ddcli.sources.change_log import ChangeLog  # imports polars, which help does without

    if not fs(place / PROGRESS).exists():
        return f"{log}: no run has written the log yet"
    try:
        found = ChangeLog.open(log, base)
    except InputError as error:
        if fs(place / PROGRESS).exists() and "no updates yet" not in error.problem:
            raise
        return f"{log}: {error.problem}"
    assert found.progress is not None, "it is there"
    for option, text in wanted:
        kinds = list(found.time.values())
        if option == "--newer-than" and any(kind.kind not in CALENDAR for kind in kinds):
            hint = "`--complete T` waits for a time of the log's own"
            raise UsageError(
                f"{option}: the log's time, {', '.join(map(str, kinds))}, has no age", place=log, hint=hint
            )
        frontier = box(found.at(",".join([text] * len(kinds)) if option == "--newer-than" else text, option))
        if not all(frontier.less_equal(element) for element in found.progress.elements):
            closed = format_frontier(Frontier(found.progress.elements), kinds)
            return f"{log}: the times before {closed} are closed"
    return None
