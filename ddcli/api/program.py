"""A dataflow as its parts see it: the methods that collections, sessions, outputs and handles call on theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ddcli.api.clock import Clock
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Frontier
    from ddcli.plan.node import LoopName
    from ddcli.plan.operators.row import BindContext
    from ddcli.plan.relation import Relation


class Program(Protocol):
    """A `Dataflow`. `dataflow` is not imported, as it imports all its parts; so parts that it makes have no type here."""

    clock: Clock
    pool: Pool
    frontier: Frontier
    surroundings: BindContext
    workers: int
    torn: bool
    timezone: str

    def iterate(
        self, variables: Mapping[str, Any], body: Callable[..., Any], *, max_rounds: int | None, guard: int
    ) -> Any:
        """Return the collections that leave a loop with several variables, which have their values in the first round by name."""

    def inside(self, name: LoopName) -> AbstractContextManager[None]:
        """Make operators that are added within the block part of a loop's body."""

    def leave(self, collection: Any) -> Any:
        """Return the `Collection` outside of the loop that is being written step by step."""

    def sql(self, query: str, /, **collections: Any) -> Any:
        """Return the result of a query over these collections, by name, as a `Collection`."""

    def arranged(self, relation: Relation) -> Any:
        """Return the `Arranged` whose node is that of `relation`."""

    def output_of(self, relation: Relation) -> Any:
        """Return the `Output` from which the updates of a collection can be read."""

    def shown(self, show: str | Callable[[tuple[Any, Any, int]], Any], columns: int) -> str:
        """Return a new label under which updates of records with this number of columns are passed to a function, or printed after a text."""

    def watch(self, label: str, relation: Relation) -> None:
        """Have a collection whose updates are shown computed, even without a reader."""

    def assemble(self) -> object:
        """Fix the graph."""
