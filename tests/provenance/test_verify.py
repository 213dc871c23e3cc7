"""`dd verify`: outputs against their inputs, from the command line."""

import json
import math
import sqlite3
import struct
import tempfile
from collections import Counter
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode
from ddcli.errors import DdError, EngineError
from ddcli.expressions.types import parse_schema
from ddcli.job.request import read_request
from ddcli.provenance.slices import by_title
from ddcli.provenance.verification import Verification, verify
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.gate import Files
from ddcli.store.log.writer import hashed_columns
from ddcli.store.state.contents import batch_path
from ddcli.store.state.entries import OutputEntry
from ddcli.store.state.manifest import read_newest
from tests.draws import chance, many
from tests.harness import ORDER_COLUMNS, ORDERS, files
from tests.judge.case import arrive
from tests.judge.logs import cases
from tests.yaml_text import read_yaml, write_yaml

TEXT = ORDERS.replace(
    "outputs:\n", "  all:\n    from: orders\n    apply: [{reduce: {n: count(*)}}]\noutputs:\n  all: out/all/\n"
)


@pytest.fixture
def ran(orders):
    orders.write("orders.yaml", TEXT)
    assert orders("run", "orders.yaml").code == 0
    return orders


def verified(ran, *options):
    result = ran("verify", "orders.yaml", "-o", "json", *options)
    assert result.out, result
    return result.code, json.loads(result.out)


def test_a_clean_state(ran):
    """Rows that came since are no fault of it."""
    ran.log("orders/9.parquet", [("west", 9, 9, 1)], **ORDER_COLUMNS)
    code, tree = verified(ran, "--slice", "100%")
    assert (code, tree["same"], tree["slice"]) == (0, True, {"number": 1, "parts": 1, "covered": 1})
    assert tree["unproven"] == {"all": "no column's values decide which rows of the inputs matter to it"}
    assert tree["outputs"]["totals"]["column"] == "region"
    code, tree = verified(ran, "--all")
    assert (code, tree["same"], [*tree["outputs"]], tree["unproven"]) == (0, True, ["all", "totals"], {})


def test_a_null_of_one_side_of_a_join_that_is_a_key_of_the_other(shop):
    """The rows with a null key are read as well: they have a value in the column by the other side, whose partners are not read beside them."""
    shop.write(
        "p.yaml",
        """
dd: 1
name: both
inputs: {p: {path: in/, columns: {k: int32?, v: int64?}}}
collections: {pairs: {from: p, apply: [{join: {with: p, as: r, 'on': {v: k}, how: full}}]}}
outputs: {pairs: {path: out/}}
""",
    )
    shop.log(
        "in/1.parquet",
        [(1, 0, 0, 1), (0, None, 0, 1), (None, 4, 0, 1)],
        k=pl.Int32,
        v=pl.Int64,
        time=pl.Int64,
        diff=pl.Int64,
    )
    assert shop("run", "p.yaml").code == 0
    proof = verify(shop.folder / "p.yaml", (0, 1))
    assert proof.same, proof
    assert [(each.column, each.rows) for each in proof.proofs] == [("v", 5)]


def test_slices_of_a_share_cover_all_once_and_then_begin_again(ran):
    """A slice with a difference is not covered, nor one of some outputs; another share begins anew, and `dd reset` knows the file."""
    kept = files(ran.folder)
    for options in (("--slice", "1/4"), ("--slice", "25%", "--select", "totals")):
        assert verified(ran, *options)[1]["slice"]["covered"] is None
    assert files(ran.folder) == kept
    for _ in range(2):
        slices = [verified(ran, "--slice", "25%")[1]["slice"] for _ in range(4)]
        assert sorted(each["number"] for each in slices) == [1, 2, 3, 4]
        assert [each["covered"] for each in slices] == [1, 2, 3, 4]
    assert verified(ran, "--slice", "50%")[1]["slice"]["covered"] == 1
    assert "covered)" in ran("verify", "orders.yaml", "--slice", "50%").out
    (log,) = (ran.folder / "out/totals").glob("*.parquet")
    pl.read_parquet(log).with_columns(amount=pl.lit(1, pl.Int64)).write_parquet(log)
    assert verified(ran, "--slice", "50%")[1]["slice"]["covered"] is None
    for text in (
        "{}",
        '{"parts": 2, "numbers": [2]}',
        '{"parts": 2, "numbers": [1, 0]}',
        '{"parts": 2, "numbers": [-1]}',
    ):
        (ran.folder / ".dd/orders/verified.json").write_text(text)
        result = ran("verify", "orders.yaml", "--slice", "50%")
        assert (result.code, "remove the file" in result.err) == (4, True)
    assert ran("reset", "orders.yaml", "--yes").code == 0
    assert not (ran.folder / ".dd/orders").exists()


