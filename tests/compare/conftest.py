"""A folder in which commands run."""

import pytest


@pytest.fixture
def shop(shop):
    """Return a shop with two tables that differ in each way."""
    shop.write("old.csv", "id,region,amount\n1,north,10.5\n2,south,7\n3,,3\n")
    shop.write("new.csv", "id,region,amount\n1,north,10.5\n2,south,8\n4,we|st,1\n")
    return shop
