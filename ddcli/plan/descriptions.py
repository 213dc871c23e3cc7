"""Descriptions of physical nodes: a word for a node's work, and its details in few words, where possible those of the pipeline file."""

from __future__ import annotations

import re
from functools import singledispatch
from typing import TYPE_CHECKING

from ddcli.expressions.steps import ExplodeStep, FilterStep, MapStep, UnnestStep
from ddcli.expressions.tree import quoted
from ddcli.plan import loops, physical, windows
from ddcli.plan.physical import ALL, in_order_of_time
from ddcli.plan.reductions import RECORDS, finished

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from ddcli.expressions.steps import Step
    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node

OWN = re.compile(
    r"\$(\d+(\.n)?|(value|argument|partition|sort|window)\d+|order\d*(\.\d+)?|from|until|round|all|records|rows\d|present|side|at)"
    r"|#[\w.#$]+"
)
"""Columns that the plan adds: the file doesn't name them."""
INTERNAL = re.compile(r'"#([a-z]+)[\w.#$]*"')
"""A column of a query's plan whose expression is somewhere else: its word is shown."""
SECOND_KEY = re.compile(r"(?P<key>.+)\$\d+", re.DOTALL)
"""A column that stands for two keys exists twice, the second time under such a name."""
MADE = {"$from": "from {}", "$until": "until {}", "$round": "at round {}"}
NOT_NULL = re.compile(r'not \(([\w.]+|"[^"]*") is null\)')


def columns(node: Node) -> dict[str, str]:
    """Return the types of a node's columns by name; columns of the plan's own are named by their expressions, such as `count(*)`."""
    texts = _words(node)
    found: dict[str, str] = {}
    for name, type_ in node.schema.items():
        words = name
        if OWN.fullmatch(name):
            held = texts.get(quoted(name))
            words = MADE.get(name, "{}").format(held) if held else name.strip("#$.0123456789") or "value"
        if name != ALL and not _is_copy(name, node.schema):
            found[words] = str(type_)
    return found


def _words(node: Node) -> dict[str, str]:
    """Return the contents of the plan's own columns, in the words of the pipeline file."""
    if isinstance(node, physical.Accumulate | physical.Group | physical.WindowedGroup):
        return _results(node)
    texts = _words(node.inputs[0]) if len(node.inputs) == 1 else {}
    if isinstance(node, physical.Linear):
        for step in node.steps:
            _step(step, texts)
    return texts


@singledispatch
def details(_node: Node) -> list[str]:
    """Return lines of a few words each with the details of a node's work; none if its kind is enough."""
    return []


@details.register
def _(node: physical.Scan) -> list[str]:
    return [node.meaning] if node.meaning else []


@details.register(physical.UpsertTable | physical.SnapshotTable)
def _(node: physical.UpsertTable | physical.SnapshotTable) -> list[str]:
    return [f"key {', '.join(node.key)}"] if node.key else []


@details.register
def _(node: physical.Linear) -> list[str]:
    texts = _results(node.inputs[0])
    lines = [_step(step, texts) for step in node.steps]
    named = [name for name in node.schema if not OWN.fullmatch(name) and not _is_copy(name, node.schema)]
    return [line for line in lines if line] or [f"to {', '.join(named)}"]


def _results(node: Node) -> dict[str, str]:
    """Return the columns of a reduction's results in the file's words: the plan's own, and those computed from them."""
    if isinstance(node, physical.WindowedGroup):
        called = [_in_words(call.text(), _arguments(node)) for call in node.calls]
        values = [windows.finished(at, call).text() for at, call in enumerate(node.calls)]
        return dict(zip(values, called, strict=True)) | {quoted(f"${at}"): text for at, text in enumerate(called)}
    if not isinstance(node, physical.Accumulate | physical.Group):
        return {}
    found, texts = {quoted(RECORDS): "count(*)"}, _arguments(node)
    found |= {own: texts[own] for own in map(quoted, node.by) if own in texts}
    for at, call in enumerate(node.calls):
        words = _in_words(call.text(), texts)
        counted = ", ".join(_in_words(argument.text(), texts) for argument in call.args)
        found |= {finished(at, call).text(): words, quoted(f"${at}"): words, quoted(f"${at}.n"): f"count({counted})"}
    return found


