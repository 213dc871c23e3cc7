"""The plan that a run keeps for later ones: it is used, and no result ever depends on whether it is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import ddcli.plan.build
from ddcli.driver.run import run
from ddcli.engine.jit import settings
from ddcli.errors import DdError, UsageError
from ddcli.expressions import tree
from ddcli.job import kept_plan
from ddcli.plan import loops, physical
from ddcli.plan.build import build
from ddcli.plan.generations import known_generations, plan
from ddcli.plan.pipeline_file import load_spec, parse_spec
from ddcli.spec import model
from tests.draws import some
from tests.harness import imported_by

PIPELINE = """
dd: 1
name: p
inputs:
  rows: {path: in/, columns: {k: int64, v: "int64?", day: date}}
collections:
  some: {from: rows, apply: [{filter: "v > 1 and day > date '2020-01-01'"}, {extend: {w: "v * 2.5"}}]}
  per: {from: some, apply: [{reduce: {by: [k], n: count(*), total: sum(v), top: max(w)}}]}
  both: {from: per, apply: [{join: {with: rows, on: [k]}}, {top_k: {k: 2, order_by: [v desc], by: [k]}}]}
  reached:
    iterate: {variables: {x: rows}, body: {x: {from: [x, rows], apply: [distinct]}}, result: x}
  asked:
    sql: |
      select r.k, count(*) as n from rows r
      where exists (select 1 from some s where s.k = r.k) and r.v < (select max(total) from per)
      group by r.k
outputs: {per: out/per/, both: out/both/, reached: out/reached/, asked: out/asked/}
"""
TYPES = {"k": pl.Int64, "v": pl.Int64, "day": pl.Date, "time": pl.Int64, "diff": pl.Int64}


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """Keep plans where only this test sees them."""
    monkeypatch.setattr(kept_plan, "FOLDER", f"plans-of-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}")
    yield
    shutil.rmtree(kept_plan.cache_dir() / kept_plan.FOLDER, ignore_errors=True)


def batch(folder, time, **more):
    """Write a file of the input, and return the folder's pipeline."""
    rows = [(k, (k * time) % 7 or None, None, time, 1) for k in range(5)]
    frame = pl.DataFrame(rows, schema=TYPES, orient="row").with_columns(
        pl.lit("2021-03-0" + str(time % 9 + 1)).str.to_date().alias("day"),
        **{name: pl.lit(value) for name, value in more.items()},
    )
    (folder / "in").mkdir(exist_ok=True)
    frame.write_parquet(folder / f"in/{time:03}.parquet")


def results(folder):
    """Return all updates of all outputs, in some order."""
    found = {}
    for log in sorted((folder / "out").iterdir()):
        frame = pl.read_parquet(log / "*.parquet")
        found[log.name] = frame.sort(frame.columns).rows()
    return found


@pytest.fixture
def twins(tmp_path, monkeypatch):
    """Give two folders with the pipeline, and what runs both: one with kept plans, one without any."""
    folders = [tmp_path / name for name in ("kept", "plain")]
    for folder in folders:
        folder.mkdir()
        (folder / "p.yaml").write_text(PIPELINE)

    def both(change=lambda folder: None, **options):
        ends = []
        for folder in folders:
            with monkeypatch.context() as patch:
                change(folder)
                if folder is folders[1]:
                    patch.setattr(kept_plan, "_read", lambda place: b"")
                try:
                    summary = run(folder / "p.yaml", **options)
                    ends.append((summary.changed, summary.lower, summary.upper))
                except DdError as error:
                    ends.append([line.replace(str(folder), "") for line in error.lines()])
        assert ends[0] == ends[1]
        assert results(folders[0]) == results(folders[1])
        return ends[0]

    both.kept = folders[0]
    return both


def their_places():
    """Return the files of the twins' kept plans."""
    places = [place for place in (kept_plan.cache_dir() / kept_plan.FOLDER).iterdir() if place.suffix != ".whole"]
    assert len(places) == 2, "one a folder"
    return places


