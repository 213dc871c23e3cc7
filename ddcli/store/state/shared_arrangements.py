"""Arrangements shared between states: an exported one is found by its readers in other pipelines, and held by them while they need it.

A reader's claim on a state is a hold (see `directory`). Its first one is made under the state's own lock, when no run is under way that would not know it.

Imports no third-party library: a run with nothing new looks here whether the other pipeline has moved on.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.engine.times import Frontier
from ddcli.errors import InputError, suggestion
from ddcli.expressions.types import parse_schema
from ddcli.store.files.access import real
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import take_lock
from ddcli.store.state.directory import Hold, find_hold, holding, read_holds, release, write_hold
from ddcli.store.state.entries import Times, times
from ddcli.store.state.manifest import read_newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.files.lock import IfLocked
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.state.entries import ArrangementEntry, InputEntry
    from ddcli.store.state.manifest import Manifest


@frozen
class Shared:
    """An arrangement that another pipeline exports, as one manifest of its state has it, and the reader's hold on it, if there was one."""

    state: Path
    name: str
    manifest: Manifest
    hold: Hold | None = None

    @property
    def since(self) -> Frontier:
        """The times from which on times are kept apart for the reader: not after the state's frontier, even if that was taken back."""
        return Frontier((*self.manifest.upper, *(self.hold.since if self.hold else ())))

    @property
    def mark(self) -> str:
        """The mark of the manifest: another history of the state has other ones."""
        return mark_of(self.manifest)

    def continues(self, known: InputEntry) -> bool:
        """Return whether this continues the history that a reader knows: the state has not been restored from an older copy since.

        An entry that an earlier version wrote has no mark.
        """
        return known.mark in ("", self.mark, *(self.hold.marks if self.hold else ()))

    @property
    def identity(self) -> str:
        """Its identity in that state."""
        return self.manifest.exports[self.name]

    @property
    def built(self) -> int:
        """The commit that has built it anew as something in it was taken back; 0, none."""
        return int(self.manifest.cache.get("built", {}).get(self.identity, 0))

    @property
    def forgot(self) -> int:
        """The last commit of that state that has built all anew to forget rows; 0, none."""
        return int(self.manifest.cache.get("forgot", 0))

    @property
    def entry(self) -> ArrangementEntry:
        """Its batches."""
        return self.manifest.arrangements[self.identity]

    def schema(self, time: Sequence[str]) -> LogSchema:
        """Return its columns, the key's first; its time is called as the reader's, if that has as many coordinates."""
        from ddcli.store.log.schema import LogSchema

        columns, kinds = (parse_schema(texts) for texts in (self.entry.schema, self.manifest.cache["time"]))
        ordered = {name: columns[name] for name in self.entry.key} | columns
        named = dict(zip(time, kinds.values(), strict=True)) if len(time) == len(kinds) else kinds
        return LogSchema(ordered, named, diff=True)


