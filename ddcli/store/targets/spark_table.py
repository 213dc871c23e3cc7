"""Tables of Spark's catalogs that follow outputs, written by Spark itself.

A table with a key gets each change by a `merge`; another one is overwritten with the whole contents, which tasks read from the files of the log. Catalogs have no
transaction over a table's rows and our number. So its properties state that a commit is under way before the rows change, and its number after
that. A process that finds one under way can't know whether the rows changed, and overwrites the table.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from ddcli.engine.lanes import decode
from ddcli.errors import EngineError, StateError, first_line
from ddcli.expressions.tree import in_backticks
from ddcli.expressions.types import Type
from ddcli.privacy import previewed
from ddcli.store.files.buckets import adopt_settings, settings_in_use
from ddcli.store.log.writer import DIFF
from ddcli.store.mirrors.spark_table import spark_schema, to_arrow
from ddcli.store.targets.mark import COMMITTED, Target, strange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from ddcli.engine.lanes import Lanes
    from ddcli.store.targets.change import Change
    from ddcli.store.targets.mark import CommitKey, CommitRecord, TableFile

WRITER, NUMBER = "dd.writer", "dd.commit"
"""The properties of a table: the key of its output, and the number of the last commit, or `UNDER_WAY`."""
UNDER_WAY = "0"
GONE = "dd_gone"
"""The column of a change with whether the row of a key goes."""
MODE = "spark.sql.sources.partitionOverwriteMode"
UNPLANNED = "Error occurred during query planning"
"""The beginning of the plan of a statement that Spark can't do."""
AGAIN = "drop the table: the next run rewrites it, with the columns of the output"


