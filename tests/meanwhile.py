"""Something that happens in the middle of something else: after a number of reads of a state, whatever process or store it is in."""

from contextlib import contextmanager
from threading import Lock
from unittest import mock

from ddcli.store.files import access
from ddcli.store.files.objects import ObjectPath


@contextmanager
def meanwhile(action, reads):
    """Do something once, just before this read of a file or request to a store in the block, or after the block if it has fewer."""
    left, lock = [reads], Lock()
    opened, asked = access.open_plain, ObjectPath._errors  # each request passes it

    def count():
        with lock:
            left[0] -= 1
            now = left[0] == 0
        if now:
            action()

    def opening(*given, **named):
        count()
        return opened(*given, **named)

    def asking(path):
        count()
        return asked(path)

    with mock.patch.object(access, "open_plain", opening), mock.patch.object(ObjectPath, "_errors", asking):
        yield
    if left[0] > 0:
        action()
