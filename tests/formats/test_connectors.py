"""Tables as common connectors write them: with the line that docs/inputs.md has for each, a random history is the table of its source."""

import json
import re

import pytest
import yaml

from ddcli.driver.run import run
from tests.draws import chance
from tests.harness import ROOT, contents

PAGE = (ROOT / "docs/inputs.md").read_text()
BLOCK = next(block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "fivetran" in block)
LINES = yaml.safe_load(BLOCK)["inputs"]


def moment(at):
    return f"2024-01-01 00:00:{at:02}"


WRITTEN = {
    # a change as (key, value or None for a deletion, value before), and its place in the source's log
    "debezium_flat": lambda key, value, before, at: {
        "id": key, "v": value, "__deleted": "false" if value else "true", "__op": "u", "__lsn": at, "__ts_ms": at,
    },
    "fivetran": lambda key, value, before, at: {
        "id": key, "v": value or before, "_fivetran_deleted": value is None, "_fivetran_synced": f"{moment(at)}Z",
    },
    "airbyte": lambda key, value, before, at: {
        "id": key, "v": value, "_ab_cdc_lsn": at, "_ab_cdc_deleted_at": None if value else f"{moment(at)}Z",
        "_airbyte_raw_id": "0b1c", "_airbyte_extracted_at": f"{moment(0)}Z",
    },
    "dms": lambda key, value, before, at: {"Op": "U" if value else "D", "ts": moment(at), "id": key, "v": value or before},
    "stitch": lambda key, value, before, at: {
        "id": key, "v": value or before, "_sdc_sequence": at, "_sdc_deleted_at": None if value else f"{moment(at)}Z",
    },
    "jdbc": lambda key, value, before, at: {"schema": {"type": "struct"}, "payload": {"id": key, "v": value, "updated_at": moment(at)}},
}  # fmt: skip


def test_each_line_of_the_page_is_tried():
    assert LINES.keys() == WRITTEN.keys()


@pytest.mark.parametrize("name", WRITTEN)
def test_the_table_of_the_source_comes_out(name, tmp_path):
    random = chance("connector", name)
    held, at = {}, 0
    given = LINES[name] | {"path": "in/"}
    said = {"inputs": {"a": given}, "outputs": {"a": {"path": "out/", "from": "rows"}}}
    said["collections"] = {"rows": {"from": "a", "apply": [{"project": ["id", "v"]}]}}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
    (tmp_path / "in").mkdir()
    for part in range(3):
        changes = []
        for _ in range(random.randrange(1, 8)):
            key, at = random.randrange(3), at + 1
            deleted = key in held and random.random() < 0.4 and name != "jdbc"  # which writes no deletions
            value = None if deleted else random.choice("xyz")
            changes.append(WRITTEN[name](key, value, held.get(key), at))
            held.pop(key, None)
            held |= {} if deleted else {key: value}
        again = [*changes, *random.sample(changes, len(changes) // 2)]  # they deliver at least once, in any order
        random.shuffle(again)
        path = tmp_path / f"in/{part}.{'csv' if name == 'dms' else 'ndjson'}"
        if name == "dms":
            path.write_text("".join(",".join(map(str, change.values())) + "\n" for change in again))
        else:
            path.write_text("".join(json.dumps(change) + "\n" for change in again))
        run(tmp_path / "p.yaml")
        assert contents(tmp_path / "out") == dict.fromkeys(held.items(), 1)


@pytest.mark.parametrize("form", ["append", "upsert"])
def test_a_column_named_payload_is_a_column(form, tmp_path):
    given = {"path": "in/", "format": form, "columns": {"payload": "string", "schema": "string?"}}
    given |= {"key": "payload"} if form == "upsert" else {}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"inputs": {"a": given}, "outputs": {"a": "out/"}}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.ndjson").write_text('{"payload": {"id": 1}, "schema": "s"}\n')
    run(tmp_path / "p.yaml")
    assert contents(tmp_path / "out") == {('{"id": 1}', "s"): 1}
