"""Random operators that are valid: each is drawn to fit the columns that the ones before it leave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from ddcli.expressions.tree import quoted
from tests.judge.columns import KINDS, Columns, expressions
from tests.judge.windows import window

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLED = ("int", "string", "bool", "date", "dec")
"""The kinds of columns whose values `sample` takes."""
HOWS = ("inner", "left", "right", "full")


@dataclass
class Sketch:
    """A section of collections while it is drawn, the file's or that of a loop's body: what can be referred to, fresh names.

    `depth` loops are around it; times have `nt` coordinates. Loops go `deepest` deep; of `nested` ones each has one within.
    """

    nt: int = 1
    depth: int = 0
    deepest: int = 2
    nested: bool = False
    collections: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Columns] = field(default_factory=dict)
    names: Iterator[int] = field(default_factory=lambda: count(1))

    def fresh(self, stem: str) -> str:
        """Return a name that nothing has."""
        return f"{stem}{next(self.names)}"

    def inner(self) -> Sketch:
        """Return the empty section of a body in this one, in which all that can be referred to here can be too."""
        return replace(self, depth=self.depth + 1, collections={}, columns=dict(self.columns))

    def add(self, stem: str, collection: Any, columns: Columns) -> str:
        """Add a collection under a fresh name, and return that."""
        name = self.fresh(stem)
        self.collections[name], self.columns[name] = collection, columns
        return name


@st.composite
def operators(draw, columns: Columns, sketch: Sketch) -> tuple[Any, Columns]:
    """Give an operator and the columns of its result."""
    fitting = [operator for operator in OPERATORS if operator not in NEEDS or NEEDS[operator](columns, sketch)]
    return draw(OPERATORS[draw(st.sampled_from(fitting))](columns, sketch))


def subset(names: list[str], least: int = 1, most: int = 3):
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
    names = draw(subset(["k", "v", "s", "z"], most=4))
    texts, kinds = draw(_values(columns, names))
    return {"map": texts}, replace(columns, kinds=kinds)


@st.composite
def _extend(draw, columns, sketch):
    names = draw(subset(["z", "k", "v"], most=2))
    texts, kinds = draw(_values(columns, names))
    return {"extend": texts}, replace(columns, kinds=columns.kinds | kinds)


@st.composite
def _project(draw, columns, sketch):
    names = draw(subset(columns.of()))
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
def failing(draw, columns):
    """Give an operator whose expression fails on some records: as a condition, a value, or what to group by."""
    failing = f"({draw(expressions(columns, 'int', 1))} // {draw(expressions(columns, 'int', 0))})"
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
def _sample(draw, columns, sketch):
    by = draw(subset(columns.of(*SAMPLED), most=2))
    return {"sample": {"by": by, "percent": draw(st.sampled_from([10, 37.5, 50, 90, 100]))}}, columns


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
        return {"concat": draw(subset(same, most=2))}, columns
    if not all(kind in KINDS and kind != "dec" for kind in columns.kinds.values()):  # sums are of equal types only
        return "consolidate", columns
    name = draw(st.sampled_from(list(sketch.columns)))
    texts = {column: draw(expressions(sketch.columns[name], kind, 1)) for column, kind in columns.kinds.items()}
    apply = [{"map": texts}, *(["negate"] if draw(st.booleans()) else [])]
    return {"concat": {"from": name, "apply": apply}}, columns


def _plain(operator: Any):
    return lambda columns, sketch: st.just((operator, columns))


@st.composite
def pairs(draw, columns: Columns, other: Columns) -> dict[str, str]:
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
    on = draw(pairs(columns, other))
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
def asof_join(draw, columns: Columns, sketch: Sketch) -> tuple[Any, Columns]:
    """Give an as-of join with a collection whose columns all have an order: which of two equal lists is first is not defined."""
    fitting = [name for name, other in sketch.columns.items() if other.ordered() == other.of()]
    if not fitting:
        return "consolidate", columns
    name = draw(st.sampled_from(fitting))
    other = sketch.columns[name]
    plain = [(one, two) for one in columns.ordered() for two in other.of() if columns.kinds[one] == other.kinds[two]]
    compared = [pair for pair in plain if columns.kinds[pair[0]] != "string"]
    if not compared:
        return "distinct", columns
    at = draw(st.sampled_from(compared))
    on = dict(draw(st.lists(st.sampled_from(plain), max_size=2)))
    alias = sketch.fresh("r")
    kinds = dict(columns.kinds)
    for column, kind in other.kinds.items():
        if column not in on.values():
            kinds[column if column not in columns.kinds else f"{alias}.{column}"] = kind
    join: dict[str, Any] = {"with": name, "as": alias, "at": at[0] if at[0] == at[1] else dict([at])}
    if on:
        join["on"] = on
    join |= draw(st.sampled_from([{}, {"how": "left"}, {"how": "inner"}]))
    join |= draw(st.sampled_from([{}, {"direction": "forward"}, {"direction": "backward"}]))
    join |= draw(st.sampled_from([{}, {"strict": True}, {"strict": False}]))
    return {"asof_join": join}, replace(columns, kinds=kinds)


@st.composite
def _semijoin(draw, columns, sketch):
    name = draw(st.sampled_from(list(sketch.columns)))
    on = draw(pairs(columns, sketch.columns[name]))
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
        ("bit_xor({})", "int"),
        ("bit_or({0}) + bit_and({0})", "int"),
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
    forms += [(form, f"list {kind}") for form in ("quantile_disc({}, [1, 0.5])", "max({}, 2)", "min({}, 1)")]
    if kind == "string":
        forms.append((f"string_agg({{}}, '+' order by {order})", kind))
    form, result = draw(st.sampled_from(forms))
    return form.format(text), result


@st.composite
def _reduce(draw, columns, sketch):
    by, kinds = draw(_groups(columns))
    results = {}
    counted = draw(st.sampled_from(["", "", "", *columns.ordered()]))
    for name in draw(subset(["a", "c"], most=2)):
        if counted:  # distinct values alone are counted in two steps
            results[name], kinds[name] = f"count(distinct {quoted(counted)})", "int"
        else:
            results[name], kinds[name] = draw(aggregates(columns))
    return {"reduce": {"by": by} | results}, replace(columns, kinds=kinds)


@st.composite
def _groups(draw, columns: Columns) -> tuple[Any, dict[str, str]]:
    """Give what to group by, a list of columns or expressions by name, and their kinds."""
    if draw(st.integers(0, 3)) == 3:
        kind = draw(st.sampled_from(KINDS))
        return {"g": draw(expressions(columns, kind, 1))}, {"g": kind}
    names = draw(
        subset([name for name in columns.ordered() if name not in {"a", "c"}] or columns.of(), least=0, most=2)
    )
    names = [name for name in names if name not in {"a", "c"}]
    return names, {name: columns.kinds[name] for name in names}


@st.composite
def _python_reduce(draw, columns, sketch):
    by, kinds = draw(_groups(columns))
    function = draw(st.sampled_from(["spread", "least_and_balance"]))
    reduce = {"by": by, "function": f"tests.judge.functions:{function}", "columns": {"a": "int64"}}
    if draw(st.booleans()):
        reduce["values"] = draw(subset(columns.of(), most=2))
    return {"reduce": reduce}, replace(columns, kinds=kinds | {"a": "int"})


@st.composite
def _count(draw, columns, sketch):
    name = sketch.fresh("n")
    if draw(st.booleans()):
        return {"count": {"as": name}}, replace(columns, kinds=columns.kinds | {name: "int"})
    by = draw(subset(columns.of(), most=2))
    return {"count": {"by": by, "as": name}}, replace(columns, kinds={n: columns.kinds[n] for n in by} | {name: "int"})


@st.composite
def _threshold(draw, columns, sketch):
    forms = ["count", "count - 1", "case when count > 1 then 1 else 0 end", "abs(count)", "-count", "count % 2"]
    return {"threshold": draw(st.sampled_from(forms))}, columns


@st.composite
def _top_k(draw, columns, sketch):
    by = draw(subset(columns.of(), least=0, most=2))
    top = {"k": draw(st.integers(1, 3)), "order_by": draw(_order(columns))} | ({"by": by} if by else {})
    return {"top_k": top}, columns


@st.composite
def _arrange(draw, columns, sketch):
    return {"arrange": {"by": draw(subset(columns.of(), most=2))}}, columns


@st.composite
def _temporal_filter(draw, columns, sketch):
    bounds = draw(subset(["from", "until"], most=2))
    return {"temporal_filter": {bound: draw(expressions(columns, "int", 1)) for bound in bounds}}, columns


@st.composite
def _join_function(draw, columns, sketch):
    name = draw(st.sampled_from(["later", "later_in_batches"])) + ("" if sketch.nt == 1 else f"_of_{sketch.nt}")
    function = {"function": f"tests.judge.functions:{name}", "columns": {"k": "int64?", "n": "int64"}}
    if name.startswith("later_in_batches"):
        function["batch"] = True
    return {"join_function": function}, replace(columns, kinds={"k": "int", "n": "int"})


@st.composite
def enter(draw, columns: Columns) -> Any:
    """Give the operator that lets records in at rounds: small ones, so that something enters before a bound."""
    return {"enter": {"at": f"coalesce(({draw(expressions(columns, 'int', 1))}) % 5, 0)"}}


@st.composite
def _enter(draw, columns, sketch):
    return draw(enter(columns)), columns


OPERATORS = {
    "distinct": _plain("distinct"),
    "filter": _filter,
    "map": _map,
    "join": _join,
    "reduce": _reduce,
    "join again": _join,
    "reduce again": _reduce,
    "temporal_filter": _temporal_filter,
    "join_function": _join_function,
    "enter": _enter,
    "temporal_filter again": _temporal_filter,
    "join_function again": _join_function,
    "top_k": _top_k,
    "window": window,
    "asof_join": asof_join,
    "antijoin": _semijoin,
    "count": _count,
    "threshold": _threshold,
    "concat": _concat,
    "negate": _plain("negate"),
    "explode": _explode,
    "sample": _sample,
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
"""What draws each operator and the columns of its result. `again`: another name under which an operator is drawn, so that it is drawn more often."""
NEEDS = {
    "drop": lambda columns, sketch: len(columns.kinds) > 1,
    "sample": lambda columns, sketch: columns.of(*SAMPLED),
    # Which of two equal lists is first is not defined.
    "top_k": lambda columns, sketch: columns.ordered() == columns.of(),
    "window": lambda columns, sketch: columns.ordered() == columns.of(),
    "python flat_map": lambda columns, sketch: columns.kinds.get("k") == "int",
    "temporal_filter": lambda columns, sketch: sketch.nt == 1,
    "temporal_filter again": lambda columns, sketch: sketch.nt == 1,
    "join_function": lambda columns, sketch: columns.kinds.get("k") == "int",
    "join_function again": lambda columns, sketch: columns.kinds.get("k") == "int",
    "enter": lambda columns, sketch: sketch.depth > 0,
}
"""Whether the columns before an operator, its times and the loops around it allow it; without an entry they always do."""
