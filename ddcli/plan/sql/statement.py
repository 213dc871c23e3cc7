"""A statement bound to the relations that it names: from its syntax tree to a relation."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.coerce import INT64, Mismatch, unify
from ddcli.expressions.syntax_tree import read_statement
from ddcli.expressions.tree import Case, Column, Expression, Literal, MapStep, TableCall, UnnestStep, deep_calls
from ddcli.expressions.types import no_column, renamed
from ddcli.plan import groupings, logical
from ddcli.plan.conditions import call
from ddcli.plan.joins import BinaryNode
from ddcli.plan.lower import read_by_several
from ddcli.plan.node import Graph
from ddcli.plan.optimizer.pushdown import pushed_down
from ddcli.plan.optimizer.sharing import shared
from ddcli.plan.relation import Relation, once
from ddcli.plan.sql import nodes
from ddcli.plan.sql.block import Block
from ddcli.plan.sql.calls import OuterAggregates
from ddcli.plan.sql.context import TIMES, CorrelatedTable, Environment, Names, Outer, QueryResult, Times, UnknownName
from ddcli.plan.sql.recursion import recursive, set_operation
from ddcli.plan.sql.select import ordered, select

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.errors import Span, Text
    from ddcli.expressions.syntax_tree import Tree
    from ddcli.expressions.types import RowOrder
    from ddcli.plan.node import LoopName, Node

Note = tuple["Span", str]
"""A text about the place of a part of a statement."""

CROSSED = "this joins each row of one side with each of the other: no equality connects them"
MOST = 1000
"""The most rows that a `values` may have."""


def values(statement: Statement, node: exp.Values, environment: Environment) -> QueryResult:
    """Return the rows of `values`."""
    (rows,) = statement.tree.take(node, "expressions", "with_", "order", "limit", "offset", "alias")[:1]
    span = statement.tree.place(node)
    if len(rows) > MOST:
        raise SpecError(f"`values` has more than {MOST} rows", span=span, hint="read them from a file, as an input")
    one = statement.one(environment, span)
    outer = environment.outer.scope if environment.outer is not None else None
    block = Block(statement, environment, Names([], outer), one)
    keys = tuple(one.schema) if environment.outer is not None else ()
    written = []
    for row in rows:
        parts = (
            statement.tree.take(row, "expressions")[0]
            if isinstance(row, exp.Tuple)
            else statement.tree.take(row, "this")
        )
        written.append([block.reader.expression(part) for part in parts])
        if len(written[-1]) != len(written[0]):
            raise SpecError("the rows of `values` have different numbers of values", span=statement.tree.place(row))
    kept = block.node
    (number,) = renamed(["#row"], kept.schema).values()
    names = list(renamed([f"col{at}" for at in range(len(written[0]))], [*kept.schema, number]).values())
    numbered = kept
    if len(written) > 1:
        series = TableCall("generate_series", tuple(Literal(each, INT64) for each in (1, len(written), 1)), INT64)
        numbered = logical.Apply((kept,), kept.schema | {number: INT64}, UnnestStep(number, series))
    columns: dict[str, Expression] = {key: nodes.column(numbered, key) for key in keys}
    for at, name in enumerate(names):
        try:
            same, kind = unify([row[at] for row in written], "`values`")
        except Mismatch as mismatch:
            raise SpecError(mismatch.problem, span=span, hint=mismatch.hint) from None
        if len(same) == 1:
            columns[name] = same[0]
            continue
        which = Column(number, INT64)
        branches = tuple(
            (call("=", which, Literal(index, INT64)), each) for index, each in enumerate(same[:-1], start=1)
        )
        columns[name] = Case(branches, same[-1], kind)
    found = nodes.mapped(numbered, columns)
    return QueryResult(found, keys, tuple((f"col{at}", name) for at, name in enumerate(names)), len(rows) == 1)


def one_row(statement: Statement, span: Span) -> Node:
    """Return a node with one record, which exists from the first row of any input on."""
    if len(statement.times.kinds) > 1:
        problem = "a row that depends on no other needs one time coordinate"
        raise SpecError(
            problem, span=span, hint="`values`, a `select` without `from` and aggregates without `group by` need it"
        )
    return once(list(statement.inputs()))


def bind(
    text: Text,
    named: Callable[[str], Relation],
    inputs: Callable[[], Sequence[Node]],
    loop: LoopName | None = None,
    times: Times = TIMES,
    *,
    shown: bool = False,
) -> tuple[Relation, tuple[Note, ...]]:
    """Return the relation of a query, and notes on it with their places.

    `named` returns the relation of a name, `inputs` the nodes of all inputs, for rows that depend on no input. `loop` is the loop in whose body the
    statement is, `times` the types of times. With `shown`, the relation has the order of the statement's rows, if its columns determine it.
    """
    statement = Statement(read_statement(text), named, inputs, loop, times)
    statement.collected = statement.tree.root if shown else None
    return _bound(statement, text)


def bind_in_order(
    text: Text, named: Callable[[str], Relation], inputs: Callable[[], Sequence[Node]], times: Times = TIMES
) -> tuple[Relation, tuple[Note, ...]]:
    """Return the relation of a query whose rows are shown in its order, and notes on it.

    Columns of the order that the query does not list are added behind the others, under names that begin with `ORDER`.
    """
    statement = Statement(read_statement(text), named, inputs, times=times)
    statement.shown = statement.tree.root
    return _bound(statement, text)


def _bound(statement: Statement, text: Text) -> tuple[Relation, tuple[Note, ...]]:
    """Return a statement's relation, and notes on it."""
    leaves: list[Node] = []
    named = statement.named

    def noted(name: str) -> Relation:
        found = named(name)
        leaves.append(found.node)
        return found

    statement.named = noted
    try:
        with deep_calls():
            result = statement.query(statement.tree.root, Environment({}))
    except RecursionError:
        hint = "name parts of it by `with`, or make them collections of their own"
        raise SpecError("queries are nested too deeply", span=text.span, hint=hint) from None
    finally:
        statement.outer.forget()
    statement.tree.finish()
    names: dict[str, str] = {}
    for name, column in result.columns:
        if name in names:
            raise SpecError(f"two columns are named `{name}`", span=text.span, hint=f"{ANOTHER} with `as`")
        names[name] = column
    shown = {column: name for name, column in names.items()}
    names |= {f"{ORDER}{at}": column for at, (column, *_) in enumerate(statement.order) if column not in shown}
    shown |= {column: name for name, column in names.items() if name.startswith(ORDER)}
    node = nodes.mapped(result.node, {name: nodes.column(result.node, column) for name, column in names.items()})
    for name, kind in node.schema.items():
        if kind.kind == "months":
            hint = "an interval of months is added to a date: day + interval '1' month"
            raise SpecError(f"column `{name}` has months, which differ in length", span=text.span, hint=hint)
        if not kind.is_known and not _is_read(node, name):
            raise SpecError(f"column `{name}` has no type", span=text.span, hint=f"cast it: cast({name} as int64)")
    node = shared(node, leaves)
    order = tuple((shown[column], descending, last) for column, descending, last in statement.order)
    connected = _connected(node, statement.products)
    return Relation(node, order=order), tuple(note for note in dict.fromkeys(statement.notes) if note not in connected)


