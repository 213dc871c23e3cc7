"""Comparisons with a state in an object store, and branches of it, as in files: random histories with main at work meanwhile."""

import pytest

from tests.cli.test_branch import History, merged
from tests.compare.test_against_histories import history
from tests.draws import chance, many


@pytest.mark.in_turn
@pytest.mark.parametrize("case", range(many(2)))
def test_the_effect_of_an_edit_is_the_difference_of_two_fresh_states(shop, bucket, case):
    history(shop, chance("against in a store", case), f"{bucket}/", rounds=2)


@pytest.mark.in_turn
@pytest.mark.parametrize("case", range(many(2)))
def test_a_merge_equals_a_run_over_the_union(tmp_path, bucket, case):
    merged(History(tmp_path, chance("branch in a store", case), bucket), steps=4)
