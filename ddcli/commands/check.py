"""The errors of a pipeline that can be found without reading a row: `dd check`.

It reports all errors: in the file, in the columns of its inputs' files, and of the plan, as far as one can be made. Polars
is not imported, and pyarrow only to read the columns of files that state them.
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from ddcli.circuit.retention import check_lengths
from ddcli.dataclass import frozen
from ddcli.errors import DdError, EngineError, InputError, SpecErrors, UsageError, each_of
from ddcli.job.budget import run_budget
from ddcli.job.consumed_files import list_here, not_taken_in
from ddcli.job.inputs import format_of, shared_time, with_tags_of_logs
from ddcli.job.paths import catalog_of, database_file, problems_of, state_of
from ddcli.job.request import functions_of, hide_declared
from ddcli.job.tables import catalogue_file, declared_columns, open_table, with_columns_of
from ddcli.plan.pipeline_file import BoundPipeline, parse_partly, places
from ddcli.screen import near
from ddcli.sources.inference import pinned, with_columns
from ddcli.spec.file import read_text
from ddcli.spec.model import SPARK
from ddcli.store.files.access import fs, locate
from ddcli.store.log.schema import LogSchema, PinnedColumns, check_file, columns_from_paths, schema_of
from ddcli.store.mirrors.mirror import mirror_of, read_mark
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.shared_arrangements import find_shared
from ddcli.store.tables.footers import Footers
from ddcli.store.tables.listing import Listing
from ddcli.version import PRODUCTS, check_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ddcli.errors import BudgetError
    from ddcli.expressions.types import Schema
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.state.entries import InputEntry
    from ddcli.store.state.manifest import Manifest


@frozen
class CheckedInput:
    """An input's columns, the number of its files, and the key of an imported arrangement."""

    schema: LogSchema
    files: int = 0
    key: tuple[str, ...] = ()
    passed: dict[str, str] = field(default_factory=dict)
    """The files that are skipped, with the reason."""
    pinned: PinnedColumns | None = None
    """The inferred columns, if they are inferred."""
    table: bool = False
    """True: it is a table of another program, without files of its own."""
    size: int = 0
    """The bytes of its files, which affect the choice of a new plan."""
    listed: bool = True
    """False: its columns are declared, and it is in an object store, which is not listed then."""


@frozen
class Checked:
    """The inputs, outputs and errors of a pipeline file. Without errors all inputs and outputs are known."""

    file: str
    name: str | None = None
    inputs: dict[str, CheckedInput] = field(default_factory=dict)
    outputs: dict[str, Schema] = field(default_factory=dict)
    errors: tuple[DdError, ...] = ()
    unseen: dict[str, str] = field(default_factory=dict)
    """The Python functions whose number of arguments is unknown, with the reason."""
    not_taken_in: dict[str, str] = field(default_factory=dict)
    """Notes on inputs whose archives have files although there is no state."""
    bound: BoundPipeline | None = None
    """The pipeline with the known columns of its inputs."""

    @property
    def remarks(self) -> list[str]:
        """The notes on the inputs: on declared columns without a file, on inferred columns, and on archives that are not empty."""
        found = self.inputs.items()
        none = [name for name, given in found if not (given.files or given.key or given.pinned or given.table)]
        inferred = [f"inputs.{name}: {given.pinned.note}" for name, given in found if given.pinned is not None]
        why = {True: "no files here", False: "its files, in an object store, were not looked at"}
        none_here = [f"inputs.{name}: {why[self.inputs[name].listed]}; its columns are as declared" for name in none]
        return [*none_here, *inferred, *(f"inputs.{name}: {note}" for name, note in self.not_taken_in.items())]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        inputs = {
            name: {
                "columns": _texts(found.schema.columns),
                "time": _texts(found.schema.time),
                "files": found.files,
                "passed": found.passed,
                "inferred": found.pinned and {**found.pinned.to_json(), "known": found.pinned.known},
            }
            for name, found in self.inputs.items()
        }
        outputs = {name: _texts(schema) for name, schema in self.outputs.items()}
        errors = [facts_of(error) | {"code": error.exit_code} for error in self.errors]
        return {
            "file": self.file,
            "name": self.name,
            "ok": not errors,
            "inputs": inputs,
            "outputs": outputs,
            "errors": errors,
        }


def bound_pipeline(path: Path) -> BoundPipeline:
    """Return the pipeline of a file with the columns of its inputs, or raise all its errors. No row is read."""
    checked = check(path)
    if checked.errors:
        raise checked.errors[0] if len(checked.errors) == 1 else SpecErrors(checked.errors)
    assert checked.bound is not None, "without errors all inputs are known"
    return checked.bound


def _texts(schema: Schema) -> dict[str, str]:
    return {name: str(kind) for name, kind in schema.items()}


