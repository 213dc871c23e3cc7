"""Times of several coordinates, from the input's files to the output's: the first test of partial order, and boxes as uppers.

The time column of an input is a data column, too, where something in the pipeline names it.
"""

import datetime as dt
import itertools
import json

import polars as pl
import pytest

from ddcli.store.state.outputs import progress_bytes
from tests.cases import cases
from tests.harness import assert_no_time, contents, files, read_log, snapshot

LENGTHS = """\
dd: 1
name: lengths
inputs:
  words: {path: words/, time: [x, y]}
collections:
  lengths:
    from: words
    apply:
      - reduce: {by: {len: length(s)}, n: count(distinct s)}
outputs:
  lengths: out/lengths/
"""
WORDS = {"s": pl.String, "x": pl.Int64, "y": pl.Int64, "diff": pl.Int64}
INPUT = [
    ("a", 0, 0, 1),
    ("b", 0, 0, 3),
    ("cc", 0, 0, 2),
    ("a", 0, 1, -1),
    ("b", 0, 1, -3),
    ("a", 1, 0, -1),
    ("b", 1, 0, -1),
    ("a", 1, 1, 1),
    ("b", 1, 1, 2),
]
"""Strings and when how many of them come and go (McSherry et al., "Differential dataflow", CIDR 2013)."""
OUTPUT = [
    # len, n, x, y, diff
    (1, 1, 1, 0, 1),
    (1, 2, 0, 0, 1),
    (1, 2, 0, 1, -1),
    (1, 2, 1, 0, -1),
    (1, 2, 1, 1, 1),
    (2, 1, 0, 0, 1),
]
WITHOUT_THE_LAST = [
    (1, 1, 1, 0, 1),
    (1, 1, 1, 1, -1),
    (1, 2, 0, 0, 1),
    (1, 2, 0, 1, -1),
    (1, 2, 1, 0, -1),
    (1, 2, 1, 1, 2),
    (2, 1, 0, 0, 1),
]
VARIANTS = {
    "all": (INPUT, OUTPUT),
    # Nothing arrives at (1, 1), but there a and b are counted -1 each: two distinct strings that are there.
    "without the last line": (INPUT[:-2], WITHOUT_THE_LAST),
}
CUTS = {
    "at once": ["2,2"],
    "all that is seen": [None],
    "a coordinate at a time": ["1,1", "2,1", "2,2"],
    "the other one first": ["1,1", "1,2", "2,2"],
    "beside each other": ["1,2", "2,1", "2,2"],  # (0, 1) and (1, 0) are closed before (1, 1), their join
    "beside each other, then all": ["2,1", "1,2", None],
    "with nothing between": ["0,0", "1,1", "1,9", "2,2"],
    "beside all rows": ["0,7", "7,0", "1,1", None],
}


