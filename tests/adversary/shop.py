"""The shop that is attacked: a pipeline with a state and outputs, once more with a reader, and what people call there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ddcli.store.files.gate import checksum
from tests.adversary.canary import Canary

ROOT = Path(__file__).resolve().parent.parent.parent
PIPELINE = """\
dd: 1
name: shop
inputs:
  sales: {path: in/sales/, format: append, time: day, columns: {day: int64, region: string, amount: int64}, late: quarantine}
errors: quarantine
collections:
  kept:
    from: sales
    apply: [{arrange: {by: [region], export: by_region}}]
  totals:
    from: kept
    apply: [{reduce: {by: [region], amount: sum(100 % amount), sales: count(*)}}]
outputs:
  totals: out/totals/
"""
READER = """\
dd: 1
name: reader
inputs:
  sales: {import: {state: .dd/shop/, arrangement: by_region}}
outputs:
  sales: out/reader/
"""
DAYS = [
    "1,north,3\n1,south,4\n",
    "2,north,5\n2,west,6\n",
    "1,north,7\n3,south,0\n3,west,2\n",  # one late, one on which the expression fails
]
NEXT = "4,north,8\n4,east,9\n"
ROOMS = (".dd", "out", "copy")
HEADER = "day,region,amount\n"


@dataclass(frozen=True)
class Shop:
    """A shop in the folder `shop` of `around`, beside the canary."""

    around: Path

    @property
    def folder(self) -> Path:
        """Where commands are called."""
        return self.around / "shop"

    @property
    def state(self) -> Path:
        """The state of its pipeline."""
        return self.folder / ".dd/shop"

    @property
    def output(self) -> Path:
        """The directory of its output."""
        return self.folder / "out/totals"

    @property
    def canary(self) -> Canary:
        """The tree around it, and all in it but the rooms of states and outputs."""
        return self.canary_with()

    def canary_with(self, kept: tuple[str, ...] = (), adds: tuple[str, ...] = ()) -> Canary:
        """Return it with more that must stay, and with places where something new may come."""
        return Canary(self.around, rooms=ROOMS, kept=kept, adds=adds)

    @cached_property
    def manifest(self) -> Path:
        """The newest manifest."""
        return max((self.state / "manifest").glob("0*.json"))

    @cached_property
    def reader_manifest(self) -> Path:
        """The newest manifest of the pipeline that reads an arrangement of the shop's."""
        return max((self.folder / ".dd/reader/manifest").glob("0*.json"))

    def copy(self, around: Path) -> Shop:
        """Return a copy, in the place of what was there."""
        make_removable(around)
        shutil.rmtree(around, ignore_errors=True)
        shutil.copytree(self.around, around, symlinks=True)
        return Shop(around)

    def forge(self, tree: dict[str, Any]) -> None:
        """Write a manifest as an adversary does: with its checksum."""
        forge(self.manifest, tree)


def forge(manifest: Path, tree: dict[str, Any]) -> None:
    """Write a manifest as an adversary does: with its checksum."""
    rest = json.dumps({name: value for name, value in tree.items() if name != "crc32"}).encode()[1:]
    manifest.write_bytes(b'{"crc32":"%s",' % checksum(rest).encode() + rest)


def make_removable(folder: Path) -> None:
    """Open the directories that nobody may look into."""
    subprocess.run(["chmod", "-R", "u+rwX", folder], check=False, stderr=subprocess.DEVNULL)


def open_shop(around: Path) -> Shop:
    """Make a shop that has run three times and has a reader, with a day of sales that is not taken in yet."""
    shop = Shop(around)
    (shop.folder / "in/sales").mkdir(parents=True)
    shop.canary.make()
    (shop.folder / "pipeline.yaml").write_text(PIPELINE)
    (shop.folder / "reader.yaml").write_text(READER)
    for at, rows in enumerate(DAYS):
        (shop.folder / f"in/sales/{at}.csv").write_text(HEADER + rows)
        call(shop, "run", "pipeline.yaml")
        call(shop, "run", "reader.yaml")
    (shop.folder / "in/sales/next.csv").write_text(HEADER + NEXT)
    return shop


CALL = """
import ddcli.store.state.batch_lists
import ddcli.store.state.register
ddcli.store.state.register.LATELY = 0
ddcli.store.state.batch_lists.LATELY = 0
from ddcli.cli.main import main
main()
"""
"""Has registers lie in segments, and batches in lists, from the first entry on."""


def call(shop: Shop, *arguments: str) -> None:
    """Call a command that must go well."""
    command = [sys.executable, "-c", CALL, *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=shop.folder, capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr.decode()


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run", "pipeline.yaml"),
    ("run", "pipeline.yaml", "--dry-run"),
    ("run", "pipeline.yaml", "--full-refresh", "all"),
    ("run", "pipeline.yaml", "--full-refresh", "totals", "--memory", "256MiB"),
    ("run", "reader.yaml"),
    ("check", "pipeline.yaml"),
    ("plan", "pipeline.yaml"),
    ("explain", "pipeline.yaml"),
    ("query", "pipeline.yaml", "totals", "region=north"),
    ("why", "pipeline.yaml", "totals", "region=north"),
    ("log", "out/totals/"),
    ("log", ".dd/shop/late/sales/"),
    ("diff", "out/totals/", "out/reader/"),
    ("state", "ls", "pipeline.yaml"),
    ("state", "ls", "--state", ".dd/shop", "-o", "json"),
    ("state", "verify", "pipeline.yaml"),
    ("state", "gc", "pipeline.yaml"),
    ("state", "gc", "--state", ".dd/shop"),
    ("state", "compact", "--state", ".dd/shop"),
    ("state", "reshard", "pipeline.yaml", "--shards", "3"),
    ("state", "export", "pipeline.yaml", "copy"),
    ("state", "unlock", "pipeline.yaml"),
    ("state", "unlock", "pipeline.yaml", "--force"),
    ("state", "release", "pipeline.yaml", "--reader", "reader"),
)
"""What somebody may call in the shop. A name of a reader is completed by its hold's, see `commands`."""


def commands(shop: Shop) -> list[tuple[str, ...]]:
    """Return what somebody may call in this shop."""
    (hold,) = (shop.state / "holds").glob("*.json")
    return [tuple(hold.stem if word == "reader" else word for word in command) for command in COMMANDS]
