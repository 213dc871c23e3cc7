"""The adversary and the random tests with fresh seeds, for a time; `make soak MINUTES=10`.

The adversary runs in this process, and pytest over the files with random tests beside it, one after the other, again and again. What
fails is printed at once with its seed, and with how to run it again: `make soak CASE=names:123` for the adversary, the command line of
pytest for a random test; with DD_SHRINK=1 before it the failure is made small.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from tests.adversary.attack import GENERATORS, Attack, attack

ROOT = Path(__file__).resolve().parent.parent
VARIABLES = {"HYPOTHESIS_PROFILE": "soak", "DD_EFFORT": "3"}
CHANCE = random.SystemRandom()


def main() -> None:
    """Attack until the time is over, or one case again; end with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--cases", type=int, help="end the adversary after so many cases")
    parser.add_argument("--case", help="GENERATOR:SEED, as a failure names it; several with commas")
    parser.add_argument("--only", choices=["adversary", "random"], help="half of it")
    options = parser.parse_args()
    if options.case:
        with attack() as begun:
            wrong = [tried(begun, *case.split(":")) for case in options.case.split(",")]
        sys.exit(any(wrong))
    until = time.monotonic() + 60 * options.minutes
    failed: list[str] = []
    beside = threading.Thread(target=random_tests, args=(until, failed))
    if options.only != "adversary":
        beside.start()
    if options.only != "random":
        with attack() as begun:
            adversary(begun, until, options.cases, failed)
    if options.only != "adversary":
        beside.join()
    print(
        "\n".join([f"\n{len(failed)} failed, each with how to run it again:", *failed])
        if failed
        else "\nnothing failed"
    )
    sys.exit(bool(failed))


def adversary(begun: Attack, until: float, most: int | None, failed: list[str]) -> None:
    """Try cases of each generator in turn."""
    counts: Counter[str] = Counter()
    while time.monotonic() < until and (most is None or counts.total() < most):
        for generator in GENERATORS:
            seed = CHANCE.randrange(1 << 32)
            counts[generator] += 1
            if tried(begun, generator, seed):
                failed.append(f"make soak CASE={generator}:{seed}")
    print(f"the adversary: {counts.total()} cases: {', '.join(f'{name} {count}' for name, count in counts.items())}")


def tried(begun: Attack, generator: str, seed: int | str) -> bool:
    """Try a case, print what is wrong, and return whether something is."""
    wrong = begun.wrong(*begun.draw(generator, int(seed)))
    if wrong:
        print("\n".join([f"\nmake soak CASE={generator}:{seed}", *map(ascii_only, wrong)]), flush=True)
    return bool(wrong)


def ascii_only(text: str) -> str:
    """Return a text that is fit for a screen, whatever a command said."""
    return "\n".join(
        line.encode("ascii", "backslashreplace").decode() if line.isprintable() else ascii(line)
        for line in text.split("\n")
    )


def random_tests(until: float, failed: list[str]) -> None:
    """Run the files with random tests in turn, each time with another seed."""
    files = sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "from hypothesis " in path.read_text("utf-8") or "tests.draws" in path.read_text("utf-8")
    )
    done = 0
    while time.monotonic() < until:
        for file in CHANCE.sample(files, len(files)):
            seed = CHANCE.randrange(1 << 32)
            variables = VARIABLES | {"DD_SEED": str(seed), "PYTHONHASHSEED": str(seed)}
            command = ["pytest", "-q", "-x", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", file]
            running = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=os.environ | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                said, _ = running.communicate(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.communicate()
                break
            done += 1
            if running.returncode not in {0, 5}:  # 5: none of a file's tests can be run here
                print(said, flush=True)
                failed.append(" ".join([*(f"{name}={value}" for name, value in variables.items()), *command]))
    print(f"the random tests: {done} passes of a file, there are {len(files)}")


if __name__ == "__main__":
    main()
