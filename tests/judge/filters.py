"""Random pipelines full of conditions that fail on no record, of one side of a join, of both, of a group: what a planner may move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from ddcli.expressions.tree import quoted
from tests.judge.case import Case
from tests.judge.columns import KIND_OF, LITERALS, Columns
from tests.judge.logs import cuts, declared_columns, updates
from tests.judge.operators import NEEDS, OPERATORS, Sketch, operators, pairs
from tests.yaml_text import read_yaml, write_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

PASSED = ("join", "join again", "antijoin", "concat", "distinct", "rename", "project", "top_k", "count", "joins")
PASSED += ("window", "asof_join")
"""Operators that conditions pass; others come between now and then."""
GROUPED = ("count(*)", "count(distinct {})", "min({})", "max({})", "sum({})")


@st.composite
def conditions(draw, columns: Columns, depth: int = 2) -> str:
    """Give a condition that fails on no record."""
    if depth and len(columns.kinds) > 1 and draw(st.booleans()):  # alternatives, mostly of columns of different sides
        half = len(columns.kinds) // 2
        parts = [Columns(dict(some)) for some in ([*columns.kinds.items()][:half], [*columns.kinds.items()][half:])]
        ways = [" and ".join(draw(conditions(part, 0)) for part in parts) for _ in range(2)]
        return f"(({ways[0]}) or ({ways[1]}))"
    if depth and draw(st.booleans()):
        form = draw(st.sampled_from(["({} and {})", "({} or {})", "(({} and {}) or ({} and {}))", "(not {})"]))
        return form.format(*(draw(conditions(columns, depth - 1)) for _ in range(form.count("{}"))))
    name = draw(st.sampled_from(columns.of()))
    text, kind = quoted(name), columns.kinds[name]
    forms = ["(1 < 2)", "(1 > 2)", "(null = 1)", f"({text} is null)", f"({text} is not null)"]
    ordered = name in columns.ordered()
    for literal in LITERALS.get(kind, ()):
        forms += [f"({text} = {literal})", f"({text} <> {literal})", f"({text} in ({literal}))"]
        forms += [f"({text} >= {literal})"] * ordered
    same = [other for other in columns.of() if columns.kinds[other] == kind and ordered]
    forms += [f"({text} <= {quoted(other)})" for other in same]
    if kind == "string":
        forms.append(f"({text} like 'a%')")
    return draw(st.sampled_from(list(reversed(forms))))


@st.composite
def _grouped(draw, columns: Columns) -> tuple[Any, Columns]:
    """Give a reduction by some columns, mostly by an aggregate that fails on no rows."""
    by = draw(st.lists(st.sampled_from([name for name in columns.ordered() if name != "a"]), max_size=2, unique=True))
    numbers = columns.of("int")
    form = draw(st.sampled_from(GROUPED)) if numbers else "count(*)"
    kinds = {name: columns.kinds[name] for name in by} | {"a": "int"}
    return {"reduce": {"by": by, "a": form.format(quoted((numbers or [""])[0]))}}, Columns(kinds)


@st.composite
def _looked_up(draw, columns: Columns, sketch: Sketch) -> tuple[list[Any], Columns]:
    """Give two inner joins in a row, the second by what the first looks up, as far as that has a column for it."""
    found, own = [], columns
    for _ in range(2):
        name = draw(st.sampled_from(list(sketch.columns)))
        on = draw(pairs(own, sketch.columns[name]))
        if not on:
            break
        alias = sketch.fresh("r")
        others = {column: kind for column, kind in sketch.columns[name].kinds.items() if column not in on.values()}
        added = {each if each not in columns.kinds else f"{alias}.{each}": kind for each, kind in others.items()}
        found.append({"join": {"with": name, "as": alias, "on": on}})
        columns, own = Columns(columns.kinds | added), Columns(added)
    return found, columns


@st.composite
def filtered_cases(draw, nt: int = 1) -> Case:
    """Give a pipeline over 1 to 3 inputs, of chains in which conditions follow on operators, their logs, and the runs."""
    inputs = {name: draw(declared_columns(looping=False)) for name in ("p", "q", "w")[: draw(st.integers(1, 3))]}
    valid = draw(st.booleans())
    logs = {name: draw(updates(kinds, nt, valid=valid, looping=False)) for name, kinds in inputs.items()}
    sketch = Sketch(nt)
    for name, declared in inputs.items():
        sketch.columns[name] = Columns({column: KIND_OF[kind.removesuffix("?")] for column, kind in declared.items()})
    for _ in range(draw(st.integers(1, 3))):
        source = draw(st.sampled_from(list(reversed(sketch.columns))))
        columns, apply = sketch.columns[source], []
        if not draw(st.integers(0, 3)):
            apply += [{"concat": {"from": source, "apply": ["distinct"]}}, {"filter": draw(conditions(columns))}]
        for _ in range(draw(st.integers(1, 4))):
            if draw(st.integers(0, 4)) == 4 and columns.ordered() not in ([], ["a"]):
                operator, columns = draw(_grouped(columns))
            elif draw(st.integers(0, 4)) == 4:
                operator, columns = draw(operators(columns, sketch))
            else:
                fitting = [each for each in PASSED if each not in NEEDS or NEEDS[each](columns, sketch)]
                chosen = draw(st.sampled_from(fitting))
                make = _looked_up if chosen == "joins" else OPERATORS[chosen]
                operator, columns = draw(make(columns, sketch))
            apply += operator if isinstance(operator, list) else [operator]
            if draw(st.integers(0, 2)):
                apply.append({"filter": draw(conditions(columns))})
        sketch.add("c", {"from": source, "apply": apply}, columns)
    made = [name for name in sketch.columns if name not in inputs]
    outputs = [name for name in made if name == made[-1] or draw(st.booleans())]
    return Case(_file(inputs, sketch.collections, outputs, nt), draw(cuts(logs, nt)))


PARTITIONED = (
    "window: {by: [k], order_by: [v], columns: {r: row_number(), m: max(n), l: lag(v)}}",
    "window: {by: [k, n], order_by: [v desc], columns: {r: rank(), m: count(*)}}",
    "window: {order_by: [v], columns: {r: row_number()}}",
    "top_k: {k: 1, by: [k], order_by: [v]}",
    "top_k: {k: 2, by: [n], order_by: [k desc]}",
    "reduce: {by: [k], v: min(v), n: max(n)}",
    "semijoin: {with: q, 'on': [k]}",
    "antijoin: {with: q, 'on': [k, n]}",
    "asof_join: {with: q, as: q, 'on': [k], at: v}",
    "asof_join: {with: q, as: q, 'on': [k], at: {v: n}, how: left}",
    "asof_join: {with: q, as: q, 'on': [n], at: v, how: left, direction: forward}",
)
"""Operators whose records hang on others with the same key: what is asked of anything else must wait for them."""


@st.composite
def partitioned_cases(draw, nt: int = 1) -> Case:
    """Give a pipeline of one such operator, over very few different integers, and conditions of any of its columns above it."""
    operator = draw(st.sampled_from(PARTITIONED))
    columns = {"k": draw(st.sampled_from(["int16", "int16?"])), "v": "int16", "n": "int16"}
    half = updates(columns, nt, valid=True, looping=False)
    logs = {name: draw(half) + draw(half) for name in "pq"}
    names = [*columns, *(("r",) if "r: " in operator else ())]
    form = draw(st.sampled_from(["{} = 1", "{} >= 1", "{} < 1", "{} is not null", "{0} = 0 or {0} = 2"]))
    wanted = [form.format(name) for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))]
    apply = [read_yaml(operator), *({"filter": condition} for condition in wanted)]
    return Case(
        _file(dict.fromkeys("pq", columns), {"c": {"from": "p", "apply": apply}}, ["c"], nt), draw(cuts(logs, nt))
    )


DISTINCT = (
    ["distinct", {"top_k": {"k": 1, "by": ["k"], "order_by": ["v", "n"]}}],
    [{"reduce": {"by": ["k"], "v": "min(v)", "n": "max(n)"}}],
    [{"top_k": {"k": 1, "by": ["k"], "order_by": ["v desc", "n"]}}],
    [{"project": ["k"]}, "distinct", {"extend": {"v": "k + 0", "n": "k * 0"}}],
)
"""What leaves each key once."""


@st.composite
def shared_cases(draw, nt: int = 1) -> Case:
    """Give a pipeline of joins, all by one key, over sides that several share, that are arranged already, or that have a key once, with conditions above."""
    columns = {"k": draw(st.sampled_from(["int16", "int16?"])), "v": "int16", "n": "int16"}
    half = updates(columns, nt, valid=True, looping=False)
    logs = {name: draw(half) + draw(half) for name in "pq"}
    collections: dict[str, Any] = {
        "once": {"from": "q", "apply": draw(st.sampled_from(DISTINCT))},
        "held": {"from": "q", "apply": [{"arrange": {"by": ["k"]}}]},
    }
    names = ["p", "q", *collections]
    form = st.sampled_from(["{} = 1", "{} >= 1", "{} < 1", "{} is not null", "{0} = 0 or {0} = 2"])
    for at in range(draw(st.integers(2, 4))):
        how = draw(st.sampled_from(["inner", "inner", "left", "left", "right", "full"]))
        left = draw(st.sampled_from(names if at else ["once", "once", *names]))
        right = names[-1] if at and draw(st.booleans()) else draw(st.sampled_from(names))
        apply = [{"join": {"with": right, "as": "r", "on": ["k"], "how": how}}]
        if how == "inner" or not draw(st.integers(0, 2)):
            on = draw(st.sampled_from([{"k": "k"}, {"k": "k", "r.v": "v"}]))
            apply.append({"join": {"with": draw(st.sampled_from(names)), "as": "s", "on": on}})
        asked = draw(st.lists(st.sampled_from(["k", "v", "n", "r.v", "r.n"]), max_size=2))
        plain = [draw(form).format(column) for column in asked]
        if not draw(st.integers(0, 2)):  # alternatives, one of which demands nothing of a side
            own = [draw(form).format(draw(st.sampled_from(some))) for some in (["v", "n"], ["r.v"], ["v", "n", "r.v"])]
            plain = [f"({own[0]} and ({own[1]})) or ({own[2]})"]
        apply += [{"filter": condition} for condition in plain]
        apply.append({"map": {"k": "k", "v": "v", "n": draw(st.sampled_from(["n", "r.n"]))}})
        collections[f"c{at}"] = {"from": left, "apply": apply}
        names.append(f"c{at}")
    made = [name for name in collections if name.startswith("c")]
    outputs = [name for name in made if name == made[-1] or draw(st.booleans())]
    return Case(_file(dict.fromkeys("pq", columns), collections, outputs, nt), draw(cuts(logs, nt)))


KEPT = ("{} <> 1", "{} <> 2", "{} is not null", "not ({} = 0)", "{0} < 1 or {0} <> 2", "{} >= 0", "{} = 1")
"""Conditions that most rows pass, and some that few do."""
PREPARED = (
    [],
    [],
    ["distinct"],
    [{"filter": "v <> 2"}],
    [{"extend": {"v": "coalesce(v, 0)"}}],
    [{"reduce": {"by": ["k", "n"], "v": "max(v)"}}, {"project": ["k", "v", "n"]}],
    [{"join": {"with": "q", "as": "o", "on": ["k"]}}, {"map": {"k": "k", "v": "o.v", "n": "n"}}],
)
"""What is joined by several is made so."""
RENAMED = (
    {"map": {"k": "k", "v": "n", "n": "v"}},
    {"map": {"k": "k", "n": "n", "v": "n"}},
    {"map": {"k": "n", "n": "k", "v": "v"}},
)


@st.composite
def kept_cases(draw, nt: int = 1) -> Case:
    """Give a pipeline of joins that read the same collections by the same keys, each through filters of its own, and their logs."""
    columns = {
        "k": draw(st.sampled_from(["int16", "int16?"])),
        "v": draw(st.sampled_from(["int16", "int16?"])),
        "n": "int16?",
    }
    valid = draw(st.booleans())
    half = updates(columns, nt, valid=valid, looping=False)
    logs = {name: draw(half) + draw(half) for name in "pq"}
    collections: dict[str, Any] = {"b": {"from": "p", "apply": draw(st.sampled_from(PREPARED))}}
    asked = st.builds(lambda form, name: {"filter": form.format(name)}, st.sampled_from(KEPT), st.sampled_from("kvn"))
    on = st.sampled_from([["k"], ["k"], ["k"], {"k": "k", "v": "v"}, {"n": "k"}, {"k": "k", "n": "k"}])
    key, large = draw(on), draw(st.sampled_from(["b", "b", "p"]))

    def filtered() -> list[Any]:
        found = [draw(asked) for _ in range(draw(st.integers(0, 2)))]
        if found and not draw(st.integers(0, 4)):
            found.insert(draw(st.integers(0, len(found))), draw(st.sampled_from(RENAMED)))
        return found

    def other() -> str:
        name = draw(st.sampled_from(["q", "q", large, "b", *(each for each in collections if each.startswith("c"))]))
        apply = filtered() if draw(st.booleans()) else []
        if apply:
            collections[f"s{len(collections)}"] = {"from": name, "apply": apply}
        return [*collections][-1] if apply else name

    for at in range(draw(st.integers(2, 5))):
        apply = [*filtered()]
        how = draw(st.sampled_from(["inner"] * 6 + ["left", "full"]))
        apply.append(
            {"join": {"with": other(), "as": "r", "on": key if draw(st.integers(0, 3)) else draw(on), "how": how}}
        )
        if draw(st.booleans()):
            apply += [draw(asked)] * draw(st.integers(0, 1))
            apply.append(
                {
                    "join": {
                        "with": other(),
                        "as": "s",
                        "on": draw(st.sampled_from([["k"], {"r.n": "k"}])),
                        "how": "inner",
                    }
                }
            )
        if draw(st.booleans()):
            apply.append(draw(asked))
        if not draw(st.integers(0, 3)):
            apply.append({"reduce": {"by": ["k", "v"], "n": "count(*)"}})
        apply.append({"map": {"k": "k", "v": "v", "n": "n"}})
        collections[f"c{at}"] = {"from": draw(st.sampled_from([large, large, large, "q"])), "apply": apply}
    made = [name for name in collections if name.startswith("c")]
    outputs = [name for name in collections if name in made[-1:] or draw(st.integers(0, 3))]
    return Case(_file(dict.fromkeys("pq", columns), collections, outputs, nt), draw(cuts(logs, nt)))


def _file(inputs: Mapping[str, Any], collections: Mapping[str, Any], outputs: Iterable[str], nt: int) -> str:
    """Return a pipeline file over inputs with these columns."""
    time = {} if nt == 1 else {"time": [f"t{at}" for at in range(nt)]}
    declared = {name: {"path": f"in/{name}/", "columns": columns} | time for name, columns in inputs.items()}
    tree = {"dd": 1, "name": "judged", "inputs": declared, "collections": collections}
    return write_yaml(tree | {"outputs": {name: f"out/{name}/" for name in outputs}}, allow_unicode=True)
