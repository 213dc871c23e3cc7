"""The arguments of methods as names, expressions, columns and functions of a pipeline file's operators.

Functions of pipeline files take and return dictionaries. In a program a record is a tuple: functions receive a tuple with named fields, and return tuples or
dictionaries. The same argument must have the same result each time: the engine calls a function as often as it needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.errors import Span, Text, UsageError
from ddcli.expressions.python import AtHand
from ddcli.expressions.types import Schema, Type, parse_type
from ddcli.spec import model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


HERE = Span("<python>", 1, 1)


def text(value: str) -> Text:
    """Return a name or an expression with a place."""
    return Text(value, HERE)


def texts(values: Iterable[str]) -> tuple[Text, ...]:
    """Return names with places."""
    return tuple(text(value) for value in values)


def assign(columns: Mapping[str, str]) -> model.Assignments:
    """Return columns with their expressions, as assignments."""
    return tuple((text(name), text(value)) for name, value in columns.items())


def expressions_of(
    given: Mapping[str, str] | None, named: Mapping[str, str], columns: object, what: str
) -> dict[str, str]:
    """Return the expressions of a method's call, from its mapping and its keywords. Refuses `columns`, which are for functions."""
    if columns is not None:
        hint = "a column of such a name is written in a mapping: {'columns': expression}"
        raise UsageError(f"`{what}` takes `columns` with a function only", hint=hint)
    found = {**(given or {}), **named}
    if not found and what != "reduce":
        raise UsageError(f"`{what}` takes expressions by column, or a function")
    return found


def needed(columns: Mapping[str, str | Type] | None, what: str) -> Mapping[str, str | Type]:
    """Return the columns that a function returns. Raises UsageError if its call has not named them."""
    if columns is None:
        hint = "for example `columns={'src': 'int64', 'name': 'string?'}`"
        raise UsageError(f"`{what}` with a function takes the columns that it returns", hint=hint)
    return columns


def pairs(on: Sequence[str] | Mapping[str, str]) -> tuple[tuple[Text, Text], ...]:
    """Return the columns that a join pairs."""
    return tuple((text(one), text(other)) for one, other in _items(on))


def keys(by: Sequence[str] | Mapping[str, str]) -> tuple[model.GroupColumn, ...]:
    """Return the columns of groups: names, or names with expressions."""
    return tuple(model.GroupColumn(text(name), None if name == value else text(value)) for name, value in _items(by))


