"""Fingerprints: the same for the same meaning however it is written, another for another."""

import pytest

from ddcli.expressions import lower, lower_text
from ddcli.job import kept_plan
from tests.plan.support import HEAD, chain, logical, plan
from tests.plan.test_iterate import REACH, loop

BASE = chain("filter: v > 1 and s = 'a'", "extend: {x: v + 1}", "reduce: {by: [k], t: sum(x), n: count(*)}")


def fingerprint(collections, outputs="{c: out/}"):
    return plan(collections, outputs).fingerprint, logical(collections, outputs).fingerprint


@pytest.mark.parametrize(
    "written",
    [
        chain("filter:   v>1   AND (s = 'a')", "extend: {x: (v + 1)}", "reduce: {by: [k], t: SUM(x), n: count( * )}"),
        "  c: {from: t, apply: [{filter: \"v > 1 and s = 'a'\"}, {extend: {x: v + 1}}, {reduce: {by: [k], t: sum(x), n: count(*)}}]}\n",
        chain("filter: v > 1 and s = 'a'", name="first") + chain("extend: {x: v + 1}", source="first", name="second")
        + chain("reduce: {by: [k], t: sum(x), n: count(*)}", source="second"),
        "  # a comment\n" + BASE,
        chain("filter: v > 1 and s = 'a'", "extend: {x: v + 1}", "reduce: {by: {k: k}, t: sum(x), n: count(*)}"),
    ],
)  # fmt: skip
def test_writing_it_otherwise_changes_nothing(written):
    assert fingerprint(written) == fingerprint(BASE)


def test_renaming_collections_and_moving_files_changes_nothing():
    renamed = BASE.replace("  c:", "  other:")
    assert fingerprint(renamed, "{c: {from: other, path: elsewhere/}}") == fingerprint(BASE)


def test_an_alias_is_no_part_of_the_meaning():
    one = chain("join: {with: u, as: a, on: [k]}", "map: {k: k, x: a.s}")
    other = chain("join: {with: u, as: b, on: [k]}", "map: {k: k, x: b.s}")
    assert fingerprint(one)[0] == fingerprint(other)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v > 1", "v > 2"),
        ("v > 1", "v >= 1"),
        ("s = 'a'", "s = 'b'"),
        ("{x: v + 1}", "{x: k + 1}"),
        ("sum(x)", "sum(v)"),
        ("sum(x)", "avg(x)"),
        ("t: sum(x)", "u: sum(x)"),
        ("by: [k]", "by: [f]"),
        ("from: t", "from: {from: t, apply: [distinct]}"),
    ],
)
def test_another_meaning_has_another_fingerprint(old, new):
    assert old in BASE
    physical, meant = fingerprint(BASE)
    changed, means = fingerprint(BASE.replace(old, new))
    assert changed != physical
    assert means != meant


def test_the_name_of_an_output_belongs_to_it():
    assert fingerprint(BASE) != fingerprint(BASE, "{d: {from: c, path: out/}}")
    assert fingerprint(BASE) != fingerprint(BASE, "{c: out/, d: {from: c, path: out2/}}")


def test_no_two_operators_are_taken_for_each_other():
    chains = [
        ["negate"], ["consolidate"], ["distinct"], ["count"], ["count: {as: x}"], ["threshold: count"], ["threshold: count * 2"],
        ["explode: v"], ["explode: k"], ["inspect: a"], ["inspect: b"], ["join: {with: u, on: [k], as: x}"],
        ["join: {with: u, on: [k], as: x, how: left}"], ["join: {with: u, on: [k], as: x, how: right}"],
        ["join: {with: u, on: [k], as: x, how: full}"], ["join: {with: u, on: {v: k}, as: x}"], ["semijoin: {with: u, on: [k]}"],
        ["antijoin: {with: u, on: [k]}"], ["top_k: {k: 1, order_by: [v]}"], ["top_k: {k: 2, order_by: [v]}"],
        ["top_k: {k: 1, order_by: [v desc]}"], ["top_k: {k: 1, by: [k], order_by: [v]}"], ["concat: t"], ["concat: [t, t]"],
        *([f"asof_join: {{with: u, as: x, {how}}}"] for how in (
            "at: k", "at: {v: k}", "on: [k], at: {v: k}", "at: k, how: left", "at: k, strict: true", "at: k, direction: forward",
        )),
        ["window: {columns: {n: row_number()}}"], ["window: {by: [k], columns: {n: row_number()}}"],
        ["window: {order_by: [v], columns: {n: lag(v)}}"], ["window: {order_by: [v desc], columns: {n: lag(v)}}"],
        ["window: {order_by: [v], columns: {n: 'lag(v, 2)'}}"], ["window: {order_by: [v], columns: {n: lead(v)}}"],
        ["window: {order_by: [v], columns: {n: sum(v)}}"], ["window: {order_by: [v], frame: rows 1 preceding, columns: {n: sum(v)}}"],
        ["flat_map: {x: 'generate_series(1, v)'}"], ["flat_map: {x: 'generate_series(0, v)'}"], ["drop: [v]"], ["rename: {v: x}"],
    ]  # fmt: skip
    assert len({plan(chain(*operators)).fingerprint for operators in chains}) == len(chains)


