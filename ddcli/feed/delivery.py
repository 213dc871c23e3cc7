"""The changes of an output since a consumer last acknowledged: the sum of the files of later commits.

Nothing is locked while files are read: the files that a manifest names exist until a newer manifest does, and if one vanishes, the newer
manifest is read. A consumer's position is kept in the state (see `store.state.consumers`). It moves when the consumer acknowledges
changes; until then they are offered again, together with newer ones.
"""

from __future__ import annotations

from dataclasses import replace
from time import sleep
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import frozen
from ddcli.errors import DdError, InputError, LockedError, StateError, UsageError, suggestion
from ddcli.expressions.types import parse_schema
from ddcli.feed.targets import Delivery, Subscription
from ddcli.sources.change_log import DIFF, LATEST, ChangeLog
from ddcli.store.batch.checked_files import check_bytes
from ddcli.store.files.access import locate, real, unreadable
from ddcli.store.files.gate import Files
from ddcli.store.formats.base import Updates
from ddcli.store.log.joint_files import updates_after
from ddcli.store.state.consumers import (
    Consumer,
    check_name,
    consuming,
    is_passed,
    read_consumers,
    remove_consumer,
    write_consumer,
)
from ddcli.store.state.contents import unpublished
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import output_paths, read_owned
from ddcli.store.tables.kinds import READ_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.feed.targets import DatabaseFeed, ParquetFeed
    from ddcli.store.state.entries import FileEntry, OutputEntry
    from ddcli.store.state.manifest import Manifest

ATTEMPTS, PATIENCE = 100, 0.05
"""The number of attempts to read the newest commit, and the seconds between them."""
BEGIN = "have it start again, with the whole contents: `dd feed OUTPUT --consumer NAME --drop`, then ask again"
ANEW = "deliver to a new place, or remove this target; `dd feed OUTPUT --consumer NAME --drop`: both start again, with the whole contents"


