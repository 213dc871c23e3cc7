"""The package's cargo: all that is compiled when its wheel is built, in files that the wheel carries.

`python -m ddcli.engine.jit.cargo FOLDER` makes them, `FOLDER aarch64` those for Linux on ARM; without a folder all is compiled for this processor, into the cache, so that later runs compile nothing;
with `--first` only the kernels that a first run is likely to call.
"""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.engine.jit.cache import FIRST, addresses, carried_name, file_name, find, read, translated, write
from ddcli.engine.jit.compilation import Compiler
from ddcli.engine.jit.image import Image
from ddcli.engine.jit.registry import KernelError, every_module, kernels_of
from ddcli.engine.jit.settings import V3, takes_images, targets

if TYPE_CHECKING:
    from collections.abc import Sequence


def everything() -> list[str]:
    """Import all modules that have code to compile, and return their names."""
    lending = importlib.import_module("ddcli.engine.arrow")
    return [*every_module("ddcli.engine.kernels"), lending.__name__]


def load_up(folder: Path, modules: Sequence[str], wanted: Sequence[str]) -> None:
    """Write modules into a folder, for each of the wanted targets.

    What these versions of the compiler made before is in the cache, so a second wheel of the same sources takes no minute.
    """
    with ThreadPoolExecutor() as threads:
        list(threads.map(partial(_write, folder, modules), wanted))


def _write(folder: Path, modules: Sequence[str], target: str) -> None:
    compilers: dict[Path, Compiler] = {}
    for module in modules:
        name = file_name(module, target)
        place, code = find(name)
        if code is None and not kernels_of(module):
            code = translated(module, place / name, target)
        if code is None:
            if place not in compilers:
                compilers[place] = Compiler(target, place)
            compilers[place].compile(module, name)
            code = read(place / name)
        if not isinstance(code, Image):
            msg = f"{module} can't be linked; a wheel carries only code that loads without LLVM"
            raise KernelError(msg, hint="build the wheel with an older version of numba and llvmlite")
        write(folder / carried_name(module, target), code)
    for compiler in compilers.values():
        compiler.close()


def main(arguments: list[str]) -> None:
    """Compile everything, or the modules that a first run calls."""
    if arguments in ([], ["--first"]):
        modules = [name for name in everything() if not arguments or name.rpartition(".")[2] in {*FIRST, "arrow"}]
        for module in modules:
            addresses(module, modules)
    elif takes_images():
        load_up(Path(arguments[0]), everything(), arguments[1:] or (targets()[0], V3))


if __name__ == "__main__":
    main(sys.argv[1:])