def test_the_head_names_the_inputs():
    assert HEAD.count("t/") == 1
    assert fingerprint(chain("project: [k]")) != fingerprint(chain("project: [k]", source="u"))


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (chain("consolidate", "reduce: {by: [k], t: sum(v), n: count(*)}"), ("2c1685972a4462f5d0b1", "915129bf8bf144da858f")),
        ("  n: {from: t, apply: [negate]}\n  c: {from: [t, n], apply: [distinct]}\n", ("26b8de215303607a1b57", "ea418df1420b29d8ae04")),
        (loop(REACH), ("15832d6f641131ccddbc", "cc685a81ba9f1640e716")),
    ],
)  # fmt: skip
def test_fingerprints_are_those_of_states_that_exist(written, found):
    """Another fingerprint builds what it names anew in every state."""
    assert fingerprint(written) == found


@pytest.mark.parametrize(
    ("expression", "revised"),
    [
        *((text, True) for text in ("f / 10e0", "2e0 + f / cast(3 as float64)", "round(f, 2)", "trunc(f, -1)")),
        *((text, True) for text in ("log10(f)", "epoch(timestamp '2024-01-01 00:00:00' + interval '1' second * v)")),
        *(
            (text, True)
            for text in ("upper(s)", "s[v]", "s[-1]", "cast(f as int64)", "cast(f as string)", "split(s, s)")
        ),
        *((text, True) for text in ("regexp_replace(s, 'a', 'b')", "greatest(v, nullif(v, 1))", "sign(f)")),
        *(
            (text, True)
            for text in ("try_cast(s as int64)", "cast(s as time)", "cast(s as timestamp_ms)", "list_avg([v, 1])")
        ),
        *((text, True) for text in ("[e % v for e in [v]]", "cast(v as decimal(38, 2)) + cast(v as decimal(38, 0))")),
        *((text, True) for text in (r"regexp_like(s, '\\d')", "regexp_substr(s, '[a&&b]')")),
        *(
            (text, False)
            for text in (
                "regexp_like(s, '^[a-c]+(x|y)$')",
                "cast(v as decimal(38, 2)) - cast(v as decimal(38, 2))",
                "1.5 + v",
            )
        ),
        *((text, False) for text in ("cast(s as int64)", "cast(s as timestamp)", "list_avg([f, 1e0])")),
        *((text, False) for text in ("s[2]", "s[1:3]", "substring(s, 2)", "split(s, ',')[1]", "greatest(v, 1)")),
        *((text, False) for text in ("cast(v as string)", "regexp_replace(s, 'a', 'b', 'g')")),
        *((text, False) for text in ("f / f", "10e0 / f", "v // 2", "round(f)", "f * 0.5e0", "ln(f)", "v + 1")),
    ],
)
def test_what_an_earlier_version_computed_otherwise_has_another_fingerprint(monkeypatch, expression, revised):
    """So a state that holds it is computed anew, and no other."""
    told = fingerprint(chain(f'extend: {{x: "{expression}"}}', "distinct"))
    monkeypatch.setattr("ddcli.plan.node.revisions_of", lambda _: ())
    before = fingerprint(chain(f'extend: {{x: "{expression}"}}', "distinct"))
    assert [one != other for one, other in zip(told, before, strict=True)] == [revised, revised]


@pytest.mark.parametrize(("aggregate", "revised"), [("corr(v, k)", True), ("regr_r2(v, k)", True), ("max(v)", False)])
def test_an_aggregate_that_an_earlier_version_computed_otherwise_has_another_fingerprint(
    monkeypatch, aggregate, revised
):
    """Those of pairs are computed anew, and no other."""
    reduced = chain(f'reduce: {{by: [s], x: "{aggregate}"}}')
    told = fingerprint(reduced)
    monkeypatch.setattr("ddcli.plan.node.revisions_of", lambda _: ())
    assert [one != other for one, other in zip(told, fingerprint(reduced), strict=True)] == [revised, revised]


REVISED = """\
inputs: {t: {path: in/, format: upsert, key: [k], columns: {k: int64, s: string}}}
collections: {c: {sql: "select k, upper(s) as u, s[-1] as l from t"}}
outputs: {c: out/}
"""


def test_a_state_with_a_revised_function_is_computed_anew_by_the_next_run(shop, monkeypatch):
    """What an earlier version inserted is retracted as it was, whatever this version would compute of the row."""
    shop.write("p.yaml", REVISED)
    shop.write("in/1.csv", "k,s\n1,straße\n2,ab\n")
    with monkeypatch.context() as patch:
        patch.setattr("ddcli.plan.node.revisions_of", lambda _: ())
        patch.setitem(lower_text.LOWER, "upper", lambda _, __, args: args[0].str.to_uppercase())
        patch.setattr(kept_plan, "__version__", "0.0.other")
        lower.lowering_of.cache_clear()
        assert shop("run", "p.yaml").code == 0
    lower.lowering_of.cache_clear()
    shop.write("in/2.csv", "k,s\n2,xy\n")
    ran = shop("run", "p.yaml")
    assert ran.code == 0, ran.err
    found = shop("log", "out", "--as-of", "latest", "-o", "csv").out
    assert sorted(found.splitlines()[1:]) == ["1,STRAẞE,e,1", "2,XY,y,1"]
    assert "1,STRASSE,e," in shop("log", "out", "-o", "csv").out
