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

Importing numba takes half a second and compiling takes seconds, so code is kept in files, one a
kernel, loaded when it is first called. Where there is none yet, small calls run as Python meanwhile. A compiled kernel reads address and shape straight from the array
objects that it is handed, and refuses anything that is not a C-contiguous array of the right type: checking there
costs nanoseconds, in Python it would cost more than the call. For Python it is a builtin function, called with a vector of objects; through
ctypes a call would take ten times as long. It releases the GIL while it runs.

The package carries files of code for some targets (see `targets`); what it lacks is compiled into a folder of the user's. A file is named by its
kernel and by the hash of the kernel sources, of the target and of the layout of objects; one that was compiled here also by that of the versions of
numba and llvmlite. So a file once written is right for ever, and processes that write the same one at the same time write the same content.
A damaged file is as good as none.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import re
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.jit import object_code, registry, settings
from ddcli.engine.jit.object_code import ObjectCode
from ddcli.engine.jit.registry import Image, Kernel, KernelError
from ddcli.engine.jit.settings import cache_dir, find_foreign_owner, is_own, private_dir, unsealed, write_whole
from ddcli.version import install_command

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
    with _loading:
        found = addresses_or_end(entry.full_name)
    if not isinstance(found, dict):
        if not wait:
            return found
        found = addresses(entry.full_name)
    with _loading:
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )
        method = Method(entry.name.encode(), found[entry.name], VECTOR_CALL, None)
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


CARRIED = Path(__file__).with_name("compiled")
"""The folder of the files that the package carries."""
OURS = ("compilation.py", "compile.py", "linker.py", "load.py", "object_code.py", "registry.py")
"""The files that decide which code is made of kernels, how it is kept and how it is called."""


KERNELS = "ddcli.engine.kernels"
FIRST = (
    *("text_syntax.csv_is_sound", "gather.count_positive", "gather.put_lanes", "pool_table.different_views"),
    *("hashes.keyed_ranges", "pool_table.insert_ranges", "pool_table.rehash"),
    *("partition.count_shards", "partition.number_by_shard", "packed_rows.pack_rows", "packed_rows.unpack_rows"),
    *("sort.order_of", "sort.sort_pieces", "sort.sum_equal", "join.join_some"),
    *("partition.move_to_shards", "reduce_times.new_times", "reduce_times.locate", "reduce_rows.collect"),
    *("reduce_rows.assign", "reduce_sums.add_rows", "reduce_sums.apply_sums", "reduce_turns.take_turns"),
    *("gather.turn_lanes", "gather.copy_lanes", "times.advance_rows", "hashes.add_hashes"),
    *(
        "sort.partition",
        "sort.move_in_place",
        "sort.move_to_pieces",
        "pool_table.find_views",
        "page_writer.describe_pages",
    ),
    *("reduce_rows.number_groups", "uniform.all_hold", "page_headers.walk_pages", "hashes.hash_ranges"),
    *("gather.first_keys", "pool_table.copy_views", "page_writer.pack_differences"),
    *("reduce_rows.runs", "ordered_values.count_values", "ordered_values.first_values"),
)
"""The kernels that a first run is likely to call, in the order in which millions of rows wait for them; then those that it calls with few, or some do."""

Code = Image | list[ObjectCode]
"""A kernel's code: an image, where the machine takes one."""


def addresses(name: str, ahead: Sequence[str] | None = None) -> dict[str, int]:
    """Return the address of a kernel, or of each function of a module without kernels, by name; waits for the compiler where its code is kept nowhere.

    Kernels that are wanted next are compiled meanwhile: those named `ahead`, or else those that a first run calls.
    """
    found = addresses_or_end(name, ahead)
    if not isinstance(found, dict):
        from ddcli.engine.jit.compilation import COMPILATION

        COMPILATION.wait_for(found)
        found = addresses_or_end(name, ahead)
        if not isinstance(found, dict):
            msg = "compiled kernels can't be read back"
            raise KernelError(msg, place=str(cache_dir()))
    return found


def addresses_or_end(name: str, ahead: Sequence[str] | None = None) -> dict[str, int] | Future[None]:
    """Return the addresses as above; where the code is kept nowhere, the end of its compilation, which has begun."""
    _check_layout()
    code = carried(name)
    if code is None:
        file = file_name(name)
        folder, code = find(file)
        if code is None and registry.find_kernel(name) is None:
            code = translated(name, folder / file)
        if code is None:
            return _begin(name, folder, first_kernels() if ahead is None else ahead)
    return code.load() if isinstance(code, Image) else object_code.load(code)


def carried(name: str) -> Code | None:
    """Return a kernel's code if the package carries it for this processor: its files are as trustworthy as the package's text."""
    if CARRIED.is_dir():
        for target in settings.targets():
            with suppress(OSError):
                file = CARRIED / carried_name(name, target)
                code = _code(file.read_bytes(), file.name)
                if code is not None:
                    return code
    return None


def is_kept(name: str) -> bool:
    """Return whether a kernel's code need not be compiled."""
    if carried(name) is not None:
        return True
    return compilers() is not None and read(cache_dir() / file_name(name)) is not None


def carried_name(name: str, target: str) -> str:
    """Return the name of the file for a kernel's code as its sources are now, of those that the package carries."""
    return _named(name, target)


