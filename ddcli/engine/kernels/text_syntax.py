"""The syntax of text in a block of bytes: fields of CSV records, keys of JSON objects. It is a sieve: lines that it passes are sound.

CSV is as Python's `csv` reads it strictly: a quote counts where a field begins with it. Of JSON it checks only what a parser of
values ignores: keys that are twice in an object, escapes of half a character, and numbers that a float would cut.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline

RECORD: Final = 0
FIELD: Final = 1
PLAIN: Final = 2
QUOTED: Final = 3
QUOTE: Final = 4
RETURN: Final = 5
"""The places where a block of CSV may end: before a record, before a field, in one, in one in quotes, after a quote in that, after a carriage return."""

COMMA: Final = 44
QUOTATION: Final = 34
LINE: Final = 10
CARRIAGE: Final = 13
BACKSLASH: Final = 92
DIGIT: Final = 48
EXPONENT: Final = 101
EXACT_DIGITS: Final = 15
"""Digits of a number that a float always returns unchanged."""
MOST_DIGITS: Final = 38
"""Digits of the longest integer that polars reads in JSON."""
SHORT_EXPONENT: Final = 2
"""Digits of an exponent with which it is not near the smallest floats, which have fewer digits."""
MOST_KEYS: Final = 64
DEEPEST: Final = 32
BLANK: Final = 0
LONG: Final = 1
ROWS: Final = 2
MARKS: Final = 3
"""The marks of a file's lines, the last of them the number of lines that are not blank, and how many marks there are."""
PRIME: Final = np.uint64(0x100000001B3)
BASIS: Final = np.uint64(0xCBF29CE484222325)


def hash_of(key: bytes) -> int:
    """Return the hash of a key of JSON."""
    found = int(BASIS)
    for byte in key:
        found = (found ^ byte) * int(PRIME) & 0xFFFFFFFFFFFFFFFF
    return found


@kernel("BiiiiV")
def csv_is_sound(data: np.ndarray, length: int, wanted: int, delimiter: int, quote: int, state: np.ndarray) -> int:
    """Return 1 if all records that end in data[:length] are blank or have as many fields as wanted, else 0, also where a quote is within a field.

    `quote` is -1 where the file has no quotes.

    `state` is where the block before ended, how many delimiters its last record had, and whether that has a value; then how many
    records before it have one, be it an empty text in quotes. It is set to the same for this block.
    """
    at = state[0]
    parts = state[1]
    valued = state[2]
    rows = state[3]
    i = 0
    while i < length:
        byte = data[i]
        if at == QUOTED:
            while i < length and data[i] != quote:
                i += 1
            if i < length:
                at = QUOTE
            i += 1
            continue
        if at == PLAIN:
            while i < length and data[i] != delimiter and data[i] != LINE and data[i] != CARRIAGE and data[i] != quote:
                i += 1
            if i == length:
                break
            byte = data[i]
            if byte == quote:
                return 0
        i += 1
        if at == RETURN and byte != LINE:
            return 0
        if byte == delimiter:
            parts += 1
            at = FIELD
        elif byte == LINE:
            if at != RECORD and parts + 1 != wanted:
                return 0
            at = RECORD
            parts = 0
            rows += valued
            valued = 0
        elif byte == CARRIAGE:
            if at == RECORD:  # a blank line
                parts = wanted - 1
            at = RETURN
        elif byte == quote:
            if at in (QUOTE, RECORD, FIELD):
                at = QUOTED
                valued = 1
        elif at == QUOTE:
            return 0
        else:
            at = PLAIN
            valued = 1
    state[0] = at
    state[1] = parts
    state[2] = valued
    state[3] = rows
    return 1


@inline
def string_end(data: np.ndarray, start: int, end: int) -> int:
    """Return where a JSON string ends that begins at `start`, after its quote; -1 where it doesn't, or escapes half a character."""
    i = start
    while i < end:
        byte = data[i]
        if byte == QUOTATION:
            return i
        if byte == BACKSLASH:
            half = half_character(data, i, end)
            if half == 1:
                if half_character(data, i + 6, end) != 2:
                    return -1
                i += 10
            elif half == 2:
                return -1
            i += 1
        i += 1
    return -1


@inline
def half_character(data: np.ndarray, i: int, end: int) -> int:
    """Return 1 if an escape at `i` is the first half of a pair of surrogates, 2 if it is the second, else 0."""
    if i + 5 >= end or data[i] != BACKSLASH or data[i + 1] != 117 or (data[i + 2] | 32) != 100:
        return 0
    digit = data[i + 3] | 32
    if digit in (56, 57, 97, 98):
        return 1
    return 2 if digit >= 99 and digit <= 102 else 0


@inline
def has_escape(data: np.ndarray, start: int, end: int) -> bool:
    """Return whether a JSON string has an escape that polars does not write again in a text: any escape but a quote's and a line break's."""
    i = start
    while i < end:
        if data[i] == BACKSLASH:
            if data[i + 1] not in (QUOTATION, 110):
                return True
            i += 1
        i += 1
    return False


