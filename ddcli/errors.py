"""Every error that a person may see: a place, a problem, a hint, and the exit code it ends the process with.

Code below the command line raises these and never prints; the command line renders them and never guesses.
An exception that is not a `DdError` is a bug of ours and ends with exit code 70.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.dataclass import frozen
from ddcli.privacy import hides
from ddcli.screen import columns, near, shell, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


LONG, SHORT = 400, 20
"""Characters of a line that are shown, at most, and on a narrow terminal at least."""
BESIDE = 15
"""Columns before a shown line: its number and a bar."""


def first_line(error: BaseException, text: str | None = None, *, quotes: bool = True) -> str:
    r"""Return the first line of an error's text, or of another about it; the name of its class where there is none.

    So it is where the text may quote a value of a row, as a library's texts may, and previews hide some.

    >>> first_line(ValueError("too large\nin row 3")), first_line(TimeoutError())
    ('too large', 'TimeoutError')
    """
    lines = (str(error) if text is None else text).strip().splitlines()
    if lines and quotes and hides() and not isinstance(error, OSError):
        return f"{type(error).__name__} (its message may quote a hidden value: `--show` shows it)"
    return lines[0] if lines else type(error).__name__


@frozen
class Span:
    """A place in a text file: 1-based line and column, a length in characters, and the line itself for showing."""

    file: str
    line: int
    column: int
    length: int = 1
    source: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """The text at the span, as far as it is on the line."""
        return self.source[self.column - 1 :][: self.length]

    def shown(self) -> list[str]:
        """Return the line with the place marked below; of a line that is wider than the terminal, the part around the place.

        A line that the terminal wrapped would leave the mark below somewhere else.
        """
        at, source = self.column - 1, masked(self.source)
        most = min(LONG, max(SHORT, (columns(sys.stderr) or LONG) - BESIDE))
        start, end = 0, len(source)
        if end > most:
            start = max(0, min(at - most // 4, end - most + 1))
            end = start + most - (start > 0)
            end -= end < len(source)
        before = "…" * (start > 0) + visible(source[start:at])
        text = visible(source[at : min(at + self.length, end)])
        marked = len(text) + max(0, at + self.length - len(source)) * (end >= len(source))
        after = visible(source[min(at + self.length, end) : end]) + "…" * (end < len(source))
        line = f"{self.line:>12} | {before}{text}{after}"
        return [line, " " * 12 + " | " + " " * len(before) + "^" * max(1, marked)]


@frozen
class Text:
    """A scalar of a spec with its place, so that an error inside an expression can point at its column.

    `inset` is 1 for a quoted scalar (the quote), else 0. `lines` are the places of later lines, where the file has them as they are, as a
    block (`|`) has; else an offset is exact only on the first line, and later ones point at the scalar's beginning.
    """

    value: str
    span: Span
    inset: int = 0
    lines: tuple[Span, ...] = ()

    def at(self, offset: int, length: int = 1) -> Span:
        """Return the span `offset` characters into the scalar."""
        span = self.span
        if self.lines and offset > _first_line(self.value):
            start = self.value.rfind("\n", 0, offset) + 1
            line = self.value.count("\n", 0, offset)
            span = self.lines[min(line, len(self.lines)) - 1]
            left = max(1, len(span.source) - span.column + 1 - (offset - start))
            return Span(span.file, span.line, span.column + offset - start, min(length, left), span.source)
        if self.inset + offset >= max(span.length, 1) or offset > _first_line(self.value):
            return span
        return Span(span.file, span.line, span.column + self.inset + offset, length, span.source)


@frozen
class Expanded(Text):
    """A scalar in which variables have been replaced. Places are those in `written`, the scalar as the file has it.

    `moves` are the parts that were replaced: offset and length in the value, then offset and length as written.
    """

    written: Text | None = None
    moves: tuple[tuple[int, int, int, int], ...] = ()
    encloses: bool = False
    """True: `written` is an expression within this one, such as a condition in `not (...)`: it must be right by itself, `a) or (b` isn't."""

    def at(self, offset: int, length: int = 1) -> Span:
        """Return the span `offset` characters into the value: in a replaced part, its variable's span."""
        assert self.written is not None
        moved = 0
        for at, size, before, wide in self.moves:
            if offset < at:
                break
            if offset < at + size:
                return self.written.at(before, wide)
            moved = before + wide - at - size
        return self.written.at(offset + moved, length)


