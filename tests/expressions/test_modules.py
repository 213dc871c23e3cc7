"""Modules of pipelines' folders: which one a name means, what is run of it, and that folders know nothing of each other."""

import importlib
import os
import pickle
import random
import sys
import threading

import pytest

from ddcli.api.functions import HERE
from ddcli.errors import SpecError, Text
from ddcli.expressions import modules
from ddcli.expressions.python import Named, define, load_function, named
from tests.draws import many


@pytest.fixture(autouse=True)
def nothing_left():
    """Hold what Python knows of modules against what it knew before: no test leaves a folder on the path."""
    path, before = list(sys.path), set(sys.modules)
    yield
    assert sys.path == path
    for folder in modules._folders.values():
        folder._forget()
    modules._folders.clear()
    for name in [name for name in set(sys.modules) - before if "." not in name and len(name) < 3]:
        del sys.modules[name]


def write(folder, **texts):
    for name, text in texts.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def function(folder, name, arguments=1):
    return load_function(named(Text(name, HERE), str(folder), arguments, "a record"))


def test_each_folder_has_its_own_modules(tmp_path):
    for name in ("one", "two"):
        write(
            tmp_path / name, m1="import m2\n\n\ndef f(_):\n    return m2.g()\n", m2=f"def g():\n    return '{name}'\n"
        )
    first = [function(tmp_path / name, "m1:f") for name in ("one", "two")]
    again = [function(tmp_path / name, "m1:f") for name in ("one", "two")]
    assert [each({}) for each in (*first, *again)] == ["one", "two"] * 2
    assert first == again


def test_a_module_of_one_folder_is_none_of_another(tmp_path):
    write(tmp_path / "one", m1="import m2\n\n\ndef f(_):\n    return m2\n", m2="")
    write(tmp_path / "two", m3="import m2\n\n\ndef f(_):\n    return m2\n")
    function(tmp_path / "one", "m1:f")
    with pytest.raises(SpecError, match="No module named 'm2'"):
        function(tmp_path / "two", "m3:f")


@pytest.mark.parametrize(("name", "imported"), [("csv", True), ("antigravity", False), ("polars", True), ("sys", True)])
def test_a_name_that_the_environment_has_is_refused(tmp_path, name, imported):
    """Of the module itself, and of one that it imports, at the top or in a function."""
    assert (name in sys.modules) == imported
    write(tmp_path, **{name: "def f(_):\n    return 1\n"})
    with pytest.raises(SpecError, match=f"there are two modules `{name}`"):
        define(f"{name}:f", str(tmp_path))
    for text in (f"import {name}\n", f"from {name} import f as g\n", f"def g():\n    import {name}\n"):
        write(tmp_path, m1=f"{text}def f(_):\n    return 1\n")
        with pytest.raises(SpecError, match=rf"m1.py imports `{name}.*`: there are two modules `{name}`"):
            define("m1:f", str(tmp_path))
    assert (name in sys.modules) == imported


def test_a_folder_of_data_takes_no_module_s_place(tmp_path):
    (tmp_path / "csv").mkdir()
    (tmp_path / "m1").mkdir()
    write(tmp_path, m2="import csv\n\n\ndef f(_):\n    return csv.writer\n")
    assert function(tmp_path, "m2:f")({}) is __import__("csv").writer
    with pytest.raises(SpecError, match="there is no module `m1`"):
        define("m1:f", str(tmp_path))


