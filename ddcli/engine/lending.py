"""Memory lent to polars, kept until it comes back.

polars gives memory back in any thread and at any moment: also while Python lets go of a series because an exception passes. Python code that
ran then would lose the exception, and CPython 3.11 goes on with one that isn't there: it reads through a null pointer, or takes a generator that failed
for one that has ended. So what polars calls is machine code that only notes what came back; whoever lends next, or closes an interval, lets go of it.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from contextlib import suppress
from typing import NamedTuple, Protocol

# A note is a word that is `private_data` of a lent array, and once that came back the address of the note before it: a stack that
# threads add to, and that is taken as a whole. Both functions leave a released struct as Arrow wants it.
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
    """Addresses of what polars calls, and what returns the last of the notes of all that came back since it was last asked."""

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
    from ddcli.engine.jit.cache import linked

    engine = linked([_machine_code()])
    # At the end of the process, too, polars may give something back: when Python has taken itself apart.
    for needed in (engine, _lent):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(needed))
    array, schema, notes = map(engine.get_function_address, ("array_came_back", "schema_came_back", "all_notes"))
    return Functions(array, schema, ctypes.PYFUNCTYPE(ctypes.c_void_p)(notes))


def _machine_code() -> bytes:
    """Return the object code from where that of kernels is kept: to make it takes 4 ms, which a short run would notice."""
    import llvmlite
    import llvmlite.binding as llvm

    from ddcli.engine.jit import cache
    from ddcli.engine.jit.settings import cache_dir

    parts = (llvmlite.__version__, llvm.get_process_triple(), CODE)
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
    path = cache_dir() / f"lending-{digest}.kernels"
    kept = cache.read(path)
    if kept:
        return kept[0].code
    code: bytes = cache.target_machine().emit_object(llvm.parse_assembly(CODE))
    with suppress(OSError):  # as long as there is no such folder, or no room in it
        cache.write(path, [cache.CompiledKernel("lending", "", [], code)])
    return code


def lend(kept: object) -> int:
    """Keep an object until the array comes back whose `private_data` is the number that this returns."""
    take_back()
    note = ctypes.c_int64()
    address = ctypes.addressof(note)
    _lent[address] = note, kept
    return address


def take_back() -> None:
    """Let go of what came back."""
    address = _made[0].all_notes() if _made else None
    while address:
        note, _ = _lent.pop(address)
        address = note.value


def withdraw(address: int) -> None:
    """Let go of what nobody took."""
    del _lent[address]


def outstanding() -> int:
    """Return how many arrays are lent."""
    take_back()
    return len(_lent)
