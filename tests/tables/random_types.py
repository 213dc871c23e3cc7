"""Random columns with random values, brought to a table as an output of one pipeline and back as an input of another one."""

import json
import math
import pickle
import re
from collections import Counter
from datetime import UTC, datetime
from decimal import Context, Decimal

import polars as pl
import pyarrow as pa

from ddcli.driver.run import run
from ddcli.expressions.types import INTEGERS, Type, from_polars, in_utc

NAME = "'([^']*)'"
REFUSED = re.compile(
    f"can't hold the column {NAME}|no column with a name such as {NAME}|{NAME} and '[^']*' are one column"
)
NAMES = ("a", "Bb", "c_3", "day", "order", "é", "A", "x.y", "a b", 'q"')
TEXTS = ("", "a", " ", "ä\n\t\\N", "null", "'x'", '"{,}', "0", "\U0001f600", "\u0130", "a" * 70, "NaN")
FLOATS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), -1.5, 2.0**24 - 1, 2.0**-149)
"""Values that floats of 32 bits have."""
DOUBLES = (*FLOATS, 0.1, 1e300, 2.0**24 + 1, 5e-324, 1.7976931348623157e308, 1 / 3, 2.0**53 - 1)
FIRST, LAST = (int(datetime(*day, tzinfo=UTC).timestamp()) for day in ((1, 1, 1), (9999, 12, 31)))
"""The first and the last day that there are, in seconds."""
A_DAY = 86_400
PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
EXACT = Context(prec=38)
ZONES = (None, None, "UTC", "UTC", "Europe/Berlin", "America/St_Johns")


def drawn_type(draw, depth=0, *, nullable=None):
    """Return a type."""
    nullable = draw.random() < 0.6 if nullable is None else nullable
    kind = draw.choice(
        [*INTEGERS, "float32", "float64", "bool", "date", "string", "string", "binary", "time", "duration"]
        + ["datetime"] * 3
        + ["decimal"] * 4
        + (["list"] * 4 + ["struct"] * 4 if depth < 3 else [])
    )
    if kind == "decimal":
        precision = draw.choice([1, 2, 9, 10, 18, 19, 37, 38])
        return Type(
            "decimal", nullable, precision=precision, scale=draw.choice([0, precision, draw.randint(0, precision)])
        )
    if kind in ("datetime", "duration"):
        zone = draw.choice(ZONES) if kind == "datetime" else None
        return Type(kind, nullable, unit=draw.choice(["us", "us", "us", "ms", "ns"]), zone=zone)
    if kind == "list":
        return Type("list", nullable, inner=drawn_type(draw, depth + 1))
    if kind == "struct":
        names = draw.sample(NAMES, draw.randint(1, 3))
        return Type("struct", nullable, fields=tuple((name, drawn_type(draw, depth + 1)) for name in names))
    return Type(kind, nullable)


