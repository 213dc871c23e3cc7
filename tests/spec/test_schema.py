"""The JSON Schema of pipeline files accepts what the reader accepts, and refuses a wrong shape as the reader does."""

import json
import re
from typing import ClassVar

import pytest
import yaml

from ddcli.errors import SpecErrors
from ddcli.plan.pipeline_file import json_schema, parse_spec

SCHEMA = json_schema()
KINDS = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
SAYS_NOTHING = {"$schema", "$defs", "title", "description", "examples"}


def valid(value, schema):
    """Return whether a value has a schema's shape: the keywords of draft 2020-12 that we use, as the draft defines them."""
    tests = {
        "type": lambda kinds: any(KINDS[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)),
        "enum": lambda values: value in values,
        "anyOf": lambda schemas: any(valid(value, one) for one in schemas),
        "not": lambda one: not valid(value, one),
        "$ref": lambda path: valid(value, SCHEMA["$defs"][path.removeprefix("#/$defs/")]),
        "minimum": lambda least: not KINDS["number"](value) or value >= least,
        "exclusiveMinimum": lambda least: not KINDS["number"](value) or value > least,
        "maximum": lambda most: not KINDS["number"](value) or value <= most,
        "minLength": lambda least: not isinstance(value, str) or len(value) >= least,
        "minItems": lambda least: not isinstance(value, list) or len(value) >= least,
        "uniqueItems": lambda _: not isinstance(value, list) or len({json.dumps(v) for v in value}) == len(value),
        "items": lambda one: not isinstance(value, list) or all(valid(item, one) for item in value),
        "minProperties": lambda least: not isinstance(value, dict) or len(value) >= least,
        "maxProperties": lambda most: not isinstance(value, dict) or len(value) <= most,
        "required": lambda names: not isinstance(value, dict) or all(name in value for name in names),
        "properties": lambda known: (
            not isinstance(value, dict) or all(valid(value[name], known[name]) for name in known if name in value)
        ),
        "patternProperties": lambda known: (
            not isinstance(value, dict)
            or all(valid(value[name], known[form]) for form in known for name in value if re.search(form, name))
        ),
        "additionalProperties": lambda one: (
            not isinstance(value, dict)
            or all(
                one is not False and valid(value[name], one)
                for name in value
                if name not in schema.get("properties", {})
                and not any(re.search(form, name) for form in schema.get("patternProperties", {}))
            )
        ),
    }
    return all(tests[keyword](argument) for keyword, argument in schema.items() if keyword not in SAYS_NOTHING)


def data(text):
    """Return a file's data as an editor sees it, by the core schema: `on` is text, `012` is 12."""

    class Core(yaml.SafeLoader):
        yaml_implicit_resolvers: ClassVar = {}

    Core.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(null|~|)$"), ["n", "~", ""])
    Core.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), ["t", "f"])
    Core.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
    Core.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+\.[0-9]+$"), list("-+0123456789"))
    return yaml.load(text, Loader=Core)  # noqa: S506 -- a safe loader


HEAD = "dd: 1\nname: p\ninputs: {orders: in/, customers: {path: c/, columns: {id: int64, 'on': 'string?'}, diff: ~}}\n"


def applied(line):
    return f"{HEAD}collections:\n  big:\n    from: orders\n    apply:\n      - {line}\noutputs: {{big: out/}}\n"


RIGHT = [
    "map: {a: b + 1, n: 1, t: true}",
    "map: {function: 'm:f', columns: {a: int64}, batch: true}",
    "extend: {n: 1}",
    "project: [a, 'no']",
    "rename: {old: new}",
    "filter: a > 0",
    "sample: {by: [a, b], percent: 0.5}",
    "flat_map: {x: unnest(xs)}",
    "negate",
    "negate:",
    "distinct: {}",
    "concat: customers",
    "concat: [customers, {from: orders, apply: [distinct]}]",
    "join: {with: {from: orders, apply: [distinct, {filter: x}]}, as: c, on: {a: b}, how: full}",
    "asof_join: {with: customers, as: c, on: [id], at: {a: b}, how: left, direction: forward, strict: true}",
    "semijoin: {with: customers, on: [id]}",
    "reduce: {by: [a], n: count(*), values: sum(b)}",
    "reduce: {by: {d: cast(t as date)}, n: count(*)}",
    "reduce: {by: [], n: count(*)}",
    "reduce: {by: [a], function: 'm:f', columns: {a: int64}, values: [b]}",
    "count",
    "count: {by: [a], as: n}",
    "top_k: {by: [a], k: 3, order_by: [a desc]}",
    "window: {by: [a], order_by: [b nulls first], frame: rows 1 preceding, columns: {n: count(*)}}",
    "window: {columns: {n: row_number()}}",
    "temporal_filter: {from: a, until: b}",
    "temporal_filter: {until: b}",
    "join_function: {function: 'm:f', columns: {a: int64}, batch: true}",
    "inspect: after",
]
WRONG = [
    "filtr: a > 0",
    "filter:",
    "filter: [a, b]",
    "filter",
    "map: {}",
    "map: {a: }",
    "map: {function: 'm:f', columns: {a: int64}, other: 1}",
    "project: [[a]]",
    "project: [a, a]",
    "project: []",
    "rename: {a: [b]}",
    "sample: {by: [], percent: 1}",
    "sample: {percent: 1}",
    "sample: {by: [a], percent: many}",
    "flat_map: {x: unnest(xs), y: unnest(ys)}",
    "flat_map: {function: 'm:f'}",
    "distinct: {on: a}",
    "concat: {apply: [distinct]}",
    "join: {with: customers}",
    "join: {with: customers, on: [[id]]}",
    "join: {with: customers, on: [id], how: outer}",
    "join: {with: customers, on: [id], kind: left}",
    "reduce: {by: [[a]], n: count(*)}",
    "reduce: {by: [a], n: {count: all}}",
    "count: {of: a}",
    "top_k: {k: 0, order_by: [a]}",
    "top_k: {k: 1}",
    "window: {by: [a]}",
    "window: {columns: {}}",
    "temporal_filter: {}",
    "temporal_filter: a",
    "temporal_filter: {from: a, to: b}",
    "join_function: {a: b}",
    "join_function: {function: 'm:f'}",
    "{distinct: , negate: }",
]


