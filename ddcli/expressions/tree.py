"""The typed tree of an expression, and the names that it may use: parsing makes it, lowering reads it, fingerprints hash it.

Every node has its type, nullability included, so later code never infers it again. Conversions between types
are nodes (`Cast`), never implicit in an operator: `int64 + float64` is a tree in which the integer is cast.
Nodes are immutable and compare without their place in the text (`span`). Nothing here needs a parser.
The linear steps that a stage fuses are made of trees, and are here as well.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from decimal import Decimal
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np
    import polars as pl

    from ddcli.errors import Span
    from ddcli.expressions.types import Schema, Type

    Names = Iterable[str]

    State = tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None]

    """The frame so far, the input row of each of its rows, the factors of their diffs (None as in StageResult)."""


Value = int | float | Decimal | str | bool | dt.date | dt.time | dt.timedelta | None

PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
INFIX = {"+", "-", "*", "/", "//", "%", "||", "=", "<>", "<", "<=", ">", ">=", "and", "or"}
INFIX |= {"is distinct from", "is not distinct from", "&", "|", "<<", ">>"}
# Names that sqlglot reads as something else than a column when they stand alone.
RESERVED = {
    "and", "array", "as", "between", "case", "cast", "current_date", "distinct", "else", "end", "exists", "false",
    "from", "in", "interval", "is", "like", "ilike", "not", "null", "or", "order", "select", "then", "true", "when",
}  # fmt: skip


KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "all alter analyze begin cache call comment commit copy create cross delete desc describe drop "
        "except execute explain fetch for glob grant having inner insert intersect into join kill lateral "
        "load merge notnull on optimize outer partitioned_by pivot pragma prepare qualify regexp rename "
        "returning revoke rlike rollback set show tablesample truncate uncache union unpivot update use "
        "using vacuum where while with xor",
    )
)
"""More such names. The identities in states have them bare; a text for a pipeline file has them in quotes."""
_read_again = ContextVar("_read_again", default=False)


@contextmanager
def to_be_read() -> Iterator[None]:
    """Let texts have all names in quotes that need them to be read again."""
    token = _read_again.set(True)
    try:
        yield
    finally:
        _read_again.reset(token)


@contextmanager
def deep_calls() -> Iterator[None]:
    """Raise Python's limit of recursion to the depth of trees. Frames of Python functions are on the heap, so no stack overflows."""
    with _LIMIT:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + FRAMES * MAX_DEPTH)
        try:
            yield
        finally:
            sys.setrecursionlimit(before)


_LIMIT = RLock()
"""The lock that is held while the limit, which all threads share, is raised."""
MAX_DEPTH = 256
"""The depth to which operators may be nested."""
FRAMES = 24
"""More Python frames than sqlglot, a reader or a lowering uses for one level of nesting."""


def depths(expression: Expression) -> dict[int, int]:
    """Return the depth below each node, by its id: 0 for columns and constants. It does not recurse."""
    found: dict[int, int] = {}
    for node in reversed(list(expression.walk())):
        found[id(node)] = 1 + max((found[id(child)] for child in node.children), default=-1)
    return found


def quoted(name: str) -> str:
    """Return a column name as SQL text: bare if it is a plain lower-case word, else in double quotes."""
    if PLAIN_NAME.fullmatch(name) and name not in RESERVED and not (name in KEYWORDS and _read_again.get()):
        return name
    return delimited(name)


def delimited(name: str) -> str:
    """Return a name as SQL text in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def in_backticks(name: str) -> str:
    """Return a name in backticks, as MySQL's statements quote it."""
    return "`" + name.replace("`", "``") + "`"


