"""Rows of text that can't be read: a value that its type can't hold, a null where none may be, an event without a meaning.

The set of these rows is a function of a file's content and of all columns that the pipeline declares, not of those that some run reads: all
readers of the file leave out the same rows, so the number, the order and the sums of the others are the same everywhere.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from ddcli.errors import InputError
from ddcli.store.formats.base import BadRow
from ddcli.store.log.pieces import CHUNK
from ddcli.store.log.rows import NULL, NullValue
from ddcli.store.log.schema import INT64
from ddcli.store.tables.files import FAILING
from ddcli.store.tables.input_path import CSV, EXCEL, NDJSON

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.log.rows import RowCondition, RowReader
    from ddcli.store.tables.kinds import Footer

TEXTS = (CSV, NDJSON, EXCEL)
"""The kinds of files whose values are text. Other files state their types themselves."""
NUMBER, LINE, COLUMN, TEXT, REASON = "\0number", "line", "column", "text", "reason"
OWN = ("file", LINE, COLUMN, TEXT, REASON)
NO_OBJECT = "no JSON object"


class UnparsedRows(NamedTuple):
    """The rows of a file that can't be read, in order: their numbers, and their columns in a side log.

    `frame` has the line, the column (null for the whole row), its text, the reason, and the data that could be read; `times` the times that could be read.
    """

    numbers: pl.Series
    frame: pl.DataFrame
    times: pl.DataFrame

    def drop(self, condition: RowCondition) -> tuple[UnparsedRows, int]:
        """Return the rows that do not fulfil a condition, and the number of rows for which it is not known, as a value can't be read."""
        names = {_free(name, condition.known): name for name in condition.columns}
        frame = self.frame.select(pl.col(free).alias(name) for free, name in names.items())
        found = condition.of(frame)
        if condition.sees_nulls:
            found = (
                found.to_frame()
                .select(pl.when(~frame.select(pl.any_horizontal(pl.all().is_null())).to_series()).then(found))
                .to_series()
            )
        left = ~found.fill_null(value=False)
        return UnparsedRows(
            self.numbers.filter(left), self.frame.filter(left), self.times.filter(left)
        ), found.null_count()


def find_unparsed(reader: RowReader, paths: Sequence[Path], found: Sequence[Footer]) -> dict[Path, UnparsedRows]:
    """Return the rows that can't be read, by file. A file is searched row by row only where a pass over the whole has shown that it has such rows."""
    names = {path: _names(reader, footer) for path, footer in zip(paths, found, strict=True)}
    texts = [path for path in paths if reader.tables.kind(path).name in TEXTS]
    found_of = dict(zip(paths, found, strict=True))
    doubtful: list[Path] = []
    for _, alike in groupby(texts, key=lambda path: reader.tables.alike(path, found_of[path])):
        group = list(alike)
        if reader.log.judges or _is_doubtful(reader, group, names[group[0]]):
            doubtful += group
    rows = {path: _rows(reader, path, names[path]) for path in doubtful}
    return {path: each for path, each in rows.items() if each is not None}


def _names(reader: RowReader, found: Footer) -> list[str]:
    """Return the columns of a file that rows are made of."""
    log, schema = reader.log, reader.schema
    return list(dict.fromkeys([*log.reads(log.wanted(list(schema.columns)), found), *schema.time]))


def _is_doubtful(reader: RowReader, paths: Sequence[Path], names: Sequence[str]) -> bool:
    """Return whether a value of some files that are alike can't be read, or is null where null may not be; their rows stream by."""
    kinds = reader.schema.columns | reader.schema.time | {reader.log.diff or "": INT64}
    scan = reader.tables.scan(paths, names)
    flags = [name for name in scan.collect_schema() if name.startswith(FAILING)]
    required = [name for name in names if name in kinds and not kinds[name].nullable]
    asked = [*(pl.col(flag).any() for flag in flags), *(pl.col(name).null_count() > 0 for name in required)]
    if not asked:
        return False
    try:
        return bool(scan.select(pl.any_horizontal(asked)).collect(engine="streaming").item())
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return True  # read one by one, the files raise their errors


def _rows(reader: RowReader, path: Path, names: Sequence[str]) -> UnparsedRows | None:
    """Return the rows of a file that can't be read, if there are some."""
    misshapen: dict[int, tuple[str, str]] = {}
    try:
        parts = _parts(reader, path, names, misshapen)
    except InputError:
        misshapen = reader.tables.misshapen(path)
        if not misshapen:
            raise
        parts = _parts(reader, path, names, misshapen)
    if not parts:
        return None
    whole = pl.concat(parts, how="vertical_relaxed").sort(NUMBER)
    lines = reader.tables.kind(path).lines(path, whole[NUMBER].to_list())
    others = [name for name in whole[COLUMN].unique() if name in names]
    texts = {name: reader.tables.texts(path, name, whole[NUMBER]) for name in others}
    found = [
        misshapen[row][1] if row in misshapen else texts[column][at] if column in texts else None
        for at, (row, column) in enumerate(whole.select(NUMBER, COLUMN).iter_rows())
    ]
    reasons = pl.DataFrame(
        [
            pl.Series(LINE, lines, pl.Int64),
            whole[COLUMN].cast(pl.String),
            pl.Series(TEXT, found, pl.String),
            whole[REASON].cast(pl.String),
        ]
    )
    return UnparsedRows(
        whole[NUMBER], pl.concat([reasons, _data(reader, whole)], how="horizontal"), _times(reader, whole)
    )


