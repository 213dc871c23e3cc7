"""The bytes of a pipeline file, as text; variables in its values, `${NAME}` and `${NAME:-default}`, of `--var` or the environment; and digests of its parts.

A variable with the name of a secret is only allowed under `spark`: all other values of a file are kept in states, plans and logs.

Equal parts have one digest, wherever they are in the file and however it is laid out. Nothing outside of the file is in a digest: neither the
code of functions nor the columns of an input's files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import textwrap
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.errors import Expanded, Span, SpecError, Text, UsageError, conceal, did_you_mean, suggestion
from ddcli.spec.model import Query
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.spec.model import Spec


def excerpts(spec: Spec) -> dict[str, str]:
    """Return the text of each collection, by name; none of a file that can't be read. Variables are in it by name, not by value."""
    files: dict[str, Sequence[str]] = {}
    for collection in spec.collections.values():
        file = collection.name.span.file
        if file not in files:
            try:
                files[file] = Path(file).read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError):
                files[file] = ()
    found = {name: _entry(files[each.name.span.file], each.name.span) for name, each in spec.collections.items()}
    return {name: text for name, text in found.items() if text}


def queries(spec: Spec) -> frozenset[str]:
    """Return the names of the collections that are SQL."""
    return frozenset(name for name, each in spec.collections.items() if isinstance(each.sources, Query))


def _entry(lines: Sequence[str], key: Span) -> str:
    """Return the lines of an entry of a mapping: the one of its key, and those that are indented more; without lines of comments."""
    if not 0 < key.line <= len(lines):
        return ""
    found = [" " * (key.column - 1) + lines[key.line - 1][key.column - 1 :]]
    for line in lines[key.line :]:
        inside = len(line) - len(line.lstrip())
        if line.strip() and inside < key.column:
            break
        found.append(line)
    kept = [line.rstrip() for line in found if line.strip() and not line.lstrip().startswith("#")]
    return textwrap.dedent("\n".join(kept))


ENDINGS = (".yaml", ".yml")
"""The endings of pipeline files' names."""
AT = "@"
"""Separates the name of a branch in the names of its pipeline file and its outputs: sales@q4.yaml, out@q4/."""
LARGEST = 16 << 20
"""Bytes of all files together that one includes."""


def branch_file(pipeline: Path, name: str) -> Path:
    """Return the pipeline file of a branch.

    >>> from pathlib import PurePath
    >>> str(branch_file(PurePath("shop/sales.yaml"), "q4"))
    'shop/sales@q4.yaml'
    """
    return pipeline.with_name(f"{pipeline.stem}{AT}{name}{pipeline.suffix}")


def file_at(pipeline: Path, branch: str | None) -> Path:
    """Return the pipeline file that `--branch` chooses: without one, or for `main`, the pipeline's own. Raises UsageError if there is no such branch."""
    if branch is None or branch == "main":
        return pipeline
    file = branch_file(pipeline, branch)
    if not file.exists():
        hint = "`dd branch ls PIPELINE` lists the branches, and `dd branch new` begins one"
        raise UsageError(f"there is no branch '{branch}'", place=str(pipeline), hint=hint)
    return file


def _files_in(folder: Path) -> list[Path]:
    """Return the YAML files of a folder."""
    return [path for ending in ENDINGS for path in folder.glob(f"*{ending}")]


def read_text(path: Path, kind: str = "pipeline file") -> str:
    """Return the text of a YAML file of such a kind. Raises `UsageError` for one that can't be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        near = did_you_mean(path.name, [each.name for each in _files_in(path.parent)])
        start = "see `dd init` for one to start from" if kind == "pipeline file" else None
        hint = f"did you mean '{path.with_name(near)}'?" if near else start
        raise UsageError(f"there is no such {kind}", place=str(path), hint=hint) from None
    except IsADirectoryError:
        there = _files_in(path)
        hint = f"did you mean '{there[0]}'?" if len(there) == 1 else "name the YAML file in it"
        raise UsageError(f"a directory, not a {kind}", place=str(path), hint=hint) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8 at byte {error.start}", place=str(path), hint="save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"can't read the {kind}: {problem}", place=str(path)) from None


def read_fragment(path: Path) -> str:
    """Return the text of a file to include. Raises UsageError where it is no plain file, or a large one, and OSError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("not a plain file", place=str(path), hint="name a YAML file")
    if status.st_size > LARGEST:
        raise UsageError(f"larger than {LARGEST >> 20} MiB", place=str(path), hint="name a YAML file")
    return read_text(path)


