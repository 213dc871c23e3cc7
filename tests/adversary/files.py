"""Hostile input files: cut, changed, of another kind than they say, much larger than they look, deep, wide, or no files at all."""

from __future__ import annotations

import gzip
import io
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from tests.adversary import states
from tests.adversary.case import Case, Numbered
from tests.adversary.damage import FOREIGN, damaged
from tests.adversary.yaml_text import yaml

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tests.adversary.shop import Shop

FILE = "in/hostile"
COLUMNS = {
    "k": "int64?", "s": "string?", "x": "float64?", "b": "bool?", "d": "date?", "t": "datetime[us]?", "n": "decimal(12, 2)?", "day": "int64",
}  # fmt: skip
ROWS = 30
FRAME = pl.DataFrame({
    "k": [row % 7 if row % 5 else None for row in range(ROWS)],
    "s": [f"text {row}" if row % 4 else None for row in range(ROWS)],
    "x": [row / 3 if row % 6 else None for row in range(ROWS)],
    "b": [row % 2 == 0 for row in range(ROWS)],
    "d": [f"2024-01-{row % 28 + 1:02}" for row in range(ROWS)],
    "t": [f"2024-01-{row % 28 + 1:02}T12:00:00" for row in range(ROWS)],
    "n": [f"{row}.25" for row in range(ROWS)],
    "day": [row // 3 for row in range(ROWS)],
}).with_columns(
    pl.col("d").str.to_date(), pl.col("t").str.to_datetime(), pl.col("n").str.to_decimal(scale=2).cast(pl.Decimal(12, 2))
)  # fmt: skip
ENDINGS = ("parquet", "arrow", "csv", "ndjson", "csv.gz", "ndjson.gz")
FORMATS: tuple[dict[str, Any], ...] = (
    {"format": "append"},
    {"format": "append", "late": "advance"},
    {"format": "updates"},
    {"format": "upsert", "key": ["k"]},
    {"format": "upsert", "key": ["s"], "order_by": "x"},
    {"format": "snapshots"},
    {"format": "snapshots", "key": ["k", "s"]},
)


def content(ending: str, frame: pl.DataFrame = FRAME) -> bytes:
    """Return a frame as a file of a kind has it."""
    file = io.BytesIO()
    kind, _, packed = ending.partition(".")
    text = frame.with_columns(pl.col("n").cast(pl.String)) if "n" in frame.columns and kind == "ndjson" else frame
    {
        "parquet": pl.DataFrame.write_parquet,
        "arrow": pl.DataFrame.write_ipc,
        "csv": pl.DataFrame.write_csv,
        "ndjson": pl.DataFrame.write_ndjson,
    }[kind](text, file)
    return gzip.compress(file.getvalue(), 1) if packed else file.getvalue()


def pipeline(how: dict[str, Any], columns: dict[str, str] | None = None) -> str:
    """Return a pipeline that reads the directory of hostile files."""
    return yaml({
        "dd": 1,
        "name": "hostile",
        "inputs": {"a": {"path": f"{FILE}/", "time": "day", "columns": columns or COLUMNS, **how}},
        "errors": "quarantine",
        "collections": {"sums": {"from": "a", "apply": [{"reduce": {"by": ["s"], "rows": "count(*)"}}]}},
        "outputs": {"a": "out/hostile/", "sums": "out/sums/"},
        "tests": [{"name": "sums", "given": {"a": f"{FILE}/0.csv"}, "expect": {"collection": "sums", "unique": ["s"]}}],
    })  # fmt: skip


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run", "hostile.yaml"),
    ("run", "hostile.yaml"),
    ("run", "hostile.yaml", "--dry-run"),
    ("run", "hostile.yaml", "--memory", "256MiB"),
    ("run", "hostile.yaml", "--until", "5"),
    ("plan", "hostile.yaml"),
    ("check", "hostile.yaml"),
    ("test", "hostile.yaml"),
    ("why", "hostile.yaml", "sums", "s=text 1"),
    ("log", FILE),
    ("log", FILE, "--as-of", "latest", "--time", "day", "--columns", yaml(COLUMNS)),
    ("convert", FILE, "out/converted", "--format", "append", "--time", "day", "--columns", yaml(COLUMNS)),
    ("convert", "hostile.yaml", "out/converted", "--input", "a"),
    ("diff", FILE, "in/sales/", "-o", "markdown"),
    ("diff", FILE, FILE, "--plain"),
)


