"""Random pipelines that are valid: each operator is drawn to fit the columns that the ones before it leave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from hypothesis import strategies as st

from ddcli.expressions.tree import quoted
from tests.judge.columns import KIND_OF, KINDS, Columns, expressions

MOST_OPERATORS = 6
HOWS = ("inner", "left", "right", "full")


@dataclass
class Sketch:
    """A pipeline file while it is being drawn: its inputs as declared, collections with their columns, fresh names."""

    inputs: dict[str, dict[str, str]]
    nt: int = 1
    collections: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Columns] = field(default_factory=dict)
    names: int = 0

    def fresh(self, stem: str) -> str:
        """Return a name that nothing has."""
        self.names += 1
        return f"{stem}{self.names}"

    def text(self, outputs: list[str]) -> str:
        """Return the file."""
        time = {} if self.nt == 1 else {"time": [f"t{at}" for at in range(self.nt)]}
        inputs = {name: {"path": f"in/{name}/", "columns": columns} | time for name, columns in self.inputs.items()}
        tree: dict[str, Any] = {"dd": 1, "name": "judged", "inputs": inputs}
        if self.collections:
            tree["collections"] = self.collections
        tree["outputs"] = {name: f"out/{name}/" for name in outputs}
        return yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=10_000, allow_unicode=True)


@st.composite
def pipelines(draw, inputs: dict[str, dict[str, str]], *, nt: int = 1, fallible: bool = False) -> str:
    """Give the text of a pipeline over declared inputs whose times have `nt` coordinates."""
    sketch = Sketch(inputs, nt)
    for name, columns in inputs.items():
        kinds = {column: KIND_OF[kind.removesuffix("?")] for column, kind in columns.items()}
        sketch.columns[name] = Columns(kinds, fallible)
    if fallible:
        source = draw(st.sampled_from(list(inputs)))
        operator, columns = draw(_failing(sketch.columns[source]))
        sketch.collections["f"], sketch.columns["f"] = {"from": source, "apply": [operator]}, columns
    left = draw(st.integers(1, MOST_OPERATORS))
    while left:
        here = draw(st.integers(1, left))
        left -= here
        source = draw(st.sampled_from(list(reversed(sketch.columns))))
        columns, apply = sketch.columns[source], []
        for _ in range(here):
            operator, columns = draw(operators(columns, sketch))
            apply.append(operator)
        name = sketch.fresh("c")
        sketch.collections[name] = {"from": source, "apply": apply}
        sketch.columns[name] = columns
    *earlier, last = sketch.collections
    return sketch.text([last, *(name for name in earlier if draw(st.integers(0, 2)) == 2)])


@st.composite
def operators(draw, columns: Columns, sketch: Sketch) -> tuple[Any, Columns]:
    """Give an operator and the columns of its result."""
    fitting = [operator for operator in OPERATORS if operator not in NEEDS or NEEDS[operator](columns)]
    return draw(OPERATORS[draw(st.sampled_from(fitting))](columns, sketch))


def _subset(names: list[str], least: int = 1, most: int = 3):
    return st.lists(st.sampled_from(names), min_size=min(least, len(names)), max_size=most, unique=True)


@st.composite
def _values(draw, columns: Columns, names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Give expressions for columns, and their kinds: plain columns of any kind, or computed ones."""
    texts, kinds = {}, {}
    for name in names:
        if draw(st.booleans()):
            column = draw(st.sampled_from(columns.of()))
            texts[name], kinds[name] = quoted(column), columns.kinds[column]
        else:
            kinds[name] = draw(st.sampled_from(KINDS))
            texts[name] = draw(expressions(columns, kinds[name]))
    return texts, kinds


@st.composite
def _map(draw, columns, sketch):
    names = draw(_subset(["k", "v", "s", "z"], most=4))
    texts, kinds = draw(_values(columns, names))
    return {"map": texts}, replace(columns, kinds=kinds)


@st.composite
def _extend(draw, columns, sketch):
    names = draw(_subset(["z", "k", "v"], most=2))
    texts, kinds = draw(_values(columns, names))
    return {"extend": texts}, replace(columns, kinds=columns.kinds | kinds)


@st.composite
def _project(draw, columns, sketch):
    names = draw(_subset(columns.of()))
    return {"project": names}, replace(columns, kinds={name: columns.kinds[name] for name in names})


@st.composite
def _drop(draw, columns, sketch):
    name = draw(st.sampled_from(columns.of()))
    return {"drop": [name]}, replace(columns, kinds={n: kind for n, kind in columns.kinds.items() if n != name})


@st.composite
def _rename(draw, columns, sketch):
    name, new = draw(st.sampled_from(columns.of())), sketch.fresh("n")
    kinds = {new if n == name else n: kind for n, kind in columns.kinds.items()}
    return {"rename": {name: new}}, replace(columns, kinds=kinds)