@pytest.fixture
def unplanned(monkeypatch):
    """Let nothing be parsed or planned."""

    def forbid(*_arguments, **_options):
        raise AssertionError("parsed or planned again")

    def arm():
        monkeypatch.setattr("ddcli.plan.pipeline_file.parse_spec", forbid)
        monkeypatch.setattr("ddcli.plan.build.build", forbid)

    return arm


def run_again(folder, unplanned):
    """Run a pipeline without planning it again, without new rows and with some."""
    batch(folder, 1)
    run(folder / "p.yaml")
    unplanned()
    assert not run(folder / "p.yaml").changed
    batch(folder, 2)
    assert run(folder / "p.yaml").changed


def test_the_second_run_neither_parses_nor_plans(tmp_path, unplanned):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    run_again(tmp_path, unplanned)


UNUSED = [
    "sqlglot",
    "yaml",
    "obstore",
    "pyspark",
    "llvmlite.binding",
    "numba",
    "rich",
    "watchfiles",
    "duckdb",
    "pandas",
    "secrets",
    "importlib.metadata",
    "email",
    "numpy.linalg._linalg",
    "polars.io.database.functions",
    "polars.io.iceberg._dataset",
    "pyarrow",
    "numpy.ma",
    "ddcli.spec.document",
    "ddcli.spec.values",
    "ddcli.spec.inputs",
    "ddcli.expressions.parse",
    "ddcli.expressions.functions",
    "ddcli.plan.build",
    "ddcli.plan.operators",
    "ddcli.plan.generations",
    "ddcli.plan.lower",
    "ddcli.plan.changes",
    "ddcli.driver.migration",
    "ddcli.driver.watch",
    "ddcli.runtime.scheduler",
    "ddcli.runtime.task",
    "ddcli.runtime.spark",
    "ddcli.engine.spill_store",
    "ddcli.store.scratch",
    "ddcli.store.state.upkeep",
    "ddcli.store.formats.debezium",
    "ddcli.api",
    "ddcli.commands",
    "ddcli.compare",
    "ddcli.provenance",
    "ddcli.query",
    "ddcli.pipeline_tests",
]
"""What a warm run has no use for, with all that is below. Only columns need pyarrow whose pages no kernel reads: lists and booleans."""
HEAVY = [
    "numpy",
    "polars",
    "llvmlite",
    "decimal",
    "socket",
    "ssl",
    "random",
    "ddcli.plan",
    "ddcli.circuit",
    "ddcli.driver.execute",
]
"""What a run with nothing new has no use for either."""


def test_a_warm_run_imports_only_what_it_uses(tmp_path, monkeypatch):
    """By the names of modules, in a process of its own; how long that takes is for benchmarks."""
    monkeypatch.chdir(tmp_path)  # the kept plan is found by the file's whole path
    (tmp_path / "p.yaml").write_text(PIPELINE)

    def modules():
        return imported_by(tmp_path, "run", "p.yaml", "-q")

    def used(found, unwanted):
        return {name for name in found if any(name == each or name.startswith(f"{each}.") for each in unwanted)}

    try:
        batch(tmp_path, 1)
        assert used(modules(), UNUSED) > {"sqlglot", "yaml"}, "the first run parses"
        batch(tmp_path, 2)
        warm = modules()
        assert used(warm, UNUSED) == set()
        assert "polars" in warm
        assert used(modules(), (*UNUSED, *HEAVY)) == set()
    finally:
        for place in kept_plan.cache_dir().glob(f"plans/{kept_plan._place(Path('p.yaml')).name}"):
            place.unlink()


def test_results_are_those_without(twins):
    for time in (1, 2, 3):
        twins(lambda folder, time=time: batch(folder, time))


