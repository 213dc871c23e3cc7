"""Parts of libraries that hardly any command has a use for: a stand-in is there until something is first asked of one.

A library imports its parts whether they are used or not: of the time that polars takes, a sixth is for Iceberg, which imports what reads packages'
metadata, e-mail and archives; sqlglot takes a quarter of its time for the same, in case a dialect comes as a plugin. pyiceberg imports pyarrow's datasets, and these pandas
where it is installed. Only a process of ours does without, never a program that uses us as a library.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PARTS = {
    "polars.io.database": frozenset({"read_database", "read_database_uri"}),
    "polars.io.delta": frozenset({"read_delta", "scan_delta"}),
    "polars.io.iceberg": frozenset({"scan_iceberg", "delete_iceberg"}),
    "polars.io.lance": frozenset({"scan_lance"}),
    "polars.io.pyarrow_dataset": frozenset({"scan_pyarrow_dataset"}),
    "pyarrow.compute": frozenset[str](),
    "pyarrow.dataset": frozenset[str](),
    "pyiceberg.expressions.parser": frozenset[str](),
    "numpy.linalg": frozenset({"matrix_power", "eigvals", "inv", "lstsq"}),
    "numpy._core._add_newdocs": frozenset[str](),
    "importlib.metadata": frozenset({"entry_points"}),
    "sqlglot.diff": frozenset({"diff"}),
}
"""Each part, and the functions in it that its library takes out to offer them, which are not called before a person does."""
PATH = "__path__"
"""What is asked of a package by whoever imports something within it."""


class Deferred(ModuleType):
    """A module that is imported when anything but those functions is asked of it, or one of them is called."""

    def __init__(self, name: str, functions: frozenset[str]) -> None:
        super().__init__(name, "A module that nobody has needed yet.")
        self.__spec__ = ModuleSpec(name, None)  # who asks whether there is such a module finds it
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        """Return a function that imports the module when it is called, or what the module has of this name."""
        if name == PATH and (found := self._folders()):
            return found
        if name.startswith("__"):
            raise AttributeError(name)  # who only looks around finds nothing
        if name not in self._functions:
            return getattr(self._load(), name)

        def called(*arguments: Any, **options: Any) -> Any:
            return getattr(self._load(), name)(*arguments, **options)

        called.__name__ = called.__qualname__ = name
        return called

    def _folders(self) -> list[str]:
        """Return where the modules within lie, none where this is no package. Whoever asks finds the stand-in in the package around it from then on."""
        around, _, last = self.__name__.rpartition(".")
        package = sys.modules[around]
        if last not in vars(package):
            setattr(package, last, self)
        folders = (os.path.join(folder, last) for folder in package.__path__)  # noqa: PTH118 - as the import system has it
        return [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112 - the same

    def _load(self) -> ModuleType:
        """Return the module, imported once, with the modules within that were imported before."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        for name, within in vars(self).items():
            if isinstance(within, ModuleType):
                vars(module).setdefault(name, within)
        return module


def defer() -> None:
    """Put the stand-ins into the place of parts that are not imported yet."""
    for name, functions in PARTS.items():
        if name not in sys.modules:
            sys.modules[name] = Deferred(name, functions)
            around, _, last = name.rpartition(".")
            if around in sys.modules:  # as an import would have it
                setattr(sys.modules[around], last, sys.modules[name])
