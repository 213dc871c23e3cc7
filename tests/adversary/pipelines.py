"""Hostile pipeline files: deep, wide, cyclic, with YAML's traps, with expressions and functions that want out, with paths that lead out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.adversary.case import Case, Numbered
from tests.adversary.names import text as hostile_text
from tests.adversary.shop import PIPELINE, ROOT
from tests.adversary.yaml_text import restyled, yaml
from tests.draws import YAML_PIECES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tests.adversary.shop import Shop

FILE = "hostile.yaml"
HEAD = "dd: 1\nname: hostile\ninputs:\n  a: {path: in/sales/, format: append, time: day, columns: {day: int64, region: string, amount: int64}}\n"
TAIL = "outputs: {o: {path: out/hostile/, from: last}}\n"
READING: tuple[tuple[str, ...], ...] = (
    ("check", FILE),
    ("check", FILE, "--format", "github"),
    ("plan", FILE),
    ("explain", FILE),
    ("explain", FILE, "-o", "json"),
    ("lineage", FILE),
)
RUNNING: tuple[tuple[str, ...], ...] = (
    ("run", FILE),
    ("run", FILE),
    ("run", FILE, "--dry-run"),
    ("run", FILE, "--memory", "256MiB"),
    ("test", FILE),
    ("query", FILE, "last", "region=north"),
    ("why", FILE, "last", "region=north"),
    ("bisect", FILE, "select * from o", "--bad", "count(*) > 0"),
    ("diff", FILE, "pipeline.yaml"),
    ("convert", FILE, "out/converted", "--input", "a"),
    ("state", "ls", FILE),
    ("state", "verify", FILE),
    ("state", "gc", FILE),
)
WITHOUT_CODE = tuple(
    (*command, "--no-code") for command in RUNNING if command[0] in {"run", "test", "query", "why", "bisect", "diff"}
)


def _write(text: str, shop: Shop) -> None:
    (shop.folder / FILE).write_bytes(text.encode("utf-8", "surrogatepass"))


def with_operators(*operators: str) -> str:
    """Return a pipeline with these operators."""
    return f"{HEAD}collections:\n  last: {{from: a, apply: [{', '.join(operators)}]}}\n{TAIL}"


def laughs(depth: int, last: str) -> str:
    """Return a billion laughs: each line has the one before nine times."""
    lines = ["x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"x{at}: &x{at} [{', '.join([f'*x{at - 1}'] * 9)}]" for at in range(1, depth)]
    return HEAD + "\n".join(lines) + "\n" + last.format(f"*x{depth - 1}")


def loops(depth: int) -> str:
    """Return loops in loops."""
    text = "{from: x, apply: [distinct]}"
    for _ in range(depth):
        text = f"{{iterate: {{variables: {{x: a}}, body: {{x: {text}}}, result: x}}}}"
    return f"{HEAD}collections:\n  last: {text}\n{TAIL}"


SHAPES: dict[str, Callable[[], str]] = {
    "laughs in a collection": lambda: laughs(12, "collections: {{last: {{from: a, apply: {}}}}}\n") + TAIL,
    "laughs in an input": lambda: laughs(12, "inputs: {}\n") + TAIL,
    "laughs beside": lambda: laughs(9, "collections: {{last: a}}\n") + TAIL,
    "laughs of mappings": lambda: HEAD + "".join(f"x{at}: &x{at} {{{', '.join(f'k{k}: *x{at - 1}' for k in range(9))}}}\n" if at else "x0: &x0 {a: 1}\n" for at in range(12)) + TAIL,
    "laughs merged": lambda: HEAD + "".join(f"x{at}: &x{at} {{<<: [{', '.join([f'*x{at - 1}'] * 9)}]}}\n" if at else "x0: &x0 {a: 1}\n" for at in range(12)) + TAIL,
    "an alias in itself": lambda: HEAD + "collections:\n  last: &l {from: a, apply: [*l]}\n" + TAIL,
    "a list in itself": lambda: "&a [*a, *a]\n",
    "a mapping merged into itself": lambda: "&a {<<: *a}\n",
    "a key that is a mapping": lambda: HEAD + "? {a: {b: [c]}}\n: 1\n" + TAIL,
    "brackets": lambda: HEAD + "collections: " + "[" * 20_000,
    "braces": lambda: HEAD + "collections: " + "{a: " * 20_000,
    "indents": lambda: HEAD + "".join(f"{' ' * at}a:\n" for at in range(1, 2_000)),
    "dashes": lambda: HEAD + "collections: \n  " + "- " * 20_000,
    "many documents": lambda: "---\ndd: 1\n" * 1_000,
    "tags": lambda: HEAD + "collections: !!python/object/apply:os.system ['touch ../elsewhere/new']\n" + TAIL,
    "a tag of a module": lambda: HEAD + "collections: !!python/module:evil {}\n" + TAIL,
    "a tag of a name": lambda: HEAD + "collections: {last: {from: a, apply: [{filter: !!python/name:os.system ''}]}}\n" + TAIL,
    "binary": lambda: HEAD + "collections: {last: {from: a, apply: [{filter: !!binary aGk=}]}}\n" + TAIL,
    "a long key": lambda: HEAD + f"collections: {{{'k' * 1_000_000}: {{from: a}}}}\n" + TAIL,
    "a large number": lambda: HEAD + f"collections: {{last: {{from: a, apply: [{{filter: 'amount > {'9' * 50_000}'}}]}}}}\n" + TAIL,
    "a number of base sixty": lambda: HEAD + "shards: 190:20:30\nlate: 0o17\n" + TAIL,
    "shards": lambda: "dd: 1\nname: hostile\nshards: 999999999999\n" + HEAD[20:] + "outputs: {a: out/hostile/}\n",
    "no text": lambda: "\0" * 1_000,
    "no characters": lambda: "\ud800\udfff",
    "controls": lambda: HEAD + "collections:\n  \x07\x1b[31m: {from: a}\n" + TAIL,
    "tabs": lambda: HEAD.replace("  ", "\t") + TAIL,
    "cyclic collections": lambda: HEAD + "collections: {last: {from: b}, b: {from: c}, c: {from: last}}\n" + TAIL,
    "a collection of itself": lambda: HEAD + "collections: {last: {from: last}}\n" + TAIL,
    "a join with itself": lambda: HEAD + "collections: {last: {from: a, apply: [{join: {with: last, on: [region]}}]}}\n" + TAIL,
    "an import of itself": lambda: "dd: 1\nname: hostile\ninputs: {a: {import: {state: .dd/hostile/, arrangement: x}}}\noutputs: {a: out/hostile/}\n",
    "an import of a canary": lambda: "dd: 1\nname: hostile\ninputs: {a: {import: {state: ../elsewhere/, arrangement: x}}}\noutputs: {a: out/hostile/}\n",
    "an import by another name": lambda: "dd: 1\nname: hostile\ninputs: {a: {import: {state: .dd/shop/, arrangement: '../../../../elsewhere/0'}}}\noutputs: {a: out/hostile/}\n",
    "chained collections": lambda: HEAD + "collections:\n" + "".join(f"  c{at}: {{from: {f'c{at - 1}' if at else 'a'}, apply: [{{filter: 'amount <> {at}'}}]}}\n" for at in range(1_500)) + "  last: {from: c1499}\n" + TAIL,
    "operators in a row": lambda: with_operators(*["{extend: {amount: amount + 1}}"] * 1_500),
    "joins in a row": lambda: with_operators(*["{semijoin: {with: a, on: [region]}}"] * 150),
    "loops in loops": lambda: loops(6),
    "loops deep in loops": lambda: loops(300),
    "a loop that never ends": lambda: HEAD + "collections:\n  last: {iterate: {variables: {x: a}, body: {x: {from: x, apply: [{extend: {amount: amount + 1}}]}}, result: x, max_rounds: {guard: 300}}}\n" + TAIL,
    "a loop that grows": lambda: HEAD + "collections:\n  last: {iterate: {variables: {x: a}, body: {x: {from: x, apply: [{concat: x}]}}, result: x, max_rounds: 100}}\n" + TAIL,
    "outputs": lambda: HEAD + "outputs:\n" + "".join(f"  o{at}: {{path: out/o{at}/, from: a}}\n" for at in range(300)),
    "inputs": lambda: "dd: 1\nname: hostile\ninputs:\n" + "".join(f"  a{at}: {{path: in/sales/, time: day, format: append, columns: {{day: int64}}}}\n" for at in range(300)) + "outputs: {a1: out/hostile/}\n",
    "columns": lambda: with_operators("{map: {" + ", ".join(f"c{at}: amount" for at in range(4_000)) + "}}"),
    "tests": lambda: HEAD + "outputs: {a: out/hostile/}\ntests:\n" + "  - {name: t, expect: {collection: a, unique: [region]}}\n" * 500,
    "product of inputs": lambda: HEAD + "collections: {last: {from: [" + ", ".join(["a"] * 2_000) + "]}}\n" + TAIL,
    "a spark of another": lambda: "spark: {remote: 'sc://127.0.0.1:9/'}\n" + HEAD + "outputs: {a: out/hostile/}\n",
}  # fmt: skip


def shapes(_shop: Shop) -> Iterator[Case]:
    """Yield pipelines that are deep, wide, cyclic, or YAML's own traps."""

    def do(make: Callable[[], str], shop: Shop) -> None:
        _write(make(), shop)

    for name, make in SHAPES.items():
        commands = WITHOUT_CODE if "spark" in name else RUNNING
        for command in (*READING, *commands):
            yield Case(name, partial(do, make), commands=(command,))


