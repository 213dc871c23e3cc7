"""What a pipeline has before a run: `dd check`, `dd checks`, `dd plan`, `dd lineage`, `dd inputs` and `dd wait`."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import (
    COLLECTION,
    NOW,
    ONLY_PIPELINE,
    PIPELINES,
    QUIET,
    REPORT,
    SHOW,
    STATE,
    VAR,
    Seconds,
    budget,
    file_option,
    formats,
    report,
)
from ddcli.commands.inputs import STATES, input_files, wait
from ddcli.errors import CheckError, UsageError
from ddcli.job.summary import SHOWN, size_of
from ddcli.screen import in_columns, json_text, near, plural, say, say_own, shell, visible
from ddcli.spec.file import check_used


@click.command("check", short_help="Report the errors of pipeline files, without reading data.")
@PIPELINES
@formats(
    "text", "json", "github", about="Format: lines, JSON, or GitHub annotations for a pull request.", old=["--format"]
)
@budget(
    "The worst class of work that an operator may have, overriding the files' bound: work=groups. See `dd explain`."
)
@VAR
def check_command(pipelines: tuple[Path, ...], output: str, budget: dict[str, str]) -> None:
    """Check pipeline files: keys and names, expressions and types, Python functions, paths, and the columns of inputs.
    Reports every error at once, each at its place.

    Reads no rows, only the columns in the footers and headers of files. An input with declared `columns` needs no file, so a
    pipeline can be checked without its data. Runs no code: it reads from the text of a module whether a function exists, and
    how many arguments it takes.

    Exits with 2 if a pipeline file has errors, with 3 if only the columns of an input are unknown or don't fit, and with 6 if only
    operators have a worse class of work than the file's `budget` allows.

    \b
    JSON: {ok, pipelines: [{file, name, ok,
           inputs: {NAME: {columns: {COLUMN: TYPE}, time: {COLUMN: TYPE}, files, passed: {PATH: WHY},
           inferred: {columns, file, known} or null}}, outputs: {NAME: {COLUMN: TYPE}},
           errors: [{file, line, column, length, problem, hint, code}]}]}

    \b
    Examples:
      dd check pipelines/airborne.yaml
      dd check pipelines/*.yaml -o github
    """
    from ddcli.commands.check import check

    found = [check(path, budget) for path in pipelines]
    errors = [error for each in found for error in each.errors]
    if not errors:
        check_used()
    if output == "json":
        say(json_text({"ok": not errors, "pipelines": [each.to_json() for each in found]}))
    for each in found if output != "json" else ():
        for error in each.errors:
            if output == "github":
                from ddcli.cli.messages import annotation

                say_own(annotation(error))
            else:
                say(*error.lines(), err=True)
        if not each.errors:
            inputs = f"{len(each.inputs)} {plural(len(each.inputs), 'input')}"
            say(f"{each.file}: ok, {inputs}")
            for remark in each.remarks:
                say(f"{each.file}: note: {remark}", err=True)
            for name, given in each.inputs.items():
                for path, why in list(given.passed.items())[:SHOWN]:
                    say(f"{each.file}: note: inputs.{name}: {near(path)} is skipped: {why}", err=True)
                if len(given.passed) > SHOWN:
                    say(f"{each.file}: note: inputs.{name}: and {len(given.passed) - SHOWN:,} more", err=True)
            for span, text in each.bound.graph.notes if each.bound is not None else ():
                say(f"{span}: note: {text}", err=True)
            for name, why in each.unseen.items():
                say(f"{each.file}: note: `{name}` is checked when it is called: {why}", err=True)
            for name, schema in each.outputs.items():
                say(f"  {name}: {', '.join(f'{column} {kind}' for column, kind in schema.items())}")
    if errors:
        wrong = sum(bool(each.errors) for each in found)
        total = f"{len(errors)} {plural(len(errors), 'error')} in {wrong} of {len(found)} {plural(len(found), 'file')}"
        say(total, err=True)
        raise click.exceptions.Exit(min(error.exit_code for error in errors))


@click.command("checks", short_help="Show the verdicts of the checks of pipelines.")
@PIPELINES
@STATE
@NOW
@file_option("--junit", help="Also write JUnit XML to FILE, a suite for each pipeline.")
@REPORT
@SHOW
@VAR
def checks_command(
    pipelines: tuple[Path, ...], state: Path | None, now: str | None, junit: Path | None, output: str
) -> None:
    """Show the verdict of each check of PIPELINE at the last commit, without a run, and the commits that were accepted although a check failed.
    A directory means the pipeline files in it.

    `fresh` is tested as of now. The violations of a check are a collection with its name:
    `dd sql --from PIPELINE 'select * from NAME'` reads them, `dd log` shows their past in the log that is named here, and
    `dd why PIPELINE NAME` shows the rows that they come from.

    Exits with 7 if a check fails that would prevent a commit.

    \b
    JSON: {pipeline, upper, checks: {NAME: {title, place, kind, of, otherwise, passed, violations, problems: [TEXT], accepted, log,
          new, first} or null if no run has judged it}, accepted: [{check, at, by, found}]}
    For several pipelines, and for a directory: {pipelines: [such an object for each]}.

    \b
    Examples:
      dd checks pipelines/airborne.yaml
      dd checks pipelines/ --junit checks.xml
    """
    from ddcli.commands.checks import checks
    from ddcli.commands.checks import junit as junit_of
    from ddcli.commands.pipelines import find_pipelines

    several = len(pipelines) > 1 or pipelines[0].is_dir()
    if several and state is not None:
        raise UsageError("--state is for one pipeline", hint="name one pipeline file")
    paths = [each.path for each in find_pipelines(pipelines)[0]] if several else pipelines
    found = [checks(path, state, now) for path in paths]
    if junit is not None:
        junit.write_bytes(junit_of(each.suite() for each in found))
    if output == "json":
        reports = [each.to_json() for each in found]
        say(json_text({"pipelines": reports} if several else reports[0]))
    for each in found if output != "json" else ():
        if not each.checks:
            say(f"{each.pipeline}: no checks", err=True)
        elif several:
            say(f"{each.pipeline}:")
        for line in each.lines():
            say(f"  {line}" if several else line)
    if any(each.failed for each in found):
        raise click.exceptions.Exit(CheckError.exit_code)


WORK = 10
"""The exit code of `--exit-code` if a run has something to do."""


@click.command("plan", short_help="Show the work of a run, without doing it.")
@ONLY_PIPELINE
@click.option("--until", metavar="T", help="Plan a run that closes the times before T, as `dd run --until T`.")
@STATE
@click.option(
    "--counts",
    is_flag=True,
    help="For a changed file, compute how many rows of each output would change, as `dd run --apply --dry-run` does.",
)
@click.option("--exit-code", is_flag=True, help="Exit with 10 if a run has something to do.")
@REPORT
@VAR
def plan_command(
    pipeline: Path, until: str | None, state: Path | None, counts: bool, exit_code: bool, output: str
) -> None:
    """Show the work of a run of PIPELINE: the files and rows to read.

    For a changed file it also shows which arrangements the run keeps or rebuilds; which outputs change, with the edits that change them; and which operators
    have a worse class of work (see `dd explain`). Then it lists the choices of the plan, with the figures that decided them: columns and filters, the order
    of joins, delta joins, shared arrangements, and collections that are kept once or apart.

    Changes nothing and takes no lock; without --counts it computes nothing. `rows` is an upper bound if files also have rows of other times.

    \b
    JSON: {name, lower, upper, work, needs_apply, inputs: {NAME: {rows, new_files, waiting_files,
          again_files, again_bytes}}, kept | built | dropped: [{of, rows, bytes, why: [TEXT], estimated}],
          outputs: {NAME: {change: "same" | "new" | "changed" | "removed", why: [TEXT],
          edits: [{name, query, before: TEXT or null, now: TEXT}], updates: {rows, inserted, retracted} or null}}, worsened: [TEXT],
          reached: [{edited, values | decides: [COLUMN]}], inferred: {NAME: TEXT},
          choices: [{kind: "columns" | "filter" | "join order" | "delta join" | "shared" | "kept once" | "apart", at, chosen, why}]}

    \b
    Examples:
      dd plan pipelines/airborne.yaml
      dd plan pipelines/airborne.yaml --exit-code -o json      # exit 10
    """
    from ddcli.commands.plan import preview

    found = preview(pipeline, state=state, until=until, counts=counts)
    report(output, found.to_json(), found.lines(shell(near(str(pipeline)))))
    if exit_code and found.work:
        raise click.exceptions.Exit(WORK)


@click.command("lineage", short_help="Show the input columns that a column comes from, and what it reaches.")
@ONLY_PIPELINE
@click.argument("columns", metavar="[COLUMN...]", nargs=-1, type=COLLECTION)
@formats("text", "json", "mermaid", "html", about="Format: lines, JSON, a Mermaid flowchart, or a page.")
@VAR
def lineage_command(pipeline: Path, columns: tuple[str, ...], output: str) -> None:
    """Show where the columns of PIPELINE's outputs come from. PIPELINE may be a directory: then inputs are followed through the pipelines there that write them.

    COLUMN is the name of an output or a collection, or of one of its columns, `sales.amount`. For an input, or a column of one, the output columns that it
    reaches are shown. The default is all output columns. If several pipelines have the name, put the pipeline's first: `month/sales.amount`.

    A column comes `from` the columns that its values are made of. It is `decided by` columns that decide which value a record has, or which
    records exist: conditions, keys of joins, groups, orders. Other input columns have no effect on it, as long as no multiplicity is negative.
    All columns of a Python function count as made from all of its arguments. Time and diff columns are not shown.

    Reads no rows, only the columns in the footers of inputs; an input with declared `columns` needs no file.

    JSON: {columns: [{pipeline, name, column, type, sources | influences: [{pipeline, name, column}]}]}.

    \b
    Examples:
      dd lineage pipelines/airborne.yaml airborne.flights
      dd lineage pipelines/airborne.yaml flights.status
      dd lineage pipelines/ -o html > lineage.html
    """
    from ddcli.commands.pipelines import find_lineage
    from ddcli.render import lineage as render

    report = find_lineage([pipeline], columns)
    if output == "json":
        say(json_text(report.to_json()))
    elif output == "html":
        say(*render.page(report).split("\n"))
    else:
        for line in render.mermaid(report) if output == "mermaid" else render.text(report):
            say(line)


@click.command("inputs", short_help="List the files of inputs: read, new, changed, withdrawn.")
@ONLY_PIPELINE
@STATE
@click.option(
    "--select",
    type=click.Choice(STATES),
    multiple=True,
    help="List only files in this state; repeatable.",
)
@REPORT
@VAR
def inputs_command(pipeline: Path, state: Path | None, select: tuple[str, ...], output: str) -> None:
    """List the files of the inputs of PIPELINE, each with its state: `read` (and unchanged since), `new`, `waiting` (it has rows at times that are not
    closed yet), `grown` (a log with more rows), `changed` or `missing` (a run refuses it), `withdrawn`, `repaired` (withdrawn, and changed since), `archived`,
    `forgotten` (read, and may be gone) or `skipped`. Tables and imported arrangements have no files here.

    Reads no rows, changes nothing and takes no lock.

    JSON: {inputs: {NAME: [{file, state, bytes, modified, rows, late, commit, read_at, why}]}}. `rows` counts the rows that runs have read, without rows that
    wait, were put aside or are unreadable; `late` counts late rows; `commit` and `read_at` are commit and time of the run that read the last row; `why` is
    the problem of a changed file, or why a file is skipped. Null is unknown, for example for files that an earlier version has read.

    \b
    Examples:
      dd inputs pipelines/airborne.yaml
      dd inputs pipelines/airborne.yaml --select changed --select missing -o json
    """
    found = input_files(pipeline, state)
    if select:
        found = {name: [file for file in files if file.state in select] for name, files in found.items()}
    if output == "json":
        say(json_text({"inputs": {name: [file.to_json() for file in files] for name, files in found.items()}}))
        return
    for name, files in found.items():
        if select and not files:
            continue
        say(f"{name}: {len(files):,} {plural(len(files), 'file')}")
        rows = [
            (
                file.state,
                visible(file.file),
                "" if file.bytes is None else size_of(file.bytes),
                "" if file.rows is None else f"{file.rows:,} {plural(file.rows, 'row')}",
                f"{file.late:,} late" if file.late else "",
                file.read_at or (f"commit {file.commit}" if file.commit else ""),
                visible(file.why or ""),
            )
            for file in files
        ]
        for line in in_columns(rows, right={2, 3, 4}):
            say(f"  {line}")


LATE = 1
"""The exit code if the times are not closed in time."""


@click.command("wait", short_help="Wait until a log is complete up to a time.")
@click.argument("log")
@click.option("--complete", metavar="T", help="Wait until the times before T are closed; T may be `today` or `-2h`.")
@click.option(
    "--newer-than",
    metavar="AGE",
    help="Wait until all times older than AGE are closed: 90s, 30m, 2h, 1d. Under `clock: arrival`: until a run has committed within AGE.",
)
@click.option("--timeout", metavar="TIME", type=Seconds(), help="Exit with 1 after TIME: 90, 10m, 2h. [default: never]")
@QUIET
def wait_command(log: str, complete: str | None, newer_than: str | None, timeout: float | None, quiet: bool) -> None:
    """Wait until the times of the change log LOG, an output of a pipeline, are closed: a directory, also s3://.

    Exits with 0 as soon as they are, so that the next job can read the log. `--timeout 0` is a health check. Also waits for a log that no run has
    written yet.

    \b
    Examples:
      dd wait out/airborne/ --complete 600 --timeout 0
      dd wait out/sales/ --newer-than 2h --timeout 10m   # for the next job
    """

    def tell(line: str) -> None:
        if not quiet:
            say(line, err=True)

    if not wait(log, Path.cwd(), complete, newer_than, timeout, tell):
        raise click.exceptions.Exit(LATE)