@frozen
class OutputFeed:
    """An output that is open to consumers: its path, and the state that writes it."""

    path: Path
    state: Path

    @classmethod
    def open(cls, output: str, base: Path, state: Path | None = None) -> OutputFeed:
        """Open an output by the path of its directory, relative to `base`; by default its progress file names its state."""
        path = real(locate(base, output))
        _, owner = read_owned(path)
        if owner is None:
            hint = "name the directory of an output, as `dd state ls` lists them"
            raise InputError("this is not an output of a pipeline", place=str(path), hint=hint)
        found = cls(path, real(locate(path, owner.path) if state is None else state))
        manifest, _ = found._newest()
        if manifest.identity != owner.state:
            hint = "name its state with --state"
            raise StateError(f"the output is not of the state at '{found.state}'", place=str(path), hint=hint)
        return found

    def consumers(self) -> list[tuple[Consumer, int]]:
        """Return the consumers of this output, each with the number of files that it lacks: all, if it must begin anew."""
        manifest, output = self._newest()
        mine = self._mine(manifest, output)
        now = {each.name for each in mine if each.log == output.log}
        return [
            (each, len(_files_after(output.files, each.acknowledged if each.log == output.log else 0)))
            for each in mine
            if each.log == output.log or (each.acknowledged and each.name not in now)
        ]

    def passed(self) -> dict[str, str]:
        """Return the consumers that must resynchronize, with the reason: `too far behind` (the updates that they lack were summed up) or `written anew`."""
        _, output = self._newest()
        first = next(iter(output.files), None)
        return {
            each.name: "too far behind" if each.log == output.log else "written anew"
            for each, _ in self.consumers()
            if each.log != output.log or is_passed(first, each.acknowledged)
        }

    def follow(self, consumer: str, commits: Iterable[None]) -> Iterator[Delivery]:
        """Yield the changes since a consumer last acknowledged, and at each further commit those since the one before; record that they were offered.

        A new consumer is at the beginning, and gets the whole contents first. Without new files nothing is offered.
        The consumer may acknowledge all changes up to one of these together.
        """
        manifest, output = self._newest()
        since = at = self._find(consumer, manifest, output).acknowledged
        for _ in commits:
            found = self.changes(at, output.log)
            at = found.position
            with consuming(self.state, Files()):
                manifest, now = self._newest()
                known = self._find(consumer, manifest, now)
                if now.log == output.log and known.acknowledged == since:  # else there is nothing to acknowledge
                    offered = known.offering(at) if found.files else known
                    if offered not in read_consumers(self.state):
                        write_consumer(self.state, offered, Files())
            yield replace(found, since=since)

    def newer(self) -> Callable[[], bool]:
        """Return a function that returns whether there was a commit since its last call, at first since now."""
        seen = [self._newest()[0].number]

        def look() -> bool:
            before, seen[0] = seen[0], self._newest()[0].number
            return seen[0] != before

        return look

    def changes(self, since: int, log: str) -> Delivery:
        """Return the changes of a log since a position."""
        for _ in range(ATTEMPTS):
            manifest, output = self._newest()
            if output.log != log:
                raise self._written_anew("it was read")
            if since > manifest.number:
                raise StateError(
                    f"the consumer is at {since}, and the output at {manifest.number}: its state was put back to an earlier one",
                    place=str(self.path),
                    hint=BEGIN,
                )
            if not all(real(target.parent) != self.path for _, target in unpublished(self.state, manifest)):
                sleep(PATIENCE)
                continue
            try:
                return self._changes(manifest, output, since)
            except (DdError, OSError, *READ_ERRORS):
                # Its files are gone because there is a newer commit, or something is wrong with them.
                newest = read_newest(self.state)
                if newest is None or newest.number == manifest.number:
                    raise
        raise LockedError(
            "the last commit isn't fully published, or the next one replaces it before it is read",
            place=str(self.path),
            hint="ask again; if a run has died, the pipeline's next run finishes it",
        )

    def acknowledge(self, consumer: str, since: int | None = None, position: int | None = None) -> Consumer:
        """Move a consumer to a position that it was offered, by default the last one, and return the moved consumer.

        Raises UsageError for an unknown consumer.
        """
        _check_name(consumer)
        with consuming(self.state, Files()):
            manifest, output = self._newest()
            known, there = self._find(consumer, manifest, output), self._mine(manifest, output)
            if known not in there:
                raise self._unknown(consumer, there)
            if since is None or position is None:
                if not known.offered:
                    return known
                since, position = known.acknowledged, known.offered[-1]
            moved = known.acknowledging(since, position)
            if moved != known:
                write_consumer(self.state, moved, Files())
            return moved

    def transfer(
        self, consumer: str, target: Callable[[Subscription], ParquetFeed | DatabaseFeed]
    ) -> tuple[Delivery, str]:
        """Deliver to a target the changes since its last delivery, exactly once; return them, and the target's place.

        The target's own position counts. The consumer's position follows it, so that the log keeps the updates that are still to come.
        """
        manifest, output = self._newest()
        known = self._find(consumer, manifest, output)
        place = target(Subscription(consumer, manifest.identity, output.log))
        at = place.position()
        if at < known.acknowledged:
            raise StateError(
                f"the target is at {at}, and consumer '{consumer}' at {known.acknowledged}: it was fed elsewhere, or the target "
                "was put back",
                place=place.place,
                hint="use another consumer; or drop this one, and start again with an empty target",
            )
        try:
            found = self.changes(at, output.log)
        except StateError as error:
            if error.hint == BEGIN:
                error.hint = ANEW
            raise
        with consuming(self.state, Files()):
            before = self._find(consumer, *self._newest())
            is_new = before not in read_consumers(self.state)
            # The process that delivered last may have died before it moved the consumer.
            now = before
            if now.acknowledged < at:
                now = replace(now, before=now.acknowledged, acknowledged=at, offered=())
            now = now.offering(found.position) if found.files else now
            write_consumer(self.state, now, Files())
        if found.files:
            try:
                place.add(found)
            except LockedError:
                raise
            except DdError:
                if is_new:
                    self._withdraw(now)
                raise
            self.acknowledge(consumer, found.since, found.position)
        return found, place.place

    def _withdraw(self, consumer: Consumer) -> None:
        """Remove a consumer whose first delivery failed, unless another process has moved it since: it would hold the log for ever."""
        with consuming(self.state, Files()):
            if consumer in read_consumers(self.state):
                remove_consumer(self.state, consumer, Files())

    def drop(self, consumer: str) -> Consumer:
        """Remove a consumer, and return it."""
        _check_name(consumer)
        manifest, output = self._newest()
        with consuming(self.state, Files()):
            there = self._mine(manifest, output)
            found = [each for each in there if each.name == consumer]
            for each in found:
                remove_consumer(self.state, each, Files())
        if not found:
            raise self._unknown(consumer, there)
        return found[-1]

    def _unknown(self, consumer: str, there: Sequence[Consumer]) -> UsageError:
        names = [each.name for each in there]
        hint = suggestion(consumer, names, f"consumers: {', '.join(names) or 'none'}")
        return UsageError(f"the output has no consumer '{consumer}'", place=str(self.path), hint=hint)

    def _find(self, consumer: str, manifest: Manifest, output: OutputEntry) -> Consumer:
        """Return the consumer of the output's log; a new one at the beginning. Refuses a consumer of the log that this one replaced."""
        _check_name(consumer)
        known = [each for each in self._mine(manifest, output) if each.name == consumer]
        if found := [each for each in known if each.log == output.log]:
            return found[0]
        if any(each.acknowledged for each in known):
            raise self._written_anew(f"consumer '{consumer}' got it")
        return Consumer(consumer, output.log, _name_of(manifest, output))

    def _written_anew(self, since: str) -> StateError:
        problem = f"the output was rewritten since {since}: its changes are no longer known"
        return StateError(problem, place=str(self.path), hint=BEGIN)

    def _mine(self, manifest: Manifest, output: OutputEntry) -> list[Consumer]:
        """Return the consumers of this output's log, and of the logs that the output had before it was written anew."""
        logs = {each.log for each in manifest.outputs.values()}
        name = _name_of(manifest, output)
        return [
            each
            for each in read_consumers(self.state)
            if each.log == output.log or (each.log not in logs and each.output == name)
        ]

    def _newest(self) -> tuple[Manifest, OutputEntry]:
        """Return the newest commit, and its entry for the output."""
        manifest = read_newest(self.state)
        if manifest is None:
            hint = "put the state back, or name it with --state"
            raise StateError("the output's state does not exist", place=str(self.state), hint=hint)
        paths = output_paths(self.state, manifest)
        for name, path in paths.items():
            if real(path) == self.path:
                return manifest, manifest.outputs[name]
        hint = "name one of the outputs that `dd state ls` lists"
        raise StateError(f"the state at '{self.state}' writes no such output", place=str(self.path), hint=hint)

    def _changes(self, manifest: Manifest, output: OutputEntry, since: int) -> Delivery:
        later = _files_after(output.files, since)
        if not any(file.rows for file in later):  # an output without rows so far has a file for its columns
            schema = {name: kind.to_polars() for name, kind in parse_schema(output.schema).items()}
            return Delivery(since, since, pl.DataFrame(schema=schema | {DIFF: pl.Int64}), 0)
        for file in later:
            check_bytes(self.path / file.name, file)
        found = updates_after(self.path, later, since)
        if found is None:
            raise StateError(
                f"the consumer is at {since}, and commits {later[0].first} to {later[0].commit} were summed up since: the updates that it lacks are no longer known",
                place=str(self.path / later[0].name),
                hint=BEGIN,
            )
        return Delivery(since, manifest.number, self._summed(manifest, output, *found), len(later))

    def _summed(self, manifest: Manifest, output: OutputEntry, files: Sequence[FileEntry], known: int) -> pl.DataFrame:
        """Return the sum of the updates in some files, without the first `known` rows.

        The last file may grow meanwhile: only the rows that the manifest counts are read.
        """
        columns = parse_schema(output.schema)  # older files may lack some
        form = Updates(tuple(manifest.cache["time"]), columns, diff=DIFF, absent=tuple(columns))
        log = ChangeLog.of_files(self.path, files, form)
        first, last = log.reader.scan([0]), log.reader.scan([len(files) - 1])
        if len(files) == 1:
            parts = [first.slice(known, files[0].rows - known)]
        else:
            between = [log.reader.scan(range(1, len(files) - 1))] if len(files) > 2 else []
            parts = [first.slice(known), *between, last.slice(0, files[-1].rows)]
        try:
            return log.as_of(LATEST, rows=pl.concat(parts)).collect(engine="streaming")
        except OSError as error:
            raise unreadable(self.path, error) from None


