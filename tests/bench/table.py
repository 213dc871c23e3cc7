"""What was measured, what was asked for, and the table of both."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

HEADINGS = ("case", "dd", "polars", "DuckDB", "scipy", "ratio", "peak", "asked", "met", "Rust")
PEERS = ("polars", "duckdb", "scipy")
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Asked:
    """A bound on our median: seconds, a multiple of a peer's, to be faster than every peer, so many times faster than the load
    before; and on peak memory in bytes.
    """

    seconds: float | None = None
    times: float | None = None
    peer: str = "polars"
    fastest: bool = False
    times_faster: float | None = None
    peak: float | None = None

    def text(self, unit: str = "s") -> str:
        """Return the bound in words."""
        parts = []
        if self.times is not None:
            parts.append(f"{self.times:g}x {self.peer}")
        if self.fastest:
            parts.append("faster than both")
        if self.times_faster is not None:
            parts.append(f"1/{self.times_faster:g} of load")
        if self.seconds is not None:
            parts.append(duration(self.seconds) if unit == "s" else f"{self.seconds:g} {unit}")
        if self.peak is not None:
            parts.append(f"{self.peak / GIGABYTE:.3g} GB")
        return ", ".join(parts)

    def met_by(self, figure: Figure) -> bool:
        """Return whether a figure keeps within every bound."""
        return not (
            (self.seconds is not None and figure.seconds > self.seconds)
            or (self.times is not None and figure.seconds > self.times * figure.peers[self.peer])
            or (self.fastest and figure.seconds >= min(figure.peers.values()))
            or (self.times_faster is not None and figure.seconds * self.times_faster > (figure.load or 0))
            or (self.peak is not None and (figure.peak or 0) > self.peak)
        )


def beside_rust(peak: float) -> float:
    """Return how much memory is asked of us where Rust's differential dataflow has this peak; Python takes some of it."""
    return 1.5 * peak + 150e6


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table: medians in seconds, ours and the peers', our peak memory, and Rust's on a machine of this kind.

    `load` is what we took to load all that a change is compared with. `full` says that it was measured at the size that `asked` speaks of.
    """

    case: str
    seconds: float
    asked: Asked = Asked()
    peers: dict[str, float] = field(default_factory=dict)
    load: float | None = None
    peak: int | None = None
    reference: float | None = None
    full: bool = True
    runs: tuple[float, ...] = ()
    unit: str = "s"
    """Of `seconds`, where it is something else that was measured."""

    def cells(self) -> tuple[str, ...]:
        """Return the row as texts, as `HEADINGS` say."""
        bound = self.asked.text(self.unit)
        met = ("yes" if self.asked.met_by(self) else "NO") if bound and self.full else ""
        return (
            self.case,
            duration(self.seconds) if self.unit == "s" else f"{self.seconds:.3g} {self.unit}",
            *(duration(self.peers[name]) if name in self.peers else "" for name in PEERS),
            self.ratio(),
            f"{self.peak / GIGABYTE:.2f} GB" if self.peak else "",
            bound,
            met,
            duration(self.reference) if self.reference else "",
        )

    def ratio(self) -> str:
        """Return our seconds in comparison: to those of the load, else to those of the peer that the bound speaks of, else of another."""
        if self.load:
            times = self.load / self.seconds
            return f"1/{times:.3g} of load" if times > 1 else f"{1 / times:.3g}x load"
        asked = (self.asked.peer, *PEERS)
        return next((f"{self.seconds / self.peers[name]:.3g}x {name}" for name in asked if name in self.peers), "")

    def to_json(self) -> dict[str, object]:
        """Return the row as plain values."""
        return {
            "case": self.case,
            "seconds": self.seconds,
            "runs": self.runs,
            "peers": self.peers,
            "load": self.load,
            "peak": self.peak,
            "unit": self.unit,
            "asked": self.asked.text(self.unit),
            "met": self.asked.met_by(self) if self.full else None,
            "reference": self.reference,
        }


def duration(seconds: float) -> str:
    """Return a time for people.

    >>> duration(0.0123)
    '12.3 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            value = seconds / size
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    raise AssertionError(seconds)


def render(figures: list[Figure], style: str) -> str:
    """Return the table as `text`, `markdown` or `json`; a column in which there is nothing is left out."""
    if style == "json":
        return json.dumps([figure.to_json() for figure in figures], indent=1)
    cells = [figure.cells() for figure in figures]
    filled = [at for at in range(len(HEADINGS)) if any(row[at] for row in cells)]
    rows = [[row[at] for at in filled] for row in (HEADINGS, *cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    rule = ["-" * width for width in widths]
    if style == "markdown":
        return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])
    return "\n".join("  ".join(line).rstrip() for line in [lines[0], rule, *lines[1:]])
