"""Stand-ins for parts of libraries: whoever needs a part gets it, in whatever way it is asked for."""

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from threading import Barrier, Thread

import pytest

from ddcli.cli import startup

FILES = {
    "__init__.py": "from lib.part import Kind, act, tidy\n",
    "part/__init__.py": "from lib.part.inner import VALUE\nIMPORTED = True\ndef act(n, *, by=2): return n * by + VALUE\ndef tidy(): return act\nclass Kind:\n    WORD = 'kind'\n    def __class_getitem__(cls, item): return item\n",
    "alone.py": "def alone(): return 'alone'\nHERE = True\n",
    "part/inner.py": "VALUE = 1\n",
    "part/beside.py": "import lib.part.inner\ndef value(): return lib.part.inner.VALUE\n",
}


@pytest.fixture
def lib(tmp_path, monkeypatch):
    """Give a library with a part that is deferred."""
    for name, text in FILES.items():
        (tmp_path / "lib" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "lib" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    parts = {
        "lib.part": frozenset({"act", "tidy", "Kind"}),
        "lib.alone": frozenset({"alone"}),
        "lib.absent": frozenset({"a"}),
    }
    monkeypatch.setattr(startup, "PARTS", parts)
    before = set(sys.modules)
    startup.defer()
    yield importlib.import_module("lib")
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, startup.Parts)]
    for name in set(sys.modules) - before:
        del sys.modules[name]


def waits():
    return isinstance(sys.modules["lib.part"], startup.Deferred) and "lib.part.inner" not in sys.modules


def test_a_function_that_nobody_calls_imports_nothing(lib):
    assert waits()
    assert lib.act.__name__ == "act"
    for name in ("__file__", "__warningregistry__", "__wrapped__"):
        assert not hasattr(sys.modules["lib.part"], name)
    found = importlib.util.find_spec("lib.part")
    assert found is not None
    assert found.name == "lib.part"
    assert waits()
    startup.defer()  # again: what is there stays
    assert waits()


def test_a_function_that_is_called_is_that_of_the_part(lib):
    assert lib.act(3, by=5) == 16
    assert not isinstance(sys.modules["lib.part"], startup.Deferred)
    assert lib.part is sys.modules["lib.part"]
    assert lib.tidy() is lib.part.act
    with pytest.raises(TypeError):
        lib.act()


def test_anything_else_imports_the_part(lib):
    part = importlib.import_module("lib.part")
    assert waits()
    assert part.IMPORTED
    assert importlib.import_module("lib.part").Kind is part.Kind
    with pytest.raises(AttributeError, match="nothing"):
        part.nothing  # noqa: B018 - what is asked for


def test_what_a_part_offers_is_what_it_lists(lib):
    assert sys.modules["lib.part"].__all__ == ["Kind", "act", "tidy"]
    assert waits()


def test_an_attribute_that_is_set_is_that_of_the_part_for_all(lib):
    held = sys.modules["lib.part"]
    held.WORD = "set"
    real = sys.modules["lib.part"]
    assert real is not held
    assert (real.WORD, held.WORD) == ("set", "set")
    held.act = len
    assert (real.act, held.act) == (len, len)
    lib.Kind.WORD = "set"
    assert real.Kind.WORD == "set"
    del held.WORD
    assert not hasattr(real, "WORD")
    assert not hasattr(held, "WORD")


def test_modules_of_the_standard_library_have_no_stand_ins():
    assert not {name.partition(".")[0] for name in startup.PARTS} & sys.stdlib_module_names


def test_modules_within_are_imported_before_and_after(lib):
    beside = importlib.import_module("lib.part.beside")
    assert beside.value() == 1
    inner = sys.modules["lib.part.inner"]
    assert lib.act(1) == 3
    assert sys.modules["lib.part"].beside is beside
    assert sys.modules["lib.part"].inner is inner
    assert beside.value() == 1


def test_a_class_that_nobody_uses_imports_nothing_and_is_that_of_the_part_else(lib):
    offered = lib.Kind
    assert waits()
    assert offered.__name__ == "Kind"
    assert not hasattr(offered, "__wrapped__")
    made = offered()
    real = sys.modules["lib.part"].Kind
    assert type(made) is real
    assert isinstance(made, offered)
    assert not isinstance(1, offered)
    assert issubclass(real, offered)
    assert not issubclass(int, offered)
    assert offered.WORD == "kind"
    assert offered[int] is int
    assert (offered | None) == (real | None)
    assert (None | offered) == (None | real)
    assert pickle.loads(pickle.dumps(offered)) is real  # noqa: S301 - our own
    assert copy.copy(offered) is real

    class Below(offered):
        pass

    assert Below.__mro__[1] is real
    with pytest.raises(AttributeError, match="nothing"):
        offered.nothing  # noqa: B018 - what is asked for


@pytest.mark.parametrize(
    "use", ["isinstance(1, lib.Kind)", "issubclass(int, lib.Kind)", "lib.Kind.WORD", "lib.Kind[1]", "lib.Kind | None"]
)
def test_whatever_is_asked_of_a_class_imports_the_part(lib, use):
    assert waits()
    eval(use)  # noqa: S307 - one of the above
    assert not waits()


def test_a_module_of_a_package_and_one_that_is_not_there(lib):
    import lib.alone

    assert isinstance(lib.alone, startup.Deferred)
    assert lib.alone.HERE
    assert importlib.import_module("lib.alone").alone() == lib.alone.alone() == "alone"
    with pytest.raises(ModuleNotFoundError):
        import lib.absent


