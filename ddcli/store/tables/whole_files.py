"""ORC and Avro: files that state their columns themselves, and are read whole, ORC stripe by stripe."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.store.parquet.footers import AVRO, ORC, Unfit
from ddcli.store.tables.avro import columns_of_avro, damaged_file, find_no_time, frame_of_avro, unpacked_file
from ddcli.store.tables.kinds import Parquet, lazy_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.store.tables.csv_records import Damage
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
        fitting = {name: dtype for name, dtype in self.footer(path).items() if not isinstance(dtype, Unfit)}
        return lazy_frame(partial(self.frames, path), pl.Schema(fitting))


class Orc(WholeFile):
    """ORC, as pyarrow reads it."""

    name = ORC

    def footer(self, path: Path) -> Footer:
        with unpacked_file(path) as file:
            table = _orc(file).schema.empty_table()
        return dict(pl.DataFrame(table).schema)

    def frames(self, path: Path) -> Iterator[pl.DataFrame]:
        import pyarrow as pa

        with unpacked_file(path) as file:
            found = _orc(file)
            for stripe in range(found.nstripes):
                try:
                    yield pl.DataFrame(pa.Table.from_batches([found.read_stripe(stripe)]))
                except (pa.ArrowException, OSError) as error:
                    raise damaged_file(error) from None


class Avro(WholeFile):
    """Avro, as polars reads it by another schema."""

    name = AVRO

    def footer(self, path: Path) -> Footer:
        return {name: Unfit(kind) if isinstance(kind, str) else kind for name, kind in columns_of_avro(path).items()}

    def frames(self, path: Path) -> Iterator[pl.DataFrame]:
        yield frame_of_avro(path)

    def find_altered(self, path: Path, columns: Footer) -> Damage | None:
        return find_no_time(path, columns)


def _orc(file: object) -> Any:
    import pyarrow as pa
    from pyarrow import orc

    try:
        return orc.ORCFile(file)
    except (pa.ArrowException, OSError) as error:
        raise damaged_file(error) from None


WHOLE = {kind.name: kind for kind in (Orc(), Avro())}
