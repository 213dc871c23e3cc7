"""Random histories for some minutes, or one again: `python -m tests.histories --minutes 10`, `python -m tests.histories --case 17`."""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests import draws
from tests.histories.steps import follow


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", type=int, help="follow this history alone, and keep its folder")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--only", help="a step that every second one is, such as branch")
    options = parser.parse_args()
    until, case, failed, refused = time.monotonic() + 60 * options.minutes, options.first, [], Counter()
    if options.case is not None:
        case = options.case
    while time.monotonic() < until:
        folder = Path(tempfile.mkdtemp(prefix="history-")) / "h"
        wrong, made = follow(folder, draws.chance("history", case), options.steps, options.only)
        refused.update(made.refusals)
        if wrong:
            failed.append(case)
            print(
                "\n".join(
                    [
                        "",
                        f"case {case}",
                        *(made.steps if options.case is not None else made.steps[-12:]),
                        wrong,
                        str(folder),
                    ]
                ),
                flush=True,
            )
        if options.case is not None:
            sys.exit(bool(wrong))
        if not wrong:
            shutil.rmtree(folder.parent)
        print(end=".", flush=True)
        case += 1
    for error, count in refused.most_common(12):
        print(count, error[:400])
    print(f"{case - options.first} histories, {len(failed)} failed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
