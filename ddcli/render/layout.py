"""The layout of a graph: boxes in layers from top to bottom, with boxes around groups of boxes, and lines that cross no box.

After Sugiyama, Tagawa, Toda (1981): each box is in a layer below those it reads; a line that passes a layer has a place of its own
in it, like a box; boxes are ordered within layers so that few lines cross, then moved so that lines are straight. Lines move sideways only
between layers, where no boxes are, so no line crosses a box, whatever the graph. A group is laid
out by itself, then is one box of the scope around it, with ports at its top and bottom for lines in and out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from ddcli.dataclass import dataclass, frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Point(NamedTuple):
    """A point; y grows downwards."""

    x: float
    y: float


class Rect(NamedTuple):
    """A box by its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Rect:
        """Return the box moved by this distance."""
        return Rect(self.x + x, self.y + y, self.width, self.height)


@frozen
class Box:
    """A box to be placed, or a group of boxes, with the size of its label; perhaps in a group. `back` are lines of feedback between a group's boxes."""

    id: str
    width: float
    height: float
    group: str | None = None
    back: tuple[tuple[str, str], ...] = ()


@frozen
class Line:
    """A part of a line from `source`: points that are joined in turns by a straight line down and a curve; or a line of feedback (`back`).

    The part with `target` ends at that box.
    """

    source: str
    points: tuple[Point, ...]
    target: str | None = None
    back: bool = False

    def moved(self, x: float, y: float) -> Line:
        """Return the line moved by this distance."""
        return Line(self.source, tuple(Point(p.x + x, p.y + y) for p in self.points), self.target, self.back)


GAP_X, GAP_Y = 22.0, 34.0
"""The least distances between two boxes of a layer, and between layers."""
LINE = 12.0
"""The width of a line's place in a layer that it passes."""
TRACK = 9.0
"""The distance between two lines of feedback."""
PADDING = 14.0
SWEEPS = 12
MOVES = 48
LABEL = ("label",)


@dataclass(slots=True)
class Vertex:
    """A vertex of a layer: a box, a group, a line that passes (or enters or leaves), or a label.

    `ins` and `outs` are the distances from its left side at which lines end and begin, by the collection that they carry.
    """

    key: tuple[str, ...]
    width: float
    height: float
    layer: int = 0
    x: float = 0.0
    passes: bool = False
    ins: dict[str, float] = field(default_factory=dict)
    outs: dict[str, float] = field(default_factory=dict)

    def enters(self, carried: str) -> float:
        return self.ins.get(carried, self.width / 2)

    def leaves(self, carried: str) -> float:
        return self.outs.get(carried, self.width / 2)