OPEN = "${"
_USE, _NAME = r"(\$?)\$\{([^{}\n]*)(\}?)", r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?"
_HIDDEN = r"(?i)SECRET|PASSW(OR)?D|TOKEN|CREDENTIAL|(ACCESS|API|PRIVATE|ACCOUNT)_?KEY"
"""Texts, as a run with a kept plan has no use for compiled patterns."""
FORM = "write `${NAME}` or `${NAME:-default}`; `$${` stands for `${` itself"

_of_call: dict[str, str] = {}
_used: set[str] = set()


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
    """Return a text with its variables replaced, and add their values to `used`. Raises SpecError.

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
    """Return a variable's value, else its default; `used` notes the value unless it is a secret. Raises SpecError."""
    named = re.fullmatch(_NAME, found[2])
    if not found[3]:
        raise SpecError(f"the variable {found[0]!r} is not closed", span=span, hint=f"close it with '}}': {FORM}")
    if named is None:
        raise SpecError(f"{found[0]!r} is no variable", span=span, hint=FORM)
    name, default = named[1], named[2]
    if is_secret(name) and not secrets:
        hint = (
            "what a file states is kept in states, plans and logs: object stores and tools read credentials from the "
            "environment themselves (AWS_ACCESS_KEY_ID, ...); only values under `spark` may have one"
        )
        raise SpecError(f"the variable '{name}' is a secret by its name", span=span, hint=hint)
    value = find(name)
    if not is_secret(name):
        used[name] = value
    if default is not None and not value:
        return str(default)
    if value is None:
        near = did_you_mean(name, _of_call)
        hint = f"did you mean '{near}'? " if near else ""
        hint += f"set it with `--var {name}=...` or in the environment, or write a default: `${{{name}:-...}}`"
        raise SpecError(f"the variable '{name}' is not set", span=span, hint=hint)
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise SpecError(f"the value of the variable '{name}' is not UTF-8", span=span, hint="write it in UTF-8")
    if is_secret(name):
        conceal(value, found[0])
    return value


def identities(spec: Spec) -> dict[str, Any]:
    """Return the digests of collections and of outputs, by name, and the digest of the `rest`: all else that decides about their contents, with this version of dd. JSON-able."""
    rest = replace(spec, path=Path(), collections={}, outputs={}, tests=(), fragments=(), variables=())
    return {
        "collections": {name: _digest(each) for name, each in spec.collections.items()},
        "outputs": {name: _digest(each) for name, each in spec.outputs.items()},
        "rest": _digest((rest, *_version())),
    }


def tables_of_queries(spec: Spec) -> dict[str, list[str]]:
    """Return the names of the tables of each collection's query, by its identity. JSON-able."""
    queries = [each.sources for each in spec.collections.values() if isinstance(each.sources, Query)]
    return {query_identity(each.text.value): [name.value for name in each.tables] for each in queries}


def query_identity(text: str) -> str:
    """Return the digest of a query's text, with this version of dd, which decides what its tables are."""
    return _digest([text, *_version()])


def _version() -> tuple[str, ...]:
    """Return this version of dd, with the revisions of its calls."""
    from ddcli.expressions.revisions import REVISIONS  # a run with a kept plan needs no digest

    return (__version__, *REVISIONS)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(_plain(value)).encode(errors="surrogateescape")).hexdigest()[:20]


def _plain(value: Any) -> Any:
    """Return a part without its places, JSON-able."""
    if isinstance(value, Text):
        return value.value
    if isinstance(value, dict):
        return [[name, _plain(each)] for name, each in value.items()]
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Span):
        return None
    if is_dataclass(value):
        return [type(value).__name__, *(_plain(getattr(value, each.name)) for each in fields(value))]
    return value if value is None or isinstance(value, str | int | float) else repr(value)