@inline
def is_watched(watched: np.ndarray, top: np.uint64, inner: np.uint64) -> bool:
    """Return whether one of two hashes is watched."""
    for i in range(watched.shape[0]):
        if watched[i] == top or watched[i] == inner:
            return True
    return False


@inline
def number_end(data: np.ndarray, start: int, end: int) -> int:
    """Return where a number ends; minus that, if it has a point or an exponent and may have more digits than a float.

    0, if it is an integer with more digits than polars reads.
    """
    digits = 0
    exponent = 0
    plain = True
    powered = False
    i = start
    while i < end:
        byte = data[i]
        if byte >= DIGIT and byte < DIGIT + 10:
            if powered:
                exponent += 1
            elif byte != DIGIT or digits > 0:
                digits += 1
        elif byte == 46 or byte | 32 == EXPONENT:
            plain = False
            powered = byte != 46
        elif byte not in (43, 45):  # + -
            break
        i += 1
    if plain:
        return 0 if digits > MOST_DIGITS else i
    return -i if digits > EXACT_DIGITS or exponent > SHORT_EXPONENT else i


@inline
def line_is_sound(
    data: np.ndarray, start: int, end: int, hashes: np.ndarray, first: np.ndarray, watched: np.ndarray
) -> int:
    """Return 1 if a line has no object with two keys of equal hashes, else 0; also 0 where that is not decided easily.

    Returns 2 instead of 1 if a watched key, of the line's object or of one in it, has a number that a float may cut, or a list or an object with an escape.
    """
    depth = 0
    keys = 0
    awaited = False
    sound = 1
    top = BASIS
    inner = BASIS
    i = start
    while i < end:
        byte = data[i]
        if byte == QUOTATION:
            last = string_end(data, i + 1, end)
            if last < 0:
                return 0
            if awaited:
                h = BASIS
                for k in range(i + 1, last):
                    if data[k] == BACKSLASH:
                        return 0
                    h = (h ^ np.uint64(data[k])) * PRIME
                if keys == MOST_KEYS:
                    return 0
                for k in range(first[depth - 1], keys):
                    if hashes[k] == h:
                        return 0
                hashes[keys] = h
                keys += 1
                awaited = False
                if depth == 1:
                    top = h
                    inner = h
                elif depth == 2:
                    inner = h
            elif (
                sound == 1
                and depth > 1
                and has_escape(data, i + 1, last)
                and is_watched(watched, top, inner if depth > 2 else top)
            ):
                sound = 2
            i = last
        elif byte >= DIGIT and byte < DIGIT + 10:
            last = number_end(data, i, end)
            if last == 0:
                return 0
            if last < 0:
                last = -last
                if sound == 1 and is_watched(watched, top, inner):
                    sound = 2
            i = last - 1
        elif byte in (123, 91):  # { [
            if depth == DEEPEST:
                return 0
            awaited = byte == 123
            first[depth] = keys if awaited else -1
            depth += 1
        elif byte in (125, 93):  # } ]
            if depth == 0:
                return 0
            depth -= 1
            if first[depth] >= 0:
                keys = first[depth]
            awaited = False
        elif byte == COMMA:
            awaited = depth > 0 and first[depth - 1] >= 0
        i += 1
    return sound if depth == 0 else 0


@inline
def text_start(data: np.ndarray, start: int, end: int) -> int:
    """Return where a line has its first byte that is no white space; `end` where it has none."""
    i = start
    while i < end and (data[i] == 32 or data[i] == 9 or data[i] == CARRIAGE):
        i += 1
    return i


@kernel("BiUVUVV")
def doubtful_lines(
    data: np.ndarray,
    length: int,
    hashes: np.ndarray,
    first: np.ndarray,
    watched: np.ndarray,
    marks: np.ndarray,
    out: np.ndarray,
) -> int:
    """Write where those lines of data[:length] begin that may be unsound; return how many they are, at most as many as `out` holds.

    A line that doesn't begin with a brace is no object, so it is among them. `hashes` and `first` are scratch of MOST_KEYS and
    DEEPEST; marks[BLANK] becomes 1 if a line is blank, marks[LONG] if a `watched` key has a number that a float may cut, or a list or an object with an escape. The lines
    that are not blank are added to marks[ROWS].
    """
    found = 0
    start = 0
    while start < length and found < out.shape[0]:
        end = start
        while end < length and data[end] != LINE:
            end += 1
        begin = text_start(data, start, end)
        if begin == end:
            marks[BLANK] = 1
        else:
            marks[ROWS] += 1
            sound = 0
            if data[begin] == 123:  # {
                sound = line_is_sound(data, begin, end, hashes, first, watched)
            if sound == 0:
                out[found] = start
                found += 1
            elif sound == 2:
                marks[LONG] = 1
        start = end + 1
    return found
