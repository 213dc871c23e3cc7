"""Nothing of what sqlglot reads is passed over: each node and each argument of it is used, or refused at its place."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.parse import ExpressionReader
from ddcli.expressions.reductions import ReductionReader
from ddcli.expressions.syntax_tree import Tree, read
from ddcli.expressions.types import ColumnScope
from tests.cases import cases
from tests.draws import some
from tests.expressions.support import reduction, scalar, schema, text, value, values

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = {
    "i": "int64?",
    "u v": "int64",
    "j": "int64",
    "s": "string?",
    "p": "bool?",
    "q": "bool",
    "t": "timestamp",
    "xs": "list[int64]",
}

SCHEMA = schema(COLUMNS)
NOT_READ = text("a text of some length, that a tree was not read from")

SCALARS = [
    "s like 'a' and p",
    "s not ilike 'b' escape '!'",
    "i between 1 and j",
    "i not between symmetric j and 2",
    "i not in (1, 2)",
    "p is null or q",
    "q is not true",
    "i is distinct from j",
    "case i when 1 then 2 else 3 end",
    "case when p then 4 end",
    "extract(year from t) - -j",
    "j * (i // 2) % 3",
    "i / 2",
    "t + interval '1' day",
    "date '2013-01-01'",
    "cast(i as string) = s || 'a'",
    "substring(s from 2 for 3)",
    "trim(both 'x' from s)",
    "coalesce(xs[1], abs(i)) <= 1.5",
    "[1, i]",
    "if(not p, null, true)",
    'r.i <> - "u v"',
]
REDUCTIONS = [
    "count(*) + 1",
    "sum(distinct i)",
    "first(i order by i desc, s nulls first)",
    "string_agg(s, ', ' order by i)",
]


def outcome(root: exp.Expr, kind: type[ExpressionReader]) -> str | None:
    """Return what a syntax tree means, as canonical text; None if it is refused."""
    reader = kind(Tree(NOT_READ, root), ColumnScope(SCHEMA, {("r", "i"): "j"}))
    try:
        found = reader.whole()
    except SpecError:
        return None
    except (AttributeError, TypeError, LookupError):
        return None  # a tree that sqlglot doesn't make: a flag for a node, a node for a list
    return " ".join([found.text(), *(call.text() for call in getattr(reader, "calls", ()))])


def samples() -> Iterator[tuple[exp.Expr, type[ExpressionReader]]]:
    """Give the trees of the texts above; all of them mean something."""
    for written, kind in [
        *((each, ExpressionReader) for each in SCALARS),
        *((each, ReductionReader) for each in REDUCTIONS),
    ]:
        root = read(text(written)).root
        assert outcome(root, kind), written
        yield root, kind


@cache
def classes() -> list[type[exp.Expr]]:
    """Return every class of syntax node that sqlglot has."""
    found: dict[type[exp.Expr], None] = {}
    waiting: list[type[exp.Expr]] = [exp.Expr]
    while waiting:
        for each in waiting.pop().__subclasses__():
            if each not in found:
                found[each] = None
                waiting.append(each)
    return [each for each in found if issubclass(each, exp.Expression)]  # others are abstract


def fillings(name: str) -> list[Any]:
    """Return values that an argument may have: parts, lists of them, flags."""
    some = [
        exp.column("i"),
        exp.Literal.number(7),
        exp.Literal.string("decade"),
        exp.var("month"),
        exp.to_identifier("j"),
    ]
    return [some[:1], some[1:2]] if name in ("expressions", "ifs") else [*some, True, [exp.column("j")]]


IGNORED = {(exp.Identifier, "quoted")}
"""A name means the same with and without quotes: as written, else without regard to case."""


def check_arguments(root: exp.Expr, node: exp.Expr, kind: type[ExpressionReader], before: str) -> int:
    """Assert that another value of any argument of a node changes the meaning, or is refused; return how many were tried."""
    tried = 0
    for name in [*node.arg_types, "made_up"]:
        old = node.args.get(name)
        for new in fillings(name) if node.arg_types.get(name) else [*fillings(name), None]:
            if (type(node), name) in IGNORED or new == old or (not new and not old):
                continue
            if isinstance(node, exp.Anonymous) and name == "expressions" and new is None and node.this == "count":
                continue  # `count()` is `count(*)`
            node.set(name, new.copy() if isinstance(new, exp.Expr) else new)
            assert outcome(root, kind) != before, f"{type(node).__name__}.{name} = {new!r} is passed over"
            tried += 1
        node.args.pop(name, None)
        if old is not None:
            node.set(name, old)
    assert outcome(root, kind) == before
    return tried


def test_every_argument_is_used_or_refused() -> None:
    """Of what is read: each argument that sqlglot could set, and one that it may have in the future."""
    tried = 0
    for root, kind in samples():
        before = outcome(root, kind)
        assert before
        for node in list(root.walk()):
            tried += check_arguments(root, node, kind, before)
    assert tried > 2000


def test_every_class_is_used_or_refused() -> None:
    """In each place of the texts, each class of node: what it sets is used, or it is refused."""
    assert len(classes()) > 800
    accepted: set[type[exp.Expr]] = set()
    places: dict[tuple[object, ...], tuple[exp.Expr, exp.Expr, type[ExpressionReader]]] = {}
    for root, kind in samples():
        for node in root.walk():
            parent = exp.Binary if isinstance(node.parent, exp.Binary) else type(node.parent)
            places.setdefault((kind, parent, node.arg_key), (root, node, kind))
    for place in some(places.values()):
        accepted |= set(check_classes(*place))
    assert {exp.Between, exp.Add, exp.Div} <= accepted
    assert len(accepted) < 40, accepted


def check_classes(root: exp.Expr, node: exp.Expr, kind: type[ExpressionReader]) -> Iterator[type[exp.Expr]]:
    """Put each class at a node's place; give those that are read."""
    for each in classes():
        other = each(**{name: fillings(name)[0] for name, required in each.arg_types.items() if required})
        parent, key, index = node.parent, node.arg_key, node.index
        if parent is None:
            changed = other
        else:
            node.replace(other)
            changed = root
        before = outcome(changed, kind)
        if before:
            check_arguments(changed, other, kind, before)
            yield each
        if parent is not None:
            other.replace(node)
            assert (node.parent, node.arg_key, node.index) == (parent, key, index)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("'abc' not like 'a%'", False),
        ("'abc' not like 'b%'", True),
        ("'abc' not ilike 'A%'", False),
        ("'abc' !~~ 'a%'", False),
        ("'abc' ~~ 'a%'", True),
        ("'a%' not like 'a!%' escape '!'", False),
        ("'ab' not ilike 'A!%' escape '!'", True),
        ("not 'abc' not like 'a%'", True),
        ("cast(null as string) not like 'a'", None),
        ("2 between symmetric 3 and 1", True),
        ("2 not between symmetric 3 and 1", False),
        ("2 between asymmetric 3 and 1", False),
        ("2 between symmetric null and 3", None),
        ("4 between symmetric null and 3", None),
        ("1e0+2e0", 3.0),
        ("1e0+2e0-3e0*5e-1", 1.5),
        ("1.5e+1-2.5", 12.5),
        ("(1=1) = (2 is not null)", True),
        ("5 & 3 | 8 = 9", True),
        ("1 << 2 >> 1 & 3", 2),
        ("1 + 2 << 3 - 1", 12),
        ("2 + ~1", 0),
        ("~(1 + 2)", -4),
        ("~5 & 3", 2),
        ("""'{"a": 5}' ->> 'a' || 'x'""", "5x"),
        ("""'x' || ('{"a": 5}' ->> 'a')""", "x5"),
        ("""'{"a": {"b": "5"}}' -> 'a' ->> 'b'::int64 = 5""", True),
    ],
)
def test_ordinary_sql(written: str, wanted: object) -> None:
    """What sqlglot keeps as an argument of another node, or reads wrongly, means what it does everywhere."""
    assert value(written) == wanted


