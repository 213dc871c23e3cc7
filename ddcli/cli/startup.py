"""The start and the end of a command's process, without work that Python and libraries do for nothing.

A library imports its parts whether they are used or not. The parts of polars and numpy in `PARTS`, which hardly any command uses, have stand-ins until they are first used: a small run
then takes a fifth less time. pyiceberg imports pyarrow's datasets, and these pandas if it is installed. Only a process of ours does without these, never a program that uses us as a
library. No module of Python's own library has a stand-in: functions of a pipeline may set what they like there.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence


PARTS = {
    part: frozenset(names.split())
    for part, names in {
        "polars.series.array": "ArrayNameSpace",
        "polars.series.binary": "BinaryNameSpace",
        "polars.series.categorical": "CatNameSpace",
        "polars.series.datetime": "DateTimeNameSpace",
        "polars.series.ext": "ExtensionNameSpace",
        "polars.series.list": "ListNameSpace",
        "polars.series.map": "MapNameSpace",
        "polars.series.plotting": "SeriesPlot",
        "polars.series.string": "StringNameSpace",
        "polars.series.struct": "StructNameSpace",
        "polars.catalog.unity": "Catalog",
        "polars.config": "Config",
        "polars.convert.general": "from_arrow from_dataframe from_dict from_dicts from_numpy from_pandas from_records from_repr from_torch",
        "polars.convert.normalize": "json_normalize",
        "polars.dataframe._html": "NotebookFormatter",
        "polars.dataframe.group_by": "DynamicGroupBy GroupBy RollingGroupBy",
        "polars.dataframe.plotting": "DataFramePlot",
        "polars.datatype_expr.array": "DataTypeExprArrNameSpace",
        "polars.datatype_expr.list": "DataTypeExprListNameSpace",
        "polars.datatype_expr.struct": "DataTypeExprStructNameSpace",
        "polars.functions.business": "_holidays_to_expr business_day_count",
        "polars.functions.range.date_range": "date_range date_ranges",
        "polars.functions.range.datetime_range": "datetime_range datetime_ranges",
        "polars.functions.range.linear_space": "linear_space linear_spaces",
        "polars.functions.range.time_range": "time_range time_ranges",
        "polars.io.arrow_c_stream": "scan_arrow_c_stream",
        "polars.io.avro": "read_avro",
        "polars.io.clipboard": "read_clipboard",
        "polars.io.csv": "read_csv scan_csv",
        "polars.io.database": "read_database read_database_uri",
        "polars.io.delta": "read_delta scan_delta",
        "polars.io.external_reader": "",
        "polars.io.external_reader.api": "scan_external_reader",
        "polars.io.iceberg": "delete_iceberg scan_iceberg",
        "polars.io.ipc": "read_ipc read_ipc_schema read_ipc_stream scan_ipc",
        "polars.io.json": "read_json",
        "polars.io.lance": "scan_lance",
        "polars.io.lines": "read_lines scan_lines",
        "polars.io.ndjson": "read_ndjson scan_ndjson",
        "polars.io.partition": "FileProviderArgs PartitionBy",
        "polars.io.plugins": "_defer register_io_source",
        "polars.io.pyarrow_dataset": "scan_pyarrow_dataset",
        "polars.io.scan_options": "ScanCastOptions",
        "polars.io.spreadsheet": "read_excel read_ods",
        "polars.lazyframe.engine_remote": "RemoteEngine",
        "polars.lazyframe.resolver._resolver": "FilterExpr LazyFrameResolver ResolvedLazyFrameProps",
        "polars.lazyframe.group_by": "LazyGroupBy",
        "polars.lazyframe.in_process": "InProcessQuery",
        "polars.lazyframe.query_result": "QueryResult SingleNodeQueryResult",
        "polars.meta.build": "build_info",
        "polars.meta.versions": "show_versions",
        "polars.selectors": "Selector _expand_selector_dicts _expand_selectors by_dtype expand_selector",
        "polars.sql": "SQLContext sql",
        "polars.string_cache": "StringCache disable_string_cache enable_string_cache using_string_cache",
        "pyarrow.compute": "",
        "pyarrow.dataset": "",
        "pyiceberg.expressions.parser": "",
        "numpy.linalg": "eigvals inv lstsq matrix_power",
        "numpy._core._add_newdocs": "",
        "sqlglot.diff": "diff",
        "numpy.lib._arraypad_impl": "pad",
        "numpy.lib._arraysetops_impl": "ediff1d intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values",
        "numpy.lib._histograms_impl": "histogram histogram_bin_edges histogramdd",
        "numpy.lib._nanfunctions_impl": "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar",
        "numpy.lib._npyio_impl": "DataSource NpzFile fromregex genfromtxt load loadtxt packbits save savetxt savez savez_compressed unpackbits",
        "numpy.lib._polynomial_impl": "poly poly1d polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    }.items()
}
"""Each part, with the functions and classes that its library re-exports, which nothing uses before a person does;
for parts of numpy, the names in their `__all__`, which numpy reads."""
_taking = Lock()


class PartStandIn:
    """The stand-in of a part's function or class: its call, or access to an attribute, imports the part. An exception class can't have one."""

    def __init__(self, part: Deferred, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = part.__name__
        self._part = part

    def _real(self) -> Any:
        return getattr(self._part._load(), self.__name__)  # noqa: SLF001 - the two are one

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._real()(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # an inspection finds nothing
        return getattr(self._real(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the function or class itself."""
        if name.startswith("__") or name == "_part":
            super().__setattr__(name, value)
        else:
            setattr(self._real(), name, value)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._real())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._real())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (self._real(),)

    def __getitem__(self, item: object) -> Any:
        return self._real()[item]

    def __or__(self, other: object) -> Any:
        return self._real() | other

    def __ror__(self, other: object) -> Any:
        return other | self._real()

    def __reduce__(self) -> tuple[Any, ...]:
        self._real()
        return taken, (self.__module__, self.__name__)


