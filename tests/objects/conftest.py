"""An S3 server of this machine, and a bucket for each test."""

import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from ddcli.store.files import objects
from ddcli.store.files.objects import ObjectPath
from tests.harness import await_answer, same_environment
from tests.objects.clouds import azure_server, google_server

NUMBERS = count()
STORE = os.environ.get("DD_STORE", "s3")
"""The store of the tests that are of no certain one: s3, gs or az."""
SERVER = """
import io, sys, time
from functools import lru_cache
from moto.core import errors, serialize
from moto.s3.models import FakeKey
from moto.server import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

class Handler(WSGIRequestHandler):
    # As real servers do, keeps a connection: werkzeug closes each, and a thread and a connection a request cost more than its answer.
    protocol_version = "HTTP/1.1"

    def run_wsgi(self):
        began = []
        if self.command in {"PUT", "POST", "DELETE"} and "Credential=reader/" in self.headers.get("Authorization", ""):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b"<Error><Code>AccessDenied</Code><Message>reader may only read</Message></Error>"
            self.wfile.write(b"HTTP/1.1 403 Forbidden" + bytes([13, 10]) + b"Content-Length: %d" % len(body) + bytes([13, 10]) * 2 + body)
            return
        time.sleep(float(sys.argv[2]))
        environ = self.make_environ()
        environ["wsgi.input"] = io.BytesIO(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        body = b"".join(self.server.app(environ, lambda *given: began.extend(given)))
        lines = [f"HTTP/1.1 {began[0]}", *(f"{name}: {value}" for name, value in began[1])]
        head = (chr(13) + chr(10)).join([*lines, "", ""]).encode("latin-1")
        self.wfile.write(head if self.command == "HEAD" else head + body)

tag = FakeKey.etag.fget

def locked(self):
    with self.lock:
        return tag(self)

# moto reads an object for its entity tag without the lock by which others read it: one that lists would take the bytes from one that gets.
FakeKey.etag = property(locked)

# Else an answer of an error makes all errors that there are, and a list parses the time of each object.
known = errors.ErrorLookupFactory()
errors.ErrorLookupFactory = lambda: known
serialize.parse_to_aware_datetime = lru_cache(serialize.parse_to_aware_datetime)
make_server("127.0.0.1", int(sys.argv[1]), create_backend_app("s3"), threaded=True, request_handler=Handler).serve_forever()
"""


@contextmanager
def s3_server(log, delay=0.0):
    """Start a server in a process of its own, which writes to `log`, and put it and its credentials into the environment; yield its address. It waits for `delay` seconds before each answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(port), str(delay)]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as server:
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
            try:
                yield url
            finally:  # or what is wrong with its user would wait for it, unseen
                server.terminate()


class Refusing(BaseHTTPRequestHandler):
    """A store that lets nobody in."""

    def do_GET(self):
        body = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_PUT = do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815 - the base class has named them

    def log_message(self, *_):
        pass


@contextmanager
def refusing():
    """Yield the address of a store that refuses each request."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory):
    """Return the address of a server for all tests."""
    with s3_server(tmp_path_factory.mktemp("server") / "log") as url:
        yield url


@pytest.fixture
def no_large_copies(monkeypatch):
    """Have the store refuse to copy objects of more than 100 bytes by itself, as others refuse those of more than 5 GiB."""
    import obstore
    from obstore.exceptions import GenericError

    copy = obstore.copy

    def refusing(store, source, target):
        if obstore.head(store, source)["size"] > objects.COPIED:
            raise GenericError("InvalidRequest: the copy source is larger than the maximum allowable size")
        copy(store, source, target)

    monkeypatch.setattr(objects, "COPIED", 100)
    monkeypatch.setattr(obstore, "copy", refusing)


@pytest.fixture(scope="session")
def google(tmp_path_factory):
    """Return what makes a bucket of Google's store."""
    with google_server(tmp_path_factory.mktemp("google") / "log") as make:
        yield make


@pytest.fixture(scope="session")
def azure(tmp_path_factory):
    """Return what makes a container of Azure's store."""
    with azure_server(tmp_path_factory.mktemp("azure") / "log") as make:
        yield make


@pytest.fixture
def bucket(request):
    """Return an empty bucket, in the store that the test or DD_STORE names."""
    name, store = f"bucket{next(NUMBERS)}", getattr(request, "param", STORE)
    if store != "s3":
        return ObjectPath.parse(request.getfixturevalue({"gs": "google", "az": "azure"}[store])(name))
    endpoint = request.getfixturevalue("endpoint")
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")):  # noqa: S310 - our own server
        return ObjectPath.parse(f"s3://{name}")
