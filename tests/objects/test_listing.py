"""Inputs in an object store are listed as those in files are."""

import pytest

from ddcli.errors import InputError
from ddcli.store.files.objects import ObjectPath, locate, relative
from ddcli.store.tables.inventory import list_input

NAMES = [
    "log/a.parquet",
    "log/b.PARQUET",
    "log/README.md",
    "log/_progress.json",
    "log/.hidden.parquet",
    "log/c.parquet.tmp",
    "log/year=2024/month=1/d.parquet",
    "log/year=2025/e.parquet",
    "log/_delta/f.parquet",
    "logs/g.parquet",
    "single",
]


@pytest.fixture
def both(tmp_path, bucket):
    """Return the same files here and there."""
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        (bucket / name).put(name.encode())
    return tmp_path, bucket


@pytest.mark.parametrize(
    "path",
    [
        "log",
        "log/",
        "log/*.parquet",
        "log/**/*.parquet",
        "log/*/*",
        "log/year=202[4]/**",
        "l*/g.*",
        "single",
        "log/b.PARQUET",
    ],
)
def test_the_same_files_are_found(both, path):
    here, there = both
    local, remote = list_input(path, here), list_input(f"{there}/{path}", here)
    assert local.new
    assert [(file.path, file.size) for file in remote.new] == [(file.path, file.size) for file in local.new]
    assert [remote.path(file).read_bytes() for file in remote.new] == [
        local.path(file).read_bytes() for file in local.new
    ]
    assert all(file.fingerprint for file in remote.new)


@pytest.mark.parametrize("path", ["nothing", "nothing/*.parquet", "log/*.csv", "lo"])
def test_nothing_to_find_is_an_error(both, path):
    here, there = both
    for whole in (path, f"{there}/{path}"):
        with pytest.raises(InputError, match=r"there is no file or directory|matches no file"):
            list_input(whole, here)


def test_a_consumed_object_that_changes_or_vanishes_is_refused(both):
    here, there = both
    url = f"{there}/log"
    consumed = list_input(url, here).new
    assert not list_input(url, here, consumed).new
    (there / NAMES[0]).put(NAMES[0].encode())  # the same again
    assert not list_input(url, here, consumed).new
    (there / NAMES[0]).put(NAMES[0].upper().encode())
    with pytest.raises(InputError, match="has the same size and other content") as caught:
        list_input(url, here, consumed)
    assert caught.value.place == f"{there}/{NAMES[0]}"
    (there / NAMES[0]).unlink()
    with pytest.raises(InputError, match="has vanished"):
        list_input(url, here, consumed)


def test_paths_in_manifests_find_what_they_were_made_of(tmp_path):
    store, other = ObjectPath.parse("s3://bucket/a/state"), ObjectPath.parse("s3://else/where")
    near = ObjectPath.parse("s3://bucket//a/./out/")
    assert relative(near, store) == "../out"
    for path in (near, other, tmp_path / "x"):
        for base in (store, other, tmp_path / "state"):
            assert locate(base, relative(path, base)) == path
    assert str(near / "x" / ".." / "y") == "s3://bucket/a/out/x/../y"
    assert str(near.parent.with_name("b")) == "s3://bucket/b"


@pytest.mark.parametrize("path", ["lake", "lake/t", "lake/t/day=1", "lake/t/data/day=1", "lake/**/*.parquet"])
@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/0.metadata.json"])
def test_a_table_with_a_log_is_refused(bucket, tmp_path, path, log):
    for name in (log, "day=1/a.parquet", "data/day=1/a.parquet"):
        (bucket / "lake/t" / name).put(b"x")
    with pytest.raises(InputError, match="a table of") as caught:
        list_input(f"{bucket}/{path}", tmp_path)
    assert caught.value.place == str(bucket / "lake/t")
