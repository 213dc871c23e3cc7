"""Parts of JSON in a text: the steps of a path, and the value at its end, as text; and the texts of a value's parts, by its type.

Numbers stay as they are written, so that no digit is lost. If several members have one name the first counts.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn

from ddcli.expressions.types import FLOATS, INTEGERS, Type, is_field_name, parse_sql_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = r"""([^\s."'*$#@?()\[\]\\](?:[^."*\[\]\\]*[^\s."*\[\]\\])?)"""
"""A name without quotes."""
STEP = re.compile(rf"""\.{NAME}|\."((?:[^"\\]|\\.)*)"|\[((?:\#?-)?\d{{1,9}})\]|\['([^']*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
EACH = "[*]"
"""The end of a path to each element of a list."""
DEEP = 100
"""The depth to which lists and objects may be nested: the same wherever a text is read, however much of Python's stack is in use."""
QUOTED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
BRACKET = re.compile(r"[][{}]")
FROM_JSON = {*INTEGERS, *FLOATS, "decimal", "bool", "string", "date", "time", "datetime", "list", "struct"}
"""The kinds of values that JSON is read as."""
MISSING = object()
"""The value at a path that does not exist."""


PLAIN_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")
"""A name that has no quotes in the paths of `json_rows`."""


class NoJsonError(ValueError):
    """A text that is not JSON."""


class Members(list[tuple[str, Any]]):
    """The members of an object, in their order."""

    __slots__ = ()


class Digits(str):
    """A number with its written digits."""

    __slots__ = ()


def steps_of(path: str) -> tuple[str | int, ...] | None:
    """Return the names and positions of a path, those below zero counted from the end, None if it has another form.

    >>> steps_of('$.a[0]."b c"')
    ('a', 0, 'b c')
    >>> steps_of("a")
    ('a',)
    """
    if not path.startswith("$"):
        return (path,) if path and path[0] not in "/[." else None
    found: list[str | int] = []
    at = 1
    while at < len(path):
        match = STEP.match(path, at)
        if match is None:
            return None
        name, quoted, position, other, again = match.groups()
        escaped = quoted if quoted is not None else again
        if position == "#-0":
            return None
        step = int(position.removeprefix("#")) if position else name or other
        found.append(step if escaped is None else re.sub(r'\\(["\\])', r"\1", escaped))
        at = match.end()
    return tuple(found)


def part_of(text: str, steps: Sequence[str | int]) -> Any:
    """Return the value at a path in a JSON text, or MISSING. Raises NoJsonError."""
    found = read_json(text)
    for step in steps:
        if isinstance(step, str):
            named = (value for name, value in found if name == step) if isinstance(found, Members) else iter(())
            found = next(named, MISSING)
        else:
            found = found[step] if is_array(found) and -len(found) <= step < len(found) else MISSING
    return found


def json_rows(text: str, path: str, steps: Sequence[str | int], *, whole: bool) -> list[dict[str, Any]]:
    """Return the rows of `json_each`, or, if `whole`, of `json_tree`, for the value at a path, as DuckDB has them. Raises NoJsonError.

    The `id` of a value counts the values, and the names of members, before it in the text.
    """
    place, value, number = path if path.startswith("$") else f'$."{path}"', read_json(text), 0
    for step in steps:
        found = [*_children(value, number, "")]
        key = str(step if isinstance(step, str) or step >= 0 else len(found) + step)
        inside = isinstance(value, Members) == isinstance(step, str)
        value, number = next((each[1:3] for each in found if inside and each[0] == key), (MISSING, 0))
    if value is MISSING:
        return []
    rows: list[dict[str, Any]] = []

    def add(key: str | None, value: Any, number: int, parent: int | None, places: tuple[str, str]) -> None:
        text, kind = written(value), kind_of(value)
        atom = None if kind in {"OBJECT", "ARRAY", "NULL"} else text
        facts = {"key": key, "value": text, "type": kind, "atom": atom, "id": number, "parent": parent}
        rows.append({**facts, "fullkey": places[0], "path": places[1]})

    def descend(value: Any, number: int, place: str) -> None:
        for key, each, at, full in _children(value, number, place):
            add(key, each, at, number if whole else None, (full, place))
            if whole:
                descend(each, at, full)

    if whole or not isinstance(value, list):
        add(None, value, number, None, (place, place))
    descend(value, number, place)
    return rows


def _children(value: Any, number: int, place: str) -> Iterator[tuple[str, Any, int, str]]:
    """Yield key, value, number and path of each part of a value with this number and path."""
    at = number + 1
    for position, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(value, Members):
            name, each = each
            quoted = name if PLAIN_NAME.fullmatch(name) else '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
            at += 1
            yield name, each, at, f"{place}.{quoted}"
        else:
            yield str(position), each, at, f"{place}[{position}]"
        at += _size(each)


def _size(value: Any) -> int:
    """Return the number of values in a value, with itself, and of names."""
    if isinstance(value, Members):
        return 1 + sum(1 + _size(each) for _, each in value)
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def is_array(value: Any) -> bool:
    """Return whether a value is a list of JSON."""
    return isinstance(value, list) and not isinstance(value, Members)


def is_json(text: str) -> bool:
    """Return whether a text is JSON."""
    try:
        read_json(text)
    except NoJsonError:
        return False
    return True


def written(value: Any) -> str:
    """Return a value as JSON without spaces."""
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, Members):
        return "{" + ",".join(f"{written(name)}:{written(each)}" for name, each in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def as_text(value: Any) -> str | None:
    """Return a value as text: one in quotes without them, `null` as null, the rest as JSON."""
    if value is MISSING or value is None:
        return None
    return value if isinstance(value, str) else written(value)


def kind_of(value: Any) -> str:
    """Return the name of the kind of a value, as DuckDB has them.

    >>> [kind_of(read_json(text)) for text in ("1", "-1", "1.0", '"1"', "[]", "{}", "null", "true")]
    ['UBIGINT', 'BIGINT', 'DOUBLE', 'VARCHAR', 'ARRAY', 'OBJECT', 'NULL', 'BOOLEAN']
    """
    if isinstance(value, Digits):
        whole = re.fullmatch(r"-?\d+", value) and -(2**63) <= int(value) < 2**64
        return "DOUBLE" if not whole else "BIGINT" if value.startswith("-") else "UBIGINT"
    if isinstance(value, bool) or value is None:
        return "NULL" if value is None else "BOOLEAN"
    return "OBJECT" if isinstance(value, Members) else "ARRAY" if isinstance(value, list) else "VARCHAR"


def structure_of(value: Any) -> str:
    """Return the structure of a value as JSON: the kinds of its parts, one for all elements of a list; `JSON` for parts of several kinds.

    >>> structure_of(read_json('{"a": [1, -2], "b": [{"c": null}, {"c": "x"}]}'))
    '{"a":["HUGEINT"],"b":[{"c":"VARCHAR"}]}'
    """

    def named(found: Any) -> Any:
        if isinstance(found, dict):
            return {name: named(each) for name, each in found.items()} or "JSON"
        return [named(found[0])] if isinstance(found, list) else found

    return json.dumps(named(_structure(value)), ensure_ascii=False, separators=(",", ":"))


def _structure(value: Any) -> Any:
    if isinstance(value, Members):
        found: dict[str, Any] = {}
        for name, each in value:
            found[name] = _met(found.get(name, "NULL"), _structure(each))
        return found
    return [reduce(_met, map(_structure, value), "NULL")] if isinstance(value, list) else kind_of(value)


def _met(one: Any, other: Any) -> Any:
    """Return the structure of two values in one place."""
    if one == other or "NULL" in (one, other):
        return other if one == "NULL" else one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _met(one.get(name, "NULL"), other.get(name, "NULL")) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [_met(one[0], other[0])]
    kinds = [each if isinstance(each, str) else "" for each in (one, other)]
    return "HUGEINT" if WHOLE.issuperset(kinds) else "DOUBLE" if (WHOLE | {"DOUBLE"}).issuperset(kinds) else "JSON"


WHOLE = {"UBIGINT", "BIGINT", "HUGEINT"}
"""The kinds of whole numbers."""


def contains(whole: Any, part: Any) -> bool:
    """Return whether a value, or one in it, has all parts of another."""
    if _has_parts(whole, part):
        return True
    inner = [each for _, each in whole] if isinstance(whole, Members) else whole if isinstance(whole, list) else []
    return any(contains(each, part) for each in inner)


def _has_parts(whole: Any, part: Any) -> bool:
    if isinstance(whole, Members) and isinstance(part, Members):
        first = dict(reversed(whole))
        return all(name in first and _has_parts(first[name], each) for name, each in part)
    if is_array(whole) and is_array(part):
        return all(any(_has_parts(one, each) for one in whole) for each in part)
    if isinstance(whole, Digits) and isinstance(part, Digits):
        same = (kind_of(whole) == "DOUBLE") == (kind_of(part) == "DOUBLE")
        return same and (float(whole) == float(part) if kind_of(whole) == "DOUBLE" else int(whole) == int(part))
    return type(whole) is type(part) and not isinstance(whole, list) and bool(whole == part)


def merged(value: Any, patch: Any) -> Any:
    """Return an object with the members of a patch (RFC 7396), which follow its others; the patch, if one of them is no object."""
    return _merged(value, patch) if isinstance(value, Members) else patch


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, Members):
        return patch
    members, changed = value if isinstance(value, Members) else [], {name for name, _ in patch}
    first = dict(reversed(members))
    found = Members(member for member in members if member[0] not in changed)
    found += [(name, _merged(first.get(name), each)) for name, each in patch if each is not None]
    return found


def float_text(value: float) -> str:
    """Return a float as a number of JSON, as DuckDB writes it; words that are no JSON for what is no number.

    >>> [float_text(each) for each in (0.5, 1e20, 1e21, 1e-7, 2e-6)]
    ['0.5', '100000000000000000000.0', '1e21', '1e-7', '0.000002']
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    point, text = len(digits) + exponent, "".join(map(str, digits))
    if -6 < point <= 21:
        whole = text[: max(point, 0)].ljust(point, "0") or "0"
        text = f"{whole}.{'0' * -point}{text[max(point, 0) :] or '0'}"
    else:
        text = f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{point - 1}"
    return "-" * sign + text


def type_of_structure(text: str) -> Type | None:
    """Return the type that a structure of JSON describes, all of it nullable; None if it describes none.

    >>> str(type_of_structure('{"a": "INT", "b": ["VARCHAR"]}'))
    'struct[a: int32?, b: list[string?]?]?'
    """
    try:
        return _described(read_json(text))
    except NoJsonError:
        return None


def _described(structure: Any) -> Type | None:
    if isinstance(structure, Members):
        names = [name.lower() for name, _ in structure]
        fields = [(name, _described(each)) for name, each in structure]
        known = [(name, kind) for name, kind in fields if kind is not None and is_field_name(name)]
        whole = known and len(known) == len(structure) == len(set(names))
        return Type("struct", nullable=True, fields=tuple(known)) if whole else None
    if is_array(structure):
        inner = _described(structure[0]) if len(structure) == 1 else None
        return Type("list", nullable=True, inner=inner) if inner else None
    if not isinstance(structure, str) or isinstance(structure, Digits):
        return None
    kind = parse_sql_type(structure)
    return kind.or_null() if kind is not None and kind.kind in FROM_JSON else None


def texts_of(value: Any, kind: Type) -> Any:
    """Return a JSON value as one of a type, with the texts of its parts for a cast to come; null for a value of another kind."""
    if value is None or value is MISSING:
        return None
    if kind.kind == "list":
        return [texts_of(each, kind.inner) for each in value] if is_array(value) and kind.inner else None
    if kind.kind == "struct":
        members = dict(reversed(value)) if isinstance(value, Members) else {}
        return {name: texts_of(members.get(name), inner) for name, inner in kind.fields}
    if kind.kind == "string":
        return as_text(value)
    if isinstance(value, list) or (isinstance(value, Digits) and kind.kind in ("date", "time", "datetime")):
        return None
    if isinstance(value, bool):
        return str(value).lower() if kind.kind == "bool" else str(int(value)) if kind.is_numeric else None
    return _number_text(value, kind) if isinstance(value, Digits) else value


def misfits(value: Any, kind: Type) -> bool:
    """Return whether a JSON value has parts of other kinds than a type, or members that only one of them has."""
    if value is None:
        return False
    if kind.kind == "list":
        return not is_array(value) or any(misfits(each, kind.inner) for each in value if kind.inner)
    if kind.kind == "struct":
        if not isinstance(value, Members):
            return True
        members, fields = dict(value), dict(kind.fields)
        return members.keys() != fields.keys() or any(misfits(members[name], fields[name]) for name in fields)
    return texts_of(value, kind) is None


def _number_text(digits: str, kind: Type) -> str:
    """Return a number of JSON as the text of one of a type: rounded half to even for an integer, without an exponent for a decimal."""
    if kind.kind == "bool":
        return str(float(digits) != 0).lower()
    if kind.is_float or re.fullmatch(r"-?\d+", digits):
        return digits
    value = float(digits)
    if not math.isfinite(value):
        return digits
    return str(round(value)) if kind.is_integer else f"{Decimal(digits):f}"


def read_json(text: str) -> Any:
    """Return the value of a JSON text. Raises NoJsonError."""
    if text.count("[") + text.count("{") > DEEP:
        _check_depth(text)
    try:
        found = json.loads(
            text, parse_int=Digits, parse_float=Digits, parse_constant=_constant, object_pairs_hook=Members
        )
        if "\\u" in text:
            written(found).encode()  # half of a pair is no character
    except ValueError:
        raise NoJsonError from None
    return found


def _check_depth(text: str) -> None:
    depth = 0
    for bracket in BRACKET.finditer(QUOTED.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEP:
            raise NoJsonError


def _constant(word: str) -> NoReturn:
    raise NoJsonError(word)
