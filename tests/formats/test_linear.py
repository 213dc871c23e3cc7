"""Append, Debezium's events and Delta's change feed say at each time what a plain table says that went through the changes."""

import datetime as dt
from collections import Counter

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddcli.errors import InputError, SpecErrors
from tests.draws import many
from tests.formats.support import FEW, TIMES, WRITERS, Place, chances, cuts

COLUMNS = {"id": "int64", "v": "string?"}
rows = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["x", None]), st.sampled_from(TIMES)), max_size=9)


@settings(max_examples=FEW)
@given(rows=rows, runs=cuts(), chance=chances, kind=st.sampled_from(list(WRITERS)))
def test_append(tmp_path_factory, rows, runs, chance, kind):
    place = Place(tmp_path_factory.mktemp("p"), format="append", columns=COLUMNS)
    place.chance = chance
    for times in runs:
        some = [row for row in rows if row[2] in times]
        schema = {"id": pl.Int64, "v": pl.String, "time": pl.Int64}
        place.write(str(times.start), pl.DataFrame(some, schema, orient="row"), kind)
        place.run()
    for time in TIMES:
        assert place.at(time, "id", "v") == Counter(row[:2] for row in rows if row[2] <= time)


@pytest.mark.in_turn
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["csv", "ndjson"])
def test_text_of_a_timestamp_with_a_zone_may_say_its_offset(tmp_path, kind, unit):
    columns = {"id": "int64", "at": f"datetime[{unit}, UTC]"}
    place = Place(tmp_path, format="append", columns=columns)
    texts = [
        "2024-01-01T00:00:00Z",
        "2024-01-01 02:00+02:00",
        "2023-12-31 18:29:59.5-0530",
        "2024-01-01",
        "2024-01-01 00:00:00",
    ]
    schema = {"id": pl.Int64, "at": pl.String, "time": pl.Int64}
    place.write("0", pl.DataFrame([(at, text, 0) for at, text in enumerate(texts)], schema, orient="row"), kind)
    place.run()
    midnight = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    before = midnight - dt.timedelta(seconds=0.5)
    assert place.at(0, "id", "at") == Counter((at, before if at == 2 else midnight) for at in range(len(texts)))
    for wrong in ("2024-01-01T00:00:00X", "2024-01-01 00:00+24:00", "2024-01-01 00:00+02:60"):
        place.write("1", pl.DataFrame([(9, wrong, 1)], schema, orient="row"), kind)
        with pytest.raises(InputError, match="' can't be read as "):
            place.run()


def test_text_of_nanoseconds_keeps_them(tmp_path):
    """A timestamp with a zone has nine digits; one that nanoseconds don't reach is refused."""
    place = Place(tmp_path, format="append", columns={"id": "int64", "at": "datetime[ns, Europe/Berlin]"})
    schema = {"id": pl.Int64, "at": pl.String, "time": pl.Int64}
    texts = ["2024-01-01 01:00:00.123456789", "2024-01-01T02:00:00.123456789+02:00", "1969-12-31T23:59:59.999999999Z"]
    place.write("0", pl.DataFrame([(at, text, 0) for at, text in enumerate(texts)], schema, orient="row"), "csv")
    place.run()
    found = pl.concat(pl.read_parquet(file) for file in (tmp_path / "out").glob("*.parquet")).sort("id")
    assert found["at"].to_physical().to_list() == [1_704_067_200_123_456_789] * 2 + [-1]
    for wrong in ("2262-04-12T00:00:00Z", "2262-04-11 23:47:16.854775808Z", "2262-04-11 23:00:00-05:00", "1677-09-21"):
        place.write("1", pl.DataFrame([(9, wrong, 1)], schema, orient="row"), "csv")
        with pytest.raises(InputError, match="' can't be read as "):
            place.run()


# --- Debezium -------------------------------------------------------------------------------------------------


@st.composite
def histories(draw, *, truncated=False):
    """Give changes (time, op, before, after) of a table with the key `id`, and what it holds at each time."""
    table, changes, held = {}, [], {}
    for time in TIMES:
        if truncated and draw(st.integers(0, 5)) == 0:
            table.clear()
            changes.append((time, "t", None, None))
        for _ in range(draw(st.integers(0, 3))):
            key, value = draw(st.integers(0, 2)), draw(st.sampled_from(["x", "y", None]))
            before = table.get(key)
            if before is None:
                table[key] = {"id": key, "v": value}
                changes.append((time, draw(st.sampled_from("cr")), None, table[key]))
            elif draw(st.booleans()):
                table[key] = {"id": key, "v": value}
                changes.append((time, "u", before, table[key]))
            else:
                del table[key]
                changes.append((time, "d", before, None))
        held[time] = Counter((row["id"], row["v"]) for row in table.values())
    return changes, held


