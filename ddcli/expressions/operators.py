"""The types of calls that a signature can't describe: operators, conditionals, functions whose result type depends on their arguments, and orders.

Each rule takes the arguments and returns them converted, with the type of the result, or raises Mismatch. Rows are ordered by values that have an order, structs field by field,
with nulls at a stated end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.expressions.coerce import (
    BOOL,
    FLOAT64,
    INT64,
    STRING,
    Mismatch,
    as_date,
    convert,
    decimal_type,
    nullable_if_any,
    unify,
)
from ddcli.expressions.json_text import EACH, steps_of, type_of_structure
from ddcli.expressions.signatures import check_arguments, parse_signature
from ddcli.expressions.tree import Call, Cast, Expression, Literal
from ddcli.expressions.types import MAX_PRECISION, NESTED, ORDERLESS, Type, is_field_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.expressions.arithmetic import Resolved


def bits(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `& | << >> ~` and xor."""
    for arg in args:
        if not arg.type.is_integer and arg.type.kind != "null":
            raise Mismatch(f"`{name}` expects integers, got {arg.type.required()}", arg)
    if name == "xor" and len(args) != 2:
        raise Mismatch(f"{name} takes 2 arguments, got {len(args)}")
    return [convert(arg, INT64) for arg in args], nullable_if_any(INT64, args), name


