"""Errors that a kernel can end with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import EngineError

if TYPE_CHECKING:
    import numpy as np


class DiffOverflow(EngineError):
    """A diff left the signed 64-bit range: an error, never a wrap-around."""


class KernelError(EngineError):
    """The compiled kernels could not be built or loaded."""


def overflow(sign: str, first: np.ndarray, second: np.ndarray) -> DiffOverflow:
    """Return the error for two rows whose diffs can't be added ("+") or multiplied ("x")."""
    rows = [", ".join(str(lane) for lane in row[:-1].tolist()) for row in (first, second)]
    word = "sum" if sign == "+" else "product"
    where = f"({rows[0]})" if rows[0] == rows[1] else f"({rows[0]}) and ({rows[1]})"
    return DiffOverflow(
        f"the {word} of two diffs leaves the 64-bit range: {int(first[-1])} {sign} {int(second[-1])}, at lanes {where}",
        hint="a record is counted more than 9 * 10^18 times; look for an input that is read many times over",
    )
