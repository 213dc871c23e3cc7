"""Random small collections against the definition: counts, frames, JSON, and the change log applied to A."""

import io
import json
import random
from collections import Counter
from decimal import Decimal

import click
import polars as pl
import pytest

from ddcli import diff
from ddcli.compare.output import json_lines, markdown, show, text_lines, to_json
from ddcli.compare.page import page
from ddcli.store.scratch import buckets
from ddcli.store.scratch.buckets import Scratch
from tests.compare.definition import difference, plain
from tests.draws import many

TYPES = {"id": pl.Int64, "part": pl.String, "amount": pl.Float64, "price": pl.Decimal(9, 2), "count": pl.Int32}
NAMES = list(TYPES)
DOMAINS = {
    "id": [1, 2, 3, None],
    "part": ["a", "b", "", "null", None],
    "amount": [0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), float("-inf"), None],
    "price": [Decimal("1.00"), Decimal("1.05"), Decimal("1.10"), None],
    "count": [0, 1, 3, None],
}
DULL = (1, "a", 1.0, Decimal("1.00"), 1)
KEYS = [None, ("id",), ("id", "part"), tuple(NAMES), ("amount",)]


def near(name, one, other):
    """Return whether values are within the tolerances below."""
    if name == "amount":
        return abs(one - other) <= 0.5 and abs(one) != float("inf") and abs(other) != float("inf")
    if name == "price":
        return abs(one - other) <= Decimal("0.05")
    return name == "count" and abs(one - other) <= 0.5 * max(abs(one), abs(other))


TOLERANCES = {"amount": 0.5, "price": "0.05", "count": "50%"}


def records(rng, most):
    return [tuple(rng.choice(DOMAINS[name]) for name in NAMES) for _ in range(rng.randrange(most))]


def log(rng, rows, folder):
    """Write a log whose updates accumulate to some records with multiplicities at time 5, and go on; return those."""
    written = [(*row, rng.choice([0, 3, 5]), rng.choice([-2, -1, 1, 1, 1, 2])) for row in rows for _ in range(2)]
    later = [(*row, 6, 7) for row in rows]
    folder.mkdir()
    schema = {**TYPES, "time": pl.Int64, "diff": pl.Int64}
    for at, part in enumerate((written[::2], written[1::2], later)):
        pl.DataFrame(part, schema=schema, orient="row").write_parquet(folder / f"{at}.parquet")
    return [(row[:-2], row[-1]) for row in written]


def frame(rows):
    return pl.DataFrame(rows, schema=TYPES, orient="row")


@pytest.fixture(params=["whole", "small"])
def room(request, monkeypatch):
    """Have all in memory, or write each frame to a file and take buckets apart again and again."""
    if request.param == "small":
        monkeypatch.setattr(buckets, "COUNT", 2)
        init = Scratch.__init__
        monkeypatch.setattr(Scratch, "__init__", lambda self, _room: init(self, 0))
        monkeypatch.setattr("ddcli.compare.diff._small_enough", taken_apart_twice())


def taken_apart_twice():
    from ddcli.compare.diff import _small_enough

    return lambda pair, by, scratch, _most, depth=1: _small_enough(
        pair, by, scratch, -1 if depth < 3 else 1 << 40, depth
    )


def counted(found, rows, *prefixes):
    """Return rows of a frame as the definition has them: key, values of each side; how many."""
    counts = Counter()
    for row in rows.iter_rows(named=True):
        key = tuple(plain(row[name]) for name in found.compared.key)
        sides = [tuple(plain(row[prefix + name]) for name in found.compared.values) for prefix in prefixes]
        counts[key, *sides] += row[found.count]
    return counts


def check(found, a, b, key, tolerant):
    """Hold everything that a comparison says against the definition."""
    expected = difference(a, b, NAMES, key or (), near if tolerant else None)
    assert counted(found, found.added, "") == expected.added
    assert counted(found, found.removed, "") == expected.removed
    assert counted(found, found.changed, "old.", "new.") == expected.changed
    totals = {
        "removed": expected.removed.total(),
        "changed": expected.changed.total(),
        "added": expected.added.total(),
    }
    assert {change: found.counts[change] for change in totals} == totals
    assert +Counter(found.cells) == expected.cells
    assert found.same == (not sum(totals.values()))
    tree = to_json(found, None)
    assert {change: tree["rows"][change] for change in totals} == totals
    assert tree["rows"]["same"] == sum(count for _, count in a) - totals["removed"] - totals["changed"]
    for told in (tree["changes"], [json.loads(line) for line in json_lines(found, None)]):
        by_change = Counter()
        for each in told:
            by_change[each["change"]] += each["count"]
        assert by_change == +Counter(totals)
    shown = [click.unstyle(line) for line in text_lines(found, None)]
    assert len([line for line in shown if line[:2] in {"~ ", "- ", "+ "}]) == len(tree["changes"])
    assert page([(None, found)], [], None).count("<tr class=") == len(tree["changes"])
    assert "| A rows" in markdown([(None, found)], [], None)
    if not tolerant:
        check_updates(found, a, b)


def check_updates(found, a, b):
    """Apply the change log to A: that must give B."""
    out = io.BytesIO()
    show(found, "parquet", None, out)
    log = pl.read_parquet(io.BytesIO(out.getvalue()))
    assert log.columns == [*found.compared.names, "time", "diff"]
    assert not log.select(pl.struct(pl.exclude("diff")).is_duplicated().any()).item()
    applied = Counter()
    for record, count in a:
        applied[tuple(map(plain, record))] += count
    for row in log.select(*NAMES, "diff").iter_rows():
        applied[tuple(map(plain, row[:-1]))] += row[-1]
    for record, count in b:
        applied[tuple(map(plain, record))] -= count
    assert not any(applied.values())


@pytest.mark.parametrize("seed", range(many(18)))
def test_tables(seed, room):
    rng = random.Random(seed)
    key, tolerant = rng.choice(KEYS), rng.random() < 0.4
    a, b = records(rng, 14), records(rng, 14)
    b += rng.sample(a, len(a) // 2)
    tolerance = {name: limit for name, limit in TOLERANCES.items() if name not in (key or ())}
    tolerant = tolerant and key is not None
    found = diff(frame(a), frame(b), key=key, tolerance=tolerance if tolerant else None)
    with_one = [[(row, 1) for row in rows] for rows in (a, b)]
    near_to = tolerant and bool(tolerance)
    check(found, *with_one, key, near_to)
    for side, rows in ((found.a, a), (found.b, b)):
        keys = Counter(tuple(plain(row[NAMES.index(name)]) for name in key or ()) for row in rows)
        assert side.repeated == (sum(count > 1 for count in keys.values()) if key else 0)
        assert side.rows == len(rows)


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(many(8)))
def test_logs_as_of_a_time(seed, room, tmp_path):
    rng = random.Random(seed)
    a = log(rng, [*records(rng, 9), DULL], tmp_path / "a")
    b = log(rng, [*records(rng, 9), DULL], tmp_path / "b")
    key = rng.choice([None, ("id",), ("id", "part")])
    check(diff(tmp_path / "a", tmp_path / "b", key=key, as_of=5), a, b, key, tolerant=False)
    table = records(rng, 9)
    frame(table).write_parquet(tmp_path / "table.parquet")
    check(
        diff(tmp_path / "a", tmp_path / "table.parquet", key=key, as_of=5),
        a,
        [(row, 1) for row in table],
        key,
        tolerant=False,
    )
