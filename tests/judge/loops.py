"""Random loops that have a result: bodies that settle on any input, and bounded ones of whatever operators.

Two kinds of body settle from any start. `closures` only ever add records of a finite domain: each of their operators
gives more for more, none less than none, and in the end `distinct` counts each record once. `extremes` keep the least
(or the greatest) labels that come along some links, which only ever sink to a bound. What they take in from outside is
made distinct before, as a record that is there less than no times would take others away.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from ddcli.expressions.tree import quoted
from tests.judge.columns import KINDS, Columns, expressions
from tests.judge.operators import Sketch, enter, operators, pairs, subset

SIMPLE = tuple(kind for kind in KINDS if kind != "dec")  # sums are of decimals of equal types only
CLIP = {"threshold": "greatest(least(count, 3), -3)"}
"""Keeps counts small where a body multiplies them in each round."""


@st.composite
def loops(draw, sketch: Sketch) -> str:
    """Add a loop to a section, with what it begins from, and return the name of what leaves it."""
    forms = [
        closures,
        extremes,
        bounded,
        *([components] if sketch.depth + 1 < sketch.deepest else []),
        closures,
        unsettled,
    ]
    if sketch.nested and not sketch.depth:
        forms.remove(extremes)
    form = draw(st.sampled_from(forms))
    return draw(form(sketch))


# --- what goes in and what comes out --------------------------------------------------------------------------------


@st.composite
def _kind(draw, sketch: Sketch) -> str:
    """Give a kind of what can be connected, mostly one that some collection has."""
    there = [kind for kind in ("string", "date") if any(columns.of(kind) for columns in sketch.columns.values())]
    return draw(st.sampled_from(["int", "int", "int", *there]))


@st.composite
def _finite(draw, columns: Columns, kind: str) -> str:
    """Give an expression of which there are few values: a column, a literal, or numbers that wrap around."""
    there = columns.of(kind)
    if there and draw(st.integers(0, 3)):
        return quoted(draw(st.sampled_from(there)))
    return f"({draw(expressions(columns, 'int', 1))}) % 5" if kind == "int" else draw(expressions(columns, kind, 0))


@st.composite
def _beginning(draw, sketch: Sketch, kinds: dict[str, str]) -> str:
    """Add a collection of distinct records with columns of these kinds, each mostly another one's; return its name."""
    wanted = Counter(kinds.values())
    fitting = [n for n, has in sketch.columns.items() if all(len(has.of(kind)) >= wanted[kind] for kind in wanted)]
    source = draw(st.sampled_from(fitting if fitting and draw(st.integers(0, 4)) else list(sketch.columns)))
    columns, texts = sketch.columns[source], {}
    for name, kind in kinds.items():
        free = [quoted(column) for column in columns.of(kind) if quoted(column) not in texts.values()]
        texts[name] = draw(st.sampled_from(free)) if free and draw(st.integers(0, 4)) else draw(_finite(columns, kind))
    return sketch.add("i", {"from": source, "apply": [{"map": texts}, "distinct"]}, Columns(kinds, columns.fallible))


@st.composite
def _placed(draw, sketch: Sketch, body: Sketch, variables: dict[str, Any], rounds: Any = None) -> str:
    """Add the loop, of which one collection of the body leaves or several do; return the name of one outside."""
    loop: dict[str, Any] = {"variables": variables, "body": body.collections}
    leaving = [name for name in body.columns if name.partition(".")[0] in body.collections]
    several = draw(st.integers(0, 3)) == 3
    results = draw(st.lists(st.sampled_from(leaving), min_size=1, max_size=3 if several else 1, unique=True))
    loop["result"] = results if several else results[0]
    if rounds is not None:
        loop["max_rounds"] = rounds
    name = sketch.add("l", {"iterate": loop}, body.columns[results[0]])
    if not several:
        return name
    del sketch.columns[name]
    sketch.columns |= {f"{name}.{result}": body.columns[result] for result in results}
    return f"{name}.{results[0]}"


@st.composite
def _entering(draw, name: str, columns: Columns) -> Any:
    """Give a collection by its name, or each of its records from some round on."""
    if draw(st.integers(0, 2)) < 2:
        return name
    return {"from": name, "apply": [draw(enter(columns))]}


# --- bodies that settle ---------------------------------------------------------------------------------------------


