"""TPC-H: each of the 22 queries as the standard writes it, kept up to date by `dd run` and computed again by DuckDB, some of them by polars.

The tables are logs: a load without the orders that come later, and a batch in which 3 000 orders come, as many go, with their lines,
and a thousandth of customers and of parts' prices change; above scale factor 1 also a batch of 30 000. DuckDB reads the tables as they stand
after the batch, from Parquet files that somebody else has made for it. Under `--watch` the batch comes, is taken back, comes again, and so on.
Results are compared, quotients to 9 digits: DuckDB has them as floats.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from tests.bench.files import FULL, Program, figure, median, side_by_side
from tests.bench.processes import ROOT, dd, python
from tests.bench.table import Asked, Figure
from tests.bench.watched import commit_after, watching
from tests.bench.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.files import Session

QUERIES = {path.stem: path.read_text() for path in sorted((ROOT / "tests/bench/queries").glob("q*.sql"))}
TABLES = ("region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem")
SOME = ("q01", "q03", "q05", "q06", "q13", "q18")
"""The queries that are measured above scale factor 1, where loading all takes half an hour."""
ORDERS, CHANGED = 1_500_000, (3_000, 30_000)
"""Orders at scale factor 1; those that come in a batch, as many as go, at any scale at which they are few."""
ROUNDS, STILL = 4, 0.2
"""How often a batch comes again under `--watch`, and the seconds after a commit in which the outputs get their names."""
KEYS = {"partsupp": "hash(ps_partkey, ps_suppkey)", "customer": "hash(c_custkey)"}
NEW = {
    "partsupp": "ps_supplycost = (ps_supplycost + 1)::decimal(15, 2)",
    "customer": "c_acctbal = (c_acctbal - 1)::decimal(15, 2)",
}
OF_ORDERS = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
NOTHING = Asked(peer="duckdb")
LOADS = {"q01": Asked(times=2, peak=0.4e9), "q06": Asked(times=2), "q14": Asked(times=2)}
"""What is asked of loads at scale factor 1."""
MEANS = {(1, 3_000): 1.0, (10, 3_000): 0.3, (10, 30_000): 0.6}
POLARS = ROOT / "tests/bench/peers/polars_tpch.py"
"""The program that has polars compute one of `SOME` or of `LOADS` from the same files."""
WATCHED = {1: 0.3, 10: 0.05}
"""What is asked of batch / DuckDB in the geometric mean, by scale factor and orders; and of the smallest batch under `--watch`."""
CHECKED = ("q01", "q04", "q12")
"""Queries that read orders and lines alone."""
CHECKS = """\
checks:
  - {unique: [o_orderkey], of: orders}
  - {not_null: [o_custkey, o_orderdate], of: orders}
  - {in: {o_orderstatus: [O, F, P]}, of: orders}
  - {row: o_totalprice > 0, of: orders}
  - {change: {rows: 10%}, of: orders}
  - {unique: [l_orderkey, l_linenumber], of: lineitem}
  - {refers: {l_orderkey: orders.o_orderkey}, of: lineitem}
  - {row: l_discount between 0 and 0.1, of: lineitem}
  - {row: l_shipdate <= l_receiptdate, of: lineitem}
  - {in: {l_returnflag: [R, A, N]}, of: lineitem}
