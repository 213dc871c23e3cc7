"""YAML as trees and as text, by the C library: random tests read and write some thousand files, and PyYAML's own Python takes ten times as long."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """Return the tree of a text."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def write_yaml(tree: Any, **options: Any) -> str:
    """Return the text of a tree, its keys in their order, a line for a value."""
    return yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False, **{"width": 10_000} | options)
