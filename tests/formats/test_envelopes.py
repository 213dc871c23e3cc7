"""Events that Kafka Connect wrote with their schemas: what is read is their payload, exactly as an event without a schema is."""

import json
import random
import shutil
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import pytest

from ddcli.errors import InputError
from ddcli.store.tables import text_syntax
from ddcli.store.tables.json_values import payload_of
from tests import draws
from tests.draws import many
from tests.formats.support import Place

COLUMNS = {"id": "int64", "name": "string?", "price": "decimal(30, 12)?"}
SCHEMA = {"type": "struct", "fields": [{"field": "payload", "type": "string"}]}


def enveloped(chance, text):
    """Return an event as the payload of an object, with its schema before or after it."""
    parts = [f'"schema": {json.dumps(SCHEMA)}', f'"payload": {text}']
    chance.shuffle(parts)
    return f"{{{', '.join(parts)}}}"


def some_events(chance, *, flattened):
    """Return lines of events, and what each key has after them."""
    held, lines = {}, []
    for lsn in range(chance.randrange(1, 12)):
        key = chance.randrange(4)
        row = {
            "id": key,
            "name": chance.choice(["a", '"payload"', "é", None]),
            "price": f"1234567890.{chance.randrange(10**12):012}",
        }
        if key in held and chance.random() < 0.4:
            op, before, after = "d", held.pop(key), None
        else:
            op, before, after = "u" if key in held else "c", held.get(key), row
            held[key] = row
        numbers = lambda row: row and json.dumps(row).replace(f'"{row["price"]}"', row["price"])  # noqa: E731
        if flattened:
            body = numbers(after or before)[:-1] + f', "__ts_ms": {lsn}, "__lsn": {lsn}, "__op": "{op}"}}'
        else:
            body = f'{{"before": {numbers(before) or "null"}, "after": {numbers(after) or "null"}, "op": "{op}", "ts_ms": {lsn}, "source": {{"lsn": {lsn}}}}}'
        lines.append(body)
        if op == "d" and not flattened and chance.random() < 0.5:
            lines.append(chance.choice(["", "null", " null "]))
    return lines, {(row["id"], row["name"], Decimal(row["price"])): 1 for row in held.values()}


@pytest.mark.parametrize("compiled", [False, True], ids=["judged", "sieved"])
@pytest.mark.parametrize("flattened", [False, True])
@pytest.mark.parametrize("kind", ["ndjson", "json"])
def test_a_payload_is_read_as_the_event_is(tmp_path, monkeypatch, flattened, kind, compiled):
    """In large files, too, which compiled code looks through first."""
    monkeypatch.setattr(text_syntax, "SMALL", -1 if compiled else 1 << 30)
    for seed in range(many(12)):
        chance = random.Random(f"{flattened} {kind} {seed}")
        lines, held = some_events(chance, flattened=flattened)
        wrapped = [
            enveloped(chance, line.strip() or "null") if not line or chance.random() < 0.8 else line for line in lines
        ]
        for name, some in (("plain", lines), ("wrapped", wrapped)):
            (folder := tmp_path / f"{seed}{name}").mkdir()
            more = {"flattened": True} if flattened else {}
            columns = COLUMNS | ({"__lsn": "int64", "__op": "string"} if flattened else {})
            place = Place(folder, format="debezium", key="id", columns=columns, **more)
            place.given["path"] = f"in/*.{kind}"
            place.say()
            (folder / f"in/a.{kind}").write_text("\n".join(some) + "\n")
            place.run(memory=chance.choice([None, 1000]))
            assert place.at(99, *COLUMNS) == held, (seed, name)


def test_a_row_with_a_column_of_that_name_is_no_envelope(tmp_path):
    columns = {"id": "int64", "payload": "string", "__ts_ms": "int64"}
    place = Place(tmp_path, format="debezium", flattened=True, key="id", columns=columns)
    place.lines("a", [{"id": 1, "payload": '{"id": 7}', "__ts_ms": 1}])
    place.run()
    assert place.at(9, "id", "payload") == {(1, '{"id": 7}'): 1}
    assert payload_of(b'{"payload": "text"}') == b'{"payload": "text"}'
    assert payload_of(b'{"payload": {"a": 1}') == b'{"payload": {"a": 1}'


def test_damage_in_an_envelope_has_its_line(tmp_path):
    place = Place(tmp_path, format="debezium", key="id", columns=COLUMNS)
    good = '{"schema": null, "payload": {"before": null, "after": {"id": 1}, "op": "c", "ts_ms": 1, "source": {"lsn": 1}}}\n'
    for bad, problem in (
        (good.replace('"id": 1', '"id": "x"'), "'x' in column"),
        (good[:40] + "\n", "not JSON"),
        (good.replace('"c"', '"q"'), "'q'"),
    ):
        (tmp_path / "in/a.ndjson").write_text(good + bad)
        with pytest.raises(InputError, match=problem) as caught:
            place.run()
        assert "a.ndjson:2" in caught.value.place


