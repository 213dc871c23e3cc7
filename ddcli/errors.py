"""Every error that a person may see: a place, a problem, a hint, and the exit code it ends the process with.

Code below the command line raises these and never prints; the command line renders them and never guesses.
An exception that is not a `DdError` is a bug of ours and ends with exit code 70.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text file: 1-based line and column, a length in characters, and the line itself for showing."""

    file: str
    line: int
    column: int
    length: int = 1
    source: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar of a spec with its place, so that an error inside an expression can point at its column.

    `inset` is 1 for a quoted scalar (the quote), else 0. In a scalar that spans lines an offset is exact only on the
    first line; later ones point at the scalar's beginning.
    """

    value: str
    span: Span
    inset: int = 0

    def at(self, offset: int, length: int = 1) -> Span:
        """Return the span `offset` characters into the scalar."""
        span = self.span
        if self.inset + offset >= max(span.length, 1) or "\n" in self.value[:offset]:
            return span
        return Span(span.file, span.line, span.column + self.inset + offset, length, span.source)


class DdError(Exception):
    """The root: what went wrong (`problem`), where (`span` or `place`), and what to do about it (`hint`)."""

    exit_code: ClassVar[int] = 5

    def __init__(self, problem: str, *, span: Span | None = None, place: str | None = None, hint: str | None = None):
        super().__init__(problem)
        self.problem = problem
        self.span = span
        self.place = place
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Let an error go from one process to another, whatever its `__init__` asks for."""
        return _again, (type(self), self.args), self.__dict__

    def render(self) -> str:
        """Return the message as a person reads it: place, problem, the source line, hint."""
        where = str(self.span) if self.span else self.place
        lines = [f"{where}: error: {self.problem}" if where else f"error: {self.problem}"]
        if self.span and self.span.source:
            lines.append(f"{self.span.line:>12} | {self.span.source}")
            lines.append(" " * 12 + " | " + " " * (self.span.column - 1) + "^" * max(1, self.span.length))
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


def _again(kind: type[DdError], args: tuple[Any, ...]) -> DdError:
    error = kind.__new__(kind)
    error.args = args
    return error


class UsageError(DdError):
    """Wrong use of a command or a wrong pipeline file."""

    exit_code = 2


class SpecError(UsageError):
    """One thing wrong in a pipeline file, at a place in it."""


class SpecErrors(UsageError):
    """All that is wrong in a pipeline file, in the order of their places."""

    def __init__(self, errors: Sequence[DdError]):
        ordered = sorted(errors, key=lambda e: (e.span.file, e.span.line, e.span.column) if e.span else ("", 0, 0))
        super().__init__(f"{len(ordered)} errors" if len(ordered) != 1 else ordered[0].problem)
        self.errors = tuple(ordered)

    def render(self) -> str:
        """Return every error, one after the other."""
        return "\n".join(error.render() for error in self.errors)


class InputError(DdError):
    """Input refused: missing, damaged, changed, of a wrong type, or a row that an expression fails on."""

    exit_code = 3


class StateError(DdError):
    """The state needs a decision: corrupt, from a newer version, made by another pipeline, missing while outputs exist."""

    exit_code = 4


class EngineError(DdError):
    """The engine or the file system failed: overflow of a diff, a hash collision, no space left."""

    exit_code = 5


class LockedError(DdError):
    """Another run holds the state."""

    exit_code = 75


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the known word nearest to a misspelt one, or None.

    >>> did_you_mean("order", ["orders", "customers"])
    'orders'
    """
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return near[0] if near else None
