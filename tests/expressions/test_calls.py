"""A function or operator with DuckDB's name has DuckDB's value: every one of the table, over columns of every type, and casts, parts and aggregates.

What differs is a row of the table of differences, or a documented error: `ERRORS` has the functions that may fail where DuckDB has a value.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING

import duckdb

from ddcli import Dataflow
from ddcli.errors import DdError, InputError, SpecError
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES, BY_PAIR, OF_PAIRS
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from tests.draws import chance, many, some
from tests.expressions.calls import COLUMNS, ROWS, SQL_TYPES, Aggregations, Calls, constant, same_names
from tests.expressions.support import frame_of, scalar, schema, values

if TYPE_CHECKING:
    import random

Differs = Callable[[dict[str, object], object, object], bool]
SCHEMA = schema(COLUMNS)
FRAME = frame_of(SCHEMA, ROWS)
FAILED = "fails"
ERRORS = {
    "/",
    "sqrt",
    "ln",
    "log",
    "log2",
    "log10",
    "power",
    "pow",
    "asin",
    "acos",
    "make_date",
    "make_timestamp",
    "+",
    "-",
    "<<",
}
ERRORS |= {
    "to_months",
    "to_years",
    "lcm",
    "least_common_multiple",
    "generate_series",
    "date_add",
    "date_sub",
    "list_sum",
    "array_sum",
    "list_aggregate",
    "list_aggr",
    "array_aggr",
    "array_aggregate",
}
"""The functions that fail where DuckDB returns NaN, an infinity, a year outside of 1 to 9999, or an integer of more than 64 bits."""


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return a database with the rows."""
    base = duckdb.connect(config={"threads": 1, "memory_limit": "400MB"})
    base.execute("load json")
    base.execute("set timezone = 'UTC'")
    columns = ", ".join(f"{name} {SQL_TYPES.get(kind[:-1], kind[:-1])}" for name, kind in COLUMNS.items())
    base.execute(f"create table r (n bigint, {columns})")
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    base.executemany(f"insert into r values ({marks})", [[n, *row.values()] for n, row in enumerate(ROWS)])
    return base


@cache
def names() -> list[tuple[str, str]]:
    found = database().execute(
        "select distinct function_name from duckdb_functions() where function_type in ('scalar', 'macro')"
    )
    return same_names({name for (name,) in found.fetchall()})


def theirs(written: str) -> list[object] | None:
    """Return DuckDB's value for each row, None if it doesn't take the text."""
    base = database()
    if not _has_cast(written):
        return None
    try:
        return [value for (value,) in base.execute(f"select {written} from r order by n").fetchall()]
    except (duckdb.Error, UnicodeDecodeError):  # its message may hold half a character
        try:
            base.execute(f"explain select {written} from r")
        except duckdb.Error:
            return None
        return [
            _alone(lambda n=n: base.execute(f"select {written} from (from r where n = {n})").fetchone()[0])
            for n in range(len(ROWS))
        ]  # type: ignore[index,misc]


def _has_cast(written: str) -> bool:
    """Return whether DuckDB has the cast of a `try_cast`, which is null for all values where it has none: of a timestamp with a zone to a time."""
    if not written.startswith("try_cast("):
        return True
    try:
        database().execute(f"select {written.removeprefix('try_')} from r")
    except (duckdb.Error, UnicodeDecodeError) as error:
        return "Unimplemented type" not in str(error)
    return True


def ours(written: str) -> list[object] | None:
    """Return our value for each row, None if we don't take the text."""
    try:
        expression = scalar(written, COLUMNS)
    except SpecError:
        return None
    if expression.type.kind == "months":  # no column has this type
        return None
    stage = FusedSteps(SCHEMA, (MapStep((("value", expression),)),))
    try:
        return stage.run(FRAME).frame["value"].to_list()
    except InputError:
        return [_alone(lambda n=n: stage.run(FRAME[n : n + 1]).frame["value"].to_list()[0]) for n in range(len(ROWS))]  # type: ignore[misc]