@st.composite
def closures(draw, sketch: Sketch, constant: list[str] | None = None) -> str:
    """Add a loop in which records make others until there are no new ones: reachability and its like.

    `constant` is what does not grow in a loop of this kind around, if there is one.
    """
    body = sketch.inner()
    constant = list(sketch.columns) if constant is None else constant
    names = ["x", "y"][: draw(st.integers(1, 2))]
    beginnings, variables, more = {}, {}, []
    for stem in names:
        columns = ["k", "v"] if draw(st.integers(0, 3)) else ["k"]
        kinds = {column: draw(_kind(sketch)) for column in columns}
        beginning = draw(_beginning(sketch, kinds))
        name = body.fresh(stem)
        body.columns |= {beginning: sketch.columns[beginning], name: sketch.columns[beginning]}
        beginnings[name] = beginning
        empty = {"from": beginning, "apply": [{"filter": "false"}]}
        variables[name] = empty if draw(st.integers(0, 4)) == 4 else beginning
        more += [name, beginning]
    if sketch.depth + 1 < sketch.deepest and ((sketch.nested and not sketch.depth) or draw(st.integers(0, 2)) == 2):
        known = set(body.columns)
        draw(closures(body, constant))
        more += [name for name in body.columns if name not in known]
    elif draw(st.booleans()):
        source = draw(st.sampled_from(more))
        apply, columns = draw(_growing(body, more, constant, body.columns[source]))
        more.append(body.add("a", {"from": source, "apply": apply}, columns))
    for name, beginning in beginnings.items():
        source = draw(st.sampled_from(list(reversed(more)) + [name] * 3))
        if body.columns[source].kinds == {"k": "int", "v": "int"} == body.columns[name].kinds and draw(
            st.integers(0, 2)
        ):
            apply, fit = draw(_composed(body, more))
        else:
            apply, columns = draw(_growing(body, more, constant, body.columns[source]))
            fit = {column: draw(_finite(columns, kind)) for column, kind in body.columns[name].kinds.items()}
        known = draw(_entering(beginning, body.columns[beginning]))
        body.collections[name] = {"from": source, "apply": [*apply, {"map": fit}, {"concat": known}, "distinct"]}
    return draw(_placed(sketch, body, variables))


@st.composite
def _composed(draw, body: Sketch, more: list[str]) -> tuple[list[Any], dict[str, str]]:
    """Give the join of links with links that go on where they end, and what makes one link of two."""
    links = [name for name in more if body.columns[name].kinds == {"k": "int", "v": "int"}]
    name = body.fresh("r")
    return [{"join": {"with": draw(st.sampled_from(links)), "as": name, "on": {"v": "k"}}}], {
        "k": "k",
        "v": f"{name}.v",
    }


@st.composite
def _growing(draw, body: Sketch, more: list[str], constant: list[str], columns: Columns) -> tuple[list[Any], Columns]:
    """Give operators whose result has more records when their inputs, all from `more`, have more."""
    apply = []
    for _ in range(draw(st.integers(1, 2))):
        form = draw(st.sampled_from(["join", "join", "semijoin", "filter", "flat_map", "antijoin", "enter"]))
        if form == "filter":
            apply.append({"filter": draw(expressions(columns, "bool", 2))})
        elif form == "flat_map":
            apply.append({"flat_map": {"z": f"generate_series(0, ({draw(_finite(columns, 'int'))}) % 3)"}})
            columns = replace(columns, kinds=columns.kinds | {"z": "int"})
        elif form == "enter":
            apply.append(draw(enter(columns)))
        else:
            # What an antijoin takes away must not grow.
            with_ = draw(st.sampled_from(constant if form == "antijoin" else more))
            other = body.columns[with_]
            on = draw(pairs(columns, other))
            if not on:
                continue
            if form == "join":
                join = {"with": with_, "as": body.fresh("r"), "on": on}
                apply.append({"join": join})
                kinds = {n: kind for n, kind in other.kinds.items() if n not in on.values()}
                kinds = {n if n not in columns.kinds else f"{join['as']}.{n}": kind for n, kind in kinds.items()}
                columns = replace(columns, kinds=columns.kinds | kinds)
            else:
                apply.append({form: {"with": with_, "on": on}})
    return apply, columns


@st.composite
def extremes(draw, sketch: Sketch) -> str:
    """Add a loop in which labels run along links, and each node keeps the least (or greatest): components, distances."""
    node, label = draw(_kind(sketch)), draw(_kind(sketch))
    links = draw(_beginning(sketch, {"a": node, "b": node}))
    labels = draw(_beginning(sketch, {"n": node, "l": label}))
    return draw(_spreading(sketch, links, labels, label))


@st.composite
def _spreading(draw, sketch: Sketch, links: str, labels: str, label: str) -> str:
    """Add the loop in which labels spread along links, and return the name of what leaves."""
    least = draw(st.booleans())
    steps = ["l", "l + 1", "greatest(l - 1, -3)"] if least else ["l", "least(l + 1, 5)"]
    step = draw(st.sampled_from(steps)) if label == "int" else "l"
    body = sketch.inner()
    variable = body.fresh("b")
    body.columns[variable] = body.columns[labels]
    picks: list[Any] = [{"reduce": {"by": ["n"], "l": "min(l)" if least else "max(l)"}}]
    picks += [{"top_k": {"by": ["n"], "k": k, "order_by": ["l" if least else "l desc"]}} for k in (1, 2)]
    apply = [{"join": {"with": links, "as": body.fresh("r"), "on": {"n": "a"}}}, {"map": {"n": "b", "l": step}}]
    apply.append({"concat": draw(_entering(labels, body.columns[labels]))})
    source: Any = variable
    if draw(st.booleans()):
        source = body.add("a", {"from": variable, "apply": apply}, body.columns[variable])
        apply = []
    body.collections[variable] = {"from": source, "apply": [*apply, draw(st.sampled_from(picks))]}
    return draw(_placed(sketch, body, {variable: labels}))