ATOMS = (
    *(
        "amount",
        "region",
        "day",
        "null",
        "1",
        "-1",
        "0",
        "1e308",
        "'x'",
        "''",
        "'a\x1b]0;t\x07'",
        "9223372036854775807",
        "date '9999-12-31'",
    ),
    *(
        "timestamp '0001-01-01'",
        "interval '1000000' year",
        "[1, 2]",
        "{'a': 1}",
        "current_user",
        "current_timestamp",
        "random()",
        "uuid()",
    ),
    *(
        "getenv('HOME')",
        "(select 1)",
        "exists (select 1)",
        "count(*) over ()",
        "$1",
        "?",
        ":x",
        "@x",
        "x -> x",
        "*",
        "a.b.c.d",
        '"region"',
    ),
    *(
        "read_text('../elsewhere/.profile')",
        "pg_sleep(100)",
        "current_setting('x')",
        "version()",
        "cast(amount as varchar)",
        "nan",
        "inf",
    ),
)
FUNCTIONS = (
    *("repeat({0}, 1000000000)", "repeat(repeat({0}, 30000), 30000)", "lpad({0}, 1000000000, 'x')", "rpad('', 9223372036854775807, {0})"),
    *("regexp_matches(repeat('a', 40), '(a+)+$')", "regexp_replace({0}, '(', 'x')", "regexp_extract({0}, '((((((((a*)*)*)*)*)*)*)*)*b')"),
    *("regexp_matches({0}, 'a{{1000}}{{1000}}{{1000}}')", "range({0})", "range(1000000000)", "generate_series(1, 10000000000)", "unnest({0})"),
    *("factorial({0})", "pow({0}, {1})", "({0}) ** 1000000", "{0} << 1000", "{0} // 0", "{0} % {1}", "cast({0} as decimal(38, 38))", "chr({0})"),
    *("cast({0} as {1})", "cast({0} as date)", "cast({0} as blob)", "concat({0}, {1}, {0})", "coalesce({0}, {1})", "list_value({0}, {1})"),
    *("substr({0}, -9223372036854775808, 9223372036854775807)", "strftime({0}, {1})", "strptime({0}, '%%%Q')", "date_trunc({0}, {1})"),
    *("case when {0} then {1} end", "{0} between {1} and {0}", "{0} like {1} escape 'xx'", "{0} in ({1}, {0})", "not {0}", "-(-({0}))"),
    *("sum({0})", "count(distinct {0})", "arg_max({0}, {1})", "system({0})", "load_extension({0})", "{0}({1})", "{0}.{1}", "{0} is not {1}"),
    *("{0}; attach 'x'", "{0} union select {1}", "{0} -- {1}", "/* {0} */ {1}", "{0} collate x", "try_cast({0} as int)", "extract({0} from {1})"),
    *("hash({0})", "to_json({0})", "struct_pack(a := {0})", "map([{0}], [{1}])", "array_agg({0})", "string_agg({0}, {1})", "printf('%n', {0})"),
)  # fmt: skip
OPERATORS = (
    *(
        "{{extend: {{z: {0}}}}}",
        "{{filter: {0}}}",
        "{{map: {{region: {0}}}}}",
        "{{explode: {0}}}",
        "{{flat_map: {{z: {0}}}}}",
    ),
    *(
        "{{reduce: {{by: [region], z: {0}}}}}",
        "{{reduce: {{by: {{region: {0}}}, z: count(*)}}}}",
        "{{top_k: {{by: [region], k: 3, order_by: [{0}]}}}}",
    ),
    *(
        "{{temporal_filter: {{from: {0}, until: {0}}}}}",
        "{{inspect: {0}}}",
        "{{top_k: {{by: [region], k: {0}, order_by: [day]}}}}",
    ),
)


