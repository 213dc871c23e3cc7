"""The package's cargo: all that is compiled when its wheel is built, in files that the wheel carries.

`python -m ddcli.engine.jit.cargo FOLDER` makes them; without a folder all is compiled for this processor, into the cache, so that later runs compile nothing;
with `--first` only the kernels that a first run is likely to call.
"""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.engine.jit.cache import COMMON, addresses, carried_name, file_name, kept, write
from ddcli.engine.jit.compilation import Compiler
from ddcli.engine.jit.image import Image
from ddcli.engine.jit.registry import KernelError, every_module
from ddcli.engine.jit.settings import V3, takes_images, targets

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = {
    *COMMON,
    "arrow",
    "packed_pages",
    "pages",
    "pool_table",
    "siphash",
    "transposition",
    "uniform",
} | {f"reduce_{what}" for what in ("times", "rows", "sums", "turns")}
"""The modules that a first run is likely to call: the common ones, those of states, of texts, and of counts and sums."""


def everything() -> list[str]:
    """Import all modules that have code to compile, and return their names."""
    lending = importlib.import_module("ddcli.engine.arrow")
    return [*every_module("ddcli.engine.kernels"), lending.__name__]


def load_up(folder: Path, modules: Sequence[str]) -> None:
    """Write modules into a folder: for this kind of processor, and for all that have the instructions of x86-64-v3.

    What these versions of the compiler made before is in the cache, so a second wheel of the same sources takes no minute.
    """
    with ThreadPoolExecutor() as threads:
        list(threads.map(partial(_write, folder, modules), (targets()[0], V3)))


def _write(folder: Path, modules: Sequence[str], target: str) -> None:
    compilers: dict[Path, Compiler] = {}

    def compile_into(place: Path) -> None:
        if place not in compilers:
            compilers[place] = Compiler(target, place)
        compilers[place].compile(module, file_name(module, target))

    for module in modules:
        code = kept(file_name(module, target), compile_into)
        if not isinstance(code, Image):
            msg = f"{module} can't be linked; a wheel carries only code that loads without LLVM"
            raise KernelError(msg, hint="build the wheel with an older version of numba and llvmlite")
        write(folder / carried_name(module, target), code)
    for compiler in compilers.values():
        compiler.close()


def main(arguments: list[str]) -> None:
    """Compile everything, or the modules that a first run calls."""
    if arguments in ([], ["--first"]):
        modules = [name for name in everything() if not arguments or name.rpartition(".")[2] in FIRST]
        for module in modules:
            addresses(module, modules)
    elif takes_images():
        load_up(Path(arguments[0]), everything())


if __name__ == "__main__":
    main(sys.argv[1:])