"""
"""Ten checks, which these tables meet."""
PEER = """\
import sys, duckdb
con = duckdb.connect()
con.sql("set threads = 2")
for table in %r: con.sql(f"create view {table} as select * from '{sys.argv[1]}/{table}.parquet'")
for file in sys.argv[2:]: con.sql(open(file).read()).fetchall()
"""


def changed(scale: float) -> tuple[int, ...]:
    """Return how many orders come in a batch, and as many go: of each batch that is measured, the largest last."""
    return CHANGED if scale > 1 else (min(CHANGED[0], int(ORDERS * scale) // 10),)


def scale_of(session: Session) -> float:
    """Return the scale factor: 1 at the full number of rows."""
    return session.rows / FULL


def query(name: str, scale: float) -> str:
    """Return the text of a query; Q11 asks for a share that hangs on the scale factor: of six digits, as its product with a sum must fit in 38."""
    return QUERIES[name].rstrip().rstrip(";").replace("$FRACTION", f"{Decimal(f'{0.0001 / scale:.6g}'):f}")


def pipeline(names: Sequence[str], scale: float) -> str:
    """Return a pipeline file with these queries as outputs."""
    texts = {name: query(name, scale) for name in names}
    read = [table for table in TABLES if any(table in text for text in texts.values())]
    lines = ["inputs:", *(f"  {table}: in/*/{table}.parquet" for table in read), "collections:"]
    for name, text in texts.items():
        lines += [f"  {name}:", "    sql: |", *(f"      {line}" for line in text.splitlines())]
    return "\n".join([*lines, "outputs:", *(f"  {name}: out/{name}/" for name in names), ""])


def connection() -> duckdb.DuckDBPyConnection:
    """Return a connection to DuckDB that prints nothing while it works."""
    con = duckdb.connect()
    con.sql("set enable_progress_bar = false")
    return con


def tables(folder: Path, scale: float) -> Path:
    """Return a folder with the logs `load/TABLE.parquet` and `batch-ORDERS/TABLE.parquet`, and the tables after both in `now-ORDERS/`; they are made once."""
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
    con = connection()
    con.sql("set threads = 2; set memory_limit = '6GB'")
    most = changed(scale)[-1]
    con.sql(
        f"create table moved as select o_orderkey as key, row_number() over (order by hash(o_orderkey, 1)) as place "
        f"from '{raw}/orders.parquet' qualify place <= {2 * most}"
    )
    for name in ("load", *(f"{part}-{orders}" for part in ("batch", "now") for orders in changed(scale))):
        (place / name).mkdir()
    for table in TABLES:
        _cut(con, table, f"'{raw}/{table}.parquet'", place, changed(scale))
    con.close()
    shutil.rmtree(raw)
    (place / "done").touch()
    return place


def _cut(con: duckdb.DuckDBPyConnection, table: str, raw: str, place: Path, sizes: Sequence[int]) -> None:
    """Write the log of a table, and the table after each of the batches of so many orders: the first of those that the load lacks."""

    def write(what: str, name: str) -> Path:
        path = place / name / f"{table}.parquet"
        con.sql(f"copy ({what}) to '{path}' (format parquet, compression zstd)")
        return path

    log = "{time}::bigint as time, {diff}::bigint as diff"
    at_first, added, removed = log.format(time=0, diff=1), log.format(time=1, diff=1), log.format(time=1, diff=-1)
    if table in OF_ORDERS:
        key, most = OF_ORDERS[table], sizes[-1]

        def moved(first: int, last: int) -> str:
            return f"{key} in (select key from moved where place > {first} and place <= {last})"

        write(f"select *, {at_first} from {raw} where not {moved(0, most)}", "load")
        for orders in sizes:
            comes, goes, never = moved(0, orders), moved(most, most + orders), moved(orders, most)
            write(
                f"select *, {added} from {raw} where {comes} union all select *, {removed} from {raw} where {goes}",
                f"batch-{orders}",
            )
            write(f"select * from {raw} where not {goes} and not {never}", f"now-{orders}")
        return
    write(f"select *, {at_first} from {raw}", "load")
    after = f"select * from {raw}"
    if table in NEW:
        changes = f"{KEYS[table]} % 1000 = 0"
        column, value = NEW[table].split(" = ", 1)
        new = f"select * replace ({value} as {column})"
        after = f"{new} from {raw} where {changes} union all select * from {raw} where not {changes}"
        batch = f"select *, {removed} from {raw} where {changes} union all ({new}, {added} from {raw} where {changes})"
    first = write(after, f"now-{sizes[0]}")
    for orders in sizes[1:]:
        (place / f"now-{orders}" / first.name).hardlink_to(first)
    if table in NEW:
        for orders in sizes:
            write(batch, f"batch-{orders}")


class Warehouse(Workspace):
    """A pipeline over TPC-H's tables. What comes at once is a directory of the input with a file for each table."""

    def arrive(self, logs: Path) -> None:
        """Let the files of some logs be in the inputs, beside those that are there; nothing is copied."""
        waiting = self.folder / logs.name
        shutil.copytree(logs, waiting, copy_function=os.link)
        waiting.rename(self.input / logs.name)

    def leave(self, logs: Path) -> None:
        """Take some logs out of the inputs again."""
        shutil.rmtree(self.input / logs.name, ignore_errors=True)


