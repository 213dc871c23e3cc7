"""The effect of an edit on a state, shown beforehand, against the logs before and after the run that applies it, which the reference judges."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ddcli.compare.against import compare_against
from ddcli.compare.columns import Settings
from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from tests.harness import files
from tests.judge.case import ran, write_file
from tests.judge.edits import edits
from tests.judge.logs import cases
from tests.judge.sizes import cut
from tests.judge.test_random import SEARCH
from tests.reference.values import canonical

NO_KEY = Settings(None, frozenset(), False, {}, None)


@st.composite
def edited(draw, **options):
    """Give a case, and the text of its pipeline after an edit."""
    case = draw(cases(**options))
    return case, draw(edits(case.text))


def contents(folder, times):
    """Return the sum of all updates of a log."""
    found = Counter()
    for file in folder.rglob("*.parquet"):
        frame = pl.read_parquet(file).drop(times)
        for *record, diff in frame.rows():
            found[canonical(tuple(record))] += diff
    return Counter({record: count for record, count in found.items() if count})


def shown(found):
    """Return a comparison's changes as diffs, without a key."""
    diffs = Counter()
    for frame, sign in ((found.added, 1), (found.removed, -1)):
        for *record, count in frame.rows():
            diffs[canonical(tuple(record))] += sign * count
    return diffs


def judge_effect(case, text, root):
    """Run a case, show the effect of an edit, and apply it."""
    path, state = ran(case, root), root / ".dd" / "judged"
    if path is None:
        return
    before = {folder.name: contents(folder, case.times) for folder in (root / "out").iterdir()}
    path.write_text(text, encoding="utf-8")
    was = files(root)
    refused = None
    try:
        found = compare_against(path, state, lambda _name: NO_KEY)
    except (InputError, EngineError) as error:
        refused = error
    assert files(root) == was, "showing the effect wrote something"
    try:
        run(path, until=case.until(case.runs[-1]), apply=True)
    except (InputError, EngineError):
        return
    assert refused is None, f"the effect can't be shown, but the edit be applied: {refused}"
    for name, one in found.outputs.items():
        after = contents(root / "out" / name, case.times)
        expected = Counter(after)
        expected.subtract(before[name])
        assert shown(one) == {record: diff for record, diff in expected.items() if diff}, name
        if all(count > 0 for count in (*after.values(), *before[name].values())):
            assert (one.a.rows, one.b.rows) == (before[name].total(), after.total()), name
    assert {*found.outputs, *found.only_a} == before.keys()


@SEARCH
@given(edited(), st.sampled_from([1, 3]), st.integers(0, 2**32))
def test_the_effect_of_an_edit_is_the_change_that_it_makes(found, shards, seed):
    """With any number of shards, in memory or out of core."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed):
        judge_effect(*found, Path(folder))


@SEARCH
@given(st.sampled_from([1, 2, 3]).flatmap(lambda nt: edited(nt=nt, looping=True)))
def test_with_loops_and_times_of_several_coordinates(found):
    """The sum over all open times counts."""
    with tempfile.TemporaryDirectory() as folder:
        judge_effect(*found, Path(folder))


def judge_files(case, root):
    """Run a case but for its last files, show their effect, and deliver them."""
    path, state = root / "p.yaml", root / ".dd" / "judged"
    path.write_text(case.text, encoding="utf-8")
    *earlier, last = case.runs
    for number, this in enumerate(earlier):
        for at, file in enumerate(this.files):
            write_file(case, file, root / "in" / file.input / f"{number}-{at}.parquet")
        try:
            run(path)
        except (InputError, EngineError):
            return
    if not (root / "out").exists():
        return
    added = []
    for at, file in enumerate(last.files):
        place = root / "fix" / file.input / f"last-{at}.parquet"
        write_file(case, file, place)
        added.append((file.input, place))
    before = {folder.name: contents(folder, case.times) for folder in (root / "out").iterdir()}
    was = files(root)
    refused = None
    try:
        found = compare_against(path, state, lambda _name: NO_KEY, added=added)
    except (InputError, EngineError) as error:
        refused = error
    assert files(root) == was, "showing the effect wrote something"
    for _, place in added:
        place.rename(root / "in" / place.parent.name / place.name)
    try:
        run(path)
    except (InputError, EngineError):
        return
    assert refused is None, f"the effect can't be shown, but the files be read: {refused}"
    for name, one in found.outputs.items():
        expected = Counter(contents(root / "out" / name, case.times))
        expected.subtract(before[name])
        assert shown(one) == {record: diff for record, diff in expected.items() if diff}, name


@SEARCH
@given(cases())
def test_the_effect_of_files_is_the_change_that_they_make(case):
    """In pipelines whose inputs carry no progress: with some, a file alone closes no time."""
    if len(case.runs) < 2 or not case.runs[-1].files:
        return
    with tempfile.TemporaryDirectory() as folder:
        judge_files(case, Path(folder))
