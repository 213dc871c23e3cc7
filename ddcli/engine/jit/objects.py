"""Object code, which LLVM loads on machines that take no images."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.engine.jit.image import address_of

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


def target_machine(**options: Any) -> Any:
    """Return the LLVM machine that makes code for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(jit=True, **options)
