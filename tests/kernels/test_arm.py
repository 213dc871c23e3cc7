"""Kernels compiled for ARM, run by an emulator: by the same bytes as a wheel for Linux on ARM carries, at two addresses."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ddcli.engine import kernels
from ddcli.engine.jit import bundled_kernels, linker, load, settings
from ddcli.engine.jit.object_code import translate
from ddcli.engine.jit.registry import Image
from ddcli.engine.kernels import hashes
from tests.kernels.test_image import CODE, KEYS, SHARDS

unicorn = pytest.importorskip("unicorn", reason="there is no emulator for this machine")
from unicorn import arm64_const as registers  # noqa: E402

pytestmark = pytest.mark.skipif(not settings.takes_images(), reason="images are made on Linux on x86-64")

PLACES = [1 << 24, (1 << 32) + (1 << 16)]
STACK, OUTSIDE, RETURN, PAGE = 1 << 40, 1 << 41, 1 << 42, 4096
RET = 0xD65F03C0
FUNCTIONS = {"PyErr_Occurred": [0xD2800000, RET], "strlen": [0xD2800080, RET]}
"""Functions outside, by the instructions: those that return 0 and 4; others return their argument."""


class Machine:
    """An emulated processor with an image in its memory, and what this process has at the same addresses."""

    def __init__(self, image: Image, place: int) -> None:
        self.emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.image, self.place, self.shared = image, place, set()
        size = -(-len(image.content) // PAGE) * PAGE
        self.emulator.mem_map(place, size)
        self.emulator.mem_write(place, image.content)
        for each in (STACK, OUTSIDE, RETURN):
            self.emulator.mem_map(each, PAGE * 16)
        for number, (name, slot) in enumerate(image.slots.items()):
            code = b"".join(word.to_bytes(4, "little") for word in FUNCTIONS.get(name, [RET]))
            self.emulator.mem_write(OUTSIDE + number * 16, code)
            self.emulator.mem_write(place + slot, (OUTSIDE + number * 16).to_bytes(8, "little"))
        self.emulator.mem_protect(place, image.written, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)

    def share(self, address: int, length: int) -> int:
        """Have memory of this process in the emulated machine's, too."""
        for page in range(address // PAGE, (address + length - 1) // PAGE + 1):
            if page not in self.shared:
                self.shared.add(page)
                self.emulator.mem_map_ptr(page * PAGE, PAGE, unicorn.UC_PROT_ALL, page * PAGE)
        return address

    def call(self, name: str, *arguments: int) -> int:
        """Call a function of the image with words."""
        for register, value in zip(
            (registers.UC_ARM64_REG_X0, registers.UC_ARM64_REG_X1, registers.UC_ARM64_REG_X2), arguments, strict=False
        ):
            self.emulator.reg_write(register, value)
        self.emulator.reg_write(registers.UC_ARM64_REG_SP, STACK + PAGE * 16)
        self.emulator.reg_write(registers.UC_ARM64_REG_LR, RETURN)
        self.emulator.emu_start(self.place + self.image.functions[name], RETURN)
        return self.emulator.reg_read(registers.UC_ARM64_REG_X0)


@pytest.mark.parametrize("place", PLACES)
def test_code_reaches_its_data_and_functions_outside(place):
    code = translate(CODE, settings.AARCH64)
    machine = Machine(linker.image_of(code), place)
    assert [machine.call("add", 2), machine.call("add", 1)] == [7, 8]
    assert machine.call("length", 0) == 4
    assert machine.image.written % linker.ARM_PAGE == 0


@pytest.mark.parametrize("place", PLACES)
def test_a_kernel(tmp_path, place):
    """Its arguments are this process's arrays; integers stand for themselves, as the functions that make objects of them return their argument."""
    bundled_kernels.compile_into(tmp_path, [SHARDS], [settings.AARCH64])
    file = tmp_path / load.carried_name(SHARDS, settings.AARCH64)
    image = load.read(file)
    assert isinstance(image, Image)
    machine = Machine(image, place)
    keys, out = np.ascontiguousarray(KEYS), np.zeros(len(KEYS), np.int64)
    own = [np.ndarray, list, hashes.assign_shards.refuse]
    for array in (keys, out):
        machine.share(id(array), 200)
        machine.share(array.ctypes.data, array.nbytes)
        machine.share(ctypes.c_int64.from_address(id(array) + 32).value, 16)
        machine.share(id(array.dtype), 64)
    machine.share(id(own), 64)
    machine.share(ctypes.c_int64.from_address(id(own) + 24).value, 24)
    given = np.array([id(keys), 1, 1 << 20, id(out)])
    machine.share(given.ctypes.data, given.nbytes)
    assert machine.call("assign_shards", id(own), given.ctypes.data, 4) == 0
    assert out.tolist() == kernels.shard_of(KEYS, 1, 1 << 20).tolist()