def test_threads_that_need_a_part_at_once_all_get_it(lib):
    found, barrier = [], Barrier(8)

    def need():
        barrier.wait()
        found.append((lib.act(3), sys.modules["lib.part"].IMPORTED, isinstance(lib.Kind(), lib.Kind)))

    threads = [Thread(target=need) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(7, True, True)] * 8


def test_what_stands_in_for_parts_of_the_libraries_that_are_installed(lib, monkeypatch):
    """Their names are those of functions and classes, of no exception, and of modules that others take nothing else from."""
    monkeypatch.undo()
    for name, offered in startup.PARTS.items():
        module = importlib.import_module(name)
        for each in offered:
            found = getattr(module, each)
            assert callable(found)
            assert not (isinstance(found, type) and issubclass(found, BaseException))


def in_a_process(text, root):
    """Return what a Python prints, as JSON."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    found = subprocess.run([sys.executable, "-c", text], env=environment, check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


USED = """
import io, json, sys
from ddcli.cli.startup import PARTS, Deferred, defer
defer()
import numpy as np, polars as pl
waiting = [name for name in PARTS if type(sys.modules.get(name)) is Deferred]
frame, found = pl.DataFrame({"a": [1, 2], "b": ["x", "yy"]}), {}
for form in ("parquet", "csv", "ipc", "avro", "json", "ndjson"):
    file = io.BytesIO()
    getattr(frame, "write_" + form)(file)
    file.seek(0)
    found[form] = getattr(pl, "read_" + form)(file).equals(frame)
    if form != "avro" and form != "json":
        file.seek(0)
        found["scan " + form] = getattr(pl, "scan_" + form)(file).collect().equals(frame)
found["sql"] = pl.SQLContext(t=frame).execute("select a from t where b = 'x'").collect().item() == 1
found["str"] = frame["b"].str.len_chars().to_list() == [1, 2]
found["list"] = pl.Series([[1, 2]]).list.len().to_list() == [2]
found["struct"] = frame.to_struct("s").struct.fields == ["a", "b"]
found["dt"] = pl.Series([0]).cast(pl.Date).dt.year().item() == 1970
found["html"] = "<table" in frame._repr_html_()
found["cast"] = type(pl.ScanCastOptions()).__name__ == "ScanCastOptions"
found["normalize"] = pl.json_normalize([{"a": {"b": 1}}]).columns == ["a.b"]
days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 1, 5), eager=True)
found["days"] = days.len() == 5 and pl.select(pl.business_day_count(days.first(), days.last())).item() == 4
found["times"] = pl.datetime_range(days.first(), days.last(), eager=True).len() == 5
found["clock"] = pl.time_range(interval="12h", eager=True).len() == 2 and pl.linear_space(0, 1, 3, eager=True).sum() == 1.5
found["select"] = frame.select(pl.selectors.string()).columns == ["b"] and frame.drop(pl.selectors.by_dtype(pl.String)).columns == ["a"]
found["selector"] = isinstance(pl.selectors.all(), pl.selectors.Selector)
found["groups"] = [len(rows) for _, rows in frame.group_by("b")] == [1, 1] and frame.lazy().group_by("b").len().collect().height == 2
found["from"] = pl.from_dict({"a": [1]}).equals(pl.from_dicts([{"a": 1}])) and pl.from_numpy(np.array([[1]])).item() == 1
with pl.Config(tbl_rows=1) as config, pl.StringCache():
    found["config"] = isinstance(config, pl.Config)
found["background"] = frame.lazy().collect(background=True).fetch_blocking().equals(frame)
found["build"] = "version" in pl.build_info()
found["sets"] = np.unique([1, 1, 2]).tolist() == [1, 2] and np.isin([1, 3], [3]).tolist() == [False, True]
found["nan"] = np.nanmax([1, np.nan]).item() == 1 and np.pad([1], 1).tolist() == [0, 1, 0] and np.histogram([1, 2])[0].tolist().count(1) == 2
found["poly"] = np.polyval(np.poly1d([1, 2]), 3).item() == 5 and np.packbits([1]).tolist() == [128]
file = io.BytesIO()
np.save(file, np.eye(2))
file.seek(0)
found["load"] = np.load(file).tolist() == [[1, 0], [0, 1]]
found["all"] = {"unique", "nanmax", "pad", "poly", "load"} <= set(np.__all__)
found["inverse"] = bool((np.linalg.inv(np.eye(2)) == np.eye(2)).all())
print(json.dumps([waiting, found, [name for name in PARTS if name.startswith("polars") and name not in sys.modules]]))
"""


def test_what_a_process_of_ours_does_without_is_there_when_it_is_used(root):
    waiting, found, unknown = in_a_process(USED, root)
    assert len(waiting) > 30
    assert found == dict.fromkeys(found, True)
    assert not unknown, "this version of polars has all that we name"


def test_a_program_that_uses_us_as_a_library_has_no_stand_ins(root):
    text = """
import json, sys
import ddcli.api, ddcli.driver.run, ddcli.driver.execute
found = [name for name, module in sys.modules.items() if type(module).__module__.startswith("ddcli")]
print(json.dumps([found, [type(each).__module__ for each in sys.meta_path]]))
"""
    found, finders = in_a_process(text, root)
    assert not found
    assert not any(each.startswith("ddcli") for each in finders)
