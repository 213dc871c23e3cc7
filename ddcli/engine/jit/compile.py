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
from numba import types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from ddcli.engine.jit import cache
from ddcli.engine.jit.image import PLACEMENT, ObjectCode, cross_compiled
from ddcli.engine.jit.linker import linked
from ddcli.engine.jit.registry import HEADER_WORDS, LETTERS, Kernel, find_kernel, helper, matrix_of
from ddcli.engine.jit.settings import AARCH64

if TYPE_CHECKING:
    from collections.abc import Iterator

# Division as numpy has it (no ZeroDivisionError) and no reference counts: kernels neither raise nor own memory.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
C_CONTIGUOUS = 0x1
LOCK = "compiling"
"""The file, beside those that are compiled, of which each has a byte that its compiler locks."""
FOREIGN_ORDER = ord(">" if sys.byteorder == "little" else "<")
# Characters by which numpy's type descriptors name an 8-byte integer: long and long long.
CHARACTERS = {
    np.int64: "lq",
    np.uint64: "LQ",
    np.uint32: "II",
    np.uint8: "BB",
    np.float64: "dd",
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

    @global_compiler_lock  # type: ignore[untyped-decorator]
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
def word(_context: object, address: Any, position: Any) -> Any:  # noqa: ARG001 - numba types it by its arguments' names
    """Read the 64-bit word at a position from an address."""

    def generate(context: Any, builder: Any, _signature: object, arguments: Any) -> Any:
        start = builder.inttoptr(arguments[0], context.get_value_type(types.int64).as_pointer())
        return builder.load(builder.gep(start, [arguments[1]]))

    return types.int64(types.int64, types.int64), generate


def array_view(dtype: Any, dimensions: int) -> Any:
    """Return a function for compiled code that turns the address of an array object into the array."""
    array = types.Array(numba.from_dtype(np.dtype(dtype)), dimensions, "C")

    @intrinsic  # type: ignore[untyped-decorator]
    def view(_context: object, thing: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, _signature: object, arguments: Any) -> Any:
            return object_as_array(context, builder, array, arguments[0])

        return array(types.int64), generate

    return view


@intrinsic  # type: ignore[untyped-decorator]
def items_view(_context: object, thing: Any) -> Any:  # noqa: ARG001
    """Return the vector of addresses of the objects in a list object."""
    array = types.Array(types.int64, 1, "C")

    def generate(context: Any, builder: Any, _signature: object, arguments: Any) -> Any:
        count = read(context, builder, arguments[0], HEADER_WORDS)
        return array_value(context, builder, array, read(context, builder, arguments[0], HEADER_WORDS + 1), [count])

    return array(types.int64), generate


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


def acceptable(thing: int, array_type: int, dimensions: int, first: int, second: int) -> bool:
    """Return whether an object is a C-contiguous array of a dtype: `first` and `second` are the letters it may have."""
    if word(thing, HEADER_WORDS - 1) != array_type or word(thing, HEADER_WORDS + 1) & 0xFFFFFFFF != dimensions:
        return False
    described = word(word(thing, HEADER_WORDS + 5), HEADER_WORDS + 1)
    letter = (described >> 8) & 0xFF
    swapped = (described >> 16) & 0xFF == FOREIGN_ORDER
    return word(thing, HEADER_WORDS + 6) & C_CONTIGUOUS != 0 and not swapped and letter in (first, second)


def part(function: Any, **options: Any) -> Any:
    """Return a function for other compiled ones to call: numba lowers it, but makes no machine code for it alone."""
    dispatcher = numba.njit(**OPTIONS | options)(function)

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


PYTHON: dict[str, Any] = {
    name: types.ExternalFunction(name, signature)
    for name, signature in {
        "PyLong_AsLongLong": types.int64(types.int64),
        "PyLong_FromLongLong": types.int64(types.int64),
        "PyErr_Occurred": types.int64(),
        "PyErr_Clear": types.void(),
        "PyObject_CallOneArg": types.int64(types.int64, types.int64),
        "PyEval_SaveThread": types.int64(),
        "PyEval_RestoreThread": types.void(types.int64),
    }.items()
}
"""The functions of Python's interface in C that compiled code calls."""


def shim(entry: Kernel, body: Any, check: Any) -> Any:
    """Return numba's result for the C function of a kernel: it checks its arguments, makes views of them, and calls the body without holding the GIL.

    It is one that Python makes a builtin function of: `own` is a list of the type of arrays, the one of lists and a function that refuses
    the argument at a position, `given` the address of `count` objects. It returns an int, or 0 where an exception is set.
    """
    lines, views = [], []
    kinds = f"word(own, {HEADER_WORDS + 1})"

    def refuse(position: int) -> str:
        return f"return PyObject_CallOneArg(word({kinds}, 2), PyLong_FromLongLong({position}))"

    lines.append(f"if count != {len(entry.signature)}: {refuse(len(entry.signature))}")
    for position, letter in enumerate(entry.signature):
        name = f"a{position}"
        lines.append(f"{name} = word(given, {position})")
        views.append(f"v{position}")
        if letter == "i":
            lines += [
                f"v{position} = PyLong_AsLongLong({name})",
                f"if v{position} == -1 and PyErr_Occurred() != 0:",
                "    PyErr_Clear()",
                f"    {refuse(position)}",
            ]
            continue
        if letter == "L":
            lines += [
                f"if word({name}, {HEADER_WORDS - 1}) != word({kinds}, 1): {refuse(position)}",
                f"v{position} = items_view({name})",
                f"for i in range(word({name}, {HEADER_WORDS})):",
                f"    if not acceptable(v{position}[i], word({kinds}, 0), 2, {ord('l')}, {ord('q')}): {refuse(position)}",
            ]
            continue
        dtype, dimensions = LETTERS[letter]
        first, second = map(ord, CHARACTERS[dtype])
        lines += [
            f"if not acceptable({name}, word({kinds}, 0), {dimensions}, {first}, {second}): {refuse(position)}",
            f"v{position} = view_{letter}({name})",
        ]
    lines += [
        "thread = PyEval_SaveThread()",
        f"found = int64(body({', '.join(views)}))",
        "PyEval_RestoreThread(thread)",
        "return PyLong_FromLongLong(found)",
    ]
    source = f"def {entry.name}(own, given, count):\n" + "".join(f"    {line}\n" for line in lines)
    space: dict[str, Any] = {
        "word": word,
        "acceptable": check,
        "items_view": items_view,
        "body": body,
        "int64": np.int64,
        **PYTHON,
        **{f"view_{letter}": array_view(*LETTERS[letter]) for letter in set(entry.signature) & set(LETTERS)},
    }
    exec(source, space)  # noqa: S102 - our own text, from the signatures above
    function = part(space[entry.name], no_cfunc_wrapper=False)
    function.compile(types.int64(types.int64, types.int64, types.int64))
    (result,) = function.overloads.values()
    return result


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


def compile_kernel(entry: Kernel, made: dict[Any, Any], target: str | None = None) -> ObjectCode:
    """Return the object code of a kernel; `made` keeps the lowered helpers, for the kernels after it."""
    result = shim(entry, compiled(entry.function, made), made[acceptable])
    module = result.library.complete()
    machine = result.library.codegen._tm  # noqa: SLF001 - that which numba made its code for
    code = cross_compiled(str(module)) if target == AARCH64 else machine.emit_object(module)
    outside = [thing.name for thing in (*module.functions, *module.global_variables) if thing.is_declaration]
    needed = [name for name in outside if not name.startswith("llvm.")]
    return ObjectCode({entry.name: result.fndesc.llvm_cfunc_wrapper_name}, needed, code)


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
    made: dict[Any, Any] = {matrix_of: matrix_of_compiled, acceptable: part(acceptable)}
    for line in sys.stdin:
        name, _, file = line.rstrip("\n").partition("=")
        importlib.import_module(name.rpartition(".")[0])
        entry = find_kernel(name)
        assert entry is not None
        try:
            with alone(file):
                if cache.read(Path(file)) is None:
                    cache.write(Path(file), linked([compile_kernel(entry, made, target)]))
        except OSError as error:
            sys.exit(f"{Path.cwd() / file} can't be written: {error.strerror}")
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
