"""The checks of `dd doctor --spark`: whether Spark starts, and whether its executors can run tasks."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import socket
from contextlib import contextmanager
from importlib import metadata
from itertools import islice
from pickle import dumps, loads
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.engine.counts import SILENT
from ddcli.errors import DdError
from ddcli.job.sizes import REMOTE
from ddcli.runtime.placement import check_installed, start
from ddcli.runtime.spark.classic import java_home, version_of
from ddcli.runtime.spark.session import ASK_LESS, NO_EXECUTOR
from ddcli.runtime.task import SHARED
from ddcli.store.files.access import fs, real
from ddcli.store.files.buckets import adopt_settings, settings_in_use
from ddcli.store.files.gate import Files
from ddcli.version import __version__, package_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ddcli.job.sizes import SparkOptions
    from ddcli.runtime.spark.plans import Spark

PACKAGES = ("polars", "pyarrow", "numpy", "pyspark")
"""Packages whose versions must agree on all machines: plans and results are pickled."""
ASKED = "asked"
SOME = 5
"""Entries of a directory that must be on all machines."""
ROUNDS = 3
"""Tasks for each slot, so that every executor has some."""


@frozen
class Finding:
    """The result of one check: the finding, or the problem and a hint. Its fields are the fields of `dd doctor --spark -o json`."""

    name: str
    ok: bool
    said: str
    hint: str | None = None


@frozen
class HostFacts:
    """The facts that a task finds on its machine: the host, its Python, versions of packages, and why the state, inputs and outputs can't be used."""

    host: str
    python: str
    versions: dict[str, str | None]
    refused: str | None
    lacking: dict[str, str]
    """The reason for each input and output that can't be opened."""


def checks(
    options: SparkOptions, state: Path, cache: Path, paths: Mapping[str, Path] | None = None
) -> Iterator[Finding]:
    """Yield the result of each check, up to the first failure that makes the rest pointless. Leaves no file in `state`.

    `paths` has the inputs and outputs by their names for people.
    """
    step = "pyspark"
    try:
        check_installed(options)
        yield Finding(step, ok=True, said=metadata.version("pyspark"))
        if options.master is None or not options.master.startswith(REMOTE):
            step = "java"
            home = java_home(cache) or os.environ.get("JAVA_HOME")
            command = f"{home}/bin/java" if home else shutil.which("java") or "java"
            yield Finding(step, ok=True, said=f"{version_of(command)} at {command}")
        step = "session"
        spark = start(options, "doctor", cache)
        try:
            pages = f", its pages at {spark.page}" if spark.page else ""
            yield Finding(step, ok=True, said=f"{spark.master}, {spark.slots} tasks at once{pages}")
            if spark.is_waiting:
                yield Finding("executors", ok=False, said=NO_EXECUTOR, hint=ASK_LESS)
                return
            step = "state"
            with _place(state, Files()) as (place, asked):
                step = "executors"
                yield from _executors(spark, state, place, asked, paths or {})
        finally:
            spark.close()
    except DdError as error:
        where = f"{error.place}: " if error.place else ""
        yield Finding(step, ok=False, said=f"{where}{error.problem}", hint=error.hint)


