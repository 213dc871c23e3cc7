"""The difference of two multisets of records, by its definition, in plain Python. See `ddcli.compare`."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

NAN = "NaN, which equals itself here"


def plain(value):
    """Return a value such that equal ones are equal in Python: one NaN, one zero."""
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    return value


def order(value):
    """Return what values are sorted by: null last, NaN before it."""
    return (value is None, value == NAN, 0 if value is None or value == NAN else value)


@dataclass
class Found:
    """Rows with how many of each: `removed` and `added` (key, values), `changed` (key, old, new); and changed cells by column."""

    removed: Counter = field(default_factory=Counter)
    added: Counter = field(default_factory=Counter)
    changed: Counter = field(default_factory=Counter)
    cells: Counter = field(default_factory=Counter)


def difference(a, b, names, key=(), near=None):
    """Compare records with multiplicities, tuples of the columns `names`; `near(name, old, new)` says of numbers that they are."""
    apart = Counter()
    for records, sign in ((a, -1), (b, 1)):
        for record, count in records:
            apart[tuple(map(plain, record))] += sign * count
    at = [names.index(name) for name in key]
    beside = [place for place in range(len(names)) if place not in at]
    sides = {}
    for record, count in apart.items():
        of_key = sides.setdefault(tuple(record[place] for place in at), ([], []))
        of_key[count > 0].extend([tuple(record[place] for place in beside)] * abs(count))
    found = Found()
    for identity, both in sides.items():
        removed, added = (sorted(side, key=lambda values: [order(value) for value in values]) for side in both)
        pairs = min(len(removed), len(added)) if key else 0
        for old, new in zip(removed[:pairs], added[:pairs], strict=True):
            changed = [
                names[place]
                for place, one, other in zip(beside, old, new, strict=True)
                if one != other and not (near and is_near(near, names[place], one, other))
            ]
            if changed:
                found.changed[identity, old, new] += 1
                found.cells.update(changed)
        found.removed.update((identity, values) for values in removed[pairs:])
        found.added.update((identity, values) for values in added[pairs:])
    return found


def is_near(near, name, one, other):
    """Return whether two values are near: null and NaN are near nothing."""
    return NAN not in (one, other) and None not in (one, other) and near(name, one, other)