def _arguments(node: physical.Accumulate | physical.Group | physical.WindowedGroup) -> dict[str, str]:
    """Return the expressions behind the plan's own columns that a reduction reads."""
    (prepared,) = node.inputs
    if isinstance(prepared, physical.Arrangement):
        (prepared,) = prepared.inputs
    if isinstance(prepared, physical.OrderLanes):
        (prepared,) = prepared.inputs
    texts: dict[str, str] = {}
    if isinstance(prepared, physical.Linear):
        texts = _results(prepared.inputs[0])
        for step in prepared.steps:
            _step(step, texts)
    return texts


def _in_words(text: str, texts: Mapping[str, str]) -> str:
    """Return an expression in which the plan's own columns are replaced by their texts, the longest names first."""
    for own in sorted(texts, key=len, reverse=True):
        text = text.replace(own, texts[own])
    return _plain(text)


def _plain(text: str) -> str:
    """Return a text with words for those of the plan's own columns whose expressions are unknown."""
    return INTERNAL.sub(r"\1", text) if "#" in text else text


def _step(step: Step, texts: dict[str, str]) -> str:
    """Return a step for people: of a map only the computed columns. `texts` gets the texts of the plan's own columns."""

    def text(expression: Expression) -> str:
        return without_parentheses(_in_words(expression.text(), texts))

    if isinstance(step, FilterStep):
        return f"where {text(step.condition)}"
    if isinstance(step, MapStep):
        made = [(name, text(expression)) for name, expression in step.columns if expression.text() != quoted(name)]
        texts |= {quoted(name): value for name, value in made if OWN.fullmatch(name)}
        return ", ".join(filter(None, (_made(name, value) for name, value in made)))
    if isinstance(step, UnnestStep):
        return f"{step.name}: {_in_words(step.call.text(), texts)}"
    if isinstance(step, ExplodeStep):
        return f"times {text(step.weight)}"
    return step.function


def _made(name: str, value: str) -> str:
    """Return a computed column for people: one of the plan's own by its purpose, "" for a copy of a key or a constant."""
    if name in MADE:
        return MADE[name].format(value)
    if name in (ALL, physical.SIDE, physical.AT) or _is_copy(name, (value,)):
        return ""
    return value if OWN.fullmatch(name) else f"{name}: {value}"


@details.register
def _(node: physical.Show) -> list[str]:
    return [node.label]


@details.register
def _(node: physical.Arrangement) -> list[str]:
    return [f"by {_by(node.key, _words(node))}"]


@details.register
def _(node: physical.Filtered) -> list[str]:
    return [f"where {without_parentheses(condition.text())}" for condition in node.conditions]


@details.register
def _(node: physical.EquiJoin) -> list[str]:
    left, right = node.inputs
    assert isinstance(left, physical.Arrangement)
    assert isinstance(right, physical.Arrangement)
    texts, others = _words(left), _words(right)
    pairs = zip(left.key, right.key, strict=True)
    return [
        _on(
            (_column(_copied(one, left.key), texts), _column(_copied(other, right.key), others)) for one, other in pairs
        )
    ]


@details.register(physical.HalfJoin | physical.RowCount)
def _(node: physical.RowLookup) -> list[str]:
    on = _on((one, _copied(other, node.arranged.key)) for one, other in node.on)
    return [on, "with the run's own rows" if node.new else "with the rows of earlier runs"]


@details.register
def _(node: physical.FewerRows) -> list[str]:
    return ["fewer rows in the second" if node.fewer else "no fewer rows in the second"]


def _on(pairs: Iterable[tuple[str, str]]) -> str:
    return "on " + ", ".join(one if one == other else f"{one} = {other}" for one, other in pairs)


@details.register
def _(node: physical.AsofGroup) -> list[str]:
    (arranged,) = node.inputs
    assert isinstance(arranged, physical.Arrangement)
    return [
        f"of each {_by(arranged.key, _words(arranged))}",
        f"the nearest with {node.condition}",
        "inner" if node.inner else "left",
    ]


