"""The files in a state's directory: the batches, those that a manifest names, and those that wait for their final names."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ddcli.errors import StateError
from ddcli.store.files.access import fs, locate, read_bytes
from ddcli.store.files.gate import TEMPORARY, one_by_one, temporary
from ddcli.store.files.lock import NAME as LOCK
from ddcli.store.files.lock import is_signed
from ddcli.store.state.batch_lists import BUNDLES, listed
from ddcli.store.state.document import (
    ARRANGEMENT,
    BATCH,
    BUNDLE,
    FOLDER,
    HALF_MANIFEST,
    NAMED,
    OF_OUTPUT,
    PART,
    PROGRESS,
    SCRATCH,
    SEGMENT,
    SHARD,
    WAITING,
    WAITING_FOLDER,
)
from ddcli.store.state.manifest import NAME as MANIFEST
from ddcli.store.state.manifest import home_of, read_manifest
from ddcli.store.state.register import SEGMENTS

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.files.gate import Files
    from ddcli.store.files.objects import DirectoryEntry
    from ddcli.store.state.entries import FileEntry
    from ddcli.store.state.manifest import Manifest

SPILL = "spill"
"""The directory of a state for a run's scratch files: nothing in it outlives the run."""
TABLES_OUT = "tables_out"
"""The directory of a state with how far tables follow the logs of its outputs."""
LOGS = "logs"
"""The directory of a state in which the logs of outputs are that name no place of their own, one of each."""
PAGE = 1000
"""Objects that a store lists with a request."""
LEDGER = "ledger"
"""The directory of a state with the ledgers of its inputs (see `ledger`)."""
SWEPT = {
    "manifest": (MANIFEST, HALF_MANIFEST),
    BUNDLES: (BUNDLE, WAITING),
    LEDGER: (BATCH, WAITING),
    SEGMENTS: (SEGMENT, WAITING),
    LOGS: (NAMED,),
}
"""The directories of a state that a sweep lists, with the forms of names of ours."""
OF_COMMITS = (WAITING, WAITING_FOLDER, FOLDER)
"""The forms of names that a commit gives in the directory of an output."""


def batch_directory(directory: Path, arrangement: str, shard: int) -> Path:
    """Return the directory of the batch files of an arrangement's shard."""
    return directory / f"arrangements/{arrangement}/{shard}"


def batch_path(directory: Path, arrangement: str, shard: int, file: FileEntry) -> Path:
    """Return the path of a batch of an arrangement's shard: its file, or the bundle that has it."""
    if file.bundle:
        return home_of(directory, file.bundle) / f"{BUNDLES}/{file.bundle}"
    return own_path(directory, arrangement, shard, file)


def own_path(directory: Path, arrangement: str, shard: int, file: FileEntry) -> Path:
    """Return the path of the file that a batch has, or would have if it lay in no bundle; made in one go, as runs make hundreds."""
    return home_of(directory, file.name) / f"arrangements/{arrangement}/{shard}/{file.name}"


def ledger_path(directory: Path, file: FileEntry) -> Path:
    """Return the path of a file of a ledger."""
    return home_of(directory, file.name) / LEDGER / file.name


def batch_files(directory: Path, manifest: Manifest) -> Iterator[tuple[Path, FileEntry]]:
    """Yield every batch that a manifest names, with its path; the batches of a bundle have one."""
    for name, shard, file in batches_of(manifest):
        yield batch_path(directory, name, shard, file), file


def state_files(directory: Path, manifest: Manifest) -> Iterator[tuple[Path, FileEntry]]:
    """Yield every batch and every file of a ledger that a manifest names, with its path."""
    yield from batch_files(directory, manifest)
    for file in ledger_files(manifest):
        yield ledger_path(directory, file), file


def ledger_files(manifest: Manifest) -> Iterator[FileEntry]:
    """Yield every file of the ledgers of a manifest's inputs."""
    for given in manifest.inputs.values():
        yield from (*given.ledger, *given.keys)


def batches_of(manifest: Manifest) -> Iterator[tuple[str, int, FileEntry]]:
    """Yield every batch that a manifest names: its arrangement, its shard and its file."""
    return listed(manifest.arrangements)


def gone(directory: Path, before: Manifest, now: Manifest) -> Iterator[Path]:
    """Yield the files of the state that one manifest names and the other, of the same arrangements and shards, doesn't."""
    for identity, entry in before.arrangements.items():
        for shard, (files, left) in enumerate(zip(entry.shards, now.arrangements[identity].shards, strict=True)):
            if files != left:
                kept = {file.name for file in left}
                yield from (
                    own_path(directory, identity, shard, file)
                    for file in files
                    if file.name not in kept and not file.bundle
                )
    named = {file.name for file in ledger_files(now)}
    yield from (ledger_path(directory, file) for file in ledger_files(before) if file.name not in named)
    for name in before.bundles.keys() - now.bundles.keys():
        yield directory / BUNDLES / name
    for name in {*before.segments()} - {*now.segments()}:
        yield directory / SEGMENTS / name


