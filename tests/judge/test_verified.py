"""Verification of random pipelines: nothing is wrong with a clean state, slices together cover each record once, and a changed value is found."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ddcli.errors import StateError
from ddcli.provenance.verification import verify
from tests.judge.case import ran
from tests.judge.logs import cases
from tests.judge.test_effects import contents
from tests.judge.test_random import SEARCH

PARTS = 3


def slices(path):
    """Verify each of all slices; return the proofs of each output."""
    found = {}
    for number in range(PARTS):
        for proof in verify(path, (number, PARTS)).proofs:
            found.setdefault(proof.name, []).append(proof)
    return found


@SEARCH
@given(cases(), st.data())
def test_what_is_right_and_what_is_changed(case, data):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        path = ran(case, root)
        if path is None:
            return
        assert verify(path, None).same
        proofs = slices(path)
        for name, each in proofs.items():
            assert all(proof.same for proof in each), name
            if len(case.times) == 1:
                assert sum(proof.rows for proof in each) == len(contents(root / "out" / name, case.times)), name
        logs = [
            file for name in proofs for file in (root / "out" / name).glob("*.parquet") if pl.read_parquet(file).height
        ]
        if len(case.times) > 1 or not logs:
            return
        file = data.draw(st.sampled_from(sorted(logs)))
        frame = pl.read_parquet(file)
        row = data.draw(st.integers(0, frame.height - 1))
        frame = frame.with_columns(
            diff=pl.when(pl.int_range(pl.len()) == row).then(pl.col("diff") + 1).otherwise("diff")
        )
        frame.write_parquet(file)
        assert not all(proof.same for proof in slices(path)[file.parent.name])
        try:
            assert not verify(path, None).same
        except StateError as error:
            assert str(file) in str(error.place)  # noqa: PT017 - either is right


@SEARCH
@given(st.sampled_from([1, 2, 3]).flatmap(lambda nt: cases(nt=nt, looping=True)))
def test_loops_and_times_of_several_coordinates(case):
    with tempfile.TemporaryDirectory() as folder:
        path = ran(case, Path(folder))
        if path is not None:
            assert verify(path, None).same
            assert all(proof.same for each in slices(path).values() for proof in each)