def _alone(value: Callable[[], object]) -> object:
    try:
        return value()
    except (InputError, duckdb.Error, UnicodeDecodeError):
        return FAILED


def same(one: object, other: object) -> bool:
    """Return whether two values are equal: numbers by their values, floats but for the last bits, all others with their types."""
    if one is None or other is None or isinstance(one, bool) or isinstance(other, bool):
        return one is other
    numbers = (int, float, Decimal)
    if isinstance(one, numbers) and isinstance(other, numbers):
        if not isinstance(one, float) and not isinstance(other, float):
            return one == other
        a, b = float(one), float(other)
        return a == b or math.isclose(a, b, rel_tol=1e-12) or (math.isnan(a) and math.isnan(b))
    if isinstance(other, tuple):  # a struct without names
        other = dict(enumerate(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(map(same, one.values(), other.values()))
    return type(one) is type(other) and one == other


class Comparison:
    """Texts that both took, and the first difference of each that no documented one explains."""

    def __init__(self) -> None:
        self.compared = 0
        self.different: list[str] = []

    def add(
        self,
        written: str,
        *,
        may_fail: bool = False,
        must_fail: bool = False,
        differs: Differs | None = None,
        constants: dict[str, object] | None = None,
    ) -> None:
        """Compare the values of a text, in which the values of some columns may be constants; with `must_fail` it has none where DuckDB fails."""
        found, wanted = ours(written), theirs(written)
        if found is None or wanted is None:
            return
        self.compared += 1
        for row, value, other in zip(ROWS, found, wanted, strict=True):
            if other == value == FAILED or (other == FAILED and not must_fail):
                continue
            if same(value, other) or (may_fail and value == FAILED):
                continue
            used = {name: row[name] for name in re.findall(r"\b[ab]\d+\b", written)} | (constants or {})
            if not _with_zero(value, other) and (differs is None or not differs(used, value, other)):
                self.different.append(f"{written} over {used}: {value!r} here, {other!r} in DuckDB")
                return


def _with_zero(value: object, other: object) -> bool:
    """Return whether texts differ only in a zero before a decimal's point, which DuckDB leaves out where the type has no digit there."""
    texts = isinstance(value, str) and isinstance(other, str)
    return texts and str(value).replace("0.", ".") == other


def _digits(_: dict[str, object], value: object, other: object) -> bool:
    """Return whether a quotient of decimals is a decimal with at least 6 digits behind the point."""
    return (
        isinstance(value, Decimal)
        and isinstance(other, float)
        and abs(float(value) - other) <= 1e-6 * max(1, abs(other))
    )


def _unordered(_: dict[str, object], value: object, other: object) -> bool:
    """Return whether lists have the same elements: DuckDB's order of different ones is that of a hash."""
    return isinstance(value, list) and isinstance(other, list) and sorted(map(repr, value)) == sorted(map(repr, other))


def _combined(used: dict[str, object], value: object, _: object) -> bool:
    """Return whether a text has two characters that are shown as one: DuckDB keeps these together."""
    return any(isinstance(each, str) and "\u0301" in each for each in [value, *used.values()])


def _json(used: dict[str, object], value: object, other: object) -> bool:
    """Return whether values of JSON are the same but for the digits of numbers, which we keep; words like `nan` are no JSON."""
    texts = [each for each in used.values() if isinstance(each, str)]
    if "nan" in texts:
        return value in (FAILED, None, False)
    try:
        return any(map(str.isdigit, str(value))) and float(str(value)) == float(str(other))
    except ValueError:
        return bool(re.sub(r"[\d.e+-]+", "", str(value)) == re.sub(r"[\d.e+-]+", "", str(other)))


DIFFERENT: dict[str, Differs] = {
    **dict.fromkeys(["json_value", "json_structure"], _json),
    "/": _digits,
    "bit_count": lambda used, _, __: not used,  # a constant has 32 bits there
    "reverse": _combined,
    **dict.fromkeys(  # of an empty list
        ["list_reduce", "array_reduce", "reduce"], lambda used, value, _: value is None and [] in used.values()
    ),
    **dict.fromkeys(
        ["list_distinct", "array_distinct", "list_intersect", "array_intersect", "list_except"], _unordered
    ),
    **dict.fromkeys(["json_extract", "json_extract_string", "json_extract_path", "json_extract_path_text"], _json),
    **dict.fromkeys(["json_array_length", "json_valid", "from_json", "json_transform"], _json),
    **dict.fromkeys(["json_type", "json_keys", "json_exists", "json_contains", "json_merge_patch"], _json),
    **dict.fromkeys(
        ["json_object", "json_array", "to_json", "json_quote", "array_to_json", "row_to_json", "json"], _json
    ),
    **dict.fromkeys(
        ["array_to_string", "list_aggregate", "list_aggr", "array_aggregate", "array_aggr"],
        lambda _, value, other: (value, other) == ("", None),
    ),
}
"""The documented differences of values, by the functions' names."""


OF_LAMBDAS = {"list_transform", "list_filter", "list_reduce"}
"""The functions whose bodies fail at the same elements as there."""


def test_every_function_has_the_value_of_duckdb() -> None:
    """Every one is drawn until DuckDB takes a call that is taken here, too."""
    found, missing = Comparison(), []
    for name, meant in some(names()):
        calls, before, tries = Calls(chance("calls", name)), found.compared, 0
        while tries < many(20) or (found.compared == before and tries < 1000):
            written = calls.call(name, meant)
            must_fail = meant in OF_LAMBDAS and "substring" not in written  # whose positions are 32 bits wide there
            found.add(written, may_fail=name in ERRORS, must_fail=must_fail, differs=DIFFERENT.get(name))
            tries += 1
        missing += [name] if found.compared == before else []
    assert found.different == []
    assert missing == []


def test_every_function_of_constants_has_the_value_of_duckdb() -> None:
    """Values of each kind as constants: such a call is computed once, before any row."""
    rng, found, drawn = chance("constants"), Comparison(), 0
    for name, meant in some(names()):
        calls = Calls(chance("constants", name))
        fixed = [f"round({one}, 2)" for one, kind in COLUMNS.items() if "float" in kind] if name == "round" else []
        for each in {*(calls.call(name, meant) for _ in range(many(8))), *fixed}:
            row = rng.choice(ROWS)
            used = {one: row[one] for one in re.findall(r"\b[ab]\d+\b", each) if constant(one, row[one])}
            written = re.sub(r"\b[ab]\d+\b", lambda one, row=row: constant(one[0], row[one[0]]) or one[0], each)
            found.add(written, may_fail=name in ERRORS, differs=DIFFERENT.get(name), constants=used)
            drawn += 1
    assert found.different == []
    assert found.compared > 0.2 * drawn


def _cast_differs(used: dict[str, object], value: object, other: object) -> bool:
    """Return whether a text has not the form of its type, which is an error: a fraction or an exponent for an integer, a day for a time."""
    return value in (FAILED, None) and other is not None and any(isinstance(each, str) for each in used.values())


def _json_cast_differs(used: dict[str, object], value: object, other: object) -> bool:
    return _cast_differs(used, value, other) or _json(used, value, other)


def test_every_cast_has_the_value_of_duckdb() -> None:
    calls, found = Calls(chance("casts")), Comparison()
    drawn = {calls.cast() for _ in range(many(600))}
    for written in drawn:
        found.add(written, differs=_json_cast_differs if "->" in written else _cast_differs)
    assert found.different == []
    assert found.compared > 0.3 * len(drawn)


def test_floats_and_json_become_hugeint_half_to_even() -> None:
    """The type is `decimal(38, 0)` here, to which they are rounded half away from zero under that name."""
    found = Comparison()
    for number in ("0.5", "1.5", "-2.5", "3.5", "9007199254740991.0", "1e20"):
        for source in (f"cast({number} as double)", f"cast({number} as real)", f"('[{number}]'::json -> '$[0]')"):
            found.add(f"cast({source} as hugeint)")
        found.add(f"cast(cast({number} as double) as decimal(38, 0))")
    assert found.different == []
    assert found.compared == 24


NUMBERS = ["tinyint", "utinyint", "smallint", "usmallint", "integer", "uinteger", "bigint", "ubigint", "real", "double"]
NUMBERS += ["decimal(3, 3)", "decimal(4, 1)", "decimal(18, 3)", "decimal(38, 37)", "decimal(38, 0)"]
TIMES = ["date", "time", "timestamp", "timestamp_ms", "timestamp_ns"]
UNREAD = {
    "integer": r".*[.e_xb].*",
    "decimal": r".*_.*",
    "float": r".*(_|e[+]?\d{2,}|\d{37}).*",
    "time": r"24:.*|\d{3}:.*|.*[+z/-].*",
    "date": r"\d{1,3}[/-].*|\d{5}.*|0000.*|.*[ t]24:.*|.*[ t]\d{3}:.*|.*  .*|.*[+].*",
}
"""The documented forms of texts that DuckDB reads and a cast here does not."""


def _kind_of_text(kind: str) -> str:
    if kind in ("real", "double") or kind.startswith("decimal"):
        return "decimal" if kind.startswith("decimal") else "float"
    return "time" if kind == "time" else "date" if kind in TIMES else "integer"


def _odd_number(rng: random.Random) -> str:
    """Return the text of a number, often at the bounds of a type, sometimes with a part that numbers don't have."""
    bits = rng.choice([7, 8, 15, 16, 31, 32, 63, 64, 127])
    whole = rng.choice(
        ["", "0", "00", str(rng.randrange(10)), str(2**bits - rng.randrange(3)), "9" * rng.randint(1, 39)]
    )
    fraction = rng.choice(["", "", "", ".", ".5", ".49", ".0005", ".99" + "9" * rng.randint(0, 38)])
    ending = rng.choice(["", "", "", "", "", "e1", "E-1", "e+2", "e", "e400", "_0", "x"])
    return rng.choice(["", "", "-", "+", "--"]) + whole + fraction + ending


def _odd_time(rng: random.Random) -> str:
    """Return the text of a date, a time, or both, whose parts have more or fewer digits than usual."""

    def part(most: int) -> str:
        return str(rng.randint(0, most)).zfill(rng.choice([1, 2, 2, 2, 3]))

    sign = rng.choice(["-", "-", "-", "/"])
    day = (
        rng.choice(["2024", "1969", "1960", "24", "0000", "10000"])
        + sign
        + part(13)
        + rng.choice([sign, "-"])
        + part(32)
    )
    clock = part(25) + ":" + rng.choice(["", part(61), part(59) + ":" + rng.choice(["", part(60)])])
    digits = "".join(rng.choice("0594") for _ in range(rng.randint(0, 11)))
    clock += rng.choice(["", "", "." + digits]) if clock.count(":") == 2 else ""
    return rng.choice(
        [day, clock, f"{day} {clock}", f"{day}T{clock}", f"{day}  {clock}", f"{day} {clock}+02", f"{clock}Z"]
    )


def _decimal(text: str, kind: str) -> Decimal | None:
    """Return a text as a decimal of a type, such as `decimal(4, 1)`; None if it is none."""
    digits, scale = map(int, re.findall(r"[0-9]+", kind))
    try:
        found = Decimal(text.strip()).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=digits))
    except InvalidOperation:
        return None
    return found