def _write(files: dict[str, bytes], text: str, shop: Shop) -> None:
    (shop.folder / "hostile.yaml").write_text(text)
    for name, data in files.items():
        path = shop.folder / FILE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def damaged_files(_shop: Shop) -> Sequence[Case]:
    """Return files of every kind that are damaged, beside one that is not, or under the name of another kind."""
    whole = {ending: content(ending) for ending in ENDINGS}

    def make(chance: random.Random) -> Case:
        ending = chance.choice(ENDINGS)
        data = whole[ending]
        if ending.endswith(".gz") and chance.random() < 0.5:
            data = gzip.compress(damaged(gzip.decompress(data), chance), 1)
        else:
            data = damaged(data, chance)
        name = chance.choice(ENDINGS) if chance.random() < 0.1 else ending
        files = {f"0.{name}": data}
        if chance.random() < 0.3:
            files[f"1.{ending}"] = whole[ending]
        how = chance.choice(FORMATS)
        return Case(
            f"a damaged {ending} called {name}, {how}", partial(_write, files, pipeline(how)), commands=COMMANDS
        )

    return Numbered(make)


VALUES = (
    *(
        "",
        " ",
        "null",
        "NULL",
        "NaN",
        "-Infinity",
        "1e400",
        "-0",
        "0x10",
        "1_000",
        "9" * 400,
        "-9223372036854775809",
        "1e308",
        "\u0663",
    ),
    *(
        "2024-02-30",
        "0000-00-00",
        "99999-01-01",
        "2024-01-01T25:00:00",
        "-0001-01-01",
        "12:00",
        "2024-01-01T00:00:00+99:99",
    ),
    *(
        "true",
        "TRUE",
        "yes",
        "\x00",
        "\x1b]0;t\x07",
        "\n",
        '"',
        "'",
        ",",
        "\\",
        "\ud83d",
        "\u202e",
        "x" * 100_000,
        "=cmd|' /C calc'!A0",
    ),
    *("[1]", "{}", "[[[[]]]]", '{"a":1}'),
)


def texts(_shop: Shop) -> Sequence[Case]:
    """Return files of text with hostile values in any column, or with hostile lines."""

    def make(chance: random.Random) -> Case:
        lines = content("csv").decode().splitlines()
        records = [json.loads(line) for line in content("ndjson").decode().splitlines()]
        csv = chance.random() < 0.5
        for _ in range(chance.choice((1, 1, 3))):
            at, value = chance.randrange(ROWS), chance.choice(VALUES)
            column = chance.choice(list(COLUMNS))
            if csv:
                cells = lines[at + 1].split(",")
                cells[list(COLUMNS).index(column) % len(cells)] = value if chance.random() < 0.3 else f'"{value}"'
                lines[at + 1] = ",".join(cells)
            else:
                records[at][chance.choice((column, value))] = chance.choice(
                    (value, [value], {value: value}, 1 << 70, 1e308, None)
                )
        end = chance.choice(("\n", "\r\n", "\r", "\n\n", "\x0b"))
        data = end.join(lines if csv else map(json.dumps, records)).encode("utf-8", "surrogatepass")
        if chance.random() < 0.2:
            data = chance.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\0")) + data
        if chance.random() < 0.1:
            data = data.decode(errors="replace").encode("utf-16")
        how = chance.choice(FORMATS)
        files = {f"0.{'csv' if csv else 'ndjson'}": data}
        return Case(f"text with hostile values, {how}", partial(_write, files, pipeline(how)), commands=COMMANDS)

    return Numbered(make)


def _parquet(**columns: Any) -> bytes:
    return content("parquet", pl.DataFrame(columns))


