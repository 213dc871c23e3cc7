"""Compile kernels into object code: the only place that imports numba, run as a process of its own.

It reads lines KERNEL=FILE, and answers each with KERNEL once the file is written. A process of its own keeps numba (hundreds of MB, half a second)
out of the process that wants to run a kernel, and two of them compile in parallel. numba types and lowers each function; LLVM optimises a kernel as a
whole, once all its helpers are inlined, and makes machine code of that alone.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import sys
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from ddcli.engine.jit import load
from ddcli.engine.jit.linker import linked
from ddcli.engine.jit.object_code import PLACEMENT, ObjectCode, cross_compiled
from ddcli.engine.jit.registry import HEADER_WORDS, LETTERS, Kernel, find_kernel, helper, matrix_of
from ddcli.engine.jit.settings import AARCH64

if TYPE_CHECKING:
    from collections.abc import Iterator

C_CONTIGUOUS = 0x1
LOCK = "compiling"
"""A file beside the compiled ones. Each of these has a byte in it, which its compiler locks."""
FOREIGN_ORDER = ord(">" if sys.byteorder == "little" else "<")
# The characters for an 8-byte integer in numpy's type descriptors: long and long long.
CHARACTERS = {
    np.int64: "lq",
    np.uint64: "LQ",
    np.uint32: "II",
    np.uint8: "BB",
    np.float64: "dd",
}
ARRAYS = {
    letter: types.Array(numba.from_dtype(np.dtype(dtype)), count, "C") for letter, (dtype, count) in LETTERS.items()
}
TYPES: dict[str, Any] = ARRAYS | {"L": ARRAYS["V"], "i": types.int64}
"""numba's types of arguments, by their letters: a list is the vector of the addresses of its objects."""
PASSES = (
    *(untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing),
    *(untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis),
    *(typed_passes.NativeLowering, typed_passes.NoPythonBackend),
)
"""The passes of numba that a kernel needs: it has no closures, no exceptions, no reference counts and no expressions of whole arrays."""


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """The passes of numba that make LLVM's language of a function: half of all would take a fifth of the time for nothing."""

    def define_pipelines(self) -> list[Any]:
        """Return them."""
        manager = PassManager("kernel")
        for each in PASSES:
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


# Division as numpy has it (no ZeroDivisionError) and no reference counts: kernels neither raise nor own memory.
OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "pipeline_class": KernelCompiler,
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def choose_placement(codegen: Any, options: dict[str, Any], choose: Any = JITCPUCodegen._customize_tm_options) -> None:  # noqa: SLF001
    """Have numba make code that an image can be linked of."""
    choose(codegen, options)
    options |= PLACEMENT