def test_every_odd_text_is_cast_as_in_duckdb() -> None:
    rng, different, read = chance("texts"), [], 0
    for kind in [*NUMBERS, *TIMES]:
        drawn = {(_odd_number if kind in NUMBERS else _odd_time)(rng) for _ in range(many(400))}
        plain = sorted(drawn)  # DuckDB reads some with spaces behind them, and others not
        texts = [rng.choice(["{}", "{}", "{} ", " {}", "\t{}\n"]).format(text) for text in plain]
        exact = "cast({} as varchar)" if kind == "timestamp_ns" else "{}"  # Python has no nanoseconds
        cast = exact.format(f"try_cast(x as {kind})")
        wanted = database().execute(f"select {cast} from (select unnest(?::varchar[]) as x)", [plain]).fetchall()
        found = values(cast, {"x": "string"}, x=texts)
        for text, value, (other,) in zip(texts, found, wanted, strict=True):
            read += value is not None
            unread = re.fullmatch(UNREAD[_kind_of_text(kind)], text.strip().lower())
            finer = isinstance(value, dt.time) and isinstance(other, dt.time) and str(value)[:15] == str(other)[:15]
            if kind.startswith("decimal") and "e" in text.lower():
                other = _decimal(text, kind)  # DuckDB cuts digits of some, and does not read others
            if not same(value, other) and not (value is None and unread) and not finer:
                different.append(f"{text!r} as {kind}: {value!r} here, {other!r} in DuckDB")
    assert different == []
    assert read > many(400)


