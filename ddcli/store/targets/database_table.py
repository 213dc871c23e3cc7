"""Tables of databases that follow outputs: a commit is a transaction, in which a table of ours gets the number of the commit.

Rows that a change retracts are found by the key, if the table has one, else by all their values, each as often as it is retracted. The
cost is in proportion to the change if an index leads to the rows; DuckDB scans its columns.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.engine.lanes import decode
from ddcli.errors import EngineError, LockedError, StateError, first_line
from ddcli.expressions.tree import delimited
from ddcli.expressions.types import in_order
from ddcli.store.targets.database import AT, CHANGES, FOUND, STAYS, TIMES, Database, breaks_constraint, full_name
from ddcli.store.targets.mark import COMMITTED, CommitKey, Target, other_columns, strange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ddcli.engine.lanes import Lanes
    from ddcli.expressions.types import Schema
    from ddcli.store.targets.change import Change
    from ddcli.store.targets.mark import CommitRecord, TableFile

COMMITS = "dd_commits"
"""The table of ours, beside those that are written: a `Claim` for each of them."""
ROWS = "dd_rows"
"""The savepoint before rows are changed."""
OURS = (
    f"{COMMITTED}; it has other types, a collation, a trigger or a rule: "
    "drop it, and the next run makes it, or give it columns that hold each value as it is"
)
AGAIN = "drop the table: the next run rewrites it, with the columns of the output"


class LedgerTable:
    """A table of a database, and beside it one of ours, the `ledger`, in which a commit to it is noted by the same transaction."""

    def __init__(self, database: Database, table: Sequence[str], ledger: str) -> None:
        self._database, self._named, self._own = database, tuple(table), ledger
        self._parts = self._ledger = self._named
        self._table = ""

    def _find_table(self, connection: Any) -> bool:
        """Resolve the name of the table, and return whether it exists."""
        self._parts = self._database.resolved(connection, self._named)
        self._ledger, self._table = (*self._parts[:-1], self._own), full_name(self._parts)
        return self._database.exists(connection, self._parts)

    def _entries(self, connection: Any) -> list[dict[str, Any]]:
        """Return the rows of the ledger."""
        if not self._database.exists(connection, self._ledger):
            return []
        return self._database.rows(connection, f"select * from {full_name(self._ledger)}")

    def _note(self, connection: Any, key: Mapping[str, Any], facts: Mapping[str, Any], *, known: bool) -> None:
        """Write a row of the ledger, in the place of the one with this key if that is known."""
        mark, ledger = self._database.mark, self._database.escaped(full_name(self._ledger))
        if known:
            set_, where = (
                sign.join(f"{name} = {mark}" for name in each) for sign, each in ((", ", facts), (" and ", key))
            )
            connection.execute(f"update {ledger} set {set_} where {where}", [*facts.values(), *key.values()])
        else:
            row = {**key, **facts}
            marks = ", ".join([mark] * len(row))
            connection.execute(f"insert into {ledger} ({', '.join(row)}) values ({marks})", [*row.values()])


class Claim(NamedTuple):
    """The writer of a table, with its name for the table, its last commit, the columns of its rows, and their number then: None, if older versions wrote it."""

    writer: str
    name: str
    number: int
    columns: str
    held: int | None = None


class DatabaseTable(LedgerTable, Target):
    """A table of a database that has the contents of an output, one of the pipeline's `outputs`. It has one row for each key, the `unique` columns.

    `stated` is its place in the words of the file.
    """

    def __init__(
        self,
        database: Database,
        table: Sequence[str],
        key: CommitKey,
        outputs: Collection[str],
        unique: Sequence[str],
        stated: dict[str, Any],
    ) -> None:
        super().__init__(database, table, COMMITS)
        self._stated, self._unique = stated, tuple(unique)
        self._key, self._outputs = key, outputs
        self._held: int | None = None
        self._count: int | None = None
        self._place = f"{database.place}, table {'.'.join(table)}"

    def number(self) -> int | None:
        if not self._database.is_there():
            return None
        with self._transaction(write=False) as connection:
            there = self._find_table(connection)
            mine = [claim for claim in self._claims(connection) if claim.writer == str(self._key)]
            if there and mine and not self._is_emptied(connection, mine[0].held):
                self._held, self._count = mine[0].number, mine[0].held
        return self._held

    def check(self, known: CommitRecord | None) -> None:
        if known is not None or self._held is not None or not self._database.is_there():
            return
        with self._transaction(write=False) as connection:
            there, claims = self._find_table(connection), self._claims(connection)
            if not there or any(self._key.is_former(claim.writer, self._outputs) for claim in claims):
                return
            if not self._is_empty(connection):
                raise strange(self._place, "the table has rows that this pipeline has not written")

    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        rows = change.updates()
        change.refuse_negative(rows[rows[:, -1] > 0])
        change.check_keys(rows[rows[:, -1] > 0], self._unique, self._place)
        announce(())
        with self._transaction(write=True) as connection:
            self._claim(connection, number, change, int(rows[:, -1].sum()), whole=known is None)
            if known is None:
                connection.execute(f"delete from {self._table}")
                if not self._is_empty(connection):
                    raise EngineError("the table doesn't let its rows be deleted", place=self._place, hint=OURS)
            if len(rows):
                self._find(connection, rows, change)
                if self._unique:
                    self._replace(connection, rows, change)
                else:
                    self._exchange(connection, change)
                self._check_written(connection, rows, change)

    def difference(self, change: Change) -> tuple[Lanes, int]:
        rows = change.updates()
        if not self._database.is_there():
            return rows, 0
        # Only temporary tables are written, which end with the connection.
        with self._transaction(write=not self._database.scratches) as connection:
            if not self._find_table(connection):
                return rows, 0
            self._check_columns(connection, change.columns)
            return self._unlike(connection, rows, change)

    def _unlike(self, connection: Any, rows: Lanes, change: Change) -> tuple[Lanes, int]:
        """Return the rows that are not as often in the table, each with the difference, and the number of rows of the table that are none of these."""
        self._load(connection, rows, change)
        same = f"{self._led(change)} and {self._database.same(change.columns)}"
        counted = f"select c.{AT}, (select count(*) from {self._table} t where {same}) as found from {CHANGES} c where c.{TIMES} > 0"
        found = np.array(connection.execute(counted).fetchall(), np.int64).reshape(-1, 2)
        others = self._counted(connection) - int(found[:, 1].sum())
        rows = rows.copy()
        rows[found[:, 0], -1] -= found[:, 1]
        return rows[rows[:, -1] != 0], others

    def left(self) -> dict[str, Any]:
        return self._stated

    def _claims(self, connection: Any) -> list[Claim]:
        """Return the claims on this table in our own. All tables with claims are beside it, so the last part of a name distinguishes them."""
        claims = [
            Claim(**{name: row[name] for name in Claim._fields if name in row}) for row in self._entries(connection)
        ]
        fold, one = self._database.folded, len(self._parts) == 1
        mine = fold(self._parts[-1])
        return [each for each in claims if fold(each.name if one else each.name.rpartition(".")[2]) == mine]

    def _is_emptied(self, connection: Any, held: int | None) -> bool:
        """Return whether a table that had rows has none, as if it had been dropped. Refuse one that has others than the last commit left, as far as that is known."""
        if not held:
            return False
        count = self._database.count(connection, self._table)
        if count is None:
            return self._is_empty(connection)
        if count and count != held:
            raise strange(self._place, f"the table has {count:,} rows, and had {held:,} after the last commit")
        return not count

    def _is_empty(self, connection: Any) -> bool:
        return not connection.execute(f"select 1 from {self._table} limit 1").fetchall()

    def _claim(self, connection: Any, number: int, change: Change, rows: int, *, whole: bool) -> None:
        """Record this as the last commit, which adds `rows` rows, in our table, unless another run has made one; make missing tables, and missing columns of a log that has grown."""
        columns = change.columns
        there = self._find_table(connection)
        ledger = full_name(self._ledger)
        kinds = "writer text not null, name text not null, number bigint not null, columns text not null, held bigint"
        connection.execute(f"create table if not exists {ledger} ({kinds}, primary key (writer, name))")
        if "held" not in self._database.column_names(connection, ledger):
            connection.execute(f"alter table {ledger} add column held bigint")
        self._database.exclude_others(connection, self._parts)
        listed, former = (
            json.dumps({name: str(kind) for name, kind in each.items()}, ensure_ascii=False)
            for each in (columns, change.former or columns)
        )
        claims = self._claims(connection)
        mine = [claim for claim in claims if claim.writer == str(self._key)]
        if self._held is None:
            others = [
                each for each in claims if each not in mine and not self._key.is_former(each.writer, self._outputs)
            ]
            if there and others:
                raise strange(self._place, "another output writes the table, too")
        elif [claim.number for claim in mine] != [self._held]:
            raise LockedError("another run writes the table", place=self._place, hint="run again when it is done")
        elif mine[0].columns != former:
            raise other_columns(self._place, "drop")
        elif change.former is not None and there:
            self._alter(connection, change.former, columns)
        if there:
            self._check_columns(connection, columns)
            self._index(connection, columns, ours=False)
        if whole or not there:
            held = rows
        else:
            held = rows + (self._counted(connection) if self._count is None else self._count)
        mark, escaped = self._database.mark, self._database.escaped(ledger)
        for claim in claims:
            if claim not in mine[:1]:
                where = f"where writer = {mark} and name = {mark}"
                connection.execute(f"delete from {escaped} {where}", [claim.writer, claim.name])
        key = {"writer": str(self._key), "name": mine[0].name if mine else ".".join(self._named)}
        self._note(connection, key, {"number": number, "columns": listed, "held": held}, known=bool(mine))
        if not there:
            self._make(connection, columns)

    def _alter(self, connection: Any, former: Schema, columns: Schema) -> None:
        """Give the table columns that are new, and wider types, where the database has others for them."""
        for name, kind in columns.items():
            wanted = self._database.type_of(kind)
            if name not in former:
                connection.execute(f"alter table {self._table} add column {delimited(name)} {wanted}")
            elif self._database.type_of(former[name]) != wanted:
                connection.execute(f"alter table {self._table} alter column {delimited(name)} set data type {wanted}")
        self._index(connection, columns, ours=True)

    def _check_columns(self, connection: Any, columns: Schema) -> None:
        """Refuse a table that lacks a column: it was altered, or made in another way."""
        fold = self._database.folded
        names = {fold(name) for name in self._database.column_names(connection, self._table)}
        if missing := [name for name in columns if fold(name) not in names]:
            raise StateError(
                f"the table has no column '{missing[0]}', which the output has", place=self._place, hint=AGAIN
            )

    def _counted(self, connection: Any) -> int:
        return int(connection.execute(f"select count(*) from {self._table}").fetchall()[0][0])

    def _make(self, connection: Any, columns: Schema) -> None:
        kinds = self._database.declared(columns)
        if self._unique and self._database.keeps_keys:
            kinds.append(f"primary key ({', '.join(map(delimited, self._unique))})")
        connection.execute(f"create table {self._table} ({', '.join(kinds)})")
        self._index(connection, columns, ours=True)

    def _index(self, connection: Any, columns: Schema, *, ours: bool) -> None:
        if not self._unique:
            self._database.index(connection, self._parts, [*columns], ours=ours)

    def _exchange(self, connection: Any, change: Change) -> None:
        """Remove rows by their values, each as often as it is retracted, and add new ones."""
        self._delete(connection, "")
        listed = ", ".join(map(delimited, change.columns))
        query = f"from {CHANGES} where {TIMES} >= 0"
        added = self._database.changed(connection, f"insert into {self._table} ({listed}) select {listed} {query}")
        if [(added,)] != connection.execute(f"select count(*) {query}").fetchall():
            raise EngineError("the table doesn't take all rows that are added", place=self._place, hint=OURS)

    def _delete(self, connection: Any, which: str) -> None:
        """Delete rows that the change retracts."""
        gone = f"select found from {FOUND}{which}"
        ((count,),) = connection.execute(f"select count(*) from ({gone}) as gone").fetchall()
        statement = f"delete from {self._table} where {self._database.among(gone)}"
        if count and self._database.changed(connection, statement) != count:
            raise EngineError(
                "the table doesn't lose just the rows that are deleted from it", place=self._place, hint=OURS
            )

    def _replace(self, connection: Any, rows: Lanes, change: Change) -> None:
        """Remove the rows of keys that go, and put new rows in the place of their keys' former ones, or beside the others."""
        names = [*change.columns]
        row, listed = self._database.row, ", ".join(map(delimited, names))
        taken = connection.execute(
            f"select c.{AT} from {CHANGES} c {self._database.beside} {self._table} t on {self._led(change)} where c.{TIMES} > 0 "
            f"and t.{row} not in (select found from {FOUND}) limit 1"
        ).fetchall()
        if taken:
            shown = change.shown(rows[[taken[0][0]]], self._unique)
            raise change.key_error("several records have one key", shown, self._place)
        added = f"insert into {self._table} ({listed}) select {listed} from {CHANGES} where {TIMES} > 0"
        if self._database.keeps_keys:
            others = [f"{delimited(name)} = excluded.{delimited(name)}" for name in names if name not in self._unique]
            upsert = f"{added} on conflict ({', '.join(map(delimited, self._unique))}) do "
            upsert += f"update set {', '.join(others)}" if others else "nothing"
            if self._is_upserted(connection, upsert):
                return
        self._delete(connection, "")
        connection.execute(added)

    def _is_upserted(self, connection: Any, upsert: str) -> bool:
        """Remove the rows of keys that go, and put the new ones in; return False where rows break a constraint on the way, with nothing done.

        Two rows that swap the values of another unique index do so until both are removed before they come anew.
        """
        connection.execute(f"savepoint {ROWS}")
        try:
            self._delete(connection, f" where {STAYS} = 0")
            connection.execute(upsert)
        except Exception as error:
            if not breaks_constraint(error):
                raise
            connection.execute(f"rollback to savepoint {ROWS}")
            return False
        connection.execute(f"release savepoint {ROWS}")
        return True

    def _led(self, change: Change) -> str:
        """Return the condition of rows of the table that may be the same as one of the changes."""
        if not self._unique:
            return self._database.led([*change.columns])
        return " and ".join(f"t.{delimited(name)} = c.{delimited(name)}" for name in self._unique)

    def _load(self, connection: Any, rows: Lanes, change: Change) -> None:
        """Load the changes, in the order of the contents. A row that is added several times is there as often, the first time with that number, then with 0."""
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
            pl.int_range(len(rows), dtype=pl.Int64, eager=True).alias(AT),
            pl.Series(TIMES, rows[:, -1]),
        ]
        frame = in_order(frame.with_columns(numbers), change.order)
        times = frame[TIMES].to_numpy()
        each = np.repeat(np.arange(len(times)), np.maximum(times, 1))
        again = np.concatenate([[False], each[1:] == each[:-1]])
        frame = frame[each].with_columns(pl.Series(TIMES, np.where(again, 0, times[each])))
        self._database.temporary(connection, change.columns)
        self._database.load(connection, CHANGES, frame)

    def _find(self, connection: Any, rows: Lanes, change: Change) -> None:
        """Load the changes, and find the rows of the table that they retract. Raises EngineError for one that isn't there."""
        self._load(connection, rows, change)
        same = f"{self._led(change)} and {self._database.same(change.columns)}"
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
                hint=f"{COMMITTED}; if others have changed it, drop it: the next run rewrites it; "
                "else retract no more than there is, then run again",
            )

    def _check_written(self, connection: Any, rows: Lanes, change: Change) -> None:
        """Refuse a table in which the rows that were written are not the same: others made it, with other types, collations or triggers."""
        same = f"{self._led(change)} and {self._database.same(change.columns)}"
        found = f"select c.{AT} from {CHANGES} c where c.{TIMES} > 0 and not exists (select 1 from {self._table} t where {same})"
        changed = connection.execute(f"{found} order by 1 limit 1").fetchall()
        if changed:
            shown = change.shown(rows[[changed[0][0]]])
            raise EngineError(f"the table changes a row that is written to it: {shown}", place=self._place, hint=OURS)

    def _transaction(self, *, write: bool) -> AbstractContextManager[Any]:
        def refusal(error: Exception) -> EngineError:
            problem = f"the table can't be {'written' if write else 'read'}: {first_line(error)}"
            hint = self._database.hint(error) or "the next run tries again"
            return EngineError(problem, place=self._place, hint=hint)

        return self._database.guarded(refusal, write=write)
