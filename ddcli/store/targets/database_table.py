"""Tables of databases that follow outputs: a commit is a transaction, in which a table of ours gets the number of the commit.

Rows that a change retracts are found by the key, where the table has one, else by all their values, each as often as it is retracted. That
costs as much as the change is large where an index leads to the rows; DuckDB looks through its columns.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.engine.lanes import decode
from ddcli.errors import EngineError, LockedError, StateError
from ddcli.expressions.tree import delimited
from ddcli.store.targets.database import AT, CHANGES, FOUND, STAYS, TIMES, Database, full_name
from ddcli.store.targets.target import CommitKey, strange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddcli.engine.columns import Lanes
    from ddcli.expressions.types import Schema
    from ddcli.store.targets.change import Change
    from ddcli.store.targets.mark import CommitMark, TableFile

COMMITS = "dd_commits"
"""The table of ours, beside those that are written: who writes a table, its last commit, and the columns of its rows."""
AGAIN = "drop the table: the next run writes it anew, with the columns of the output"


class DatabaseTable:
    """A table of a database that has the contents of an output. Of a key, the `unique` columns, it has one row. `stated` is what the file says of its place."""

    def __init__(
        self, database: Database, table: Sequence[str], key: CommitKey, unique: Sequence[str], stated: dict[str, Any]
    ) -> None:
        self._stated = stated
        self._database, self._parts, self._unique = database, tuple(table), tuple(unique)
        self._table, self._commits = full_name(table), (*table[:-1], COMMITS)
        self._mine = [str(key), ".".join(table)]
        self._held: int | None = None
        self._place = f"{database.place}, table {'.'.join(table)}"

    def number(self) -> int | None:
        if not self._database.is_there():
            return None
        with self._transaction(write=False) as connection:
            if all(self._database.exists(connection, name) for name in (self._commits, self._parts)):
                found = connection.execute(self._where("select number from {}"), self._mine).fetchall()
                self._held = int(found[0][0]) if found else None
        return self._held

    def check(self, known: CommitMark | None) -> None:
        if known is not None or self._held is not None or not self._database.is_there():
            return
        with self._transaction(write=False) as connection:
            there = self._database.exists(connection, self._parts)
            if there and connection.execute(f"select 1 from {self._table} limit 1").fetchall():
                raise strange(self._place, "the table has rows that this pipeline has not written")

    def publish(
        self, number: int, change: Change, known: CommitMark | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        rows = change.updates()
        change.refuse_negative(rows[rows[:, -1] > 0])
        self._check_keys(rows[rows[:, -1] > 0], change)
        announce(())
        with self._transaction(write=True) as connection:
            self._claim(connection, number, change.columns)
            if known is None:
                connection.execute(f"delete from {self._table}")
            if self._unique:
                self._replace(connection, rows, change)
            else:
                self._retract(connection, rows[rows[:, -1] < 0], change)
                self._database.load(connection, self._table, change.decoded(rows[rows[:, -1] > 0]))

    def left(self) -> dict[str, Any]:
        return self._stated

    def discard(self, pieces: Sequence[TableFile]) -> None:
        """Do nothing: what a transaction left that was not committed is gone."""

    def _claim(self, connection: Any, number: int, columns: Schema) -> None:
        """Have our table say that this is the last commit, unless another run has made one; make the tables that are not there."""
        listed = json.dumps({name: str(kind) for name, kind in columns.items()}, ensure_ascii=False)
        kinds = "writer text not null, name text not null, number bigint not null, columns text not null"
        commits = full_name(self._commits)
        connection.execute(f"create table if not exists {commits} ({kinds}, primary key (writer, name))")
        there = self._database.exists(connection, self._parts)
        if self._held is None:
            name = f" from {self._escaped} where name = {self._database.mark}"
            if not there:
                connection.execute(f"delete{name}", self._mine[1:])
            connection.execute(self._where("delete from {}"), self._mine)
            if connection.execute(f"select writer{name}", self._mine[1:]).fetchall():
                raise strange(self._place, "another output writes the table, too")
            values = ", ".join([self._database.mark] * 4)
            connection.execute(f"insert into {self._escaped} values ({values})", [*self._mine, number, listed])
        else:
            known = f"{self._where('update {} set number = ' + str(number))} and number = {self._held}"
            if not self._database.changed(connection, known, self._mine):
                raise LockedError("another run writes the table", place=self._place, hint="run again when it is done")
            if connection.execute(self._where("select columns from {}"), self._mine).fetchall() != [(listed,)]:
                raise StateError("the table has other columns than the output", place=self._place, hint=AGAIN)
        if not there:
            self._make(connection, columns)

    def _make(self, connection: Any, columns: Schema) -> None:
        kinds = [f"{delimited(name)} {self._database.type_of(kind)}" for name, kind in columns.items()]
        if self._unique and self._database.keeps_keys:
            kinds.append(f"primary key ({', '.join(map(delimited, self._unique))})")
        connection.execute(f"create table {self._table} ({', '.join(kinds)})")
        if not self._unique:
            self._database.index(connection, self._parts, [*columns])

    def _retract(self, connection: Any, gone: Lanes, change: Change) -> None:
        """Remove rows by their values, each as often as it is retracted."""
        if not len(gone):
            return
        self._find(connection, gone, change, self._database.same([*change.columns]))
        connection.execute(f"delete from {self._table} where {self._database.among(f'select found from {FOUND}')}")

    def _replace(self, connection: Any, rows: Lanes, change: Change) -> None:
        """Remove the rows of keys that go, and put new rows in the place of their keys' former ones, or beside the others."""
        if not len(rows):
            return
        names = [*change.columns]
        by_key = " and ".join(f"t.{delimited(name)} = c.{delimited(name)}" for name in self._unique)
        self._find(connection, rows, change, f"{by_key} and {self._database.same(names)}")
        row, listed = self._database.row, ", ".join(map(delimited, names))
        taken = connection.execute(
            f"select c.{AT} from {CHANGES} c {self._database.beside} {self._table} t on {by_key} where c.{TIMES} > 0 "
            f"and t.{row} not in (select found from {FOUND}) limit 1"
        ).fetchall()
        if taken:
            raise self._unfit(rows[taken[0][0]], change, "several records have one key")
        gone = f"select found from {FOUND}"
        added = f"insert into {self._table} ({listed}) select {listed} from {CHANGES} where {TIMES} > 0"
        if self._database.keeps_keys:
            gone += f" where {STAYS} = 0"
            others = [f"{delimited(name)} = excluded.{delimited(name)}" for name in names if name not in self._unique]
            added += f" on conflict ({', '.join(map(delimited, self._unique))}) do "
            added += f"update set {', '.join(others)}" if others else "nothing"
        connection.execute(f"delete from {self._table} where {self._database.among(gone)}")
        connection.execute(added)

    def _find(self, connection: Any, rows: Lanes, change: Change, same: str) -> None:
        """Find the rows of the table that a change retracts. Raises EngineError for one that isn't there."""
        frame = decode(rows, change.layout, change.pool)
        added = pl.Series(rows[:, -1] > 0)
        stays = pl.Series([False]).new_from_index(0, len(rows))
        if self._unique:
            stays = (
                frame.select(self._unique)
                .with_columns(added.alias("\0"))
                .select(pl.col("\0").any().over(self._unique))
                .to_series()
            )
        numbers = [
            stays.cast(pl.Int64).alias(STAYS),
            pl.int_range(len(rows), dtype=pl.Int64).alias(AT),
            pl.Series(TIMES, rows[:, -1]),
        ]
        self._database.temporary(connection, change.columns)
        self._database.load(connection, CHANGES, frame.with_columns(numbers))
        row, beside = self._database.row, self._database.beside
        pairs = (
            f"select t.{row} as found, c.{AT} as {AT}, row_number() over (partition by c.{AT}) as nth, -c.{TIMES} as times, c.{STAYS} as {STAYS} "
            f"from {CHANGES} c {beside} {self._table} t on {same} where c.{TIMES} < 0"
        )
        connection.execute(
            f"create temporary table {FOUND}{self._database.fleeting} as select found, {AT}, {STAYS} from ({pairs}) as pairs where nth <= times"
        )
        missing = connection.execute(
            f"select c.{AT} from {CHANGES} c left join (select {AT}, count(*) as times from {FOUND} group by {AT}) f "
            f"on f.{AT} = c.{AT} where c.{TIMES} < 0 and coalesce(f.times, 0) < -c.{TIMES} order by 1 limit 1"
        ).fetchall()
        if missing:
            shown = change.shown(rows[[missing[0][0]]])
            raise EngineError(
                f"output '{change.output}' retracts a row that the table doesn't have: {shown}",
                place=self._place,
                hint="the run is committed, and the table stays as it was; if others have changed it, drop it: the next run writes it anew; "
                "else retract no more than there is, then run again",
            )

    def _check_keys(self, added: Lanes, change: Change) -> None:
        """Refuse new rows for which a key is not enough: two of one key, or one of a key with a null."""
        if not self._unique or not len(added):
            return
        keys = decode(added, change.layout, change.pool).select(self._unique)
        twice = keys.is_duplicated() | pl.Series(added[:, -1] > 1)
        empty = keys.select(pl.any_horizontal(pl.all().is_null())).to_series()
        for wrong, problem in ((empty, "a record has a null in its key"), (twice, "several records have one key")):
            if wrong.any():
                raise self._unfit(added[np.flatnonzero(wrong.to_numpy())[0]], change, problem)

    def _unfit(self, row: Lanes, change: Change, problem: str) -> EngineError:
        keys = decode(row[None], change.layout, change.pool).select(self._unique)
        shown = ", ".join(f"{name} = {value}" for name, value in keys.row(0, named=True).items())
        hint = "the run is committed, and the table stays as it was; name other columns under `key`, or leave it out"
        return EngineError(f"{problem}: {shown}", place=self._place, hint=hint)

    def _where(self, statement: str) -> str:
        """Return a statement on our table for what is noted of this one."""
        mark = self._database.mark
        return f"{statement.format(self._escaped)} where writer = {mark} and name = {mark}"

    @property
    def _escaped(self) -> str:
        """The name of our table in statements with values."""
        name = full_name(self._commits)
        return name.replace("%", "%%") if self._database.mark == "%s" else name

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Any]:
        try:
            with self._database.transaction(write=write) as connection:
                yield connection
        except self._database.errors as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            problem = f"the table can't be {'written' if write else 'read'}: {line}"
            raise EngineError(problem, place=self._place, hint="the next run tries again") from None
