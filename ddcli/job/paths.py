"""The paths that a pipeline file names or leaves to defaults; and the errors in them, and in its times, that can be found without data."""

from __future__ import annotations

from dataclasses import replace
from glob import has_magic
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

from ddcli.errors import SpecError
from ddcli.spec.file import AT
from ddcli.spec.model import DATABASE, SPARK
from ddcli.store.files.access import fs, locate, real
from ddcli.store.files.gate import one_by_one
from ddcli.store.state.contents import LOGS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ddcli.errors import Text
    from ddcli.spec.model import OutputSpec, Spec

DIFF = "diff"
DEFAULT_STATE = ".dd"


def unparsed_below(errors: Path, name: str) -> Path:
    """Return the log for unreadable rows of an input: below the log of errors, and no part of it."""
    return errors / "_unparsed" / name


def logs_aside(spec: Spec) -> list[tuple[str, Text]]:
    """Return the paths that the file names for logs of rows that are put aside, each with the keys that name it."""
    found = [(f"inputs.{name}.quarantine", given.quarantine) for name, given in spec.inputs.items() if given.quarantine]
    return [*found, *([("errors.quarantine", spec.errors.path)] if spec.errors and spec.errors.path else [])]


def catalog_of(catalog: Text | tuple[tuple[Text, Text], ...] | None) -> tuple[str, dict[str, str]]:
    """Return the name of a catalog and its properties, as a file names one."""
    if catalog is not None and not isinstance(catalog, tuple):
        return catalog.value, {}
    properties = {key.value: value.value for key, value in catalog or ()}
    return properties.pop("name", "default"), properties


def database_file(uri: str) -> str:
    """Return the path of a database that is a file; empty for one on a server."""
    return "" if uri.startswith(("postgres", "mysql")) else uri.partition(":///")[2]


def state_of(spec: Spec, base: Path) -> Path:
    """Return the directory of the state that the file names."""
    return locate(base, spec.state.value if spec.state else f"{DEFAULT_STATE}/{spec.name.value}")


def state_at(path: Path, state: Path) -> Path:
    """Return the state of the file at `path`, given main's: of a branch, `sales@q4.yaml`, its own, as long as it exists."""
    branch = path.stem.partition(AT)[2]
    if not branch:
        return state
    from ddcli.store.state.branches import find_branches

    return find_branches(real(state)).get(branch, state)


def log_of(output: OutputSpec, base: Path, state: Path) -> Path:
    """Return the place of an output's log: for a table that names no other place, in the state."""
    return locate(base, output.path.value) if output.path else state.absolute() / LOGS / output.name.value


def problems_of(spec: Spec, base: Path, state: Path) -> list[SpecError]:
    """Return the errors of times and paths in a file that can be found without data."""
    return [*_mixed_times(spec), *_met_paths(spec, base, state)]


def _mixed_times(spec: Spec) -> list[SpecError]:
    """Return the errors of inputs whose times differ in their coordinates; the times of a product are columns of the outputs, too."""
    errors = []
    inputs = list(spec.inputs.values())
    for given in inputs:
        names, first = ([text.value for text in one.time] for one in (given, inputs[0]))
        span = given.time[0].span
        diff = given.diff.value if given.diff else DIFF
        # The outputs have the names of a product's coordinates, and `diff`.
        if taken := {diff, *([DIFF] if len(names) > 1 else [])} & set(names):
            problem = f"inputs.{given.name.value}: '{min(taken)}' can't be a time column and the diff as well"
            errors.append(SpecError(problem, span=span, hint="name another column under `time` or `diff`"))
        elif len(names) != len(first) or (len(names) > 1 and names != first):
            problem = f"inputs.{given.name.value}: its time is {', '.join(names)}, that of '{inputs[0].name.value}' is {', '.join(first)}"
            hint = f"the inputs of a pipeline share one time: `time: [{', '.join(first if len(first) >= len(names) else names)}]`"
            errors.append(SpecError(problem, span=span, hint=hint))
    return errors