CHANGES = {
    "an operator": lambda text: text.replace("v > 1", "v > 2"),
    "an output more": lambda text: text.replace("outputs: {", "outputs: {some: out/some/, "),
    "an output less": lambda text: text.replace("both: out/both/, ", ""),
    "an output elsewhere": lambda text: text.replace("both: out/both/", "both: out/other/"),
    "a comment": lambda text: text + "# nothing\n",
    "a column's type": lambda text: text.replace("k: int64,", 'k: "int64?",'),
    "an error": lambda text: text.replace("sum(v)", "sum(nothing)"),
    "no YAML": lambda text: text.replace("outputs: {", "outputs: {{"),
    "a name": lambda text: text.replace("name: p", "name: q"),
    "a history": lambda text: text + "history: 3\n",
}


@pytest.mark.parametrize("what", [*some(CHANGES)])
def test_a_changed_file(twins, what):
    twins(lambda folder: batch(folder, 1))

    def change(folder, text, time):
        (folder / "p.yaml").write_text(text)
        batch(folder, time)

    twins(lambda folder: change(folder, CHANGES[what](PIPELINE), 2), apply=True)
    twins(lambda folder: batch(folder, 3), apply=True)
    twins(lambda folder: change(folder, PIPELINE, 4), apply=True)


def test_an_input_that_gets_another_column(tmp_path, twins):
    """Undeclared, its columns are what its files say: a plan that was kept for others is not used."""
    twins.kept.parent.joinpath("kept/p.yaml")

    def undeclared(folder, time, **more):
        (folder / "p.yaml").write_text(PIPELINE.replace(', columns: {k: int64, v: "int64?", day: date}', ""))
        batch(folder, time, **more)

    twins(lambda folder: undeclared(folder, 1))
    twins(lambda folder: undeclared(folder, 2))
    ends = []
    for folder in (twins.kept, twins.kept.parent / "plain"):
        undeclared(folder, 3, extra=5)
        try:
            ends.append(run(folder / "p.yaml").upper)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the same
            ends.append((type(error), str(error).replace(str(folder), "")))
    assert ends[0] == ends[1]


def test_another_version_plans_anew(twins, monkeypatch):
    twins(lambda folder: batch(folder, 1))
    planned = []
    real = ddcli.plan.build.built
    monkeypatch.setattr("ddcli.plan.build.built", lambda *given, **more: planned.append(1) or real(*given, **more))
    with monkeypatch.context() as patch:
        patch.setattr(kept_plan, "__version__", "0.0.other")
        twins(lambda folder: batch(folder, 2))
    assert len(planned) == 2
    monkeypatch.setattr(kept_plan, "_sources", lambda: "other sources")
    twins(lambda folder: batch(folder, 3))
    assert len(planned) == 4


def sealed(body):
    """Return a file as one that is whole: only its content is other than ours."""
    return hashlib.sha256(body).digest() + body


def lines_of(place):
    return [json.loads(line) for line in place.read_bytes()[settings.DIGEST :].split(b"\n")]


def resealed(place, change):
    lines = lines_of(place)
    change(lines)
    place.write_bytes(sealed(b"\n".join(json.dumps(line).encode() for line in lines)))


def elsewhere(lines):
    """Have the kept spec write outside, under the digest of another text."""
    text = json.dumps(lines[1]).replace("out/per/", "/tmp/elsewhere/")  # noqa: S108 - nothing is written there
    lines[1] = json.loads(text)
    lines[0][3] = "0" * 64


def other_plan(lines):
    """Have the kept plan filter by something else: its identity is another."""
    entries = lines[2][1]
    at = next(i for i, entry in enumerate(entries) if entry[0] == "ddcli.expressions.tree:Literal" and entry[2] == 1)
    entries[at][2] = 0


