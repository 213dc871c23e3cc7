"""The changes of a branch, and the conflicts with main: changes of both sides to one file, one key of an input, or the pipeline file.

What is computed from inputs never conflicts, as main computes it anew. Conflicts are found from the files that either side has read or
withdrawn since the branch began, and, of inputs with keys, from the rows of these files alone.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.dataclass import frozen
from ddcli.job.inputs import find_inputs
from ddcli.job.request import read_request
from ddcli.job.sizes import rows_held
from ddcli.sources.readers import in_files, open_logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.store.state.entries import InputEntry, InputFile
    from ddcli.store.state.manifest import Manifest

FILE = "\0file"
"""The column with the path of a row's file; no column of an input has this name."""


@frozen
class BranchChanges:
    """The changes of a branch since it began: the files that its inputs have beside main's, those that it withdrew, and whether its file was edited."""

    name: str
    state: Path
    file: Path
    commit: int
    added: Mapping[str, Sequence[InputFile]] = field(default_factory=dict)
    withdrawn: Mapping[str, Sequence[InputFile]] = field(default_factory=dict)
    edited: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        added = {name: [file.archived for file in files] for name, files in self.added.items()}
        withdrawn = {name: [file.archived or file.path for file in files] for name, files in self.withdrawn.items()}
        plain = {"branch": self.name, "state": str(self.state), "file": str(self.file), "commit": self.commit}
        return plain | {"added": added, "withdrawn": withdrawn, "edited": self.edited}


@frozen
class Conflict:
    """A file, a key of an input or the pipeline file that both sides have changed, and each side's change."""

    what: str
    main: str
    branch: str


def changed_files(
    before: InputEntry | None, now: Iterable[InputFile]
) -> tuple[dict[str, InputFile], dict[str, InputFile]]:
    """Return the files of an input that are new or have other content than before, and those that were withdrawn since, by their keys."""
    known = {one.key: one for one in before.files} if before else {}
    new, gone = {}, {}
    for one in now:
        old = known.get(one.key)
        if one.withdrawn and not (old and old.withdrawn):
            gone[one.key] = one
        elif not one.withdrawn and (old is None or old.withdrawn or old.fingerprint != one.fingerprint):
            new[one.key] = one
    return new, gone


def find_conflicts(
    request: Request, manifest: Manifest | None, base: Manifest, changes: BranchChanges
) -> list[Conflict]:
    """Return the changes of a branch, which began at `base`, to what main has changed, too, or will with the files that it has not read yet."""
    found = []
    if changes.edited and request.digest not in (base.pipeline, read_request(changes.file, request.state).digest):
        found.append(Conflict(str(request.spec.path), "edited", "edited"))
    if manifest is None:
        return found
    for name, given in find_inputs(request, manifest).items():
        added = {one.key: one for one in changes.added.get(name, ())}
        withdrawn = {one.key: one for one in changes.withdrawn.get(name, ())}
        if not (added or withdrawn):
            continue
        entry, known = manifest.inputs.get(name), base.inputs.get(name)
        new, gone = changed_files(known, (*(entry.files if entry else ()), *given.listing.new))
        began = {one.key for one in known.files} if known else set()
        theirs = [one for key, one in added.items() if key not in new]
        theirs += [one for key, one in withdrawn.items() if key not in gone]
        mine = [one for key, one in new.items() if key not in added and (key not in withdrawn or key in began)]
        mine += [one for key, one in gone.items() if key not in withdrawn]
        found += _of_files(name, mine, theirs)
        if request.spec.inputs[name].format == "snapshots":
            snapshots = [[one for one in files if not one.withdrawn] for files in (mine, theirs)]
            if all(snapshots):
                found.append(Conflict(f"{name}: the newest snapshot", *(files[-1].path for files in snapshots)))
        elif request.spec.inputs[name].key and mine and theirs:
            found += _of_keys(request, manifest, name, given, mine, theirs)
    return found


def _of_files(name: str, mine: Sequence[InputFile], theirs: Sequence[InputFile]) -> Iterator[Conflict]:
    """Yield the files that main has read anew and the branch has withdrawn, and those that both have added, by their names or contents."""
    for one in theirs:
        for other in mine:
            if other.withdrawn:
                continue
            if one.withdrawn and one.key == other.key:
                yield Conflict(f"{name}: {one.path}", "replaced", "withdrawn")
            same = (one.size, one.fingerprint) == (other.size, other.fingerprint)
            if not one.withdrawn and (same or one.path == other.path.rpartition("/")[2]):
                yield Conflict(
                    f"{name}: {one.path}", f"read as {other.archived or other.path}", f"added from {one.archived}"
                )


def _of_keys(
    request: Request,
    manifest: Manifest,
    name: str,
    given: InputFiles,
    mine: Sequence[InputFile],
    theirs: Sequence[InputFile],
) -> Iterator[Conflict]:
    """Yield the keys that rows of files of both sides have, in order, each with the newest row of both."""
    keys = [text.value for text in request.spec.inputs[name].key]
    main, branch = (_rows(request, manifest, name, given, files) for files in (mine, theirs))
    if main is None or branch is None:
        return
    both = main.join(branch, on=keys, how="inner", nulls_equal=True, suffix="\0").sort(keys)
    columns = [column for column in main.columns if column not in keys and column != FILE]
    for row in both.iter_rows(named=True):
        key = ", ".join(f"{column}={row[column]}" for column in keys)
        texts = [", ".join(f"{column}={row[column + end]}" for column in columns) for end in ("", "\0")]
        yield Conflict(f"{name}: {key}", f"{row[FILE]}: {texts[0]}", f"{row[FILE + chr(0)]}: {texts[1]}")


def _rows(
    request: Request, manifest: Manifest, name: str, given: InputFiles, files: Sequence[InputFile]
) -> pl.DataFrame | None:
    """Return the newest row of each key in some files of an input, with its file; None if no file is left to read."""
    listing = given.listing
    # A withdrawn file has the digest of its whole content for a fingerprint, and is not compared with it.
    marks = ["" if one.withdrawn else one.fingerprint for one in files]
    entries = zip(files, marks, strict=True)
    chosen = [replace(one, done=False, withdrawn=False, since=None, fingerprint=mark) for one, mark in entries]
    chosen = [one for one in chosen if listing.path(one).exists()]
    alone = replace(
        listing, new=(), waiting=tuple(chosen), done=(), withdrawn=(), unmoved=(), grown={}, changed=frozenset()
    )
    most = rows_held(request.resources.memory)
    opened = open_logs(request, manifest, {name: replace(given, listing=alone).with_arrival(0)}, most)
    reader = in_files(opened)[name]
    columns = [*reader.schema.columns]
    keys = [text.value for text in request.spec.inputs[name].key]
    places: dict[Path, str] = {listing.path(one): one.archived or one.path for one in chosen}
    frames = [
        rows.frame.select(columns).with_columns(pl.lit(places[path]).alias(FILE))
        for path, _, rows in reader.parts(columns, most)
    ]
    return pl.concat(frames).unique(keys, keep="last", maintain_order=True) if frames else None
