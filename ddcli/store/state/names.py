"""The names of files in a state and its outputs, and the checks of every value in a manifest, as others may write to its disk.

A checksum detects damage, not an adversary, who would compute another. So no value of a manifest is taken for a path, and
no file is renamed or removed, unless its name has a form of ours. Raises ValueError; the reader of a file names the file.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ddcli.expressions.types import parse_type
from ddcli.store.files.gate import TEMPORARY

if TYPE_CHECKING:
    from pathlib import Path
    from re import compile as Form  # noqa: N812 - for code that matches names it is a pattern
else:

    class Form:
        """The form of some names, as a regular expression: it is compiled when a name is first held against it, as a run needs few of them."""

        def __init__(self, pattern: str) -> None:
            self.pattern = pattern

        @cached_property
        def fullmatch(self) -> Any:
            return re.compile(self.pattern).fullmatch


PLAIN = "[0-9A-Za-z_+-]"
MARK = "(?:-[0-9a-f]{12})?"
"""The mark that the holder of a lock in an object store adds to the names of files that aren't committed."""
ARRANGEMENT = Form("[0-9A-Za-z][0-9A-Za-z_-]{0,199}")
SHARD = Form("[0-9]{1,6}")
BATCH = Form(r"[0-9]{9}-[0-9A-Za-z_-]+\.parquet")
BUNDLE = Form(rf"[0-9]{{9}}(?:-{PLAIN}+)?\.tar")
SEGMENT = Form(rf"[0-9]{{9}}-{PLAIN}+\.json")
UPDATES = Form(rf"updates-{PLAIN}+\.parquet")
NAMED = Form(r"\w[\w-]*")
"""A directory of a state that is named as an input or an output is."""
MIRROR = Form(rf"tables/{NAMED.pattern}")
OF_OUTPUT = Form(rf"updates-{PLAIN}+\.parquet|_progress\.json")
"""The files that a commit publishes."""
FOLDER = Form(rf"updates-{PLAIN}+")
"""The folder in an output's directory with the files of a large commit."""
PART = Form(r"[0-9]{4,6}\.parquet")
"""A file in such a folder."""
OF_LOG = Form(rf"{UPDATES.pattern}|{FOLDER.pattern}/{PART.pattern}")
"""The path of a file of updates in an output's directory."""
WAITING = Form(
    rf"\.(?:updates-{PLAIN}+(?:\.[0-9]{{4,6}})?\.parquet|_progress\.json|\.table\.json|{BATCH.pattern}|{BUNDLE.pattern}|{SEGMENT.pattern})\.[0-9]{{9}}{MARK}{re.escape(TEMPORARY)}"
)
"""The names that files of outputs have until a commit publishes them, or batches, bundles and segments until it names them."""
WAITING_FOLDER = Form(rf"\.updates-{PLAIN}+\.[0-9]{{9}}{MARK}{re.escape(TEMPORARY)}")
"""The names that folders of large commits have until then."""
HALF_MANIFEST = Form(rf"\.[0-9]{{9}}\.json\.[0-9]{{9}}{re.escape(TEMPORARY)}")
READER = Form(r"\w[\w.-]{0,199}")
HOLD = Form(rf"{READER.pattern}\.json")
HALF_HOLD = Form(rf"\.{READER.pattern}\.json(?:\.[0-9]{{9}})?{re.escape(TEMPORARY)}")
"""Earlier versions put no number into these names."""
CONSUMER = Form("[0-9A-Za-z_][0-9A-Za-z_.-]{0,99}")
"""A consumer of an output: a part of a file's name, the same on every file system."""
OF_CONSUMER = Form(rf"[0-9a-f]{{16}}-{CONSUMER.pattern}\.json")
HALF_CONSUMER = Form(rf"\.{OF_CONSUMER.pattern}(?:\.[0-9]{{9}})?{re.escape(TEMPORARY)}")
RUN = Form(r"[0-9]{9}\.json")
VERIFIED = "verified.json"
"""The file of a state with the slices that `dd verify` has covered."""
HALF_VERIFIED = Form(rf"\.verified\.json\.[0-9]{{9}}{re.escape(TEMPORARY)}")
TABLE = ".table.json"
"""The file with the mark of a mirror: the version of the table that it has reached."""
SCRATCH = Form(r"[0-9]{6}|[0-9a-f]{8}-[0-9A-Za-z-]+-[0-9]{4}")
"""The files of a run's scratch directory: the files of one process, and the files of tasks."""
BRANCHES = "branches"
"""The directory of a state in which its branches are."""
BRANCH = Form(r"(\w[\w-]*)@([0-9]{9})")
"""The directory of a branch: its name, and the number of the commit that it began at."""
CHECKSUM = Form("[0-9a-f]{8}")
IDENTITY = Form("(?:[0-9a-f]{32})?")
"""The identity of a state: none before its first commit."""
CONTENTS = Form("[0-9a-f]{24}")
"""The fingerprint of an output's contents."""
LOG = Form("(?:[0-9a-f]{16})?")
"""The identity of an output's log."""
LONGEST = 4096
"""Characters of the longest path."""
LEAST, BEYOND = -(1 << 63), 1 << 63


