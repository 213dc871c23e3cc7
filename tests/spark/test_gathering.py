"""How long is waited for executors, before it is decided how a run is cut."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ddcli.runtime.spark import classic
from ddcli.runtime.spark.session import share


@pytest.fixture
def clock(monkeypatch):
    """Have time pass only where somebody waits for it."""
    now = SimpleNamespace(seconds=100.0)

    def sleep(seconds):
        now.seconds += seconds

    monkeypatch.setattr(classic, "time", SimpleNamespace(monotonic=lambda: now.seconds, sleep=sleep))
    return now


class Cluster(classic.Classic):
    """Executors come at the given seconds; the driver ends at a time."""

    def __init__(self, clock, coming, ends=1e9, **settings):
        super().__init__(SimpleNamespace(sparkContext=None), owned=True)
        self.clock, self.coming, self.ends = clock, coming, ends
        self.settings = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}

    def _settings(self):
        return self.settings

    def _cores(self):
        return max(2, self._executors())  # as Spark says

    def _executors(self):
        return sum(self.clock.seconds - 100 >= each for each in self.coming)

    def _is_stopped(self):
        return self.clock.seconds - 100 >= self.ends


@pytest.mark.parametrize(
    ("coming", "there", "seconds"),
    [
        ([4.0], 1, 6),
        ([4.0, 4.5, 5.5], 3, 7.5),
        ([4.0, 5.9, 7.8, 20.0], 3, 9.8),  # who comes much later is not waited for
        ([0.0], 1, 0),
        ([], 0, 60),
    ],
)
def test_executors_are_waited_for_until_no_more_come(clock, coming, there, seconds):
    cluster = Cluster(clock, coming)
    cluster.gather()
    assert cluster._executors() == there
    assert clock.seconds - 100 == pytest.approx(seconds, abs=0.7)


def test_nobody_is_waited_for_once_spark_has_stopped(clock):
    Cluster(clock, [], ends=5).gather()
    assert clock.seconds - 100 < 6


def test_executors_that_spark_asks_for_when_tasks_wait_are_counted_and_not_waited_for(clock):
    cluster = Cluster(
        clock, [], dynamicAllocation_enabled="true", dynamicAllocation_maxExecutors="9", executor_cores="4"
    )
    cluster.gather()
    assert clock.seconds == 100
    assert cluster.slots == 36
    assert Cluster(clock, [], master="yarn").slots == 2
    assert cluster.task_memory(0) == share(cluster.settings, 4, 36, 0)
