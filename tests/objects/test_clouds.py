"""The stores of Amazon, Google and Azure do what a commit, a lock and an archive rely on."""

import os
import shutil
from pathlib import Path, PurePosixPath

import pytest

from ddcli.errors import UsageError
from ddcli.spark import pipelines
from ddcli.store.files import objects
from ddcli.store.files.access import locate, relative
from ddcli.store.files.objects import ObjectPath

STORES = pytest.mark.parametrize("bucket", ["s3", "gs", "az"], indirect=True)


@STORES
def test_objects_are_created_once_and_replaced_by_version(bucket):
    path = bucket / "state/a b%20=é.json"
    first = path.put(b"one", mode="create")
    with pytest.raises(FileExistsError):
        path.put(b"two", mode="create")
    assert path.head()["e_tag"] == first["e_tag"]
    second = path.put(b"two", mode=first)
    for stale in (first, {"e_tag": '"0x1"', "version": "1"}):
        with pytest.raises(FileExistsError):
            path.put(b"three", mode=stale)
    assert path.read_bytes() == b"two"
    assert path.put(b"three", mode=second)["e_tag"] == path.head()["e_tag"]
    path.unlink()
    path.unlink()
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match=bucket.name):
        path.read_bytes()


@STORES
def test_listings_have_what_has_just_been_put(bucket):
    names = ["a", "a/b", "a/b/c", "a.b", "aa", "b c", "d=é"]
    tags = {f"x/{name}": (bucket / "x" / name).put(name.encode() * 3)["e_tag"] for name in names if name != "a"}
    found = {path.key: (entry["size"], entry["e_tag"]) for path, entry in (bucket / "x").below()}
    assert found == {key: (3 * len(key.encode()[2:]), tag) for key, tag in tags.items()}
    beside = {path.name: tag for path, tag in (bucket / "x").tagged()}
    assert beside == {"a": None, **{key[2:]: tag for key, tag in tags.items() if key.count("/") == 1}}
    assert [path.key for path in (bucket / "x").beginning("a")] == ["x/a.b", "x/a/b", "x/a/b/c", "x/aa"]
    assert (bucket / "x").is_dir()
    assert not (bucket / "y").is_dir()


@STORES
def test_ranges_and_large_objects(bucket, monkeypatch):
    data = bytes(range(256)) * 40_000
    path = bucket / "large"
    monkeypatch.setattr("ddcli.store.files.objects.PART", 5 << 20)
    appender = path.appender(path.marked('"tag"'))
    appender.write(data[:100])
    appender.write(data[100:])
    appender.close()
    assert path.is_copy('"tag"')
    assert [bytes(part) for part in path.read_ranges([(5, 5), (7, 9), (10_000_000, 10_000_003)])] == [
        b"",
        data[7:9],
        data[10_000_000:10_000_003],
    ]
    with path.open("rb") as file:
        file.seek(-5, 2)
        assert file.read() == data[-5:]
        file.seek(3)
        assert b"".join(iter(lambda: file.read(70_000), b"")) == data[3:]
        assert file.seek(-9, 1) == len(data) - 9
        assert (file.read(4), file.read()) == (data[-9:-5], data[-5:])
    with path.open("rb") as file:
        assert file.read() == data
        assert file.read() == b""
    path.replace(bucket / "renamed")
    assert (bucket / "renamed").read_bytes() == data
    assert not path.is_file()
    (bucket / "empty").put(b"")
    assert (bucket / "empty").read_bytes() == b""
    assert [each.read() for each in ((bucket / "empty").open("rb"), (bucket / "empty").open())] == [b"", ""]


