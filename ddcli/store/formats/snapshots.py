"""Snapshots: all rows of one time are the whole table as it was then."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.store.formats.base import Format

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class SnapshotsFormat(Format):
    """Each time's rows replace those of the time before. With a `key`, no two rows of one time have the same."""

    key: tuple[str, ...] = field(default=(), kw_only=True)  # type: ignore[misc]

    @property
    def adds_up(self) -> bool:
        return False

    def wanted(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*self.key, *columns]))
