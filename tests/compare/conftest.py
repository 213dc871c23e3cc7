"""A folder in which commands run."""

import pytest

from tests.cli.support import Shop


@pytest.fixture
def shop(tmp_path, monkeypatch, capfd):
    """Return a shop with two tables that differ in each way."""
    monkeypatch.chdir(tmp_path)
    shop = Shop(tmp_path, capfd)
    shop.write("old.csv", "id,region,amount\n1,north,10.5\n2,south,7\n3,,3\n")
    shop.write("new.csv", "id,region,amount\n1,north,10.5\n2,south,8\n4,we|st,1\n")
    return shop
