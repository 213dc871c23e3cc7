"""Random statements with window functions, over orders in which every answer is one: what ties decide is ordered by all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sql.terms import FLAT, TABLES

if TYPE_CHECKING:
    import random

NULLS = ["", "", " desc", " nulls first", " desc nulls last"]


class WindowStatements:
    """Makes statements over one table, or a derived or grouped one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def statement(self) -> str:
        """Return a whole statement."""
        name = self.rng.choice(FLAT)
        kinds = {column: kind.partition("(")[0].strip("?") for column, kind in TABLES[name].items()}
        source = name if self.rng.random() < 0.8 else f"(select * from {name} where {next(iter(kinds))} > 0) {name}"
        if self.rng.random() < 0.2:
            return self.over_groups(name, kinds)
        if self.rng.random() < 0.7:  # of two copies of a row, windows in two orders may tell apart one or the other
            source, most = f"(select distinct * from {source}) {name}", 4
        else:
            most = 2
        named = ""
        items = []
        for at in range(self.rng.randrange(1, most)):
            call, over = self.windowed(kinds)
            if not named and self.rng.random() < 0.2:
                named, over = f" window w as ({over})", "w"
            items.append(f"{call} over {over if over == 'w' else f'({over})'} as c{at}")
        qualify = ""
        if most > 2 and self.rng.random() < 0.3:
            call, over = self.windowed(kinds, integer=True)
            qualify = f" qualify {call} over ({over}) {self.rng.choice(['= 1', '> 1', '<= 2'])}"
        elif self.rng.random() < 0.2:
            qualify = " qualify c0 is not null"
        return f"select {', '.join([*kinds, *items])} from {source}{named}{qualify}"

    def over_groups(self, name: str, kinds: dict[str, str]) -> str:
        key = self.rng.choice(list(kinds))
        number = self.rng.choice([column for column, kind in kinds.items() if kind == "int64"])
        total = f"{self.rng.choice(['max', 'min', 'count'])}({number})"
        calls = [f"rank() over (order by {total}{self.rng.choice(NULLS)})", f"max({total}) over (order by {key})"]
        calls += [f"row_number() over (order by {key})", f"count(*) over (partition by {total})"]
        return f"select {key}, {total} as z, {self.rng.choice(calls)} as c0 from {name} group by {key}"

    def windowed(self, kinds: dict[str, str], *, integer: bool = False) -> tuple[str, str]:
        """Return a call and its window."""
        columns = list(kinds)
        by = self.rng.sample(columns, self.rng.randrange(3))
        keys = self.rng.sample(columns, self.rng.randrange(1, 3))
        way = self.rng.randrange(2 if integer else 5)
        whole = [*keys, *(column for column in columns if column not in keys)]
        value = self.rng.choice(columns)
        if way == 0:
            call = self.rng.choice(
                ["rank()", "dense_rank()", "count(*)"] + ([] if integer else ["percent_rank()", "cume_dist()"])
            )
            return call, self.over(by, keys, "")
        if way == 1:
            return self.rng.choice(["row_number()", "ntile(2)", "ntile(3)"]), self.over(by, whole, "")
        if way == 2:
            far = self.rng.choice(["", ", 0", ", 2", f", 1, {value}"])
            return f"{self.rng.choice(['lag', 'lead'])}({value}{far}{self.nulls()})", self.over(by, whole, "")
        if way == 3:
            call = self.rng.choice(
                [
                    f"first_value({value}{self.nulls()})",
                    f"last_value({value}{self.nulls()})",
                    f"nth_value({value}, 2{self.nulls()})",
                    f"{self.rng.choice(['first', 'last', 'any_value'])}({value})",
                    self.aggregate(kinds),
                ]
            )
            return call, self.over(by, whole, self.frame(self.rng.choice(["rows", "groups"]), ["0", "1", "2"]))
        if self.rng.random() < 0.5:
            return self.aggregate(kinds), self.over(by, keys, self.frame("groups", ["0", "1", "2"]))
        key = self.rng.choice([column for column, kind in kinds.items() if kind in ("int64", "date", "decimal")])
        far = {
            "int64": ["0", "1", "2"],
            "date": ["interval '1' day", "interval '0' day", "interval '1' month"],
            "decimal": ["0.25", "1"],
        }[kinds[key]]
        return self.aggregate(kinds), self.over(by, [key], self.frame("range", far))

    def nulls(self) -> str:
        return self.rng.choice(["", " ignore nulls", " respect nulls"])

    def aggregate(self, kinds: dict[str, str]) -> str:
        column = self.rng.choice(list(kinds))
        forms = ["count(*)", "count({})", "min({})", "max({})"]
        if kinds[column] in ("int64", "decimal"):
            forms += ["sum({})", "avg({})"] if kinds[column] == "int64" else ["sum({})"]
        call = self.rng.choice(forms).format(column)
        return call + (f" filter (where {column} is not null)" if self.rng.random() < 0.1 else "")

    def over(self, by: list[str], keys: list[str], frame: str) -> str:
        partition = f"partition by {', '.join(by)} " if by else ""
        return f"{partition}order by {', '.join(key + self.rng.choice(NULLS) for key in keys)}{frame}"

    def frame(self, unit: str, far: list[str]) -> str:
        places = ["unbounded preceding", *(f"{each} preceding" for each in far), "current row"]
        places += [*(f"{each} following" for each in far), "unbounded following"]
        ranks = {place: 0 if "preceding" in place else 1 if place == "current row" else 2 for place in places}
        start = self.rng.choice(places[:-1])
        end = self.rng.choice([place for place in places[1:] if ranks[place] >= ranks[start]])
        exclude = self.rng.choice(
            ["", "", " exclude current row", " exclude group", " exclude ties", " exclude no others"]
        )
        return f" {unit} between {start} and {end}{exclude}"
