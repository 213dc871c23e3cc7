"""How kernels are compiled, kept and loaded, and what they refuse to be called with."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import zlib
from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ddcli.engine import arrow, kernels
from ddcli.engine.jit import compilation, load, registry, settings
from ddcli.engine.jit.bundled_kernels import everything
from ddcli.engine.jit.compilation import COMPILATION, Compiler
from ddcli.engine.jit.load import FIRST, KERNELS
from ddcli.engine.kernels.merge import merge_some
from tests.kernels.support import interpreted

if TYPE_CHECKING:
    from pathlib import Path

KERNEL, OTHER = "ddcli.engine.kernels.hashes.assign_shards", "ddcli.engine.kernels.hashes.hash_ranges"
KEYS = np.array([[0], [1]])


@pytest.fixture(scope="module")
def whole() -> bytes:
    """Return the file of the kernel, which the cache of this machine has by now."""
    file = settings.cache_dir() / load.file_name(KERNEL)
    if not file.exists():
        COMPILATION.begin(KERNEL, {KERNEL: file}).result()
    return file.read_bytes()


@pytest.fixture
def fresh(whole, tmp_path, monkeypatch):
    """Begin with an empty cache, in which only one kernel is wanted; gives its folder and the lines announced."""
    lines = []
    monkeypatch.setattr(settings, "_listener", lines.append)
    monkeypatch.setattr(settings, "_cache_dir", tmp_path / "cache")
    monkeypatch.setattr(load, "first_kernels", lambda: [KERNEL])
    monkeypatch.setattr(load, "SMALL", -1)
    monkeypatch.setattr(compilation, "REPORTED", 300)
    settings.private_dir.cache_clear()
    registry.reset()
    yield tmp_path / "cache", lines
    settings.private_dir.cache_clear()
    registry.reset()


class Quick:
    """A compiler that has compiled the kernel before. The real one takes three seconds of a processor to begin.

    It may be done before the call that has begun it waits for it, which then begins another one: tests with it count no compilations.
    """

    def __init__(self, whole: bytes, folder: Path) -> None:
        self.whole, self.folder = whole, folder

    def compile(self, module: str, file: str) -> None:
        assert module == KERNEL
        (self.folder / file).write_bytes(self.whole)

    def close(self) -> None:
        """Be done."""


@pytest.fixture
def quick(fresh, whole, monkeypatch):
    """Begin as `fresh` does, with a compiler that takes no time."""
    monkeypatch.setattr(compilation, "Compiler", lambda _, folder: Quick(whole, folder))
    return fresh


def shard() -> list[int]:
    """Call the kernel as a process that has not loaded it does."""
    registry.reset()
    return kernels.shard_of(KEYS, 1, 1 << 20).tolist()


def test_compiled_once_then_loaded(fresh):
    """A cold cache is announced in one line, a warm one is silent."""
    folder, lines = fresh
    expected = shard()
    assert len(lines) == 1
    assert lines[0].startswith("compiling 1 kernel, once on this machine")
    assert [file.name for file in folder.glob("*.kernel")] == [load.file_name(KERNEL)]
    assert shard() == expected
    assert len(lines) == 1


def test_a_small_call_runs_as_python_until_the_compiler_is_done(quick, monkeypatch):
    """With the same result; a large one waits, and so does a small one when these took long enough."""
    folder, lines = quick
    expected = kernels.shard_of(KEYS, 1, 1 << 20).tolist()
    (folder / load.file_name(KERNEL)).unlink()
    calls, before = load.Interpretation(), len(lines)
    monkeypatch.setattr(load, "INTERPRETATION", calls)
    monkeypatch.setattr(load, "SMALL", 100)
    begun = Event()
    compiled = Quick.compile

    def compile_later(self, module, file):
        assert begun.wait(300)
        compiled(self, module, file)

    monkeypatch.setattr(Quick, "compile", compile_later)
    for _ in range(3):
        assert shard() == expected
    assert [file.name for file in folder.glob("*.kernel")] == []
    assert len(lines) == before + 1
    assert calls.seconds > 0
    begun.set()
    calls.ends[KERNEL].result()
    seconds = calls.seconds
    assert shard() == expected
    assert calls.seconds == seconds
    (folder / load.file_name(KERNEL)).unlink()
    large = np.arange(101).reshape(-1, 1)
    registry.reset()
    assert kernels.shard_of(large, 1, 1 << 20)[:2].tolist() == expected
    (folder / load.file_name(KERNEL)).unlink()
    calls.seconds = load.PATIENCE + 1
    assert shard() == expected
    assert calls.seconds == load.PATIENCE + 1


def test_who_waits_is_told_how_far_it_is(fresh, monkeypatch):
    """In kernels and seconds: no estimate is right on every machine."""
    _, lines = fresh
    monkeypatch.setattr(compilation, "REPORTED", 0.01)
    shard()
    assert len(lines) > 1
    assert all(re.fullmatch(r"compiling kernels: 0 of 1 after \d+ s", line) for line in lines[1:])


@pytest.mark.in_turn
@pytest.mark.slow
def test_a_damaged_file_is_compiled_again(quick):
    """Truncated, empty, changed: it is as good as none."""
    folder, lines = quick
    expected = shard()
    file = folder / load.file_name(KERNEL)
    whole = file.read_bytes()
    assert load.read(file) is not None
    before = len(lines)
    for damaged in (whole[:-100], b"", whole[:50] + b"X" + whole[51:]):
        file.write_bytes(damaged)
        assert load.read(file) is None
    assert shard() == expected
    assert load.read(file) is not None
    after = len(lines)
    assert after > before
    assert shard() == expected
    assert len(lines) == after


@pytest.mark.in_turn
def test_a_folder_that_is_not_writable_gives_way_to_a_temporary_one(quick, monkeypatch, tmp_path):
    """Private to the user, for code is run from it; without one either there is a message."""
    folder, lines = quick
    folder.write_text("a file where the folder should be")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    shard()
    before = len(lines)
    assert before
    shard()
    assert len(lines) == before
    (private,) = (tmp_path / "temporary").iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    settings.private_dir.cache_clear()
    private.chmod(0o777)
    assert settings.private_dir() == settings.private_dir() != private
    settings.private_dir.cache_clear()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(kernels.KernelError, match="can be kept neither"):
        shard()


@pytest.mark.in_turn
@pytest.mark.slow
def test_what_else_may_be_called_follows_in_the_background(fresh, monkeypatch):
    """It is announced with the rest."""
    folder, lines = fresh
    monkeypatch.setattr(load, "first_kernels", lambda: [KERNEL, OTHER])
    shard()
    assert len(lines) == 1
    assert lines[0].startswith("compiling 2 kernels,")
    COMPILATION.wait_for(COMPILATION.begin(OTHER, {OTHER: folder / load.file_name(OTHER)}))
    assert {file.name for file in folder.glob("*.kernel")} == {load.file_name(KERNEL), load.file_name(OTHER)}


@pytest.mark.slow
def test_of_many_first_runs_one_compiles(quick):
    """Another waits for it, and takes the file that it wrote."""
    folder, _ = quick
    shard()
    path = folder / load.file_name(KERNEL)
    before = path.stat().st_ino
    with (folder / "compiling").open("w+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, zlib.crc32(path.name.encode()))
        compiler = Compiler(settings.targets()[0], folder)
        done = Event()

        def compile_it():
            compiler.compile(KERNEL, path.name)
            done.set()

        thread = Thread(target=compile_it)
        thread.start()
        assert not done.wait(3)
    assert done.wait(300)
    thread.join()
    compiler.close()
    assert path.stat().st_ino == before


def test_code_that_is_no_kernel_is_never_left_to_the_compiler(fresh):
    """It would make nothing of it, which later runs would load."""
    folder, _ = fresh
    load.addresses(KERNEL, [KERNEL, arrow.__name__])
    COMPILATION.begin(KERNEL, {KERNEL: folder / load.file_name(KERNEL)}).result()
    assert not (folder / load.file_name(arrow.__name__)).exists()
    assert len(load.addresses(arrow.__name__)) == 3


def test_a_failure_to_compile_shows_why(fresh, monkeypatch):
    """With the compiler's own words."""
    monkeypatch.setattr(load, "file_name", lambda _: "missing/folder.kernel")
    with pytest.raises(kernels.KernelError, match=r"could not be compiled: .*No such file"):
        shard()


