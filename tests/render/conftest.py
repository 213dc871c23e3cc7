"""A folder in which the tests of reports run commands."""

from tests.cli.conftest import orders

__all__ = ["orders"]