@lru_cache(maxsize=64)
def _first_line(text: str) -> int:
    """Return the length of the first line; remembered, because a text has many places."""
    end = text.find("\n")
    return len(text) if end < 0 else end


LONGEST = 4000
"""Characters of a part of a message, at most: it may quote a file of some gigabytes without a line's end."""


def _bounded(text: str) -> str:
    """Return a text without its middle, if it is too long for a message."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST * 3 // 4]} ... {text[-LONGEST // 4 :]}"


PASSWORDS = r"(://[^/\s:@]*:)\S*(?=@)|(?<=password=)[^\s&\"'{},]+"
"""The passwords of URIs: a text, as a run with a kept plan has no use for a compiled pattern."""
_concealed: dict[str, str] = {}


def conceal(value: str, shown: str) -> None:
    """Have messages show something else in place of a value."""
    if value:
        _concealed[value] = shown


_pipeline: str | None = None


def name_pipeline(path: object) -> None:
    """Have the commands in hints name the present command's pipeline file in place of `PIPELINE`; None: no more."""
    global _pipeline  # noqa: PLW0603 - a setting of the process
    _pipeline = None if path is None else str(path)


def _to_paste(hint: str, place: str | None) -> str:
    """Return a hint whose commands can be pasted into a shell: they name the pipeline, and the file at the place of the error."""
    if _pipeline is None or "PIPELINE" not in hint:
        return hint
    words = {"PIPELINE": shell(_pipeline)} | ({"FILE": shell(place)} if place else {})
    named = re.compile(rf"(?<= )({'|'.join(words)})(?=[ `])")
    return re.sub(
        r"`dd [^`]* PIPELINE[^`]*`", lambda command: named.sub(lambda found: words[found[1]], command[0]), hint
    )


def _shown(text: str) -> str:
    """Return a part of a message as it may be shown."""
    for value, shown in _concealed.items():
        text = text.replace(value, shown)
    return masked(_bounded(text))


def masked(text: str) -> str:
    """Return a text with stars for the passwords of URIs in it, as many as these have letters.

    >>> masked("{database: postgresql://me:s@fe@db/shop?sslpassword=x}")
    '{database: postgresql://me:****@db/shop?sslpassword=*}'
    """
    if "://" not in text:
        return text
    return re.sub(PASSWORDS, lambda found: f"{found[1] or ''}{'*' * (len(found[0]) - len(found[1] or ''))}", text)


