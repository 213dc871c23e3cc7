"""A cluster and a driver that share no directory: inputs, state and outputs are in an object store."""

import os
import subprocess
import sys
import urllib.request
import xml.etree.ElementTree as ET

import pytest

from ddcli.store.state.manifest import read_newest
from ddcli.store.state.verify import verify_state
from tests.crash.shop import Shop
from tests.harness import ROOT
from tests.objects.shop import Remote
from tests.spark.servers import ON_THIS_MACHINE, standalone

VERSIONED = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


def ever(endpoint, bucket):
    """Return the keys of all objects that were ever in a bucket that keeps versions."""
    found, more = [], ""
    while True:
        with urllib.request.urlopen(f"{endpoint}/{bucket}?versions{more}") as answer:  # noqa: S310 - our own server
            page = ET.fromstring(answer.read())  # noqa: S314 - our own server
        space = page.tag.partition("}")[0] + "}"
        found += [each.findtext(f"{space}Key") for each in page.iter(f"{space}Version")]
        if page.findtext(f"{space}IsTruncated") != "true":
            return found
        more = (
            f"&key-marker={page.findtext(f'{space}NextKeyMarker')}"
            f"&version-id-marker={page.findtext(f'{space}NextVersionIdMarker')}"
        )


@pytest.mark.spark
@pytest.mark.slow
def test_executors_meet_in_shuffles_and_the_bucket(tmp_path, endpoint, bucket):
    """Nothing is ever put into `spill/`: rows go from executor to executor."""
    pytest.importorskip("pyspark")
    name = str(bucket).removeprefix("s3://").rstrip("/")
    url, headers = f"{endpoint}/{name}?versioning", {"Content-Type": "application/xml"}
    request = urllib.request.Request(url, VERSIONED.encode(), headers, method="PUT")  # noqa: S310 - our own server
    urllib.request.urlopen(request).close()  # noqa: S310 - our own server
    there = Remote(Shop.make(tmp_path / "remote"), bucket)
    path = there.local.folder / "shop.yaml"
    path.write_text(path.read_text().replace("name: shop\n", "name: shop\nshards: 4\n"))
    conf = [word for pair in ON_THIS_MACHINE.items() for word in ("--conf", "=".join(pair))]
    with standalone(tmp_path) as (master, _):
        for step in range(3):
            there.supply(step)
            engine = ["--engine", "local"] if step == 1 else ["--engine", "spark", "--master", master, *conf]
            command = [sys.executable, "-m", "ddcli", "run", path, *engine]
            done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert there.rows() == there.local.meant(step + 1)
    assert not list(verify_state(there.state, read_newest(there.state)))
    keys = ever(endpoint, name)
    assert any("/bundles/" in key for key in keys)
    assert not any("spill" in key for key in keys)
    assert not (there.local.folder / ".dd").exists()