def test_every_part_has_the_value_of_duckdb() -> None:
    calls, found = Calls(chance("parts")), Comparison()
    drawn = {calls.part() for _ in range(many(300))}
    for written in drawn:
        found.add(written, differs=_json if "json" in written or "->" in written else None)
    assert found.different == []
    assert found.compared > 0.3 * len(drawn)


def _one_of(call: str, value: object, other: object) -> bool:
    """Return whether an aggregate differs as documented: in what depends on the order of rows, and in the digits of decimals."""
    name = call.partition("(")[0]
    if isinstance(value, list) and isinstance(other, list):
        pairs = zip(value, other, strict=True)
        return len(value) == len(other) and all(same(*pair) or _one_of(call, *pair) for pair in pairs)
    if name in ("corr", "regr_slope") and value is None:
        return isinstance(other, float) and math.isnan(other)
    if (
        isinstance(value, float)
        and isinstance(other, float)
        and AGGREGATES[AGGREGATE_SYNONYMS.get(name, name)].accepts == "numbers"
    ):
        return math.isclose(value, other, rel_tol=1e-6, abs_tol=1e-12)
    if name in ("avg", "mean", "median", "quantile_cont"):
        return (
            isinstance(value, Decimal | float)
            and isinstance(other, Decimal | float)
            and abs(float(value) - float(other)) <= 1e-2
        )
    return False