DAMAGES = {
    "empty": lambda place: place.write_bytes(b""),
    "cut": lambda place: place.write_bytes(place.read_bytes()[:-100]),
    "a byte": lambda place: place.write_bytes(place.read_bytes()[:500] + b"\0" + place.read_bytes()[501:]),
    "other bytes": lambda place: place.write_bytes(sealed(b"\x80\x04\x95")),
    "no lines": lambda place: place.write_bytes(sealed(b"{}")),
    "nothing in it": lambda place: resealed(place, lambda lines: lines.__setitem__(1, [])),
    "code": lambda place: resealed(place, lambda lines: lines[1].append(["os:system", "touch /tmp/hacked"])),
    "functions": lambda place: resealed(
        place, lambda lines: lines[1].append(["ddcli.spec.model:Function", "os:system", {}, False])
    ),
    "a plan of nothing": lambda place: resealed(place, lambda lines: lines[2].__setitem__(1, [["tuple"]])),
    "no plan": lambda place: resealed(place, lambda lines: lines[2].__setitem__(1, None)),
    "another plan": lambda place: resealed(place, other_plan),
    "another text": lambda place: resealed(place, elsewhere),
    "a plan of functions": lambda place: resealed(
        place, lambda lines: lines[2][1].append(["ddcli.plan.physical:PythonGroup", "os:system"])
    ),
    "deep": lambda place: place.write_bytes(sealed(b"\n".join([b"[" * 100_000] * 3))),
    "others may write": lambda place: place.chmod(0o666),
    "a link": lambda place: place.symlink_to(place.rename(place.with_name(f"{place.name}.whole"))),
    "a directory": lambda place: (place.unlink(), place.mkdir()),
}


def test_damage_is_as_good_as_nothing(twins):
    """Each to the plan that the run after the last damage kept."""
    twins(lambda folder: batch(folder, 1))
    for time, damage in enumerate(some(DAMAGES.values()), start=2):
        for place in their_places():
            damage(place)
        twins(lambda folder, time=time: batch(folder, time))
    assert not Path("/tmp/hacked").exists()  # noqa: S108 - as the damage has it


