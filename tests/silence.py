"""Servers of databases that fall silent: stopped (SIGSTOP) at any of a command's exchanges with them, and going on later."""

import gc
import os
import signal
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from tests.draws import EFFORT, chance

SILENCE = 1
"""Seconds after which a server counts as silent."""
SOON = 300
"""Seconds within which a command ends whose server is, however busy the machine is: half of what a server may be silent usually."""


def stopper(monkeypatch, owner, method, processes):
    """Return what has the `processes` of a server stopped from an exchange on, a call of a method, and go on at the end.

    It yields the numbers of those that were begun; called without a number, it stops nothing.
    """
    plain = getattr(owner, method)

    @contextmanager
    def stopped(at=None):
        begun = []

        def exchange(*given, **named):
            if len(begun) == at:
                for process in processes():
                    os.kill(process, signal.SIGSTOP)
            begun.append(len(begun))
            return plain(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(owner, method, exchange)
            if at is not None:  # what has to succeed may take longer on a busy machine
                patch.setenv("DDCLI_DATABASE_TIMEOUT", str(SILENCE))
            try:
                yield begun
            finally:
                if at is not None and len(begun) > at:
                    for process in reversed(processes()):
                        os.kill(process, signal.SIGCONT)

    return stopped


def moments(draw, exchanges, usual=4):
    """Return some exchanges: the last two, which commit, among them."""
    return {*draw.sample(exchanges, min(max(1, round(usual * EFFORT)), len(exchanges))), *exchanges[-2:]}


class End(NamedTuple):
    """How a command ended whose server was to be stopped at an exchange."""

    reached: bool
    """Whether it came to that exchange: how many a command makes depends on the rows, and on what the server did meanwhile."""
    problem: str = ""
    hint: str = ""


def end_of(command, stopped_at, at):
    """Run a command whose server stops at an exchange: it ends soon. Return how."""
    begun = monotonic()
    with stopped_at(at) as exchanges:
        try:
            command()
            problem, hint = "", ""
        except (EngineError, InputError) as error:
            problem, hint = error.problem, error.hint or ""
    assert monotonic() - begun < SOON
    return End(len(exchanges) > at, problem, hint)


def ends_of_runs(folder, database, execute, stopped_at, how):
    """Return how runs ended that read a table of a server that was stopped: they took in nothing, or all, and the next one all."""
    execute("create table t (k bigint primary key, v varchar(9))", "insert into t values (1, 'a'), (2, 'b')")
    file = folder / "p.yaml"
    file.write_text(f"name: p\ninputs: {{t: {{database: '{database}', table: t, {how}}}}}\noutputs: {{t: out/}}\n")
    run(file)
    execute("insert into t values (100, 'b')")
    with stopped_at() as exchanges:
        run(file)
    ends = []
    for number, at in enumerate(moments(chance("silent", how), exchanges)):
        execute(f"insert into t values ({200 + number}, null)")
        ends.append(end_of(lambda: run(file), stopped_at, at))
        gc.collect()  # the cursor of the broken connection goes here, where its warning is expected
        run(file)
        rows = read_log(folder / "out", as_of="latest").select("k", "v").sort("k").rows()
        assert rows == [*execute("select * from t order by k")]
    return ends
