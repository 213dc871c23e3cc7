"""The names that a query's expressions may use, and the columns of its relation that they mean.

Each item of a `from` has its columns under names that no other item or outer query uses, so that relations can be
joined without a clash. A name is looked up from inside out: in a query's own `from`, then in the outer query.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, UnknownColumn, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from ddcli.errors import Span


@dataclass(frozen=True)
class Name:
    """A column's name in expressions: `table.name`, or only `name`; `bare`: it may be written without its table."""

    table: str | None
    name: str
    column: str
    bare: bool = True


class UnknownName(UnknownColumn):
    """A name that no column in scope has, and its table if that is written; `meant` is a similar name in scope, or None."""

    def __init__(self, table: str | None, name: str, meant: str | None, *, span: Span, hint: str):
        self.written = f"{table}.{name}" if table else name
        super().__init__(f"no column is named `{self.written}`", name, span=span, hint=hint)
        self.table, self.name, self.meant = table, name, meant


@dataclass(eq=False)
class Names:
    """The names of a query's `from`, in order, and the scope of the outer query. `used` collects the outer columns that are read."""

    names: list[Name] = field(default_factory=list)
    outer: Names | None = None
    used: dict[str, None] = field(default_factory=dict)
    hint: str = ""
    """The hint for an unknown name, in place of the list of names in scope."""

    def find(self, table: str | None, name: str, span: Span) -> str:
        """Return the column that a name means. Raises SpecError if it means none, or several."""
        found = self._found(table, name)
        if len(found) > 1:
            listed = ", ".join(f"`{each.table}.{each.name}`" for each in found)
            written = f"{table}.{name}" if table else name
            hint = (
                f"qualify it: {listed}"
                if not table and len({each.table for each in found}) > 1
                else "give them different names with `as`"
            )
            raise SpecError(f"`{written}` may be any of {len(found)} columns", span=span, hint=hint)
        if found:
            return found[0].column
        if self.outer is not None:
            column = self.outer.find(table, name, span)
            self.used[column] = None
            return column
        raise self._unknown(table, name, span)

    def has(self, table: str | None, name: str) -> bool:
        """Return whether a column has this name here, or in an outer query."""
        return bool(self._found(table, name)) or (self.outer is not None and self.outer.has(table, name))

    def shadows(self, table: str, name: str) -> bool:
        """Return whether `table.name` is a struct's field: a column named `table` is in a nearer scope than that table's column `name`."""
        if self._found(table, name):
            return False
        return bool(self._found(None, table)) or (self.outer is not None and self.outer.shadows(table, name))

    def note(self, column: str) -> None:
        """Record that a column is read, if it is one of an outer query."""
        if self.outer is not None and not self.owns(column):
            self.used[column] = None
            self.outer.note(column)

    def owns(self, column: str) -> bool:
        """Return whether a column is one of the query's own `from`."""
        return any(each.column == column for each in self.names)

    def of(self, table: str | None) -> list[Name]:
        """Return the columns that `*`, or `table.*`, stands for."""
        if table is None:
            return [each for each in self.names if each.bare]
        tables = {each.table for each in self.names if each.table}
        exact = table if table in tables else next((one for one in tables if one.lower() == table.lower()), None)
        return [each for each in self.names if exact is not None and each.table == exact]

    def visible(self) -> Iterator[Name]:
        """Yield all names, from inside out."""
        yield from self.names
        if self.outer is not None:
            yield from self.outer.visible()

    def _found(self, table: str | None, name: str) -> list[Name]:
        """Return the names that are spelt exactly so, or if none is, those that differ only in case."""
        known = [each for each in self.names if each.name.lower() == name.lower()]
        if table is None:
            known = [each for each in known if each.bare]
        else:
            known = [each for each in known if each.table is not None and each.table.lower() == table.lower()]
            known = [each for each in known if each.table == table] or known
        return [each for each in known if each.name == name] or known

    def _unknown(self, table: str | None, name: str, span: Span) -> UnknownName:
        listed = list(
            dict.fromkeys(
                f"{each.table}.{each.name}" if table and each.table else each.name
                for each in self.visible()
                if table is None or each.table
            )
        )
        written = f"{table}.{name}" if table else name
        lowered = {each.lower(): each for each in listed}
        meant = lowered.get(did_you_mean(written.lower(), lowered) or "")
        hint = self.hint or f"in scope: {', '.join(sorted(listed)) or 'nothing'}"
        if meant:
            hint = f"did you mean `{meant}`? ({hint})"
        return UnknownName(table, name, meant, span=span, hint=hint)


def fresh(name: str, taken: Container[str]) -> str:
    """Return the name, with a number after it if it is taken."""
    at, found = 2, name
    while found in taken:
        found, at = f"{name}#{at}", at + 1
    return found


def renamed(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return a new name for each of these names: all different, and none of them taken."""
    given: dict[str, str] = {}
    used = set(taken)
    for name in names:
        given[name] = fresh(name, used)
        used.add(given[name])
    return given
