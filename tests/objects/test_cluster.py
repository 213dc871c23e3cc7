"""A cluster and a driver that share no directory: inputs, state and outputs are in an object store."""

import json
import os
import subprocess
import sys
import urllib.request
import xml.etree.ElementTree as ET

import pytest

from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify_state
from tests.crash.shop import Shop
from tests.harness import ROOT
from tests.objects.conftest import STORE
from tests.objects.shop import Remote
from tests.spark.servers import ON_THIS_MACHINE, standalone

DRIVER = """
import json, sys
from ddcli.driver.run import run
from ddcli.engine.jit.settings import cache_dir
from ddcli.job.options import SparkOptions
from ddcli.runtime.placement import start

path, master, settings = json.loads(sys.argv[1])
start(SparkOptions(master, settings), "shop", cache_dir())  # which all runs of this process find
for line in sys.stdin:
    run(path, engine="spark")
    print("done", flush=True)
"""
"""Runs the pipeline on a cluster at each line of its input: a JVM and its executors take longer to start than these runs."""
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
@pytest.mark.in_turn(9)
@pytest.mark.slow
@pytest.mark.skipif(STORE != "s3", reason="only S3's server is asked for the objects that were ever there")
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
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with standalone(tmp_path) as (master, *_), (tmp_path / "driver.log").open("w") as log:
        command = [sys.executable, "-c", DRIVER, json.dumps([str(path), master, ON_THIS_MACHINE])]
        with subprocess.Popen(command, cwd=ROOT, env=os.environ, stderr=log, **streams) as driver:
            for step in range(3):
                there.supply(step)
                if step == 1:
                    there.run(engine="local")
                else:
                    driver.stdin.write("run\n")
                    driver.stdin.flush()
                    assert driver.stdout.readline() == "done\n", (tmp_path / "driver.log").read_text()
                assert there.rows() == there.local.meant(step + 1)
            driver.stdin.close()
    assert not list(verify_state(there.state, read_newest(there.state)))
    keys = ever(endpoint, name)
    assert any("/bundles/" in key for key in keys)
    assert not any("spill" in key for key in keys)
    assert not (there.local.folder / ".dd").exists()
