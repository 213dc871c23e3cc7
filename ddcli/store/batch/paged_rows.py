"""Rows of batch files: all, or those with certain keys, for which only the pages are read that can have one.

A kernel decodes numbers, dates and times from the mapped file into lanes, a page in the cache at a time, and hashes only the texts of wanted
rows. Other values, lists above all, are decoded by pyarrow, page by page as well. All processors read where there are many pages:
a step over few keys is made in one thread, but each of these keys may be on a page of its own.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine import kernels
from ddcli.engine.kernels.hashes import NULL
from ddcli.engine.kernels.page_values import FLAGGED, NULLABLE, NUMBERED, OTHER, PLAIN, TEXT, WIDTH
from ddcli.engine.kernels.pages import find_rows, pick_texts, pick_values, split_texts
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.process import LARGE, Workers
from ddcli.store.batch.checked_files import damaged, other_columns
from ddcli.store.batch.file import COUNT
from ddcli.store.batch.page_index import WORD, Leaves, Pages, row_checksums
from ddcli.store.batch.row_group_file import read_pages, unpacked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import polars as pl

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Type
    from ddcli.store.batch.file import BatchFile, BatchLayout, Mapped
    from ddcli.store.batch.page_index import Data, PageColumn, PageIndex


LOOKED_INTO = 1 << 12
"""The number of pages that are searched together."""
APART = 1 << 8
"""Pages that are worth a thread: a millisecond of work."""
TOGETHER = 1 << 17
"""Rows of row groups that are read together: as many as fit in a cache, with a few columns."""
ELSEWHERE = FLAGGED | NULLABLE | TEXT
"""The forms of values that their lanes alone don't determine."""
NOTHING = np.empty(0, np.int64)


@frozen
class _Chosen:
    """Rows of some pages (see `Leaves`): `counts` has the number of each page's, `rows` their numbers in it; both are empty if all are chosen.

    `lanes` are the values of the column that they were found by, if a lane holds these alone; else empty.
    """

    pages: Matrix
    counts: Matrix
    rows: Matrix
    lanes: Matrix

    @property
    def sizes(self) -> Matrix:
        """Return the numbers of rows of the pages."""
        return self.pages[:, 2]

    @property
    def height(self) -> int:
        """Return the number of these rows."""
        return int((self.counts if len(self.counts) else self.sizes).sum())

    def positions(self) -> Matrix:
        """Return the numbers of the rows in all pages, one after the other."""
        before = np.cumsum(self.sizes) - self.sizes
        return np.repeat(before, self.counts) + self.rows


