"""Messages quote what comes from elsewhere, however much that is."""

import pytest

from ddcli.cli.annotations import annotation
from ddcli.errors import LONGEST, InputError


@pytest.mark.parametrize("shown", [lambda error: error.render(), annotation], ids=["text", "annotation"])
def test_a_message_has_a_bounded_length(shown):
    """A file of zeros is one name of a column, of as many characters as the file has bytes."""
    hint = "its columns are " + "x" * LONGEST * 2 + "; say which"
    text = shown(InputError("no column " + "\0" * 10_000_000, place="in/a.csv", hint=hint))
    assert "in/a.csv: " in text
    assert "no column \\x00\\x00" in text
    assert text.endswith("; say which")
    assert len(text) < 6 * LONGEST