def test_a_state_that_can_not_be_written_remembers_no_slice(ran):
    def refused(*_):
        raise EngineError("cannot write the file: Permission denied")

    with patch.object(Files, "put", refused):
        result = ran("verify", "orders.yaml", "--slice", "50%", "-o", "json")
    assert (result.code, json.loads(result.out)["slice"]["covered"]) == (0, None)
    assert "does not remember the slice: cannot write the file" in result.err


def test_records_that_are_missing_too_many_and_others(ran):
    (log,) = (ran.folder / "out/totals").glob("*.parquet")
    before = pl.read_parquet(log)
    frame = before.with_columns(
        region=pl.when(pl.col("region") == "south").then(pl.lit("east")).otherwise("region"),
    )
    frame.write_parquet(log)
    code, tree = verified(ran, "--slice", "1/1", "--select", "totals")
    differ = tree["outputs"]["totals"]["first"]
    assert (code, {(each["diff"], each["record"]["region"]) for each in differ}) == (1, {(1, "south"), (-1, "east")})
    text = ran("verify", "orders.yaml", "--slice", "1/1").out
    assert "by the inputs, not in the log" in text
    assert text.splitlines()[0].endswith(" s, 1 output not verified")
    before.write_parquet(log)
    codes = [ran("verify", "orders.yaml", "--slice", "1/1", *more).code for more in ([], ["--strict"])]
    assert codes == [0, 1]
    assert ran("verify", "orders.yaml", "--all", "--strict").code == 0
    assert "all: not verified: no column's values decide" in text


def test_a_file_that_has_changed_since(ran):
    ran.write("orders.yaml", TEXT.replace("sum(amount)", "max(amount)"))
    result = ran("verify", "orders.yaml")
    assert (result.code, "the pipeline file has changed since its outputs were made" in result.err) == (4, True)


def test_a_log_with_a_diff_that_is_null(ran):
    """Differs, without a warning of numpy's."""
    (log,) = (ran.folder / "out/totals").glob("*.parquet")
    frame = pl.read_parquet(log)
    frame.with_columns(diff=pl.when(pl.int_range(pl.len()) > 0).then("diff")).write_parquet(log)
    code, tree = verified(ran, "--select", "totals")
    assert (code, tree["same"]) == (1, False)


@pytest.mark.parametrize("part", [["--slice", "1/1"], ["--all"]])
def test_a_log_without_one_of_its_files(ran, part):
    """A state that is not whole, not an input that is refused: the hint is not to run again."""
    next(iter((ran.folder / "out/totals").glob("updates-*"))).unlink()
    result = ran("verify", "orders.yaml", *part)
    assert (result.code, "restore the state" in result.err) == (4, True), result.err


def test_an_input_file_that_has_changed_since(ran):
    ran.log("orders/1.parquet", [("west", 9, 0, 1)], **ORDER_COLUMNS)
    assert ran("verify", "orders.yaml", "--slice", "1/1").code == 3
    assert ran("verify", "orders.yaml", "--all").code == 3


@pytest.mark.parametrize("part", ["0/3", "4/3", "0%", "101%", "some"])
def test_slices_that_there_are_not(ran, part):
    result = ran("verify", "orders.yaml", "--slice", part)
    assert (result.code, "there is no such slice" in result.err) == (2, True)


def test_no_state(orders):
    result = orders("verify", "orders.yaml")
    assert (result.code, "there is no state to verify" in result.err) == (4, True)


