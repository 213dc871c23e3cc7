"""The places of a scope's sources: fed with rows as they come, or arranged as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.circuit.context import shards_of
from ddcli.circuit.groups import value_layout
from ddcli.circuit.operators import INT64
from ddcli.dataclass import dataclass
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.linear import Permute
from ddcli.engine.operators.upsert import Upsert
from ddcli.plan import physical
from ddcli.plan.node import digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.circuit.context import Traces
    from ddcli.engine.operators.arrangement_views import Imported
    from ddcli.engine.places import Handle
    from ddcli.engine.scope import Scope
    from ddcli.expressions.types import Schema


@dataclass(frozen=True)
class ImportedSource:
    """An arrangement that another dataflow keeps: its key, all its columns, and its shards."""

    key: tuple[str, ...]
    schema: Schema
    shards: Sequence[Imported]


@dataclass(frozen=True)
class UpsertSource:
    """A source fed with rows [key | value | present | order]: its key and all its columns. The last row of a key has its value."""

    key: tuple[str, ...]
    schema: Schema


class SourcePlaces:
    """The places of a scope's sources. Those `given` are arranged as they come, by shards that are made now or `lazily`."""

    def __init__(
        self,
        scope: Scope,
        traces: Traces,
        given: Mapping[str, ImportedSource | UpsertSource],
        *,
        lazily: bool,
    ) -> None:
        self.fed: dict[str, Handle] = {}
        """The places at which the sources that are arranged as they come are fed."""
        self._placed: dict[str, tuple[Handle, Sequence[Imported | Upsert]]] = {}
        """And where their updates come out, arranged."""
        self._scope, self._traces, self._given, self._lazily = scope, traces, given, lazily

    def scan(self, node: physical.Scan) -> Handle:
        """Return the place of a source: arranged as it comes, by rows, or by columns, as the node states."""
        layout = Layout(node.schema)
        indexed = self._given.get(node.name)
        if indexed is None:
            return self._scope.source(layout.width, layout)
        handle, shards = self.source(node.name)
        lanes = Layout(indexed.schema).take(node.schema)
        permutes = [Permute(lanes, self._scope.nt) for _ in shards]
        return self._scope.add(permutes, handle, width=layout.width, layout=layout)

    def arranged_as(self, node: physical.Arrangement) -> str | None:
        """Return the name of the source that comes as the very arrangement of a node; None if none does."""
        (scan,) = node.inputs
        if not isinstance(scan, physical.Scan) or scan.name not in self._given:
            return None
        indexed = self._given[scan.name]
        same = indexed.key == node.key and list(indexed.schema.items()) == list(node.schema.items())
        return scan.name if same else None

    def source(self, name: str) -> tuple[Handle, Sequence[Imported | Upsert]]:
        """Return the handle of the updates of a source that is arranged as it comes, and the operators that keep it."""
        if name not in self._placed:
            indexed = self._given[name]
            layout = Layout(indexed.schema)
            shards: Sequence[Imported | Upsert]
            if isinstance(indexed, ImportedSource):
                shards = indexed.shards
                handle = self.fed[name] = self._scope.fed(shards, layout.width + self._scope.nt + 1, layout)
            else:
                key = Layout({column: indexed.schema[column] for column in indexed.key})
                value = value_layout(indexed.schema, indexed.key)
                trace = self._traces.trace
                nt, count = self._scope.nt, self._scope.workers.count
                # Not over `self`: what a lazy shard is made with lives as long as the scope, which would then be a cycle.
                shards = shards_of(
                    lambda shard: Upsert(trace(digest("upserts", name), key, value, nt, shard)),
                    count,
                    lazily=self._lazily,
                )
                fed = Layout(key.schema | value.schema | {"$present": INT64, "$order": INT64})
                self.fed[name] = self._scope.source(fed.width, fed)
                handle = self._scope.add(
                    shards, self.fed[name], width=layout.width, layout=layout, route=range(key.width)
                )
            self._placed[name] = handle, shards
        return self._placed[name]