def one(session: Session, names: Sequence[str], title: str, asked: Asked, loading: Asked = NOTHING) -> list[Figure]:
    """Load queries as one pipeline, then take in a batch of each size, then small ones under `--watch`; DuckDB computes them again."""
    scale = scale_of(session)
    made = tables(session.folder, scale)
    place = session.place(f"tpch-{title}")
    warehouse = Warehouse(place, pipeline(names, scale))
    warehouse.arrive(made / "load")
    programs = {"dd": Program(warehouse.command, warehouse.clear)}
    peers = [name for name in names if [name] == names and name in {*SOME, *LOADS}]
    for name in peers:
        programs["polars"] = Program(python(POLARS, name, place / "polars.parquet", made / "load"))
    first = side_by_side(programs, session.runs if peers else 1)
    for name in peers:
        compare("polars", name, pl.read_parquet(place / "polars.parquet").rows(), query(name, scale), made / "load")
    warehouse.save()
    kept = sum(path.stat().st_size for path in (place / ".dd").rglob("*") if path.is_file())
    (place / "peer.py").write_text(PEER % (TABLES,))
    texts = [place / f"{name}.sql" for name in names]
    for name, path in zip(names, texts, strict=True):
        path.write_text(query(name, scale))
    size = f"SF {scale:g}"
    found = [
        figure(f"TPC-H {title}, {size}, load", first, loading, {"polars": "polars"} if peers else {}, full=scale == 1),
        Figure(f"TPC-H {title}, {size}, state", kept / 1e6, full=False, unit="MB"),
    ]
    again = {}
    for orders in changed(scale):
        batch, now = made / f"batch-{orders}", made / f"now-{orders}"
        warehouse.arrive(batch)
        programs = {
            "dd": Program(warehouse.command, warehouse.restore),
            "duckdb": Program(python(place / "peer.py", now, *texts)),
        }
        for name in peers:
            programs["polars"] = Program(python(POLARS, name, place / "polars.parquet", now))
        measured = side_by_side(programs, session.runs)
        again[orders] = median(measured["duckdb"])
        for name in names:
            compare("dd", name, records_of(place / "out" / name), query(name, scale), now)
        case = f"TPC-H {title}, {size}, then {orders} orders in and out"
        found.append(
            figure(case, measured, asked, {peer: peer for peer in programs if peer != "dd"}, full=session.full)
        )
        warehouse.leave(batch)
    orders = changed(scale)[0]
    taken = under_watch(warehouse, made / f"batch-{orders}")
    for name in names:
        compare("dd", name, records_of(place / "out" / name), query(name, scale), made / f"now-{orders}")
    case = f"TPC-H {title}, {size}, {orders} orders in and out under --watch"
    peers = {"duckdb": again[orders]}
    return [*found, Figure(case, statistics.median(taken), peers=peers, full=session.full, runs=tuple(taken))]


EDITS = {"date": ("1995-03-15", "1995-03-16"), "limit": ("limit 10\n", "limit 11\n")}
"""Edits that only the text of Q3 has a place for: of what it reads, and above its last reduction."""


def effects(session: Session) -> list[Figure]:
    """Show the effect of edits of Q3 in a pipeline of all queries, beside the load of Q3 alone; DuckDB computes the edited queries."""
    scale = scale_of(session)
    made, whole = tables(session.folder, scale), pipeline(list(QUERIES), scale)
    every = Warehouse(session.place("tpch-effect-all"), whole)
    alone = Warehouse(session.place("tpch-effect-q03"), pipeline(["q03"], scale))
    for warehouse in (every, alone):
        warehouse.arrive(made / "load")
    every.load()
    programs = {"load": Program(alone.command, alone.clear)}
    for name, (old, new) in EDITS.items():
        (every.folder / name).mkdir()
        edited = every.folder / name / "pipeline.yaml"
        edited.write_text(whole.replace(old, new))
        against = dd("diff", "--against", every.folder / ".dd" / "pipeline", edited, "--max-changed", "100%")
        programs[name] = Program([*against, "-o", "json"])
        log = every.folder / name / "log"
        shutil.copytree(every.output / "q03", log)
        shown = subprocess.run([*against, "--select", "q03", "-o", "parquet"], check=True, stdout=subprocess.PIPE)
        (log / "changes.parquet").write_bytes(shown.stdout)
        compare("dd", "q03", records_of(log), query("q03", scale).replace(old.strip(), new.strip()), made / "load")
    measured = side_by_side(programs, session.runs)
    title, times = f"TPC-H, SF {scale:g}, dd diff --against", median(measured["date"]) / median(measured["load"])
    return [
        Figure(
            f"{title}, another date in Q3 of 22: times its load", times, Asked(seconds=1.2), full=scale == 1, unit="x"
        ),
        figure(
            f"{title}, another limit in Q3 of 22", {"dd": measured["limit"]}, Asked(seconds=0.5), {}, full=scale == 1
        ),
    ]


