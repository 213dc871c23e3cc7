"""The command line: the group of commands, and the exit code of each error. A command's module is imported when it is called."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys

import click

from ddcli.errors import DdError, UsageError, suggestion
from ddcli.privacy import hides, reset
from ddcli.screen import prepare, say
from ddcli.version import __version__

COMMANDS = (
    "bisect", "branch", "check", "checks", "completion", "convert", "diff", "doctor", "explain", "feed", "forget", "functions", "import", "init", "inputs",
    "lineage", "log", "plan", "query", "reset", "retract", "run", "schema", "sql", "state", "test", "verify", "wait", "why",
)  # fmt: skip
"""The commands, each as `command` in a module of its name, or in one of `SHARED`."""
SHARED = {
    **dict.fromkeys(("bisect", "verify", "why"), "why"),
    **dict.fromkeys(("completion", "functions", "schema"), "reference"),
    **dict.fromkeys(("convert", "log"), "log"),
    **dict.fromkeys(("forget", "retract"), "state"),
    **dict.fromkeys(("import", "init"), "init"),
    **dict.fromkeys(("check", "checks", "inputs", "lineage", "plan", "wait"), "plan"),
    **dict.fromkeys(("feed", "query", "sql"), "query"),
    "reset": "state_changes",
}
"""Modules of several commands: each is there as `NAME_command`."""
BUG = 70
INTERRUPTED = 130
NO_READER = 141
"""The exit code that a shell shows for a program that SIGPIPE ended."""
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""The errors of writing without room; writing our files raises errors of its own, so one without a file name is about stdout."""
COMPLETE = "_DDCLI_COMPLETE"
"""The variable that the scripts of `dd completion` set to request completions."""


DID_YOU_MEAN = re.compile(r"\.? \(?(?P<hint>did you mean .*?\?)\)?$", re.IGNORECASE)
"""The end of click's messages about a misspelt name."""


class NoCommand(click.UsageError):
    """A command that does not exist."""

    def __init__(self, name: str, hint: str, ctx: click.Context) -> None:
        super().__init__(f"no such command '{name}'", ctx)
        self.hint = hint


class LazyGroup(click.Group):
    """The group of the commands; each is imported from its module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ddcli.cli.{SHARED.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_command" if cmd_name in SHARED else "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            hint = suggestion(args[0], COMMANDS, f"the commands are: {', '.join(COMMANDS)}")
            raise NoCommand(args[0], hint, ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dd", message="dd (ddcli) %(version)s")
@click.option("--debug", is_flag=True, help="Show a traceback with an error. May stand anywhere.")
def cli(debug: bool) -> None:
    """Keep the results of data pipelines up to date as their inputs change.

    A pipeline file describes a graph of operators. `dd run` reads the new rows of its inputs, does work in
    proportion to them, and writes the changes of its outputs.

    \b
    Example:
      dd run pipelines/airborne.yaml

    With operands such as `if=` and `of=`, or between pipes without arguments, `dd` runs the system's dd;
    `ddcli` is always this program.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 wrong use, 3 input refused, 4 state, 5 I/O, 70 a bug, 75 locked, 130 interrupted.

    The context is made by hand because click's own `main` ends a broken pipe with 1, which is an answer of some commands.
    """
    if COMPLETE in os.environ:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "ddcli", COMPLETE, os.environ[COMPLETE]))
    prepare()
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        _check_directory()
        with cli.make_context("dd", arguments) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        fail("interrupted; state and outputs are as they were", code=INTERRUPTED)
    except click.ClickException as error:
        show_misuse(error)
        sys.exit(error.exit_code)
    except DdError as error:
        if debug:
            show_traceback(error)
        fail(*error.lines(), code=error.exit_code)
    except BrokenPipeError:
        # Python flushes stdout when it ends, and reports on stderr if that fails.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        sys.exit(NO_READER)
    except MemoryError as error:
        what = ": ".join(filter(None, ["out of memory", str(error)]))
        fail(f"error: {what}; state and outputs are as they were", code=5)
    except Exception as error:  # noqa: BLE001 - the last resort: any other exception is a bug, and reported as one
        if debug:
            show_traceback(error)
        if isinstance(error, OSError):
            fail(*_failed(error), code=5)
        if (
            isinstance(error, UnicodeEncodeError) and error.object[error.start] >= "\ud800"
        ):  # as Python reads such arguments
            fail(
                f"error: not UTF-8: '{error.object}'",
                "hint: write names and values in UTF-8",
                code=UsageError.exit_code,
            )
        hint = "report it with this traceback" if debug else "run again with --debug and report the traceback"
        what = type(error).__name__ if hides() else f"{type(error).__name__}: {error}"
        fail(f"error: this is a bug of ours: {what}", f"hint: {hint}", code=BUG)
    finally:
        reset()


def _check_directory() -> None:
    """Refuse to work in a directory that was removed: all paths are relative to it."""
    try:
        os.getcwd()  # noqa: PTH109 - a call that each command makes
    except FileNotFoundError:
        problem = "the current directory does not exist any more"
        raise UsageError(problem, hint="change to another directory") from None


def _failed(error: OSError) -> list[str]:
    """Return the message for an error of the system that nothing below knows more about."""
    if error.errno in FULL and error.filename is None:
        return [unwritten(error)]
    place = f"{error.filename}: " if error.filename is not None else ""
    problem = f"{place}error: the system can't read or write: {error.strerror or error}"
    return [problem, "hint: see the file, its directory and its disk, then run again"]


def unwritten(error: OSError) -> str:
    """Return the message for output that could not be written."""
    return f"error: cannot write the output: {error.strerror}"


def show_traceback(error: BaseException) -> None:
    """Write the traceback of an error to stderr."""
    import traceback  # it takes 6 ms, and hardly any call needs it

    say(*"".join(traceback.format_exception(error)).rstrip("\n").split("\n"), err=True)


def show_misuse(error: click.ClickException) -> None:
    """Report wrong use on stderr like any error: the problem, a hint, and the command's usage; of a group without a command its help."""
    problem = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(*problem.split("\n"), err=True)
        return
    hint = getattr(error, "hint", "")
    if found := DID_YOU_MEAN.search(problem):
        problem, hint = problem[: found.start()], f"d{found['hint'][1:]}"
    # For a missing parameter click lists the choices, in lines; all other messages quote the person's own words.
    first, *choices = problem.expandtabs(2).split("\n") if isinstance(error, click.MissingParameter) else [problem]
    say(f"error: {first[:1].lower()}{first[1:].removesuffix('.')}", *choices, err=True)
    context = getattr(error, "ctx", None)
    if context is not None:
        say(f"hint: {hint or f'`{context.command_path} -h` lists arguments and options'}", err=True)
        say(*context.get_usage().replace("Usage:", "usage:", 1).split("\n"), err=True)


def fail(*lines: str, code: int) -> None:
    """Report an error and exit."""
    say(*lines, err=True)
    sys.exit(code)
