"""What a run is asked for, and whether there is anything to do at all.

A run with nothing new, the usual case under cron, is found out here from names and sizes of files, before a heavy
library is imported.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import field, replace
from functools import reduce
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.engine.times import BEYOND, Frontier, box
from ddcli.errors import InputError, SpecError, SpecErrors, StateError, UsageError, did_you_mean
from ddcli.expressions.types import parse_type
from ddcli.job import kept_plan
from ddcli.job.clock import RunClock, is_due, run_time, time_now, time_text
from ddcli.job.consumed import apart, refuse_shared_files
from ddcli.job.options import SparkOptions
from ddcli.job.paths import log_of, logs_aside, problems_of, state_of, unparsed_below
from ddcli.job.sizes import default_memory, default_workers
from ddcli.job.summary import RunSummary
from ddcli.progress import SILENT, Progress
from ddcli.spec import parse_spec
from ddcli.spec.file import read_text
from ddcli.spec.variables import check_used
from ddcli.store.files.access import real
from ddcli.store.files.objects import locate
from ddcli.store.log.progress import PROGRESS, Owner, read_owned
from ddcli.store.state.contents import unpublished
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import check_outputs, same_outputs
from ddcli.store.state.pipeline_file import check_pipeline
from ddcli.store.state.sharing import find_shared
from ddcli.store.tables.listing import Listing, list_input
from ddcli.store.time_text import format_frontier, parse_until
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.job.budget import RunBudget
    from ddcli.job.forgetting import Forgetting
    from ddcli.job.kept_plan import KeptPlan
    from ddcli.job.options import Engine
    from ddcli.job.standby import Standby
    from ddcli.spec.model import Spec
    from ddcli.store.state.entries import InputEntry, InputFile
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.sharing import Shared


@dataclass(frozen=True)
class Request:
    """One run as it was asked for, beside what the pipeline file says. Paths are absolute; `digest` is the file's."""

    spec: Spec
    digest: str
    base: Path
    state: Path
    outputs: dict[str, Path]
    until: str | None
    say: Callable[[str], None]
    apply: bool = False
    """Whether outputs may be given the difference that a change of the pipeline makes."""
    refresh: frozenset[str] | None = None
    """The outputs to compute anew; none: all, with the inputs read again."""
    rewrite: frozenset[str] = frozenset()
    """The outputs to write from the beginning, in place of the files that they have."""
    memory: int = 0
    """Bytes that the process may have resident."""
    workers: int = 1
    """Threads that shards are stepped in."""
    engine: Engine = "auto"
    """Where to compute; `auto`: on Spark, if its address is known, the stages that exceed this machine's memory."""
    spark: SparkOptions = field(default_factory=SparkOptions)
    ready: Callable[[Path], bool] | None = None
    """Says of new files whether they are taken in now; None: all are."""
    shared: Mapping[str, Shared] = field(default_factory=dict)
    """The imported arrangements, by input, as they are held while the run reads them."""
    progress: Progress = SILENT
    """Gets notified of how far the run is."""
    standby: Standby | None = None
    """What a watch has kept since the last round, and may keep for the next."""
    kept: KeptPlan | None = None
    """What an earlier run kept of the file, where there is one."""
    clock: RunClock = field(default_factory=RunClock)
    included: tuple[Path, ...] = ()
    """The files that the pipeline file includes."""
    withdrawn: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By input the files that are to be withdrawn, as they are called in the state."""
    earlier: Mapping[str, Sequence[InputFile]] = field(default_factory=dict)
    """By input what other states know of its files, for a state that has taken in none of it: which are archived, forgotten or withdrawn."""
    reopened: Frontier | None = None
    """The frontier to which the state is taken back."""
    forgetting: Forgetting | None = None
    """The rows that are forgotten: everything is taken in anew without them."""
    budget: RunBudget | None = None
    """What the run may take, if there is a bound."""
    looked: dict[int, dict[str, InputFiles]] = field(default_factory=dict)
    """The inputs as they were found beside the commit of this number, which is not looked at again where it still is the newest."""
    noted: set[str] = field(default_factory=set)
    """Inputs of which a note has said that their logs are summed up."""
    closes: bool = True
    """Whether times are closed; without, nothing else is done than to withdraw files, or to reopen the state."""

    @property
    def refreshes_all(self) -> bool:
        """Whether nothing of the state is to be kept."""
        return self.refresh is not None and not self.refresh

    @property
    def aside(self) -> list[Path]:
        """The directories that the file names for rows that are put aside."""
        return [locate(self.base, text.value) for _, text in logs_aside(self.spec)]

    @property
    def written(self) -> list[Path]:
        """The directories that may be written to beside the state: those of outputs, and those for rows that are put aside."""
        return [*self.outputs.values(), *self.aside, *self.side_logs]

    @property
    def side_logs(self) -> list[Path]:
        """The directories of logs of rows that are put aside, as far as the file asks for such."""
        late = [late_directory(self, name) for name, given in self.spec.inputs.items() if given.late == "quarantine"]
        if self.spec.errors is None:
            return late
        errors = error_directory(self)
        return [*late, errors, *(unparsed_below(errors, name) for name in self.spec.inputs)]


@dataclass(frozen=True)
class InputFiles:
    """What there is of an input: the upper of its progress, if it carries one, and its files."""

    progress: Frontier | None
    listing: Listing
    shared: Shared | None = None

    def past(self) -> InputFiles:
        """Return what was taken in already."""
        return replace(self, listing=self.listing.past())

    def whole(self) -> InputFiles:
        """Return all that there is, to be read from the beginning."""
        return replace(self, listing=self.listing.whole())

    def arriving(self, time: int) -> InputFiles:
        """Return what there is of an input whose new files have this time."""
        return replace(self, listing=self.listing.arriving(time))

    def mended(self, before: InputEntry) -> InputFiles:
        """Return what there is of an input from which files were withdrawn, those of the same names in their places."""
        return replace(self, listing=self.listing.mended(before.files))

    def known(self, before: InputEntry) -> InputFiles:
        """Return what there is of an input that is taken in anew, of the files that the state has taken in. Raises InputError where one is gone."""
        return replace(self, listing=self.listing.known(before.files))

    def reopened(self, frontier: Frontier) -> InputFiles:
        """Return what there is of an input of a state that is taken back to a frontier: rows at or after it are late no more."""
        return replace(self, listing=self.listing.reopened(frontier.elements))

    def marked(self, before: InputEntry | None) -> InputFiles:
        """Return what there is of an input that is taken in anew, without the rows that earlier runs put aside."""
        return self if before is None else replace(self, listing=self.listing.marked(before.files))


def read_request(
    path: Path,
    state: Path | None,
    until: str | None,
    say: Callable[[str], None],
    *,
    apply: bool = False,
    refresh: frozenset[str] | None = None,
    rewrite: frozenset[str] = frozenset(),
    memory: int | None = None,
    workers: int | None = None,
    engine: Engine = "auto",
    spark: SparkOptions | None = None,
    runs: bool = False,
    now: str | None = None,
) -> Request:
    """Read the pipeline file and return what is asked for, or refuse the file and the paths in it.

    Who `runs` the pipeline is given what an earlier run kept of the file, if there is such: all but the file's tests.
    """
    text = read_text(path)
    kept = kept_plan.load(path, text) if runs else None
    spec = (kept and kept.spec) or parse_spec(text, str(path))
    base = path.absolute().parent
    state = state_of(spec, base) if state is None else state
    outputs = {name: real(log_of(output, base, state)) for name, output in spec.outputs.items()}
    if not outputs:
        raise UsageError("the pipeline has no outputs, so there is nothing to keep up to date", span=spec.name.span)
    if errors := problems_of(spec, base, state.absolute()):
        raise SpecErrors(errors)
    if spec.clock == "arrival" and until is not None:
        hint = "`--now T` gives the run's time; `clock: event` has rows keep the times of a column"
        raise UsageError(
            "under `clock: arrival` a run closes all times up to its own: `--until` has no meaning", hint=hint
        )
    check_used()
    if spec.tables:
        from ddcli.job.tables import at_mirrors

        spec = at_mirrors(spec, base, real(state))
    _check_named(spec, rewrite | (refresh or frozenset()))
    return Request(
        spec,
        _digest(text, spec),
        base,
        real(state),
        outputs,
        until,
        say,
        apply or refresh is not None,
        refresh,
        rewrite,
        memory or default_memory(),
        workers or default_workers(),
        engine,
        spark_of(spec, spark or SparkOptions()),
        kept=kept,
        clock=RunClock(spec.clock == "arrival", time_now(now), now is not None),
        included=tuple(type(path)(file).absolute() for file, _ in spec.fragments),
    )


def _digest(text: str, spec: Spec) -> str:
    """Return the digest of a pipeline file, the files that it includes, and its variables."""
    parts = text
    if spec.fragments or spec.variables:
        parts = repr((text, [digest for _, digest in spec.fragments], spec.variables))
    return hashlib.sha256(parts.encode()).hexdigest()


def error_directory(request: Request) -> Path:
    """Return where the records are logged on which an expression fails."""
    errors = request.spec.errors
    return real(locate(request.base, errors.path.value)) if errors and errors.path else request.state / "errors"


def late_directory(request: Request, name: str) -> Path:
    """Return where the late rows of an input are put aside."""
    given = request.spec.inputs[name]
    return real(locate(request.base, given.quarantine.value)) if given.quarantine else request.state / "late" / name


def spark_of(spec: Spec, given: SparkOptions) -> SparkOptions:
    """Return Spark's place and settings: those of the call before those of the file."""
    declared = spec.spark
    if declared is None:
        return given
    if declared.master and declared.remote:
        hint = "leave out `master`: a server has its own"
        raise SpecError("Spark is in one place: `master` or `remote`", span=declared.remote.span, hint=hint)
    conf, place = {name.value: value.value for name, value in declared.conf}, declared.master or declared.remote
    return replace(given, master=given.master or (place.value if place else None), conf=conf | {**given.conf})


