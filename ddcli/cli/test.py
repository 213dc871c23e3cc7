"""`dd test`: a pipeline's own tests, reported as text, JSON, GitHub's workflow commands or JUnit's XML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import click

from ddcli.cli.arguments import NO_CODE, ONLY_PIPELINE, SHOW, STATE, VAR, Renamed, file_option, formats
from ddcli.errors import DdError, NegativeAnswer
from ddcli.screen import in_columns, json_text, json_value, plural, say, say_own, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ddcli.pipeline_tests.expectation import Failure, FailureRow
    from ddcli.pipeline_tests.run import Outcome, Report


@click.command("test", short_help="Run the tests in a pipeline file.")
@ONLY_PIPELINE
@click.option(
    "--only",
    cls=Renamed,
    old=["-k"],
    metavar="NAME",
    help="Run only tests whose names contain NAME, in upper or lower case.",
)
@STATE
@NO_CODE
@file_option("--junit", help="Also write JUnit XML to FILE.")
@formats(
    "text",
    "json",
    "github",
    about="Format: lines, JSON, or lines and GitHub annotations for a pull request.",
    old=["--format"],
)
@SHOW
@VAR
def command(
    pipeline: Path, only: str | None, state: Path | None, no_code: bool, junit: Path | None, output: str
) -> None:
    """Run the tests in PIPELINE, under `tests`.

    A test feeds rows to empty inputs, step by step, and states what it expects of collections: their `contents` after a
    step, or the `changes` that the step makes. Rows are in the input's format. The inputs' files are not read, and state and outputs don't change. Only the columns that expected rows name are compared.

    \b
      tests:
        - name: a flight counts while it is in the air
          steps:
            - time: 480
              given:
                flights: [{carrier: UA, status: departed}]
                airlines: [{carrier: UA, name: United}]
              expect: {collection: airborne, contents: [{name: United, flights: 1}]}
            - time: 700
              given: {flights: [{carrier: UA, status: departed, diff: -1}]}
              expect: {collection: airborne, changes: [{name: United, flights: 1, diff: -1}]}
        - expect: {collection: airborne, unique: [carrier], not_null: [name], always: flights > 0}

    The last one, without steps, is checked after each step of the tests that name the collection, and on the written output.

    Each test is replayed on several shards: all updates at once, one time at a time, one update at a time, and three times
    shuffled. Every replay must make the same changes.

    Exit code 0: all passed; 1: a test failed; 2: the pipeline or a test is wrong.

    \b
    JSON: {"pipeline", "passed", "failed", "skipped", "tests": [{"name", "line", "result": "passed"|"failed"|"skipped",
           "why", "steps", "replays", "records", "seconds", "failures": [{"line", "column", "problem", "hint",
           "expected": [{"row": {COLUMN: VALUE}, "diff"}], "found": [{"row", "diff"}]}]}]}

    \b
    Examples:
      dd test pipelines/airborne.yaml
      dd test pipelines/airborne.yaml --only "in the air" -o json
      dd test pipelines/components.yaml --junit test-results.xml
    """
    from ddcli.pipeline_tests.run import run_tests

    found = run_tests(pipeline, state=state, only=only, no_code=no_code)
    if junit is not None:
        junit.write_bytes(junit_xml(found))
    if output == "json":
        say(json_text(to_json(found)))
    else:
        for line in lines(found, lambda text, colour: click.style(text, fg=colour) if colour else text):
            say(line, styled=True)
    if output == "github":
        from ddcli.cli.messages import annotation

        for error in errors(found):
            say_own(annotation(error))
    if found.count()[1]:
        raise click.exceptions.Exit(1)


SHOWN = 20
"""The most rows of a failure that are shown; JSON has all."""
WIDEST = 40
COLOURS = {"-": "red", "+": "green"}


def lines(report: Report, style: Callable[[str, str], str]) -> Iterator[str]:
    """Yield the lines of a report: each test with its failures, and the counts. `style` colours a text."""
    for one in report.outcomes:
        if one.skipped is not None:
            yield f"{style('skip', 'yellow')}  {visible(one.name)}: {visible(one.skipped)}"
            continue
        mark = style("FAIL", "red") if one.failures else style("ok", "green") + "  "
        yield f"{mark}  {visible(one.name)} {style(f'({_done(one)})', 'bright_black')}"
        for failure in one.failures:
            yield from NegativeAnswer(failure.problem, span=failure.span, hint=failure.hint).lines()
            yield from (style(line, COLOURS.get(line.strip()[:1], "")) for line in table(failure))
    passed, failed, skipped = report.count()
    parts = [f"{passed} passed"] + [f"{failed} failed"] * bool(failed) + [f"{skipped} skipped"] * bool(skipped)
    yield style(f"{', '.join(parts)} in {report.seconds:.2f} s", "red" if failed else "green")


def _done(one: Outcome) -> str:
    parts = []
    if one.records is not None:
        parts.append(f"{one.records} {plural(one.records, 'record')}")
    if one.steps:
        parts.append(f"{one.steps} {plural(one.steps, 'step')}")
    if one.replays:
        parts.append(f"{one.replays} replays")
    return ", ".join(parts)


def table(failure: Failure) -> Iterator[str]:
    """Yield a failure's rows under their columns: - expected, + actual."""
    if not failure.rows:
        return
    counts = [row.count for row in failure.rows]
    header = [*map(visible, failure.columns), *(["diff"] if any(count != 1 for count in counts) else [])]
    shown = failure.rows[:SHOWN]
    rows = [[*map(_cell, row.values), f"{row.count:+d}"][: len(header)] for row in shown]
    indent = " " * 15
    marks = [" ", *(row.mark for row in shown)]
    for mark, line in zip(marks, in_columns([header, *rows]), strict=True):
        yield f"{indent}{mark} {line}".rstrip()
    if len(failure.rows) > SHOWN:
        yield f"{indent}  and {len(failure.rows) - SHOWN} more"


