"""Differential dataflow over files: keep the results of data pipelines up to date as their inputs change.

Importing this package costs nothing: the libraries that do the work are imported where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddcli.library import Dataflow

__all__ = ["Dataflow"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what is public when it is first asked for."""
    if name == "Dataflow":
        from ddcli.library import Dataflow

        return Dataflow
    raise AttributeError(name)