def _check_named(spec: Spec, names: frozenset[str]) -> None:
    """Refuse names that no output has."""
    for name in sorted(names):
        if name not in spec.outputs:
            near = did_you_mean(name, spec.outputs)
            hint = f"did you mean '{near}'?" if near else f"outputs: {', '.join(spec.outputs)}"
            raise UsageError(f"no output is named '{name}'", place=str(spec.path), hint=hint)


def newest_of(request: Request) -> Manifest | None:
    """Return the newest manifest of the state that a request is for, if it has one. Raises StateError if it is another pipeline's."""
    manifest = read_newest(request.state)
    if manifest is not None:
        check_pipeline(request.state, manifest, request.spec.path)
    return manifest


def find_inputs(request: Request, manifest: Manifest | None, *, anew: bool = False) -> dict[str, InputFiles]:
    """Return what there is of each input. Progress is read before files are listed: its writer goes the other way.

    With `anew` all files are new, whatever the state of `manifest` has taken in, but those that were withdrawn. Of a request that
    withdraws files no other file is new than those of the same names, and under the clock of arrivals these are not either; of one
    that reopens the state none is.
    """
    if manifest is not None and not (anew or request.withdrawn or request.reopened):
        known = request.looked.pop(manifest.number, None)
        if known is not None:
            return known
    found = {}
    for name, given in request.spec.inputs.items():
        directory = locate(request.base, given.path.value)
        if given.arrangement is not None:
            shared = request.shared.get(name) or find_shared(directory, given.arrangement.value)
            if len(shared.manifest.cache["time"]) != len(given.time):
                problem = f"the imported arrangement has times of {len(shared.manifest.cache['time'])} coordinates, the input of {len(given.time)}"
                hint = "name the time's columns under the input's `time`"
                raise InputError(problem, place=str(directory), hint=hint)
            found[name] = InputFiles(Frontier(shared.manifest.upper), Listing(directory, ()), shared)
            continue
        progress, owner = read_owned(directory)
        if progress and len(progress[0]) != len(given.time):
            problem = f"the progress has times of {len(progress[0])} coordinates, the input of {len(given.time)}"
            raise InputError(
                problem, place=str(directory / PROGRESS), hint="name the time's columns under the input's `time`"
            )
        if progress is not None and given.archive is not None:
            raise InputError(
                f"the input '{name}' is a log that somebody writes: its files are not archived",
                place=str(directory / PROGRESS),
                hint="leave `consumed` out; what has been read of a log costs nothing",
            )
        entry = manifest.inputs.get(name) if manifest else None
        consumed: Iterable[InputFile] = entry.files if entry else request.earlier.get(name, ())
        begins = anew or entry is None
        if begins:
            consumed = apart(given, request.base, consumed)
        gone = request.withdrawn.get(name, frozenset())
        named = {file.path for file in consumed if file.key in gone} if gone else set[str]()
        if gone:
            consumed = [
                replace(file, withdrawn=True) if file.key in gone else file
                for file in consumed
                if file.key not in gone or not file.forgotten
            ]
        listing = list_input(given.path.value, request.base, consumed, forgets=given.consumed == "forget")
        if progress is not None:
            listing = _of_writer(listing, owner)
        _mind_horizon(request, name, listing, begins=begins)
        if begins:
            listing = listing.anew()
        if request.forgetting is not None:
            listing = listing.archived_as_now()
        if request.withdrawn or request.reopened is not None:
            left = {file.path for file in listing.new if file.path not in named or request.clock.arrival}
            listing = listing.without(left, consumed)
        if request.ready is not None:
            listing = listing.only(request.ready)
        found[name] = InputFiles(None if progress is None else Frontier(progress), listing)
    refuse_shared_files(request.spec, {name: given.listing for name, given in found.items()})
    return found


