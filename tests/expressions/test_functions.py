"""Each listed function against its documented meaning, evaluated as a pipeline would."""

from __future__ import annotations

import pytest

from ddcli.expressions.functions import FUNCTIONS, SYNONYMS
from tests.expressions.support import value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_has_its_documented_value(name: str) -> None:
    """The example of the table is true."""
    function = FUNCTIONS[name]
    assert value(function.example) == value(function.result), function


def test_synonyms_name_functions() -> None:
    """A synonym leads to a function and hides none."""
    assert set(SYNONYMS.values()) <= set(FUNCTIONS)
    assert not set(SYNONYMS) & set(FUNCTIONS)
