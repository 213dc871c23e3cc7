"""`checks:` in a pipeline file: each becomes a collection of violations, made of operators that exist, and a log of it in the state."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import Expanded, Span, Text
from ddcli.expressions.tree import delimited
from ddcli.spec import model
from ddcli.spec.model import (
    MEASURE,
    OTHERWISE,
    ROWS,
    UNCHECKED,
    CheckSpec,
    GroupColumn,
    Inline,
    Limit,
    Measure,
    Operator,
    Quarantine,
)
from ddcli.spec.shapes import Key, Many, NodePlace, Notes, Pairs, Record, Reference, Refused, Shape, shape
from ddcli.spec.tree import Mapping, Node, Scalar, Sequence
from ddcli.spec.values import COLUMN, COLUMNS, EXPRESSION, Choice, Words, query_text

if TYPE_CHECKING:
    from collections.abc import Container
    from collections.abc import Sequence as Items

    from ddcli.spec.model import Otherwise

LENGTHS = {
    "s": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86_400, "day": 86_400, "days": 86_400, "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip
"""The seconds of each unit of a length of time."""
AGE = Words("a length of time", r"\d+ ?(" + "|".join(LENGTHS) + ")", "for example `2h`, `30min` or `7 days`")
OF = Words("the name of an input, a collection or an output")
AGGREGATE = Words("an aggregate")
BOUND = re.compile(r"([+-]?\d+(?:\.\d+)?(?:e\d+)?)(%?)")
LONGEST = 120
"""The bytes of a check's name, at most: the directory of its log has it."""
REMOVED = "removed"
"""The measure of a `change` that counts the retractions that a commit writes to an output's log."""


@shape(lambda: {"type": ["string", "integer", "number", "boolean"]})
def literal(node: Node, place: NodePlace, notes: Notes) -> str:
    """Return a value of a list, as the text of an SQL literal."""
    if not isinstance(node, Scalar) or node.kind == "null":
        raise notes.mismatch(node, place, "a value", "a null is not a violation: `not_null` refuses it")
    if node.plain and node.kind in ("int", "float", "bool"):
        return _number(node.text.value)
    return "'" + node.text.value.replace("'", "''") + "'"


def _number(text: str) -> str:
    """Return a number of YAML, or a truth value, as SQL.

    >>> _number("-.inf"), _number("0x1F"), _number("007"), _number("true")
    ("cast('-inf' as float64)", '31', '007', 'true')
    """
    special = re.fullmatch(r"[-+]?\.(inf|nan)", text, re.IGNORECASE)
    if special:
        return f"cast('{text.replace('.', '').replace('+', '').lower()}' as float64)"
    return str(int(text, 0)) if re.match(r"[-+]?0[xo]", text) else text


@shape(lambda: {"type": "string", "pattern": r"\.", "examples": ["customers.id"]})
def other_column(node: Node, place: NodePlace, notes: Notes) -> tuple[Text, Text]:
    """Return the column of another collection, `customers.id`."""
    if not isinstance(node, Scalar) or not re.fullmatch(r"[^.].*\.[^.]+", node.text.value):
        raise notes.mismatch(node, place, "a column of a collection", "for example `customers.id`")
    name, _, column = node.text.value.rpartition(".")
    span = node.span
    inside = Span(span.file, span.line, span.column + node.text.inset, len(name), span.source)
    found = Text(name, inside)
    notes.references.append(Reference(found, place.owner))
    return found, Text(column, replace(inside, column=inside.column + len(name) + 1, length=len(column)))


END = {"type": ["string", "number"]}
"""The JSON Schema of an end of a range."""


@shape(lambda: {"anyOf": [END, {"type": "array", "items": END, "minItems": 2, "maxItems": 2}]})
def change_limit(node: Node, place: NodePlace, notes: Notes) -> Limit:
    """Return the least and the greatest change, or one number for both directions: `5%`, `[-10%, +50%]`, `[-1000, 5000]`."""
    hint = "for example `[-10%, +50%]`, `5%` or `[-1000, 5000]`"
    items = node.items if isinstance(node, Sequence) else (node,)
    found = [BOUND.fullmatch(item.text.value) if isinstance(item, Scalar) else None for item in items]
    ends = [(float(each[1]), bool(each[2])) for each in found if each]
    if len(ends) != len(items) or len(ends) not in (1, 2):
        raise notes.mismatch(node, place, "a change, or its least and greatest value", hint)
    if len(ends) == 1 and isinstance(node, Scalar) and node.text.value[0] in "+-":
        size = node.text.value[1:]
        problem, hint = (
            f"'{node.text.value}' is one direction of a change",
            f"`{size}` bounds both directions, `[-{size}, +{size}]` each by itself",
        )
        raise notes.refuse(place.path, problem, node.span, hint)
    if len({relative for _, relative in ends}) > 1:
        raise notes.refuse(place.path, "one end is a percentage, the other is not", node.span, hint)
    numbers = [end / 100 if relative else end for end, relative in ends]
    least, most = numbers if len(numbers) == 2 else (-abs(numbers[0]), abs(numbers[0]))
    if least > most:
        raise notes.refuse(place.path, "the least change is greater than the greatest", node.span, "swap the two")
    texts = [item.text.value for item in items if isinstance(item, Scalar)]
    written = f"[{', '.join(texts)}]" if isinstance(node, Sequence) else texts[0]
    return Limit(least, most, ends[0][1], written)


