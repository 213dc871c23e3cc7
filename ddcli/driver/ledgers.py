"""The ledgers of inputs in the next manifest: copies of their files, so that a file that comes again or is withdrawn costs only its own rows.

A commit adds the files that its run has read, and drops the copies of files that are no longer in their inputs, but for those that explain the past to `dd why`. Beside the copies the
entry of an input records the files that were replaced or withdrawn, each with the commit that did it. No copy of a file with forgotten rows stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.job.inputs import replaced_since
from ddcli.sources.readers import in_files
from ddcli.store.log.reader import LogReader
from ddcli.store.state.entries import ReplacedFile
from ddcli.store.state.ledger import identity_of, known_files, next_keys, next_ledger, without_others

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.driver.replacement import Replacement
    from ddcli.job.corrections import ErasureRequest
    from ddcli.job.request import Request
    from ddcli.sources.readers import Reader
    from ddcli.store.state.entries import FileEntry, InputEntry, InputFile
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction
    from ddcli.store.tables.listing import Listing

RECORDED = 200
"""The replaced and withdrawn files of an input that its state remembers."""
SPARE = 1 << 20
"""Bytes of replaced files whose copies are kept in any case."""


def has_ledger(request: Request, name: str, reader: Reader) -> bool:
    """Return whether the state has copies of an input's files."""
    return request.spec.inputs[name].changed == "replace" and isinstance(reader, LogReader)


def with_ledgers(
    request: Request,
    transaction: Transaction,
    inputs: Mapping[str, InputEntry],
    before: Manifest | None,
    readers: Mapping[str, Reader],
    replacements: Mapping[str, Replacement],
) -> dict[str, InputEntry]:
    """Return the inputs of the next manifest with their ledgers, which get the new files that a run has read."""
    found = dict(inputs)
    for name in inputs:
        listing = readers[name].listing
        until = replacements[name].time[0] if name in replacements else None
        entry = found[name] = _with_replaced(request, name, inputs[name], before, listing, until, transaction.number)
        if has_ledger(request, name, readers[name]):
            known = (
                {identity_of(file) for file in before.inputs[name].files} if before and name in before.inputs else ()
            )
            copied = [(file, listing) for file in listing.files if identity_of(file) not in known]
            if name in replacements:
                listing = replacements[name].after.listing
                copied += [(file, listing) for file in listing.to_read]
            files = [*_replaceable(request, name, entry), *_explaining(entry)]
            read = [readers[name], *(replacements[each].after for each in replacements if each == name)]
            found[name] = replace(
                entry,
                ledger=next_ledger(transaction, _ledger(before, name), files, copied),
                keys=_next_keys(transaction, before, name, entry, read),
            )
    return found


def _next_keys(
    transaction: Transaction, before: Manifest | None, name: str, entry: InputEntry, read: Iterable[Reader]
) -> tuple[FileEntry, ...]:
    """Return the files with the hashes of an input's keys, to which the hashes of the files that were read are added."""
    known = before.inputs[name].keys if before is not None and name in before.inputs else ()
    hashes = (
        each
        for reader in in_files({str(at): each for at, each in enumerate(read)}).values()
        for each in reader.key_hashes()
    )
    return next_keys(transaction, known, entry.files, {identity_of(file): content for file, content in hashes})


def _with_replaced(
    request: Request,
    name: str,
    entry: InputEntry,
    before: Manifest | None,
    listing: Listing,
    until: int | None,
    commit: int,
) -> InputEntry:
    """Return an input with its record of replaced and withdrawn files, to which a run adds those that it replaces at the time `until`, if it does."""
    if before is None or name not in before.inputs:
        return entry
    now = {former: path for path, former in listing.renamed.items()}
    found = [replace(each, path=now.get(each.path, each.path)) for each in before.inputs[name].replaced]
    if request.decided.reopened is not None:
        found = [each for each in found if not request.decided.reopened.less_equal((each.until,))]
    if until is not None:
        gone = request.decided.withdrawn.get(name, frozenset())
        files = (file for file in before.inputs[name].files if file.key in gone and not file.withdrawn)
        found += [ReplacedFile(file.path, until, commit, file) for file in files]
    return replace(entry, replaced=tuple(found[-RECORDED:]))


