"""An S3 server of this machine, and a bucket for each test."""

import logging
import os
import urllib.request
from itertools import count

import pytest
from moto.server import ThreadedMotoServer

from ddcli.store.objects import ObjectPath

NUMBERS = count()


@pytest.fixture(scope="session")
def endpoint():
    """Start a server, and put it and its credentials into the environment."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    before = dict(os.environ)
    os.environ |= found
    yield found["AWS_ENDPOINT_URL"]
    os.environ.clear()
    os.environ |= before
    server.stop()


@pytest.fixture
def bucket(endpoint):
    """Return an empty bucket."""
    name = f"bucket{next(NUMBERS)}"
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")):  # noqa: S310 - our own server
        return ObjectPath.parse(f"s3://{name}")
