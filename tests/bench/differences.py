"""The cases of `dd diff`: two tables of six columns that differ in few rows, in another order, beside polars' anti-joins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.bench import data
from tests.bench.files import PEERS, Program, figure, side_by_side, size
from tests.bench.processes import dd, python
from tests.bench.table import Asked

if TYPE_CHECKING:
    from tests.bench.files import Session
    from tests.bench.table import Figure

BOUND = 1 << 30
ASKED = Asked(times=2)


def differences(session: Session) -> list[Figure]:
    """Compare by key, by whole rows, and by key in bounded memory; all of them must count the same differences."""
    source = data.orders(session.folder, session.rows)
    files = [source / "before.parquet", source / "after.parquet"]
    # Whatever has changed may have: the exit code says that it ran.
    options = ("--max-changed", "100%", "--limit", "0", "-o", "json")
    ways = {
        "by key": (("--key", "id"), ASKED),
        "whole rows": ((), ASKED),
        f"by key, --memory {BOUND >> 30}GiB": (
            ("--key", "id", "--memory", str(BOUND)),
            Asked(times=2, peak=1.3 * BOUND),
        ),
    }
    programs = {way: Program(dd("diff", *files, *more, *options)) for way, (more, _) in ways.items()}
    programs["polars"] = Program(python(PEERS["polars"].with_name("polars_diff.py"), *files))
    measured = side_by_side(programs, session.runs)
    counts = tuple(map(int, measured["polars"][0].stdout.split()))
    for way in ways:
        rows = json.loads(measured[way][0].stdout)["rows"]
        ours = tuple(rows.get("changed", 0) + rows[change] for change in ("removed", "added"))
        if ours != counts:
            raise AssertionError(f"dd diff, {way}, and polars disagree: {rows}, {counts}")
    return [
        figure(
            f"dd diff, {size(session.rows)} rows of 6 columns, {way}",
            {"dd": measured[way], "polars": measured["polars"]},
            asked,
            {"polars": "polars"},
            full=session.full,
        )
        for way, (_, asked) in ways.items()
    ]