def _parts(
    reader: RowReader, path: Path, names: Sequence[str], misshapen: Mapping[int, tuple[str, str]]
) -> list[pl.DataFrame]:
    """Return the rows of a file that can't be read, in parts, each with its number, its column and the reason."""
    parts: list[pl.DataFrame] = []
    wrong = {"row": list(misshapen), COLUMN: [name for name, _ in misshapen.values()]}
    apart = pl.DataFrame(wrong, schema={"row": pl.Int64, COLUMN: pl.String})
    for first in range(0, reader.tables.count_rows(path), CHUNK):
        frame = reader.tables.flagged(path, names, (first, CHUNK))
        frame = frame.with_columns(pl.int_range(first, first + frame.height, dtype=pl.Int64).alias(NUMBER))
        if misshapen:
            found = frame.join(apart, left_on=NUMBER, right_on="row", how="inner")
            flags = [name for name in frame.columns if name.startswith(FAILING)]
            parts.append(found.drop(flags).with_columns(pl.lit(NO_OBJECT).alias(REASON)))
            frame = frame.filter(~pl.col(NUMBER).is_in(apart["row"].implode()))
        parts += _bad_parts(reader, path, frame)
    return parts


def _bad_parts(reader: RowReader, path: Path, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of a frame that can't be read, each with its column and the reason."""
    flags = [name for name in frame.columns if name.startswith(FAILING)]
    first = [pl.when(pl.col(flag)).then(pl.lit(flag.removeprefix(FAILING))) for flag in flags]
    marked = frame.with_columns((pl.coalesce(first) if first else pl.lit(None, pl.String)).alias(COLUMN))
    bad, good = marked.filter(pl.col(COLUMN).is_not_null()), marked.filter(pl.col(COLUMN).is_null()).drop(flags)
    if bad.height:
        declared = reader.tables.declared or {}
        kinds = {name: f"no {declared[name].required()}" for name in bad[COLUMN].unique()}
        yield bad.drop(flags).with_columns(pl.col(COLUMN).replace_strict(kinds, return_dtype=pl.String).alias(REASON))
    while good.height:
        found = _first_problem(reader, path, good.drop(NUMBER, COLUMN))
        if found is None:
            return
        rows, column, reason = found
        yield good[rows].with_columns(pl.lit(column, pl.String).alias(COLUMN), pl.lit(reason).alias(REASON))
        good = good.with_row_index("\0at").filter(~pl.col("\0at").is_in(rows.implode())).drop("\0at")


def _first_problem(reader: RowReader, path: Path, good: pl.DataFrame) -> tuple[pl.Series, str | None, str] | None:
    """Return the rows that have the first problem that is found, of all that have it, with column and reason."""
    for name in reader.schema.time:
        if good[name].null_count():
            return good[name].is_null().arg_true(), name, NULL
    try:
        turned = None
        turned = reader.log.turn(good, reader.log.wanted(list(reader.schema.columns)))
        reader.judge(path, turned)
    except BadRow as problem:
        rows = problem.rows
        if turned is not None and turned.rows is not None:
            rows = turned.rows[rows]
        column = problem.name if isinstance(problem, NullValue) else None
        return rows.unique().sort(), column, problem.problem
    return None


def _data(reader: RowReader, whole: pl.DataFrame) -> pl.DataFrame:
    """Return the data columns of rows; for events those after the change, or else those before it."""
    found = [
        pl.coalesce(options).cast(kind.to_polars(), strict=False).alias(_free(name, reader.schema.columns))
        if (options := [pl.col(each) for each in reader.log.images(name) if each in whole.columns])
        else pl.lit(None, kind.to_polars()).alias(_free(name, reader.schema.columns))
        for name, kind in reader.schema.columns.items()
    ]
    return whole.select(found)


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name of a data column in the side log, which has columns of its own; `taken` are the names of the others."""
    if name not in OWN:
        return name
    free = f"{name}_"
    while free in taken:
        free += "_"
    return free


def _times(reader: RowReader, whole: pl.DataFrame) -> pl.DataFrame:
    """Return the times of rows as physical integers, null where they can't be read."""
    columns: list[Any] = [
        pl.col(name).cast(kind.to_polars(), strict=False).to_physical().cast(pl.Int64)
        for name, kind in reader.schema.time.items()
    ]
    return whole.select(columns)
