"""A view folded to its collections: the operators of each collection of the pipeline file as one box."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.engine.counts import OUTPUT
from ddcli.job.summary import plural
from ddcli.render.view import HeldState, OperatorView, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.engine.counts import RowCounts

ENDS = ("input", "output")


@frozen
class Folded:
    """A view of collections, and the numbers of the operators in each, in the order of the view that was folded."""

    view: View
    operators: tuple[tuple[int, ...], ...]


def folded(view: View) -> Folded:
    """Return a view with a box for each collection, input and output.

    An operator without a name belongs to the collection of its first reader, whose definition it is a part of; so does an operator in a loop,
    where names are the loop's own variables.
    """
    home = _homes(view)
    members: dict[str, list[int]] = {}
    for at, each in enumerate(view.operators):
        members.setdefault(home[each.id], []).append(at)
    inputs: dict[str, dict[str, None]] = {name: {} for name in members}
    readers: dict[str, dict[str, None]] = {name: {} for name in members}
    for each in view.operators:
        for source in each.inputs:
            if home[source] != home[each.id]:
                inputs[home[each.id]][home[source]] = None
                readers[home[source]][home[each.id]] = None
    made = {
        name: _box(name, [view.operators[at] for at in numbers], tuple(inputs[name]), tuple(readers[name]))
        for name, numbers in members.items()
    }
    # Sources before their readers: operators are, but not the first ones of their collections.
    ordered = _in_order(made)
    counted = _counts(view, {name: [view.operators[at] for at in members[name]] for name in ordered})
    place = {name: at for at, name in enumerate(ordered)}
    boxes = tuple(
        replace(made[name], inputs=tuple(source for source in made[name].inputs if place[source] < place[name]))
        for name in ordered
    )
    found = View(view.name, boxes, (), view.outputs, view.runs[-1:], counted)
    return Folded(found, tuple(tuple(members[name]) for name in ordered))


def _homes(view: View) -> dict[str, str]:
    """Return the box of each operator."""
    home: dict[str, str] = {}
    of_loop: dict[str, str] = {}
    for each in reversed(view.operators):  # readers come after those that they read
        named = each.names if each.loop is None else ()
        found = [home[reader] for reader in each.readers if reader in home and not reader.startswith(OUTPUT)]
        if each.kind in ENDS:
            home[each.id] = f"{each.kind}:{each.names[0] if each.names else each.id}"
        elif named:
            home[each.id] = f"collection:{named[0]}"
        elif each.loop is not None and each.loop in of_loop:
            home[each.id] = of_loop[each.loop]
        else:
            inner = [name for name in found if name.startswith("collection:")]
            ends = [
                reader.names[0] for reader in view.operators if reader.id in each.readers and reader.kind == "output"
            ]
            home[each.id] = inner[0] if inner else f"collection:{ends[0] if ends else each.id}"
        if each.loop is not None:
            of_loop.setdefault(each.loop, home[each.id])
    return home


def _box(
    name: str, operators: Sequence[OperatorView], inputs: tuple[str, ...], readers: tuple[str, ...]
) -> OperatorView:
    """Return the box of some operators: the last of them makes the collection."""
    last = operators[-1]
    if last.kind in ENDS:
        return replace(last, id=name, inputs=inputs, readers=readers, loop=None)
    loops = len({each.loop for each in operators if each.loop is not None})
    says = [
        f"{len(operators)} {plural(len(operators), 'operator')}"
        + (f", {loops} {plural(loops, 'loop')}" if loops else "")
    ]
    held = [each.held for each in operators if each.held is not None]
    size = (
        HeldState(*(sum(getattr(each, part) for each in held) for part in ("rows", "bytes", "files"))) if held else None
    )
    title = name.removeprefix("collection:")
    names = last.names if last.loop is None and last.names else (title,)
    keeps = any(each.keeps for each in operators)
    return OperatorView(name, "collection", names, tuple(says), last.columns, inputs, readers, None, keeps, size)


def _in_order(made: Mapping[str, OperatorView]) -> list[str]:
    """Return the names of boxes, each after those that it reads, as far as these make no circle."""
    ordered: dict[str, None] = {}
    begun: set[str] = set()
    pending = [(name, False) for name in reversed([*made])]
    while pending:
        name, done = pending.pop()
        if done:
            ordered[name] = None
        elif name not in begun:
            begun.add(name)
            pending.append((name, True))
            pending += [(source, False) for source in reversed(made[name].inputs)]
    return list(ordered)


def _counts(view: View, members: Mapping[str, Sequence[OperatorView]]) -> dict[int, dict[str, RowCounts]]:
    """Return the counts of each box in the last run: the rows that its last operator put out, and the seconds of all."""
    if view.run is None:
        return {}
    known = view.counts()
    found = {}
    for name, operators in members.items():
        counts = [count for each in operators if (count := known.get(each.id)) is not None]
        last = known.get(operators[-1].id)
        if counts:
            seconds = sum(count.seconds for count in counts)
            found[name] = (
                replace(last, rows_in=0, seconds=seconds)
                if last
                else replace(counts[-1], rows_in=0, rows_out=0, inserted=0, seconds=seconds)
            )
    return {view.run.number: found}