class SparkTable(Target):
    """A table that a session of Spark knows by a name, with the contents of one of the pipeline's `outputs`; `stated` are its name and key in the words of the file."""

    def __init__(
        self,
        session: Any,
        stated: dict[str, Any],
        key: CommitKey,
        outputs: Collection[str],
        known: CommitRecord | None,
    ) -> None:
        name = stated["spark"]
        self._session, self._key, self._outputs, self._unique = session, key, outputs, tuple(stated["key"])
        self._stated = stated
        self._place = f"Spark, table {name}"
        self._table = ".".join(map(in_backticks, name.split(".")))
        self._had_rows = known is not None and bool(known.left.get("rows"))
        self._had_key = known is None or known.left.get("key") == stated["key"]

    def number(self) -> int | None:
        properties = self._properties()
        if properties is None or properties.get(WRITER) != str(self._key) or not self._had_key:
            return None
        if self._had_rows and self._is_empty():
            return None
        number = properties.get(NUMBER, UNDER_WAY)
        return int(number) if number.isdecimal() and number != UNDER_WAY else None

    def check(self, known: CommitRecord | None) -> None:
        properties = self._properties()
        if known is not None or properties is None:
            return
        writer = properties.get(WRITER, "")
        if writer and writer != str(self._key) and not self._key.is_former(writer, self._outputs):
            raise strange(self._place, "another output writes the table, too")
        if not writer and not self._is_empty():
            raise strange(self._place, "the table has rows that this pipeline has not written")

    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        rows = None if change.whole else change.updates()
        if rows is not None:
            change.refuse_negative(rows[rows[:, -1] > 0])
            change.check_keys(rows[rows[:, -1] > 0], self._unique, self._place)
        announce(())
        with self._errors():
            if self._properties() is None:
                self._session.createDataFrame([], spark_schema(change.columns)).writeTo(self._table).create()
            self._add_columns(change)
            self._check_columns(change)
            if rows is None:
                with self._contents(change) as (contents, count):
                    self._state_commit(UNDER_WAY)
                    self._overwrite(contents, count)
            elif len(rows):
                self._state_commit(UNDER_WAY)
                self._merge(rows, change)
            self._state_commit(str(number))

    def difference(self, change: Change) -> tuple[Lanes, int]:
        if self._properties() is None:
            return change.updates(), 0
        with self._errors():
            found = pl.DataFrame(self._session.table(self._table).toArrow())
        return change.difference([found.select(*change.columns)]), 0

    def left(self) -> dict[str, Any]:
        return self._stated | {"rows": not self._is_empty()}

    def _properties(self) -> dict[str, str] | None:
        """Return the properties of the table, None if it doesn't exist."""
        with self._errors():
            if not self._session.catalog.tableExists(self._table):
                return None
            self._session.catalog.refreshTable(self._table)
            return {row[0]: row[1] for row in self._session.sql(f"show tblproperties {self._table}").collect()}

    def _is_empty(self) -> bool:
        with self._errors():
            return not self._session.table(self._table).limit(1).collect()

    def _state_commit(self, number: str) -> None:
        """Have the table's properties state the writer and the number of a commit."""
        properties = f"'{WRITER}' = '{self._key}', '{NUMBER}' = '{number}'"
        self._session.sql(f"alter table {self._table} set tblproperties ({properties})")

    def _add_columns(self, change: Change) -> None:
        """Give the table the columns that its log has got since the last commit."""
        there = {*self._session.table(self._table).columns}
        fields = spark_schema(change.columns).fields if change.former is not None else ()
        added = [
            f"{in_backticks(each.name)} {each.dataType.simpleString()}" for each in fields if each.name not in there
        ]
        if added:
            self._session.sql(f"alter table {self._table} add columns ({', '.join(added)})")

    def _check_columns(self, change: Change) -> None:
        """Refuse a table that has other columns than the output, and one that Spark can't merge into."""
        ours = {field.name: field.dataType for field in spark_schema(change.columns).fields}
        theirs = {field.name: field.dataType for field in self._session.table(self._table).schema.fields}
        if ours != theirs:
            shown = [
                ", ".join(f"{name} {kind.simpleString()}" for name, kind in each.items()) for each in (ours, theirs)
            ]
            problem = f"the output has the columns {shown[0]}, and the table has {shown[1]}"
            raise StateError(problem, place=self._place, hint=AGAIN)
        if self._unique:
            nothing = f"(select *, true as {GONE} from {self._table} where false)"  # noqa: S608 - quoted
            plan = self._session.sql(f"explain {self._merge_statement(list(ours), nothing)}").collect()
            if str(plan[0][0]).startswith(UNPLANNED):
                hint = f"{COMMITTED}; leave `key` out: then each commit overwrites the whole table"
                raise EngineError("Spark can't merge into a table of this kind", place=self._place, hint=hint)

    @contextmanager
    def _contents(self, change: Change) -> Iterator[tuple[DataFrame, int]]:
        """Yield the rows of the whole log, and their number. Raises EngineError for contents that a table can't hold."""
        names, keys = ([*map(in_backticks, each)] for each in (change.columns, self._unique))
        files, task = [file.name for file in change.files], partial(_updates, change, settings_in_use())
        schema = spark_schema({**change.columns, DIFF: Type("int64")})
        listed = self._session.createDataFrame([(name,) for name in files], "name string")
        updates = listed.repartition(max(1, len(files)), "name").mapInArrow(task, schema)
        summed = updates.groupBy(*names).agg({DIFF: "sum"}).withColumnRenamed(f"sum({DIFF})", DIFF)
        found = summed.filter(f"{DIFF} <> 0").persist()
        try:
            keyless = " or ".join(f"{key} is null" for key in keys) or "false"
            counted = found.selectExpr(f"min({DIFF})", f"sum({DIFF})", f"count_if({keyless})").collect()
            ((least, count, without),) = counted
            if (least or 0) < 0:
                (row,) = found.filter(f"{DIFF} < 0").drop(DIFF).limit(1).collect()
                raise change.negative_error(_shown(row))
            if without:
                (row,) = found.filter(keyless).selectExpr(*keys).limit(1).collect()
                raise change.key_error("a record has a null in its key", _shown(row), self._place)
            several = found.groupBy(*keys).agg({DIFF: "sum"}).filter(f"`sum({DIFF})` > 1").drop(f"sum({DIFF})")
            for row in several.limit(1).collect() if keys else ():
                raise change.key_error("several records have one key", _shown(row), self._place)
            each = f"explode(array_repeat(0, cast({DIFF} as int))) as {GONE}"
            yield found.selectExpr(*names, each).drop(GONE), int(count or 0)
        finally:
            found.unpersist()

    def _overwrite(self, rows: DataFrame, count: int) -> None:
        """Replace all rows of the table, whatever the session's mode of overwriting partitions is."""
        names = self._session.table(self._table).columns
        mode = self._session.conf.get(MODE, None)
        self._session.conf.set(MODE, "static")
        try:
            rows.select(*map(in_backticks, names)).write.insertInto(self._table, overwrite=True)
        finally:
            self._session.conf.set(MODE, mode) if mode is not None else self._session.conf.unset(MODE)
        if (there := self._session.table(self._table).count()) != count:
            raise EngineError(
                f"the table has {there:,} rows after it was overwritten with {count:,}",
                place=self._place,
                hint="a table of Hive keeps the partitions that get no rows: make it one of Spark (`using parquet`), without partitions",
            )

    def _merge(self, rows: Lanes, change: Change) -> None:
        """Have a merge take in a change: new rows, in the place of their keys' former ones, and keys that go."""
        found = decode(rows, change.layout, change.pool)
        added, retracted = found.filter(pl.Series(rows[:, -1] > 0)), found.filter(pl.Series(rows[:, -1] < 0))
        gone = retracted.join(added, on=self._unique, how="anti").unique(self._unique)
        fresh = added.join(retracted, on=self._unique, how="anti")
        if fresh.height:
            keys = self._frame(fresh.select(self._unique), change).alias("c")
            same = " and ".join(f"t.{name} = c.{name}" for name in map(in_backticks, self._unique))
            with self._view(keys) as view:
                asked = f"select c.* from {view} c left semi join {self._table} t on {same} limit 1"  # noqa: S608 - quoted
                for row in self._session.sql(asked).collect():
                    raise change.key_error("several records have one key", _shown(row), self._place)
        change_rows = self._frame(added, change).selectExpr("*", f"false as {GONE}")
        removals = self._frame(gone, change).selectExpr("*", f"true as {GONE}")
        with self._view(change_rows.unionAll(removals)) as view:
            self._session.sql(self._merge_statement(list(change.columns), view))

    def _merge_statement(self, columns: Sequence[str], source: str) -> str:
        names = [*map(in_backticks, columns)]
        same = " and ".join(f"t.{name} = c.{name}" for name in map(in_backticks, self._unique))
        set_ = ", ".join(f"t.{name} = c.{name}" for name in names)
        values = ", ".join(f"c.{name}" for name in names)
        return (
            f"merge into {self._table} t using {source} c on {same} when matched and c.{GONE} then delete "  # noqa: S608 - quoted
            f"when matched then update set {set_} when not matched and not c.{GONE} then insert ({', '.join(names)}) values ({values})"
        )

    def _frame(self, rows: pl.DataFrame, change: Change) -> DataFrame:
        """Return rows of the change as a frame of Spark."""
        columns = {name: change.columns[name] for name in rows.columns}
        schema = spark_schema(columns)
        if not rows.height:
            return self._session.createDataFrame([], schema)
        table = pa.Table.from_batches(to_arrow(rows, columns, self._place))
        return self._session.createDataFrame(table, schema)

    @contextmanager
    def _view(self, rows: DataFrame) -> Iterator[str]:
        """Yield the name of a view of these rows."""
        name = f"dd_changes_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self._session.catalog.dropTempView(name)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn a refusal of Spark into an error for people. One of a task's Python process has no name of Spark's."""
        from pyspark.errors import PySparkException, PythonException

        try:
            yield
        except PySparkException as error:
            if error.getCondition() is None or isinstance(error, PythonException):
                raise
            problem, hint = f"the table can't be written: {first_line(error)}", f"{COMMITTED}; the next run tries again"
            if "TABLE_CHANGE" in str(error):
                problem = "its catalog keeps no properties of tables, so a commit can't be known from another one"
                hint = (
                    "name a table of another catalog; a database can be written directly, with `to: postgresql://...`"
                )
            raise EngineError(problem, place=self._place, hint=hint) from None


def _shown(row: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in previewed(row.asDict()).items())


def _updates(change: Change, settings: dict[str, str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the updates, without times, of files of a change's log, whose names a task is given."""
    adopt_settings(settings)
    files = {file.name: file for file in change.files}
    kinds = {**change.columns, DIFF: Type("int64")}
    for name in (name for batch in batches for name in batch.column(0).to_pylist()):
        yield from to_arrow(change.rows(files[name], change.schema), kinds, str(change.log / name))