class Edge(NamedTuple):
    """A line between vertices of a scope; it carries the collection of the box `carried`."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    carried: str


@dataclass
class PlacedScope:
    """A laid out scope, with its upper left corner at (0, 0)."""

    width: float
    height: float
    items: dict[str, Rect]
    groups: dict[str, Rect]
    lines: list[Line]
    ins: dict[str, float]
    outs: dict[str, float]


class LayeredScope:
    """One scope: vertices and edges between them, layer by layer."""

    def __init__(
        self,
        vertices: dict[tuple[str, ...], Vertex],
        edges: list[Edge],
        group: Box | None,
        inner: Mapping[str, PlacedScope],
    ) -> None:
        self.vertices = vertices
        self.edges = edges
        self.group = group
        self.inner = inner
        self.layers: list[list[Vertex]] = []

    def placed(self) -> PlacedScope:
        self._assign_layers()
        self._pass_layers()
        self._order()
        self._spread_ins()
        self._place_x()
        return self._collect()

    # --- layers ---------------------------------------------------------------------------------------------------

    def _assign_layers(self) -> None:
        """Put each vertex below those that it reads; a vertex that reads nothing right above its first reader."""
        reads: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        readers: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for edge in self.edges:
            reads[edge.target].append(edge.source)
            readers[edge.source].append(edge.target)
        first = 1 if self.group else 0
        done: dict[tuple[str, ...], int] = {}

        def depth(key: tuple[str, ...]) -> int:
            if key not in done:
                done[key] = 0 if key[0] == "in" else max((depth(other) + 1 for other in reads[key]), default=first)
                done[key] = max(done[key], first if key[0] != "in" else 0)
            return done[key]

        for key in self.vertices:
            depth(key)
        for key in self.vertices:
            if not reads[key] and key[0] != "in" and readers[key]:
                done[key] = max(first, min(done[other] for other in readers[key]) - 1)
        last = max((at for key, at in done.items() if key[0] != "out"), default=0)
        for key, vertex in self.vertices.items():
            vertex.layer = last + 1 if key[0] == "out" else done[key]
        if self.group:
            label = Vertex(LABEL, self.group.width, self.group.height)
            self.vertices[label.key] = label

    def _pass_layers(self) -> None:
        """Add a vertex for lines to each layer that they pass: one for all lines with one collection from one vertex."""
        chains: dict[tuple[tuple[str, ...], str], dict[int, tuple[str, ...]]] = defaultdict(dict)
        found: dict[Edge, None] = {}
        for edge in sorted(self.edges, key=lambda each: self.vertices[each.target].layer):
            start, end = self.vertices[edge.source].layer, self.vertices[edge.target].layer
            chain, before = chains[edge.source, edge.carried], edge.source
            for layer in range(start + 1, end):
                if layer not in chain:
                    key = ("pass", *edge.source, edge.carried, str(layer))
                    self.vertices[key] = Vertex(key, LINE, 0.0, layer, passes=True)
                    chain[layer] = key
                found[Edge(before, chain[layer], edge.carried)] = None
                before = chain[layer]
            found[Edge(before, edge.target, edge.carried)] = None
        self.edges = list(found)
        self.layers = [[] for _ in range(1 + max((v.layer for v in self.vertices.values()), default=-1))]
        for vertex in self.vertices.values():
            self.layers[vertex.layer].append(vertex)

    # --- order ----------------------------------------------------------------------------------------------------

    def _order(self) -> None:
        """Order the vertices of each layer so that few lines cross: by the mean of their neighbours, downward and upward in turns."""
        self._start_order()
        best, fewest = [list(layer) for layer in self.layers], self._crossings()
        for sweep in range(SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            numbers = range(1, len(self.layers)) if down else range(len(self.layers) - 2, -1, -1)
            for number in numbers:
                self._sort(number, down=down)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(layer) for layer in self.layers], crossings
        self.layers = best

    def _start_order(self) -> None:
        """Put the vertices in the order of a depth-first walk from the top, in which neighbours' neighbours are near."""
        below: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for edge in self.edges:
            below[edge.source].append(edge.target)
        seen: dict[tuple[str, ...], int] = {LABEL: 0}
        stack = [vertex.key for layer in reversed(self.layers) for vertex in reversed(layer)]
        while stack:
            key = stack.pop()
            if key not in seen:
                seen[key] = len(seen)
                stack.extend(reversed(below[key]))
        for layer in self.layers:
            layer.sort(key=lambda vertex: seen[vertex.key])

    def _sort(self, number: int, *, down: bool) -> None:
        positions = self._positions()
        layer = self.layers[number]
        near: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for edge in self.edges:
            if down and self.vertices[edge.target].layer == number:
                near[edge.target].append(positions[edge.source, "out", edge.carried])
            elif not down and self.vertices[edge.source].layer == number:
                near[edge.source].append(positions[edge.target, "in", edge.carried])
        order = {vertex.key: at for at, vertex in enumerate(layer)}
        wanted = {key: sum(near[key]) / len(near[key]) if near[key] else float(order[key]) for key in order}
        layer.sort(key=lambda vertex: (vertex.key != LABEL, wanted[vertex.key], order[vertex.key]))

    def _positions(self) -> dict[tuple[tuple[str, ...], str, str], float]:
        """Return the place in its layer of each end of a line: a group's ports lie side by side."""
        found = {}
        index = {vertex.key: at for layer in self.layers for at, vertex in enumerate(layer)}
        for edge in self.edges:
            one, other = self.vertices[edge.source], self.vertices[edge.target]
            found[edge.source, "out", edge.carried] = (
                index[one.key] + one.leaves(edge.carried) / max(one.width, 1) - 0.5
            )
            found[edge.target, "in", edge.carried] = (
                index[other.key] + other.enters(edge.carried) / max(other.width, 1) - 0.5
            )
        return found

    def _crossings(self) -> int:
        positions = self._positions()
        between: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for edge in self.edges:
            ends = positions[edge.source, "out", edge.carried], positions[edge.target, "in", edge.carried]
            between[self.vertices[edge.source].layer].append(ends)
        return sum(
            (one[0] - other[0]) * (one[1] - other[1]) < 0
            for ends in between.values()
            for at, one in enumerate(ends)
            for other in ends[:at]
        )

    # --- x --------------------------------------------------------------------------------------------------------

    def _spread_ins(self) -> None:
        """Spread the ends of lines at one box over its top, in the order of their sources."""
        index = {vertex.key: at for layer in self.layers for at, vertex in enumerate(layer)}
        coming: dict[tuple[str, ...], list[Edge]] = defaultdict(list)
        for edge in self.edges:
            if edge.target[0] == "item":
                coming[edge.target].append(edge)
        for key, edges in coming.items():
            edges.sort(key=lambda edge: index[edge.source])
            vertex = self.vertices[key]
            for at, edge in enumerate(edges):
                vertex.ins[edge.carried] = vertex.width * (at + 1) / (len(edges) + 1)

    def _place_x(self) -> None:
        """Move the vertices of each layer, without changing their order, toward the places where their lines would be straight."""
        for layer in self.layers:
            x = 0.0
            for vertex in layer:
                vertex.x = x
                x += vertex.width + GAP_X
        above: dict[tuple[str, ...], list[Edge]] = defaultdict(list)
        below: dict[tuple[str, ...], list[Edge]] = defaultdict(list)
        for edge in self.edges:
            above[edge.target].append(edge)
            below[edge.source].append(edge)
        numbers = list(range(len(self.layers)))
        for sweep in range(MOVES):
            # This minimises the sum of distances, not of their squares: a few bends, instead of a little slant everywhere.
            slack = 64.0 * 0.5 ** (8 * sweep / MOVES)
            for number in numbers if sweep % 2 == 0 else reversed(numbers):
                self._move(self.layers[number], above, below, slack)
        # Any place between the neighbours above and below is as good: at last, each moves below the vertices that it reads.
        for number in numbers:
            self._move(self.layers[number], above, {}, 1.0)

    def _move(
        self,
        layer: Sequence[Vertex],
        above: Mapping[tuple[str, ...], Sequence[Edge]],
        below: Mapping[tuple[str, ...], Sequence[Edge]],
        slack: float,
    ) -> None:
        wanted, weights = [], []
        for vertex in layer:
            pulls = [self._pull(edge, vertex, up=True) for edge in above.get(vertex.key, ())]
            pulls += [self._pull(edge, vertex, up=False) for edge in below.get(vertex.key, ())]
            ends = [(x, strength / (slack + abs(x - vertex.x))) for x, strength in pulls]
            weight = sum(strength for _, strength in ends)
            if vertex.key == LABEL:
                wanted.append(min((each.x for each in self.vertices.values() if each is not vertex), default=0.0))
                weights.append(1.0)
            else:
                wanted.append(sum(x * strength for x, strength in ends) / weight if weight else vertex.x)
                weights.append(weight or 0.01)
        for vertex, x in zip(layer, spaced(wanted, weights, [each.width for each in layer], GAP_X), strict=True):
            vertex.x = x

    def _pull(self, edge: Edge, vertex: Vertex, *, up: bool) -> tuple[float, float]:
        """Return the place of a vertex that would make a line straight, and its weight: greatest for long lines."""
        other = self.vertices[edge.source if up else edge.target]
        if up:
            x = other.x + other.leaves(edge.carried) - vertex.enters(edge.carried)
        else:
            x = other.x + other.enters(edge.carried) - vertex.leaves(edge.carried)
        return x, (8.0 if vertex.passes and other.passes else 2.0 if vertex.passes or other.passes else 1.0)

    # --- all together ---------------------------------------------------------------------------------------------

    def _collect(self) -> PlacedScope:
        vertices = list(self.vertices.values())
        left = min((vertex.x for vertex in vertices), default=0.0) - PADDING
        for vertex in vertices:
            vertex.x -= left
        right = max((vertex.x + vertex.width for vertex in vertices), default=0.0)
        back = [
            pair for pair in (self.group.back if self.group else ()) if all(("item", e) in self.vertices for e in pair)
        ]
        tops, bottoms = self._place_y(back)
        lines = [self._line(edge, tops, bottoms) for edge in self.edges]
        lines += [self._back_line(at, *pair, tops, bottoms, right) for at, pair in enumerate(back)]
        items: dict[str, Rect] = {}
        groups: dict[str, Rect] = {}
        for vertex in vertices:
            top = tops[vertex.layer]
            if vertex.key[0] == "item":
                items[vertex.key[1]] = Rect(vertex.x, top, vertex.width, vertex.height)
            elif vertex.key[0] == "group":
                placed = self.inner[vertex.key[1]]
                groups[vertex.key[1]] = Rect(vertex.x, top, vertex.width, vertex.height)
                items |= {name: rect.moved(vertex.x, top) for name, rect in placed.items.items()}
                groups |= {name: rect.moved(vertex.x, top) for name, rect in placed.groups.items()}
                lines += [line.moved(vertex.x, top) for line in placed.lines]
        ports = {kind: {v.key[1]: v.x + v.width / 2 for v in vertices if v.key[0] == kind} for kind in ("in", "out")}
        width = right + (TRACK * (len(back) + 1) if back else 0.0) + PADDING
        height = (bottoms[-1] if bottoms else 0.0) + (0.0 if ports["out"] else PADDING)
        return PlacedScope(width, height, items, groups, lines, ports["in"], ports["out"])

    def _place_y(self, back: Sequence[tuple[str, str]]) -> tuple[list[float], list[float]]:
        """Return the top and bottom of each layer. Between two layers there is more room if lines move far sideways."""
        tops, bottoms = [], []
        y = 0.0 if self.group else PADDING
        tracks: dict[int, int] = defaultdict(int)
        for source, target in back:
            tracks[self.vertices["item", source].layer] += 1
            tracks[self.vertices["item", target].layer - 1] += 1
        for number, layer in enumerate(self.layers):
            tops.append(y)
            y += max(vertex.height for vertex in layer)
            bottoms.append(y)
            far = [abs(self._slant(edge)) for edge in self.edges if self.vertices[edge.source].layer == number]
            y += GAP_Y + min(60.0, max(far, default=0.0) / 12) + TRACK * tracks[number] * 1.5
        if bottoms and tracks[len(self.layers) - 1]:
            bottoms[-1] += TRACK * (tracks[len(self.layers) - 1] + 1)
        return tops, bottoms

    def _slant(self, edge: Edge) -> float:
        one, other = self.vertices[edge.source], self.vertices[edge.target]
        return one.x + one.leaves(edge.carried) - other.x - other.enters(edge.carried)

    def _line(self, edge: Edge, tops: Sequence[float], bottoms: Sequence[float]) -> Line:
        """Return a line from the bottom of a vertex, straight down to the bottom of its layer, then across to the top of the next."""
        one, other = self.vertices[edge.source], self.vertices[edge.target]
        x, end = one.x + one.leaves(edge.carried), other.x + other.enters(edge.carried)
        start = tops[one.layer] + (0.0 if one.passes else one.height)
        points = [Point(x, start), Point(x, bottoms[one.layer]), Point(end, tops[other.layer])]
        if other.passes and other.key[0] == "out":
            points.append(Point(end, bottoms[other.layer]))
        return Line(edge.carried, tuple(points), other.key[1] if other.key[0] == "item" else None)

    def _back_line(
        self, at: int, source: str, target: str, tops: Sequence[float], bottoms: Sequence[float], right: float
    ) -> Line:
        """Return a line of feedback: down, along the right of all vertices up, and to the top of its target."""
        one, other = self.vertices["item", source], self.vertices["item", target]
        start, end = one.x + one.width * 0.75, other.x + other.width - 10
        low, high = bottoms[one.layer] + TRACK * (at + 1), tops[other.layer] - TRACK * (at + 1.5)
        if one.layer == len(self.layers) - 1:
            low = bottoms[one.layer] - TRACK * 0.5
        lane = right + TRACK * (at + 1)
        corners = [(start, tops[one.layer] + one.height), (start, low), (lane, low), (lane, high), (end, high)]
        return Line(source, (*(Point(x, y) for x, y in corners), Point(end, tops[other.layer])), target, back=True)


