"""The options with which a log is read, checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddcli.engine.times import box
from ddcli.errors import UsageError, suggestion
from ddcli.expressions.types import Type
from ddcli.sources.change_log import DIFF, LATEST, ChangeLog
from ddcli.store.files.objects import locate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.store.state.entries import Times

NAMES = {
    name.lower(): name
    for name in ("path", "asOf", "readChangeFeed", "startingTime", "endingTime", "partitions", "time", "diff")
}
"""The options of a reader, by their names in lower case: Spark doesn't distinguish them."""
TRUTHS = {"true": True, "false": False}
INT64 = Type("int64")


class LogOptions(NamedTuple):
    """The log that is read, and which rows of it."""

    path: Path
    changes: bool
    as_of: str | None
    since: str | None
    until: str | None
    partitions: int | None
    time: tuple[str, ...]
    diff: str

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool) -> LogOptions:
        """Return the options of a reader. Raises UsageError for an unknown option, or one that doesn't fit the others."""
        check_options(given, NAMES, "read")
        changes = TRUTHS.get(given.get("readchangefeed", "false").lower())
        if changes is None:
            raise UsageError(f"readChangeFeed is '{given['readchangefeed']}'", hint="write `true` or `false`")
        since, until, as_of = given.get("startingtime"), given.get("endingtime"), given.get("asof")
        if stream and (until or as_of):
            raise UsageError("a stream has no endingTime and no asOf", hint="read the log with `spark.read`")
        if not stream and not changes and (since or until):
            raise UsageError(
                "startingTime and endingTime are a range of changes", hint="add `.option('readChangeFeed', 'true')`"
            )
        if changes and as_of:
            raise UsageError(
                "asOf is one time, readChangeFeed returns the changes of a range",
                hint="give startingTime and endingTime instead",
            )
        return cls(
            located(given["path"]),
            stream or changes,
            None if as_of == LATEST else as_of,
            since,
            until,
            _count(given.get("partitions")),
            tuple(filter(None, (name.strip() for name in given.get("time", "").split(",")))),
            given.get("diff", DIFF),
        )

    def open(self) -> ChangeLog:
        """Return the log. Raises DdError where there is none, or it can't be read."""
        return ChangeLog.open(str(self.path), Path("/"), time=self.time or None, diff=self.diff)

    def columns(self) -> Schema:
        """Return the columns of the rows: the records' columns, the time of changes, and the diff."""
        log = self.open()
        return {**log.columns, **(log.time if self.changes else {}), self.diff: INT64}

    def time_of(self, log: ChangeLog, name: str, text: str) -> Time:
        """Return the time that an option has."""
        return log.at(text, name)

    def box_of(self, log: ChangeLog, name: str, text: str) -> Times:
        """Return the frontier that closes the times before the one that an option has."""
        return box(log.at(text, name)).elements


def check_options(given: Mapping[str, str], known: Mapping[str, str], what: str) -> None:
    """Refuse an option that doesn't exist, and a missing path."""
    for name in given:
        if name not in known:
            hint = suggestion(name, [*known.values()], f"the options are: {', '.join(known.values())}")
            raise UsageError(f"the format dd has no option '{name}' to {what} with", hint=hint)
    if not given.get("path"):
        raise UsageError(
            "the format dd needs the path of a log", hint="write `.load('out/sales')` or `.save('in/sales')`"
        )


def located(path: str) -> Path:
    """Return the path of a log, as Spark's users write it; a relative one is below the driver's working directory.

    >>> located("s3a://lake/sales"), located("file:///srv/sales")
    (ObjectPath('s3://lake/sales'), PosixPath('/srv/sales'))
    """
    for scheme, ours in (("s3a://", "s3://"), ("s3n://", "s3://"), ("file://", ""), ("file:", "")):
        if path.startswith(scheme):
            return locate(Path("/"), ours + path.removeprefix(scheme))
    return locate(Path.cwd(), path)


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"partitions is '{text}'", hint="write the number of tasks that read the log, 1 or more")
    return int(text)
