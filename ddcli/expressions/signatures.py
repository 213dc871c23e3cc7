"""Functions of the table: signature, meaning and the types of calls. Signatures, as text, check and convert arguments.

`left(text: string, n: integer) -> string` has the parameters with their kinds, `= value` for one that may be left
out, `...` after the last if it repeats, and the result. The result is null if an argument is (and only then, unless it is
written `string?`). A result that names a parameter has its type; `inner` is the type of the first argument's elements.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.coerce import (
    BOOL,
    DATE,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    Mismatch,
    convert,
)
from ddcli.expressions.moments import DIFF_UNITS, MONTH_UNITS, TRUNC_UNITS, FormatError, parts_of
from ddcli.expressions.patterns import check_pattern, like_pattern
from ddcli.expressions.tree import Expression, Literal
from ddcli.expressions.types import Type, parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.arithmetic import Resolved, Rule


# The types that a parameter's kind accepts, and the type to which its argument is converted (None: it stays as it is).
ACCEPTS: dict[str, tuple[frozenset[str], Type | None]] = {
    "string": (frozenset({"string"}), STRING),
    "bool": (frozenset({"bool"}), BOOL),
    "binary": (frozenset({"binary"}), Type("binary")),
    "date": (frozenset({"date"}), DATE),
    "dated": (frozenset({"date", "datetime"}), None),
    "timed": (frozenset({"time", "datetime"}), None),
    "timestamp": (frozenset({"date", "datetime"}), TIMESTAMP),
    "moment": (frozenset({"date", "datetime", "time"}), None),
    "duration": (frozenset({"duration"}), None),
    "list": (frozenset({"list"}), None),
    "sequence": (frozenset({"list", "string"}), None),
}


@dataclass(frozen=True)
class Parameter:
    """One parameter: its name for messages, its kind, whether it must be a constant, and its default's SQL text."""

    name: str
    kind: str
    constant: bool
    default: str | None


@dataclass(frozen=True)
class Signature:
    """A parsed signature."""

    name: str
    parameters: tuple[Parameter, ...]
    repeats: bool
    result: str

    @property
    def least(self) -> int:
        """The number of arguments that must be given."""
        return sum(parameter.default is None for parameter in self.parameters)


@cache
def parse_signature(text: str) -> Signature:
    """Return a parsed signature of the table. Raises ValueError for an error in it, which is a bug."""
    match = re.fullmatch(r"(\w+)\((.*)\) -> (.+)", text)
    if not match:
        raise ValueError(text)
    body = match[2].removesuffix("...")
    parameters = []
    for part in filter(None, (piece.strip() for piece in body.split(", "))):
        declared, _, default = part.partition(" = ")
        name, _, kind = declared.partition(": ")
        constant = kind.startswith("constant ")
        parameters.append(Parameter(name, kind.removeprefix("constant "), constant, default or None))
    return Signature(match[1], tuple(parameters), match[2].endswith("..."), match[3])


def is_accepted(kind: str, type_: Type) -> bool:
    """Return whether a parameter kind accepts an argument of a type; all accept a bare null."""
    if type_.kind == "null" or kind == "any":
        return True
    if kind == "integer":
        return type_.is_integer
    if kind in ("float", "number"):
        return type_.is_numeric
    return type_.kind in ACCEPTS[kind][0]


def converted(kind: str, arg: Expression) -> Expression:
    """Return an accepted argument in the type that the parameter computes with."""
    target = {"integer": INT64, "float": FLOAT64}.get(kind)
    if target is None and kind in ACCEPTS:
        target = ACCEPTS[kind][1]
        if kind == "timestamp" and arg.type.kind == "datetime":
            target = None
    if target is None and arg.type.kind == "null":
        target = {"number": INT64, "dated": DATE, "moment": TIMESTAMP, "timed": TIMESTAMP}.get(kind, NULL)
        target = Type("list", inner=NULL) if kind in ("list", "sequence") else target
    return convert(arg, target) if target else arg


def check_arguments(signature: Signature, args: Sequence[Expression]) -> list[Expression]:
    """Return the arguments in the types of the parameters, or raise Mismatch. The lowering adds the defaults."""
    most = len(signature.parameters)
    if len(args) < signature.least or (len(args) > most and not signature.repeats):
        wanted = str(most) if signature.least == most else f"{signature.least} to {most}"
        wanted = f"at least {signature.least}" if signature.repeats else wanted
        plural = "" if wanted == "1" else "s"
        raise Mismatch(f"{signature.name} takes {wanted} argument{plural}, got {len(args)}", hint=usage(signature))
    result = []
    for index, arg in enumerate(args):
        parameter = signature.parameters[min(index, most - 1)]
        if not is_accepted(parameter.kind, arg.type):
            problem = f"{signature.name} expects {described(parameter)}, got {arg.type.required()}"
            raise Mismatch(problem, arg, usage(signature))
        if parameter.constant and not isinstance(arg, Literal):
            raise Mismatch(f"{signature.name}: `{parameter.name}` must be a constant", arg, usage(signature))
        if parameter.constant and arg.type.nullable:
            raise Mismatch(f"{signature.name}: `{parameter.name}` can't be null", arg, usage(signature))
        result.append(converted(parameter.kind, arg))
    return result


