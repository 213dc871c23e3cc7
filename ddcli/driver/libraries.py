"""The native libraries of numpy and polars, mapped by a thread while the run imports the modules that it needs before them.

To map and relocate them takes some 15 ms of processor time, a thirtieth of a short run, and needs no lock of Python's: where a second processor is idle, the
run is so much shorter. An import that comes earlier waits for the thread, as it would take as long itself.

The libraries read the environment while they are mapped, and in C no other thread may add or remove a variable meanwhile: the process could crash. So the variables
that the imports would add are added before the thread starts.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMPY = ("numpy/_core/_multiarray_umath",)
POLARS = tuple(f"_polars_runtime_{kind}/_polars_runtime" for kind in ("compat", "64", "32"))
"""The packages of polars' code, in polars' order: it imports the first that exists, unless its settings name another."""
SETTINGS = ("POLARS_FORCE_PKG", "POLARS_PREFER_PKG")
SET_BY_IMPORTS = {"OPENBLAS_MAIN_FREE": "1", "GOTOBLAS_MAIN_FREE": "1", "_RJEM_MALLOC_CONF": ""}
"""The variables of the environment that imports of numpy and polars set where they are missing. numpy's import removes its own afterwards."""


def map_ahead() -> None:
    """Have a thread map the libraries, if none of their packages is imported yet; the import reports a library that can't be mapped."""
    if sys.platform != "linux" or not sys.modules.keys().isdisjoint(("numpy", "polars")):
        return
    import ctypes

    call = ctypes.CDLL(None).dlopen  # unlike ctypes.CDLL(path) it lets go of the interpreter's lock
    call.argtypes, call.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    paths, flags = list(libraries()), sys.getdlopenflags()
    for name, value in SET_BY_IMPORTS.items():
        os.environ.setdefault(name, value)
    Thread(target=lambda: [call(os.fsencode(path), flags) for path in paths], name="dd-libraries", daemon=True).start()


def libraries() -> Iterator[str]:
    """Yield the paths of the libraries that imports of numpy and polars would map."""
    for names in (NUMPY, () if any(map(os.environ.get, SETTINGS)) else POLARS):
        found = (
            path
            for name in names
            for folder in sys.path
            for suffix in EXTENSION_SUFFIXES
            if os.path.isfile(path := os.path.join(folder, name + suffix))  # noqa: PTH113, PTH118 - as the import system does
        )
        yield from [path for path in [next(found, None)] if path]
