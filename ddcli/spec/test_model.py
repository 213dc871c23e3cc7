"""The tests of a file as plain values. Values of rows stay nodes: they are typed when the types of their columns are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ddcli.dataclass import frozen

if TYPE_CHECKING:
    from ddcli.errors import Span, Text
    from ddcli.spec.bounds import Budget
    from ddcli.spec.tree import Node

Cells: TypeAlias = "tuple[tuple[Text, Node], ...]"
"""A row: its columns and their values as they are written."""


@frozen
class WrittenRows:
    """Rows as they are written, each with its place; or the `file` that they are in, relative to the pipeline file."""

    span: Span
    items: tuple[tuple[Cells, Span], ...] = ()
    file: Text | None = None


@frozen
class WrittenExpectation:
    """An expectation of a collection: its whole `contents` (at the time `at`, else when the step is done), the `changes` that
    the step made, and conditions that hold for any record of it. `tolerance` is the greatest difference of floats.
    """

    collection: Text
    span: Span
    place: str
    contents: WrittenRows | None = None
    changes: WrittenRows | None = None
    at: Node | None = None
    tolerance: float | None = None
    unique: tuple[Text, ...] = ()
    not_null: tuple[Text, ...] = ()
    accepted: tuple[tuple[Text, tuple[Node, ...]], ...] = ()
    always: Text | None = None
    non_negative: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether it has no expectation, so that no collection could fail it."""
        rules = (self.unique, self.not_null, self.accepted, self.always, self.non_negative)
        return self.standing and not any(rules)

    @property
    def standing(self) -> bool:
        """Return whether it may be expected at any time, because it names no rows."""
        return self.contents is None and self.changes is None


@frozen
class WrittenStep:
    """Rows that are `given` to inputs, at the time `time` if they have none of their own; then the times up to the last are closed.

    The cost of that must not exceed the `budget`.
    """

    span: Span
    time: Node | None = None
    given: tuple[tuple[Text, WrittenRows], ...] = ()
    expect: tuple[WrittenExpectation, ...] = ()
    budget: Budget | None = None


@frozen
class WrittenTest:
    """Steps from empty inputs on. Without steps: expectations after each step of all others, and of states that runs have kept."""

    name: Text
    span: Span
    steps: tuple[WrittenStep, ...] = ()
    expect: tuple[WrittenExpectation, ...] = ()
