"""Images of machine code: copied to any address, and run as soon as the slots for functions outside are set. Elsewhere LLVM loads object code."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.engine.jit.registry import KernelError
from ddcli.engine.jit.settings import AARCH64, takes_images

if TYPE_CHECKING:
    from collections.abc import Sequence


PAGE = 4096
"""Bytes whose protection is set as one, on x86-64."""


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


@cache
def address_of(name: str) -> int:
    """Return the address of a function outside: in this process, else that of `abort`.

    Code that numba generates for exceptions names functions of numba's; kernels raise none, and one that would ends the process rather than go on.
    """
    here = ctypes.CDLL(None)
    function = getattr(here, name, None) or here.abort
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


# Loops that fill and copy are compiled into calls of these.
FILLING = ("memset", "memcpy", "memmove")

_resolved: set[str] = set()


class ObjectCode(NamedTuple):
    """An object: its functions, each with the symbol that it begins at, the functions outside that it names, and the code."""

    functions: dict[str, str]
    needed: list[str]
    code: bytes


def load(objects: Sequence[ObjectCode]) -> dict[str, int]:
    """Return the addresses of the functions, which stay for the process's life.

    Each call has an engine of its own: the helpers that two modules were compiled with never stand in for each other.
    """
    import llvmlite.binding as llvm

    for each in objects:
        for name in (*FILLING, *each.needed):
            # One that is missing would leave all others unresolved too, without a word.
            if name not in _resolved:
                llvm.add_symbol(name, address_of(name))
                _resolved.add(name)
    # The code is made: an engine makes that of an empty module only, which takes half as long where it tries least.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(opt=0))
    # It owns the machine code, which may be called even at the end of the process, when Python has removed its modules.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
    for each in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(each.code))
    engine.finalize_object()
    return {name: engine.get_function_address(symbol) for each in objects for name, symbol in each.functions.items()}


PLACEMENT = {"reloc": "pic", "codemodel": "small"} if takes_images() else {}
"""The options of LLVM for code that reaches all of its own by distances: an image is linked of such code."""


def translate(text: str, target: str | None = None) -> list[ObjectCode]:
    """Return the object code of functions that are written in LLVM's own language: no numba is imported for these."""
    import llvmlite.binding as llvm

    parsed = llvm.parse_assembly(text)
    code = cross_compiled(text) if target == AARCH64 else target_machine(**PLACEMENT).emit_object(parsed)
    return [ObjectCode({each.name: each.name for each in parsed.functions if not each.is_declaration}, [], code)]


FOR_ANOTHER = re.compile(
    r'^target (?:triple|datalayout) = ".*"$|"(?:target-cpu|target-features|tune-cpu)"="[^"]*"', re.MULTILINE
)
"""The statements of LLVM's language that are for one machine; what numba writes beside them is right for all with addresses of 64 bits."""


def cross_compiled(text: str) -> bytes:
    """Return the object code of a module of LLVM's for Linux on any ARM with 64 bits."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
    parsed = llvm.parse_assembly(FOR_ANOTHER.sub("", text))
    parsed.triple, parsed.data_layout = triple, str(machine.target_data)
    for each in (*parsed.functions, *parsed.global_variables):
        # Else code takes the address of its own data from a table of the dynamic linker's.
        if not each.is_declaration and each.linkage not in (llvm.Linkage.internal, llvm.Linkage.private):
            each.visibility = "hidden"
    return bytes(machine.emit_object(parsed))


def target_machine(**options: Any) -> Any:
    """Return the LLVM machine that makes code for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(jit=True, **options)
