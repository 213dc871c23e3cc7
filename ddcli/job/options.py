"""The places where a run may be computed, as options and file name them. Imports no third-party library: most runs need no Spark."""

from __future__ import annotations

from dataclasses import field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Self

from ddcli.dataclass import dataclass
from ddcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

REMOTE = "sc://"
"""The prefix of a Spark Connect address, behind which Spark's driver runs."""
Engine = Literal["auto", "local", "spark"]


@dataclass(frozen=True)
class SparkOptions:
    """The choice of a Spark: its master, or the address of Spark Connect, with settings; or an existing session."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    session: Any = None

    @classmethod
    def of(
        cls, master: str | None, remote: str | None, conf: Mapping[str, str] | None = None, session: Any = None
    ) -> Self:
        """Return the options that a person asks for. Raises UsageError where they name more than one place."""
        if master is not None and remote is not None:
            raise UsageError("Spark is in one place: a master or the address of Spark Connect", hint="give one of them")
        if remote is not None and not remote.startswith(REMOTE):
            hint = "write it as sc://host:15002, or give a master"
            raise UsageError("this is not an address of Spark Connect", place=remote, hint=hint)
        return cls(master or remote, conf or {}, session)

    def before(self, other: SparkOptions) -> SparkOptions:
        """Return these options, completed by those of another."""
        return SparkOptions(self.master or other.master, {**other.conf, **self.conf}, self.session or other.session)

    @property
    def ready(self) -> bool:
        """Return whether Spark's address is known, and pyspark is installed."""
        known = self.session is not None or self.master is not None or "spark.master" in self.conf
        return known and find_spec("pyspark") is not None
