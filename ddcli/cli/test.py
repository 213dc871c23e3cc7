"""`dd test`: the pipeline's own tests."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import NO_CODE, PIPELINE
from ddcli.screen import json_text, say, say_own


@click.command("test", short_help="Run the tests in a pipeline file.")
@click.argument("pipeline", type=PIPELINE)
@click.option("-k", "only", metavar="NAME", help="Only tests whose names contain NAME, in upper or lower case.")
@click.option(
    "--state",
    type=click.Path(path_type=str, file_okay=False),
    help="The state's directory. [default: the file's `state`, else .dd/NAME/ beside it]",
)
@NO_CODE
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit's XML to this file, too.")
@click.option(
    "-o",
    "--format",
    "--output",
    "output",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="Lines, JSON, or lines with annotations of a pull request.",
)
def command(
    pipeline: Path, only: str | None, state: str | None, no_code: bool, junit: Path | None, output: str
) -> None:
    """Run the tests of PIPELINE, which its file has under `tests`.

    A test gives rows to inputs, step by step from empty ones on, and says what it expects of collections: their
    `contents` after a step, or the `changes` that it makes. Rows are given in the input's format; what is in its files is
    never read, and state and outputs stay as they are. Expected rows name the columns that are compared.

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

    The last, without anything given, is expected after each step of the tests that name the collection, and of what runs have
    written to the output.

    Each test is replayed with all at once, one time at a time, one update at a time, and three times shuffled, in other cuts
    and on several shards: all must give the changes that its steps give.

    Exit code 0: all passed; 1: a test failed; 2: the pipeline or a test is wrong.

    \b
    JSON: {"pipeline", "passed", "failed", "skipped", "tests": [{"name", "line", "result": "passed"|"failed"|"skipped",
           "why", "steps", "replays", "records", "seconds", "failures": [{"line", "column", "problem", "hint",
           "expected": [{"row": {COLUMN: VALUE}, "diff"}], "found": [{"row", "diff"}]}]}]}

    \b
    Examples:
      dd test pipelines/airborne.yaml
      dd test pipelines/airborne.yaml -k "in the air" -o json
      dd test pipelines/components.yaml --junit test-results.xml
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
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
        from ddcli.cli.annotations import annotation

        for error in report.errors(found):
            say_own(annotation(error))
    if found.count()[1]:
        raise click.exceptions.Exit(1)
