"""Files of inputs that a run has archived, or of mirrors of tables: those that hold forgotten rows are replaced by files without these.

Files of mirrors are replaced with the commit that forgets the rows, archived ones and those in an object store before it. A process that dies in between leaves
files without the rows, and a state that still has them: repeated, the command takes the files as they are. Until then a run that would
read them again refuses them.
"""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ddcli.store.files.objects import ObjectPath
from ddcli.store.tables.file_identity import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.job.forgotten_rows import ErasureRequest
    from ddcli.store.log.reader import LogReader
    from ddcli.store.state.entries import InputEntry
    from ddcli.store.state.transaction import Transaction


def replace_archived(
    forgetting: ErasureRequest,
    transaction: Transaction,
    readers: Mapping[str, LogReader],
    inputs: Mapping[str, InputEntry],
) -> dict[str, InputEntry]:
    """Replace archived files, and files of mirrors, by files without the forgotten rows; return the inputs that have such files.

    Raises InputError for a file of a kind from which no rows can be removed.
    """
    found = {}
    store = transaction.state.files
    for name, archived in forgetting.archived.items():
        files = {file.key: file for file in inputs[name].files}
        for file, numbers in archived:
            path = readers[name].listing.path(file)
            data = readers[name].without_rows(path, numbers)
            mark = fingerprint_of(io.BytesIO(data), len(data))
            if isinstance(path, ObjectPath):
                # Of an input its tag counts, in the archive its mark.
                is_input = path == readers[name].listing.root / file.path
                marked = None if is_input else path.marked(mark)
                written = store.do("write", path, partial(path.put, data, attributes=marked))
                mark = written["e_tag"] if is_input else mark
            elif name in forgetting.mirrored:
                transaction.add_output(path, data)
            else:
                store.put(path, data, transaction.number)
            files[file.key] = replace(files[file.key], size=len(data), fingerprint=mark)
            forgetting.note(path, file.size, path, len(data))
        found[name] = replace(inputs[name], files=tuple(files.values()))
    return found
