"""The content of a pipeline file as plain values: inputs, collections with their operators, outputs, checks and budgets.

Every text of the file that can still turn out wrong (an expression, a column's name, a path) is a `Text` with its
place. Expressions are unparsed here: they need the types of columns, which only the planner knows.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ddcli.dataclass import frozen
from ddcli.expressions.types import ARRIVAL, UTC

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ddcli.errors import Span, Text
    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import Type
    from ddcli.spec.tests import WrittenTest


Columns = dict[str, tuple["Text", "Type"]]
"""Declared columns by name, in order; the text is the name where it is written."""

Assignments = tuple[tuple["Text", "Text"], ...]
"""(column, expression) in order; columns are distinct."""


@frozen
class GroupColumn:
    """A grouping column: the `expression` that computes it, or None for the column of that very name."""

    name: Text
    expression: Text | None = None


@frozen
class Order:
    """A sort key. `expression` is the text without its `asc` or `desc`, and `nulls first` or `nulls last`."""

    expression: Text
    descending: bool = False
    nulls_first: bool = False


@frozen
class PythonFunction:
    """A Python function `module:function` and the columns it returns. By record, or a batch (a DataFrame) at a time.

    With a `memo`, the name of its memory, it remembers its results; a run calls it for at most `calls` records.
    """

    name: Text
    columns: Columns
    batch: bool = False
    memo: str | None = None
    calls: int | None = None


@frozen
class Inline:
    """A collection without a name, written where another refers to it. `place` is its path in the file."""

    sources: tuple[Source, ...]
    apply: tuple[Operator, ...]
    span: Span
    place: str


Source: TypeAlias = "Text | Inline"
"""The name of an input or collection (known to exist), or a collection written in place."""


@frozen
class Operator:
    """One item of `apply`: an operator of the table `plan/operators`, its further inputs, and the arguments of its constructor.

    `place` is its path, `collections.big.apply[2].join`; `span` is its name in the file.
    """

    name: str
    arguments: dict[str, Any]
    span: Span
    place: str
    inputs: tuple[Source, ...] = ()


_SIZES = {f"{letter}{i}b": base**at for i, base in (("", 1000), ("i", 1024)) for at, letter in enumerate("kmgt", 1)}
UNITS: dict[str, dict[str, float]] = {
    "rows": {"": 1, "k": 1e3, "m": 1e6, "g": 1e9},
    "seconds": {"": 1, "s": 1, "min": 60, "h": 3600},
    "bytes": {"": 1, "b": 1} | _SIZES,
}
EXAMPLES = {"rows": "a whole number: 1e6 or 500k", "seconds": "60 or 5min", "bytes": "500MB or 2GiB"}
NUMBER = re.compile(r"(\d{1,18}(?:_\d{1,18}){0,6}(?:\.\d{1,18})?(?:e\+?\d{1,2})?)\s*([a-z]*)")


def parse_bound(what: str, text: str) -> float:
    """Return a bound of rows, seconds or bytes as a number. Raises ValueError.

    >>> parse_bound("rows", "1.5e6"), parse_bound("seconds", "5min"), parse_bound("bytes", "2 GiB")
    (1500000.0, 300.0, 2147483648.0)
    """
    found = NUMBER.fullmatch(text.strip().lower())
    if found is None or found[2] not in UNITS[what]:
        raise ValueError(text)
    unit = UNITS[what][found[2]]
    most = float(found[1]) * unit
    if what == "rows" or (what == "bytes" and unit == 1):
        most = round(most, 6)  # 1.001k are 1001
        if not most.is_integer():
            raise ValueError(text)
    return most


WORK_CLASSES = ("change", "output", "groups", "partition", "everything")
"""The bounds of the rows that an operator reads for a change, each class with less work than the next.

