"""Hostile tables of other programs: logs of Delta Lake, metadata of Iceberg, and URIs of databases, each a valid one with changes that mean something."""

from __future__ import annotations

import json
import re
import tempfile
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.adversary.case import Case, Numbered
from tests.adversary.damage import damaged
from tests.tables.histories import DeltaHistory, checkpoint_with_sidecar, properties_of

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    from tests.adversary.shop import Shop

TABLE = "in/table"
HIDDEN = "TOPSECRET"
"""A text in files beside the shop, that no output may have."""
PATHS = [
    *("../../../hidden.parquet", "%2e%2e/%2e%2e/%2e%2e/hidden.parquet", "%252e%252e/../../../hidden.parquet"),
    *(
        "..\\..\\..\\hidden.parquet",
        ".\t./../../hidden.parquet",
        "a/../../../../hidden.parquet",
        "./../../../hidden.parquet",
    ),
    *("HIDDEN", "file://HIDDEN", "file:HIDDEN", "file://localhostHIDDEN", "FILE://HIDDEN", "/../HIDDEN", "//HIDDEN"),
    *(
        "s3://bucket/a.parquet",
        "http://127.0.0.1:9/a.parquet",
        "az://c/a.parquet",
        "gs://b/a.parquet",
        "memory:///a",
        "hdfs://h/a",
    ),
    *(
        "",
        ".",
        "/",
        "/dev/zero",
        "/proc/self/environ",
        "\0",
        "a" * 5000,
        "https://[::1]/a",
        "~/.ssh/id",
        "${HOME}/a",
        "{0}",
    ),
]
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**70, -(2**63), 1e308, "", "\x1b[31m", "9" * 5000, [], {}, [[]], {"a": {}}),
    *(
        "deletionVectors",
        "columnMapping",
        ["unknownFeature"],
        ["deletionVectors"],
        "[" * 20_000,
        "string",
        "decimal(99, 9)",
    ),
]
COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("run", "hostile.yaml"),) * 4,
    *(("run", "hostile.yaml", "--dry-run"), ("check", "hostile.yaml"), ("plan", "hostile.yaml")),
    *(("explain", "hostile.yaml"), ("sql", "select * from a", "--from", "hostile.yaml")),
)


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to all values in a tree of JSON."""
    if at:
        yield at
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(value, (*at, key))


def changed(tree: Any, chance: random.Random, hidden: Path) -> None:
    """Change a value of a tree, or leave it out; most often a path."""
    ways = [*places(tree)]
    named = [
        way
        for way in ways
        if isinstance(way[-1], str) and any(each in way[-1].lower() for each in ("path", "location", "list", "inline"))
    ]
    *above, last = chance.choice(named if named and chance.random() < 0.6 else ways)
    parent = tree
    for key in above:
        parent = parent[key]
    if chance.random() < 0.1:
        del parent[last]
    else:
        value = chance.choice(PATHS if chance.random() < 0.6 else VALUES)
        parent[last] = value.replace("HIDDEN", str(hidden)) if isinstance(value, str) else value


@cache
def delta_files() -> tuple[dict[str, bytes], ...]:
    """Return the files of some tables of Delta Lake, with deletion vectors and checkpoints, also such with sidecars."""
    found = []
    for seed in range(6):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "table"
            history = DeltaHistory(place, Random(seed))
            for _ in range(6):
                history.change()
            if seed > 3:
                checkpoint_with_sidecar(place, alone=seed == 5)
            elif seed % 2:
                DeltaTable(str(place)).create_checkpoint()
                history.change()
            found.append(
                {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
            )
    return tuple(found)


def delta_logs(_shop: Shop) -> Sequence[Case]:
    """Return tables of Delta Lake with changed logs, checkpoints and hints to them."""

    def make(chance: random.Random) -> Case:
        number, seed = chance.randrange(len(delta_files())), chance.randrange(1 << 30)
        return Case(
            f"Delta {number} changed by {seed}", partial(_delta, number, seed), commands=COMMANDS, hidden=HIDDEN
        )

    return Numbered(make)


def leading_to(files: dict[str, bytes], path: str, size: int) -> None:
    """Have the last commit that adds a file add another one, of which all that is stated fits."""
    for name in sorted((name for name in files if re.fullmatch(r"_delta_log/\d+\.json", name)), reverse=True):
        actions = [json.loads(line) for line in files[name].splitlines() if line.strip()]
        if added := [action["add"] for action in actions if "add" in action]:
            added[0] |= {"path": path, "size": size}
            for key in ("deletionVector", "stats"):
                added[0].pop(key, None)
            files[name] = "\n".join(map(json.dumps, actions)).encode()
            return


def write_table(shop: Shop, files: Mapping[str, bytes]) -> None:
    """Write a table, and a pipeline that reads it."""
    for name, data in files.items():
        path = shop.folder / TABLE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    _write(shop, f"{{delta: {TABLE}}}")


def _delta(number: int, seed: int, shop: Shop) -> None:
    chance, files = Random(seed), dict(delta_files()[number])
    hidden = hide(shop)
    if chance.random() < 0.2:
        leading_to(files, chance.choice(PATHS).replace("HIDDEN", str(hidden)), hidden.stat().st_size)
        write_table(shop, files)
        return
    logs = [name for name in files if name.startswith("_delta_log/")]
    for _ in range(chance.choice([1, 1, 2])):
        name = chance.choice([name for name in logs if files.get(name) is delta_files()[number][name]])
        if name.endswith(".parquet"):
            files[name] = _checkpoint(files[name], chance, hidden)
        elif chance.random() < 0.1:
            files[name] = damaged(files[name], chance)
        elif chance.random() < 0.1:
            files[f"_delta_log/{chance.choice([9, 30, 10**19, 2**64 - 1]):020d}.json"] = files[name]
        elif chance.random() < 0.1 and len(logs) > 2:
            del files[name]
        else:
            lines = [json.loads(line) for line in files[name].splitlines() if line.strip()]
            for line in lines if chance.random() < 0.3 else ():
                if "add" in line:
                    kind = chance.choice(["p", "u", "i", "x"])
                    path = chance.choice([*PATHS, "a" * 20, "../" + "a" * 20]).replace("HIDDEN", str(hidden))
                    line["add"]["deletionVector"] = {"storageType": kind, "pathOrInlineDv": path, "offset": chance.choice([1, -1, 2**40]), "sizeInBytes": 34, "cardinality": 1}  # fmt: skip
            changed(chance.choice(lines), chance, hidden)
            if chance.random() < 0.1:
                lines.append({"sidecar": {"path": chance.choice(PATHS), "sizeInBytes": 1, "modificationTime": 1}})
            files[name] = "\n".join(map(json.dumps, lines)).encode()
    if chance.random() < 0.2:
        said = chance.choice(
            [{"version": 99}, {"version": 2**70, "size": 1}, {"version": 3, "parts": 9}, [], {"version": "../x"}]
        )
        files["_delta_log/_last_checkpoint"] = json.dumps(said).encode()
    write_table(shop, files)


def _checkpoint(data: bytes, chance: random.Random, hidden: Path) -> bytes:
    """Return a checkpoint in which one path is another, or some rows are gone; or a damaged one."""
    if chance.random() < 0.2:
        return damaged(data, chance)
    frame = pl.read_parquet(data)
    if chance.random() < 0.3:
        frame = frame.sample(fraction=0.5, seed=1)
    else:
        path = pl.lit(chance.choice(PATHS).replace("HIDDEN", str(hidden)))
        named = pl.when(pl.field("path").is_not_null()).then(path)
        frame = frame.with_columns(pl.col("add").struct.with_fields(path=named))
    with tempfile.NamedTemporaryFile() as file:
        frame.write_parquet(file.name)
        return Path(file.name).read_bytes()


def iceberg_metadata(_shop: Shop) -> Sequence[Case]:
    """Return tables of Iceberg with changed metadata and manifests."""

    def make(chance: random.Random) -> Case:
        seed = chance.randrange(1 << 30)
        return Case(f"Iceberg changed by {seed}", partial(_iceberg, seed), commands=COMMANDS, hidden=HIDDEN)

    return Numbered(make)


def _iceberg(seed: int, shop: Shop) -> None:
    chance, hidden, folder = Random(seed), hide(shop), shop.folder / "in"
    properties = properties_of(folder)
    catalog = load_catalog("default", **properties)
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    table.append(pa.table({"id": [1, 2], "s": ["a", "b"]}))
    table.delete("id = 1")
    catalog.close()
    path = Path(table.metadata_location.removeprefix("file://"))
    for _ in range(chance.choice([1, 1, 2])):
        if chance.random() < 0.25:
            avro = chance.choice([*path.parent.glob("*.avro")])
            avro.write_bytes(damaged(avro.read_bytes(), chance))
        else:
            tree = json.loads(path.read_text())
            changed(tree, chance, hidden)
            path.write_text(json.dumps(tree))
    listed = ", ".join(f"{name}: '{value}'" for name, value in properties.items())
    _write(shop, f"{{iceberg: {{catalog: {{{listed}}}, table: s.t}}}}")


def hide(shop: Shop) -> Path:
    """Write a file beside the shop, with a text that no output may have."""
    path = shop.around / "hidden.parquet"
    columns = {"id": [1], "s": [HIDDEN], "k": [1], "v": [HIDDEN], "p": ["x"], "at": [None]}  # those of the tables
    pl.DataFrame(columns, schema_overrides={"at": pl.Datetime("us", "UTC")}).write_parquet(path)
    return path


def _write(shop: Shop, place: str) -> None:
    text = f"dd: 1\nname: hostile\nclock: arrival\ninputs: {{a: {place}}}\noutputs: {{a: out/hostile/}}\n"
    (shop.folder / "hostile.yaml").write_text(text)


PARAMETERS = [
    *(
        "host=evil.example",
        "hostaddr=10.0.0.1",
        "service=x",
        "passfile=HIDDEN",
        "sslkey=HIDDEN",
        "sslkeylogfile=HIDDEN.log",
    ),
    *(
        "options=-cx%3D1",
        "mode=rwc",
        "vfs=unix-none",
        "load_extension=HIDDEN",
        "read_default_file=HIDDEN",
        "local_infile=1",
    ),
    *(
        "init_command=select 1",
        "%73slkey=x",
        "sslmode=disable",
        "=",
        "&",
        "?",
        "#x",
        "a=b=c",
        "\x1b[31m=1",
        "access_mode=READ_WRITE",
    ),
]


def database_urls(_shop: Shop) -> Sequence[Case]:
    """Return URIs of databases with parameters that a file may not choose, in each place that names one."""

    def make(chance: random.Random) -> Case:
        scheme = chance.choice(
            ["postgresql", "postgres", "mysql", "sqlite", "duckdb", "postgresql+psycopg", "http", "file", "SQLITE"]
        )
        host = chance.choice(["evil.example", "127.0.0.1:9", "a@b@evil.example", "[::1]", ""])
        more = "&".join(chance.sample(PARAMETERS, chance.choice([1, 1, 2, 3])))
        uri = f"{scheme}://{host}/{chance.choice(['d', 'hidden.db', '../hidden.parquet'])}?{more}"
        place = chance.choice(["input", "output", "catalog"])
        return Case(f"{place} {uri!r}", partial(_url, place, uri), commands=COMMANDS, codes=frozenset({2}))

    return Numbered(make)


def _url(place: str, uri: str, shop: Shop) -> None:
    written = json.dumps(uri.replace("HIDDEN", str(hide(shop))))
    if place != "output":
        named = (
            f"{{database: {written}, table: t}}"
            if place == "input"
            else f"{{iceberg: {{catalog: {{type: sql, uri: {written}}}, table: s.t}}}}"
        )
        _write(shop, named)
        return
    _write(shop, "{path: in/sales/, format: append, columns: {day: int64, region: string, amount: int64}}")
    path = shop.folder / "hostile.yaml"
    path.write_text(
        path.read_text().replace("outputs: {a: out/hostile/}", f"outputs: {{a: {{as: table, to: {written}}}}}")
    )


GENERATORS = (delta_logs, iceberg_metadata, database_urls)
