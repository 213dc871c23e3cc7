"""The directories of a state's outputs, each with one owner and with the times that it has closed, and the pipeline file that a state belongs to.

A directory has one owner, the state that appends to it: with two, all updates would be in it twice. The directory's progress, which each
commit writes, has the owner's identity. A copy of a state has its identity, and may continue in its place: the copy that
commits first does, and the other is refused from then on, as progress and files are not those that it knows.

A reader must read the progress, `_progress.json`, *before* it lists the files: the writer publishes files first and progress last, so all updates
before the upper that was read are in files that exist by then. `upper` lists the elements of the frontier, times as lists of physical integers. A null stands
for the least value of a coordinate: `[[3, null], [null, 4]]` closes the times before 3 in the first and before 4 in the second coordinate.

Readers read every data file in a directory. So a data file that no commit wrote is refused, too, before anything is computed.

Two pipeline files of one name would undo each other's results in turn. So the manifest has the file's path relative to the state, so that a folder
can be moved as a whole. A state whose file is gone passes to the file that is run on it: the file was moved. Imports no third-party library: a run
with nothing new looks here.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ddcli.engine.times import BEYOND, LEAST
from ddcli.errors import DdError, InputError, StateError, UsageError
from ddcli.expressions.types import RowOrder, parse_order
from ddcli.screen import near, shell
from ddcli.store.files.access import fs, locate, open_directory, read_given, real, relative, unreadable
from ddcli.store.files.gate import one_by_one
from ddcli.store.files.lock import OF_OUTPUT
from ddcli.store.log.joint_files import footer_checksum
from ddcli.store.state.document import PROGRESS, WAITING_FOLDER, path_of
from ddcli.store.state.register import keys_of, pick
from ddcli.store.tables.input_path import taken_from_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.privacy import Tags
    from ddcli.store.state.entries import FileEntry, Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


Found = TypeVar("Found")
PARQUET = ".parquet"
"""The ending that globs match, however the name begins."""
NEWEST, OLDER = (500, 10), (50, 2)
"""The number of an output's files that a run that appends to it looks at, of the newest and of the older ones; and that of a process that has written the last itself."""
ANEW = "remove what it wrote with `dd reset PIPELINE --outputs`"


def output_paths(directory: Path, manifest: Manifest) -> dict[str, Path]:
    """Return the directory of each output of a manifest."""
    return {name: locate(directory, output.path) for name, output in manifest.outputs.items()}


def output_files(directory: Path, manifest: Manifest) -> Iterator[tuple[Path, FileEntry]]:
    """Yield every output file that a manifest names."""
    paths = output_paths(directory, manifest)
    for name, output in manifest.outputs.items():
        for file in output.files:
            yield paths[name] / file.name, file


def same_outputs(directory: Path, manifest: Manifest, outputs: Mapping[str, Path]) -> dict[str, str]:
    """Return the state's name of each output that it knows, by its path, or by the path to which its files were moved."""
    located = output_paths(directory, manifest)
    if located == {**outputs}:
        return {name: name for name in outputs}
    paths = {real(path): name for name, path in located.items()}
    found = {name: paths[path] for name, path in outputs.items() if path in paths}
    for name in manifest.outputs.keys() & outputs.keys() - found.keys() - set(found.values()):
        files = manifest.outputs[name].files
        if files and all(fs(outputs[name] / file.name).exists() for file in files):
            found[name] = name
    return found


def check_aside(directories: Iterable[Path]) -> None:
    """Refuse directories for late or failed rows that are outputs (StateError): these rows would be among another's.

    Such a log has no progress, and an output has one. So no file that waits there to be published by its state is removed as a leaving.
    """
    for path in map(real, directories):
        if fs(path / PROGRESS).exists():
            raise StateError(
                "late or failed rows can't be put aside here: the directory is an output, or another log",
                place=str(path),
                hint="name a directory of its own under `quarantine`",
            )


def check_unlocked(
    directory: Path,
    manifest: Manifest | None,
    outputs: Mapping[str, Path],
    anew: Collection[str] = (),
    *,
    published: Callable[[], bool] = lambda: True,
) -> None:
    """Refuse outputs as `check_outputs` does, as far as that is safe while a run of this state may be at work.

    If no run has recorded the owner of the output, all is checked, if the last commit is `published`: no lock is made in a directory of
    somebody else.
    """
    progress = _each(outputs.values(), read_owned)
    for name, path in outputs.items():
        _, owner = progress[path]
        _refuse_other(name, directory, path, manifest, owner)
        if owner is None and fs(path).is_local and not fs(path / OF_OUTPUT).exists() and published():
            check_outputs(directory, manifest, {name: path}, anew)


