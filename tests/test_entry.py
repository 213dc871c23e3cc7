"""The scripts `dd` and `ddcli`: what goes to the system's dd, and that it is as if we were not there."""

import os
import pty
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from ddcli import read_log
from ddcli.cli import coreutils
from tests.draws import chance
from tests.harness import ROOT

SYSTEM_DD = shutil.which("dd", path="/usr/bin:/bin")
SYSTEM_PATH = "/usr/bin:/bin"

needs_system_dd = pytest.mark.skipif(SYSTEM_DD is None, reason="this machine has no dd of its own")


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_shim(folder: Path, root: Path, name: str = "dd") -> Path:
    """Write a script like the ones pip installs."""
    return write_program(
        folder / name,
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(root)!r})\n"
        "from ddcli.cli.coreutils import main\nsys.exit(main())\n",
    )


@pytest.fixture
def dd(tmp_path, root):
    """Return a function that runs our `dd`, found first on the PATH, with two more of our shims behind it."""
    folders = [tmp_path / "ours", tmp_path / "other-venv"]
    for folder in folders:
        write_shim(folder, root)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "dd").symlink_to(folders[0] / "dd")
    path = os.pathsep.join([str(folders[0]), str(tmp_path / "links"), str(folders[1]), SYSTEM_PATH])

    def run(*arguments, path=path, **options):
        options = {"capture_output": True, "env": {"PATH": path}} | options
        return subprocess.run([folders[0] / "dd", *arguments], cwd=tmp_path, timeout=300, check=False, **options)

    return run


def system_dd(*arguments, **options):
    return subprocess.run(
        ["dd", *arguments], executable=SYSTEM_DD, capture_output=True, timeout=300, check=False, **options
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["if=a", "of=b"],
        ["bs=1M", "count=3", "status=none"],
        ["ibs=1", "obs=1", "cbs=1", "skip=1", "seek=1", "iseek=1", "oseek=1"],
        ["conv=notrunc", "iflag=fullblock", "oflag=sync"],
        ["of=a=b"],
    ],
)
def test_operands_are_for_coreutils(arguments):
    assert coreutils.meant_for_coreutils(arguments)


@pytest.mark.parametrize(
    "arguments", [["run", "p.yaml"], ["--help"], ["--version"], ["if=a", "run"], ["if"], ["x=1"], ["if=a", "x=1"]]
)
def test_anything_else_is_ours(arguments):
    assert not coreutils.meant_for_coreutils(arguments)


@pytest.mark.parametrize(("stdin", "stdout", "expected"), [(0, 0, True), (0, 1, False), (1, 0, False), (1, 1, False)])
def test_no_arguments_and_no_terminal(monkeypatch, stdin, stdout, expected):
    monkeypatch.setattr(coreutils.os, "isatty", lambda fd: bool((stdin, stdout)[fd]))
    assert coreutils.meant_for_coreutils([]) is expected


@needs_system_dd
def test_copies_the_same_bytes(dd, tmp_path):
    content = chance("contents").randbytes(1_000_003)
    (tmp_path / "in").write_bytes(content)
    done = dd("if=in", "of=out", "bs=4096", "skip=1", "status=none")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "out").read_bytes() == content[4096:]


@needs_system_dd
def test_without_arguments_copies_stdin_to_stdout(dd):
    content = bytes(range(256)) * 1000
    done = dd(input=content)
    assert done.returncode == 0
    assert done.stdout == content
    assert b"256000 bytes" in done.stderr


@needs_system_dd
@pytest.mark.parametrize(
    "arguments", [["if=missing"], ["bs=0"], ["conv=nonsense"], ["if=/dev/null", "count=1", "status=none"]]
)
@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}])
def test_same_exit_codes_and_messages(dd, tmp_path, arguments, locale):
    """Python sets LC_CTYPE in the C locale, and dd chooses its quotes by it: that must not be passed on."""
    ours = dd(*arguments, env={"PATH": f"{tmp_path / 'ours'}:{SYSTEM_PATH}"} | locale)
    theirs = system_dd(*arguments, cwd=tmp_path, env={"PATH": SYSTEM_PATH} | locale)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)


@needs_system_dd
def test_arguments_that_are_not_text(dd, tmp_path):
    name = b"\xff\xfe"
    done = dd(b"of=" + name, "status=none", input=b"x")
    assert done.returncode == 0
    assert (os.fsencode(tmp_path) + b"/" + name) in [os.fsencode(p) for p in tmp_path.iterdir()]


@needs_system_dd
def test_dies_of_a_broken_pipe_in_silence(dd):
    """Python ignores SIGPIPE and exec would pass that on: dd would then complain and end with 1."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = dd("if=/dev/zero", "bs=64K", "count=100", "status=none", capture_output=False, stdout=write, stderr=-1)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (-13, b"")


@needs_system_dd
def test_a_binary_that_comes_back_is_tried_once(dd, tmp_path):
    """A version manager's shim may be a binary, which looks like the system's dd and starts us again.

    Here Python under the name dd is that binary: it takes the operand for the name of its script, which starts us.
    """
    (tmp_path / "manager").mkdir()
    (tmp_path / "manager" / "dd").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "status=none").write_text(
        f"import os, pathlib, sys\n"
        f"pathlib.Path('came-back').touch()\n"
        f"os.execv({str(tmp_path / 'ours' / 'dd')!r}, ['dd', *sys.argv])\n"
    )
    done = dd("status=none", input=b"x", path=f"{tmp_path / 'manager'}:{SYSTEM_PATH}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x", b"")
    assert (tmp_path / "came-back").exists()


@needs_system_dd
def test_a_file_that_cannot_be_executed_here_is_passed_over(dd, tmp_path):
    write_program(tmp_path / "broken" / "dd", "not a program of any machine")
    done = dd("status=none", input=b"x", path=f"{tmp_path / 'broken'}:{SYSTEM_PATH}")
    assert (done.returncode, done.stdout) == (0, b"x")


def test_says_so_when_there_is_no_other_dd(dd, tmp_path):
    done = dd("if=/dev/null", path=f"{tmp_path / 'ours'}:{tmp_path / 'other-venv'}:.:")
    assert done.returncode == coreutils.NOT_FOUND
    assert done.stdout == b""
    assert done.stderr.startswith(b"error: these arguments are for the system's dd, and no other dd is on the PATH\n")


def test_the_hand_over_imports_only_os_and_sys(tmp_path):
    """A build that calls dd a thousand times should not wait for our libraries."""
    script = """