def test_each_byte_that_changes_is_seen(tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    batch(tmp_path, 1)
    run(tmp_path / "p.yaml")
    (place,) = (kept_plan.cache_dir() / kept_plan.FOLDER).iterdir()
    whole = place.read_bytes()
    assert kept_plan.load(tmp_path / "p.yaml", PIPELINE).spec is not None
    for at in range(0, len(whole), 97):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert kept_plan.load(tmp_path / "p.yaml", PIPELINE).spec is None
    place.write_bytes(whole)
    assert kept_plan.load(tmp_path / "p.yaml", PIPELINE + " ").spec is None
    assert kept_plan.load(tmp_path / "../x/p.yaml", PIPELINE).spec is None


FUNCTIONS = PIPELINE.replace(
    '{extend: {w: "v * 2.5"}}', "{map: {function: 'own:half', columns: {k: int64, v: 'int64?', w: 'float64?'}}}"
)
assert FUNCTIONS != PIPELINE


def test_a_pipeline_with_functions_is_read_anew(tmp_path):
    """So a function's text and `--no-code` count as ever."""
    (tmp_path / "p.yaml").write_text(FUNCTIONS)
    (tmp_path / "own.py").write_text("def half(row):\n    return {'k': row['k'], 'v': row['v'], 'w': row['v'] / 2}\n")
    batch(tmp_path, 1)
    run(tmp_path / "p.yaml")
    assert not (kept_plan.cache_dir() / kept_plan.FOLDER).exists()
    with pytest.raises(UsageError, match="no-code"):
        run(tmp_path / "p.yaml", no_code=True)


def test_a_dry_run_and_a_conversion_keep_nothing(tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    batch(tmp_path, 1)
    run(tmp_path / "p.yaml", dry_run=True)
    assert not (kept_plan.cache_dir() / kept_plan.FOLDER).exists()


def test_the_oldest_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_plan, "MOST", 8)
    batch(tmp_path, 1)
    for at in range(12):
        (tmp_path / f"p{at}.yaml").write_text(
            f"{{dd: 1, name: p{at}, inputs: {{rows: {{path: in/}}}}, outputs: {{rows: out{at}/}}}}"
        )
        run(tmp_path / f"p{at}.yaml")
    assert len([*(kept_plan.cache_dir() / kept_plan.FOLDER).iterdir()]) <= 8
    assert kept_plan.load(tmp_path / "p11.yaml", (tmp_path / "p11.yaml").read_text()).spec is not None


def test_a_spec_and_a_plan_are_what_they_were(root):
    """Of every example pipeline: what is read again says exactly what was written."""
    kept = 0
    for path in sorted((root / "pipelines").glob("*.yaml")):
        spec = dataclasses.replace(load_spec(path), tests=())
        try:
            table = kept_plan.write(spec, kept_plan.LISTED)
        except kept_plan.UnlistedClass:
            continue
        assert kept_plan.read(json.loads(json.dumps(table)), kept_plan.LISTED) == spec
        kept += 1
    assert kept > 3
    spec = parse_spec(PIPELINE, "p.yaml")
    schemas = {"rows": {name: kind for name, (_, kind) in spec.inputs["rows"].columns.items()}}
    made = plan(build(spec, schemas), known_generations(None)).graph
    table = json.loads(json.dumps(kept_plan.write(made, kept_plan.LISTED)))
    found = kept_plan.read(table, kept_plan.LISTED)
    assert found.fingerprint == made.fingerprint
    assert [node.fingerprint for node in found.nodes] == [node.fingerprint for node in made.nodes]
    assert kept_plan.write(found, kept_plan.LISTED) == table
    assert all(found.outputs[name] in found.nodes for name in made.outputs)


def test_what_calls_code_is_never_kept():
    """Every class that has to do with functions is refused by its name, whatever holds it."""
    for module in (model, physical, loops, tree):
        for name, found in vars(module).items():
            if dataclasses.is_dataclass(found) and found.__module__ == module.__name__:
                calls = any(word in f"{name} {found.__doc__}" for word in ("Python", "Function", "Spark"))
                assert calls == any(word in name for word in kept_plan.CODE), name


PARTS = """
include: parts/rows.yaml
inputs: {others: {path: "${OTHERS:-in/}", columns: {k: int64, v: "int64?", day: date}}}
collections: {some: {from: rows, apply: [{filter: "v > ${LEAST}"}]}}
outputs: {some: out/some/, others: out/others/}
"""
ROWS = "inputs: {rows: {path: ../in/, columns: {k: int64, v: 'int64?', day: date}}}\n"


def test_what_is_kept_is_of_included_files_and_variables_too(twins, monkeypatch):
    def begin(folder):
        (folder / "parts").mkdir()
        (folder / "parts/rows.yaml").write_text(ROWS)
        (folder / "p.yaml").write_text(PARTS)
        batch(folder, 1)

    monkeypatch.setenv("LEAST", "1")
    twins(begin)
    twins(lambda folder: batch(folder, 2))
    monkeypatch.setenv("LEAST", "3")
    assert "the output 'some' would change: filter: " in str(twins())
    assert twins(apply=True)[0]
    twins(lambda folder: batch(folder, 3))
    monkeypatch.setenv("OTHERS", "in/*.parquet")
    twins()
    changed = ROWS.replace("columns", "late: quarantine, columns")
    twins(lambda folder: (folder / "parts/rows.yaml").write_text(changed))
    twins(lambda folder: batch(folder, 4))
    assert "no such file" in str(twins(lambda folder: (folder / "parts/rows.yaml").unlink()))
    twins(lambda folder: (folder / "parts/rows.yaml").write_text(changed))
    monkeypatch.delenv("LEAST")
    assert "the variable 'LEAST' is not set" in str(twins())


def test_the_second_run_of_a_file_with_parts_neither_parses_nor_plans(tmp_path, unplanned, monkeypatch):
    monkeypatch.setenv("LEAST", "1")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/rows.yaml").write_text(ROWS)
    (tmp_path / "p.yaml").write_text(PARTS)
    run_again(tmp_path, unplanned)
    monkeypatch.setenv("LEAST", "2")
    with pytest.raises(AssertionError, match="parsed or planned again"):
        run(tmp_path / "p.yaml")
