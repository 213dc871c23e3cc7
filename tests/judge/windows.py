"""Random windows: every function and aggregate, every kind of frame, orders with ties and nulls at either end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from ddcli.expressions.tree import quoted
from tests.judge.columns import Columns, expressions

if TYPE_CHECKING:
    from collections.abc import Iterable

PLACES = ["row_number()", "rank()", "dense_rank()", "ntile(2)", "ntile(3)"]
DISTANCES = {
    "int": ["0", "1", "2"],
    "uint64": ["0", "1", "9223372036854775807"],
    "float": ["0", "0.5", "1e0"],
    "dec": ["0", "1.5", "2.25"],
    "decimal(30, 1)": ["0", "2.5", "12345678901234567890.5"],
    "date": ["interval '0' day", "interval '1' day", "interval '36' hour", "interval '90' day", "interval '1' month"],
    "datetime[us]": ["interval '1' second", "interval '60000' day", "interval '1' month", "interval '9' year"],
}
"""By the kind of an order's key, how far a frame by values reaches."""


@st.composite
def orders(draw, columns: Columns) -> tuple[list[str], str | None]:
    """Give an order, and the kind of its key if it has one."""
    keys, kind = [], None
    for name in draw(st.lists(st.sampled_from(columns.of()), min_size=0, max_size=2, unique=True)):
        kind = columns.kinds[name]
        text = (
            draw(expressions(columns, kind, 1))
            if kind in {"int", "string"} and draw(st.integers(0, 3)) == 3
            else quoted(name)
        )
        keys.append(text + draw(st.sampled_from(["", " desc", " nulls first", " desc nulls last", " asc nulls last"])))
    return keys, kind if len(keys) == 1 else None


@st.composite
def frames(draw, kind: str | None, *, ordered: bool) -> str:
    """Give a frame, of any unit that the order allows; the ends are in order, but may be far apart or cross."""
    units = ["range"] + (["rows", "rows", "groups"] if ordered else [])
    unit = draw(st.sampled_from(units))
    far = DISTANCES.get(kind or "", []) if unit == "range" else ["0", "1", "2", "5"]
    places = ["unbounded preceding", *(f"{each} preceding" for each in far), "current row"]
    places += [*(f"{each} following" for each in far), "unbounded following"]
    ranks = {place: 0 if "preceding" in place else 1 if place == "current row" else 2 for place in places}
    start = draw(st.sampled_from(places[:-1]))
    end = draw(st.sampled_from([place for place in places[1:] if ranks[place] >= ranks[start]]))
    exclude = draw(
        st.sampled_from(["", "", " exclude no others", " exclude current row", " exclude group", " exclude ties"])
    )
    return f"{unit} between {start} and {end}{exclude}"


@st.composite
def calls(draw, columns: Columns, *, ordered: bool) -> tuple[str, str]:
    """Give a call, and the kind of its value."""
    if draw(st.integers(0, 2)) == 0:
        text = draw(
            st.sampled_from(PLACES[:1] + PLACES[3:] if not ordered else [*PLACES, "percent_rank()", "cume_dist()"])
        )
        return text, "float" if text[0] in "pc" else "int"
    name = draw(st.sampled_from(columns.of()))
    value, kind = quoted(name), columns.kinds[name]
    if ordered and draw(st.booleans()):
        if kind in {"int", "string"}:
            value = draw(st.sampled_from([value, draw(expressions(columns, kind, 1))]))
        far = draw(st.sampled_from(["", ", 0", ", 1", ", 2", f", 1, {quoted(name)}"]))
        form = draw(
            st.sampled_from(["lag({}{})", "lead({}{})", "first_value({})", "last_value({})", "nth_value({}, 2)"])
        )
        text = form.format(value, far)
        return (text if draw(st.booleans()) else f"{text[:-1]} ignore nulls)"), kind
    forms = [
        ("count(*)", "int"),
        ("count({})", "int"),
        ("min({})", kind),
        ("max({})", kind),
        ("count(distinct {})", "int"),
    ]
    if kind in {"int", "float", "dec"}:
        forms += [
            ("sum({})", {"dec": "decimal(38, 2)"}.get(kind, kind)),
            ("avg({})", {"dec": "decimal(38, 6)"}.get(kind, "float")),
        ]
        forms += [("median({})", "float"), ("sum(distinct {})", {"dec": "decimal(38, 2)"}.get(kind, kind))]
    if kind == "bool":
        forms += [("bool_and({})", "bool"), ("bool_or({})", "bool")]
    if kind == "string":
        forms.append(("string_agg({0}, '+' order by {0})", "string"))
    form, result = draw(st.sampled_from(forms))
    return form.format(value), result


RUNNING = {
    "": ["row_number()", "rank()", "dense_rank()"],
    "rows between unbounded preceding and current row": ["row_number()", "rank()", "nth_value({}, 2)"],
    "range between unbounded preceding and current row": ["dense_rank()", "rank()", "nth_value({}, 3)"],
    "rows between current row and unbounded following": [],
    "groups between current row and unbounded following": [],
}
"""Frames that go on from row to row, and the calls beside aggregates that do with them."""


@st.composite
def running_calls(draw, columns: Columns, frame: str) -> tuple[str, str]:
    """Give a call of a window all of whose calls go on from row to row, and the kind of its value."""
    name = draw(st.sampled_from(columns.of()))
    kind = columns.kinds[name]
    forms = [("count(*)", "int"), ("count({})", "int"), ("first_value({})", kind), ("last_value({})", kind)]
    forms += [("first_value({} ignore nulls)", kind), ("last_value({} ignore nulls)", kind)]
    forms += [(form, kind if "{}" in form else "int") for form in RUNNING[frame]]
    if kind not in {"string", "binary"}:
        forms += [("min({})", kind), ("max({})", kind)]
    if kind in {"int", "dec"}:
        forms += [("sum({})", {"dec": "decimal(38, 2)"}.get(kind, kind))]
        forms += [("avg({})", {"dec": "decimal(38, 6)"}.get(kind, "float"))]
    form, result = draw(st.sampled_from(forms))
    return form.format(quoted(name)), result


@st.composite
def window(draw, columns: Columns, sketch: Any = None) -> tuple[Any, Columns]:
    """Give the operator, and the columns of its result."""
    by = draw(st.lists(st.sampled_from(columns.of()), max_size=2, unique=True))
    order, kind = draw(orders(columns))
    made, kinds = {}, dict(columns.kinds)
    running = draw(st.sampled_from(list(RUNNING))) if order and draw(st.booleans()) else None
    names: Iterable[str] = draw(st.lists(st.sampled_from(["l", "m", "v", "n"]), min_size=1, max_size=3, unique=True))
    for name in names:
        one = calls(columns, ordered=bool(order)) if running is None else running_calls(columns, running)
        text, result = draw(one)
        if result == "int" and draw(st.integers(0, 3)) == 3:
            text = f"({text} - coalesce({draw(expressions(columns, 'int', 1))}, 0)) % 5"
        made[name], kinds[name] = text, result
    operator: dict[str, Any] = {"columns": made}
    if by:
        operator["by"] = by
    if order:
        operator["order_by"] = order
    if running:
        operator["frame"] = running
    elif running is None and draw(st.booleans()):
        operator["frame"] = draw(frames(kind, ordered=bool(order)))
    return {"window": operator}, replace(columns, kinds=kinds)
