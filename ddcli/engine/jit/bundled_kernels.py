"""The kernels that a wheel carries: all that is compiled when it is built, in files.

`python -m ddcli.engine.jit.bundled_kernels FOLDER` makes them, `FOLDER aarch64` those for Linux on ARM; without a folder all is compiled for this processor, into the cache, so that later runs compile nothing;
with `--first` only the kernels that a first run is likely to call.
"""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.engine.jit.compilation import Compiler
from ddcli.engine.jit.load import addresses, carried_name, file_name, find, first_kernels, read, translated, write
from ddcli.engine.jit.registry import Image, KernelError, every_kernel, find_kernel
from ddcli.engine.jit.settings import V3, takes_images, targets

if TYPE_CHECKING:
    from collections.abc import Sequence


def everything() -> list[str]:
    """Return the names of all that has code to compile: kernels, and a module."""
    buffers = importlib.import_module("ddcli.engine.arrow")
    return [*every_kernel("ddcli.engine.kernels"), buffers.__name__]


def compile_into(folder: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Write the code of these names into a folder, for each of the wanted targets.

    What these versions of the compiler made before is in the cache, so a second wheel of the same sources takes no minute.
    """
    with ThreadPoolExecutor() as threads:
        list(threads.map(partial(_write, folder, names), wanted))


def _write(folder: Path, names: Sequence[str], target: str) -> None:
    compilers: dict[Path, Compiler] = {}
    for name in names:
        file = file_name(name, target)
        place, code = find(file)
        if code is None and find_kernel(name) is None:
            code = translated(name, place / file, target)
        if code is None:
            if place not in compilers:
                compilers[place] = Compiler(target, place)
            compilers[place].compile(name, file)
            code = read(place / file)
        if not isinstance(code, Image):
            msg = f"{name} can't be linked; a wheel carries only code that loads without LLVM"
            raise KernelError(msg, hint="build the wheel with an older version of numba and llvmlite")
        write(folder / carried_name(name, target), code)
    for compiler in compilers.values():
        compiler.close()


def main(arguments: list[str]) -> None:
    """Compile everything, or the kernels that a first run calls."""
    if arguments in ([], ["--first"]):
        names = everything()
        if arguments:
            names = [*first_kernels(), names[-1]]
        for name in names:
            addresses(name, names)
    elif takes_images():
        compile_into(Path(arguments[0]), everything(), arguments[1:] or (targets()[0], V3))


if __name__ == "__main__":
    main(sys.argv[1:])