@cases("""
written → at: int → length: int
interval '1' day to second → 9 → 3
timestamp(3) '2013-01-01' → 10 → 1
p = q is null → 0 → 5
p = q is not null → 0 → 5
i < j = q → 0 → 9
p is distinct from q between p and q → 0 → 36
q is null in (p, q) → 0 → 18
p is distinct from q = q → 0 → 24
1e0+2e0x → 7 → 1
1e0+2e-3e5 → 8 → 2
abs(i limit 3) → 4 → 9
abs(x => i) → 9 → 1
s like any ('a', 'b') → 12 → 8
s collate i → 0 → 1
extract(week(monday) from t) → 0 → 28
i between 1 and 2 collate s → 16 → 1
i * ~j + 2 → 0 → 10
-~i // j → 2 → 6
i | j & 2 → 0 → 9
i & j << 2 → 0 → 10
s || s ->> 'a' → 0 → 14
s || s -> 'a' || s → 0 → 13
s || s ->> 'a'::string → 0 → 22
""")
def test_refused(written: str, at: int, length: int) -> None:
    """What has no meaning here is refused where it stands."""
    with pytest.raises(SpecError) as caught:
        scalar(written, COLUMNS)
    assert caught.value.span
    assert (caught.value.span.column - 5, caught.value.span.length) == (at, length), caught.value


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("order by i", "order by i"),
        ("order by i nulls last", "order by i"),
        ("order by i nulls first", "order by (i is null) desc, i"),
        ("order by i desc", "order by (i is null), i desc"),
        ("order by i desc nulls first", "order by i desc"),
        ("order by i desc nulls last", "order by (i is null), i desc"),
        ("order by j nulls first", "order by j"),
    ],
)
def test_nulls_in_order(written: str, keys: str) -> None:
    """Null is the last key, unless it is said otherwise."""
    assert reduction(f"first(s {written})", COLUMNS).calls[0].text() == f"first(s {keys})"


def test_not_like_on_rows() -> None:
    """A negated pattern is null where the text is."""
    assert values("s not like 'a%'", {"s": "string?"}, s=["ab", "b", None]) == [False, True, None]
