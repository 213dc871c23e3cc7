"""Each listed function against its documented meaning, evaluated as a pipeline would."""

from __future__ import annotations

import datetime as dt
import re
import sys
from dataclasses import replace
from decimal import Decimal

import duckdb
import pytest

from ddcli.errors import SpecError
from ddcli.expressions.functions import FUNCTIONS, SYNONYMS
from ddcli.expressions.json_text import DEEP, is_json
from ddcli.expressions.lower_text import SEVERAL
from ddcli.expressions.signatures import parse_signature
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import Call, Column, MapStep
from ddcli.expressions.types import Type
from tests.expressions.support import frame_of, scalar, value, values
from tests.reference.expressions import evaluate


def test_synonyms_name_functions() -> None:
    """A synonym leads to a function and hides none."""
    assert set(SYNONYMS.values()) <= set(FUNCTIONS)
    assert not set(SYNONYMS) & set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_has_its_documented_value(name: str) -> None:
    """The example of the table is true; its arguments as columns, one at a time and all together, over several rows, give the same."""
    function = FUNCTIONS[name]
    expression, expected = scalar(function.example), value(function.example)
    assert expected == value(function.result), function
    if not isinstance(expression, Call) or expression.type.kind == "null" or function.means:
        return
    free = [i for i, arg in enumerate(expression.args) if arg.type.kind != "null" and not must_be_constant(name, i)]
    for chosen in [*([i] for i in free), free]:
        schema = {"unused": Type("int64")} | {f"c{i}": expression.args[i].type.or_null() for i in chosen}
        args = [Column(f"c{i}", schema[f"c{i}"]) if i in chosen else arg for i, arg in enumerate(expression.args)]
        given = {"unused": 0} | {f"c{i}": evaluate(expression.args[i], {}) for i in chosen}
        changed = replace(expression, args=tuple(args), type=expression.type.or_null())
        nulls = {column: None if column != "unused" else 0 for column in given}
        rows = [given, nulls, given]
        frame = frame_of(schema, rows)
        found = FusedSteps(schema, (MapStep((("value", changed),)),)).run(frame).frame["value"].to_list()
        assert found == [expected if row is given else evaluate(changed, row) for row in rows], (name, chosen)


@pytest.mark.parametrize(
    ("written", "expected"),
    [("list_filter(j -> '$[*]', x -> x = '2')", ["2"]), ("(j -> '$[*]').list_filter(x -> x = '2')", ["2"])],
)
def test_an_arrow_in_the_place_of_a_list_is_a_part_of_json(written: str, expected: list[str]) -> None:
    """Behind the list it makes a lambda."""
    assert values(written, {"j": "string"}, j=["[1, 2]"]) == [expected]


@pytest.mark.parametrize(
    ("written", "kind", "expected"),
    [
        ("nullif(d, t)", "date?", [None, dt.date(2024, 1, 1)]),
        ("nullif(i, m)", "int64?", [None, 1]),
        ("nullif(2, m)", "int64?", [None, 2]),
        ("nullif(m, 2)", "decimal(4, 1)?", [None, Decimal("2.5")]),
        ("nullif(t, z)", "datetime[us]?", [dt.datetime(2024, 1, 1)] * 2),  # noqa: DTZ001
    ],
)
def test_nullif_has_the_type_of_its_first_value(written: str, kind: str, expected: list[object]) -> None:
    """Also where it is compared with another in a type that holds both."""
    columns = {"d": "date", "t": "datetime[us]", "z": "datetime[us, UTC]", "i": "int64", "m": "decimal(4, 1)"}
    day = dt.datetime(2024, 1, 1)  # noqa: DTZ001
    data = {"d": [day.date()] * 2, "t": [day, day], "z": [day.replace(tzinfo=dt.UTC, hour=1)] * 2, "i": [2, 1]}
    if "t, z" not in written:
        data["t"] = [day, day.replace(hour=1)]
    assert str(scalar(written, columns).type) == kind
    assert values(written, columns, m=[Decimal("2.0"), Decimal("2.5")], **data) == expected


def must_be_constant(name: str, index: int) -> bool:
    """Return whether a parameter takes constants only."""
    if name in ("timezone", "time_bucket", "strptime", "try_strptime"):
        return index == ("strptime" in name)
    if name in ("list_sort", "list_reverse_sort"):
        return index > 0
    if name in ("concat_ws", "array_to_string"):
        return index == ("concat_ws", "array_to_string").index(name)
    if name == "list_zip":
        return index == 2
    if not FUNCTIONS[name].by_signature:
        named = ("round", "trunc", "struct_extract", "list_transform", "list_filter", "list_reduce")
        return (name in named or "json" in name) and index == 1
    return parse_signature(FUNCTIONS[name].signature).parameters[index].constant


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_json_is_as_deep_wherever_it_is_read(opening: str, closing: str) -> None:
    """However many calls are open: rows that come and rows that go are read alike."""

    def called(depth: int, text: str) -> object:
        return called(depth - 1, text) if depth else (is_json(text), json_part(text))

    def json_part(text: str) -> str | None:
        written = f"""get_json_object('{text}', '$')"""
        return value(written)  # type: ignore[no-any-return]

    for levels, wanted in ((DEEP, True), (DEEP + 1, False), (3 * DEEP, False), (100 * DEEP, False)):
        text = opening * levels + "1" + closing * levels
        for calls in (0, 300):
            assert called(calls, text) == (wanted, text if wanted else None), (levels, calls)
    quoted = '["' + "[" * DEEP + '\\\\"]'
    assert is_json(quoted)
    assert is_json(f"[{', '.join(['[]'] * DEEP)}]")


