"""The catalogue of functions, for people: `dd functions` lists it, and docs/expressions.md shows it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.expressions import functions
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.differences import Elsewhere, differences_of
from ddcli.expressions.list_functions import LISTS, STRUCTS
from ddcli.expressions.number_functions import ARITHMETIC, BITS
from ddcli.expressions.text_functions import JSON, TEXT
from ddcli.expressions.time_functions import TIME
from ddcli.expressions.windows import WINDOW_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = {
    "Numbers": ARITHMETIC,
    "Bits": BITS,
    "Conditions": functions.CONDITIONS,
    "Text": TEXT,
    "JSON in texts": JSON,
    "Dates and times": TIME,
    "Lists": LISTS,
    "Structs": STRUCTS,
}
AGGREGATE = "Aggregates"
"""The group of aggregates."""
WINDOW = "Window functions"


@dataclass(frozen=True)
class Described:
    """A function, an aggregate or a window function, for people; only the first have examples."""

    group: str
    name: str
    signature: str
    meaning: str
    example: str = ""
    value: str = ""
    other_names: tuple[str, ...] = ()

    @cached_property
    def differences(self) -> list[Elsewhere]:
        """Return its differences from other databases."""
        return differences_of(self.name)

    def lines(self) -> list[str]:
        """Return it as text."""
        lines = [self.signature, f"  {self.meaning}"]
        if self.example:
            lines.append(f"  {self.example} is {self.value}")
        if self.other_names:
            lines.append(f"  also: {', '.join(self.other_names)}")
        lines += [
            f"  elsewhere: {each.expression} is {each.here} here, {each.duckdb} in DuckDB, {each.spark} in Spark"
            for each in self.differences
        ]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "group": self.group,
            "name": self.name,
            "signature": self.signature,
            "meaning": self.meaning,
            "example": self.example or None,
            "value": self.value or None,
            "other_names": list(self.other_names),
            "elsewhere": [
                {"expression": each.expression, "here": each.here, "duckdb": each.duckdb, "spark": each.spark}
                for each in self.differences
            ],
        }

    def has(self, word: str) -> bool:
        """Return whether a word is in its name or one of its other names, or in its description."""
        texts = (self.name, self.signature, self.meaning, *self.other_names)
        return any(word.lower() in text.lower() for text in texts)


def catalogue() -> Iterator[Described]:
    """Yield every function, aggregate and window function, group by group."""
    for title, group in GROUPS.items():
        for each in group:
            others = tuple(sorted(name for name, meant in functions.SYNONYMS.items() if meant == each.name))
            yield Described(title, each.name, each.signature, each.doc, each.example, each.result, others)
    for one in AGGREGATES.values():
        others = tuple(sorted(name for name, meant in AGGREGATE_SYNONYMS.items() if meant == one.name))
        yield Described(AGGREGATE, one.name, one.signature, one.doc, other_names=others)
    for called in WINDOW_FUNCTIONS.values():
        yield Described(WINDOW, called.name, called.signature, called.doc)


def search(word: str) -> list[Described]:
    """Return the functions that match a word: those of this name first, then those whose name contains it, then others whose entry does."""
    lowered = word.lower()

    def rank(each: Described) -> int:
        names = [name.lower() for name in (each.name, *each.other_names)]
        return 0 if lowered in names else 1 if any(lowered in name for name in names) else 2

    return sorted((each for each in catalogue() if each.has(word)), key=rank)


def names() -> list[str]:
    """Return every name by which a function, an aggregate or a window function can be called."""
    return [name for each in catalogue() for name in (each.name, *each.other_names)]
