"""Python functions as arguments of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.expressions.python import AtHand, named
from ddcli.expressions.steps import PythonStep
from ddcli.plan import logical
from ddcli.plan.relation import Relation
from ddcli.spec.column_shapes import TYPED_COLUMNS
from ddcli.spec.operator_model import PythonFunction
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, Shape
from ddcli.spec.shapes import Key, Record
from ddcli.spec.tree import Mapping, Node
from ddcli.spec.values import Flag, Words

if TYPE_CHECKING:
    from ddcli.expressions.types import Schema
    from ddcli.plan.operators.row import BindContext, Operands

FUNCTION_NAME = Words(
    "a Python function",
    r"[^\W\d][\w.]*:[^\W\d]\w*",
    "write `module:function`; a column can't be called `function` here",
)
FUNCTION = {
    "function": Key(FUNCTION_NAME, required=True, about="a Python function, module:function", argument="name"),
    "columns": Key(TYPED_COLUMNS, required=True, about="the columns it returns, and their types"),
    "batch": Key(Flag(), about="called with a DataFrame, not with one record"),
}
PYTHON = Record(
    lambda _, arguments: PythonFunction(**arguments),
    FUNCTION,
    "a mapping",
    "{function: 'prices:convert', columns: {price: int64}}",
)


def names_function(node: Node, place: NodePlace, notes: Notes) -> bool:
    """Return whether a mapping is about a Python function: it has the key, which then must name one."""
    for word, value in node.entries if isinstance(node, Mapping) else ():
        if word.value == "function":
            FUNCTION_NAME.read(value, place.key(word), notes)
            return True
    return False


@dataclass(eq=False, repr=False, slots=True)
class PythonOr(Shape[Any]):
    """A Python function if there is a key `function`, else something else."""

    python: Shape[Any]
    other: Shape[Any]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Any:
        return (self.python if names_function(node, place, notes) else self.other).read(node, place, notes)

    def _schema(self) -> JsonSchema:
        return {"anyOf": [self.python.schema(), self.other.schema() | {"not": {"required": ["function"]}}]}


def defined(function: PythonFunction, arguments: int, around: BindContext) -> tuple[str, Schema]:
    """Return the name of a function and the types of its columns. Raises an error at its name if it doesn't take this number of arguments, as far as its text shows."""
    schema = {name: kind for name, (_, kind) in function.columns.items()}
    if isinstance(function.name.value, AtHand):
        return function.name.value, schema
    given = "a batch, a DataFrame" if function.batch else "a record, a dict"
    what = (
        f"one argument: {given}"
        if arguments == 1
        else "two arguments: the group's key, and its values with their counts"
    )
    return named(function.name, around.folder, arguments, what), schema


def applied_function(operands: Operands, function: PythonFunction) -> Relation:
    """Return the records that a function of a record returns."""
    name, schema = defined(function, 1, operands.around)
    step = PythonStep(name, function.batch, tuple(schema.items()))
    return Relation(logical.Apply((operands.relation.node,), schema, step))