def test_sums_and_means_of_lists_of_uint64() -> None:
    """Of elements beyond int64 the mean is one; the sum is an error, as of rows: see test_bad_input."""
    texts = {"x": "uint64", "y": "uint64?"}
    schema = {"x": Type("uint64"), "y": Type("uint64", nullable=True)}
    rows = [{"x": 2**64 - 1, "y": 2**64 - 1}, {"x": 5, "y": None}]
    for text, expected in (
        ("list_avg([x, y])", [float(2**64), 5.0]),
        ("list_sum([y % 7])", [None]),
    ):
        expression = scalar(text, texts)
        given = rows[1:] if "sum" in text else rows
        found = (
            FusedSteps(schema, (MapStep((("value", expression),)),))
            .run(frame_of(schema, given))
            .frame["value"]
            .to_list()
        )
        assert found == [evaluate(expression, row) for row in given] == expected


def test_each_character_has_the_case_and_the_accents_that_duckdb_gives_it() -> None:
    """Of texts without others, as upper and lower case of whole texts are other texts for some."""
    assert all(re.match(SEVERAL, each) for each in map(chr, range(sys.maxunicode + 1)) if len(each.upper()) > 1)
    letters = [chr(code) for code in range(1, 0x10000) if chr(code).isalpha()] + ["ΑΣ", "İi", "aß", "ŉ", "ᾳ"]
    calls = ["upper(x)", "lower(x)", "strip_accents(x)"]
    with duckdb.connect() as base:
        wanted = base.execute(f"select {', '.join(calls)} from (select unnest(?) as x)", [letters]).fetchall()
    found = zip(*(values(call, {"x": "string"}, x=letters) for call in calls), strict=True)
    different = [(each, *one, *other) for each, one, other in zip(letters, found, wanted, strict=True) if one != other]
    assert different == []


@pytest.mark.parametrize("kind", ["int64", "decimal(38, 0)"])
def test_a_mean_has_all_digits_of_the_sum(kind: str) -> None:
    """A float has not all digits of 9007199254740993."""
    assert values(f"list_avg([cast(x as {kind}), 1, 0])", {"x": "int64"}, x=[2**53, -(2**53) - 2, 4]) == [
        *(3002399751580331.0, -3002399751580331.0, 5 / 3),
    ]


DOCUMENTS = [
    *("null", "5", '"x"', '{"a":1,"a":2}', '[[1.5,"2"],[],null,3]', '[{"a":1.5},{"a":"x"},{},null,7]'),
    *('{"a": "12", "b": null}', '{"a":2.675,"b":["x",1.50,[1],{"c":1e2}],"c":"10:1"}'),
    '[true, {"a": 1e3}, 2.5, "7", -3, 300, 1e400, [1], "2020-1-2", "t", null]',
]
STRUCTURES = ['["TINYINT"]', '["VARCHAR"]', '["BOOLEAN"]', '["DECIMAL(9, 2)"]', '["DATE"]', '["TIMESTAMP"]', '["REAL"]']
STRUCTURES += [
    '{"a": "VARCHAR"}',
    '[{"a": "DOUBLE"}]',
    '[["UTINYINT"]]',
    '"BIGINT"',
    '{"a": {"b": ["INTEGER"]}, "c": "INT[]"}',
]
STRUCTURES += ['{"a":"DECIMAL(3,2)","b":["VARCHAR"],"c":"TIME"}', '{"a": "STRUCT(b INT)"}']


@pytest.mark.parametrize("structure", STRUCTURES)
def test_json_becomes_a_value_of_a_structure(structure: str) -> None:
    written = f"from_json(x, '{structure}')"
    expression = scalar(written, {"x": "string"})
    wanted = [evaluate(expression, {"x": document}) for document in DOCUMENTS]
    assert list(map(repr, values(written, {"x": "string"}, x=DOCUMENTS))) == list(map(repr, wanted))


@pytest.mark.parametrize(
    "structure",
    ["x", "5", "{}", "[]", '["INT", "INT"]', '{"a": "INT", "A": "INT"}', '["NOPE"]', '["JSON"]', '["INTERVAL"]'],
)
def test_a_structure_of_no_type_is_refused(structure: str) -> None:
    with pytest.raises(SpecError, match="can't read the structure"):
        scalar(f"from_json(x, '{structure}')", {"x": "string"})
