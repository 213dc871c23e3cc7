"""`dd test`: the pipeline's own tests."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import NO_CODE, ONLY_PIPELINE, SHOW, STATE, VAR, Renamed, formats
from ddcli.screen import json_text, say, say_own


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
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write JUnit's XML to FILE."
)
@formats(
    "text",
    "json",
    "github",
    about="Format: lines, JSON, or lines and GitHub's annotations of a pull request.",
    old=["--format"],
)
@SHOW
@VAR
def command(
    pipeline: Path, only: str | None, state: str | None, no_code: bool, junit: Path | None, output: str
) -> None:
    """Run the tests in PIPELINE, under `tests`.

    A test feeds rows to empty inputs, step by step, and states its expectations of collections: their `contents` after a
    step, or the `changes` that the step makes. Rows are in the input's format. The inputs' files are not read, and state and
    outputs stay as they are. Only the columns that expected rows name are compared.

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

    Each test is replayed all at once, one time at a time, one update at a time, and three times shuffled, in other cuts
    and on several shards: every replay must make the same changes.

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
    from ddcli.pipeline_tests import report
    from ddcli.pipeline_tests.run import run_tests
    from ddcli.store.files.objects import locate

    found = run_tests(pipeline, state=None if state is None else locate(Path.cwd(), state), only=only, no_code=no_code)
    if junit is not None:
        junit.write_bytes(report.junit(found))
    if output == "json":
        say(json_text(report.to_json(found)))
    else:
        for line in report.lines(found, lambda text, colour: click.style(text, fg=colour) if colour else text):
            say(line, styled=True)
    if output == "github":
        from ddcli.cli.messages import annotation

        for error in report.errors(found):
            say_own(annotation(error))
    if found.count()[1]:
        raise click.exceptions.Exit(1)
