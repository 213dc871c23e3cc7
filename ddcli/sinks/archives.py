"""Files of inputs that a run has archived: those that hold forgotten rows are replaced, without these, before the commit that forgets them.

Whoever dies between has archived files without the rows, and a state that still has them: repeated, the command takes the files as they are.
Until then a run that would read them again refuses them.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.errors import InputError
from ddcli.store.files.gate import temporary
from ddcli.store.files.objects import ObjectPath
from ddcli.store.tables.listing import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.job.forgetting import Forgetting
    from ddcli.store.log.reader import LogReader
    from ddcli.store.state.directory import Transaction
    from ddcli.store.state.entries import InputEntry


def replace_archived(
    forgetting: Forgetting,
    transaction: Transaction,
    readers: Mapping[str, LogReader],
    inputs: Mapping[str, InputEntry],
) -> dict[str, InputEntry]:
    """Replace archived files by what they are without the rows that are forgotten; return the inputs that have such files.

    Raises InputError for a file in an object store, or of a kind from which no rows can be removed.
    """
    store, found = transaction.state.files, {}
    for name, archived in forgetting.archived.items():
        files = {file.key: file for file in inputs[name].files}
        for file, numbers in archived:
            path = readers[name].listing.path(file)
            if isinstance(path, ObjectPath):
                raise InputError(
                    "an archived file in an object store has such rows: it is not replaced yet",
                    place=str(path),
                    hint="remove the rows from the file, and repeat the command",
                )
            data = readers[name].without_rows(path, numbers)
            waiting = temporary(path, transaction.number)
            store.write(waiting, data)
            store.sync(waiting)
            store.rename(waiting, path)
            store.sync_directory(path.parent)
            mark = fingerprint_of(io.BytesIO(data), len(data))
            files[file.key] = replace(files[file.key], size=len(data), fingerprint=mark)
            forgetting.note(path, file.size, path, len(data))
        found[name] = replace(inputs[name], files=tuple(files.values()))
    return found