@frozen
class _Check:
    """A check as it is written."""

    kind: str
    argument: Any
    span: Span
    place: str
    of: Text | None = None
    otherwise: Otherwise = "fail"
    name: Text | None = None


KINDS: dict[str, tuple[Shape[Any], str]] = {
    "unique": (COLUMNS, "columns whose values only one row has; rows with a null in one of them are left out"),
    "not_null": (COLUMNS, "columns without nulls"),
    "row": (EXPRESSION, "a condition that is true for each row, or null"),
    "in": (
        Pairs(
            COLUMN,
            Many(literal, "a list of values"),
            "a mapping of columns to lists of values, such as {status: [open, paid]}",
        ),
        "the values that a column may have, in addition to null",
    ),
    "refers": (
        Pairs(
            COLUMN,
            other_column,
            "a mapping of columns to columns of another collection, such as {customer_id: customers.id}",
        ),
        "columns whose values another collection has: {customer_id: customers.id}",
    ),
    "sql": (query_text, "a query whose rows are violations"),
    "change": (
        Pairs(AGGREGATE, change_limit, "a mapping of measures to ranges, such as {rows: 10%}"),
        "the change by one commit of `rows`, of an aggregate, or by `removed` rows: {rows: [-10%, +50%]}",
    ),
    "fresh": (
        Pairs(AGGREGATE, AGE, "a mapping of a time to its greatest age, such as {max(updated_at): 2h}"),
        "the greatest age of a time, at the time of the run: {max(updated_at): 2h}",
    ),
}
"""The kinds of checks: the shape of each one's value, and its purpose."""
KEYS = {
    **{kind: Key(shape, about=about) for kind, (shape, about) in KINDS.items()},
    "of": Key(OF, about="the input, the collection or the output that is checked; a query names its own"),
    "otherwise": Key(
        Choice("consequence", OTHERWISE),
        about="fail (default): the run commits nothing; warn: it reports the violations; quarantine: the input lacks these rows",
    ),
    "name": Key(Words("a name"), about="its name; default: made of the collection, the kind and the columns"),
}
RECORD: Record[dict[str, Any]] = Record(
    lambda _, arguments: arguments, KEYS, "a mapping", "{unique: [order_id], of: orders}"
)


@shape(lambda: RECORD.schema() | {"oneOf": [{"required": [kind]} for kind in KINDS]})
def one_check(node: Node, place: NodePlace, notes: Notes) -> _Check:
    """Return a check: the key of its kind, the collection that it is `of`, its consequence and its name."""
    # References of a check count as references of a thing of its own.
    place = NodePlace(place.path, place.word, place.path)
    arguments = RECORD.read(node, place, notes)
    assert isinstance(node, Mapping), "it was read as one"
    words = [word for word, _ in node.entries if word.value in KINDS]
    if len(words) != 1:
        problem = f"a check is of one kind, and this is {' and '.join(word.value for word in words) or 'of none'}"
        hint = f"one of {', '.join(KINDS)}"
        raise notes.refuse(place.path, problem, (words[1] if words else place.word).span, hint)
    (word,) = words
    if word.value == "sql" and "of" in arguments:
        raise notes.refuse(place.path, "a query names its inputs itself", word.span, "leave `of` out")
    if word.value != "sql" and "of" not in arguments:
        raise notes.refuse(place.path, "the key 'of' is missing", word.span, "for example `of: orders`")
    if word.value == "refers" and (others := _others(arguments["refers"])):
        problem = f"all columns refer to one collection, and these to '{others[0].value}' and '{others[1].value}'"
        hint = "write a check for each; two columns of one are looked up together"
        raise notes.refuse(f"{place.path}.refers", problem, others[1].span, hint)
    return _Check(word.value, arguments.pop(word.value), word.span, place.path, **arguments)


