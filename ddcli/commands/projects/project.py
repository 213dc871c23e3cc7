"""The parts of another program's project from which a pipeline can be made."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ddcli.dataclass import frozen


@frozen
class ProjectNode:
    """A model, seed, snapshot, test or source, in dbt's terms. `relation` are the parts of its table's name in compiled SQL, in lower case."""

    id: str
    name: str
    kind: str
    file: str
    compiled: str
    """The file with its compiled SQL; empty if it is not compiled."""
    code: str | None
    relation: tuple[str, ...]
    reads: tuple[str, ...]
    macros: tuple[str, ...]
    config: dict[str, Any]
    types: dict[str, str]
    """The columns and their `data_type`, `''` if they have none."""
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
    """The nodes of a project by their unique ids; `full_refresh`: no model was compiled as incremental."""

    name: str
    nodes: dict[str, ProjectNode]
    full_refresh: bool
    unread: tuple[tuple[str, str, str], ...]
    """Kind, name and file of each part that is neither a table nor a test of one."""
    apart: tuple[str, ...] = ()
    """The parts that produce no data, each a number with a noun."""
