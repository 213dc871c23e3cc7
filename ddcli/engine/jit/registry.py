"""The kernels, as Python functions and, once they are loaded, as machine code; the arguments of both; and the errors that one can end with.

Machine code is an image: copied to any address, it runs as soon as the slots for functions outside are set. Where the machine takes none, LLVM loads object code (`object_code`).
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import numpy as np

from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class DiffOverflow(EngineError):
    """A diff left the signed 64-bit range: an error, never a wrap-around."""


class KernelError(EngineError):
    """The compiled kernels could not be built or loaded."""


def overflow(sign: str, first: np.ndarray, second: np.ndarray) -> DiffOverflow:
    """Return the error for two rows whose diffs can't be added ("+") or multiplied ("x")."""
    rows = [", ".join(str(lane) for lane in row[:-1].tolist()) for row in (first, second)]
    word = "sum" if sign == "+" else "product"
    where = f"({rows[0]})" if rows[0] == rows[1] else f"({rows[0]}) and ({rows[1]})"
    return DiffOverflow(
        f"the {word} of two diffs leaves the 64-bit range: {int(first[-1])} {sign} {int(second[-1])}, at lanes {where}",
        hint="a record is counted more than 9 * 10^18 times; look for an input that is read many times over",
    )


LETTERS: Final[dict[str, tuple[type[np.generic], int]]] = {
    "M": (np.int64, 2),
    "V": (np.int64, 1),
    "U": (np.uint64, 1),
    "H": (np.uint32, 1),
    "B": (np.uint8, 1),
    "F": (np.float64, 1),
}
# Object headers count in words: 2, or 4 where CPython runs without the GIL. Compiled code relies on it.
HEADER_WORDS: Final = object.__basicsize__ // 8

F = TypeVar("F", bound="Callable[..., Any]")

_registry: dict[str, Kernel] = {}


class Kernel:
    """A registered kernel: called with arrays and integers by its signature, it returns an int64.

    A call runs `__call__` of its class: a loaded kernel has a class of its own, where that is the machine code.
    """

    __slots__ = ("call_first", "function", "name", "signature")

    def __init__(
        self, signature: str, function: Callable[..., int], call_first: Callable[[Kernel, Sequence[Any]], int]
    ) -> None:
        """Register `function`. `call_first` runs calls until it has the kernel `become` machine code."""
        if set(signature) - set(LETTERS) - {"L", "i"}:
            msg = f"unknown letter in the signature {signature!r}"
            raise ValueError(msg)
        self.signature = signature
        self.function = function
        self.call_first = call_first
        self.name = function.__name__
        _registry[self.full_name] = self

    def __call__(self, *arguments: Any) -> int:
        """Run the kernel, which is loaded then or compiled; raises TypeError for an argument that it can't take."""
        if os.environ.get("DDCLI_KERNELS") == "python":
            return self.interpreted(*arguments)
        return self.call_first(self, arguments)

    @property
    def full_name(self) -> str:
        """The kernel's name behind that of its module."""
        return f"{self.function.__module__}.{self.name}"

    def refuse(self, position: int) -> NoReturn:
        """Raise TypeError for the argument at a position, or, at the one after the last, for their number."""
        if position == len(self.signature):
            msg = f"kernel {self.name} takes {position} arguments"
            raise TypeError(msg)
        letter = self.signature[position]
        dtype, dimensions = LETTERS.get(letter, (np.int64, 2))
        what = "a list of int64 matrices" if letter == "L" else f"{dtype.__name__}, {dimensions}-dimensional"
        what = "an int of 64 bits" if letter == "i" else f"{what}, C-contiguous"
        msg = f"argument {position + 1} of kernel {self.name} must be {what}"
        raise TypeError(msg)

    def interpreted(self, *arguments: Any) -> int:
        """Run the kernel as Python."""
        if len(arguments) != len(self.signature):
            self.refuse(len(self.signature))
        for position, (letter, argument) in enumerate(zip(self.signature, arguments, strict=True)):
            if not _acceptable(letter, argument):
                self.refuse(position)
        # Compiled integers wrap around in silence; kernels that care look for it.
        with np.errstate(over="ignore"):
            return int(_as_python(self.function)(*arguments))

    def become(self, native: Callable[..., int]) -> None:
        """Have calls go to a function that no other code stands before."""
        self.__class__ = type(self.name, (Kernel,), {"__slots__": (), "__call__": native})

    def is_native(self) -> bool:
        """Return whether calls go to machine code."""
        return type(self) is not Kernel

    def reset(self) -> None:
        """Forget how the kernel was loaded, so that the next call chooses again."""
        self.__class__ = Kernel