def drawn_value(draw, kind):
    """Return a value of a type as Arrow takes it; times are integers."""
    if kind.nullable and draw.random() < 0.25:
        return None
    if kind.is_integer:
        bits = int(kind.kind.lstrip("uint"))
        least, most = (0, 2**bits - 1) if kind.kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return draw.choice([0, 1, least, most, draw.randint(least, most)])
    if kind.kind == "decimal":
        most = 10**kind.precision - 1
        return Decimal(draw.choice([0, 1, most, -most, draw.randint(-most, most)])).scaleb(-kind.scale, EXACT)
    if kind.kind == "list":
        return [drawn_value(draw, kind.inner) for _ in range(draw.choice([0, 1, 1, 3]))]
    if kind.kind == "struct":
        return {name: drawn_value(draw, each) for name, each in kind.fields}
    if kind.kind == "date":
        return draw.choice([0, FIRST // A_DAY, LAST // A_DAY, draw.randrange(FIRST // A_DAY, LAST // A_DAY)])
    if kind.kind == "time":
        return draw.choice(
            [0, 86_399_999_999_999, draw.randrange(86_400) * 10**9, draw.randrange(86_400 * 10**6) * 1000]
        )
    if kind.kind == "datetime":
        ticks = PER_SECOND[kind.unit]
        least, most = max(FIRST * ticks, -(2**63) + 1), min(LAST * ticks, 2**63 - 1)
        least, most = least + A_DAY * ticks, most - A_DAY * ticks
        return draw.choice([0, -1, least, most, draw.randint(least, most), 1_700_000_000 * ticks])
    if kind.kind == "duration":
        return draw.choice([0, -1, 2**62, draw.randint(-(2**40), 2**40)])
    choices = {
        "float32": FLOATS,
        "float64": DOUBLES,
        "bool": (True, False),
        "string": TEXTS,
        "binary": (b"", b"\0\xff", b"a"),
    }
    return draw.choice(choices[kind.kind])


def physical(dtype):
    """Return the polars type that has the values of another one as `drawn_value` has them."""
    if isinstance(dtype, pl.List):
        return pl.List(physical(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: physical(field.dtype) for field in dtype.fields})
    return pl.Int64() if dtype.is_temporal() else dtype


def plain(value):
    """Return a value so that those are equal that are the same: one NaN and one zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    return tuple(map(plain, value)) if isinstance(value, list) else value


def has(value, wanted):
    """Return whether a value, or one inside it, is `wanted`."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return wanted(value) or any(has(each, wanted) for each in inside)


def rows_of(frame, columns):
    """Return the rows of a frame, each with its number."""
    found = frame.select(pl.col(name).cast(physical(frame.schema[name])) for name in columns)
    return Counter(tuple(map(plain, row)) for row in found.rows())


class Journey:
    """Columns and rows that are drawn, in a folder.

    `place` is how an output names the table, and `given` how an input does, after the columns that it declares if it `declares` any.
    `form` is what the table is of the output: its contents or its log; a log is held against what it must have as others read it alone.
    `usable` says of a value whether the table can hold it, where that is known of none before it comes.
    """

    def __init__(self, folder, draw, place, given, *, declares=True, usable=lambda _: True, form="table"):
        self.folder, self.draw, self.usable, self.form = folder, draw, usable, form
        self.place, self.given, self.declares = place, given, declares
        self.columns = {name: drawn_type(draw) for name in draw.sample(NAMES, draw.randint(1, 5))}
        self.refused: list[str] = []
        self.held, self.step = Counter(), 0
        folder.mkdir(parents=True)

    @property
    def declared(self):
        """What a file declares the columns as."""
        listed = (f"{json.dumps(name)}: {json.dumps(str(kind))}" for name, kind in self.columns.items())
        return f"columns: {{{', '.join(listed)}}}"

    def write_pipeline(self):
        """Write the pipeline whose output is the table, and its first rows."""
        self.held, self.step = Counter(), 0
        self.supply()
        text = f"dd: 1\nname: p\ninputs: {{given: {{path: in/, {self.declared}}}}}\n"
        (self.folder / "p.yaml").write_text(f"{text}outputs: {{t: {{from: given, as: {self.form}, {self.place}}}}}\n")

    def fit(self, shop):
        """Leave out the columns that `dd check` refuses: it must take the others."""
        self.write_pipeline()
        found = shop("check", self.folder / "p.yaml")
        if found.code:
            self.refused = ["".join(each) for each in REFUSED.findall(found.out + found.err)]
            assert found.code == 2, found
            assert self.refused, found
            assert (found.out + found.err).count("hint") == len(self.refused), found
            self.columns = {name: kind for name, kind in self.columns.items() if name not in self.refused}
            self.columns = self.columns or {"n": Type("int64")}
            self.write_pipeline()
            found = shop("check", self.folder / "p.yaml")
            assert found.code == 0, found

    def supply(self):
        """Write a file of changes: rows come, several times perhaps, and some of those that are there go."""
        change = Counter()
        for _ in range(self.draw.randint(1, 6)):
            values = tuple(map(self._drawn, self.columns.values()))
            change[pickle.dumps(values)] += self.draw.randint(1, 2)
        for row, count in self.held.items():
            if self.draw.random() < 0.5:
                change[row] -= self.draw.randint(1, count)
        rows = [(pickle.loads(row), diff) for row, diff in change.items() if diff]  # noqa: S301 - our own
        self.held = Counter({row: self.held[row] + change[row] for row in self.held.keys() | change.keys()})
        self.held = +self.held
        data = {
            name: pa.array([row[at] for row, _ in rows], pl.Series([], dtype=kind.to_polars()).to_arrow().type)
            for at, (name, kind) in enumerate(self.columns.items())
        }
        more = {"time": [self.step] * len(rows), "diff": [diff for _, diff in rows]}
        (self.folder / "in").mkdir(exist_ok=True)
        kinds = pa.int64()
        table = pa.table(data | {name: pa.array(values, kinds) for name, values in more.items()})
        pl.DataFrame(table).write_parquet(self.folder / f"in/{self.step}.parquet")
        self.step += 1

    def _drawn(self, kind):
        return next(value for _ in range(1000) if self.usable(value := drawn_value(self.draw, kind)))

    def meant(self):
        """Return the rows that the table must have, each with its number."""
        found = Counter()
        for row, count in self.held.items():
            found[tuple(map(plain, pickle.loads(row)))] += count  # noqa: S301 - our own
        return found

    def travel(self, steps=2, read=None):
        """Change the table, and hold it each time against what it must have: as another pipeline takes it in, and as others `read` it."""
        for step in range(steps):
            if step:
                self.supply()
            run(self.folder / "p.yaml")
            if self.form == "log":
                self._check_log(read())
                continue
            if read is not None:
                self._compare(rows_of(read(), self.columns))
            self._check_input()

    def _check_input(self):
        files = "path:" in self.given  # a file that was taken in must not change: another pipeline each time
        name = f"q{self.step}" if files else "q"
        given = f"{self.declared}, {self.given}" if self.declares else self.given
        path = self.folder / f"{name}.yaml"
        path.write_text(f"dd: 1\nname: {name}\ninputs: {{t: {{{given}}}}}\noutputs: {{t: {name}/}}\n")
        run(path)
        self._check_log(pl.read_parquet(self.folder / name / "*.parquet"))

    def _check_log(self, log):
        """Hold the sum of a log's updates, and its columns' types, against what it must have."""
        kinds = {each: in_utc(kind).to_polars() for each, kind in self.columns.items()}
        found_kinds = {each: from_polars(log.schema[each], nullable=True) for each in self.columns}
        assert {each: in_utc(kind).to_polars() for each, kind in found_kinds.items()} == kinds
        found = Counter()
        for diff in log["diff"].unique():
            for row, count in rows_of(log.filter(pl.col("diff") == diff), self.columns).items():
                found[row] += count * diff
        self._compare(found)

    def _compare(self, found):
        meant = self.meant()
        apart = {row: (found[row], meant[row]) for row in found.keys() | meant.keys() if found[row] != meant[row]}
        assert not apart, (self.declared, apart)
