"""A row of the table of operators: its arguments in a file, its words, and the constructor of its result.

The constructor is the function below the row: from the collection before the operator to that after it. Its docstring's first line is the operator's
documentation.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, noting, raise_all
from ddcli.expressions.tree import Column, MapStep
from ddcli.expressions.types import INTEGERS, Type
from ddcli.plan import logical
from ddcli.plan.relation import Relation
from ddcli.spec.shapes import As, Key, Nothing, OperatorForm, Record
from ddcli.spec.values import A_SOURCE, ON, one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.errors import DdError, Span, Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import LoopName, Node
    from ddcli.spec.model import Assignments
    from ddcli.spec.shapes import Shape


@dataclass(frozen=True)
class BindContext:
    """The context of operators: the types of the coordinates of time, the loop in whose body they are, if any, and the file's folder."""

    time: tuple[Type, ...] = (Type("int64"),)
    loop: LoopName | None = None
    arrives: bool = False
    """The mark of times of runs, in UTC."""
    folder: str = ""
    inputs: Callable[[], Sequence[Node]] = tuple
    """Returns the nodes of all inputs: rows that depend on no table exist from the first row of these on."""
    exports: dict[str, Node] = field(default_factory=dict)
    """The arrangements for other pipelines that were met, by name."""
    memories: dict[str, Node] = field(default_factory=dict)
    """The calls of functions that remember, by the identity of their results."""
    notes: list[tuple[Span, str]] = field(default_factory=list)
    """Notes on queries, each at its place."""
    places: dict[str, tuple[str, Span]] = field(default_factory=dict)
    """The place of each node in the file, by fingerprint: the path of the operator and its span. Equal nodes are one: the first counts."""


@dataclass(frozen=True)
class Operands:
    """The collections that an operator is applied to: the one before it, and others; `names` has their names in the file."""

    relation: Relation
    span: Span
    around: BindContext = field(default_factory=BindContext)
    others: tuple[Relation, ...] = ()
    names: tuple[str | None, ...] = ()

    @property
    def right(self) -> Relation:
        """Return the only other collection."""
        (right,) = self.others
        return right

    def qualifier(self, name: Text | None) -> str | None:
        """Return the name that qualifies the columns of the only other collection: the one given, or its own."""
        return name.value if name else self.names[0]


@dataclass(frozen=True, slots=True, eq=False)
class OperatorRow(OperatorForm):
    """A row of the table. `build` returns the result over operands, given the arguments that `shape` reads."""

    about: str
    example: str
    build: Callable[..., Relation]
    keeps_columns: bool
    """The mark of an operator that leaves columns as they are: the operators after a wrong one can be checked all the same."""


NOTHING: Shape[dict[str, Any]] = Nothing(lambda _: {})
RIGHT = Key(As(A_SOURCE, one), required=True, about="input or collection on the right", argument="inputs")
ON_KEY = Key(ON, required=True, about="common columns, or left column: right column")


def operator(
    name: str,
    example: str,
    shape: Shape[dict[str, Any]] | dict[str, Key],
    *,
    other_words: str = "",
    keeps_columns: bool = False,
    in_loop: bool = False,
) -> Callable[[Callable[..., Relation]], OperatorRow]:
    """Return the decorator that makes a constructor the row of an operator. `shape` may be the keys of a mapping; `example` is right for it."""
    example = f"{name}: {example}" if example else name
    if isinstance(shape, dict):
        shape = Record(lambda _, arguments: arguments, shape, "a mapping", example)
    given = shape

    def row(build: Callable[..., Relation]) -> OperatorRow:
        about = (build.__doc__ or "").partition("\n")[0]
        return OperatorRow(name, given, tuple(other_words.split()), in_loop, about, example, build, keeps_columns)

    return row


def argument(name: str, shape: Shape[Any]) -> Shape[dict[str, Any]]:
    """Return the shape of an operator with one argument, which has no key in the file."""
    return As(shape, lambda _, value: {name: value})


def require(holds: bool, text: Text, problem: str, hint: str | None = None) -> None:
    """Raise an error at a text if a condition doesn't hold."""
    if not holds:
        raise SpecError(problem, span=text.span, hint=hint)


def integer(relation: Relation, text: Text, what: str, coalesced: str | None = None) -> Expression:
    """Parse an expression that must be an integer and never null; `coalesced` describes the effect of 0 for null."""
    expression = relation.scalar(text)
    fits = expression.type.kind in INTEGERS and not expression.type.nullable
    hint = f"coalesce({text.value}, 0) {coalesced}" if coalesced and expression.type.is_integer else None
    require(fits, text, f"{what} an integer that is never null, not {expression.type}", hint)
    return expression


def columns_of(schema: Schema) -> dict[str, Expression]:
    """Return the columns of a schema as expressions, by name."""
    return {name: Column(name, kind) for name, kind in schema.items()}


def parse_all(relation: Relation, columns: Assignments) -> list[tuple[str, Expression]]:
    """Parse each column's expression, gathering the errors of all of them."""
    parsed: list[tuple[str, Expression]] = []
    errors: list[DdError] = []
    for name, text in columns:
        with noting(errors):
            parsed.append((name.value, relation.scalar(text)))
    raise_all(errors)
    return parsed


def mapped(relation: Relation, columns: Iterable[tuple[str, Expression]]) -> Relation:
    """Return a relation with exactly these columns, and no other names for them."""
    columns = tuple(columns)
    schema = {name: expression.type for name, expression in columns}
    return Relation(logical.Apply((relation.node,), schema, MapStep(columns)))