# --- values in Debezium's own encodings -----------------------------------------------------------------------

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
EPOCH = datetime(1970, 1, 1)
MOMENTS = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), EPOCH, datetime(9999, 12, 31, 23, 59, 59)]
CLOCKS = [time(), time(12, 30, 0, 1000), time(23, 59, 59, 999000)]
MONEY = [Decimal("0.00"), Decimal("-0.01"), Decimal("1.28"), Decimal("-99999999.99"), Decimal("12345678.90")]


def ticks(moment, places):
    length = moment - EPOCH if isinstance(moment, datetime) else datetime.combine(EPOCH, moment) - EPOCH
    return length // timedelta(microseconds=1) * 10**places // 10**6


def base64_of(number, scale):
    whole = int(number.scaleb(scale))
    return b64encode(whole.to_bytes((whole.bit_length() + 8) // 8, "big", signed=True)).decode()


def typed(name, kind, called, **more):
    return {"field": name, "type": kind, "optional": True, "name": called, **more}


ZERO = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."
ENCODED = {
    # its field in the schema, the type that is declared, its values, and how each is written
    "day": (typed("day", "int32", f"{ZERO}Date"), "date?", [each.date() for each in MOMENTS], lambda v: (v - EPOCH.date()).days),
    "connect_day": (typed("connect_day", "int32", f"{CONNECT}Date"), "date?", [date(2024, 2, 29)], lambda v: (v - EPOCH.date()).days),
    "millis": (typed("millis", "int64", f"{ZERO}Timestamp"), "datetime[us]?", [EPOCH, MOMENTS[3]], lambda v: ticks(v, 3)),
    "micros": (typed("micros", "int64", f"{ZERO}MicroTimestamp"), "datetime[us]?", MOMENTS, lambda v: ticks(v, 6)),
    "nanos": (typed("nanos", "int64", f"{ZERO}NanoTimestamp"), "datetime[us]?", MOMENTS[1:3], lambda v: ticks(v, 9)),
    "connect_at": (typed("connect_at", "int64", f"{CONNECT}Timestamp"), "datetime[us]?", MOMENTS[2:], lambda v: ticks(v, 3)),
    "clock_millis": (typed("clock_millis", "int32", f"{ZERO}Time"), "time?", CLOCKS, lambda v: ticks(v, 3)),
    "clock_micros": (typed("clock_micros", "int64", f"{ZERO}MicroTime"), "time?", CLOCKS, lambda v: ticks(v, 6)),
    "price": (
        typed("price", "bytes", f"{CONNECT}Decimal", parameters={"scale": "2", "connect.decimal.precision": "10"}),
        "decimal(10, 2)?",
        MONEY,
        lambda v: base64_of(v, 2),
    ),
    "any": (
        typed("any", "struct", "io.debezium.data.VariableScaleDecimal", fields=[]),
        "decimal(12, 4)?",
        [Decimal("1.2500"), Decimal("-7.0000")],
        lambda v: {"scale": 3, "value": base64_of(v, 3)},
    ),
    "raw": (typed("raw", "int64", f"{ZERO}MicroTimestamp"), "int64?", [1, -1], lambda v: v),
}  # fmt: skip


@pytest.mark.parametrize("flattened", [False, True])
def test_values_are_what_the_schema_says_where_the_column_is_declared_so(tmp_path, flattened):
    columns = {"id": "int64"} | {name: kind for name, (_, kind, _, _) in ENCODED.items()}
    row = [{"field": "id", "type": "int64"}, *(field for field, _, _, _ in ENCODED.values())]
    images = [{"field": side, "type": "struct", "fields": row} for side in ("before", "after")]
    schema = {"type": "struct", "fields": row if flattened else images}
    for seed in range(many(12)):
        chance = random.Random(f"encoded {flattened} {seed}")
        rows = [
            {"id": at} | {name: chance.choice([None, *values]) for name, (_, _, values, _) in ENCODED.items()}
            for at in range(chance.randrange(1, 6))
        ]
        lines = []
        for at, each in enumerate(rows):
            encoded = {
                name: None if value is None else ENCODED[name][3](value) if name in ENCODED else value
                for name, value in each.items()
            }
            event = {"before": None, "after": encoded, "op": "c", "ts_ms": 1, "source": {"lsn": at}}
            payload = encoded | {"__ts_ms": 1, "__lsn": at, "__op": "c"} if flattened else event
            lines.append({"schema": schema, "payload": payload})
        (folder := tmp_path / str(seed)).mkdir()
        more = {"flattened": True} if flattened else {}
        beside = {"__lsn": "int64", "__op": "string"} if flattened else {}
        place = Place(folder, format="debezium", key="id", columns=columns | beside, **more)
        place.lines("a", lines)
        place.run()
        assert place.at(9, *columns) == {tuple(each.values()): 1 for each in rows}, seed


@pytest.mark.parametrize(
    ("kind", "called", "value"),
    [
        ("date", f"{ZERO}Date", 3_000_000),
        ("date", f"{ZERO}MicroTimestamp", 5),
        ("time", f"{ZERO}MicroTime", 86_400_000_000),
        ("datetime[us]", f"{ZERO}MicroTimestamp", 10**18),
        ("datetime[us]", "a name of somebody else", 5),
        ("decimal(10, 2)", f"{CONNECT}Decimal", "no base64!"),
    ],
)
def test_a_number_that_its_encoding_can_not_have_is_refused(tmp_path, kind, called, value):
    place = Place(tmp_path, format="debezium", key="id", columns={"id": "int64", "v": kind})
    fields = [{"field": "id", "type": "int64"}, typed("v", "int64", called)]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    event = {"before": None, "after": {"id": 1, "v": value}, "op": "c", "ts_ms": 1, "source": {"lsn": 1}}
    place.lines("a", [{"schema": schema, "payload": event}])
    with pytest.raises(
        InputError, match=f"'.*' in column .* can't be read as {kind.partition('(')[0].partition('[')[0]}"
    ):
        place.run()


def test_days_without_a_schema_are_dates_in_events_alone(tmp_path):
    place = Place(tmp_path, format="debezium", key="id", columns={"id": "int64", "v": "date?"})
    days = {1: -1, 2: 19_000, 3: "2024-01-31", 4: None}
    place.lines("a", [event_of({"id": key, "v": day}, key) for key, day in days.items()])
    place.run()
    found = {1: date(1969, 12, 31), 2: date(2022, 1, 8), 3: date(2024, 1, 31), 4: None}
    assert place.at(9, "id", "v") == dict.fromkeys(found.items(), 1)
    place.lines("b", [event_of({"id": 5, "v": 20_240_131}, 5, at=2)])
    with pytest.raises(InputError, match=r"'20240131' in column 'after\.v' can't be read as date"):
        place.run()


def event_of(row, lsn, at=1):
    return {"before": None, "after": row, "op": "u", "ts_ms": at, "source": {"lsn": lsn}} | {
        "before": {"id": row["id"]}
    }


MARK = "__debezium_unavailable_value"
LAST_KNOWN = """
clock: arrival
inputs:
  events:
    path: in/
    format: append
    columns: {op: string, before: "struct[id: int64]?", after: "struct[id: int64, n: int64, body: string?]?", source: "struct[lsn: int64]"}
collections:
  documents:
    sql: |
      select coalesce(after.id, before.id) as id, last(after.n order by source.lsn) filter (where op <> 'd') as n,
             last(after.body order by source.lsn) filter (where op <> 'd' and after.body is distinct from '__debezium_unavailable_value') as body
      from events group by all having last(op order by source.lsn) <> 'd'
outputs: {documents: out/}
"""


def test_the_values_that_events_lack_are_those_of_earlier_ones_in_any_order_of_files(shop):
    """The pipeline of the page: each file is a run, and the result is that of the events in the order of the source."""
    rng = draws.chance("unavailable values")
    for _ in range(many(8)):
        present, events = {}, []
        for lsn in range(1, rng.randint(4, 9)):
            key, n = rng.randint(1, 2), rng.randint(0, 9)
            if key in present and rng.random() < 0.25:
                del present[key]
                events.append({"op": "d", "before": {"id": key}, "after": None, "source": {"lsn": lsn}})
                continue
            lacks = key in present and rng.random() < 0.5
            body = MARK if lacks else rng.choice(["x", "y", None])
            present[key] = (n, present[key][1] if lacks else body)
            row = {"id": key, "n": n, "body": body}
            events.append({"op": "u", "before": None, "after": row, "source": {"lsn": lsn}})
        rng.shuffle(events)
        for folder in ("in", "out", ".dd"):
            shutil.rmtree(folder, ignore_errors=True)
        shop.write("p.yaml", LAST_KNOWN)
        for at, event in enumerate(events):
            shop.write(f"in/{at}.ndjson", json.dumps(event) + "\n")
            assert shop("run", "p.yaml", "-q").code == 0
        rows = [json.loads(line) for line in shop("log", "out", "--as-of", "latest", "-o", "jsonl").out.splitlines()]
        assert {row["id"]: (row["n"], row["body"]) for row in rows} == present, events


@pytest.mark.parametrize("flattened", [False, True])
def test_a_value_that_an_event_lacks_is_refused(tmp_path, flattened):
    """Its mark would become the record's value."""
    more = {"flattened": True} if flattened else {}
    beside = {"__lsn": "int64", "__op": "string"} if flattened else {}
    columns = {"id": "int64", "n": "int64", "body": "string?"}
    place = Place(tmp_path, format="debezium", key="id", columns=columns | beside, **more)

    def wrote(name, rows):
        flat = [row | {"__ts_ms": row["n"], "__lsn": row["n"], "__op": "u"} for row in rows]
        return place.lines(name, flat if flattened else [event_of(row, row["n"], row["n"]) for row in rows])

    wrote("a", [{"id": 1, "n": 1, "body": "a long text"}])
    place.run()
    path = wrote("b", [{"id": 2, "n": 2, "body": None}, {"id": 1, "n": 3, "body": MARK}])
    with pytest.raises(
        InputError, match=r":2: error: the event lacks the value of 'body', which did not change"
    ) as caught:
        place.run()
    assert caught.value.place == f"{path}:2"
    assert "REPLICA IDENTITY FULL" in caught.value.hint
