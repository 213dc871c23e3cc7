"""Arguments and options that several commands share, and their completion by a shell.

Columns and options of CSV are written as in a pipeline file, and parsed by the same code.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddcli.errors import DdError, UsageError, name_pipeline
from ddcli.privacy import show
from ddcli.screen import json_text, say, visible
from ddcli.spec.file import ENDINGS, variables_of_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from click.shell_completion import CompletionItem

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import Schema
    from ddcli.spec.model import InputSpec


QUOTED = re.compile(r"""[\s"'`$\\*?\[\](){}<>|&;!#]""")
"""The characters that a shell doesn't take literally."""
F = TypeVar("F", bound="Callable[..., Any]")


class PipelineFile(click.Path):
    """The path of a pipeline file. The path itself is not checked: reading the file reports errors."""

    name = "pipeline"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; commands in hints name it."""
        name_pipeline(value)
        if ctx is not None:
            ctx.call_on_close(lambda: name_pipeline(None))
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the YAML files in this directory and those right below it; if there is none, let the shell complete files.

        The shell also completes files if a name needs quotes, which bash would not put around a completion from here: a space would end the argument.
        """
        folder, _, name = incomplete.rpartition("/")
        beginning = f"{folder}/" if folder or incomplete.startswith("/") else ""
        files = [path for path in _yaml_files(Path(beginning or ".")) if visible(path) == path]
        found = [beginning + path for path in files if path.startswith(name)]
        from click.shell_completion import CompletionItem

        if not found or any(map(QUOTED.search, found)):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(path) for path in sorted(found)]


class Completed(click.types.StringParamType):
    """A text that a shell completes to one of the `words` that a function returns for the command so far and the text's beginning; it may raise DdError or OSError."""

    def __init__(self, name: str, words: Callable[[click.Context, str], Iterable[str]]) -> None:
        self.name, self.words = name, words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the words that begin so, sorted; none if the file or its inputs can't be read."""
        from click.shell_completion import CompletionItem

        try:
            return [CompletionItem(word) for word in sorted(self.words(ctx, incomplete)) if word.startswith(incomplete)]
        except (DdError, OSError):
            return []


def name_in(*sections: str) -> Completed:
    """Return the type of a name of an input, collection or output in the pipeline file of the command."""

    def words(ctx: click.Context, _: str) -> Iterable[str]:
        from ddcli.plan.pipeline_file import load_spec

        # After an option that still lacks its value click leaves arguments as they are.
        given: Any = ctx.params.get("pipeline") or next(iter(ctx.params.get("pipelines") or ctx.args), None)
        spec = load_spec(Path(given)) if given is not None else None
        return {name for section in sections for name in getattr(spec, section, ())}

    return Completed("name", words)


def column_of(collection: str) -> Completed:
    """Return the type of a condition on a column, `region=north`, of the collection that another argument of the command names."""

    def words(ctx: click.Context, incomplete: str) -> Iterable[str]:
        from ddcli.commands.check import check

        pipeline, name = ctx.params.get("pipeline"), ctx.params.get(collection)
        if pipeline is None or name is None or "=" in incomplete:
            return []
        bound = check(pipeline).bound
        if bound is None:
            return []
        output = bound.spec.outputs.get(name)
        relation = bound.relations.get(name if output is None else output.source.value)
        columns = relation.node.schema if relation else ()
        return [f"{each}=" for each in columns if not QUOTED.search(each) and visible(each) == each]

    return Completed("column", words)