The change: its own rows, and a bounded number of rows of the state for each of them. The output: the rows that match, or that change in the output. Groups and partition: all
rows of those that the change touches. Everything: all rows of an input, for any change.
"""


@frozen
class Bounds:
    """The most rows, seconds and bytes that something may take, as they are written, and the worst class of its work."""

    rows: Text | None = None
    seconds: Text | None = None
    bytes: Text | None = None
    work: Text | None = None


@frozen
class Budget:
    """Bounds of a whole run, of each operator, and of each operator of some collections, in place of those for all.

    The class of work of a `run` holds for each of its operators.
    """

    run: Bounds
    operator: Bounds
    collections: tuple[tuple[Text, Bounds], ...] = ()


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

    Without a column it is the number of rows that the commit removes from `output`, each as often as it was there.
    """

    name: str
    limit: Limit
    column: str | None = None
    output: str = ""


@frozen
class CheckSpec:
    """A check: `name` is the name of its collection of violations and of their log, `title` the one that people gave it.

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


Quarantine: TypeAlias = "tuple[Text, tuple[tuple[Operator, ...], ...]]"
"""A check, and the parts that an input is the sum of, once the check has put its rows aside: the operators of each."""


Clock = Literal["arrival", "event"]

GUARD = 10_000
"""The number of rounds after which a loop without a bound is an error, as it seems never to settle."""


FORMATS = ("updates", "append", "upsert", "snapshots", "debezium", "delta_cdf")
LOGS = ("updates", "debezium", "delta_cdf", "import")
"""The formats of logs of changes, which come with times of their own."""
TABLES = ("delta", "iceberg", "ducklake", "database", "spark")
"""The kinds of tables that other programs keep, with versions of their own."""
SPARK = "spark"
"""The kind of tables that Spark itself reads and writes."""
TABLE_TIMES = {"version": "_commit_version", "committed": "_commit_timestamp"}
"""The choices for the time of a table's rows, and the column of each in the table's mirror."""
TABLE_DIFF = "_diff"
"""The column of the diff in a table's mirror."""


