"""A table from hashes to the values they stand for: open addressing, the bytes of a value compared on insertion.

A value is kept as polars keeps strings, in a *view* of two words: its length (32 bits) and first 4 bytes, then its
other bytes where it has at most 12, else its position in `memory`: a window (32 bits) and an offset into it (32 bits).
So a short value needs no second memory access, and a column of values is decoded by copying views.

    slots    (2**k, 2)   [hash, 1 + index], index 0 = free; probed linearly; at most 3/4 full
    entries  (room, 2)   views, in the order of insertion
    memory   (room,)     bytes of the long values

Window w begins at w * 2**30 and is up to twice as long, so that a value which begins in its first half lies in it.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.hashes import FIRST, NULL, SECOND, U32, whole
from ddcli.engine.kernels.rows import copy_row

INLINE: Final = 12  # bytes that a view itself has room for
WINDOW_BITS: Final = 30
WINDOW: Final = 1 << WINDOW_BITS
LOW: Final = 0xFFFFFFFF
ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
MEMO_BITS: Final = 10  # of the views that were last seen: as many as the nearest cache has room for
AHEAD: Final = 32  # rows whose slots are read together: to wait for memory 32 times takes as long as once
# Words of a table's state: the number of entries, the bytes of memory in use, and a sum of what was read to have it in the cache.
COUNT, USED, TOUCHED = 0, 1, 2


@inline
def tail(data: np.ndarray, start: int, length: int) -> np.uint64:
    """Return up to 8 bytes as one word, the missing ones as zeros.

    Reads 8 bytes and drops the surplus, where `data` extends that far: a short range lies in a view, which ends
    12 bytes after it begins, or in one buffer of our own; so nothing is read outside of `data`.
    """
    if length <= 0:
        return np.uint64(0)
    if start + 8 <= data.shape[0]:
        return whole(data, np.uint64(start)) & (ALL >> np.uint64(64 - 8 * length))
    word = np.uint64(0)
    for i in range(length):
        word |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return word


@inline
def head_word(data: np.ndarray, start: int, length: int) -> np.int64:
    """Return the first word of the view of a range of bytes."""
    return np.int64(np.uint64(length) | tail(data, start, min(length, 4)) << U32)


@inline
def inline_word(data: np.ndarray, start: int, length: int) -> np.int64:
    """Return the second word of the view of a range of at most 12 bytes."""
    return np.int64(tail(data, start + 4, length - 4))


@inline
def position(word: int) -> int:
    """Return where in memory a long value lies, from the second word of its view."""
    return ((word & LOW) << WINDOW_BITS) + ((word >> 32) & LOW)


@inline
def same_bytes(a: np.ndarray, i: int, b: np.ndarray, j: int, length: int) -> bool:
    """Return whether two ranges of at least 8 bytes are equal; the last word may overlap the one before."""
    last = length - 8
    for k in range(0, last, 8):
        if whole(a, np.uint64(i + k)) != whole(b, np.uint64(j + k)):
            return False
    equal: bool = whole(a, np.uint64(i + last)) == whole(b, np.uint64(j + last))
    return equal


@inline
def slot_of(slots: np.ndarray, lane: int) -> int:
    """Return the slot of a hash: the one that holds it, or the free one where it belongs."""
    mask = slots.shape[0] - 1
    slot: int = lane & mask
    while slots[slot, 1] != 0 and slots[slot, 0] != lane:
        slot = (slot + 1) & mask
    return slot


@kernel("MBViMVVV")
def different_views(
    views: np.ndarray,
    nulls: np.ndarray,
    bases: np.ndarray,
    own: int,
    memo: np.ndarray,
    numbers: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> int:
    """Give each view the number of its value, -1 for `nulls` (where that is empty, none is); return how many numbers there are.

    Writes where the bytes of each number's value lie: in buffer b at bases[b], or in the views themselves, which lie at `own`.
    Equal views have one value, and mostly one number: `memo`, zeros of (2**MEMO_BITS, 3), holds one of those that share a place.
    """
    count = 0
    for i in range(views.shape[0]):
        if nulls.size > 0 and nulls[i]:
            numbers[i] = -1
            continue
        head = views[i, 0]
        word = views[i, 1]
        place = (np.uint64(head) ^ np.uint64(word) * FIRST) * SECOND
        at = np.int64(place >> np.uint64(64 - MEMO_BITS))
        if memo[at, 2] > 0 and memo[at, 0] == head and memo[at, 1] == word:
            numbers[i] = memo[at, 2] - 1
            continue
        length = head & LOW
        lengths[count] = length
        starts[count] = own + 16 * i + 4 if length <= INLINE else bases[word & LOW] + ((word >> 32) & LOW)
        numbers[i] = count
        count += 1
        memo[at, 0] = head
        memo[at, 1] = word
        memo[at, 2] = count
    return count


@kernel("MMBVVVVBi")
def insert_ranges(
    slots: np.ndarray,
    entries: np.ndarray,
    memory: np.ndarray,
    state: np.ndarray,
    lanes: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    data: np.ndarray,
    begin: int,
) -> int:
    """Insert ranges of bytes under their hashes, from row `begin` on; negative lengths (nulls) are skipped.

    Returns the row at which there is no more room, the number of rows when done, or -1 - row where another value has
    the row's hash.
    """
    rows: int = starts.shape[0]
    mask = slots.shape[0] - 1
    for i in range(begin, rows):
        if (i - begin) % AHEAD == 0:
            for k in range(i, min(i + AHEAD, rows)):
                state[TOUCHED] ^= slots[lanes[k] & mask, 0]
        length = lengths[i]
        if length < 0:
            continue
        start = starts[i]
        lane = lanes[i]
        slot = slot_of(slots, lane)
        head = head_word(data, start, length)
        index = slots[slot, 1] - 1
        if index >= 0:
            if entries[index, 0] != head:
                return -1 - i
            word = entries[index, 1]
            if length <= INLINE:
                if word != inline_word(data, start, length):
                    return -1 - i
            elif not same_bytes(memory, position(word), data, start, length):
                return -1 - i
            continue
        count = state[COUNT]
        used = state[USED]
        if count == entries.shape[0] or 4 * (count + 1) > 3 * slots.shape[0]:
            return i
        if length <= INLINE:
            word = inline_word(data, start, length)
        else:
            if used + length > memory.shape[0]:
                return i
            for k in range(length):
                memory[used + k] = data[start + k]
            word = (used >> WINDOW_BITS) | (used & (WINDOW - 1)) << 32
            state[USED] = used + length
        entries[count, 0] = head
        entries[count, 1] = word
        slots[slot, 0] = lane
        slots[slot, 1] = count + 1
        state[COUNT] = count + 1
    return rows


@kernel("MM")
def rehash(slots: np.ndarray, larger: np.ndarray) -> int:
    """Move every slot in use into a larger table of free ones."""
    for i in range(slots.shape[0]):
        if slots[i, 1] != 0:
            slot = slot_of(larger, slots[i, 0])
            copy_row(slots, i, larger, slot)
    return 0


@kernel("MMVM")
def find_views(slots: np.ndarray, entries: np.ndarray, lanes: np.ndarray, views: np.ndarray) -> int:
    """Write the view of each lane's value, an empty one for null; return -1 - row for a lane without a value."""
    for i in range(lanes.shape[0]):
        lane = lanes[i]
        if lane == NULL:
            views[i, 0] = 0
            views[i, 1] = 0
            continue
        index = slots[slot_of(slots, lane), 1] - 1
        if index < 0:
            return -1 - i
        copy_row(entries, index, views, i)
    return 0