def hexadecimal(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `hex`, of an integer, a text or bytes."""
    if len(args) != 1 or not (args[0].type.is_integer or args[0].type.kind in ("string", "binary", "null")):
        raise Mismatch(f"{name} takes an integer, a text or bytes", args[0] if args else None)
    is_text = args[0].type.kind in ("string", "binary")
    return [args[0] if is_text else convert(args[0], INT64)], nullable_if_any(Type("string"), args), name


def of_bytes(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a function of bytes, or of a text, which are its bytes in UTF-8."""
    if len(args) != 1 or args[0].type.kind not in ("string", "binary", "null"):
        raise Mismatch(f"{name} takes a text or bytes", args[0] if args else None)
    given = [args[0] if args[0].type.kind == "binary" else convert(args[0], STRING)]
    return given, nullable_if_any(INT64 if name == "octet_length" else STRING, given), name


def comparison(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `= <> < <= > >=` and `is [not] distinct from`: both sides in one type."""
    if {"date"} < {arg.type.kind for arg in args} <= {"date", "datetime", "null"}:
        days = [as_date(arg) if arg.type.kind == "datetime" else arg for arg in args]
        args = [day for day in days if day is not None] if None not in days else args
    sides, common = unify(args, f"`{name}`")
    distinct = name.endswith("distinct from")
    if common.kind == "months":
        raise Mismatch(f"values of type {common.required()} have no order or equality here", args[0])
    if has_list(common) or (common.kind == "struct" and name not in ("=", "<>") and not distinct):
        sides = [sort_key(side) for side in sides]
    return sides, BOOL if distinct else replace(BOOL, nullable=common.nullable), name


def has_list(kind: Type) -> bool:
    """Return whether values of a type are lists, or structs that hold one."""
    return has_kind(kind, ("list",))


def sort_key(value: Expression) -> Expression:
    """Return the text that stands for a list or a struct in comparisons."""
    return Call("sort_key", (value,), replace(STRING, nullable=value.type.nullable), span=value.span)


def logic(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `and`, `or`, `not`."""
    for arg in args:
        if arg.type.kind not in ("bool", "null"):
            raise Mismatch(f"`{name}` expects conditions, got {arg.type.required()}", arg, "compare it with something")
    sides = [convert(arg, BOOL) for arg in args]
    return sides, nullable_if_any(BOOL, sides), name


def is_null(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `is null`."""
    return list(args), BOOL, name


def membership(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `x in (a, b, ...)`."""
    return comparison(name, args)


def coalesce(name: str, args: Sequence[Expression]) -> Resolved:
    """Type coalesce: null only if every argument may be."""
    if not args:
        raise Mismatch(f"{name} takes at least 1 argument, got 0")
    sides, common = unify(args, name)
    return sides, replace(common, nullable=all(arg.type.nullable for arg in sides)), name


def nullif(name: str, args: Sequence[Expression]) -> Resolved:
    """Type nullif: the first argument's type, nullable."""
    if len(args) != 2:
        raise Mismatch(f"{name} takes 2 arguments, got {len(args)}")
    sides, common = unify(args, name)
    return sides, common.or_null(), name


def extremum(name: str, args: Sequence[Expression]) -> Resolved:
    """Type greatest and least. The type allows null where one argument may be: logs of outputs that earlier versions wrote have it so."""
    if not args:
        raise Mismatch(f"{name} takes at least 1 argument, got 0")
    sides, common = unify(args, name)
    if common.kind == "months":
        raise Mismatch(f"values of type {common.required()} have no order here", args[0])
    return sides, common, name


def joined(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `||`: text; numbers, dates and booleans are cast to it."""
    if not args:
        raise Mismatch(f"{name} takes at least 1 argument, got 0")
    for arg in args:
        if arg.type.kind in ("list", "struct", "binary", "duration", "months"):
            raise Mismatch(f"{name} expects text, got {arg.type.required()}", arg)
    sides = [convert(arg, STRING) for arg in args]
    return sides, nullable_if_any(STRING, sides), "||"


def concat(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `concat`: `||` of the values, a null as the empty text. The type allows null as `||` does, as in logs that earlier versions wrote."""
    sides, kind, joint = joined(name, args)
    return [or_else(side, Literal("", STRING)) for side in sides], kind, joint


def or_else(value: Expression, other: Expression) -> Expression:
    """Return a value, or another in the place of a null."""
    if not value.type.nullable:
        return value
    return other if value.type.kind == "null" else Call("coalesce", (value, other), value.type.required())


def split(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `split`: null only of a null text."""
    converted = check_arguments(parse_signature(SPLIT), args)
    return converted, Type("list", inner=STRING).or_null(converted[0].type.nullable), name


SPLIT = "split(text: string, separator: string) -> list[string]"


def array(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a list literal. Elements may always be null."""
    if not args:
        return [], Type("list", inner=Type("null", nullable=True)), name
    sides, common = unify(args, "a list")
    return sides, _not_too_deep(Type("list", inner=common.or_null()), sides[0]), name


def array_contains(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `array_contains`: the value is converted to the elements' type."""
    if len(args) != 2 or args[0].type.kind != "list":
        raise Mismatch(f"{name} takes a list and a value", args[0] if args else None)
    inner = args[0].type.inner
    assert inner is not None
    if inner.kind in ("list", "struct", "null"):
        raise Mismatch(f"{name} can't search a list of {inner.required()}", args[0])
    value = convert(args[1], inner)
    if isinstance(value, Cast) and args[1].type.kind not in (inner.kind, "null"):
        raise Mismatch(f"{name} expects {inner.required()}, got {args[1].type.required()}", args[1], "cast it")
    given = [args[0], value]
    return given, INT64.or_null() if name == "list_position" else nullable_if_any(BOOL, given), name


def named_struct(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a struct of names and values in turn. Fields may always be null."""
    names = [arg.value if isinstance(arg, Literal) and isinstance(arg.value, str) else "" for arg in args[::2]]
    if not args or len(args) % 2:
        raise Mismatch(f"{name} takes names and values in turn", hint="named_struct('a', 1, 'b', 'x')")
    for at, word in enumerate(names):
        if not is_field_name(word):
            raise Mismatch("the name of a field is a constant text, of one character or more", args[2 * at])
        if word.lower() in (each.lower() for each in names[:at]):
            raise Mismatch(f"two fields are named `{word}`", args[2 * at])
    values = list(args[1::2])
    for value in values:
        if value.type.kind == "months":
            raise Mismatch("a field can't be an interval of months", value)
    fields = tuple((word, value.type.or_null()) for word, value in zip(names, values, strict=True))
    return values, _not_too_deep(Type("struct", fields=fields), values[0]), name


def row(_: str, args: Sequence[Expression]) -> Resolved:
    """Type a struct of values without names, whose fields are `f1`, `f2` and so on, as in Postgres."""
    pairs = ((Literal(f"f{at}", STRING), arg) for at, arg in enumerate(args, start=1))
    return named_struct("named_struct", [each for pair in pairs for each in pair])


def _not_too_deep(type_: Type, arg: Expression) -> Type:
    """Return the type of a constructed list or struct; raises Mismatch if it is nested deeper than files may be."""
    if type_.depth > NESTED:
        raise Mismatch(f"lists and structs may be at most {NESTED} deep inside each other", arg)
    return type_


def struct_extract(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a field of a struct: by its name, else without regard to case if that leaves one."""
    if len(args) != 2:
        raise Mismatch(f"{name} takes a struct and the name of a field")
    struct, word = args
    if (
        isinstance(word, Literal)
        and word.type.is_integer
        and struct.type.fields[:1]
        and struct.type.fields[0][0] == "f1"
    ):
        word = replace(word, value=f"f{word.value}", type=STRING)
    if not isinstance(word, Literal) or not isinstance(word.value, str):
        raise Mismatch("the name of a field is a constant text", word, "struct_extract(s, 'a')")
    if struct.type.kind != "struct":
        raise Mismatch(f"only a struct has fields, not {struct.type.required()}", struct)
    fields = dict(struct.type.fields)
    same = [word.value] if word.value in fields else [each for each in fields if each.lower() == word.value.lower()]
    if len(same) != 1:
        raise Mismatch(f"the struct has no field `{word.value}`", hint=f"it has {', '.join(fields)}")
    found = fields[same[0]].or_null(struct.type.nullable)
    return [struct, replace(word, value=same[0])], found, name


def concat_ws(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `concat_ws`: null only with a null separator, which must be a constant."""
    if len(args) < 2:
        raise Mismatch(f"{name} takes a separator and at least 1 value", hint="concat_ws('-', a, b)")
    if not isinstance(args[0], Literal) or not isinstance(args[0].value, str):
        raise Mismatch(f"{name}: the separator is a constant text", args[0])
    values, _, _ = joined(name, args[1:])
    return [args[0], *values], Type("string"), name


OF_ROWS = {
    "key": STRING.or_null(),
    **dict.fromkeys(("value", "type"), STRING),
    "atom": STRING.or_null(),
    "id": INT64,
    "parent": INT64.or_null(),
    **dict.fromkeys(("fullkey", "path"), STRING),
}
OF_WHOLE = {
    **dict.fromkeys(("json_each", "json_tree"), Type("list", inner=Type("struct", fields=tuple(OF_ROWS.items())))),
    "json_array_length": INT64,
    "json_type": STRING,
    "json_keys": Type("list", inner=STRING.or_null()),
}
"""The functions of JSON that need no path, with the types of their values."""
JSON_MADE = (
    "json_extract",
    "to_json",
    "json_object",
    "json_array",
    "json",
    "json_merge_patch",
    "parse_json",
    "try_parse_json",
)
"""The functions whose value is JSON: in other JSON it is a part, and no text in quotes."""


def to_json(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `to_json`, `json_object` and `json_array`."""
    if name == "to_json" and len(args) != 1:
        raise Mismatch(f"{name} takes 1 argument, got {len(args)}")
    names = args[::2] if name == "json_object" else ()
    if name == "json_object" and len(args) % 2:
        raise Mismatch(f"{name} takes names and values in turn", hint="json_object('a', 1, 'b', 'x')")
    for each in names:
        if not isinstance(each, Literal) or not isinstance(each.value, str):
            raise Mismatch(f"{name}: a name is a constant text", each)
    for each in args:
        if has_kind(each.type, ("binary", "duration", "months")):
            raise Mismatch(f"{name} takes no {each.type.required()}", each, "cast it to a text or a number before")
        if _has_unnamed(each.type):
            problem = f"{name} of a row without names is a list in DuckDB, and an object in Postgres"
            raise Mismatch(problem, each, "name its fields, {'a': x, 'b': y}, or write json_array(x, y)")
    if name == "to_json" and isinstance(args[0], Call) and args[0].function in JSON_MADE:
        return [args[0]], args[0].type, "json"
    return list(args), replace(STRING, nullable=name == "to_json" and args[0].type.nullable), name


def _has_unnamed(kind: Type) -> bool:
    """Return whether a type, or a part of it, has the fields of a `row`."""
    names = [name for name, _ in kind.fields]
    parts = [*([kind.inner] if kind.inner else ()), *(each for _, each in kind.fields)]
    return (bool(names) and names == [f"f{at}" for at in range(1, len(names) + 1)]) or any(map(_has_unnamed, parts))


def has_kind(kind: Type, kinds: Sequence[str]) -> bool:
    """Return whether a type, or a part of it, is of one of the kinds."""
    return kind.kind in kinds or any(
        has_kind(each, kinds) for each in (*([kind.inner] if kind.inner else ()), *(each for _, each in kind.fields))
    )


def merge_patch(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `json_merge_patch`: of a null text the patch is left."""
    given = check_arguments(parse_signature("json_merge_patch(x: string, patch: string) -> string"), args)
    return [or_else(given[0], Literal("null", STRING)), given[1]], given[1].type, name


def json_part(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a function of a JSON text and a path, which is a constant."""
    least = 1 if name in OF_WHOLE else 2
    if not least <= len(args) <= 2 or args[0].type.kind not in ("string", "null"):
        raise Mismatch(f"{name} takes a JSON text and a path", args[0] if args else None, "x ->> '$.a.b'")
    path = args[1] if len(args) > 1 else Literal("$", STRING)
    if not isinstance(path, Literal) or path.value is None or path.type.kind not in ("string", "int64"):
        raise Mismatch(f"{name}: the path is a constant text, or a position", path)
    text = f"$[{path.value}]" if isinstance(path.value, int) else str(path.value)
    takes_each = name in ("json_extract", "json_extract_string")
    each = takes_each and text.startswith("$") and text.endswith(EACH)
    if steps_of(text.removesuffix(EACH) if each else text) is None:
        ending = "`[*]` at the end for each element, " if takes_each else ""
        hint = f"names and positions from 0, as in '$.a[0].\"b c\"', {ending}or one name"
        raise Mismatch(f"{name} can't read the path '{path.value}'", path, hint)
    kind = (
        Type("list", inner=STRING.or_null()) if each else OF_WHOLE.get(name, BOOL if name == "json_exists" else STRING)
    )
    kind = kind.or_null(not (each or name == "json_exists") or args[0].type.nullable)
    return [convert(args[0], STRING), replace(path, value=text, type=STRING)], kind, name


def from_json(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `from_json`: the structure is a constant, and all of it may be null."""
    hint = """from_json(x, '{"a": "INT", "b": ["VARCHAR"]}')"""
    if len(args) != 2 or args[0].type.kind not in ("string", "null"):
        raise Mismatch(f"{name} takes a JSON text and a structure", args[0] if args else None, hint)
    structure = args[1]
    if not isinstance(structure, Literal) or not isinstance(structure.value, str):
        raise Mismatch(f"{name}: the structure is a constant text", structure, hint)
    kind = type_of_structure(structure.value)
    if kind is None:
        raise Mismatch(f"{name} can't read the structure '{structure.value}'", structure, hint)
    return [convert(args[0], STRING), structure], _not_too_deep(kind, structure), name


def two_lists(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a function of two lists of one type."""
    if len(args) != 2 or any(arg.type.kind not in ("list", "null") for arg in args):
        raise Mismatch(f"{name} takes two lists", next((arg for arg in args if arg.type.kind != "list"), None))
    sides, common = unify(args, name)
    if common.kind != "list":
        raise Mismatch(f"{name} can't tell the type of null", args[0], "cast it")
    if name == "list_concat":
        empty = convert(Call("array", (), Type("list", inner=Type("null", nullable=True))), common.required())
        return [or_else(side, empty) for side in sides], common, name
    if common.inner is not None and common.inner.kind in (ORDERLESS - {"null"}):
        raise Mismatch(f"{name} can't search a list of {common.inner.required()}", args[0])
    if common.inner is not None and common.inner.kind == "null":  # polars has no sets of nulls
        sides = [convert(side, Type("list", inner=INT64.or_null())) for side in sides]
    if name == "list_intersect":
        return sides, sides[0].type, name
    if name == "list_except":
        return sides, nullable_if_any(sides[0].type, sides), name
    return sides, nullable_if_any(BOOL, sides), name


def _element(name: str, args: Sequence[Expression]) -> Type:
    """Return the type of the elements of a function's only argument, a list. Raises Mismatch."""
    if len(args) != 1 or args[0].type.kind != "list":
        raise Mismatch(f"{name} takes one list", args[0] if args else None)
    inner = args[0].type.inner
    assert inner is not None
    return inner


def of_numbers(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a sum or a mean of the elements of a list."""
    inner = _element(name, args)
    if not inner.is_numeric and inner.kind != "null":
        raise Mismatch(f"{name} takes a list of numbers, got {args[0].type.required()}", args[0])
    element = FLOAT64 if inner.is_float else inner if inner.kind == "decimal" else INT64
    # Of uint64 only the sum must be an int64.
    found = args[0] if inner.kind == "uint64" else convert(args[0], Type("list", inner=element.or_null()))
    total = decimal_type(MAX_PRECISION, element.scale) if element.kind == "decimal" else element
    return [found], (FLOAT64 if name == "list_avg" else total).or_null(), name


def of_ordered(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a function of a list whose elements have an order."""
    inner = _element(name, args)
    if inner.kind in (ORDERLESS - {"null"}):
        raise Mismatch(f"{name} takes no list of {inner.required()}", args[0])
    return list(args), inner.or_null() if name in ("list_min", "list_max") else args[0].type, name


Key = tuple[Expression, bool]
"""A sort key of rows, and whether it is descending; null is the largest value."""


def decisive(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return keys without those that are equal to an earlier one: they never decide."""
    found: dict[str, Key] = {}
    for key, descending in keys:
        found.setdefault(key.text(), (key, descending))
    return tuple(found.values())


def stored(key: Expression) -> Expression:
    """Return a key as a column of a state has it: a condition as 0 or 1, since runs read numbers from pages without pyarrow."""
    return Cast(key, Type("int64", nullable=key.type.nullable)) if key.type.kind == "bool" else key


def keys_of(key: Expression, descending: bool, nulls_first: bool | None = None) -> list[Key]:
    """Return the sort keys of a written key: if nulls are not at the large end, first the condition that it is null. Raises Mismatch."""
    if has_list(key.type):
        key = sort_key(key)
    if key.type.kind != "struct":
        if key.type.kind in ORDERLESS:
            raise Mismatch(f"can't order by {key.type.required()}", key)
        if nulls_first is None or nulls_first == descending or not key.type.nullable:
            return [(key, descending)]
        return [(Call("is null", (key,), BOOL), nulls_first), (key, descending)]
    last = descending if nulls_first is None else nulls_first
    found: list[Key] = [(Call("is null", (key,), BOOL), last)] if key.type.nullable else []
    for name, kind in key.type.fields:
        field = Call("struct_extract", (key, Literal(name, STRING)), kind.or_null(key.type.nullable), span=key.span)
        found += keys_of(field, descending)
    return found
