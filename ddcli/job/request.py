"""The request of a run: the pipeline file, its state and its outputs, the options of the call, its clock, and the decisions; the Python functions that a file names.

Under `clock: arrival` all updates that a run reads have its time. It is in microseconds of UTC, and strictly after the times of earlier runs. The
commit records it: a run that dies leaves none. A run under a clock that was ahead would move "now" for good. So a time that is stated may not be far
ahead of the clock, and a run whose last one is far ahead of it is refused: the state is reopened, or the clock is set.

The functions are all forbidden, or loaded, before anything is computed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import time
from dataclasses import field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import SILENT, Progress
from ddcli.errors import SpecError, SpecErrors, StateError, UsageError, suggestion
from ddcli.expressions.types import ARRIVAL_TIME
from ddcli.job import kept_plan
from ddcli.job.paths import at_branch, log_of, logs_aside, problems_of, state_at, state_of, unparsed_below
from ddcli.job.sizes import Resources, SparkOptions
from ddcli.privacy import hide, unknown_tags
from ddcli.spec.file import AT, check_used, read_text
from ddcli.spec.model import SPARK, PythonFunction
from ddcli.store.files.access import locate, real
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import check_pipeline
from ddcli.store.texts import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from polars import DataFrame

    from ddcli.engine.times import Frontier
    from ddcli.errors import Text
    from ddcli.job.budget import RunBudget
    from ddcli.job.corrections import ErasureRequest
    from ddcli.job.kept_plan import KeptPlan
    from ddcli.job.options import WatchCache
    from ddcli.plan.generations import Plan
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.spec.model import SparkSpec, Spec
    from ddcli.store.log.rows import RowChange, Rows
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.outputs import Owner
    from ddcli.store.state.shared_arrangements import Shared
    from ddcli.store.tables.listing import Listing


MICROSECOND = 1000
"""Nanoseconds."""
SECOND = 1_000_000
"""Microseconds."""
NOTED, AHEAD = 60 * SECOND, 86_400 * SECOND
"""The distances that the time of a run may be ahead of the clock without a note, and at all."""


@frozen
class RunClock:
    """The clock of a request: `arrival` if rows have the time of the run that takes them in, and the present time, which the caller may have `given`."""

    arrival: bool = False
    now: int = 0
    given: bool = False


def time_now(given: str | None) -> int:
    """Return the present time, or the time that `--now` states. Raises UsageError if that is more than a day ahead."""
    now = time.time_ns() // MICROSECOND
    if given is None:
        return now
    (at,) = parse_time(given, {"time": ARRIVAL_TIME}, "--now", "clock's")
    if at > now + AHEAD:
        raise UsageError(
            f"`--now {given}` is more than a day ahead of the clock, which is at {_text(now // SECOND * SECOND)}",
            hint="give an earlier time, or set the clock: no later run could have a time before it",
        )
    return at


def refuse_clock(clock: RunClock, manifest: Manifest, pipeline: Path) -> str | None:
    """Return a note if the last run's time is ahead of the clock, under the clock of arrivals. Raises StateError if it is more than a day ahead."""
    if not clock.arrival or clock.given or (first := _first(manifest.upper)) is None:
        return None
    ahead, last = first - 1 - clock.now, _text((first - 1) // SECOND * SECOND)
    if ahead > AHEAD:
        now = _text(clock.now // SECOND * SECOND)
        raise StateError(
            f"the time of the last run, {last}, is more than a day ahead of the clock, which is at {now}",
            place=str(pipeline),
            hint=f"if the clock is behind, set it; if it was ahead then, take back the runs from now on: `dd state reopen {shlex.quote(str(pipeline))} --from '{now}'`",
        )
    return (
        f"the time of the last run, {last}, is ahead of the clock: this one's is just after it"
        if ahead > NOTED
        else None
    )


def run_time(clock: RunClock, manifest: Manifest | None) -> int:
    """Return the time of a run after the last one of a state: the clock's, but always later than earlier runs'.

    Raises UsageError if `--now` states a time that is not later.
    """
    first = None if manifest is None else _first(manifest.upper)
    if first is None:
        return clock.now
    if clock.now < first and clock.given:
        problem = f"the time of a run is after the last one's: {_text(clock.now)} is before {_text(first)}"
        raise UsageError(problem, hint="give a later time with `--now`, or leave it out")
    return max(clock.now, first)


def last_time(manifest: Manifest) -> int:
    """Return the time of the last run of a state."""
    first = _first(manifest.upper)
    assert first is not None, "a state without a last run"
    return first - 1


def _first(upper: Times) -> int | None:
    """Return the first open time, of times of one coordinate."""
    return upper[0][0] if len(upper) == 1 and len(upper[0]) == 1 else None


def time_text(clock: RunClock, upper: Frontier | None) -> str | None:
    """Return the time of the run that closed the times up to a frontier, as a person reads it; None under another clock."""
    first = _first(upper.elements) if upper and clock.arrival else None
    return None if first is None else _text(first - 1)


def is_due(manifest: Manifest, at: int) -> bool:
    """Return whether something in a state waits for a time that is not after this one."""
    due = manifest.cache.get("due")
    return due is not None and bool(due <= at)


def kept_clock(manifest: Manifest) -> str:
    """Return the clock of a state."""
    return str(manifest.cache.get("clock", "event"))


def _text(at: int) -> str:
    return format_time((at,), [ARRIVAL_TIME])


@dataclass(frozen=True)
class Decisions:
    """The decisions about the state before a run changes it: asked for in the call, or following from the state and the inputs that were found."""

    apply: bool = False
    """True: outputs may get the difference that a change of the pipeline makes."""
    refresh: frozenset[str] | None = None
    """The outputs to compute anew; empty: all, with the inputs read again."""
    rewrite: frozenset[str] = frozenset()
    """The outputs to write from the beginning, in place of the files that they have."""
    added: Mapping[str, Sequence[InputFile]] = field(default_factory=dict)
    """Files elsewhere that inputs have beside those in their directories, by input: they count as archived ones."""
    withdrawn: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The files that are to be withdrawn, by input, under their names in the state."""
    copies: Mapping[str, Path] = field(default_factory=dict)
    """The directories that have the withdrawn files as they were taken in, by input: then a run takes in the difference to these. Empty: the inputs are read again."""
    reopened: Frontier | None = None
    """The frontier to which the state is taken back."""
    forgetting: ErasureRequest | None = None
    """The rows that are forgotten: everything is taken in anew without them."""
    changed: Mapping[str, RowChange] = field(default_factory=dict)
    """The new values of rows, by input, in a dry run: each of these inputs has an entry in `withdrawn`, too, so that what depends on it is built anew, unless the run takes in a difference."""
    concerned: Mapping[str, Rows] = field(default_factory=dict)
    """The rows with new values, and maybe others, by input, where they were looked for: then a dry run takes in the difference alone."""
    accepts: Mapping[str, str] = field(default_factory=dict)
    """The checks that may fail in this run, each with the user and the reason."""
    joint: bool = False
    """True: all that the run does is one commit."""
    closes: bool = True
    """True: the run closes times; else it only withdraws files, or reopens the state."""
    shared: Mapping[str, Shared] = field(default_factory=dict)
    """The imported arrangements, by input, which are held while the run reads them."""
    earlier: Mapping[str, Sequence[InputFile]] = field(default_factory=dict)
    """The archived, forgotten or withdrawn files of an input that other states know, for a state that has taken in none of it."""

    @property
    def refreshes_all(self) -> bool:
        """Return whether nothing of the state is to be kept."""
        return self.refresh is not None and not self.refresh


@dataclass(frozen=True)
class CallOptions:
    """The part of a request that its caller has asked for: the times to close, resources and bounds, and the receivers of what a run makes."""

    until: str | None = None
    """The time before which all times are closed."""
    resources: Resources = field(default_factory=Resources)
    budget: RunBudget | None = None
    """The bounds on the run's cost, if there are any."""
    say: Callable[[str], None] = lambda _line: None
    """The receiver of lines for people."""
    noted: set[str] = field(default_factory=set)
    """The lines that are printed only once, as far as they were."""
    progress: Progress = SILENT
    """The receiver of the run's progress."""
    ready: Callable[[Path], bool] | None = None
    """The test whether a new file may be taken in now; None: all are."""
    watch_cache: WatchCache | None = None
    """The memory of a watch from the last round, and for the next."""
    claims: bool = True
    """True: states whose logs the run reads keep the updates that it lacks. False for a state that is removed at the end of its command."""
    receives: Callable[[str, DataFrame], None] | None = None
    """The receiver of the updates of each output in a dry run, as logs would have them."""
    planned: Callable[[BoundPipeline, Plan], None] | None = None
    """The receiver of the plan of a dry run, and of the file that it is made from."""
    arranged: Callable[[dict[str, int]], None] | None = None
    """The receiver of the fingerprints of the arrangements that a dry run has built in this process."""
    at_hand: Mapping[Path, Path] = field(default_factory=dict)
    """The copies of files of outputs, by path, that a dry run reads in their place."""


@dataclass(frozen=True)
class Request:
    """The request of one run: the model of the pipeline file as it was found, with what the caller has `asked` for, and the decisions about the state. Paths are absolute; `digest` is the file's."""

    spec: Spec
    digest: str
    base: Path
    state: Path
    outputs: dict[str, Path]
    asked: CallOptions = field(default_factory=CallOptions)
    clock: RunClock = field(default_factory=RunClock)
    decided: Decisions = field(default_factory=Decisions)
    branch: str = ""
    """The branch of the state that the request is for; empty: main."""
    kept: KeptPlan | None = None
    """The file's meaning as an earlier run kept it, if one did."""
    included: tuple[Path, ...] = ()
    """The files that the pipeline file includes."""

    def asking(self, **asked: Any) -> Request:
        """Return the request with other options of the call."""
        return replace(self, asked=replace(self.asked, **asked))

    def say_once(self, line: str) -> None:
        """Print a line for people that no attempt at the run has printed."""
        if line not in self.asked.noted:
            self.asked.noted.add(line)
            self.asked.say(line)

    def deciding(self, **decided: Any) -> Request:
        """Return the request with other decisions."""
        return replace(self, decided=replace(self.decided, **decided))

    @property
    def aside(self) -> list[Path]:
        """The directories that the file names for rows that are put aside."""
        return [locate(self.base, text.value) for _, text in logs_aside(self.spec)]

    @property
    def written(self) -> list[Path]:
        """The directories that may be written to beside the state: for outputs, and for rows that are put aside."""
        return [*self.outputs.values(), *self.aside, *self.side_logs]

    @property
    def side_logs(self) -> list[Path]:
        """The directories of the logs of rows that the file wants to be put aside."""
        late = [late_directory(self, name) for name, given in self.spec.inputs.items() if given.late == "quarantine"]
        if self.spec.errors is None:
            return late
        errors = error_directory(self)
        return [*late, errors, *(unparsed_below(errors, name) for name in self.spec.inputs)]


def _parsed(text: str, path: Path, queries: Mapping[str, Sequence[str]] | None) -> Spec:
    """Return the model of a file that no earlier run has kept."""
    from ddcli.plan.pipeline_file import parse_spec

    return parse_spec(text, str(path), queries)


def read_request(
    path: Path,
    state: Path | None = None,
    until: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
    *,
    runs: bool = False,
    now: str | None = None,
    base: Path | None = None,
    branches: bool = True,
    queries: Mapping[str, Sequence[str]] | None = None,
) -> Request:
    """Read the pipeline file and return its request. Raises the errors of the file and of its paths.

    Its relative paths are below `base`, by default the file's directory. The file of a branch, `sales@q4.yaml`, has its state and its outputs beside main's,
    unless a caller wants no `branches`. A caller that `runs` the pipeline gets the meaning of the file that an earlier run kept, if there is one: all but the file's tests.
    `queries` that were parsed before are not parsed again (see `parse_spec`).
    """
    text = read_text(path)
    branch = path.stem.partition(AT)[2] if branches else ""
    kept = kept_plan.load(path, text) if runs and not branch else None
    spec = kept.spec if kept is not None and kept.spec is not None else _parsed(text, path, queries)
    hide_declared(spec)
    base = base or path.absolute().parent
    state = state_of(spec, base) if state is None else state
    if branch:
        own = state_at(path, state)
        branch, state, spec = ("", state, spec) if own == state else (branch, own, at_branch(spec, branch))
    outputs = {name: real(log_of(output, base, state)) for name, output in spec.outputs.items()}
    if not outputs:
        raise UsageError("the pipeline has no outputs, so there is nothing to keep up to date", span=spec.name.span)
    if errors := problems_of(spec, base, state.absolute()):
        raise SpecErrors(errors)
    if spec.clock == "arrival" and until is not None:
        hint = "`--now T` sets the time of the run; under `clock: event` rows keep the times of a column"
        raise UsageError(
            "under `clock: arrival` a run closes all times up to its own: `--until` has no meaning", hint=hint
        )
    check_used()
    if spec.tables:
        from ddcli.job.tables import at_mirrors

        spec = at_mirrors(spec, base, real(state), runs=runs)
    return Request(
        spec,
        _digest(text, spec),
        base,
        real(state),
        outputs,
        CallOptions(until, Resources(spark=spark_of(spec)), say=say, claims=not branch),
        RunClock(spec.clock == "arrival", time_now(now), now is not None),
        kept=kept,
        branch=branch,
        included=tuple(type(path)(file).absolute() for file, _ in spec.fragments),
    )


def _digest(text: str, spec: Spec) -> str:
    """Return the digest of a pipeline file, the files that it includes, and its variables."""
    parts = text
    if spec.fragments or spec.variables:
        parts = repr((text, [digest for _, digest in spec.fragments], spec.variables))
    return hashlib.sha256(parts.encode()).hexdigest()


def error_directory(request: Request) -> Path:
    """Return the log of records on which an expression fails."""
    errors = request.spec.errors
    return real(locate(request.base, errors.path.value)) if errors and errors.path else request.state / "errors"


def late_directory(request: Request, name: str) -> Path:
    """Return the directory of an input's late rows."""
    given = request.spec.inputs[name]
    return real(locate(request.base, given.quarantine.value)) if given.quarantine else request.state / "late" / name


def spark_of(spec: Spec) -> SparkOptions:
    """Return the file's Spark: its place and settings."""
    declared = spec.spark
    if declared is None:
        return SparkOptions()
    if declared.master and declared.remote:
        hint = "leave out `master`: a server has its own"
        raise SpecError("Spark is in one place: `master` or `remote`", span=declared.remote.span, hint=hint)
    place = declared.master or declared.remote
    return SparkOptions(place.value if place else None, {name.value: value.value for name, value in declared.conf})


def check_outputs(spec: Spec, names: frozenset[str]) -> None:
    """Refuse names that no output has."""
    for name in sorted(names):
        if name not in spec.outputs:
            own = [output for output in spec.outputs if output not in spec.checks]
            hint = suggestion(name, spec.outputs, f"outputs: {', '.join(own)}")
            raise UsageError(f"no output is named '{name}'", place=str(spec.path), hint=hint)


def hide_declared(spec: Spec) -> None:
    """Hide the columns that inputs declare with tags, before any file is read. Raises UsageError for `--show` with a tag that no column has."""
    declared: dict[str, tuple[str, ...]] = {}
    for given in spec.inputs.values():
        for column, tags in given.tags.items():
            for name in (column, *given.former.get(column, ())):
                declared[name] = (*declared.get(name, ()), *tags)
    hide(declared)
    if declared and (unknown := unknown_tags(declared)):
        known = sorted({tag for tags in declared.values() for tag in tags})
        hint = suggestion(unknown[0], known, f"its tags are: {', '.join(known)}")
        raise UsageError(f"no column has the tag '{unknown[0]}'", place=str(spec.path), hint=hint)


def newest_of(request: Request) -> Manifest | None:
    """Return the newest manifest of the state that a request is for, if it has one. Raises StateError if it is another pipeline's."""
    manifest = read_newest(request.state)
    if manifest is not None:
        check_pipeline(request.state, manifest, request.spec.path)
    return manifest


def _of_writer(listing: Listing, owner: Owner | None) -> Listing:
    """Return the listing of a log whose writer may add to its files, and may state the horizon at which it begins."""
    growing = replace(listing, growing=True)
    return growing if owner is None or owner.horizon is None else growing.not_before((owner.horizon,))


def imports(request: Request) -> dict[str, tuple[Path, str]]:
    """Return the state and the name of each imported arrangement, by input."""
    return {
        name: (real(locate(request.base, given.path.value)), given.arrangement.value)
        for name, given in request.spec.inputs.items()
        if given.arrangement is not None
    }


NO_CODE = "DDCLI_NO_CODE"
IN_PROCESS = re.compile(r"local(\[[0-9*]+(, *[0-9]+)?\])?")
"""The masters that run in this process: `local`, `local[4]`, `local[*, 2]`."""


def functions_of(spec: Spec) -> Iterator[PythonFunction]:
    """Yield the functions that a file names."""
    pending: list[Any] = [*spec.collections.values()]
    while pending:
        each = pending.pop()
        if isinstance(each, PythonFunction):
            yield each
        elif is_dataclass(each):
            pending += [getattr(each, field.name) for field in fields(each)]
        elif isinstance(each, tuple | dict):
            pending += each.values() if isinstance(each, dict) else each


def refuse_code(spec: Spec, *, no_code: bool = False) -> None:
    """Raise SpecErrors at each function that a file names, at its queries in Spark and its settings of Spark, if none of its code may run.

    `no_code`, or DDCLI_NO_CODE, forbids it. The command line's settings of Spark are allowed: they aren't the file's.
    """
    if not no_code and os.environ.get(NO_CODE, "") in ("", "0"):
        return
    word = "--no-code" if no_code else f"{NO_CODE}={os.environ[NO_CODE]}"
    errors = []
    for function in functions_of(spec):
        name = function.name.value
        problem = f"the Python function `{name}` would run, which {word} forbids"
        hint = f"read module `{name.partition(':')[0]}`, and leave {word} out if you trust it; `check`, `plan` and `explain` run no code"
        errors.append(SpecError(problem, span=function.name.span, hint=hint))
    for given in spec.inputs.values():
        # Functions of Spark's SQL call any method of Java, and read any file.
        if given.table == SPARK and given.query is not None:
            problem = f"inputs.{given.name.value}.spark: a query in Spark may call code of Java, which {word} forbids"
            errors.append(
                SpecError(problem, span=given.query.span, hint="name a `table`, perhaps a view of this query")
            )
    for text in _brings_code(spec.spark):
        problem = f"`spark`: '{text.value}' may bring code to run, which {word} forbids"
        errors.append(SpecError(problem, span=text.span, hint="name Spark's address with --master and --conf"))
    if errors:
        raise SpecErrors(errors)


def _brings_code(spark: SparkSpec | None) -> list[Text]:
    """Return the values of a file's `spark` that may bring code: all but a master in this process.

    Settings name jars, programs, agents and servers that get credentials, and new ones with each version of Spark, so none is allowed by its name. A Spark
    elsewhere sends data that is unpickled here.
    """
    if spark is None:
        return []
    addresses = [one for one in (spark.master, spark.remote) if one is not None and not IN_PROCESS.fullmatch(one.value)]
    return [*addresses, *(name for name, _ in spark.conf)]


def load_functions(spec: Spec) -> None:
    """Import the modules of all functions that a file names. They lie beside the file, wherever its data are. Raises SpecErrors with each that can't be imported, at its place."""
    errors, folder = [], spec.path.absolute().parent
    for function in functions_of(spec):
        from ddcli.expressions.python import Named, define, load_function

        name = function.name
        try:
            load_function(Named(name.value, str(folder), define(name.value, str(folder)).text, span=name.span))
        except SpecError as error:
            errors.append(SpecError(error.problem, span=name.span, hint=error.hint))
    if errors:
        raise SpecErrors(errors)
