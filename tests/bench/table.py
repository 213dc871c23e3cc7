"""What was measured, what was asked for, and the table of both."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

HEADINGS = ("case", "dd", "polars", "DuckDB", "dd / polars", "peak", "asked", "met", "Rust")
GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class Asked:
    """A bound on our median: seconds, a multiple of polars, to be faster than every peer; and on peak memory in bytes."""

    seconds: float | None = None
    times_polars: float | None = None
    fastest: bool = False
    peak: float | None = None

    def text(self) -> str:
        """Return the bound in words."""
        parts = []
        if self.times_polars is not None:
            parts.append(f"{self.times_polars:g}x polars")
        if self.fastest:
            parts.append("faster than both")
        if self.seconds is not None:
            parts.append(duration(self.seconds))
        if self.peak is not None:
            parts.append(f"{self.peak / GIGABYTE:g} GB")
        return ", ".join(parts)

    def met_by(self, figure: Figure) -> bool:
        """Say whether a figure keeps within every bound."""
        return not (
            (self.seconds is not None and figure.seconds > self.seconds)
            or (self.times_polars is not None and figure.seconds > self.times_polars * figure.peers["polars"])
            or (self.fastest and figure.seconds >= min(figure.peers.values()))
            or (self.peak is not None and (figure.peak or 0) > self.peak)
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table: medians in seconds, ours and the peers', our peak memory, and Rust's on a machine of this kind.

    `full` says that it was measured at the size that `asked` speaks of.
    """

    case: str
    seconds: float
    asked: Asked = Asked()
    peers: dict[str, float] = field(default_factory=dict)
    peak: int | None = None
    reference: float | None = None
    full: bool = True
    runs: tuple[float, ...] = ()

    def cells(self) -> tuple[str, ...]:
        """Return the row as texts, as `HEADINGS` say."""
        polars = self.peers.get("polars")
        bound = self.asked.text()
        met = ("yes" if self.asked.met_by(self) else "NO") if bound and self.full else ""
        return (
            self.case,
            duration(self.seconds),
            *(duration(self.peers[name]) if name in self.peers else "" for name in ("polars", "duckdb")),
            f"{self.seconds / polars:.2f}" if polars else "",
            f"{self.peak / GIGABYTE:.2f} GB" if self.peak else "",
            bound,
            met,
            duration(self.reference) if self.reference else "",
        )

    def to_json(self) -> dict[str, object]:
        """Return the row as plain values."""
        return {
            "case": self.case,
            "seconds": self.seconds,
            "runs": self.runs,
            "peers": self.peers,
            "peak": self.peak,
            "asked": self.asked.text(),
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
    """Return the table as `text`, `markdown` or `json`."""
    if style == "json":
        return json.dumps([figure.to_json() for figure in figures], indent=1)
    rows = [HEADINGS, *(figure.cells() for figure in figures)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    rule = ["-" * width for width in widths]
    if style == "markdown":
        return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])
    return "\n".join("  ".join(line).rstrip() for line in [lines[0], rule, *lines[1:]])
