"""The modules that a run imports."""

import subprocess
import sys

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
    assert f"{tables}text_kind" in imported
    others = ("avro", "whole_files", "sheets")
    assert not imported & {tables + name for name in others}
