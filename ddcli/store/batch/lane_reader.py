"""The rows of a small batch file of integers, read as a whole without its index: a run with hundreds of arrangements reads hundreds of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.kernels.page_headers import END, HEADER, SIZE, VALUES, walk_pages
from ddcli.engine.kernels.page_values import OTHER
from ddcli.engine.kernels.pages import read_columns
from ddcli.store.batch import file
from ddcli.store.batch.page_index import JSON, WORD, leaf_length
from ddcli.store.batch.row_group_file import column_of, stored_order
from ddcli.store.parquet.row_groups import MAGIC

if TYPE_CHECKING:
    from ddcli.engine.columns import Matrix
    from ddcli.store.batch.layout import BatchLayout


def read_lanes(data: bytes, layout: BatchLayout, rows: int) -> Matrix | None:
    """Return the rows of a file of one row group, all of whose bytes have been checked; None if it has other pages than those of `row_group_file`.

    Its index has to have the text that lists the columns of the pages, in order, with their forms.
    """
    names = stored_order(layout)
    made = [column_of(name, layout.columns[name]) for name in names]
    columns = [column for column, numbered in made if not numbered and column.form != OTHER]
    if len(columns) < len(names) or data.find(b'"columns": %s' % JSON.encode(columns).encode()) < 0:
        return None
    pages = len(columns) * -(-rows // file.PAGE)
    leaf = WORD * leaf_length(pages // len(columns), layout.key.width, len(columns))
    found, content = np.empty((pages, SIZE + 1), np.int64), np.frombuffer(data, np.uint8)
    if walk_pages(content, len(MAGIC), len(data) - file.tail_size(data) - leaf, found) != pages:
        return None
    table = np.zeros((pages, 5), np.int64)
    table[0, 0] = len(MAGIC)
    table[1:, 0] = found[:-1, END]
    table[:, 0] += found[:, HEADER]
    table[:, 1], table[:, 2] = found[:, END], found[:, VALUES]
    lanes = np.array([layout.stored[name][0] if name in layout.stored else -1 for name in names])
    scratch, matrix = np.empty((2, min(rows, file.PAGE)), np.uint64), np.empty((rows, layout.width), np.int64)
    forms = np.array([column.form for column in columns])
    return matrix if read_columns(content, table, forms, lanes, *scratch, matrix) == pages else None