def _of_writer(listing: Listing, owner: Owner | None) -> Listing:
    """Return the listing of a log whose writer may add to its files, and may say that it begins at a horizon."""
    growing = replace(listing, growing=True)
    return growing if owner is None or owner.horizon is None else growing.not_before((owner.horizon,))


def _mind_horizon(request: Request, name: str, listing: Listing, *, begins: bool) -> None:
    """Note that an input's log which is read from its beginning tells nothing from before its horizon; refuse to take a state back to before that."""
    if listing.horizon is None:
        return
    if begins and name not in request.noted:
        request.noted.add(name)
        request.say(f"inputs.{name}: what is older in its log is summed up; outputs know nothing from before that")
    if request.reopened is not None and request.reopened.less_equal(listing.horizon):
        raise InputError(
            f"the log of the input '{name}' can't be taken back so far: its updates from then on were summed up",
            place=str(listing.root),
            hint="reopen from a later time, or begin anew: `dd run --full-refresh all`",
        )


def imports(request: Request) -> dict[str, tuple[Path, str]]:
    """Return which arrangement of which state each input that is imported is."""
    return {
        name: (real(locate(request.base, given.path.value)), given.arrangement.value)
        for name, given in request.spec.inputs.items()
        if given.arrangement is not None
    }


def is_changed(request: Request, manifest: Manifest, fingerprint: str) -> bool:
    """Say whether a state is not what the plan of this identity wants, or where the file wants it, or is to be computed anew."""
    if request.refresh is not None or request.rewrite or request.withdrawn or request.reopened is not None:
        return True
    if manifest.plan != fingerprint:
        return True
    return same_outputs(request.state, manifest, request.outputs).keys() != request.outputs.keys()