@st.composite
def components(draw, sketch: Sketch) -> str:
    """Add a loop that drops links between nodes whose labels differ, which a loop inside finds anew along what is left."""
    links = draw(_beginning(sketch, {"a": "int", "b": "int"}))
    body = sketch.inner()
    kept = body.fresh("e")
    body.columns[kept] = body.columns[links]
    own = {"from": kept, "apply": [{"map": {"n": "a", "l": "a"}}, "distinct"]}
    labels = body.add("a", own, Columns({"n": "int", "l": "int"}))
    found = draw(_spreading(body, kept, labels, "int"))
    one, other = body.fresh("r"), body.fresh("r")
    apply: list[Any] = [{"join": {"with": found, "as": one, "on": {"a": "n"}}}]
    apply.append({"join": {"with": found, "as": other, "on": {"b": "n"}}})
    apply += [{"filter": draw(st.sampled_from(["l = {}.l", "l <= {}.l"])).format(other)}, {"project": ["a", "b"]}]
    body.collections[kept] = {"from": kept, "apply": [*apply, "distinct"]}
    return draw(_placed(sketch, body, {kept: links}))


# --- any body, for so many rounds -----------------------------------------------------------------------------------


@st.composite
def bounded(draw, sketch: Sketch) -> str:
    """Add a loop of any operators, over one or two variables, that ends after a few rounds."""
    body, variables = draw(_anything(sketch))
    return draw(_placed(sketch, body, variables, draw(st.integers(1, 4))))


@st.composite
def unsettled(draw, sketch: Sketch) -> str:
    """Add a loop of any operators, which settles or is refused."""
    body, variables = draw(_anything(sketch))
    return draw(_placed(sketch, body, variables, {"guard": draw(st.integers(1, 9))}))


@st.composite
def _anything(draw, sketch: Sketch) -> tuple[Sketch, dict[str, Any]]:
    body = sketch.inner()
    outside = list(body.columns)
    variables = {}
    for stem in ["x", "y"][: draw(st.integers(1, 2))]:
        source = draw(st.sampled_from(outside))
        columns = sketch.columns[source]
        simple = [column for column in columns.of(*SIMPLE) if "." not in column]
        kinds = {column: columns.kinds[column] for column in draw(subset(simple, least=2))} if simple else {"k": "int"}
        name = body.fresh(stem)
        texts = {column: draw(_value(columns, kind)) for column, kind in kinds.items()}
        variables[name] = {"from": source, "apply": [{"map": texts}]}
        body.columns[name] = replace(columns, kinds=kinds)
    deepens = sketch.nested and not sketch.depth
    for at in range(draw(st.integers(int(deepens), 2))):
        if body.depth < body.deepest and ((deepens and not at) or draw(st.booleans())):
            draw(loops(body))
            continue
        apply, columns = draw(_changing(body, source := draw(_near(body, outside))))
        body.add("a", {"from": source, "apply": apply}, columns)
    for name in variables:
        apply, columns = draw(_changing(body, source := draw(_near(body, outside))))
        fit = {column: draw(_value(columns, kind)) for column, kind in body.columns[name].kinds.items()}
        body.collections[name] = {
            "from": source,
            "apply": [*apply, {"map": fit}, draw(st.sampled_from(["distinct", CLIP]))],
        }
    return body, variables


@st.composite
def _value(draw, columns: Columns, kind: str) -> str:
    """Give an expression, mostly just a column."""
    there = columns.of(kind) if draw(st.integers(0, 3)) else []
    return quoted(draw(st.sampled_from(there))) if there else draw(expressions(columns, kind, 1))


@st.composite
def _near(draw, body: Sketch, outside: list[str]) -> str:
    """Give the name of a collection, mostly one that depends on the round."""
    inside = [name for name in body.columns if name not in outside]
    return draw(st.sampled_from(inside if draw(st.integers(0, 4)) else outside))


@st.composite
def _changing(draw, body: Sketch, source: str) -> tuple[list[Any], Columns]:
    columns, apply = body.columns[source], []
    for _ in range(draw(st.integers(1, 2))):
        operator, columns = draw(operators(columns, body))
        apply.append(operator)
    return apply, columns
