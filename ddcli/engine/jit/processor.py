"""Targets: the kinds of processors that code is compiled for, by names that identify their instructions."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

V3 = "x86-64-v3"
"""LLVM's name of the processors that have AVX2: Intel's since 2013, AMD's since 2015."""
HAS_V3 = {
    *("abm", "avx", "avx2", "bmi1", "bmi2", "cx16", "f16c", "fma", "lahf_lm", "movbe", "pni", "popcnt", "sse4_1"),
    *("sse4_2", "ssse3"),
}
"""Linux's names of the instructions that these have beyond those that all of x86-64 have."""
FACTS = Path("/proc/cpuinfo")
IDENTITY = ("vendor_id", "cpu family", "model", "stepping", "flags")


def takes_images() -> bool:
    """Return whether code for this machine is linked to images that any process loads; elsewhere LLVM loads it."""
    return sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 1 << 32


@cache
def targets() -> tuple[str, ...]:
    """Return the targets whose code this processor runs; the first is the processor itself. Empty if nothing is known of it."""
    facts = _facts() if takes_images() else {}
    if not all(name in facts for name in IDENTITY):
        return _described_by_llvm()
    own = " ".join(facts[name] for name in IDENTITY)
    return (own, V3) if HAS_V3.issubset(facts["flags"].split()) else (own,)


def _facts() -> dict[str, str]:
    """Return Linux's facts of the first processor; empty if it does not show them."""
    found = {}
    try:
        with FACTS.open(encoding="ascii", errors="replace") as file:
            for line in iter(file.readline, ""):
                name, mark, value = line.partition(":")
                if not mark:
                    break
                found[name.strip()] = value.strip()
    except OSError:
        pass
    return found


def _described_by_llvm() -> tuple[str, ...]:
    try:
        import llvmlite.binding as llvm
    except ImportError:  # nothing is compiled either
        return ()
    return (" ".join([llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]),)
