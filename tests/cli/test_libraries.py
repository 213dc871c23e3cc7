"""Libraries that a thread maps are those that imports take."""

import json
import subprocess
import sys

import pytest

MAPPED = """
import json, sys, threading
from ddcli.driver.run import libraries, map_ahead
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


ALTERED = """
import atexit, os, sys
from threading import Thread
begun, altered, start = [], [], Thread.start
def begin(thread):
    begun.append(thread.name)
    start(thread)
def hear(event, args):
    if begun and (event == "os.unsetenv" or event == "os.putenv" and args[0] not in os.environb):
        altered.append(args[0].decode())
Thread.start = begin
sys.addaudithook(hear)
for name in ("OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE", "_RJEM_MALLOC_CONF"):
    os.environ.pop(name, None)
atexit.register(lambda: print("begun:", *begun, "altered:", *altered))
"""


@pytest.mark.parametrize(
    "start",
    [
        "from ddcli.cli.main import main; main(['run', 'p.yaml'])",
        "from ddcli.driver.run import map_ahead; map_ahead(); import numpy, polars",
    ],
    ids=["run", "imports"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="only there are they mapped ahead")
def test_no_variable_comes_or_goes_once_libraries_are_mapped(shop, start):
    """A library that is mapped reads the environment, and a change by another thread could crash the process."""
    shop.write("in/1.csv", "n\n1\n")
    shop.write("p.yaml", "inputs: {a: {path: in/, format: append, columns: {n: int64}}}\noutputs: {a: out/}\n")
    done = subprocess.run(
        [sys.executable, "-c", ALTERED + start], cwd=shop.folder, check=True, capture_output=True, text=True
    )
    begun, _, altered = done.stdout.partition("begun: ")[2].partition("altered:")
    assert "dd-libraries" in begun.split()
    assert not altered.split()


UNUSED = """
import sys
from ddcli.cli.main import main
try:
    main(["run", "p.yaml"])
finally:
    print("imported:", *sys.modules)
"""


def test_a_run_over_csv_imports_no_readers_of_other_kinds(shop):
    shop.write("in/1.csv", "n,region\n1,north\n")
    shop.write(
        "p.yaml", "inputs: {a: {path: in/, format: append, columns: {n: int64, region: string}}}\noutputs: {a: out/}\n"
    )
    done = subprocess.run([sys.executable, "-c", UNUSED], cwd=shop.folder, check=True, capture_output=True, text=True)
    imported = set(done.stdout.partition("imported:")[2].split())
    tables = "ddcli.store.tables."
    assert f"{tables}csv_kind" in imported
    others = ("avro", "altered_values", "connect_values")
    assert not imported & {tables + name for name in others}
