"""How batches are read by tests of the store."""

import pytest

from ddcli.store.batch import stored_batch


@pytest.fixture(scope="module")
def by_pages():
    """Look keys up by pages in batches however small: those of few rows are read whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_batch, "FEW", 0)
        yield
