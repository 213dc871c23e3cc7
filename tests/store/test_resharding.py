"""The order that the runs of several shards are put in."""

from __future__ import annotations

from ddcli.store.batch.compaction import gathered
from ddcli.store.state.entries import FileEntry


def entry(name, run, lower, upper):
    return FileEntry(name, 1, 1, "", ((lower,),), ((upper,),), ((lower,),), "", run)


def runs(files):
    """Return what each run's files are called, the oldest run first."""
    found = {}
    for file in files:
        found.setdefault(file.run, []).append(file.name)
    return [sorted(names) for _, names in sorted(found.items())]


def test_the_runs_of_one_shard_stay_as_they_are():
    # Of run 1, files that ended at 9 went into run 0: what is left of it ends earlier, and is younger all the same.
    one = [entry("a", 0, 0, 9), entry("b", 0, 0, 5), entry("c", 1, 5, 7), entry("d", 4, 9, 12)]
    assert runs(gathered({3: one})) == [["a", "b"], ["c"], ["d"]]


def test_those_of_several_are_in_order_of_time():
    """A reader that has taken what is before 5 has wholly taken the first four, and nothing of the others."""
    one = [entry("a", 0, 0, 5), entry("b", 1, 5, 9)]
    other = [entry("c", 0, 0, 3), entry("d", 1, 3, 5), entry("e", 2, 5, 9), entry("f", 2, 5, 9)]
    found = gathered({0: one, 1: other})
    assert runs(found) == [["c"], ["a"], ["d"], ["b"], ["e", "f"]]
    assert [file.upper for file in found] == sorted(file.upper for file in found)


def test_a_closed_frontier_is_the_last():
    last = FileEntry("z", 1, 1, "", ((3,),), (), ((3,),), "", 1)
    assert runs(gathered({0: [entry("a", 0, 0, 3), last], 1: [entry("b", 5, 0, 3)]})) == [["a"], ["b"], ["z"]]


def test_no_files_are_no_runs():
    assert gathered({}) == ()
