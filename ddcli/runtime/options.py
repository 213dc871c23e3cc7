"""Where a run is to be computed, as a person says it. Imports nothing: most runs need no Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Engine = Literal["auto", "local", "spark"]


@dataclass(frozen=True)
class SparkOptions:
    """Which Spark: its master and settings, or a session that there is already."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    session: Any = None

    @property
    def ready(self) -> bool:
        """Whether it was said where Spark is, and it can be asked."""
        said = self.session is not None or self.master is not None or "spark.master" in self.conf
        return said and find_spec("pyspark") is not None