def _connected(node: Node, products: Sequence[tuple[Note, Node]]) -> set[Note]:
    """Return the notes on joins without a key, each with its join, whose key an equality above states."""
    if not products:
        return set()
    graph = Graph({"": node})
    several = {name for name, read in read_by_several(graph).items() if read}
    moved = pushed_down(graph, several).operators
    keyed: dict[Note, bool] = {}
    for note, join in products:
        found = moved.get(join.fingerprint)
        if isinstance(found, BinaryNode) and isinstance(join, BinaryNode):  # else it was lowered on trial
            keyed[note] = keyed.get(note, True) and found.on != join.on
    return {note for note, has_key in keyed.items() if has_key}


def _beyond(scope: Names, around: Names) -> Names:
    """Return the scope of `around` as seen from a scope inside it, without the names between; columns found are marked as read in all scopes between."""
    if scope is around:
        return scope
    assert scope.outer is not None, "a table is named within the query that defines it"
    return Names([], _beyond(scope.outer, around), scope.used)


def _is_read(node: Node, name: str) -> bool:
    """Return whether a column is read from an input or computed by an operator, and is not an expression of the query's list."""
    while isinstance(node, logical.Apply):
        if isinstance(node.step, MapStep):
            found = dict(node.step.columns)[name]
            if not isinstance(found, Column):
                return False
            name = found.name
        (node,) = node.inputs
    return True


ANOTHER = "give one of them another name"
ORDER = "\0order"
"""The prefix of the names of columns that are only the keys of an order."""


