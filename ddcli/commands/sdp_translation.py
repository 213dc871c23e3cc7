"""A query of Spark's as dd's SQL: streams as tables, names and texts in dd's quotes, and the place of nulls in each order.

The text stays the same but for single words, so a place in one has a place in the other. Words with another meaning here are refused, and so
are expressions whose types give them another value (`differences`). sqlglot's transpiler to DuckDB is no way around that: of 562 expressions
that Spark computes it gave 71 other values without a word, as for `date_add`, `left(s, -1)` and `trunc(day, 'month')`, and 50 errors.

A query keeps the functions that have the same values here, as a comparison over random rows has found, and some are rewritten. Names alone don't decide: a cast of an integer has
Spark's value, and a float is rounded here and cut in Spark. So the checked graph is read, in which each expression has its type.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.commands.projects import (
    DEPTHS,
    UNWRITABLE,
    Edit,
    Translation,
    closing,
    edited,
    quoted,
    span,
    table_edits,
    tables_in,
    unreadable,
)
from ddcli.commands.sdp_definitions import NAMED, word_of
from ddcli.dataclass import frozen
from ddcli.errors import SpecError
from ddcli.expressions.aggregates import AggregateCall
from ddcli.expressions.revisions import expressions_in, is_whole
from ddcli.expressions.tree import Call, Cast, Expression, Literal, deep_calls
from ddcli.expressions.types import MAX_PRECISION, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.commands.sdp_definitions import SparkDefinition
    from ddcli.errors import Span
    from ddcli.plan.node import Graph


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SAME = _names("""
    abs add_months any any_value approx_count_distinct array array_join array_max array_min array_sort ascii avg bin
    bit_count bool_and bool_or btrim cardinality cast cbrt ceil ceiling char_length character_length chr coalesce
    concat_ws contains corr count count_if covar_pop covar_samp cume_dist current_date current_timestamp date_add
    date_part date_sub day dayofmonth dayofyear dense_rank endswith every exp extract first_value floor greatest hex
    hour if ifnull instr isnotnull isnull lag last_day last_value lcase lead least left length listagg ln locate
    log10 lower lpad ltrim make_date max max_by md5 mean median min min_by minute mod mode month named_struct now
    nth_value ntile nullif nvl nvl2 octet_length percent_rank percentile percentile_cont percentile_disc pi position
    pow power quarter rank regexp_like regr_count regr_slope repeat reverse right round row_number rpad rtrim second
    sign signum size space split_part sqrt startswith stddev stddev_pop stddev_samp string_agg sum translate trim
    try_add try_cast try_divide try_multiply try_subtract var_pop var_samp variance weekofyear year
    """)
"""The functions whose values are the same in Spark and here, as far as types are."""
REWRITTEN = _names("date_trunc datediff log regexp_extract regexp_replace replace split substr substring")
GRAMMAR = _names("""
    all and anti any as between by case char cube dec decimal distinct else end except exists filter from group
    having ilike in inner intersect interval is join lateral left like limit minus natural not numeric offset on or
    order over partition qualify recursive right rlike rollup select semi sets some stream then union unpivot using
    values varchar when where window with within
    """)
"""The words that may stand before a parenthesis and are no functions."""
OTHER_PARTS = {
    **dict.fromkeys(("DOW", "DAYOFWEEK", "DOW_ISO", "DAYOFWEEK_ISO"), "the days of a week have other numbers in Spark"),
    **dict.fromkeys(
        ("SECOND", "SECONDS", "S", "SEC", "SECS"), "seconds are a decimal with six digits in Spark: `second` is whole"
    ),
}
"""The parts of a date or a timestamp that are others here, with the reason."""
PLAIN = re.compile(r"[\w ,;:/=@#&~!<>'\"-]+")
"""A pattern that is a text without letters of special meaning."""


def function_edits(text: str, file: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that give functions, subscripts and timestamps Spark's meaning; refuse functions that may mean something else here."""
    opened: list[str] = []
    for at, token in enumerate(tokens):
        word = word_of(token).lower()
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        before = word_of(tokens[at - 1]).lower() if at else ""
        if word == "(":
            opened.append(before)
        elif word == ")":
            opened = opened[:-1]
        elif word == "[":
            yield from _subscript(tokens, at)
        elif word == "timestamp" and after is not None:
            cast = before == "::" or (before == "as" and opened[-1:] and opened[-1] in ("cast", "try_cast"))
            if cast or after.token_type == TokenType.STRING:
                yield token.start, token.end + 1, "timestamptz"
        elif word and after is not None and word_of(after) == "(" and _is_call(tokens, at, before):
            yield from _call(text, file, tokens, at)


