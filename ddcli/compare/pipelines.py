"""The comparison of two pipeline files on the present inputs: each is run aside, from nothing, and the results are compared by output.

Archived files are read in their archives, and withdrawn ones are skipped, according to the states of both pipelines. State, outputs and
rows that are put aside are in a scratch directory, so no existing file is touched.

The pipeline file of a git revision is written there, too, with the files that it includes and its Python modules. Its data stay where they are:
relative paths in it are relative to the directory of the present file.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ddcli.compare.diff import compare, compare_named
from ddcli.compare.sides import SideReader, named_side, open_sides
from ddcli.dataclass import dataclass, frozen
from ddcli.driver.prepare import bind_remembered, prepare
from ddcli.errors import DdError, InputError, StateError, UsageError, suggestion
from ddcli.job.consumed_files import not_taken_in
from ddcli.job.request import read_request, refuse_code
from ddcli.plan.lineage import reach_of_edits
from ddcli.plan.pipeline_file import read_spec, work_regressions
from ddcli.spec.file import ENDINGS
from ddcli.store.files.access import locate, real
from ddcli.store.state.directory import State
from ddcli.store.state.manifest import read_newest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ddcli.compare.columns import Settings
    from ddcli.compare.diff import Difference
    from ddcli.job.request import Request
    from ddcli.plan.generations import Plan
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.spec.model import Spec
    from ddcli.store.state.entries import InputFile
    from ddcli.store.state.manifest import Manifest


WRITTEN = (*ENDINGS, ".py")
"""The endings of the files that a pipeline file may need."""
REGULAR = (b"100644", b"100755")
"""The modes of regular files: a link is not written."""
PATIENCE = 120
"""The most seconds for a call of git."""


@frozen
class Version:
    """A version of a pipeline file: `path` is its text, `base` the directory of its relative paths, `label` its name for people."""

    path: Path
    base: Path
    label: str


def present(path: Path) -> Version:
    """Return the version of a pipeline file that is in the directory."""
    return Version(path, path.absolute().parent, str(path))


def at_revision(path: Path, revision: str, scratch: Path) -> Version:
    """Write the pipeline files and Python modules of a revision below `scratch`, and return the version of `path` among them.

    Raises UsageError if there is no repository, revision, or file in it.
    """
    base = path.absolute().parent
    top = Path(_git(base, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    # Below the root git names files with links resolved, so `path` has to be named so, too.
    own = PurePosixPath((path.absolute().parent.resolve() / path.name).relative_to(top.resolve()))
    commit = _git(base, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", of=revision)
    tree = _git(top, "ls-tree", "-r", "-z", commit.decode().strip())
    objects: dict[bytes, str] = {}
    for line in filter(None, tree.split(b"\0")):
        facts, _, file = line.partition(b"\t")
        mode, _, name = facts.split(b" ")
        if mode in REGULAR and file.decode(errors="surrogateescape").endswith(WRITTEN):
            objects[file] = name.decode()
    if str(own).encode() not in objects:
        raise UsageError(f"the revision '{revision}' has no such file", place=str(path), hint="name one that has it")
    texts = _git(top, "cat-file", "--batch", given="".join(f"{name}\n" for name in objects.values()).encode())
    for file in objects:
        header, _, texts = texts.partition(b"\n")
        size = int(header.split(b" ")[2])
        place = scratch / file.decode(errors="surrogateescape")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(texts[:size])
        texts = texts[size + 1 :]
    return Version(scratch / own, base, f"{path} at {revision}")


def _git(folder: Path, *words: str, given: bytes = b"", of: str | None = None) -> bytes:
    """Return the output of a call of git in a directory. `of` is the revision that it looks for."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell; a revision stands behind --end-of-options
            ["git", "-C", str(folder), *words],  # noqa: S607 - the person's git
            input=given,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
    except FileNotFoundError:
        raise UsageError("`--base` needs git, and there is none on the PATH", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git has not answered in {PATIENCE} seconds", place=str(folder)) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        if of is not None:
            raise UsageError(f"git knows no revision '{of}'", place=str(folder), hint="fetch it first: `git fetch`")
        raise UsageError(f"git: {said}", place=str(folder))
    return done.stdout


@dataclass
class Differences:
    """The differences between the outputs of two pipelines, by the output's name; and the outputs that only one has."""

    outputs: dict[str, Difference] = field(default_factory=dict)
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    """The checks that would stop a run of B, with their violations."""

    @classmethod
    def of(cls, chosen: Sequence[str], a: Collection[str], b: Collection[str]) -> Differences:
        """Return the chosen outputs that only one side has; the others are still to be compared."""
        only_a, only_b = (tuple(name for name in chosen if name not in other) for other in (b, a))
        return cls(only_a=only_a, only_b=only_b)

    @property
    def same(self) -> bool:
        """Return whether there is no difference that counts."""
        return not (self.only_a or self.only_b) and all(found.same for found in self.outputs.values())

    @property
    def ok(self) -> bool:
        """Return whether there is no difference, or none larger than allowed for its output, and no check fails."""
        return not (self.only_a or self.only_b or self.failing) and all(found.ok for found in self.outputs.values())

    def lines(self) -> list[str]:
        """Return the notes, the outputs that only one side has, and the checks that fail."""
        lines = [
            f"output {name}: only in {side}"
            for side, names in (("A", self.only_a), ("B", self.only_b))
            for name in names
        ]
        fails = (f"check {line}" for line in self.failing)
        return [*(f"note: {line}" for line in self.notes), *lines, *fails]


def compare_pipelines(
    a: Version,
    b: Version,
    settings: Callable[[str], Settings],
    *,
    select: Sequence[str] = (),
    as_of: Any = None,
    memory: int | None = None,
    no_code: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Differences:
    """Run two pipelines over their inputs and compare their outputs; `settings` returns the settings of an output.

    Outputs are read as of `as_of`, else with all updates. Raises UsageError for a selected output that neither has, and for a
    pipeline that imports an arrangement: reading it would need a hold in the exporter's state.
    """
    for version in (a, b):
        read_spec(
            version.path
        )  # collects the variables of both files, before either is refused for a variable that it lacks
    requests = [read_request(version.path, base=version.base) for version in (a, b)]
    left, right = (request.spec for request in requests)
    for request in requests:
        _refuse_imports(request)
        refuse_code(request.spec, no_code=no_code)
    manifests = [read_newest(request.state) for request in requests]
    earlier = [
        _earlier(request, [*zip(requests, manifests, strict=True)][::way])
        for request, way in zip(requests, (1, -1), strict=True)
    ]
    chosen = chosen_outputs([*dict.fromkeys([*left.outputs, *right.outputs])], select)
    both = [name for name in chosen if name in left.outputs and name in right.outputs]
    wanted = {name: settings(name) for name in both}
    _check_columns(requests, wanted)
    found = Differences.of(chosen, left.outputs, right.outputs)
    found.notes = (*_different_places(*requests), *_not_taken_in(requests, earlier))
    with tempfile.TemporaryDirectory(prefix="dd-diff-", ignore_cleanup_errors=True) as scratch:
        folders = [Path(scratch) / name for name in ("a", "b")]
        committed = []
        for version, known, folder, name in zip((a, b), earlier, folders, ("A", "B"), strict=True):
            say(f"running {name}: {version.label}")
            committed.append(run_aside(version, folder, memory, known))
        bounds = [bind_remembered(request, manifest) for request, manifest in zip(requests, committed, strict=True)]
        found.notes += regressions(committed[0], bounds[1], bounds[1].plan(committed[1].cache["plan"]), "in A")
        found.notes += tuple(each.note for each in reach_of_edits(*bounds))
        for name in both:
            given = [
                named_side(str(_output(folder, name)), SideReader(_times(left), as_of=as_of), name)
                for folder in folders
            ]
            sides = [
                replace(side, label=f"{version.label}: {name}")
                for side, version in zip(open_sides(given[0], given[1]), (a, b), strict=True)
            ]
            found.outputs[name] = compare(sides[0], sides[1], wanted[name], memory)
    return found


def compare_branches(
    a: Path,
    b: Path,
    settings: Callable[[str], Settings],
    *,
    select: Sequence[str] = (),
    as_of: Any = None,
    memory: int | None = None,
) -> Differences:
    """Compare the outputs of two branches, or of a branch and main, as their states have committed them; nothing is computed. Raises StateError where there is no state."""
    requests = [read_request(path) for path in (a, b)]
    for request in requests:
        if read_newest(request.state) is None:
            raise StateError(
                "there is no state to compare",
                place=str(request.spec.path),
                hint="run it, or name a branch of `dd branch ls`",
            )
    left, right = (request.outputs for request in requests)
    chosen = chosen_outputs([*dict.fromkeys([*left, *right])], select)
    found = Differences.of(chosen, left, right)
    reader = SideReader(as_of=as_of)
    for name in chosen:
        if name in left and name in right:
            sides = [(str(outputs[name]), reader) for outputs in (left, right)]
            found.outputs[name] = compare_named(sides[0], sides[1], settings(name), memory)
    return found


def _check_columns(requests: Sequence[Request], wanted: Mapping[str, Settings]) -> None:
    """Refuse names of columns that no output has, before anything is computed; where columns are unknown the comparison itself does."""
    if any(request.spec.tables for request in requests):  # only a run mirrors these
        return
    try:
        graphs = [prepare(request, None).bound.graph for request in requests]
    except DdError:
        return  # the run reports it
    for name, settings in wanted.items():
        settings.check([*dict.fromkeys(column for graph in graphs for column in graph.outputs[name].schema)])


def run_aside(
    version: Version, folder: Path, memory: int | None, earlier: Mapping[str, Sequence[InputFile]]
) -> Manifest:
    """Run a pipeline from nothing, with its state and outputs in a new folder, and return its commit.

    Checks stop nothing: their violations are compared like any output. `earlier` are the files of its inputs that states know, such as archived ones. The run moves no file to an archive: only a run of
    the pipeline's own state does. Raises InputError if the inputs have no rows.
    """
    from ddcli.driver.execute import execute
    from ddcli.driver.tables import update_mirrors

    folder.mkdir()
    request = read_request(version.path, folder / "state", base=version.base)
    spec = request.spec
    inputs = {name: replace(given, quarantine=None) for name, given in spec.inputs.items()}
    errors = replace(spec.errors, path=None) if spec.errors else None
    outputs = {name: real(_output(folder, name)) for name in spec.outputs}
    request = replace(request, spec=replace(spec, inputs=inputs, errors=errors), outputs=outputs)
    request = request.asking(claims=False, resources=request.asked.resources.limited(memory, engine="local"))
    request = request.deciding(earlier=earlier, accepts=dict.fromkeys(spec.checks, "a comparison"))
    with State.open(request.state, request.outputs) as opened:
        execute(update_mirrors(request, opened) if request.spec.tables else request, opened.manifest, opened)
        committed = opened.manifest
        if committed is None:
            notes = (f"inputs.{name}: {note}" for name, note in not_taken_in(spec, request.base, earlier).items())
            problem = "there is nothing to compare: the inputs of the pipeline have no rows"
            raise InputError(problem, place=version.label, hint="; ".join(notes) or None)
        return committed


def regressions(a: Manifest, bound: BoundPipeline, plan: Plan, where: str) -> tuple[str, ...]:
    """Return a line for each collection of the file of B, `bound`, whose operators may do more work for a change than A's."""
    found = work_regressions(
        a.cache["plan"].get("work", {}), bound, plan
    )  # states of earlier versions lack the classes
    return tuple(f"{place.span}: {place.words}: work: {own}, but {before} {where}" for place, before, own in found)


def _earlier(request: Request, states: Sequence[tuple[Request, Manifest | None]]) -> dict[str, list[InputFile]]:
    """Return the files of each input that states know, under any input's name. Of two that know a file the first counts."""
    found = {}
    for name, given in request.spec.inputs.items():
        place = real(locate(request.base, given.path.value))
        known: dict[str, InputFile] = {}
        for other, manifest in states:
            for called, each in other.spec.inputs.items():
                if (
                    manifest is None
                    or called not in manifest.inputs
                    or real(locate(other.base, each.path.value)) != place
                ):
                    continue
                for file in manifest.inputs[called].files:
                    if file.archived:  # it is relative to that state's pipeline file
                        file = replace(file, archived=str(real(locate(other.base, file.archived))))
                    known.setdefault(file.key, file)
        if known:
            found[name] = list(known.values())
    return found


def _not_taken_in(requests: Sequence[Request], earlier: Sequence[Mapping[str, Sequence[InputFile]]]) -> Iterable[str]:
    """Yield a note for each archive with files that no state knows, which are not compared."""
    for side, request, known in zip(("A", "B"), requests, earlier, strict=True):
        for name, note in not_taken_in(request.spec, request.base, known).items():
            yield f"input {name} of {side}: {note}: they are not compared"


def _output(folder: Path, name: str) -> Path:
    return folder / "outputs" / name


def _times(spec: Spec) -> tuple[str, ...]:
    """Return the time columns of the outputs, which for a product of times are named as in the inputs."""
    names = tuple(text.value for text in next(iter(spec.inputs.values())).time)
    return names if len(names) > 1 else ("time",)


def chosen_outputs(names: Sequence[str], select: Iterable[str]) -> list[str]:
    """Return the selected names, or all without a selection. Raises UsageError for an unknown name."""
    for name in select:
        if name not in names:
            hint = suggestion(name, names, f"outputs: {', '.join(names)}")
            raise UsageError(f"neither side has an output '{name}'", hint=hint)
    return [name for name in names if not select or name in set(select)]


def _different_places(a: Request, b: Request) -> Iterable[str]:
    """Yield a note for each input that the pipelines read from different places."""
    for name, given in a.spec.inputs.items():
        other = b.spec.inputs.get(name)
        if other is not None:
            places = [locate(request.base, one.path.value) for request, one in ((a, given), (b, other))]
            if places[0] != places[1]:
                yield f"input {name}: A reads {places[0]}, B {places[1]}"


def _refuse_imports(request: Request) -> None:
    for name, given in request.spec.inputs.items():
        if given.arrangement is not None:
            raise UsageError(
                f"the input '{name}' is imported from another pipeline's state, which a comparison can't read",
                span=given.name.span,
                hint="compare the outputs of two runs instead: `dd diff A/ B/`",
            )
