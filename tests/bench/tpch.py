"""TPC-H: each of the 22 queries as the standard writes it, kept up to date by `dd run` and computed again by DuckDB.

The tables are logs: a load without the orders that come later, and a batch in which 3 000 orders come, as many go, with their lines,
and a thousandth of customers and of parts' prices change. DuckDB reads the tables as they stand after the batch, from Parquet files
that somebody else has made for it. Results are compared, quotients to 9 digits: DuckDB has them as floats.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from tests.bench.files import FULL, Program, figure, side_by_side
from tests.bench.processes import ROOT, measure, python
from tests.bench.table import Asked, Figure
from tests.bench.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.files import Session

QUERIES = {path.stem: path.read_text() for path in sorted((ROOT / "tests/bench/queries").glob("q*.sql"))}
TABLES = ("region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem")
LINES = "  {table}: {folder}/{table}/\n"
ORDERS, CHANGED = 1_500_000, 3_000
"""Orders at scale factor 1; those that come in a batch, as many as go, at any scale at which they are few."""
KEYS = {"partsupp": "hash(ps_partkey, ps_suppkey)", "customer": "hash(c_custkey)"}
NEW = {
    "partsupp": "ps_supplycost = (ps_supplycost + 1)::decimal(15, 2)",
    "customer": "c_acctbal = (c_acctbal - 1)::decimal(15, 2)",
}
OF_ORDERS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
NOTHING = Asked()
PEAKS = {"q01": Asked(peak=0.4e9)}
"""What is asked of loads."""
PEER = """\
import sys, duckdb
con = duckdb.connect()
con.sql("set threads = 2")
for table in %r: con.sql(f"create view {table} as select * from '{sys.argv[1]}/{table}.parquet'")
for file in sys.argv[2:]: con.sql(open(file).read()).fetchall()
"""


def changed(scale: float) -> int:
    """Return how many orders come in a batch, and as many go."""
    return min(CHANGED, int(ORDERS * scale) // 10)


def scale_of(session: Session) -> float:
    """Return the scale factor: 1 at the full number of rows."""
    return session.rows / FULL


def query(name: str, scale: float) -> str:
    """Return the text of a query; Q11 asks for a share that hangs on the scale factor."""
    return QUERIES[name].rstrip().rstrip(";").replace("$FRACTION", f"{Decimal('0.0001') / Decimal(repr(scale)):f}")


def pipeline(names: Sequence[str], scale: float) -> str:
    """Return a pipeline file with these queries as outputs."""
    texts = {name: query(name, scale) for name in names}
    read = [table for table in TABLES if any(table in text for text in texts.values())]
    lines = ["inputs:", *(f"  {table}: in/{table}/" for table in read), "collections:"]
    for name, text in texts.items():
        lines += [f"  {name}:", "    sql: |", *(f"      {line}" for line in text.splitlines())]
    return "\n".join([*lines, "outputs:", *(f"  {name}: out/{name}/" for name in names), ""])


def tables(folder: Path, scale: float) -> Path:
    """Return a folder with the logs `load/TABLE/`, `batch/TABLE/` and the tables after both in `now/`; they are made once."""
    place = folder / f"tpch-{scale:g}"
    if (place / "done").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    raw = place / "raw"
    generator = Path(sys.executable).with_name("tpchgen-cli")
    made = subprocess.run(
        [generator, "parquet", "-s", f"{scale:g}", "--output-dir", raw], check=False, capture_output=True, text=True
    )
    if made.returncode:
        raise RuntimeError(f"tpchgen-cli: {made.stderr}")
    con = duckdb.connect()
    con.sql("set threads = 2; set memory_limit = '6GB'")
    con.sql(
        f"create table moved as select o_orderkey as key, (row_number() over (order by hash(o_orderkey, 1)) > {changed(scale)}) as goes "
        f"from '{raw}/orders.parquet' qualify row_number() over (order by hash(o_orderkey, 1)) <= {2 * changed(scale)}"
    )
    for table in TABLES:
        for part in ("load", "batch"):
            (place / part / table).mkdir(parents=True)
        (place / "now").mkdir(exist_ok=True)
        _cut(con, table, f"'{raw}/{table}.parquet'", place)
    con.close()
    shutil.rmtree(raw)
    (place / "done").touch()
    return place


def _cut(con: duckdb.DuckDBPyConnection, table: str, raw: str, place: Path) -> None:
    """Write the log of a table, and the table after the batch."""

    def write(what: str, path: Path) -> None:
        con.sql(f"copy ({what}) to '{path}' (format parquet, compression zstd)")

    log = "{time}::bigint as time, {diff}::bigint as diff"
    load, batch = place / "load" / table / "0.parquet", place / "batch" / table / "1.parquet"
    now = place / "now" / f"{table}.parquet"
    at_first, added, removed = log.format(time=0, diff=1), log.format(time=1, diff=1), log.format(time=1, diff=-1)
    if table in OF_ORDERS:
        key = OF_ORDERS[table]
        comes, goes = (f"{key} in (select key from moved where {condition})" for condition in ("not goes", "goes"))
        write(f"select *, {at_first} from {raw} where not {comes}", load)
        write(
            f"select *, {added} from {raw} where {comes} union all select *, {removed} from {raw} where {goes}", batch
        )
        write(f"select * from {raw} where not {goes}", now)
        return
    write(f"select *, {at_first} from {raw}", load)
    if table not in NEW:
        write(f"select * from {raw}", now)
        return
    changes = f"{KEYS[table]} % 1000 = 0"
    column, value = NEW[table].split(" = ", 1)
    after = f"select * replace ({value} as {column})"
    write(
        f"select *, {removed} from {raw} where {changes} union all ({after}, {added} from {raw} where {changes})", batch
    )
    write(f"{after} from {raw} where {changes} union all select * from {raw} where not {changes}", now)


class Warehouse(Workspace):
    """A pipeline over TPC-H's tables."""

    def arrive(self, logs: Path) -> None:
        """Let the files of some logs be in the inputs, beside those that are there; nothing is copied."""
        for file in sorted(logs.glob("*/*.parquet")):
            (self.input / file.parent.name).mkdir(exist_ok=True)
            target = self.input / file.parent.name / file.name
            if not target.exists():
                target.hardlink_to(file)


