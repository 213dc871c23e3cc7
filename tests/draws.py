"""How much the tests try, and what they draw at random: the same each time, so that a change is judged by itself.

With DD_EFFORT=1 as many cases are tried as a test says; `make check` tries a fifth of them, `make test` a tenth, `make soak` three times as many; 100 is for a night. With another DD_SEED
something else is drawn by `chance`, with HYPOTHESIS_PROFILE=soak by hypothesis, see `conftest`; `make soak` does both.
Below DD_EFFORT=1 long lists, and tests that are `in_turn`, are tried by thirds, another each day. DD_TURN, 0 to 8, is what a failure names: after nine days
each third of the lists has met each third of the tests, and each ninth of the tests that are `in_turn(9)` has run.
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
SEED = os.environ.get("DD_SEED", "0")
EFFORT = float(os.environ.get("DD_EFFORT") or 0.1)
DAYS = 9
TURN = int(os.environ.setdefault("DD_TURN", str(int(time.time()) // 86400 % DAYS)))
"""The day, of nine, which chooses what is tried; the same in all processes that this one starts. The third of the tests is `TURN % 3`."""
THIRD = (TURN + TURN // 3) % 3
"""The third of long lists that is tried today."""
FEWEST, WHOLE = 2, 1
"""Cases of a random test, whatever the effort; and the effort from which on nothing is left out that can be counted."""
YAML_PIECES = [
    *(
        "\n",
        " ",
        "  ",
        "\t",
        ":",
        ": ",
        "- ",
        ",",
        "[",
        "]",
        "{",
        "}",
        "'",
        '"',
        "#",
        " #",
        "&a ",
        "*a",
        "|",
        ">",
        "?",
        "? ",
        "!",
        "%",
    ),
    *(
        "@",
        "`",
        "~",
        "null",
        "true",
        "012",
        "1e999",
        "<<: ",
        "<<: *a",
        "---\n",
        "...\n",
        "\r",
        "\0",
        "\x1b",
        "\u2028",
        "\ufeff",
        "é",
    ),
    *("\U0001f600", "dd: 1", "function", "by", "apply", "from", "filter", "(", ")", "\\", "c"),
    *("iterate", "variables", "body", "result", "v", "l.v", "enter", "."),
]
"""What a mutilated pipeline file gets put in."""


def chance(*what: object) -> random.Random:
    """Return random numbers for one purpose."""
    return random.Random(" ".join(map(str, (SEED, *what))))


def many(usual: int) -> int:
    """Return how many cases to try where there are so many of them usually."""
    return max(min(usual, FEWEST), round(usual * EFFORT))


def some(everything: Iterable[T]) -> Iterator[T]:
    """Give everything that there is to try, or one of each three where little is tried: another one each day; of a short list at least one."""
    given, last = False, list[T]()
    for at, each in enumerate(everything):
        if EFFORT >= WHOLE or at % 3 == THIRD:
            given = True
            yield each
        last = [each]
    if not given:
        yield from last
