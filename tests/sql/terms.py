"""Random expressions and conditions over columns, with subqueries that read what is around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

TABLES = {
    "t": {"a": "int64", "b": "int64?", "s": "string?"},
    "u": {"a": "int64?", "c": "int64", "d": "date?"},
    "v": {"k": "int64?", "x": "int64?"},
    "w": {"a": "int64", "f": "bool?", "m": "decimal(10, 2)?"},
    "n": {"a": "int64", "p": "struct[i: int64?, s: string?]?"},
}
FLAT = ("t", "u", "v", "w")
"""The tables whose values all have an order."""
SQL = {"int64": "bigint", "string": "varchar", "date": "date", "bool": "boolean", "decimal": "decimal(10, 2)"}
SQL |= {"struct": "struct(i bigint, s varchar)"}
Columns = list[tuple[str, str]]
"""What expressions may name, with the kind of its value."""


def kind_of(table: str, column: str) -> str:
    return TABLES[table][column].replace("[", "(").partition("(")[0].strip("?")


def columns_of(table: str, alias: str) -> Columns:
    """Return the columns of a table, and the fields of its structs, under an alias."""
    found = [(f"{alias}.{column}", kind_of(table, column)) for column in TABLES[table]]
    return found + [(f"{name}.{field}", inner) for name, kind in found if kind == "struct" for field, inner in FIELDS]


FIELDS = (("i", "int64"), ("s", "string"))


class Terms:
    """Makes expressions. A query that stands in one comes from whoever makes statements of them."""

    rng: random.Random

    def query(self, kinds: list[str], depth: int, outer: Columns) -> str:
        """Return a query with columns c0, c1, ... of these kinds."""
        raise NotImplementedError

    def source(self, depth: int, outer: Columns) -> tuple[str, Columns]:
        """Return entries of a `from` with joins between them, and their columns."""
        raise NotImplementedError

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def kind(self) -> str:
        return self.rng.choice(["int64"] * 5 + ["string", "date", "bool", "decimal"])

    def way(self) -> str:
        return self.rng.choice(["", "", " desc", " nulls first", " desc nulls last"])

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
        if self.chance(0.05):
            return self.member(columns, outer)
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
            if way == 1 and self.chance(0.1):
                inner = f"values {', '.join(f'({self.simple(kind, columns, outer, 0)})' for _ in range(3))}"
            elif way == 1 and self.chance(0.3):
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
        kind = self.rng.choice(sorted({kind for _, kind in everything} - {"list"}) or ["int64"])
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
        sign = self.rng.choice(["=", "<>"]) if kind == "struct" else self.comparison()
        return f"{one} {sign} {self.simple(kind, columns, outer, 0)}"

    def member(self, columns: Columns, outer: Columns) -> str:
        """Return a search of a list, or of rows of values without nulls, which DuckDB compares as values."""
        if self.chance(0.3):
            words = self.rng.choice(["any", "all"])
            return f"{self.simple('int64', columns, outer, 0)} {self.comparison()} {words}(coalesce({self.listed(columns, outer)}, []))"
        if self.chance(0.6):
            word = self.rng.choice(["array_contains", "list_contains"])
            return f"{word}({self.listed(columns, outer)}, {self.constant('int64', null=False)})"
        pairs = ", ".join(f"({self.constant('int64', null=False)}, 'x')" for _ in range(2))
        whole, text = self.own("int64", columns, []), self.own("string", columns, [])
        word = self.rng.choice(["in", "not in"])
        return f"(coalesce({whole}, 7), coalesce({text}, 'x')) {word} ({pairs})"

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
            asked = self.condition(columns, outer, depth - 1 if self.chance(0.3) else 0)
            return f"case when {asked} then {self.simple(kind, columns, outer, 0)} else {self.simple(kind, columns, outer, 0)} end"
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
                f"({whole} // 2)",
                f"cast({whole} / 2 as bigint)",
                f"greatest({whole}, {one('int64')})",
                f"least({whole}, 2, {one('int64')})",
                f"({day} - {one('date')})",
                f"date_sub('month', {day}, {one('date')})",
                f"({self.listed(columns, outer)})[-1]",
                f"extract(month from {day})",
                f"{one('decimal')}::bigint",
                f"try_cast({text} as bigint)",
                f"nullif({whole}, 1)",
                f"date_diff('day', {day}, {one('date')})",
                f"day({day})",
                f"strpos({text}, 'x')",
                f"cast(floor({one('decimal')}) as bigint)",
                f"({self.listed(columns, outer)})[{self.rng.choice(['1', '2', '3', whole])}]",
                f"array_length({self.listed(columns, outer)})",
                f"({whole} & {one('int64')})",
                f"xor({whole}, 3)",
                f"(~ {whole})",
                f"(cast({whole} as bigint) >> 1)",
                f"bit_count(cast({whole} as bigint))",
                f"ascii({text})",
                f"isoyear({day})",
                f"list_position({self.listed(columns, outer)}, 2)",
                f"coalesce({whole}, {one('int64')}, 3)",
                f"({one('struct')}).i",
                f"{{'i': {whole}, 'z': {text}}}['i']",
                f"case {whole} when 1 then 2 when {one('int64')} then 0 end",
            ],
            "string": [
                f"cast({self.rng.choice([whole, day, one('bool')])} as varchar)",
                f"({text} || 'x')",
                f"upper({text})",
                f"concat({text}, {whole})",
                f"{text}[-1]",
                f"regexp_replace({text}, '[xy]', 'z')",
                f"regexp_extract({text}, 'y')",
                f"split_part({text}, '', 1)",
                f"substr({text}, 1, 1)",
                f"{whole}::varchar",
                f"replace({text}, 'x', '')",
                f"hex(cast({whole} as bigint))",
                f"hex({text})",
                f"(('[' || {whole} || ']') ->> 0)",
                f"(coalesce({one('struct')}, {self.constant('struct')})).s",
                f"{text}[2:]",
            ],
            "date": [
                f"nullif({day}, date '2020-01-02')",
                f"coalesce({day}, {one('date')}, date '2020-01-03')",
                f"cast({day} + interval '1' day as date)",
                f"({day} + 1)",
                f"({day} - {whole}::int)",
                f"cast({day} - interval 1 month as date)",
                f"cast(date_trunc('month', {day}) as date)",
            ],
            "bool": [
                f"({text} ilike 'X%')",
                f"starts_with({text}, 'x')",
                f"({whole} = 1)",
                f"({day} < {one('date')} + interval '1' month)",
                f"(date_trunc('month', {day}) = {one('date')})",
                f"({whole} / 2 > 0.5)",
                f"cast({whole} as boolean)",
            ],
            "decimal": [f"cast({whole} as decimal(10, 2))", f"(- {one('decimal')})", f"abs({one('decimal')})"],
        }
        return self.rng.choice(ways[kind])

    def listed(self, columns: Columns, outer: Columns) -> str:
        """Return a list of whole numbers."""
        if self.chance(0.1):
            bounds = [self.rng.choice(["", str(self.rng.randrange(1, 4))]) for _ in range(2)]
            return f"({self.listed(columns, outer)})[{':'.join(bounds)}]"
        found = [name for name, kind in columns + outer if kind == "list"]
        if found and self.chance(0.8):
            return self.rng.choice(found)
        return f"[{', '.join(self.simple('int64', columns, outer, 0) for _ in range(self.rng.randrange(1, 4)))}]"

    def simple(self, kind: str, columns: Columns, outer: Columns, depth: int) -> str:
        found = [name for name, each in columns if each == kind]
        around = [name for name, each in outer if each == kind]
        if around and self.chance(0.4):
            return self.rng.choice(around)
        if found and self.chance(0.9):
            return self.rng.choice(found)
        return self.constant(kind)

    def constant(self, kind: str, *, null: bool = True) -> str:
        if null and self.chance(0.1) and kind != "list":
            return f"cast(null as {SQL[kind]})"
        return {
            "int64": str(self.rng.randrange(4)),
            "string": self.rng.choice(["''", "'x'", "'z'"]),
            "date": f"date '2020-01-0{self.rng.randrange(1, 4)}'",
            "bool": self.rng.choice(["true", "false"]),
            "list": "[1, 2]",
            "struct": "{'i': 1, 's': 'x'}",
            "decimal": f"cast({self.rng.randrange(-5, 6)} as decimal(10, 2))",
        }[kind]

    def own(self, kind: str, columns: Columns, outer: Columns) -> str:
        found = [name for name, each in columns if each == kind]
        return self.rng.choice(found) if found else self.constant(kind)
