"""The ledger of an input against a dictionary of contents: files come, change and go, commit by commit."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ddcli.errors import StateError
from ddcli.store.state import ledger
from ddcli.store.state.contents import left_by_attempts
from ddcli.store.state.directory import State
from ddcli.store.state.entries import InputEntry
from ddcli.store.state.ledger import identity_of, known_files, next_ledger, restore
from ddcli.store.state.manifest import Manifest, read_newest
from ddcli.store.state.upkeep import verify
from ddcli.store.tables.inventory import list_input
from tests.draws import chance, many

SCHEMA = {"columns": {}, "time": {}, "diff": None}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with an input and a state, whose ledgers have small parts and files."""
    monkeypatch.setattr(ledger, "PART", 8)
    monkeypatch.setattr(ledger, "FULL", 40)
    monkeypatch.setattr(ledger, "FEW", 4)
    (tmp_path / "in").mkdir()
    return tmp_path


def write(place: Path, name: str, content: bytes, time: int) -> None:
    path = place / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (time, time))


def commit(place: Path, before=(), kept=()):
    """Commit the files as they are, with copies of all but those `kept`; return the ledger and the files."""
    listing = list_input("in", place)
    with State.open(place / "state", {}) as state:
        known = {identity_of(file) for file in kept}
        new = [(file, listing) for file in listing.new if identity_of(file) not in known]
        with state.begin() as transaction:
            entries = next_ledger(transaction, before, listing.new, new)
            transaction.commit(Manifest("p", (), inputs={"in": InputEntry((), listing.new, SCHEMA, entries)}))
        return state.manifest.inputs["in"].ledger, listing.new


def test_random_histories(place):
    for case in range(many(12)):
        draw, root = chance("ledger", case), place / str(case)
        (root / "in").mkdir(parents=True)
        contents, entries, files = {}, (), ()
        for step in range(10):
            for name in draw.sample(["a.csv", "b.csv", "sub/c.csv", "d.csv"], draw.randrange(1, 4)):
                if draw.random() < 0.3:
                    contents.pop(name, None)
                    (root / "in" / name).unlink(missing_ok=True)
                else:
                    contents[name] = bytes(draw.randrange(256) for _ in range(draw.choice([0, 1, 8, 9, 16, 50])))
                    write(root, name, contents[name], step)
            if not contents:
                continue
            entries, files = commit(root, entries, files)
            target = root / f"copies{step}"
            some = draw.sample(files, draw.randint(1, len(files)))
            assert restore(root / "state", entries, some, target)
            assert {file.path: (target / file.path).read_bytes() for file in some} == {
                file.path: contents[file.path] for file in some
            }, (case, step)
            assert {file.path for file in files} == contents.keys()
            assert (
                sum(entry.rows for entry in entries) <= 2 * sum(len(each) // 8 + 1 for each in contents.values()) + 28
            )
            assert verify(root / "state")[2] == []
        here = [*(root / "state/ledger").iterdir()]
        assert {path.name for path in here} == {entry.name for entry in entries}
        assert not [*left_by_attempts(root / "state", read_newest(root / "state"), here, [])]


def test_a_file_that_changes_while_it_is_copied_has_no_copy(place, monkeypatch):
    write(place, "a.csv", b"12345678901", 1)
    write(place, "b.csv", b"12", 1)
    listed = ledger._copied

    def copied(file, listing):
        for at, row in enumerate(listed(file, listing)):
            if file.path == "a.csv" and not at:
                write(place, "a.csv", b"22345678902", 2)
            yield row

    monkeypatch.setattr(ledger, "_copied", copied)
    entries, (a, b) = commit(place)
    assert known_files(place / "state", entries) == {identity_of(b)}
    assert not restore(place / "state", entries, [a], place / "copies")
    assert not restore(place / "state", entries, [replace(b, mtime_ns=5)], place / "copies")


def test_each_damaged_byte_of_a_copy_is_noticed(place):
    write(place, "a.csv", b"12345678901", 1)
    (entry,), files = commit(place)
    path = place / "state/ledger" / entry.name
    content = path.read_bytes()
    for at in range(4, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            found = restore(place / "state", [entry], files, place / "copies")
        except StateError:
            found = False
        assert not found
        assert [error.place for error in verify(place / "state")[2]] == [str(path)]
