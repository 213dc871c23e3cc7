"""Random statements over the judge's tables: joins of all kinds, nested and correlated subqueries, groups, sets, recursion.

What a limit leaves is decided by all columns here; that they come behind those of an `order by` stands in a comment, which
`for_duckdb` makes part of the statement.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.sql.terms import TABLES, Columns, Terms, columns_of, kind_of

if TYPE_CHECKING:
    import random

SETS = ("union", "union all", "intersect", "intersect all", "except", "except all")


def for_duckdb(text: str) -> str:
    """Return a statement with all columns behind the others of an `order by` with a limit."""
    return text.replace("/*", "").replace("*/", "")


class Statements(Terms):
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
        depth = 4 if self.chance(0.1) else 3
        return found + self.query([self.kind() for _ in range(self.rng.randrange(1, 4))], depth, [])

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

    def query(self, kinds: list[str], depth: int, outer: Columns) -> str:
        """Return a query with columns c0, c1, ... of these kinds."""
        if depth > 0 and self.chance(0.15):
            word = self.rng.choice(SETS)
            before, self.combined = self.combined, self.combined or bool(outer)
            sides = [self.query(kinds, depth - 1, outer) for _ in range(2)]
            third = f" {self.rng.choice(SETS)} ({self.query(kinds, 0, outer)})" if self.chance(0.15) else ""
            self.combined = before
            return f"({sides[0]}) {word} ({sides[1]}){third}{self.page(kinds)}"
        if depth > 0 and self.chance(0.03):
            name = self.name("q")
            inner = self.query(kinds, depth - 1, outer)
            return f"(with {name}({', '.join(f'c{at}' for at in range(len(kinds)))}) as ({inner}) select * from {name})"
        if self.chance(0.03):
            return f"select * from {self.rows(kinds, self.name('y'))}"
        if self.chance(0.03):
            alias = self.name("z")
            columns: Columns = [(f"{alias}.c{at}", kind) for at, kind in enumerate(kinds)]
            where = f" where {self.condition(columns, outer, depth - 1)}" if self.chance(0.5) else ""
            star = self.rng.choice(["*", f"{alias}.*", f"* replace ({alias}.c0 as c0)"])
            return f"select {star} from ({self.query(kinds, depth - 1, outer)}) {alias}{where}"
        if depth > 0 and self.chance(0.05):
            return self.paired(kinds, outer, depth)
        return self.select(kinds, depth, outer)

    def paired(self, kinds: list[str], outer: Columns, depth: int) -> str:
        """Return a query that filters the pairs of two entries by their columns, which are only related there."""
        alias, (one, ones), (other, others) = self.name("z"), self.entry(0, []), self.entry(0, [])
        items = [f"{column} as x{at}" for at, (column, _) in enumerate(ones + others)]
        columns = [(f"{alias}.x{at}", kind) for at, (_, kind) in enumerate(ones + others)]
        condition = self.condition(columns, outer, depth - 1, keys=(columns[: len(ones)], columns[len(ones) :]))
        listed = ", ".join(f"{self.simple(kind, columns, [], 0)} as c{at}" for at, kind in enumerate(kinds))
        pairs = f"{one}{self.rng.choice([', ', ' cross join '])}{other}"
        return f"select {listed} from (select {', '.join(items)} from {pairs}) {alias} where {condition}"

    def select(self, kinds: list[str], depth: int, outer: Columns) -> str:
        source, columns = self.source(depth, outer)
        grouped = self.chance(0.3)
        where = f" where {self.condition(columns, outer, depth)}" if self.chance(0.6) else ""
        if grouped:
            return f"{self.grouped(kinds, source, where, columns, outer, depth)}"
        items = [f"{self.expression(kind, columns, outer, depth)} as c{at}" for at, kind in enumerate(kinds)]
        distinct = "distinct " if self.chance(0.15) else ""
        qualify = ""
        if "int64" in kinds and self.chance(0.12):
            at = kinds.index("int64")
            items[at] = f"{self.windowed(columns)} as c{at}"
        elif "int64" in kinds and self.chance(0.04):
            at = kinds.index("int64")
            items[at] = f"unnest({self.listed(columns, outer)}) as c{at}"
        if not distinct and "unnest(" not in "".join(items) and self.chance(0.04):
            qualify = f" qualify {self.windowed(columns)} {self.rng.choice(['= 1', '> 1', 'is null', '<= 2'])}"
        found = f"select {distinct}{', '.join(items)} from {source}{where}{qualify}"
        if not distinct and "unnest(" not in found and self.chance(0.07):
            keys = [self.simple(self.kind(), columns, [], 1) for _ in range(self.rng.choice([1, 1, 2]))]
            on = list(dict.fromkeys(key if "." in key and "(" not in key else "c0" for key in keys))
            order = ", ".join(f"{key}{self.way()}" for key in on)
            found = f"select distinct on ({', '.join(on)}) {found.removeprefix('select ')} order by {order}"
            return found + self.rest(kinds)
        return found + self.page(kinds)

    def page(self, kinds: list[str]) -> str:
        """Return, sometimes, an order with a limit."""
        if not self.chance(0.1):
            return ""
        keys = self.rng.sample(range(1, len(kinds) + 1), self.rng.randrange(1, len(kinds) + 1))
        found = f" order by {', '.join(f'{key}{self.way()}' for key in keys)}{self.rest(kinds)}"
        found += f" limit {self.rng.randrange(1, 4)}"
        return found + (f" offset {self.rng.randrange(3)}" if self.chance(0.3) else "")

    def windowed(self, columns: Columns) -> str:
        """Return a call over a window whose answer no tie decides."""
        plain = [name for name, kind in columns if kind != "list"] or ["1"]
        numbers = [name for name, kind in columns if kind == "int64"] or ["1"]
        key, value = self.rng.choice(plain), self.rng.choice(numbers)
        by = f"partition by {self.rng.choice(plain)}" if self.chance(0.5) else ""
        order, own = f"order by {key}{self.way()}", f"order by {value}{self.way()}"
        calls = [f"{name} over ({by} {order})" for name in ("rank()", "dense_rank()", "count(*)", f"max({value})")]
        calls += [f"{name}({value}) over ({by} {own})" for name in ("first_value", "last_value")]
        whole = ", ".join([key + self.way(), *(name for name in plain if name != key)])
        calls += [
            f"{name}({value}) over ({by} order by {whole})" for name in ("lag", "lead") if len(plain) == len(columns)
        ]
        calls += [f"cast(sum({value}) over ({by} {order}) as bigint)", f"count({value}) over ({by})"]
        calls += [f"min({value}) filter (where {self.one_condition(columns, [], 0)}) over ({by})"]
        return self.rng.choice(calls)

    def rows(self, kinds: list[str], alias: str) -> str:
        """Return rows of constants as an entry of a `from`."""
        rows = [", ".join(self.constant(kind) for kind in kinds) for _ in range(self.rng.randrange(1, 4))]
        names = ", ".join(f"c{at}" for at in range(len(kinds)))
        return f"(values {', '.join(f'({row})' for row in rows)}) as {alias}({names})"

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
            if self.combined or self.chance(0.45):
                group = f" group by {listed}"
            else:
                group = f" group by {', '.join(self.sets(plain) for _ in range(self.rng.choice([1, 1, 1, 2])))}"
                if "int64" in kinds and not outer and self.chance(0.3):  # which is null in DuckDB there
                    items[kinds.index("int64")] = f"grouping({listed}) as c{kinds.index('int64')}"
        elif keys:
            items = [f"{self.over_groups(kind, [], columns, outer, depth)} as c{at}" for at, kind in enumerate(kinds)]
            keys = []
        having = f" having {self.over_groups('bool', keys, columns, outer, depth)}" if self.chance(0.3) else ""
        return f"select {', '.join(items)} from {source}{where}{group}{having}"

    def sets(self, keys: list[str]) -> str:
        """Return an entry of a `group by` that makes several groups of a row."""
        listed, word = ", ".join(keys), self.rng.choice(["plain", "rollup", "cube", "sets", "pair", "nested"])
        if word == "sets":
            sets = {", ".join(self.rng.sample(keys, self.rng.randrange(len(keys) + 1))): None for _ in range(3)}
            return f"grouping sets ({', '.join(f'({each})' for each in sets)})"
        if word == "nested":
            return f"grouping sets (rollup ({listed}), {self.rng.choice(keys)}, cube ({self.rng.choice(keys)}))"
        if word == "pair":
            return f"{self.rng.choice(['rollup', 'cube'])} (({listed}), {self.rng.choice(keys)})"
        return listed if word == "plain" else f"{word} ({listed})"

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
            if (
                depth > 1 and not outer and self.chance(0.1)
            ):  # with a query around, databases differ in whose rows these are
                return f"{self.rng.choice(['max', 'min', 'count'])}({self.scalar('int64', columns, depth)}){filtered}"
            if self.chance(0.3):
                return f"count(*){filtered}"
            word = self.rng.choice(["count(", "count(distinct ", "min(", "max("])
            if self.chance(0.3):
                return f"cast(sum({self.rng.choice(['', '', 'distinct '])}{self.expression('int64', columns, [], 0)}){filtered} as bigint)"
            return f"{word}{self.own('int64', columns, outer)}){filtered}"
        value, words = self.own(kind, columns, outer), ["bool_or", "bool_and"] if kind == "bool" else ["min", "max"]
        filtered = f" filter (where {self.condition(columns, [], 0)})" if self.chance(0.15) else ""
        if kind == "string" and self.chance(0.2):
            return f"string_agg({value}, '-' order by {value}{self.way()}){filtered}"
        if self.chance(0.1):
            return f"(array_agg({value} order by {value}{self.way()}){filtered})[{self.rng.choice(['1', '2', '3'])}]"
        if self.chance(0.1):
            return f"{self.rng.choice(['max', 'min'])}({value}, {self.rng.choice(['1', '2'])}){filtered}[1]"
        return f"{self.rng.choice(words)}({value}){filtered}"

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
            if word == "using" and not begin and self.chance(0.5):
                found += self.keeping(columns)
                continue
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
        if self.chance(0.2):
            comma = self.rng.choice(
                [", unnest({}) {}(i)", " cross join unnest({}) {}(i)", ", lateral unnest({}) {}(i)"]
            )
            comma = " left join unnest({}) {}(i) on true" if self.chance(0.1) else comma
            return comma.format(self.listed(columns, []), alias), [(f"{alias}.i", "int64")]
        if self.chance(0.1):
            rows = ", ".join(f"({self.simple('int64', columns, [], 0)})" for _ in range(2))
            return f", lateral (values {rows}) {alias}(c0)", [(f"{alias}.c0", "int64")]
        if depth <= 0:
            first = self.simple("int64", columns, [], 0)
            comma = self.rng.choice([",", " cross join"])
            return f"{comma} lateral generate_series({first}, 2) {alias}(i)", [(f"{alias}.i", "int64")]
        kinds = [self.kind()]
        inner, found = self.query(kinds, depth - 1, columns), [(f"{alias}.c0", kinds[0])]
        how = self.rng.choice([", lateral ({}) {}", " left join lateral ({}) {} on ", " cross join lateral ({}) {}"])
        if how.endswith("on "):
            how += (
                "true"
                if self.chance(0.6)
                else self.one_condition(columns + found, [], 0).replace("{", "").replace("}", "")
            )
        return how.format(inner, alias), found

    def keeping(self, columns: Columns) -> str:
        """Return a semi or anti join with a table on columns of the same name; nothing where there are none."""
        count = Counter(column.rpartition(".")[2] for column, _ in columns if column.count(".") < 2)
        kinds = {column.rpartition(".")[2]: kind for column, kind in columns if column.count(".") < 2}
        table = self.rng.choice(list(TABLES))
        shared = [name for name in TABLES[table] if name in kinds]
        same = [name for name in shared if count[name] == 1 and kinds[name] == kind_of(table, name)]
        word = self.rng.choice(["semi", "anti"])
        if same == shared and same and self.chance(0.4):
            return f" natural {word} join {table} {self.name('r')}"
        return f" {word} join {table} {self.name('r')} using ({', '.join(same)})" if same else ""

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
        if self.chance(0.03):
            key, value = self.rng.choice([("a", "b"), ("b", "a"), ("s", "b")])
            inner = f"select {key}, array_agg({value} order by {value}{self.way()}) as l from t group by {key}"
            return f"({inner}) {alias}", [(f"{alias}.{key}", kind_of("t", key)), (f"{alias}.l", "list")]
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
        return f"{name} {alias}", columns_of(name, alias)