def _items(given: Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    if isinstance(given, str):
        raise UsageError(f"'{given}' is one name where several are expected", hint=f"write ['{given}']")
    return list(given.items()) if hasattr(given, "items") else [(name, name) for name in given]


def orders(order_by: Iterable[str]) -> tuple[model.Order, ...]:
    """Return sort keys: a column or expression, perhaps with ` desc`."""
    return tuple(
        model.Order(text(order.removesuffix(" desc")), descending=order.endswith(" desc")) for order in order_by
    )


def schema(columns: Mapping[str, str | Type], what: str) -> Schema:
    """Return columns with their types. Raises UsageError for a text that is not a type."""
    found: Schema = {}
    for name, given in columns.items():
        kind = parse_type(given) if isinstance(given, str) else given
        if kind is None:
            raise UsageError(f"{what}: column '{name}' has an unknown type '{given}'")
        found[name] = kind
    return found


def parameter_name(body: Callable[..., Any]) -> str:
    """Return the name of a body's first parameter, for messages."""
    try:
        return next(iter(inspect.signature(body).parameters), "variable")
    except (TypeError, ValueError):
        return "variable"


if TYPE_CHECKING:
    Columns = Mapping[str, str | Type]
    """The columns that a function returns, with their types, as texts or as `Type`."""


class Row(tuple[Any, ...]):
    """The record that a function receives: a tuple of values, which can also be read by column name.

    >>> row = row_type(["src", "dst"])((1, 2))
    >>> row[0], row["dst"], {**row, "dst": 3}
    (1, 2, {'src': 1, 'dst': 3})
    """

    __slots__ = ()
    places: ClassVar[dict[str, int]]

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(self.places[at] if isinstance(at, str) else at)

    def keys(self) -> Iterable[str]:
        """Return the columns' names, so that `{**row}` is the record as a dictionary."""
        return self.places.keys()


def row_type(columns: Iterable[str]) -> type[Row]:
    """Return the class of rows with these columns."""
    return type("Row", (Row,), {"__slots__": (), "places": {name: at for at, name in enumerate(columns)}})


def mapping(function: Callable[..., Any], given: Schema, columns: Columns, *, batch: bool) -> model.PythonFunction:
    """Return the `map` function that returns one record for each record."""
    row, names = row_type(given), tuple(columns)

    def call(record: dict[str, Any]) -> dict[str, Any]:
        return _named(function(row(record.values())), names)

    return _function("map", function, function if batch else call, columns, batch=batch)


def flat_mapping(function: Callable[..., Any], given: Schema, columns: Columns, *, batch: bool) -> model.PythonFunction:
    """Return the `flat_map` function that returns any number of records for each record."""
    row, names = row_type(given), tuple(columns)

    def call(record: dict[str, Any]) -> list[dict[str, Any]]:
        return [_named(each, names) for each in function(row(record.values()))]

    return _function("flat_map", function, function if batch else call, columns, batch=batch)


def filtering(function: Callable[..., Any], given: Schema) -> model.PythonFunction:
    """Return the `flat_map` function that keeps the records for which `function` is true."""
    row = row_type(given)

    def call(record: dict[str, Any]) -> list[dict[str, Any]]:
        # By name: an arrangement has its columns in another order, the key first.
        return [record] if function(row(map(record.__getitem__, given))) else []

    return _function("filter", function, call, given, batch=False)


def joining(function: Callable[..., Any], given: Schema, columns: Columns, *, batch: bool) -> model.PythonFunction:
    """Return the `join_function` that returns any number of (record, time, diff) for each record."""
    row, names = row_type(given), tuple(columns)

    def call(record: dict[str, Any]) -> Iterator[Any]:
        for each in function(row(record.values())):
            if not isinstance(each, tuple) or len(each) != 3:
                raise TypeError(f"it returned {each!r}, expected (record, time, diff)")
            yield _named(each[0], names), *each[1:]

    return _function("join_function", function, function if batch else call, columns, batch=batch)


def reducing(function: Callable[..., Any], columns: Columns) -> model.PythonFunction:
    """Return the `reduce` function of groups: (key, [(value, count), ...]) -> [(value, count), ...], of tuples."""
    return _function("reduce", function, function, columns, batch=False)


def followed_by(*functions: Callable[[Any], Iterable[tuple[Any, Any, int]]]) -> Callable[[Any], Iterator[Any]]:
    """Return the composition of functions `record -> (record, time, diff)*`, as `join_function` takes them, the first one first.

    Each receives the records that the previous one returns. Times join, diffs multiply; None is no delay.

    >>> double = lambda record: [(record, None, 2)]
    >>> later = lambda record: [(record, 3, 1), (record, 7, -1)]
    >>> list(followed_by(later, double)((5,)))
    [((5,), 3, 2), ((5,), 7, -2)]
    """

    def composed(record: Any) -> Iterator[tuple[Any, Any, int]]:
        updates: Iterable[tuple[Any, Any, int]] = [(record, None, 1)]
        for function in functions:
            updates = [
                (after, _join(time, then), diff * factor)
                for before, time, diff in updates
                for after, then, factor in function(before)
            ]
        return iter(updates)

    return composed


def _join(one: Any, other: Any) -> Any:
    """Return the lattice join of two times; either may be None."""
    if one is None or other is None:
        return other if one is None else one
    return tuple(map(max, one, other)) if isinstance(one, tuple) else max(one, other)


def _named(given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return a function's result as a record by column name."""
    if isinstance(given, tuple) and len(given) == len(names):
        return dict(zip(names, given, strict=True))
    if isinstance(given, Mapping):
        return dict(given)
    raise TypeError(f"it returned {given!r}, expected a tuple ({', '.join(names)}), or a dictionary of these")


def _function(
    role: str, held: Callable[..., Any], function: Callable[..., Any], columns: Columns, *, batch: bool
) -> model.PythonFunction:
    if not callable(held):
        raise UsageError(f"`{role}` takes expressions or a function, not {held!r}")
    found = schema(columns, f"`{role}` of {getattr(held, '__qualname__', held)}")
    return model.PythonFunction(
        text(AtHand(function, role, held)), {name: (text(name), kind) for name, kind in found.items()}, batch
    )
