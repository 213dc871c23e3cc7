"""Series to memory and back through the Arrow C data interface, without pyarrow (whose import costs 0.15 s).

polars hands out a series as a stream of chunks and takes one back as an array, both in PyCapsules. Nothing is copied
in either direction. A reader of memory that it does not own keeps the owner alive: `Chunk` for memory that polars lends us, `export_buffers`
for memory that we lend to polars. See https://arrow.apache.org/docs/format/CDataInterface.html.

polars returns memory in any thread and at any moment, even while Python releases a series because an exception passes. Python code that
ran then would lose the exception, and CPython 3.11 would continue with one that does not exist: it reads through a null pointer, or takes a failed generator
for an ended one. So polars calls machine code that only records the returned memory. The next loan, or the end of an interval, releases it.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl
    from numpy.typing import NDArray


# A note is a word, the `private_data` of a lent array. Once the array came back, it has the address of the note before it: a stack to which
# threads push, and which is taken as a whole. Both functions leave a released struct as Arrow wants it.
CODE = """
@last = internal global ptr null

define void @array_came_back(ptr %array) {
  %release = getelementptr i64, ptr %array, i64 8
  store ptr null, ptr %release
  %data = getelementptr i64, ptr %array, i64 9
  %note = load ptr, ptr %data
  br label %try
try:
  %before = load atomic ptr, ptr @last monotonic, align 8
  store ptr %before, ptr %note
  %swapped = cmpxchg ptr @last, ptr %before, ptr %note release monotonic
  %done = extractvalue { ptr, i1 } %swapped, 1
  br i1 %done, label %end, label %try
end:
  ret void
}

define void @schema_came_back(ptr %schema) {
  %release = getelementptr i64, ptr %schema, i64 7
  store ptr null, ptr %release
  ret void
}

define ptr @all_notes() {
  %notes = atomicrmw xchg ptr @last, ptr null acquire
  ret ptr %notes
}
"""
"""LLVM's: see https://llvm.org/docs/LangRef.html."""


class Functions(NamedTuple):
    """The addresses of the functions that polars calls, and the function that returns the last note of the arrays that came back since its last call."""

    array_came_back: int
    schema_came_back: int
    all_notes: Callable[[], int | None]


_lent: dict[int, tuple[ctypes.c_int64, object]] = {}
_making = threading.Lock()
_made: list[Functions] = []


def functions() -> Functions:
    """Return the machine code, loaded once a process."""
    if not _made:
        with _making:
            if not _made:
                _made.append(_make())
    return _made[0]


def _make() -> Functions:
    from ddcli.engine.jit.load import addresses

    # polars may return memory even at the end of the process, when Python is finalised.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_lent))
    found = addresses(__name__)
    notes = ctypes.PYFUNCTYPE(ctypes.c_void_p)(found["all_notes"])
    return Functions(found["array_came_back"], found["schema_came_back"], notes)


def export_buffers(kept: object) -> int:
    """Keep an object until the array comes back whose `private_data` is the number that this returns."""
    release_returned()
    note = ctypes.c_int64()
    address = ctypes.addressof(note)
    _lent[address] = note, kept
    return address


def release_returned() -> None:
    """Release the objects whose arrays came back."""
    address = _made[0].all_notes() if _made else None
    while address:
        note, _ = _lent.pop(address)
        address = note.value


def withdraw(address: int) -> None:
    """Release an object whose array was not taken."""
    del _lent[address]


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Return the fields of a struct, all of one type."""
    return [(name, kind) for name in names.split()]


class _Schema(Structure):
    """struct ArrowSchema: the type of an array."""

    _fields_: ClassVar = [
        *_fields(c_char_p, "format name"),
        *_fields(c_void_p, "metadata"),
        *_fields(c_int64, "flags n_children"),
        *_fields(POINTER(c_void_p), "children"),
        *_fields(c_void_p, "dictionary release private_data"),
    ]


class _Array(Structure):
    """struct ArrowArray: the buffers of an array."""

    _fields_: ClassVar = [
        *_fields(c_int64, "length null_count offset n_buffers n_children"),
        *_fields(POINTER(c_void_p), "buffers children"),
        *_fields(c_void_p, "dictionary release private_data"),
    ]


class _Stream(Structure):
    """struct ArrowArrayStream: a schema, then arrays until one comes released."""

    _fields_: ClassVar = [
        ("get_schema", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("get_next", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        *_fields(c_void_p, "get_last_error release private_data"),
    ]


_RELEASE = CFUNCTYPE(None, c_void_p)
NULLABLE = 2  # ARROW_FLAG_NULLABLE

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]


def _release(
    struct: _Schema | _Array,
    callback: Callable[[int], Callable[[int], None]] = _RELEASE,
    address: Callable[[Structure], int] = ctypes.addressof,
) -> None:
    """Return a struct to polars. Its arguments are bound, because at the end of the process this module is gone."""
    if struct.release:
        callback(struct.release)(address(struct))


class Memory:
    """Foreign memory as numpy sees it: an address, a shape and the owner, which must stay alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, shape: tuple[int, ...], kind: str, owner: object):
        self.__array_interface__ = {"data": (address, True), "shape": shape, "typestr": kind, "version": 3}
        self.owner = owner


