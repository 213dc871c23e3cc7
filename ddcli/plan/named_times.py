"""The time columns of inputs that the file names in its collections: they are data columns, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import UnknownColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.errors import DdError
    from ddcli.expressions.types import Schema, Type
    from ddcli.spec.model import Spec


def named_times(
    spec: Spec, schemas: Mapping[str, Schema], time: Sequence[Type], errors: Sequence[DdError]
) -> dict[str, Schema]:
    """Return, for each input whose time column may be meant by an unknown name, its columns with that one.

    The time of a log can't be data, as a retraction may come at another time than its insertion: errors get that reason.
    """
    unknown = [error for error in errors if isinstance(error, UnknownColumn)]
    found: dict[str, Schema] = {}
    if len(time) != 1:
        return found
    for name, given in spec.inputs.items():
        column = given.named.value if given.named is not None else given.time[0].value
        meant = [error for error in unknown if error.column == column]
        if name not in schemas or not meant:
            continue
        if given.retracts:
            for error in meant:
                error.hint = (
                    f"'{column}' is the time of the log '{name}': as data, what is retracted at another time would never cancel; "
                    "write it into the log as a column of its own"
                )
        elif column not in schemas[name]:
            found[name] = {**schemas[name], column: time[0]}
    return found
