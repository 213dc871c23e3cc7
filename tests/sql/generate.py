"""Random statements over the judge's tables: joins of all kinds, nested and correlated subqueries, groups, sets, recursion.

What a limit leaves is decided by all columns here; that they come behind those of an `order by` stands in a comment, which
`for_duckdb` makes part of the statement.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

TABLES = {
    "t": {"a": "int64", "b": "int64?", "s": "string?"},
    "u": {"a": "int64?", "c": "int64", "d": "date?"},
    "v": {"k": "int64?", "x": "int64?"},
    "w": {"a": "int64", "f": "bool?", "m": "decimal(10, 2)?"},
}
SQL = {"int64": "bigint", "string": "varchar", "date": "date", "bool": "boolean", "decimal": "decimal(10, 2)"}
Columns = list[tuple[str, str]]
"""What expressions may name, with the kind of its value."""


def for_duckdb(text: str) -> str:
    """Return a statement with all columns behind the others of an `order by` with a limit."""
    return text.replace("/*", "").replace("*/", "")


def kind_of(table: str, column: str) -> str:
    return TABLES[table][column].partition("(")[0].strip("?")


class Statements:
    """Makes statements; `depth` is how deep queries may stand inside each other.

    Documented differences are not made: integer division, `greatest` of nulls, and others.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = 0
        self.ctes: list[tuple[str, Columns]] = []
        self.combined = False
        """Whether this is inside of a set operation that reads what is around it: of aggregates of nothing, DuckDB loses rows there."""

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def statement(self) -> str:
        """Return a whole statement."""
        found = ""
        if self.chance(0.2):
            parts = []
            for _ in range(self.rng.randrange(1, 3)):
                name, kinds = self.name("q"), [self.kind() for _ in range(self.rng.randrange(1, 3))]
                listed = f"({', '.join(f'c{at}' for at in range(len(kinds)))})" if self.chance(0.3) else ""
                parts.append(f"{name}{listed} as ({self.query(kinds, 2, [])})")
                self.ctes.append((name, [(f"c{at}", kind) for at, kind in enumerate(kinds)]))
            found = f"with {', '.join(parts)} "
        elif self.chance(0.05):
            found = self.recursive()
        return found + self.query([self.kind() for _ in range(self.rng.randrange(1, 4))], 3, [])

    def recursive(self) -> str:
        """Return a table that recursion defines: of few values, so that it ends."""
        name, alias = self.name("q"), self.name("r")
        source, columns = self.entry(0, [])
        value = self.own("int64", columns, [])
        step = self.rng.choice([value, f"{alias}.c0 + 1", f"{alias}.c0 + {value}"])
        begin = f"select {self.own('int64', columns, [])} from {source}"
        condition = f"{self.condition(columns, [(f'{alias}.c0', 'int64')], 0)} and {alias}.c0 between 0 and 4"
        self.ctes.append((name, [("c0", "int64")]))
        return f"with recursive {name}(c0) as ({begin} union select {step} from {source}, {name} {alias} where {condition}) "

    def kind(self) -> str:
        return self.rng.choice(["int64"] * 5 + ["string", "date", "bool", "decimal"])

    def query(self, kinds: list[str], depth: int, outer: Columns) -> str:
        """Return a query with columns c0, c1, ... of these kinds."""
        if depth > 0 and self.chance(0.15):
            word = self.rng.choice(["union", "union all", "intersect", "intersect all", "except", "except all"])
            before, self.combined = self.combined, self.combined or bool(outer)
            sides = [self.query(kinds, depth - 1, outer) for _ in range(2)]
            self.combined = before
            return f"({sides[0]}) {word} ({sides[1]})"
        if self.chance(0.03):
            return f"select * from {self.rows(kinds, self.name('y'))}"
        if self.chance(0.03):
            alias = self.name("z")
            columns: Columns = [(f"{alias}.c{at}", kind) for at, kind in enumerate(kinds)]
            where = f" where {self.condition(columns, outer, depth - 1)}" if self.chance(0.5) else ""
            star = self.rng.choice(["*", f"{alias}.*", f"* replace ({alias}.c0 as c0)"])
            return f"select {star} from ({self.query(kinds, depth - 1, outer)}) {alias}{where}"
        return self.select(kinds, depth, outer)

    def select(self, kinds: list[str], depth: int, outer: Columns) -> str:
        source, columns = self.source(depth, outer)
        grouped = self.chance(0.3)
        where = f" where {self.condition(columns, outer, depth)}" if self.chance(0.6) else ""
        if grouped:
            return f"{self.grouped(kinds, source, where, columns, outer, depth)}"
        items = [f"{self.expression(kind, columns, outer, depth)} as c{at}" for at, kind in enumerate(kinds)]
        distinct = "distinct " if self.chance(0.15) else ""
        found = f"select {distinct}{', '.join(items)} from {source}{where}"
        if not distinct and self.chance(0.07):
            key = self.simple(self.kind(), columns, [], 1)
            on = key if "." in key and "(" not in key else "c0"
            found = f"select distinct on ({on}) {found.removeprefix('select ')} order by {on}{self.way()}"
            return found + self.rest(kinds)
        if self.chance(0.1):
            keys = self.rng.sample(range(1, len(kinds) + 1), self.rng.randrange(1, len(kinds) + 1))
            found += f" order by {', '.join(f'{key}{self.way()}' for key in keys)}{self.rest(kinds)}"
            found += f" limit {self.rng.randrange(1, 4)}"
            if self.chance(0.3):
                found += f" offset {self.rng.randrange(3)}"
        return found

    def rows(self, kinds: list[str], alias: str) -> str:
        """Return rows of constants as an entry of a `from`."""
        rows = [", ".join(self.constant(kind) for kind in kinds) for _ in range(self.rng.randrange(1, 4))]
        names = ", ".join(f"c{at}" for at in range(len(kinds)))
        return f"(values {', '.join(f'({row})' for row in rows)}) as {alias}({names})"

    def way(self) -> str:
        return self.rng.choice(["", "", " desc", " nulls first", " desc nulls last"])

    @staticmethod
    def rest(kinds: list[str]) -> str:
        """Return the columns that break ties: for DuckDB alone, but where texts do, which are not in the alphabet's order here."""
        found = f", {', '.join(str(at + 1) for at in range(len(kinds)))}"
        return found if "string" in kinds else f" /*{found}*/"

    def grouped(self, kinds: list[str], source: str, where: str, columns: Columns, outer: Columns, depth: int) -> str:
        keys: Columns = []
        for _ in range(self.rng.randrange(3)):
            kind = self.rng.choice([kind for _, kind in columns])
            keys.append((self.simple(kind, columns, [], 1), kind))
        if self.combined:
            keys = [self.rng.choice(columns)]
        items = []
        for at, kind in enumerate(kinds):
            items.append(f"{self.over_groups(kind, keys, columns, outer, depth)} as c{at}")
        group = ""
        plain = [
            text
            for text, _ in keys
            if not text.strip("()").isdigit() and "null" not in text and not text.startswith("'")
        ]
        if keys and len(plain) == len(keys):
            listed = ", ".join(plain)
            word = self.rng.choice(["", "", "", "rollup", "cube", "sets", "both"]) if not self.combined else ""
            if word == "sets":
                sets = {", ".join(self.rng.sample(plain, self.rng.randrange(len(plain) + 1))): None for _ in range(3)}
                group = f" group by grouping sets ({', '.join(f'({each})' for each in sets)})"
            elif word == "both":
                group = f" group by {plain[0]}, rollup ({listed})"
            else:
                group = f" group by {word} ({listed})" if word else f" group by {listed}"
        elif keys:
            items = [f"{self.over_groups(kind, [], columns, outer, depth)} as c{at}" for at, kind in enumerate(kinds)]
            keys = []
        having = f" having {self.over_groups('bool', keys, columns, outer, depth)}" if self.chance(0.3) else ""
        return f"select {', '.join(items)} from {source}{where}{group}{having}"

    def over_groups(self, kind: str, keys: Columns, columns: Columns, outer: Columns, depth: int) -> str:
        """Return an expression over groups."""
        own = [text for text, each in keys if each == kind]
        if own and self.chance(0.5):
            return self.rng.choice(own)
        plain_keys = [(text, each) for text, each in keys if text.replace(".", "").replace("_", "").isalnum()]
        if kind == "bool" and self.chance(0.7):
            return f"({self.over_groups('int64', keys, columns, outer, depth)} {self.comparison()} {self.over_groups('int64', keys, columns, outer, depth)})"
        if kind == "int64":
            if depth > 1 and plain_keys and self.chance(0.15):
                return self.scalar("int64", plain_keys + outer, depth)
            if self.chance(0.2):
                return f"({self.over_groups('int64', keys, columns, outer, 0)} + {self.over_groups('int64', keys, columns, outer, 0)})"
            filtered = f" filter (where {self.condition(columns, [], 0)})" if self.chance(0.2) else ""
            if self.chance(0.3):
                return f"count(*){filtered}"
            word = self.rng.choice(["count(", "count(distinct ", "min(", "max("])
            if self.chance(0.3):
                return f"cast(sum({self.rng.choice(['', '', 'distinct '])}{self.expression('int64', columns, [], 0)}){filtered} as bigint)"
            return f"{word}{self.own('int64', columns, outer)}){filtered}"
        return (
            f"{self.rng.choice(['min', 'max'])}({self.own(kind, columns, outer)})"
            if kind != "bool"
            else f"{self.rng.choice(['bool_or', 'bool_and'])}({self.own(kind, columns, outer)})"
        )

    def own(self, kind: str, columns: Columns, outer: Columns) -> str:
        found = [name for name, each in columns if each == kind]
        return self.rng.choice(found) if found else self.constant(kind)

    # --- from -------------------------------------------------------------------------------------------------------

    def source(self, depth: int, outer: Columns) -> tuple[str, Columns]:
        """Return entries with joins between them; a condition of a join sees no entry before a comma."""
        found, columns = self.entry(depth, outer)
        begin = 0
        for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2])):
            word = self.rng.choice(
                ["join", "left join", "right join", "full join", ",", "cross join", "lateral", "using"]
            )
            seen = columns[begin:]
            if word == "using" and not begin:
                return self.merged(found, columns)
            if word == "lateral":
                more, added = self.lateral(columns, depth)
                found, columns = found + more, [*columns, *added]
                continue
            other, more_columns = self.entry(depth, outer)
            if word in (",", "cross join", "using"):
                found += f", {other}" if word == "," else f" cross join {other}"
                begin = len(columns) if word == "," else begin
            else:
                semi = self.chance(0.1)
                word = self.rng.choice(["semi join", "anti join"]) if semi else word
                around = outer if self.chance(0.2) and not semi else []
                on = self.condition(
                    seen + more_columns,
                    around,
                    depth if self.chance(0.2) and not semi else 0,
                    keys=(seen, more_columns),
                )
                found += f" {word} {other} on {on}"
                if semi:
                    continue
            columns = columns + more_columns
        return found, columns

    def lateral(self, columns: Columns, depth: int) -> tuple[str, Columns]:
        """Return an entry that reads those before it, and its columns."""
        alias = self.name("l")
        if depth <= 0:
            first = self.simple("int64", columns, [], 0)
            comma = self.rng.choice([",", " cross join"])
            return f"{comma} lateral generate_series({first}, 2) {alias}(i)", [(f"{alias}.i", "int64")]
        kinds = [self.kind()]
        inner = self.query(kinds, depth - 1, columns)
        how = self.rng.choice(
            [", lateral ({}) {}", " left join lateral ({}) {} on true", " cross join lateral ({}) {}"]
        )
        return how.format(inner, alias), [(f"{alias}.c0", kinds[0])]

    def merged(self, found: str, columns: Columns) -> tuple[str, Columns]:
        """Return a source joined with a table on columns of the same name, under names that have no table."""
        names = {column.partition(".")[2] for column, _ in columns}
        count = Counter(column.partition(".")[2] for column, _ in columns)
        table = self.rng.choice(list(TABLES))
        shared = [name for name in TABLES[table] if count[name] == 1]
        same = [name for name in shared if {c.partition(".")[2]: k for c, k in columns}[name] == kind_of(table, name)]
        if "." not in columns[0][0] or not same or any("." not in column for column, _ in columns):
            return found, columns
        assert names
        alias, side = self.name("r"), self.rng.choice(["", "left ", "right ", "full "])
        natural = len(same) == len(set(TABLES[table]) & names) and self.chance(0.4)
        using = f" using ({', '.join(same)})"
        joined = f"{found} {'natural ' if natural else ''}{side}join {table} {alias}{'' if natural else using}"
        own = [(f"{alias}.{name}", kind_of(table, name)) for name in TABLES[table] if name not in same]
        plain = [(name, kind_of(table, name)) for name in same]
        return joined, [each for each in columns if each[0].partition(".")[2] not in same] + own + plain

    def entry(self, depth: int, outer: Columns) -> tuple[str, Columns]:
        alias = self.name("r")
        if self.chance(0.04):
            kinds = [self.kind() for _ in range(self.rng.randrange(1, 3))]
            return self.rows(kinds, alias), [(f"{alias}.c{at}", kind) for at, kind in enumerate(kinds)]
        if self.chance(0.01):
            return f"generate_series(0, {self.rng.randrange(4)}) {alias}(i)", [(f"{alias}.i", "int64")]
        if self.ctes and self.chance(0.3):
            name, columns = self.rng.choice(self.ctes)
            return f"{name} {alias}", [(f"{alias}.{each}", kind) for each, kind in columns]
        if depth > 1 and self.chance(0.2):
            kinds = [self.kind() for _ in range(self.rng.randrange(1, 3))]
            return f"({self.query(kinds, depth - 1, outer)}) {alias}", [
                (f"{alias}.c{at}", kind) for at, kind in enumerate(kinds)
            ]
        name = self.rng.choice(list(TABLES))
        return f"{name} {alias}", [(f"{alias}.{column}", kind_of(name, column)) for column in TABLES[name]]

    # --- expressions ------------------------------------------------------------------------------------------------

    def comparison(self) -> str:
        return self.rng.choice(["=", "=", "=", "<>", "<", "<=", ">", ">="])

    def condition(
        self, columns: Columns, outer: Columns, depth: int, keys: tuple[Columns, Columns] | None = None
    ) -> str:
        parts = []
        if keys is not None and self.chance(0.8):
            pairs = [(one, other) for one, kind in keys[0] for other, each in keys[1] if kind == each]
            if pairs:
                parts.append("{} = {}".format(*self.rng.choice(pairs)))
        if not parts or self.chance(0.4):
            parts.append(self.one_condition(columns, outer, depth))
        if self.chance(0.2):
            parts.append(self.one_condition(columns, outer, depth))
        if len(parts) > 1 and self.chance(0.2):
            return f"({' or '.join(parts)})"
        return " and ".join(parts)

    def one_condition(self, columns: Columns, outer: Columns, depth: int) -> str:
        everything = columns + outer
        if self.chance(0.08):
            word = self.rng.choice([" or ", " and "])
            parts = word.join(self.one_condition(columns, outer, depth - 1) for _ in range(2))
            return f"{self.rng.choice(['', 'not '])}({parts})"
        if self.chance(0.02):
            return f"({self.one_condition(columns, outer, depth - 1)}) is {self.rng.choice(['true', 'not true', 'false', 'null'])}"
        if depth > 0 and self.chance(0.5):
            way = self.rng.randrange(5)
            negated = self.rng.choice(["", "not "])
            if way == 0:
                return f"{negated}exists ({self.query([self.kind()], depth - 1, everything)})"
            kind = self.kind()
            value = self.expression(kind, columns, outer, 0)
            inner = self.query([kind], depth - 1, everything)
            if way == 1 and self.chance(0.3):
                other = self.kind()
                pair = f"({value}, {self.expression(other, columns, outer, 0)})"
                return f"{pair} {negated}in ({self.query([kind, other], depth - 1, everything)})"
            if way in (1, 2):
                return f"{value} {negated}in ({inner})"
            if way == 3:
                # Of null beside every row of none, DuckDB makes null, not true.
                value = self.constant(kind, null=False) if "null" in value else value
                return f"{value} {self.comparison()} {self.rng.choice(['any', 'all'])} ({inner})"
            return f"{value} {self.comparison()} {self.scalar(kind, everything, depth)}"
        kind = self.rng.choice(sorted({kind for _, kind in everything}))
        one = self.simple(kind, columns, outer, 0)
        if self.chance(0.15):
            return f"{one} is {self.rng.choice(['', 'not '])}null"
        if self.chance(0.1):
            return f"{one} is {self.rng.choice(['', 'not '])}distinct from {self.simple(kind, columns, outer, 0)}"
        if self.chance(0.1):
            return f"{one} {self.rng.choice(['', 'not '])}in ({self.constant(kind)}, {self.constant(kind)})"
        if kind == "int64" and self.chance(0.1):
            return f"{one} {self.rng.choice(['', 'not '])}between {self.simple('int64', columns, outer, 0)} and {self.rng.randrange(4)}"
        if kind == "string" and self.chance(0.3):
            return f"{one} {self.rng.choice(['', 'not '])}like '{self.rng.choice(['x%', '%y', '_', '%'])}'"
        return f"{one} {self.comparison()} {self.simple(kind, columns, outer, 0)}"

    def scalar(self, kind: str, outer: Columns, depth: int) -> str:
        """Return a subquery that is one value."""
        source, columns = self.source(depth - 2, outer)
        where = f" where {self.condition(columns, outer, depth - 2)}" if self.chance(0.7) else ""
        if kind == "int64" and self.chance(0.4):
            return f"(select count(*){self.rng.choice(['', ' + 1'])} from {source}{where})"
        if self.chance(0.15):
            return f"(select {self.own(kind, columns, outer)} from {source}{where} order by 1{self.way()} limit 1)"
        if self.chance(0.1):
            return f"(select {self.own(kind, columns, outer)} from {source}{where})"
        word = "bool_and" if kind == "bool" else self.rng.choice(["min", "max"])
        return f"(select {word}({self.own(kind, columns, outer)}) from {source}{where})"

    def expression(self, kind: str, columns: Columns, outer: Columns, depth: int) -> str:
        if depth > 1 and self.chance(0.15):
            return self.scalar(kind, columns + outer, depth - 1)
        if kind == "bool" and self.chance(0.6):
            return f"({self.one_condition(columns, outer, depth - 1)})"
        if kind == "int64" and self.chance(0.2):
            return f"({self.simple(kind, columns, outer, depth)} {self.rng.choice(['+', '-', '*'])} {self.simple(kind, columns, outer, depth)})"
        if self.chance(0.1):
            return f"case when {self.condition(columns, outer, 0)} then {self.simple(kind, columns, outer, 0)} else {self.simple(kind, columns, outer, 0)} end"
        if self.chance(0.1):
            return f"coalesce({self.simple(kind, columns, outer, 0)}, {self.constant(kind, null=False)})"
        if self.chance(0.12):
            return self.computed(kind, columns, outer)
        return self.simple(kind, columns, outer, depth)

    def computed(self, kind: str, columns: Columns, outer: Columns) -> str:
        """Return a call or a cast with a value of a kind."""

        def one(kind: str) -> str:
            return self.simple(kind, columns, outer, 0)

        whole, text, day = one("int64"), one("string"), one("date")
        ways = {
            "int64": [
                f"cast({one('bool')} as bigint)",
                f"length({text})",
                f"abs({whole})",
                f"year({day})",
                f"({whole} % 3)",
                f"extract(month from {day})",
                f"{one('decimal')}::bigint",
                f"try_cast({text} as bigint)",
                f"nullif({whole}, 1)",
                f"case {whole} when 1 then 2 when {one('int64')} then 0 end",
            ],
            "string": [
                f"cast({self.rng.choice([whole, day, one('bool')])} as varchar)",
                f"({text} || 'x')",
                f"upper({text})",
                f"substr({text}, 1, 1)",
                f"{whole}::varchar",
                f"replace({text}, 'x', '')",
            ],
            "date": [f"nullif({day}, date '2020-01-02')", f"coalesce({day}, {one('date')}, date '2020-01-03')"],
            "bool": [
                f"({text} ilike 'X%')",
                f"starts_with({text}, 'x')",
                f"({whole} = 1)",
                f"cast({whole} as boolean)",
            ],
            "decimal": [f"cast({whole} as decimal(10, 2))", f"(- {one('decimal')})", f"abs({one('decimal')})"],
        }
        return self.rng.choice(ways[kind])

    def simple(self, kind: str, columns: Columns, outer: Columns, depth: int) -> str:
        found = [name for name, each in columns if each == kind]
        around = [name for name, each in outer if each == kind]
        if around and self.chance(0.4):
            return self.rng.choice(around)
        if found and self.chance(0.9):
            return self.rng.choice(found)
        return self.constant(kind)

    def constant(self, kind: str, *, null: bool = True) -> str:
        if null and self.chance(0.1):
            return f"cast(null as {SQL[kind]})"
        return {
            "int64": str(self.rng.randrange(4)),
            "string": self.rng.choice(["''", "'x'", "'z'"]),
            "date": f"date '2020-01-0{self.rng.randrange(1, 4)}'",
            "bool": self.rng.choice(["true", "false"]),
            "decimal": f"cast({self.rng.randrange(-5, 6)} as decimal(10, 2))",
        }[kind]
