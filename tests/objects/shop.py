"""The small pipeline of the crash tests, with its state, inputs and outputs in an object store or here."""

from __future__ import annotations

import io
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ddcli.driver.run import run
from ddcli.store.files.access import locate
from ddcli.store.files.objects import ObjectPath
from ddcli.store.state.directory import State
from ddcli.store.state.document import RUNS
from ddcli.store.state.manifest import read_newest
from tests.crash.shop import OUTPUTS, PIPELINE, Shop
from tests.store.support import LOCKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARK = re.compile(r"-[0-9a-f]{12}(?=\.)")


@dataclass(frozen=True)
class Remote:
    """A shop some parts of which ("in", "out", "state") are in a bucket. Inputs are made in `local` and copied."""

    local: Shop
    bucket: ObjectPath
    parts: frozenset[str] = frozenset({"in", "out", "state"})

    def __post_init__(self):
        text = PIPELINE.replace("dd: 1\n", "dd: 1\nstate: state/\n")
        for part in self.parts:
            text = text.replace(f": {part}/", f": {self.bucket}/{part}/")
        (self.local.folder / "shop.yaml").write_text(text)

    def place(self, part: str) -> Path:
        return locate(self.bucket if part.split("/", maxsplit=1)[0] in self.parts else self.local.folder, part)

    def copier(self) -> Callable[[ObjectPath], Remote]:
        """Return what makes a copy of all its objects, as they are now, elsewhere."""
        objects = {path.relative_to(self.bucket).inner: path.read_bytes() for path, _ in self.bucket.below()}

        def copy(bucket: ObjectPath) -> Remote:
            for name, data in objects.items():
                (bucket / name).put(data)
            return Remote(self.local, bucket, self.parts)

        return copy

    @property
    def state(self) -> Path:
        return self.place("state")

    @property
    def number(self) -> int:
        manifest = read_newest(self.state)
        return manifest.number if manifest else 0

    def run(self, **options):
        return run(self.local.folder / "shop.yaml", **options)

    def supply(self, step: int) -> None:
        self.local.supply(step)
        for name in ("sales", "people") if "in" in self.parts else ():
            file = f"in/{name}/{step}.parquet"
            self.place(file).put((self.local.folder / file).read_bytes())

    def settle(self) -> None:
        """Do what the next run that has something to do begins with."""
        State.open(self.state, {name: self.place(f"out/{name}") for name in OUTPUTS}).close()

    def names(self) -> list[str]:
        """Return the names of all objects but inputs, lock and records of runs, without marks."""
        found = [path.relative_to(self.bucket) for path, _ in self.bucket.below()]
        kept = [path for path in found if path.parts[0] != "in" and path.name not in LOCKS and path.parent.name != RUNS]
        return sorted(MARK.sub("", path.inner) for path in kept)

    def rows(self) -> dict[str, Counter]:
        found = {}
        for name in OUTPUTS:
            found[name] = Counter()
            place = self.place(f"out/{name}")
            for path in (each for each, _ in place.below()) if isinstance(place, ObjectPath) else place.rglob("*"):
                if path.name.endswith(".parquet"):
                    for *record, diff in pl.read_parquet(io.BytesIO(path.read_bytes())).iter_rows():
                        found[name][tuple(record)] += diff
        return found
