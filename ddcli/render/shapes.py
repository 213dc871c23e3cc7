"""The shapes of a drawing: boxes and groups of boxes that are to be placed, their places, and lines between them."""

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
        """Return the box elsewhere."""
        return Rect(self.x + x, self.y + y, self.width, self.height)


@frozen
class Item:
    """A box to be placed, in a group or (None) in none."""

    id: str
    width: float
    height: float
    group: str | None = None


@frozen
class BoxGroup:
    """A group of boxes, in another or in none, with room for its label. `back` are lines from its boxes up to others of them."""

    id: str
    width: float
    height: float
    group: str | None = None
    back: tuple[tuple[str, str], ...] = ()


@frozen
class Line:
    """A part of a line that comes from `source`: points joined by turns by a straight line down and a curve; or a line back to an earlier layer.

    With `target` it ends at that box.
    """

    source: str
    points: tuple[Point, ...]
    target: str | None = None
    back: bool = False

    def moved(self, x: float, y: float) -> Line:
        """Return the line elsewhere."""
        return Line(self.source, tuple(Point(p.x + x, p.y + y) for p in self.points), self.target, self.back)
