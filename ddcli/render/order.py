"""The order of a view's operators in text: each right after the last operator that it reads, a loop's operators together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.render.view import View

Step = tuple[Literal["row", "open", "close"], str]
"""An operator by its id, or the start or end of a loop."""


class Visit(NamedTuple):
    """The next operator or loop of a scope."""

    name: str | None
    scope: str | None


def ordered(view: View) -> list[Step]:
    """Return operators and loops in their order."""
    return list(_Ordering(view).steps())


class _Ordering:
    """A walk from the outputs up: each operator comes before its readers, right before the first of them."""

    def __init__(self, view: View) -> None:
        self.reads = {each.id: each.inputs for each in view.operators}
        self.ends = [each.id for each in view.operators if not each.readers]
        # The loop around each operator and loop, and the members of each loop.
        self.around = {each.id: each.loop for each in view.operators} | {each.id: each.parent for each in view.loops}
        self.inside: dict[str | None, list[str]] = defaultdict(list)
        for name, scope in self.around.items():
            self.inside[scope].append(name)
        self.done: set[str] = set()

    def steps(self) -> Iterator[Step]:
        """Yield the steps of the outermost operators and loops, and of all members of these."""
        for name in [*self.ends, *self.inside[None]]:
            visits = [self._visit(self._holder(name, None), None)]
            while visits:
                step = next(visits[-1], None)
                if step is None:
                    visits.pop()
                elif isinstance(step, Visit):
                    visits.append(self._visit(step.name, step.scope))
                else:
                    yield step

    def _visit(self, name: str | None, scope: str | None) -> Iterator[Step | Visit]:
        """Yield visits of the predecessors of an operator or loop of a scope, then itself; nothing if it is outside, or done.

        Visits are yielded, not recursive calls: a chain of operators may be longer than the stack.
        """
        if name is None or name in self.done:
            return
        self.done.add(name)
        for member in self._members(name):
            for source in self.reads[member]:
                yield Visit(self._holder(source, scope), scope)
        if name in self.reads:
            yield "row", name
            return
        yield "open", name
        for each in self.inside[name]:
            yield Visit(each, name)
        yield "close", name

    def _members(self, name: str) -> Iterator[str]:
        """Yield an operator itself, or all operators in a loop."""
        if name in self.reads:
            yield name
        for each in self.inside[name]:
            yield from self._members(each)

    def _holder(self, name: str, scope: str | None) -> str | None:
        """Return the operator if it is in the scope itself, else the loop of the scope that contains it; None if it is outside the scope."""
        at: str | None = name
        while at is not None and self.around[at] != scope:
            at = self.around[at]
        return at
