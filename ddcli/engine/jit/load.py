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
module of kernels, loaded when one of its kernels is first called. A compiled kernel reads address and shape straight from the array
objects that it is handed, and refuses anything that is not a C-contiguous array of the right type: checking there
costs nanoseconds, in Python it would cost more than the call. For Python it is a builtin function, called with a vector of objects; through
ctypes a call would take ten times as long. It releases the GIL while it runs.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.jit.registry import Kernel, kernels_of

if TYPE_CHECKING:
    from collections.abc import Callable

_loading = threading.RLock()


def kernel(signature: str) -> Callable[[Callable[..., int]], Kernel]:
    """Register the decorated function as a kernel of its module."""

    def register(function: Callable[..., int]) -> Kernel:
        return Kernel(signature, function, load_module)

    return register


class Method(ctypes.Structure):
    """The C structure of which CPython makes a builtin function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("description", ctypes.c_char_p),
    )


VECTOR_CALL = 0x80
"""The flag of a function that takes its arguments as an address and a number."""


def load_module(module: str) -> None:
    """Give every kernel of a module its machine code, from the cache or, once, from the compiler."""
    from ddcli.engine.jit import cache

    with _loading:
        addresses = cache.addresses(module)
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )
        for entry in kernels_of(module):
            method = Method(entry.name.encode(), addresses[entry.name], VECTOR_CALL, None)
            # The function reads it as long as there is one.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
            # Its code reads first the types that it compares those of its arguments with, and the function that it calls for others.
            entry.become(make(ctypes.addressof(method), [np.ndarray, list, entry.refuse], None))
