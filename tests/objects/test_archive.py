"""Inputs in an object store whose consumed objects are moved into an archive there."""

from functools import partial

import pytest

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.errors import InputError
from ddcli.job import consumed_files
from ddcli.store.files import objects
from ddcli.store.files.gate import Files
from tests.draws import some
from tests.harness import contents
from tests.store.support import Dead, Faulty, Interrupted

MOVE = [
    *(getattr(consumed_files, name) for name in ("move", "_copy_object", "_drop_object")),
    *(getattr(objects.ObjectPath, name) for name in ("copy_apart", "_copy_through")),
]


def made(folder, bucket, path="in/"):
    file = folder / "p.yaml"
    file.write_text(
        f"name: p\ninputs: {{a: {{path: '{bucket}/{path}', format: append, columns: {{k: int64}}, consumed: {{archive: '{bucket}/done/'}}}}}}\n"
        "outputs: {a: out/}\n"
    )
    return file


def names(bucket):
    return sorted(path.relative_to(bucket).inner for path, _ in bucket.below())


@pytest.mark.parametrize("path", ["in/", "in/*.csv"])
def test_consumed_objects_are_moved_and_read_where_they_lie_then(tmp_path, bucket, path, monkeypatch):
    monkeypatch.setattr(objects, "BLOCK", 8)  # the first one is copied in pieces
    (bucket / "in/1.csv").put(b"k\n1\n2\n3\n4\n")
    (bucket / "in/2.csv").put(b"k\n5\n")
    file = made(tmp_path, bucket, path)
    run(file)
    assert names(bucket) == ["done/1.csv", "done/2.csv"]
    assert not run(file).changed
    run(file, refresh=frozenset())
    assert contents(tmp_path / "out") == {(k,): 1 for k in range(1, 6)}
    (bucket / "in/1.csv").put(b"k\n6\n")
    run(file)
    assert names(bucket) == ["done/1.csv", "done/2.csv", "done/2/1.csv"]
    (bucket / "done/2.csv").put(b"k\n7\n")
    with pytest.raises(InputError, match="has changed"):
        run(file, refresh=frozenset())
    run(file, withdraw=[bucket / "done/2.csv"])
    assert contents(tmp_path / "out") == {(k,): 1 for k in (1, 2, 3, 4, 6)}


@pytest.mark.parametrize("bucket", ["s3", "gs", "az"], indirect=True)
def test_a_run_that_dies_anywhere_loses_no_object(tmp_path, bucket, monkeypatch):
    """Whatever operation is the last one, the object is in the input or in the archive, and the next run ends the move."""
    counted = Faulty()
    monkeypatch.setattr(ddcli.store.state.directory, "Files", lambda: counted)
    (bucket / "in/1.csv").put(b"k\n1\n")
    run(made(tmp_path, bucket))
    moves = [at for at, (operation, _) in enumerate(counted.log) if operation == "archive"]
    assert len(moves) == 2
    for at in range(moves[0] - 1, moves[-1] + 1):
        for after in (False, True):
            folder, prefix = tmp_path / f"{at}{after}", bucket / f"{at}{after}"
            folder.mkdir()
            (prefix / "in/1.csv").put(b"k\n1\n")
            file, dying = made(folder, prefix), Faulty(at, after=after)
            monkeypatch.setattr(ddcli.store.state.directory, "Files", lambda dying=dying: dying)
            with pytest.raises(Dead):
                run(file)
            assert {name.rpartition("/")[2] for name in names(prefix)} == {"1.csv"}
            monkeypatch.setattr(ddcli.store.state.directory, "Files", Files)
            run(file)
            assert names(prefix) == ["done/1.csv"]
            assert contents(folder / "out") == {(1,): 1}


@pytest.mark.parametrize("block", [4, 1 << 20])
def test_an_object_that_another_replaces_while_it_is_moved_loses_no_row(tmp_path, bucket, monkeypatch, block):
    """Whenever it comes, but for the moment before the deletion, which has no condition. It is tried at each line of the move, in one piece and in several."""
    monkeypatch.setattr(objects, "BLOCK", block)
    monkeypatch.setattr(consumed_files, "one_by_one", lambda action, paths: [*map(action, paths)])
    lost = 0
    for at in some(range(1, 1000)):
        folder, prefix = tmp_path / str(at), bucket / str(at)
        folder.mkdir()
        (prefix / "in/1.csv").put(b"k\n1\n2\n")
        file = made(folder, prefix)
        with Interrupted(MOVE, at, partial((prefix / "in/1.csv").put, b"k\n3\n4\n5\n")) as raced:
            run(file)
        if raced.where is None:
            assert at > 15
            break
        if raced.where[0] == "_drop_object" and not (prefix / "in/1.csv").exists():
            lost += 1
            assert lost == 1  # before the deletion
            continue
        run(file)
        assert contents(folder / "out") == {(k,): 1 for k in range(1, 6)}, raced.where
        assert not [name for name in names(prefix) if "in/" in name]
        assert b"k\n3\n4\n5\n" in {path.read_bytes() for path, _ in (prefix / "done").below()}
