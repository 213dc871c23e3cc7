"""Tables that a stranger wrote: their paths and properties choose no other file, no code, no server, and a command ends as documented."""

import http.server
import json
import os
import random
import re
import threading

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from tests.adversary.case import DOCUMENTED
from tests.draws import SEED, many, some
from tests.tables.histories import properties_of

DELTA = "inputs: {a: {delta: t/}}\noutputs: {a: out/}\n"
VALUES = [
    None, True, -1, 0, 2**63, 2**70, 1e308, "", "\0", "\x1b[31m", "../../x", "[", [], {}, [[]], {"a": {}}, "9" * 5000, -(2**63),
    "file:///etc/passwd", "s3://x/y",
]  # fmt: skip


@pytest.fixture
def secret(shop):
    """Return a Parquet file beside the pipeline's folder, with a text that no output may have."""
    path = shop.folder / "elsewhere/secret.parquet"
    path.parent.mkdir()
    pl.DataFrame({"id": [666], "s": ["TOPSECRET"]}).write_parquet(path)
    return path


def failed(shop, code, *command):
    """Call a command that must end with this code; return its messages."""
    result = shop(*command)
    assert result.code == code, result.err
    return result


def outputs(folder):
    return [text for path in (folder / "out").rglob("*.parquet") for text in pl.read_parquet(path)["s"].to_list()]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "form",
    ["../elsewhere/secret.parquet", "%2e%2e/elsewhere/secret.parquet", "%252e%252e/elsewhere/secret.parquet", "..\\elsewhere\\secret.parquet",
     ".\t./elsewhere/secret.parquet", "{path}", "file://{path}", "http://127.0.0.1:9/x.parquet", "s3://bucket/x.parquet"],
)  # fmt: skip
def test_a_delta_log_names_only_files_of_its_table(shop, secret, form, first):
    write_deltalake(str(shop.folder / "t"), pl.DataFrame({"id": [1], "s": ["a"]}).to_arrow())
    shop.write("p.yaml", DELTA)
    assert first or shop("run", "p.yaml").code == 0
    add = {
        "path": form.format(path=secret),
        "size": secret.stat().st_size,
        "partitionValues": {},
        "modificationTime": 1,
    }
    lines = [{"commitInfo": {"timestamp": 1}}, {"add": add | {"dataChange": True}}]
    (shop.folder / "t/_delta_log/00000000000000000001.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    result = shop("run", "p.yaml")
    assert result.code == 3
    assert "outside of its folder" in result.err
    assert "TOPSECRET" not in outputs(shop.folder)


def test_a_checkpoint_names_only_files_of_its_table(shop, secret):
    place = shop.folder / "t"
    write_deltalake(str(place), pl.DataFrame({"id": [1], "s": ["a"]}).to_arrow())
    shop.write("p.yaml", DELTA)
    DeltaTable(str(place)).create_checkpoint()
    path = place / "_delta_log/00000000000000000000.checkpoint.parquet"
    frame, named = pl.read_parquet(path), pl.lit(str(secret))
    frame.with_columns(
        pl.col("add").struct.with_fields(path=pl.when(pl.field("path").is_not_null()).then(named))
    ).write_parquet(path)
    (place / "_delta_log/00000000000000000000.json").unlink()
    result = shop("run", "p.yaml")
    assert result.code == 3
    assert "TOPSECRET" not in outputs(shop.folder)


def test_a_pipe_in_a_delta_table_is_refused(shop):
    write_deltalake(str(shop.folder / "t"), pl.DataFrame({"id": [1], "s": ["a"]}).to_arrow())
    shop.write("p.yaml", DELTA)
    (data,) = (shop.folder / "t").glob("*.parquet")
    data.unlink()
    os.mkfifo(data)
    assert "not a plain file" in failed(shop, 3, "run", "p.yaml").err
    data.unlink()
    os.mkfifo(shop.folder / "t/_delta_log/00000000000000000001.json")
    assert "not a plain file" in failed(shop, 3, "run", "p.yaml").err


@pytest.fixture
def items(shop):
    """Return the newest metadata of a table of Iceberg that a pipeline reads."""
    catalog = load_catalog("default", **properties_of(shop.folder))
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.items", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    table.append(pa.table({"id": [1, 2], "s": ["a", "b"]}))
    listed = ", ".join(f"{name}: '{value}'" for name, value in properties_of(shop.folder).items())
    shop.write(
        "p.yaml", f"inputs: {{a: {{iceberg: {{catalog: {{{listed}}}, table: shop.items}}}}}}\noutputs: {{a: out/}}\n"
    )
    return shop.folder / table.metadata_location.removeprefix("file://")


@pytest.fixture
def server():
    """Return the address of a server, and the requests that it gets."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(dict(self.headers))
            self.send_response(404)
            self.end_headers()

        do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}", requests
        found.shutdown()


COMMANDS = [("check", "p.yaml"), ("plan", "p.yaml"), ("explain", "p.yaml"), ("run", "p.yaml", "--no-code")]


def test_properties_of_a_table_name_no_code(shop, items):
    code = shop.folder / "evil.ini"
    run = "__import__('pathlib').Path('PWNED').touch()"
    code.write_text(
        f"[formatters]\nkeys=\n[loggers]\nkeys=root\n[logger_root]\nhandlers=h\n[handlers]\nkeys=h\n[handler_h]\nclass={run} and None\n"
    )
    tree = json.loads(items.read_text())
    tree["properties"] |= {
        "py-io-impl": "logging.config.fileConfig",
        str(code): "x",
        "write.py-location-provider.impl": "os.abort",
    }
    items.write_text(json.dumps(tree))
    for command in COMMANDS:
        assert shop(*command).code == 0
    assert not (shop.folder / "PWNED").exists()
    assert sorted(outputs(shop.folder)) == ["a", "b"]


def test_properties_of_a_table_name_no_server(shop, items, server, monkeypatch):
    """Whoever writes a table would else get requests with your token."""
    address, requests = server
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    tree = json.loads(items.read_text())
    tree["properties"] |= {"s3.endpoint": address, "s3.proxy-uri": address, "s3.region": "us-east-1"}
    for place in (
        "s3://bucket/manifest.avro",
        f"{address}/manifest.avro",
        "file:///etc/passwd",
        "gs://bucket/manifest.avro",
    ):
        tree["snapshots"][-1]["manifest-list"] = place
        items.write_text(json.dumps(tree))
        assert "outside of its folder" in failed(shop, 3, "run", "p.yaml").err
    assert requests == []


@pytest.mark.parametrize(
    "key",
    [
        "py-io-impl: os.system",
        "py-catalog-impl: this.d",
        "s3.endpoint: 'http://example.org'",
        "token: x",
        "init_catalog_tables: 'true'",
    ],
)
def test_a_pipeline_file_has_only_listed_properties(shop, key):
    uri = "sqlite:///catalog.db"
    shop.write(
        "p.yaml",
        f"inputs: {{a: {{iceberg: {{catalog: {{type: sql, uri: '{uri}', {key}}}, table: s.t}}}}}}\noutputs: {{a: out/}}\n",
    )
    assert f"unknown key '{key.partition(':')[0]}'" in failed(shop, 2, "check", "p.yaml").err


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:9",
        "sqlite:///c.db?plugin=x",
        "sqlite:///file:c.db",
        "postgresql://h/d?passfile=/etc/passwd",
        "mysql://h/d",
    ],
)
def test_a_pipeline_file_describes_catalogs_in_databases(shop, uri):
    shop.write(
        "p.yaml", f"inputs: {{a: {{iceberg: {{catalog: {{uri: '{uri}'}}, table: s.t}}}}}}\noutputs: {{a: out/}}\n"
    )
    assert "can't be a database" in failed(shop, 2, "check", "p.yaml").err


def test_a_configuration_in_the_current_folder_is_not_read(shop, monkeypatch):
    """The package reads it, and it may be part of what a stranger sent."""
    monkeypatch.setenv("HOME", str(shop.folder / "home"))
    monkeypatch.chdir(shop.folder)
    shop.write(".pyiceberg.yaml", "catalog:\n  prod:\n    uri: sqlite:///c.db\n    py-io-impl: os.system\n")
    shop.write("p.yaml", "inputs: {a: {iceberg: {catalog: prod, table: s.t}}}\noutputs: {a: out/}\n")
    assert "the current folder" in failed(shop, 3, "check", "p.yaml").err


@pytest.mark.parametrize("what", ["snap-*.avro", "*-m0.avro"])
def test_a_missing_manifest_is_named(shop, items, what):
    (path,) = items.parent.glob(what)
    path.unlink()
    assert path.name in failed(shop, 3, "run", "p.yaml").err


def places(tree, at=()):
    """Yield the paths of all values in a tree of JSON."""
    if at:
        yield at
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(value, (*at, key))


def changed(tree, draw):
    """Change a value of a tree, or leave it out."""
    *above, last = draw.choice([*places(tree)])
    parent = tree
    for key in above:
        parent = parent[key]
    if draw.random() < 0.15:
        del parent[last]
    else:
        parent[last] = draw.choice(VALUES)


@pytest.mark.parametrize("seed", range(many(30)))
def test_changed_metadata_of_iceberg_end_as_documented(shop, items, seed):
    draw = random.Random(f"{SEED}-{seed}")
    if seed % 3 == 0:
        path = draw.choice([*items.parent.glob("*.avro")])
        data = bytearray(path.read_bytes())
        for _ in range(draw.choice([1, 3, 10])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
    else:
        tree = json.loads(items.read_text())
        changed(tree, draw)
        items.write_text(json.dumps(tree))
    result = shop(draw.choice(["run", "check", "plan"]), "p.yaml")
    assert result.code in DOCUMENTED, result.err


@pytest.mark.parametrize("seed", range(many(30)))
def test_changed_logs_of_delta_end_as_documented(shop, seed):
    draw = random.Random(f"{SEED}-{seed}")
    place = shop.folder / "t"
    write_deltalake(str(place), pl.DataFrame({"id": [1, 2], "s": ["a", "b"]}).to_arrow())
    shop.write("p.yaml", DELTA)
    if draw.random() < 0.5:
        assert shop("run", "p.yaml").code == 0
        write_deltalake(str(place), pl.DataFrame({"id": [3], "s": ["c"]}).to_arrow(), mode="append")
    if seed % 5 == 0:
        text = draw.choice(
            ["[" * 200_000, '{"version":1e400}', '{"version":-5}', '{"version":99999999999999999999}', "[]", "1"]
        )
        (place / "_delta_log/_last_checkpoint").write_text(text)
    else:
        path = draw.choice([*(place / "_delta_log").glob("*.json")])
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        changed(draw.choice(lines), draw)
        path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    result = shop(draw.choice(["run", "run", "check", "plan"]), "p.yaml")
    assert result.code in DOCUMENTED, result.err
    assert re.search(r"\x1b", result.err) is None


HOSTILE = {
    "py-io-impl": "builtins.exec",
    "dd.configured-io": "builtins.exec",
    "py-catalog-impl": "os.abort",
    "s3.retry-strategy-impl": "os.abort",
    "auth": "custom",
    "s3.endpoint": "ADDRESS",
    "s3.proxy-uri": "ADDRESS",
    "s3.signer": "S3V4RestSigner",
    "s3.signer.uri": "ADDRESS",
    "oauth2-server-uri": "ADDRESS",
    "token": "theirs",
    "credential": "theirs:theirs",
    "header.Authorization": "Bearer theirs",
    "rest.sigv4-enabled": "true",
    "uri": "ADDRESS",
    "warehouse": "ADDRESS",
    "ssl": "/etc/passwd",
    "adls.account-host": "ADDRESS",
    "gcs.service.host": "ADDRESS",
    "hf.endpoint": "ADDRESS",
    "hdfs.host": "127.0.0.1",
}
"""Properties that a server answers: each would run code, or send requests or a token elsewhere."""


@pytest.fixture
def catalog(items, monkeypatch):
    """Return the answers of a server with a catalog, by path, and the requests that it gets: a person's configuration names it, with a token."""
    tree = json.loads(items.read_text())
    table = {"metadata-location": f"file://{items}", "metadata": tree, "config": {}}
    answers = {"/v1/config": {"defaults": {}, "overrides": {}}, "/v1/namespaces/shop/tables/items": table}
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append((self.path, dict(self.headers)))
            answer = answers.get(self.path.partition("?")[0])
            self.send_response(302 if isinstance(answer, str) else 404 if answer is None else 200)
            if isinstance(answer, str):
                self.send_header("Location", answer)
            self.end_headers()
            self.wfile.write(json.dumps(answer or {"error": {"message": "", "type": "", "code": 404}}).encode())

        do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "rest")
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"http://127.0.0.1:{found.server_port}")
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", "mine")
        yield answers, requests
        found.shutdown()


