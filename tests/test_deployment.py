"""The files that other programs start `dd` from: each is right by the tool that reads it, and the steps of the action do what they say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.harness import ROOT

BIN = Path(sys.executable).parent
ACTION = ROOT / ".github/actions/dd/action.yml"
STEPS = yaml.safe_load(ACTION.read_text())["runs"]["steps"]


def called(*words, **options):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=300, **options)


@pytest.mark.skipif(not (BIN / "hadolint").exists(), reason="there is no hadolint for this machine")
def test_the_dockerfile():
    done = called(BIN / "hadolint", "--no-color", ROOT / ".docker/Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-actions", ACTION),
        ("vendor.github-workflows", ROOT / "ddcli/cli/starter/dot-github/workflows/dd.yml"),
    ],
    ids=["action", "workflow"],
)
def test_files_of_github(schema, file):
    done = called(BIN / "check-jsonschema", "--builtin-schema", schema, file)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(not (BIN / "actionlint").exists(), reason="there is no actionlint for this machine")
def test_workflows(tmp_path):
    """Those of the pages, and that of `dd init`: actionlint knows the inputs of our action, and versions of others' that GitHub no longer runs."""
    workflows = tmp_path / ".github/workflows"
    shutil.copytree(ACTION.parent, tmp_path / ".github/actions/dd")
    shutil.copytree(ROOT / "ddcli/cli/starter/dot-github/workflows", workflows)
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    found = dict(re.findall(r"```\w+\n# \.github/workflows/(\S+)\n(.*?)```", pages, re.DOTALL))
    assert len(found) >= 4
    for name, text in found.items():
        (workflows / name).write_text(text.replace("you/dd/.github/actions/dd@main", "./.github/actions/dd"))
    assert called("git", "init", "-q", cwd=tmp_path).returncode == 0
    done = called(BIN / "actionlint", "-no-color", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    wrong = workflows / "orders.yml"
    wrong.write_text(wrong.read_text().replace("key: id", "keys: id"))
    assert 'input "keys" is not defined' in called(BIN / "actionlint", "-no-color", cwd=tmp_path).stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_the_timer(tmp_path):
    """By systemd's own reader; the program that it starts is not on this machine."""
    page = (ROOT / "docs/deploy.md").read_text()
    units = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", page, re.DOTALL)
    for name, text in units:
        (tmp_path / name).write_text(text.replace("/srv/shop/.venv/bin/ddcli", "/bin/true"))
    done = called("systemd-analyze", "verify", *(tmp_path / name for name, _ in units))
    assert ([name for name, _ in units], done.returncode, done.stderr) == (
        ["dd-orders.service", "dd-orders.timer"],
        0,
        "",
    )


def test_what_the_image_is_built_from():
    """All that the wheel needs passes `.dockerignore`."""
    passed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"ddcli", ".hatch", "pyproject.toml", "README.md", "LICENSE"} <= passed
    assert all((ROOT / name).exists() for name in passed)


@pytest.fixture
def ran(shop):
    """Return a folder with a pipeline that has run, and a `gh` that notes what it is called with."""
    for name in ("pipelines", "fixtures"):
        shutil.copytree(ROOT / name, shop.folder / name, ignore=shutil.ignore_patterns(".dd"))
    assert shop("run", "pipelines/airborne.yaml", "--until", "600").code == 0
    gh = shop.write("bin/gh", '#!/bin/sh\necho "$@" > called.txt\n')
    gh.chmod(0o755)
    return shop


def test_the_steps_of_the_action(ran):
    """As Actions runs them, by bash, but for the installation."""
    env = {
        **os.environ, "PATH": f"{ran.folder}/bin:{BIN}:{os.environ['PATH']}", "PIPELINE": "pipelines/airborne.yaml",
        "STATE": "pipelines/.dd/airborne", "KEY": "carrier", "PR": "7", "GITHUB_STEP_SUMMARY": str(ran.folder / "page.md"),
    }  # fmt: skip
    path = ran.folder / "pipelines/airborne.yaml"
    path.write_text(
        path.read_text().replace("outputs:\n", "outputs:\n  again: {from: airborne, path: ../out/again/}\n")
    )
    for step in STEPS:
        if "run" in step and "pip install" not in step["run"]:
            done = called("bash", "-e", "-o", "pipefail", "-c", step["run"], env=env, cwd=ran.folder)
            assert done.returncode == 0, done.stderr
    assert "output again: only in B" in (ran.folder / "page.md").read_text()
    assert (ran.folder / "called.txt").read_text() == "pr comment 7 --body-file diff.md --edit-last --create-if-none\n"


def test_the_hooks(ran):
    """Each calls what it says for all files that it is given, and fails if one is wrong."""
    for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()):
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        files = ["pipelines/airborne.yaml", "pipelines/reachable.yaml"]
        call = ["bash", "-c", f'{hook["entry"]} "$@"', "hook"]
        assert called(*call, *files, env=env, cwd=ran.folder).returncode == 0, hook["id"]
        ran.write("pipelines/wrong.yaml", "dd: 1\nname: wrong\ninputs: {}\ntests: []\n")
        assert called(*call, *files, "pipelines/wrong.yaml", env=env, cwd=ran.folder).returncode == 2, hook["id"]
