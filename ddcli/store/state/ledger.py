"""The ledger of an input: the content of its files as it was taken in, so that a file that comes again costs its own rows.

A ledger is some immutable files of Parquet, oldest first, which the manifest names beside the input's files. A row is a part of a file, with the
file's identity; the last part of a file that was copied whole, and had not changed by then, is marked. So a copy counts if it has all parts up to
the marked one: it is the content that the run has read. The footer has all rows but their contents, so that a copy is found without reading those.

A commit merges the newest ledger files into the one that it adds while they are not much larger, so there are few; copies of files that the input
no longer has go with that. A ledger most of whose rows are such copies is written anew.

The hashes of the keys of files are kept in the same way, in files of their own: one row for each file. They show which files may have a row of a key,
without reading them: two keys may have one hash, so a file that has it may lack the key, and one that lacks it has none. A reader notes them as it reads rows.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.store.batch.checked_files import damaged, read_checked, unreadable
from ddcli.store.files.access import naming
from ddcli.store.files.gate import checksum
from ddcli.store.log.joint_files import read_footer
from ddcli.store.parquet.row_groups import fields, footer_in, metadata_of
from ddcli.store.state.contents import ledger_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.store.state.entries import FileEntry, InputFile
    from ddcli.store.state.transaction import Transaction
    from ddcli.store.tables.listing import Listing

    Identity = tuple[str, int, int, str]


PART = 4 << 20
"""Bytes of a file in one row."""
FULL = 64 << 20
"""Bytes of content in one ledger file, before compression."""
TOGETHER = 2
"""The ledger files that are compressed side by side."""
MERGED = 32 << 20
"""Bytes of ledger files that are merged, at most."""
INDEX = "dd.ledger"
"""The key of a footer's metadata that has the rows without their contents."""
FEW = 64
"""Rows of a ledger that is not worth to be written anew."""
IDENTITY = {"path": pl.String, "size": pl.Int64, "mtime_ns": pl.Int64, "fingerprint": pl.String}
SCHEMA = {**IDENTITY, "part": pl.Int64, "last": pl.Boolean, "content": pl.Binary}


def identity_of(file: InputFile) -> Identity:
    """Return the values that identify a file with its content in a ledger."""
    return file.path, file.size, file.mtime_ns, file.fingerprint