def left_by_attempts(
    directory: Path, manifest: Manifest, made: Iterable[Path], outputs: Iterable[Path]
) -> Iterator[Path]:
    """Yield the files that failed attempts at tasks of a commit have left: in the directories of the files that others have `made`, and in the directories of outputs.

    All have the commit's number in their names. In an object store such names follow each other, so that a request finds the names of a directory.
    """
    number = f"{manifest.number:09d}-"
    kept = {path for path, _ in state_files(directory, manifest)} | {
        directory / SEGMENTS / name for name in manifest.segments()
    }
    places = [directory / BUNDLES, directory / SEGMENTS, *{path.parent for path in made if BATCH.fullmatch(path.name)}]
    found: dict[Path, list[Path]] = {}
    if not fs(directory).has_directories and len(places) * PAGE > len(manifest.files):
        places = places[:2]
        found[directory] = [path for path in _batches_in(directory, ()) if path.name.startswith(number)]

    waiting = {*outputs}

    def look(place: Path) -> None:
        beginning, *forms = (f".{number}", WAITING) if place in waiting else (number, BATCH, BUNDLE, SEGMENT)
        named = fs(place).beginning(beginning)
        found[place] = [path for path in named if any(form.fullmatch(path.name) for form in forms)]

    one_by_one(look, [*places, *waiting])
    for paths in found.values():
        yield from (path for path in paths if path not in kept)


def ours(directory: Path, *forms: re.Pattern[str], directories: bool = False) -> list[Path]:
    """Return the files (or the directories) in a directory whose names have one of our `forms`: no others are ever removed."""
    return [entry.path for entry in fs(directory).entries(*forms) if (entry.directory if directories else entry.file)]


def remove_unnamed(
    files: Files, directory: Path, manifest: Manifest | None, held: Collection[int], outputs: Iterable[Path]
) -> None:
    """Remove files that neither the manifest in force names nor one that is `held`, and those that wait in directories of outputs for a commit."""
    number = manifest.number if manifest else 0
    places = {directory / name: forms for name, forms in SWEPT.items()} | dict.fromkeys(outputs, OF_COMMITS)
    found: dict[Path, list[DirectoryEntry]] = {}
    one_by_one(lambda place: found.update({place: fs(place).entries(*places[place])}), [*places])

    def there(name: str) -> list[Path]:
        return [entry.path for entry in found[directory / name] if entry.file]

    older = {path: int(path.stem) for path in there("manifest") if MANIFEST.fullmatch(path.name)}
    older = {path: each for path, each in older.items() if each < number}
    half = [path for path in there("manifest") if HALF_MANIFEST.fullmatch(path.name)]
    files.remove_all([*half, *(path for path, each in older.items() if each not in held)])
    kept = [read_manifest(path) for path, each in older.items() if each in held]
    if manifest is not None:
        kept.append(manifest)
    named = {path for each in kept for path, _ in state_files(directory, each)}
    arrangements = _directories_in(directory)
    batches = _batches_in(directory, [shard for shards in arrangements.values() for shard in shards])
    files.remove_all([path for path in (*batches, *there(BUNDLES), *there(LEDGER)) if path not in named])
    full = {path.parent for path in named}
    for arrangement, shards in arrangements.items():
        for shard in shards:
            if shard not in full and not fs(shard).entries():
                files.remove_directory(shard)
        if not full.intersection(shards) and not fs(arrangement).entries():
            files.remove_directory(arrangement)
    segments = {name for each in kept for name in each.segments()}
    files.remove_all([path for path in there(SEGMENTS) if path.name not in segments])
    logs = [entry.path for entry in found[directory / LOGS] if entry.directory]
    _remove_outputs(
        files, directory, kept, {place: found[place] for place in places if places[place] is OF_COMMITS}, logs
    )


def _directories_in(directory: Path) -> dict[Path, list[Path]]:
    """Return the directories of arrangements in a state's directory, with their shards' directories; none in an object store."""
    if not fs(directory).has_directories:
        return {}
    return {
        arrangement: ours(arrangement, SHARD, directories=True)
        for arrangement in ours(directory / "arrangements", ARRANGEMENT, directories=True)
    }


def _batches_in(directory: Path, shards: Iterable[Path]) -> list[Path]:
    """Return the batch files in the directories of shards, whether they are named or not; one listing has all objects."""
    if fs(directory).has_directories:
        return [path for shard in shards for path in ours(shard, BATCH, WAITING)]
    place = directory / "arrangements"
    return [path for path in fs(place).files_below() if _is_batch(path.parts[len(place.parts) :])]


def _is_batch(parts: Sequence[str]) -> bool:
    """Return whether the parts of a path below the arrangements belong to a batch file, or to one that waited for its name."""
    forms = ((ARRANGEMENT,), (SHARD,), (BATCH, WAITING))
    return len(parts) == len(forms) and all(
        any(form.fullmatch(part) for form in some) for some, part in zip(forms, parts, strict=True)
    )


