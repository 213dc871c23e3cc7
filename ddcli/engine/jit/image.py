"""Images of machine code: copied to any address, and run as soon as the slots for functions outside are set."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import NamedTuple

from ddcli.engine.jit.errors import KernelError

PAGE = 4096
"""Bytes whose protection is set as one."""


class Image(NamedTuple):
    """Machine code with its constants and, from the page at `written` on, its data. All places are offsets from the beginning."""

    content: bytes
    written: int
    functions: dict[str, int]
    """The places at which its functions begin, by name."""
    slots: dict[str, int]
    """The words for the addresses of functions outside, by name."""

    def load(self) -> dict[str, int]:
        """Return the addresses of the functions, which stay for the process's life. Raises KernelError where memory may not be run."""
        memory = mmap.mmap(-1, len(self.content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A function may be called even at the end of the process, when Python has removed its modules.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        memory[:] = self.content
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for name, place in self.slots.items():
            ctypes.c_int64.from_address(start + place).value = address_of(name)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        if protect(ctypes.c_void_p(start), ctypes.c_size_t(self.written), mmap.PROT_READ | mmap.PROT_EXEC):
            msg = f"compiled kernels can't be run here: {os.strerror(ctypes.get_errno())}"
            raise KernelError(msg, hint="set DDCLI_KERNELS=python to run without compiled kernels (slow)")
        return {name: start + place for name, place in self.functions.items()}


def address_of(name: str) -> int:
    """Return the address of a function outside: in this process, else that of `abort`.

    Code that numba generates for exceptions names functions of numba's; kernels raise none, and one that would ends the process rather than go on.
    """
    here = ctypes.CDLL(None)
    function = getattr(here, name, None) or here.abort
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
