"""Draws a case by its seed, has it happen to a shop, and judges what commands do there."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tests.adversary import damage, files, names, pipelines, states, tables
from tests.adversary.case import SECONDS, Case, judge
from tests.adversary.runner import Runner
from tests.adversary.shop import Shop, commands, make_removable, open_shop

if TYPE_CHECKING:
    from collections.abc import Callable

GENERATORS: dict[str, Callable[[Shop], Sequence[Case] | Iterator[Case]]] = {
    generator.__name__: generator
    for subject in (states, damage, names, files, pipelines, tables)
    for generator in subject.GENERATORS
}
"""All of them, by name. Each gives all its cases, or so many that a number tells one."""


@dataclass
class Attack:
    """A shop that is copied for each case, below a folder; and what calls commands there."""

    folder: Path
    runner: Runner = field(default_factory=Runner)
    known: dict[str, Sequence[Case]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shop = open_shop(self.folder / "shop")

    def cases(self, generator: str) -> Sequence[Case]:
        """Return the cases of a generator."""
        if generator not in self.known:
            cases = GENERATORS[generator](self.shop)
            self.known[generator] = cases if isinstance(cases, Sequence) else list(cases)
        return self.known[generator]

    def draw(self, generator: str, seed: int) -> tuple[Case, tuple[str, ...]]:
        """Return the case that a seed gives, and a command."""
        chance = random.Random(f"{generator} {seed}")
        case = chance.choice(self.cases(generator))
        return case, chance.choice(case.commands or commands(self.shop))

    def wrong(self, case: Case, command: tuple[str, ...]) -> list[str]:
        """Have a case happen, call what it begins with and a command, and return what is wrong with how they end."""
        copy = self.shop.copy(self.folder / "around")
        case.do(copy)
        canary = copy.canary_with(case.kept, case.adds)
        canary.look()
        found = []
        for arguments in (*case.first, command):
            ending = self.runner.run(copy.folder, arguments, SECONDS)
            which = f"{case.name}: dd {' '.join(arguments)}"
            wrong = judge(case, ending, canary.touched())
            if case.hidden and (case.hidden in ending.said or shown_in(copy, case.hidden)):
                wrong.append("it read a file outside of the table")
            found += [f"{which}: {each}\n{ending.said[-3000:]}" for each in wrong]
        return found

    def close(self) -> None:
        """End it."""
        self.runner.close()


def shown_in(shop: Shop, text: str) -> bool:
    """Return whether an output of the shop has a text."""
    files = (shop.folder / "out").rglob("*.parquet")
    return any(text in str(pl.read_parquet(path).to_dict(as_series=False)) for path in files if path.is_file())


@contextmanager
def attack() -> Iterator[Attack]:
    """Attack in memory, where there is a file system in it: nobody pulls the plug here, so nothing need wait for a disk."""
    memory = Path("/dev/shm")  # noqa: S108
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dd-adversary-", dir=place) as folder:
        begun = Attack(Path(folder))
        try:
            yield begun
        finally:
            begun.close()
            make_removable(Path(folder))