def _others(pairs: Items[tuple[Text, tuple[Text, Text]]]) -> tuple[Text, Text] | None:
    """Return two different collections to which columns refer, if there are some."""
    first = pairs[0][1][0]
    return next(((first, other) for _, (other, _) in pairs if other.value != first.value), None)


CHECKS = Many(one_check, "a list of checks", least=0)


@dataclass
class Checks:
    """The checks of a file with the collections, outputs and quarantines that they become."""

    checks: dict[str, CheckSpec]
    collections: dict[str, model.CollectionSpec]
    quarantines: dict[str, tuple[Quarantine, ...]]

    def sections(self, written: dict[str, dict[str, Any]], wrong: Container[str]) -> dict[str, Any]:
        """Return the sections of a file with its checks' sections, but for the collections that are `wrong`: the output of each is a log in the state."""
        checks = {name: check for name, check in self.checks.items() if f"collections.{name}" not in wrong}
        collections = {name: each for name, each in self.collections.items() if name in checks}
        quarantines = {
            name: tuple((check, parts) for check, parts in some if check.value in checks)
            for name, some in self.quarantines.items()
        }
        logs = {name: model.OutputSpec(check.name, check.name) for name, check in checks.items()}
        both = {"collections": written["collections"] | collections, "outputs": written["outputs"] | logs}
        return written | both | {"checks": checks, "quarantines": quarantines}


def expanded(written: Items[_Check], found: dict[str, Any], root: Mapping, notes: Notes) -> tuple[Checks, Mapping]:
    """Return the checks of a file with their collections, and its tree with their names among the names of collections and outputs, so that all refer to them.

    `found` has the other sections that could be read. Notes checks whose names are taken, or that can't put rows aside.
    """
    made = Checks({}, {}, {})
    inputs = {name.value for name, _ in found.get("inputs", ())}
    sections = {name: root.get(name) for name in ("inputs", "collections", "outputs")}
    taken = {
        word.value: word.span for node in sections.values() if isinstance(node, Mapping) for word, _ in node.entries
    }
    outputs = [output for _, output in found.get("outputs", ())]
    aside = {check.of.value for check in written if check.of and check.otherwise == "quarantine"} & inputs
    read = {output.name.value: output.source.value for output in outputs}
    for each in written:
        each = _of_source(each, read, notes)
        try:
            title = each.name.value if each.name else _default_name(each)
            name = Text(_identifier(title), each.name.span if each.name else each.span)
            if len(name.value.encode()) > LONGEST:
                problem = f"its name has more than {LONGEST} bytes"
                raise notes.refuse(each.place, problem, name.span, "a directory has this name: give it a shorter one")
            if not name.value or name.value in taken:
                problem = (
                    f"its name, {name.value!r}, is taken, at {taken[name.value]}"
                    if name.value
                    else "no letter is in its name"
                )
                raise notes.refuse(each.place, problem, name.span, "give it another: `name: orders are known`")
            taken[name.value] = name.span
            check, operators = _check(each, name, title if each.name else name.value, outputs, notes)
            if each.otherwise == "quarantine":
                _refuse_quarantine(each, inputs, notes)
        except Refused:
            continue
        made.checks[name.value] = check
        for reference in notes.references:
            if reference.owner == each.place:
                reference.owner, reference.path = f"collections.{name.value}", each.place
        of = each.of
        if of is not None and of.value in aside:
            of = Text(of.value + UNCHECKED, of.span) if each.otherwise == "quarantine" else of
        if isinstance(operators, model.Query):
            made.collections[name.value] = model.CollectionSpec(name, operators)
            continue
        assert of is not None, "only a query has none"
        made.collections[name.value] = model.CollectionSpec(name, (of,), operators)
        if each.otherwise == "quarantine":
            whole = of.value.removesuffix(UNCHECKED)
            made.quarantines[whole] = (*made.quarantines.get(whole, ()), (name, _kept(operators)))
    return made, _with_names(root, list(made.checks.values()))


def _identifier(title: str) -> str:
    """Return the name of a check's collection.

    >>> _identifier("at most 24 rows a day"), _identifier("amount_")
    ('at_most_24_rows_a_day', 'amount_')
    """
    return title if re.fullmatch(r"\w+", title) else re.sub(r"\W+", "_", title).strip("_")