def _met_paths(spec: Spec, base: Path, state: Path) -> list[SpecError]:
    """Return the errors of outputs that are files, or whose directories contain, or are in, the state, an input or each other."""
    errors = []
    written: list[tuple[str, Text]] = [
        (f"outputs.{name}", output.path) for name, output in spec.outputs.items() if output.path
    ]
    archives = spec.archives
    written += [*logs_aside(spec), *archives]
    made = [*written, *([("state", spec.state)] if spec.state else [])]
    located = [locate(base, text.value) for _, text in made]
    # An object store is not asked for an archive, as a directory needs no object.
    asked = [path for path, each in zip(located, made, strict=True) if each not in archives or fs(path).has_directories]
    are_files: dict[Path, bool] = {}
    one_by_one(lambda path: are_files.update({path: _is_file(path)}), [*dict.fromkeys(asked)])
    for path, (what, text) in zip(located, made, strict=True):
        for name, given in spec.inputs.items():
            if given.in_files and takes(locate(base, given.path.value), path / "updates.parquet"):
                errors.append(
                    SpecError(
                        f"{what}: writes into '{given.path.value}', where the input '{name}' reads",
                        span=text.span,
                        hint="give it a directory outside of the inputs'",
                    )
                )
        if are_files.get(path):
            errors.append(SpecError(f"{what}: '{text.value}' is a file", span=text.span, hint="name a directory"))
    for (what, text), given in zip(archives, filter(lambda each: each.archive, spec.inputs.values()), strict=True):
        path = locate(base, text.value)
        own = locate(base, given.path.value)
        if fs(path).is_local != fs(own).is_local:
            where = (
                "not in an object store, its archive is"
                if fs(own).is_local
                else "in an object store, its archive is not"
            )
            problem = f"{what}: the input is {where}: no file is moved between the two"
            errors.append(
                SpecError(problem, span=text.span, hint="name an archive where the input is, or use `consumed: forget`")
            )
        elif _plain(path).is_relative_to(_plain(state)) or takes(path, state / "batch.parquet"):
            problem = f"{what}: '{text.value}' and the directory of the state contain each other"
            errors.append(SpecError(problem, span=text.span, hint="give each a directory of its own"))
    logs = {name: output.path for name, output in spec.outputs.items() if output.path}
    places = {name: locate(base, text.value) for name, text in logs.items()}
    named: dict[PurePath, list[str]] = {}
    for name, place in places.items():
        named.setdefault(_plain(place), []).append(name)
    patterns = [name for name, place in places.items() if has_magic(str(place))]

    def around(path: PurePath) -> Iterable[str]:
        """Return the outputs whose directories may contain a path: with hundreds of outputs not each beside each other one."""
        path = _plain(path)
        inside = (name for place in (path, *path.parents) for name in named.get(place, ()))
        return dict.fromkeys([*inside, *patterns])

    for name, text in logs.items():
        path = places[name]
        file = path / "updates.parquet"
        near = [f"output '{other}'" for other in around(path) if other != name and takes(places[other], file)]
        aside = [(what, text) for what, text in written if not what.startswith("outputs.")]
        near += [f"'{what}'" for what, text in aside if takes(path, locate(base, text.value) / "updates.parquet")]
        if _plain(path).is_relative_to(_plain(state)) or takes(path, state / "batch.parquet"):
            near.append("state")
        for what in near:
            problem = f"outputs.{name}: '{text.value}' and the directory of the {what} contain each other"
            errors.append(SpecError(problem, span=text.span, hint="give each a directory of its own"))
    return [*errors, *_met_tables(spec, base, state)]


def _is_file(path: Path) -> bool:
    """Return whether something else than a directory exists. Most are directories, so that is asked first; in an object store a path may be both."""
    return not path.is_dir() and path.exists() if fs(path).has_directories else path.is_file()


