"""URIs of databases from pipeline files: parameters that a stranger may not choose, and servers that get no password."""

import socket
import threading

import polars as pl
import pytest

from ddcli.engine.jit.settings import cache_dir
from tests.tables.test_hostile_tables import failed

INPUT = "inputs: {{a: {{database: '{uri}', table: t}}}}\noutputs: {{a: out/}}\n"
OUTPUT = "inputs: {{a: in/}}\noutputs: {{a: {{as: table, to: '{uri}'}}}}\n"
CATALOG = "inputs: {{a: {{iceberg: {{catalog: {{type: sql, uri: '{uri}'}}, table: s.t}}}}}}\noutputs: {{a: out/}}\n"
TABLE = (
    "inputs: {{a: in/}}\noutputs: {{a: {{as: table, iceberg: {{catalog: {{type: sql, uri: '{uri}'}}, table: s.t}}}}}}\n"
)
PARAMETERS = {
    "postgresql://h/d": [
        *("service=prod", "servicefile=/tmp/s", "passfile=/tmp/p", "sslkey=/tmp/k", "sslcert=/tmp/c", "sslrootcert=/x"),
        *("sslkeylogfile=/tmp/out", "options=-c%20search_path%3Devil", "options=-csession_replication_role=replica"),
        *(
            "hostaddr=10.0.0.1",
            "host=evil.example",
            "host=/tmp,evil.example",
            "host=/tmp%2Cevil.example",
            "sslmode=disable",
        ),
        *(
            "sslcrl=/x",
            "sslcrldir=/x",
            "krbsrvname=x",
            "requirepeer=x",
            "sslpassword",
            "gssdelegation=1",
            "replication=true",
        ),
        *(
            "user=a?b@evil.example/d&sslkey=/k",
            "%73slkey=/tmp/k",
            "SSLKEY=/tmp/k",
            "connect_timeout=5&&passfile=/p",
            "",
        ),
    ],
    "mysql://h/d": [
        *("read_default_file=/etc/my.cnf", "local_infile=1", "init_command=drop table t", "ssl_ca=/x", "ssl_key=/x"),
        *("unix_socket=evil", "unix_socket=/s&client_flag=128", "charset=latin1"),
    ],
    "sqlite:///t.db": ["mode=rwc", "vfs=evil", "cache=shared", "load_extension=/tmp/x.so", ""],
    "duckdb:///t.db": ["access_mode=automatic", "allow_unsigned_extensions=true", ""],
}


@pytest.mark.parametrize(("uri", "given"), [(uri, given) for uri, all_ in PARAMETERS.items() for given in all_])
def test_a_file_chooses_only_listed_parameters(shop, uri, given):
    for text in (INPUT, *(() if uri.startswith("mysql") else (OUTPUT,))):
        shop.write("p.yaml", text.format(uri=f"{uri}?{given}"))
        for command in ("check", "run"):
            said = failed(shop, 2, command, "p.yaml").err
            assert "has the parameter" in said or "no password in it" in said
    assert sorted(path.name for path in shop.folder.iterdir() if path.name != "p.yaml") == []


@pytest.mark.parametrize(
    "given",
    ["connect_timeout=1", "sslmode=verify-full&application_name=dd", "host=/nowhere", "user=me&port=9&dbname=d"],
)
def test_listed_parameters_pass(shop, given):
    shop.write("p.yaml", INPUT.format(uri=f"postgresql:///d?host=/nowhere&{given}"))
    assert "the database can't be read" in failed(shop, 3, "check", "p.yaml").err


def test_a_variable_has_all_parameters(shop, monkeypatch):
    """It is a person's own."""
    monkeypatch.setenv("SHOP", "postgresql://h/d?host=/nowhere&sslrootcert=/x&options=-c%20statement_timeout%3D1")
    shop.write("p.yaml", INPUT.format(uri="${SHOP}"))
    assert "the database can't be read" in failed(shop, 3, "check", "p.yaml").err
    shop.write("p.yaml", INPUT.format(uri="${NONE:-postgresql://h/d?sslrootcert=/x}"))
    assert "has the parameter 'sslrootcert=/x'" in failed(shop, 2, "check", "p.yaml").err


@pytest.fixture
def stranger():
    """Return the port of a server at 127.0.0.2, and the list of its visits. It closes each connection."""
    visits = []
    with socket.create_server(("127.0.0.2", 0)) as server:

        def answer():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                visits.append(connection)
                connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1], visits
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


CREDENTIALS = {
    "PGPASSWORD": ("postgresql", {"PGPASSWORD": "hidd3n"}, {}),
    "PGSERVICE": ("postgresql", {"PGSERVICE": "prod"}, {}),
    "pgpass": ("postgresql", {}, {".pgpass": "db.example:*:*:me:other\n*:*:*:*:hidd3n\n"}),
    "PGPASSFILE": ("postgresql", {"PGPASSFILE": "home/passwords"}, {"passwords": "*:5432:*:*:hidd3n\n"}),
    "MYSQL_PWD": ("mysql", {"MYSQL_PWD": "hidd3n"}, {}),
    "my.cnf": ("mysql", {}, {".my.cnf": "[client]\nhost = db.example\npassword = hidd3n\n"}),
}
OWN = {"postgresql": "PGHOST", "mysql": "MYSQL_HOST"}


