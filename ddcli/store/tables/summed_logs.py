"""Files of a log that have summed up older ones, as an input lists them: the older files are replaced by them, or were taken in already.

The rows of such a file have the time at which a run took in the last of the older files: their earlier times are lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.errors import InputError
from ddcli.named_tuple import NamedTuple
from ddcli.store.state.contents import UPDATES
from ddcli.store.state.names import split_path
from ddcli.store.tables.file_identity import mark_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.store.log.summary import Part
    from ddcli.store.state.entries import InputFile


class SummedLog(NamedTuple):
    """The files of an input without those that summed-up ones stand for, the summed-up files that are taken in already, the horizon, and, by path, the files that each stands for."""

    files: Sequence[InputFile]
    done: list[InputFile]
    horizon: tuple[int, ...] | None
    parts: dict[str, tuple[Part, ...]]


def summed_up(root: Path, found: Sequence[InputFile], known: dict[str, InputFile]) -> SummedLog:
    """Return the files of an input without those that summed-up ones stand for.

    The older files are removed from `known`. Raises InputError if some of them have been taken in, and others have not.
    """
    names = [file for file in found if "-summed" in file.path and UPDATES in file.path]
    if not names:
        return SummedLog(found, [], None, {})
    from ddcli.store.log.summary import NAME, read_summary

    read = {file.path: read_summary(root / file.path) for file in names if NAME.fullmatch(_split(file.path)[1])}
    summaries = {path: summary for path, summary in read.items() if summary is not None}
    gone = {_split(path)[0] + part.name for path, summary in summaries.items() for part in summary.parts}
    done: list[InputFile] = []
    for file in names:
        summary = summaries.get(file.path)
        if summary is None or file.path in gone:
            continue
        prefix = _split(file.path)[0]
        if file.path not in known and any(
            _split(key)[0] == prefix for key, each in known.items() if not each.withdrawn
        ):
            taken = taken_as(file, summary.parts, known.values())
            if taken is None:
                raise InputError(
                    "the log's older updates were summed up before this pipeline had taken all of them",
                    place=str(root / file.path),
                    hint="begin anew with its contents: `dd run --full-refresh all`",
                )
            done.append(replace(taken, fingerprint=mark_in(root, file)))
            gone.add(file.path)
        for key in _replaced_by(file, summary.parts):
            known.pop(key, None)
    horizon = max((summary.horizon for summary in summaries.values()), default=None)
    parts = {path: summary.parts for path, summary in summaries.items()}
    return SummedLog([file for file in found if file.path not in gone], done, horizon, parts)


def taken_as(file: InputFile, parts: Sequence[Part], before: Iterable[InputFile]) -> InputFile | None:
    """Return a file that stands for these parts as taken in with the last of them; None if it stands for none, or not all were taken in."""
    prefix = _split(file.path)[0]
    taken = {
        _split(each.path)[1]: each
        for each in before
        if _split(each.key)[0] == prefix and each.done and each.since is None and not each.withdrawn
    }
    marks = {name: each.fingerprint for name, each in taken.items()}
    if not parts or not all(part.is_known(marks) for part in parts):
        return None
    names = _replaced_by(file, parts)
    times = [each.at for each in taken.values() if each.path in names and each.at is not None]
    return replace(file, done=True, at=max(times, default=None))


def _replaced_by(file: InputFile, parts: Iterable[Part]) -> set[str]:
    """Return the paths of files for which one stands that has these parts, and of those for which they did."""
    prefix = _split(file.path)[0]
    return {prefix + name for part in parts for name in part.names()}


def _split(path: str) -> tuple[str, str]:
    """Return the directory of a relative path, with the slash after it, and the path in it."""
    _, name = split_path(path)
    return path.removesuffix(name), name