def _met_tables(spec: Spec, base: Path, state: Path) -> list[SpecError]:
    """Return the errors of outputs that are tables which contain, or are in, an input, a log, the state or another table."""
    errors = []
    named: dict[tuple[str, str], str] = {}
    for name, one in spec.outputs.items():
        if one.target and one.target.kind in (DATABASE, "ducklake"):
            first = named.setdefault((one.target.place.value, one.target.called), name)
            if first != name:
                problem = (
                    f"outputs.{name}.{one.target.kind}: the output '{first}' is in the table '{one.target.called}', too"
                )
                errors.append(SpecError(problem, span=one.target.place.span, hint="give each a table of its own"))
    targets = {
        name: one.target
        for name, one in spec.outputs.items()
        if one.target and one.target.catalog is None and one.target.kind not in (DATABASE, SPARK, "ducklake")
    }
    places = {name: locate(base, target.place.value) for name, target in targets.items()}
    taken = {
        f"the input '{name}'": locate(base, given.path.value) for name, given in spec.inputs.items() if given.in_files
    }
    taken |= {f"the log of '{name}'": locate(base, one.path.value) for name, one in spec.outputs.items() if one.path}
    taken |= {f"the table of '{name}'": place for name, place in places.items()} | {"the state": state}
    for name, target in targets.items():
        path = places[name]
        file = path if target.kind == "parquet" else path / "part.parquet"
        for what, other in taken.items():
            if what == f"the table of '{name}'":
                continue
            if (
                takes(other, file)
                or _plain(other).is_relative_to(_plain(path))
                or _plain(path).is_relative_to(_plain(other))
            ):
                problem = f"outputs.{name}.{target.kind}: '{target.place.value}' and {what} contain each other"
                errors.append(SpecError(problem, span=target.place.span, hint="give each a place of its own"))
    tables: list[Any] = []
    for name, target in ((name, one.target) for name, one in spec.outputs.items() if one.target):
        if target.catalog is None and target.kind != SPARK:
            continue
        tables.append((catalog_of(target.catalog), target.place.value))
        if tables[-1] in tables[:-1]:
            problem = f"outputs.{name}.{target.kind}: another output is the table '{target.place.value}'"
            errors.append(SpecError(problem, span=target.place.span, hint="give each a table of its own"))
    return errors


def _plain(path: PurePath) -> PurePath:
    """Return a path to compare with others: paths in object stores are below a directory of their own."""
    return PurePosixPath(path)


def takes(given: PurePath, file: PurePath) -> bool:
    """Return whether an input, a directory or a glob, would take in a file; it ignores hidden and private names."""
    given, file = _plain(given), _plain(file)
    if file.match(str(given)):
        return True
    if not file.is_relative_to(given):
        return False
    return not any(part.startswith((".", "_")) for part in file.relative_to(given).parts)


def at_branch(spec: Spec, branch: str) -> Spec:
    """Return the spec of a branch: logs are beside main's, `out@q4/`, and no output is a table of another program. Raises SpecError for an input that a branch can't read as main does."""
    for name, given in spec.inputs.items():
        place = given.origin or given.path
        if given.arrangement is not None:
            raise SpecError(
                f"inputs.{name}: a branch can't read an arrangement of another pipeline, which keeps its past for main alone",
                span=place.span,
                hint="compare with `dd diff --against`",
            )
        if given.consumed != "keep":
            raise SpecError(
                f"inputs.{name}: its files may be gone once main has read them (`consumed`), so a branch can't read them",
                span=place.span,
                hint="leave out `consumed`, or compare with `dd diff --against`",
            )

    def beside(text: Text | None) -> Text | None:
        return None if text is None else replace(text, value=f"{text.value.rstrip('/')}{AT}{branch}")

    inputs = {name: replace(given, quarantine=beside(given.quarantine)) for name, given in spec.inputs.items()}
    outputs = {name: replace(made, path=beside(made.path), target=None) for name, made in spec.outputs.items()}
    errors = spec.errors and replace(spec.errors, path=beside(spec.errors.path))
    return replace(spec, inputs=inputs, outputs=outputs, errors=errors)
