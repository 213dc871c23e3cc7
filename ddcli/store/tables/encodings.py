"""The encodings of text files, and how one that is not the declared one is noticed."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from ddcli.store.tables.compression import unpacked

if TYPE_CHECKING:
    from pathlib import Path

UTF_8 = "utf-8"
LATIN = ("latin-1", "iso-8859-15", "windows-1252")
"""Encodings in which any bytes are text, so that only the look of the text betrays a wrong one."""
WIDE = {"utf-16": codecs.BOM_UTF16, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
WIDER = {"euc-kr": "cp949"}
"""Encodings that others contain, which programs write under the same name."""
EAST_ASIAN = {
    "cp932": re.compile(rb"\x82[\x9f-\xf1]|\x83[\x40-\x96]"),
    "cp949": re.compile(rb"[\xb0-\xc8][\xa1-\xfe]"),
}
"""Encodings of Windows, and the bytes of common characters that only their languages have: kana and Hangul."""
HEAD = 4096
"""Bytes at a file's beginning that its encoding is judged by."""
SAVED = "save the file as UTF-8"


def wrong_encoding(path: Path, encoding: str) -> tuple[str, str] | None:
    """Return a file's encoding by its first bytes, if that is not the declared one, and a hint. Raises OSError.

    A wrong encoding may go unnoticed here: see `is_utf_8`.
    """
    with unpacked(path) as file:
        head = file.read(HEAD)
    declared = encoding.upper()
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "the file is UTF-32", SAVED
    marked = next((name for name, mark in WIDE.items() if name != "utf-16" and head.startswith(mark)), None)
    if encoding in WIDE:
        if head.startswith(codecs.BOM_UTF8):
            return f"the file is UTF-8, not {declared}", "leave out `encoding`"
        like = marked or _looks_wide(head)
        if head and not like and b"\0" not in head:
            return f"the file is not {declared}: no byte of it is zero", "leave out `encoding`, or name another one"
        if encoding == "utf-16":
            written = f"`csv: {{encoding: {like or 'utf-16-le'}}}`"
            return None if marked or not head else ("the file doesn't begin with a byte order mark of UTF-16", written)
        return (
            None
            if like in (None, encoding)
            else (f"the file is {like.upper()}, not {declared}", f"`csv: {{encoding: {like}}}`")
        )
    if like := "utf-16" if marked else _looks_wide(head):
        return (
            f"the file is {like.upper()}, not {declared}",
            f"{SAVED}, or of CSV name its encoding: `csv: {{encoding: {like}}}`",
        )
    if encoding != UTF_8 and head.startswith(codecs.BOM_UTF8):
        return f"the file is UTF-8, not {declared}", "leave out `encoding`"
    return None


def _looks_wide(head: bytes) -> str | None:
    """Return the UTF-16 that bytes without a mark look like: every other byte of ASCII is zero."""
    first, second = head[::2].count(0), head[1::2].count(0)
    few = len(head) // 8
    if second > few and not first:
        return "utf-16-le"
    return "utf-16-be" if first > few and not second else None


def east_asian(data: bytes) -> str | None:
    """Return the encoding of a Japanese or Korean Windows, if bytes look as if they were in it: a tenth of the characters beyond ASCII are common kana or Hangul."""
    for encoding, letters in EAST_ASIAN.items():
        try:
            beyond = sum(not letter.isascii() for letter in data.decode(encoding))
        except UnicodeDecodeError:
            continue
        if beyond and len(letters.findall(data)) * 10 >= beyond:
            return encoding
    return None


def is_utf_8(path: Path) -> bool:
    """Return whether a file has characters beyond ASCII, all of them as UTF-8 has them. Raises OSError and NotWholeError."""
    decoder, beyond = codecs.getincrementaldecoder(UTF_8)(), False
    try:
        with unpacked(path) as file:
            while block := file.read(1 << 20):
                beyond = beyond or not block.isascii()
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return beyond
