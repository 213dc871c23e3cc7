"""A pipeline file with its inputs, state and outputs in a folder of their own, as a user of `dd run` has them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from tests.bench.processes import dd, measure
from tests.loops import LEAST_LABEL, indented

if TYPE_CHECKING:
    from pathlib import Path

SKIP_LEVEL = """\
dd: 1
name: skip_level
inputs:
  manages:
    path: in
    columns: {manager: int64, employee: int64}
collections:
  skip_level:
    from: manages
    apply:
      - join: {with: manages, as: up, on: {manager: employee}}
      - map: {employee: employee, manager: manager, skip_manager: up.manager}
outputs:
  skip_level: out
"""

GROUPS = """\
dd: 1
name: groups
inputs:
  numbers:
    path: in
    columns: {{key: int64, value: int64}}
collections:
  groups:
    from: numbers
    apply:
      - reduce: {{by: [key], {aggregates}}}
outputs:
  groups: out
"""

LABELS = (
    """\
dd: 1
name: labels
inputs:
  edges: {path: in, columns: {src: int64, dst: int64}}
collections:
  links: {from: edges%s}
  labels:
    from: links
    apply: [{map: {node: src, label: src}}, distinct]
  least:
"""
    + indented(4, LEAST_LABEL)
    + """\
      max_rounds: 10
outputs:
  least: out
"""
)
BOTH_WAYS = ", apply: [{concat: {from: edges, apply: [{map: {src: dst, dst: src}}]}}]"
"""What has the links of `LABELS` followed both ways, put in the place that is left for it."""

AGGREGATES = {
    "least_and_count": "lo: min(value), n: count(*)",
    "least": "lo: min(value)",
    "count": "n: count(*)",
}


def pipeline_of(task: str) -> str:
    """Return the pipeline file that does a task of the peers' programs."""
    return SKIP_LEVEL if task == "skip_level" else GROUPS.format(aggregates=AGGREGATES[task])


class Workspace:
    """A folder in which one pipeline runs."""

    def __init__(self, folder: Path, pipeline: str, *options: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = folder
        self.options = options
        self.input = folder / "in"
        self.output = folder / "out"
        self._saved = folder / "saved"
        self.input.mkdir(parents=True)
        (folder / "pipeline.yaml").write_text(pipeline)

    @property
    def command(self) -> list[str]:
        """The command to measure."""
        return dd("run", self.folder / "pipeline.yaml", *self.options)

    def append(self, file: Path) -> None:
        """Let a file be in the input; nothing is copied."""
        place = self.input / file.name
        if not place.exists():
            os.link(file, place)

    def clear(self) -> None:
        """Forget state and outputs."""
        for folder in (self.folder / ".dd", self.output):
            shutil.rmtree(folder, ignore_errors=True)

    def load(self) -> None:
        """Run once, and remember state and outputs for `restore`."""
        measure(self.command)
        self.save()

    def save(self) -> None:
        """Remember state and outputs for `restore`."""
        for name in (".dd", "out"):
            shutil.copytree(self.folder / name, self._saved / name)

    def restore(self) -> None:
        """Bring back state and outputs as `load` left them."""
        self.clear()
        shutil.copytree(self._saved, self.folder, dirs_exist_ok=True)