def expression(chance: random.Random, depth: int) -> str:
    """Return a hostile expression."""
    if not depth or chance.random() < 0.2:
        return chance.choice(ATOMS) if chance.random() < 0.9 else hostile_text(chance)
    return chance.choice(FUNCTIONS).format(expression(chance, depth - 1), expression(chance, depth - 1))


LONG = (
    lambda: "(" * 20_000 + "amount" + ")" * 20_000,
    lambda: "amount > 0" + " or amount = 1" * 20_000,
    lambda: "not " * 20_000 + "amount > 0",
    lambda: "- " * 20_000 + "amount > 0",
    lambda: f"amount in ({', '.join(map(str, range(50_000)))})",
    lambda: "case when amount = 1 then true " * 5_000 + "end " * 5_000,
    lambda: "coalesce(" * 5_000 + "amount" + ")" * 5_000 + " > 1",
    lambda: f"region = '{'x' * 1_000_000}'",
    lambda: "region" + " || region" * 20_000 + " = 'x'",
    lambda: f"amount > {'9' * 5_000}",
    lambda: "[" * 5_000 + "1" + "]" * 5_000 + " is null",
    lambda: "concat(" + ", ".join(["region"] * 20_000) + ") = 'x'",
)


def expressions(_shop: Shop) -> Sequence[Case]:
    """Return pipelines with an expression that wants much, or out."""

    def make(chance: random.Random) -> Case:
        drawn = chance.choice(LONG)() if chance.random() < 0.1 else expression(chance, chance.choice((1, 1, 2, 3)))
        text = with_operators(chance.choice(OPERATORS).format(yaml(drawn)))
        if chance.random() < 0.5:
            text = text.replace("dd: 1\n", "dd: 1\nerrors: quarantine\n")
        return Case(
            f"the expression {drawn[:200]!r}", partial(_write, text), commands=(*RUNNING, READING[0], READING[2])
        )

    return Numbered(make)


