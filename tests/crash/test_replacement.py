"""A file of an input that comes again, beside new ones, when the process dies at any file operation."""

import shutil
from collections import Counter

import pytest

from ddcli.store.state.contents import ledger_files
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify
from tests.crash.shop import PIPELINE, RUNS, Shop
from tests.draws import some
from tests.harness import contents as harness_contents
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
    assert committed == {0, 3}  # the replacement, the new files, and the commit of both


BY_COPIES = """\
name: shop
inputs:
  a: {path: in/, format: append, changed: replace, columns: {k: int64, v: int64}}
collections:
  sums: {from: a, apply: [{reduce: {by: [k], s: sum(v), n: count(*)}}]}
outputs: {sums: out/}
"""


def test_death_at_every_operation_of_a_run_by_copies(tmp_path, through):
    """A file comes again, another one is new: both are one commit, which adds to the ledger of the input."""
    before = Shop(tmp_path / "before")
    (before.folder / "in").mkdir(parents=True)
    (before.folder / "shop.yaml").write_text(BY_COPIES)
    expected = Counter()

    def write(name, rows):
        (before.folder / "in" / name).write_text("k,v\n" + "".join(f"{k},{v}\n" for k, v in rows))

    for step in range(3):
        write(f"{step}.csv", [(at % 4, step) for at in range(20)])
        before.run(now=f"2020-01-0{step + 1}")
    write("1.csv", [(at % 5, 1) for at in range(20)])
    write("3.csv", [(7, 8)])
    files = [
        [(at % 4, 0) for at in range(20)],
        [(at % 5, 1) for at in range(20)],
        [(at % 4, 2) for at in range(20)],
        [(7, 8)],
    ]
    for k, v in [row for rows in files for row in rows]:
        expected[k] += v
    expected = {(k, s, sum(each[0] == k for rows in files for each in rows)): 1 for k, s in expected.items()}
    whole = before.copy(tmp_path / "whole")
    through(whole, log := Faulty())
    number = before.number
    assert any("ledger" in str(path) for _, path in log.log)
    committed = set()
    for at in some(log.changes):
        shop = before.copy(tmp_path / "shop")
        with pytest.raises(Dead):
            through(shop, Faulty(at))
        committed.add(shop.number - number)
        shop.run()
        assert harness_contents(shop.folder / "out") == expected, f"dead before operation {at}: {log.log[at]}"
        assert verify(shop.state)[2] == []
        named = {entry.name for entry in ledger_files(read_newest(shop.state))}
        assert {path.name for path in (shop.state / "ledger").iterdir()} == named
        # The copies are those of the files that are there now.
        (shop.folder / "in/1.csv").write_text("k,v\n9,9\n")
        assert shop.run().inputs["a"].rows == 21
        shutil.rmtree(shop.folder)
    assert committed == {0, 1}