def test_a_program_s_own_import_of_a_module_is_that_module(tmp_path, monkeypatch):
    write(tmp_path, m1="def f(_):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = __import__("m1")
    assert function(tmp_path, "m1:f") is own.f


def test_a_program_s_own_package_stays_what_it_is(tmp_path, monkeypatch):
    """Of which a pipeline's function is, whichever other folders' modules are imported later: else its classes can't be pickled."""
    one, two = tmp_path / "one", tmp_path / "two"
    write(one / "m4", __init__="", mine="class Record:\n    pass\n", theirs="def f(_):\n    return 1\n")
    write(two, m5="def f(_):\n    return 2\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(one)
        mine = importlib.import_module("m4.mine")
        found = [function(one, "m4.theirs:f"), function(two, "m5:f"), function(one, "m4.theirs:f")]
        assert [each({}) for each in found] == [1, 2, 1]
        assert sys.modules["m4.mine"] is mine
        assert importlib.import_module("m4").mine is mine
        assert pickle.loads(pickle.dumps(mine.Record())).__class__ is mine.Record  # noqa: S301 - our own
    for name in ("m4", "m4.mine"):
        del sys.modules[name]


def test_a_function_may_import_when_it_is_called(tmp_path):
    write(tmp_path, m1="def f(_):\n    from m2 import g\n    return g()\n", m2="def g():\n    return 'here'\n")
    assert function(tmp_path, "m1:f")({}) == "here"


def test_what_a_function_imports_when_called_is_never_another_folder_s(tmp_path):
    for name in ("one", "two"):
        write(
            tmp_path / name, m1="def f(_):\n    import m2\n    return m2.g()\n", m2=f"def g():\n    return '{name}'\n"
        )
    one = function(tmp_path / "one", "m1:f")
    with pytest.raises(SpecError, match="imports `m2` when it is called") as caught:
        function(tmp_path / "two", "m1:f")
    assert "at the top of the module" in caught.value.hint
    assert one({}) == "one"


def test_the_text_is_run_whatever_bytecode_lies_beside_it(tmp_path):
    """Python takes bytecode for that of a text of the same size and time of change, and some of any text."""
    import py_compile

    write(tmp_path, m1="def f(_):\n    return 1\n")
    for mode in (py_compile.PycInvalidationMode.UNCHECKED_HASH, py_compile.PycInvalidationMode.TIMESTAMP):
        py_compile.compile(str(tmp_path / "m1.py"), invalidation_mode=mode)
    status = (tmp_path / "m1.py").stat()
    write(
        tmp_path,
        m1="def f(_):\n    return 2\n",
        **{"m2/m3": "def f(_):\n    return 3\n", "m2/__init__": "", "m4/m5": "def f(_):\n    return 5\n"},
    )
    os.utime(tmp_path / "m1.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    before = sorted(tmp_path.rglob("*"))
    assert function(tmp_path, "m1:f")({}) == 2
    assert function(tmp_path, "m2.m3:f")({}) == 3
    assert function(tmp_path, "m4.m5:f")({}) == 5
    assert sorted(tmp_path.rglob("*")) == before


def test_another_text_is_another_function(tmp_path):
    """Also in a process that has imported the module before; and of a text that changes in between none is run."""
    write(tmp_path, m1="import m2\n\n\ndef f(_):\n    return 1, m2.x\n", m2="x = 1\n")
    old = named(Text("m1:f", HERE), str(tmp_path), 1, "a record")
    assert load_function(old)({}) == (1, 1)
    write(tmp_path, m1="import m2\n\n\ndef f(_):\n    return 2, m2.x\n", m2="x = 2\n")
    new = named(Text("m1:f", HERE), str(tmp_path), 1, "a record")
    assert load_function(old)({}) == (1, 1)
    assert load_function(new)({}) == (2, 2)
    assert old != new
    assert (new.meaning, new.text) != (old.meaning, old.text)
    with pytest.raises(SpecError, match="has changed since the pipeline was read"):
        load_function(old)


def test_names_go_to_other_processes(tmp_path):
    write(tmp_path, m1="def f(_):\n    return 1\n")
    name = named(Text("m1:f", HERE), str(tmp_path), 1, "a record")
    there = pickle.loads(pickle.dumps(name))  # noqa: S301 - our own
    assert (there, there.folder, there.text, there.meaning, there.span) == (
        name,
        str(tmp_path),
        name.text,
        name.meaning,
        name.span,
    )
    assert (name, name.meaning != "", f"{name}") == ("m1:f", True, "m1:f")
    assert name != Named("m1:f", "elsewhere", name.text)


def test_threads_get_one_module(tmp_path):
    write(tmp_path, m1="import time\ntime.sleep(0.05)\nseen = object()\n\n\ndef f(_):\n    return seen\n")
    name, found = named(Text("m1:f", HERE), str(tmp_path), 1, "a record"), []
    threads = [threading.Thread(target=lambda: found.append(load_function(name)({}))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_a_module_that_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m1.py")
    with pytest.raises(SpecError, match="there is no module `m1`"):
        define("m1:f", str(tmp_path))


HOSTILE = {
    "large": "x = [" + "1, " * modules.LARGEST + "]",
    "many names": "".join(f"a{n} = a{n + 1}\n" for n in range(5_000)) + "f = a0\na5000 = len\n",
    "deep": "def f(_):\n    return " + "(" * 150 + "1" + ")" * 150,
    "deeper": "def f(_):\n    return " + "+".join(["1"] * 20_000),
    "nested": "".join(" " * n + "if 1:\n" for n in range(90)) + " " * 90 + "def f(_): return 1",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused_or_read(tmp_path, text):
    write(tmp_path, m1=text)
    try:
        define("m1:f", str(tmp_path))
    except SpecError as error:
        assert "m1" in error.problem  # noqa: PT017 - either is right


def test_many_texts_are_not_read_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(modules, "ALL", 1_000)
    for at in range(20):
        write(tmp_path, **{f"m{at}": f"import m{at + 1}\n" + "#" * 80})
    with pytest.raises(SpecError, match="`m0` imports more than"):
        define("m0:f", str(tmp_path))
    write(tmp_path, m15="def f(_):\n    return 1\n")
    define("m15:f", str(tmp_path))


@pytest.mark.parametrize("seed", range(many(40)))
def test_random_folders(tmp_path, seed):
    """What functions of several folders give, whose modules import each other in any way, is what their texts say."""
    rng = random.Random(seed)
    names = [f"m{n}" for n in range(rng.randint(2, 5))]
    folders = [Folder(tmp_path / f"f{at}", names, rng) for at in range(rng.randint(1, 3))]
    for _ in range(6):
        folder, name = rng.choice(folders), rng.choice(names)
        try:
            found = function(folder.path, f"{folder.modules[name]}:f")
        except SpecError as error:
            assert "when it is called" in error.problem  # noqa: PT017 - a refusal is right, too
            assert len(folders) > 1
            assert any(each.late for each in folders)
            continue
        folder.loaded.append((found, folder.gives[name]))
        for each in folders:
            for known, gives in each.loaded:
                assert known({}) == gives


class Folder:
    """A folder of modules, each with a function that calls those of some of the modules after it."""

    def __init__(self, path, names, rng):
        self.path, self.loaded, self.gives, self.late = path, [], {}, False
        self.modules = {name: rng.choice([name, name, f"p{name}.{name}"]) for name in names}
        for at, name in reversed(list(enumerate(names))):
            top, inside, calls = [], [], []
            for other in rng.sample(names[at + 1 :], rng.randint(0, len(names) - at - 1)):
                module = self.modules[other]
                how = rng.choice(["import {0}", "from {0} import f as {1}_f", "import {0} as {1}_m"]).format(
                    module, other
                )
                late = rng.random() < 0.2
                self.late |= late
                (inside if late else top).append(how)
                calls.append((f"{other}_f" if "_f" in how else f"{other}_m.f" if "_m" in how else f"{module}.f", other))
            said = f"{path.name}.{name}"
            body = [
                *inside,
                f"return '{said}(' + {' + '.join([f'{call}(_)' for call, _ in calls] or [repr('')])} + ')'",
            ]
            text = "\n".join([*top, "def f(_):", *(f"    {line}" for line in body), ""])
            module = self.modules[name]
            write(path, **{module.replace(".", "/"): text})
            if "." in module and rng.random() < 0.7:
                write(path, **{f"p{name}/__init__": ""})
            self.gives[name] = f"{said}({''.join(self.gives[other] for _, other in calls)})"
