"""The length of the past that is kept: `history:` in the pipeline file for arrangements, as a whole or by output; `keep:` and `claims:` for logs."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from ddcli.engine.times import LEAST, Frontier
from ddcli.errors import SpecError, SpecErrors
from ddcli.plan.physical import EXPORT, HISTORY, physical_graph
from ddcli.store.texts import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.errors import Text
    from ddcli.expressions.types import Type
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.spec.model import Spec

ALL = None
"""All of the past."""


def check_lengths(spec: Spec, kinds: Sequence[Type]) -> None:
    """Raise SpecErrors with everything that is wrong with how much of the past is to be kept, of times of these types."""
    errors: list[SpecError] = []
    pasts = [spec.history, *(output.history for output in spec.outputs.values())]
    found: list[Callable[[], int | None]] = [partial(_length, text, kinds) for text in pasts if text is not None]
    found += [
        partial(_kept_log, name, each.keep, kinds) for name, each in spec.outputs.items() if each.keep is not None
    ]
    found += [
        partial(_claimed_log, name, each.keep, each.claims, kinds)
        for name, each in spec.outputs.items()
        if each.keep is not None and each.claims is not None
    ]
    for each in found:
        try:
            each()
        except SpecError as error:
            errors.append(error)
    if errors:
        raise SpecErrors(errors)


def kept_past(spec: Spec, graph: PhysicalGraph, kinds: Sequence[Type]) -> dict[str, int | None]:
    """Return the distance behind the frontier within which the times of each node's arrangements stay apart, by fingerprint; None: all the way.

    It is the length that the file states for the whole pipeline, or, if that is more, for an output that reads the node. Other nodes
    keep nothing. An arrangement in which a history looks keys up keeps all. Raises SpecError for a length that the times don't have.
    """
    found: dict[str, int | None] = {}
    for name, node in graph.outputs.items():
        declared = [spec.history, spec.outputs[name].history if name in spec.outputs else None]
        lengths = [_length(text, kinds) for text in declared if text is not None]
        if lengths:
            for each in physical_graph({name: node}).nodes:
                known = [found[each.fingerprint]] if each.fingerprint in found else []
                found[each.fingerprint] = _longest([*known, *lengths])
    histories = (node for name, node in graph.outputs.items() if name.startswith(EXPORT + HISTORY))
    found |= {node.fingerprint: ALL for node in histories}
    return {name: length for name, length in found.items() if length != 0}


def kept_logs(spec: Spec, kinds: Sequence[Type]) -> dict[str, int]:
    """Return the distance behind the frontier within which logs of outputs keep times apart, for the outputs for which the file states it.

    Raises SpecError for a length that the times don't have, and where they have several coordinates.
    """
    return {
        name: _kept_log(name, output.keep, kinds) for name, output in spec.outputs.items() if output.keep is not None
    }


def claimed_logs(spec: Spec, kinds: Sequence[Type]) -> dict[str, int]:
    """Return the distance behind the frontier within which claims hold back logs of outputs, for the outputs for which the file states it.

    Raises SpecError for a length that the times don't have, and for one that is less than the log's `keep`.
    """
    return {
        name: _claimed_log(name, output.keep, output.claims, kinds)
        for name, output in spec.outputs.items()
        if output.keep is not None and output.claims is not None
    }


def _claimed_log(name: str, keep: Text, claims: Text, kinds: Sequence[Type]) -> int:
    length = _length(claims, kinds, "claims")
    assert length is not None, "the file's shape has no `all` here"
    if length < _kept_log(name, keep, kinds):
        problem = f"outputs.{name}: claims end before updates are as old as `keep`"
        raise SpecError(problem, span=claims.span, hint="give a length that is no shorter than `keep`")
    return length


def _kept_log(name: str, keep: Text, kinds: Sequence[Type]) -> int:
    if len(kinds) > 1:
        problem = f"outputs.{name}: a log whose times have several coordinates is not summed up"
        raise SpecError(problem, span=keep.span, hint="leave `keep` out")
    length = _length(keep, kinds, "keep")
    assert length is not None, "the file's shape has no `all` here"
    return length


def since(upper: Frontier, length: int | None, before: Frontier) -> Frontier:
    """Return the frontier to which the times of a node that keeps this length of its past may be advanced when `upper` is committed; it never moves back."""
    if not upper:
        return upper
    if length is ALL:
        return before
    back = Frontier(tuple(x if x == LEAST else max(x - length, LEAST + 1) for x in time) for time in upper)
    return before.join(back)


def _longest(lengths: Sequence[int | None]) -> int | None:
    finite = [length for length in lengths if length is not ALL]
    return max(finite) if len(finite) == len(lengths) else ALL


def _length(text: Text, kinds: Sequence[Type], key: str = "history") -> int | None:
    """Return a length of time in the units of the times' integers, None for all."""
    if text.value == "all":
        return ALL
    match = re.fullmatch(r"(\d+)\s*([a-z]*?)s?", text.value)
    assert match, "the file's shape has this form"
    count, unit = int(match[1]), match[2]
    (kind, *others) = {(kind.kind, kind.unit) for kind in kinds}
    if others:
        raise SpecError(f"a `{key}` needs coordinates of one type", span=text.span, hint="write `history: all`")
    if kind[0] not in ("date", "datetime"):
        if unit:
            raise SpecError(
                f"times are {kinds[0]}: a `{key}` in {unit}s means nothing", span=text.span, hint="give a number"
            )
        return count
    if not unit:
        hint = f"write `{count} days`, or another unit: {', '.join(SECONDS)}"
        raise SpecError(f"times are {kinds[0]}: a `{key}` needs a unit", span=text.span, hint=hint)
    seconds = count * SECONDS[unit]
    if kind[0] == "date":
        return -(-seconds // SECONDS["day"])
    return int(seconds * kinds[0].per_second)