@kernel("MBVB")
def copy_views(views: np.ndarray, memory: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> int:
    """Write the bytes of each view to out[offsets[i]:]."""
    for i in range(views.shape[0]):
        length = views[i, 0] & LOW
        at = offsets[i]
        word = views[i, 1]
        if length > INLINE:
            start = position(word)
            for k in range(length):
                out[at + k] = memory[start + k]
        else:
            for k in range(min(length, 4)):
                out[at + k] = np.uint8((views[i, 0] >> (32 + 8 * k)) & 0xFF)
            for k in range(4, length):
                out[at + k] = np.uint8((word >> (8 * k - 32)) & 0xFF)
    return 0


class PoolTable:
    """The values of one kind, by hash. Grows by doubling; views that were returned stay valid. Threads may use it at once."""

    def __init__(self) -> None:
        self._slots = np.zeros((64, 2), np.int64)
        self._entries = np.empty((32, 2), np.int64)
        self._memory = np.empty(512, np.uint8)
        self._state = np.zeros(3, np.int64)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._state[COUNT])

    @property
    def size(self) -> int:
        """Return how many bytes the table takes."""
        return self._slots.nbytes + self._entries.nbytes + self._memory.nbytes

    def insert(self, lanes: np.ndarray, starts: np.ndarray, lengths: np.ndarray, data: np.ndarray) -> int | None:
        """Insert the ranges data[start : start + length] under their lanes (length -1: null, nothing to insert).

        Returns None, or the first row whose lane already stands for other bytes; rows before it are in.
        """
        row = 0
        with self._lock:
            while True:
                row = insert_ranges(
                    self._slots, self._entries, self._memory, self._state, lanes, starts, lengths, data, row
                )
                if row == len(lanes):
                    return None
                if row < 0:
                    return -1 - row
                self._grow(int(lengths[row]))

    def _grow(self, length: int) -> None:
        """Make room for one more value of this many bytes."""
        count, used = len(self), int(self._state[USED])
        if used + length > len(self._memory):
            memory = np.empty(max(2 * len(self._memory), used + length), np.uint8)
            memory[:used] = self._memory[:used]
            self._memory = memory
        if count == len(self._entries):
            entries = np.empty((2 * count, 2), np.int64)
            entries[:count] = self._entries
            self._entries = entries
        if 4 * (count + 1) > 3 * len(self._slots):
            larger = np.zeros((2 * len(self._slots), 2), np.int64)
            rehash(self._slots, larger)
            self._slots = larger

    def views(self, lanes: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the views of the lanes' values, (n, 2), and the windows of memory that they point into.

        The windows are never written to where a view points, so a caller may keep them.
        """
        views = np.empty((len(lanes), 2), np.int64)
        with self._lock:
            missing = find_views(self._slots, self._entries, lanes, views)
            used = int(self._state[USED])
            memory = self._memory
        assert missing == 0, f"lane {lanes[-1 - missing]} is not of this pool"
        return views, [memory[at : min(at + 2 * WINDOW, used)] for at in range(0, used, WINDOW)]

    def has(self, lanes: np.ndarray) -> bool:
        """Return whether every lane has a value."""
        with self._lock:
            return find_views(self._slots, self._entries, lanes, np.empty((len(lanes), 2), np.int64)) == 0

    def bytes_of(self, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (offsets, data): the bytes of the lanes' values, one after the other; none for null."""
        views, _ = self.views(lanes)
        offsets = np.zeros(len(lanes) + 1, np.int64)
        np.cumsum(views[:, 0] & LOW, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        copy_views(views, self._memory, offsets, data)
        return offsets, data
