"""The explanation of a record as a tree of operators and records down to the updates of inputs, the leaves."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from ddcli.plan.logical import Source
    from ddcli.plan.node import Node
    from ddcli.provenance.contents import Numbers, Record

Leaf = tuple[str, int]
"""An update of an input: its name, and the number of the update among those that may matter."""


@dataclass(eq=False)
class Reason:
    """A reason why a record is in the collection of a node, `count` times (in a round of a loop): the records that an operator makes it of.

    `more` of these records are not among `because`. `notes` are further facts: that something does not exist, for example.
    Of an input, `updates` are the numbers of those of `source` that the record comes from. With `everything`, the leaves are
    all updates that may matter. Of a `change`, `count` is the change of the record's multiplicity.
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
        """Return the reason, made of these; only the first few of them are `shown`."""
        self.because = reasons if shown is None else reasons[:shown]
        self.more += len(reasons) - len(self.because)
        self.leaves = self.leaves.union(*(reason.leaves for reason in reasons))
        self.everything = self.everything or any(reason.everything for reason in reasons)
        return self
