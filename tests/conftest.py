"""What all tests share: where the repository is, and what they draw at random: the same each time."""

import gc
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from ddcli.cli.startup import YOUNG
from ddcli.engine import pool
from ddcli.errors import name_pipeline
from ddcli.store.files import gate
from tests.draws import DAYS, EFFORT, SEED, TURN, WHOLE, chance, many
from tests.harness import ORDER_COLUMNS, ORDERS, ROOT, Folder

pytest_plugins = ["tests.databases"]
os.environ.pop("COLUMNS", None)  # the width of the terminal that the tests were started from
for name in [name for name in os.environ if name.startswith("GITHUB_")]:  # on GitHub commands say more
    del os.environ[name]

MEMORY, ROOM = Path("/dev/shm"), 8 << 30  # noqa: S108 - pytest makes a directory of this user's there
"""Where files are memory, and its free bytes from which on tests write there: they make and remove some million files, and on a disk
that takes a third of their processor time, and longer where others wait for the disk."""
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# A deadline would fail a test for the machine's other work. The same cases are drawn each time, so that a change is judged
# by itself; `make soak` draws new ones. To make a failure small takes minutes: only with DD_SHRINK=1.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink, Phase.explain] if os.environ.get("DD_SHRINK") else [])],
    max_examples=many(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("soak", settings.get_profile("same"), derandomize=False, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "same")

if settings.default.derandomize:
    # Else hypothesis also draws numbers and texts that it finds in those modules of ours that are imported by then: other
    # cases with every change of a module, and of the order of the tests.
    providers._get_local_constants = lambda: providers._local_constants


# fmt: off
LONGEST = [
    "objects", "databases", "objects of s3", "tables of spark", "spark", "test_install", "spark/test_executors", "spark/test_cluster",
    "spark/test_auto_cdc", "cli/test_memory", "spark/test_connect", "spark/test_chains", "bench/test_bench", "cli/test_replace", "cli/test_tags",
    "adversary/test_adversary", "spark/test_tasks", "sql/test_judge", "judge/test_conformance", "cli/test_nothing_written", "crash/test_reads",
    "expressions/test_sizes", "judge/test_forgetting", "crash/test_readers", "spark/test_death", "cli/test_kept_plan", "tables/test_outputs",
    "judge/test_traps", "crash/test_death", "judge/test_operators", "crash/test_errors", "test_readme",
    "judge/test_standby", "judge/test_join_parts", "judge/test_lagging",
    "judge/test_random", "crash/test_kill", "spark/test_submit", "crash/test_power", "crash/test_forgetting_races", "cli/test_secrets",
    "cli/test_size", "judge/test_changes", "compare/test_memory", "judge/test_resharding", "kernels/test_loader",
    "store/test_compaction", "crash/test_rewriting", "api/test_random", "query/test_statement",
    "pipelines/test_random", "tables/test_duckdb_types", "trace/test_machine",
    "feed/test_targets", "tables/test_after_failure", "judge/test_arrival", "store/test_corruption",
    "pipelines/test_examples", "render/test_page", "tables/test_joint_updates", "tables/test_delta", "test_site",
]
# fmt: on
"""What takes longest, files or what shares something: it begins first, else one goes on when all others are done."""
SHARED = {
    "spark": re.compile(r"spark/test_(spark|memory|doctor|import_meaning)"),
    "tables of spark": re.compile(r"spark/test_(source|catalogs|catalog_outputs)"),
    "databases": re.compile(r"(postgres|mysql)/.*|tables/test_(database|database_outputs|history|random_types)"),
    "objects": re.compile(r"objects/test_(archive|clouds|listing|runs|tables)"),
    "objects of s3": re.compile(r"objects/.*"),
}
"""Files whose tests share a server, so that one process starts it; those of object stores share two, else all wait for them in the end."""


@cache
def together(file: str) -> str:
    """Return what the tests of a file run with in one process: the name of what they share, else of their file."""
    name = file.removeprefix("tests/").removesuffix(".py")
    return next((what for what, names in SHARED.items() if names.fullmatch(name)), name)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return what sends a file's tests to one process, as they share what is dear to make."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid.split("::", maxsplit=1)[0])

        def remove_node(self, node: object) -> str | None:
            # Of a process that crashed, xdist 3.8 deals out anew also the files that are done: who gets one waits for ever.
            mine = self.assigned_work[node]
            self.assigned_work[node] = {file: tests for file, tests in mine.items() if not all(tests.values())}
            return super().remove_node(node)

    return ByFile(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Have each process import the tests from another place on: it compiles its part of them, and finds the others' compiled."""
    config.pluginmanager.register(Costs())
    gc.set_threshold(YOUNG)  # Python need not look for cycles as often as it does by itself: all modules and tests stay
    if (here := getattr(config, "workerinput", None)) and config.args == config.getini("testpaths"):
        files = sorted(map(str, (ROOT / "tests").rglob("test_*.py")))
        first = len(files) * int(here["workerid"].removeprefix("gw")) // here["workercount"]
        config.args[:] = files[first:] + files[:first]


def dear(items: list[pytest.Item], *days: int) -> list[pytest.Item]:
    """Return the tests that are marked `in_turn`, with these days, and whose turn is another day.

    A third of them are in a day's turn, each third of a list. Of those with days a file's neighbors are, as they share what is dear to make.
    """
    marked = [item for item in items if (mark := item.get_closest_marker("in_turn")) and mark.args == days]
    marked.sort(
        key=lambda item: item.nodeid
    )  # pytest orders tests with fixtures of the session otherwise in each process
    if not days:
        return [item for at, item in enumerate(marked) if at % 3 != TURN % 3]
    first, last = (len(marked) * turn // DAYS for turn in (TURN, TURN + 1))
    return marked[:first] + marked[last:]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest; refuse a test that draws other cases each time where the profile says the same; leave out those whose turn is another day."""
    if EFFORT < WHOLE and not config.option.keyword and not any("::" in asked for asked in config.args):
        others = {*dear(items), *dear(items, DAYS)}
        config.hook.pytest_deselected(items=[*others])
        items[:] = [item for item in items if item not in others]
    # Nor look for cycles among all of these.
    gc.collect()
    gc.freeze()
    places = {name: at for at, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> tuple[int, str]:
        file = item.nodeid.partition("::")[0]
        return places.get(together(file), len(places)), file

    items.sort(key=place)
    for item in items:
        given = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", settings.default)
        if settings.default.derandomize and not given.derandomize:
            raise pytest.UsageError(f"{item.nodeid} sets derandomize=False")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have chance be the same each time, and the secrets of states, by which rows are ordered; and hints name no pipeline of a test before."""
    name_pipeline(None)
    random.seed(f"{SEED} {item.nodeid}")
    pool.urandom = chance("secrets", item.nodeid).randbytes


# What the tests cost, in seconds of processors: unlike the time of day it is the same on a busy machine.
COST = "cost"
LISTED = 25
"""Files that the summary lists."""


class Costs:
    """The processors' seconds of each file's tests; a process measures its own, and the one that reports adds them up."""

    def __init__(self) -> None:
        """Begin to count."""
        self.spent = self.imports = 0.0
        self.files: Counter[str] = Counter()
        self.begun = monotonic()
        self.ends: dict[str, tuple[float, str]] = {}
        """When each process ended its last test, in seconds from the start, and the test's file."""

    def lap(self) -> float:
        """Return the seconds since the last time: of this process, and of those that it started and waited for."""
        before, self.spent = self.spent, sum(os.times()[:4])
        return self.spent - before

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what it took to import the tests."""
        self.imports += self.lap()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[COST] = self.imports

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Give the report of a test's end what it took since the end of the one before."""
        if call.when == "teardown":
            item.user_properties.append((COST, self.lap()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test's seconds to its file's."""
        if report.when == "teardown":
            file = report.nodeid.partition("::")[0]
            self.files[file] += dict(report.user_properties).get(COST, 0)
            self.ends[getattr(report, "worker_id", "")] = monotonic() - self.begun, file

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add what it took a process to import the tests."""
        self.imports += getattr(node, "workeroutput", {}).get(COST, 0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the files that took most, and the files that others waited for in the end."""
        if len(self.files) < LISTED:
            return
        folders = Counter[str]()
        for file, seconds in self.files.items():
            folders[file.split("/")[1]] += seconds
        terminalreporter.section(f"processors' seconds: {sum(self.files.values()):.0f}, imports {self.imports:.0f}")
        for counts in (folders, self.files):
            listed = [f"{seconds:.0f} {name}" for name, seconds in counts.most_common(LISTED)]
            terminalreporter.write_line(", ".join(listed))
        ends = [f"{seconds:.0f} s {file}" for seconds, file in sorted(self.ends.values())]
        terminalreporter.write_line(f"the last tests of the processes ended after {', '.join(ends)}")


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    """Leave out what makes files outlive a power cut: waiting for the disk would be much of the tests' time. So would threads that wait side by side."""
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fsync", lambda _file: None)
    patch.setattr(os, "sync", lambda: None)
    patch.setattr(gate, "MANY", sys.maxsize)  # but in tests of crashes
    yield
    patch.undo()


@pytest.fixture
def shop(tmp_path, monkeypatch, capfd):
    """Return an empty folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, capfd)


@pytest.fixture
def orders(shop):
    """Return a shop with a pipeline `orders.yaml` over a log of one file, not yet run."""
    shop.write("orders.yaml", ORDERS)
    shop.log(
        "orders/1.parquet",
        [("north", 10, 0, 1), ("north", 5, 1, 1), ("south", 7, 1, 1), ("north", 10, 2, -1)],
        **ORDER_COLUMNS,
    )
    return shop


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's folder."""
    return ROOT


@pytest.fixture(scope="session")
def fixtures(root: Path) -> Path:
    """Return the folder of the small real change logs."""
    return root / "fixtures"