@cache
def _as_python(function: Callable[..., int]) -> Callable[..., int]:
    """Return a kernel's function that calls other kernels' functions: numpy's scalars, which it computes with, are no arguments for kernels."""
    called = {
        name: _as_python(there.function)
        for name in function.__code__.co_names
        if isinstance(there := function.__globals__.get(name), Kernel)
    }
    return FunctionType(function.__code__, function.__globals__ | called) if called else function


def inline(function: F) -> F:
    """Mark a helper that kernels call: compiled together with them, a plain function otherwise."""
    function.__kernel_helper__ = True  # type: ignore[attr-defined]
    return function


@inline
def matrix_of(matrices: list[np.ndarray], position: int) -> np.ndarray:
    """Return one matrix of an `L` argument. Compiled code has its own twin of this in `compile`."""
    return matrices[position]


def kernel_names() -> Iterator[str]:
    """Yield the full names of the kernels of the modules imported so far."""
    yield from _registry


def every_kernel(package: str) -> list[str]:
    """Import the modules of a package, and return the full names of their kernels."""
    import pkgutil

    for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{found.name}")
    return list(kernel_names())


def find_kernel(name: str) -> Kernel | None:
    """Return the kernel of a full name; None for the name of a module, whose code is no kernel's."""
    return _registry.get(name)


def helper(thing: object) -> Any:
    """Return the function that a module's global stands for where a kernel calls it: one marked with `inline` or a kernel's; else None."""
    if isinstance(thing, Kernel):
        return thing.function
    return thing if getattr(thing, "__kernel_helper__", False) is True else None


def reset() -> None:
    """Make every kernel choose again how to run, after a change of `DDCLI_KERNELS` or of the cache folder."""
    for entry in _registry.values():
        entry.reset()


def check_layout() -> None:
    """Raise KernelError unless array and list objects lie in memory as compiled kernels read them.

    The layout is part of numpy's and CPython's stable binary interface; this guards against a build that differs.
    """
    probe = np.zeros((3, 5), np.int64)
    words = (ctypes.c_int64 * (HEADER_WORDS + 7)).from_address(id(probe))
    shape = (ctypes.c_int64 * 2).from_address(words[HEADER_WORDS + 2])
    kind = (ctypes.c_char * 2).from_address(words[HEADER_WORDS + 5] + (HEADER_WORDS + 1) * 8)
    items = [probe]
    listed = (ctypes.c_int64 * (HEADER_WORDS + 2)).from_address(id(items))
    sound = (
        words[HEADER_WORDS - 1] == id(np.ndarray)
        and words[HEADER_WORDS] == probe.ctypes.data
        and words[HEADER_WORDS + 1] & 0xFFFFFFFF == probe.ndim
        and tuple(shape) == probe.shape
        and kind.raw == (probe.dtype.kind + probe.dtype.char).encode()
        and words[HEADER_WORDS + 6] & 1 == 1
        and listed[HEADER_WORDS - 1] == id(list)
        and listed[HEADER_WORDS] == 1
        and ctypes.c_int64.from_address(listed[HEADER_WORDS + 1]).value == id(probe)
    )
    if not sound:
        msg = "this build of Python or numpy lays out its arrays in a way that compiled kernels can't read"
        raise KernelError(msg, hint="set DDCLI_KERNELS=python to run without compiled kernels (slow)")


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


def _acceptable(letter: str, argument: object) -> bool:
    if letter == "i":
        return type(argument) is int and -(2**63) <= argument < 2**63
    if letter == "L":
        return type(argument) is list and all(_acceptable("M", item) for item in argument)
    dtype, dimensions = LETTERS[letter]
    return (
        type(argument) is np.ndarray
        and argument.dtype == dtype
        and argument.ndim == dimensions
        and argument.flags.c_contiguous
    )
