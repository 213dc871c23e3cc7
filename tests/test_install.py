"""Installing: the checkout, the source distribution and the wheel, by pip and by uv, each built in isolation; and the commands that install extras."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddcli import version
from ddcli.engine.jit.settings import cache_dir, takes_images
from tests.draws import EFFORT, TURN, WHOLE
from tests.harness import ROOT

UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
NEEDS_UV = pytest.mark.skipif(UV is None, reason="needs uv")
BARE = {name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
"""The environment of a person: nothing of that of the tests."""


def call(*words, **settings):
    """Return what a command prints; it must succeed."""
    done = subprocess.run(
        [*map(str, words)], env=BARE | settings, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Return a package of those that build ours, as the index has it; CI may not do without."""
    folder = tmp_path_factory.mktemp("index")
    words = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "hatchling"]
    if subprocess.run([sys.executable, *words], env=BARE, timeout=600, check=False).returncode and not os.environ.get(
        "CI"
    ):
        pytest.skip("no index of packages can be reached")
    return folder


@pytest.fixture(scope="module")
def environments(tmp_path_factory, index):
    """Return a function from a tool to its environment: Python, the words that install, and the folder of its wheel and source distribution."""
    made = {}

    def environment(tool):
        if tool not in made:
            folder = tmp_path_factory.mktemp(tool)
            python = folder / "venv/bin/python"
            # What the kernels of a wheel are compiled from is in the cache of this user, if `make` has compiled them.
            if tool == "pip":
                call(sys.executable, "-m", "venv", folder / "venv")
                install = [python, "-m", "pip", "install", "--quiet"]
                call(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder)
                (source,) = folder.glob("*.tar.gz")
                call(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
            else:
                call(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
                install = [UV, "pip", "install", "--quiet", "--python", python]
                call(UV, "build", "--quiet", "--out-dir", folder, ROOT)
            (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
            made[tool] = (python, install, {"checkout": ROOT, "source": source, "wheel": wheel})
        return made[tool]

    return environment


WAYS = [
    *(("pip", kind) for kind in ("checkout", "wheel")),  # the wheel is made of the source distribution
    *(pytest.param("uv", kind, marks=NEEDS_UV) for kind in ("checkout", "source", "wheel")),
]
"""Each takes half a minute: where little is tried, one of them each day."""


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "kind"), WAYS if EFFORT >= WHOLE else [WAYS[TURN % len(WAYS)]])
def test_an_empty_environment_runs_what_is_installed_there(environments, tmp_path, tool, kind):
    """Built with what pyproject.toml asks for alone, and with compiled kernels: a run compiles none."""
    python, install, sources = environments(tool)
    remove = [UV, "pip", "uninstall", "--python", python] if tool == "uv" else [python, "-m", "pip", "uninstall", "-y"]
    subprocess.run([*remove, "ddcli"], env=BARE, capture_output=True, check=False)
    call(*install, sources[kind], DDCLI_CACHE_DIR=str(cache_dir()))
    dd = python.with_name("ddcli")
    here = {"DDCLI_CACHE_DIR": str(tmp_path / "cache")}
    call(dd, "init", tmp_path / "sales")
    call(dd, "run", tmp_path / "sales/sales.yaml", **here)
    assert (tmp_path / "sales/out/sales").is_dir()
    assert not takes_images() or not list((tmp_path / "cache").rglob("*.kernel"))
    facts = json.loads(call(dd, "doctor", "-o", "json", **here))
    assert facts["packages"]["numba"] is None
    assert facts["kernels"]["compiled"] == (facts["kernels"]["of"] if takes_images() else 0)
    assert (
        call(python, "-c", "from importlib.util import find_spec as f; print(f('pyspark_dd') is not None)") == "True\n"
    )
    told = call(python, "-c", "from ddcli.version import install_command as f; print(f('s3'))").strip()
    assert told == f"pip install {shlex.quote(f'{sources[kind]}[s3]')}"


@pytest.mark.parametrize(
    ("recorded", "wanted"),
    [
        (None, "pip install 'ddcli[s3]'"),
        ({"url": "file:///srv/my%20dd", "dir_info": {}}, "pip install '/srv/my dd[s3]'"),
        ({"url": "file:///srv/dd", "dir_info": {"editable": True}}, "pip install --editable '/srv/dd[s3]'"),
        (
            {"url": "file:///srv/dd-1-py3-none-any.whl", "archive_info": {}},
            "pip install '/srv/dd-1-py3-none-any.whl[s3]'",
        ),
        (
            {"url": "https://example.com/dd.tar.gz", "archive_info": {}},
            "pip install 'ddcli[s3] @ https://example.com/dd.tar.gz'",
        ),
        (
            {"url": "ssh://git@example.com/dd.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "pip install 'ddcli[s3] @ git+ssh://git@example.com/dd.git@ab12'",
        ),
        (
            {
                "url": "https://me:token@example.com/all.git",
                "vcs_info": {"vcs": "git", "commit_id": "ab12"},
                "subdirectory": "dd",
            },
            "pip install 'ddcli[s3] @ git+https://example.com/all.git@ab12#subdirectory=dd'",
        ),
        (
            {"url": "file:///srv/dd.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "pip install 'ddcli[s3] @ git+file:///srv/dd.git@ab12'",
        ),
    ],
)
def test_extras_come_from_where_the_package_came_from(monkeypatch, recorded, wanted):
    monkeypatch.setattr(version, "origin", lambda: recorded)
    assert version.install_command("s3") == wanted


@pytest.mark.parametrize(
    ("file", "command"), [("pipx_metadata.json", "pipx install --force"), ("uv-receipt.toml", "uv tool install")]
)
def test_extras_come_into_the_environment_of_the_command(monkeypatch, tmp_path, file, command):
    """As the hint of pip would put them into another one."""
    (tmp_path / file).touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(version, "origin", lambda: {"url": "file:///srv/dd", "dir_info": {}})
    assert version.install_command("s3") == f"{command} '/srv/dd[s3]'"


def test_a_checkout_that_is_not_installed_is_its_own_origin(monkeypatch):
    monkeypatch.setattr("importlib.metadata.distribution", missing_distribution)
    assert version.origin() == {"url": ROOT.as_uri(), "dir_info": {"editable": True}}


def missing_distribution(name):
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)