def test_a_reading_from_end_to_end_makes_few_requests(bucket, monkeypatch):
    path, asked, read_ranges = bucket / "long", [], ObjectPath.read_ranges
    path.put(bytes(10 << 20))
    monkeypatch.setattr(ObjectPath, "read_ranges", lambda *given: asked.append(given[1]) or read_ranges(*given))
    with path.open("rb") as file:
        assert sum(map(len, iter(lambda: file.read(1 << 12), b""))) == 10 << 20
    assert len(asked) <= 9
    asked.clear()
    with path.open("rb") as file:
        for at in range(0, 10 << 20, 1 << 20):
            file.seek(at)
            assert file.read(8) == bytes(8)
    assert {end - start for ((start, end),) in asked} == {1 << 16}, (
        "apart from each other, no more is fetched than is read"
    )


@STORES
def test_an_archived_copy_is_of_one_version(bucket):
    path = bucket / "in/a.csv"
    tag = path.put(b"x")["e_tag"]
    assert path.copy_apart(bucket / "archive/a.csv", tag)
    assert (bucket / "archive/a.csv").is_copy(tag)
    with pytest.raises(FileExistsError):
        path.copy_apart(bucket / "archive/a.csv", tag)
    path.put(b"yz")
    assert not path.copy_apart(bucket / "archive/b.csv", tag)
    assert not (bucket / "archive/b.csv").exists()


def test_a_path_in_a_store_never_reaches_this_machine_s_disk(tmp_path, monkeypatch):
    """Every public method of a path that an object has not refuses, and so do functions that take a file's name."""
    monkeypatch.chdir(tmp_path)
    path = ObjectPath.parse("s3://lake/a")
    operations = [name for name in dir(Path) if not name.startswith("_") and not hasattr(PurePosixPath, name)]
    refused = [name for name in operations if vars(ObjectPath)[name] is objects._refused]
    assert {"mkdir", "glob", "write_bytes", "touch", "rename", "chmod"} <= {*refused}
    for name in refused:
        with pytest.raises(TypeError, match="s3://lake/a is no file of this machine"):
            getattr(path, name)()
    for use in (open, os.stat, os.mkdir, os.path.exists, shutil.rmtree):
        with pytest.raises(TypeError, match="no file of this machine"):
            use(path)
    assert not [*tmp_path.iterdir()]


def test_frames_of_a_run_are_read_where_its_state_is(tmp_path, monkeypatch):
    """The log of a table that is no output of files is in the state, which may be named as text."""
    monkeypatch.setattr(pipelines, "run_pipeline", lambda *_given, **_options: None)
    file = tmp_path / "p.yaml"
    file.write_text("inputs: {t: {path: in, columns: {a: int64}}}\noutputs: {t: {delta: table}}\n")
    done = pipelines.run(file, None, state="s3://lake/state")
    assert done.outputs._paths == {"t": ObjectPath.parse("s3://lake/state/logs/t")}


def test_urls(tmp_path, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "shop")
    path = ObjectPath.parse("abfss://lake@shop.dfs.core.windows.net/a//b/../c")
    assert (str(path), path.key, str(path.parent / "d")) == ("az://lake/a/c", "a/c", "az://lake/a/d")
    assert ObjectPath.parse("gs://lake/a") != ObjectPath.parse("s3://lake/a")
    base = ObjectPath.parse("gs://lake/state")
    assert relative(locate(base, "../out"), base) == "../out"
    assert relative(locate(base, "s3://lake/out"), base) == "s3://lake/out"
    for here in (base, tmp_path):
        with pytest.raises(UsageError, match="write it as s3://bucket"):
            locate(here, str(Path("s3://lake/state")))
    for wrong in (
        "abfss://lake@other.dfs.core.windows.net/a",
        "abfss://lake@shop.evil.example/a",
        "http://lake/a",
        "gs://",
    ):
        with pytest.raises(UsageError):
            ObjectPath.parse(wrong)
    for wrong in ("az://evil.example?/a", "gs://a@b/c"):
        with pytest.raises(UsageError, match="bucket"):
            ObjectPath.parse(wrong).read_bytes()
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    with pytest.raises(UsageError, match="account"):
        ObjectPath.parse("az://nobody/a").read_bytes()
