"""The nodes of a YAML file, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddcli.errors import Span, Text


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar as it is written. `kind` is its type in YAML 1.2's core schema: null, bool, int, float or str."""

    text: Text
    kind: str
    plain: bool

    @property
    def span(self) -> Span:
        return self.text.span


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list. `flow`: written with brackets."""

    items: tuple[Node, ...]
    span: Span
    flow: bool


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping; keys are distinct scalars. `flow`: written with braces."""

    entries: tuple[tuple[Text, Node], ...]
    span: Span
    flow: bool


Node = Scalar | Sequence | Mapping
