"""The cases of commands that look into a state: the rows of one group among many, the rows of one hour in a year that made a sum wrong, the effect of an edit, ten scenarios, a slice that is verified, and a branch that begins."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.commands.branch import branches, drop
from tests.bench.files import Program, figure, median, side_by_side, size
from tests.bench.processes import dd, measure
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.files import Session

CITIES, EACH = 750, 100
"""Cities, and customers of each."""
HOURS, WRONG = 8_760, 7_000
"""The hours of a year, and the one with wrong rows."""
PLACED = """\
name: placed
inputs:
  orders: {path: in/orders/, columns: {order: int64, customer: int64, amount: int64}}
  customers: {path: in/customers/, columns: {customer: int64, city: string}}
collections:
  by_city:
    from: orders
    apply:
      - join: {with: customers, 'on': [customer]}
      - reduce: {by: [city], n: count(*), total: sum(amount)}
outputs: {by_city: out/}
"""
SALES = """\
name: sales
inputs: {orders: {path: in/orders/, columns: {order: int64, region: string, amount: int64}}}
collections: {sales: {from: orders, apply: [{filter: amount <> 0}]}}
outputs: {sales: out/}
"""


def _placed(folder: Path, rows: int) -> tuple[Path, np.ndarray]:
    """Run the pipeline of orders by the city of their customers; return its file and the customers of the orders."""
    rng = np.random.default_rng(1)
    customers = np.arange(CITIES * EACH)
    _write(folder, "customers", {"customer": customers, "city": [f"city {at % CITIES}" for at in customers]})
    customer = rng.integers(0, len(customers), rows)
    _write(folder, "orders", {"order": np.arange(rows), "customer": customer, "amount": rng.integers(1, 1_000, rows)})
    return _run(folder, PLACED), customer


def effect(session: Session) -> list[Figure]:
    """Show the effect of an edit above the last reduction of 1.7 M orders (of ten million rows), verify a slice of its groups, and begin a branch."""
    rows, folder = session.rows * 17 // 100, session.place("effect")
    pipeline, customer = _placed(folder, rows)
    edited = folder / "edited" / "pipeline.yaml"
    edited.parent.mkdir()
    edited.write_text(PLACED.replace("total: sum(amount)}\n", "total: sum(amount)}\n      - filter: n > 0\n"), "utf-8")
    state = folder / ".dd" / "placed"
    measured = side_by_side({"dd": Program(dd("diff", "--against", state, edited, "-o", "json"))}, session.runs)
    found = json.loads(measured["dd"][0].stdout)["outputs"]["by_city"]
    cities = len(set((customer % CITIES).tolist()))
    if found["rows"] != {"same": cities, "removed": 0, "changed": 0, "added": 0}:
        raise AssertionError(f"dd diff --against found {found['rows']}")
    title = f"dd diff --against, an edit above the groups of {size(rows)} orders"
    figures = [figure(title, measured, Asked(seconds=0.5), {}, full=session.full)]
    measured = side_by_side({"dd": Program(dd("verify", pipeline, "--slice", "1/750", "-o", "json"))}, session.runs)
    answer = json.loads(measured["dd"][0].stdout)
    if not answer["same"] or answer["outputs"]["by_city"]["column"] != "city":
        raise AssertionError(f"dd verify found {answer}")
    title = f"dd verify, a 750th of the groups of {size(rows)} orders, through a join"
    figures.append(figure(title, measured, Asked(), {}, full=session.full))
    begin = Program(dd("branch", "new", "b", pipeline, "-o", "json"), partial(_drop, pipeline))
    measured = side_by_side({"dd": begin}, session.runs)
    if json.loads(measured["dd"][0].stdout)["commit"] != 1:
        raise AssertionError("dd branch new began at another commit")
    title = f"dd branch new, a state of {size(rows)} orders"
    return [*figures, figure(title, measured, Asked(seconds=1), {}, full=session.full)]


def scenarios(session: Session) -> list[Figure]:
    """Compare ten scenarios of 1 000 rows with one, on ten million orders: with files more, and with other values in the rows of an input."""
    rows, folder = session.rows, session.place("scenarios")
    pipeline, customer = _placed(folder, rows)
    many, few = 10, max(rows // 10_000, 1)
    figures = []
    for kind in ("files", "values"):
        whole: dict[str, object] = {}
        for at in range(many):
            first = at * few
            if kind == "values":
                chosen = f"order >= {first} and order < {first + few}"
                whole[f"s{at}"] = {"set": {"orders": {"amount": "amount + 1000", "where": chosen}}}
                continue
            file = folder / f"more-{at}.parquet"
            frame = {
                "order": rows + np.arange(few),
                "customer": customer[first : first + few],
                "amount": np.full(few, 1000),
            }
            more = pl.DataFrame(frame).with_columns(time=pl.lit(1), diff=pl.lit(1))
            more.with_columns(pl.all().cast(pl.Int64)).write_parquet(file)
            whole[f"s{at}"] = {"with": f"orders+={file.name}"}
        programs = {}
        for name, chosen in (("dd", whole), ("one", {"s0": whole["s0"]})):
            (folder / f"{kind}-{name}.yaml").write_text(json.dumps(chosen), encoding="utf-8")
            programs[name] = Program(dd("run", pipeline, "--scenarios", folder / f"{kind}-{name}.yaml", "-o", "json"))
        measured = side_by_side(programs, session.runs)
        found = json.loads(measured["dd"][0].stdout)["by_city"]
        added = {
            at: sum(row["total"] * row["diff"] for row in found if row["scenario"] == f"s{at}") for at in range(many)
        }
        if added != dict.fromkeys(range(many), 1000 * few):
            raise AssertionError(f"the scenarios add {added}, not {1000 * few} each")
        what = "files" if kind == "files" else "new values"
        title = f"{many} scenarios of {what} of {size(few)} rows on {size(rows)} orders: times one"
        ratio = median(measured["dd"]) / median(measured["one"])
        figures += [
            Figure(title, ratio, Asked(seconds=2), full=session.full, unit="x"),
            figure(f"one such scenario of {what}", {"dd": measured["one"]}, Asked(), {}, full=session.full),
        ]
    return figures


def _drop(pipeline: Path) -> None:
    for each in branches(pipeline):
        drop(each.name, pipeline)


def why(session: Session) -> list[Figure]:
    """Explain a group of 2 300 of 1.7 M orders (of ten million rows), by the customers of one city."""
    rows, folder = session.rows * 17 // 100, session.place("why")
    pipeline, customer = _placed(folder, rows)
    measured = side_by_side({"dd": Program(dd("why", pipeline, "by_city", "city=city 7", "-o", "json"))}, session.runs)
    answer = json.loads(measured["dd"][0].stdout)
    expected = int((customer % CITIES == 7).sum()) + EACH
    if answer["read"] != expected:
        raise AssertionError(f"dd why read {answer['read']} rows, not the {expected} of the group")
    title = f"dd why, a group of {size(expected)} of {size(rows)} orders, through a join"
    return [figure(title, measured, Asked(seconds=2), {}, full=session.full)]


def bisect(session: Session) -> list[Figure]:
    """Find four wrong rows in a year of hourly times."""
    rows, folder = session.rows, session.place("bisect")
    rng = np.random.default_rng(1)
    hours, amounts = np.sort(rng.integers(0, HOURS, rows)), rng.integers(1, 100, rows)
    regions = rng.integers(0, 5, rows)
    wrong = np.flatnonzero(hours >= WRONG)[:4]
    amounts[wrong], regions[wrong] = -100 * rows, 2
    names = np.array(["north", "south", "east", "west", "middle"])
    _write(folder, "orders", {"order": np.arange(rows), "region": names[regions], "amount": amounts}, hours)
    pipeline = _run(folder, SALES)
    query = "select sum(amount) from sales where region = 'east'"
    measured = side_by_side({"dd": Program(dd("bisect", pipeline, query, "--good", "> 0", "-o", "json"))}, session.runs)
    found = {each["record"]["order"] for each in json.loads(measured["dd"][0].stdout)["updates"]}
    if not found or not found <= set(wrong.tolist()):
        raise AssertionError(f"dd bisect found {found}, not some of {wrong}")
    title = f"dd bisect, {size(rows)} rows of {size(HOURS)} hours"
    return [figure(title, measured, Asked(seconds=5), {}, full=session.full)]


CALLED = """\
name: called
inputs: {rows: {path: in/rows/, columns: {id: int64, text: string}}}
collections:
  found: {from: rows, apply: [{map: {function: {call: 'trivial:call', memo: MEMO}, columns: {id: int64, text: string}}}]}
