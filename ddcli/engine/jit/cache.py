"""Where compiled kernels are kept: one checked file of object code a module, found by a hash of all that it depends on.

A file is named by its module and by the hash of the kernel sources, of the versions of numba and llvmlite, of the processor's name and
features and of the layout of objects; so a file once written is right for ever, and processes that write the same one at
the same time write the same content. A damaged file is as good as none.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm

from ddcli.engine.jit import registry
from ddcli.engine.jit.errors import KernelError
from ddcli.engine.jit.ownership import is_own, strangers, unsealed, write_whole
from ddcli.engine.jit.settings import announce, cache_dir, private_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS_PER_KERNEL = 0.35  # measured, two processes; only for telling the person how long to wait

# Loops that fill and copy are compiled into calls of these.
FILLING = ("memset", "memcpy", "memmove")


class CompiledKernel(NamedTuple):
    """A compiled kernel: its object code, the symbol it begins at, and the functions outside that it names."""

    name: str
    symbol: str
    needed: list[str]
    code: bytes


_resolved: set[str] = set()
_engines: list[Any] = []  # they own the machine code
_environment: bytes = b""
_keys: dict[str, str] = {}


def addresses(module: str) -> dict[str, int]:
    """Return the address of every kernel of a module by name; compiles all kernels that the cache lacks."""
    for place in (cache_dir, private_dir):
        folder = place()
        code = read(folder / file_name(module))
        if code is not None:
            return _link(code)
        if _writable(folder):
            break
    else:
        msg = "compiled kernels can be kept neither in the cache folder nor in the folder for temporary files"
        raise KernelError(msg, place=str(cache_dir()), hint="name a folder with --cache-dir or DDCLI_CACHE_DIR")
    _compile_missing(folder, module.rpartition(".")[0])
    code = read(folder / file_name(module))
    if code is None:
        msg = f"the compiled kernels of {module} can't be read back"
        raise KernelError(msg, place=str(folder / file_name(module)))
    return _link(code)


def every_module(package: str) -> list[str]:
    """Import the modules of a package, and return the names of those that have kernels."""
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{found.name}")
    return list(registry.modules())


def file_name(module: str) -> str:
    """Return the name of the file for a module's kernels as its sources are now."""
    return f"{module.rpartition('.')[2]}-{key(module)}.kernels"


def key(module: str) -> str:
    """Return the hash of all that a module's object code depends on."""
    if module not in _keys:
        digest = hashlib.sha256(_describe_environment())
        for name in sorted(_sources(module, set())):
            digest.update(Path(str(sys.modules[name].__file__)).read_bytes())
        _keys[module] = digest.hexdigest()[:24]
    return _keys[module]


def read(path: Path) -> list[CompiledKernel] | None:
    """Return the kernels in a file, or None where it is missing or damaged, or not a plain file of this user's (or root's)."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if not is_own(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    body = unsealed(data)
    if body is None:
        return None
    head, _, code = body.partition(b"\n")
    result, start = [], 0
    for name, symbol, needed, length in json.loads(head):
        result.append(CompiledKernel(name, symbol, needed, code[start : start + length]))
        start += length
    return result


def write(path: Path, entries: Sequence[CompiledKernel]) -> None:
    """Write a file of object code in one step: readers see all of it or nothing."""
    head = json.dumps([(entry.name, entry.symbol, entry.needed, len(entry.code)) for entry in entries]).encode()
    body = head + b"\n" + b"".join(entry.code for entry in entries)
    write_whole(path, body)


def _sources(module: str, seen: set[str]) -> set[str]:
    """Return the modules whose text a module's kernels are made of: itself and those of the helpers it uses."""
    if module not in seen:
        seen.add(module)
        for thing in vars(sys.modules[module]).values():
            if registry.is_helper(thing):
                _sources(thing.__module__, seen)
    return seen


def _describe_environment() -> bytes:
    global _environment  # noqa: PLW0603 - computed once a process
    if not _environment:
        parts = [
            _numba_version(),
            llvmlite.__version__,
            llvm.get_process_triple(),
            llvm.get_host_cpu_name(),
            llvm.get_host_cpu_features().flatten(),
            str(registry.HEADER_WORDS),
        ]
        ours = [
            Path(__file__).with_name(name).read_bytes() for name in ("cache.py", "compile.py", "load.py", "registry.py")
        ]
        _environment = "\n".join(parts).encode() + b"".join(ours)
    return _environment


