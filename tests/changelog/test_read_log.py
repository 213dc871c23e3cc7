"""What `read_log` says of random logs, against sums in plain Python."""

import os
import random
import subprocess
import sys
from collections import Counter
from datetime import date, datetime, timedelta

import polars as pl
import pytest

import ddcli
from ddcli.errors import EngineError, InputError, UsageError
from ddcli.expressions.types import parse_type
from ddcli.sources.change_log import ChangeLog
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.outputs import progress_bytes
from tests.draws import many
from tests.formats.support import WRITERS
from tests.reference.values import canonical

NAN = float("nan")
COLUMNS = {"k": pl.Int64, "s": pl.String, "x": pl.Float64}
START = datetime.fromisoformat("2024-01-01")
TIMES = {
    "integers": (("time",), pl.Int64, lambda t: t[0]),
    "dates": (("day",), pl.Date, lambda t: date(2024, 1, 1 + t[0])),
    "timestamps": (("at",), pl.Datetime("ms"), lambda t: START + timedelta(hours=t[0])),
    "product": (("epoch", "version"), pl.Int64, None),
}


def drawn(rng, coordinates):
    record = rng.choice([None, 1, 2]), rng.choice([None, "", "a", "b"]), rng.choice([None, NAN, 0.0, -0.0, 1.5])
    return record, tuple(rng.randrange(4) for _ in range(coordinates)), rng.choice([-2, -1, 1, 1, 2])


def plain(frame, width):
    """Return records and what follows them: times as they stand, and diffs."""
    return Counter({(canonical(row[:3]), row[3 : 3 + width]): row[-1] for row in frame.rows()})


def summed(updates):
    found = Counter()
    for what, diff in updates:
        found[what] += diff
    return Counter({what: diff for what, diff in found.items() if diff})


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("seed", range(many(6)))
def test_a_log_says_what_plain_sums_say(tmp_path, kind, seed):
    """As of any time, between any two, of a key, consolidated: in whatever files and order the updates stand."""
    rng = random.Random(f"{kind} {seed}")
    names, dtype, said = TIMES[kind]
    updates = [drawn(rng, len(names)) for _ in range(rng.randrange(1, 40))]
    shown = (
        {(a, b): (a, b) for a in range(5) for b in range(5)}
        if said is None
        else {(a,): (said((a,)),) for a in range(5)}
    )
    rows = [(*record, *shown[time], diff) for record, time, diff in updates]
    schema = COLUMNS | dict.fromkeys(names, dtype) | {"diff": pl.Int32}
    if rng.random() < 0.5:
        rows.sort(key=lambda row: row[3:-1])
    cuts = sorted(rng.sample(range(len(rows) + 1), 2)) if len(rows) > 1 else [0, 1]
    for at, part in enumerate([rows[: cuts[0]], rows[cuts[0] : cuts[1]], rows[cuts[1] :]]):
        frame = pl.DataFrame(part, schema=schema, orient="row")
        frame.write_ipc(tmp_path / f"{at}.arrow") if at == 1 else frame.write_parquet(tmp_path / f"{at}.parquet")
    if rng.random() < 0.5:
        (tmp_path / PROGRESS).write_bytes(progress_bytes(((4,) * len(names),)))
        given = {} if kind in ("integers", "product") else {"time": names}
    else:
        given = {"time": names}

    whole = ddcli.read_log(tmp_path, **given)
    assert sorted(map(repr, whole.rows()), key=repr) == sorted(map(repr, rows), key=repr)
    assert whole.select(names).equals(whole.select(names).sort(names)), "updates come in order of time"
    latest = ddcli.read_log(tmp_path, as_of="latest", **given)
    assert plain(latest, 0) == summed(((canonical(record), ()), diff) for record, _, diff in updates)
    for time in {tuple(rng.randrange(4) for _ in names) for _ in range(4)}:
        at = shown[time] if len(names) > 1 else shown[time][0]
        before = [(r, t, d) for r, t, d in updates if all(x <= y for x, y in zip(t, time, strict=True))]
        found = ddcli.read_log(tmp_path, as_of=at, **given)
        assert plain(found, 0) == summed(((canonical(record), ()), diff) for record, _, diff in before)
        text = ",".join(map(str, shown[time]))
        assert ddcli.read_log(tmp_path, as_of=text, **given).equals(found, null_equal=True)
        until = tuple(x + rng.randrange(2) for x in time)
        between = [
            (r, t, d)
            for r, t, d in updates
            if all(x <= y for x, y in zip(time, t, strict=True)) and all(x < y for x, y in zip(t, until, strict=True))
        ]
        end = shown[until] if len(names) > 1 else shown[until][0]
        changes = ddcli.read_log(tmp_path, since=at, until=end, consolidate=True, **given)
        assert plain(changes, len(names)) == summed(((canonical(r), shown[t]), d) for r, t, d in between)
    record = rng.choice(updates)[0]
    key = dict(list(zip(COLUMNS, record, strict=True))[: rng.randrange(1, 4)])
    history = ddcli.read_log(tmp_path, key=key, consolidate=True, **given)
    mine = [(r, t, d) for r, t, d in updates if canonical(r[: len(key)]) == canonical(record[: len(key)])]
    assert plain(history, len(names)) == summed(((canonical(r), shown[t]), d) for r, t, d in mine)


