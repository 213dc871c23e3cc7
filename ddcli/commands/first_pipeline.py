"""Pipeline files over the files of a folder, as guessed from these: each input is copied to an output, and doubts are comments."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from ddcli.commands.found_inputs import FoundInput, find, is_written_again
from ddcli.errors import InputError, UsageError
from ddcli.screen import visible
from ddcli.store.mirrors.delta_commits import LOG
from ddcli.store.tables.input_path import TEXTS, name_of_kind
from ddcli.store.tables.inventory import list_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KEYS = ("file_name", "format", "key", "order_by", "csv")
"""The keys of an input, in the order in which they are written."""
OWN = ("time", "diff")
"""The columns that an output's log adds."""


def begin(data: Path, directory: Path, notes: list[str] | None = None) -> dict[str, str]:
    """Return the text of pipeline files over the files below `data`, by name; paths in them are relative to `directory`. Files that are left out are added to `notes`.

    Rows have the time of the run that reads them. Debezium's events have times of their own, so they are in a second pipeline. Raises
    UsageError if nothing can be read.
    """
    if not data.is_dir():
        hint = "name the folder in which the files are"
        if data.parts[:1] and data.parts[0].endswith(":"):  # a URL, whose `//` a `Path` has as one
            hint = (
                "it looks at files of this machine: copy some here, and put the bucket into the `path` that it writes"
            )
        raise UsageError("there is no such directory", place=str(data), hint=hint)
    shown = os.path.relpath(data.absolute(), directory.absolute())
    found = [*_tables(data, shown)]
    if not found:
        found = find(data, shown, list_input(str(data.absolute()), data.absolute()))
    good = [one for one in found if one.why_not is None]
    if not good:
        why = "; ".join(f"{one.path}: {one.why_not}" for one in found) or "it has no file of a kind that is read"
        raise UsageError(
            f"no file can be an input: {why}", place=str(data), hint="docs/inputs.md lists the kinds of files"
        )
    name = re.sub(r"[^\w.-]+", "_", data.resolve().name).strip("._-") or "data"
    clocks = [clock for clock in ("arrival", "event") if any(_clock(one) == clock for one in good)]
    bad = [one for one in found if one.why_not is not None]
    if notes is not None:
        notes += [f"{one.path} is left out: {one.why_not}" for one in bad]
    made = {}
    for clock in clocks:
        called = name if clock == clocks[0] else f"{name}_events"
        lines = _lines(called, shown, clock, [one for one in good if _clock(one) == clock], bad)
        made[f"{called}.yaml"] = "\n".join(lines) + "\n"
        bad = []
    return made


def _tables(data: Path, shown: str) -> Iterator[FoundInput]:
    """Yield inputs for Delta Lake tables: the folder itself, or the tables in it and, as left out, its other entries."""
    if (data / LOG).is_dir():
        yield _table(data, shown)
        return
    children = sorted(path for path in data.iterdir() if not path.name.startswith((".", "_")))
    tables = [path for path in children if (path / LOG).is_dir()]
    for path in children if tables else ():
        if path in tables:
            yield _table(path, f"{shown}/{path.name}")
        else:
            why = "it is beside tables: run `dd init --from` in it, or in a folder with it alone"
            yield FoundInput(_named(path), f"{shown}/{path.name}", [], why_not=why)


def _table(path: Path, shown: str) -> FoundInput:
    from ddcli.store.mirrors.delta import DeltaSource

    given = FoundInput(_named(path), f"{shown}/", [], {"format": "updates"}, table="delta")
    try:
        given.columns = {name: str(kind) for name, kind in DeltaSource(path.resolve()).columns.items()}
    except InputError as error:
        given.why_not = error.problem
    return given


def _named(path: Path) -> str:
    return re.sub(r"\W+", "_", path.resolve().name).strip("_") or "input"


def _clock(given: FoundInput) -> str:
    """Return the clock of an input."""
    return "event" if given.given["format"] == "debezium" else "arrival"


def _lines(name: str, shown: str, clock: str, good: Sequence[FoundInput], bad: Sequence[FoundInput]) -> Iterator[str]:
    yield f"# Written by `dd init --from`, guessed from the files in {visible(shown)}. A comment with a question mark is a guess: check it."
    yield "dd: 1"
    yield f"name: {json.dumps(name)}"
    if clock == "arrival":
        yield "clock: arrival"
    yield "inputs:"
    for given in good:
        yield from _input(given)
    for given in bad:
        yield f"  # {given.name}: {_word(given.path)} is left out: {visible(given.why_not or '')}"
    renamed = {given.name: [column for column in given.columns if column in OWN] for given in good}
    if any(renamed.values()):
        yield "collections:"
        for one, columns in renamed.items():
            if columns:
                new = ", ".join(f"{column}: {column}_" for column in columns)
                yield f"  {one}_renamed: {{from: {one}, apply: [rename: {{{new}}}]}}  # a log has columns of these names itself"
    yield "outputs:"
    for given in good:
        log = f"out/{given.name}/"
        yield f"  {given.name}: " + (f"{{path: {log}, from: {given.name}_renamed}}" if renamed[given.name] else log)
    yield from _checks(good)


def _checks(good: Sequence[FoundInput]) -> Iterator[str]:
    """Yield checks that all rows meet so far, as comments: each keeps the values of its column in the state."""
    found = [(given, *check) for given in good for check in given.checks]
    if found:
        yield "# checks:  # ? all rows meet these so far; without the marks of comments a run commits nothing that violates one"
    for given, kind, column, among in found:
        what = _value([column]) if among is None else f"{{{_word(column)}: {_value(among)}}}"
        yield f"#   - {{{kind}: {visible(what)}, of: {given.name}}}"


def _input(given: FoundInput) -> Iterator[str]:
    if given.table:
        yield f"  {given.name}: {{{given.table}: {_word(given.path)}}}"
        return
    yield f"  {given.name}:"
    files = f"{len(given.files)} file{'s' if len(given.files) > 1 else ''}"
    yield _commented(f"    path: {_word(given.path)}", given.doubts.get("path", files))
    for key in KEYS:
        if key in given.given:
            yield _commented(f"    {key}: {_value(given.given[key])}", _doubt(given, key))
    if given.given["format"] != "debezium" and is_written_again(given):
        yield "    changed: replace  # ? a file of a day or part that comes again with other rows replaces its old rows"
    if given.columns and name_of_kind(given.files[0]) in TEXTS:
        yield "    columns:"
        for column, kind in given.columns.items():
            form = _word(kind)
            inner = json.dumps(kind) if "?" in kind else form  # between braces, others read a `?` as the mark of a key
            if column in given.former:
                form = f"{{type: {inner}, from: {_value(given.former[column])}}}"
            elif column in given.optional:
                form = f"{{type: {inner}, optional: true}}"
            yield _commented(f"      {_word(column)}: {form}", _doubt(given, f"columns.{column}"))


def _doubt(given: FoundInput, key: str) -> str | None:
    return f"? {given.doubts[key]}" if key in given.doubts else None


def _commented(line: str, comment: str | None) -> str:
    return f"{line}  # {visible(comment)}" if comment else line


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else _word(value)


def _word(text: str) -> str:
    r"""Return a text as YAML, quoted if needed, with the letters of all languages as they are.

    >>> _word("id"), _word("Geändert am"), _word("a\u2028b")
    ('id', '"Geändert am"', '"a\\u2028b"')
    """
    if re.fullmatch(r"(?!(?:null|true|false)\b)[A-Za-z_./][\w./?-]*", text, re.IGNORECASE | re.ASCII):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
