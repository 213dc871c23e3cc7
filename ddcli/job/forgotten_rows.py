"""The rows that a state forgets: a condition for each input, and the fate of the files with rows that fulfil it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass, frozen
from ddcli.job.summary import plural, size_of
from ddcli.screen import near

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ddcli.store.log.rows import RowCondition
    from ddcli.store.state.entries import FileEntry, InputEntry, InputFile


@frozen
class ForgottenRows:
    """The number of rows of an input's files that were forgotten, and of unreadable ones, for which the condition can't be decided."""

    rows: int = 0
    undecided: int = 0


@frozen
class RewrittenFile:
    """A file that was replaced, its replacement, and their sizes; a path is None if there was no file before, or is none after."""

    was: str | None
    file: str | None
    bytes_before: int
    bytes: int


def digest_of(numbers: Sequence[int]) -> str:
    """Return a digest of sorted numbers of rows."""
    return hashlib.sha256(",".join(map(str, numbers)).encode()).hexdigest()[:20]


@dataclass
class ErasureRequest:
    """The conditions of a request to forget, by input, and its results: the inputs' rows, the files that were replaced and kept, and the places that still have such rows."""

    conditions: Mapping[str, RowCondition]
    mirrored: frozenset[str] = frozenset()
    """The inputs that are tables; the files of their mirrors belong to the state."""
    inputs: dict[str, ForgottenRows] = field(default_factory=dict)
    rewritten: list[RewrittenFile] = field(default_factory=list)
    kept: list[FileEntry] = field(default_factory=list)
    still_in: list[str] = field(default_factory=list)
    unclean: dict[str, dict[str, str]] = field(default_factory=dict)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    """The digests of the numbers of these rows, by input and file, of the files that still have some."""
    archived: dict[str, list[tuple[InputFile, list[int]]]] = field(default_factory=dict)
    """The archived files, or files of a mirror, that hold such rows, by input, with the rows' numbers."""
    counts: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """The numbers of these rows, by input and file; None where some of them may not have been taken in."""

    def begin(self) -> None:
        """Drop the findings of an earlier attempt."""
        for each in (self.inputs, self.rewritten, self.kept, self.still_in, self.unclean, self.digests):
            each.clear()
        self.archived.clear()
        self.counts.clear()

    def counted(self, name: str, entry: InputEntry) -> InputEntry:
        """Return the entry of an input whose files count the rows that are left."""
        counts = self.counts.get(name, {})

        def left(file: InputFile) -> InputFile:
            gone = counts.get(file.key, 0)
            return replace(file, rows=None if gone is None or file.rows is None else file.rows - gone)

        return replace(entry, files=tuple(map(left, entry.files))) if counts else entry

    def note(self, was: Path | None, before: int, file: Path | None, size: int) -> None:
        """Record that a file has replaced another."""
        names = None if was is None else str(was), None if file is None else str(file)
        self.rewritten.append(RewrittenFile(*names, before, size))


@frozen
class ForgettingSummary:
    """The summary of a request to forget, for a person or a program."""

    name: str
    seconds: float
    dry: bool
    inputs: dict[str, ForgottenRows]
    rewritten: list[RewrittenFile]
    kept_files: int
    kept_bytes: int
    state_bytes_before: int
    state_bytes: int
    still_in: list[str]
    versions_in: list[str]
    """The outputs whose tables no longer have the rows, but may keep older versions that do."""
    readers: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        rows = sum(each.rows for each in self.inputs.values())
        dry = ", dry run" if self.dry else ""
        lines = [f"{self.name}: {rows:,} {plural(rows, 'row')} forgotten, {self.seconds:.2f} s{dry}"]
        for name, each in self.inputs.items():
            lines.append(f"  forgot {name}: {each.rows:,} {plural(each.rows, 'row')}")
            if each.undecided:
                lines.append(
                    f"  left   {name}: {each.undecided:,} {plural(each.undecided, 'row')} that can't be read: look for them in the log of these"
                )
        if not self.dry:
            before, after = (sum(getattr(one, what) for one in self.rewritten) for what in ("bytes_before", "bytes"))
            lines.append(
                f"  wrote  {len(self.rewritten):,} {plural(len(self.rewritten), 'file')} anew: {size_of(before)} before, {size_of(after)} now"
            )
            lines.append(
                f"  kept   {self.kept_files:,} {plural(self.kept_files, 'file')} without such rows, {size_of(self.kept_bytes)}"
            )
            lines.append(f"  state  {size_of(self.state_bytes_before)} before, {size_of(self.state_bytes)} now")
        lines += [f"  still in {near(path)}: remove the rows there, and repeat this command" for path in self.still_in]
        lines += [
            f"  older versions of the table of {name} may be left: remove them there" for name in self.versions_in
        ]
        return lines + [f"  read by {name}: forget them there, too" for name in self.readers]