def _of_source(check: _Check, read: dict[str, str], notes: Notes) -> _Check:
    """Return a check of an output as one of the collection that the output is written from."""
    if check.of is None:
        return check
    of = check.of
    if of.value in read:
        of = Text(read[of.value], of.span)
    notes.references.append(Reference(of, check.place))
    return replace(check, of=of)


def _default_name(check: _Check) -> str:
    """Return a check's name, of its collection, kind and columns."""
    columns: list[str] = []
    if check.kind in ("unique", "not_null"):
        columns = [column.value for column in check.argument]
    elif check.kind in ("in", "refers"):
        columns = [column.value for column, _ in check.argument]
    elif check.kind == "row":
        columns = [check.argument.value]
    name = "_".join([*([check.of.value] if check.of else []), check.kind, *columns])
    if len(name.encode()) <= LONGEST:
        return name
    return f"{name[: LONGEST // 4]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _refuse_quarantine(check: _Check, inputs: set[str], notes: Notes) -> None:
    """Refuse to put rows aside where that has no meaning."""
    if check.kind not in ("not_null", "row", "in", "refers"):
        problem = f"`{check.kind}` is not a property of a single row, so no row can be put aside for it"
        raise notes.refuse(check.place, problem, check.span, "use `otherwise: fail` or `otherwise: warn`")
    if check.of is not None and check.of.value not in inputs:
        problem = f"rows of inputs can be put aside, and '{check.of.value}' is computed"
        hint = "check the inputs that it is computed from, or filter it, or use `otherwise: fail`"
        raise notes.refuse(check.place, problem, check.of.span, hint)


def _check(
    check: _Check, name: Text, title: str, outputs: list[model.OutputSpec], notes: Notes
) -> tuple[CheckSpec, tuple[Operator, ...] | model.Query]:
    """Return a check, and the operators or the query that finds the violations."""
    spec = partial(CheckSpec, name, title, check.kind, check.of, check.otherwise, check.span, check.place)
    given = check.argument
    if isinstance(given, model.Query):
        return spec(), given
    if check.kind in ("change", "fresh"):
        measures, operators = _measured(check, outputs, notes)
        return spec(measures), operators
    return spec(), _violations(check)


def _violations(check: _Check) -> tuple[Operator, ...]:
    """Return the operators after which a collection has its violations."""
    around: dict[str, Any] = {"span": check.span, "place": f"{check.place}.{check.kind}"}
    given = check.argument

    def filtered(condition: str, text: Text) -> Operator:
        return Operator("filter", {"condition": Text(condition, text.span)}, **around)

    def there(columns: Items[Text]) -> str:
        return " and ".join(f"{delimited(column.value)} is not null" for column in columns)

    def unnamed(name: str, columns: Items[Text]) -> str:
        return name if name not in {column.value for column in columns} else unnamed(f"{name}_", columns)

    def counted(columns: Items[Text], *sums: str) -> tuple[str, Operator]:
        rows = unnamed("rows", columns)
        computed = [(rows, "count(*)"), *((name, f"sum({name})") for name in sums)]
        made = tuple((Text(name, check.span), Text(value, check.span)) for name, value in computed)
        return rows, Operator("reduce", {"by": tuple(map(GroupColumn, columns)), "columns": made}, **around)

    if check.kind == "unique":
        rows, count = counted(given)
        return count, filtered(f"{rows} > 1 and {there(given)}", given[0])
    if check.kind == "not_null":
        return (filtered(" or ".join(f"{delimited(column.value)} is null" for column in given), given[0]),)
    if check.kind == "row":  # a null violates nothing
        return (Operator("filter", {"condition": _within("not (", given, ")")}, **around),)
    if check.kind == "in":
        outside = (f"{delimited(column.value)} not in ({', '.join(values)})" for column, values in given)
        return (filtered(" or ".join(outside), given[0][0]),)
    other, pairs = given[0][1][0], tuple((column, found) for column, (_, found) in given)
    columns = [column for column, _ in pairs]
    if check.otherwise == "quarantine":
        unmatched = Operator("antijoin", {"on": pairs}, inputs=(other,), **around)
        return unmatched, filtered(there(columns), columns[0])
    # One reduction of both sides by the key: a join would look each key up in the other side, and keep both sides in the state.
    known = unnamed("known", [*columns, Text("rows", check.span)])

    def keys(number: str, names: Items[tuple[Text, Text]]) -> tuple[Operator, Operator]:
        kept = [(name, Text(delimited(column.value), column.span)) for name, column in names]
        made = Operator("map", {"columns": (*kept, (Text(known, check.span), Text(number, check.span)))}, **around)
        return filtered(there([column for _, column in names]), names[0][1]), made

    others = Inline((other,), keys("1", pairs), check.span, around["place"])
    rows, count = counted(columns, known)
    shown = (*columns, Text(rows, check.span))
    return (
        *keys("0", [(column, column) for column in columns]),
        Operator("concat", {"refers": pairs}, inputs=(others,), **around),
        count,
        filtered(f"{known} = 0", columns[0]),
        Operator("project", {"columns": shown}, **around),
    )