EVIL = "import pathlib\npathlib.Path(r'{0}').write_text('run')\npathlib.Path('new').write_text('run')\ndef f(*given): return given\n"
MODULES = (
    "evil",
    "pyarrow",
    "yaml",
    "json",
    "sqlglot",
    "usercustomize",
    "sitecustomize",
    "conftest",
    "ddcli",
    "evil_too",
)


def functions(_shop: Shop) -> Iterator[Case]:
    """Yield pipelines that name functions, which these commands must not run; with modules beside them that do harm when imported."""
    names = [f"{module}:f" for module in MODULES]
    names += [
        "os:system",
        "subprocess:Popen",
        "builtins:exec",
        "evil:f.__globals__",
        "..evil:f",
        "/etc/passwd:f",
        "evil",
        ":",
        "evil:",
        "a" * 9_999 + ":f",
    ]
    operators = (
        "{{map: {{function: '{0}', columns: {{z: int64}}}}}}",
        "{{flat_map: {{function: '{0}', columns: {{z: int64}}, batch: true}}}}",
        "{{reduce: {{by: [region], function: '{0}', columns: {{z: int64}}}}}}",
        "{{filter: {{function: '{0}'}}}}",
    )

    def do(text: str, shop: Shop) -> None:
        _write(text, shop)
        for module in MODULES:
            code = EVIL.format(shop.canary.tree / ".profile")
            (shop.folder / f"{module}.py").write_text(code)
            (shop.folder / "in" / f"{module}.py").write_text(code)
        (shop.folder / "evil").mkdir()
        (shop.folder / "evil/__init__.py").write_text(EVIL.format(shop.canary.tree / ".profile"))

    for name in names:
        for operator in operators:
            yield Case(
                f"the function {name[:50]}",
                partial(do, with_operators(operator.format(name))),
                commands=(*READING, *WITHOUT_CODE),
            )
    yield Case(
        "no function, and modules beside", partial(do, with_operators("distinct")), commands=(*READING, *RUNNING)
    )


