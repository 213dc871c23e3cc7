"""What the versions of a table of Delta Lake changed, as updates: from its change feed or the difference of its files.

Where its log or its files are gone (VACUUM), from the difference of the table as it is and its mirror.
"""

from __future__ import annotations

import importlib.util
import time as clock
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import polars as pl

from ddcli.errors import InputError, UsageError
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Literal
from ddcli.store.mirrors.delta_commits import UnknownChange, read_commit, tip_of
from ddcli.store.mirrors.mirror import ROWS, Mark
from ddcli.store.parquet.footers import TEXT
from ddcli.store.tables.files import READ_ERRORS
from ddcli.store.tables.widening import type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from deltalake import DeltaTable

    from ddcli.expressions.types import Schema
    from ddcli.store.mirrors.delta_commits import DataFile, DeltaCommit

DIFF, VERSION, COMMITTED = "_diff", "_commit_version", "_commit_timestamp"
OWN = {VERSION: pl.Int64(), COMMITTED: pl.Datetime("us", "UTC"), DIFF: pl.Int64()}
"""The columns of a mirror beside the table's."""
CHANGE = "_change_type"
CHANGES = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}
FEATURES = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""What a table may ask of its readers."""
PLAIN = "write the table without it, or its rows to files of their own, as DuckDB's `delta_scan` reads them"
BEGIN = "`dd reset PIPELINE --outputs` begins anew with the table as it is"
MICRO = 1_000_000


class DeltaSource:
    """A table of Delta Lake as it is now. Raises InputError for one that can't be read, UsageError without the package."""

    def __init__(self, place: Path) -> None:
        if importlib.util.find_spec("deltalake") is None:
            raise UsageError("tables of Delta Lake need the package deltalake", hint="pip install 'ddcli[delta]'")
        self.place = place
        with self._errors():
            self._table = _open(place)
            self.version = self._table.version()
            self.identity = str(self._table.metadata().id)
            self._check_features()
            found = pl.Schema(self._table.schema().to_arrow())
        self._nullable = {field.name: field.nullable for field in self._table.schema().fields}
        kinds = {name: type_of(dtype) for name, dtype in found.items()}
        self.columns: Schema = {name: kind.or_null() for name, kind in kinds.items() if kind is not None}
        self.unfit = {name: str(found[name]) for name, kind in kinds.items() if kind is None}
        """Columns of types that records can't have; they are left out."""
        if taken := sorted(OWN.keys() & self.columns.keys()):
            raise InputError(f"the table has a column '{taken[0]}', a name that its mirror needs", place=str(place))
        self._masks: dict[int, dict[str, pl.Series]] = {}

    def whole(self) -> tuple[Mark, Iterator[pl.DataFrame]]:
        """Return how far the table as it is goes, and its rows."""
        end = self._mark(self.version, self._committed_now(0))
        return end, self._labelled(self._rows(), end)

    def changes(self, mark: Mark, *, stepwise: bool) -> tuple[Mark, Iterator[pl.DataFrame]] | None:
        """Return how far the updates since `mark` go, and these, to be read one by one; None where nothing is newer.

        They are consolidated: with `stepwise` those of each version, else all. Raises UnknownChange, also as they are read, where the
        table doesn't have any more what this takes: see `difference`.
        """
        self._check_same(mark)
        if self.version == mark.version:
            return None
        commits = [read_commit(self.place, each) for each in range(mark.version + 1, self.version + 1)]
        self._check_columns(mark, commits)
        steps: list[tuple[Mark, list[DeltaCommit]]] = []
        committed = mark.committed
        for commit in commits:
            committed = max(committed + 1, commit.committed or 0)
            steps.append((self._mark(commit.version, committed), [commit]))
        end = steps[-1][0]
        return end, self._updates(steps if stepwise else [(end, commits)])

    def difference(self, mark: Mark, mirrored: Sequence[Path]) -> tuple[Mark, Iterator[pl.DataFrame]]:
        """Return how far the table as it is goes, and how it differs from what these files of a mirror add up to."""
        self._check_columns(mark, [])
        end = self._mark(self.version, self._committed_now(mark.committed + 1))
        kept = [self._kept(path) for path in mirrored]
        return end, self._labelled([_consolidated([*self._signed(self._rows(), 1), *self._signed(kept, -1)])], end)

    def _mark(self, version: int, committed: int) -> Mark:
        columns = {name: str(kind) for name, kind in self.columns.items()}
        return Mark(self.identity, version, committed, columns, tip_of(self.place, version))

    def _committed_now(self, least: int) -> int:
        """Return when the newest version was committed, in microseconds; no earlier than `least`."""
        try:
            found = read_commit(self.place, self.version).committed
        except UnknownChange:
            found = None
        return max(least, int(clock.time() * MICRO) if found is None else found)

    def _updates(self, steps: Sequence[tuple[Mark, list[DeltaCommit]]]) -> Iterator[pl.DataFrame]:
        for end, commits in steps:
            files: dict[DataFile, tuple[int, int]] = {}
            feeds: list[tuple[DataFile, int]] = []
            for commit in commits:
                if commit.feed:
                    feeds += [(file, commit.version) for file in commit.feed]
                    continue
                for file, diff in [*((each, -1) for each in commit.removed), *((each, 1) for each in commit.added)]:
                    # What it deletes a version knows that has the file: the one before its removal.
                    known = commit.version if diff > 0 else commit.version - 1
                    files[file] = files.get(file, (0, 0))[0] + diff, known
            changed = [(file, *found) for file, found in files.items() if found[0]]
            parts = (self._file(file, diff, known) for file, diff, known in changed)
            if any(diff < 0 for _, diff, _ in changed) or feeds:
                fed = [self._feed(file) for file, _ in feeds]
                yield from self._labelled([_consolidated([*parts, *fed])], end)
            else:
                yield from self._labelled(parts, end)

    def _labelled(self, frames: Iterable[pl.DataFrame], end: Mark) -> Iterator[pl.DataFrame]:
        """Yield updates at a version, in the columns of the mirror."""
        at = (pl.lit(end.version).alias(VERSION), pl.lit(end.committed).cast(OWN[COMMITTED]).alias(COMMITTED))
        diff = pl.lit(1, pl.Int64).alias(DIFF)
        for frame in frames:
            whole = frame.with_columns(*at, *([] if DIFF in frame.columns else [diff]))
            yield whole.select(*self.columns, *(pl.col(name).cast(dtype) for name, dtype in OWN.items()))

    def _signed(self, frames: Iterable[pl.DataFrame], sign: int) -> Iterator[pl.DataFrame]:
        """Yield rows with their diffs, times a sign."""
        for frame in frames:
            diff = pl.col(DIFF) if DIFF in frame.columns else pl.lit(1, pl.Int64)
            yield frame.select(*self.columns, (diff * sign).alias(DIFF))

    def _rows(self) -> Iterator[pl.DataFrame]:
        """Yield the table's rows as the package reads them."""
        with self._errors():
            held: list[pl.DataFrame] = []
            for batch in self._table.scan(columns=list(self.columns)):
                held.append(pl.DataFrame(batch).cast(pl.Schema(self._dtypes)))
                if sum(each.height for each in held) >= ROWS:
                    yield pl.concat(held)
                    held = []
            if held:
                yield pl.concat(held)

    @property
    def _dtypes(self) -> dict[str, pl.DataType]:
        return {name: kind.to_polars() for name, kind in self.columns.items()}

    def _kept(self, path: Path) -> pl.DataFrame:
        """Return the updates of a file of the mirror; columns that the table had not then are null."""
        with path.open("rb") as file:
            frame = pl.read_parquet(file)
        missing = [pl.lit(None, dtype).alias(name) for name, dtype in self._dtypes.items() if name not in frame.columns]
        return frame.with_columns(missing)

    def _file(self, file: DataFile, diff: int, version: int) -> pl.DataFrame:
        frame = self._read(file, [])
        if file.deleted:
            kept = self._deleted(version).get(str(self._path(file)))
            if kept is None:
                raise UnknownChange
            frame = frame.filter(pl.concat([kept, pl.repeat(True, frame.height - len(kept), eager=True)]))
        return frame.with_columns(pl.lit(diff, pl.Int64).alias(DIFF))

    def _feed(self, file: DataFile) -> pl.DataFrame:
        frame = self._read(file, [CHANGE])
        strange = set(frame[CHANGE].unique()) - CHANGES.keys()
        if strange:
            problem = f"the table's change feed has a change '{strange.pop()}'"
            raise InputError(problem, place=str(self._path(file)), hint=f"known are {', '.join(CHANGES)}")
        diff = pl.col(CHANGE).replace_strict(CHANGES, return_dtype=pl.Int64).alias(DIFF)
        return frame.select(*self.columns, diff)

    def _read(self, file: DataFile, more: Sequence[str]) -> pl.DataFrame:
        """Return the rows of a data file: columns that it hasn't are those of its partition, or younger than it."""
        path = self._path(file)
        try:
            with path.open("rb") as opened:
                scan = pl.scan_parquet(opened, glob=False, hive_partitioning=False)
                found = scan.collect_schema()
                columns = [self._column(file, name, found.get(name)) for name in self.columns]
                return scan.with_columns(columns).select(*self.columns, *more).collect()
        except FileNotFoundError:
            raise UnknownChange from None
        except (OSError, *READ_ERRORS) as error:
            raise InputError(f"the file of the table can't be read: {error}", place=str(path)) from None

    def _column(self, file: DataFile, name: str, found: pl.DataType | None) -> pl.Expr:
        kind, dtype = self.columns[name], self.columns[name].to_polars()
        partition = dict(file.partition)
        if name in partition:
            text = partition[name]
            if not text:  # an empty text is null, too
                return pl.lit(None, dtype).alias(name)
            if kind.kind == "string":
                return pl.lit(text, pl.String).alias(name)
            value = Lowering().value(Cast(Literal(text, TEXT), kind, try_=True))
            if pl.select(value).item() is None:
                problem = f"the log has '{text}' in the partition column '{name}', which is no {kind.required()}"
                raise InputError(problem, place=str(self._path(file)))
            return value.cast(dtype).alias(name)
        if found is None:
            return pl.lit(None, dtype).alias(name)
        column = pl.col(name)
        if isinstance(found, pl.Datetime) and isinstance(dtype, pl.Datetime) and found.time_zone is None:
            column = column.dt.replace_time_zone(dtype.time_zone)  # as INT96 are, which are in UTC
        return column.cast(dtype)

    def _path(self, file: DataFile) -> Path:
        name = unquote(file.path)
        if (
            name.startswith("/") or "://" in name or ".." in name.split("/")
        ):  # of another table, of which this is a clone
            raise UnknownChange
        return self.place / name

    def _deleted(self, version: int) -> dict[str, pl.Series]:
        """Return which rows a version keeps of the files that have deletion vectors, by their paths."""
        if version not in self._masks:
            with self._errors():
                try:
                    table = _open(self.place, version)
                except FileNotFoundError:
                    raise UnknownChange from None
                found = {}
                for batch in table.deletion_vectors():
                    for name, kept in pl.DataFrame(batch).iter_rows():
                        path = name.removeprefix("file://") if "://" in name else name
                        found[unquote(path)] = pl.Series(kept, dtype=pl.Boolean)
                self._masks[version] = found
        return self._masks[version]

    def _check_features(self) -> None:
        protocol, configuration = self._table.protocol(), self._table.metadata().configuration
        strange = sorted({*(protocol.reader_features or ())} - FEATURES)
        if configuration.get("delta.columnMapping.mode", "none") != "none":
            strange = ["columnMapping"]
        if strange:
            problem = f"the table has the feature '{strange[0]}', which isn't read"
            raise InputError(problem, place=str(self.place), hint=PLAIN)

    def _check_same(self, mark: Mark) -> None:
        if mark.identity != self.identity:
            problem = "this is another table than the one that earlier runs have read: its identity is another"
            raise InputError(problem, place=str(self.place), hint=BEGIN)
        if self.version < mark.version:
            problem = f"the table has the version {self.version}, and earlier runs have read {mark.version}"
            raise InputError(problem, place=str(self.place), hint=BEGIN)
        if mark.tip and tip_of(self.place, mark.version) not in {"", mark.tip}:
            problem = f"version {mark.version} of the table is another than the one that earlier runs have read"
            raise InputError(problem, place=str(self.place), hint=BEGIN)

    def _check_columns(self, mark: Mark, commits: Sequence[DeltaCommit]) -> None:
        """Refuse a table of which columns are gone or have other types, or that got some that can't be null."""
        now = {name: str(kind) for name, kind in self.columns.items()}
        for name, kind in mark.columns.items():
            if name not in now:
                self._refuse(f"has no column '{name}' any more", name, commits)
            if now[name] != kind:
                change = f"has '{name}' as {now[name].removesuffix('?')}, which was {kind.removesuffix('?')}"
                self._refuse(change, name, commits)
        for name in now.keys() - mark.columns.keys():
            if not self._nullable[name]:
                self._refuse(f"has a new column '{name}' that can't be null", name, commits)

    def _refuse(self, change: str, name: str, commits: Sequence[DeltaCommit]) -> NoReturn:
        described = [(each.version, each.columns) for each in commits if each.columns is not None]
        last = described[-1][1].get(name) if described else None
        version = next((version for version, columns in described if columns.get(name) == last), self.version)
        problem = f"version {version} of the table {change}"
        raise InputError(problem, place=str(self.place), hint=f"added columns that may be null are taken in; {BEGIN}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the package into errors of the input."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            problem = f"the table of Delta Lake can't be read: {str(error).splitlines()[0]}"
            raise InputError(problem, place=str(self.place)) from None


def _open(place: Path, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(str(place), version=version)


def _consolidated(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return updates of which no two have the same row, and none the diff 0."""
    whole = pl.concat(frames)
    rows = [name for name in whole.columns if name != DIFF]
    return whole.group_by(rows).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