def _within(before: str, text: Text, after: str) -> Text:
    moves = ((0, len(before), 0, 0),)
    return Expanded(f"{before}{text.value}\n{after}", text.span, text.inset, text.lines, text, moves, encloses=True)


def _kept(operators: tuple[Operator, ...]) -> tuple[tuple[Operator, ...], ...]:
    """Return the parts of an input without its violations, which are disjoint: the operators of each."""
    first = operators[0]
    around: dict[str, Any] = {"span": first.span, "place": first.place}

    def filtered(condition: Text) -> Operator:
        return Operator("filter", {"condition": condition}, **around)

    if first.name == "filter":
        return ((filtered(_within("coalesce(not (", first.arguments["condition"], "), true)")),),)
    assert first.name == "antijoin", "a check of single rows begins with one of these"
    on = first.arguments["on"]
    there = " and ".join(f"{delimited(column.value)} is not null" for column, _ in on)
    text = on[0][0].span
    found = filtered(Text(there, text)), Operator("semijoin", {"on": on}, inputs=first.inputs, **around)
    return found, (filtered(Text(f"not ({there})", text)),)


def _measured(
    check: _Check, outputs: list[model.OutputSpec], notes: Notes
) -> tuple[tuple[Measure, ...], tuple[Operator, ...]]:
    """Return the measures of a check, and the operators after which its collection has one record with their values."""
    measures: list[Measure] = []
    columns: list[tuple[Text, Text]] = [(Text(ROWS, check.span), Text("count(*)", check.span))]
    for index, (expression, bound) in enumerate(check.argument):
        written = expression.value.strip()
        if check.kind == "fresh":
            number, unit = re.fullmatch(r"(\d+) ?(\w+)", bound.value).groups()  # type: ignore[union-attr]  # its shape
            limit = Limit(None, int(number) * LENGTHS[unit] * 1e6, relative=False, written=bound.value)
        else:
            limit = bound
        if check.kind == "change" and written == REMOVED:
            if bound.written.startswith("["):
                problem, hint = "removed rows have one bound, the most", "for example `removed: 5%`"
                raise notes.refuse(f"{check.place}.change.removed", problem, expression.span, hint)
            measures.append(Measure(written, limit, output=_output_of(check, expression, outputs, notes)))
        elif check.kind == "change" and written == "rows":
            measures.append(Measure(written, limit, ROWS))
        else:
            column = f"{MEASURE}{index}"
            measures.append(Measure(written, limit, column))
            columns.append((Text(column, expression.span), expression))
    around: dict[str, Any] = {"span": check.span, "place": f"{check.place}.{check.kind}"}
    return tuple(measures), (Operator("reduce", {"columns": tuple(columns)}, **around),)


def _output_of(check: _Check, word: Text, outputs: list[model.OutputSpec], notes: Notes) -> str:
    """Return the output whose log has a collection, for the number of rows that a commit removes from it."""
    of = cast("Text", check.of)
    for output in outputs:
        if of.value in (output.source.value, output.name.value):
            return output.name.value
    problem = f"removed rows are counted in the log of an output, and '{of.value}' is none"
    hint = "write it as an output, or bound the number of rows: `rows: [-5%, +50%]`"
    raise notes.refuse(check.place, problem, word.span, hint)


def _with_names(root: Mapping, checks: list[CheckSpec]) -> Mapping:
    """Return a file's tree in which checks also name collections and outputs."""
    entries = dict.fromkeys(("collections", "outputs"))
    whole: dict[str, tuple[Text, Node]] = {word.value: (word, node) for word, node in root.entries}
    for section in entries:
        word, node = whole.get(section, (Text(section, root.span), Mapping((), root.span, flow=True)))
        if isinstance(node, Mapping):
            # An output that names its source needs no reference of its own.
            named = Mapping(
                ((Text("from", root.span), Scalar(Text("", root.span), "str", plain=True)),), root.span, flow=True
            )
            more = tuple((check.name, named) for check in checks)
            whole[section] = word, Mapping((*node.entries, *more), node.span, node.flow)
    return Mapping(tuple(whole.values()), root.span, root.flow)
