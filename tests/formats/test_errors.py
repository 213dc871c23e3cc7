"""Records on which an expression fails: in the log of errors while they are there, and nowhere else."""

import io
import json
import math
from collections import Counter

import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.errors import InputError, SpecErrors
from ddcli.expressions.types import parse_type
from ddcli.render.rows import write_rows
from ddcli.store.formats.base import Append
from ddcli.store.log.reader import LogReader
from ddcli.store.tables.inventory import list_input
from tests.formats.support import FEW, TIMES, Place, chances, cuts
from tests.spark.support import Here, started

ROW = pl.Schema({"a": pl.Int64, "b": pl.Int64, "time": pl.Int64, "diff": pl.Int64})
rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(TIMES), st.sampled_from([1, 1, -1])), max_size=9
)


class Failing(Place):
    """A pipeline that divides."""

    def __init__(self, root, apply, **file):
        self.apply, self.file = apply, file
        super().__init__(root)

    def say(self, **more):
        file = {"dd": 1, "name": "p", "inputs": {"a": self.given | more}}
        file |= {"collections": {"c": {"from": "a", "apply": self.apply}}, "outputs": {"c": "out/"}} | self.file
        self.spec.write_text(yaml.safe_dump(file, sort_keys=False))

    def errors(self, time, directory=".dd/p/errors"):
        """Return the records in the log of errors at a time, with what is said of them."""
        held = Counter()
        for file in (self.root / directory).glob("*.parquet"):
            for error, record, at, diff in pl.read_parquet(file).select("error", "record", "time", "diff").iter_rows():
                if at <= time:
                    record = json.loads(record)
                    held[error.split(" in ")[0], record["a"], record["b"]] += diff
        return Counter({row: count for row, count in held.items() if count})


DIVISION = [{"filter": "a > 0"}, {"map": {"a": "a", "q": "6 / b"}}]


@settings(max_examples=FEW)
@given(rows=rows, runs=cuts(), chance=chances)
def test_a_record_is_in_the_log_while_it_is_there(tmp_path_factory, rows, runs, chance):
    place = Failing(tmp_path_factory.mktemp("p"), DIVISION, errors="quarantine")
    place.chance = chance
    for times in runs:
        new = [row for row in rows if row[2] in times]
        place.write(str(times.start), pl.DataFrame(new, ROW, orient="row"))
        place.run()
    for time in TIMES:
        sound, failed = Counter(), Counter()
        for a, b, at, diff in rows:
            if at <= time and a > 0:
                if b:
                    sound[a, 6 / b] += diff
                else:
                    failed["division by zero", a, b] += diff
        assert place.at(time, "a", "q") == {row: count for row, count in sound.items() if count}
        assert place.errors(time) == {row: count for row, count in failed.items() if count}


def test_the_summary_counts_and_the_log_lies_where_the_file_says(tmp_path):
    place = Failing(tmp_path, DIVISION, errors={"quarantine": "wrong/"})
    place.write("a", pl.DataFrame([(1, 0, 0, 1), (2, 0, 0, 1), (2, 3, 0, 1)], ROW, orient="row"))
    summary = place.run()
    assert summary.failed == 2
    assert any("failed 2 records -> " in line for line in summary.lines())
    assert set(place.errors(9, "wrong")) == {("division by zero", 1, 0), ("division by zero", 2, 0)}
    assert "wrong" in summary.errors


def test_without_it_the_run_fails(tmp_path):
    place = Failing(tmp_path, DIVISION, errors="fail")
    place.write("a", pl.DataFrame([(1, 0, 0, 1)], ROW, orient="row"))
    with pytest.raises(InputError, match="division by zero"):
        place.run()


