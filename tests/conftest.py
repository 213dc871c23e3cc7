"""What all tests share: where the repository is, and how hypothesis searches."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

os.environ.pop("COLUMNS", None)  # the width of the terminal that the tests were started from

# A deadline would fail a test for the machine's other work. CI draws the same cases each time, so that a change is
# judged by itself; people and nights draw new ones (`HYPOTHESIS_PROFILE=search` for more of them).
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("search", settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's folder."""
    return ROOT


@pytest.fixture(scope="session")
def fixtures(root: Path) -> Path:
    """Return the folder of the small real change logs."""
    return root / "fixtures"
