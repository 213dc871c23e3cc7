"""The explanation of a record as a tree of operators and records down to the updates of inputs, the walk that finds it, and its operators in words."""

from __future__ import annotations

import json
import re
from dataclasses import field
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import MapStep, quoted
from ddcli.expressions.types import no_column
from ddcli.plan import groupings, logical, windows
from ddcli.plan.relation import PRESENCE
from ddcli.plan.words import in_units, named, without_parentheses
from ddcli.privacy import preview, previewed, unnamed
from ddcli.screen import json_value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Sequence

    from ddcli.plan.logical import Source
    from ddcli.plan.node import Node
    from ddcli.provenance.evaluated_plan import Numbers, Record


HIDDEN = re.compile(
    r'"?#(all|argument|around|found|grouping|holds|items|key|known|left|n|one|order|part(?:ition)?|right|rows?|some|sort|value|window)\d*(#\d+)?"?'
)
"""The names of columns that SQL statements have beside their own, quoted or not."""
COPY = re.compile(r"#?(.+?)(#\d+)?", re.DOTALL)
"""The name of a column, as a second one of that name in a statement is called."""
DEEPEST = 6
"""The most rounds of replacing a column of the plan by its expression, which may have others."""


def readable(text: str, node: Node) -> str:
    """Return the words for an operator with the expressions in place of the columns that the plan has made of them for it."""
    return HIDDEN.sub(r"\1", _stated(text, node))


def _stated(text: str, node: Node) -> str:
    """Return the words for an operator as `readable` does, but for columns whose expressions are unknown."""
    text = in_units(text)
    numbered = {name for each in (node, *node.inputs) for name in each.schema if "#" in name}
    for name in sorted(numbered, key=len, reverse=True):
        if (own := _own_name(name, node)) != name:
            text = text.replace(quoted(name), own).replace(name, own)
    if not HIDDEN.search(text):
        return text
    made: dict[str, str] = {}
    waiting: list[Node] = [node] if isinstance(node, groupings.Reduce) else [*node.inputs]
    seen = set[int]()
    while waiting:
        below = waiting.pop(0)
        if id(below) in seen:
            continue
        seen.add(id(below))
        waiting += below.inputs
        for name, words in _computed(below):
            if HIDDEN.fullmatch(name) and words.strip('"') != name:
                own = quoted(name)  # a sum of a column of its own name has no other name
                made.setdefault(name, own if own in words else words)
    for _ in range(DEEPEST):
        text = HIDDEN.sub(lambda found: made.get(found[0].strip('"'), found[0]), text)
    return text


def _computed(node: Node) -> Iterable[tuple[str, str]]:
    """Yield the columns that a node computes, with the expressions for them in words."""
    if isinstance(node, logical.Apply) and isinstance(node.step, MapStep):
        yield from ((name, without_parentheses(expression.text())) for name, expression in node.step.columns)
    elif isinstance(node, groupings.Reduce):
        yield from ((name, without_parentheses(expression.text())) for name, expression in node.by)
        for name, expression in node.results:
            words = without_parentheses(expression.text())
            for at, call in enumerate(node.calls):
                words = words.replace(quoted(f"${at}"), call.text())
            yield name, words
    elif isinstance(node, windows.Window):
        yield from ((name, call.text()) for name, call in node.calls)


def _own_name(name: str, node: Node) -> str:
    """Return the name that a statement has for a column, which the plan numbers where an input below has one of that name; an input's own column may have a number, too."""
    if HIDDEN.fullmatch(name) or named(name) in node.schema:
        return name
    waiting, seen = [node], set[int]()
    while waiting:
        below = waiting.pop()
        if id(below) not in seen:
            seen.add(id(below))
            waiting += below.inputs
            if isinstance(below, logical.Source) and name in below.schema:
                return name
    return named(name)


def show(value: Any) -> str:
    """Return a value for a sentence, texts in quotes.

    >>> show(None), show("a"), show(True), show(float("inf"))
    ('null', "'a'", 'true', 'Infinity')
    """
    return repr(value) if isinstance(value, str) else shown_value(value)


def shown_value(value: Any) -> str:
    """Return a value for a record, written as in other commands' messages and in JSON.

    >>> from decimal import Decimal
    >>> shown_value(Decimal("1.00")), shown_value([Decimal("1.00"), None])
    ('1.00', '["1.00", null]')
    """
    if value is None or isinstance(value, bool | list | dict):
        return json.dumps(json_value(value), ensure_ascii=False)
    return str(json_value(value))


