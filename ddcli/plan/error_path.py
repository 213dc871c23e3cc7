"""Errors on their way up: each gets the path of its subject, and several are collected."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ddcli.errors import SpecError, SpecErrors, UnknownColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.errors import DdError, Span


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
    return error.errors if isinstance(error, SpecErrors) else (error,)


@contextmanager
def placing(place: str, span: Span) -> Iterator[None]:
    """Add to errors their place in the file's tree, which names the operator in a long chain.

    An error from within a collection in place has one already. `span` is for those that have no place in the text.
    """

    def placed(error: DdError) -> DdError:
        if error.problem.startswith("collections."):
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
