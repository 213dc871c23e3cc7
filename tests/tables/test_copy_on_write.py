"""Which files of a table a change rewrites: contents as meant, few files of a bounded size, and none read that has no row to look for."""

from collections import Counter
from math import log2

import numpy as np
import pytest

from ddcli.engine import kernels
from ddcli.store.targets import file_table
from ddcli.store.targets.file_table import rewrite_files
from ddcli.store.targets.mark import TableFile
from tests.draws import chance, many


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(file_table, "SMALL", 10)
    monkeypatch.setattr(file_table, "MANY", 16)


class Table:
    """Files by their entries, and how many were read and written."""

    def __init__(self):
        self.files, self.read, self.written, self.number = {}, 0, 0, 0

    def look(self, piece):
        self.read += 1
        return self.files[piece]

    def change(self, change):
        """Commit a change, records with diffs; return what becomes of the files."""
        self.number += 1
        self.read = self.written = 0
        rows = np.array([(*record, diff) for record, diff in change.items() if diff], np.int64).reshape(-1, 3)
        found = rewrite_files(self.files, kernels.consolidate(rows), self.look, self.number)
        kept = {piece: self.files[piece] for piece in found.kept}
        for at, part in enumerate(found.new):
            piece = TableFile(f"{self.number}-{at}", part.run, int(part.rows[:, -1].sum()), part.first)
            kept[piece] = part.rows
            self.written += piece.rows
        self.files = kept
        return found

    @property
    def contents(self):
        found = Counter()
        for rows in self.files.values():
            for *record, diff in rows.tolist():
                found[tuple(record)] += diff
        return found


def test_random_changes():
    for seed in range(many(20)):
        draw, table, meant = chance("files", seed), Table(), Counter()
        for _ in range(25):
            size = draw.choice([0, 3, 3, 60])
            change = Counter((draw.randrange(40), draw.randrange(5)) for _ in range(size))
            for record, count in meant.items():
                if draw.random() < draw.choice([0.02, 0.5]):
                    change[record] -= draw.randint(1, count)
            found = table.change(change)
            assert not len(found.missing)
            meant += change  # positive counts only
            assert table.contents == meant
            total = meant.total()
            assert all(0 < piece.rows <= max(10, max(meant.values(), default=0), total) for piece in table.files)
            assert len({piece.run for piece in table.files}) <= 2 + log2(total + 1)
            assert len(table.files) <= 2 * 16 + 2 + 2 * log2(total + 1)


def test_a_change_costs_in_proportion():
    table = Table()
    table.change(Counter({(at, 0): 1 for at in range(1600)}))
    assert len(table.files) == 16
    table.change(Counter({(at, 0): -1 for at in range(500, 550)}))
    assert table.read <= 2
    assert table.written <= 200
    table.change(Counter({(at, 1): 1 for at in range(10)}))
    assert table.read == 0
    assert table.written == 10
    table.change(Counter({(3, 1): -1}))
    assert table.read == 1
    written = 0
    for at in range(200):
        table.change(Counter({(at * 7 % 1600, 2): 1}))
        written += table.written
    assert written <= 200 * 2 * log2(200)


def test_rows_that_are_missing_are_returned():
    table = Table()
    table.change(Counter({(1, 1): 2, (2, 2): 1}))
    found = table.change(Counter({(1, 1): -3, (9, 9): -1, (2, 2): -1}))
    assert found.missing.tolist() == [[1, 1, -1], [9, 9, -1]]
