"""Differential dataflow over files: keep the results of data pipelines up to date as their inputs change.

Importing this package costs nothing: the libraries that do the work are imported where they are used.
"""

TYPE_CHECKING = False  # what type checkers take for true; importing `typing` would cost the hand-over to coreutils 5 ms
if TYPE_CHECKING:
    from ddcli.changelog import read_log
    from ddcli.compare.diff import diff
    from ddcli.library import Collection, Dataflow, followed_by

__all__ = ["Collection", "Dataflow", "diff", "followed_by", "read_log"]
__version__ = "0.1.0"


MODULES = {"diff": "ddcli.compare.diff", "read_log": "ddcli.changelog"}
"""Where public names are; those that are not here are in the library of dataflows."""


def __getattr__(name: str) -> object:
    """Import what is public when it is first asked for."""
    if name in __all__:
        import importlib

        return getattr(importlib.import_module(MODULES.get(name, "ddcli.library")), name)
    message = f"module 'ddcli' has no attribute '{name}'"
    raise AttributeError(message)