def _remove_outputs(
    files: Files,
    directory: Path,
    kept: Sequence[Manifest],
    outputs: Mapping[Path, Sequence[DirectoryEntry]],
    logs: Iterable[Path],
) -> None:
    """Remove files that wait in directories of `outputs` for a commit, each with its entries, and `logs` of the state that belong to no output of a manifest."""
    files.remove_all(
        [each.path for there in outputs.values() for each in there if each.file and WAITING.fullmatch(each.path.name)]
    )
    for output, there in outputs.items():
        folders = [each.path for each in there if each.directory]
        _remove_folders(files, [path for path in folders if WAITING_FOLDER.fullmatch(path.name)])
        if fs(output).has_directories:  # no store has empty folders
            _remove_folders(files, [path for path in folders if FOLDER.fullmatch(path.name)], full=False)
    named = {locate(directory, output.path) for each in kept for output in each.outputs.values()}
    for log in logs:
        if log not in named:  # no other state reads a log in this one: an output that comes back begins anew
            files.remove_all(ours(log, OF_OUTPUT, WAITING))
            _remove_folders(files, ours(log, FOLDER, WAITING_FOLDER, directories=True))


def _remove_folders(files: Files, folders: Iterable[Path], *, full: bool = True) -> None:
    """Remove folders of large commits, with their files; or, if not `full` ones, those that are empty."""
    for folder in folders:
        if full:
            files.remove_all(ours(folder, PART))
        if not fs(folder).entries():
            files.remove_directory(folder)


def clear_scratch(directory: Path, files: Files) -> None:
    """Remove a scratch directory with the files in it that have names of ours; it stays where there are others."""
    files.remove_all(ours(directory, SCRATCH))
    if fs(directory).has_directories and fs(directory).is_dir() and not fs(directory).entries():
        files.remove_directory(directory)


def waiting_path(path: Path, number: int, mark: str) -> Path:
    """Return the name under which a file of an output waits for the commit with a number; for one in a folder beside that, as readers take all files in folders."""
    if PART.fullmatch(path.name) and FOLDER.fullmatch(path.parent.name):
        path = path.parent.with_name(f"{path.parent.name}.{path.name}")
    return temporary(path, number, mark)


def publish(files: Files, renamings: Iterable[tuple[Path, Path]]) -> None:
    """Give the outputs of a commit their final names: of all `renamings`, or, where it was begun before, of the `unpublished` ones."""
    waiting = dict(renamings)
    for _, sources in groupby(waiting, lambda source: (TEMPORARY in source.name, waiting[source].name == PROGRESS)):
        one_by_one(lambda source: files.rename(source, waiting[source]), list(sources))
    for parent in sorted({target.parent for target in waiting.values()}):
        files.sync_directory(parent)


def check_renamings(directory: Path, renamings: Iterable[tuple[Path, Path]], written: frozenset[Path]) -> None:
    """Refuse renamings of a manifest elsewhere than in the state, or in a directory that is `written` to, or its folder of a large commit (StateError)."""
    for source, target in renamings:
        folder = target.parent.parent if FOLDER.fullmatch(target.parent.name) else target.parent
        if not written.intersection((target.parent, folder)) and not target.is_relative_to(directory):
            raise StateError(
                "the state's last commit would give a file its name in a directory that none of the pipeline's outputs has",
                place=str(source),
                hint="name the pipeline file, with the outputs' `path` as it was; or remove the file, if it is not of this state",
            )


def unpublished(directory: Path, manifest: Manifest) -> list[tuple[Path, Path]]:
    """Return the renames that a commit still has to do: with any, a run must open the state even if no input is new.

    The progress of outputs gets its name last. So an object store is asked for it first, and, if none waits, for nothing else.
    """
    pairs = renamings(directory, manifest)
    last = [source for source, target in pairs if target.name == PROGRESS]
    there: dict[Path, bool] = {}

    def look(sources: Sequence[Path]) -> None:
        one_by_one(lambda path: there.update({path: _is_waiting(path)}), sources)

    if last and not any(fs(source).is_local for source in last):
        look(last)
        if not any(there.values()):
            return []
    look([source for source, _ in pairs if source not in there])
    return [(source, target) for source, target in pairs if there[source]]


def renamings(directory: Path, manifest: Manifest) -> list[tuple[Path, Path]]:
    """Return all renames of a commit, those that are done among them."""
    return [(locate(directory, source), locate(directory, target)) for source, target in manifest.publish]


def _is_waiting(path: Path) -> bool:
    """Return whether a file exists that a commit has yet to rename. No object is below an object of such a name: the store is asked once."""
    return fs(path).exists() if fs(path).has_directories else path.is_file()


def check_directory(directory: Path) -> None:
    """Refuse a directory without a manifest that is neither empty nor a state (StateError): it may be anybody's.

    The lock marks a directory as a state that has no manifest yet, or has lost it: it is made first, and names its maker.
    """
    found, lock = fs(directory).entries(), directory / LOCK
    if not found:
        return
    try:
        if lock in [entry.path for entry in found] and (is_signed(read_bytes(lock)) or len(found) == 1):
            return
    except FileNotFoundError:  # of an object store: it was given back just now
        return
    raise StateError(
        f"the directory is not empty, and no state: it has '{found[0].path.name}'",
        place=str(directory),
        hint="name another directory for the state, with `--state` or `state:` in the pipeline file",
    )
