"""An S3 server of this machine, and a bucket for each test."""

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from itertools import count

import pytest

from ddcli.store.files.objects import ObjectPath
from tests.harness import await_answer, same_environment

NUMBERS = count()
SERVER = """
import sys
from moto.server import create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple
WSGIRequestHandler.protocol_version = "HTTP/1.1"  # a connection is kept, as real servers do: there are thousands of requests
WSGIRequestHandler.log_request = lambda *_: None
run_simple("127.0.0.1", int(sys.argv[1]), create_backend_app("s3"), threaded=True)  # moto's own `main` finds out for each request what it is for
"""


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory):
    """Start a server in a process of its own, and put it and its credentials into the environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = (tmp_path_factory.mktemp("server") / "log").open("wb")
    command = [sys.executable, "-c", SERVER, str(port)]
    with said, subprocess.Popen(command, stdout=said, stderr=said) as server:
        found = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        url = found["AWS_ENDPOINT_URL"]
        await_answer(lambda: urllib.request.urlopen(url), urllib.error.URLError, server)  # noqa: S310 - our own server
        with same_environment():
            os.environ |= found
            yield found["AWS_ENDPOINT_URL"]
        server.terminate()


@pytest.fixture
def bucket(endpoint):
    """Return an empty bucket."""
    name = f"bucket{next(NUMBERS)}"
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")):  # noqa: S310 - our own server
        return ObjectPath.parse(f"s3://{name}")
