"""A project of another program, as far as a pipeline can be made of it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ddcli.dataclass import frozen


@frozen
class ProjectNode:
    """A model, seed, snapshot, test or source, in dbt's words. `relation` are the names of its table in compiled SQL, in small letters."""

    id: str
    name: str
    kind: str
    file: str
    compiled: str
    """The file with the SQL that it was compiled to; empty for what is not compiled."""
    code: str | None
    relation: tuple[str, ...]
    reads: tuple[str, ...]
    macros: tuple[str, ...]
    config: dict[str, Any]
    types: dict[str, str]
    """The columns that have a `data_type`, all others are `''`."""
    meta: dict[str, Any]
    language: str = "sql"
    source: str = ""
    alias: str = ""
    test: dict[str, Any] = field(default_factory=dict)
    """A generic test's name, its `kwargs`, its node and its column."""

    @property
    def materialized(self) -> str:
        """The materialisation of a model."""
        return str(self.config.get("materialized") or "")


@frozen
class ForeignProject:
    """All of a project that a pipeline may be made of, by unique names; `full_refresh` says that no model was compiled as incremental."""

    name: str
    nodes: dict[str, ProjectNode]
    full_refresh: bool
    unread: tuple[tuple[str, str, str], ...]
    """Kind, name and file of what is neither a table nor a test of one."""
