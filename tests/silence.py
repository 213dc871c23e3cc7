"""Servers of databases that fall silent: stopped (SIGSTOP) at any of a command's exchanges with them, and going on later."""

import os
import signal
from contextlib import contextmanager

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
