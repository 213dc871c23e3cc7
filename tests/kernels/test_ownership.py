"""Where code is kept that is run: nowhere where another user may write, however the place is named, and only in files of one's own."""

import os
import tempfile

import pytest

from ddcli.engine.jit import load, settings
from ddcli.engine.jit.object_code import ObjectCode
from ddcli.engine.jit.registry import Image

SOMEBODY = 65_534


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Return a function that gives a path to another user, or, where that takes root, has us be another one than its owner."""
    made = tmp_path / "mine"
    made.mkdir(mode=0o700)

    def give(path):
        if os.getuid() == 0:
            os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "getuid", lambda: SOMEBODY)

    return give


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Return the lines that a person is told; private directories are below `tmp_path/temporary`."""
    lines = []
    (tmp_path / "temporary").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(settings, "_listener", lines.append)
    monkeypatch.setattr(settings, "_refused", set())
    monkeypatch.setattr(settings, "_cache_dir", None)
    for name in ("DDCLI_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    settings.private_dir.cache_clear()
    yield lines
    settings.private_dir.cache_clear()


def folder_of(tmp_path, mode=0o700):
    folder = tmp_path / "mine" / "above" / "cache"
    folder.mkdir(parents=True, mode=mode)
    folder.chmod(mode)
    return folder


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_what_is_ours_alone_is_used(tmp_path, given, said, monkeypatch, mode):
    folder = folder_of(tmp_path, mode)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(folder))
    assert settings.cache_dir() == folder
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(folder / "not" / "there"))
    assert settings.cache_dir() == folder / "not" / "there"
    assert said == []


WRITABLE = {
    "all": (0o777, "others may write into"),
    "a group": (0o770, "others may write into"),
    "all, each their own files": (0o1777, "others may write into"),
}


@pytest.mark.parametrize("how", ["an option", "the environment", "XDG", "the home"])
@pytest.mark.parametrize(("mode", "why"), WRITABLE.values(), ids=WRITABLE)
def test_what_others_may_write_is_not_used_however_it_is_named(tmp_path, given, said, monkeypatch, how, mode, why):
    monkeypatch.setattr(settings, "_is_private", lambda _: False)
    folder = folder_of(tmp_path)
    match how:
        case "an option":
            settings.set_cache_dir(folder)
        case "the environment":
            monkeypatch.setenv("DDCLI_CACHE_DIR", str(folder))
        case "XDG":
            monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
            folder = folder / "ddcli"
        case _:
            monkeypatch.setenv("HOME", str(folder))
            folder = folder / ".cache" / "ddcli"
    folder.mkdir(parents=True, exist_ok=True)
    assert settings.cache_dir() == folder
    folder.chmod(mode)
    private = settings.cache_dir()
    assert private.parent == tmp_path / "temporary"
    assert private.stat().st_mode & 0o777 == 0o700
    assert settings.cache_dir() == private
    assert said == [f"compiled kernels are kept in {private}, not in {folder}: {why} {folder}"]
    monkeypatch.setattr(settings, "_cache_dir", None)


@pytest.mark.parametrize("at", ["cache", "above"])
def test_what_belongs_to_another_or_lies_below_that_is_not_used(tmp_path, given, said, monkeypatch, at):
    folder = folder_of(tmp_path)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(folder))
    other = folder if at == "cache" else folder.parent
    given(other)
    settings.cache_dir()
    assert said
    assert "belongs to another user" in said[0]


def test_below_a_directory_that_all_may_write_it_is_not_used(tmp_path, given, said, monkeypatch):
    """But below one like /tmp, in which each has files of their own."""
    folder = folder_of(tmp_path)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(folder))
    folder.parent.chmod(0o1777)
    assert settings.cache_dir() == folder
    folder.parent.chmod(0o777)
    assert settings.cache_dir() != folder


def test_a_link_is_as_good_as_where_it_leads(tmp_path, given, said, monkeypatch):
    folder = folder_of(tmp_path)
    link = tmp_path / "mine" / "link"
    link.symlink_to(folder)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(link))
    assert settings.cache_dir() == folder
    folder.chmod(0o777)
    assert settings.cache_dir().parent == tmp_path / "temporary"
    circle = tmp_path / "mine" / "circle"
    circle.symlink_to(circle)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(circle))
    assert settings.cache_dir().parent == tmp_path / "temporary"


def test_a_private_place_that_is_taken_is_another_one(tmp_path, given, said, monkeypatch):
    """As another user may make it first, in /tmp; the one in its place is the same as long as the process is."""
    folder = folder_of(tmp_path, 0o777)
    monkeypatch.setattr(settings, "_is_private", lambda _: False)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(folder))
    taken = tmp_path / "temporary" / f"ddcli-{os.getuid()}"
    for make in (lambda: taken.symlink_to(folder), lambda: (taken.unlink(), taken.mkdir(), taken.chmod(0o777))):
        make()
        settings.private_dir.cache_clear()
        private = settings.cache_dir()
        assert private != taken
        assert private.resolve() != folder
        assert private == settings.cache_dir()


ENTRIES = [
    Image(b"code", 4096, {"kernel": 0}, {"memset": 4096}),
    [ObjectCode({"kernel": "symbol"}, ["memset"], b"code"), ObjectCode({"other": "symbol"}, [], b"more")],
]


def test_who_has_no_home_has_a_private_place(said, monkeypatch):
    """A container's user may be a number alone."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    assert settings.cache_dir() == settings.private_dir()
    assert said == []


@pytest.mark.parametrize("entry", ENTRIES, ids=["image", "objects"])
def test_only_plain_files_of_ones_own_are_read(tmp_path, given, entry):
    folder = folder_of(tmp_path)
    file = folder / "x.kernel"
    load.write(file, entry)
    assert load.read(file) == entry
    (folder / "link.kernel").symlink_to(file)
    (folder / "copy.kernel").write_bytes(file.read_bytes())
    os.mkfifo(folder / "pipe.kernel")
    (folder / "folder.kernel").mkdir()
    for name in ("link", "copy", "pipe", "folder", "none"):
        assert load.read(folder / f"{name}.kernel") is None
    file.chmod(0o606)
    assert load.read(file) is None
    file.chmod(0o600)
    assert load.read(file) == entry
    given(file)
    assert load.read(file) is None


def test_a_group_of_ones_own_is_nobody_else(tmp_path, monkeypatch):
    """Many systems give each user a group, and have files be writable by it."""
    import grp
    import pwd

    user = pwd.getpwuid(os.getuid())
    folder = folder_of(tmp_path, 0o770)
    groups = {"own": (user.pw_name, []), "with others": (user.pw_name, ["other"]), "staff": ("staff", [])}
    found = {}
    for name, (called, members) in groups.items():
        monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((called, "x", gid, members)))  # noqa: B023
        found[name] = settings.find_foreign_owner(folder) is None
    assert found == {"own": True, "with others": False, "staff": False}
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((user.pw_name, "x", gid, [])))
    folder.chmod(0o772)
    assert settings.find_foreign_owner(folder) is not None
