"""What two pipeline files give for the inputs as they are now: each run from nothing, aside, and compared output by output.

State, outputs and whatever a run puts aside are in a scratch directory, so nothing that is there is touched.
"""

from __future__ import annotations

import tempfile
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.compare.diff import compare
from ddcli.compare.sides import Reading, give, open_sides
from ddcli.dataclass import dataclass
from ddcli.errors import UsageError, did_you_mean
from ddcli.job.functions import refuse_code
from ddcli.job.request import read_request
from ddcli.spec import read_spec
from ddcli.store.files.access import real
from ddcli.store.files.objects import locate
from ddcli.store.state.directory import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.compare.difference import Difference
    from ddcli.compare.settings import Settings
    from ddcli.job.request import Request
    from ddcli.spec.model import Spec


@dataclass
class Differences:
    """What makes of the outputs of one pipeline those of another, by the output's name; and the outputs that one alone has."""

    outputs: dict[str, Difference] = field(default_factory=dict)
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether there is no difference that counts."""
        return not (self.only_a or self.only_b) and all(found.same for found in self.outputs.values())

    @property
    def ok(self) -> bool:
        """Whether there is none, or none larger than what was allowed for each output."""
        return not (self.only_a or self.only_b) and all(found.ok for found in self.outputs.values())

    def lines(self) -> list[str]:
        """Return the notes, and the outputs that only one side has."""
        lines = [
            f"output {name}: only in {side}"
            for side, names in (("A", self.only_a), ("B", self.only_b))
            for name in names
        ]
        return [*(f"note: {line}" for line in self.notes), *lines]


def compare_pipelines(
    a: Path,
    b: Path,
    settings: Callable[[str], Settings],
    *,
    select: Sequence[str] = (),
    as_of: Any = None,
    memory: int | None = None,
    no_code: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Differences:
    """Run two pipelines over their inputs and compare what their outputs hold; `settings` are by output.

    Of a log as of `as_of`, else with all updates. Raises UsageError for an output to select that neither has, and for a
    pipeline that imports an arrangement: reading it would need a hold in its state.
    """
    for path in (a, b):
        read_spec(path)  # notes the variables of both, before either is refused for one that it doesn't have
    requests = [read_request(path, None, None, lambda _line: None, memory=memory, engine="local") for path in (a, b)]
    left, right = (request.spec for request in requests)
    for request in requests:
        _refuse_imports(request)
        refuse_code(request.spec, no_code=no_code)
    chosen = _chosen([*dict.fromkeys([*left.outputs, *right.outputs])], select)
    both = [name for name in chosen if name in left.outputs and name in right.outputs]
    wanted = {name: settings(name) for name in both}
    found = Differences(
        only_a=tuple(name for name in chosen if name not in right.outputs),
        only_b=tuple(name for name in chosen if name not in left.outputs),
        notes=tuple(_apart(*requests)),
    )
    with tempfile.TemporaryDirectory(prefix="dd-diff-", ignore_cleanup_errors=True) as scratch:
        folders = [Path(scratch) / name for name in ("a", "b")]
        for request, folder, name in zip(requests, folders, ("A", "B"), strict=True):
            say(f"running {name}: {request.spec.path}")
            run_aside(request.spec.path, folder, memory)
        for name in both:
            given = [give(str(_output(folder, name)), Reading(_times(left), as_of=as_of), name) for folder in folders]
            sides = [
                replace(side, label=f"{request.spec.path}: {name}")
                for side, request in zip(open_sides(given[0], given[1]), requests, strict=True)
            ]
            found.outputs[name] = compare(sides[0], sides[1], wanted[name], memory)
    return found


def run_aside(path: Path, folder: Path, memory: int | None) -> None:
    """Run a pipeline from nothing, with its state and its outputs in a folder that is not there yet."""
    from ddcli.driver.execute import execute

    folder.mkdir()
    request = read_request(path, folder / "state", None, lambda _line: None, memory=memory, engine="local")
    spec = request.spec
    inputs = {name: replace(given, quarantine=None) for name, given in spec.inputs.items()}
    errors = replace(spec.errors, path=None) if spec.errors else None
    request = replace(
        request,
        spec=replace(spec, inputs=inputs, errors=errors),
        outputs={name: real(_output(folder, name)) for name in spec.outputs},
    )
    with State.open(request.state, request.outputs) as opened:
        execute(request, opened.manifest, opened)


def _output(folder: Path, name: str) -> Path:
    return folder / "outputs" / name


def _times(spec: Spec) -> tuple[str, ...]:
    """Return the time columns of the outputs: those of a product are named as in the inputs."""
    names = tuple(text.value for text in next(iter(spec.inputs.values())).time)
    return names if len(names) > 1 else ("time",)


def _chosen(names: Sequence[str], select: Iterable[str]) -> list[str]:
    for name in select:
        if name not in names:
            near = did_you_mean(name, names)
            hint = f"did you mean '{near}'?" if near else f"outputs: {', '.join(names)}"
            raise UsageError(f"neither pipeline has an output '{name}'", hint=hint)
    return [name for name in names if not select or name in set(select)]


def _apart(a: Request, b: Request) -> Iterable[str]:
    """Give which inputs of one name the pipelines read from different places."""
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
                f"the input '{name}' is imported from another pipeline's state, which can't be read aside",
                span=given.name.span,
                hint="compare the outputs of two runs instead: `dd diff A/ B/`",
            )
