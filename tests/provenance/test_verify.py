"""`dd verify`: outputs against their inputs, from the command line."""

import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from ddcli.driver.run import run
from ddcli.engine.lanes import Layout
from ddcli.errors import DdError
from ddcli.expressions.types import parse_schema
from ddcli.job.request import read_request
from ddcli.provenance.verification import Verification, verify
from ddcli.sinks.fingerprint import Fingerprint
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.log.progress import PROGRESS, progress_bytes
from ddcli.store.state.entries import OutputEntry
from ddcli.store.state.manifest import read_newest
from tests.draws import chance, many
from tests.harness import ORDER_COLUMNS, ORDERS
from tests.judge.case import write_file
from tests.judge.logs import cases

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
    assert (code, tree["same"], tree["slice"]) == (0, True, {"number": 1, "parts": 1})
    assert tree["unproven"] == {"all": "no column's values decide which rows of the inputs matter to it"}
    assert tree["outputs"]["totals"]["column"] == "region"
    code, tree = verified(ran, "--all")
    assert (code, tree["same"], [*tree["outputs"]], tree["unproven"]) == (0, True, ["all", "totals"], {})


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
    assert "all: not verified: no column's values decide" in text


def test_a_file_that_has_changed_since(ran):
    ran.write("orders.yaml", TEXT.replace("sum(amount)", "max(amount)"))
    result = ran("verify", "orders.yaml")
    assert (result.code, "the pipeline has changed since its state was made" in result.err) == (4, True)


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
    assert Fingerprint(b"0" * 16, layout).of(rows) != 0


# --- random states, clean and with a fault ---------------------------------------------------------------------------------


def states(case, folder):
    """Run a case in a folder; return the path of its pipeline, or None if a run was refused."""
    path = folder / "p.yaml"
    path.write_text(case.text, encoding="utf-8")
    for number, this in enumerate(case.runs):
        for at, file in enumerate(this.files):
            write_file(case, file, folder / "in" / file.input / f"{number}-{at}.parquet")
        for name, upper in this.progress:
            (folder / "in" / name / PROGRESS).write_bytes(progress_bytes(upper))
        try:
            run(path, until=case.until(this))
        except DdError:
            return None
    return path


def other(value):
    """Return another value of the same type, one step away."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value ^ 1
    if isinstance(value, float):
        return 1.5 if value != 1.5 else 2.5
    return value + "!" if isinstance(value, str) else None


def edited(log, draw):
    """Change one value of a row in a log's file; return the column, or None if no value was changed."""
    frame = pl.read_parquet(log)
    row, column = draw.randrange(frame.height), draw.choice(frame.columns)
    was = frame[column][row]
    now = other(was)
    if now is None or now == was:
        return None
    values = frame[column].to_list()
    values[row] = now
    try:
        frame.with_columns(pl.Series(column, values, frame.schema[column])).write_parquet(log)
    except (pl.exceptions.PolarsError, OverflowError, TypeError):
        return None
    return column


def found_fault(path, part):
    """Return what a verification finds: what is wrong, or None."""
    try:
        found = verify(path, part)
    except DdError as error:
        return error.problem
    return None if found.same else found


def judge_faults(case, folder, counts):
    """Verify a state, whole and by slices, and then with each of some faults; count both."""
    if (path := states(case, folder)) is None or read_newest(read_request(path).state) is None:
        return
    draw = chance(case.text)
    for part in (None, (0, 1), (draw.randrange(3), 3)):
        assert found_fault(path, part) is None
        counts["clean"] += 1
    logs = [log for log in sorted(folder.glob("out/*/*.parquet")) if pl.read_parquet(log).height]
    for log in logs:
        kept = log.read_bytes()
        for part in ((draw.randrange(1000), 1000), None):
            column = edited(log, draw)
            if column is not None:
                found = found_fault(path, part)
                assert found is not None, f"{column} of {log}"
                if column not in case.times and isinstance(found, Verification):
                    assert "add up" in found.logs[log.parent.name].fault
                counts["value"] += 1
            log.write_bytes(kept)
        raw = bytearray(kept)
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        log.write_bytes(raw)
        assert found_fault(path, (0, 1000)) is not None
        log.unlink()
        assert found_fault(path, (0, 1000)) is not None
        counts["file"] += 2
        log.write_bytes(kept)
    counts["arrangement"] += arrangement_faults(path, draw)


def arrangement_faults(path, draw):
    """Change a lane of a row of each stored batch in turn, as it is read; return how many were found, which is all of those verified."""
    plain, found = StoredBatch._whole, 0
    secret = len(verify(path, None).arrangements)
    for number in range(min(secret, 2)):
        left = [number]

        def whole(batch, left=left):
            matrix = plain(batch)
            if len(matrix) and matrix.shape[1] > 2:
                left[0] -= 1
                if left[0] == -1:
                    matrix = matrix.copy()
                    matrix[draw.randrange(len(matrix)), draw.randrange(batch.layout.record.width)] ^= 1
            return matrix

        with patch.object(StoredBatch, "_whole", whole):
            same = verify(path, None).same
        if left[0] < 0:
            assert not same
            found += 1
    return found


COUNTS = Counter()


def test_every_fault_of_random_states_is_found_and_none_in_clean_ones():
    @settings(max_examples=many(6))
    @given(cases())
    def judged(case):
        with tempfile.TemporaryDirectory() as folder:
            judge_faults(case, Path(folder), COUNTS)

    judged()
    assert min(COUNTS[kind] for kind in ("clean", "value", "file")) > 0, COUNTS