def _each(paths: Iterable[Path], look: Callable[[Path], Found]) -> dict[Path, Found]:
    """Return what is found at each of some paths; in an object store they are looked at side by side."""
    found: dict[Path, Found] = {}
    one_by_one(lambda path: found.update({path: look(path)}), [*dict.fromkeys(paths)])
    return found


def _refuse_other(name: str, directory: Path, path: Path, manifest: Manifest | None, owner: Owner | None) -> None:
    """Refuse an output that another state writes (StateError)."""
    if owner is not None and (manifest is None or owner.state != manifest.identity):
        raise _owned(name, directory, path, owner, manifest)


def is_owned(path: Path, manifest: Manifest) -> bool:
    """Return whether an output's directory names a manifest's state as its owner."""
    try:
        _, owner = read_owned(real(path))
    except InputError:
        return False
    return owner is not None and owner.state == manifest.identity


def check_outputs(
    directory: Path, manifest: Manifest | None, outputs: Mapping[str, Path], anew: Collection[str] = ()
) -> None:
    """Refuse a state and outputs that don't belong together (StateError): their sums would be wrong from here on.

    Outputs that are to be written `anew` may lack files, and have another progress.
    Looks at names and progress only; `dd state verify` looks at bytes. Safe without the lock when nothing is unpublished.
    """
    known = same_outputs(directory, manifest, outputs) if manifest else {}
    found = _each(outputs.values(), lambda path: (read_owned(path), {*_data_in(path, directory)}))
    for name, path in outputs.items():
        (upper, owner), there = found[path]
        _refuse_other(name, directory, path, manifest, owner)
        if manifest is not None and name in known and name not in anew and upper not in (None, manifest.upper):
            raise StateError(
                f"output '{name}' has another progress than the state: something else has written it since",
                place=str(path / PROGRESS),
                hint="continue with the newer copy of the state; or, if files were restored, restore state and outputs together",
            )
        named = set(keys_of(manifest.outputs[known[name]].files)) if manifest and name in known else set()
        if name not in anew and (gone := named - there):
            raise StateError(
                f"a file of output '{name}' that the state names is gone",
                place=str(path / min(gone)),
                hint=f"put it back, or write the output from the beginning: `{shell('dd', 'run', '--rewrite', name)}`",
            )
        if strange := there - named:
            raise _strange(name, directory, path / min(strange), manifest)
        if manifest is None and upper is not None:
            raise _orphaned(name, directory, path / PROGRESS)


def check_files(directory: Path, manifest: Manifest, outputs: Mapping[str, Path], *, few: bool = False) -> None:
    """Refuse outputs with files that are not as they were written (StateError), before a run appends to them.

    Looks at a bounded number of files: at the size of the newest ones, and at the footers of those that were changed after the
    last commit had published them; and at size and footer of some others in turn. A process that has written the last file needs to
    look at `few`.
    """
    due: dict[Path, tuple[str, FileEntry, int]] = {}
    for name, before in same_outputs(directory, manifest, outputs).items():
        files, path = manifest.outputs[before].files, outputs[name]
        keys, published = list(keys_of(files)), 0
        if not fs(path).is_local:  # a request each
            keys = keys[-1:]
        else:
            published = _size_and_change(path / PROGRESS)[1]
        last = keys[-NEWEST[few] :]
        due |= {path / file.name: (name, file, published) for file in pick(files, last)}
        older = pick(files, in_turn(keys[: -len(last) or None], manifest.number, OLDER[few]))
        due |= {path / file.name: (name, file, 0) for file in older}
    one_by_one(lambda path: _check_file(path, *due[path]), [*due])


