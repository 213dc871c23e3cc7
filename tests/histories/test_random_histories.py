"""Some random histories; `python -m tests.histories` follows more of them, and `--case N` one again."""

import pytest

from tests import draws
from tests.histories.steps import follow

CASES = draws.many(20)


@pytest.mark.parametrize("at", range(CASES))
def test_a_history_has_at_each_step_what_duckdb_computes(tmp_path, at):
    """Each day has cases of its own."""
    case = draws.TURN * CASES + at
    wrong, made = follow(tmp_path / "h", draws.chance("history", case), steps=8)
    assert not wrong, "\n".join([*made.steps, wrong])
