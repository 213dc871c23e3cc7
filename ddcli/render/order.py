"""The order in which a view's operators are read one after the other: each right after what it reads last, a loop's together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.render.view import View

Step = tuple[Literal["row", "open", "close"], str]
"""An operator by its id, or a loop that begins or ends."""


class Visit(NamedTuple):
    """An operator or loop of a scope that comes next."""

    name: str | None
    scope: str | None


def ordered(view: View) -> list[Step]:
    """Return operators and loops in their order."""
    return list(_Ordering(view).steps())


class _Ordering:
    """A walk from the outputs up: an operator comes before its readers, and right before the first of them."""

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
        """Yield the steps: operators and loops in no loop, with all that is in them."""
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
        """Yield the predecessors of an operator or loop of a scope, then itself; nothing if it is outside, or done.

        It yields the visits of others instead of making them: a chain of operators may be longer than a stack is deep.
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
        """Yield the operators that something is or holds."""
        if name in self.reads:
            yield name
        for each in self.inside[name]:
            yield from self._members(each)

    def _holder(self, name: str, scope: str | None) -> str | None:
        """Return the operator if it is in the scope itself, else the loop of the scope that holds it; None where it is outside."""
        at: str | None = name
        while at is not None and self.around[at] != scope:
            at = self.around[at]
        return at