class Expression:
    """A node of the tree. The planner uses only `columns`, `text` and `substitute`."""

    type: Type
    span: Span | None

    @property
    def written(self) -> str:
        """Return its text in the file; if it has no place there, its canonical text."""
        return (self.span.text if self.span else "") or self.text()

    @property
    def children(self) -> tuple[Expression, ...]:
        """The direct parts, in the order of their evaluation."""
        return ()

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        """Return the same node over other parts (of the same types)."""
        assert not children
        return self

    def walk(self) -> Iterator[Expression]:
        """Yield the node and everything below it, each before its parts."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def columns(self) -> frozenset[str]:
        """Return the names of the columns it reads."""
        return frozenset(node.name for node in self.walk() if isinstance(node, Column))

    def substitute(self, bindings: Mapping[str, Expression]) -> Expression:
        """Return the tree with columns replaced. The replacement must have the column's type."""
        if isinstance(self, Column):
            return bindings.get(self.name, self)
        return self.with_children(tuple(child.substitute(bindings) for child in self.children))

    def text(self) -> str:
        """Return canonical SQL: over columns of equal types, equal texts have equal values."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the canonical text without the parentheses around the whole."""
        text = self.text()
        return text[1:-1] if isinstance(self, Call) and text.startswith("(") else text


@dataclass(frozen=True)
class PlacedExpression(Expression):
    """A node with its place in the text, which is no part of its meaning."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Column(PlacedExpression):
    """A column of the row."""

    name: str
    type: Type

    def text(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True)
class Literal(PlacedExpression):
    """A constant. Integers of every width are `int`, decimals `Decimal`, months of an interval `int`."""

    value: Value
    type: Type
    days: int = field(default=0, compare=False, repr=False)
    """The days in which an interval was written, a week is seven: a calendar counts them."""

    @property
    def in_days(self) -> bool:
        """True for an interval that was written in days alone."""
        return bool(self.days) and self.value == dt.timedelta(days=self.days)

    def text(self) -> str:
        value, kind = self.value, self.type.kind
        if value is None:
            return "null" if kind == "null" else f"cast(null as {self.type.required().sql})"
        if kind == "string":
            return "'" + str(value).replace("'", "''") + "'"
        if kind == "bool":
            return "true" if value else "false"
        if kind == "int64":
            return str(value)
        if kind == "float64" and isinstance(value, float) and abs(value) < float("inf"):
            return repr(value) if "e" in repr(value) else f"{value!r}e0"
        if kind == "duration" and isinstance(value, dt.timedelta):
            return f"interval '{value // dt.timedelta(microseconds=1)}' microsecond"
        if kind == "months":
            return f"interval '{value}' month"
        if kind in ("date", "time") or str(self.type) == "datetime[us]":
            return f"{'timestamp' if kind == 'datetime' else kind} '{value!s}'"
        written = f"{value:f}" if isinstance(value, Decimal) else str(value)
        return (
            f"cast({written} as {self.type.sql})" if self.type.is_numeric else f"cast('{written}' as {self.type.sql})"
        )


@dataclass(frozen=True)
class Call(PlacedExpression):
    """A function or operator of the table, by its canonical name, over arguments already of the types it takes."""

    function: str
    args: tuple[Expression, ...]
    type: Type

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.args

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        return replace(self, args=children)

    def text(self) -> str:
        texts = [arg.text() for arg in self.args]
        if texts[1:] and isinstance(function := self.args[1], Lambda):
            first = 2 + function.own - 1
            return f"{self.function}({', '.join([texts[0], function.applied(self.args[first:]), *texts[2:first]])})"
        if self.function in INFIX:
            return "(" + f" {self.function} ".join(texts) + ")"
        if self.function == "negate":
            return f"(-{texts[0]})"
        if self.function == "~":
            return f"(~{texts[0]})"
        if self.function == "not":
            return f"(not {texts[0]})"
        if self.function == "is null":
            return f"({texts[0]} is null)"
        if self.function == "in":
            return f"({texts[0]} in ({', '.join(texts[1:])}))"
        if self.function == "named_struct":
            names = ("'" + name.replace("'", "''") + "'" for name, _ in self.type.fields)
            texts = [text for pair in zip(names, texts, strict=True) for text in pair]
        if self.function in ("like", "ilike"):
            escape = f" escape {texts[2]}" if texts[2:] else ""
            return f"({texts[0]} {self.function} {texts[1]}{escape})"
        written = f"{self.function}({', '.join(texts)})"
        # Read again it would be a timestamp.
        return f"cast({written} as date)" if self.function == "date_trunc" and self.type.kind == "date" else written


@dataclass(frozen=True)
class Lambda(PlacedExpression):
    """A function of an element of a list, an argument of a call; `parameters` are its own, and columns of the row that are the call's last arguments.

    Its body reads nothing but these, so it is a constant: columns are found, and replaced, among the arguments.
    """

    parameters: tuple[Column, ...]
    body: Expression
    type: Type
    own: int = 1
    """The number of its own parameters: the element, of `list_reduce` the value so far and the element."""

    def applied(self, args: tuple[Expression, ...]) -> str:
        """Return it as SQL, with the arguments in the place of its further parameters."""
        taken = {name.lower() for arg in args for name in arg.columns()}
        free = (each for at in count() if (each := f"e{at or ''}") not in taken)
        own = {each.name: Column(next(free), each.type) for each in self.parameters[: self.own]}
        given = dict(zip((each.name for each in self.parameters[self.own :]), args, strict=True))
        names = ", ".join(each.name for each in own.values())
        return f"lambda {names}: {self.body.substitute({**own, **given}).text()}"

    def text(self) -> str:
        return self.applied(self.parameters[self.own :])


def closure(body: Expression, *own: Column) -> tuple[Expression, ...]:
    """Return the lambda of its own parameters, and the columns that its body reads, its call's last arguments."""
    mine = {each.name for each in own}
    found = {each.name: each for each in body.walk() if isinstance(each, Column) and each.name not in mine}
    read = [found[name] for name in sorted(found)]
    parameters = [replace(each, name=f"\0{at}", span=None) for at, each in enumerate([*own, *read])]
    names = dict(zip((each.name for each in (*own, *read)), parameters, strict=True))
    return Lambda(tuple(parameters), body.substitute(names), body.type, len(own)), *read


