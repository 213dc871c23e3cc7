"""Tables of cases as one reads them: a header, then a case a line, its columns parted by arrows."""

import pytest

TYPES = {"": str, "int": int}


def rows(table):
    """Return the cells of each line of a table; ⏎ stands for a new line."""
    lines = [line for line in table.split("\n") if line.strip()]
    return [[cell.strip().replace("⏎", "\n") for cell in line.split("→")] for line in lines]


def cases(table):
    """Parametrise a test by a table whose header has the test's arguments, `place: int` where a cell is a number.

    A case bears the name in its first column; cells that a line leaves out are empty.
    """
    header, *found = rows(table)
    names, types = zip(*([part.strip() for part in f"{head}:".split(":")[:2]] for head in header), strict=True)
    padded = [row + [""] * (len(header) - len(row)) for row in found]
    values = [[TYPES[kind](cell) for kind, cell in zip(types, row, strict=True)] for row in padded]
    return pytest.mark.parametrize(names, values, ids=[row[0] for row in found])