def parse_token(text: str) -> tuple[int, int]:
    """Parse a token and return the position before the changes and the one after them.

    >>> parse_token("12-17")
    (12, 17)
    """
    since, dash, position = text.partition("-")
    if not (dash and since.isascii() and since.isdigit() and position.isascii() and position.isdigit()):
        raise UsageError(f"'{text}' is not a position", hint="write it as `dd feed` reported it: 12-17")
    if len(text) > 2 * len(str(1 << 63)):
        raise UsageError(f"'{text}' is not a position: its numbers are too large")
    return int(since), int(position)


def _files_after(files: Sequence[FileEntry], since: int) -> list[FileEntry]:
    """Return the files that have updates after a position; at the beginning, all."""
    return [file for file in files if not since or file.commit > since]


def _name_of(manifest: Manifest, output: OutputEntry) -> str:
    return next(name for name, each in manifest.outputs.items() if each.log == output.log)


def _check_name(consumer: str) -> None:
    """Refuse a consumer's name that is not a file name on every system."""
    try:
        check_name(consumer)
    except ValueError:
        raise UsageError(
            f"'{consumer}' is not a name for a consumer",
            hint="use up to 100 letters (a to z), digits, dots, hyphens and underscores, the first a letter, a digit or an underscore",
        ) from None