LARGE: dict[str, Callable[[], dict[str, bytes]]] = {
    "a bomb of zeros": lambda: {"0.csv.gz": gzip.compress(bytes(64 << 20))},
    "a bomb of one line": lambda: {"0.ndjson.gz": gzip.compress(b'{"s": "' + b"x" * (32 << 20))},
    "a bomb of empty lines": lambda: {"0.csv.gz": gzip.compress(b"k,s,x,b,d,t,n,day\n" + b"\n" * (32 << 20))},
    "a bomb of brackets": lambda: {"0.ndjson.gz": gzip.compress(b"[" * (4 << 20))},
    "a bomb in a bomb": lambda: {"0.csv.gz": gzip.compress(gzip.compress(bytes(64 << 20)))},
    "a bomb in Parquet": lambda: {"0.parquet": _parquet(s=["x" * (8 << 20)] * 8, day=[1] * 8)},
    "deep objects": lambda: {"0.ndjson": b'{"k":' * 100_000 + b"1" + b"}" * 100_000},
    "deep lists": lambda: {"0.ndjson": b'{"k":1,"day":1,"s":' + b"[" * 100_000 + b"]" * 100_000 + b"}"},
    "objects deep below": lambda: {"0.ndjson": b'{"k":1,"day":1,"s":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}"},
    "columns in a header": lambda: {"0.csv": ",".join(f"c{at}" for at in range(3_000)).encode() + b"\n" + b"1," * 2_999 + b"1\n"},
    "keys in an object": lambda: {"0.ndjson": json.dumps({f"c{at}": at for at in range(3_000)}).encode() + b"\n"},
    "columns in Parquet": lambda: {"0.parquet": _parquet(day=[1], **{f"c{at}": [at] for at in range(3_000)})},
    "columns in Arrow": lambda: {"0.arrow": content("arrow", pl.DataFrame({"day": [1], **{f"c{at}": [at] for at in range(3_000)}}))},
    "nested Parquet": lambda: {"0.parquet": _parquet(day=[1], s=[json.loads("[" * 60 + "1" + "]" * 60)])},
    "a long line": lambda: {"0.csv": b"k,s,x,b,d,t,n,day\n1," + b"x" * (16 << 20) + b",1,true,2024-01-01,2024-01-01T00:00:00,1,1\n"},
    "commas": lambda: {"0.csv": b"k,s,x,b,d,t,n,day\n" + b"," * (4 << 20) + b"\n"},
    "quotes": lambda: {"0.csv": b"k,s,x,b,d,t,n,day\n" + b'"' * (4 << 20) + b"\n"},
    "carriage returns": lambda: {"0.csv": b"k,s,x,b,d,t,n,day\r" + b"\r" * (4 << 20)},
    "a number with many digits": lambda: {"0.ndjson": b'{"k": ' + b"9" * 1_000_000 + b', "day": 1}\n'},
    "files": lambda: {f"{at}.csv": b"k,s,x,b,d,t,n,day\n" for at in range(300)},  # dd log --as-of takes 3 GiB and minutes for 2 000
    "directories in each other": lambda: {"a/" * 200 + "0.csv": b"k,s,x,b,d,t,n,day\n"},
    "partitions": lambda: {f"day={at}/k={at}/0.csv": b"s\nx\n" for at in range(300)},
    "one partition in another": lambda: {"day=1/day=2/0.csv": b"s\nx\n", "day=__HIVE_DEFAULT_PARTITION__/0.csv": b"s\ny\n"},
    "a table of Delta": lambda: {"_delta_log/0.json": b"{}", "0.parquet": content("parquet")},
    "a progress that is deep": lambda: {"_progress.json": b'{"upper":' + b"[" * 100_000, "0.parquet": content("parquet")},
    "a progress that lies": lambda: {"_progress.json": b'{"upper": [[1e400, "x", null]]}', "0.parquet": content("parquet")},
    "a progress of numbers": lambda: {"_progress.json": b'{"upper": [[' + b"9" * 100_000 + b"]]}", "0.parquet": content("parquet")},
    "nothing": lambda: {f"{at}.{ending}": b"" for at, ending in enumerate(ENDINGS)},
    "other things": lambda: {f"{at}.{ending}": data for at, data in enumerate(FOREIGN) for ending in ENDINGS},
}  # fmt: skip


def large(_shop: Shop) -> Iterator[Case]:
    """Yield files that are large in one way."""

    def do(make: Callable[[], dict[str, bytes]], text: str, shop: Shop) -> None:
        _write(make(), text, shop)

    for name, make in LARGE.items():
        for how in FORMATS:
            yield Case(f"{name}, {how}", partial(do, make, pipeline(how)), commands=COMMANDS)


def no_files(_shop: Shop) -> Iterator[Case]:
    """Yield inputs that are something else than files; links are followed where inputs are."""

    def do(thing: Callable[[Shop, Any], None], name: str, shop: Shop) -> None:
        _write({"good.csv": content("csv")}, pipeline(FORMATS[0]), shop)
        path = shop.folder / FILE / name
        states.remove(path)
        thing(shop, path)

    def everything(_shop: Shop, path: Any) -> None:
        path.symlink_to("/")

    def itself(_shop: Shop, path: Any) -> None:
        path.symlink_to(".")

    def memory(_shop: Shop, path: Any) -> None:
        path.symlink_to("/proc/self/mem")

    def endless(_shop: Shop, path: Any) -> None:
        path.symlink_to("/dev/zero")

    def closed_files(_shop: Shop, path: Any) -> None:
        path.mkdir()
        os.mkfifo(path / "pipe.csv")

    # A line of text must fit into memory, as each value must: one of holes is no case of ours.
    things = [thing for thing in states.THINGS if thing is not states.a_file_of_holes]
    for thing in (*things, itself, memory, endless, closed_files, everything):
        for name in ("0.csv", "0.csv.gz", "0.parquet", "0.arrow", "0.ndjson", "_progress.json", "below", "good.csv"):
            if thing is everything and name != "0.csv":
                continue
            yield Case(f"{name} is {thing.__name__}", partial(do, thing, name), commands=COMMANDS)


GENERATORS = (damaged_files, texts, large, no_files)