import os, sys
from posix import _exit, write

before = set(sys.modules)

def execv(path, arguments):
    write(1, " ".join(sorted(set(sys.modules) - before)).encode())
    _exit(0)

os.execv = execv
sys.argv = ["dd", "if=/dev/null"]
from ddcli.cli.coreutils import main
main()
"""
    write_program(tmp_path / "dd", "\x7fELF")
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(Path(coreutils.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert set(done.stdout.split()) - {"_signal"} == {"ddcli", "ddcli.cli", "ddcli.cli.coreutils"}


@pytest.mark.parametrize("argv", [["ddcli", "if=a"], ["ddcli"], ["dd", "run", "p.yaml"], ["__main__.py", "if=a"]])
def test_runs_our_command_line(monkeypatch, argv):
    """`ddcli` never hands over."""
    calls = []
    process = types.ModuleType("ddcli.cli.startup")
    process.run_and_leave = lambda: calls.append(list(sys.argv))
    monkeypatch.setitem(sys.modules, "ddcli.cli.startup", process)
    monkeypatch.setattr(coreutils, "hand_over", lambda _: pytest.fail("handed over"))
    monkeypatch.setattr(coreutils.os, "isatty", lambda _: False)
    monkeypatch.setattr(sys, "argv", argv)
    coreutils.main()
    assert calls == [argv]


def test_a_bare_dd_on_a_terminal_is_ours(tmp_path, root):
    """Without arguments and with a terminal a person wants to know what `dd` is, not to copy what they type."""
    terminal, side = pty.openpty()
    probe = "import sys; sys.argv = ['dd']; from ddcli.cli.coreutils import meant_for_coreutils as m; sys.exit(m([]))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", probe], stdin=side, stdout=subprocess.DEVNULL, cwd=root, timeout=300, check=False
        )
    finally:
        os.close(terminal)
        os.close(side)
    assert done.returncode == 0


COMMAND = "import sys; sys.argv = ['ddcli', *sys.argv[1:]]; from ddcli.cli.coreutils import main; {} main()"

BUFFERED = "import ddcli.cli.main as commands; commands.main = lambda: print('something');"
"""A command that leaves what it writes in the buffer."""


@pytest.fixture(params=["", "1"], ids=["fast", "plain"])
def start(request, monkeypatch):
    """Have commands start as they do, and as any Python program does."""
    monkeypatch.setenv("DDCLI_PLAIN_START", request.param)


def command(*arguments, before="", **options):
    """Run our command line in a process of its own, after some Python."""
    line = [sys.executable, "-c", COMMAND.format(before), *arguments]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        line, cwd=ROOT, env=env, timeout=300, check=False, stderr=subprocess.PIPE, text=True, **options
    )


def test_a_command_ends_without_taking_itself_apart():
    """But for exit handlers: what an object does when it goes is not waited for."""
    before = """
class Late:
    def __del__(self):
        print("taken apart")
sys.late = Late()
import atexit
atexit.register(print, "handled")
"""
    done = command("--version", before=f"exec({before!r});", stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == ["handled"]
    assert command("--nothing", stdout=subprocess.DEVNULL).returncode == 2


@pytest.mark.usefixtures("start")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to write to")
def test_what_cannot_be_written_is_an_error():
    with Path("/dev/full").open("w") as full:
        for before in ("", BUFFERED):
            done = command("--version", stdout=full, before=before)
            assert done.returncode == 5
            assert "error: cannot write the output: No space left on device" in done.stderr


@pytest.mark.usefixtures("start")
def test_a_reader_that_went_away_ends_a_command_as_a_signal_does():
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as gone:
        assert command(stdout=gone, before=BUFFERED).returncode == 141


TOUCHING = """
import subprocess, tempfile
tempfile.tempdir = "/elsewhere"
subprocess.run = len
def half(k):
    import importlib
    temporary, started = importlib.import_module("tempfile"), importlib.import_module("subprocess")
    yield {"dir": temporary.gettempdir(), "same": started.run is len}
"""


@pytest.mark.usefixtures("start")
def test_a_function_of_a_pipeline_may_set_attributes_of_modules(tmp_path):
    (tmp_path / "own.py").write_text(TOUCHING)
    (tmp_path / "in.csv").write_text("k\n1\n")
    (tmp_path / "p.yaml").write_text(
        "inputs: {t: {path: in.csv, format: append, columns: {k: int64}}}\n"
        "collections: {c: {from: t, apply: [{map: {function: 'own:half', columns: {dir: string, same: bool}}}]}}\n"
        "outputs: {c: out/}\n"
    )
    done = command("run", str(tmp_path / "p.yaml"), "-q", stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert read_log(tmp_path / "out").select("dir", "same").rows() == [("/elsewhere", True)]
