"""The bytes of a batch file: Parquet whose every byte is checked before it is read, wherever one begins to read.

Parquet's footer carries an index: of each row group its first record, where its bytes end and their checksum. The manifest
knows the checksum of the footer, and the row groups lie one after the other from the file's first byte to the footer. So a
lookup in a few row groups reads, and checks, the footer and those, and there is no byte that nobody checks.

Integers are packed as differences of neighbours, which for sorted keys are small, and not compressed further: 10 M pairs of
integers take 3.2 bytes a row where zstd takes 4.7, are written in half the time, and read in a fifth.
"""

from __future__ import annotations

import base64
import io
import json
import mmap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from ddcli.dataclass import dataclass
from ddcli.store.files.access import reading
from ddcli.store.files.fetched import Fetched
from ddcli.store.files.gate import checksum
from ddcli.store.files.objects import ObjectPath
from ddcli.store.state.verify import check_size, damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl
    import pyarrow as pa

    from ddcli.store.files.gate import Bytes
    from ddcli.store.state.manifest import FileEntry

    Matrix = np.ndarray[Any, np.dtype[np.int64]]
    Strings = np.ndarray[Any, np.dtype[np.bytes_]]

GROUP = 8192
"""Rows of a row group. A thousand keys of 10 M rows are in half as many rows as with 16 384, and of 100 M rows the footer has 3 MB."""
TOGETHER = 64
"""Row groups that are read together: half a million rows, of which strings take 100 MB."""
METADATA = "ddcli"
FOOTER = 64 << 10
"""Bytes that are fetched from the end of an object: the footer of most files, and of the others its length."""
END = 8
"""Bytes after Parquet's footer: its length and `PAR1`."""
REPEATED = 256
"""Different values of a column in its first rows up to which they are numbered, not packed."""
LEVEL = 1
SIGN = np.int64(-(2**63))


@dataclass(frozen=True, slots=True)
class Index:
    """What the footer says: rows a group, the first record of each and the last record of all, their bytes' ends and checksums.

    `records` are rows of data lanes as `in_byte_order` gives them; `constants` the columns that hold just one number; `mark` tells the
    secret under which lanes are hashed, if any are (see `Pool.mark`).
    """

    group: int
    records: Matrix
    ends: Matrix
    checksums: np.ndarray[Any, np.dtype[np.uint32]]
    constants: dict[str, int]
    mark: str = ""

    def to_text(self) -> str:
        """Return what `from_text` reads."""
        lanes = {"records": self.records.astype(">i8"), "ends": self.ends, "checksums": self.checksums}
        packed = {name: base64.b64encode(array.tobytes()).decode() for name, array in lanes.items()}
        return json.dumps({"group": self.group, **packed, "constants": self.constants, "mark": self.mark})

    @classmethod
    def from_text(cls, text: bytes, width: int) -> Index:
        """Return the index of a file whose records have `width` lanes. Raises ValueError, KeyError or TypeError."""
        try:
            tree = json.loads(text)
        except RecursionError as error:
            raise ValueError(str(error)) from None
        arrays = [
            np.frombuffer(base64.b64decode(tree[name], validate=True), kind)
            for name, kind in (("records", ">i8"), ("ends", np.int64), ("checksums", np.uint32))
        ]
        records = arrays[0].reshape(len(arrays[1]) + 1, width).astype(np.int64)
        return cls(
            int(tree["group"]), records, arrays[1], arrays[2], dict(tree["constants"]), str(tree.get("mark", ""))
        )


def in_byte_order(rows: Matrix) -> Strings:
    """Return rows of lanes, (n, width > 0), as byte strings that compare as they do: big-endian, sign bit flipped."""
    flipped = np.ascontiguousarray((rows ^ SIGN).astype(">i8"))
    ordered: Strings = flipped.view(f"S{8 * rows.shape[1]}").reshape(-1)
    return ordered


def footer_checksum(data: Bytes) -> str:
    """Return the checksum of all that follows the row groups, as `FileEntry.footer` keeps it."""
    view = memoryview(data).cast("B")
    return checksum(view[-footer_size(view) :])


