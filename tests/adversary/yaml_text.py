"""Pipelines as trees, and as texts that say them whatever their names are."""

from __future__ import annotations

from typing import Any


def yaml(tree: Any) -> str:
    r"""Return a tree as YAML in flow style, each letter that could mean something in an escape.

    >>> print(yaml({"a": [1, "x\n\u202e"]}))
    {"a": [1, "x\U0000000a\U0000202e"]}
    """
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{yaml(str(key))}: {yaml(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(yaml, tree)) + "]"
    if isinstance(tree, str):
        return '"' + "".join(map(_letter, tree)) + '"'
    return "~" if tree is None else str(tree).lower() if isinstance(tree, bool) else str(tree)


def _letter(letter: str) -> str:
    plain = letter.isascii() and letter.isprintable() and letter not in '"\\'
    return letter if plain else f"\\U{ord(letter):08x}"