def event(place, change):
    """Return the event of a change, whose place in the source's log is `place`."""
    time, op, before, after = change
    return {"before": before, "after": after, "source": {"lsn": place, "table": "t"}, "op": op, "ts_ms": time}


ROW = pl.Struct({"id": pl.Int64, "v": pl.String})
EVENT = {
    "before": ROW,
    "after": ROW,
    "source": pl.Struct({"lsn": pl.Int64, "table": pl.String}),
    "op": pl.String,
    "ts_ms": pl.Int64,
}


@settings(max_examples=FEW)
@given(data=st.data(), runs=cuts(), chance=chances, keyed=st.booleans(), text=st.booleans(), twice=st.booleans())
def test_events_of_debezium(tmp_path_factory, data, runs, chance, keyed, text, twice):
    changes, held = data.draw(histories(truncated=keyed))
    given = ({"key": ["id"]} if keyed else {}) | ({"columns": COLUMNS} if text else {})
    place = Place(tmp_path_factory.mktemp("p"), format="debezium", **given)
    place.chance = chance
    events = [event(at, change) for at, change in enumerate(changes)]
    for times in runs:
        some = [each for each in events if each["ts_ms"] in times]
        if keyed and twice:  # an event may come again, and without the row before
            some = [each | ({"before": None} if each["op"] == "u" else {}) for each in some] * 2
        if text:
            place.lines(str(times.start), some)
        else:
            place.write(str(times.start), pl.DataFrame(some, EVENT))
        place.run()
    for time in TIMES:
        assert place.at(time, "id", "v") == held[time], time


@settings(max_examples=FEW)
@given(history=histories(), runs=cuts(), chance=chances, kind=st.sampled_from(list(WRITERS)), deleted=st.booleans())
def test_flattened_events_of_debezium(tmp_path_factory, history, runs, chance, kind, deleted):
    changes, held = history
    columns = COLUMNS | {"__lsn": "int64"} | ({"__deleted": "string"} if deleted else {"__op": "string"})
    place = Place(tmp_path_factory.mktemp("p"), format="debezium", flattened=True, key="id", columns=columns)
    place.chance = chance
    schema = {"id": pl.Int64, "v": pl.String, "__op": pl.String, "__deleted": pl.String}
    schema |= {"__lsn": pl.Int64, "__ts_ms": pl.Int64}
    flat = [
        ((after or before)["id"], (after or before)["v"], op, "true" if op == "d" else "false", lsn, time)
        for lsn, (time, op, before, after) in enumerate(changes)
    ]
    for times in runs:
        some = [row for row in flat if row[-1] in times]
        place.write(str(times.start), pl.DataFrame(some, schema, orient="row"), kind)
        place.run()
    for time in TIMES:
        assert place.at(time, "id", "v") == held[time], time


def test_a_tombstone_after_a_delete_says_nothing(tmp_path):
    place = Place(tmp_path, format="debezium")
    row = {"id": 1, "v": "x"}
    nothing = {"before": None, "after": None, "source": None, "op": None, "ts_ms": 3}
    place.write("a", pl.DataFrame([event(1, (1, "c", None, row)), event(2, (3, "d", row, None)), nothing], EVENT))
    place.run()
    assert place.at(2, "id") == {(1,): 1}
    assert place.at(3, "id") == {}


@pytest.mark.parametrize(
    ("change", "key", "problem", "hint"),
    [
        ((1, "u", None, {"id": 1}), None, "the op 'u' comes without `before`", "name the table's `key`"),
        ((1, "d", None, None), "id", "the op 'd' comes without `before`", "REPLICA IDENTITY FULL"),
        ((1, "c", None, None), None, "the op 'c' comes without `after`", "has no meaning"),
        ((1, "t", None, None), None, "the op 't' needs to know all rows", "name the table's `key`"),
        ((1, "m", None, None), "id", "the op 'm' is not a known change of a row", "c, r, u, d"),
    ],
)
def test_events_that_say_too_little_are_refused_with_their_row(tmp_path, change, key, problem, hint):
    place = Place(tmp_path, format="debezium", **({"key": key} if key else {}))
    first = event(0, (0, "c", None, {"id": 7, "v": "x"}))
    path = place.write("a", pl.DataFrame([first, event(1, change)], EVENT))
    assert hint in place.refuses(path, f"row 1 (counted from 0): {problem}")