@dataclass(frozen=True)
class Cast(PlacedExpression):
    """A conversion; with `try_` it returns null if it fails. `hint` is for the failure of an implicit one."""

    argument: Expression
    type: Type
    try_: bool = False
    hint: str | None = field(default=None, compare=False, repr=False)

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.argument,)

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        return replace(self, argument=children[0])

    def text(self) -> str:
        name = "try_cast" if self.try_ else "cast"
        return f"{name}({self.argument.text()} as {self.type.required().sql})"


@dataclass(frozen=True)
class Case(PlacedExpression):
    """The value of the first branch whose condition is true, else `default`; later branches are not evaluated."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression
    type: Type

    @property
    def children(self) -> tuple[Expression, ...]:
        return (*(part for branch in self.branches for part in branch), self.default)

    def with_children(self, children: tuple[Expression, ...]) -> Expression:
        pairs = tuple(zip(children[:-1:2], children[1:-1:2], strict=True))
        return replace(self, branches=pairs, default=children[-1])

    def text(self) -> str:
        arms = " ".join(f"when {condition.text()} then {value.text()}" for condition, value in self.branches)
        return f"case {arms} else {self.default.text()} end"


@dataclass(frozen=True)
class TableCall:
    """A function that returns rows: `unnest(list)` or `generate_series(first, last, step)`; `type` is one element's."""

    function: str
    args: tuple[Expression, ...]
    type: Type

    def columns(self) -> frozenset[str]:
        """Return the names of the columns it reads."""
        return frozenset().union(*(arg.columns() for arg in self.args))

    def text(self) -> str:
        """Return canonical SQL."""
        return f"{self.function}({', '.join(arg.text() for arg in self.args)})"


@dataclass(frozen=True)
class FilterStep:
    """Keep the rows where the condition is true (not null)."""

    kind: ClassVar[str] = "filter"
    condition: Expression

    def text(self) -> str:
        """Return canonical text: over rows of one schema, steps of equal text are equal."""
        return f"filter {self.condition.text()}"

    def schema(self, before: Schema) -> Schema:
        """Return the columns after the step, from those before it."""
        return before

    def reads(self, wanted: frozenset[str], before: Schema) -> frozenset[str]:
        """Return the columns, of those before the step, that its `wanted` columns need."""
        return wanted | self.condition.columns()

    def origins(self, given: Names) -> dict[str, str]:
        """Return each column of the result, from the columns `given`, that has the value of one of these, and that one."""
        return {name: name for name in given}


