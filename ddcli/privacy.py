"""Columns with tags: commands show a digest in place of their values, unless `--show TAG` asks for them.

This is a setting of the process, like the names of values that messages conceal: the columns that a pipeline or a log hides, by name. All that writes
rows or values for people asks here. A name that is tagged in one collection is hidden in all of the pipeline, as a message may be of any of them.

A digest depends on a key, the identity of a state, which no preview shows: equal values have equal digests in all commands on one state, and a
list of likely values is of no use to somebody who has the preview alone.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    Tags = Mapping[str, tuple[str, ...]]
    """The tags of columns, by their names."""

LENGTH = 4
"""Bytes of a digest."""


class Digest(str):
    """The digest of a value, for a message: it is never in quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_tags: dict[str, tuple[str, ...]] = {}
_shown: set[str] = set()
_key: list[str] = []


def hide(columns: Tags, key: str = "") -> None:
    """Hide columns with tags from now on; the first `key` of a command counts."""
    for name, tags in columns.items():
        _tags[name] = tuple(dict.fromkeys((*_tags.get(name, ()), *tags)))
    if key and not _key:
        _key.append(key)


def show(tags: Iterable[str]) -> None:
    """Show the columns that have no other tags than these."""
    _shown.update(tags)


def reset() -> None:
    """Forget all columns, tags and keys, for the next command of a process."""
    _tags.clear()
    _shown.clear()
    _key.clear()


def unknown_tags(columns: Tags) -> list[str]:
    """Return the tags that were asked for and that no column has."""
    return sorted(_shown - {tag for tags in columns.values() for tag in tags})


def has_tags() -> bool:
    """Return whether any column has a tag."""
    return bool(_tags)


def is_tagged(name: str) -> bool:
    """Return whether a column has a tag, also one that is shown."""
    return name in _tags


def hidden_tag(name: str) -> str | None:
    """Return the tag for which a column is hidden; None if it is not."""
    return next((tag for tag in _tags.get(name, ()) if tag not in _shown), None)


def quoted(names: Sequence[str]) -> Tags:
    """Return the tags of all columns, and for `names`, columns of texts that quote any of these, every tag; none without tags."""
    every = tuple(sorted({tag for tags in _tags.values() for tag in tags}))
    return _tags | dict.fromkeys(names, every) if every else {}


def hides() -> bool:
    """Return whether any column is hidden."""
    return any(hidden_tag(name) for name in _tags)


def preview(name: str, value: Any) -> Any:
    """Return the value of a column as it may be shown: its digest if the column is hidden; null and digests stay as they are."""
    tag = hidden_tag(name)
    return value if tag is None or value is None or isinstance(value, Digest) else _digest(tag, value)


def previewed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as it may be shown.

    >>> reset(); hide({"email": ["pii"]}, key="0f3a")
    >>> print(previewed({"id": 1, "email": "a@b.example"}), previewed({"id": 2, "email": None}))
    {'id': 1, 'email': pii:7e43b104} {'id': 2, 'email': None}
    >>> show(["pii"]); print(previewed({"id": 1, "email": "a@b.example"})); reset()
    {'id': 1, 'email': 'a@b.example'}
    """
    return {name: preview(name, value) for name, value in record.items()}


def unnamed(value: Any) -> Any:
    """Return a value without a column's name as it may be shown: its digest as soon as any column is hidden."""
    tag = next(filter(None, map(hidden_tag, _tags)), None)
    return value if tag is None or value is None or isinstance(value, Digest) else _digest(tag, value)


def preview_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows as they may be shown: hidden columns are texts, their digests."""
    hidden = [name for name in frame.columns if hidden_tag(name)] if _tags else []
    if not hidden:
        return frame
    return frame.with_columns(preview_column(name, frame[name]) for name in hidden)


def preview_column(name: str, column: pl.Series) -> pl.Series:
    """Return a column's values as they may be shown; `name` is that in the collection."""
    if hidden_tag(name) is None:
        return column
    import polars as pl

    return pl.Series(column.name, [preview(name, value) for value in column.to_list()], pl.String)


def _digest(tag: str, value: Any) -> Digest:
    if not _key:
        _key.append(os.urandom(16).hex())
    text = repr(sorted(value.items())) if isinstance(value, dict) else str(value)
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=LENGTH, key=_key[0].encode()[:64])
    return Digest(f"{tag}:{digest.hexdigest()}")
