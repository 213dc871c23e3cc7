"""Inputs in an object store are listed as those in files are."""

from dataclasses import replace

import pytest

from ddcli.driver.run import run
from ddcli.errors import InputError
from ddcli.sources.change_log import read_log
from ddcli.store.files.access import locate, relative
from ddcli.store.files.objects import ObjectPath
from ddcli.store.tables import inventory, listing
from ddcli.store.tables.inventory import ChangeRules, list_input

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
    consumed = list_input(url, here, ()).new
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


AZURE = pytest.mark.parametrize("bucket", ["az"], indirect=True)
"""A tag of its store is that of one writing."""


@AZURE
def test_an_object_that_is_written_again_in_azure_is_known_by_its_content(bucket, tmp_path):
    """As far as a digest of its parts tells it: of a large text it tells nothing, and of a Parquet file its footer does."""
    large = bytes(200_000)
    first = {"a.csv": b"a", "b.csv": b"b", "large.csv": large, "large.parquet": large}
    for name, data in first.items():
        (bucket / "in" / name).put(data)
    url = f"{bucket}/in"
    consumed = [replace(file, done=True) for file in list_input(url, tmp_path, ()).new]
    tags = {file.path: file.fingerprint for file in consumed}
    for name in ("a.csv", "large.parquet"):
        (bucket / "in" / name).put(first[name])
    found = list_input(url, tmp_path, consumed)
    assert not found.new
    changed = {file.path for file in found.done if file.fingerprint != tags[file.path]}
    assert changed == {"a.csv", "large.parquet"}
    assert list_input(url, tmp_path, found.done).done == found.done
    for name, data in {"a.csv": b"c", "large.csv": large, "large.parquet": large[:-1] + b"x"}.items():
        (bucket / "in" / name).put(data)
        with pytest.raises(InputError, match="has the same size and other content") as caught:
            list_input(url, tmp_path, found.done)
        assert caught.value.place == f"{bucket}/in/{name}"
        assert list_input(url, tmp_path, found.done, ChangeRules(replaced_since=0)).changed == {name}
        (bucket / "in" / name).unlink()
        found = replace(found, done=tuple(file for file in found.done if file.path != name))


@AZURE
def test_a_renamed_or_withdrawn_object_in_azure_is_known_by_its_content(bucket, tmp_path):
    (bucket / "in/a.csv").put(b"a")
    (bucket / "in/b.csv").put(b"b")
    a, b = (replace(file, done=True) for file in list_input(f"{bucket}/in", tmp_path, ()).new)
    (bucket / "in/a.csv").replace(bucket / "in/c.csv")
    (bucket / "in/b.csv").put(b"b")
    consumed = [a, replace(b, withdrawn=True)]
    found = list_input(f"{bucket}/in", tmp_path, consumed, ChangeRules(may_rename=lambda _before, _now: "same"))
    assert (found.renamed, [file.path for file in found.withdrawn], found.new) == ({"c.csv": "a.csv"}, ["b.csv"], ())


@AZURE
def test_a_lake_that_is_copied_into_another_container_is_what_it_was(bucket, azure, tmp_path, monkeypatch):
    """The next run knows its files, and the one after looks at none of them."""
    text = "state: {0}/state/\ninputs: {{a: {{path: {0}/in/, format: append, columns: {{k: int64}}}}}}\noutputs: {{a: {0}/out/}}\n"
    there, file = ObjectPath.parse(azure("copied")), tmp_path / "p.yaml"
    (bucket / "in/1.csv").put(b"k\n1\n")
    file.write_text(text.format(bucket))
    assert run(file, now="2020-01-01").changed
    for path, _ in bucket.below():
        (there / path.key).put(path.read_bytes())
    file.write_text(text.format(there))
    looked = []
    plain = listing.fingerprint
    for module in (inventory, listing):
        monkeypatch.setattr(module, "fingerprint", lambda *given: looked.append(given[0].name) or plain(*given))
    assert not run(file, now="2020-01-02").changed
    (there / "in/2.csv").put(b"k\n2\n")
    assert run(file, now="2020-01-03").inputs["a"].rows == 1
    assert {*looked} == {"1.csv", "2.csv"}
    looked.clear()
    assert not run(file, now="2020-01-04").changed
    assert not looked
    rows = read_log(there / "out", as_of="latest").rows()
    assert sorted(rows) == [(1, 1), (2, 1)]
    (there / "in/1.csv").put(b"k\n7\n")
    with pytest.raises(InputError, match="has the same size and other content"):
        run(file, now="2020-01-05")


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
