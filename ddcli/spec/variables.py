"""Variables in the values of a pipeline file: `${NAME}` and `${NAME:-default}`, of `--var` or the environment.

A variable with the name of a secret is only allowed under `spark`: all other values of a file are kept in states, plans and logs.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ddcli.errors import Expanded, Span, Text, UsageError, conceal, did_you_mean, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OPEN = "${"
_USE, _NAME = r"(\$?)\$\{([^{}\n]*)(\}?)", r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?"
_HIDDEN = r"(?i)SECRET|PASSW(OR)?D|TOKEN|CREDENTIAL|(ACCESS|API|PRIVATE|ACCOUNT)_?KEY"
"""Texts, as a run with a kept plan has no use for compiled patterns."""
FORM = "write `${NAME}` or `${NAME:-default}`; `$${` stands for `${` itself"

_of_call: dict[str, str] = {}
_used: set[str] = set()


class Unset(Exception):
    """A variable that can't be replaced: the problem, its place, a hint."""

    def __init__(self, problem: str, span: Span, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.span, self.hint = problem, span, hint


@contextmanager
def variables_of_call(values: Mapping[str, str]) -> Iterator[None]:
    """Use these values of variables before the environment's."""
    before = dict(_of_call)
    _of_call.update(values)
    _used.clear()
    try:
        yield
    finally:
        _of_call.clear()
        _of_call.update(before)


def find(name: str) -> str | None:
    """Return the value of a variable, if it has one, and record that it is used."""
    _used.add(name)
    return _of_call.get(name, os.environ.get(name))


def is_given(text: str) -> bool:
    """Return whether a text is the whole value of a variable of the call or the environment, and so a person's own."""
    return text in _of_call.values() or text in os.environ.values()


def check_used() -> None:
    """Raise UsageError for a variable of the call that no file has used so far: its name may be misspelt."""
    for name in _of_call:
        if name not in _used:
            hint = suggestion(name, _used, f"a file uses it as `${{{name}}}`")
            raise UsageError(f"--var {name}: the pipeline has no variable of this name", hint=hint)


def digest_of(value: str | None) -> str:
    """Return the digest of a variable's value, or of its absence."""
    return "" if value is None else hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()


def is_secret(name: str) -> bool:
    """Return whether the name of a variable marks its value as a secret.

    >>> [name for name in ("AWS_SECRET_ACCESS_KEY", "token", "PRIMARY_KEY", "DATA") if is_secret(name)]
    ['AWS_SECRET_ACCESS_KEY', 'token']
    """
    return re.search(_HIDDEN, name) is not None


def is_variable(text: str) -> bool:
    """Return whether a text is one variable as a whole.

    >>> [is_variable(text) for text in ("${N:-1}", "$${N}", "${A}${B}", "a/${N}")]
    [True, False, False, False]
    """
    found = re.fullmatch(_USE, text)
    return found is not None and not found[1]


def expand(text: Text, used: dict[str, str | None], *, secrets: bool) -> Text:
    """Return a text with its variables replaced, and add their values to `used`. Raises Unset.

    `secrets`: whether it may have some; these are no part of `used`, and no message shows them.
    """
    parts: list[str] = []
    moves: list[tuple[int, int, int, int]] = []
    end = length = 0
    for found in re.finditer(_USE, text.value):
        span = text.at(found.start(), len(found[0]))
        value = OPEN + found[2] + found[3] if found[1] else _value(found, span, used, secrets=secrets)
        parts += [text.value[end : found.start()], value]
        length += found.start() - end
        moves.append((length, len(value), found.start(), len(found[0])))
        length, end = length + len(value), found.end()
    return Expanded("".join([*parts, text.value[end:]]), text.span, text.inset, text.lines, text, tuple(moves))


def _value(found: re.Match[str], span: Span, used: dict[str, str | None], *, secrets: bool) -> str:
    """Return a variable's value, else its default; `used` notes the value unless it is a secret. Raises Unset."""
    named = re.fullmatch(_NAME, found[2])
    if not found[3]:
        raise Unset(f"the variable {found[0]!r} is not closed", span, f"close it with '}}': {FORM}")
    if named is None:
        raise Unset(f"{found[0]!r} is no variable", span, FORM)
    name, default = named[1], named[2]
    if is_secret(name) and not secrets:
        hint = (
            "what a file states is kept in states, plans and logs: object stores and tools read credentials from the "
            "environment themselves (AWS_ACCESS_KEY_ID, ...); only values under `spark` may have one"
        )
        raise Unset(f"the variable '{name}' is a secret by its name", span, hint)
    value = find(name)
    if not is_secret(name):
        used[name] = value
    if default is not None and not value:
        return str(default)
    if value is None:
        near = did_you_mean(name, _of_call)
        hint = f"did you mean '{near}'? " if near else ""
        hint += f"set it with `--var {name}=...` or in the environment, or write a default: `${{{name}:-...}}`"
        raise Unset(f"the variable '{name}' is not set", span, hint)
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Unset(f"the value of the variable '{name}' is not UTF-8", span, "write it in UTF-8")
    if is_secret(name):
        conceal(value, found[0])
    return value
