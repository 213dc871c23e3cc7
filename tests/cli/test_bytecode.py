"""Bytecode that is kept of modules: they are what they are without it, whatever became of their sources and of what is kept."""

import importlib
import importlib.resources
import importlib.util
import inspect
import os
import py_compile
import subprocess
import sys
from importlib.machinery import SourceFileLoader

import pytest

from ddcli.cli.startup import bytecode
from ddcli.engine.jit import settings
from tests.draws import chance, many

NAMES = [f"one{number}" for number in range(bytecode.MANY + 5)]


class Lib:
    """A folder with modules, and commands that import them."""

    def __init__(self, folder):
        self.folder, self.before = folder, set(sys.modules)
        (folder / "pack/inner").mkdir(parents=True)
        (folder / "__pycache__").mkdir()  # as after the first import
        for number, name in enumerate(NAMES):
            self.write(name, f"VALUE = {number}\n")
        self.write("pack/__init__", "from pack.part import VALUE\n")
        self.write("pack/part", "def act(): return VALUE\nVALUE = 'a long text'\n")
        self.write("pack/inner/__init__", "")
        (folder / "pack/text").write_text("a text")

    def write(self, name, text):
        (self.folder / f"{name}.py").write_text(text)

    def command(self, *names):
        """Import modules as a command does, and return them."""
        for name in set(sys.modules) - self.before:
            del sys.modules[name]
        importlib.invalidate_caches()
        kept = bytecode.use_kept()
        try:
            found = [importlib.import_module(name) for name in names]
            kept.keep()
        finally:
            sys.meta_path.remove(kept)
        return found


