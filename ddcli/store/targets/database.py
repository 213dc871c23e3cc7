"""Kinds of databases that hold tables of outputs, and the differences of their SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ddcli.expressions.tree import delimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import polars as pl

    from ddcli.errors import DdError
    from ddcli.expressions.types import Schema, Type

CHANGES, FOUND = "dd_changes", "dd_found"
"""Tables of a transaction: rows that a change adds or retracts, and the table's rows that it retracts."""
AT, TIMES, STAYS = "dd_at", "dd_diff", "dd_stays"
"""Columns of these: the number of a row of the change, its diff, and 1 where the change adds a row of its key."""


class Database(ABC):
    """A database at `place` in which there are tables of outputs."""

    name: str
    """The name for people of databases of the kind."""
    place: str
    row: str
    """The column that distinguishes a row of a table from all others."""
    mark = "?"
    """The placeholder for a value in a statement."""
    keeps_keys = True
    """True: a key is one of the table's, so a row may take the place of another."""
    beside = "join"
    """The join of a table with that of the changes, which makes the database scan the changes."""
    types: Mapping[str, str] = {}
    """The names of types that have no parameters."""
    scratches = True
    """True: a transaction that only reads may make temporary tables."""
    fleeting = ""
    """The clause that drops a temporary table with its transaction, where the connection may be another's then."""
    errors: tuple[type[Exception], ...]

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Any]:
        """Return a connection in a transaction, which is committed unless something is raised. To `write` a database is made if there is none."""

    @contextmanager
    def guarded(self, refusal: Callable[[Exception], DdError], *, write: bool) -> Iterator[Any]:
        """Yield a connection in a `transaction`; an error of the database is raised as the refusal that people read."""
        try:
            with self.transaction(write=write) as connection:
                yield connection
        except self.errors as error:
            raise refusal(error) from None

    def rows(self, connection: Any, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query, by the names of their columns. Only a query with values must be `escaped`."""
        found = connection.execute(query, values) if values else connection.execute(query)
        names = [each[0] for each in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def kept_open(self) -> AbstractContextManager[None]:
        """Have all transactions until the end share a connection, where to connect takes longer than they do."""
        return nullcontext()

    @abstractmethod
    def is_there(self) -> bool:
        """Return whether the database exists."""

    def resolved(self, connection: Any, name: Sequence[str]) -> tuple[str, ...]:
        """Return the fully qualified name of a table; of one that does not exist, the name under which it would be created."""
        return tuple(name)

    def folded(self, name: str) -> str:
        """Return a table's name in the form in which names are compared: by default without the case of ASCII letters."""
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)

    @abstractmethod
    def exists(self, connection: Any, name: Sequence[str]) -> bool:
        """Return whether there is a table."""

    def column_names(self, connection: Any, table: str) -> list[str]:
        """Return the names of a table's columns."""
        return [each[0] for each in connection.execute(f"select * from {table} limit 0").description]

    @abstractmethod
    def columns(self, connection: Any, table: Sequence[str]) -> list[tuple[str, str]]:
        """Return the names and types of a table's columns, as the database writes types."""

    def count(self, connection: Any, table: str) -> int | None:
        """Return the number of a table's rows; None where that costs a look at all of them."""
        return None

    def exclude_others(self, connection: Any, table: Sequence[str]) -> None:  # noqa: B027 - most have one writer at a time
        """Have other transactions that ask the same for a table wait until this one ends, where several may write at once."""

    @abstractmethod
    def is_busy(self, error: Exception) -> bool:
        """Return whether an error is that another process writes there."""

    def escaped(self, statement: str) -> str:
        """Return a part of a statement with values, escaped so that no other part of it is taken for a value."""
        return statement.replace("%", "%%") if self.mark == "%s" else statement

    def hint(self, error: Exception) -> str | None:
        """Return the hint for an error, if there is one."""
        return None

    def type_of(self, kind: Type) -> str:
        """Return the type of a column."""
        if kind.kind == "list":
            assert kind.inner is not None, "a list has an inner type"
            return f"{self.type_of(kind.inner)}[]"
        if kind.kind == "struct":
            return f"struct({', '.join(f'{delimited(name)} {self.type_of(each)}' for name, each in kind.fields)})"
        if kind.kind == "datetime":
            return "timestamptz" if kind.zone else "timestamp"
        return self.types.get(kind.kind) or f"decimal({kind.precision}, {kind.scale})"

    @abstractmethod
    def load(self, connection: Any, table: str, frame: pl.DataFrame) -> None:
        """Add rows to a table, by the names of their columns."""

    def changed(self, connection: Any, statement: str) -> int:
        """Execute a statement, and return how many rows it has changed."""
        return int(connection.execute(statement).rowcount)

    def temporary(self, connection: Any, columns: Schema) -> None:
        """Make the table of the changes; it is dropped with the connection."""
        kinds = [f"{delimited(name)} {self.type_of(kind)}" for name, kind in columns.items()]
        listed = ", ".join([f"{AT} bigint", f"{TIMES} bigint", f"{STAYS} bigint", *kinds])
        connection.execute(f"create temporary table {CHANGES} ({listed}){self.fleeting}")

    def led(self, names: Sequence[str]) -> str:
        """Return a condition of `same` rows that lets an index lead from a row of the changes to the table's rows."""
        return "true"

    @abstractmethod
    def same(self, columns: Schema) -> str:
        """Return the condition that a row `t` of the table and one `c` of the changes have the same values, nulls too.

        Columns of the table may have been declared by others: values are the same only if readers find them so, whatever the column's collation takes for equal.
        """

    def among(self, rows: str) -> str:
        """Return the condition that a row of the table is one of those that a query returns."""
        return f"{self.row} in ({rows})"

    @abstractmethod
    def index(self, connection: Any, table: Sequence[str], names: Sequence[str], *, ours: bool) -> None:
        """Create an index that finds rows by all their values, if that pays; `ours`: the table has just been made."""


def breaks_constraint(error: Exception) -> bool:
    """Return whether an error is that rows break a constraint of their table, as all of Python's interfaces of databases name it."""
    return any(each.__name__ == "IntegrityError" for each in type(error).__mro__)


def full_name(table: Sequence[str]) -> str:
    """Return the name of a table as statements have it."""
    return ".".join(map(delimited, table))


@contextmanager
def committed(connection: Any, begin: str = "begin") -> Iterator[Any]:
    """Begin a transaction; commit it at the end, or roll it back if the block fails."""
    connection.execute(begin)
    try:
        yield connection
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")