def next_ledger(
    transaction: Transaction,
    before: Sequence[FileEntry],
    files: Iterable[InputFile],
    new: Iterable[tuple[InputFile, Listing]],
) -> tuple[FileEntry, ...]:
    """Return an input's ledger after a commit that leaves it these files: the one `before`, with copies of the `new` ones, each with a listing that has it."""
    live = {identity_of(file): -(-file.size // PART) or 1 for file in files if not file.withdrawn}
    new = [(file, listing) for file, listing in new if identity_of(file) in live]
    rows = (row for file, listing in new for row in _copied(file, listing))
    return _with_rows(transaction, before, live, {identity_of(file): file.size for file, _ in new}, rows)


def next_keys(
    transaction: Transaction, before: Sequence[FileEntry], files: Iterable[InputFile], new: Mapping[Identity, bytes]
) -> tuple[FileEntry, ...]:
    """Return the files with the hashes of the keys of an input's files after a commit that leaves it these: those `before`, with `new` ones."""
    live = dict.fromkeys((identity_of(file) for file in files if not file.withdrawn), 1)
    new = {identity: content for identity, content in new.items() if identity in live}
    rows = ((*identity, 0, True, content) for identity, content in new.items())
    return _with_rows(transaction, before, live, {identity: len(content) for identity, content in new.items()}, rows)


def _with_rows(
    transaction: Transaction,
    before: Sequence[FileEntry],
    live: Mapping[Identity, int],
    new: Mapping[Identity, int],
    rows: Iterable[tuple[object, ...]],
) -> tuple[FileEntry, ...]:
    """Return the files of a ledger with `rows` added. `new` has the bytes of each file that the rows are of, `live` the number of rows of each that is still in the input."""
    worn = sum(entry.rows for entry in before) > 2 * sum(live.values()) + FEW
    merged = len(before) if worn else merges([entry.size for entry in before], sum(new.values()) // 4)
    if not new and not worn:
        return tuple(before)
    kept = (
        row
        for entry in before[len(before) - merged :]
        for row in _read(transaction.state.directory, entry).iter_rows()
        if row[:4] in live and row[:4] not in new
    )
    return (*before[: len(before) - merged], *_written(transaction, chain(kept, rows)))


def without_others(
    transaction: Transaction, before: Sequence[FileEntry], files: Iterable[InputFile]
) -> tuple[FileEntry, ...]:
    """Return an input's ledger without copies of other files than these; only its files with such copies are written anew."""
    live, found = {identity_of(file) for file in files}, []
    for entry in before:
        if {row[:4] for row in _index(ledger_path(transaction.state.directory, entry), entry)} <= live:
            found.append(entry)
            continue
        rows = _read(transaction.state.directory, entry).iter_rows()
        found += _written(transaction, (row for row in rows if row[:4] in live))
    return tuple(found)


def merges(sizes: Sequence[int], added: int) -> int:
    """Return how many of the newest ledger files, of these sizes, are merged with `added` bytes.

    >>> merges([900, 100, 10, 3], 2), merges([900, 100, 10, 3], 60), merges([900], 2)
    (2, 3, 0)
    """
    total, count = added, 0
    for size in reversed(sizes):
        if size > 2 * total or total + size > MERGED:
            break
        total, count = total + size, count + 1
    return count


def known_files(directory: Path, ledger: Sequence[FileEntry]) -> set[Identity]:
    """Return the identities of the files that a ledger has whole copies of."""
    return {identity for identity, places in _places(directory, ledger).items() if _is_whole(places)}


def read_keys(directory: Path, keys: Sequence[FileEntry], files: Iterable[InputFile]) -> dict[str, bytes]:
    """Return the hashes of the keys of some files, by their paths, as far as they are known. Raises StateError for a damaged ledger."""
    wanted = {identity_of(file) for file in files}
    rows = (row for entry in keys for row in _read(directory, entry).iter_rows())
    return {row[0]: row[-1] for row in rows if row[:4] in wanted}


def restore(directory: Path, ledger: Sequence[FileEntry], wanted: Sequence[InputFile], target: Path) -> bool:
    """Write the copies of some files below `target`, under their paths in the input; return False where the ledger lacks one. Raises StateError for a damaged ledger."""
    places = _places(directory, ledger)
    found = {file.path: places.get(identity_of(file), {}) for file in wanted}
    if not all(_is_whole(parts) for parts in found.values()):
        return False
    rows: dict[int, list[int]] = {}
    for at, row, _ in chain.from_iterable(parts.values() for parts in found.values()):
        rows.setdefault(at, []).append(row)
    firsts = {at: min(some) for at, some in rows.items()}
    contents = {at: _read(directory, ledger[at], firsts[at], max(some) + 1) for at, some in rows.items()}
    for path, parts in found.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        with (target / path).open("wb") as copy:
            for part in range(len(parts)):
                at, row, _ = parts[part]
                copy.write(contents[at]["content"][row - firsts[at]])
    return True


def _places(directory: Path, ledger: Sequence[FileEntry]) -> dict[Identity, dict[int, tuple[int, int, bool]]]:
    """Return the parts of each file in a ledger: the number of the ledger file, the row, and whether it is the last part. The newest copy of a part counts."""
    found: dict[Identity, dict[int, tuple[int, int, bool]]] = {}
    for at, entry in enumerate(ledger):
        for row, (*identity, part, last) in enumerate(_index(ledger_path(directory, entry), entry)):
            found.setdefault(tuple(identity), {})[part] = (at, row, last)
    return found


def _index(path: Path, entry: FileEntry) -> list[tuple[Any, ...]]:
    """Return the rows of a ledger file without their contents, from its footer, or refuse it if that is not as it was written."""
    try:
        footer = read_footer(path)
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError:
        raise damaged(path) from None
    if checksum(footer) != entry.footer:
        raise damaged(path)
    return [tuple(row) for row in json.loads(metadata_of(fields(footer))[INDEX])]


def _is_whole(parts: dict[int, tuple[int, int, bool]]) -> bool:
    """Return whether parts are all those up to the last one."""
    last = len(parts) - 1
    return last in parts and parts[last][2]


def _read(directory: Path, entry: FileEntry, first: int = 0, end: int | None = None) -> pl.DataFrame:
    """Return the rows of a ledger file from the row `first` up to `end`, or refuse it if its bytes are not those that were written.

    Only row groups with such rows are decompressed.
    """
    data = io.BytesIO(read_checked(ledger_path(directory, entry), entry))
    return pl.scan_parquet(data).slice(first, None if end is None else end - first).collect()


def _copied(file: InputFile, listing: Listing) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a file; none is marked as the last where the file is no longer the one that was listed."""
    path, size, part = listing.path(file), 0, 0
    with naming(path), path.open("rb") as source:
        content = source.read(PART)
        while True:
            size += len(content)
            following = source.read(PART) if len(content) == PART else b""
            last = not following and size == file.size and listing.is_as_listed(file)
            yield (*identity_of(file), part, last, content)
            if not following:
                return
            content, part = following, part + 1


def _written(transaction: Transaction, rows: Iterable[tuple[Any, ...]]) -> list[FileEntry]:
    """Write rows to ledger files of a transaction, as many as `FULL` bytes ask for; return their entries. Files are compressed side by side, while further rows are read."""
    entries: list[FileEntry] = []
    pending = deque[Future[tuple[memoryview, int]]]()

    def finish(most: int) -> None:
        while len(pending) > most:
            data, count = pending.popleft().result()
            entries.append(transaction.add_ledger(data, count, checksum(footer_in(data))))

    with ThreadPoolExecutor(TOGETHER, "dd-ledger") as threads:
        for part in _parts(rows):
            finish(TOGETHER - 1)
            pending.append(threads.submit(_parquet, part))
        finish(0)
    return entries


def _parts(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows in parts of `FULL` bytes."""
    part, size = list[tuple[Any, ...]](), 0
    for row in rows:
        part.append(row)
        size += len(row[-1])
        if size >= FULL:
            yield part
            part, size = [], 0
    if part:
        yield part


def _parquet(rows: list[tuple[Any, ...]]) -> tuple[memoryview, int]:
    """Return the content of a ledger file with these rows, and their number."""
    frame, buffer = pl.DataFrame(rows, SCHEMA, orient="row"), io.BytesIO()
    frame.write_parquet(
        buffer,
        compression="zstd",
        compression_level=1,
        row_group_size=max(1, PART * len(rows) // max(sum(len(row[-1]) for row in rows), 1)),
        statistics=False,
        metadata={INDEX: json.dumps([row[:-1] for row in rows])},
    )
    return buffer.getbuffer(), frame.height


BOUND = (1 << 31) - 1
"""Hashes are below it."""
MARK = 8
"""Bytes before the hashes of a file: they state the types of the key."""


class KeyHashes:
    """The hashes of keys of these columns, of the rows of files, by their numbers: noted as they are read, of at most `most` rows."""

    def __init__(self, kinds: Schema, most: int) -> None:
        self.kinds = dict(kinds)
        self._left = most
        self._noted: dict[int, dict[int, tuple[int, np.ndarray]]] = {}

    def note(
        self, frame: pl.DataFrame, numbers: pl.Series | None, files: Sequence[int], counts: Sequence[int], first: int
    ) -> None:
        """Note the keys of rows that were read of some files, so many of each, from the row `first` of the only one on; `numbers` has the place of each row among these."""
        if self._left < 0 or not self.kinds.keys() <= {*frame.columns}:
            return
        self._left -= frame.height
        if self._left < 0:
            self._noted.clear()
            return
        hashes, ends = hashes_of(frame, self.kinds), np.cumsum(counts)
        places = np.arange(frame.height) if numbers is None else numbers.to_numpy()
        owners = np.searchsorted(ends, places, "right")
        order = np.argsort(owners, kind="stable")
        cuts = np.searchsorted(owners[order], np.arange(1, len(files)))
        for at, count, own in zip(files, counts, np.split(hashes[order], cuts), strict=True):
            self._noted.setdefault(at, {})[first] = count, own

    def content(self, at: int, rows: int) -> bytes | None:
        """Return the hashes of a file of this number of rows; None if not all of them were read."""
        parts, reached = sorted(self._noted.get(at, {}).items()), 0
        for first, (count, _) in parts:
            if first != reached:
                return None
            reached += count
        if reached != rows or not parts:
            return None
        return mark_of(self.kinds) + np.unique(np.concatenate([own for _, (_, own) in parts])).tobytes()


def mark_of(kinds: Schema) -> bytes:
    """Return the bytes that state the columns of a key with their types."""
    return hashlib.sha256(repr([(name, str(kind)) for name, kind in kinds.items()]).encode()).digest()[:MARK]


def hashes_of(frame: pl.DataFrame, kinds: Schema) -> np.ndarray:
    """Return the hash of each row's key. They are in files: a change makes states forget which files have which keys."""
    layout = Layout(kinds)
    lanes = encode(frame.select(list(kinds)), layout, Pool(PUBLIC))
    return kernels.shard_of(lanes, layout.width, BOUND).astype(np.uint32)


def holding(
    contents: Mapping[str, bytes], kinds: Schema, paths: Sequence[str], keys: pl.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each path and each key whether the file may have a row of it, and for each path whether its hashes are known: without them it may have all."""
    hashes, mark = hashes_of(keys, kinds), mark_of(kinds)
    found, known = np.ones((len(paths), len(hashes)), np.bool_), np.zeros(len(paths), np.bool_)
    for at, path in enumerate(paths):
        content = contents.get(path, b"")
        if content[:MARK] == mark:
            there = np.frombuffer(content, np.uint32, offset=MARK)
            places = np.minimum(np.searchsorted(there, hashes), len(there) - 1)
            found[at] = there[places] == hashes if len(there) else False
            known[at] = True
    return found, known