def is_kept(module):
    return type(module.__spec__.loader) is bytecode.KeptLoader


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Give the folder in which bytecode is kept."""
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(settings, "_cache_dir", None)  # what a command in this process was told before
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "cache/modules"


@pytest.fixture
def lib(cache, tmp_path, monkeypatch):
    """Give modules that a command has imported, so that they are kept."""
    monkeypatch.syspath_prepend(tmp_path / "lib")
    lib = Lib(tmp_path / "lib")
    assert not any(map(is_kept, lib.command(*NAMES, "pack", "pack.inner")))
    assert [file.stat().st_mode & 0o777 for file in cache.iterdir()] == [0o600]
    yield lib
    for name in set(sys.modules) - lib.before:
        del sys.modules[name]


def test_modules_that_are_kept_are_what_they_were(lib):
    found = lib.command(*NAMES)
    assert all(map(is_kept, found))
    assert [module.VALUE for module in found] == list(range(len(NAMES)))
    part, pack = lib.command("pack.part", "pack")
    assert is_kept(part)
    assert part.__file__ == str(lib.folder / "pack/part.py")
    for module in (part, pack):
        assert module.__cached__ == module.__spec__.cached == importlib.util.cache_from_source(module.__file__)
    assert pack.__path__ == [str(lib.folder / "pack")]
    assert pack.part is part
    assert part.__package__ == "pack"
    assert inspect.getsource(part.act) == "def act(): return VALUE\n"
    assert importlib.resources.files("pack").joinpath("text").read_text() == "a text"
    assert importlib.reload(part) is part


def test_functions_are_of_their_file_wherever_it_was_compiled(lib, cache):
    for file in cache.iterdir():
        file.unlink()
    py_compile.compile(str(lib.folder / "pack/part.py"), dfile="elsewhere/part.py", doraise=True)
    for kept in (False, True):
        (part,) = lib.command("pack.part", *NAMES)[:1]
        assert is_kept(part) == kept
        assert part.act.__code__.co_filename == part.__file__


def test_a_module_whose_source_has_changed_is_that_of_the_source(lib):
    lib.write("one3", "VALUE = 'an other'\n")
    os.utime(lib.folder / "one4.py", ns=(0, 0))
    (lib.folder / "pack/part.py").unlink()
    (lib.folder / "pack/part").mkdir()
    lib.write("pack/part/__init__", "VALUE = 'a package'\n")
    three, four, five, pack = lib.command("one3", "one4", "one5", "pack")
    assert [three.VALUE, four.VALUE, five.VALUE, pack.VALUE] == ["an other", 4, 5, "a package"]
    assert list(map(is_kept, [three, four, five, pack])) == [False, False, True, True]
    for name in NAMES:
        lib.write(name, "VALUE = 'new'\n")
    assert {module.VALUE for module in lib.command(*NAMES)} == {"new"}
    assert all(map(is_kept, lib.command(*NAMES))), "they are kept anew"
    assert all(map(is_kept, lib.command("pack"))), "and what was kept still is"


def test_a_module_that_python_would_find_before_is_taken(lib, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (other / "one1.py").write_text("VALUE = 'of the other folder'\n")
    (module,) = lib.command("one1")
    assert is_kept(module)
    with monkeypatch.context() as change:
        change.syspath_prepend(other)
        assert lib.command("one1")[0].VALUE == "of the other folder"
    with monkeypatch.context() as change:
        kept = bytecode.use_kept()
        change.syspath_prepend(other)  # by what is imported meanwhile
        sys.modules.pop("one1")
        assert importlib.import_module("one1").VALUE == "of the other folder"
        sys.meta_path.remove(kept)
    (lib.folder / "one2").mkdir()
    lib.write("one2/__init__", "VALUE = 'of the package'\n")
    assert lib.command("one2")[0].VALUE == "of the package"


def test_what_is_kept_is_taken_where_it_is_whole(lib, cache):
    (place,) = cache.iterdir()
    whole = place.read_bytes()
    for at in [0, 32, 40, *(chance("damage").randrange(len(whole)) for _ in range(many(60)))]:
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        place.chmod(0o600)
        assert [module.VALUE for module in lib.command(*NAMES[:5], "pack")] == [0, 1, 2, 3, 4, "a long text"]
    for text in (b"", whole[:20], whole[:60], whole[: len(whole) // 2], whole.replace(b"a long text", b"a LONG text")):
        place.write_bytes(text)
        assert [module.VALUE for module in lib.command("one3", "pack")] == [3, "a long text"]


def test_what_others_could_have_written_is_not_taken(lib, cache):
    (place,) = cache.iterdir()
    assert is_kept(lib.command("one1")[0])
    for path, mode in [(place, 0o666), (cache, 0o777)]:
        before = path.stat().st_mode
        path.chmod(mode)
        assert not is_kept(lib.command("one1")[0])
        path.chmod(before)
    place.rename(cache.parent / "elsewhere")
    place.symlink_to(cache.parent / "elsewhere")
    assert not is_kept(lib.command("one1")[0])


def test_few_modules_are_not_kept_anew_nor_where_none_shall_be(lib, cache, monkeypatch):
    (place,) = cache.iterdir()
    before = place.stat().st_mtime_ns
    lib.write("one3", "VALUE = 'an other'\n")
    lib.command(*NAMES)
    assert place.stat().st_mtime_ns == before
    place.unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    lib.command(*NAMES)
    assert not list(cache.iterdir())


@pytest.mark.parametrize("folder", ["circle", "file/below", "sealed"])
def test_a_command_does_without_where_nothing_can_be_kept(lib, tmp_path, monkeypatch, folder):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "file").touch()
    (tmp_path / "sealed").mkdir(mode=0o777)
    (tmp_path / "sealed").chmod(0o777)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(tmp_path / folder))
    for _ in range(2):
        try:
            assert not is_kept(lib.command("one1", *NAMES)[0])
        except OSError:
            assert folder in {"circle", "file/below"}  # which whoever calls passes over


def test_files_of_other_environments_are_few(lib, cache, monkeypatch, tmp_path):
    for number in range(bytecode.MOST * 2):
        with monkeypatch.context() as change:
            change.syspath_prepend(tmp_path / f"environment{number}")
            lib.command(*NAMES)
            assert all(map(is_kept, lib.command(*NAMES)))
    assert len(list(cache.iterdir())) <= bytecode.MOST


LOADERS = """
import os, sys
leave = os._exit
def told(code):
    print(*sorted({type(getattr(module.__spec__, "loader", None)).__name__ for module in list(sys.modules.values()) if getattr(module, "__spec__", None) and module.__name__.startswith("click.")}))
    sys.stdout.flush()
    leave(code)
os._exit = told
from ddcli.cli.coreutils import main
main()
"""


def test_a_command_takes_modules_from_what_another_kept(cache, root):
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}

    def loaders():
        command = [sys.executable, "-c", LOADERS, "--version"]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split("\n")[
            -2
        ]

    assert loaders() == SourceFileLoader.__name__
    assert loaders() == bytecode.KeptLoader.__name__


def test_a_program_that_uses_the_library_has_none_of_it(cache, root):
    text = "import sys, ddcli.api, ddcli.driver.run; print([type(finder).__module__ for finder in sys.meta_path])"
    environment = os.environ | {"PYTHONPATH": str(root)}
    found = subprocess.run([sys.executable, "-c", text], env=environment, check=True, capture_output=True, text=True)
    assert "ddcli" not in found.stdout
    assert not cache.exists()