def described(parameter: Parameter) -> str:
    """Return the kind of argument that a parameter takes, in words."""
    kinds = {"float": "a number", "number": "a number", "integer": "an integer", "dated": "a date or timestamp"}
    kinds |= {
        "timed": "a time or timestamp",
        "moment": "a date, time or timestamp",
        "any": "a value",
        "sequence": "a list or text",
    }
    return f"{kinds.get(parameter.kind, 'a ' + parameter.kind)} as `{parameter.name}`"


def usage(signature: Signature) -> str:
    """Return the signature as a hint."""
    parts = []
    for parameter in signature.parameters:
        constant = "constant " if parameter.constant else ""
        default = f" = {parameter.default}" if parameter.default else ""
        parts.append(f"{parameter.name}: {constant}{parameter.kind}{default}")
    dots = ", ..." if signature.repeats else ""
    return f"{signature.name}({', '.join(parts)}{dots}) -> {signature.result}"


def result_type(signature: Signature, args: Sequence[Expression]) -> Type:
    """Return the type of a call whose arguments have been checked."""
    text = signature.result.removesuffix("?")
    nullable = signature.result.endswith("?") or any(arg.type.nullable for arg in args)
    names = [parameter.name for parameter in signature.parameters]
    if text in names:
        found: Type | None = args[names.index(text)].type
    elif text == "inner":
        found = args[0].type.inner
    else:
        found = parse_type(text)
    if found is None:
        raise Mismatch(f"{signature.name} can't tell the type of {args[0].text()}", args[0], "cast it")
    return replace(found, nullable=nullable or found.kind == "null" or (text == "inner" and found.nullable))


@dataclass(frozen=True)
class Function:
    """One function: its signature, its meaning, and an example with its value (both SQL)."""

    name: str
    signature: str
    doc: str
    example: str
    result: str
    rule: Rule
    """Returns a call's converted arguments, the type of its result and its canonical name; raises Mismatch."""
    means: str = ""
    """The expression over the parameters that a call stands for, if the function is derived from others."""
    by_signature: bool = True
    """The mark of a function whose rule follows from its signature: it returns null if an argument is null."""


def signature_rule(text: str) -> Rule:
    """Return the rule of a signature."""

    def resolve(name: str, args: Sequence[Expression]) -> Resolved:
        signature = parse_signature(text)
        converted = check_arguments(signature, args)
        check_constants(name, converted)
        return converted, result_type(signature, converted), name

    return resolve


def table(text: str, **rules: Rule) -> list[Function]:
    """Return the functions of a table, a row each: `signature -- meaning -- example => its value`.

    A function that stands for an expression of others has that as a fourth part. One whose types a rule computes begins with
    `name [rule]: ` instead, and is written as people call it.
    """
    return [_function(row.strip(), rules) for row in text.strip().splitlines()]


def _function(row: str, rules: Mapping[str, Rule]) -> Function:
    signature, doc, example, *means = row.split(" -- ")
    example, _, result = example.partition(" => ")
    if ruled := re.match(r"(.+?) \[(\w+)\]: ", signature):
        rule = rules[ruled[2]]
        return Function(ruled[1], signature[ruled.end() :], doc, example, result, rule, by_signature=False)
    name = signature.partition("(")[0]
    return Function(name, signature, doc, example, result, signature_rule(signature), "".join(means))


STRFTIME = "YymbBdjaAHIpMSf%"
"""The letters that may follow a percent sign in a format."""


def check_constants(function: str, args: Sequence[Expression]) -> None:
    """Check patterns, units and fills, which are constants; raises Mismatch."""
    constants = {index: arg.value for index, arg in enumerate(args) if isinstance(arg, Literal)}
    if function in ("lpad", "rpad") and len(args) > 2 and len(str(constants[2])) != 1:
        raise Mismatch(f"{function}: the fill is one character", args[2])
    if function in ("date_trunc", "date_diff", "date_sub"):
        known = TRUNC_UNITS if function == "date_trunc" else [*DIFF_UNITS, *MONTH_UNITS]
        unit = str(constants[0]).lower()
        if unit not in known:
            raise Mismatch(f"{function} has no unit '{unit}'", args[0], f"one of {', '.join(known)}")
    if function == "list_slice" and len(args) > 3:
        if not constants[3]:
            raise Mismatch("a slice has no step of 0", args[3])
        if args[0].type.kind != "list":
            raise Mismatch("a slice of a text has no step", args[3])
    if function == "time_bucket" and constants[0] <= timedelta():  # type: ignore[operator]
        raise Mismatch("the width of a bucket must be positive", args[0])
    if function in ("strftime", "strptime", "try_strptime"):
        _check_format(function, str(constants[1]), args[1])
    if function in ("like", "ilike"):
        like_pattern(str(constants[1]), str(constants.get(2, "")), args)
    if function.startswith("regexp_"):
        check_pattern(function, constants, args)


def _check_format(function: str, text: str, arg: Expression) -> None:
    """Check the format of a date or timestamp; raises Mismatch."""
    if function == "strftime":
        wrong = [each for each in re.findall(r"%(.?)", text, re.DOTALL) if not each or each not in STRFTIME]
        if wrong:
            hint = f"one of {', '.join(f'%{letter}' for letter in STRFTIME)}"
            raise Mismatch(f"strftime has no directive `%{wrong[0]}`", arg, hint)
        return
    try:
        parts_of(text)
    except FormatError as error:
        raise Mismatch(f"{function}: the format {error}", arg, "as in '%d.%m.%Y %H:%M'") from None
