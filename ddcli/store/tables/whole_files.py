"""ORC and Avro: files that state their columns themselves, and are read whole, ORC stripe by stripe."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import first_line
from ddcli.store.parquet.footers import AVRO, ORC
from ddcli.store.tables.compression import unpacked
from ddcli.store.tables.kinds import Parquet, lazy_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.store.tables.kinds import Footer


class WholeFile(Parquet):
    """A kind whose files are given to polars as frames."""

    def footer(self, path: Path) -> Footer:
        raise NotImplementedError

    def frames(self, path: Path) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file, some at a time."""
        raise NotImplementedError

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.concat([self._scan(path) for path in paths])

    def _scan(self, path: Path) -> pl.LazyFrame:
        return lazy_frame(partial(self.frames, path), pl.Schema(self.footer(path)))


class Orc(WholeFile):
    """ORC, as pyarrow reads it."""

    name = ORC

    def footer(self, path: Path) -> Footer:
        with unpacked(path) as file:
            table = _orc(file).schema.empty_table()
        return dict(pl.DataFrame(table).schema)

    def frames(self, path: Path) -> Iterator[pl.DataFrame]:
        import pyarrow as pa

        with unpacked(path) as file:
            found = _orc(file)
            for stripe in range(found.nstripes):
                try:
                    yield pl.DataFrame(pa.Table.from_batches([found.read_stripe(stripe)]))
                except (pa.ArrowException, OSError) as error:
                    raise _damaged(error) from None


class Avro(WholeFile):
    """Avro, as polars reads it."""

    name = AVRO

    def footer(self, path: Path) -> Footer:
        with unpacked(path) as file:
            return dict(pl.read_avro(file, n_rows=1).schema)

    def frames(self, path: Path) -> Iterator[pl.DataFrame]:
        with unpacked(path) as file:
            yield pl.read_avro(file)


def _orc(file: object) -> Any:
    import pyarrow as pa
    from pyarrow import orc

    try:
        return orc.ORCFile(file)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> pl.exceptions.ComputeError:
    """Return the error that polars raises for a file that is not whole: no error of the system."""
    return pl.exceptions.ComputeError(first_line(error))


WHOLE = {kind.name: kind for kind in (Orc(), Avro())}