@details.register(physical.Accumulate | physical.Group)
def _(node: physical.Accumulate | physical.Group) -> list[str]:
    return [
        f"by {_by(node.by, _arguments(node))}",
        ", ".join(_in_words(call.text(), _arguments(node)) for call in node.calls),
    ]


@details.register
def _(node: physical.PythonGroup) -> list[str]:
    return [f"by {_by(node.by, {})}", node.function]


@details.register
def _(node: physical.Multiplicity) -> list[str]:
    return [without_parentheses(node.function.text())] if node.function else []


@details.register
def _(node: physical.Top) -> list[str]:
    (arranged,) = node.inputs
    assert isinstance(arranged, physical.Arrangement)
    texts = _words(arranged)
    order = ", ".join(_by([name], texts) + " desc" * descending for name, descending in node.order_by)
    return [f"{node.k} by {order}", f"of each {_by(arranged.key, _words(arranged))}"]


@details.register
def _(node: physical.WindowedGroup) -> list[str]:
    (arranged,) = node.inputs
    assert isinstance(arranged, physical.Arrangement)
    texts = _arguments(node)
    order = ", ".join(
        without_parentheses(_in_words(quoted(name), texts)) + " desc" * descends for name, descends in node.order_by
    )
    calls = ", ".join(_in_words(call.text(), texts) for call in node.calls)
    rows = "row" if node.reach == 1 else "rows"
    read = f"reads {node.reach} {rows} on each side of a change"
    if not in_order_of_time(node) or (node.reach is None and not isinstance(node, physical.RunningGroup)):
        read = "reads whole partitions"
    elif isinstance(node, physical.RunningGroup):
        read = f"reads {'back' if node.backwards else 'on'} from a change as far as it reaches"
    return [
        f"of each {_by(arranged.key, _words(arranged))}",
        *([f"in the order of {order}"] if order else []),
        read,
        calls,
    ]


@details.register
def _(node: physical.Shift) -> list[str]:
    return [" ".join(word for word, given in (("from", node.lower), ("until", node.upper)) if given)]


@details.register
def _(node: physical.PythonShift) -> list[str]:
    return [node.function]


@details.register
def _(node: loops.Iterate) -> list[str]:
    names = ", ".join(name.value for name in node.names)
    return [f"{names}, {node.bound} rounds" if node.bound is not None else names]


def by_words(node: Node) -> str:
    """Return the columns of a node's key, or by which it groups, in the words of the pipeline file; "" where it has none."""
    if isinstance(node, physical.Arrangement):
        return "" if set(node.key) <= {ALL} else _by(node.key, _words(node))
    names = [name for name in getattr(node, "by", ()) if name != ALL]
    texts = _arguments(node) if isinstance(node, physical.Accumulate | physical.Group) else {}
    return _by(names, texts) if names else ""


def _by(names: Iterable[str], texts: Mapping[str, str]) -> str:
    """Return the columns of a key; the one of a single group of all rows is ours, not the file's."""
    key = tuple(names)
    named = [_copied(name, key) for name in key if name != ALL]
    return ", ".join(_column(name, texts) for name in named) or "all"


def _column(name: str, texts: Mapping[str, str]) -> str:
    """Return a column in the words of the pipeline file."""
    if quoted(name) in texts:
        return without_parentheses(texts[quoted(name)])
    return _plain(quoted(name)) if name.startswith("#") else name


def _is_copy(name: str, columns: Container[str]) -> bool:
    """Return whether a column is a second copy of one of these, as a join needs it that names a column twice."""
    found = SECOND_KEY.fullmatch(name)
    return found is not None and found["key"] in columns


def _copied(name: str, key: Sequence[str]) -> str:
    """Return the column of a key that another of its columns is a copy of, or the column itself: see `plan.lower.keyed`."""
    return name.rpartition("$")[0] if _is_copy(name, key) else name


def without_parentheses(text: str) -> str:
    """Return an expression as a person would write it, without the parentheses around all of it.

    >>> without_parentheses("(a + b)"), without_parentheses("(a) + (b)"), without_parentheses("(not (x is null))")
    ('a + b', '(a) + (b)', 'x is not null')
    """
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            text = text[1:-1] if at and at == len(text) - 1 else text
            break
    return NOT_NULL.sub(r"\1 is not null", text)
