"""Differential dataflow over files: keep the results of data pipelines up to date as their inputs change.

Importing this package costs nothing: the libraries that do the work are imported where they are used.
"""

TYPE_CHECKING = False  # what type checkers take for true; importing `typing` would cost the hand-over to coreutils 5 ms
if TYPE_CHECKING:
    from ddcli.changelog import read_log
    from ddcli.library import Collection, Dataflow, followed_by

__all__ = ["Collection", "Dataflow", "followed_by", "read_log"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import what is public when it is first asked for."""
    if name == "read_log":
        from ddcli.changelog import read_log

        return read_log
    if name in __all__:
        from ddcli import library

        return getattr(library, name)
    message = f"module 'ddcli' has no attribute '{name}'"
    raise AttributeError(message)
