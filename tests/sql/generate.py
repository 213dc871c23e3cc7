"""Random statements over the judge's tables: joins of all kinds, nested and correlated subqueries, groups, sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.judge import TABLES

if TYPE_CHECKING:
    import random

NUMBERS, OTHERS = ("int64",), ("string", "date", "bool", "decimal")
Columns = list[tuple[str, str]]
"""What expressions may name, with the kind of its value."""


class Statements:
    """Makes statements; `depth` is how deep queries may stand inside each other.

    Documented differences are not made: integer division, `order by` with ties and a limit, functions that differ.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = 0
        self.ctes: list[tuple[str, Columns]] = []

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
                parts.append(f"{name} as ({self.query(kinds, 2, [])})")
                self.ctes.append((name, [(f"c{at}", kind) for at, kind in enumerate(kinds)]))
            found = f"with {', '.join(parts)} "
        return found + self.query([self.kind() for _ in range(self.rng.randrange(1, 4))], 3, [])

    def kind(self) -> str:
        return self.rng.choice(["int64"] * 5 + ["string", "date", "bool", "decimal"])

    def query(self, kinds: list[str], depth: int, outer: Columns) -> str:
        """Return a query with columns c0, c1, ... of these kinds."""
        if depth > 0 and self.chance(0.15):
            word = self.rng.choice(["union", "union all", "intersect", "intersect all", "except", "except all"])
            return f"({self.query(kinds, depth - 1, outer)}) {word} ({self.query(kinds, depth - 1, outer)})"
        if self.chance(0.03):
            rows = [", ".join(self.constant(kind) for kind in kinds) for _ in range(self.rng.randrange(1, 3))]
            names = ", ".join(f"c{at}" for at in range(len(kinds)))
            return f"select * from (values {', '.join(f'({row})' for row in rows)}) as {self.name('y')}({names})"
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
        if self.chance(0.1):
            order = ", ".join(
                f"{at + 1}{self.rng.choice(['', ' desc', ' nulls first', ' desc nulls last'])}"
                for at in range(len(kinds))
            )
            found = f"{found} order by {order} limit {self.rng.randrange(1, 4)}"
            if self.chance(0.3):
                found += f" offset {self.rng.randrange(3)}"
        return found

    def grouped(self, kinds: list[str], source: str, where: str, columns: Columns, outer: Columns, depth: int) -> str:
        keys: Columns = []
        for _ in range(self.rng.randrange(3)):
            kind = self.rng.choice([kind for _, kind in columns])
            keys.append((self.simple(kind, columns, [], 1), kind))
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
            word = self.rng.choice(["", "", "", "rollup", "cube", "sets"])
            if word == "sets":
                sets = [", ".join(self.rng.sample(plain, self.rng.randrange(len(plain) + 1))) for _ in range(2)]
                group = f" group by grouping sets ({', '.join(f'({each})' for each in sets)})"
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
                return f"cast(sum({self.expression('int64', columns, [], 0)}){filtered} as bigint)"
            return f"{word}{self.own('int64', columns, outer)}){filtered}"
        return (
            f"{self.rng.choice(['min', 'max'])}({self.own(kind, columns, outer)})"
            if kind != "bool"
            else f"bool_or({self.own(kind, columns, outer)})"
        )

    def own(self, kind: str, columns: Columns, outer: Columns) -> str:
        found = [name for name, each in columns if each == kind]
        return self.rng.choice(found) if found else self.constant(kind)

    # --- from -------------------------------------------------------------------------------------------------------

    def source(self, depth: int, outer: Columns) -> tuple[str, Columns]:
        found, columns = self.entry(depth, outer)
        for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2])):
            word = self.rng.choice(["join", "left join", "right join", "full join", ",", "cross join", "lateral"])
            if word == "lateral" and depth > 0:
                alias, kinds = self.name("l"), [self.kind()]
                inner = self.query(kinds, depth - 1, columns)
                how = self.rng.choice(
                    [", lateral ({}) {}", " left join lateral ({}) {} on true", " cross join lateral ({}) {}"]
                )
                found += how.format(inner, alias)
                columns = [*columns, (f"{alias}.c0", kinds[0])]
                continue
            other, more = self.entry(depth, outer)
            if word in (",", "cross join", "lateral"):
                found += f", {other}" if word == "," else f" cross join {other}"
            else:
                found += f" {word} {other} on {self.condition(columns + more, [] if self.chance(0.8) else outer, depth if self.chance(0.2) else 0, keys=(columns, more))}"
            columns = columns + more
        return found, columns

    def entry(self, depth: int, outer: Columns) -> tuple[str, Columns]:
        alias = self.name("r")
        if self.ctes and self.chance(0.3):
            name, columns = self.rng.choice(self.ctes)
            return f"{name} {alias}", [(f"{alias}.{each}", kind) for each, kind in columns]
        if depth > 1 and self.chance(0.2):
            kinds = [self.kind() for _ in range(self.rng.randrange(1, 3))]
            return f"({self.query(kinds, depth - 1, outer)}) {alias}", [
                (f"{alias}.c{at}", kind) for at, kind in enumerate(kinds)
            ]
        name = self.rng.choice(list(TABLES))
        return f"{name} {alias}", [
            (f"{alias}.{column}", kind.partition("(")[0].strip("?")) for column, kind in TABLES[name].items()
        ]

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
        if depth > 0 and self.chance(0.5):
            way = self.rng.randrange(5)
            negated = self.rng.choice(["", "not "])
            if way == 0:
                return f"{negated}exists ({self.query([self.kind()], depth - 1, everything)})"
            kind = self.kind()
            value = self.expression(kind, columns, outer, 0)
            inner = self.query([kind], depth - 1, everything)
            if way in (1, 2):
                return f"{value} {negated}in ({inner})"
            if way == 3:
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
            return f"{one} {self.rng.choice(['', 'not '])}between {self.rng.randrange(3)} and {self.rng.randrange(4)}"
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
            return f"(select {self.own(kind, columns, outer)} from {source}{where} order by 1 limit 1)"
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
        return self.simple(kind, columns, outer, depth)

    def simple(self, kind: str, columns: Columns, outer: Columns, depth: int) -> str:
        found = [name for name, each in columns if each == kind]
        around = [name for name, each in outer if each == kind]
        if around and self.chance(0.4):
            return self.rng.choice(around)
        if found and self.chance(0.9):
            return self.rng.choice(found)
        return self.constant(kind)

    def constant(self, kind: str, *, null: bool = True) -> str:
        sql = {"int64": "bigint", "string": "varchar", "date": "date", "bool": "boolean", "decimal": "decimal(10, 2)"}
        if null and self.chance(0.1):
            return f"cast(null as {sql[kind]})"
        return {
            "int64": str(self.rng.randrange(4)),
            "string": self.rng.choice(["''", "'x'", "'z'"]),
            "date": f"date '2020-01-0{self.rng.randrange(1, 4)}'",
            "bool": self.rng.choice(["true", "false"]),
            "decimal": f"cast({self.rng.randrange(-5, 6)} as decimal(10, 2))",
        }[kind]
