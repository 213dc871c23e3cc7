"""A file of an input that comes again, beside new ones, when the process dies at any file operation."""

import shutil
from collections import Counter

import pytest

from tests.crash.shop import PIPELINE, RUNS
from tests.draws import some
from tests.harness import write_log
from tests.store.support import Dead, Faulty


def contents(rows):
    """Return the records of each output at the end, given its updates."""
    found = {}
    for name, updates in rows.items():
        found[name] = Counter()
        for (*record, _), diff in updates.items():
            found[name][tuple(record)] += diff
        found[name] = {record: count for record, count in found[name].items() if count}
    return found


def test_death_at_every_operation_of_a_replacement(every_stage, tmp_path, through):
    before = every_stage["merge"].shop.copy(tmp_path / "before")
    (before.folder / "shop.yaml").write_text(
        PIPELINE.replace("sales: in/sales/", "sales: {path: in/sales/, changed: replace}")
    )
    sales = [((at * 7) % 5, at, 0, 1) for at in range(-50, 9)]
    write_log(before.folder / "in/sales/0.parquet", sales, ["person", "amount", "time", "diff"])
    whole = before.copy(tmp_path / "whole")
    through(whole, files := Faulty())
    after, number = whole.settled(), before.number
    assert contents(whole.rows()) == contents(whole.meant(RUNS))
    committed = set()
    for at in some(files.changes):
        shop = before.copy(tmp_path / "shop")
        with pytest.raises(Dead):
            through(shop, Faulty(at))
        committed.add(shop.number - number)
        shop.run()
        assert shop.settled() == after, f"dead before operation {at}: {files.log[at]}"
        shutil.rmtree(shop.folder)
    assert committed == {0, 1, 2}  # the replacement, and the new files
