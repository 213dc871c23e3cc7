"""What a process may not do: a run that meets a limit of its own ends with that limit in its hint, and the next run makes up for it."""

import pytest

from ddcli import read_log
from ddcli.store.tables.files import Tables, damaged

LIMITS = {
    "RLIMIT_FSIZE": ((1 << 10, 1 << 14), "let a process write larger files, `ulimit -f`"),
    "RLIMIT_NOFILE": ((6,), "let a process open more files, `ulimit -n`"),
}


@pytest.mark.parametrize(("name", "limit"), [(name, limit) for name, (limits, _) in LIMITS.items() for limit in limits])
def test_a_run_that_meets_a_limit(shop, name, limit):
    rows = "".join(f"{at},{at * 7919 % 10007:x}{at * 104729 % 1299709:x},0\n" for at in range(4000))
    (shop.folder / "in").mkdir()
    shop.write("in/1.csv", f"k,v,t\n{rows}")
    shop.write(
        "p.yaml",
        "inputs: {i: {path: in/, format: append, time: t, columns: {k: int64, v: string, t: int64}}}\n"
        "collections: {g: {from: i, apply: [distinct]}}\noutputs: {g: out/}\n",
    )
    script = f"""
import resource, sys
from ddcli.cli.main import main
resource.setrlimit(resource.{name}, ({limit}, resource.getrlimit(resource.{name})[1]))
main(["run", "p.yaml"])
"""
    stopped = shop.process(script=script)
    assert stopped.code in {3, 4, 5}, stopped.err
    assert LIMITS[name][1] in stopped.err
    assert shop("run", "p.yaml").code == 0
    assert read_log(shop.folder / "out").height == 4000


def test_a_file_that_polars_could_not_open_is_not_damaged(tmp_path):
    """It panics where there is no file left with which to begin its threads."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    panic = 'called `Result::unwrap()` on an `Err` value: Os { code: 24, message: "Too many open files" }'
    found = damaged(Tables().kind(path), path, RuntimeError(panic))
    assert (found.problem, found.hint) == ("the file can't be read: Too many open files", LIMITS["RLIMIT_NOFILE"][1])