def _cell(value: Any) -> str:
    text = "null" if value is None else visible(str(value))
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def to_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON."""
    passed, failed, skipped = report.count()
    return {
        "pipeline": report.pipeline,
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "tests": [_one(one) for one in report.outcomes],
    }


def _one(one: Outcome) -> dict[str, Any]:
    result = "skipped" if one.skipped is not None else "failed" if one.failures else "passed"
    return {
        "name": one.name,
        "line": one.span.line,
        "result": result,
        "why": one.skipped,
        "steps": one.steps,
        "replays": one.replays,
        "records": one.records,
        "seconds": round(one.seconds, 4),
        "failures": [
            {
                "line": failure.span.line,
                "column": failure.span.column,
                "problem": failure.problem,
                "hint": failure.hint,
                "expected": [_row(failure, row) for row in failure.rows if row.mark == "-"],
                "found": [_row(failure, row) for row in failure.rows if row.mark == "+"],
            }
            for failure in one.failures
        ],
    }


def _row(failure: Failure, row: FailureRow) -> dict[str, Any]:
    return {"row": dict(zip(failure.columns, map(json_value, row.values), strict=True)), "diff": row.count}


def errors(report: Report) -> list[DdError]:
    """Return the failures as errors, for annotations."""
    found: list[DdError] = []
    for one in report.outcomes:
        for failure in one.failures:
            error = NegativeAnswer(f"test '{one.name}': {failure.problem}", span=failure.span, hint=failure.hint)
            error.detail = tuple(line.strip() for line in table(failure))
            found.append(error)
    return found


def junit_xml(report: Report) -> bytes:
    """Return the report as JUnit's XML for CI systems: a suite for the pipeline, a case for each test."""
    from ddcli.commands.checks import junit, new_case, new_suite

    _, failed, skipped = report.count()
    suite = new_suite(report.pipeline, tests=len(report.outcomes), failures=failed, skipped=skipped)
    suite.set("time", f"{report.seconds:.3f}")
    for one in report.outcomes:
        place = {"file": one.span.file, "line": str(one.span.line)}
        case = new_case(suite, one.name, time=f"{one.seconds:.3f}", **place)
        if one.skipped is not None:
            ET.SubElement(case, "skipped", message=visible(one.skipped))
        for failure in one.failures:
            lines = NegativeAnswer(failure.problem, span=failure.span, hint=failure.hint).lines()
            body = ET.SubElement(case, "failure", message=visible(failure.problem))
            body.text = "\n".join([*lines, *table(failure)])
    return junit([suite])
