"""Count the files of `ddcli` that a call passes, which is to say that one of their functions is called: a first run, SQL, and `dd why`.

    python -m tests.passed_files            # the figures
    python -m tests.passed_files --list     # and the files of each, by package

A file that is only imported is not counted: importing it runs no function of it, only its own top level. The fewer files a call passes, the
less a reader has to know of to follow it.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import shutil
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.cli.main import cli
from ddcli.expressions.coerce import INT64, STRING
from ddcli.expressions.syntax_tree import query_text
from ddcli.plan.logical import Source
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from ddcli.plan.relation import Relation
from ddcli.plan.sql.context import TIMES
from ddcli.plan.sql.statement import bind_in_order
from tests.harness import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

CALLS = {
    "a run of pipelines/airborne.yaml": ["run", "pipelines/airborne.yaml", "-q"],
    "dd sql over pipelines/airborne.yaml": [
        "sql",
        "select carrier, flights from airborne",
        "--from",
        "pipelines/airborne.yaml",
    ],
    "dd why of pipelines/airborne.yaml": ["why", "pipelines/airborne.yaml", "airborne", "carrier=HA", "--as-of", "719"],
}
STATEMENT = """
    select a.carrier, sum(a.flights) as flights from airborne a join airborne b using (carrier)
    where a.flights > 3 group by a.carrier having sum(a.flights) > 10"""
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
CODE = f"{ROOT / 'ddcli'}{os.sep}"


def passed(call: Callable[[], object]) -> set[str]:
    """Return the files of the package, relative to it, of which a call enters a function, in any thread."""
    found: set[str] = set()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        # Bodies of modules and classes are not optimized; a comprehension in one is, up to Python 3.11.
        outer = frame.f_back if frame.f_code.co_name in COMPREHENSIONS else frame
        if event == "call" and outer is not None and outer.f_code.co_flags & inspect.CO_OPTIMIZED:
            name = frame.f_code.co_filename
            if name.startswith(CODE):
                found.add(name.removeprefix(CODE))

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def planned() -> set[str]:
    """Return the files that a SQL statement passes from its text to its plan, over collections whose columns are known."""
    table = Relation(Source((), {"carrier": STRING, "flights": INT64}, "airborne"))

    def plan() -> None:
        bound, _ = bind_in_order(query_text(STATEMENT), lambda _name: table, list, TIMES)
        lower(Graph({"answer": bound.node}))

    return passed(plan)


def measure() -> dict[str, set[str]]:
    """Return the files that each of the calls passes, one after the other in one folder."""
    here, found = Path.cwd(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("fixtures", "pipelines"):
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("out", ".dd"))
        os.chdir(folder)
        try:
            for title, arguments in CALLS.items():
                with (
                    contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    found[title] = passed(lambda arguments=arguments: cli.main(arguments, standalone_mode=False))  # type: ignore[misc]
        finally:
            os.chdir(here)
    return found


def main() -> None:
    """Print the number of files of each call."""
    parser = argparse.ArgumentParser(prog="python -m tests.passed_files", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the files of each call, by package")
    asked = parser.parse_args()
    for title, files in {**measure(), "a SQL statement, from its text to its plan": planned()}.items():
        print(f"{title}: {len(files)} files")
        if asked.list:
            packages = Counter(file.partition("/")[0] for file in files)
            for package, number in packages.most_common():
                names = sorted(file for file in files if file.partition("/")[0] == package)
                print(f"  {package} {number}: {', '.join(names)}")


if __name__ == "__main__":
    main()
