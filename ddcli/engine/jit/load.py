"""Kernels: C-like functions over int64 lanes, compiled once by numba, later loaded by llvmlite alone.

A kernel is an ordinary function of numpy arrays and integers that returns an int64. It allocates nothing and raises
nothing: the caller brings scratch and output room, and a negative result is an error code. Signed integers must not overflow in it
(compiled code takes that for granted; ask `sum_overflows` first, or compute in uint64, which wraps around), and int64 must not
meet uint64 in one operation (numba makes them a float). So the same source runs in
two ways: compiled (the rule), or as plain Python (`DDCLI_KERNELS=python`) for debugging and coverage.

    @inline
    def smaller(a, i, b, j): ...             # a helper: compiled into the kernels that use it

    @kernel("MMVi")
    def count_smaller(a, b, scratch, k): ... # called as count_smaller(matrix, matrix, vector, 3); by another kernel it is a helper

The signature has a letter for each argument (see `LETTERS`): `M` an int64 matrix, `V` an int64 vector, `U`, `H` and `B` vectors of
uint64, uint32 and uint8, `F` a vector of float64, `L` a list of int64 matrices (read one with `matrix_of(list, i)`), `i` an int64.

Importing numba takes half a second and compiling takes seconds, so object code is kept in files (see `cache`), one a
kernel, loaded when it is first called. Where there is none yet, small calls run as Python meanwhile. A compiled kernel reads address and shape straight from the array
objects that it is handed, and refuses anything that is not a C-contiguous array of the right type: checking there
costs nanoseconds, in Python it would cost more than the call. For Python it is a builtin function, called with a vector of objects; through
ctypes a call would take ten times as long. It releases the GIL while it runs.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.jit.registry import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

_loading = threading.RLock()


def kernel(signature: str) -> Callable[[Callable[..., int]], Kernel]:
    """Register the decorated function as a kernel."""

    def register(function: Callable[..., int]) -> Kernel:
        return Kernel(signature, function, call_first)

    return register


class Method(ctypes.Structure):
    """The C structure that CPython makes a builtin function from."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("description", ctypes.c_char_p),
    )


VECTOR_CALL = 0x80
"""The flag of a function that takes its arguments as an address and a number."""
SMALL = 4_000_000
"""The most elements in the arguments of a call that does not wait for the compiler: for most kernels Python takes a third of a microsecond for one."""
PATIENCE = 8.0
"""The seconds of processor time that a process spends in such calls: later ones wait."""


class Interpretation:
    """The calls that run as Python while the compiler works: as many as take less time than it."""

    def __init__(self) -> None:
        """Begin with none."""
        self.seconds = 0.0
        """Their time so far."""
        self.ends: dict[str, Future[None]] = {}
        """The end of the compilation of each kernel that was called."""

    def takes(self, entry: Kernel, arguments: Sequence[Any]) -> bool:
        """Return whether a call is to run as Python: the kernel is being compiled then."""
        if self.seconds > PATIENCE or sum(map(_elements, arguments)) > SMALL:
            return False
        name = entry.full_name
        if name not in self.ends or self.ends[name].done():
            end = load_kernel(entry)
            if end is None:
                return False
            self.ends[name] = end
        return True

    def call(self, entry: Kernel, arguments: Sequence[Any]) -> int:
        """Run a kernel as Python."""
        begun = time.thread_time()
        try:
            return entry.interpreted(*arguments)
        finally:
            self.seconds += time.thread_time() - begun


INTERPRETATION = Interpretation()
"""That of this process."""


def call_first(entry: Kernel, arguments: Sequence[Any]) -> int:
    """Run a kernel that has no machine code yet: with that from the cache, or as Python if it is small, or else once it is compiled."""
    if INTERPRETATION.takes(entry, arguments):
        return INTERPRETATION.call(entry, arguments)
    if not entry.is_native():
        load_kernel(entry, wait=True)
    return entry(*arguments)


def load_kernel(entry: Kernel, *, wait: bool = False) -> Future[None] | None:
    """Give a kernel its machine code, from the cache or, once, from the compiler; returns the end of its work unless `wait`."""
    from ddcli.engine.jit import cache

    with _loading:
        addresses = cache.addresses_or_end(entry.full_name)
    if not isinstance(addresses, dict):
        if not wait:
            return addresses
        addresses = cache.addresses(entry.full_name)
    with _loading:
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )
        method = Method(entry.name.encode(), addresses[entry.name], VECTOR_CALL, None)
        # The function reads it as long as there is one.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
        # Its code reads first the types that its arguments should have, and the function that it calls for others.
        entry.become(make(ctypes.addressof(method), [np.ndarray, list, entry.refuse], None))
    return None


def _elements(argument: object) -> int:
    """Return the elements of an argument of a kernel."""
    if isinstance(argument, list):
        return sum(map(_elements, argument))
    return argument.size if isinstance(argument, np.ndarray) else 1
