"""The upkeep of a state between runs: its contents listed, its batches compacted or distributed to other shards, leavings removed, its files checked.

Functions that only read take no lock: a manifest is replaced as a whole. `written` are the directories outside of the
state that its pipeline writes to; if no pipeline is named, the logs of outputs that name this state as their owner.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ddcli.engine.times import CLOSED, Frontier
from ddcli.errors import DdError, LockedError, StateError, UsageError, did_you_mean, suggestion
from ddcli.expressions.types import POOLED, parse_type
from ddcli.store.batch.checked_files import check_bytes, damaged, unreadable
from ddcli.store.files.access import read_bytes, real
from ddcli.store.files.gate import PENDING, Files, checksum, one_by_one
from ddcli.store.files.lock import NAME, OF_OUTPUT, take_lock
from ddcli.store.state.batch_lists import members
from ddcli.store.state.consumers import is_passed, passed_by, read_consumers
from ddcli.store.state.contents import state_files, unpublished
from ddcli.store.state.directory import State, find_hold, read_claims, read_holds, release
from ddcli.store.state.entries import Size
from ddcli.store.state.manifest import BUSY, Manifest, read_newest
from ddcli.store.state.outputs import file_of, is_owned, output_files, output_paths, relative_file
from ddcli.store.texts import format_frontier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Type
    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.directory import Hold
    from ddcli.store.state.entries import ArrangementEntry, FileEntry, Times
    from ddcli.store.state.transaction import Transaction


Result = TypeVar("Result")
ATTEMPTS = 3
"""Attempts at a state to which runs commit meanwhile: each is on the newest commit."""
WAITING = "-waiting"
"""The ending of arrangements whose rows wait for a time, which is their key: they are partitioned by their data."""


def manifest_of(directory: Path) -> Manifest:
    """Return the newest manifest of a state, or refuse a directory that has none (StateError)."""
    manifest = read_newest(directory)
    if manifest is None:
        hint = "name the pipeline whose state it is, or the directory with --state; the first `dd run` makes it"
        raise StateError("there is no state here", place=str(directory), hint=hint)
    return manifest


def on_newest(
    newest: Callable[[], Manifest],
    attempt: Callable[[Manifest], Result],
    stands: Callable[[Result, Manifest], bool],
    again: Callable[[], None],
) -> tuple[Result, bool]:
    """Return the result of an attempt that reads the `newest` commit of a state, without a lock, and whether it `stands`, whatever was committed since.

    If it doesn't, or an attempt fails and there is a newer commit, which may have removed the files that it reads, it begins `again` on that one. After the last
    attempt the error says so.
    """
    from ddcli.store.tables.kinds import READ_ERRORS

    for left in reversed(range(ATTEMPTS)):
        manifest = newest()
        try:
            found = attempt(manifest)
        except (DdError, OSError, *READ_ERRORS) as error:
            committed = newest().number != manifest.number
            if committed and not left and isinstance(error, DdError):
                error.hint = BUSY
            if not (committed and left):
                raise
        else:
            if (right := stands(found, manifest)) or not left:
                return found, right
        again()
    raise AssertionError("the last attempt returns or raises")


def overview(directory: Path, manifest: Manifest, names: Mapping[str, str]) -> dict[str, Any]:
    """Return a state's contents as plain values: its arrangements, for which `names` has names, outputs and holds."""
    paths = output_paths(directory, manifest)
    outputs = [
        {"name": name, "path": str(paths[name]), "files": len(entry.files)}
        | {"rows": sum(file.rows for file in entry.files), "bytes": sum(file.size for file in entry.files)}
        for name, entry in manifest.outputs.items()
    ]
    size = manifest.size
    firsts = {each.log: next(iter(each.files), None) for each in manifest.outputs.values()}
    return {
        "name": manifest.name,
        "state": str(directory),
        "manifest": manifest.number,
        "upper": _text(manifest, manifest.upper),
        "rows": size.rows,
        "bytes": size.bytes,
        "arrangements": [
            _facts(manifest, name, entry, names.get(name)) for name, entry in manifest.arrangements.items()
        ],
        "outputs": outputs,
        "holds": [
            shown(hold)
            | {name: _text(manifest, getattr(hold, name)) for name in ("since", "through")}
            | {"passed": passed_by(manifest, hold)}
            for hold in read_holds(directory)
        ],
        "consumers": [
            {"consumer": each.name, "output": each.output, "acknowledged": each.acknowledged}
            | {"passed": is_passed(firsts.get(each.log), each.acknowledged)}
            for each in read_consumers(directory)
        ],
    }