@pytest.mark.parametrize(
    ("apply", "bad"),
    [
        ([{"flat_map": {"n": "generate_series(1, 5, b)"}}], {0}),
        ([{"explode": "coalesce(cast(6 / b as int64), 0)"}, {"map": {"a": "a", "b": "b"}}, "distinct"], {0}),
        ([{"extend": {"c": "9223372036854775806 + b"}}], {2}),
        ([{"filter": "10 / b > 0"}], {0}),
    ],
)
def test_every_linear_step_is_covered(tmp_path, apply, bad):
    place = Failing(tmp_path, apply, errors="quarantine")
    place.write("a", pl.DataFrame([(7, b, 0, 1) for b in range(3)], ROW, orient="row"))
    place.run()
    assert {b for _, _, b in place.errors(9)} == bad
    assert {b for _, b in place.at(9, "a", "b")} == {0, 1, 2} - bad


def test_a_record_is_json_that_is_read_back(tmp_path):
    """NaN and infinities are the words of `dd log -o jsonl`, apart from null; in lists, too; and are retracted as they came."""

    def refuse(word):
        raise AssertionError(word)

    odd = [math.nan, math.inf, -math.inf, None, 1.5]
    frame = pl.DataFrame({"x": odd, "b": 0, "xs": [odd, [], None, [None], [0.0]], "time": 0, "diff": 1})
    place = Failing(tmp_path, [{"extend": {"q": "6 / b"}}], errors="quarantine")
    place.write("a", frame)
    place.run()
    (file,) = (tmp_path / ".dd/p/errors").glob("*.parquet")
    texts = pl.read_parquet(file)["record"].to_list()
    held = {str(json.loads(text, parse_constant=refuse)["x"]): json.loads(text) for text in texts}
    assert set(held) == {"NaN", "Infinity", "-Infinity", "None", "1.5"}
    assert held["NaN"]["xs"] == ["NaN", "Infinity", "-Infinity", None, 1.5]
    out = io.BytesIO()
    write_rows([frame.select("x", "b", "xs")], "jsonl", out)
    assert {str(row["x"]): row for row in map(json.loads, out.getvalue().splitlines())} == held
    again = tmp_path / "again.ndjson"
    again.write_text("\n".join(texts) + "\n")
    reader = LogReader(list_input(again.name, tmp_path), Append(("b",), {"x": parse_type("float64?")}))
    (part,) = reader.take(["x"], None, ()).slices
    assert part.read().frame["x"].sort().equals(frame["x"].sort(), null_equal=True)
    place.write("b", frame.with_columns(diff=-1, time=1))
    place.run()
    logged = pl.concat([pl.read_parquet(file) for file in (tmp_path / ".dd/p/errors").glob("*.parquet")])
    assert logged.group_by("record").agg(pl.col("diff").sum())["diff"].to_list() == [0] * 5


def test_many_failing_among_many(tmp_path):
    place = Failing(tmp_path, DIVISION, errors="quarantine")
    frame = pl.DataFrame({"a": range(1, 20_001), "b": 1, "time": 0, "diff": 1}).with_columns(
        b=pl.when(pl.col("a") % 400 == 7).then(0).otherwise(pl.col("b"))
    )
    place.write("a", frame)
    assert place.run().failed == 50
    assert sum(place.at(0, "a").values()) == 19_950


def test_a_wrong_policy_is_refused(tmp_path):
    place = Failing(tmp_path, DIVISION, errors="quarantin")
    with pytest.raises(SpecErrors, match="unknown policy 'quarantin'"):
        place.run()


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_what_a_changed_pipeline_fails_on_is_logged_too(tmp_path, engine):
    place = Failing(tmp_path, [{"map": {"a": "a", "q": "a / (b + 1)"}}], errors="quarantine")
    place.write("a", pl.DataFrame([(1, 0, 0, 1), (2, 3, 0, 1)], ROW, orient="row"))
    place.run()
    assert place.errors(9) == {}
    place.apply = [{"map": {"a": "a", "q": "a / b"}}]
    place.say()
    with started(Here(1)):
        place.run(apply=True, engine=engine)
    assert place.errors(0) == {}
    assert place.errors(1) == {("division by zero", 1, 0): 1}
    assert place.at(9, "a") == {(2,): 1}
    place.write("b", pl.DataFrame([(1, 0, 5, -1), (1, 3, 5, 1)], ROW, orient="row"))
    place.run()
    assert place.errors(5) == {}
    assert place.at(9, "a") == {(1,): 1, (2,): 1}