def _is_call(tokens: Sequence[Token], at: int, before: str) -> bool:
    """Return whether a word before a parenthesis is a function: not a word of the grammar, nor a table with names for its columns."""
    word = word_of(tokens[at]).lower()
    last = word.rsplit(" ", maxsplit=1)[-1]
    if last in GRAMMAR and word not in SAME:
        return False
    if not re.fullmatch(r"\w+", word) or before in ("as", "with", "recursive", ")"):
        return False
    end = closing(tokens, at + 1)
    follows = word_of(tokens[end + 1]).lower() if end + 1 < len(tokens) else ""
    return not (before == "," and follows == "as" and word_of(tokens[min(end + 2, len(tokens) - 1)]) == "(")


def _call(text: str, file: str, tokens: Sequence[Token], at: int) -> Iterator[Edit]:
    """Yield the edits of a call; refuse one that is not known to mean the same."""
    name, token, end = word_of(tokens[at]).lower(), tokens[at], tokens[closing(tokens, at + 1)]
    args = _arguments(tokens, at + 1)
    place = span(file, text, token.start, len(token.text))
    if name in SAME:
        part = tokens[at + 2].text.upper() if name in ("extract", "date_part") else ""
        if part in OTHER_PARTS:
            raise SpecError(OTHER_PARTS[part], span=place)
        return
    if name not in REWRITTEN:
        hint = "write it with other functions, or leave it to the pipeline file"
        raise SpecError(f"`{name}` is not known to mean the same here", span=place, hint=hint)
    if name == "datediff" and len(args) == 2:  # the end comes first in Spark
        yield token.start, tokens[at + 1].end + 1, "(-date_diff('day', "
        yield end.start, end.end + 1, "))"
    elif name == "log" and len(args) == 1:
        yield token.start, token.end + 1, "ln"
    elif name == "replace" and len(args) == 2:
        yield end.start, end.start, ", ''"
    elif name == "date_trunc" and len(args) == 2:
        yield args[1][0].start, args[1][0].start, "cast("
        yield end.start, end.start, " as timestamptz)"
    elif name == "regexp_extract" and len(args) == 2:
        yield end.start, end.start, ", 1"
    elif name == "regexp_replace":
        new = args[2] if len(args) == 3 else []
        if len(new) != 1 or new[0].token_type != TokenType.STRING or "$" in new[0].text:
            hint = "write a new text without `$`, and no position"
            raise SpecError("this `regexp_replace` may mean something else here", span=place, hint=hint)
        yield end.start, end.start, ", 'g'"
    elif name == "split":
        form = args[1] if len(args) == 2 else []
        if len(form) != 1 or form[0].token_type != TokenType.STRING or not PLAIN.fullmatch(form[0].text):
            hint = "write a separator of letters, digits, commas and the like, and no limit"
            raise SpecError("`split` takes a pattern in Spark, and a text here", span=place, hint=hint)


def _subscript(tokens: Sequence[Token], at: int) -> Iterator[Edit]:
    """Yield the edits of a subscript: elements are counted from 0 in Spark, and from 1 here."""
    inside = tokens[at + 1 : closing(tokens, at)]
    if len(inside) == 1 and inside[0].token_type == TokenType.NUMBER and inside[0].text.isdigit():
        yield inside[0].start, inside[0].end + 1, str(int(inside[0].text) + 1)
    elif inside and inside[0].token_type not in NAMED[:2]:
        yield inside[0].start, inside[0].start, "("
        yield inside[-1].end + 1, inside[-1].end + 1, ") + 1"


