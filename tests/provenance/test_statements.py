"""Random SQL statements over inputs of several formats: what `dd why` says of each record is checked, whatever the rows of its inputs mean."""

import random
from itertools import islice

import polars as pl
import yaml

from ddcli.errors import DdError, SpecErrors
from ddcli.job.request import read_request
from ddcli.provenance.inputs import Inputs
from ddcli.provenance.question import Question
from tests.draws import chance, many
from tests.sql.generate import Statements
from tests.sql.judge import states
from tests.sql.terms import TABLES
from tests.sql.test_pipelines import frame_of

FORMATS = {"updates": {}, "snapshots": {"format": "snapshots"}, "upsert": {"format": "upsert", "key": "id"}}
TRAPS = (
    "select count(*) as c0, max(r1.a) as c1 from {} r1 where r1.a > 99",  # of no row: there is an input
    "select grouping(r1.a) as c0 from {} r1 where r1.a > 1 group by cube (r1.a)",  # a collection without columns
)


def write(folder, text, rng):
    """Write a pipeline over tables of which each has a format, and two versions of them."""
    formats = {name: rng.choice(sorted(FORMATS)) for name in TABLES}
    inputs = {name: {"path": f"in/{name}/"} | FORMATS[kind] for name, kind in formats.items()}
    spec = {"clock": "event", "inputs": inputs, "collections": {"c": {"sql": text}}, "outputs": {"c": "out/"}}
    (folder / "p.yaml").write_text(yaml.safe_dump(spec))
    for time, rows in enumerate(islice(states(rng), 2)):
        for name, table in rows.items():
            frame = frame_of(name, table).with_columns(time=pl.lit(time, pl.Int64))
            if formats[name] == "updates" and time:
                continue
            if formats[name] != "updates":
                frame = frame.select(pl.exclude("diff").repeat_by("diff").explode())
            if formats[name] == "upsert":
                frame = frame.with_row_index("id")
            (folder / "in" / name).mkdir(parents=True, exist_ok=True)
            frame.write_parquet(folder / "in" / name / f"{time}.parquet")
    return folder / "p.yaml"


def explained(path):
    """Return how many records of the output were explained; each explanation must give its record."""
    inputs = Inputs.of(read_request(path))
    question = Question(inputs, inputs.relations["c"].node, {}, (1,), 3)
    found = question.evaluated.contents(question.node)
    for record, count in islice(zip(found.records(), found.counts(), strict=True), 4):
        reason = question.explained(record, count)
        assert reason.checked, record
    return len(found)


def test_records_of_statements_are_explained(tmp_path):
    rng = chance("why of statements")
    done = 0
    for at in range(many(60)):
        seed = rng.randrange(1 << 32)
        draw = random.Random(seed)
        text = TRAPS[at // 3 % 2].format(draw.choice("tuwn")) if at % 3 == 0 else Statements(draw).statement()
        (folder := tmp_path / str(at)).mkdir()
        path = write(folder, text, draw)
        try:
            done += explained(path)
        except (DdError, SpecErrors):
            continue  # a statement that is refused, or that fails on the rows
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text}") from error
    assert done