def test_a_warm_process_imports_no_compiler_and_no_polars():
    """That is what the files are for."""
    kernels.shard_of(KEYS, 1, 2)
    program = (
        "import sys, numpy as np; from ddcli.engine import kernels; kernels.shard_of(np.array([[0], [1]]), 1, 2);"
        "assert not {'numba', 'llvmlite.binding', 'polars'} & set(sys.modules), sorted(sys.modules)"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})


def test_importing_the_kernels_loads_nothing():
    """Not even llvmlite, before a kernel is called."""
    program = "import sys, ddcli.engine.kernels; assert not {'numba', 'llvmlite', 'polars'} & set(sys.modules)"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})


M, V = np.ones((2, 2), np.int64), np.zeros(3, np.int64)
WRONG = {
    "a float": (M, M, M, V, 1.0),
    "none": (M, M, M, None, 1),
    "a list": (M, [[1]], M, V, 1),
    "another type": (M, M.astype(np.int32), M, V, 1),
    "unsigned": (M, M.astype(np.uint64), M, V, 1),
    "another order of bytes": (M, M.astype(">i8"), M, V, 1),
    "not contiguous": (M, M, np.ones((2, 4), np.int64)[:, ::2], V, 1),
    "other dimensions": (V, M, M, V, 1),
    "more than 64 bits": (M, M, M, V, 2**63),
    "less than 64 bits": (M, M, M, V, -(2**63) - 1),
    "too few": (M, M, M, V),
    "too many": (M, M, M, V, 1, 1),
    "nothing": (),
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_refused(arguments):
    """Compiled and interpreted alike: nothing is read from what is not the array that it should be."""
    for _ in range(2):
        with pytest.raises(TypeError, match=r"kernel merge_some (must be|takes 5 arguments)"):
            merge_some(*arguments)
    with interpreted(), pytest.raises(TypeError):
        merge_some(*arguments)


def test_lists_of_matrices_are_checked_through():
    """Every matrix of a list."""
    good = np.ones((1, 3), np.int64)
    for mode in (interpreted, __import__("contextlib").nullcontext):
        with mode(), pytest.raises(TypeError, match="list of int64 matrices"):
            kernels.join([good, good.astype(float)], [good], 1, 1, np.array([0]))


def test_unknown_letters_are_refused():
    """When the kernel is defined."""
    with pytest.raises(ValueError, match="unknown letter"):
        load.kernel("MX")(lambda m, x: 0)


def test_the_place_of_the_cache(monkeypatch, tmp_path):
    """As set, else DDCLI_CACHE_DIR, else the user's."""
    monkeypatch.setattr(settings, "_cache_dir", None)
    monkeypatch.setenv("DDCLI_CACHE_DIR", str(tmp_path / "named"))
    assert settings.cache_dir() == tmp_path / "named"
    monkeypatch.delenv("DDCLI_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert settings.cache_dir() == tmp_path / "xdg" / "ddcli"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert settings.cache_dir().parts[-3:] == ("Library", "Caches", "ddcli")
    kernels.set_cache_dir(tmp_path)
    assert settings.cache_dir() == tmp_path


def test_the_line_goes_to_stderr_unless_someone_listens(monkeypatch, capsys):
    """`--quiet` listens and says nothing."""
    monkeypatch.setattr(settings, "_listener", settings.to_stderr)
    settings.announce("a line")
    assert capsys.readouterr().err == "a line\n"
    kernels.set_announce(lambda _: None)
    settings.announce("a line")
    assert capsys.readouterr().err == ""


def test_a_layout_that_compiled_code_can_not_read_is_an_error(monkeypatch):
    """Rather than a crash."""
    registry.check_layout()
    monkeypatch.setattr(registry, "HEADER_WORDS", registry.HEADER_WORDS - 1)
    with pytest.raises(registry.KernelError, match="lays out"):
        registry.check_layout()


def test_the_kernels_that_a_first_run_calls_are_there():
    """A kernel with another name would be left to the first run to compile."""
    assert {*everything()} >= {f"{KERNELS}.{name}" for name in FIRST}
    assert len({*FIRST}) == len(FIRST)
