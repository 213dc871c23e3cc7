"""Memory lent to polars, kept until it comes back.

polars returns memory in any thread and at any moment, even while Python releases a series because an exception passes. Python code that
ran then would lose the exception, and CPython 3.11 would continue with one that does not exist: it reads through a null pointer, or takes a failed generator
for an ended one. So polars calls machine code that only records the returned memory. The next loan, or the end of an interval, releases it.
"""

from __future__ import annotations

import ctypes
import threading
from typing import NamedTuple, Protocol

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


class _Function(Protocol):
    def __call__(self) -> int | None: ...


class Functions(NamedTuple):
    """The addresses of the functions that polars calls, and the function that returns the last note of the arrays that came back since its last call."""

    array_came_back: int
    schema_came_back: int
    all_notes: _Function


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
    from ddcli.engine.jit.cache import addresses

    # polars may return memory even at the end of the process, when Python is finalised.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_lent))
    found = addresses(__name__)
    notes = ctypes.PYFUNCTYPE(ctypes.c_void_p)(found["all_notes"])
    return Functions(found["array_came_back"], found["schema_came_back"], notes)


def lend(kept: object) -> int:
    """Keep an object until the array comes back whose `private_data` is the number that this returns."""
    take_back()
    note = ctypes.c_int64()
    address = ctypes.addressof(note)
    _lent[address] = note, kept
    return address


def take_back() -> None:
    """Release the objects whose arrays came back."""
    address = _made[0].all_notes() if _made else None
    while address:
        note, _ = _lent.pop(address)
        address = note.value


def withdraw(address: int) -> None:
    """Release an object whose array was not taken."""
    del _lent[address]


def outstanding() -> int:
    """Return the number of arrays that are lent."""
    take_back()
    return len(_lent)