def prepare(shop, monkeypatch, variables, files):
    for name in ("PGHOST", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "MYSQL_PWD", "MYSQL_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(cache_dir()))  # kernels stay where they are
    monkeypatch.setenv("HOME", str(shop.folder / "home"))
    monkeypatch.chdir(shop.folder)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name, text in files.items():
        shop.write(f"home/{name}", text).chmod(0o600)
    shop.log("in/0.parquet", [(1, 0, 1)], x=pl.Int64, time=pl.Int64, diff=pl.Int64)


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize("text", [INPUT, OUTPUT, CATALOG, TABLE], ids=["input", "output", "catalog", "table"])
def test_no_password_goes_to_a_server_that_a_file_names(shop, monkeypatch, stranger, credential, text):
    product, variables, files = CREDENTIALS[credential]
    if product == "mysql" and text != INPUT:
        pytest.skip("MySQL is for inputs")
    prepare(shop, monkeypatch, variables, files)
    port, visits = stranger
    scheme = "postgresql+psycopg" if text in (CATALOG, TABLE) else product
    for uri in (f"{scheme}://me@127.0.0.2:{port}/d", f"{scheme}://127.0.0.2:{port}/d"):
        shop.write("p.yaml", text.format(uri=uri))
        done = shop("run", "p.yaml")
        assert done.code in (3, 5)
        assert "would go to '127.0.0.2', which only the pipeline file names" in done.err
        assert "hidd3n" not in done.out + done.err
        assert not visits


@pytest.mark.parametrize("credential", ["PGPASSWORD", "pgpass", "MYSQL_PWD", "my.cnf"])
def test_a_server_that_the_environment_names_is_asked(shop, monkeypatch, stranger, credential):
    product, variables, files = CREDENTIALS[credential]
    prepare(shop, monkeypatch, variables, files)
    port, visits = stranger
    uri = f"{product}://me@127.0.0.2:{port}/d"
    monkeypatch.setenv(OWN[product], "127.0.0.2")
    shop.write("p.yaml", INPUT.format(uri=uri))
    assert "the database can't be read" in failed(shop, 3, "check", "p.yaml").err
    assert len(visits) >= 1
    monkeypatch.delenv(OWN[product])
    shop.write("p.yaml", INPUT.format(uri="${SHOP}"))
    assert "the database can't be read" in failed(shop, 3, "check", "p.yaml", "--var", f"SHOP={uri}").err
    seen = len(visits)
    assert seen >= 2
    shop.write("p.yaml", INPUT.format(uri=f"${{NONE:-{uri}}}"))
    assert "would go to" in failed(shop, 3, "check", "p.yaml").err
    assert len(visits) == seen


def test_a_line_of_pgpass_names_its_host(shop, monkeypatch, stranger):
    prepare(shop, monkeypatch, {}, {".pgpass": "127.0.0.2:*:*:*:hidd3n\n"})
    port, visits = stranger
    shop.write("p.yaml", INPUT.format(uri=f"postgresql://me@127.0.0.2:{port}/d"))
    assert "the database can't be read" in failed(shop, 3, "check", "p.yaml").err
    assert visits


@pytest.fixture
def listener():
    """Return the address of a server that notes who connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = []

        def accept():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connected.append(connection)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", connected


PLACES = {
    "input": "inputs: {{a: '{url}'}}\noutputs: {{a: out/}}\n",
    "Delta": "inputs: {{a: {{delta: '{url}'}}}}\noutputs: {{a: out/}}\n",
    "output": "inputs: {{a: in/}}\noutputs: {{a: '{url}'}}\n",
    "table": "inputs: {{a: in/}}\noutputs: {{a: {{as: table, delta: '{url}'}}}}\n",
    "state": "state: '{url}'\ninputs: {{a: in/}}\noutputs: {{a: out/}}\n",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "bucket", ["{server}?", "{server}#", "x@{server}?", "{server}", "{server}%3F", "{server}\\", "bücket?"]
)
def test_a_bucket_is_no_host(shop, listener, place, bucket, monkeypatch):
    """Where buckets are hosts of URLs, another server would else get signed requests with your token."""
    server, connected = listener
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "mine")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    (shop.folder / "in").mkdir()
    pl.DataFrame({"k": [1], "time": [1], "diff": [1]}).write_parquet(shop.folder / "in/1.parquet")
    shop.write("p.yaml", PLACES[place].format(url=f"s3://{bucket.format(server=server)}/a/"))
    problem = "a path has no credentials" if "@" in bucket else "is not the name of a bucket"
    assert problem in failed(shop, 2, "run", "p.yaml").err
    assert connected == []