def written(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(path)


def test_what_a_log_must_not_hold_is_refused(tmp_path):
    """A null time would be passed over in silence, and so would a null diff, and text that is no number."""
    written(tmp_path / "null-time/a.parquet", v=[1, 2], time=[0, None], diff=[1, 1])
    written(tmp_path / "null-diff/a.parquet", v=[1, 2], time=[0, 0], diff=[1, None])
    for name, column in (("null-time", "time"), ("null-diff", "diff")):
        with pytest.raises(InputError, match=f"'{column}' has a null, first in row 1"):
            ddcli.read_log(tmp_path / name, as_of=5)
    (tmp_path / "text.csv").write_text("v,time,diff\n1,0,1\nx,0,1\n")
    with pytest.raises(InputError, match="'x' in column"):
        ddcli.read_log(tmp_path / "text.csv", as_of=5, columns=ddcli_types(v="int64"))
    with pytest.raises(InputError, match="a file of text, CSV"):
        ddcli.read_log(tmp_path / "text.csv")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no files of updates"):
        ddcli.read_log(tmp_path / "none")
    with pytest.raises(InputError, match="no file or directory"):
        ddcli.read_log(tmp_path / "gone")


def ddcli_types(**texts):
    from ddcli.expressions.types import parse_type

    return {name: parse_type(text) for name, text in texts.items()}


def test_a_damaged_file_is_named(tmp_path):
    """Its footer is whole, so only reading tells; the message says which of the files it is."""
    for name in ("a", "b", "c"):
        written(
            tmp_path / f"{name}.parquet",
            v=list(range(5000)),
            s=[f"s{at}" for at in range(5000)],
            time=[0] * 5000,
            diff=[1] * 5000,
        )
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[4:3000] = b"\xff" * 2996
    (tmp_path / "b.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"b\.parquet"):
        ddcli.read_log(tmp_path, as_of=0)


def test_a_sum_that_is_too_large_is_an_error(tmp_path):
    written(tmp_path / "a.parquet", v=[1, 1], time=[0, 0], diff=[2**62, 2**62])
    with pytest.raises(EngineError, match="can't be read"):
        ddcli.read_log(tmp_path, as_of=0)


def test_a_range_and_one_time_exclude_each_other(tmp_path):
    written(tmp_path / "a.parquet", v=[1], time=[0], diff=[1])
    with pytest.raises(UsageError, match="as_of is one time"):
        ddcli.read_log(tmp_path, as_of=0, since=0)
    with pytest.raises(UsageError, match="the log has no column 'w'"):
        ddcli.read_log(tmp_path, key={"w": 1})


def test_a_log_in_order_is_not_held(tmp_path):
    """Files that follow each other stream by: no row of the plan sorts. Of others they are sorted."""
    from ddcli.sources.change_log import ChangeLog

    written(tmp_path / "updates-start-3.parquet", v=[1, 2], time=[0, 2], diff=[1, 1])
    written(tmp_path / "updates-3-9.parquet", v=[3, 4], time=[3, 8], diff=[1, 1])
    log = ChangeLog.open(str(tmp_path), tmp_path)
    assert "SORT" not in log.updates(key={}).explain()
    assert log.updates().collect()["v"].to_list() == [1, 2, 3, 4]
    written(tmp_path / "more.parquet", v=[5], time=[4], diff=[1])
    log = ChangeLog.open(str(tmp_path), tmp_path)
    assert "SORT" in log.updates().explain()
    assert log.updates().collect()["v"].to_list() == [1, 2, 3, 5, 4]


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_many_files_of_two_kinds(tmp_path, kind):
    """Files that are alike are one scan, wherever the others stand between them; what is wrong names its file all the same."""
    columns = {name: parse_type("int64") for name in ("id", "time", "diff")}
    rows = [{"id": at % 7, "time": at, "diff": 1} for at in range(60)]
    for at, row in enumerate(rows):
        frame = pl.DataFrame([row]).select(["id", "time", "diff"] if at % 20 else ["time", "diff", "id"])
        WRITERS[kind](frame, tmp_path / f"{at:03}.{kind}")
    log = ChangeLog.open(str(tmp_path), tmp_path, columns=columns)
    assert log.updates().collect().rows(named=True) == rows
    assert log.as_of(20).collect().rows() == [(each, 3) for each in range(7)]
    for name, text, problem in (("027", "x", "'x' in column"), ("028", None, "diff column 'diff' has a null")):
        WRITERS[kind](pl.DataFrame({"id": "1", "time": "1", "diff": text}), tmp_path / f"{name}.{kind}")
        with pytest.raises(InputError, match=problem) as caught:
            ChangeLog.open(str(tmp_path), tmp_path, columns=columns).updates()
        assert f"{name}.{kind}" in caught.value.place
        WRITERS[kind](pl.DataFrame([rows[int(name)]]), tmp_path / f"{name}.{kind}")


def test_thousands_of_files_need_little_memory(tmp_path):
    """Under a limit of address space, in which a scan for each file would end the process."""
    for at in range(2000):
        (tmp_path / f"{at:04}.csv").write_text(f"id,time,diff\n{at % 3},{at},1\n")
    command = [sys.executable, "-m", "ddcli", "log", ".", "--columns", "{id: int64, time: int64, diff: int64}"]
    limited = ["sh", "-c", 'ulimit -v 3000000; exec "$@"', "sh", *command, "--as-of", "latest", "-o", "csv"]
    threads = {"POLARS_MAX_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run(limited, cwd=tmp_path, env=os.environ | threads, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "id,diff\n0,667\n1,667\n2,666\n"), found.stderr[-2000:]