def taken(part: str, name: str) -> Any:
    """Return a function or a class of a part; unpickling calls this."""
    return getattr(importlib.import_module(part), name)


class Deferred(ModuleType):
    """A stand-in for a module, which is imported at the first use of a re-exported name, or access to any other."""

    def __init__(self, name: str, left: dict[str, frozenset[str]]) -> None:
        super().__init__(name, "A module that is imported when it is first used.")
        self._left, self._offered = left, left[name]

    def __getattr__(self, name: str) -> Any:
        """Return a stand-in for a re-exported name, which imports the module at its first use, or the module's own value of this name."""
        if name == "__all__" and self._offered:
            return sorted(self._offered)  # numpy joins the names of its parts
        if name.startswith("__"):
            raise AttributeError(name)  # an inspection finds nothing
        if name in self._offered and self.__name__ in self._left:
            return PartStandIn(self, name)
        return getattr(self._load(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the module itself, where all its users find it. Submodules, which Python's import sets, stay here."""
        within = isinstance(value, ModuleType) and sys.modules.get(f"{self.__name__}.{name}") is value
        if within or name.startswith("__") or name in ("_left", "_offered"):
            super().__setattr__(name, value)
        else:
            setattr(self._load(), name, value)

    def __delattr__(self, name: str) -> None:
        """Remove an attribute of the module itself."""
        delattr(self._load(), name)

    def _load(self) -> ModuleType:
        """Return the module, imported once, with its submodules that were imported before."""
        with _taking:
            if self._left.pop(self.__name__, None) is not None:
                sys.modules.pop(self.__name__, None)
        module = importlib.import_module(self.__name__)
        for name, within in tuple(vars(self).items()):
            if isinstance(within, ModuleType):
                vars(module).setdefault(name, within)
        return module


class Parts:
    """A finder for `sys.meta_path` that makes a stand-in for each installed part, until the part is first used."""

    def __init__(self) -> None:
        self.left = dict(PARTS)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a part's stand-in; None for all other modules."""
        if name not in self.left:
            return None
        folders: list[str] = []
        if path is not None:
            places = [os.path.join(around, name.rpartition(".")[2]) for around in path]  # noqa: PTH118 - as the import system has it
            folders = [place for place in places if os.path.isfile(os.path.join(place, "__init__.py"))]  # noqa: PTH113, PTH118 - the same
            if not folders and not any(os.path.isfile(f"{place}.py") for place in places):  # noqa: PTH113 - the same
                return None  # another version of the library, or one in an archive
        found = ModuleSpec(name, self, is_package=bool(folders))  # type: ignore[arg-type]
        if folders:
            found.submodule_search_locations = folders[:1]
        return found

    def create_module(self, spec: ModuleSpec) -> Deferred:
        return Deferred(spec.name, self.left)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stand-in runs no code."""


def defer() -> None:
    """Add the finder of stand-ins for parts that are not imported yet."""
    if not any(isinstance(finder, Parts) for finder in sys.meta_path):
        sys.meta_path.insert(0, Parts())


PLAIN = "DDCLI_PLAIN_START"
"""A variable: with any value, imports and the end of the process are Python's own. It shows whether a fault comes from ours."""
OPENBLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""OpenBLAS's threads spin while numpy is imported (50 ms of processor time). Rows are computed in threads of ours, one for each processor, in any case."""
YOUNG = 200_000
"""New objects after which Python looks for cycles: with its own 700 to 2 000 it would look some 300 times during imports, which make 100 000 objects."""


def run_and_leave() -> NoReturn:
    """Run the command line and end the process with its exit code, as soon as its output is flushed.

    Python would first release modules, the libraries' tables and every value of the run (0.25 s of a run over 10 M rows). The necessary
    work of an end is done: exit handlers are called, and buffers are written.
    """
    _take_streams()
    gc.set_threshold(YOUNG)
    os.environ.setdefault(OPENBLAS_THREADS, "1")
    plain = bool(os.environ.get(PLAIN))
    if not plain:
        defer()
    from ddcli.cli.main import main  # not before: it imports parts that may wait

    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    if not plain:
        atexit._run_exitfuncs()  # noqa: SLF001 - the interpreter's own call, which `os._exit` leaves out; there is no public one
    failed = flushed()
    if plain and not failed:
        sys.exit(code)
    os._exit(failed or code)  # where output can't be written Python would try it again, and end with a code of its own


def _take_streams() -> None:
    """Open the numbers of stdin, stdout and stderr where a caller has closed them: a file that gets one of them would have messages in it.

    This comes before any other file is opened, which could have such a number for a while.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free


def flushed() -> int:
    """Flush stdout and stderr; return 0, or the exit code if that fails."""
    from ddcli.cli.main import NO_READER, unwritten

    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BrokenPipeError:
            code = NO_READER
        except OSError as error:
            os.write(2, f"{unwritten(error)}\n".encode())
            code = 5
    return code
