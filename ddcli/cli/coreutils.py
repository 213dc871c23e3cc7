"""The entry point of the scripts `dd` and `ddcli`, and the hand-over of `dd` to the system's dd.

`dd` shadows coreutils wherever our environment is first on the PATH, and build scripts call `dd if=... of=...`. Such a
call must behave as if ours did not exist, so this module imports only os and sys until it has decided.
"""

import os
import sys

OPERANDS = frozenset(
    "bs cbs conv count ibs if iflag iseek obs of oflag oseek seek skip status".split()  # noqa: SIM905  one line to read
)
TRIED = "DDCLI_HAND_OVER_TRIED"
NOT_FOUND = 127  # a shell's exit code for a command that does not exist


def main() -> None:
    """Hand over to the system's dd if the arguments are for it, else run our command line."""
    name, *arguments = sys.argv
    if os.path.basename(name) == "dd" and meant_for_coreutils(arguments):  # noqa: PTH119  pathlib is slow to import
        sys.exit(hand_over(arguments))
    # `python -c` looks for modules in the current folder: no file in it may be imported.
    sys.path[:] = filter(None, sys.path)
    from ddcli.cli.startup import run_and_leave

    run_and_leave()


def meant_for_coreutils(arguments: list[str]) -> bool:
    """Return whether a call of `dd` is one of coreutils': only its operands, or a bare `dd` between two pipes or files.

    `--help` and `--version` are options of both; they are ours.
    """
    if not arguments:
        return not os.isatty(0) and not os.isatty(1)
    return all("=" in argument and argument.partition("=")[0] in OPERANDS for argument in arguments)


def hand_over(arguments: list[str]) -> int:
    """Become the system's dd; return an exit code only if there is none.

    A file that begins with `#!` is never taken: our own script, another environment's and a version manager's shims
    all do, and any of them would come back here. Against a manager whose shims are binaries, the environment
    remembers the candidates that were tried: each is tried once in a chain of hand-overs.
    """
    tried = os.environ.get(TRIED, "").split(os.pathsep)
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(directory, "dd")  # noqa: PTH118  pathlib is slow to import
        if not os.path.isabs(candidate) or candidate in tried or not is_program(candidate):  # noqa: PTH117
            continue
        tried.append(candidate)
        os.environ[TRIED] = os.pathsep.join(filter(None, tried))
        restore_signals()
        restore_locale()
        try:
            os.execv(candidate, ["dd", *arguments])  # noqa: S606  being that program is the point
        except OSError:
            continue  # not a program of this machine; there may be another
    sys.stderr.write(
        "error: these arguments are for the system's dd, and no other dd is on the PATH\n"
        "hint: install coreutils, or put its folder on the PATH; `dd --help` describes this dd\n"
    )
    return NOT_FOUND


def is_program(path: str) -> bool:
    """Return whether a file can be executed and is not a script."""
    try:
        if not os.path.isfile(path) or not os.access(path, os.X_OK):  # noqa: PTH113
            return False
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(2) != b"#!"
    except OSError:
        return False  # it may be executed but not read: it can't be distinguished from a script


def restore_signals() -> None:
    """Restore the signals that Python ignores from its start, which exec would pass on: dd must die of a broken pipe in silence."""
    import _signal  # type: ignore[import-not-found]  # built in; `signal` would import enum and much else

    for name in ("SIGPIPE", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)


def restore_locale() -> None:
    """Undo LC_CTYPE where Python's start has set it (PEP 538, in the C locale): dd would quote names in another way.

    The original value is only in /proc; without that the quotes in messages differ, nothing else.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            given = file.read().split(b"\0")
    except OSError:
        return
    if not any(setting.startswith(b"LC_CTYPE=") for setting in given):
        os.environ.pop("LC_CTYPE", None)