outputs: {found: out/}
"""
TRIVIAL = """\
def call(record):
    return {"id": record["id"], "text": record["text"] + "!"}
"""


def calls(session: Session) -> list[Figure]:
    """Call a trivial function for a million records (of ten million rows), which a state then remembers, and without a memory."""
    rows, programs, outputs = session.rows // 10, {}, []
    for program, memo in (("dd", "true"), ("without", "false")):
        folder = session.place(f"calls-{program}")
        _write(folder, "rows", {"id": np.arange(rows), "text": [f"text {at}" for at in range(rows)]})
        (folder / "trivial.py").write_text(TRIVIAL, encoding="utf-8")
        pipeline = folder / "pipeline.yaml"
        pipeline.write_text(CALLED.replace("MEMO", memo), encoding="utf-8")
        programs[program] = Program(dd("run", pipeline, "-q"), partial(_remove, folder))
        outputs.append(folder / "out/*.parquet")
    measured = side_by_side(programs, session.runs)
    counts = [pl.read_parquet(output).height for output in outputs]
    if counts != [rows, rows]:
        raise AssertionError(f"the outputs have {counts} records, not {rows} each")
    ratio = median(measured["dd"]) / median(measured["without"])
    title = f"{size(rows)} remembered calls of a trivial function: times that without a memory"
    return [Figure(title, ratio, Asked(seconds=1.3), full=session.full, unit="x")]


def _remove(folder: Path) -> None:
    for each in (".dd", "out"):
        shutil.rmtree(folder / each, ignore_errors=True)


def _write(folder: Path, name: str, columns: dict[str, object], times: np.ndarray | int = 0) -> None:
    place = folder / "in" / name
    place.mkdir(parents=True)
    frame = pl.DataFrame(columns).with_columns(time=pl.lit(0) if isinstance(times, int) else pl.Series(times), diff=1)
    frame.with_columns(pl.col("time", "diff").cast(pl.Int64)).write_parquet(place / "1.parquet")


def _run(folder: Path, text: str) -> Path:
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(text, encoding="utf-8")
    measure(dd("run", pipeline, "-q"))
    return pipeline
