"""Python functions that a pipeline names: their names with definitions, their import, and their errors.

Their module may import any other.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Self

from ddcli.errors import InputError, SpecError, suggestion
from ddcli.privacy import hides

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.errors import Span, Text


RAISED = (Exception, SystemExit)
"""The errors that a function may raise for a record. A function that wants to exit must not end a process that does more than call it."""


class AtHand(str):
    """The name of a function that a program passes as an object, which needs no import.

    The name identifies the function while `held`, the program's object, is alive.
    """

    __slots__ = ("function", "held")
    function: Callable[..., Any]
    held: object

    def __new__(cls, function: Callable[..., Any], role: str, held: object) -> Self:
        """Return the name of `function`, which plays a `role` for the program's object."""
        called = getattr(held, "__qualname__", type(held).__qualname__)
        named = super().__new__(cls, f"{called} at {id(held):#x} ({role})")
        named.function = function
        named.held = held
        return named


class Named(str):
    """The name `module:function` of a function that a pipeline file names, with the definition that is known without running it.

    It is searched in the pipeline's `folder`, then in the environment. Names are equal if they mean the same function of the same
    text: `meaning` is the hash of its definition, `text` the digest of its module. `span` is its place in the file.
    """

    __slots__ = ("folder", "meaning", "span", "text")
    folder: str
    text: str
    meaning: str
    span: Span | None

    def __new__(cls, name: str, folder: str, text: str = "", meaning: str = "", span: Span | None = None) -> Self:
        named = super().__new__(cls, name)
        named.folder, named.text, named.meaning, named.span = folder, text, meaning, span
        return named

    def __getnewargs__(self) -> tuple[str, str, str, str, Span | None]:  # type: ignore[override]
        return str(self), self.folder, self.text, self.meaning, self.span

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Named):
            return str(self) == str(other) and (self.folder, self.text) == (other.folder, other.text)
        return str(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


def named(name: Text, folder: str, given: int, what: str) -> Named:
    """Return the name of a function with its definition in its module's text; it will be called with `given` arguments, described by `what`.

    Runs nothing. Raises SpecError, at the place of the name, if it doesn't exist or can't be called with these.
    """
    from ddcli.expressions.definition import define

    try:
        found = define(name.value, folder)
    except SpecError as error:
        raise SpecError(error.problem, span=name.span, hint=error.hint) from error
    if refusal := found.refusal(given):
        raise SpecError(f"`{name.value}` {refusal}", span=name.span, hint=f"it is called with {what}")
    return Named(name.value, folder, found.text, found.meaning, name.span)


def load_function(name: str) -> Callable[..., Any]:
    """Return the function `module:function`, or the one that a program has passed. This runs its module. Raises SpecError."""
    if isinstance(name, AtHand):
        return name.function
    span = name.span if isinstance(name, Named) else None
    module_name, _, function_name = name.partition(":")
    try:
        if isinstance(name, Named):
            from ddcli.expressions.modules import imported

            module = imported(module_name, name.folder, name.text)
        else:
            module = importlib.import_module(module_name)
    except SpecError as error:
        raise SpecError(error.problem, span=span, hint=error.hint) from error
    except RAISED as error:  # a user's module may raise anything while it is imported
        problem = f"module `{module_name}` can't be imported: {message_of(error)}"
        where = "it is looked for beside the pipeline file and in the environment"
        raise SpecError(problem, span=span, hint=where if isinstance(error, ImportError) else None) from error
    found = getattr(module, function_name, None)
    if not callable(found):
        named = [each for each in vars(module) if callable(getattr(module, each))]
        hint = suggestion(function_name, named, "", mark="`")
        raise SpecError(f"module `{module_name}` has no function `{function_name}`", span=span, hint=hint or None)
    function: Callable[..., Any] = found
    return function


def failure(
    error: BaseException, name: str, function: Callable[..., Any], argument: str, hint: str | None = None
) -> Exception:
    """Return the error to raise for the `error` of a function; `argument` names the row or batch of the call.

    A lack of memory need not be the record's fault, so a `MemoryError` stays one: Spark repeats the task in a fresh process.
    """
    if isinstance(error, MemoryError):
        return MemoryError(f"in {name}{argument}")
    return InputError(f"{name} raised {message_of(error)}{argument}", place=line_of(error, function), hint=hint)


def message_of(error: BaseException) -> str:
    r"""Return the name and the message of an exception, in a line; the name alone where its message may quote a hidden value.

    >>> message_of(ValueError("no such\n  day")), message_of(ValueError())
    ('ValueError: no such day', 'ValueError')
    """
    lines = () if hides() else (line.strip() for line in str(error).splitlines())
    return ": ".join(filter(None, [type(error).__name__, " ".join(filter(None, lines))]))


def line_of(error: BaseException, function: Callable[..., Any]) -> str | None:
    """Return the innermost line of the function's own file that an exception came through, or None."""
    code, found, at = getattr(function, "__code__", None), None, error.__traceback__
    while code is not None and at is not None:
        if at.tb_frame.f_code.co_filename == code.co_filename:
            found = f"{code.co_filename}:{at.tb_lineno}"
        at = at.tb_next
    return found