def find_time(manifest: Manifest) -> Schema:
    """Return the time columns of the outputs and their types, as the first run found them."""
    types = {name: parse_type(text) for name, text in manifest.cache["time"].items()}
    return {name: kind for name, kind in types.items() if kind is not None}


def find_upper(
    request: Request, time: Schema, found: Mapping[str, InputFiles], manifest: Manifest | None, seen: Time | None
) -> Frontier | None:
    """Return the frontier up to which a run closes the times, that of its state or one after it; None where there is nothing to go by.

    What `--until` says; else the least upper of the inputs that carry their progress (one that is closed holds nobody
    back); else the box up to `seen`, the largest value of each coordinate in all files so far. Under the clock of arrivals
    that is the time of this run, if a file is new or something is due.
    """
    before = Frontier(manifest.upper) if manifest else None
    arrival = request.clock.arrival
    carried = [given.progress for given in found.values() if given.progress and not arrival]
    if arrival and manifest is not None and is_due(manifest, at := run_time(request.clock, manifest)):
        asked = box((_after(at),))
    elif request.until is not None:
        asked = parse_until(request.until, time)
    elif carried:
        asked = reduce(Frontier.meet, carried)
    elif seen is not None:
        asked = box(tuple(map(_after, seen)))
    else:
        return before
    upper = asked.join(before) if before else asked
    refuse_beyond_imports(request, time, found, upper)
    return upper