@dataclass(frozen=True)
class MapStep:
    """Compute exactly these columns."""

    columns: tuple[tuple[str, Expression], ...]

    @property
    def kind(self) -> str:
        """The word for the step: "project" if it computes nothing."""
        return "project" if all(isinstance(expression, Column) for _, expression in self.columns) else "map"

    def text(self) -> str:
        return "map " + ", ".join(f"{quoted(name)}: {expression.text()}" for name, expression in self.columns)

    def schema(self, before: Schema) -> Schema:
        return {name: expression.type for name, expression in self.columns}

    def reads(self, wanted: frozenset[str], before: Schema) -> frozenset[str]:
        return frozenset().union(*(expression.columns() for name, expression in self.columns if name in wanted))

    def origins(self, given: Names) -> dict[str, str]:
        return {name: expression.name for name, expression in self.columns if isinstance(expression, Column)}


@dataclass(frozen=True)
class UnnestStep:
    """Add (or replace) a column, with one row for each element of a table function's value; without elements, no row."""

    kind: ClassVar[str] = "flat_map"
    name: str
    call: TableCall

    def text(self) -> str:
        return f"unnest {quoted(self.name)}: {self.call.text()}"

    def schema(self, before: Schema) -> Schema:
        return {**before, self.name: self.call.type}

    def reads(self, wanted: frozenset[str], before: Schema) -> frozenset[str]:
        return (wanted - {self.name}) | self.call.columns()

    def origins(self, given: Names) -> dict[str, str]:
        return {name: name for name in given if name != self.name}


@dataclass(frozen=True)
class ExplodeStep:
    """Multiply the diff by an integer. The columns stay."""

    kind: ClassVar[str] = "explode"
    weight: Expression

    def text(self) -> str:
        return f"explode {self.weight.text()}"

    def schema(self, before: Schema) -> Schema:
        return before

    def reads(self, wanted: frozenset[str], before: Schema) -> frozenset[str]:
        return wanted | self.weight.columns()

    def origins(self, given: Names) -> dict[str, str]:
        return {name: name for name in given}


@dataclass(frozen=True)
class PythonStep:
    """Call `module:function`: a record (dict) in, records out; or, in batches, a frame in and a frame out.

    The batch's frame has a further column `row`. In the frame that the function returns, this column names the row that each row came from. The function
    must be deterministic, and a batch's rows independent of each other: the engine cuts and repeats batches as it needs.
    """

    kind: ClassVar[str] = "flat_map"
    function: str
    batch: bool
    output: tuple[tuple[str, Type], ...]

    def text(self) -> str:
        """Return canonical text, with the function's name and its own text."""
        output = ", ".join(f"{quoted(name)}: {type_}" for name, type_ in self.output)
        return f"python {identity(self.function)}{' batch' if self.batch else ''} -> {output}"

    def schema(self, before: Schema) -> Schema:
        return dict(self.output)

    def reads(self, wanted: frozenset[str], before: Schema) -> frozenset[str]:
        return frozenset(before)

    def origins(self, given: Names) -> dict[str, str]:
        return {}


def identity(function: str) -> str:
    """Return the identity of a Python function: its name, and the meaning of its text."""
    return " ".join(filter(None, (function, getattr(function, "meaning", ""))))


Step = FilterStep | MapStep | UnnestStep | ExplodeStep | PythonStep


def text_of(steps: Iterable[Step]) -> str:
    """Return canonical text: steps of equal text over equal schemas are equal."""
    return "; ".join(step.text() for step in steps)


class StageResult(NamedTuple):
    """The result of a run. `rows`: the input row of each output row (None: all, in order). `weights`: factors of the diff (None: 1)."""

    frame: pl.DataFrame
    rows: np.ndarray | None
    weights: np.ndarray | None