def _arguments(tokens: Sequence[Token], opening: int) -> list[list[Token]]:
    """Return the tokens of each argument of a call."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[opening + 1 : closing(tokens, opening)]:
        depth += DEPTHS.get(token.token_type, 0)
        if not depth and word_of(token) == ",":
            found.append([])
        else:
            found[-1].append(token)
    return found if found[0] else []


Difference = tuple[str, str | None]
"""A problem, and a hint."""
WHOLE = {"floor", "ceil", "round", "trunc"}
SUMS = {"+", "-", "try_add", "try_subtract", "add_months", "try_add_months"}
NARROW = {"<<", ">>", "try_add", "try_subtract", "try_multiply"}
FLOATS = "cast to double: both have the same values then"
MEAN = "the mean of decimals has another number of digits in Spark, unless they have two behind the point"
QUOTIENT = "a quotient of decimals has more digits in Spark"
DIGITS = "Spark cuts digits behind the point where a decimal may have more than 38 digits"


def differences(graph: Graph) -> Iterator[tuple[Span | None, str, str | None]]:
    """Yield the place, the problem and a hint for each expression of a graph whose value may be another one in Spark."""
    collections: dict[str, Span] = {}
    """The places of the collections in whose queries nodes are, by the nodes' fingerprints."""
    for node in reversed(graph.nodes()):
        if node.fingerprint in graph.places:
            collections[node.fingerprint] = graph.places[node.fingerprint][1]
        around = collections.get(node.fingerprint)
        if around is not None:
            collections |= {each.fingerprint: around for each in node.inputs}
        for part in expressions_in([getattr(node, each.name) for each in fields(node) if each.name != "inputs"]):
            found = _of_aggregate(part) if isinstance(part, AggregateCall) else _of_expression(part)
            if found is not None:
                inside = part.args if isinstance(part, AggregateCall) else part.walk()
                yield next((each.span for each in inside if each.span is not None), around), *found


def _of_aggregate(call: AggregateCall) -> Difference | None:
    if call.function == "avg" and call.args[0].type.kind == "decimal" and call.args[0].type.scale != 2:
        return MEAN, FLOATS
    return None


def _of_expression(node: Expression) -> Difference | None:
    if isinstance(node, Cast):
        return _of_cast(node)
    if not isinstance(node, Call):
        return None
    name, args, kind = node.function, node.args, node.type
    if kind.kind == "decimal" and name in ("+", "-", "*", "/", "try_add", "try_subtract", "try_multiply", "try_divide"):
        return _of_decimals(name, args[0].type, args[1].type, kind.scale)
    if name == "date_diff" and isinstance(args[0], Literal) and args[0].span is None:
        return "the difference of two dates is an interval in Spark, and a number here", "write `datediff(a, b)`"
    if name in SUMS and kind.kind == "datetime" and any(map(_is_date_as_timestamp, args)):
        hint = "write `date_add` or `add_months`, or cast the date to a timestamp of its own"
        return "a date plus an interval is a date in Spark, and a timestamp here", hint
    if name == "round" and kind.is_float and len(args) > 1:
        hint = "round a decimal, or without digits"
        return "Spark rounds the digits that it shows of a float, so `round(1.005, 2)` is 1.01 there", hint
    if name in ("left", "right") and not is_whole(args[1], 0):
        return f"`{name}` of a negative number of characters is an empty text in Spark", "write a constant"
    if name == "substring" and (not isinstance(args[1], Literal) or args[1].value == 0):
        return "position 0 of a text is the first one in Spark", "write a constant position, from 1 on"
    if name in NARROW and any(isinstance(each, Cast) and each.argument.type.is_integer for each in args):
        return f"`{name}` of an int has 32 bits in Spark, and 64 here", "cast it to bigint"
    return None


def _of_cast(node: Cast) -> Difference | None:
    """Return the difference of a cast: Spark cuts numbers, and writes texts in another way."""
    source, target = node.argument.type, node.type
    inside = node.argument
    is_whole = isinstance(inside, Call) and inside.function in WHOLE and len(inside.args) == 1
    if target.is_integer and (source.is_float or (source.kind == "decimal" and source.scale)) and not is_whole:
        return "a cast to an integer rounds here, and cuts in Spark", "cast `floor(x)`, `ceil(x)` or `round(x)`"
    if target.kind == "decimal" and source.is_float:
        return "Spark rounds the digits that it shows of a float", None
    if target.kind in ("decimal", "date", "datetime") and source.kind == "string" and node.try_:
        return f"Spark reads texts of other forms as a {target.kind}, too, as `1e3` and `2024-3-1`", "write `cast`"
    if target.kind == "string" and source.is_float:
        return "a float as a text has another form in Spark, `1.0E10`", "cast it to a decimal first"
    if target.kind == "string" and source.kind == "datetime" and source.zone is not None:
        return "a timestamp as a text has an offset here, and none in Spark", "cast it to timestamp_ntz first"
    return None


