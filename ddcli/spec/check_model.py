"""The checks of a pipeline file, as plain values: the collection of violations that each becomes, and the decision that it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ddcli.dataclass import frozen

if TYPE_CHECKING:
    from ddcli.errors import Span, Text
    from ddcli.spec.operator_model import Operator

Otherwise = Literal["fail", "warn", "quarantine"]
OTHERWISE: tuple[Otherwise, ...] = ("fail", "warn", "quarantine")
"""The consequences of a violation: nothing is committed; the run reports it; the row is put aside, and the collection lacks it."""

UNCHECKED = ".unchecked"
"""The ending of the name under which a check reads an input that has a quarantine: with all of its rows. No name in a file has a dot."""

MEASURE = "measure_"
"""The prefix of the columns of a measuring check's collection, which has one record."""

ROWS = f"{MEASURE}rows"
"""The column of a measuring check's collection that counts the rows."""


@frozen
class Limit:
    """The range in which a measure must be, both ends included; None: no end. With `relative` an end is a part of the value before, 0.05 for 5%."""

    least: float | None
    most: float | None
    relative: bool
    written: str
    """The range as the file states it."""


@frozen
class Measure:
    """An aggregate of a collection, in a `column` of the check's record, and its limit: of its change by a commit, or of its age in microseconds.

    Without a column it is the number of retractions that the commit writes to `output`.
    """

    name: str
    limit: Limit
    column: str | None = None
    output: str = ""


@frozen
class CheckSpec:
    """A check: `name` is that of its collection of violations and of their log, `title` the one that people gave it.

    A check with `measures` has no violations as records: its collection has one record with the aggregates. `place` is its path in the file, `span` the word of its kind.
    """

    name: Text
    title: str
    kind: str
    of: Text | None
    otherwise: Otherwise
    span: Span
    place: str
    measures: tuple[Measure, ...] = ()


@frozen
class Quarantine:
    """The parts that an input is the sum of, once a check has put its rows aside: the operators of each."""

    check: Text
    parts: tuple[tuple[Operator, ...], ...]
