"""The figures of a run at 10 TB on 4 000 cores: none is more than asked for."""

from __future__ import annotations

import pytest

from tests.bench.cluster import Cluster, figures, loads, main, output_files

ASKED = {"results": 256e6, "driver": 4e9, "commit": 60, "manifest": 1e6}
"""Bytes of results that the driver receives and of memory for them, seconds of a commit, bytes of manifest that a batch of 1 GB writes."""


@pytest.fixture(scope="module")
def largest():
    load, batch = loads()["10 TB"]
    return {"load": load, "batch": batch}


@pytest.mark.parametrize(
    ("run", "figure"),
    [(run, figure) for run in ("load", "batch") for figure in ASKED if (run, figure) != ("load", "manifest")],
)
def test_a_figure_is_as_asked(largest, run, figure):
    assert getattr(largest[run], figure) < ASKED[figure]


def test_figures_follow_from_the_sizes_of_a_run():
    """Worked out by hand: 100 million rows of 96 bytes are 144 slices of 64 MiB; on 100 cores they take 100 passes, each a task of each of ten stages.

    A batch has 1 M rows of 48 bytes, so each has a file of its own, and each task an index. Of a change of 96 MB each stage has 64 tasks, with a bundle and an index each.
    One more task makes the file of each of five outputs.
    """
    found = figures(100_000_000, Cluster(25))
    assert found.shards == found.passes == 100
    assert found.tasks == 144 + 10 * 100 + 5
    assert found.files == 10 * found.shards + 10 * 100 + 5
    assert found.commit < 1
    again = figures(1_000_000, Cluster(25), found.shards)
    assert (again.shards, again.files) == (found.shards, 10 * 64 * 2 + 5)


def test_an_output_gets_one_file_or_files_that_a_store_copies_by_itself():
    """1.5 GB of 100 tasks are two files; tasks whose files have half a GiB or more leave these as they are."""
    assert output_files(96e6, 100) == (1, 1)
    assert output_files(1.5e9, 100) == (2, 2)
    assert output_files(6e9, 10) == (10, 0)


@pytest.mark.parametrize("load", ["100 GB", "1 TB"])
def test_a_batch_after_a_smaller_load_writes_little_of_the_manifest_too(load):
    assert loads()[load][1].manifest < ASKED["manifest"]


def test_the_table_has_a_load_and_a_batch_of_each_size(capsys):
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1::2]] == ["100 GB", "1 TB", "10 TB"]
    assert all("1 GB" in line for line in lines[2::2])
