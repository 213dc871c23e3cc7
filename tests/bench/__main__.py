"""`python -m tests.bench`: measure, and print one table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.bench.cases import CASES
from tests.bench.files import FULL, Session
from tests.bench.processes import ROOT
from tests.bench.table import render

QUICK = 100_000


def main(arguments: list[str] | None = None) -> None:
    """Run the chosen cases; what is being done goes to stderr, the table to stdout."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--case", nargs="+", choices=list(CASES), metavar="NAME", help=f"some of: {', '.join(CASES)}")
    parser.add_argument("--rows", type=int, default=FULL, help="rows of the largest inputs [default: %(default)s]")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the median counts [default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rows, one run, no warm-up")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench", help="where data are kept [default: .bench]")
    parser.add_argument("-o", "--output", choices=["text", "markdown", "json"], default="text")
    given = parser.parse_args(arguments)
    session = Session(QUICK, 1, given.folder) if given.quick else Session(given.rows, given.runs, given.folder)
    figures, broken = [], []
    for name in given.case or CASES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found = CASES[name](session)
        except (AssertionError, RuntimeError) as error:
            # The other cases are worth having: hours may have gone into them.
            broken.append(f"{name}: {error}")
            continue
        figures += found
        for figure in found:
            # A call that is cut short still has said what it found.
            print("  " + "  ".join(filter(None, figure.cells())), file=sys.stderr, flush=True)
    print(render(figures, given.output))
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