class Chunk:
    """One chunk of a series, alive in polars' memory as long as this object is."""

    def __init__(self) -> None:
        self._array = _Array()

    def __del__(self, _release: Callable[[_Schema | _Array], None] = _release) -> None:
        _release(self._array)

    @property
    def length(self) -> int:
        return int(self._array.length)

    @property
    def buffers(self) -> list[int]:
        """Return the addresses of the buffers after the validity bitmap (0 where polars left one out)."""
        return [self._array.buffers[i] or 0 for i in range(1, self._array.n_buffers)]

    def words(self, per_row: int) -> NDArray[np.int64]:
        """Return the first buffer as (length, per_row) words of 64 bits, read-only."""
        if not self.length:
            return np.empty((0, per_row), np.int64)
        address = self.buffers[0] + int(self._array.offset) * per_row * 8
        return np.asarray(Memory(address, (self.length, per_row), "<i8", self))

    def viewed(self) -> list[tuple[int, int]]:
        """Return the address and the size of each buffer that the views of texts or bytes refer to."""
        *addresses, sizes_at = self.buffers[1:]
        sizes = np.asarray(Memory(sizes_at, (len(addresses),), "<i8", self)).tolist() if addresses else []
        return [*zip(addresses, sizes, strict=True)]

    def nulls(self) -> NDArray[np.bool_] | None:
        """Return which rows are null, or None when none is."""
        if not self._array.null_count or not self._array.buffers[0]:
            return None
        first, end = int(self._array.offset), int(self._array.offset) + self.length
        bitmap = np.asarray(Memory(self._array.buffers[0], ((end + 7) // 8,), "|u1", self))
        valid = np.unpackbits(bitmap, count=end, bitorder="little")[first:].view(np.bool_)
        return np.logical_not(valid)


def chunks(series: pl.Series) -> Iterator[Chunk]:
    """Yield the chunks of a series, in order, without copying."""
    capsule = series.__arrow_c_stream__()  # its destructor releases the stream
    address = _capsule_pointer(capsule, b"arrow_array_stream")
    stream = _Stream.from_address(address)
    while True:
        chunk = Chunk()
        failed = stream.get_next(address, ctypes.addressof(chunk._array))  # noqa: SLF001 - same module
        assert not failed, "polars refused to export a series that it holds in memory"
        if not chunk._array.release:  # noqa: SLF001 - same module
            return
        yield chunk


class _Offer:
    """An object with the `__arrow_c_array__` method that polars asks for."""

    def __init__(self, schema: _Schema, array: _Array):
        self.schema, self.array = schema, array

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return the two capsules. polars reads the schema and moves the array out at once, so they need no destructor."""
        del requested_schema  # a wish that a producer may ignore
        return (
            _new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None),
            _new_capsule(ctypes.addressof(self.array), b"arrow_array", None),
        )


def to_series(
    form: str,
    length: int,
    buffers: Sequence[NDArray[Any]],
    nulls: NDArray[np.bool_] | None = None,
) -> pl.Series:
    """Return the series with these Arrow buffers, which polars keeps: they must not be written to again.

    `form` is the Arrow format string, `buffers` those after the validity bitmap, `nulls` a mask of rows.
    """
    import polars as pl

    validity = None if nulls is None else np.packbits(~nulls, bitorder="little")
    addresses = (c_void_p * (1 + len(buffers)))(
        None if validity is None else validity.__array_interface__["data"][0],
        *(buffer.__array_interface__["data"][0] for buffer in buffers),
    )
    encoded = form.encode()
    machine = functions()
    schema = _Schema(format=encoded, name=b"", flags=NULLABLE, release=machine.schema_came_back)
    array = _Array(length=length, n_buffers=len(addresses), buffers=addresses, release=machine.array_came_back)
    array.null_count = 0 if nulls is None else int(nulls.sum())
    note = array.private_data = export_buffers((encoded, validity, buffers, addresses))
    try:
        return pl.Series(_Offer(schema, array))
    finally:
        if array.release:  # refused: polars did not move it out
            withdraw(note)


FORMS = {
    "int8": "c",
    "int16": "s",
    "int32": "i",
    "int64": "l",
    "uint8": "C",
    "uint16": "S",
    "uint32": "I",
    "uint64": "L",
}
FORMS |= {"float32": "f", "float64": "g"}
"""The Arrow format strings of numpy's types."""


def series_of(name: str, values: NDArray[Any]) -> pl.Series:
    """Return a series of an array's numbers or booleans, which polars keeps: the array must not be written to again.

    `pl.Series` would import numpy's masked arrays to test for one: 15 ms of each process.

    >>> series_of("a", np.array([1.5, np.nan])).to_list(), series_of("b", np.array([True, False])).to_list()
    ([1.5, nan], [True, False])
    """
    if values.dtype == bool:
        return to_series("b", len(values), [np.packbits(values, bitorder="little")]).alias(name)
    return to_series(FORMS[values.dtype.name], len(values), [np.ascontiguousarray(values)]).alias(name)