def in_turn(keys: Sequence[str], number: int, count: int = OLDER[False]) -> Sequence[str]:
    """Return the `count` older files that the run after a commit looks at: each has its turn.

    >>> names = [str(at) for at in range(2_400)]
    >>> len({name for commit in range(48) for name in in_turn(names, commit)})
    2400
    """
    start = number % max(1, -(-len(keys) // count)) * count
    return keys[start : start + count]


def _check_file(path: Path, name: str, entry: FileEntry, published: int) -> None:
    """Refuse a file of another size, or with another footer; the footer is read only if the file was changed after it was published."""
    size, changed = _size_and_change(path)
    problem = f"it has {size} bytes, and {entry.size} were written" if size != entry.size else ""
    if not problem and entry.footer and changed > published:
        try:
            same = footer_checksum(path) == entry.footer
        except ValueError:
            same = False
        problem = "" if same else "its footer is another"
    if problem:
        raise StateError(
            f"a file of output '{name}' is not as it was written: {problem}",
            place=str(path),
            hint="put the file back as it was, or write the output from the beginning with `dd run --rewrite NAME`; "
            "`dd state verify` looks at every byte of every file",
        )


def _size_and_change(path: Path) -> tuple[int, int]:
    """Return the size of a file, and the time of its last change or rename in nanoseconds, which no program can set; 0 for an object.

    Both are 0 if there is no plain file.
    """
    if not fs(path).is_local:
        return fs(path).size(), 0
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0, 0
    return (found.st_size, found.st_ctime_ns) if stat.S_ISREG(found.st_mode) else (0, 0)


def _owned(name: str, directory: Path, path: Path, owner: Owner, manifest: Manifest | None) -> StateError:
    """Return the error for an output of another state."""
    place = locate(path, owner.path)
    if manifest is None and real(place) == directory:
        return _orphaned(name, directory, path / PROGRESS)
    return StateError(
        f"output '{name}' belongs to another state: it is written from the one at '{place}', this run's is at '{directory}'",
        place=str(path),
        hint=f"give the output another `path`, name that state with `--state`, or {ANEW}",
    )


def _orphaned(name: str, directory: Path, path: Path) -> StateError:
    """Return the error for an output whose state is gone."""
    return StateError(
        f"output '{name}' exists, but the state that it was written from is missing",
        place=str(path),
        hint=f"put the state back at '{directory}', or {ANEW}",
    )


def _strange(name: str, directory: Path, path: Path, manifest: Manifest | None) -> StateError:
    """Return the error for a file that no commit of the state wrote."""
    if not path.name.startswith("updates-"):
        return StateError(
            f"the directory of output '{name}' holds data that was not written by its pipeline",
            place=str(path),
            hint="readers of the output would take it for a part of it: move it elsewhere, or give the output another `path`",
        )
    if manifest is None:
        return _orphaned(name, directory, path)
    return StateError(
        f"output '{name}' holds updates that the state doesn't know of",
        place=str(path),
        hint="put back the state that wrote them, or remove the file if it doesn't belong there",
    )


def _data_in(directory: Path, state: Path) -> Iterator[str]:
    """Yield the relative paths of all files in an output's directory that some reader would take: we, or a glob. Not the files of the state around them."""
    if not fs(directory).has_directories:
        inside = directory.is_relative_to(state)
        for path in fs(directory).files_below():
            name = str(path.relative_to(directory))
            if _is_data(name) and (inside or not path.is_relative_to(state)):
                yield name
        return
    yield from _data_below(directory, "", state)


def _data_below(directory: Path, prefix: str, state: Path) -> Iterator[str]:
    try:
        descriptor = open_directory(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unreadable(directory, error) from None
    below = []
    try:
        with os.scandir(descriptor) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    if not WAITING_FOLDER.fullmatch(entry.name):
                        below.append(entry.name)
                elif _is_data(prefix + entry.name) or _leads_to_directory(entry):
                    yield prefix + entry.name
    finally:
        os.close(descriptor)
    for name in below:
        if directory / name != state:
            yield from _data_below(directory / name, f"{prefix}{name}/", state)


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether a link leads to a directory, in which a glob finds more files; a circular link leads nowhere."""
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:
        return False


def _is_data(name: str) -> bool:
    return name.endswith(PARQUET) or taken_from_directory(name)


def relative_file(state: Path, file: Path) -> str:
    """Return a pipeline file's path as a manifest keeps it; "" for one that can't be named in a manifest."""
    try:
        locate(state, str(file))
    except UsageError:
        return ""
    return relative(real(file), state)


def file_of(state: Path, manifest: Manifest) -> Path | None:
    """Return the pipeline file that a state belongs to, if it remembers one; the file may have been removed since."""
    return locate(real(state), manifest.file) if manifest.file else None


def check_pipeline(state: Path, manifest: Manifest, file: Path) -> None:
    """Refuse a state that belongs to another pipeline file, if that exists (StateError)."""
    if not manifest.file or manifest.file == relative_file(state, file):
        return
    other = file_of(state, manifest)
    if other is not None and fs(other).exists() and not other.samefile(file):
        raise StateError(
            f"the state of '{manifest.name}' belongs to another pipeline file, {near(str(other))}",
            place=str(file),
            hint="give this pipeline another `name`, or another `state`; `dd state adopt` binds the existing state to it",
        )


class Owner(NamedTuple):
    """The state that writes a log: its identity, its path at the last write, relative to the log's directory, the number of its reopenings,
    the horizon before which the log has no times, as logs that it reads have none, the order in which the log's contents are shown,
    the identity of the log, which is another one after it was written anew, and the tags of its columns.
    """

    state: str = ""
    path: str = ""
    reopenings: int = 0
    horizon: int | None = None
    order: RowOrder = ()
    log: str = ""
    tags: Tags = {}  # noqa: RUF012 - nobody changes it


OPTIONAL: dict[str, Any] = {"reopenings": 0, "horizon": None, "order": (), "log": "", "tags": {}}
"""The facts of a log's owner that a progress may leave out."""


def progress_bytes(upper: Times, owner: Owner | None = None) -> bytes:
    r"""Return the content of a progress file.

    >>> progress_bytes(((LEAST, 4), (3, LEAST)))
    b'{"upper": [[null, 4], [3, null]]}\n'
    """
    tree = [[None if value == LEAST else value for value in time] for time in upper]
    owned = (
        {}
        if owner is None
        else {"owner": {name: value for name, value in owner._asdict().items() if value != OPTIONAL.get(name, "")}}
    )
    return json.dumps({"upper": tree} | owned).encode() + b"\n"


def write_progress(transaction: Transaction, directory: Path, upper: Times, owner: Owner | None = None) -> None:
    """Add a log's new progress, after all its files, so that it never speaks of one that isn't there yet. The `owner` gets the identity and the path of the transaction's state."""
    state = transaction.state
    owner = (owner or Owner())._replace(state=state.identity, path=relative(state.directory, directory))
    transaction.add_output(directory / PROGRESS, progress_bytes(upper, owner))


def read_progress(directory: Path) -> Times | None:
    """Return the upper of a log that carries its progress, else None. One that is malformed is an `InputError`."""
    return read_owned(directory)[0]


def read_owned(directory: Path) -> tuple[Times | None, Owner | None]:
    """Return the upper of a log and the state that writes it, each None if the file lacks it. Raises as `read_progress` does."""
    path = directory / PROGRESS
    try:
        tree = json.loads(read_given(path))
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise InputError(f"the progress of the log can't be read: {error.strerror}", place=str(path)) from None
    except (ValueError, RecursionError):
        tree = None
    upper = tree.get("upper") if isinstance(tree, dict) else None
    if not isinstance(upper, list) or not all(_is_time(time) and len(time) == len(upper[0]) for time in upper):
        raise InputError(
            "the progress of the log can't be read",
            place=str(path),
            hint='it must look like {"upper": [[42]]}; remove it to close the times up to the largest one seen',
        )
    return tuple(tuple(LEAST if value is None else value for value in time) for time in upper), _owner(tree, directory)


def _owner(tree: dict[str, Any], directory: Path) -> Owner | None:
    """Return the writer of a log, if its progress names one. The file is not trusted: anybody may have written it."""
    owner = tree.get("owner")
    if not isinstance(owner, dict) or not all(isinstance(owner.get(name), str) for name in ("state", "path")):
        return None
    path, reopenings = owner["path"], owner.get("reopenings", 0)
    try:
        path_of(path)
        locate(directory, path)
    except (ValueError, DdError):
        path = "."  # the path is for people only: the identity counts
    horizon = owner.get("horizon")
    return Owner(
        owner["state"],
        path,
        reopenings if type(reopenings) is int else 0,
        horizon if type(horizon) is int else None,
        parse_order(owner.get("order")),
        log if isinstance(log := owner.get("log"), str) else "",
        tags_from(owner.get("tags")),
    )


def tags_from(tree: object) -> Tags:
    """Return the tags of columns; a column whose tags can't be read has one of its own, so that it stays hidden."""
    columns = tree if isinstance(tree, dict) else {}
    return {
        name: tuple(filter(lambda tag: isinstance(tag, str), tags if isinstance(tags, list) else ())) or ("tagged",)
        for name, tags in columns.items()
    }


TAGS = "dd:tags"
"""The key of columns' tags in the metadata of the files of a log without progress."""
STATE = "dd:state"
"""The key of the state's identity there, which is the key of digests."""


def tags_metadata(tags: Tags, state: str) -> dict[str, str] | None:
    """Return the metadata for files that lie beside no progress: tables, and rows that are put aside; `state` is their state's identity."""
    return {TAGS: json.dumps(tags), STATE: state} if tags else None


def tags_within(metadata: Mapping[str, str]) -> tuple[Tags, str]:
    """Return the tags in a file's metadata, and the identity of the state that wrote it; none and "" without."""
    if TAGS not in metadata:
        return {}, ""
    try:
        return tags_from(json.loads(metadata[TAGS])), metadata.get(STATE, "")
    except (ValueError, RecursionError):
        return {}, ""


def _is_time(tree: object) -> bool:
    return isinstance(tree, list) and bool(tree) and all(_is_coordinate(value) for value in tree)


def _is_coordinate(value: object) -> bool:
    return value is None or (type(value) is int and LEAST <= value < BEYOND)
