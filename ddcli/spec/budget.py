"""The budget of a pipeline: the most that a run, each operator, or each operator of some collections may take."""

from __future__ import annotations

from typing import Any

from ddcli.dataclass import dataclass
from ddcli.errors import Text
from ddcli.spec.model import EXAMPLES, WORK_CLASSES, Bounds, Budget, parse_bound
from ddcli.spec.shapes import JsonSchema, Key, NodePlace, Notes, Pairs, Record, Shape, shape
from ddcli.spec.tree import Node, Scalar
from ddcli.spec.values import NAME, Choice


@dataclass(eq=False, repr=False, slots=True)
class Figure(Shape[Text]):
    """A bound of rows, seconds or bytes, as text."""

    what: str

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Text:
        wants, hint = f"a number of {self.what}", f"write it as {EXAMPLES[self.what]}"
        if not isinstance(node, Scalar) or not node.text.value:
            raise notes.mismatch(node, place, wants, hint)
        try:
            parse_bound(self.what, node.text.value)
        except ValueError:
            raise notes.mismatch(node, place, wants, hint) from None
        return node.text

    def _schema(self) -> JsonSchema:
        return {"type": ["string", "integer", "number"]}


@shape(lambda: {"enum": list(WORK_CLASSES)})
def work_class(node: Node, place: NodePlace, notes: Notes) -> Text:
    """Return a class of work, with its place."""
    Choice("class of work", WORK_CLASSES).read(node, place, notes)
    assert isinstance(node, Scalar)
    return node.text


def _bounds(_: NodePlace, arguments: dict[str, Any]) -> Bounds:
    return Bounds(**arguments)


def _budget(_: NodePlace, arguments: dict[str, Any]) -> Budget:
    operator = arguments.pop("operator", Bounds())
    collections = arguments.pop("collections", ())
    return Budget(Bounds(**arguments), operator, collections)


FIGURES = {
    "rows": Key(Figure("rows"), about="rows that operators get, put out, and read of their groups: 1e6, 500k"),
    "seconds": Key(Figure("seconds"), about="seconds, by the clock, or of an operator in all threads: 60, 5min"),
    "bytes": Key(Figure("bytes"), about="bytes written to the state and the outputs: 500MB, 2GiB"),
}
WORK = {"work": Key(work_class, about=f"the class that no operator's work may exceed: {', '.join(WORK_CLASSES)}")}
BUDGET_KEYS = {
    **FIGURES,
    **WORK,
    "operator": Key(Record(_bounds, FIGURES, "a mapping", "{rows: 1e5}", least=1), about="of each operator"),
    "collections": Key(
        Pairs(
            NAME,
            Record(_bounds, FIGURES | WORK, "a mapping", "{work: partition}", least=1),
            "a mapping of collections to bounds",
        ),
        about="of each operator of a collection, in place of the bounds for all",
    ),
}
BUDGET: Shape[Budget] = Record(_budget, BUDGET_KEYS, "a mapping", "{rows: 1e6, work: groups}", least=1)
STEP_BUDGET: Shape[Budget] = Record(
    _budget,
    {name: key for name, key in BUDGET_KEYS.items() if name in (*FIGURES, "operator")},
    "a mapping",
    "{rows: 20}",
    least=1,
)
"""The budget of a test's step, which has no class of work: `dd check` needs no rows for that."""
