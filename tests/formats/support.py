"""What the tests of formats share: files written run by run, and what the output says at each time."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import yaml
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.errors import InputError
from tests.draws import many
from tests.judge.sizes import cut

if TYPE_CHECKING:
    from pathlib import Path

TIMES = range(6)
FEW = many(15)
"""Cases of a test that runs pipelines."""
WRITERS = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "csv": pl.DataFrame.write_csv,
    "ndjson": pl.DataFrame.write_ndjson,
}


class Place:
    """A directory with a pipeline that copies one input to its output."""

    def __init__(self, root: Path, **given: Any) -> None:
        self.root = root
        (root / "in").mkdir()
        self.given = {"path": "in/", **given}
        self.spec = root / "p.yaml"
        self.chance: tuple[int, int] | None = None
        self.say()

    def say(self, **more: Any) -> None:
        """Write the pipeline file, with more keys of the input."""
        file = {"dd": 1, "name": "p", "inputs": {"a": self.given | more}, "clock": "event", "outputs": {"a": "out/"}}
        self.spec.write_text(yaml.safe_dump(file, sort_keys=False))

    def write(self, name: str, frame: pl.DataFrame, kind: str = "parquet") -> Path:
        """Write a file of the input."""
        path = self.root / "in" / f"{name}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[kind](frame, path)
        return path

    def lines(self, name: str, events: list[dict[str, Any]]) -> Path:
        """Write a file of JSON lines."""
        path = self.root / "in" / f"{name}.ndjson"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        return path

    def run(self, **options: Any) -> Any:
        """Run the pipeline; in shards and passes as chance will have it, if `chance` is set."""
        with nullcontext() if self.chance is None else cut(*self.chance):
            return run(self.spec, **options)

    def refuses(self, path: Path, problem: str) -> str | None:
        """Assert that a run is refused because of a file; return the hint."""
        with pytest.raises(InputError) as caught:
            self.run()
        assert (caught.value.place, caught.value.problem) == (str(path), problem)
        return caught.value.hint

    def at(self, time: int, *columns: str) -> Counter[tuple[Any, ...]]:
        """Return what the output holds at a time."""
        files = sorted((self.root / "out").glob("*.parquet"))
        held: Counter[tuple[Any, ...]] = Counter()
        for file in files:
            for *row, diff in pl.read_parquet(file).filter(pl.col("time") <= time).select(*columns, "diff").iter_rows():
                held[tuple(row)] += diff
        return Counter({row: count for row, count in held.items() if count})


chances = st.none() | st.tuples(st.sampled_from([1, 3, 8]), st.integers(0, 9))


@st.composite
def cuts(draw: Any) -> list[range]:
    """Give the times of each run: one after the other, together all of them."""
    ends = sorted({*draw(st.lists(st.sampled_from(TIMES), max_size=3)), TIMES.stop})
    starts = [0, *ends[:-1]]
    return [range(start, end) for start, end in zip(starts, ends, strict=True) if start < end]