def file_name(name: str, target: str | None = None) -> str:
    """Return the name of the file for a kernel's code as its sources are now, of those that are compiled here: for this processor by default."""
    versions = compilers()
    if versions is None:
        msg = "there are no compiled kernels for this machine, and numba, which would compile them, is not installed"
        raise KernelError(msg, hint=install_command("compile"))
    return _named(name, target or settings.targets()[0], *versions)


@cache
def compilers() -> tuple[str, str] | None:
    """Return the versions of numba and llvmlite; None where they are not installed. numba's metadata would take 10 ms to find."""
    found, beside = (importlib.util.find_spec(name) for name in ("numba", "llvmlite"))
    if found is None or found.origin is None or beside is None:
        return None
    import llvmlite

    written = Path(found.origin).with_name("_version.py")
    stated = re.search(r'"version": "([^"]+)"', written.read_text()) if written.exists() else None
    if stated:
        return stated.group(1), llvmlite.__version__
    from importlib.metadata import version

    return version("numba"), llvmlite.__version__


def read(path: Path) -> Code | None:
    """Return the code in a file, or None where it is missing or damaged, or not a plain file of this user's (or root's)."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return _code(file.read(), path.name) if is_own(os.fstat(file.fileno())) else None
    except OSError:
        return None


def write(path: Path, code: Code) -> None:
    """Write a file of code in one step: readers see all of it or nothing."""
    if isinstance(code, Image):
        head: dict[str, object] = {"image": code[1:]}
        body = code.content
    else:
        head = {"objects": [(each.functions, each.needed, len(each.code)) for each in code]}
        body = b"".join(each.code for each in code)
    write_whole(path, json.dumps({"file": path.name} | head).encode() + b"\n" + body)


def _code(data: bytes, name: str) -> Code | None:
    """Return the code in the content of a file of this name; None if it is damaged, or was another file's."""
    body = unsealed(data)
    if body is None:
        return None
    head, _, content = body.partition(b"\n")
    found = json.loads(head)
    if found["file"] != name:
        return None
    if "image" in found:
        return Image(content, *found["image"])
    result, start = [], 0
    for functions, needed, length in found["objects"]:
        result.append(ObjectCode(functions, needed, content[start : start + length]))
        start += length
    return result


@cache
def _check_layout() -> None:
    registry.check_layout()


def _named(name: str, *made: str) -> str:
    module = name if registry.find_kernel(name) is None else name.rpartition(".")[0]
    within = name.removeprefix(f"{module.rpartition('.')[0]}.")
    return f"{within}-{_digest(module, *made)}.kernel"


@cache
def _digest(module: str, *made: str) -> str:
    """Return the hash of a module's sources, of the compiler's sources and version, and of the target."""
    digest = hashlib.sha256("\n".join([str(registry.HEADER_WORDS), *made]).encode())
    for part in _ours():
        digest.update(part)
    for name in sorted(_sources(module, set())):
        digest.update(Path(str(sys.modules[name].__file__)).read_bytes())
    return digest.hexdigest()[:24]


@cache
def _ours() -> tuple[bytes, ...]:
    """Return the contents of the files of OURS. Threads that compile for two targets ask at the same time: each has all of it."""
    return tuple(Path(__file__).with_name(name).read_bytes() for name in OURS)


def _sources(module: str, seen: set[str]) -> set[str]:
    """Return the modules whose text a module's code is made of: the module itself and its helpers' modules."""
    if module not in seen:
        seen.add(module)
        for thing in vars(sys.modules[module]).values():
            if called := registry.helper(thing):
                _sources(called.__module__, seen)
    return seen


def first_kernels() -> list[str]:
    """Return the kernels that a first run calls, of the modules imported so far: a process that calls one will call others."""
    there = set(registry.kernel_names())
    return [name for each in FIRST if (name := f"{KERNELS}.{each}") in there]


def find(name: str) -> tuple[Path, Code | None]:
    """Return the folder for the file of this name, and the code in it; None where it is to be compiled into it."""
    for place in (cache_dir, private_dir):
        folder = place()
        code = read(folder / name)
        if code is not None or _writable(folder):
            return folder, code
    msg = "compiled kernels can be kept neither in the cache folder nor in the folder for temporary files"
    raise KernelError(msg, place=str(cache_dir()), hint="name a folder with --cache-dir or DDCLI_CACHE_DIR")


def translated(module: str, path: Path, target: str | None = None) -> Code:
    """Write the code of a module without kernels into a file, and return it: LLVM alone makes it, in milliseconds."""
    from ddcli.engine.jit.linker import linked

    code = linked(object_code.translate(sys.modules[module].CODE, target))
    write(path, code)
    return code


def _begin(kernel: str, folder: Path, ahead: Sequence[str]) -> Future[None]:
    """Have a kernel compiled, and after it others."""
    from ddcli.engine.jit.compilation import COMPILATION

    wanted = [name for name in ahead if registry.find_kernel(name) and (name == kernel or not is_kept(name))]
    files = {name: folder / file_name(name) for name in wanted}
    return COMPILATION.begin(kernel, {kernel: folder / file_name(kernel)} | files)


def _writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, making it where it is missing, and it is this user's alone when it is made."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder.resolve() == folder and find_foreign_owner(folder) is None
    except OSError:
        return False
