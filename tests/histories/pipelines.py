"""Random pipelines, each collection twice: as the pipeline file has it, by operators or SQL, and as a query that DuckDB answers."""

from __future__ import annotations

from dataclasses import dataclass

from tests.histories.inputs import Column

MIXED = ("a", "b", "c")


@dataclass
class Collection:
    """A collection: its part of the pipeline file, its query, and its columns."""

    name: str
    spec: dict
    sql: str
    columns: list


def quoted(name):
    return f'"{name}"'


class Writer:
    """Draws collections over others."""

    def __init__(self, chance, *, clock):
        self.chance, self.clock, self.fresh = chance, clock, 0

    def name(self, stem):
        self.fresh += 1
        return f"{stem}{self.fresh}"

    # Expressions, which mean the same in DuckDB.

    def of(self, columns, *kinds):
        return [column for column in columns if column.kind in kinds]

    def condition(self, columns, depth=1):
        chance = self.chance
        if depth and chance.random() < 0.25:
            joined = chance.choice([" and ", " or "]).join(self.condition(columns, depth - 1) for _ in range(2))
            return f"({joined})" if chance.random() < 0.7 else f"not ({joined})"
        column = chance.choice(columns)
        name = quoted(column.name)
        least = {
            "int": str(chance.randrange(0, 4)),
            "text": f"'{chance.choice('abc')}'",
            "dec": str(chance.randrange(-100, 400) / 100),
            "date": f"date '2024-02-{chance.choice([28, 29])}'",
            "bool": "true",
            "float": str(chance.randrange(0, 4)),
        }[column.kind]
        said = [f"{name} {chance.choice(['>', '<', '>=', '<=', '=', '<>'])} {least}"]
        said.append(f"{name} is {chance.choice(['', 'not '])}null")
        said.append(f"{name} is distinct from {least}")
        if column.kind == "int":
            said += [
                f"{name} in (0, 1, {least})",
                f"{name} between 0 and {least}",
                f"{name} % 2 = 0",
                f"{name} not in (1, 2)",
            ]
        if column.kind == "text":
            said += [f"{name} like 'a%'", f"{name} in ('a', 'B')", f"length({name}) > 1", f"upper({name}) = 'A'"]
        return chance.choice(said)

    def expression(self, columns):
        """Return an expression and its kind."""
        chance = self.chance
        column = chance.choice(columns)
        name = quoted(column.name)
        match column.kind:
            case "int":
                other = quoted(chance.choice(self.of(columns, "int")).name)
                said = [f"{name} + 1", f"{name} * 2", f"abs({name})", f"{name} % 3", f"coalesce({name}, 0)"]
                said += [
                    f"{name} - {other}",
                    f"greatest({name}, {other})",
                    f"nullif({name}, 2)",
                    f"{name} // 2",
                    f"-{name}",
                ]
                if chance.random() < 0.2:
                    return f"cast({name} as varchar)", "text"
                return chance.choice(said), "int"
            case "text":
                if chance.random() < 0.2:
                    return f"length({name})", "int"
                said = [
                    f"upper({name})",
                    f"{name} || 'x'",
                    f"coalesce({name}, '-')",
                    f"left({name}, 1)",
                    f"concat({name}, '-', {name})",
                ]
                return chance.choice(
                    [*said, f"replace({name}, 'a', 'z')", f"case when {name} = 'a' then 'A' else {name} end"]
                ), "text"
            case "dec":
                if chance.random() < 0.2:
                    return f"cast(floor({name}) as bigint)", "int"
                return chance.choice([f"{name} + 1", f"-{name}", f"coalesce({name}, 0)", f"abs({name})"]), "dec"
            case "date":
                if chance.random() < 0.5:
                    return chance.choice([f"day({name})", f"month({name})"]), "int"
                return f"{name} + 1", "date"
        if chance.random() < 0.5:
            return f"case when {self.condition(columns)} then 1 else 0 end", "int"
        return name, column.kind

    def aggregate(self, columns):
        """Return an aggregate and its kind."""
        chance = self.chance
        column = chance.choice(columns)
        name = quoted(column.name)
        said = [("count(*)", "int"), (f"count({name})", "int"), (f"count(distinct {name})", "int")]
        if column.kind != "bool":
            said += [(f"min({name})", column.kind), (f"max({name})", column.kind)] * 2
        if column.kind == "int":
            said += [(f"sum({name})", "int")] * 3 + [(f"sum({name}) filter (where {self.condition(columns)})", "int")]
            said += [(f"avg({name})", "float"), (f"median({name})", "float")]
        if column.kind == "dec":
            said += [(f"sum({name})", "dec")] * 3
        if column.kind == "text":
            said.append((f"string_agg({name}, ',' order by {name})", "text"))
        if column.kind == "bool":
            said += [(f"bool_or({name})", "bool"), (f"bool_and({name})", "bool")]
        return chance.choice(said)

    def keys(self, columns, most=2):
        """Return columns to group or join by: never all floats, which nobody groups by."""
        usual = [column for column in columns if column.kind != "float"] or columns
        return self.chance.sample(usual, self.chance.randint(1, min(most, len(usual))))

    # Operators. Each takes a list of columns and the query below, and returns its spec, its query, and its columns.

    def filter(self, columns, below, _known):
        said = self.condition(columns)
        return {"filter": said}, f"select * from ({below}) where {said}", columns

    def extend(self, columns, below, _known):
        said, kind = self.expression(columns)
        name = self.name("e")
        return (
            {"extend": {name: said}},
            f"select *, {said} as {name} from ({below})",
            [*columns, Column(name, kind, True)],
        )

    def map(self, columns, below, _known):
        made = {}
        kept = []
        for _ in range(self.chance.randint(1, 3)):
            said, kind = self.expression(columns)
            name = self.name("m")
            made[name] = said
            kept.append(Column(name, kind, True))
        for column in self.keys(columns):
            made[column.name] = quoted(column.name)
            kept.append(column)
        listed = ", ".join(f"{said} as {quoted(name)}" for name, said in made.items())
        return {"map": made}, f"select {listed} from ({below})", kept

    def project(self, columns, below, _known):
        kept = self.keys(columns, 4)
        return {"project": [c.name for c in kept]}, f"select {self.list(kept)} from ({below})", kept

    def rename(self, columns, below, _known):
        old = self.chance.choice(columns)
        new = Column(self.name("r"), old.kind, old.nullable)
        kept = [new if column is old else column for column in columns]
        listed = ", ".join(quoted(c.name) + (f" as {new.name}" if c is old else "") for c in columns)
        return {"rename": {old.name: new.name}}, f"select {listed} from ({below})", kept

    def distinct(self, columns, below, _known):
        kept = self.keys(columns, 3)
        names = [c.name for c in kept]
        return [{"project": names}, "distinct"], f"select distinct {self.list(kept)} from ({below})", kept

    def reduce(self, columns, below, _known):
        by = self.keys(columns) if self.chance.random() < 0.85 else []
        made, kept = {}, [*by]
        for _ in range(self.chance.randint(1, 3)):
            said, kind = self.aggregate(columns)
            name = self.name("g")
            made[name] = said
            kept.append(Column(name, kind, True))
        listed = ", ".join([*(quoted(c.name) for c in by), *(f"{said} as {name}" for name, said in made.items())])
        grouped = f" group by {self.list(by)}" if by else " having count(*) > 0"
        return {"reduce": {"by": [c.name for c in by], **made}}, f"select {listed} from ({below}){grouped}", kept

    def count(self, columns, below, _known):
        by = self.keys(columns)
        name = self.name("n")
        query = f"select {self.list(by)}, count(*) as {name} from ({below}) group by {self.list(by)}"
        return {"count": {"by": [c.name for c in by], "as": name}}, query, [*by, Column(name, "int")]

    def pair(self, columns, known):
        """Return another collection, and columns of both sides to join by, or None."""
        other = self.chance.choice(known)
        pairs = [(a, b) for a in columns for b in other.columns if a.kind == b.kind and a.kind != "float"]
        return (other, self.chance.sample(pairs, 1)) if pairs else (None, ())

    def join(self, columns, below, known):
        other, pairs = self.pair(columns, known)
        if not other:
            return self.filter(columns, below, known)
        # The other side gets names of its own, so that no name is in both.
        names = {column.name: self.name("j") for column in other.columns}
        right = ", ".join(f"{quoted(old)} as {new}" for old, new in names.items())
        how = self.chance.choice(["inner", "inner", "left", "right", "full"])
        on = {left.name: names[there.name] for left, there in pairs}
        spec = {
            "with": {"from": other.name, "apply": [{"map": {new: quoted(old) for old, new in names.items()}}]},
            "on": on,
        }
        if how != "inner":
            spec["how"] = how
        matched = " and ".join(f"l.{quoted(a)} = r.{b}" for a, b in on.items())
        left_names = [
            f"coalesce(l.{quoted(c.name)}, r.{on[c.name]}) as {quoted(c.name)}"
            if c.name in on
            else f"l.{quoted(c.name)}"
            for c in columns
        ]
        others = [c for c in other.columns if names[c.name] not in on.values()]
        listed = ", ".join([*left_names, *(f"r.{names[c.name]}" for c in others)])
        query = f"select {listed} from ({below}) l {how} join (select {right} from {quoted(other.name)}) r on {matched}"
        kept = [Column(c.name, c.kind, True) for c in columns] + [Column(names[c.name], c.kind, True) for c in others]
        return {"join": spec}, query, kept

    def semijoin(self, columns, below, known):
        other, pairs = self.pair(columns, known)
        if not other:
            return self.filter(columns, below, known)
        which = self.chance.choice(["semijoin", "antijoin"])
        on = {left.name: there.name for left, there in pairs}
        matched = " and ".join(f"l.{quoted(a)} = r.{quoted(b)}" for a, b in on.items())
        negated = "not " if which == "antijoin" else ""
        query = (
            f"select * from ({below}) l where {negated}exists (select 1 from {quoted(other.name)} r where {matched})"
        )
        return {which: {"with": other.name, "on": on}}, query, columns

    def concat(self, columns, below, known):
        """Add rows of another collection with the same kinds of columns, as many as both have."""
        other = self.chance.choice(known)
        kept, there = [], [*other.columns]
        for column in columns:
            match = next((c for c in there if c.kind == column.kind), None)
            if match:
                there.remove(match)
                kept.append((Column(self.name("u"), column.kind, True), column, match))
        if not kept:
            return self.distinct(columns, below, known)
        first = {new.name: quoted(old.name) for new, old, _ in kept}
        second = {new.name: quoted(old.name) for new, _, old in kept}
        said = [", ".join(f"{old} as {new}" for new, old in half.items()) for half in (first, second)]
        query = f"select {said[0]} from ({below}) union all select {said[1]} from {quoted(other.name)}"
        spec = [{"map": first}, {"concat": [{"from": other.name, "apply": [{"map": second}]}]}]
        return spec, query, [new for new, _, _ in kept]

    def top_k(self, columns, below, _known):
        by = self.keys(columns, 1)
        k, down = self.chance.randint(1, 3), self.chance.choice(["", " desc"])
        lead = self.chance.choice(columns)
        order = [lead] + [c for c in columns if c is not lead]
        said = [f"{quoted(lead.name)}{down}", *(quoted(c.name) for c in order[1:])]
        over = (
            (f"partition by {self.list(by)} " if by else "") + "order by " + ", ".join(f"{s} nulls last" for s in said)
        )
        query = f"select * from ({below}) qualify row_number() over ({over}) <= {k}"
        return {"top_k": {"by": [c.name for c in by], "k": k, "order_by": said}}, query, columns

    def window(self, columns, below, _known):
        by = self.keys(columns, 1) if self.chance.random() < 0.8 else []
        down = self.chance.choice(["", " desc"])
        lead = self.chance.choice(columns)
        order = [lead] + [c for c in columns if c is not lead]
        said = [f"{quoted(lead.name)}{down}", *(quoted(c.name) for c in order[1:])]
        column = self.chance.choice(columns)
        calls = [("row_number()", "int"), ("rank()", "int"), (f"lag({quoted(column.name)})", column.kind)]
        calls += [
            (f"lead({quoted(column.name)})", column.kind),
            ("count(*)", "int"),
            (f"max({quoted(column.name)})", column.kind),
        ]
        if column.kind in ("int", "dec"):
            calls += [(f"sum({quoted(column.name)})", column.kind)] * 2
        calls = [call for call in calls if call[1] != "bool"]
        call, kind = self.chance.choice(calls)
        name = self.name("w")
        over = (
            (f"partition by {self.list(by)} " if by else "") + "order by " + ", ".join(f"{s} nulls last" for s in said)
        )
        spec = {"order_by": said, "columns": {name: call}, **({"by": [c.name for c in by]} if by else {})}
        if self.chance.random() < 0.4:
            frame = self.chance.choice(
                ["rows between 1 preceding and current row", "rows between unbounded preceding and unbounded following"]
            )
            spec["frame"] = frame
            over += f" {frame}"
        else:
            over += " range between unbounded preceding and current row"
        query = f"select *, {call} over ({over}) as {name} from ({below})"
        return {"window": spec}, query, [*columns, Column(name, kind, True)]

    def flat_map(self, columns, below, _known):
        numbers = self.of(columns, "int")
        if not numbers:
            return self.extend(columns, below, _known)
        name, to = self.name("f"), self.chance.choice(numbers)
        said = f"generate_series(1, {quoted(to.name)})"
        query = f"select *, unnest({said}) as {name} from ({below})"
        return {"flat_map": {name: said}}, query, [*columns, Column(name, "int", True)]

    def list(self, columns, table=None):
        return ", ".join(f"{table}.{quoted(c.name)}" if table else quoted(c.name) for c in columns)

    OPERATORS = (
        *("filter", "filter", "extend", "map", "project", "rename", "distinct", "reduce", "reduce", "reduce", "count"),
        *("join", "join", "join", "semijoin", "concat", "top_k", "window", "flat_map"),
    )

    def by_operators(self, name, known):
        """Draw a collection by operators."""
        source = self.chance.choice(known)
        query, columns, apply = f"select * from {quoted(source.name)}", source.columns, []
        for _ in range(self.chance.randint(1, 4)):
            spec, query, columns = getattr(self, self.chance.choice(self.OPERATORS))(columns, query, known)
            apply += spec if isinstance(spec, list) else [spec]
            if len(columns) > 9:
                kept = columns[:6]
                apply.append({"project": [c.name for c in kept]})
                query, columns = f"select {self.list(kept)} from ({query})", kept
        return Collection(name, {"from": source.name, "apply": apply}, query, columns)

    # SQL.

    def by_sql(self, name, known):
        """Draw a collection by a query, which DuckDB answers as it is."""
        form = self.chance.choice([
            self.plain_select, self.grouped, self.grouped, self.joined, self.joined, self.united, self.sub, self.scalar,
            self.ranked, self.recursive, self.first_of, self.rolled, self.total,
        ])  # fmt: skip
        found = form(known)
        query, columns = found or self.plain_select(known)
        return Collection(name, {"sql": query}, query, columns)

    def plain_select(self, known):
        source = self.chance.choice(known)
        kept = self.keys(source.columns, 4)
        said, kind = self.expression(source.columns)
        new = Column(self.name("s"), kind, True)
        where = f" where {self.condition(source.columns)}" if self.chance.random() < 0.7 else ""
        distinct = "distinct " if self.chance.random() < 0.3 else ""
        return f"select {distinct}{self.list(kept)}, {said} as {new.name} from {quoted(source.name)}{where}", [
            *kept,
            new,
        ]

    def grouped(self, known):
        source = self.chance.choice(known)
        by = self.keys(source.columns)
        (one, kind), (two, other) = self.aggregate(source.columns), self.aggregate(source.columns)
        new = [Column(self.name("g"), kind, True), Column(self.name("g"), other, True)]
        having = self.chance.choice(["", "", " having count(*) > 1"])
        where = f" where {self.condition(source.columns)}" if self.chance.random() < 0.4 else ""
        query = f"select {self.list(by)}, {one} as {new[0].name}, {two} as {new[1].name} from {quoted(source.name)}{where} group by {self.list(by)}{having}"
        return query, [*by, *new]

    def total(self, known):
        source = self.chance.choice(known)
        said, kind = self.aggregate(source.columns)
        name = self.name("t")
        where = f" where {self.condition(source.columns)}" if self.chance.random() < 0.5 else ""
        return f"select {said} as {name}, count(*) as n from {quoted(source.name)}{where} having count(*) > 0", [
            Column(name, kind, True),
            Column("n", "int"),
        ]

    def joined(self, known):
        left = self.chance.choice(known)
        right, pairs = self.pair(left.columns, known)
        if not right:
            return None
        how = self.chance.choice(["join", "left join", "full join", "right join"])
        on = " and ".join(f"l.{quoted(a.name)} = r.{quoted(b.name)}" for a, b in pairs)
        numbers = self.of(left.columns, "int"), self.of(right.columns, "int")
        if all(numbers) and self.chance.random() < 0.3:
            on += f" and l.{quoted(numbers[0][0].name)} <= r.{quoted(numbers[1][0].name)} + 1"
        kept, listed = [], []
        for side, collection in (("l", left), ("r", right)):
            for column in self.keys(collection.columns, 3):
                new = Column(self.name("j"), column.kind, True)
                kept.append(new)
                listed.append(f"{side}.{quoted(column.name)} as {new.name}")
        return f"select {', '.join(listed)} from {quoted(left.name)} l {how} {quoted(right.name)} r on {on}", kept

    def united(self, known):
        left = self.chance.choice(known)
        right, pairs = self.pair(left.columns, known)
        if not right:
            return None
        (a, b), name = pairs[0], self.name("u")
        how = self.chance.choice(["union", "union all", "except", "intersect", "except all", "intersect all"])
        return (
            f"select {quoted(a.name)} as {name} from {quoted(left.name)} {how} select {quoted(b.name)} from {quoted(right.name)}",
            [Column(name, a.kind, True)],
        )

    def sub(self, known):
        left = self.chance.choice(known)
        right, pairs = self.pair(left.columns, known)
        if not right:
            return None
        (a, b), kept = pairs[0], self.keys(left.columns, 4)
        where = self.chance.choice([
            f"{quoted(a.name)} in (select {quoted(b.name)} from {quoted(right.name)})",
            f"not exists (select 1 from {quoted(right.name)} r where r.{quoted(b.name)} = l.{quoted(a.name)})",
            f"{quoted(a.name)} not in (select {quoted(b.name)} from {quoted(right.name)} where {quoted(b.name)} is not null)",
            f"{quoted(a.name)} >= (select min({quoted(b.name)}) from {quoted(right.name)})",
        ])  # fmt: skip
        return f"select {self.list(kept, 'l')} from {quoted(left.name)} l where {where}", kept

    def scalar(self, known):
        left = self.chance.choice(known)
        right, pairs = self.pair(left.columns, known)
        if not right:
            return None
        (a, b), kept, name = pairs[0], self.keys(left.columns, 3), self.name("v")
        query = f"select {self.list(kept, 'l')}, (select count(*) from {quoted(right.name)} r where r.{quoted(b.name)} = l.{quoted(a.name)}) as {name} from {quoted(left.name)} l"
        return query, [*kept, Column(name, "int", True)]

    def ranked(self, known):
        source = self.chance.choice(known)
        by, rest = self.keys(source.columns, 1), [*source.columns]
        self.chance.shuffle(rest)
        name = self.name("w")
        call = self.chance.choice(["row_number()", "count(*)", "dense_rank()"])
        over = f"partition by {self.list(by)} order by {self.list(rest)}"
        qualify = f" qualify row_number() over ({over}) <= 2" if self.chance.random() < 0.4 else ""
        return f"select *, {call} over ({over}) as {name} from {quoted(source.name)}{qualify}", [
            *source.columns,
            Column(name, "int"),
        ]

    def first_of(self, known):
        source = self.chance.choice(known)
        rest = [*source.columns]
        self.chance.shuffle(rest)
        if self.chance.random() < 0.5:
            return (
                f"select * from {quoted(source.name)} order by {self.list(rest)} limit {self.chance.randint(1, 4)}",
                source.columns,
            )
        return (
            f"select distinct on ({self.list(rest[:1])}) * from {quoted(source.name)} order by {self.list(rest)}",
            source.columns,
        )

    def rolled(self, known):
        source = self.chance.choice(known)
        by = self.keys(source.columns)
        (said, kind), name = self.aggregate(source.columns), self.name("o")
        query = f"select {self.list(by)}, {said} as {name} from {quoted(source.name)} group by rollup ({self.list(by)}) having count(*) > 0"
        return query, [*(Column(c.name, c.kind, True) for c in by), Column(name, kind, True)]

    def recursive(self, known):
        pairs = [(known_one, self.of(known_one.columns, "int")) for known_one in known]
        pairs = [(each, columns) for each, columns in pairs if len(columns) > 1]
        if not pairs:
            return None
        source, columns = self.chance.choice(pairs)
        a, b = (quoted(c.name) for c in self.chance.sample(columns, 2))
        query = (
            f"with recursive reached(x, y) as (select {a}, {b} from {quoted(source.name)} where {a} is not null and {b} is not null "
            f"union select r.x, e.{b} from reached r join {quoted(source.name)} e on e.{a} = r.y where e.{b} is not null) "
            "select x, y from reached"
        )
        return query, [Column("x", "int", True), Column("y", "int", True)]

    def collection(self, name, known):
        draw = self.by_sql if self.chance.random() < 0.45 else self.by_operators
        return draw(name, known)
