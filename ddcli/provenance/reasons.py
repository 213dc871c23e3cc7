"""The explanation of a record as a tree of operators and records down to the updates of inputs, the leaves; and the walk that finds it."""

from __future__ import annotations

from dataclasses import field
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable

    from ddcli.plan.logical import Source
    from ddcli.plan.node import Node
    from ddcli.provenance.contents import Numbers, Record

Wanted = TypeVar("Wanted")
Found = TypeVar("Found")
Leaf = tuple[str, int]
"""An update of an input: the input's name, and the update's number among those that may matter."""


@dataclass(eq=False)
class Reason:
    """The reason why a record is in the collection of a node, `count` times: the operator returns it `because` of these records.

    `number` is the round, in a loop. `more` such records are left out of `because`. `notes` are further facts, such as the absence of a
    record. Of an input, `updates` are the numbers of the updates of `source` that make the record. With `everything`, the leaves are
    all updates that may matter. For a `change`, `count` is the change of the record's multiplicity.
    """

    node: Node
    says: str
    record: Record
    count: int
    number: int | None = None
    because: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more: int = 0
    source: Source | None = None
    updates: Numbers | None = None
    leaves: frozenset[Leaf] = frozenset()
    everything: bool = False
    change: bool = False

    def made_of(self, reasons: list[Reason], shown: int | None = None) -> Reason:
        """Add the reasons below this one, and their leaves, and return it; only the first few of them are `shown`."""
        self.because = reasons if shown is None else reasons[:shown]
        self.more += len(reasons) - len(self.because)
        self.leaves = self.leaves.union(*(reason.leaves for reason in reasons))
        self.everything = self.everything or any(reason.everything for reason in reasons)
        return self


def walk(
    wanted: Wanted,
    known: dict[Hashable, Found],
    key: Callable[[Wanted], Hashable],
    explain: Callable[[Wanted], Found | Generator[Wanted, Found, Found]],
) -> Found:
    """Return the explanation of a record. `explain` returns it, or a generator: this yields each record whose explanation it needs, gets it, and returns its own.

    The generators that wait are on a list, so an explanation may be as deep as a loop has rounds. `known` has the explanations found so
    far, and gets those found now.
    """
    waiting: list[tuple[Hashable, Generator[Wanted, Found, Found]]] = []
    while True:
        at = key(wanted)
        found = known.get(at)
        if found is None:
            begun = explain(wanted)
            if isinstance(begun, GeneratorType):
                waiting.append((at, begun))
            else:
                found = known[at] = cast("Found", begun)
        while waiting:
            at, steps = waiting[-1]
            try:
                wanted = steps.send(found)  # type: ignore[arg-type]  # None begins the generator
                break
            except StopIteration as end:
                waiting.pop()
                found = known[at] = end.value
        else:
            assert found is not None
            return found


def each_of(wanted: Iterable[Wanted]) -> Generator[Wanted, Any, list[Any]]:
    """Return the explanations of some records, within a generator of `walk`: by `yield from`."""
    found: list[Any] = []
    for each in wanted:
        found += [(yield each)]
    return found
