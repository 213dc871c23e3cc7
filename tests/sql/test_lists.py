"""What is asked of a list that is null, or has nulls: as the standard has it of a subquery, but of a null list null."""

import pytest

from ddcli import Dataflow

CASES = {
    "1 = any(l)": [None, False, True, None, None],
    "2 <> any(l)": [None, False, True, True, True],
    "1 = all(l)": [None, True, False, False, False],
    "1 < all(l)": [None, True, False, None, None],
    "0 < all(l)": [None, True, True, None, None],
    "3 > any(l)": [None, False, True, None, None],
    "4 > any(l)": [None, False, True, True, True],
    "cast(null as bigint) = any(l)": [None, False, None, None, None],
    "not (2 = any(l))": [None, True, False, None, None],
    "list_has_any([], [])": [False] * 5,
    "list_has_all([], [null])": [True] * 5,
    "array_to_string([null], '-') = ''": [True] * 5,
}
LISTS = [None, [], [1, 2], [None, 3], [None, 3]]


@pytest.mark.parametrize("text", CASES)
def test_a_comparison_with_a_list(text):
    dataflow = Dataflow()
    rows = dataflow.input("t", {"n": "int64", "l": "list[int64?]?"})
    output = dataflow.sql(f"select n, {text} as x from t", t=rows).output()
    for number, elements in enumerate(LISTS):
        rows.insert((number, elements))
    rows.close()
    dataflow.step()
    found = dict(record for record, _, _ in output.updates())
    assert [found[number] for number in range(len(LISTS))] == CASES[text]
