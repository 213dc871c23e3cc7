"""Packed files: gzip, bzip2 and zstd, unpacked as they are read."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ddcli.store.files.access import naming
from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from pathlib import Path

BUFFER = 1 << 16
"""Bytes that are read together."""
NAMES = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
"""The packing of a file, by the last ending of its name."""
DAMAGED = "write the file again; the name of one that isn't finished should begin with '_' or '.', or end in '.tmp'"
"""The hint for a file that is not whole."""


class NotWholeError(Exception):
    """A packed file that ends too early, or holds something else."""


def packing_of(name: str) -> str:
    """Return the ending of a packed file's name, in small letters; "" for a file that is not packed.

    >>> packing_of("a.csv.GZ"), packing_of("a.csv")
    ('.gz', '')
    """
    name = name.lower()
    return next((ending for ending in NAMES if name.endswith(ending)), "")


def bare(name: str) -> str:
    """Return a name in small letters without the ending of its packing.

    >>> bare("A.csv.gz"), bare("a.csv")
    ('a.csv', 'a.csv')
    """
    return name.lower().removesuffix(packing_of(name))


def unpacked(path: Path) -> BinaryIO:
    """Open a file, and unpack it as it is read. A read of a damaged one raises NotWholeError."""
    packing = packing_of(path.name)
    if not packing:
        plain = path.open("rb") if isinstance(path, ObjectPath) else io.BufferedReader(_Named(path), BUFFER)
        return cast("BinaryIO", plain)
    file: Any = path.open("rb") if isinstance(path, ObjectPath) else path
    return cast("BinaryIO", io.BufferedReader(_Unpacking(_opened(file, packing), NAMES[packing])))


def is_padded(path: Path) -> bool:
    """Return whether a gzip file has zeros after its end, as tapes and block devices leave them: Python's reader ignores them, polars fails at them."""
    if packing_of(path.name) != ".gz":
        return False
    status = path.stat()
    return status.st_size > 0 and _is_padded(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1 << 12)
def _is_padded(path: Path, _size: int, _time: int) -> bool:
    import zlib

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


class _Named(io.FileIO):
    """A file whose errors name it, also errors of a read."""

    def readinto(self, buffer: Any) -> int | None:
        with naming(self.name):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with naming(self.name):
            return super().readall()


class _Unpacking(io.RawIOBase):
    """The content of a packed file, with one error for all kinds of damage."""

    def __init__(self, file: Any, packing: str) -> None:
        self._file, self._packing = file, packing

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        import zlib

        try:
            data = self._file.read(len(buffer))
        except (EOFError, zlib.error) as error:
            raise NotWholeError(f"the file is not whole {self._packing}: {error}") from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise NotWholeError(f"the file is not whole {self._packing}: {error}") from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
