"""What a command does with the memory that is freed, whoever started it."""

import os
import subprocess
import sys

import pytest

from ddcli.cli.startup.process import LEFT, SETTING, SHARED
from ddcli.engine.workers import processors

CALL = "import os; from ddcli.cli.startup import process; process.{}(); print(os.environ[process.SETTING])"


def setting(function, inherited=None):
    """Return the setting of polars' allocator after a call in a process that has inherited one."""
    environment = {name: value for name, value in os.environ.items() if name != SETTING}
    given = environment if inherited is None else environment | {SETTING: inherited}
    command = [sys.executable, "-c", CALL.format(function)]
    return subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("inherited", [None, LEFT, f"{SHARED}64"])
def test_what_polars_or_a_command_leaves_to_the_processes_that_it_starts_is_not_asked_for(inherited):
    assert setting("keep_freed_memory", inherited) == f"{SHARED}{max(1, processors() // 2)}"
    assert setting("give_freed_memory_back", inherited) == "dirty_decay_ms:0,muzzy_decay_ms:0"


def test_a_setting_that_somebody_made_stays():
    for function in ("keep_freed_memory", "give_freed_memory_back"):
        assert setting(function, "dirty_decay_ms:7") == "dirty_decay_ms:7"


def test_polars_leaves_what_is_known_of_it():
    code = "import os, polars; print(os.environ['_RJEM_MALLOC_CONF'])"
    environment = {name: value for name, value in os.environ.items() if name not in {SETTING, "POLARS_THP"}}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == LEFT