def details(manifest: Manifest, name: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Return an arrangement's contents as plain values: it is named by its entry in `names`, or by its hash's beginning."""
    found = [known for known in manifest.arrangements if names.get(known) == name]
    found = found or [known for known in manifest.arrangements if known.startswith(name)]
    if len(found) != 1:
        listed = found or [*names.values(), *manifest.arrangements]
        near = did_you_mean(name, listed)
        hint = f"did you mean '{near}'?" if near and not found else f"arrangements: {', '.join(listed)}"
        problem = "several arrangements' names begin with" if found else "no arrangement is named"
        raise UsageError(f"{problem} '{name}'", hint=hint)
    entry = manifest.arrangements[found[0]]
    files = [
        {
            "shard": shard,
            "file": f"{file.bundle}/{file.name}".lstrip("/"),
            "run": file.run,
            "rows": file.rows,
            "bytes": file.size,
        }
        | {name: _text(manifest, getattr(file, name)) for name in ("lower", "upper", "since")}
        for shard, batches in enumerate(entry.shards)
        for file in batches
    ]
    return {**_facts(manifest, found[0], entry, names.get(found[0])), "files": files}


def shown(hold: Hold) -> dict[str, Any]:
    """Return the facts of a hold that a person is shown."""
    return {name: value for name, value in asdict(hold).items() if name != "marks"}


def release_hold(directory: Path, reader: str) -> Hold:
    """Drop a reader's hold and return it. The reader must begin anew if it ever comes back."""
    manifest_of(directory)
    known = find_hold(directory, reader)
    if known is not None and known.branch:
        hint = f"`dd branch drop {known.branch} PIPELINE` drops the branch with its hold"
        raise UsageError("a branch reads files of the state as long as it exists", place=str(directory), hint=hint)
    found = release(directory, reader, Files())
    if found is None:
        readers = [hold.reader for hold in read_holds(directory)]
        hint = suggestion(reader, readers, f"readers: {', '.join(readers) or 'none'}")
        raise UsageError(f"no reader is named '{reader}'", place=str(directory), hint=hint)
    return found


@contextmanager
def _opened(directory: Path, written: Iterable[Path] | None, if_locked: IfLocked) -> Iterator[tuple[State, Manifest]]:
    """Open an existing state, to change it; yield it with its manifest. `written`: see `written_to`."""
    outputs = written_to(directory, manifest_of(directory), written)
    with State.open(directory, outputs, written=written, if_locked=if_locked) as state:
        assert state.manifest is not None, "the state was there when it was looked at"
        yield state, state.manifest


def adopt(
    directory: Path, file: Path, name: str, *, written: Iterable[Path], if_locked: IfLocked = "fail"
) -> Path | None:
    """Give a state to the pipeline `file` of this name, and commit that; return the file that it belonged to, if it remembered one."""
    with _opened(directory, list(written), if_locked) as (state, manifest), state.begin() as transaction:
        transaction.commit(replace(manifest, name=name, file=relative_file(state.directory, file)))
    return file_of(directory, manifest)


def verify(directory: Path) -> tuple[int, Size, list[StateError]]:
    """Read every file of a state; return the manifest's number, the size of the files, and an error for each bad one.

    A commit meanwhile removes files that were still to be read: if there are errors then, all is read again.
    """
    while True:
        manifest = manifest_of(directory)
        wrong = list(verify_state(directory, manifest))
        if not wrong or manifest_of(directory).number == manifest.number:
            files = [*manifest.files, *(file for output in manifest.outputs.values() for file in output.files)]
            return manifest.number, Size.of(files), wrong


def compact_state(
    directory: Path,
    *,
    written: Iterable[Path] | None = None,
    if_locked: IfLocked = "fail",
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Size, Size]:
    """Merge the batches of each shard into one, as of the arrangement's since, and commit that; return the sizes before and after.

    Takes memory for a quarter of a million rows and one file, however large the state is. Updates that readers in other pipelines have
    not taken yet are left as they are. All batches have files of their own then, which any reader opens.
    """
    from ddcli.store.batch.compaction import compact_wholly
    from ddcli.store.batch.stored_batch import stored_batches

    with _opened(directory, written, if_locked) as (state, manifest):
        claims = read_claims(directory)
        arrangements = {}
        with state.begin() as transaction:
            for name, entry in manifest.arrangements.items():
                shards = []
                for shard, files in enumerate(entry.shards):
                    layout, stored = stored_batches(directory, name, entry, shard, manifest.secret_bytes)
                    since = claims.since(name, Frontier(entry.since or ()))
                    work = layout and compact_wholly(layout, stored, since=since, through=claims.through(name))
                    if work and work.changes:
                        say(f"compacting {name}, shard {shard + 1} of {len(entry.shards)}, batches: {len(files)}")
                    merged = work.write(transaction, name, shard) if work and work.changes else files
                    shards.append(tuple(transaction.take_out(name, shard, file) for file in merged))
                arrangements[name] = replace(entry, shards=tuple(shards))
            if arrangements != manifest.arrangements:
                transaction.commit(replace(manifest, arrangements=arrangements))
        assert state.manifest is not None
        return Size.of(manifest.files), Size.of(state.manifest.files)


def reshard_state(
    directory: Path,
    shards: int,
    *,
    written: Iterable[Path] | None = None,
    if_locked: IfLocked = "fail",
    say: Callable[[str], None] = lambda _: None,
) -> tuple[int, Size, Size]:
    """Distribute the rows of every arrangement to `shards` shards, and commit that; return the number before, and the sizes before and after.

    Nothing is computed again, merged, or moved to another time; with the same number nothing is written. Takes memory for half
    a million rows and one file. Readers in other pipelines continue where they were: the files that one is reading stay.
    """
    with _opened(directory, written, if_locked) as (state, manifest):
        arrangements = {}
        with state.begin() as transaction:
            for name, entry in manifest.arrangements.items():
                count = len(entry.shards)
                if count == shards:
                    continue
                say(f"resharding {name}: {count} -> {shards}")
                arrangements[name] = _distributed(transaction, name, entry, shards, manifest.secret_bytes)
            if arrangements:
                transaction.commit(replace(manifest, arrangements=manifest.arrangements | arrangements))
        assert state.manifest is not None
        return len(arrangements), Size.of(manifest.files), Size.of(state.manifest.files)


def rekey(state: State, secret: bytes, say: Callable[[str], None] = lambda _: None) -> Manifest:
    """Hash the values of an open state under another secret, and commit that; return the manifest.

    Files hold values, so nothing is computed again: rows are sorted anew, and distributed to the shards where they now belong. Takes memory
    for one file's rows. Readers in other pipelines continue where they were, as with `reshard_state`.
    """
    manifest = state.manifest
    assert manifest is not None, "a state has a secret from its first commit on"
    arrangements = dict(manifest.arrangements)
    with state.begin() as transaction:
        for name, entry in manifest.arrangements.items():
            if any(
                _type(kind).kind in POOLED for kind in entry.schema.values()
            ):  # the secret decides about their order
                say(f"sorting {name} anew")
                arrangements[name] = _distributed(transaction, name, entry, len(entry.shards), secret, anew=True)
        return transaction.commit(replace(manifest, arrangements=arrangements, secret=secret.hex()))


def _distributed(
    transaction: Transaction, name: str, entry: ArrangementEntry, shards: int, secret: bytes, *, anew: bool = False
) -> ArrangementEntry:
    """Return an arrangement with its rows distributed to a number of shards; with `anew` they are sorted by hashes under another secret."""
    from ddcli.store.batch.compaction import gathered, rehashed, repartition
    from ddcli.store.batch.stored_batch import stored_batches

    found: list[dict[int, list[FileEntry]]] = [{} for _ in range(shards)]
    count = len(entry.shards)
    for shard in range(count):
        layout, stored = stored_batches(transaction.state.directory, name, entry, shard, secret)
        lanes = layout.shard_lanes(waiting=name.endswith(WAITING)) if layout else ()
        for run, batch in enumerate(stored):
            parts = rehashed(batch, lanes, shards, run) if anew else repartition(batch, lanes, shard, count, shards)
            for at, made in parts:
                found[at].setdefault(shard, []).append(made.write(transaction, name, at))
    return replace(entry, shards=tuple(map(gathered, found)))


class _RecordingFiles(Files):
    """The store's file operations, with a list of the removed files and their sizes."""

    def __init__(self) -> None:
        self.removed: list[tuple[Path, int]] = []

    def do(self, operation: str, path: Path, action: Callable[[], Result]) -> Result:
        """Do one operation on one path."""
        if operation == "remove" and path.name not in {NAME, OF_OUTPUT} and path.is_file():
            self.removed.append((path, path.stat().st_size))
        return super().do(operation, path, action)


def collect_garbage(
    directory: Path, *, written: Iterable[Path] | None = None, if_locked: IfLocked = "fail"
) -> list[tuple[Path, int]]:
    """Finish or remove the leavings of a run that died; return the removed files with their sizes."""
    outputs, files = written_to(directory, manifest_of(directory), written), _RecordingFiles()
    State.open(directory, outputs, written=written, if_locked=if_locked, files=files).close()
    return files.removed


def written_to(directory: Path, manifest: Manifest, written: Iterable[Path] | None) -> dict[str, Path]:
    """Return the paths of outputs in whose directories files may be made or removed: a manifest may name any directory.

    They are among those that the pipeline writes to; if no pipeline is named, those that name this state as their owner themselves.
    """
    allowed = None if written is None else {real(path) for path in written}
    return {
        name: path
        for name, path in output_paths(directory, manifest).items()
        if (is_owned(path, manifest) if allowed is None else real(path) in allowed)
    }


def _facts(manifest: Manifest, name: str, entry: ArrangementEntry, of: str | None) -> dict[str, Any]:
    size = Size.of(entry.files)
    return {
        "name": name,
        "of": of,
        "key": list(entry.key),
        "columns": entry.schema,
        "rows": size.rows,
        "bytes": size.bytes,
        "shards": len(entry.shards),
        "batches": size.batches,
        "since": _text(manifest, entry.since),
        "upper": _text(manifest, entry.upper),
    }


def _text(manifest: Manifest, frontier: Times | None) -> str | None:
    """Return the times before a frontier as a person writes them."""
    if frontier is None:
        return None
    kinds = [_type(kind) for kind in manifest.cache["time"].values()]
    return format_frontier(Frontier(frontier), kinds) if frontier else CLOSED


def _type(text: str) -> Type:
    """Return the type that a manifest names."""
    kind = parse_type(text)
    assert kind is not None, f"a manifest names the type '{text}'"
    return kind


def lock_holder(directory: Path) -> LockedError | None:
    """Return the error that a run would end with because another process holds the lock, None where it is free."""
    try:
        take_lock(directory, Files()).release()
    except LockedError as error:
        return error
    return None


def remove_lock(directory: Path) -> None:
    """Remove the lock, even if a process holds it: the next run makes its own."""
    Files().remove(directory / NAME)


FINISH = "run the pipeline again, or `dd state gc`: both finish it"


def verify_state(directory: Path, manifest: Manifest) -> Iterator[StateError]:
    """Read every file that a manifest names, and yield an error for each that is damaged, or not yet published.

    Objects are read side by side, as many as have `PENDING` bytes together.
    """
    waiting = {target: source for source, target in unpublished(directory, manifest)}
    entries: dict[Path, list[FileEntry]] = defaultdict(list)
    for path, entry in (*state_files(directory, manifest), *output_files(directory, manifest)):
        folder = waiting.get(path.parent)
        entries[waiting.get(path, path) if folder is None else folder / path.name].append(entry)
    errors: dict[Path, list[StateError]] = {}

    def check(path: Path) -> None:
        errors[path] = list(_errors_of(path, entries[path]))

    for some in _together(entries):
        one_by_one(check, some)
        for path in some:
            yield from errors.pop(path)
    for target in waiting:
        yield StateError("the last commit isn't fully published", place=str(target), hint=FINISH)


def _together(entries: Mapping[Path, Sequence[FileEntry]]) -> Iterator[list[Path]]:
    """Yield the files in groups that may be in memory together, each of one file at least."""
    some: list[Path] = []
    used = 0
    for path, batches in entries.items():
        size = sum(entry.size for entry in batches)
        if some and used + size > PENDING:
            yield some
            some, used = [], 0
        some.append(path)
        used += size
    yield some


def _errors_of(path: Path, entries: Sequence[FileEntry]) -> Iterator[StateError]:
    """Yield an error for each entry of a file that its bytes are not as, or one for a bundle whose members differ from all of them."""
    try:
        if not entries[0].bundle:
            for entry in entries:
                check_bytes(path, entry)
            return
        content = read_bytes(path)  # once for all that are in it
    except (StateError, OSError) as error:
        yield error if isinstance(error, StateError) else unreadable(path, error)
        return
    right = True
    for entry in entries:
        part = memoryview(content)[entry.at : entry.at + entry.size]
        if len(part) != entry.size or checksum(part) != entry.checksum:
            right = False
            yield damaged(path)
    found = members(content) if right else {}
    if right and (found is None or any(found.get(entry.at) != entry.size for entry in entries)):
        yield damaged(path)