def one(session: Session, names: Sequence[str], title: str, asked: Asked, loading: Asked = NOTHING) -> list[Figure]:
    """Load queries as one pipeline, then take in a batch; DuckDB computes them again."""
    scale = scale_of(session)
    made = tables(session.folder, scale)
    place = session.place(f"tpch-{title}")
    warehouse = Warehouse(place, pipeline(names, scale))
    warehouse.arrive(made / "load")
    load = measure(warehouse.command)
    warehouse.save()
    kept = sum(path.stat().st_size for path in (place / ".dd").rglob("*") if path.is_file())
    warehouse.arrive(made / "batch")
    (place / "peer.py").write_text(PEER % (TABLES,))
    texts = [place / f"{name}.sql" for name in names]
    for name, path in zip(names, texts, strict=True):
        path.write_text(query(name, scale))
    programs = {
        "dd": Program(warehouse.command, warehouse.restore),
        "duckdb": Program(python(place / "peer.py", made / "now", *texts)),
    }
    measured = side_by_side(programs, session.runs)
    for name in names:
        compare(name, query(name, scale), place / "out" / name, made / "now")
    size = f"SF {scale:g}"
    return [
        Figure(f"TPC-H {title}, {size}, load", load.wall, loading, peak=load.peak, full=scale == 1, runs=(load.wall,)),
        figure(
            f"TPC-H {title}, {size}, then {changed(scale)} orders in and out",
            measured,
            asked,
            {"duckdb": "duckdb"},
            full=session.full,
        ),
        Figure(f"TPC-H {title}, {size}, state", kept / 1e6, full=False, unit="MB"),
    ]


def compare(name: str, text: str, output: Path, now: Path) -> None:
    """Refuse figures of a query whose output is not what DuckDB finds."""
    con = duckdb.connect()
    for table in TABLES:
        con.sql(f"create view {table} as select * from '{now}/{table}.parquet'")
    meant = con.sql(text)
    found: Counter[tuple[object, ...]] = Counter()
    if any(output.glob("*.parquet")):
        columns = ", ".join(f'"{column}"' for column in meant.columns)
        for *record, count in con.sql(
            f"select {columns}, sum(diff)::bigint from '{output}/*.parquet' group by all"
        ).fetchall():
            found[tuple(record)] += count
    ours = sorted((repr_of(record) for record, count in found.items() for _ in range(count)), key=repr)
    theirs = sorted((repr_of(record) for record in meant.fetchall()), key=repr)
    if len(ours) != len(theirs) or not all(alike(a, b) for a, b in zip(ours, theirs, strict=True)):
        differing = [pair for pair in zip(ours, theirs, strict=False) if not alike(*pair)]
        raise AssertionError(f"{name}: dd has {len(ours)} records, DuckDB {len(theirs)}; {differing[:2]}")


def repr_of(record: Sequence[object]) -> tuple[object, ...]:
    """Return a record with its decimals as floats, as both may have them."""
    return tuple(float(value) if isinstance(value, Decimal) else value for value in record)


def alike(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    """Say whether two records are the same, but for the last digits of numbers."""
    return all(
        math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-6) if isinstance(x, float) and isinstance(y, float) else x == y
        for x, y in zip(a, b, strict=True)
    )


def each(session: Session) -> list[Figure]:
    """Measure each query by itself; and the geometric mean of batch / DuckDB."""
    found, ratios = [], []
    for name in QUERIES:
        figures = one(session, [name], name.upper().replace("Q0", "Q"), NOTHING, PEAKS.get(name, NOTHING))
        found += figures
        ratios.append(figures[1].seconds / figures[1].peers["duckdb"])
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    asked = Asked(seconds=1.0 if scale_of(session) <= 1 else 0.3)
    title = f"TPC-H, SF {scale_of(session):g}, the 22 queries: geometric mean of batch / DuckDB"
    return [*found, Figure(title, mean, asked, full=scale_of(session) in (1, 10), unit="x")]


def all_in_one(session: Session) -> list[Figure]:
    """Measure all queries as outputs of one pipeline."""
    half = Asked(times=0.5, peer="duckdb")
    return one(session, list(QUERIES), "all 22 in one pipeline", half, Asked(seconds=25, peak=4e9))
