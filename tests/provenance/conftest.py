"""A folder in which pipelines with tests are written."""

import pytest

from tests.cli.support import Shop


@pytest.fixture
def shop(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path, capfd)
