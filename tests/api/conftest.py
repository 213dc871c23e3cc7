"""What tests of the library share."""

import pytest

from ddcli.api import Dataflow


@pytest.fixture
def people():
    """Return a dataflow, its input of (manager, employee), and the managers' managers."""
    dataflow = Dataflow()
    manages = dataflow.input("manages", {"manager": "int64", "employee": "int64"})
    skip = manages.join(manages, on={"manager": "employee"}, name="up").map(employee="employee", skip="up.manager")
    return dataflow, manages, skip