@frozen
class InputSpec:
    """A change log to read, or files of another format (one of `FORMATS`). `columns` None: the columns of the files. `diff` None:
    there is no such column, each row is +1. Defaults of `time` and `diff` have the place of the input's name.

    `key` are the columns that have one record at a time; without it the whole record is the key. `delete_when` and
    `order_by` are expressions, `max_delete` is `50%` or a number of rows, `file_name` a pattern with columns in braces. Rows that are `late` may be put into the directory `quarantine`.
    The format `import` is an arrangement of another pipeline: `path` is its state, `arrangement` the name.
    Under the clock of arrivals the time is `ARRIVAL`, and the `ignored` columns are the times that a change log has itself.
    `named` is the time column that the file names, None if it names none. A row further than `max_ahead` after the present time
    is refused: a length of time, or `none`. Files that were `consumed` stay, may go, or are moved into a directory.
    A file that has `changed` since it was read is refused, or its rows are replaced, if it was written `replaced_within` a length of time before. One that is `missing` is refused, or its rows are taken out.
    With `rounding` decimals of text that have more digits than their column are rounded, else refused.
    Files may have columns under `former` names, and may lack `optional` ones. Columns with `tags` are hidden from previews.
    An input that `infers` has the columns that its first run finds, and one that `grows` also those that later files add; messages add `inferred` about them.
    `pinned` are the columns of one that grows as a run has found them, a `PinnedColumns` of `store.log`, which `columns` declares then.
    The `path` of a `table` (one of `TABLES`) is its own, later the directory of the state in which it is mirrored as a change log; then
    `origin` is its own path. For a table in a `catalog` (a name or properties) that is its name there; for one in a database it is the database's URI,
    and `query` returns the rows. For a table in a catalog it is the table's name, or the `query`. If there is a `cursor`, a growing column, only rows with a greater value are new. `unique` columns are the key. An input that `follows` has the table's columns.
    `beside` names an import of the same file, whose times come from another pipeline, so the clock can't be the time of arrival.
    """

    name: Text
    path: Text
    time: tuple[Text, ...]
    diff: Text | None = None
    columns: Columns | None = None
    format: str = "updates"
    key: tuple[Text, ...] = ()
    delete_when: Text | None = None
    order_by: Text | None = None
    max_delete: Text | None = None
    flattened: bool = False
    file_name: Text | None = None
    late: Literal["error", "arrive", "quarantine"] = "error"
    quarantine: Text | None = None
    negative: Literal["allow", "warn", "error"] = "allow"
    arrangement: Text | None = None
    csv: Dialect | None = None
    named: Text | None = None
    max_ahead: Text | None = None
    consumed: Literal["keep", "forget"] | Text = "keep"
    changed: Literal["refuse", "replace"] = "refuse"
    replaced_within: Text | None = None
    missing: Literal["refuse", "retract"] = "refuse"
    ignored: tuple[str, ...] = ()
    quarantines: bool = False
    rounding: str | None = None
    infers: bool = False
    grows: bool = False
    pinned: Any = None
    inferred: str = ""
    former: dict[str, tuple[str, ...]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    tags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    table: str = ""
    origin: Text | None = None
    catalog: tuple[tuple[Text, Text], ...] | Text | None = None
    query: Text | None = None
    cursor: Text | None = None
    unique: tuple[Text, ...] = ()
    follows: bool = False
    beside: str = ""

    @property
    def clock_hint(self) -> str:
        """The end of a hint where `clock: arrival` would help but for the import beside the input; empty without one."""
        needs = "; `clock: arrival` needs an output of the other pipeline, read as a log, in place of the import"
        return f"{needs} '{self.beside}'" if self.beside else ""

    @property
    def archive(self) -> Text | None:
        """The directory into which consumed files are moved."""
        return None if isinstance(self.consumed, str) else self.consumed

    @property
    def in_files(self) -> bool:
        """Return whether `path`, as it is written, names files."""
        return self.table in ("", "delta")

    @property
    def arrives(self) -> bool:
        """Return whether its rows have the time of the run that reads them."""
        return self.time[0].value == ARRIVAL

    @property
    def retracts(self) -> bool:
        """Return whether its rows retract records at times of their own, later than the records' own."""
        return self.format in LOGS and not (self.format == "debezium" and self.key)

    @property
    def lasting(self) -> bool:
        """Return whether the order of a key's rows decides across times: a row's time does not show how new it is."""
        ordered = self.order_by is not None or self.format == "debezium"
        return bool(self.key) and ordered and (self.arrives or self.late == "arrive")


@frozen
class Iterate:
    """A loop. `variables` have their initial collections; in the next round each is the collection of its name in `body`.

    `result` leaves, a collection of the body, or several: after `bound` rounds, if it is given; else when
    nothing changes any more, after at most `guard` rounds. Each variable is in the body, and its other
    collections refer to each other without circles. `place` is its path, `span` the word `iterate`.
    """

    variables: tuple[tuple[Text, Source], ...]
    body: dict[str, CollectionSpec]
    result: Text | tuple[Text, ...]
    span: Span
    place: str
    bound: int | None = None
    guard: int = GUARD


@frozen
class Query:
    """An SQL query over the inputs and collections that it names, the `tables`, each where it first does."""

    text: Text
    tables: tuple[Text, ...]
    place: str


@frozen
class CollectionSpec:
    """A named collection: the sum of its sources, a loop's result, or a query's, with operators applied in order.

    A loop with a list of results has a collection for each, `name.result`; there are no operators then. `on` chooses the
    engine that computes it, if the run leaves that open.
    """

    name: Text
    sources: tuple[Source, ...] | Iterate | Query
    apply: tuple[Operator, ...] = ()
    on: Text | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its results."""
        if isinstance(self.sources, Iterate) and isinstance(self.sources.result, tuple):
            return tuple(f"{self.name.value}.{result.value}" for result in self.sources.result)
        return (self.name.value,)


def owners(collections: Mapping[str, CollectionSpec]) -> dict[str, str]:
    """Return the collection that each name belongs to: its own, or the name of a result of its loop."""
    return {name: key for key, collection in collections.items() for name in collection.names}


DATABASE = "to"
"""The kind of tables of outputs that are in databases."""


@frozen
class TargetSpec:
    """A table of another program that follows an output's log: in its `place`, a path or a name in a `catalog`, which is named as inputs name it.

    It has the log's updates; as a `table` the contents as of now, or their `history`. For a database `place` is the URI, `called` the table's name, and no two rows have
    the same values in the columns of its `key`.
    """

    kind: str
    place: Text
    catalog: Text | tuple[tuple[Text, Text], ...] | None = None
    table: bool = False
    called: str = ""
    key: tuple[Text, ...] = ()
    history: tuple[Text, ...] = ()
    """The key of the output; it has at most one record at a time: the table has the intervals in which each record held."""
    track: tuple[Text, ...] = ()
    """The columns whose changes begin an interval; none: all."""
    begin: Text | None = None
    """The Parquet file with the rows of a history from before the log."""

    @property
    def product(self) -> str:
        """Return the product that keeps the table: `delta`, `parquet`, `iceberg`, or a kind of database."""
        if self.kind != DATABASE:
            return self.kind
        return "postgres" if self.place.value.startswith("postgres") else self.place.value.partition(":")[0]


@frozen
class OutputSpec:
    """A change log to write: the updates of `source`, the name of a collection or input. `history`: see `Spec`.

    Without a path the log is in the state: people read the table `target`.
    """

    name: Text
    source: Text
    path: Text | None = None
    history: Text | None = None
    keep: Text | None = None
    """The distance behind the frontier within which the log keeps times apart."""
    claims: Text | None = None
    """The distance behind the frontier within which consumers and readers hold back their updates from being summed up; None: however far."""
    target: TargetSpec | None = None

    @property
    def place(self) -> Text:
        """Return the place where readers find the output: its table, else its log; of a check, whose log is in the state, the name."""
        return self.target.place if self.target else self.path or self.name


@frozen
class Errors:
    """Records on which an expression fails go to a log, in a directory of its own or in the state."""

    path: Text | None = None


@frozen
class SparkSpec:
    """The address of Spark (its master, or the URL of Spark Connect) and its settings, by name."""

    master: Text | None = None
    remote: Text | None = None
    conf: tuple[tuple[Text, Text], ...] = ()


@frozen
class Spec:
    """A whole pipeline file. Names in it are known to exist, and collections refer to each other in circles only through variables.

    `path` is the file; the paths inside are relative to its directory. `history` is the distance behind the frontier within which arrangements
    keep times apart: a number, a duration, or `all`. Under the clock `arrival` each row has the time of the run that takes it in, under the clock `event` that
    of its time column. `timezone` is the zone of timestamps with one. `fragments` are the files that it includes and `variables` its variables, each with a digest of its content. `shards` is the number of parts into which new arrangements are cut.
    """

    name: Text
    path: Path
    inputs: dict[str, InputSpec]
    collections: dict[str, CollectionSpec]
    outputs: dict[str, OutputSpec]
    state: Text | None = None
    history: Text | None = None
    shards: int | None = None
    tests: tuple[WrittenTest, ...] = ()
    errors: Errors | None = None
    spark: SparkSpec | None = None
    clock: Clock = "event"
    timezone: str = UTC
    fragments: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    budget: Budget | None = None
    checks: dict[str, CheckSpec] = field(default_factory=dict)
    """The checks by name; each has a collection and an output of its name."""
    quarantines: dict[str, tuple[Quarantine, ...]] = field(default_factory=dict)
    """The checks that put rows of an input aside, by input, in the order of the file."""

    @property
    def tables(self) -> dict[str, InputSpec]:
        """The inputs that are tables of other programs."""
        return {name: given for name, given in self.inputs.items() if given.table}

    @property
    def tags(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The tags of inputs' columns, by input."""
        return {name: given.tags for name, given in self.inputs.items()}

    @property
    def archives(self) -> list[tuple[str, Text]]:
        """The archives that the file names, each with the keys that name it."""
        return [(f"inputs.{name}.consumed", given.archive) for name, given in self.inputs.items() if given.archive]

    @property
    def has_targets(self) -> bool:
        """Return whether an output is a table of another program."""
        return any(output.target is not None for output in self.outputs.values())