def checks(session: Session) -> list[Figure]:
    """Measure a batch of a pipeline over orders and lines with ten checks, beside the same pipeline without."""
    scale, programs = scale_of(session), {}
    made = tables(session.folder, scale)
    orders = changed(scale)[0]
    text = pipeline(CHECKED, scale)
    for name, checked in {"dd": text + CHECKS, "without": text}.items():
        warehouse = Warehouse(session.place(f"tpch-checks-{name}"), checked)
        warehouse.arrive(made / "load")
        warehouse.load()
        warehouse.arrive(made / f"batch-{orders}")
        programs[name] = Program(warehouse.command, warehouse.restore)
    measured = side_by_side(programs, session.runs)
    title = f"TPC-H, SF {scale:g}, {orders} orders in and out, with ten checks"
    ours, without = median(measured["dd"]), median(measured["without"])
    ratio = Figure(f"{title}: times that without", ours / without, Asked(seconds=1.3), full=scale == 1, unit="x")
    return [figure(title, measured, Asked(), {}, full=False), ratio]


def under_watch(warehouse: Warehouse, batch: Path) -> list[float]:
    """Have a watch take in a batch, take it back and so on, and at last take it in; return the seconds of each, those aside that warm it."""
    warehouse.restore()
    con, taken = connection(), []
    with watching(warehouse) as manifests:
        for at in range(1, 2 * ROUNDS):
            waiting = warehouse.folder / f"round-{at}"
            waiting.mkdir()
            for file in batch.glob("*.parquet"):
                again = f"{at}::bigint as time, ({1 if at % 2 else -1} * diff)::bigint as diff"
                con.sql(f"copy (select * replace ({again}) from '{file}') to '{waiting / file.name}'")
            taken.append(commit_after(manifests, waiting, warehouse.input / waiting.name))
            time.sleep(STILL)
    return taken[2:]


def records_of(output: Path) -> list[tuple[object, ...]]:
    """Return the records that the log of an output adds up to, each as often as its multiplicity."""
    log = pl.read_parquet(output / "*.parquet") if any(output.glob("*.parquet")) else pl.DataFrame({"diff": []})
    found: Counter[tuple[object, ...]] = Counter()
    for *record, diff in log.select(pl.exclude("time", "diff"), "diff").iter_rows():
        found[tuple(record)] += diff
    return list(found.elements())


def compare(who: str, name: str, records: Sequence[tuple[object, ...]], text: str, now: Path) -> None:
    """Refuse figures of a query of which somebody's records are not those that DuckDB finds."""
    con = connection()
    for table in TABLES:
        con.sql(f"create view {table} as select * from '{now}/{table}.parquet'")
    ours = sorted(map(repr_of, records), key=repr)
    theirs = sorted(map(repr_of, con.sql(text).fetchall()), key=repr)
    if len(ours) != len(theirs) or not all(alike(a, b) for a, b in zip(ours, theirs, strict=True)):
        differing = [pair for pair in zip(ours, theirs, strict=False) if not alike(*pair)]
        raise AssertionError(f"{name}: {who} has {len(ours)} records, DuckDB {len(theirs)}; {differing[:2]}")


def repr_of(record: Sequence[object]) -> tuple[object, ...]:
    """Return a record with its decimals as floats, as both may have them."""
    return tuple(float(value) if isinstance(value, Decimal) else value for value in record)


def alike(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    """Return whether two records are the same, but for the last digits of numbers."""
    return all(
        math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-6) if isinstance(x, float) and isinstance(y, float) else x == y
        for x, y in zip(a, b, strict=True)
    )


def each(session: Session) -> list[Figure]:
    """Measure each query by itself, above scale factor 1 some of them; and the geometric means of batch / DuckDB."""
    scale, found = scale_of(session), []
    names = list(SOME if scale > 1 else QUERIES)
    ratios: dict[str, list[float]] = {}
    for name in names:
        title = name.upper().replace("Q0", "Q")
        figures = one(session, [name], title, NOTHING, LOADS.get(name, NOTHING))
        found += figures
        for made in figures:
            if "duckdb" in made.peers:
                ratios.setdefault(made.case.split(", ")[-1], []).append(made.seconds / made.peers["duckdb"])
    full = scale in WATCHED
    asked = [*(MEANS.get((int(scale), orders)) for orders in changed(scale)), WATCHED.get(int(scale))]
    for (what, some), bound in zip(ratios.items(), asked, strict=True):
        mean = math.exp(sum(map(math.log, some)) / len(some))
        title = f"TPC-H, SF {scale:g}, {len(names)} queries, {what}: geometric mean of batch / DuckDB"
        found.append(Figure(title, mean, Asked(seconds=bound), full=full, unit="x"))
    return found


def all_in_one(session: Session) -> list[Figure]:
    """Measure all queries as outputs of one pipeline."""
    half = Asked(times=0.5, peer="duckdb")
    return one(session, list(QUERIES), "all 22 in one pipeline", half, Asked(seconds=25, peak=4e9))