def fingerprints(shop):
    code, tree = verified(shop, "--slice", "100%")
    assert (code, tree["same"]) == (0, True)
    return {name: log["fingerprint"] for name, log in tree["logs"].items()}


def test_a_fingerprint_depends_on_the_contents_alone(ran):
    """Not on how the log came to have them: a summed-up one has the same."""
    before = fingerprints(ran)
    ran.log("orders/8.parquet", [("west", 9, 8, 1)], **ORDER_COLUMNS)
    ran.log("orders/9.parquet", [("west", 9, 9, -1)], **ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    assert fingerprints(ran) == before
    assert ran("log", "compact", "orders.yaml").code == 0
    assert fingerprints(ran) == before
    ran.log("orders/99.parquet", [("west", 9, 10, 1)], **ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    after = fingerprints(ran)
    assert all(after[name] != before[name] for name in before)
    assert ran("forget", "orders.yaml", "--input", "orders", "--where", "region = 'west'").code == 0
    left = read_newest(ran.folder / ".dd/orders").outputs
    assert {name: entry.contents for name, entry in left.items()} == before


def test_a_state_without_fingerprints_gets_them(ran):
    """As an earlier version made it; and an edit that adds a column keeps them going."""
    before = fingerprints(ran)
    plain = OutputEntry.from_json
    ran.log("orders/9.parquet", [("west", 9, 9, 1)], **ORDER_COLUMNS)
    with patch.object(OutputEntry, "from_json", lambda tree, read: replace(plain(tree, read), contents="")):
        assert ran("run", "orders.yaml").code == 0
    assert fingerprints(ran).keys() == before.keys()
    ran.write("orders.yaml", TEXT.replace("sum(amount)", "sum(amount), most: max(amount)"))
    assert ran("run", "orders.yaml", "--apply").code == 0
    assert all(fingerprints(ran).values())


def test_a_row_of_nulls_counts():
    layout = Layout(parse_schema({"a": "int64?", "b": "string?"}))
    rows = np.array([[1, 0, 2**63 - 1, 1]], np.int64)
    assert kernels.multiset_hash(rows, hashed_columns(b"0" * 16, layout)) != 0


def test_a_fingerprint_changes_with_each_bit_of_a_diff():
    layout = Layout(parse_schema({"k": "int64"}))
    for record in range(20):
        row = np.array([[record, 3]], np.int64)
        with_diffs = np.repeat(row, 64, axis=0)
        with_diffs[:, 1] ^= np.int64(1) << np.arange(64)
        numbers = {
            kernels.multiset_hash(each[None], hashed_columns(b"0" * 16, layout)) for each in [*with_diffs, row[0]]
        }
        assert len(numbers) == 65


def test_arrangements_in_loops_are_compared(shop):
    """Their rows have a time more: the round."""
    shop.write(
        "p.yaml",
        """
inputs: {edges: {path: in/, columns: {a: int64, b: int64}}}
collections:
  reach:
    iterate:
      variables: {near: edges}
      body:
        near:
          from: near
          apply:
            - join: {with: edges, as: next, "on": {b: a}}
            - map: {a: a, b: next.b}
            - concat: edges
            - distinct
      result: near
outputs: {reach: out/}
""",
    )
    types = {"a": pl.Int64, "b": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
    shop.log("in/1.parquet", [(at, at + 1, 0, 1) for at in range(5)], **types)
    assert shop("run", "p.yaml").code == 0
    found = verify(shop.folder / "p.yaml", None)
    assert found.same, found
    assert any("distinct" in title for title in found.arrangements), found.arrangements


def doubled(state, *, chosen):
    """Return what `dd verify --slice 1/2` and `2/2` find where each stored row that `chosen` accepts, as values by name, is there once more."""
    plain = StoredBatch.parts

    def parts(batch):
        for matrix, pool in plain(batch):
            rows = decode(matrix, batch.layout.record, pool).iter_rows(named=True)
            yield matrix + np.array([[*[0] * (matrix.shape[1] - 1), chosen(row)] for row in rows]), pool

    with patch.object(StoredBatch, "parts", parts):
        return [verify(state, (number, 2)) for number in range(2)]


def test_slices_of_arrangements(shop):
    """Rows with null in the column that divides an arrangement are in the first slice; a column outside of the key divides, too; others are named."""
    shop.write(
        "p.yaml",
        """
inputs: {p: {path: in/, columns: {k: int64, v: 'int64?'}}}
collections:
  by_v: {from: p, apply: [{reduce: {by: [v], last: max(k)}}]}
  by_sum: {from: p, apply: [{map: {k: k, sum: v + k}}, {reduce: {by: [sum], last: max(k)}}]}
outputs: {by_v: by_v/, by_sum: by_sum/}
""",
    )
    types = {"k": pl.Int64, "v": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
    shop.log("in/1.parquet", [(1, None, 0, 1), *((at, at, 0, 1) for at in range(2, 9))], **types)
    assert shop("run", "p.yaml").code == 0
    path = shop.folder / "p.yaml"
    found = doubled(path, chosen=lambda _: False)
    reduced = "reduce by sum; max(k) (sum)"
    undivided = "no column's values decide which rows of all inputs matter to them"
    for each in found:
        assert each.same, each
        assert each.uncompared == {reduced: undivided}
        assert [title.split(" (")[0] for title in each.arrangements] == [
            "arrange by v",
            "reduce by v; max(k)",
            "arrange by sum",
        ]
    assert verify(path, None).uncompared == {}
    found = doubled(path, chosen=lambda row: "v" in row and row["v"] is None)
    assert [[*each.arrangements.values()] for each in found] == [[False, False, True], [True, True, True]]
    found = doubled(path, chosen=lambda row: row.get("k") == 5)
    assert [sum(not each.arrangements[title] for each in found) for title in found[0].arrangements] == [1, 0, 1]
    text = shop("verify", "p.yaml", "--slice", "1/2").out
    assert f"1 arrangement of the state not compared: {undivided}; `--all` compares them\n    {reduced}\n" in text


def test_slices_of_arrangements_at_times_of_several_coordinates(shop):
    """They hold all that is closed, also at times that are not before the one at which outputs are compared, and updates that runs advanced."""
    shop.write(
        "p.yaml",
        """
inputs:
  p: {path: p/, time: [x, y], columns: {k: int64, v: int64}}
  q: {path: q/, time: [x, y], columns: {k: int64, w: int64}}
collections:
  sums: {from: p, apply: [{join: {with: q, 'on': [k]}}, {reduce: {by: [k], last: max(v), sum: sum(w)}}]}
outputs: {sums: sums/}
""",
    )
    draw, path = chance("arrangements of several coordinates"), shop.folder / "p.yaml"
    types = dict.fromkeys(("k", "v", "x", "y", "diff"), pl.Int64)
    for step, until in enumerate(("2,3", "4,3", "4,6")):
        for name, value in (("p", "v"), ("q", "w")):
            before = [(0, 0), (2, 3), (4, 3)][step]
            times = [(a, b) for a in range(9) for b in range(9) if not (a < before[0] and b < before[1])]
            rows = [(draw.randrange(6), draw.randrange(9), *draw.choice(times), 1) for _ in range(40)]
            columns = {value if column == "v" else column: kind for column, kind in types.items()}
            shop.log(f"{name}/{step}.parquet", rows, **columns)
        result = shop("run", "p.yaml", "--until", until)
        assert result.code == 0, result
        found = doubled(path, chosen=lambda _: False)
        for each in found:
            assert each.same, each
            assert len(each.arrangements) == 4, each
            assert all("until their time" in title for title in each.uncompared), each
        assert verify(path, None).same
    text = path.read_text().replace("on': [k]}}", "on': [k]}}, {filter: v > w}")
    assert shop("run", str(shop.write("p.yaml", text)), "--apply").code == 0
    assert all(each.same and len(each.arrangements) == 4 for each in doubled(path, chosen=lambda _: False))
    found = doubled(path, chosen=lambda row: row["k"] == 3)
    assert sorted([*each.arrangements.values()] for each in found) == [[False] * 4, [True] * 4]


def test_a_table_that_can_not_be_compared_differs(orders):
    """A null where its type refuses them, half of a file, and no file."""
    orders.write("orders.yaml", TEXT.replace("all: out/all/", "all: {path: out/all/, as: table, parquet: all.parquet}"))
    assert orders("run", "orders.yaml").code == 0
    table = orders.folder / "all.parquet"
    kept = table.read_bytes()
    pl.read_parquet(table).with_columns(n=pl.lit(None, pl.Int64)).write_parquet(table)
    code, tree = verified(orders, "--select", "all")
    assert (code, "its type refuses nulls" in tree["tables"]["all"]["fault"]) == (1, True)
    table.write_bytes(kept[:-100])
    result = orders("verify", "orders.yaml", "--select", "all")
    assert (result.code, "it can't be read" in result.out) == (1, True), result
    table.unlink()
    assert orders("verify", "orders.yaml", "--select", "all").code == 1


# --- random states, clean and with faults ---------------------------------------------------------------------------------

ROUNDS, WHOLE, ATTEMPTS = 12, 6, 8
"""Rounds of faults in a state, each with one in each log and table; one of how many computes slices too; attempts to change a value."""
LOGS = (0, 0)
"""In place of a slice: only logs and tables are verified, as each call does."""
PLACES = {"parquet": {"parquet": "lake/{}.parquet"}, "sqlite": {"to": "sqlite:///lake.db"}}
"""The tables that outputs of random states have."""


def with_tables(case, kind):
    """Return the case with a table of a kind for each output."""
    tree = read_yaml(case.text)
    for name, path in tree["outputs"].items():
        place = {key: text.format(name) for key, text in PLACES[kind].items()}
        tree["outputs"][name] = {"path": path, "as": "table", **place}
    return replace(case, text=write_yaml(tree))


def states(case, folder):
    """Run a case in a folder; yield the path of its pipeline after each run, until one is refused."""
    path = folder / "p.yaml"
    path.write_text(case.text, encoding="utf-8")
    (folder / "lake").mkdir()
    for number, this in enumerate(case.runs):
        arrive(case, number, folder)
        try:
            run(path, until=case.until(this))
        except DdError:
            return
        if read_newest(read_request(path).state) is not None:
            yield path


def altered(value, draw):
    """Return another value of the same type, a bit, a character or a step away; None if there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value ^ 1 << draw.randrange(draw.choice([8, 31, 63]))
    if isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        (now,) = struct.unpack("<d", struct.pack("<q", bits ^ 1 << draw.randrange(63)))
        return None if now == value or math.isnan(now) else now
    if isinstance(value, Decimal):
        return value + Decimal(1).scaleb(value.as_tuple().exponent)
    if isinstance(value, str | bytes):
        at = draw.randrange(len(value) + 1)
        now = value[:at] + (draw.choice("a!é") if isinstance(value, str) else b"a") + value[at + draw.randrange(2) :]
        return None if now == value else now
    if isinstance(value, date | datetime | timedelta):
        return value + timedelta(days=draw.choice([-1, 1]))
    if isinstance(value, time):
        return value.replace(second=(value.second + 1) % 60)
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, list):
        return [*value[:-1], altered(value[-1], draw)] if value else None
    if isinstance(value, dict) and value:
        name = draw.choice([*value])
        return value | {name: altered(value[name], draw)}
    return None


def edited(frame, draw):
    """Return a frame with one value of it changed, or a row removed or doubled, and the column or None."""
    kind = draw.randrange(8)
    row = draw.randrange(frame.height)
    if kind == 0:
        return frame.with_row_index("\0").filter(pl.col("\0") != row).drop("\0"), None
    if kind == 1:
        return pl.concat([frame, frame[row]]), None
    for _ in range(ATTEMPTS):
        column = draw.choice(frame.columns)
        was = frame[column]
        others = [None, *was.to_list()]
        now = others[draw.randrange(len(others))] if draw.random() < 0.2 else altered(was[row], draw)
        values = was.to_list()
        values[row] = now
        try:
            changed = pl.Series(column, values, was.dtype)
        except (pl.exceptions.PolarsError, OverflowError, TypeError, ValueError):
            continue
        if repr(changed[row : row + 1].to_list()) != repr(was[row : row + 1].to_list()):
            return frame.with_columns(changed), column
    return frame[:row].vstack(frame[row + 1 :]), None


class Faults:
    """A state in a folder, into which faults are brought: each is found, and then undone."""

    def __init__(self, case, path, draw, counts):
        self.case, self.path, self.folder, self.draw, self.counts = case, path, path.parent, draw, counts
        self.logs = [log for log in sorted(self.folder.glob("out/*/*.parquet")) if pl.read_parquet(log).height]
        # A run whose table could not hold a record has committed: then that is behind, and is not compared.
        behind = verify(path, (0, 1000)).lagging
        self.tables = [
            each for each in sorted(self.folder.glob("lake/*")) if pl.read_parquet(each).height and not behind
        ]
        self.base = self.folder / "lake.db" if not behind else self.folder / "none"

    def part(self):
        """Draw a slice that there can be, or all."""
        return self.draw.choice([(self.draw.randrange(1000), 1000), (0, 1), None])

    def fault(self, part):
        """Return what a verification finds: what is wrong, or None."""
        alone = Verification("judged", None, None)
        kept = patch("ddcli.provenance.verification._verify_slice", lambda *_: alone) if part == LOGS else nullcontext()
        try:
            with kept:
                found = verify(self.path, part)
        except DdError as error:
            return error.problem
        return None if found.same else found

    def edit_files(self):
        """Change a value in a file of each log and table at once: each is named."""
        kept, logs, tables = {}, {}, []
        part = LOGS if self.draw.randrange(WHOLE) else self.part()
        by_name = {log.parent.name: log for log in self.draw.sample(self.logs, len(self.logs))}
        for name, file in [*by_name.items(), *((each.stem, each) for each in self.tables)]:
            kept[file] = file.read_bytes()
            frame, column = edited(pl.read_parquet(file), self.draw)
            frame.write_parquet(file)
            if file in self.tables:
                tables.append(name)
            else:
                logs[name] = column
        found = self.fault(part)
        if isinstance(found, Verification):
            for name, column in logs.items():
                assert found.logs[name].fault, f"{column} of {name}"
                if column not in (None, *self.case.times):
                    assert "add up" in found.logs[name].fault
                    proofs = [each for each in found.proofs if each.name == name and part in ((0, 1), None)]
                    assert len(self.case.times) > 1 or not any(each.same for each in proofs), f"{column} of {name}"
            assert not any(found.tables[name].same for name in tables)
            self.counts["value"] += len(logs)
            self.counts["table"] += len(tables)
        elif kept:  # the error of one, so each by itself
            assert found
            now = {file: file.read_bytes() for file in kept}
            for file in kept:
                for each, raw in kept.items():
                    each.write_bytes(now[each] if each == file else raw)
                assert self.fault(part), file
                self.counts["table" if file in self.tables else "value"] += 1
        for file, raw in kept.items():
            file.write_bytes(raw)

    def edit_base(self):
        """Change a value of a row of each table in a database at once."""
        if not self.base.exists():
            return
        kept, names = self.base.read_bytes(), []
        with closing(sqlite3.connect(self.base)) as base, base:
            for (name,) in base.execute("select name from sqlite_master where name glob 'c[0-9]*'").fetchall():
                rows = base.execute(f'select rowid, * from "{name}"').fetchall()
                columns = [each[1] for each in base.execute(f'pragma table_info("{name}")')]
                for _ in range(ATTEMPTS if rows else 0):
                    row, at = self.draw.choice(rows), self.draw.randrange(len(columns))
                    now = altered(row[at + 1], self.draw)
                    if now is not None and not (isinstance(now, int) and abs(now) >= 1 << 63):
                        base.execute(f'update "{name}" set "{columns[at]}" = ? where rowid = ?', (now, row[0]))
                        names.append((name, columns[at], row[at + 1], now))
                        break
        found = self.fault(LOGS if self.draw.randrange(WHOLE) else self.part())
        if isinstance(found, Verification):
            for name, *what in names:
                assert not found.tables[name].same, (name, *what)
                self.counts["base"] += 1
        else:
            assert found or not names
        self.base.write_bytes(kept)

    def damage(self):
        """Flip a bit of a log's file, cut off a table's, and remove each."""
        for log in self.draw.sample(self.logs, min(2, len(self.logs))):
            kept = log.read_bytes()
            raw = bytearray(kept)
            raw[self.draw.randrange(len(raw))] ^= 1 << self.draw.randrange(8)
            log.write_bytes(raw)
            assert self.fault((self.draw.randrange(1000), 1000)) is not None
            log.unlink()
            assert self.fault(self.part()) is not None
            log.write_bytes(kept)
            self.counts["file"] += 2
        for table in self.tables:
            kept = table.read_bytes()
            table.write_bytes(kept[: self.draw.randrange(len(kept))])
            assert not verify(self.path, (0, 1000)).tables[table.stem].same
            table.unlink()
            assert not verify(self.path, (0, 1000)).tables[table.stem].same
            table.write_bytes(kept)
            self.counts["file"] += 2

    def edit_arrangements(self):
        """Change a lane of a row of a stored batch as it is read: its arrangement is named. Changes of several batches may cancel."""
        plain, changed = StoredBatch._whole, []

        def whole(batch):
            matrix, place = plain(batch), (batch.path, batch.entry.at)
            if len(matrix) and matrix.shape[1] > 2 and changed in ([], [place]):
                changed[:] = [place]
                matrix = matrix.copy()
                matrix[self.draw.randrange(len(matrix)), self.draw.randrange(batch.layout.record.width)] ^= 1
            return matrix

        with patch.object(StoredBatch, "_whole", whole):
            found = verify(self.path, None)
        wrong = sum(not right for right in found.arrangements.values())
        assert not changed or wrong
        self.counts["arrangement"] += wrong
        self.edit_slices()

    def edit_slices(self):
        """Have a row of each stored batch be there once more as its parts are read: the slice of each arrangement that is compared by slices is wrong, and all others are named."""
        plain, changed, drawn = StoredBatch.parts, set(), self.draw.randrange(1 << 30)

        def parts(batch):  # a batch may be read for two choices of rows
            for matrix, pool in plain(batch):
                if len(matrix):
                    changed.add((batch.path, batch.entry.at))
                    matrix = matrix.copy()
                    matrix[drawn % len(matrix), -1] += 1
                yield matrix, pool

        request = read_request(self.path)
        with patch.object(StoredBatch, "parts", parts):
            found = verify(self.path, (0, 1))
        manifest = read_newest(request.state)
        owners = {
            (batch_path(request.state, identity, shard, file), file.at): identity
            for identity, entry in manifest.arrangements.items()
            for shard, entries in enumerate(entry.shards)
            for file in entries
        }
        titles = by_title({owners[place]: False for place in changed}, request, manifest)
        assert all(found.arrangements[title] is False for title in titles), found
        all_titles = by_title(dict.fromkeys(owners.values(), True), request, manifest)
        assert all_titles.keys() <= found.arrangements.keys() | found.uncompared.keys(), found
        self.counts["slice"] += len(titles)
        self.counts["unsliced"] += len(found.uncompared)


def judge_faults(case, folder, counts):
    """Verify each state of a case, whole and by slices, and the last one with many faults; count both."""
    draw, path = chance(case.text), None
    for path in states(case, folder):
        for part in (None, (0, 1), (draw.randrange(3), 3)):
            found = verify(path, part)
            assert found.same, found
            counts["clean"] += 1
            assert not found.lagging
        counts["states"] += 1
    if path is None:
        return
    faults = Faults(case, path, draw, counts)
    for _ in range(ROUNDS):
        faults.edit_files()
        faults.edit_base()
    faults.damage()
    faults.edit_arrangements()
    assert verify(path, (0, 1)).same


COUNTS = Counter()


def test_every_fault_of_random_states_is_found_and_none_in_clean_ones():
    @settings(max_examples=many(9))
    @given(st.sampled_from([1, 1, 2]).flatmap(lambda nt: cases(nt=nt)), st.sampled_from([*PLACES, None]))
    def judged(case, kind):
        with tempfile.TemporaryDirectory() as folder:
            judge_faults(with_tables(case, kind) if kind else case, Path(folder), COUNTS)

    judged()
    print(COUNTS)
    assert min(COUNTS[kind] for kind in ("clean", "value", "file")) > 0, COUNTS
