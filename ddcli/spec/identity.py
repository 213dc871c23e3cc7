"""The identity of the parts of a pipeline file: equal parts have one digest, wherever they are in the file and however it is laid out.

Nothing outside of the file is in a digest: neither the code of functions nor the columns of an input's files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.errors import Span, Text
from ddcli.expressions.revisions import REVISIONS
from ddcli.spec.model import Query
from ddcli.version import __version__

if TYPE_CHECKING:
    from ddcli.spec.model import Spec


def identities(spec: Spec) -> dict[str, Any]:
    """Return the digests of collections and of outputs, by name, and that of the `rest`: all else that decides about their contents, with this version of dd. JSON-able."""
    rest = replace(spec, path=Path(), collections={}, outputs={}, tests=(), fragments=(), variables=())
    return {
        "collections": {name: _digest(each) for name, each in spec.collections.items()},
        "outputs": {name: _digest(each) for name, each in spec.outputs.items()},
        "rest": _digest((rest, __version__, *REVISIONS)),
    }


def tables_of_queries(spec: Spec) -> dict[str, list[str]]:
    """Return the names of the tables of each collection's query, by its identity. JSON-able."""
    queries = [each.sources for each in spec.collections.values() if isinstance(each.sources, Query)]
    return {query_identity(each.text.value): [name.value for name in each.tables] for each in queries}


def query_identity(text: str) -> str:
    """Return the digest of a query's text, with this version of dd, which decides what its tables are."""
    return _digest([text, __version__, *REVISIONS])


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