def mark_of(manifest: Manifest) -> str:
    """Return a text that identifies a commit of a state among the commits of all its histories, as far as its exports are concerned."""
    files = [file for each in sorted(manifest.exports.values()) for file in manifest.arrangements[each].files]
    facts = manifest.identity, manifest.number, manifest.upper, [(file.name, file.checksum) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def find_shared(state: Path, name: str, reader: str | None = None) -> Shared:
    """Return the arrangement that a state exports under a name, as of now, with the hold of a reader. Raises InputError without one."""
    state = real(state)
    manifest = read_newest(state)
    if manifest is None:
        hint = "check the input's `import: {state: ...}`, relative to this file; run the exporting pipeline first"
        raise InputError("there is no state of a pipeline to import from", place=str(state), hint=hint)
    if name not in manifest.exports:
        exported = [each for each in manifest.exports if ":" not in each]  # histories have the others
        listed = f"it exports: {', '.join(exported)}" if exported else "it exports nothing"
        advice = f"write `arrange: {{by: [..], export: {name}}}` there, and run it"
        hint = suggestion(name, exported, f"{listed}; {advice}")
        raise InputError(f"the pipeline '{manifest.name}' exports no '{name}'", place=str(state), hint=hint)
    return Shared(state, name, manifest, find_hold(state, reader) if reader else None)


@contextmanager
def reading(
    reader: str, own: Path, wanted: Mapping[str, tuple[Path, str]], if_locked: IfLocked
) -> Iterator[dict[str, Shared]]:
    """Hold the arrangements that a reader imports (by input: the state, the name) while it reads them.

    The first time, it makes sure that no run of the exporter is under way, which would not know the hold. Afterwards the
    exporter keeps updates beyond the reader's frontier, and may remove the files of this moment when the read ends. A reader that
    has ended without a commit of its import holds nothing: it begins anew, from the arrangement that is exported then.
    """
    states = {state: [name for place, name in wanted.values() if place == state] for state, _ in wanted.values()}
    files, name = Files(), reader_name(reader, own)
    pinned: dict[Path, tuple[Manifest, Hold | None]] = {}
    taken = _marks_taken(own, wanted)
    first: set[Path] = set()
    try:
        for state, names in states.items():
            with ExitStack() as stack:
                identities = tuple(sorted({find_shared(state, each).identity for each in names}))
                known = find_hold(state, name)
                if known is None or not set(identities) <= set(known.arrangements):
                    lock = take_lock(state, files, if_locked)
                    stack.callback(lock.release)
                with holding(state, files):
                    found = [find_shared(state, each) for each in names]
                    manifest = found[0].manifest
                    since = Frontier((*manifest.upper, *(known.since if known else ()))).elements
                    through = Frontier((*manifest.upper, *(known.through if known else ()))).elements
                    # Of a restored state the hold is an older one: its marks stay, so that it is refused as long as it is not read anew.
                    goes_on = known is None or taken.get(state, frozenset()) <= {*known.marks, mark_of(manifest)}
                    marks = known.marks if known and not goes_on else {*taken.get(state, ()), mark_of(manifest)}
                    hold = Hold(
                        name,
                        str(own),
                        tuple(sorted({s.identity for s in found})),
                        since,
                        through,
                        manifest.number,
                        tuple(sorted(marks)),
                    )
                    write_hold(state, hold, files)
                    pinned[state] = manifest, known
                    if known is None:
                        first.add(state)
        yield {each: Shared(state, arrangement, *pinned[state]) for each, (state, arrangement) in wanted.items()}
    finally:
        for state in pinned:
            if state in first and not _has_taken(own, [each for each, (place, _) in wanted.items() if place == state]):
                release(state, name, files)
                continue
            with holding(state, files):
                hold_now = find_hold(state, name)
                if hold_now is not None:
                    write_hold(state, replace(hold_now, manifest=None), files)


def _marks_taken(own: Path, wanted: Mapping[str, tuple[Path, str]]) -> dict[Path, frozenset[str]]:
    """Return the marks of the commits of each state that a reader has read, by the newest commit of its own state."""
    manifest = read_newest(own) if wanted else None
    return {} if manifest is None else {state: marks for state, (_, marks) in taken_of(manifest, wanted).items()}


def _has_taken(own: Path, inputs: Iterable[str]) -> bool:
    """Return whether the newest commit of a reader's state has one of these inputs."""
    manifest = read_newest(own)
    return manifest is not None and any(each in manifest.inputs for each in inputs)


def taken_of(manifest: Manifest, wanted: Mapping[str, tuple[Path, str]]) -> dict[Path, tuple[Times, frozenset[str]]]:
    """Return for each state the frontier up to which, by a reader's manifest, all of its imports have been taken, and the marks of its commits that were read.

    Times before the frontier at which an import began are merged, so it is held there until the reader is.
    """
    found: dict[Path, list[InputEntry]] = {}
    for name, (state, _) in wanted.items():
        if name in manifest.inputs and manifest.inputs[name].is_imported:
            found.setdefault(state, []).append(manifest.inputs[name])
    return {
        state: (
            Frontier(time for each in entries for time in taken_up_to(each)).elements,
            frozenset(each.mark for each in entries if each.mark),
        )
        for state, entries in found.items()
    }


def taken_up_to(entry: InputEntry) -> Frontier:
    """Return the frontier up to which an import has been taken, as a reader's manifest has it: not before the one at which it began."""
    upper, begin = Frontier(entry.upper), Frontier(times(entry.schema["begin"]))
    return upper if begin.dominates(upper) else begin


def advance_holds(reader: str, own: Path, taken: Mapping[Path, tuple[Times, frozenset[str]]]) -> None:
    """Advance a reader's holds to the frontiers of the exports that it has taken and committed: older times may be compacted."""
    files, name = Files(), reader_name(reader, own)
    for state, (bound, found) in taken.items():
        marks = tuple(sorted(found))
        with holding(state, files):
            hold = find_hold(state, name)
            if hold is not None and (hold.since, hold.through, hold.marks) != (bound, bound, marks):
                write_hold(state, replace(hold, since=bound, through=bound, marks=marks), files)


def forget(own: Path, states: Iterable[Path]) -> None:
    """Drop the holds of the state at `own`, which is gone, on others."""
    for state in states:
        for hold in read_holds(state):
            if hold.state == str(own):
                release(state, hold.reader, Files())


def reader_name(pipeline: str, state: Path) -> str:
    """Return the name of a reader, which its state's place makes unique even among pipelines of one name."""
    return f"{pipeline}-{hashlib.sha256(str(state).encode()).hexdigest()[:8]}"
