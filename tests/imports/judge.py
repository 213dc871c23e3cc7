"""dbt beside an imported project: after each step each model must hold what dbt, with dbt-duckdb, builds anew.

A step is the tables and the seeds as they are then. `python judge.py PROJECT STEPS`, in the environment that has dbt, builds the project after
each step and writes its tables and the rows that its tests found. `judge` lets `dd` take the same steps over the imported project, and compares.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import duckdb

DBT = Path(sys.prefix) / "dbt" / "bin" / "python"
"""The Python of an environment of its own: dbt asks for other versions of what `dd` needs."""
BUILT = ("model", "seed", "snapshot")


def build(project: Path, steps: Path) -> None:
    """Build a project by dbt after each step, and write `STEP/built/NAME.parquet` and `STEP/found.json`, rows by tests."""
    from dbt.cli.main import dbtRunner

    database = project / "judge.duckdb"
    os.environ["DBT_DATABASE"] = str(database)

    def dbt(*words: str) -> None:
        where = ["--project-dir", str(project), "--profiles-dir", str(project)]
        result = dbtRunner().invoke(["--quiet", "--no-use-colors", words[0], *where, *words[1:]])
        if result.exception is not None or (not result.success and words[0] != "test"):
            raise SystemExit(f"dbt {' '.join(words)}: {result.exception or 'see above'}")

    for step in sorted(steps.iterdir(), key=lambda each: int(each.name)):
        for seed in sorted((step / "seeds").glob("*.csv")):
            (target,) = (each for each in project.rglob(seed.name) if "target" not in each.parts)
            shutil.copy(seed, target)
        with duckdb.connect(str(database)) as base:
            for table in sorted((step / "tables").glob("*.parquet")):
                schema, _, name = table.stem.partition(".")
                base.execute(f'create schema if not exists "{schema}"')
                base.execute(f"""create or replace table "{schema}"."{name}" as from '{table}'""")
        if any((step / "seeds").iterdir()):  # a project may have sources that are its own seeds
            dbt("seed", "--full-refresh")
        dbt("build", "--full-refresh", "--exclude-resource-type", "test", "unit_test", "saved_query")
        dbt("test", "--exclude-resource-type", "unit_test")
        results = json.loads((project / "target/run_results.json").read_text())["results"]
        found = {each["unique_id"]: each["failures"] for each in results}
        (step / "found.json").write_text(json.dumps(found))
        (step / "built").mkdir()
        nodes = json.loads((project / "target/manifest.json").read_text())["nodes"].values()
        with duckdb.connect(str(database)) as base:
            for node in nodes:
                if node["resource_type"] in BUILT and node["config"]["materialized"] != "ephemeral":
                    base.execute(f"copy (from {node['relation_name']}) to '{step / 'built' / node['name']}.parquet'")
    dbt("compile", "--full-refresh")


class Judged:
    """A project in a folder in which `dd` runs, with the tables and seeds of each step; keys are columns that are never null."""

    def __init__(self, shop, source, tables, seeds=None):
        """`tables` has for each step the whole rows of each table as a frame, by `schema.name`; `seeds` their rows as lists of texts."""
        self.shop, self.project, self.steps = shop, shop.folder / "project", shop.folder / "steps"
        shutil.copytree(source, self.project, ignore=shutil.ignore_patterns("target", ".git", "*.duckdb"))
        self.tables, self.seeds = tables, seeds or [{} for _ in tables]
        self.compared: set[str] = set()
        """The models and tests that were compared."""
        for at, (frames, rows) in enumerate(zip(self.tables, self.seeds, strict=True)):
            for kind in ("tables", "seeds"):
                (self.steps / str(at) / kind).mkdir(parents=True)
            for name, frame in frames.items():
                frame.write_parquet(self.steps / str(at) / "tables" / f"{name}.parquet")
            for name, some in rows.items():
                self.write_seed(self.steps / str(at) / "seeds" / f"{name}.csv", some)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        command = [str(DBT), __file__, str(self.project), str(self.steps)]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=900, check=False, cwd=shop.folder, env=environment
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def write_seed(self, path, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)

    def land(self, at):
        """Write what the step changes as the files that `dd` reads: changed rows of tables, new rows of seeds, snapshots."""
        import polars as pl

        for name, frame in self.tables[at].items():
            short = name.partition(".")[2]
            before = self.tables[at - 1][name] if at else frame.clear()
            changed = frame.join(before, on=frame.columns, how="anti", nulls_equal=True)
            gone = before.join(frame, on="id", how="anti")
            for kind, rows in (("U", changed), ("D", gone)):
                path = self.project / "landing" / short / f"{at}{kind}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                rows.with_columns(op=pl.lit(kind)).write_parquet(path)
        for name, rows in self.seeds[at].items():
            known = self.seeds[at - 1][name] if at else rows[:1]
            assert rows[: len(known)] == known, "a seed only grows"
            self.write_seed(self.project / "landing" / "seeds" / name / f"{at}.csv", [rows[0], *rows[len(known) :]])
        for each in self.manifest()["nodes"].values():
            if each["resource_type"] == "snapshot":
                path = self.project / "snapshots" / each["name"] / f"{at}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.steps / str(at) / "built" / f"{each['name']}.parquet", path)

    def manifest(self):
        return json.loads((self.project / "target/manifest.json").read_text())

    def imported(self):
        """Import the project and return the report. Each seed with steps becomes a folder, each model an output."""
        report = self.shop("import", "dbt", "project", "project/p.yaml", "--force", "-o", "json")
        path = self.project / "p.yaml"
        text = path.read_text()
        for name in self.seeds[0]:
            text, count = re.subn(rf'"path": "[^"]*\b{name}\.csv"', f'"path": "landing/seeds/{name}/"', text)
            assert count == 1
        text = text.replace("    otherwise: fail\n", "    otherwise: warn\n")  # every step is compared
        lines = [
            re.sub(r'^(  - \{.*"name": "[^"]*")\}$', r'\1, "otherwise": "warn"}', line) for line in text.split("\n")
        ]
        path.write_text("\n".join(lines))
        return json.loads(report.out) if report.out else {"left_out": [{"problem": report.err}], "notes": []}

    def compare(self, at):
        """Return the differences after a step: of each table that the pipeline writes, and of each test that it has."""
        nodes = self.manifest()["nodes"].values()
        wrong = []
        for node in nodes:
            folder = self.project / "out" / node["name"]
            if node["resource_type"] != "model" or not folder.exists():
                continue
            self.compared.add(node["name"])
            got = held(f"{folder}/*.parquet")
            want = held(f"{self.steps / str(at) / 'built' / node['name']}.parquet")
            if got != want:
                wrong.append((at, node["name"], sorted(got - want)[:3], sorted(want - got)[:3]))
        found = json.loads((self.steps / str(at) / "found.json").read_text())
        for node in nodes:
            folder = next(iter(self.project.glob(f".dd/*/logs/{node['name']}")), self.project / "none")
            if node["resource_type"] == "test" and folder.exists() and node["unique_id"] in found:
                self.compared.add(node["name"])
                rows = sum(held(f"{folder}/*.parquet").values())
                if rows != found[node["unique_id"]]:
                    wrong.append((at, node["name"], rows, found[node["unique_id"]]))
        return wrong


def held(files):
    """Return the rows of tables or of a log's updates, by their columns' names in order of the names."""
    with duckdb.connect() as base:
        base.execute("set timezone = 'UTC'")
        rows = base.execute(f"from '{files}'")
        names = [each[0] for each in rows.description]
        order = sorted((each for each in names if each not in ("time", "diff")), key=str.lower)
        found = Counter()
        for row in rows.fetchall():
            given = dict(zip(names, row, strict=True))
            found[tuple(f"{name.lower()}={plain(given[name])!r}" for name in order)] += given.get("diff", 1)
    return +found


def plain(value):
    """Return a value as far as types may not differ: numbers to twelve digits, dates as their midnight."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return "nan" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    if isinstance(value, dt.timedelta):
        return float(value / dt.timedelta(microseconds=1))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