class Lowered(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function as numba lowers it. No machine code is made of it: no helper is called but by kernels, which inline it."""

    def _optimize_final_module(self) -> None:
        """Leave it to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return no address."""
        return 0

    def complete(self) -> Any:
        """Return LLVM's module of the function and all that it calls, optimised."""
        self._ensure_finalized()
        super()._optimize_final_module()
        return self._final_module


# numba has no public way to choose how its code is placed, nor what is made of that.
JITCPUCodegen._customize_tm_options = choose_placement  # noqa: SLF001
JITCPUCodegen._library_class = Lowered  # noqa: SLF001
JITCPUCodegen.set_env = lambda *_: None  # for machine code that is called here: there is none


@intrinsic  # type: ignore[untyped-decorator]
def matrix_of_compiled(_context: object, matrices: Any, position: Any) -> Any:  # noqa: ARG001 - numba knows them by name
    """Return one matrix of an `L` argument, which compiled code sees as a vector of addresses of array objects."""
    matrix = types.Array(types.int64, 2, "C")

    def generate(context: Any, builder: Any, _signature: object, arguments: Any) -> Any:
        items = make_array(matrices)(context, builder, arguments[0])
        return object_as_array(context, builder, matrix, builder.load(builder.gep(items.data, [arguments[1]])))

    return matrix(matrices, types.int64), generate


def read(context: Any, builder: Any, address: Any, position: int) -> Any:
    """Generate the reading of the 64-bit word at a position from an address."""
    integer = context.get_value_type(types.int64)
    return builder.load(builder.gep(builder.inttoptr(address, integer.as_pointer()), [integer(position)]))


def object_as_array(context: Any, builder: Any, array: Any, thing: Any) -> Any:
    """Generate the array value for the address of an array object."""
    lengths = read(context, builder, thing, HEADER_WORDS + 2)
    shape = [read(context, builder, lengths, i) for i in range(array.ndim)]
    return array_value(context, builder, array, read(context, builder, thing, HEADER_WORDS), shape)


def array_value(context: Any, builder: Any, array: Any, data: Any, shape: list[Any]) -> Any:
    """Generate the array value for the address and the shape of C-contiguous data that someone else owns."""
    integer = context.get_value_type(types.int64)
    itemsize = integer(array.dtype.bitwidth // 8)
    strides = [itemsize]
    for length in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    value = make_array(array)(context, builder)
    populate_array(
        value,
        data=builder.inttoptr(data, value.data.type),
        shape=shape,
        strides=strides,
        itemsize=itemsize,
        meminfo=None,
    )
    return value._getvalue()  # noqa: SLF001 - how numba's own code reads a structure


def part(function: Any) -> Any:
    """Return a function for other compiled ones to call: numba lowers it, but makes no machine code for it alone."""
    dispatcher = numba.njit(**OPTIONS)(function)

    def customize(flags: Any) -> Any:
        flags.no_compile = True
        # Left to itself LLVM calls even a helper that copies a row, with a dozen words for each array: twice the time.
        flags.forceinline = True
        return flags

    def add(result: Any) -> None:
        # Callers find the code by the entry point; for want of one, by something else that is unique.
        result = result._replace(entry_point=object())
        result.target_context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        dispatcher.overloads[tuple(result.signature.args)] = result

    def template(arguments: Any, keywords: Any) -> Any:
        # Without this, each constant among the arguments of a call would get a function compiled for it.
        return find(tuple(map(types.unliteral, arguments)), keywords)

    find = dispatcher.get_call_template
    dispatcher.get_call_template = template
    # As numba's own cfunc does.
    dispatcher._compiler._customize_flags = customize  # noqa: SLF001
    dispatcher.add_overload = add
    return dispatcher


INT = ir.IntType(64)
NONE = ir.VoidType()
PYTHON = {
    "PyLong_AsLongLong": ir.FunctionType(INT, [INT]),
    "PyLong_FromLongLong": ir.FunctionType(INT, [INT]),
    "PyErr_Occurred": ir.FunctionType(INT, []),
    "PyErr_Clear": ir.FunctionType(NONE, []),
    "PyObject_CallOneArg": ir.FunctionType(INT, [INT, INT]),
    "PyEval_SaveThread": ir.FunctionType(INT, []),
    "PyEval_RestoreThread": ir.FunctionType(NONE, [INT]),
}
"""The functions of Python's interface in C that compiled code calls."""


class Shim:
    """The C function of a kernel: it checks its arguments, makes views of them, and calls the body without holding the GIL.

    It is one that Python makes a builtin function of: `own` is a list of the type of arrays, the one of lists and a function that refuses
    the argument at a position, `given` the address of `count` objects. It returns an int, or 0 where an exception is set. We write it in
    LLVM's language: numba would take a third of its time for these.
    """

    def __init__(self, entry: Kernel, body: Any) -> None:
        """Begin it, for the body as numba lowered it."""
        self.context = body.target_context
        self.library = self.context.codegen().create_library(entry.name)
        self.library.add_linking_library(body.library)
        self.module = self.library.create_ir_module(entry.name)
        self.name = f"kernel_{entry.name}"
        function = ir.Function(self.module, ir.FunctionType(INT, [INT, INT, INT]), self.name)
        own, given, count = function.args
        self.builder = builder = ir.IRBuilder(function.append_basic_block())
        types_of = self.word(own, HEADER_WORDS + 1)
        self.refusal = function.append_basic_block()
        with builder.goto_block(self.refusal):
            self.refused = builder.phi(INT)
            refuse = self.word(types_of, 2)
            builder.ret(self.python("PyObject_CallOneArg", refuse, self.python("PyLong_FromLongLong", self.refused)))
        self.check(builder.icmp_signed("==", count, INT(len(entry.signature))), len(entry.signature))
        self.arrays, self.lists = self.word(types_of, 0), self.word(types_of, 1)
        values = [
            self.value(letter, position, self.word(given, position)) for position, letter in enumerate(entry.signature)
        ]
        thread = self.python("PyEval_SaveThread")
        called = self.context.declare_function(self.module, body.fndesc)
        returned = body.signature.return_type
        _, found = self.context.call_conv.call_function(builder, called, returned, body.signature.args, values)
        self.python("PyEval_RestoreThread", thread)
        builder.ret(self.python("PyLong_FromLongLong", self.context.cast(builder, found, returned, types.int64)))
        self.library.add_ir_module(self.module)

    def word(self, address: Any, position: int) -> Any:
        """Read the 64-bit word at a position from an address."""
        return read(self.context, self.builder, address, position)

    def python(self, name: str, *arguments: Any) -> Any:
        """Call a function of Python's."""
        return self.builder.call(cgutils.get_or_insert_function(self.module, PYTHON[name], name), arguments)

    def check(self, condition: Any, position: int) -> None:
        """Refuse the argument at a position unless a condition holds."""
        following = self.builder.append_basic_block()
        self.refused.add_incoming(INT(position), self.builder.block)
        self.builder.cbranch(condition, following, self.refusal)
        self.builder.position_at_end(following)

    def value(self, letter: str, position: int, thing: Any) -> Any:
        """Return the value of an argument for numba's code."""
        builder = self.builder
        if letter == "i":
            number = self.python("PyLong_AsLongLong", thing)
            with builder.if_then(builder.icmp_signed("==", number, INT(-1)), likely=False):
                failed = builder.icmp_signed("!=", self.python("PyErr_Occurred"), INT(0))
                with builder.if_then(failed, likely=False):
                    self.python("PyErr_Clear")
                self.check(builder.not_(failed), position)
            return number
        if letter != "L":
            self.check_array(letter, position, thing)
            return object_as_array(self.context, builder, TYPES[letter], thing)
        self.check(builder.icmp_signed("==", self.word(thing, HEADER_WORDS - 1), self.lists), position)
        count, items = self.word(thing, HEADER_WORDS), self.word(thing, HEADER_WORDS + 1)
        with cgutils.for_range(builder, count) as loop:
            start = builder.inttoptr(items, INT.as_pointer())
            self.check_array("M", position, builder.load(builder.gep(start, [loop.index])))
        return array_value(self.context, builder, TYPES[letter], items, [count])

    def check_array(self, letter: str, position: int, thing: Any) -> None:
        """Refuse an argument that is not a C-contiguous array of the type of a letter."""
        builder = self.builder
        dtype, dimensions = LETTERS[letter]
        self.check(builder.icmp_signed("==", self.word(thing, HEADER_WORDS - 1), self.arrays), position)
        count = builder.and_(self.word(thing, HEADER_WORDS + 1), INT(0xFFFFFFFF))
        self.check(builder.icmp_signed("==", count, INT(dimensions)), position)
        described = self.word(self.word(thing, HEADER_WORDS + 5), HEADER_WORDS + 1)
        character = builder.and_(builder.lshr(described, INT(8)), INT(0xFF))
        first, second = (builder.icmp_signed("==", character, INT(ord(each))) for each in CHARACTERS[dtype])
        self.check(builder.or_(first, second), position)
        order = builder.and_(builder.lshr(described, INT(16)), INT(0xFF))
        self.check(builder.icmp_signed("!=", order, INT(FOREIGN_ORDER)), position)
        flags = builder.and_(self.word(thing, HEADER_WORDS + 6), INT(C_CONTIGUOUS))
        self.check(builder.icmp_signed("!=", flags, INT(0)), position)


def compiled(function: Any, made: dict[Any, Any]) -> Any:
    """Return a helper or a kernel's body for numba: its calls of other helpers go to their compiled forms."""
    if function not in made:
        space = {
            name: compiled(called, made) if (called := helper(thing)) and called is not function else thing
            for name, thing in function.__globals__.items()
            if name in function.__code__.co_names
        }
        # Symbols are named by the module too: helpers of one name in two modules are different ones.
        space["__name__"] = function.__module__
        twin = FunctionType(function.__code__, space, function.__name__, function.__defaults__)
        made[function] = part(twin)
    return made[function]


@global_compiler_lock  # type: ignore[untyped-decorator]
def compile_kernel(entry: Kernel, made: dict[Any, Any], target: str | None = None) -> ObjectCode:
    """Return the object code of a kernel; `made` keeps the lowered helpers, for the kernels after it."""
    body = compiled(entry.function, made)
    arguments = tuple(TYPES[letter] for letter in entry.signature)
    body.compile(arguments)
    shim = Shim(entry, body.overloads[arguments])
    module = shim.library.complete()
    machine = shim.library.codegen._tm  # noqa: SLF001 - that which numba made its code for
    code = cross_compiled(str(module)) if target == AARCH64 else machine.emit_object(module)
    outside = [thing.name for thing in (*module.functions, *module.global_variables) if thing.is_declaration]
    needed = [name for name in outside if not name.startswith("llvm.")]
    return ObjectCode({entry.name: shim.name}, needed, code)


@contextmanager
def alone(file: str) -> Iterator[None]:
    """Wait until no other process compiles this file: of many first runs at a time one compiles each kernel, and the others find it."""
    lock = os.open(LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # a file system without locks: each compiles
            fcntl.lockf(lock, fcntl.LOCK_EX, 1, zlib.crc32(file.encode()))
        yield
    finally:
        os.close(lock)


def main() -> None:
    """Compile the kernel of each line of stdin into the file that the line names; for another machine, if the command names it."""
    target = sys.argv[1] if sys.argv[1:] else None
    gc.disable()  # a compiler makes millions of objects and ends soon: garbage collection would not pay
    made: dict[Any, Any] = {matrix_of: matrix_of_compiled}
    for line in sys.stdin:
        name, _, file = line.rstrip("\n").partition("=")
        importlib.import_module(name.rpartition(".")[0])
        entry = find_kernel(name)
        assert entry is not None
        try:
            with alone(file):
                if load.read(Path(file)) is None:
                    load.write(Path(file), linked([compile_kernel(entry, made, target)]))
        except OSError as error:
            sys.exit(f"{Path.cwd() / file} can't be written: {error.strerror}")
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
