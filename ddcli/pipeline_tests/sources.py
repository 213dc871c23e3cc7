"""The parts of a pipeline that tests need before they run: the columns of its inputs, the time, and its collections."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.engine.pool import Pool, new_secret
from ddcli.errors import InputError
from ddcli.job.consumed_files import list_here
from ddcli.job.functions import load_functions
from ddcli.plan.pipeline_file import BoundPipeline
from ddcli.plan.test_steps import collection_named, tested_collections, typed_tests
from ddcli.sources.arrangement_input import SharedReader
from ddcli.sources.inference import pinned, with_columns
from ddcli.sources.input_format import format_of
from ddcli.sources.readers import time_columns
from ddcli.store.files.objects import locate
from ddcli.store.log.reader import LogReader
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.shared_arrangements import find_shared
from ddcli.store.tables.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.plan.relation import Relation
    from ddcli.plan.test_steps import Test
    from ddcli.sources.readers import Reader
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.state.entries import InputEntry


@dataclass(frozen=True)
class Subject:
    """A pipeline under test: the columns of its inputs and of its time, and its collections. `pool` has the values of all tests."""

    request: Request
    inputs: dict[str, Schema]
    time: Schema
    relations: dict[str, Relation]
    pool: Pool

    @classmethod
    def of(cls, request: Request) -> Subject:
        """Return the pipeline of a request. At most one footer of each input is read; an input that declares its columns needs no file."""
        request = _declared(request)
        readers = {name: _reader(request, given) for name, given in request.spec.inputs.items()}
        inputs = {name: dict(reader.schema.columns) for name, reader in readers.items()}
        bound = BoundPipeline(request.spec, inputs, time_columns(request, None, readers))
        relations = bound.relations
        load_functions(request.spec)
        return cls(request, inputs, bound.time, relations, Pool(new_secret()))

    @property
    def spec(self) -> Spec:
        """The model of the pipeline file."""
        return self.request.spec

    @property
    def kinds(self) -> Sequence[Type]:
        """The types of the coordinates of time."""
        return list(self.time.values())

    @property
    def lenient(self) -> bool:
        """Return whether records on which an expression fails are put aside."""
        return self.spec.errors is not None

    def relation(self, name: str) -> Relation:
        """Return the collection, input or output of a name."""
        return self.relations[collection_named(self.spec, name)]

    @cached_property
    def tests(self) -> tuple[Test, ...]:
        """The tests of the file, in the types of the columns. Raises SpecErrors with all errors in them."""
        relations = {name: self.relations[of] for name, of in tested_collections(self.spec).items()}
        return typed_tests(self.spec, self.inputs, self.time, relations)


def _reader(request: Request, given: InputSpec) -> Reader:
    """Return a reader of one file of an input, for the input's columns."""
    directory = locate(request.base, given.path.value)
    if given.arrangement is not None:
        shared = find_shared(directory, given.arrangement.value)
        return SharedReader(shared, [text.value for text in given.time], Listing(directory, ()), None)
    try:
        listing = list_here(given, request.base, _entry(request, given))
    except InputError as error:
        if given.columns is None:
            hint = "declare its `columns`: then its tests need no files"
            raise InputError(f"inputs.{given.name.value}: {error.problem}", span=given.path.span, hint=hint) from None
        listing = Listing(request.base, ())
    return LogReader(
        Listing(listing.root, listing.new[:1], base=listing.base, unmoved=listing.unmoved), format_of(given)
    )


def _entry(request: Request, given: InputSpec) -> InputEntry | None:
    """Return the state's entry of an input, if its inferred columns or its consumed files are known only there."""
    manifest = read_newest(request.state) if given.infers or given.consumed != "keep" else None
    return manifest.inputs.get(given.name.value) if manifest else None


def _declared(request: Request) -> Request:
    """Return a request whose inputs declare their inferred columns, taken from the state or else from the files."""
    if not any(given.infers for given in request.spec.inputs.values()):
        return request
    inputs = {}
    for name, given in request.spec.inputs.items():
        if given.infers:
            entry = _entry(request, given)
            inputs[name] = with_columns(given, pinned(given, list_here(given, request.base, entry), entry))
    return replace(request, spec=replace(request.spec, inputs=request.spec.inputs | inputs))
