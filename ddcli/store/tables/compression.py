"""Packed and encoded text: gzip, bzip2 and zstd are unpacked as they are read, and an encoding that is not the declared one is noticed."""

from __future__ import annotations

import codecs
import io
import re
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ddcli.errors import InputError
from ddcli.store.files.access import fs, naming
from ddcli.store.tables.input_path import PACKINGS, packing_of

if TYPE_CHECKING:
    from pathlib import Path


BUFFER = 1 << 16
"""Bytes that are read together."""
DAMAGED = "write the file again; the name of one that isn't finished should begin with '_' or '.', or end in '.tmp'"
"""The hint for a file that is not whole."""


class Damage(InputError):
    """A file that can't be read as it is: its problem, the place in it, and a hint."""

    def __init__(self, problem: str, place: str, hint: str = DAMAGED) -> None:
        super().__init__(problem, place=place, hint=hint)


def unpacked(path: Path) -> BinaryIO:
    """Open a file, and unpack it as it is read. A read of a damaged one raises Damage."""
    packing = packing_of(path.name)
    if not packing:
        plain = io.BufferedReader(_NamedFile(path), BUFFER) if fs(path).is_local else path.open("rb")
        return cast("BinaryIO", plain)
    file: Any = path if fs(path).is_local else path.open("rb")
    return cast("BinaryIO", io.BufferedReader(_UnpackedContent(_opened(file, packing), path)))


def is_padded(path: Path) -> bool:
    """Return whether a gzip file has zeros after its end, as tapes and block devices leave them: Python's reader ignores them, polars fails at them."""
    if packing_of(path.name) != ".gz":
        return False
    status = path.stat()
    return status.st_size > 0 and _is_padded(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1 << 12)
def _is_padded(path: Path, _size: int, _time: int) -> bool:
    with path.open("rb") as file:
        file.seek(-1, io.SEEK_END)
        if file.read(1) != b"\0":
            return False
        file.seek(0)
        unpacking = zlib.decompressobj(31)
        try:
            while block := unpacking.unused_data or file.read(1 << 16):
                if unpacking.eof:
                    if not block.strip(b"\0"):
                        return True
                    unpacking = zlib.decompressobj(31)
                unpacking.decompress(block)
        except zlib.error:
            pass
    return False


def packed(data: bytes, name: str) -> bytes:
    """Return data packed as the ending of a file's name asks."""
    packing = packing_of(name)
    if packing == ".gz":
        import gzip

        return gzip.compress(data, mtime=0)
    if packing == ".bz2":
        import bz2

        return bz2.compress(data)
    if packing == ".zst":
        import pyarrow as pa

        whole: bytes = pa.Codec("zstd").compress(data, asbytes=True)
        return whole
    return data


def _opened(file: Any, packing: str) -> Any:
    if packing == ".gz":
        import gzip

        return gzip.open(file, "rb")
    if packing == ".bz2":
        import bz2

        return bz2.open(file, "rb")
    import pyarrow as pa

    raw = pa.PythonFile(file, "r") if isinstance(file, io.IOBase) else pa.OSFile(str(file), "rb")
    return pa.CompressedInputStream(raw, "zstd")


class _NamedFile(io.FileIO):
    """A file whose errors name it, also errors of a read."""

    def readinto(self, buffer: Any) -> int | None:
        with naming(self.name):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with naming(self.name):
            return super().readall()


class _UnpackedContent(io.RawIOBase):
    """The content of a packed file, with one error for all kinds of damage."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path = file, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except (EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            packing = PACKINGS[packing_of(self._path.name)]
            raise Damage(f"the file is not whole {packing}: {error}", str(self._path)) from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


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


def all_utf_8(declared: str) -> str:
    """Return the hint for a file of UTF-8 whose input declares another encoding, which all its files have."""
    return f"if all files are UTF-8, leave out `encoding`; else save this one in {declared}"


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
            return f"the file is UTF-8, not {declared}", all_utf_8(declared)
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
        return f"the file is UTF-8, not {declared}", all_utf_8(declared)
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
    """Return whether a file has characters beyond ASCII, all of them as UTF-8 has them. Raises OSError and Damage."""
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
