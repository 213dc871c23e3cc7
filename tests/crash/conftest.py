"""What the crash tests share: the runs of the shop, and file operations in place of the store's."""

import pytest

import ddcli.driver.execute
import ddcli.store.state.batch_lists
import ddcli.store.state.directory
import ddcli.store.state.register
from ddcli.store.files import gate
from tests.crash.nursery import BUNDLES, IDENTITY, LATELY, LISTS, Nursery
from tests.crash.shop import Shop, stages
from tests.secret import SECRET

MANY = gate.MANY
"""Files that are worth threads; elsewhere tests have none."""


@pytest.fixture(scope="package", autouse=True)
def one_identity():
    """Have all states be one, and have one secret, so that what they write can be compared byte by byte; have segments, lists and bundles early,
    and threads.

    In this package only: tests of others come after these in one process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddcli.driver.execute, "new_secret", lambda: SECRET)
        patch.setattr(ddcli.store.state.register, "LATELY", LATELY)
        patch.setattr(gate, "MANY", MANY)
        for name, value in LISTS.items():
            patch.setattr(ddcli.store.state.batch_lists, name, value)
        for name, value in BUNDLES.items():
            patch.setattr(ddcli.store.state.batch_lists, name, value)
        patch.setattr(ddcli.store.state.directory, "new_identity", lambda: IDENTITY)
        yield


@pytest.fixture(scope="package")
def every_stage(tmp_path_factory):
    """Return the shop's runs."""
    return stages(tmp_path_factory.mktemp("stages"))


@pytest.fixture(params=["first", "change", "merge", "out of core", "apply"])
def stage(request, every_stage):
    """Return one of the shop's runs."""
    return every_stage[request.param]


@pytest.fixture
def through(monkeypatch):
    """Return a function that makes a shop's run, or what else is done to it, go through the given file operations."""

    def run(shop, files, do=Shop.run):
        with monkeypatch.context() as patch:
            patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
            return do(shop)

    return run


@pytest.fixture(scope="module")
def nursery():
    """Return the parent of real processes."""
    parent = Nursery()
    yield parent
    parent.close()