def facts_of(error: DdError) -> dict[str, Any]:
    """Return an error as JSON has it: its place, problem and hint."""
    place = {"file": error.place, "line": None, "column": None, "length": None}
    if error.span is not None:
        place = {name: value for name, value in asdict(error.span).items() if name in place}
    return place | {"problem": error.problem, "hint": error.hint}


def check(path: Path, budget: Mapping[str, str] | None = None) -> Checked:
    """Return the parts of a pipeline file and all its errors; no row of an input is read.

    The class of work in `budget` replaces the file's. An input with declared columns needs no file; its files are checked if
    they are on this machine.
    """
    try:
        text = read_text(path)
    except UsageError as error:
        return Checked(str(path), errors=each_of(error))
    return check_text(text, path, budget)


def check_text(text: str, path: Path, budget: Mapping[str, str] | None = None) -> Checked:
    """Return the parts of a pipeline file's text and all its errors, as `check` does; `path` is the file's."""
    try:
        spec, wrong = parse_partly(text, str(path))
    except UsageError as error:
        return Checked(str(path), errors=each_of(error))
    if spec is None:
        return Checked(str(path), errors=SpecErrors(wrong).errors)
    hide_declared(spec)
    base = path.absolute().parent
    state = state_of(spec, base)
    errors: list[DdError] = [*wrong, *problems_of(spec, base, state.absolute())]
    inputs: dict[str, CheckedInput] = {}
    for name, given in spec.inputs.items():
        try:
            inputs[name] = _check_input(
                given, base, state, _entry(spec, base, name) if given.infers or given.consumed != "keep" else None
            )
        except DdError as error:
            errors += [_at_the_input(each, given) for each in each_of(error)]
    bound = _bound(spec if errors else with_tags_of_logs(spec, base, local=True), inputs, errors)
    outputs = _plan(bound, errors)
    errors += _missing_for_tables(spec, base)
    errors += _unfit_beginnings(spec, base, outputs, bound)
    if bound is not None and not errors and (budget or spec.budget is not None):
        errors += _overworked(bound, budget or {})
    unseen = {} if errors else _unseen(spec, base)
    left = {} if errors or not spec.archives or _manifest(spec, base) else not_taken_in(spec, base)
    return Checked(str(path), spec.name.value, inputs, outputs, SpecErrors(errors).errors, unseen, left, bound)


def _missing_for_tables(spec: Spec, base: Path) -> Iterator[DdError]:
    """Yield an error for each table among the outputs that lacks a package or DuckLake's catalogue here: the run would commit, and then fail."""
    for name, output in spec.outputs.items():
        if (target := output.target) is None:
            continue
        try:
            if target.product in PRODUCTS:
                check_package(PRODUCTS[target.product])
            if target.kind == "iceberg" and _is_in_a_database(*catalog_of(target.catalog)):
                check_package("sqlalchemy")
            place = target.place.value
            if target.kind == "ducklake" and database_file(place) and not catalogue_file(place, base).exists():
                from ddcli.store.targets.ducklake import made_by_duckdb

                problem = f"outputs.{name}.ducklake: there is no such database"
                yield InputError(problem, span=target.place.span, hint=made_by_duckdb(place))
        except UsageError as error:
            problem = f"outputs.{name}.{target.kind}: {error.problem}"
            yield UsageError(problem, span=target.place.span, hint=error.hint)


def _unfit_beginnings(
    spec: Spec, base: Path, outputs: Mapping[str, Schema], bound: BoundPipeline | None
) -> Iterator[DdError]:
    """Yield an error for each file from which a history can't begin; one in an object store is not asked for."""
    for name, schema in outputs.items():
        target = spec.outputs[name].target
        if bound is None or target is None or target.begin is None:
            continue
        from ddcli.store.targets.change import history_columns, read_beginning

        path = locate(base, target.begin.value)
        try:
            if fs(path).is_local:
                read_beginning(path, history_columns(schema, bound.time), rows=False)
        except EngineError as error:
            problem = f"outputs.{name}.begin: {near(str(path))}: {error.problem}"
            wrong = UsageError if path.exists() else InputError  # one that is not there yet can be put there
            yield wrong(problem, span=target.begin.span, hint=error.hint)


def _is_in_a_database(name: str, properties: Mapping[str, str]) -> bool:
    """Return whether a catalog of Iceberg is kept in a database: its type, or by default its URI, states that."""
    from pyiceberg.utils.config import Config

    found = properties or Config().get_catalog_config(name) or {}
    kind = found.get("type")
    return kind == "sql" if kind else str(found.get("uri", "")).startswith(("sqlite", "postgresql"))


def _overworked(bound: BoundPipeline, budget: Mapping[str, str]) -> list[BudgetError]:
    """Return an error for each operator that may do more work than the budget allows."""
    allowed = run_budget(bound.spec.budget, budget, work=True)
    if allowed is None:
        return []
    plan = bound.plan()
    found = places(bound, plan)
    return allowed.check_work(plan.graph, lambda: found)


