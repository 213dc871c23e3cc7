"""Random pipelines, edited between runs, against the reference: open times say what the new one means, closed ones what the old did."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from ddcli.store.state.manifest import read_newest
from tests.judge.case import arrive, write_file
from tests.judge.edits import edits, reformatted
from tests.judge.frontiers import BEGINNING, is_closed
from tests.judge.harness import Meaning, same
from tests.judge.logs import cases
from tests.judge.sizes import cut
from tests.judge.test_random import SEARCH
from tests.reference.model import accumulate
from tests.reference.values import canonical


@st.composite
def edited(draw, drawn=cases, **options):
    """Give a case and the text of the pipeline at each of its runs."""
    case = draw(drawn(**options))
    texts = [case.text]
    for _ in case.runs[1:]:
        texts.append(draw(edits(texts[-1])) if draw(st.booleans()) else texts[-1])
    if len(texts) == 1 or draw(st.booleans()):  # and once more, when there is nothing else to do
        texts.append(draw(edits(texts[-1])))
    return case, texts


def judge_changes(case, texts, root, how=dict):
    """Run a case whose file is edited between runs. `how` gives options, run by run."""
    path = root / "p.yaml"
    upper = ((BEGINNING,) * len(case.times),)
    uppers = case.uppers()
    logs, seen, begun = {}, set(), {}
    for number, text in enumerate(texts):
        this = case.runs[number] if number < len(case.runs) else None
        if this is not None:
            arrive(case, number, root)
        path.write_text(text, encoding="utf-8")
        meaning = Meaning(replace(case, text=text))
        lower, upper = upper, uppers[number] if this else upper
        times = meaning.times()
        try:
            run(path, until=case.until(this) if this else None, apply=True, **how())
        except (InputError, EngineError):
            meant = [meaning.at(time) for time in times]
            assert any(not isinstance(found, tuple) or found[1] for found in meant), "the run was refused"
            return
        for name, node in meaning.graph.outputs.items():
            folder = root / "out" / name
            log = logs.setdefault(name, Counter())
            begun.setdefault(name, lower)
            for file in sorted(set(folder.rglob("*.parquet")) - seen):
                frame = pl.read_parquet(file).with_columns(pl.col(case.times).to_physical())
                rows = [(canonical(row[: len(node.schema)]), tuple(row[len(node.schema) : -1])) for row in frame.rows()]
                assert len(set(rows)) == len(rows), f"{file.name}: more than one row for a record and time"
                for row, diff in zip(rows, frame["diff"], strict=True):
                    assert not is_closed(lower, row[1]), f"{file.name}: {row} was closed before, up to {lower}"
                    log[row] += diff
                seen.add(file)
            updates = [(record, time, diff) for (record, time), diff in log.items()]
            for time in times:
                if is_closed(upper, time) and not is_closed(lower, time):
                    same(accumulate(updates, time), meaning.at(time)[0][name], f"{name} at {time} after run {number}")
        for name in [name for name in logs if name not in meaning.graph.outputs]:
            # Removed: its files stay, and if it comes back, that is elsewhere.
            (root / "out" / name).rename(root / f"removed-{number}-{name}")
            del logs[name]


@SEARCH
@given(edited(), st.sampled_from([1, 3, 8]), st.integers(0, 2**32))
def test_a_changed_pipeline_corrects_its_outputs(found, shards, seed):
    """At every time that was open when the file changed, with any number of shards, in memory or out of core."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed):
        judge_changes(*found, Path(folder))


@SEARCH
@given(st.sampled_from([2, 2, 3]).flatmap(lambda nt: edited(nt=nt)))
def test_in_times_of_several_coordinates(found):
    """A difference at closed times is said at all open ones after them, once."""
    with tempfile.TemporaryDirectory() as folder, cut(2, len(found[1])):
        judge_changes(*found, Path(folder))


@SEARCH
@given(st.sampled_from([1, 1, 2]).flatmap(lambda nt: edited(nt=nt, looping=True)))
def test_with_loops(found):
    """A loop is built anew as a whole, or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        judge_changes(*found, Path(folder))


@SEARCH
@given(cases())
def test_writing_the_file_otherwise_rebuilds_nothing(case):
    """Nor does it change a file of the outputs: the state notes the text alone, once."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = root / "p.yaml"
        for at, file in enumerate(case.runs[0].files):
            write_file(case, file, root / "in" / file.input / f"{at}.parquet")
        path.write_text(case.text, encoding="utf-8")
        run(path)
        before = read_newest(root / ".dd" / "judged")
        path.write_text(reformatted(case.text), encoding="utf-8")
        run(path)
        after = read_newest(root / ".dd" / "judged")
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            for name in ("upper", "plan", "inputs", "outputs", "exports", "secret"):
                assert getattr(after, name) == getattr(before, name), name
            assert {name: each.files for name, each in after.arrangements.items()} == {
                name: each.files for name, each in before.arrangements.items()
            }
            assert after.number <= 2
            assert (run(path).changed, read_newest(root / ".dd" / "judged")) == (False, after)