def _numba_version() -> str:
    """Return numba's version without importing it; its metadata would take 10 ms to find."""
    spec = importlib.util.find_spec("numba")
    if spec is None or spec.origin is None:
        msg = "numba is not installed"
        raise KernelError(msg, hint="install it, or set DDCLI_KERNELS=python to run without compiled kernels (slow)")
    written = Path(spec.origin).with_name("_version.py")
    found = re.search(r'"version": "([^"]+)"', written.read_text()) if written.exists() else None
    if found:
        return found.group(1)
    from importlib.metadata import version

    return version("numba")


def _link(code: Sequence[CompiledKernel]) -> dict[str, int]:
    """Load a module's object code into this process, where it stays for the process's life.

    Each module has an engine of its own: the helpers that two modules were compiled with never stand in for each other.
    """
    if not _resolved:
        registry.check_layout()
    for entry in code:
        for name in (*FILLING, *entry.needed):
            _resolve(name)
    engine = linked([entry.code for entry in code])
    return {entry.name: engine.get_function_address(entry.symbol) for entry in code}


def target_machine(**options: int) -> llvm.TargetMachine:
    """Return what makes code for this machine."""
    if not _engines:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(jit=True, **options)


def linked(codes: Sequence[bytes]) -> llvm.ExecutionEngine:
    """Return an engine that has loaded object code, which stays for the process's life."""
    # The code is made: an engine makes that of an empty module only, which takes half as long where it tries least.
    machine = target_machine(opt=0)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    _engines.append(engine)
    for code in codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _resolve(name: str) -> None:
    """Tell the linker where a function outside is: in this process, or nowhere.

    One that is missing would leave all others unresolved too, without a word. Code that numba generates for exceptions names
    functions of numba's; kernels raise none, and one that would ends the process rather than go on.
    """
    if name in _resolved:
        return
    here = ctypes.CDLL(None)
    function = getattr(here, name, None) or here.abort
    llvm.add_symbol(name, int(ctypes.cast(function, ctypes.c_void_p).value or 0))
    _resolved.add(name)


def _compile_missing(folder: Path, package: str) -> None:
    """Compile every kernel of a package that the folder lacks, in two processes where there are two processors."""
    missing = [name for name in every_module(package) if read(folder / file_name(name)) is None]
    count = sum(len(registry.kernels_of(name)) for name in missing)
    announce(f"compiling {count} kernels (once, about {1 + count * SECONDS_PER_KERNEL:.0f} s) ...")
    shares: list[list[str]] = [[] for _ in range(min(2, os.cpu_count() or 1, len(missing)))]
    weights = {name: Path(str(sys.modules[name].__file__)).stat().st_size for name in missing}
    for name in sorted(missing, key=lambda name: -weights[name]):
        min(shares, key=lambda share: sum(weights[other] for other in share)).append(name)
    # We may have been found through a folder that is not on the path any more: that of `python -m`.
    ours = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (*sys.path, ours)))}
    running = [
        subprocess.Popen(  # noqa: S603 - this Python, our own module
            # -P: the sources are those of this process, not what happens to be in the current folder.
            [sys.executable, "-P", "-m", f"{__package__}.compile", str(folder)]
            + [f"{name}={file_name(name)}" for name in share],
            env=environment,
            cwd=folder,  # numba looks for its settings where it is
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for share in shares
    ]
    complaints = [process.communicate()[1] for process in running]
    for process, complaint in zip(running, complaints, strict=True):
        if process.returncode:
            msg = f"kernels could not be compiled: {complaint.strip()[-2000:]}"
            raise KernelError(msg, hint="set DDCLI_KERNELS=python to run without compiled kernels (slow)")


def _writable(folder: Path) -> bool:
    """Say whether files can be made in a folder, making it where it is missing, and it is this user's alone when it is made."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder.resolve() == folder and strangers(folder) is None
    except OSError:
        return False