def _unseen(spec: Spec, base: Path) -> dict[str, str]:
    from ddcli.expressions.python import define

    names = dict.fromkeys(function.name.value for function in functions_of(spec))
    found = {name: define(name, str(base)).unseen for name in names}
    return {name: why for name, why in found.items() if why}


def _entry(spec: Spec, base: Path, name: str) -> InputEntry | None:
    """Return the state's entry of an input, if the state is on this machine."""
    manifest = _manifest(spec, base)
    return manifest.inputs.get(name) if manifest is not None else None


def _manifest(spec: Spec, base: Path) -> Manifest | None:
    """Return the newest manifest of the state, if it is on this machine."""
    state = state_of(spec, base)
    return read_newest(state) if fs(state).is_local else None


def _check_input(given: InputSpec, base: Path, state: Path, entry: InputEntry | None = None) -> CheckedInput:
    """Return the columns of an input, from all of its files, which must agree, or as declared."""
    if given.table:
        return _check_table(given, base, state)
    where = locate(base, given.path.value)
    if given.arrangement is not None:
        shared = find_shared(where, given.arrangement.value)
        return CheckedInput(shared.schema([text.value for text in given.time]), key=shared.entry.key)
    listing = _files_of(given, base, entry)
    found = pinned(given, listing, entry)
    given = with_columns(given, found)
    log = format_of(given)
    beside = columns_from_paths(log, listing)
    footers = Footers(log.declared(), beside, log.nested, log.time, log.dialect, log.former, log.absent)
    schema = schema_of(log, listing, footers.footer)
    bound = log.bound(schema.columns, schema.time)
    for file in listing.new:
        path = listing.path(file)
        later = entry is not None or file is not listing.new[0]
        check_file(bound, schema, path, bound.footer(path, footers.footer(path)), later=later)
    passed = {str(listing.root / one.path): one.why for one in listing.passed}
    listed = given.columns is None or fs(where).is_local
    return CheckedInput(schema, len(listing.new), passed=passed, pinned=found, size=listing.size, listed=listed)


def _check_table(given: InputSpec, base: Path, state: Path) -> CheckedInput:
    """Return a table's own columns, or the declared ones. Spark is not asked: its tables have those that the last run has found."""
    mark = read_mark(mirror_of(state, given.name.value)) if given.table == SPARK else None
    columns = declared_columns(given, mark) if given.table == SPARK else open_table(given, base).columns
    log = format_of(with_columns_of(given, columns))
    schema = schema_of(log, Listing(base, ()), lambda _path: {})
    return CheckedInput(replace(schema, diff=True), table=True)


def _files_of(given: InputSpec, base: Path, entry: InputEntry | None) -> Listing:
    """Return the files to check an input's columns against. If these are declared, there may be none, and no object store is listed."""
    where = locate(base, given.path.value)
    none = Listing(where, ())
    if given.columns is not None and not fs(where).is_local:
        return none
    try:
        return list_here(given, base, entry)
    except InputError:
        if given.columns is None or where.exists():
            raise
        return none


def _at_the_input(error: DdError, given: InputSpec) -> DdError:
    """Return an error in an input's files as one at the input's path in the pipeline file."""
    if error.span is not None:
        return error
    place = f"{near(error.place)}: " if error.place else ""
    return InputError(f"inputs.{given.name.value}: {place}{error.problem}", span=given.path.span, hint=error.hint)


def _bound(spec: Spec, inputs: Mapping[str, CheckedInput], errors: list[DdError]) -> BoundPipeline | None:
    """Return the pipeline with the columns of the inputs that could be checked; errors of their times are added to `errors`."""
    if not inputs:
        return None
    schemas = {name: found.schema for name, found in inputs.items()}
    time = next(iter(schemas.values())).time
    try:
        time = shared_time(spec, schemas)
        check_lengths(spec, list(time.values()))
    except UsageError as error:
        errors += each_of(error)
    columns = {name: schema.columns for name, schema in schemas.items()}
    sizes = {name: found.size for name, found in inputs.items() if found.size}
    keys = {name: found.key for name, found in inputs.items() if found.key}
    return BoundPipeline(spec, columns, time, keys, lambda: sizes)


def _plan(bound: BoundPipeline | None, errors: list[DdError]) -> dict[str, Schema]:
    """Return the columns of the outputs; errors of names and types in the plan and the tests are added to `errors`."""
    from ddcli.plan.test_steps import check_tests

    if bound is None:
        return {}
    try:
        graph = bound.graph
    except UsageError as error:
        errors += each_of(error)
        return {}
    if not errors:
        bound.plan()
        try:
            check_tests(bound.spec, bound.schemas, bound.time)
        except UsageError as error:
            errors += each_of(error)
    return {name: node.schema for name, node in graph.outputs.items() if name in bound.spec.outputs}