def footer_size(data: Bytes) -> int:
    """Return how many bytes follow the row groups of a Parquet file."""
    return int.from_bytes(data[-END : END // -2], "little") + END


class _Checked(io.BytesIO):
    """Memory to write to that keeps the checksum of what is written."""

    checksum = 0

    def write(self, data: Any) -> int:
        self.checksum = crc32(data, self.checksum)
        return super().write(data)


class BatchWriter:
    """Writes a batch file into memory: `append` frames with the data lanes that they are ordered by, in order, then `finish`."""

    def __init__(self, leading: str | None) -> None:
        """Make a writer; `leading` is the column that rows are first ordered by: the footer tells readers its range in each row group."""
        self.rows = 0
        self.mark = ""
        self._leading = leading
        self._sink = _Checked()
        self._writer: Any = None
        self._carried: pa.Table | None = None
        self._records: list[Matrix] = []
        self._last: Matrix | None = None
        self._ends: list[int] = []
        self._checksums: list[int] = []
        self._constants: dict[str, int] | None = None

    def append(self, frame: pl.DataFrame, records: Matrix, constants: Mapping[str, int]) -> None:
        """Add rows: their columns, their data lanes (n > 0, width), and the hidden columns that hold just one number."""
        import pyarrow as pa

        table = frame.to_arrow()
        if self._writer is None:
            self._writer = _writer(self._sink, frame, table.schema, self._leading)
        self._records.append(records[-self.rows % GROUP :: GROUP].copy())
        self._last = records[-1:].copy()
        self.rows += len(records)
        before = constants if self._constants is None else self._constants
        self._constants = {name: value for name, value in before.items() if constants.get(name) == value}
        if self._carried is not None:
            table = pa.concat_tables([self._carried, table])
        whole = len(table) - len(table) % GROUP
        for at in range(0, whole, GROUP):
            self._write(table.slice(at, GROUP))
        self._carried = table.slice(whole) if whole < len(table) else None

    def finish(self) -> memoryview:
        """Return the content of the file."""
        assert self._last is not None, "an empty batch needs no file"
        if self._carried is not None:
            self._write(self._carried)
        records = np.concatenate([*self._records, self._last])
        checksums = np.array(self._checksums, np.uint32)
        index = Index(GROUP, records, np.array(self._ends), checksums, self._constants or {}, self.mark)
        self._writer.add_key_value_metadata({METADATA: index.to_text()})
        self._writer.close()
        return memoryview(self._sink.getvalue())

    def _write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=GROUP)
        self._ends.append(self._sink.tell())
        self._checksums.append(self._sink.checksum)
        self._sink.checksum = 0


def _writer(sink: io.BytesIO, frame: pl.DataFrame, schema: pa.Schema, leading: str | None) -> Any:
    """Return Parquet's writer of columns like these, each packed as suits what the frame has of it."""
    import pyarrow.parquet as pq

    first = frame.head(GROUP)
    numbers = {name for name, kind in first.schema.items() if kind.is_integer() or kind.is_temporal()}
    few = min(REPEATED, max(1, first.height // 2))
    packed = [name for name in numbers if name == leading or first[name].n_unique() > few]
    numbered = [name for name in first.columns if name not in packed]
    compression = {_path(name, kind): "zstd" for name, kind in first.schema.items()} | dict.fromkeys(numbers, "none")
    return pq.ParquetWriter(
        sink,
        schema,
        use_dictionary=numbered,
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        compression=compression,
        compression_level={path: LEVEL for path, codec in compression.items() if codec == "zstd"},
        write_statistics=[leading] if leading is not None else False,
    )


def _path(name: str, kind: pl.DataType) -> str:
    """Return what Parquet calls the column that holds a column's values: those of a list are further inside."""
    inner = getattr(kind, "inner", None)
    return name if inner is None else f"{name}.list.{_path('element', inner)}"


class BatchFile:
    """The reading of a batch file. Raises StateError (exit code 4) naming the file when it isn't what was written.

    Its size is checked when it is opened, the footer when it is first asked for, and each row group whenever it is read.
    """

    def __init__(self, path: Path, entry: FileEntry, width: int) -> None:
        check_size(path, entry)
        self.path = path
        self.groups_read = 0
        self._entry = entry
        self._width = width
        self._index: Index | None = None
        self._metadata: Any = None
        self._fetched = Fetched(path, entry.size) if isinstance(path, ObjectPath) and entry.size else None

    @property
    def index(self) -> Index:
        """Return what the footer says."""
        if self._index is None:
            with self._mapped() as data:
                self._open(memoryview(data))
        assert self._index is not None
        return self._index

    @property
    def columns(self) -> list[str]:
        """Return the names of the file's columns, hidden ones too."""
        assert self.index is not None, "the footer is checked first"
        names: list[str] = self._metadata.schema.to_arrow_schema().names
        return names

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of these row groups, in order, `TOGETHER` at a time.

        The file is mapped, and what is mapped is checked, decoded and given back at once: it is no memory of ours.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        index = self.index
        with self._mapped() as data:
            view = memoryview(data)
            file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(view)), metadata=self._metadata, pre_buffer=False)
            for at in range(0, len(groups), TOGETHER):
                some = groups[at : at + TOGETHER]
                self._fetch(data, some)
                for group in some:
                    start = int(index.ends[group - 1]) if group else 0
                    if crc32(view[start : int(index.ends[group])]) != index.checksums[group]:
                        raise damaged(self.path)
                try:
                    table = file.read_row_groups(some, columns, use_threads=False)
                except (pa.ArrowException, OSError):
                    raise damaged(self.path) from None
                self.groups_read += len(some)
                data.madvise(mmap.MADV_DONTNEED)
                yield table

    def _fetch(self, data: mmap.mmap, groups: Sequence[int]) -> None:
        """Have the system read row groups from disk, all at once: page by page, as it is looked at, takes twice as long."""
        if self._fetched is not None:
            ends = self.index.ends
            self._fetched.fetch([(int(ends[group - 1]) if group else 0, int(ends[group])) for group in groups])
            return
        numbers = np.array(groups)
        first = np.flatnonzero(np.diff(numbers, prepend=-2) > 1)
        last = np.append(first[1:], len(numbers)) - 1
        starts = np.concatenate([[0], self.index.ends])[numbers[first]] // mmap.PAGESIZE * mmap.PAGESIZE
        for start, end in zip(starts.tolist(), self.index.ends[numbers[last]].tolist(), strict=True):
            data.madvise(mmap.MADV_WILLNEED, start, end - start)

    def _open(self, data: memoryview) -> None:
        """Check the footer, and keep what it says."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._fetched is not None:
            self._fetched.fetch([(max(0, len(data) - FOOTER), len(data))])
        size = footer_size(data)
        if self._fetched is not None and FOOTER < size <= len(data):
            self._fetched.fetch([(len(data) - size, len(data))])
        if not END < size <= len(data) or checksum(data[-size:]) != self._entry.footer:
            raise damaged(self.path)
        try:
            metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(data)))
            index = Index.from_text(metadata.metadata[METADATA.encode()], self._width)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            raise damaged(self.path) from None
        groups = -(-self._entry.rows // index.group)
        if metadata.num_rows != self._entry.rows or groups != len(index.ends) or index.ends[-1] != len(data) - size:
            raise damaged(self.path)
        self._metadata, self._index = metadata, index

    @contextmanager
    def _mapped(self) -> Iterator[mmap.mmap]:
        """Map the file: a copy in fresh memory would take longer than to check it. It is unmapped when nobody refers to it any more."""
        if self._fetched is not None:
            yield self._fetched.data
            return
        check_size(self.path, self._entry)  # of a file cut short since, mapped pages can't be read
        try:
            with reading(self.path) as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            raise damaged(self.path) from None
        yield data
