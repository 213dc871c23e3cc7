"""What tests draw at random: the same each time, so that a change is judged by itself; something else with another DD_SEED.

Hypothesis draws by its profile, see `conftest`; `make soak` has all of it draw anew.
"""

from __future__ import annotations

import os
import random

SEED = os.environ.get("DD_SEED", "0")


def chance(*what: object) -> random.Random:
    """Return random numbers for one purpose."""
    return random.Random(" ".join(map(str, (SEED, *what))))