def refuse_beyond_imports(request: Request, time: Schema, found: Mapping[str, InputFiles], upper: Frontier) -> None:
    """Refuse to close times that a pipeline from which an arrangement is imported has open: its rows at these would never be taken."""
    for name, given in found.items():
        if (
            given.shared is None
            or request.clock.arrival
            or upper.dominates(theirs := Frontier(given.shared.manifest.upper))
        ):
            continue
        until = format_frontier(theirs, list(time.values()))
        problem = f"the input '{name}' is an arrangement of the pipeline '{given.shared.manifest.name}', which has closed the times before {until} only"
        if request.until is not None:
            raise UsageError(
                f"{problem}: later ones can't be closed here", hint="leave out `--until`, or give an earlier time"
            )
        raise StateError(
            f"{problem}: it was reopened, and its rows from there on would be missing here",
            place=str(given.shared.state),
            hint=f"reopen this pipeline from there too: `dd state reopen {request.spec.path} --from {shlex.quote(until)}`",
        )


def _after(value: int) -> int:
    """Return the upper that closes a coordinate."""
    if value == BEYOND - 1:
        raise InputError(
            f"the time {value} is the largest there is: no upper could close it", hint="use an earlier one"
        )
    return value + 1


def find_seen(manifest: Manifest | None) -> Time | None:
    """Return the largest value of each time coordinate in the files that earlier runs have looked into."""
    seen = manifest.cache["seen"] if manifest else None
    return None if seen is None else tuple(seen)


def nothing_new(request: Request, manifest: Manifest) -> RunSummary:
    """Return the summary of a run that has nothing to do."""
    upper = Frontier(manifest.upper)
    told = format_frontier(upper, list(find_time(manifest).values()))
    return RunSummary(request.spec.name.value, None, told, changed=False, time=time_text(request.clock, upper))


def is_idle(request: Request, manifest: Manifest) -> bool:
    """Say whether no file is new, no progress has moved, and no row that waits may be taken now."""
    if (
        request.refresh is not None
        or request.rewrite
        or manifest.pipeline != request.digest
        or manifest.engine != __version__
        or unpublished(request.state, manifest)
    ):
        return False
    try:
        check_outputs(request.state, manifest, request.outputs)
    except StateError:
        newest = read_newest(request.state)
        if newest is None or newest.number == manifest.number:
            raise
        return False  # another run has committed since
    time, before = find_time(manifest), Frontier(manifest.upper)
    if request.until is not None:
        return find_upper(request, time, {}, manifest, None) == before
    if request.spec.tables:
        from ddcli.job.tables import is_behind

        if is_behind(request.spec, request.base):
            return False
    if request.spec.has_targets:
        from ddcli.job.tables_out import is_followed

        if not is_followed(request.spec, request.base, request.state, manifest):
            return False
    found = find_inputs(request, manifest)
    if not request.spec.tables and not any(each.arrangement or each.archive for each in request.spec.inputs.values()):
        request.looked[manifest.number] = found
    for name, given in found.items():
        entry = manifest.inputs[name]
        if given.shared and (given.shared.identity, given.shared.built) != (entry.identity, entry.built):
            return False
    # A row that waits and may be taken would move the upper: it is at or after the old one.
    return not any(given.listing.new or given.listing.grown or given.listing.unmoved for given in found.values()) and (
        find_upper(request, time, found, manifest, find_seen(manifest)) == before
    )
