"""TPC-DS and Nexmark as SQL: every statement that is not refused, one pipeline, held against DuckDB after the load and ten batches.

The data and the statements of TPC-DS come from DuckDB's extension, in an environment of its own: its version has to be that of the
extension. In each batch about a hundredth of a table comes, as much goes, and as much changes; days and times stay.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

from ddcli.errors import DdError
from ddcli.expressions.types import parse_type
from ddcli.plan import logical
from ddcli.plan.relation import Relation
from tests.bench.table import Figure
from tests.bench.tpch import scale_of
from tests.draws import chance
from tests.sql import nexmark
from tests.sql.changes import ChangingTables
from tests.sql.judge import bound
from tests.sql.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.bench.files import Session
    from tests.sql.changes import Frames

VERSION = "1.5.5"
STATIC = ("date_dim", "time_dim")
MOST = 5
"""Statements that may be refused for anything but window functions."""
MAKE = """\
import pathlib, sys, duckdb, duckdb_extension_tpcds
(extension,) = pathlib.Path(duckdb_extension_tpcds.__file__).parent.rglob("tpcds.duckdb_extension")
folder, scale = pathlib.Path(sys.argv[1]), sys.argv[2]
base = duckdb.connect()
base.load_extension(str(extension))
base.execute(f"call dsdgen(sf={scale})")
for (name,) in base.execute("select table_name from duckdb_tables()").fetchall():
    base.execute(f"copy {name} to '{folder}/{name}.parquet'")
for number, text in base.execute("select query_nr, query from tpcds_queries()").fetchall():
    (folder / f"q{number:02}.sql").write_text(text)
(folder / "done").touch()
"""
TYPES = {"Int32": "int32", "Int64": "int64", "String": "string", "Date": "date"}


def made(folder: Path, scale: float) -> Path:
    """Return a folder with the tables and the statements; it is made once."""
    place, environment = folder / f"tpcds-{scale:g}", folder / "tpcds-venv"
    if (place / "done").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    python = environment / "bin/python"
    packages = [f"duckdb=={VERSION}", f"duckdb-extension-tpcds=={VERSION}"]
    for command in (
        [sys.executable, "-m", "venv", environment],
        [python, "-m", "pip", "install", "--quiet", *packages],
        [python, "-c", MAKE, place, f"{scale:g}"],
    ):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"TPC-DS can't be made: {done.stderr}")
    return place


def refused(statements: Mapping[str, str], tables: Frames) -> dict[str, str]:
    """Return why statements are refused, by their names."""
    relations = {}
    for name, frame in tables.items():
        kinds = {
            column: TYPES.get(str(kind)) or f"decimal({kind.precision}, {kind.scale})"
            for column, kind in frame.schema.items()
        }
        schema = {column: parse_type(f"{kind}?") for column, kind in kinds.items()}
        relations[name] = Relation(logical.Source((), schema, name))
    found = {}
    for name, text in statements.items():
        try:
            bound(text, relations)
        except DdError as error:
            found[name] = error.problem
    return found


def judged(title: str, session: Session, tables: ChangingTables, statements: Mapping[str, str]) -> list[Figure]:
    """Return what the load and the batches took; refuse figures of statements that are not what DuckDB makes of them."""
    warehouse = Warehouse(session.place(title.lower().replace(" ", "-").replace(",", "")), tables, statements)
    warehouse.judge(batches=10, part=0.01)
    if warehouse.wrong:
        raise AssertionError(f"{title}: {len(warehouse.wrong)} differ: {dict(list(warehouse.wrong.items())[:5])}")
    load, *batches = warehouse.seconds
    say = f"{title}, {len(statements)} statements, {len(warehouse.filled)} with rows, {sum(map(bool, warehouse.changed.values()))} that change"
    return [
        Figure(f"{say}: load", load, full=False, runs=(load,)),
        Figure(f"{title}: a batch", statistics.median(batches), full=False, runs=tuple(batches)),
    ]


def tpcds(session: Session) -> list[Figure]:
    """Judge TPC-DS's statements, at a tenth of the session's scale."""
    scale = scale_of(session) / 10
    place = made(session.folder, scale)
    statements = {path.stem: path.read_text().strip().rstrip(";") for path in sorted(place.glob("q*.sql"))}
    tables = {path.stem: pl.read_parquet(path) for path in sorted(place.glob("*.parquet"))}
    reasons = refused(statements, tables)
    by_reason = defaultdict(list)
    for name, problem in reasons.items():
        windows = re.search(r"\bover\s*\(", statements[name], re.IGNORECASE)
        by_reason["window functions" if windows else problem].append(name)
    for reason, names in by_reason.items():
        print(f"  refused: {', '.join(names)}: {reason}", file=sys.stderr)
    others = sum(len(names) for reason, names in by_reason.items() if reason != "window functions")
    if others > MOST:
        raise AssertionError(f"more than {MOST} statements are refused: {dict(by_reason)}")
    kept = {name: text for name, text in statements.items() if name not in reasons}
    return judged(f"TPC-DS, SF {scale:g}", session, ChangingTables(tables, chance("tpcds"), static=STATIC), kept)


def nexmarks(session: Session) -> list[Figure]:
    """Judge Nexmark's statements."""
    draw = chance("nexmark")
    events = max(1000, session.rows // 200)
    return judged(
        f"Nexmark, {events} events", session, ChangingTables(nexmark.tables(draw, events), draw), nexmark.QUERIES
    )
