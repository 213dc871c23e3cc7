"""The shapes of a drawing: boxes and groups of boxes to be placed, their places, and the lines between them."""

from __future__ import annotations

from ddcli.dataclass import frozen
from ddcli.named_tuple import NamedTuple


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
class Item:
    """A box to be placed, perhaps in a group."""

    id: str
    width: float
    height: float
    group: str | None = None


@frozen
class BoxGroup:
    """A group of boxes, perhaps in another, with the size of its label. `back` are lines of feedback between its boxes."""

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