OUT = (
    *(
        "../elsewhere/",
        "../elsewhere/docs/",
        "../elsewhere/.profile",
        "../elsewhere/people/0/",
        "../elsewhere/new/",
        "../elsewhere/LOCK",
    ),
    *(
        "../elsewhere/empty-directory/",
        "../elsewhere/link/",
        "{tree}/",
        "{tree}/new/deep/",
        "in/sales/",
        "in/",
        ".",
        "..",
        "/",
        "",
        "out/../../elsewhere/0/",
    ),
    *(
        ".dd/",
        ".dd/shop/",
        ".dd/shop/manifest/",
        ".dd/hostile/",
        ".dd/hostile/arrangements/",
        "out/totals/",
        "out/",
        "pipeline.yaml",
        "~/x/",
    ),
    *(
        "/dev/null",
        "/dev/stdout",
        "/proc/self/fd/1",
        "/proc/self/cwd/in/",
        "a\0b",
        "x" * 5_000,
        "\x1b[31m/",
        "out/*/",
        "out/{{day}}/",
        "-o",
        "file:///tmp/x",
    ),
    *("linked/", "linked/docs/", "out/linked/"),
)
ROOMS_FOR_NEW = ("elsewhere", "shop")


def ways_out(_shop: Shop) -> Iterator[Case]:
    """Yield pipelines whose paths lead out of the folder, into states, inputs and outputs.

    Outputs and logs of a pipeline are written where its file says, also outside of the folder; but what is there must stay as it is.
    """
    trees: dict[str, Callable[[str], dict[str, Any]]] = {
        "an output": lambda path: {"outputs": {"a": path}},
        "the input": lambda path: {"inputs": {"a": {"path": path, "time": "day"}}},
        "the quarantine": lambda path: {"errors": {"quarantine": path}},
        "late rows": lambda path: {"late": path},
        "the state": lambda path: {"state": path},
        "rows of a test": lambda path: {
            "tests": [{"name": "rows", "given": {"a": path}, "expect": {"collection": "a", "contents": path}}]
        },
        "the name": lambda path: {"name": path},
    }

    def do(what: str, path: str, shop: Shop) -> None:
        path = path.replace("{tree}", str(shop.canary.tree)).replace("{{day}}", "{day}")
        columns = {"day": "int64", "region": "string", "amount": "int64"}
        source: dict[str, Any] = {"path": "in/sales/", "format": "append", "time": "day", "columns": columns}
        tree: dict[str, Any] = {"dd": 1, "name": "hostile", "inputs": {"a": source}, "outputs": {"a": "out/hostile/"}}
        more = trees[what](path)
        if "late" in more:
            source |= {"late": "quarantine", "quarantine": more.pop("late")}
        _write(yaml(tree | more), shop)
        (shop.folder / "linked").symlink_to(shop.canary.tree)
        (shop.folder / "out/linked").symlink_to(shop.canary.tree / "docs")

    for what in trees:
        for path in OUT:
            yield Case(
                f"{what} at {path[:50]!r}", partial(do, what, path), commands=(*READING, *RUNNING), adds=ROOMS_FOR_NEW
            )