@pytest.mark.parametrize("name", [*some(HOSTILE)])
@pytest.mark.parametrize("where", ["defaults", "overrides", "config", "storage", "metadata"])
def test_a_server_of_a_catalog_chooses_no_code_and_no_other_server(shop, catalog, server, where, name, monkeypatch):
    """Whatever it answers: the rows are right, or the run is refused."""
    (answers, requests), (address, elsewhere) = catalog, server
    monkeypatch.setenv("AWS_SESSION_TOKEN", "mine")
    value = HOSTILE[name].replace("ADDRESS", address)
    table = answers["/v1/namespaces/shop/tables/items"]
    if where in ("defaults", "overrides"):
        answers["/v1/config"][where][name] = value
    elif where == "storage":
        table["storage-credentials"] = [{"prefix": "file:", "config": {name: value}}]
    else:
        (table["config"] if where == "config" else table["metadata"]["properties"])[name] = value
    shop.write("p.yaml", "inputs: {a: {iceberg: {catalog: prod, table: shop.items}}}\noutputs: {a: out/}\n")
    result = shop("run", "p.yaml", "--no-code")
    assert result.code in (0, 3), result.err
    if result.code == 0:
        assert sorted(outputs(shop.folder)) == ["a", "b"]
    else:
        assert (name, where) == ("uri", "overrides")
        assert "names another server" in result.err
    assert elsewhere == []
    assert {headers.get("Authorization") for _, headers in requests} == {"Bearer mine"}


def test_a_redirect_of_a_catalog_takes_no_token_along(shop, catalog, server):
    (answers, _), (address, elsewhere) = catalog, server
    answers["/v1/namespaces/shop/tables/items"] = f"{address}/v1/table"
    shop.write("p.yaml", "inputs: {a: {iceberg: {catalog: prod, table: shop.items}}}\noutputs: {a: out/}\n")
    assert shop("run", "p.yaml").code == 3
    assert [headers.get("Authorization") for headers in elsewhere] == [None] * len(elsewhere)
    assert "mine" not in str(elsewhere)
