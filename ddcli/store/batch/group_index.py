"""The index of a batch file of an older version, in Parquet's footer: of each row group its first record, where its bytes end and their checksum."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from ddcli.dataclass import dataclass

Matrix = np.ndarray[Any, np.dtype[np.int64]]

METADATA = b"ddcli"


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """What the footer says: rows, rows a group, the first record of each and the last record of all, their bytes' ends and checksums.

    `constants` are the columns that hold just one number; `mark` tells the secret under which lanes are hashed, if any are.
    """

    rows: int
    group: int
    records: Matrix
    ends: Matrix
    checksums: np.ndarray[Any, np.dtype[np.uint32]]
    constants: dict[str, int]
    mark: str

    @property
    def groups(self) -> int:
        """Return how many row groups there are."""
        return len(self.ends)

    @classmethod
    def from_footer(cls, data: memoryview, width: int) -> GroupIndex:
        """Return the index of a file whose records have `width` lanes. Raises OSError, ValueError, KeyError or TypeError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(data)))
            tree = json.loads(metadata.metadata[METADATA])
        except (pa.ArrowException, RecursionError) as error:
            raise ValueError(str(error)) from None
        records, ends, checksums = (
            np.frombuffer(base64.b64decode(tree[name], validate=True), kind)
            for name, kind in (("records", ">i8"), ("ends", np.int64), ("checksums", np.uint32))
        )
        rows, group = metadata.num_rows, int(tree["group"])
        if len(ends) != -(-rows // group) or not len(ends):
            raise ValueError("an index of another number of row groups")
        first = records.reshape(len(ends) + 1, width).astype(np.int64)
        return cls(rows, group, first, ends, checksums, dict(tree["constants"]), str(tree.get("mark", "")))