def summary(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.fixture
def lengths(shop):
    """Return a shop with the pipeline of the first test of partial order, without its input."""
    shop.write("lengths.yaml", LENGTHS)
    return shop


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_test_of_partial_order(lengths, variant, cut):
    given, want = VARIANTS[variant]
    lengths.log("words/1.parquet", given, **WORDS)
    for until in CUTS[cut]:
        result = lengths("run", "lengths.yaml", *(["--until", until] if until else []))
        assert result.code == 0, result.err
    assert sorted(read_log(lengths.folder / "out/lengths").rows()) == want


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_with_a_file_a_time(lengths, variant):
    """Each file comes when its time is about to be closed; without `--until` the box of all that is seen is closed."""
    given, want = VARIANTS[variant]
    for x, y in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        lengths.log(f"words/{x}{y}.parquet", [row for row in given if row[1:3] == (x, y)], **WORDS)
        if (x, y) != (1, 0):  # (0, 1) was seen before, so a run now would close (1, 1)
            assert lengths("run", "lengths.yaml").code == 0
    assert sorted(read_log(lengths.folder / "out/lengths").rows()) == want


def accumulated(rows, time):
    """Return the collection at a time of rows (data, coordinates, diff): each record with its multiplicity."""
    found = {}
    for *record, diff in rows:
        data, at = tuple(record[: -len(time)]), record[-len(time) :]
        if all(one <= other for one, other in zip(at, time, strict=True)):
            found[data] = found.get(data, 0) + diff
    return {data: count for data, count in found.items() if count}


JOINED = """\
dd: 1
name: joined
inputs:
  left: {path: left/, time: [x, y, z]}
  right: {path: right/, time: [x, y, z]}
collections:
  pairs: {from: left, apply: [{join: {with: right, on: [k]}}]}
  best: {from: pairs, apply: [{reduce: {by: [k], n: count(*), w: max(w)}}]}
outputs: {pairs: out/pairs/, best: out/best/}
"""
SIDE = {"x": pl.Int64, "y": pl.Int64, "z": pl.Int64, "diff": pl.Int64}


@pytest.mark.parametrize("untils", [["3,3,3"], [None], ["1,1,1", "1,3,2", None], ["1,1,3", "2,2,3", "3,3,3"]])
def test_three_coordinates(shop, untils):
    """Three times of which none is before another: their join is no join of two."""
    shop.write("joined.yaml", JOINED)
    left = [("k", 1, 2, 0, 0, 1), ("k", 2, 0, 2, 0, 1), ("k", 3, 0, 0, 2, 1), ("k", 3, 1, 1, 2, -1)]
    right = [("k", 10, 0, 1, 0, 1), ("k", 20, 1, 0, 2, 1), ("k", 10, 2, 2, 0, -1)]
    shop.log("left/1.parquet", left, k=pl.String, v=pl.Int64, **SIDE)
    shop.log("right/1.parquet", right, k=pl.String, w=pl.Int64, **SIDE)
    for until in untils:
        result = shop("run", "joined.yaml", *(["--until", until] if until else []))
        assert result.code == 0, result.err
    pairs, best = (read_log(shop.folder / "out" / name) for name in ("pairs", "best"))
    assert pairs.columns == ["k", "v", "w", "x", "y", "z", "diff"]
    for time in itertools.product(range(3), repeat=3):
        one, other = accumulated(left, time), accumulated(right, time)
        want = {(k, v, w): n * m for (k, v), n in one.items() for (_, w), m in other.items()}
        assert accumulated(pairs.rows(), time) == want
        group = {("k", sum(want.values()), max(w for _, _, w in want)): 1} if want else {}
        assert accumulated(best.rows(), time) == group


def upper(shop, *arguments, pipeline="lengths.yaml"):
    """Run a pipeline and return the times that are closed then, as they are told."""
    return summary(shop("run", pipeline, "-o", "json", *arguments))["upper"]


def test_an_upper_is_a_box_or_several(lengths):
    lengths.log("words/1.parquet", [("a", 2, 9, 1), ("b", 5, 1, 1)], **WORDS)
    result = lengths("run", "lengths.yaml", "--until", "3,4")
    assert result.err.splitlines()[0].startswith("lengths: times until 3,4, ")
    assert upper(lengths, "--until", "6,2") == "3,4 or 6,2"
    progress = json.loads((lengths.folder / "out/lengths/_progress.json").read_text())
    assert progress["upper"] == [[None, 4], [3, 2], [6, None]]
    again = lengths("run", "lengths.yaml", "--until", "6,1").err
    assert again == "lengths: nothing new (times before 3,4 or 6,2 are closed)\n"
    result = lengths("run", "lengths.yaml")
    assert result.err.splitlines()[0].startswith("lengths: times from 3,4 or 6,2 until 6,10, ")
    assert {path.name for path in (lengths.folder / "out/lengths").glob("*.parquet")} == {
        "updates-start-3x4.parquet",
        "updates-3x4-3x4+6x2.parquet",
        "updates-3x4+6x2-6x10.parquet",
    }
    before = snapshot(*lengths.kept)
    assert lengths("run", "lengths.yaml").err == "lengths: nothing new (times before 6,10 are closed)\n"
    assert snapshot(*lengths.kept) == before


def test_what_is_seen_is_remembered(lengths):
    """The box is that of all files so far: not of those that are new, and not of what `--until` closed beyond them."""
    lengths.log("words/1.parquet", [("a", 5, 3, 1)], **WORDS)
    assert upper(lengths) == "6,4"
    assert upper(lengths, "--until", "6,9") == "6,9"
    lengths.log("words/2.parquet", [("b", 7, 20, 1)], **WORDS)
    assert upper(lengths, "--until", "20,1") == "6,9 or 20,1"
    assert upper(lengths) == "8,21 or 20,1"


def test_rows_that_all_are_taken_may_leave_their_box_open(lengths):
    """A run of `--until` takes all rows, but the next one has a time to close: the join of two that are closed."""
    lengths.log("words/1.parquet", [("a", 0, 1, 1), ("b", 1, 0, 1)], **WORDS)
    assert upper(lengths, "--until", "1,2") == "1,2"
    done = summary(lengths("run", "lengths.yaml", "--until", "2,1", "-o", "json"))
    assert (done["upper"], done["inputs"]["words"]["waiting"]) == ("1,2 or 2,1", 0)
    assert upper(lengths) == "2,2"
    rows = sorted(read_log(lengths.folder / "out/lengths").rows())
    assert rows == [(1, 1, 0, 1, 1), (1, 1, 1, 0, 1), (1, 1, 1, 1, -2), (1, 2, 1, 1, 1)]


def test_pairs_of_times_that_are_closed_are_open_where_both_are_there(shop):
    """A pair is there from the join of its records' times on: that may lie outside of both boxes that are closed."""
    shop.write("joined.yaml", JOINED.replace("[x, y, z]", "[x, y]"))
    side = {"x": pl.Int64, "y": pl.Int64, "diff": pl.Int64}
    shop.log("left/1.parquet", [("k", 1, 0, 1, 1), ("k", 2, 0, 0, 1)], k=pl.String, v=pl.Int64, **side)
    shop.log("right/1.parquet", [("k", 10, 1, 0, 1)], k=pl.String, w=pl.Int64, **side)
    for until, pairs in [("1,2", []), ("2,1", [(2, 1, 0)]), ("2,2", [(1, 1, 1), (2, 1, 0)])]:
        assert shop("run", "joined.yaml", "--until", until).code == 0
        found = read_log(shop.folder / "out/pairs").select("v", "x", "y") if pairs else pl.DataFrame()
        assert sorted(found.rows()) == pairs
    assert sorted(read_log(shop.folder / "out/best").rows()) == [
        ("k", 1, 10, 1, 0, 1),
        ("k", 1, 10, 1, 1, -1),
        ("k", 2, 10, 1, 1, 1),
    ]


def test_a_time_beside_the_closed_ones_is_not_late(lengths):
    lengths.log("words/1.parquet", [("a", 0, 0, 1), ("a", 2, 3, 1)], **WORDS)
    assert upper(lengths) == "3,4"
    lengths.log("words/2.parquet", [("b", -5, 4, 1), ("b", 3, -5, 1)], **WORDS)
    assert upper(lengths, "--until", "3,5") == "3,5"
    assert upper(lengths) == "4,5"
    lengths.log("words/3.parquet", [("c", 9, 0, 1), ("c", 3, 4, 1), ("c", -9, 4, 1)], **WORDS)
    before = files(*lengths.kept)
    result = lengths("run", "lengths.yaml")
    assert result.code == 3
    assert result.err.startswith(
        "words/3.parquet: error: late rows: row 1 (counted from 0) has the time 3,4, which is before 4,5, up to"
    )
    assert files(*lengths.kept) == before


SECOND = """\
dd: 1
name: short
inputs:
  lengths: {path: out/lengths/, time: [x, y]}
  other: {path: other/, time: [x, y]}
collections:
  short: {from: lengths, apply: [filter: len < 2, {join: {with: other, on: [n]}}, {project: [n, word]}]}
outputs:
  short: out/short/
"""


def test_a_pipeline_reads_what_another_writes_and_closes_what_both_its_inputs_have(lengths):
    lengths.write("short.yaml", SECOND)
    lengths.log("words/1.parquet", INPUT, **WORDS)
    other = [(1, "one", 0, 1, 1), (2, "two", 1, 0, 1)]
    lengths.log("other/1.parquet", other, n=pl.Int64, word=pl.String, x=pl.Int64, y=pl.Int64, diff=pl.Int64)
    progress = lengths.folder / "other/_progress.json"
    progress.write_bytes(progress_bytes(((5, 0), (0, 1))))  # what others write need be no box
    lengths("run", "lengths.yaml", "--until", "1,1")
    assert upper(lengths, pipeline="short.yaml") == "1,1"
    assert "nothing new" in lengths("run", "short.yaml").err
    lengths("run", "lengths.yaml", "--until", "2,2")
    assert upper(lengths, pipeline="short.yaml") == "0,2 or 2,1"
    progress.write_text('{"upper": []}')  # closed: it holds nobody back
    assert upper(lengths, pipeline="short.yaml") == "2,2"
    short = read_log(lengths.folder / "out/short")
    assert short.columns == ["n", "word", "x", "y", "diff"]
    for time in itertools.product(range(2), repeat=2):
        counts = {n for length, n in accumulated(OUTPUT, time) if length == 1}
        words = accumulated(other, time)
        assert accumulated(short.rows(), time) == {key: m for key, m in words.items() if key[0] in counts}
    # Nothing changes from here on, and that is progress too.
    lengths("run", "lengths.yaml", "--until", "9,9")
    assert upper(lengths, pipeline="short.yaml") == "9,9"
    assert (lengths.folder / "out/short/_progress.json").read_text().startswith('{"upper": [[null, 9], [9, null]], ')


def test_coordinates_have_types_of_their_own(shop):
    shop.write("days.yaml", "dd: 1\nname: days\ninputs: {t: {path: in/, time: [day, version]}}\noutputs: {t: out/}\n")
    days = [dt.date(2013, 1, 1), dt.date(2013, 1, 2)]
    (shop.folder / "in").mkdir()
    frame = pl.DataFrame({"a": [1, 2], "day": days, "version": [3, 1]})
    frame.write_parquet(shop.folder / "in/1.parquet")
    assert upper(shop, "--until", "2013-01-02, 4", pipeline="days.yaml") == "2013-01-02,4"
    assert [path.name for path in (shop.folder / "out").glob("*.parquet")] == ["updates-start-20130102x4.parquet"]
    assert upper(shop, pipeline="days.yaml") == "2013-01-03,4"
    assert read_log(shop.folder / "out").sort("day").equals(frame.with_columns(diff=pl.lit(1, pl.Int64)))


def test_inspect_shows_the_coordinates(lengths):
    text = LENGTHS.replace("- reduce", "- extend: {time0: x, diff0: 1}\n      - inspect: seen\n      - reduce")
    lengths.write("lengths.yaml", text.replace("time0: x", "time0: length(s)"))
    lengths.log("words/1.parquet", [("a", 3, 4, 1), ("b", -1, 7, -2)], **WORDS)
    result = lengths("run", "lengths.yaml", "-o", "json")
    assert result.err.splitlines() == [
        "seen: {'s': 'b', 'time0': 1, 'diff0': 1} @ -1,7 -2",
        "seen: {'s': 'a', 'time0': 1, 'diff0': 1} @ 3,4 +1",
    ]


@pytest.mark.parametrize(
    ("until", "problem"),
    [
        ("3", "'3' is 1 of the 2 coordinates of the inputs' time, x, y"),
        ("3,4,5", "'3,4,5' is 3 of the 2 coordinates"),
        ("3,soon", "'soon' is not a time: the inputs' y is int64"),
        ("3,", "'' is not a time: the inputs' y is int64"),
        ("3,99999999999999999999", "'99999999999999999999' is out of the range of int64"),
    ],
)
def test_an_until_that_is_no_time_of_the_product(lengths, until, problem):
    lengths.log("words/1.parquet", INPUT, **WORDS)
    assert_no_time(lengths, "lengths.yaml", until, problem)


@cases("""
case → one → other → said → hint
another number → [x, y] → z → 4:23: error: inputs.b: its time is z, that of 'a' is x, y → `time: [x, y]`
others → [x, y] → [x, z] → 4:24: error: inputs.b: its time is x, z, that of 'a' is x, y → share one time
another order → [x, y] → [y, x] → 4:24: error: inputs.b: its time is y, x → share one time
one column for time and diff → x → diff → 4:23: error: inputs.b: 'diff' can't be a time column and the diff as well → another column
""")
def test_inputs_share_their_time(shop, case, one, other, said, hint):
    shop.write(
        "p.yaml",
        f"dd: 1\nname: p\ninputs: {{a: {{path: a/, time: {one}}},\n  b: {{path: b/, time: {other}}}}}\noutputs: {{a: out/}}\n",
    )
    result = shop("run", "p.yaml")
    assert result.code == 2
    assert result.err.startswith(f"p.yaml:{said}"), result.err
    assert hint in result.err


def test_inputs_share_the_types_of_all_coordinates(shop):
    shop.write(
        "p.yaml",
        "dd: 1\nname: p\ninputs:\n  a: {path: a/, time: [x, y]}\n  b: {path: b/, time: [x, y]}\noutputs: {a: out/a/, b: out/b/}\n",
    )
    shop.log("a/1.parquet", [(1, 1, 1)], k=pl.Int64, x=pl.Int64, y=pl.Int64)
    shop.log("b/1.parquet", [(1, 1, dt.date(2013, 1, 1))], k=pl.Int64, x=pl.Int64, y=pl.Date)
    result = shop("run", "p.yaml")
    assert result.code == 2
    assert result.err.startswith(
        "p.yaml:5:3: error: the time of input 'b' is int64, date, that of 'a' is int64, int64\n"
    )


@pytest.mark.parametrize("name", ["x", "y", "diff"])
def test_an_output_cannot_have_a_column_of_the_time(lengths, name):
    lengths.write("lengths.yaml", LENGTHS.replace("n: count", f"{name}: count"))
    lengths.log("words/1.parquet", INPUT, **WORDS)
    result = lengths("run", "lengths.yaml")
    assert result.code == 2
    assert f"error: outputs.lengths: 'lengths' has a column '{name}', as the log itself has\n" in result.err


def test_an_output_of_a_product_may_have_a_column_called_time(lengths):
    lengths.write("lengths.yaml", LENGTHS.replace("n: count", "time: count"))
    lengths.log("words/1.parquet", INPUT, **WORDS)
    assert lengths("run", "lengths.yaml").code == 0
    assert read_log(lengths.folder / "out/lengths").columns == ["len", "time", "x", "y", "diff"]


def test_progress_has_the_coordinates_of_the_input(lengths):
    lengths.log("words/1.parquet", INPUT, **WORDS)
    (lengths.folder / "words/_progress.json").write_text('{"upper": [[3]]}')
    result = lengths("run", "lengths.yaml")
    assert result.code == 3
    assert result.err.startswith(
        "words/_progress.json: error: the progress has times of 1 coordinates, the input of 2\n"
    )


def test_the_time_of_a_state_stays(lengths):
    lengths.log("words/1.parquet", INPUT, **WORDS)
    lengths("run", "lengths.yaml", "--until", "1,1")
    lengths.write("lengths.yaml", LENGTHS.replace("[x, y]", "[y, x]"))
    before = files(*lengths.kept)
    result = lengths("run", "lengths.yaml")
    assert result.code == 4
    assert (
        "the times of the inputs are y: int64, x: int64, the times of the state and the outputs are x: int64, y: int64\n"
        in (result.err)
    )
    assert files(*lengths.kept) == before


def test_the_largest_coordinate_can_not_be_closed(lengths):
    lengths.log("words/1.parquet", [("a", 0, 2**63 - 1, 1)], **WORDS)
    result = lengths("run", "lengths.yaml")
    assert result.code == 3
    assert f"the time {2**63 - 1} is the largest there is" in result.err
    assert lengths("run", "lengths.yaml", "--until", "3,4").code == 0


FILE = """\
dd: 1
name: p
inputs: {{a: {{path: a/, {keys}}}}}
collections: {{c: {{from: a, apply: [{apply}]}}}}
outputs: {{c: out/}}
"""
ROWS = [(1, "x", 3), (2, "y", 4), (1, "z", 5)]
TYPES = {"id": pl.Int64, "v": pl.String, "day": pl.Int64}


@pytest.mark.parametrize(
    ("keys", "apply", "want"),
    [
        ("format: append, time: day", "{filter: day >= 4}, {project: [v]}", {("y",): 1, ("z",): 1}),
        ("format: append, time: day", "{map: {d: day + 1}}", {(4,): 1, (5,): 1, (6,): 1}),
        ("format: append, time: day", "{reduce: {by: [day], n: count(*)}}", {(3, 1): 1, (4, 1): 1, (5, 1): 1}),
        ("format: append, time: day", "{project: [v]}", {("x",): 1, ("y",): 1, ("z",): 1}),
        ("format: upsert, key: id, time: day", "{extend: {d: day}}, {project: [id, d]}", {(1, 5): 1, (2, 4): 1}),
        ("format: upsert, key: id, time: day, late: arrive, order_by: day", "{project: [v]}", {("y",): 1, ("z",): 1}),
        ("format: snapshots, time: day", "{filter: day > 0}, {project: [v]}", {("z",): 1}),
    ],
)
def test_an_expression_may_name_it(shop, keys, apply, want):
    shop.log("a/1.parquet", ROWS, **TYPES)
    shop.write("p.yaml", FILE.format(keys=keys, apply=apply))
    assert shop("check", "p.yaml").code == 0
    for _ in range(2):
        assert shop("run", "p.yaml").code == 0
        assert contents(shop.folder / "out") == want


def test_of_keyed_events_it_is_that_of_the_last(shop):
    events = [
        '{"op": "c", "before": null, "after": {"id": 1, "v": "x"}, "ts_ms": 3, "source": {"lsn": 1}}',
        '{"op": "u", "before": null, "after": {"id": 1, "v": "y"}, "ts_ms": 4, "source": {"lsn": 2}}',
    ]
    shop.write("a/1.ndjson", "\n".join(events) + "\n")
    keys = "format: debezium, key: id, columns: {id: int64, v: string}"
    shop.write("p.yaml", FILE.format(keys=keys, apply="{project: [v, ts_ms]}"))
    result = shop("run", "p.yaml")
    assert result.code == 0, result.err
    assert contents(shop.folder / "out") == {("y", 4): 1}


def test_of_a_log_the_error_says_why_not(shop):
    shop.log("a/1.parquet", ROWS, **TYPES)
    shop.write("p.yaml", FILE.format(keys="time: day", apply="{map: {d: day}}"))
    result = shop("check", "p.yaml")
    assert result.code == 2
    assert "what is retracted at another time would never cancel" in result.err


def test_outputs_that_do_not_name_it_stay_as_they_are(shop):
    shop.log("a/1.parquet", ROWS, **TYPES)
    text = FILE.format(keys="format: append, time: day", apply="{filter: v > ''}")
    shop.write("p.yaml", text)
    assert shop("run", "p.yaml").code == 0
    assert contents(shop.folder / "out") == {row[:2]: 1 for row in ROWS}
