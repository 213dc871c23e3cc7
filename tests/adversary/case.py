"""A hostile case, and what must be so after any command in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.screens import unfit_for_screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.adversary.runner import Ending
    from tests.adversary.shop import Shop

DOCUMENTED = frozenset({0, 1, 2, 3, 4, 5, 6, 75})
"""The exit codes that the README has, without that of a bug of ours and those of signals."""
SECONDS, BYTES = 30.0, 2 << 30
"""What a command may take: seconds of a processor, bytes of memory."""


@dataclass(frozen=True)
class Case:
    """What somebody hostile does to a shop, and what people then call there.

    `first` is called, then one of `commands`; without any, one that the shop has. Each must end well. What is at the paths `kept` in the
    shop must stay as it is, as what is around the shop must; what is not in the shop's rooms, too. Below `adds` new files may come.
    No output may have the text `hidden`.
    """

    name: str
    do: Callable[[Shop], None]
    kept: tuple[str, ...] = ()
    codes: frozenset[int] = DOCUMENTED
    first: tuple[tuple[str, ...], ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    adds: tuple[str, ...] = ()
    hidden: str = ""


class Numbered(Sequence[Case]):
    """As many cases as there are numbers: what is drawn in each comes from its number."""

    def __init__(self, make: Callable[[random.Random], Case]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 1 << 32

    def __getitem__(self, number: int) -> Case:
        return self.make(random.Random(number))


def judge(case: Case, ending: Ending, touched: list[str]) -> list[str]:
    """Return what is wrong with how a command ended in a case; nothing, if all is well."""
    wrong = []
    if ending.timed_out or ending.seconds > SECONDS:
        wrong.append(f"it took more than {SECONDS:.0f} s")
    elif ending.code not in case.codes:
        wrong.append(f"it ended with {ending.code}")
    if "Traceback" in ending.said:
        wrong.append("it showed a traceback")
    if unfit := unfit_for_screen(ending.said, annotations=True):
        wrong.append(f"it showed {unfit[:5]}")
    if ending.bytes > BYTES:
        wrong.append(f"it took {ending.bytes >> 20} MiB")
    if ending.left:
        wrong.append(f"it left behind: {ending.left}")
    if ending.reached:
        wrong.append(f"it reached out: {ending.reached}")
    if touched:
        wrong.append(f"touched: {touched}")
    return wrong
