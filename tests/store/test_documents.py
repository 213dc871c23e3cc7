"""Small documents of a state: each is written and read as it is, and whatever `dd` never writes is damage with a place and a hint."""

import json

import pytest

from ddcli.errors import StateError
from ddcli.store.files.gate import Files
from ddcli.store.mirrors.mirror import MARKS as CURSORS
from ddcli.store.mirrors.mirror import MirrorCursor
from ddcli.store.state.consumers import DOCUMENT as CONSUMERS
from ddcli.store.state.consumers import Consumer
from ddcli.store.state.directory import HOLDS, Hold
from ddcli.store.targets.mark import MARKS as COMMITS
from ddcli.store.targets.mark import CommitRecord, FollowerCommits, TableFile

LOG = "0123456789abcdef"
COMMIT = CommitRecord(7, LOG, 3, (TableFile("a.parquet", 7, 5, (-1, 2)),), {"version": 1, "tätig": None})
DOCUMENTS = {
    "hold": (HOLDS, "shop-1a2b.json", Hold("shop-1a2b", "/a/b", ("x", "y"), ((3, 4),), ((5, 4),), 9, ("m",))),
    "consumer": (CONSUMERS, f"{LOG}-mail.json", Consumer("mail", LOG, "orders", 4, 2, (5, 6))),
    "cursor": (
        CURSORS,
        ".table.json",
        MirrorCursor("i", 3, -4, {"a": "int64"}, "t", 2, ("000000002-0000.parquet",), 1, {"a": 1}),
    ),
    "commits": (COMMITS, ".table.json", FollowerCommits(COMMIT, None)),
}
HUGE = 1 << 64
VALUES = [None, True, 1.5, -HUGE, HUGE, "\0", [], [[]], {}, {"a": []}, [[1, "x"]]]
"""Values of which each field of a document refuses some."""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_read_as_it_was_written(name, tmp_path):
    document, file, record = DOCUMENTS[name]
    path = tmp_path / file
    assert document.read(path) is None
    document.write(path, record, Files())
    assert document.read(path) == record
    assert [each.name for each in tmp_path.iterdir()] == [file]
    path.write_bytes(json.dumps(json.loads(path.read_bytes()), indent=1).encode())  # as earlier versions wrote some
    assert document.read(path) == record


def refused(document, path, data):
    """Return whether a document is refused, in the right words."""
    path.write_bytes(data)
    try:
        document.read(path)
    except StateError as error:
        found = error
    else:
        return False
    assert (found.problem, found.place, found.hint) == (document.problem, str(path), document.hint)
    return True


@pytest.mark.parametrize("name", DOCUMENTS)
def test_text_that_dd_never_writes_is_damage(name, tmp_path):
    document, file, record = DOCUMENTS[name]
    path, data = tmp_path / file, document.data(record)
    tree = json.loads(data)
    key = next(iter(tree))
    whole = data.rstrip()[:-1]
    twice = whole + b',"\\u%04x%s":%s}' % (ord(key[0]), key[1:].encode(), json.dumps(tree[key]).encode())
    hostile = [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        data[:-3],
        data + data,
        twice,
    ]
    hostile += [whole + b',"%s":%s}' % (key.encode(), value) for value in (b"NaN", b"Infinity", b"1" * 10_000)]
    if name == "commits":
        hostile.append(data.replace(b'"version":1', b'"version":NaN'))
    for each in hostile:
        assert refused(document, path, each), each[:80]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_field_of_another_kind_or_a_missing_one_is_damage(name, tmp_path):
    """Of values of all kinds a field accepts few: none is taken for another, and an error is never Python's own."""
    document, file, record = DOCUMENTS[name]
    path, tree = tmp_path / file, json.loads(document.data(record))
    for key in tree:
        changed = [json.dumps(tree | {key: value}).encode() for value in VALUES]
        assert sum(refused(document, path, each) for each in changed) >= len(VALUES) - 4, key
    assert any(
        refused(document, path, json.dumps({k: v for k, v in tree.items() if k != key}).encode()) for key in tree
    )
    assert refused(document, path, json.dumps(tree | {"more": 1}).encode())