def _executors(spark: Spark, state: Path, place: Path, asked: bytes, paths: Mapping[str, Path]) -> Iterator[Finding]:
    """Run tasks that report their machine, and compare their reports with this one."""
    tasks = [b""] * (ROUNDS * spark.slots)
    there = {what: _places(path) for what, path in paths.items()}
    done = spark.run(look, dumps((place, asked, there, settings_in_use())), tasks, "dd doctor", SILENT)
    found: list[HostFacts] = [loads(each) for each in done]  # noqa: S301
    written = sum(path.name != ASKED for path in place.iterdir())
    hosts = sorted({each.host for each in found})
    yield Finding("executors", ok=True, said=f"{len(found)} tasks done, on {', '.join(hosts)}")
    here = _versions()
    hint = "name the same Python with PYSPARK_PYTHON"
    yield _same("python", {each.host: each.python for each in found}, _minor(), hint)
    for name, version in here.items():
        installed = {each.host: each.versions.get(name) or "none" for each in found}
        yield _same(name, installed, version or "none", f"install {name} {version} there, as it is here")
    refused = {each.host: each.refused for each in found if each.refused}
    if refused:
        host, why = next(iter(refused.items()))
        yield Finding("state", ok=False, said=f"an executor can't use {state}: {host}: {why}", hint=SHARED)
    elif written < len(found):
        yield Finding("state", ok=False, said=f"what executors write at {state} is not visible here", hint=SHARED)
    else:
        yield Finding("state", ok=True, said=f"{state} can be read and written by all")
    lacking = {what: (each.host, why) for each in found for what, why in each.lacking.items()}
    for what, (host, why) in lacking.items():
        yield Finding(
            "paths", ok=False, said=f"an executor can't open the {what}, {there[what][0]}: {host}: {why}", hint=SHARED
        )
    if paths and not lacking:
        yield Finding("paths", ok=True, said="all can open the inputs and outputs")


def _places(path: Path) -> list[Path]:
    """Return a path, or the nearest directory above it that exists: an output's may not have been made yet, an input's may be a pattern. Then some of its content.

    A machine may have another directory of the same name.
    """
    if not fs(path).has_directories:
        path.is_dir()  # so that the store answers here, with the settings that executors get
        return [path]
    found = next(each for each in (path, *path.parents) if each.exists())
    content = found.iterdir() if found.is_dir() else ()
    shown = (each for each in content if not each.name.startswith("."))  # hidden ones come and go
    return [found, *islice(shown, SOME)]


@contextmanager
def _place(state: Path, files: Files) -> Iterator[tuple[Path, bytes]]:
    """Make a directory in a state, with a file; yield both. At the end remove it, and the state if this made it."""
    place, asked = real(state) / f"doctor-{secrets.token_hex(4)}", secrets.token_bytes(16)
    made = files.make_directory(place)
    try:
        files.write(place / ASKED, asked)
        yield place, asked
    finally:
        for path in list(place.iterdir()):
            files.remove(path)
        for directory in reversed(made):
            files.remove_directory(directory)


def look(common: bytes, _task: bytes, attempt: str) -> bytes:
    """Return the pickled `HostFacts` of this machine: called in a Python process of an executor."""
    place, asked, paths, store = loads(common)  # noqa: S301
    adopt_settings(store)
    refused, lacking = None, {}
    try:
        if (place / ASKED).read_bytes() != asked:
            refused = "its content is not what was written here"
        Files().write(real(place) / attempt, asked)
    except OSError as error:
        refused = error.strerror or str(error)
    except DdError as error:
        refused = error.problem
    for what, (path, *content) in paths.items():
        try:  # an object store has no directories: it only must answer
            if not path.is_dir() and fs(path).has_directories and not path.exists():
                lacking[what] = "there is none"
            elif gone := [each for each in content if not os.path.lexists(each)]:
                lacking[what] = f"it has no {gone[0].name}, which is here"
        except (DdError, OSError) as error:
            lacking[what] = error.problem if isinstance(error, DdError) else error.strerror or str(error)
    return dumps(HostFacts(socket.gethostname(), _minor(), _versions(), refused, lacking))


def _minor() -> str:
    """Return this Python's minor version: only the same one reads functions that it pickled."""
    return ".".join(platform.python_version_tuple()[:2])


def _versions() -> dict[str, str | None]:
    """Return the versions of the packages that must agree."""
    return {"ddcli": __version__, **{package: package_version(package) for package in PACKAGES}}


def _same(name: str, hosts: dict[str, str], here: str, hint: str) -> Finding:
    """Return whether all hosts have the version of this machine."""
    others = [f"{host} has {version}" for host, version in sorted(hosts.items()) if version != here]
    if others:
        return Finding(name, ok=False, said=f"{here} here, but {', '.join(others)}", hint=hint)
    return Finding(name, ok=True, said=f"{here} everywhere")
