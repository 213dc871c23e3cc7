"""A server of Iceberg's REST interface, over a catalog of pyiceberg in SQLite: it answers by the specification what a catalog's clients ask for tables.

A commit whose requirements are not met is refused with 409; without the token the answer is 401.
"""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

TOKEN = "a token"  # noqa: S105 - of the tests' own server
ERRORS = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self):
        self.handle_all()

    do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - names of http.server

    def handle_all(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {"error": {"message": "no token", "type": "NotAuthorizedException", "code": 401}})
            return
        url = urlsplit(self.path)
        with self.server.lock:
            self.server.asked.append(f"{self.command} {url.path}")
            try:
                status, found = self.found(
                    [unquote(each) for each in url.path.split("/")[2:]], body, parse_qs(url.query)
                )
            except tuple(ERRORS) as error:
                code = ERRORS[type(error)]
                status, found = code, {"error": {"message": str(error), "type": type(error).__name__, "code": code}}
        self.answer(status, found)

    def found(self, path, body, query):
        catalog = self.server.catalog
        match self.command, path:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "GET", ["namespaces"]:
                return 200, {"namespaces": [list(each) for each in catalog.list_namespaces()]}
            case "POST", ["namespaces"]:
                catalog.create_namespace(tuple(body["namespace"]))
                return 200, {"namespace": body["namespace"], "properties": {}}
            case "GET" | "HEAD", ["namespaces", name]:
                return 200, {"namespace": [name], "properties": catalog.load_namespace_properties(name)}
            case "GET", ["namespaces", name, "tables"]:
                return 200, {
                    "identifiers": [{"namespace": [name], "name": each[-1]} for each in catalog.list_tables(name)]
                }
            case "POST", ["namespaces", name, "tables"]:
                return 200, self.made(name, CreateTableRequest.model_validate({"location": None, **body}))
            case "GET" | "HEAD", ["namespaces", name, "tables", table]:
                return 200, _answer(catalog.load_table(f"{name}.{table}"))
            case "POST", ["namespaces", name, "tables", table]:
                asked = CommitTableRequest.model_validate(body | {"identifier": {"namespace": [name], "name": table}})
                catalog.commit_table(catalog.load_table(f"{name}.{table}"), asked.requirements, asked.updates)
                return 200, _answer(catalog.load_table(f"{name}.{table}"))
            case "DELETE", ["namespaces", name, "tables", table]:
                catalog.drop_table(f"{name}.{table}")
                return 204, None
        return 404, {"error": {"message": self.path, "type": "NotFoundException", "code": 404}}

    def made(self, name, asked):
        assert not asked.stage_create
        return _answer(
            self.server.catalog.create_table(
                f"{name}.{asked.name}",
                asked.table_schema,
                asked.location,
                asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
                asked.write_order or UNSORTED_SORT_ORDER,
                asked.properties,
            )
        )

    def answer(self, status, found):
        data = b"" if found is None or self.command == "HEAD" else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, properties):
        super().__init__(("127.0.0.1", 0), _Requests)
        self.catalog, self.lock, self.asked = load_catalog("behind", **properties), Lock(), []


def _answer(table):
    found = TableResponse(**{"metadata-location": table.metadata_location, "metadata": table.metadata, "config": {}})
    return json.loads(found.model_dump_json(by_alias=True))


@contextmanager
def rest_server(properties):
    """Start a server over a catalog with these properties; yield the properties by which clients find it, and the list of what they ask."""
    server = _Server(properties)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        uri = f"http://127.0.0.1:{server.server_port}"
        yield {"type": "rest", "uri": uri, "token": TOKEN}, server.asked
    finally:
        server.shutdown()
        server.server_close()
        server.catalog.engine.dispose()
