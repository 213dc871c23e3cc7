"""The text of a Python module: read, parsed, and known by a digest. None of it runs."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import warnings
from functools import lru_cache
from pathlib import Path

from ddcli.errors import SpecError

LARGEST = 1 << 20
"""Bytes of a module's text that are read: its tree takes up to 500 times as much."""


def read(file: str) -> bytes:
    """Return the text of a module. Raises SpecError."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except OSError as error:
        raise SpecError(f"{file} can't be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise SpecError(f"{file} is larger than a module may be: {LARGEST >> 20} MiB")
    return data


@lru_cache(maxsize=2)
def parse(data: bytes, file: str) -> ast.Module:
    """Return the tree of a module's text. Raises SpecError if it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings: the import reports them
            return ast.parse(importlib.util.decode_source(data), file)
    except SyntaxError as error:  # of a text in an unknown encoding, too
        raise SpecError(f"{file}:{error.lineno or 1}: this is not valid Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"{file}: this is not valid Python: {error}") from None


def digest(data: bytes) -> str:
    """Return a digest of a module's text."""
    return hashlib.sha256(data).hexdigest()
