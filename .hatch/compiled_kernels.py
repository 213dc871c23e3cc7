"""The build hook: a wheel carries compiled kernels, if the machine that builds it takes them. An editable installation compiles what it calls.

With DDCLI_WHEEL=aarch64 the wheel is one for Linux on ARM, which is built on x86-64, too.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TAG = "py3-none-manylinux_2_17_{0}.musllinux_1_1_{0}"
"""Kernels need no function but some of any C library's, and know no version of Python."""


class CompiledKernels(BuildHookInterface):
    """Puts a folder of compiled kernels into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile what `ddcli.engine.jit.bundled_kernels` lists."""
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory()
        other = os.environ.get("DDCLI_WHEEL")
        if other not in (None, "aarch64"):
            sys.exit(f"DDCLI_WHEEL={other}: kernels are compiled for no other machine than aarch64")
        command = [
            sys.executable,
            "-P",
            "-m",
            "ddcli.engine.jit.bundled_kernels",
            self.folder.name,
            *filter(None, [other]),
        ]
        # pip's environment for builds is on PYTHONPATH, with numba and numpy.
        path = os.pathsep.join(filter(None, (self.root, os.environ.get("PYTHONPATH"))))
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)  # noqa: S603 - this Python, our own module
        if any(Path(self.folder.name).iterdir()):
            build_data |= {"pure_python": False, "tag": TAG.format(other or "x86_64")}
            build_data["force_include"][self.folder.name] = "ddcli/engine/jit/compiled"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder, whose files are in the wheel."""
        if version != "editable":
            self.folder.cleanup()