def branch_of(directory: Path) -> tuple[str, int] | None:
    """Return the name of the branch that has a directory, and the number of the commit that it began at; None for the directory of another state.

    >>> from pathlib import PurePath
    >>> branch_of(PurePath(".dd/sales/branches/q4@000000012"))
    ('q4', 12)
    """
    found = BRANCH.fullmatch(directory.name) if directory.parent.name == BRANCHES else None
    return None if found is None else (found[1], int(found[2]))


def home_of(directory: Path, name: str) -> Path:
    """Return the directory of the state that a file in a manifest's directory belongs to: of a branch, all files up to the commit that it began at are main's.

    Names of batches, bundles and segments begin with the number of their commit, and a branch counts on from main's. So no file
    of a branch has the number of one that it shares.

    >>> from pathlib import PurePath
    >>> branch = PurePath(".dd/sales/branches/q4@000000012")
    >>> [str(home_of(branch, name)) for name in ("000000012-0001.parquet", "000000013-0001.parquet")]
    ['.dd/sales', '.dd/sales/branches/q4@000000012']
    """
    branch = branch_of(directory)
    return directory.parent.parent if branch and int(name[:9]) <= branch[1] else directory


def named(form: re.Pattern[str], text: Any) -> str:
    """Return a text that has the form of a name."""
    if not isinstance(text, str) or not form.fullmatch(text):
        raise ValueError(f"no name of {form.pattern}: {text!r:.80}")
    return text


def text_of(value: Any) -> str:
    """Return a value that is a text. Raises ValueError for any other."""
    if not isinstance(value, str):
        raise ValueError(f"no text: {value!r:.80}")  # noqa: TRY004 - one kind of error for all that a file may have wrong
    return value


def list_of(values: Any) -> list[Any]:
    """Return a value that is a list. Raises ValueError for any other."""
    if not isinstance(values, list):
        raise ValueError(f"no list: {values!r:.80}")  # noqa: TRY004 - as in text_of
    return values


def texts_of(values: Any) -> list[str]:
    """Return a value that is a list of texts. Raises ValueError for any other."""
    return [text_of(value) for value in list_of(values)]


def path_of(value: Any) -> str:
    """Return a value that may be a path: no name of a file has a zero byte, and none can be opened that is too long. Raises ValueError."""
    text = text_of(value)
    if not text or "\0" in text or len(text) > LONGEST:
        raise ValueError(f"no path: {text!r:.80}")
    return text


def path_inside(value: Any) -> str:
    """Return a relative path that stays below the directory that it is relative to."""
    text = path_of(value)
    if text.startswith("/") or (".." in text and ".." in text.split("/")):
        raise ValueError(f"a path that leads out: {text!r:.80}")
    return text


def count_of(value: Any) -> int:
    """Return a number of things, or of bytes."""
    if type(value) is not int or not 0 <= value < BEYOND:
        raise ValueError(f"no number of things: {value!r:.80}")
    return value


def integer_of(value: Any) -> int:
    """Return an integer of 64 bits."""
    if type(value) is not int or not LEAST <= value < BEYOND:
        raise ValueError(f"no integer: {value!r:.80}")
    return value


def integers_of(value: Any) -> dict[str, int]:
    """Return a value that is a mapping to integers of 64 bits."""
    return {name: integer_of(each) for name, each in mapping_of(value).items()}


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a value that is a mapping: JSON's have texts for keys. Raises ValueError for any other."""
    if not isinstance(value, dict):
        raise ValueError(f"no mapping: {value!r:.80}")  # noqa: TRY004 - as in text_of
    return value


def columns_of(value: Any) -> dict[str, str]:
    """Return columns with the texts of their types, which all are types."""
    for text in mapping_of(value).values():
        if not isinstance(text, str) or not _is_type(text):
            raise ValueError(f"no type: {text!r:.80}")
    return mapping_of(value)


def renaming(source: Any, target: Any) -> tuple[str, str]:
    """Return a renaming within one directory: one that publishes a file of an output or a mirror from its temporary name, or one that retires it.

    >>> renaming("../out/.updates-0-1.parquet.000000001.dd-tmp", "../out/updates-0-1.parquet")[1]
    '../out/updates-0-1.parquet'
    """
    (before, waiting), (directory, name) = split_path(path_of(source)), split_path(path_of(target))
    if (BATCH if MIRROR.fullmatch(directory) else OF_LOG).fullmatch(waiting):
        named(WAITING, name)
    elif FOLDER.fullmatch(name):
        named(WAITING_FOLDER, waiting)
    else:
        named(WAITING, waiting)
        if MIRROR.fullmatch(directory) or not OF_LOG.fullmatch(name):
            named(BATCH if MIRROR.fullmatch(directory) else OF_OUTPUT, name)
    if before != directory:
        raise ValueError(f"a renaming to another directory: {target!r:.80}")
    return source, target


def split_path(path: str) -> tuple[str, str]:
    """Return the directory of a log, and the path of a file in it.

    >>> split_path("out/updates-0-1.parquet"), split_path("out/updates-1-2/0001.parquet")
    (('out', 'updates-0-1.parquet'), ('out', 'updates-1-2/0001.parquet'))
    """
    directory, _, name = path.rpartition("/")
    above, _, folder = directory.rpartition("/")
    if FOLDER.fullmatch(folder) and PART.fullmatch(name):
        return above, f"{folder}/{name}"
    return directory, name


@lru_cache(maxsize=1024)
def _is_type(text: str) -> bool:
    return parse_type(text) is not None
