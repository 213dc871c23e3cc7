"""Python functions as arguments of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.python import AtHand, named
from ddcli.expressions.steps import PythonStep
from ddcli.plan import logical
from ddcli.plan.memo import MemoizedCalls
from ddcli.plan.relation import Relation
from ddcli.spec.column_shapes import TYPED_COLUMNS
from ddcli.spec.operator_model import PythonFunction
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, Shape
from ddcli.spec.shapes import As, ByKind, Key, Record
from ddcli.spec.tree import Mapping, Node, Scalar
from ddcli.spec.values import Flag, Whole, Words

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
EXAMPLE = "{function: 'prices:convert', columns: {price: int64}}"
PYTHON = Record(lambda _, arguments: PythonFunction(**arguments), FUNCTION, "a mapping", EXAMPLE)


class Memory(Shape[str | None]):
    """True, or the name of a memory: another name begins an empty one."""

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> str | None:
        if isinstance(node, Scalar) and node.may_be("bool"):
            return "" if Flag().read(node, place, notes) else None
        return Words("true, false or the name of a memory").read(node, place, notes).value

    def _schema(self) -> JsonSchema:
        return {"type": ["boolean", "string", "integer"]}


CALL = ByKind[dict[str, Any]](
    "a Python function",
    scalar=As(FUNCTION_NAME, lambda _, name: {"name": name}),
    mapping=Record(
        lambda _, arguments: arguments,
        {
            "call": Key(FUNCTION_NAME, required=True, about="a Python function, module:function", argument="name"),
            "memo": Key(Memory(), about="true: remember its results; or the name of the memory"),
            "calls": Key(Whole(1), about="the most records that a run calls it for"),
        },
        "a mapping",
        "{call: 'models:embed', memo: true}",
    ),
    hint="for example `function: 'prices:convert'`",
)
MEMOIZABLE = Record(
    lambda _, arguments: PythonFunction(**arguments.pop("called"), **arguments),
    FUNCTION
    | {
        "function": Key(
            CALL, required=True, about="a Python function, module:function, or a mapping", argument="called"
        )
    },
    "a mapping",
    EXAMPLE,
)
"""A function of single records, which may remember its results."""


def names_function(node: Node, place: NodePlace, notes: Notes, shape: Shape[Any] = FUNCTION_NAME) -> bool:
    """Return whether a mapping is about a Python function: it has the key, which then must name one."""
    for word, value in node.entries if isinstance(node, Mapping) else ():
        if word.value == "function":
            shape.read(value, place.key(word), notes)
            return True
    return False


@dataclass(eq=False, repr=False, slots=True)
class PythonOr(Shape[Any]):
    """A Python function if there is a key `function`, else something else."""

    python: Shape[Any]
    other: Shape[Any]

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> Any:
        return (self.python if names_function(node, place, notes, CALL) else self.other).read(node, place, notes)

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
    if function.memo is not None:
        return Relation(_memoized(operands, function, name, schema))
    if function.calls is not None:
        hint = "set `memo: true` beside it, or leave it out"
        raise SpecError("`calls` is the budget of a function that remembers", span=function.name.span, hint=hint)
    step = PythonStep(name, function.batch, tuple(schema.items()))
    return Relation(logical.Apply((operands.relation.node,), schema, step))


def _memoized(operands: Operands, function: PythonFunction, name: str, schema: Schema) -> MemoizedCalls:
    """Return the node of a function that remembers. Raises SpecError where it can't, or where another collection has its memory."""
    child, around = operands.relation.node, operands.around
    if child.free:
        problem = f"`{name}` can't remember its results in a loop, where a record comes and goes in rounds"
        raise SpecError(problem, span=function.name.span, hint="call it before the loop, or leave `memo` out")
    if not child.schema:
        raise SpecError(f"`{name}` has no column to remember its results by", span=function.name.span)
    found = MemoizedCalls((child,), schema, name, function.batch, function.memo or "", function.calls)
    if around.memories.setdefault(found.answers, found) != found:
        problem = f"`{name}` remembers its results for another collection already"
        hint = "apply it to one collection of all its arguments, and join that; or give this memory a name of its own, `memo: NAME`"
        raise SpecError(problem, span=function.name.span, hint=hint)
    return found