class DdError(Exception):
    """The root of all errors: the `problem`, its place (`span` or `place`), and a `hint` on how to solve it. `logged` is the problem with values that previews hide."""

    exit_code: ClassVar[int] = 5
    detail: tuple[str, ...] = ()
    """Lines that belong below the problem, where they are not shown in another way."""
    choices: tuple[str, ...] = ()
    """The ways on, if the hint has several."""

    def __init__(
        self,
        problem: str,
        *,
        span: Span | None = None,
        place: str | None = None,
        hint: str | tuple[str, ...] | None = None,
        logged: str | None = None,
    ):
        self.problem = _shown(problem)
        self.logged = self.problem if logged is None else _shown(logged)
        super().__init__(self.problem)
        self.span = span
        self.place = place and _shown(place)
        if isinstance(hint, tuple):
            self.choices = tuple(_shown(_to_paste(choice, place)) for choice in hint)
            self.hint: str | None = "; or ".join(self.choices)
        else:
            self.hint = hint and _shown(_to_paste(hint, place))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let an error be pickled for another process, for any arguments of its `__init__`."""
        return _again, (type(self), self.args), self.__dict__

    def lines(self) -> list[str]:
        """Return the message as a person reads it, on any screen: place, problem, the source line, hint.

        Paths are relative to the working directory.
        """
        where = str(self.span) if self.span else self.place
        problem = near(f"{where}: error: {self.problem}" if where else f"error: {self.problem}")
        source = self.span.shown() if self.span and self.span.source else []
        hint = [near(f"hint: {self.hint}")] if self.hint else []
        if self.choices:
            hint = ["hint: one of these:", *(near(f"  - {choice}") for choice in self.choices)]
        return [visible(line) for line in (problem, *source, *hint)]

    def render(self) -> str:
        """Return the lines of the message as one text."""
        return "\n".join(self.lines())

    def __str__(self) -> str:
        return self.render()


def _again(kind: type[DdError], args: tuple[Any, ...]) -> DdError:
    error = kind.__new__(kind)
    error.args = args
    return error


class NegativeAnswer(DdError):
    """The answer no: there is no such record, a condition does not fail, a test does."""

    exit_code = 1


class UsageError(DdError):
    """Wrong use of a command or a wrong pipeline file."""

    exit_code = 2


class SpecError(UsageError):
    """One thing wrong in a pipeline file, at a place in it."""


class UnknownColumn(SpecError):
    """A name that no column in scope has: `column`."""

    def __init__(self, problem: str, column: str, *, span: Span | None, hint: str | None):
        super().__init__(problem, span=span, hint=hint)
        self.column = column


class SpecErrors(UsageError):
    """All errors in a pipeline file, in the order of their places, each once: the parts of a check find the same ones."""

    def __init__(self, errors: Sequence[DdError]):
        different = {(error.problem, error.span and str(error.span)): error for error in errors}.values()
        ordered = sorted(different, key=lambda e: (e.span.file, e.span.line, e.span.column) if e.span else ("", 0, 0))
        super().__init__(f"{len(ordered)} errors" if len(ordered) != 1 else ordered[0].problem)
        self.errors = tuple(ordered)

    def lines(self) -> list[str]:
        """Return the lines of every error, one after the other."""
        return [line for error in self.errors for line in error.lines()]


class InputError(DdError):
    """A refused input: missing, damaged, changed, of a wrong type, or with a row that an expression fails on."""

    exit_code = 3


class StateError(DdError):
    """The state needs a decision: corrupt, from a newer version, made by another pipeline, missing while outputs exist."""

    exit_code = 4


class ChangedError(StateError):
    """The pipeline has changed, and outputs would change: the edits of the file are shown below the problem, a line each."""

    def __init__(self, problem: str, edits: Iterable[str], *, place: str, hint: str):
        super().__init__(problem, place=place, hint=hint)
        self.detail = tuple(map(_shown, edits))

    def lines(self) -> list[str]:
        """Return the message as a person reads it: the edits are between the problem and the hint."""
        problem, *hint = super().lines()
        return [problem, *(f"  {visible(line)}" for line in self.detail), *hint]


class EngineError(DdError):
    """The engine or the file system failed: overflow of a diff, a hash collision, no space left."""

    exit_code = 5


class ProcessError(EngineError):
    """A part of the process has died, without which it can do no more work; a new process can."""


class BudgetError(DdError):
    """A budget is exceeded: by the cost of a run, which commits nothing then, or by the work that a pipeline's operators may do."""

    exit_code = 6


class CheckError(DdError):
    """A check failed, and so nothing is committed: the first violations are shown below the problem, `verdict` has all about it as plain values.

    `check` is the name of its collection, `records` are the first violations, in the order in which they are shown.
    """

    exit_code = 7

    def __init__(
        self,
        problem: str,
        shown: Iterable[str],
        verdict: Mapping[str, Any],
        check: str,
        records: Iterable[Mapping[str, Any]],
        *,
        span: Span,
        hint: str,
    ):
        super().__init__(problem, span=span, hint=hint)
        self.detail = tuple(map(_shown, shown))
        self.verdict = dict(verdict)
        self.check, self.records = check, tuple(records)

    def locate(self, places: Sequence[Sequence[str]], most: int) -> None:
        """Show the places of the rows that the first violations come from, so many of each."""
        self.verdict["rows"] = [list(named[:most]) for named in places]
        for at, named in enumerate(places):
            shown = ", ".join([*named[:most], *(["..."] if len(named) > most else [])])
            detail = [*self.detail]
            detail[at] = _shown(f"{detail[at]}  ({shown})" if shown else detail[at])
            self.detail = tuple(detail)

    def lines(self) -> list[str]:
        """Return the message as a person reads it: the violations are between the place and the hint."""
        *problem, hint = super().lines()
        return [*problem, *(f"  {visible(line)}" for line in self.detail), hint]