class PagedRows:
    """The rows of a file with an index of pages."""

    def __init__(self, file: BatchFile, index: PageIndex, layout: BatchLayout) -> None:
        self.file = file
        self.index = index
        self.layout = layout
        self.columns: dict[str, int] = {}
        """The first of each column's numbers in the index: a struct has one for each value inside."""
        for at, column in enumerate(index.columns):
            self.columns.setdefault(column.name, at)
        missing = [name for name in layout.stored if name not in self.columns]
        if missing or any(self._other(name, COUNT) for name in layout.hidden):
            raise other_columns(file.path)
        self.stored = [name for name in layout.stored if name not in index.constants]
        """The columns that a matrix has, but for those that hold just one number."""
        kept = index.groups if file.stays_open else 0
        self._leaves: Matrix = np.empty((kept, index.length), np.int64)
        self._known = np.zeros(kept, np.bool_)
        """The marks of the leaves of the index that have been read and checked, of a file that stays open; a mark is set after its leaf, as other threads read it."""

    @property
    def held(self) -> int:
        """Return the number of bytes of memory that the kept leaves take."""
        return int(self._known.sum()) * WORD * self.index.length

    def leaves(self, mapped: Mapped, groups: Matrix) -> Leaves:
        """Return the leaves of some row groups, checked. They are kept if the file stays open: each lookup begins with them."""
        return Leaves(self.index, groups, self._numbers(mapped, groups))

    def _numbers(self, mapped: Mapped, groups: Matrix) -> Matrix:
        if not len(self._known):
            return self._read_leaves(mapped, groups)
        new = groups[~self._known[groups]]
        if len(new):
            self._leaves[new] = self._read_leaves(mapped, new)
            self._known[new] = True
        return self._leaves if len(groups) == len(self._leaves) else self._leaves[groups]

    def _read_leaves(self, mapped: Mapped, groups: Matrix) -> Matrix:
        file, index = self.file, self.index
        if not file.is_checked:
            size = WORD * index.length
            file.fetch(mapped, index.start + groups * size, index.start + (groups + 1) * size)
        every = np.frombuffer(mapped, np.int64, index.groups * index.length, index.start)
        numbers = every.reshape(index.groups, index.length)[groups]
        if not file.is_checked and (row_checksums(numbers) != index.checksums[groups]).any():
            raise damaged(file.path)
        return numbers

    def parts(self, groups: Sequence[int], pool: Pool, room: Matrix | None = None) -> Iterator[Matrix]:
        """Yield all rows of some row groups, in order, checking every byte of these; they are in `room`, if it is given."""
        row = 0
        together = max(1, TOGETHER // self.index.group)
        with self.file.mapped() as mapped:
            for at in range(0, len(groups), together):
                leaves = self.leaves(mapped, np.array(groups[at : at + together], np.int64))
                reading = _MappedRowGroups(self, mapped, leaves)
                part = reading.all(pool, room if room is None else room[row:])
                row += len(part)
                yield part
                self.file.release_pages(mapped)

    def fetch(self, groups: Sequence[int], keys: Matrix, spared: Collection[int] = ()) -> None:
        """Fetch the pages that `for_keys` reads first from an object store."""
        with self.file.mapped() as mapped:
            leaves = self.leaves(mapped, np.array(groups, np.int64))
            _MappedRowGroups(self, mapped, leaves, self._spared(spared)).fetch(leaves.pages_of(keys)[:LOOKED_INTO])

    def for_keys(
        self, groups: Sequence[int], keys: Matrix, wanted: Matrix, pool: Pool, spared: Collection[int] = ()
    ) -> Iterator[Matrix]:
        """Yield the rows in these row groups with one of the sorted, distinct keys; `wanted` are those numbers of the leading column.

        In `spared` lanes they have their numbers: no two are equal there, and they are still sorted.
        """
        leading = self.layout.leading_column
        assert leading is not None, "rows without a key have no order to look them up by"
        if self._other(leading, self.layout.columns[leading]):
            for part in self.parts(groups, pool):
                yield kernels.gather(part, keys.shape[1], keys)
            return
        with self.file.mapped() as mapped:
            leaves = self.leaves(mapped, np.array(groups, np.int64))
            reading = _MappedRowGroups(self, mapped, leaves, self._spared(spared))
            pages = leaves.pages_of(keys)
            count = len(pages)
            self.file.pages_read += count
            self.file.rows_scanned += int(pages[:, 2].sum())
            # The pool's values, and the numbers of spared rows, continue from part to part.
            workers = _workers(Workers.most)
            alone = bool(spared) or self.layout.hashed or count < 2 * APART or workers.count == 1
            step = LOOKED_INTO if alone else min(LOOKED_INTO, max(APART, -(-count // workers.count)))

            def look(at: int) -> Matrix:
                part = reading if alone else _MappedRowGroups(self, mapped, leaves)
                if self.file.is_fetched:
                    part.fetch(pages[at : at + step])
                found = part.with_keys(leading, pages[at : at + step], wanted)
                if not len(found.rows):
                    return np.empty((0, self.layout.width), np.int64)
                return kernels.gather(part.matrix(leading, found, pool), keys.shape[1], keys)

            parts = range(0, count, step)
            yield from map(look, parts) if alone else workers.each(look, parts, LARGE)
            self.file.release_pages(mapped)

    def _spared(self, lanes: Collection[int]) -> frozenset[str]:
        """Return the columns all of whose lanes are among `lanes`."""
        stored = self.layout.stored.items() if lanes else ()
        return frozenset(name for name, (lane, _, kind) in stored if {*range(lane, lane + kind.lanes)} <= {*lanes})

    def native(self, name: str, kind: Type) -> PageColumn | None:
        """Return the column of a name where a kernel reads it: its pages hold integers, and this type's."""
        column = self.index.columns[self.columns[name]]
        return column if column.form != OTHER and column.kind == str(kind) else None

    def numbers(self, name: str) -> list[int]:
        """Return all of a column's numbers in the index."""
        return [at for at, column in enumerate(self.index.columns) if column.name == name]

    def _other(self, name: str, kind: Type) -> bool:
        return self.native(name, kind) is None


class _MappedRowGroups:
    """Row groups of a file that is mapped."""

    def __init__(self, rows: PagedRows, mapped: Mapped, leaves: Leaves, spared: Collection[str] = ()) -> None:
        self._of = rows
        self._spared = spared
        self._given = 0
        self._pages: dict[int, Pages] = {}
        """The pages of columns, by number, that were found last."""
        self._mapped = mapped
        self._data: Data = np.frombuffer(mapped, np.uint8)
        self._scratch = np.empty((2, rows.index.page), np.uint64)
        self.leaves = leaves

    def all(self, pool: Pool, room: Matrix | None) -> Matrix:
        """Return all rows, the first ones of `room` if it is given."""
        pages = self.leaves.all()
        if self._of.file.is_checked:  # then pages are found to be decoded, not to be checked
            self._find_of(self._of.stored, pages)
        else:
            columns = range(len(self._of.index.columns))
            self._find(columns, columns, pages)
        self._of.file.groups_read += len(self.leaves.groups)
        return self._fill(_Chosen(pages, NOTHING, NOTHING, NOTHING), pool, room)

    def fetch(self, pages: Matrix) -> None:
        """Fetch all columns of some pages: mostly they have wanted rows, and a second request would take longer than the bytes of the other columns."""
        names = [name for name in self._of.stored if name not in self._spared]
        columns, numbered = self._columns_of(names)
        self._fetch([self.leaves.pages(at, pages) for at in columns], numbered, pages)

    def with_keys(self, leading: str, among: Matrix, wanted: Matrix) -> _Chosen:
        """Return the rows of some pages whose leading column has one of the wanted numbers."""
        self._find_of([leading], among)
        at = self._of.columns[leading]
        form, pages = self._of.index.columns[at].form, self._pages[at]
        (rows, lanes), counts = np.empty((2, int(among[:, 2].sum())), np.int64), np.empty(len(among), np.int64)
        found = find_rows(self._data, pages.table, wanted, *self._scratch, counts, rows, lanes, form)
        if found < 0:
            raise damaged(self._of.file.path)
        some = counts > 0
        self._pages[at] = pages.of(some)
        known = lanes[:found].copy() if not form & ELSEWHERE and form >> WIDTH == 0 else NOTHING
        return _Chosen(among[some], counts[some], rows[:found].copy(), known)

    def matrix(self, leading: str, chosen: _Chosen, pool: Pool) -> Matrix:
        """Return rows that were found by the leading column."""
        names = [name for name in self._of.stored if name != leading and name not in self._spared]
        self._find_of(names, chosen.pages)
        return self._fill(chosen, pool, leading=leading)

    def _fill(self, chosen: _Chosen, pool: Pool, room: Matrix | None = None, leading: str | None = None) -> Matrix:
        """Return rows of pages that have been checked."""
        layout, height = self._of.layout, chosen.height
        matrix = np.empty((height, layout.width), np.int64) if room is None else room[:height]
        for name, (lane, column, kind) in layout.stored.items():
            if name in self._spared:
                numbers = np.arange(self._given, self._given + height)
                matrix[:, lane : lane + kind.lanes] = numbers[:, None]
            elif name in self._of.index.constants:
                matrix[:, lane] = self._of.index.constants[name]
            elif name == leading and len(chosen.lanes):
                matrix[:, lane] = chosen.lanes
            elif (native := self._of.native(name, kind)) is not None:
                self._write(native, kind, chosen, matrix, lane, pool)
            else:
                values = self._series(name, chosen).alias(column).cast(kind.to_polars())
                encode(values.to_frame(), Layout({column: kind}), pool, matrix, lane)
        self._given += height
        return matrix

    def _write(self, column: PageColumn, kind: Type, chosen: _Chosen, matrix: Matrix, lane: int, pool: Pool) -> None:
        """Write the lanes of a column with a kernel that reads its pages."""
        if not column.form & PLAIN:
            data, table = self._data, self._pages[self._of.columns[column.name]].table
        else:
            data, table = self._unpacked(column, chosen)
        if not column.form & TEXT:
            self._pick(data, table, column, chosen, matrix, lane)
        elif column.form & NUMBERED:
            numbers = np.empty((len(matrix), 1), np.int64)
            self._pick(data, table, column, chosen, numbers, 0)
            matrix[:, lane] = self._numbered(column, kind, chosen, numbers[:, 0], pool)
        else:
            starts, lengths = np.empty((2, len(matrix)), np.int64)
            chosen_rows = chosen.counts, chosen.rows
            found = pick_texts(data, table, *chosen_rows, self._scratch[1], starts, lengths, column.form)
            if found != len(matrix):
                raise damaged(self._of.file.path)
            matrix[:, lane] = pool.intern_ranges(starts, lengths, data, kind)

    def _pick(self, data: Data, table: Matrix, column: PageColumn, chosen: _Chosen, matrix: Matrix, lane: int) -> None:
        """Write the lanes of numbers."""
        rows = pick_values(data, table, chosen.counts, chosen.rows, *self._scratch, matrix, lane, column.form)
        if rows != len(matrix):
            raise damaged(self._of.file.path)

    def _numbered(self, column: PageColumn, kind: Type, chosen: _Chosen, numbers: Matrix, pool: Pool) -> Matrix:
        """Return the lanes of texts that dictionaries number, of each text once: only those are hashed that some row has."""
        first, place = _distinct(chosen.pages[:, 0])
        bodies, ends = self._pages[self._of.columns[column.name]].table[first, 3:].T
        sizes = ends - bodies
        starts, lengths = np.empty((2, int((sizes // 4).sum())), np.int64)
        firsts = np.zeros(len(bodies) + 1, np.int64)
        for at, (start, end) in enumerate(zip(bodies.tolist(), ends.tolist(), strict=True)):
            found = split_texts(self._data, start, end, starts[firsts[at] :], lengths[firsts[at] :])
            if found < 0:
                raise damaged(self._of.file.path)
            firsts[at + 1] = firsts[at] + found
        place = np.repeat(place, chosen.counts if len(chosen.counts) else chosen.sizes)
        null = numbers == NULL
        if (~null & (numbers >= np.diff(firsts)[place])).any():
            raise damaged(self._of.file.path)
        entries = np.where(null, firsts[-1], firsts[place] + np.where(null, 0, numbers))
        used = np.zeros(firsts[-1] + 1, np.bool_)
        used[entries] = True
        used = np.flatnonzero(used[:-1])
        lanes = np.full(firsts[-1] + 1, NULL)
        lanes[used] = pool.intern_ranges(starts[used], lengths[used], self._data, kind)
        return lanes[entries]

    def _unpacked(self, column: PageColumn, chosen: _Chosen) -> tuple[Data, Matrix]:
        """Return the contents of a column's compressed pages, and their places, as kernels take them."""
        pages = self._pages[self._of.columns[column.name]]
        table = np.zeros((len(chosen.pages), 5), np.int64)
        try:
            data, table[:, :2] = unpacked(self._data, pages)
        except ValueError:
            raise damaged(self._of.file.path) from None
        table[:, 2] = chosen.sizes
        return data, table

    def _series(self, name: str, chosen: _Chosen) -> pl.Series:
        """Return a column of anything else."""
        import pyarrow as pa

        metadata = self._of.file.metadata
        parts = [(self._pages[at], metadata.row_group(0).column(at)) for at in self._of.numbers(name)]
        field = metadata.schema.to_arrow_schema().field(name)
        try:
            found = read_pages(self._data, parts, field, int(chosen.sizes.sum()))
        except (pa.ArrowException, OSError, ValueError):
            raise damaged(self._of.file.path) from None
        return found[chosen.positions()] if len(chosen.counts) else found

    def _find_of(self, names: Sequence[str], pages: Matrix) -> None:
        """Find these pages of some columns, and the dictionaries that they refer to, and check them."""
        self._find(*self._columns_of(names), pages)

    def _columns_of(self, names: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the numbers of some columns, and of those among them whose pages refer to a dictionary."""
        columns = [at for name in names for at in self._of.numbers(name)]
        forms = [self._of.index.columns[at].form for at in columns]
        return columns, [at for at, form in zip(columns, forms, strict=True) if form != OTHER and form & NUMBERED]

    def _find(self, columns: Sequence[int], numbered: Sequence[int], pages: Matrix) -> None:
        """Find pages by the numbers of their columns; refuse pages that are not as they were written, and dictionaries before the pages of `numbered` columns."""
        for at in columns:
            self._pages[at] = self.leaves.pages(at, pages)
        if self._of.file.is_checked or not len(pages):
            return
        self._fetch([self._pages[at] for at in columns], numbered, pages)
        for at in columns:
            if not self.leaves.sound(self._data, at, pages, self._pages[at], numbered=at in numbered):
                raise damaged(self._of.file.path)

    def _fetch(self, found: Sequence[Pages], numbered: Sequence[int], pages: Matrix) -> None:
        """Have the file read what was found of these pages, and the dictionaries of `numbered` columns, at once."""
        if not (len(pages) and found):
            return
        parts = [(each.starts, each.ends) for each in found]
        if numbered:
            there = pages[_distinct(pages[:, 0])[0], 0]
            parts += [self.leaves.before(at, there) for at in numbered]
        starts, ends = parts[0] if len(parts) == 1 else (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(starts, kind="stable")
        self._of.file.fetch(self._mapped, starts[order], ends[order])


@cache
def _workers(threads: int) -> Workers:
    """Return `threads` threads that read pages; one is the caller's; remembered."""
    return Workers(threads)


os.register_at_fork(after_in_child=_workers.cache_clear)


def _distinct(places: Matrix) -> tuple[Matrix, Matrix]:
    """Return the first place of each of some numbers that ascend, and each one's place among the distinct ones: `np.unique` imports masked arrays.

    >>> _distinct(np.array([3, 3, 5]))
    (array([0, 2]), array([0, 0, 1]))
    """
    first = np.ones(len(places), np.bool_)
    np.not_equal(places[1:], places[:-1], out=first[1:])
    return np.flatnonzero(first), np.cumsum(first) - 1