def test_every_aggregate_has_the_value_of_duckdb() -> None:
    """Every one is drawn until DuckDB takes a call that is taken here, too."""
    base, different, missing = database(), [], []
    found = base.execute("select distinct function_name from duckdb_functions() where function_type = 'aggregate'")
    shared = {name for (name,) in found.fetchall()} & {*AGGREGATES, *AGGREGATE_SYNONYMS}
    for name in some(sorted(shared - {"any_value", "arbitrary", "mode"})):  # which return any of several values
        draws, count = Aggregations(chance("aggregates", name)), AGGREGATES[AGGREGATE_SYNONYMS.get(name, name)].args
        compared = tries = 0
        while tries < many(12) or (not compared and tries < 1000):
            call, tries = draws.call(name, 2 if name in {*BY_PAIR, *OF_PAIRS} else count), tries + 1
            statement = f"select n % 7 as g, {call} as v from {{}} group by all order by 1"
            try:
                wanted = base.execute(statement.format("r")).fetchall()
                groups = _grouped(statement.format("self"))
            except (DdError, SpecError, duckdb.Error):
                continue
            compared += 1
            different += [
                f"{call} of group {group}: {groups[group]!r} here, {other!r} in DuckDB"
                for group, other in wanted
                if not same(groups[group], other) and not _one_of(call, groups[group], other)
            ]
        missing += [] if compared else [name]
    assert different == []
    assert missing == []


def _grouped(statement: str) -> dict[object, object]:
    """Return the value of each group."""
    dataflow = Dataflow()
    rows = dataflow.input("r", {"n": "int64", **COLUMNS})
    output = rows.sql(statement).output()
    for n, row in enumerate(ROWS):
        rows.insert((n, *row.values()))
    rows.close()
    dataflow.step()
    return {record[0]: record[1] for record, _, _ in output.updates()}
