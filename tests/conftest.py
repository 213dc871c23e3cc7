"""What all tests share: where the repository is, and what they draw at random: the same each time."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from ddcli.engine import secret
from tests.draws import SEED, chance

ROOT = Path(__file__).resolve().parent.parent

os.environ.pop("COLUMNS", None)  # the width of the terminal that the tests were started from

# A deadline would fail a test for the machine's other work. The same cases are drawn each time, so that a change is judged
# by itself; `make soak` draws new ones. To make a failure small takes minutes: only with DD_SHRINK=1.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink, Phase.explain] if os.environ.get("DD_SHRINK") else [])],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("soak", settings.get_profile("same"), derandomize=False, database=None, max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "same")

if settings.default.derandomize:
    # Else hypothesis also draws numbers and texts that it finds in those modules of ours that are imported by then: other
    # cases with every change of a module, and of the order of the tests.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that draws other cases each time where the profile says the same."""
    for item in items:
        given = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", settings.default)
        if settings.default.derandomize and not given.derandomize:
            raise pytest.UsageError(f"{item.nodeid} sets derandomize=False")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have chance be the same each time, and the secrets of states, by which rows are ordered."""
    random.seed(f"{SEED} {item.nodeid}")
    secret.urandom = chance("secrets", item.nodeid).randbytes


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's folder."""
    return ROOT


@pytest.fixture(scope="session")
def fixtures(root: Path) -> Path:
    """Return the folder of the small real change logs."""
    return root / "fixtures"