def named_values(node: Node, record: Sequence[Any]) -> dict[str, Any]:
    """Return the values of a record by column: of the columns that the plan adds to the pipeline file's only what a reduction or a window returns, by its expression."""
    returned = {}
    if isinstance(node, groupings.Reduce | windows.Window):
        returned = {name: _stated(words, node) for name, words in _computed(node) if HIDDEN.fullmatch(name)}
    found = {}
    for name, value in zip(node.schema, record, strict=False):
        if name == PRESENCE or no_column(name) is not None or _is_copy(name, node):
            continue
        words = returned.get(name, "#")
        if not HIDDEN.fullmatch(name):
            own = _own_name(name, node) if "#" in name else name
            found[own] = preview(own, value)
        elif "#" not in words:
            found[words] = unnamed(value)
    return found


def asked_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are asked for, without the columns that the plan adds."""
    return previewed({name: value for name, value in values.items() if not HIDDEN.fullmatch(name)})


def _is_copy(name: str, node: Node) -> bool:
    """Return whether a column is another's copy, as a statement has it that names the same column twice."""
    found = COPY.fullmatch(name)
    return found is not None and found[1] != name and found[1] in node.schema


Wanted = TypeVar("Wanted")
Found = TypeVar("Found")
Leaf = tuple[str, int]
"""An update of an input: the input's name, and the update's number among those that may matter."""


@dataclass(eq=False)
class Reason:
    """The reason why a record is in the collection of a node, `count` times: the operator returns it `because` of these records.

    `number` is the round, in a loop. `more` such records are left out of `because`. `notes` are further facts, such as the absence of a
    record. Of an input, `updates` are the numbers of the updates of `source` that make the record. With `everything`, the leaves are
    all updates that may matter. For a `change`, `count` is the change of the record's multiplicity.
    """

    node: Node
    says: str
    record: Record
    count: int
    number: int | None = None
    because: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    more: int = 0
    source: Source | None = None
    updates: Numbers | None = None
    leaves: frozenset[Leaf] = frozenset()
    everything: bool = False
    change: bool = False

    def made_of(self, reasons: list[Reason], shown: int | None = None) -> Reason:
        """Add the reasons below this one, and their leaves, and return it; only the first few of them are `shown`."""
        self.because = reasons if shown is None else reasons[:shown]
        self.more += len(reasons) - len(self.because)
        self.leaves = self.leaves.union(*(reason.leaves for reason in reasons))
        self.everything = self.everything or any(reason.everything for reason in reasons)
        return self

    def made_by(self, source: Source, numbers: Numbers) -> Reason:
        """Have these updates of an input as the leaves, and return the reason."""
        if len(numbers):
            self.updates, self.source = numbers, source
        self.leaves = frozenset((source.name, number) for number in numbers.tolist())
        return self


def walk(
    wanted: Wanted,
    known: dict[Hashable, Found],
    key: Callable[[Wanted], Hashable],
    explain: Callable[[Wanted], Found | Generator[Wanted, Found, Found]],
) -> Found:
    """Return the explanation of a record. `explain` returns it, or a generator: this yields each record whose explanation it needs, gets it, and returns its own.

    The generators that wait are on a list, so an explanation may be as deep as a loop has rounds. `known` has the explanations found so
    far, and gets those found now.
    """
    waiting: list[tuple[Hashable, Generator[Wanted, Found, Found]]] = []
    while True:
        at = key(wanted)
        found = known.get(at)
        if found is None:
            begun = explain(wanted)
            if isinstance(begun, GeneratorType):
                waiting.append((at, begun))
            else:
                found = known[at] = cast("Found", begun)
        while waiting:
            at, steps = waiting[-1]
            try:
                wanted = steps.send(found)  # type: ignore[arg-type]  # None begins the generator
                break
            except StopIteration as end:
                waiting.pop()
                found = known[at] = end.value
        else:
            assert found is not None
            return found


def each_of(wanted: Iterable[Wanted]) -> Generator[Wanted, Any, list[Any]]:
    """Return the explanations of some records, within a generator of `walk`: by `yield from`."""
    found: list[Any] = []
    for each in wanted:
        found += [(yield each)]
    return found
