"""Images: machine code that runs at any address, without a compiler; those that a wheel carries are made and loaded here."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from ddcli.engine import kernels
from ddcli.engine.jit import bundled_kernels, linker, load, object_code, registry, settings
from ddcli.engine.kernels import hashes
from ddcli.version import install_command

pytestmark = pytest.mark.skipif(not settings.takes_images(), reason="images are for Linux on x86-64")

SHARDS, LENDING = "ddcli.engine.kernels.hashes.assign_shards", "ddcli.engine.arrow"
KEYS = np.array([[3], [5], [8]])


def alone(script: str, *arguments: object) -> str:
    """Run a script in a process in which no compiler can be imported, and return what it prints."""
    begin = "import sys; sys.modules |= dict.fromkeys(['numba', 'llvmlite']); from pathlib import Path\n"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", begin + script, *map(str, arguments)]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path, "DDCLI_KERNELS": ""}
    ).stdout


CARRIED = """
import ctypes, json, numpy as np
from ddcli.engine import arrow, kernels
from ddcli.engine.jit import load, registry, settings
from ddcli.engine.kernels import text_syntax

load.CARRIED = Path(sys.argv[1])
own, *others = settings.targets()
found = []
for target in json.loads(sys.argv[2]):
    settings.targets = lambda: (target,)
    registry.reset()
    found.append(kernels.shard_of(np.array([[3], [5], [8]]), 1, 1 << 20).tolist())
words = (ctypes.c_int64 * 10)()
words[9] = arrow.export_buffers("kept")
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(arrow.functions().array_came_back)(ctypes.addressof(words))
arrow.release_returned()
found.append(len(arrow._lent))
try:
    load.addresses(text_syntax.csv_is_sound.full_name)
except registry.KernelError as error:
    found.append([error.problem, error.hint])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_what_a_wheel_carries_runs_without_a_compiler(tmp_path):
    """For this processor and for all that are like it; what is damaged or missing is an error that says what to install."""
    bundled_kernels.compile_into(tmp_path, [SHARDS, LENDING], [settings.targets()[0], settings.V3])
    expected = kernels.shard_of(KEYS, 1, 1 << 20).tolist()
    targets = settings.targets()
    *found, lent, (problem, hint) = json.loads(alone(CARRIED, tmp_path, json.dumps(targets)))
    assert found == [expected] * len(targets)
    assert lent == 0
    assert "numba" in problem
    assert hint == install_command("compile")
    for target in targets:
        file = tmp_path / load.carried_name(SHARDS, target)
        file.write_bytes(file.read_bytes()[:-1] + b"X")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        alone(CARRIED, tmp_path, json.dumps(targets))
    assert "there are no compiled kernels for this machine" in failed.value.stderr


def test_threads_that_compile_for_two_targets_name_files_alike(monkeypatch):
    """A wheel whose files are named otherwise than their readers name them carries nothing."""
    expected = load.carried_name(SHARDS, settings.V3)
    read = Path.read_bytes

    def read_slowly(path):
        time.sleep(0.002)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_slowly)
    load._digest.cache_clear()
    load._ours.cache_clear()
    with ThreadPoolExecutor() as threads:
        assert set(threads.map(partial(load.carried_name, SHARDS), [settings.V3] * 3)) == {expected}


OBJECTS = """
from ddcli.engine.jit import settings
settings.takes_images = lambda: False
from ddcli.engine.jit import compile, linker, load, registry
from ddcli.engine.kernels import hashes

def refuse(codes):
    raise registry.KernelError("code of a kind that no linker knows")

linker.image_of = refuse
made = {compile.matrix_of: compile.matrix_of_compiled}
load.write(Path(sys.argv[1]), linker.linked([compile.compile_kernel(hashes.assign_shards, made)]))
"""


