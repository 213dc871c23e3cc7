"""Null lists of structs in tables of Iceberg, which pyiceberg's reader (0.12) makes empty lists.

It builds such a list anew from its offsets and its values, and drops the nulls among the lists. As a file whose columns are the table's is read without
pyiceberg, one row would be two different records, depending on its reader.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def keep_null_lists() -> None:
    """Have pyiceberg's reader keep nulls, in this process from now on. A version that keeps them itself is left as it is, as it loses none."""
    import pyarrow as pa
    from pyarrow import compute
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    plain = ArrowProjectionVisitor.list

    def list_with_nulls(visitor: Any, kind: Any, lists: Any, values: Any) -> Any:
        found = plain(visitor, kind, lists, values)
        if found is None or found.null_count == lists.null_count:
            return found
        return compute.if_else(lists.is_null(), pa.scalar(None, found.type), found)

    ArrowProjectionVisitor.list = list_with_nulls  # type: ignore[method-assign, assignment]  # there is no other way in