@st.composite
def _failing(draw, columns):
    """Give an operator whose expression fails on some records: as a condition, a value, or what to group by."""
    failing = f"({draw(expressions(columns, 'int', 1))} / {draw(expressions(columns, 'int', 0))})"
    if draw(st.booleans()):
        failing = f"cast({draw(expressions(columns, 'string', 1))} as int64)"
    extended = {"extend": {"z": failing}}, replace(columns, kinds=columns.kinds | {"z": "int"})
    filtered = {"filter": f"{failing} >= 0"}, columns
    grouped = {"reduce": {"by": {"g": failing}, "a": "count(*)"}}, replace(columns, kinds={"g": "int", "a": "int"})
    return draw(st.sampled_from([extended, filtered, grouped]))


@st.composite
def _filter(draw, columns, sketch):
    return {"filter": draw(expressions(columns, "bool", 3))}, columns


@st.composite
def _flat_map(draw, columns, sketch):
    name = draw(st.sampled_from(["z", "k"]))
    lists = [column for column in columns.of() if columns.kinds[column].startswith("list ")]
    form = draw(st.sampled_from(["series", "array", "split", "column"]))
    if form == "column" and lists:
        column = draw(st.sampled_from(lists))
        kind, text = columns.kinds[column].removeprefix("list "), f"unnest({quoted(column)})"
    elif form == "array":
        kind = "int"
        text = f"unnest([{draw(expressions(columns, kind, 1))}, {draw(expressions(columns, kind, 1))}])"
    elif form == "split":
        kind, text = "string", f"unnest(split({draw(expressions(columns, 'string', 1))}, 'a'))"
    else:
        kind, text = "int", f"generate_series(-1, ({draw(expressions(columns, 'int', 1))}) % 3)"
    rest = {n: kind for n, kind in columns.kinds.items() if n != name}
    return {"flat_map": {name: text}}, replace(columns, kinds=rest | {name: kind})


@st.composite
def _python_map(draw, columns, sketch):
    function = {"function": "tests.judge.functions:twice", "columns": {"k": "int64?", "n": "int64"}}
    if draw(st.booleans()):
        function = function | {"function": "tests.judge.functions:twice_in_batches", "batch": True}
    return {"flat_map": function}, replace(columns, kinds={"k": "int", "n": "int"})


@st.composite
def _explode(draw, columns, sketch):
    return {
        "explode": f"coalesce({draw(expressions(columns, 'int', 1))}, {draw(st.sampled_from(['1', '0', '-1']))})"
    }, columns


@st.composite
def _concat(draw, columns, sketch):
    """Add one or two collections, their columns made to fit; or one beside which nothing has to be done."""
    same = [name for name, other in sketch.columns.items() if other.kinds == columns.kinds]
    if same and draw(st.booleans()):
        return {"concat": draw(_subset(same, most=2))}, columns
    if not all(kind in KINDS and kind != "dec" for kind in columns.kinds.values()):  # sums are of equal types only
        return "consolidate", columns
    name = draw(st.sampled_from(list(sketch.columns)))
    texts = {column: draw(expressions(sketch.columns[name], kind, 1)) for column, kind in columns.kinds.items()}
    apply = [{"map": texts}, *(["negate"] if draw(st.booleans()) else [])]
    return {"concat": {"from": name, "apply": apply}}, columns


def _plain(operator: Any):
    return lambda columns, sketch: st.just((operator, columns))


@st.composite
def _pairs(draw, columns: Columns, other: Columns) -> dict[str, str]:
    """Give the columns on which two collections may be joined; empty if there are none."""
    fits = [(one, two) for one in columns.of() for two in other.of() if columns.kinds[one] == other.kinds[two]]
    fits = [pair for pair in fits if not columns.kinds[pair[0]].startswith("list")]
    fits.sort(key=lambda pair: pair != ("k", "k"))
    chosen = draw(st.lists(st.sampled_from(fits), min_size=1, max_size=2)) if fits else []
    return dict(chosen)


@st.composite
def _join(draw, columns, sketch):
    name = draw(st.sampled_from(list(reversed(sketch.columns))))
    other = sketch.columns[name]
    on = draw(_pairs(columns, other))
    if not on:
        return "consolidate", columns
    alias, how = sketch.fresh("r"), draw(st.sampled_from(HOWS))
    kinds = dict(columns.kinds)
    for column, kind in other.kinds.items():
        if column not in on.values():
            kinds[column if column not in columns.kinds else f"{alias}.{column}"] = kind
    join = {"with": name, "as": alias, "on": list(on) if all(a == b for a, b in on.items()) else on}
    return {"join": join | ({"how": how} if how != "inner" else {})}, replace(columns, kinds=kinds)


@st.composite
def _semijoin(draw, columns, sketch):
    name = draw(st.sampled_from(list(sketch.columns)))
    on = draw(_pairs(columns, sketch.columns[name]))
    if not on:
        return "distinct", columns
    return {draw(st.sampled_from(["semijoin", "antijoin"])): {"with": name, "on": on}}, columns


@st.composite
def _order(draw, columns: Columns, least: int = 1) -> list[str]:
    names = draw(st.lists(st.sampled_from(columns.ordered()), min_size=least, max_size=2, unique=True))
    return [quoted(name) + draw(st.sampled_from(["", " desc"])) for name in names]