def _replaceable(request: Request, name: str, entry: InputEntry) -> list[InputFile]:
    """Return the files of an input that may be replaced."""
    since = replaced_since(request.spec.inputs[name], request.clock.now)
    return [file for file in entry.files if file.mtime_ns >= since]


def _explaining(entry: InputEntry) -> list[InputFile]:
    """Return the files whose copies are kept after they were replaced, for `dd why`: the newest, of a quarter of the input's size."""
    found: list[InputFile] = []
    left = max(sum(file.size for file in entry.files) // 4, SPARE)
    for each in reversed(entry.replaced):
        left -= each.file.size
        if left < 0:
            break
        found.append(each.file)
    return found


def with_whole_ledgers(
    request: Request,
    transaction: Transaction,
    inputs: Mapping[str, InputEntry],
    before: Manifest,
    readers: Mapping[str, Reader],
    until: int | None,
) -> dict[str, InputEntry]:
    """Return the inputs of the next manifest with their ledgers, which get the files that they lack of the inputs that were read from the beginning.

    The rows of withdrawn files go at the time `until`; None: times have several coordinates. No file that still holds forgotten rows is in a ledger, and no copy of an input from which rows are forgotten stays.
    """
    found, forgetting = dict(inputs), request.decided.forgetting
    for name, reader in readers.items():
        entry = inputs[name].numbered(transaction.number)
        if forgetting is not None:
            entry = forgetting.counted(name, entry)
        entry = _with_replaced(request, name, entry, before, reader.listing, until, transaction.number)
        entry = found[name] = _forgotten(entry) if forgetting is not None and name in forgetting.conditions else entry
        if not has_ledger(request, name, reader):
            continue
        ledger = _ledger(before, name)
        if forgetting is not None and name in forgetting.conditions:
            ledger, entry = (), replace(entry, keys=())
        else:
            entry = replace(entry, keys=_next_keys(transaction, before, name, entry, [reader]))
        unclean = forgetting.unclean.get(name, {}) if forgetting is not None else {}
        known = known_files(request.state, ledger)
        files = _replaceable(request, name, entry)
        lacking = [file for file in files if identity_of(file) not in known and file.key not in unclean]
        copied = [(file, reader.listing) for file in lacking if not file.withdrawn]
        files += _explaining(entry)
        found[name] = replace(entry, ledger=next_ledger(transaction, ledger, files, copied))
    return found


def with_clean_ledgers(
    transaction: Transaction, inputs: Mapping[str, InputEntry], forgetting: ErasureRequest
) -> dict[str, InputEntry]:
    """Return the inputs of the next manifest without the copies of files that hold forgotten rows, or that the inputs no longer have."""
    found = dict(inputs)
    for name in forgetting.conditions:
        entry, unclean = _forgotten(forgetting.counted(name, inputs[name])), forgetting.unclean.get(name, {})
        clean = [file for file in entry.files if file.key not in unclean and not file.withdrawn]
        ledger, keys = (without_others(transaction, files, clean) for files in (entry.ledger, entry.keys))
        found[name] = replace(entry, ledger=ledger, keys=keys)
    return found


def _forgotten(entry: InputEntry) -> InputEntry:
    """Return an input whose replaced and withdrawn files, which may hold forgotten rows, are not read again, even if they are still in their places."""
    files = (replace(each, file=replace(each.file, forgotten=True)) for each in entry.replaced)
    return replace(entry, replaced=tuple(files))


def _ledger(before: Manifest | None, name: str) -> Sequence[FileEntry]:
    return before.inputs[name].ledger if before is not None and name in before.inputs else ()
