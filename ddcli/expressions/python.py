"""Python functions that a pipeline names: how they are found, and what tells them apart. Their module may import what it likes."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from ddcli.errors import InputError, SpecError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

RAISED = (Exception, SystemExit)
"""What a function may raise for a record. That one wants to exit is no reason for a process to end that does more than call it."""


class AtHand(str):
    """The name of a function that comes along with it, as a program gives it: nothing is imported.

    The name tells functions apart as long as they are held, which `held` is, the object that the program made.
    """

    __slots__ = ("function", "held")
    function: Callable[..., Any]
    held: object

    def __new__(cls, function: Callable[..., Any], role: str, held: object) -> Self:
        """Return the name of `function`, which plays a `role` for what the program gave."""
        called = getattr(held, "__qualname__", type(held).__qualname__)
        named = super().__new__(cls, f"{called} at {id(held):#x} ({role})")
        named.function = function
        named.held = held
        return named


def load_function(name: str) -> Callable[..., Any]:
    """Return the function that `module:function` names, or that is at hand; raises SpecError.

    The caller has put its folder on sys.path.
    """
    if isinstance(name, AtHand):
        return name.function
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise SpecError(f"`{name}` names no function", hint="write module:function")
    try:
        module = importlib.import_module(module_name)
    except RAISED as error:  # a user's module may raise anything while it is imported
        problem = f"module `{module_name}` can't be imported: {said(error)}"
        raise SpecError(problem, hint="it is looked for beside the pipeline file and in the environment") from error
    found = getattr(module, function_name, None)
    if not callable(found):
        meant = did_you_mean(function_name, [each for each in vars(module) if callable(getattr(module, each))])
        hint = f"did you mean `{meant}`?" if meant else None
        raise SpecError(f"module `{module_name}` has no function `{function_name}`", hint=hint)
    function: Callable[..., Any] = found
    return function


def failure(
    error: BaseException, name: str, function: Callable[..., Any], told: str, hint: str | None = None
) -> Exception:
    """Return what to raise where a function raised `error`; `told` says for what it was called.

    That there is too little memory need not be the record's fault, so it stays a `MemoryError`: on Spark the task is done again,
    in a process that holds nothing yet.
    """
    if isinstance(error, MemoryError):
        return MemoryError(f"in {name}{told}")
    return InputError(f"{name} raised {said(error)}{told}", place=line_of(error, function), hint=hint)


def said(error: BaseException) -> str:
    r"""Return the name and the message of an exception, in a line.

    >>> said(ValueError("no such\n  day")), said(ValueError())
    ('ValueError: no such day', 'ValueError')
    """
    lines = (line.strip() for line in str(error).splitlines())
    return ": ".join(filter(None, [type(error).__name__, " ".join(filter(None, lines))]))


def line_of(error: BaseException, function: Callable[..., Any]) -> str | None:
    """Return the innermost line of the function's own file that an exception came through, or None."""
    code, found, at = getattr(function, "__code__", None), None, error.__traceback__
    while code is not None and at is not None:
        if at.tb_frame.f_code.co_filename == code.co_filename:
            found = f"{code.co_filename}:{at.tb_lineno}"
        at = at.tb_next
    return found


@cache
def meaning(name: str) -> str:
    """Return a hash of what a function does, as far as its own text says: comments and formatting are no part of it.

    Empty where there is no text to be had, as of one written in C.
    """
    if isinstance(name, AtHand):
        return ""
    try:
        text = textwrap.dedent(inspect.getsource(load_function(name)))
        return hashlib.sha256(ast.unparse(ast.parse(text)).encode()).hexdigest()[:12]
    except (OSError, TypeError, SyntaxError, SpecError):
        return ""