def _of_decimals(name: str, one: Type, other: Type, scale: int) -> Difference | None:
    if name in ("/", "try_divide"):
        return QUOTIENT, FLOATS
    whole = max(one.precision - one.scale, other.precision - other.scale)
    digits = one.precision + other.precision if name in ("*", "try_multiply") else whole + scale
    # Six digits behind the point are never cut.
    return (DIGITS, "cast the parts to fewer digits") if scale > 6 and digits + 1 > MAX_PRECISION else None


def _is_date_as_timestamp(value: Expression) -> bool:
    return isinstance(value, Cast) and value.argument.type.kind == "date" and value.type.zone is None


ENDS = {"LIMIT", "OFFSET", "ROWS", "RANGE", "GROUPS", "UNION", "EXCEPT", "INTERSECT", "MINUS", "WINDOW"}
"""The words before which an `order by` ends."""
CLAUSES = {"SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "WINDOW", "ON", "USING"}
REFUSED = {
    "DAYOFWEEK": (
        "the week begins with 1 in Spark and with 0 here",
        "leave it to the pipeline file, where it is `dow(day) + 1`",
    ),
    "CONCAT": ("`concat` of a null is null in Spark, and passes over it here", "write `a || b`"),
    **dict.fromkeys(
        ("MAX_BY", "MIN_BY"),
        ("a row whose value is null counts in Spark, and not here", "write it with `filter (where value is not null)`"),
    ),
    "SORT BY": ("`sort by` orders parts of a result", "write `order by`"),
}


@frozen
class SparkQuery:
    """A parsed query of Spark's, and the names of the tables that it reads, in lower case."""

    definition: SparkDefinition
    tree: exp.Expr
    edits: tuple[Edit, ...]
    tables: tuple[tuple[str, ...], ...]

    @property
    def is_copy(self) -> bool:
        """True if the query is `select * from` a table, and nothing else."""
        return re.fullmatch(r"SELECT \* FROM [\w.`]+", self.tree.sql("spark")) is not None

    def translation(self, names: Mapping[tuple[str, ...], str]) -> Translation:
        """Return the query with the names of its tables in the pipeline."""
        text, file = self.definition.text, self.definition.file
        tables = table_edits(self.tree, text, file, names)
        taken = [range(start, max(end, start + 1)) for start, end, _ in tables]
        edits = [each for each in self.edits if not any(each[0] in inside for inside in taken)]
        edits = sorted([*edits, *tables])
        return Translation(edited(text, edits), file, text, tuple(edits))


def read_query(definition: SparkDefinition) -> SparkQuery:
    """Parse a definition's query. Raises SpecError if it can't be imported."""
    text, tokens = definition.text, definition.query
    start, end = tokens[0].start, tokens[-1].end + 1
    if bad := UNWRITABLE.search(text, start, end):
        raise SpecError("a pipeline file can't hold this character", span=span(definition.file, text, bad.start()))
    edits = [(0, start, ""), (end, len(text), ""), *_words(definition, tokens), *_orders(tokens)]
    edits += function_edits(text, definition.file, tokens)
    streams = list(_streams(tokens))
    edits += [(first, last, "") for first, last in streams]
    # Text around the query is blanked, so that places stay the same.
    blank = list(re.sub(r"[^\n]", " ", text[:start]) + text[start:end])
    for first, last in streams:
        blank[first:last] = " " * (last - first)
    try:
        with deep_calls():
            tree = sqlglot.parse_one("".join(blank), dialect="spark")
    except (SqlglotError, RecursionError) as error:
        line, column, problem = unreadable(error, definition.place.line)
        offset = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
        raise SpecError(problem, span=span(definition.file, text, offset)) from None
    if not isinstance(tree, exp.Query):
        raise SpecError("this is not a query", span=span(definition.file, text, start))
    return SparkQuery(definition, tree, tuple(edits), tuple(dict.fromkeys(key for _, key, _, _ in tables_in(tree))))


def read_expression(definition: SparkDefinition, tokens: Sequence[Token]) -> str:
    """Return a condition or another expression of a definition as dd's SQL. Raises SpecError if it can't be imported."""
    text, start, end = definition.text, tokens[0].start, tokens[-1].end + 1
    if bad := UNWRITABLE.search(text, start, end):
        raise SpecError("a pipeline file can't hold this character", span=span(definition.file, text, bad.start()))
    edits = sorted([*_words(definition, tokens), *_orders(tokens), *function_edits(text, definition.file, tokens)])
    return edited(text[:end], [(0, start, ""), *edits])


def _streams(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the places of the words that make a table a stream, and of their parentheses, if they have some."""
    clauses = [""]
    """The current clause in each open parenthesis."""
    for at, token in enumerate(tokens[:-1]):
        word, before = word_of(token), word_of(tokens[at - 1]) if at else ""
        if word == "(":
            clauses.append("")
        elif word == ")":
            clauses = clauses[:-1] or [""]
        elif word in CLAUSES or word.endswith("JOIN"):
            clauses[-1] = word
        listed = before == "," and clauses[-1] == "FROM"
        if word != "STREAM" or not (before == "FROM" or before.endswith("JOIN") or listed):
            continue
        after = tokens[at + 1]
        if word_of(after) == "(":
            yield token.start, after.end + 1
            closing = next((each for each in tokens[at + 2 :] if word_of(each) == ")"), after)
            yield closing.start, closing.end + 1
        elif after.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            yield token.start, token.end + 1


def _words(definition: SparkDefinition, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that put names and texts in dd's quotes; refuse words with another meaning here."""
    text = definition.text
    for at, token in enumerate(tokens):
        start, end, word = token.start, token.end + 1, word_of(token)
        place = span(definition.file, text, start, end - start)
        after = word_of(tokens[at + 1]) if at + 1 < len(tokens) else ""
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
            raw = text[start:end]
            # The tokenizer splits a text at a doubled quote: the second part follows the first directly.
            beside = at > 0 and tokens[at - 1].token_type == TokenType.STRING
            doubled = beside and raw[0] == "'" == text[start - 1]
            if token.token_type == TokenType.RAW_STRING or "\\" in raw:
                raise SpecError(
                    "a text with a backslash can't be imported", span=place, hint="write the character itself"
                )
            if beside and not doubled:
                raise SpecError(
                    "texts side by side are one in Spark", span=place, hint="write them as one, or with `||`"
                )
            yield start, end, "'" + _plain(token.text.replace("'", "''")) + "'"
        elif token.token_type == TokenType.IDENTIFIER:
            yield start, end, _plain(quoted(token.text))
        elif word in REFUSED and (after == "(" or " " in word):
            problem, hint = REFUSED[word]
            raise SpecError(problem, span=place, hint=hint)
        elif word in ("TRIM", "LTRIM", "RTRIM") and after == "(" and len(_arguments(tokens, at + 1)) > 1:
            problem = f"`{word.lower()}` takes the characters first in Spark, and last here"
            raise SpecError(problem, span=place, hint="write `trim(both 'x' from a)`")


def _plain(text: str) -> str:
    """Return a text for a pipeline file, in which `${` would begin a variable."""
    return text.replace("${", "$${")


def _orders(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that add the place of nulls to each order: null is the least value in Spark, and the last here."""
    for at, token in enumerate(tokens):
        if word_of(token) != "ORDER BY":
            continue
        depth, words, last = 0, list[str](), token
        for each in [*tokens[at + 1 :], None]:
            word = "" if each is None else word_of(each)
            ends = each is None or (not depth and (word in ENDS or word == ")"))
            if ends or (not depth and word == ","):
                if words and not " ".join(words).endswith(("NULLS FIRST", "NULLS LAST")):
                    yield last.end + 1, last.end + 1, " nulls last" if words[-1] == "DESC" else " nulls first"
                words = []
                if ends:
                    break
                continue
            assert each is not None, "the end was reached"
            depth += {"(": 1, ")": -1}.get(word, 0)
            words += [word] if not depth else []
            last = each
