"""The layout of a graph: boxes in layers from top to bottom, with boxes around groups of boxes, and lines that cross no box.

After Sugiyama, Tagawa, Toda (1981): each box is in a layer below those it reads; a line that passes a layer has a place of its own
in it, like a box; boxes are ordered within layers so that few lines cross, then moved so that lines are straight. A group is laid
out by itself, then is one box of the scope around it, with ports at its top and bottom for lines in and out. Lines move sideways only
between layers, where no boxes are, so no line crosses a box, whatever the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.render.layers import LINE, Edge, LayeredScope, PlacedScope, Vertex

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.render.shapes import BoxGroup, Item


def layout(items: Sequence[Item], groups: Sequence[BoxGroup], edges: Iterable[tuple[str, str]]) -> PlacedScope:
    """Return the places of the boxes, groups and lines of a graph. `edges` are pairs of items' ids, without feedback, so that there is no cycle."""
    return _Layouter(items, groups, list(dict.fromkeys(edges))).scope(None)


class _Layouter:
    def __init__(self, items: Sequence[Item], groups: Sequence[BoxGroup], edges: Sequence[tuple[str, str]]) -> None:
        self.items = {item.id: item for item in items}
        self.groups = {group.id: group for group in groups}
        self.edges = edges

    def path(self, item: str) -> list[str | None]:
        """Return the scopes around an item, the outermost first: None, then its groups."""
        found: list[str | None] = []
        group = self.items[item].group
        while group is not None:
            found.append(group)
            group = self.groups[group].group
        return [None, *reversed(found)]

    def child(self, scope: str | None, item: str) -> tuple[str, ...]:
        """Return the item if it is in the scope itself, else the group of the scope that contains it."""
        path = self.path(item)
        at = path.index(scope) + 1
        return ("group", str(path[at])) if at < len(path) else ("item", item)

    def scope(self, scope: str | None) -> PlacedScope:
        """Lay out a group, or (None) the whole graph."""
        inner = {group.id: self.scope(group.id) for group in self.groups.values() if group.group == scope}
        vertices: dict[tuple[str, ...], Vertex] = {
            ("item", item.id): Vertex(("item", item.id), item.width, item.height)
            for item in self.items.values()
            if item.group == scope
        }
        for name, placed in inner.items():
            box = ("group", name)
            vertices[box] = Vertex(box, placed.width, placed.height, ins=placed.ins, outs=placed.outs)
        edges: dict[Edge, None] = {}
        for source, target in self.edges:
            from_here, to_here = scope in self.path(source), scope in self.path(target)
            if not (from_here or to_here):
                continue
            one = self.child(scope, source) if from_here else ("in", source)
            other = self.child(scope, target) if to_here else ("out", source)
            if one == other:
                continue
            for key in (one, other):
                if key not in vertices:  # a port
                    vertices[key] = Vertex(key, LINE, 0.0, passes=True)
            edges[Edge(one, other, source)] = None
        group = self.groups[scope] if scope is not None else None
        return LayeredScope(vertices, list(edges), group, inner).placed()
