"""The secret of a state: 16 random bytes that key the hashes of values, so that no sender of data can craft values whose hashes collide.

Under a secret two equal hashes are an accident that no input can bring about (see `kernels.siphash`); should it happen, the
state gets another secret (see `ddcli.store.state.upkeep.rekey`). A reader of the state can read its secret; a sender of data can't.
"""

from __future__ import annotations

from os import urandom

SIZE = 16
"""Bytes of a secret."""
PUBLIC = b""
"""No secret: xxHash64 with seed 0, for values that no order or shard on disk depends on."""


def new_secret() -> bytes:
    """Return a new random secret."""
    return urandom(SIZE)