def _outputs_of_several(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Return the outputs in the pipeline files of the command, or in its directories; a `+` before or after a name includes other pipelines."""
    from ddcli.commands.pipelines import find_pipelines

    pipelines, _ = find_pipelines(map(Path, ctx.params.get("pipelines") or ctx.args))
    sign = "+" * incomplete.startswith("+")
    return {sign + name for pipeline in pipelines for name in pipeline.outputs}


class Seconds(click.FloatRange):
    """A length of time in seconds, from 0 on: `90`, `90s`, `10m`, `2h`."""

    name = "length of time"

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of seconds."""
        from ddcli.spec.checks import LENGTHS

        found: Any = re.fullmatch(r"(.*?)\s*([a-z]*)", str(value).strip(), re.DOTALL)
        if found[2] not in LENGTHS:
            return super().convert(value, param, ctx)
        return super().convert(found[1], param, ctx) * LENGTHS[found[2]]


class MemorySize(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """Bytes of memory; `least` are needed before a row is read: `2GiB` or `500MB`."""

    name = "size"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        from ddcli.job.sizes import parse_size

        try:
            size = parse_size(value)
        except ValueError:
            self.fail(f"'{value}' is not a size; write it as 2GiB or 500MB", param, ctx)
        if size < self.least:
            least = f"{self.least >> 20}MiB"
            self.fail(f"{value} is too little to begin with; the least is {least}", param, ctx)
        return size


def _yaml_files(folder: Path) -> Iterable[str]:
    """Yield the YAML files in a folder and in those right below it, relative to it, without hidden ones."""
    for path in [*folder.glob("[!.]*"), *folder.glob("[!.]*/[!.]*")]:
        if path.suffix in ENDINGS and path.is_file():
            yield str(path.relative_to(folder))


class Renamed(click.Option):
    """An option that also works under `old` spellings, which no help shows."""

    def __init__(self, *args: Any, old: Sequence[str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.old = list(old)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add every spelling to the parser."""
        super().add_to_parser(parser, ctx)
        shown, self.opts = self.opts, self.old
        super().add_to_parser(parser, ctx)
        self.opts = shown


def _pairs(given: Iterable[str], kind: str, example: str, is_one: Callable[[str, str], object]) -> dict[str, str]:
    """Return the values of options `NAME=VALUE` by name, the last where one is named twice; refuse any other text."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and is_one(name, value)):
            raise click.BadParameter(f"'{text}' is not a {kind}; write it as {example}")
        found[name] = value
    return found


def _settings(_context: click.Context, _option: click.Parameter, given: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings by name."""
    return _pairs(given, "setting", "spark.executor.memory=4g", lambda name, _: name)


def formats(*names: str, about: str, old: Sequence[str] = ()) -> Callable[[F], F]:
    """Return the option `-o` of a command that prints in one of these formats, by default the first."""
    kind = partial(click.option, cls=Renamed, old=old) if old else click.option
    return kind("-o", "--output", type=click.Choice(names), default=names[0], show_default=True, help=about)


def _bounds(_context: click.Context, _option: click.Parameter, given: Iterable[str]) -> dict[str, str]:
    """Return the bounds of a budget by name."""
    return _pairs(given, "bound", "rows=1e6", lambda name, value: name and value)


def budget(about: str) -> Callable[[F], F]:
    """Return the option of a budget."""
    return click.option("--budget", metavar="NAME=BOUND", multiple=True, callback=_bounds, help=about)


def following(about: str) -> Callable[[F], F]:
    """Return the options of a command that may follow commits."""
    follow = click.option("-f", "--follow", is_flag=True, help=about)
    count = click.option("--count", type=click.IntRange(1), metavar="N", help="End after N commits, with --follow.")
    timeout = click.option(
        "--timeout", type=Seconds(), metavar="TIME", help="End after TIME (90, 10m, 2h), with --follow."
    )
    return lambda command: follow(count(timeout(command)))


file_option = partial(click.option, metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
"""An option that names a file which the command reads or writes."""


def check_following(count: int | None, timeout: float | None, *, follow: bool) -> None:
    """Refuse the end of following where nothing is followed."""
    if (count is not None or timeout is not None) and not follow:
        raise UsageError("--count and --timeout need --follow", hint="add --follow, which they end")


class StateDirectory(click.Path):
    """The directory of a state: its whole path, or a path in an object store."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=str)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ddcli.store.files.access import locate

        return locate(Path.cwd(), str(super().convert(value, param, ctx)))


STATE = click.option(
    "--state",
    metavar="DIRECTORY",
    type=StateDirectory(),
    help="The state's directory, or a path in an object store (s3://BUCKET/PREFIX, gs://, az://). [default: the file's `state`, or .dd/NAME/ next to it]",
)
BRANCH = click.option(
    "--branch", metavar="NAME", help="The branch of the pipeline; sales.yaml with `--branch q4` is sales@q4.yaml."
)
DRY_RUN = click.option("-n", "--dry-run", is_flag=True, help="Compute and show the summary, but commit nothing.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
NOW = click.option(
    "--now",
    metavar="T",
    help="Time of the run, a timestamp in UTC, later than the last run's and at most a day ahead. [default: the present time]",
)
ROWS = formats("text", "json", "jsonl", "csv", "parquet", about="Format of the rows on stdout.")
REPORT = formats("text", "json", about="Format: lines, or JSON.")
IF_LOCKED = click.option(
    "--if-locked",
    type=click.Choice(["fail", "wait"]),
    default="fail",
    show_default=True,
    help="Fail, or wait, if a run holds the state.",
)


def _variables(context: click.Context, _option: click.Parameter, given: Iterable[str]) -> None:
    """Set these variables for the pipeline files that the command reads."""
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier() and name.isascii()):
            raise click.BadParameter(f"'{text}' is not a variable; write it as name=value")
        if name in values:
            raise click.BadParameter(f"'{name}' is set twice: leave one out")
        values[name] = value
    if values:
        context.with_resource(variables_of_call(values))


VAR = click.option(
    "--var",
    metavar="NAME=VALUE",
    multiple=True,
    expose_value=False,
    callback=_variables,
    help="Set the variable `${NAME}` of the pipeline file, overriding the environment; repeatable.",
)


SHOW = click.option(
    "--show",
    metavar="TAG",
    multiple=True,
    expose_value=False,
    callback=lambda _context, _option, tags: show(tags),
    help="Show the values of columns with this tag instead of digests; repeatable.",
)
NO_CODE = click.option(
    "--no-code",
    is_flag=True,
    help="Refuse a pipeline that names Python functions, which would run. DDCLI_NO_CODE=1 does the same.",
)
REMOTE = click.option("--remote", metavar="URL", help="Address of Spark Connect, instead of a master: sc://HOST:15002.")
CONF = click.option(
    "--conf", metavar="KEY=VALUE", multiple=True, callback=_settings, help="A Spark setting; repeatable."
)


def report(output: str, facts: Any, lines: Iterable[str]) -> None:
    """Print a report in the format of `-o`: the facts as JSON, or the lines."""
    for line in [json_text(facts)] if output == "json" else lines:
        say(line)


def added_files(given: Iterable[str]) -> list[tuple[str, Path]]:
    """Return the inputs and files of options `--with INPUT+=FILE`.

    >>> added_files(["orders+=fix.csv"])
    [('orders', PosixPath('fix.csv'))]
    """
    from ddcli.store.files.access import locate

    found = []
    for text in given:
        name, sign, file = text.partition("+=")
        if not (name and sign and file):
            raise UsageError(f"--with {text}: this names no input and file", hint="write it as orders+=fix.csv")
        found.append((name, locate(Path(), file)))
    return found


def only_pipeline() -> Path:
    """Return the pipeline file of the working directory, for a command that names none. Raises UsageError unless there is exactly one."""
    from ddcli.commands.pipelines import find_pipelines

    here = Path()
    if not any(path.suffix in ENDINGS for path in here.iterdir()):
        raise UsageError("no pipeline is named, and this directory has none", hint="name the pipeline file")
    found, _ = find_pipelines([here])
    if len(found) > 1:
        names = ", ".join(sorted(str(each.path) for each in found))
        raise UsageError(f"no pipeline is named, and this directory has several: {names}", hint="name one of them")
    name_pipeline(found[0].path)
    return found[0].path


def _named_or_only(context: click.Context, argument: click.Parameter, given: Any) -> Any:
    if given or context.resilient_parsing:
        return given
    context.call_on_close(lambda: name_pipeline(None))
    return only_pipeline() if argument.nargs == 1 else (only_pipeline(),)


PIPELINE = PipelineFile()
ONLY_PIPELINE = click.argument("pipeline", type=PIPELINE, required=False, callback=_named_or_only)
PIPELINES = click.argument(
    "pipelines", metavar="[PIPELINE...]", type=PIPELINE, nargs=-1, required=False, callback=_named_or_only
)
OUTPUT = name_in("outputs")
CHECK = name_in("checks")
OUTPUTS = Completed("name", _outputs_of_several)
COLLECTION = name_in("inputs", "collections", "outputs")


ACCEPT = click.option(
    "--accept",
    metavar="NAME",
    type=CHECK,
    multiple=True,
    help="Let this run commit although the check NAME fails; repeatable. The state records who did it, when and why.",
)
REASON = click.option("--reason", metavar="TEXT", help="The reason for --accept.")
CSV_OPTION = click.option(
    "--csv",
    metavar="OPTIONS",
    help='The dialect of CSV files, as in a pipeline file: \'{delimiter: ";", decimal: ","}\'.',
)


def columns_option(about: str) -> Callable[[F], F]:
    """Return the option of the columns of files that state no types of their own."""
    shown = f"Names and types, as in a pipeline file: '{{id: int64, name: string?}}'. {about}"
    return click.option("--columns", metavar="MAPPING", help=shown)


def log_options(time: str, diff: str, *, metavar: str = "COLUMN") -> Callable[[F], F]:
    """Return the options of the time columns and the diff column of a log."""
    first = click.option("--time", metavar=metavar, multiple=True, help=time)
    then = click.option("--diff", metavar="COLUMN", default="diff", show_default=True, help=diff)
    return lambda command: first(then(command))


def parse_columns(text: str) -> Schema:
    """Parse a mapping of columns, `{id: int64, name: string?}`, with or without its braces.

    >>> {name: str(kind) for name, kind in parse_columns("id: int64, name: string?").items()}
    {'id': 'int64', 'name': 'string?'}
    """
    given = _parsed("columns", text, "a mapping of columns to types", "{id: int64, name: string?}")
    return {} if given.columns is None else {name: kind for name, (_, kind) in given.columns.items()}


def parse_csv(text: str) -> Dialect:
    """Parse a mapping of CSV options, `{delimiter: ";", encoding: latin-1}`, with or without its braces.

    >>> parse_csv('delimiter: ";", skip: 2').stated()
    [('delimiter', ';'), ('skip', 2)]
    """
    given = _parsed(
        "csv", text, "a mapping of options of CSV", '{delimiter: ";", encoding: latin-1}', "columns: {a: int64}, "
    )
    assert given.csv is not None
    return given.csv


def _parsed(key: str, text: str, what: str, example: str, beside: str = "") -> InputSpec:
    """Parse an input of a pipeline file with a key whose value is a mapping."""
    from ddcli.plan.pipeline_file import parse_spec

    inner = text.strip()
    mapping = inner if inner.startswith("{") else f"{{{inner}}}"
    try:
        spec = parse_spec(
            f"{{dd: 1, name: a, inputs: {{a: {{path: a, {beside}{key}: {mapping}}}}}, outputs: {{a: b}}}}", key
        )
    except UsageError as errors:
        problem = getattr(errors, "errors", (errors,))[0].problem.removeprefix(f"inputs.a.{key}")
        raise click.BadParameter(f"'{text}' is not {what} ({problem.lstrip(':. ')}); write it as '{example}'") from None
    return spec.inputs["a"]
