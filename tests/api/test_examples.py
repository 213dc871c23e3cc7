"""The examples in the library's documentation are so."""

import doctest
import importlib
import pkgutil

import pytest

from ddcli import api

MODULES = [module.name for module in pkgutil.iter_modules(api.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name):
    module = importlib.import_module(f"ddcli.api.{name}")
    assert doctest.testmod(module).failed == 0
