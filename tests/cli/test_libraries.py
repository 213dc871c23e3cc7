"""Libraries that a thread maps are those that imports take."""

import json
import subprocess
import sys

import pytest

MAPPED = """
import json, sys, threading
from ddcli.driver.libraries import libraries, map_ahead
before = set(sys.modules)
map_ahead()
for thread in threading.enumerate():
    if thread.name == "dd-libraries":
        thread.join()
def mapped():
    with open("/proc/self/maps") as file:
        return {line.split()[-1].strip() for line in file if line.rstrip().endswith(".so")}
found = sorted(path for path in map(str, libraries()) if path in mapped())
new = sorted({"numpy", "polars"} & set(sys.modules))
import numpy, polars
imported = sorted([numpy._core._multiarray_umath.__file__, sys.modules["polars._plr"].__file__])
map_ahead()
print(json.dumps([found, new, imported, [thread.name for thread in threading.enumerate()]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there are they mapped ahead")
def test_what_is_mapped_is_what_is_imported(root):
    done = subprocess.run([sys.executable, "-c", MAPPED], cwd=root, check=True, capture_output=True, text=True)
    found, new, imported, threads = json.loads(done.stdout)
    assert found == imported
    assert not new
    assert "dd-libraries" not in threads, "there is nothing to map any more"