AGGREGATES = {
    "int": [
        ("sum({})", "int"),
        ("avg({})", "float"),
        ("sum({} * 2) + count(*)", "int"),
        ("median({})", "float"),
        ("sum(distinct {})", "int"),
        ("quantile_cont({}, 0.25)", "float"),
    ],
    "float": [("sum({})", "float"), ("avg({})", "float"), ("median({})", "float")],
    "dec": [("sum({})", "decimal"), ("avg({})", "decimal")],
    "bool": [("bool_and({})", "bool"), ("bool_or({})", "bool")],
    "string": [("min({} || 'x')", "string"), ("max(length({}))", "int")],
}


@st.composite
def aggregates(draw, columns: Columns) -> tuple[str, str]:
    """Give an aggregate and its kind."""
    names = columns.ordered()
    if not names or draw(st.integers(0, 3)) == 0:
        return "count(*)", "int"
    name = draw(st.sampled_from(names))
    kind, text = columns.kinds[name], quoted(name)
    forms = [("count({})", "int"), ("count(distinct {})", "int"), ("min({})", kind), ("max({})", kind)]
    forms += AGGREGATES.get(kind, [])
    order = ", ".join(draw(_order(columns)))
    forms += [(f"first({{}} order by {order})", kind), (f"last({{}} order by {order})", kind), ("mode({})", kind)]
    forms += [("quantile_disc({}, 0.5)", kind), (f"array_agg({{}} order by {order})", f"list {kind}")]
    if kind == "string":
        forms.append((f"string_agg({{}}, '+' order by {order})", kind))
    form, result = draw(st.sampled_from(forms))
    return form.format(text), result


@st.composite
def _reduce(draw, columns, sketch):
    by, kinds = draw(_groups(columns))
    results = {}
    for name in draw(_subset(["a", "c"], most=2)):
        results[name], kinds[name] = draw(aggregates(columns))
    return {"reduce": {"by": by} | results}, replace(columns, kinds=kinds)


@st.composite
def _groups(draw, columns: Columns) -> tuple[Any, dict[str, str]]:
    """Give what to group by, a list of columns or expressions by name, and their kinds."""
    if draw(st.integers(0, 3)) == 3:
        kind = draw(st.sampled_from(KINDS))
        return {"g": draw(expressions(columns, kind, 1))}, {"g": kind}
    names = draw(
        _subset([name for name in columns.ordered() if name not in {"a", "c"}] or columns.of(), least=0, most=2)
    )
    names = [name for name in names if name not in {"a", "c"}]
    return names, {name: columns.kinds[name] for name in names}


@st.composite
def _python_reduce(draw, columns, sketch):
    by, kinds = draw(_groups(columns))
    function = draw(st.sampled_from(["spread", "least_and_balance"]))
    reduce = {"by": by, "function": f"tests.judge.functions:{function}", "columns": {"a": "int64"}}
    if draw(st.booleans()):
        reduce["values"] = draw(_subset(columns.of(), most=2))
    return {"reduce": reduce}, replace(columns, kinds=kinds | {"a": "int"})


@st.composite
def _count(draw, columns, sketch):
    name = sketch.fresh("n")
    if draw(st.booleans()):
        return {"count": {"as": name}}, replace(columns, kinds=columns.kinds | {name: "int"})
    by = draw(_subset(columns.of(), most=2))
    return {"count": {"by": by, "as": name}}, replace(columns, kinds={n: columns.kinds[n] for n in by} | {name: "int"})


@st.composite
def _threshold(draw, columns, sketch):
    forms = ["count", "count - 1", "case when count > 1 then 1 else 0 end", "abs(count)", "-count", "count % 2"]
    return {"threshold": draw(st.sampled_from(forms))}, columns


@st.composite
def _top_k(draw, columns, sketch):
    by = draw(_subset(columns.of(), least=0, most=2))
    top = {"k": draw(st.integers(1, 3)), "order_by": draw(_order(columns))} | ({"by": by} if by else {})
    return {"top_k": top}, columns


@st.composite
def _arrange(draw, columns, sketch):
    return {"arrange": {"by": draw(_subset(columns.of(), most=2))}}, columns


OPERATORS = {
    "distinct": _plain("distinct"),
    "filter": _filter,
    "map": _map,
    "join": _join,
    "reduce": _reduce,
    "join again": _join,
    "reduce again": _reduce,
    "top_k": _top_k,
    "antijoin": _semijoin,
    "count": _count,
    "threshold": _threshold,
    "concat": _concat,
    "negate": _plain("negate"),
    "explode": _explode,
    "flat_map": _flat_map,
    "python flat_map": _python_map,
    "python reduce": _python_reduce,
    "extend": _extend,
    "project": _project,
    "drop": _drop,
    "rename": _rename,
    "consolidate": _plain("consolidate"),
    "arrange": _arrange,
    "inspect": _plain({"inspect": "seen"}),
}
NEEDS = {
    "drop": lambda columns: len(columns.kinds) > 1,
    "top_k": lambda columns: columns.ordered() == columns.of(),  # which of two equal lists is first is not defined
    "python flat_map": lambda columns: columns.kinds.get("k") == "int",
}