def ours() -> list[str]:
    """Return the project's own pipelines."""
    return [PIPELINE, *(path.read_text() for path in sorted((ROOT / "pipelines").rglob("*.yaml")))]


def mutilated(_shop: Shop) -> Sequence[Case]:
    """Return pipelines of ours with pieces cut out, put in, or moved."""
    texts = ours()

    def make(chance: random.Random) -> Case:
        text = chance.choice(texts).replace("../", "in/")
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(len(text))
            to = min(len(text), at + chance.choice((1, 1, 5, 50)))
            piece = chance.choice((chance.choice(YAML_PIECES), hostile_text(chance), text[at:to] * 2, ""))
            text = text[:at] + piece + text[chance.choice((at, to)) :]
        return Case(
            "a mutilated pipeline", partial(_write, text), commands=(*READING, *RUNNING), adds=("shop", "elsewhere")
        )

    return Numbered(make)


QUERIES = """\
# a shop's sales
dd: 1
name: hostile
inputs:
  a: {path: in/sales/, format: append, columns: {day: int64, region: string, amount: int64?}}
  b:
    path: in/dated.csv
    format: upsert
    key: [region, day]
    columns: {day: int64, region: string, amount: int64?, until: date?}
collections:
  sums: {sql: "select region, sum(amount) as amount, 'it''s \\u007f' as note from a group by region"}
  best:
    # the largest
    sql: |
      select b.region, max(b.amount) as most   -- of both
      from a join b on a.region = b.region and a.day = b.day
      where b.until is null or a.amount > 3
      group by b.region
    apply:
      - filter: most > 0   # no less
  twice: {sql: select region from sums union all select region from best, apply: [{concat: third}]}
  third: {sql: 'select distinct region from a where amount > (select min(amount) from b)'}
  last:
    sql: >
      select region, row_number() over (partition by region order by note) as n
      from sums
outputs: {o: {path: out/hostile/, from: last}, p: {path: out/hostile_too/, from: twice}}
"""
LOOKING: tuple[tuple[str, ...], ...] = (
    *READING,
    *(("explain", FILE, "-o", form) for form in ("yaml", "yaml", "yaml", "mermaid", "svg", "html", "text")),
    ("run", FILE, "--dry-run"),
)


def styles(_shop: Shop) -> Sequence[Case]:
    """Return pipelines of ours as other people and programs would write them."""
    texts = [*(text.replace("../", f"{ROOT}/") for text in ours()), *[QUERIES] * 5]

    def do(data: bytes, shop: Shop) -> None:
        (shop.folder / FILE).write_bytes(data)
        (shop.folder / "in/dated.csv").write_text("day,region,amount,until\n1,north,3,2026-03-01\n2,south,,\n")

    def make(chance: random.Random) -> Case:
        data = restyled(chance.choice(texts), chance)
        return Case("a pipeline in another style", partial(do, data), commands=LOOKING)

    return Numbered(make)


GENERATORS = (shapes, expressions, functions, ways_out, mutilated, styles)
