"""A small pipeline over two logs, run by run: what each run finds new, and what the outputs are in the end."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddcli.driver.run import run
from ddcli.job.sizes import BASE
from ddcli.store.state.contents import batches_of
from ddcli.store.state.directory import State
from ddcli.store.state.document import RUNS as RECORDS
from ddcli.store.state.manifest import read_newest
from tests.harness import contents, files, read_log, write_log

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE = """\
dd: 1
name: shop
inputs:
  sales: in/sales/
  people: in/people/
collections:
  known:
    from: sales
    apply:
      - join: {with: people, on: [person]}
  spent:
    from: known
    apply:
      - reduce: {by: [city], sales: count(*), amount: sum(amount)}
outputs:
  known: out/known/
  spent: out/spent/
"""
OUTPUTS = ("known", "spent")
RUNS = 3
CITIES = ["Rome", "Oslo", "Cork"]


@dataclass(frozen=True)
class Shop:
    """A folder with the pipeline; `supply(n)` brings the files that the n-th run finds new."""

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    """What its runs are asked for."""

    @classmethod
    def make(cls, folder: Path) -> Shop:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "shop.yaml").write_text(PIPELINE)
        return cls(folder)

    @property
    def state(self) -> Path:
        return self.folder / ".dd/shop"

    @property
    def number(self) -> int:
        """The number of the newest manifest, 0 before the first."""
        manifest = read_newest(self.state)
        return manifest.number if manifest else 0

    def place(self, part: str) -> Path:
        """Return the path of a part of it."""
        return self.folder / part

    def run(self, **options):
        return run(self.folder / "shop.yaml", **self.options | options)

    def supply(self, step: int) -> None:
        """Write the updates at one time: sales come (most in the first run) and some go, people come and move on."""
        sales = [((at * 7 + step) % 5, at, step, 1) for at in range(step * 6 if step else -60, step * 6 + 6)]
        if step:
            sales += [((at * 7 + step - 1) % 5, at, step, -1) for at in (step * 6 - 6, step * 6 - 2)]
        people = [(step, CITIES[step % 3], step, 1)]
        if step:
            people += [(step - 1, CITIES[(step - 1) % 3], step, -1), (step - 1, CITIES[step % 3], step, 1)]
        write_log(self.folder / f"in/sales/{step}.parquet", sales, ["person", "amount", "time", "diff"])
        write_log(self.folder / f"in/people/{step}.parquet", people, ["person", "city", "time", "diff"])

    def copy(self, folder: Path) -> Shop:
        """Return a copy elsewhere."""
        shutil.copytree(self.folder, folder)
        return Shop(folder, self.options)

    def files(self) -> dict[str, bytes]:
        """Return all that state and outputs consist of: without records of runs, which tell when they were."""
        found = files(self.state, self.folder / "out").items()
        return {str(path.relative_to(self.folder)): data for path, data in found if path.parent.name != RECORDS}

    def settled(self) -> dict[str, bytes]:
        """Return the files after the next run that has something to do has opened the state: a run with nothing new clears nothing away."""
        State.open(self.state, {name: self.folder / "out" / name for name in OUTPUTS}).close()
        return self.files()

    def rows(self) -> dict[str, Counter]:
        """Return the accumulated updates of each output, whatever files they are in. A record's changes at a time are in one row."""
        found = {}
        for name in OUTPUTS:
            found[name] = Counter()
            for *record, diff in read_log(self.folder / "out" / name).iter_rows():
                found[name][tuple(record)] += diff
        return found

    def meant(self, steps: int) -> dict[str, Counter]:
        """Return what the outputs must say at the end of some steps: recomputed from the inputs."""
        found = {"known": Counter(), "spent": Counter()}
        before = found
        for now in range(steps):
            there = {name: Counter() for name in found}
            left, right = (contents(self.folder / "in" / name, now + 1) for name in ("sales", "people"))
            for (person, amount), count in left.items():
                for (other, city), times in right.items():
                    if person == other:
                        there["known"][person, amount, city] += count * times
            for city in {record[2] for record in there["known"]}:
                rows = [(amount, n) for (_, amount, where), n in there["known"].items() if where == city]
                there["spent"][city, sum(n for _, n in rows), sum(amount * n for amount, n in rows)] += 1
            for name, records in there.items():
                for record in {*records, *before[name]}:
                    if change := records[record] - before[name][record]:
                        found[name][*record, now] += change
            before = there
        return found


@dataclass(frozen=True)
class Stage:
    """A run of the shop: the shop before it, and the files of state and outputs after it, nothing having gone wrong."""

    step: int
    shop: Shop
    after: dict[str, bytes]


def stages(folder: Path) -> dict[str, Stage]:
    """Return the shop's runs: the first, one whose batches stay beside those of the first, one that merges batches.

    And two that are done in other ways: one for which there is no memory, and one after a change of the pipeline.
    """
    shop, found, batches = Shop.make(folder / "shop"), {}, []
    for step, name in enumerate(("first", "change", "merge")):
        if name == "change":  # a run does this, and what is new in a commit of its own
            found["apply"] = stage(step, changed(shop.copy(folder / "apply")))
        shop.supply(step)
        before = shop.copy(folder / name)
        if name == "change":
            found["out of core"] = stage(
                step, replace(shop.copy(folder / "out of core"), options={"memory": BASE, "workers": 1})
            )
        shop.run()
        found[name] = Stage(step, before, shop.files())
        batches.append({(identity, file.name) for identity, _, file in batches_of(read_newest(shop.state))})
    assert batches[0] & batches[1], "the second run replaces every batch"
    assert batches[1] - batches[2], "the third run merges no batch"
    for each in found.values():
        kinds = {path.split("/")[2] for path in each.after if path.startswith(".dd/shop/")}
        assert {"arrangements", "bundles"} <= kinds, "batches have files, or lie in a bundle: some each"
    assert shop.rows() == shop.meant(RUNS)
    return found


def stage(step: int, shop: Shop) -> Stage:
    """Return a run of a shop, of which a copy has the run."""
    copy = shop.copy(shop.folder.with_name(f"{shop.folder.name} after"))
    copy.run()
    assert copy.number == step + 1
    return Stage(step, shop, copy.files())


def changed(shop: Shop) -> Shop:
    """Return the shop with another pipeline, whose outputs differ in what they say of all times."""
    path = shop.folder / "shop.yaml"
    path.write_text(PIPELINE.replace("sum(amount)", "max(amount)"))
    return replace(shop, options={"apply": True})
