"""Recursion as deep as a loop has rounds: calls from Python to Python, which take no room on the machine's own stack."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEEPEST = 1_000_000
"""Calls within each other that a trace may need: some twenty a round."""


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit, so that a trace can follow as many rounds as a loop may have.

    This is safe as long as no nested call is made from C: Python 3.12 refuses some thousand of those within each other, and other
    versions overflow the process's stack. So recursive functions are called by name, not with `*arguments`, and through `by_type`.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def by_type(cls: type, name: str) -> Callable[[type], Callable[..., Any]]:
    """Return the function that finds the implementation of a class's `singledispatchmethod` for a type; the method itself would call it from C."""
    find: Callable[[type], Callable[..., Any]] = vars(cls)[name].dispatcher.dispatch
    return find
