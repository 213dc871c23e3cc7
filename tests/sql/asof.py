"""Random statements with as-of joins, of right sides in which every answer is one: the rows of a key have different values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.terms import FLAT, TABLES, kind_of

if TYPE_CHECKING:
    import random

COMPARED = ("int64", "date", "decimal")


class AsofStatements:
    """Makes statements that join two tables, or more."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def statement(self) -> str:
        """Return a whole statement."""
        name = self.rng.choice(FLAT)
        left, columns = f"{name} l", [(f"l.{column}", kind_of(name, column)) for column in TABLES[name]]
        if self.rng.random() < 0.2:
            left, columns = f"{left} join t m on l.{next(iter(TABLES[name]))} = m.a", [*columns, ("m.b", "int64")]
        joined, found = self.joined("r", columns)
        if self.rng.random() < 0.2:
            more, columns = self.joined("s", columns)
            joined, found = joined + more, found + columns
        where = f" where {self.rng.choice(found)} is not null" if self.rng.random() < 0.3 else ""
        items = ", ".join(f"{each} as c{at}" for at, each in enumerate(found))
        return f"select {items} from {left}{joined}{where}"

    def joined(self, alias: str, columns: list[tuple[str, str]]) -> tuple[str, list[str]]:
        """Return a join with the rows of a table, one for each value of some columns, and the columns that may be asked for."""
        while True:
            name = self.rng.choice(FLAT)
            kinds = {column: kind_of(name, column) for column in TABLES[name]}
            pairs = [(one, other) for one, kind in columns for other, same in kinds.items() if kind == same]
            near = [pair for pair in pairs if kinds[pair[1]] in COMPARED]
            if near:
                break
        at = self.rng.choice(near)
        on = [pair for pair in self.rng.sample(pairs, min(len(pairs), self.rng.randrange(3))) if pair[1] != at[1]]
        keys = list(dict.fromkeys([at[1], *(other for _, other in on)]))
        rest = [f"max({column}) as {column}" for column in kinds if column not in keys]
        source = f"(select {', '.join([*keys, *rest])} from {name} group by {', '.join(keys)}) {alias}"
        sign = self.rng.choice([">=", ">=", ">", "<=", "<"])
        compared = f"{at[0]} {sign} {alias}.{at[1]}"
        if self.rng.random() < 0.2:
            compared = f"{alias}.{at[1]} {dict(zip(('>=', '>', '<=', '<'), ('<=', '<', '>=', '>'), strict=True))[sign]} {at[0]}"
        parts = [f"{one} = {alias}.{other}" for one, other in on]
        parts.insert(self.rng.randrange(len(parts) + 1), compared)
        word = self.rng.choice(["asof join", "asof left join"])
        return f" {word} {source} on {' and '.join(parts)}", [*dict(columns), *(f"{alias}.{each}" for each in kinds)]
