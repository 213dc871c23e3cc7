"""Events that Kafka Connect wrote with their schemas: what is read is their payload, exactly as an event without a schema is."""

import json
import random
from decimal import Decimal

import pytest

from ddcli.errors import InputError
from ddcli.store.tables.json_values import payload_of
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
            lines.append("")
    return lines, {(row["id"], row["name"], Decimal(row["price"])): 1 for row in held.values()}


@pytest.mark.parametrize("flattened", [False, True])
@pytest.mark.parametrize("kind", ["ndjson", "json"])
def test_a_payload_is_read_as_the_event_is(tmp_path, flattened, kind):
    for seed in range(many(12)):
        chance = random.Random(f"{flattened} {kind} {seed}")
        lines, held = some_events(chance, flattened=flattened)
        wrapped = [enveloped(chance, line or "null") if not line or chance.random() < 0.8 else line for line in lines]
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
        (good.replace('"id": 1', '"id": "x"'), "'x' is not"),
        (good[:40] + "\n", "not JSON"),
        (good.replace('"c"', '"q"'), "'q'"),
    ):
        (tmp_path / "in/a.ndjson").write_text(good + bad)
        with pytest.raises(InputError, match=problem) as caught:
            place.run()
        assert "a.ndjson:2" in caught.value.place
