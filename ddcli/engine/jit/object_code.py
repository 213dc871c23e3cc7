"""Object code: written by LLVM, and loaded by it on machines that take no images; an image is linked of it elsewhere."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.engine.jit.registry import address_of
from ddcli.engine.jit.settings import AARCH64, takes_images

if TYPE_CHECKING:
    from collections.abc import Sequence

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