@pytest.mark.in_turn
def test_code_that_can_not_be_linked_is_loaded_by_llvm(tmp_path, monkeypatch):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", "import sys; from pathlib import Path" + OBJECTS, tmp_path / "shards"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    expected = kernels.shard_of(KEYS, 1, 1 << 20).tolist()
    code = load.read(tmp_path / "shards")
    assert isinstance(code, list)
    monkeypatch.setattr(load, "carried", lambda _: code)
    hashes.assign_shards.reset()
    assert kernels.shard_of(KEYS, 1, 1 << 20).tolist() == expected
    hashes.assign_shards.reset()


CODE = """
declare i64 @strlen(ptr)
declare void @no_such_function()
@count = internal global i64 5

define i64 @length(ptr %text) {
  %result = call i64 @strlen(ptr %text)
  ret i64 %result
}
define void @fail() {
  call void @no_such_function()
  ret void
}
define i64 @add(i64 %more) {
  %before = load i64, ptr @count
  %after = add i64 %before, %more
  store i64 %after, ptr @count
  ret i64 %after
}
"""
ELSEWHERE = """
@theirs = external global i64

define i64 @read() {
  %result = load i64, ptr @theirs
  ret i64 %result
}
"""


def objects_of(text: str) -> list[object_code.ObjectCode]:
    """Return the object code of functions in LLVM's language."""
    parsed = llvm.parse_assembly(text)
    code = object_code.target_machine(reloc="pic", codemodel="small").emit_object(parsed)
    return [
        object_code.ObjectCode({each.name: each.name for each in parsed.functions if not each.is_declaration}, [], code)
    ]


def test_images_have_data_of_their_own_and_call_functions_outside():
    image = linker.image_of(objects_of(CODE))
    first, second = image.load(), image.load()
    integer = ctypes.c_int64
    adds = [ctypes.CFUNCTYPE(integer, integer)(each["add"]) for each in (first, second)]
    assert [adds[0](2), adds[0](1), adds[1](1)] == [7, 8, 6]
    assert ctypes.CFUNCTYPE(integer, ctypes.c_char_p)(first["length"])(b"four") == 4
    if (child := os.fork()) == 0:
        faulthandler.disable()
        ctypes.CFUNCTYPE(None)(first["fail"])()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGABRT


def test_code_that_can_not_be_linked_is_refused():
    """Such as would read data of others: no kernel does."""
    with pytest.raises(registry.KernelError, match="refers to theirs"):
        linker.image_of(objects_of(ELSEWHERE))


def test_no_wheel_carries_code_that_can_not_be_linked(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled_kernels, "find", lambda _: (tmp_path, objects_of(CODE)))
    with pytest.raises(registry.KernelError, match="can't be linked"):
        bundled_kernels.compile_into(tmp_path, [SHARDS], [settings.V3])
    assert not list(tmp_path.iterdir())


def test_memory_that_may_not_be_run_is_an_error(monkeypatch):
    class Forbidden:
        def __init__(self, *_, **__):
            ctypes.set_errno(13)

        def mprotect(self, *_):
            return -1

    image = linker.image_of(objects_of(CODE))._replace(slots={})
    monkeypatch.setattr(ctypes, "CDLL", Forbidden)
    with pytest.raises(registry.KernelError, match="Permission denied"):
        image.load()


def test_a_processor_takes_what_it_has_the_instructions_for(tmp_path, monkeypatch):
    """First what was made for it."""

    def targets(flags):
        settings.targets.cache_clear()
        (tmp_path / "facts").write_text(
            "".join(f"{name}\t: {flags if name == 'flags' else 1}\n" for name in settings.IDENTITY) + "\nflags: \n"
        )
        return settings.targets()

    monkeypatch.setattr(settings, "FACTS", tmp_path / "facts")
    enough = " ".join(settings.HAS_V3)
    assert targets(enough)[1:] == (settings.V3,)
    assert targets("avx512f " + enough)[1:] == (settings.V3,)
    assert targets("avx512f " + enough)[0] != targets(enough)[0]
    assert targets(enough.replace("avx2", "avx"))[1:] == ()
    monkeypatch.setattr(settings, "FACTS", tmp_path / "none")
    settings.targets.cache_clear()
    assert len(settings.targets()) == 1
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    settings.targets.cache_clear()
    assert settings.targets() == ()
    settings.targets.cache_clear()