def test_events_of_one_place_in_the_log_are_refused(tmp_path):
    place = Place(tmp_path, format="debezium", key=["id"], columns=COLUMNS)
    one = event(5, (1, "c", None, {"id": 1, "v": "x"}))
    path = place.lines("a", [one, one | {"after": {"id": 1, "v": "y"}}])
    place.refuses(path, "the key id = 1 has different rows of the same order at the time 1")


def test_rows_that_are_no_events_are_refused(tmp_path):
    place = Place(tmp_path, format="debezium")
    place.write("a", pl.DataFrame({"id": [1], "ts_ms": [0]}))
    with pytest.raises(InputError, match="the file has no column 'op', which each event of Debezium has"):
        place.run()


# --- Delta ----------------------------------------------------------------------------------------------------

Change = st.sampled_from(["append", "delete", "update", "merge"])


@settings(max_examples=many(6))
@given(steps=st.lists(st.tuples(Change, st.integers(0, 3), st.sampled_from(["x", "y"])), max_size=5), data=st.data())
def test_the_change_feed_of_a_delta_table(tmp_path_factory, steps, data):
    place = Place(tmp_path_factory.mktemp("p"), format="delta_cdf")
    table = place.root / "table"
    configuration = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(table, pl.DataFrame({"id": [0, 1], "v": ["a", "b"]}), configuration=configuration)
    held = {0: Counter([(0, "a"), (1, "b")])}
    for step, key, value in steps:
        delta, source = DeltaTable(table), pl.DataFrame({"id": [key], "v": [value]})
        if step == "append":
            write_deltalake(table, source, mode="append")
        elif step == "delete":
            delta.delete(f"id = {key}")
        elif step == "update":
            delta.update(predicate=f"id >= {key}", updates={"v": f"'{value}'"})
        elif step == "merge":
            merge = delta.merge(source, predicate="s.id = t.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        held[DeltaTable(table).version()] = Counter(
            tuple(row.values()) for row in DeltaTable(table).to_pyarrow_table().to_pylist()
        )
    last = DeltaTable(table).version()
    # Of two rows that an update makes equal deltalake's feed has one: such a feed isn't that of its table.
    assume(summed(pl.DataFrame(DeltaTable(table).load_cdf(starting_version=0, ending_version=last))) == held[last])
    start = 0
    for end in sorted({*data.draw(st.lists(st.integers(0, last), max_size=2)), last}):
        feed = DeltaTable(table).load_cdf(starting_version=start, ending_version=end)
        place.write(f"{start}", pl.DataFrame(feed))
        place.run()
        start = end + 1
        if start > last:
            break
    for version, want in held.items():
        assert place.at(version, "id", "v") == want, version


def summed(feed):
    """Return the rows that the changes of a feed add up to."""
    diffs = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}
    found = Counter()
    for *row, change in feed.select("id", "v", "_change_type").iter_rows():
        found[tuple(row)] += diffs[change]
    return Counter({row: count for row, count in found.items() if count})


def test_changes_of_no_known_type_are_refused(tmp_path):
    place = Place(tmp_path, format="delta_cdf")
    frame = pl.DataFrame({"id": [1, 2], "_change_type": ["insert", "upsert"], "_commit_version": [0, 0]})
    path = place.write("a", frame)
    place.refuses(path, "row 1 (counted from 0): '_change_type' is 'upsert'")
    place.write("a", frame.drop("_change_type"))
    with pytest.raises(InputError, match="the file has no column '_change_type'"):
        place.run()


@pytest.mark.parametrize("kind", ["append", "delta_cdf", "snapshots", "upsert", "debezium"])
def test_keys_of_other_formats_are_refused(tmp_path, kind):
    place = Place(tmp_path, format=kind, diff="d", **({"key": "id"} if kind == "upsert" else {}))
    with pytest.raises(SpecErrors) as caught:
        place.run()
    assert caught.value.errors[0].problem == f"inputs.a: the format '{kind}' has no key 'diff'"
    assert caught.value.errors[0].hint == "it is a key of the format updates"


def test_a_truncation_without_its_place_in_the_log_is_refused(tmp_path):
    place = Place(tmp_path, format="debezium", key="id")
    first, second = event(0, (0, "c", None, {"id": 7, "v": "x"})), event(None, (1, "t", None, None))
    path = place.write("a", pl.DataFrame([first, second], EVENT))
    with pytest.raises(InputError, match=r"column 'source\.lsn' has a null, first in row 1") as caught:
        place.run()
    assert caught.value.place == str(path)