@dataclass(eq=False)
class Statement:
    """A statement while it is lowered: its syntax tree, the relations that it may name, and the notes so far."""

    tree: Tree
    named: Callable[[str], Relation]
    inputs: Callable[[], Sequence[Node]]
    loop: LoopName | None = None
    times: Times = TIMES
    notes: list[Note] = field(default_factory=list)
    products: list[tuple[Note, Node]] = field(default_factory=list)
    """The joins without a key, each with the note on it."""
    leaving: frozenset[str] = frozenset()
    """The recursive tables whose columns are not known yet: sides of unions that name one are left out."""
    shown: exp.Expr | None = None
    """The query whose rows are shown in its order: the keys of the order stay in its relation."""
    collected: exp.Expr | None = None
    """The query that is a collection, whose rows are shown in its order if its columns determine it."""
    order: RowOrder = ()
    """The columns of the relation of `shown` or `collected` that order its rows."""
    outer: OuterAggregates = field(default_factory=OuterAggregates)
    _free: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def query(self, node: exp.Expr, environment: Environment, *, value: bool = False) -> QueryResult:
        """Return the relation of a query, for each row of the outer columns that it reads.

        With `value`, the result of a scalar query may have the expression for its value.
        """
        return self._query(node, self._inside(node, environment), value=value)

    def lower_on_trial(self, node: exp.Expr, environment: Environment) -> None:
        """Lower a query only for the outer aggregates and columns that its expressions note, and drop the result."""
        noted = len(self.notes)
        try:
            self.query(node, environment)
        finally:
            del self.notes[noted:]
            self.forget_columns()  # over groups a query may read other columns

    def reads_around(self, node: exp.Expr, environment: Environment) -> bool:
        """Return whether a query reads columns of its outer query."""
        return self._inside(node, environment).outer is not None

    def _inside(self, node: exp.Expr, environment: Environment) -> Environment:
        """Return the environment of a query, with only the outer columns that it reads."""
        outer = environment.outer
        if outer is None:
            return environment
        taken = frozenset(name.column for name in outer.scope.visible())
        environment = replace(environment, taken=taken | environment.taken)
        return replace(environment, outer=self._needed(node, outer, environment))

    def recursion_start(self, node: exp.Expr, environment: Environment, leaving: frozenset[str]) -> QueryResult:
        """Return the relation of a query without the sides of unions that name a table in `leaving`."""
        self.leaving = leaving
        try:
            return self.query(node, environment)
        finally:
            self.leaving = frozenset()
            self.forget_columns()  # the sides left out may read more

    def forget_columns(self) -> None:
        """Forget which outer columns each query reads."""
        self._free.clear()

    def _needed(self, node: exp.Expr, outer: Outer, environment: Environment) -> Outer | None:
        """Return the outer query of a query, with only the columns that it reads, and their rows distinct; None if it reads none."""
        if id(node) not in self._free:
            scope = Names([], outer.scope)
            # Only columns that can be named: others would change the names of the columns inside.
            known = {name.column for name in outer.scope.visible()}
            schema = {name: kind for name, kind in outer.node.schema.items() if name in known}
            stand_in = logical.Source((), schema, "#around")
            noted = len(self.notes)
            self._query(node, replace(environment, outer=Outer(scope, stand_in)), value=False)
            del self.notes[noted:]
            self._free[id(node)] = tuple(scope.used)
        used = self._free[id(node)]
        if not used:
            return None
        for name in used:  # each scope outside records the column, also if the query was lowered before
            outer.scope.note(name)
        rows = groupings.distinct(nodes.projected(outer.node, used))
        return Outer(Names([], outer.scope), rows)

    def _query(self, node: exp.Expr, environment: Environment, *, value: bool) -> QueryResult:
        environment = self._with(node, environment)
        if isinstance(node, exp.Select):
            return select(self, node, environment, value=value)
        if isinstance(node, exp.SetOperation):
            found = set_operation(self, node, environment)
        elif isinstance(node, exp.Values):
            found = values(self, node, environment)
        elif isinstance(node, exp.Subquery):
            (inner,) = self.tree.take(node, "this", "with_", "order", "limit", "offset", "alias", "joins")[:1]
            if not isinstance(inner, exp.Query | exp.Values):
                raise SpecError("a query is expected here", span=self.tree.place(node))
            found = self._query(inner, environment, value=value)
        else:
            raise SpecError(f"`{self.tree.written(node)}` is not supported", span=self.tree.place(node))
        return ordered(self, node, found)

    def _with(self, node: exp.Expr, environment: Environment) -> Environment:
        """Return the environment with the tables that a query defines."""
        defined = node.args.get("with_")
        if defined is None:
            return environment
        tables, is_recursive = self.tree.take(defined, "expressions", "recursive")
        if is_recursive:
            try:
                return recursive(self, tables, environment)
            except UnknownName as error:
                if environment.outer is None or not environment.outer.scope.has(error.table, error.name):
                    raise
                problem = f"a table of `with recursive` can't read `{error.written}` of the outer query"
                hint = (
                    "add a column with the value that a row starts from to the table, and compare it in the outer query"
                )
                raise SpecError(problem, span=error.span, hint=hint) from None
        words: set[str] = set()
        for table in tables:
            name, columns, query = self.definition(table)
            if (word := self.identifier(name)).lower() in words:
                raise SpecError(f"two tables are named `{word}`", span=self.tree.place(name), hint=ANOTHER)
            words.add(word.lower())
            if environment.outer is not None and self.reads_around(query, environment):
                table_ = CorrelatedTable(name, columns, query, environment.tables, environment.outer.scope)
                environment = replace(environment, tables={**environment.tables, word.lower(): table_})
                continue
            for each in query.walk():  # beside outer columns its columns may have had other names
                self._free.pop(id(each), None)
            result = self._query(query, Environment(environment.tables), value=False)
            environment = self.defined(environment, name, columns, result)
        return environment

    def correlated(self, table: CorrelatedTable, environment: Environment) -> QueryResult:
        """Return the relation of a correlated table at a place where it is named."""
        assert environment.outer is not None, "a query that names it reads what it reads"
        outer = Outer(_beyond(environment.outer.scope, table.scope), environment.outer.node)
        result = self.query(table.query, Environment(table.tables, outer, environment.taken))
        word = self.identifier(table.name)
        return replace(result, columns=self.columns_named(result.columns, table.columns, word, table.name))

    def definition(self, table: exp.CTE) -> tuple[exp.Expr, list[exp.Expr], exp.Expr]:
        """Return the name, the columns' names and the query of a table of a `with`. Whether it is `materialized` changes no result."""
        alias, query = self.tree.take(table, "alias", "this", "materialized")[:2]
        name, columns = self.tree.take(alias, "this", "columns")
        return name, columns or [], query

    def defined(
        self, environment: Environment, name: exp.Expr, columns: Sequence[exp.Expr], result: QueryResult
    ) -> Environment:
        """Return the environment with one more table."""
        word = self.identifier(name)
        named = replace(result, columns=self.columns_named(result.columns, columns, word, name))
        return replace(environment, tables={**environment.tables, word.lower(): named})

    def columns_named(
        self, columns: Sequence[tuple[str, str]], names: Sequence[exp.Expr], table: str, place: exp.Expr
    ) -> tuple[tuple[str, str], ...]:
        """Return columns renamed by the list of names behind a table's name; columns beyond the list keep their names."""
        if len(names) > len(columns):
            problem = f"`{table}` has {len(columns)} columns, and {len(names)} names for them"
            raise SpecError(problem, span=self.tree.place(place))
        given = [self.column_name(each) for each in names]
        for at, each in enumerate(given):
            if each in given[:at]:
                problem = f"two columns of `{table}` are named `{each}`"
                raise SpecError(problem, span=self.tree.place(names[at]), hint=ANOTHER)
        return tuple((given[at] if at < len(given) else name, column) for at, (name, column) in enumerate(columns))

    def identifier(self, node: exp.Expr) -> str:
        """Return the name that a node without a qualifier is. Raises SpecError for any other node."""
        while isinstance(node, exp.ColumnDef | exp.Column):
            (node,) = self.tree.take(node, "this")
        if not isinstance(node, exp.Identifier):
            raise SpecError(f"`{self.tree.written(node)}` is not a name", span=self.tree.place(node))
        return str(self.tree.take(node, "this", "quoted")[0])

    def column_name(self, node: exp.Expr) -> str:
        """Return the name that a node gives a column. Raises SpecError for one that no column may have."""
        name = self.identifier(node)
        if hint := no_column(name):
            raise SpecError(f"`{name}` can't be a column's name", span=self.tree.place(node), hint=hint)
        return name

    def one(self, environment: Environment, span: Span) -> Node:
        """Return a node with a record for each outer row; without an outer query, one record that exists from the first row of any input on."""
        if environment.outer is not None:
            return environment.outer.node
        return one_row(self, span)

    def note(self, node: exp.Expr, text: str) -> None:
        """Add a note at the place of a node."""
        self.notes.append((self.tree.place(node), text))

    def note_product(self, node: exp.Expr, join: Node) -> None:
        """Add a note that a join has no key, which is dropped if an equality above it states one."""
        self.note(node, CROSSED)
        self.products.append((self.notes[-1], join))