def spaced(wanted: Sequence[float], weights: Sequence[float], widths: Sequence[float], gap: float) -> list[float]:
    """Return the positions nearest to the wanted ones (weighted least squares) at which boxes keep their order and distance.

    Without the widths this is an isotonic regression: neighbours that would overlap are pooled and share one shift.

    >>> spaced([0, 0, 100], [1, 1, 1], [10, 10, 10], 2)
    [-6.0, 6.0, 100.0]
    """
    offsets = [0.0]
    for width in widths[:-1]:
        offsets.append(offsets[-1] + width + gap)
    pools: list[tuple[float, float, int]] = []
    for x, weight, offset in zip(wanted, weights, offsets, strict=False):
        mean, total, count = float(x) - offset, float(weight), 1
        while pools and pools[-1][0] > mean:
            before, heavy, many = pools.pop()
            mean = (mean * total + before * heavy) / (total + heavy)
            total, count = total + heavy, count + many
        pools.append((mean, total, count))
    shifts = [mean for mean, _, count in pools for _ in range(count)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]


def layout(items: Sequence[Box], groups: Sequence[Box], edges: Iterable[tuple[str, str]]) -> PlacedScope:
    """Return the places of the boxes, groups and lines of a graph. `edges` are pairs of items' ids, without feedback, so that there is no cycle."""
    return _Layouter(items, groups, list(dict.fromkeys(edges))).scope(None)


class _Layouter:
    """The layout of a graph, scope by scope from the inside out."""

    def __init__(self, items: Sequence[Box], groups: Sequence[Box], edges: Sequence[tuple[str, str]]) -> None:
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