class CheckErrors(DdError):
    """All checks that failed, in the order of the file."""

    exit_code = 7

    def __init__(self, errors: Sequence[CheckError]):
        super().__init__(
            f"{len(errors)} checks failed", hint="; ".join(dict.fromkeys(str(each.hint) for each in errors))
        )
        self.errors = tuple(errors)

    def lines(self) -> list[str]:
        """Return the lines of every error, one after the other; a hint for several is behind the last of them."""
        last = {error.hint: at for at, error in enumerate(self.errors)}
        lines = [
            error.lines() if last[error.hint] == at else error.lines()[:-1] for at, error in enumerate(self.errors)
        ]
        return [line for some in lines for line in some]


class LockedError(DdError):
    """Another run holds the state."""

    exit_code = 75


class RewrittenError(LockedError):
    """Another run has written a log anew while this one read it."""


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word nearest to a misspelt one, or None where none is as near as `cutoff`, of 1.

    >>> did_you_mean("order", ["orders", "customers"])
    'orders'
    """
    import difflib

    listed = list(known)
    same = [each for each in listed if each.lower() == word.lower()]
    near = same or difflib.get_close_matches(word, listed, n=1, cutoff=cutoff)
    return near[0] if near else None


def suggestion(word: str, known: Iterable[str], otherwise: str, mark: str = "'") -> str:
    """Return a hint with the known word nearest to a misspelt one, in these quotation marks; another hint where none is near.

    >>> suggestion("order", ["orders"], "outputs: orders"), suggestion("x", ["orders"], "outputs: orders")
    ("did you mean 'orders'?", 'outputs: orders')
    """
    near = did_you_mean(word, known)
    return f"did you mean {mark}{near}{mark}?" if near else otherwise


def suggestion_and_list(word: str, known: Iterable[str], listed: str) -> str:
    """Return a hint with the known word nearest to a misspelt one, if any is near, and a list of the known ones.

    >>> suggestion_and_list("order", ["orders"], "inputs: orders"), suggestion_and_list("x", ["orders"], "inputs: orders")
    ('did you mean `orders`? (inputs: orders)', 'inputs: orders')
    """
    near = did_you_mean(word, known)
    return f"did you mean `{near}`? ({listed})" if near else listed


class Unbuilt(Exception):
    """A reference to a collection that could not be built; its own errors have the reason."""


@contextmanager
def noting(errors: list[DdError]) -> Iterator[None]:
    """Collect the errors of one of several parts, so that the caller continues with the next."""
    try:
        yield
    except (SpecError, SpecErrors) as error:
        errors.extend(each_of(error))


def raise_all(errors: Sequence[DdError]) -> None:
    """Raise the noted errors, if there are any."""
    if errors:
        raise errors[0] if len(errors) == 1 else SpecErrors(errors)


def each_of(error: DdError) -> tuple[DdError, ...]:
    """Return the single errors that an exception stands for."""
    return error.errors if isinstance(error, SpecErrors | CheckErrors) else (error,)


def failed_checks(error: BaseException | None) -> list[CheckError]:
    """Return the failed checks that an exception stands for, none for any other."""
    return [each for each in each_of(error) if isinstance(each, CheckError)] if isinstance(error, DdError) else []


@contextmanager
def placing(place: str, span: Span) -> Iterator[None]:
    """Add to errors their place in the file's tree, which names the operator in a long chain.

    An error from within a collection in place, or from an operator of this place within another, has one already. `span` is for those that have no place in the text.
    """

    def placed(error: DdError) -> DdError:
        if error.problem.startswith(("collections.", f"{place}: ", f"{place}.")):
            return error
        problem, where = f"{place}: {error.problem}", error.span or span
        if isinstance(error, UnknownColumn):
            return UnknownColumn(problem, error.column, span=where, hint=error.hint)
        return SpecError(problem, span=where, hint=error.hint)

    try:
        yield
    except (SpecError, SpecErrors) as error:
        found = [placed(each) for each in each_of(error)]
        raise found[0] if len(found) == 1 else SpecErrors(found) from error
