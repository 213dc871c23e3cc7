"""Differential dataflow over files: keep the results of data pipelines up to date as their inputs change.

Importing this package costs nothing: the libraries that do the work are imported where they are used.
"""

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would cost the hand-over to coreutils 5 ms
if TYPE_CHECKING:
    from ddcli.api import Collection, Dataflow, followed_by
    from ddcli.commands.explain import explain
    from ddcli.compare.diff import diff
    from ddcli.driver.run import run
    from ddcli.provenance.explanation import why
    from ddcli.sources.change_log import read_log
    from ddcli.version import __version__ as __version__

__all__ = ["Collection", "Dataflow", "diff", "explain", "followed_by", "read_log", "run", "why"]

MODULES = {
    "__version__": "ddcli.version",
    "diff": "ddcli.compare.diff",
    "explain": "ddcli.commands.explain",
    "read_log": "ddcli.sources.change_log",
    "run": "ddcli.driver.run",
    "why": "ddcli.provenance.explanation",
}
"""The modules of public names; names that are not here are in `ddcli.api`."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name in __all__ or name in MODULES:
        import importlib

        return getattr(importlib.import_module(MODULES.get(name, "ddcli.api")), name)
    message = f"module 'ddcli' has no attribute '{name}'"
    raise AttributeError(message)


def _register_in_notebook() -> None:
    """Have IPython show our results, where it runs this program."""
    import sys

    if "IPython" in sys.modules:
        from ddcli.cli.notebooks import register

        register(sys.modules["IPython"].get_ipython())


_register_in_notebook()


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})