LOOP = "{variables: {v: orders}, body: {v: {from: v, apply: [enter: {at: id}]}}, result: v}"
RIGHT_LOOPS = [
    f"iterate: {LOOP}, apply: [distinct]",
    f"iterate: {LOOP.replace('{from: v,', '{from: [v, w],').replace('}, result', ', w: {from: customers}}, result')}",
    f"iterate: {LOOP.replace('{v: {from', '{w: {from: v}, v: {from')}",
    f"iterate: {LOOP.replace('{v: orders}', '{v: {from: orders}}')}",
    f"iterate: {{variables: {{u: orders}}, body: {{u: {{iterate: {LOOP.replace('v: orders', 'v: u')}}}}}, result: u}}",
    f"iterate: {LOOP[:-1]}, max_rounds: 3}}",
    f"iterate: {LOOP[:-1]}, max_rounds: {{guard: 3}}}}",
]
WRONG_LOOPS = [
    f"iterate: {LOOP}, from: orders",
    f"iterate: {LOOP}, apply: distinct",
    "iterate: orders",
    "apply: [distinct]",
    f"iterate: {LOOP.replace('{v: orders}', 'v')}",
    f"iterate: {LOOP.replace('{v: orders}', '{}')}",
    f"iterate: {LOOP.replace(', result: v', '')}",
    f"iterate: {LOOP.replace('result: v', 'result: []')}",
    f"iterate: {LOOP.replace('result: v', 'result: [v, v]')}",
    f"iterate: {LOOP.replace('result: v', 'result: {v: v}')}",
    f"iterate: {LOOP.replace('at: id', 'to: id')}",
    f"iterate: {LOOP.replace('{at: id}', 'id')}",
    f"iterate: {LOOP.replace('{from: v,', '{')}",
    f"iterate: {LOOP[:-1]}, max_rounds: 0}}",
    f"iterate: {LOOP[:-1]}, max_rounds: many}}",
    f"iterate: {LOOP[:-1]}, max_rounds: {{}}}}",
    f"iterate: {LOOP[:-1]}, max_rounds: {{guard: 0}}}}",
    f"iterate: {LOOP[:-1]}, rounds: 3}}",
]


def looping(collection):
    return f"{HEAD}collections: {{big: {{{collection}}}}}\noutputs: {{big: out/}}\n"


@pytest.mark.parametrize("text", [*map(applied, RIGHT), *map(looping, RIGHT_LOOPS)])
def test_what_is_right(text):
    parse_spec(text, "p.yaml")
    assert valid(data(text), SCHEMA)


@pytest.mark.parametrize("text", [*map(applied, WRONG), *map(looping, WRONG_LOOPS)])
def test_what_is_wrong(text):
    with pytest.raises(SpecErrors):
        parse_spec(text, "p.yaml")
    assert not valid(data(text), SCHEMA)


@pytest.mark.parametrize("change", [("dd: 1", "dd: 2"), ("name: p", "nam: p"), ("path: c/", "pth: c/"), ("in/", "")])
def test_wrong_sections(change):
    text = applied("distinct").replace(*change)
    with pytest.raises(SpecErrors):
        parse_spec(text, "p.yaml")
    assert not valid(data(text), SCHEMA)


def test_pipelines_to_learn_from(root):
    paths = sorted((root / "pipelines").glob("*.yaml"))
    assert paths
    for path in paths:
        assert valid(data(path.read_text(encoding="utf-8")), SCHEMA), path


def test_schema_is_json_and_whole():
    """It survives JSON, and every reference in it leads somewhere."""
    text = json.dumps(SCHEMA)
    assert json.loads(text) == SCHEMA
    for name in ("apply", "operator", "source", "collection"):
        assert f'"#/$defs/{name}"' in text
        assert name in SCHEMA["$defs"]
