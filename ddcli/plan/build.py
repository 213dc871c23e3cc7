"""The logical graph of a spec and the schemas of its inputs, with every error of names and types at once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import (
    SpecError,
    SpecErrors,
    Text,
    Unbuilt,
    UnknownColumn,
    each_of,
    noting,
    placing,
    raise_all,
    suggestion,
)
from ddcli.expressions.tree import Cast, Column, MapStep
from ddcli.expressions.types import UTC, Type, in_zone, localized
from ddcli.plan import logical
from ddcli.plan.checks import checked_input, circles, logged, raw_name, refused_columns, refused_measures
from ddcli.plan.lineage import tags_of
from ddcli.plan.loops import iterate
from ddcli.plan.lower import own_nodes
from ddcli.plan.node import Graph
from ddcli.plan.operators.table import HERE, apply_operators
from ddcli.plan.physical import EXPORT, HISTORY
from ddcli.plan.relation import BindContext, Relation, concat
from ddcli.spec import model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.errors import DdError, Span
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import LoopName, Node
    from ddcli.plan.physical import Engines
    from ddcli.spec.model import Spec


def named_times(
    spec: Spec, schemas: Mapping[str, Schema], time: Sequence[Type], errors: Sequence[DdError]
) -> dict[str, Schema]:
    """Return, for each input whose time column may be meant by an unknown name, its columns with that one.

    The time of a log can't be data, as a retraction may come at another time than its insertion: errors get that reason.
    """
    unknown = [error for error in errors if isinstance(error, UnknownColumn)]
    found: dict[str, Schema] = {}
    if len(time) != 1:
        return found
    for name, given in spec.inputs.items():
        column = given.named.value if given.named is not None else given.time[0].value
        meant = [error for error in unknown if error.column == column]
        if name not in schemas or not meant:
            continue
        if given.retracts:
            for error in meant:
                error.hint = (
                    f"'{column}' is the time of the log '{name}': as data, what is retracted at another time would never cancel; "
                    "write it into the log as a column of its own"
                )
        elif column not in schemas[name]:
            found[name] = {**schemas[name], column: time[0]}
    return found


def build(
    spec: model.Spec,
    schemas: Mapping[str, Schema],
    time: Sequence[Type] = HERE.time,
    keys: Mapping[str, tuple[str, ...]] | None = None,
) -> Graph:
    """Return the logical graph of the outputs and exports of `spec`; `schemas` has each input's columns, `time` the
    types of the coordinates of their times, `keys` the keys of those that are imported.

    Raises SpecErrors with every unknown column, ill-typed expression and mismatch in the file.
    """
    return graph_of(built(spec, schemas, time, keys or {}), spec, time)


def graph_of(section: Section, spec: model.Spec, time: Sequence[Type]) -> Graph:
    """Return the logical graph of the outputs and exports of a file whose collections are built. Raises SpecErrors as `build` does."""
    errors, around, outputs, orders = section.errors, section.around, {}, {}
    for name, output in spec.outputs.items():
        relation = section.named(output.source.value)
        if relation is not None:
            if name in spec.checks:
                errors.extend(refused_measures(spec.checks[name], relation.schema))
                relation = logged(relation, spec.checks[name], _own_columns(spec), around)
            outputs[name] = relation.node
            if relation.order:
                orders[name] = relation.order
            errors.extend(_met_by_the_log(spec, output, relation))
            if output.target is not None:
                times = dict(zip(_own_columns(spec), time, strict=False))
                errors.extend(refused_columns(output, output.target, relation.schema, times))
    if errors:
        raise SpecErrors(errors)
    for name, output in spec.outputs.items():
        if output.target is not None and (key := tuple(text.value for text in output.target.history)):
            node = outputs[name]
            around.exports[HISTORY + name] = logical.Arrange((node,), node.schema, key)
    exports = {EXPORT + name: node for name, node in around.exports.items()}
    tags = tags_of(spec.tags, outputs | exports) if any(spec.tags.values()) else {}
    return Graph(outputs | exports, section.engines, tuple(around.notes), around.places, orders, tags)


def build_collections(
    spec: model.Spec,
    schemas: Mapping[str, Schema],
    time: Sequence[Type] = HERE.time,
) -> dict[str, Relation]:
    """Return every input and collection of `spec` by name, whether an output reads it or not; raise the errors that `build` does.

    Collections of loops' bodies are not among them. An input that another pipeline keeps has no key here, like other inputs.
    """
    return relations_of(built(spec, schemas, time, {}), spec)


def relations_of(section: Section, spec: model.Spec) -> dict[str, Relation]:
    """Return every input and collection of a file whose collections are built, by name. Raises SpecErrors as `build` does."""
    names = [*spec.inputs, *(name for collection in spec.collections.values() for name in collection.names)]
    found = {name: section.named(name) for name in names}
    if section.errors:
        raise SpecErrors(section.errors)
    return {name: relation for name, relation in found.items() if relation is not None}


def built(
    spec: model.Spec, schemas: Mapping[str, Schema], time: Sequence[Type], keys: Mapping[str, tuple[str, ...]]
) -> Section:
    """Return the file's section, in which every collection is built, with all errors.

    The time column of an input is also a data column if the file names it: that is, if the file has fewer errors with it.
    """
    with in_zone(spec.timezone):
        section = _built_with(spec, schemas, time, keys)
        for name, schema in named_times(spec, schemas, time, section.errors).items():
            tried = _built_with(spec, {**schemas, name: schema}, time, keys)
            if len(tried.errors) < len(section.errors):
                section, schemas = tried, {**schemas, name: schema}
    return section


def _built_with(
    spec: model.Spec, schemas: Mapping[str, Schema], time: Sequence[Type], keys: Mapping[str, tuple[str, ...]]
) -> Section:
    errors: list[DdError] = []
    places: dict[str, tuple[str, Span]] = {}

    @cache
    def source(name: str) -> Relation | None:
        if name not in schemas:  # its reader can't be compared with a state's, and is left out
            return None
        try:
            _refuse_unknown_tags(spec.inputs[name], schemas[name])
            found = localized_columns(_input(spec.inputs[name], schemas[name], keys.get(name, ())), spec.timezone)
        except SpecError as error:
            errors.append(error)
            return None
        places[found.node.fingerprint] = f"inputs.{name}", spec.inputs[name].name.span
        return found

    def inputs() -> list[Node]:
        return [relation.node for name in spec.inputs if (relation := source(name)) is not None]

    arrives = spec.clock == "arrival"
    around = BindContext(
        tuple(time), arrives=arrives, folder=str(spec.path.absolute().parent), inputs=inputs, places=places
    )
    if spec.quarantines and (found := circles(spec, references)):
        errors.extend(found)
        return Section({}, source, around, errors, {})

    @cache
    def outer(name: str) -> Relation | None:
        found = source(raw_name(name, spec.quarantines) if spec.quarantines else name)
        if found is None or name not in spec.quarantines:
            return found
        try:
            return checked_input(found, name, spec, around, section.named)
        except Unbuilt:
            return None
        except (SpecError, SpecErrors) as error:
            errors.extend(each_of(error))
            return None

    section = Section(spec.collections, outer, around, errors, {})
    for name in spec.collections:
        section.collection(name)
    return section


def _refuse_unknown_tags(given: model.InputSpec, schema: Schema) -> None:
    """Refuse tags of a column that an input lacks, where its files or its table state the columns."""
    unknown = [name for name in given.tags if name not in schema] if given.columns is None or given.follows else []
    if unknown:
        hint = suggestion(unknown[0], schema, f"its columns are: {', '.join(schema)}")
        problem = f"inputs.{given.name.value}.columns: there is no column '{unknown[0]}' to have tags"
        raise SpecError(problem, span=given.name.span, hint=hint)


@dataclass
class Section:
    """A section of collections that refer to each other by name: the file's, or a loop body's. Each is built once.

    `outer` returns the relation of any other name. In a body, `variables` are the loop's, and their names come first. `engines` collects
    the nodes for which the file names an engine.
    """

    collections: Mapping[str, model.CollectionSpec]
    outer: Callable[[str], Relation | None]
    around: BindContext
    errors: list[DdError]
    engines: Engines
    variables: Mapping[str, Relation] = field(default_factory=dict)
    _read: list[set[str]] = field(default_factory=list)
    """The fingerprints of the nodes to which each of the collections under construction refers."""
    _built: dict[str, dict[str, Relation]] = field(init=False, default_factory=dict)
    _owners: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._owners = model.owners(self.collections)

    def named(self, name: str) -> Relation | None:
        """Return the relation of a name; None if it could not be built."""
        if name in self.variables:
            return self.variables[name]
        owner = self._owners.get(name)
        found = self.outer(name) if owner is None else self.collection(owner).get(name)
        if found and self._read:
            self._read[-1].add(found.node.fingerprint)
        return found

    def collection(self, key: str) -> dict[str, Relation]:
        """Return a collection's relations by name; none if it has errors, which are added to `errors`."""
        for each in self._unbuilt(key):
            self._read.append(set())
            try:
                self._built[each] = self._collection(self.collections[each])
            except Unbuilt:
                self._built[each] = {}
            except (SpecError, SpecErrors) as error:
                self.errors.extend(each_of(error))
                self._built[each] = {}
            self._note_engine(self.collections[each], self._read.pop())
        return self._built[key]

    def _unbuilt(self, key: str) -> Iterator[str]:
        """Yield a collection and those that it refers to, if they are not built yet, each after the ones that it refers to. A loop, so that no chain is too deep."""
        left, met = [key], set[str]()
        while left:
            if (last := left[-1]) in met or last in self._built:
                left.pop()
                if last not in self._built:
                    yield last
                continue
            met.add(last)
            names = [name for name in references(self.collections[last]) if name not in self.variables]
            owners = [self._owners.get(name) for name in names]
            left += [owner for owner in reversed(owners) if owner is not None and owner not in met]

    def _note_engine(self, collection: model.CollectionSpec, others: set[str]) -> None:
        """Record the engine that the file chooses for a collection, which refers to the nodes `others`."""
        if collection.on:
            results = [relation.node for relation in self._built[collection.name.value].values()]
            for fingerprint in own_nodes(results, others):
                self.engines[fingerprint] = self.engines.get(fingerprint, frozenset()) | {collection.on.value}

    def _collection(self, collection: model.CollectionSpec) -> dict[str, Relation]:
        if isinstance(collection.sources, model.Iterate):
            left = self._loop(collection.sources)
        elif isinstance(collection.sources, model.Query):
            left = [self._query(collection.sources, shown=not collection.apply and self.around.loop is None)]
        else:
            left = [self._sum(collection.sources, collection.name.span)]
        where, span = f"collections.{collection.name.value}", collection.name.span
        if isinstance(collection.sources, model.Iterate):
            where, span = collection.sources.place, collection.sources.span
        elif isinstance(collection.sources, model.Query):
            where, span = collection.sources.place, collection.sources.text.span
        for relation in left:
            self.around.places.setdefault(relation.node.fingerprint, (where, span))
        if collection.apply:
            left = [apply_operators(left[0], collection.apply, self._source, self.around)]
        return dict(zip(collection.names, left, strict=True))

    def _query(self, query: model.Query, *, shown: bool) -> Relation:
        """Return the result of a query; if it may be `shown` unchanged, with the order of its rows.

        The collections that it names are built first, so that an error in one is reported once.
        """
        self._all(query.tables)
        from ddcli.plan.sql.context import Times
        from ddcli.plan.sql.statement import bind

        def named(name: str) -> Relation:
            found = self.named(name)
            assert found is not None, "it was built"
            return found

        with placing(query.place, query.text.span):
            around = self.around.inputs, self.around.loop, Times(self.around.time, self.around.arrives)
            found, notes = bind(query.text, named, *around, shown=shown)
        self.around.notes.extend(notes)
        return found

    def _sum(self, sources: Sequence[model.Source], span: Span) -> Relation:
        relations = self._all(sources)
        return relations[0] if len(relations) == 1 else concat(relations, span, "from")

    def _source(self, source: model.Source) -> Relation:
        if isinstance(source, model.Inline):
            return apply_operators(self._sum(source.sources, source.span), source.apply, self._source, self.around)
        relation = self.named(source.value)
        if relation is None:
            raise Unbuilt
        return relation

    def _all(self, sources: Sequence[model.Source]) -> list[Relation]:
        """Return the relations of all sources, or raise the errors of all of them."""
        found: list[Relation] = []
        errors: list[DdError] = []
        for source in sources:
            with noting(errors), suppress(Unbuilt):
                found.append(self._source(source))
        raise_all(errors)
        if len(found) < len(sources):
            raise Unbuilt
        return found

    def _loop(self, loop: model.Iterate) -> list[Relation]:
        """Return the results of a loop."""
        names = [name.value for name, _ in loop.variables]
        results = loop.result if isinstance(loop.result, tuple) else (loop.result,)
        others = [result.value for result in results if result.value not in names]

        def bodies(inner: LoopName, variables: Sequence[Relation]) -> tuple[list[Relation], list[Relation]]:
            around = replace(self.around, loop=inner)
            given = dict(zip(names, variables, strict=True))
            body = Section(loop.body, self.named, around, self.errors, {}, given)
            built = [body.collection(key) for key in loop.body]
            if not all(built):
                raise Unbuilt
            found = {name: relation for each in built for name, relation in each.items()}
            return [found[name] for name in names], [found[name] for name in others]

        initials = self._all([source for _, source in loop.variables])
        variables = [(name, relation) for (name, _), relation in zip(loop.variables, initials, strict=True)]
        for each in loop.body.values():
            if each.on:
                problem = f"{loop.place}.body.{each.name.value}.on: a loop is computed as a whole"
                self.errors.append(SpecError(problem, span=each.on.span, hint="write `on` beside `iterate`"))
        with placing(loop.place, loop.span):
            left = iterate(variables, bodies, self.around.loop, bound=loop.bound, guard=loop.guard)
        leaving = dict(zip([*names, *others], left, strict=True))
        return [leaving[result.value] for result in results]


def references(collection: model.CollectionSpec) -> Iterator[str]:
    """Yield the names that a collection refers to, also in a loop's body, but for names of the loop's own collections."""
    nothing = frozenset[str]()
    left: list[tuple[model.Source | model.Operator | model.CollectionSpec, frozenset[str]]] = [(collection, nothing)]
    while left:
        each, inner = left.pop()
        if isinstance(each, Text):
            if each.value not in inner:
                yield each.value
        elif isinstance(each, model.CollectionSpec | model.Inline):
            left += [(operator, inner) for operator in each.apply]
            if isinstance(each.sources, model.Iterate):
                body, variables = each.sources.body.values(), each.sources.variables
                own = {name.value for name, _ in variables} | {name for one in body for name in one.names}
                left += [(one, inner | own) for one in body]
                left += [(source, inner) for _, source in variables]
            elif isinstance(each.sources, model.Query):
                left += [(table, inner) for table in each.sources.tables]
            else:
                left += [(source, inner) for source in each.sources]
        else:
            left += [(source, inner) for source in each.inputs]


def _input(given: model.InputSpec, schema: Schema, arranged: tuple[str, ...]) -> Relation:
    """Return an input's collection: its rows as they are, or the current records that upserts or snapshots describe."""
    key = tuple(text.value for text in given.key)
    for text in given.key:
        if text.value not in schema:
            problem = f"inputs.{given.name.value}.key: there is no column '{text.value}'"
            hint = suggestion(text.value, schema, f"its columns are: {', '.join(schema)}", mark="`")
            raise SpecError(problem, span=text.span, hint=hint)
    source = logical.Source(
        (), dict(schema), given.name.value, tuple(text.value for text in given.time), _meaning(given), arranged
    )
    if given.format == "snapshots":
        return Relation(logical.Snapshots((source,), dict(schema), key, source.name))
    if not key:
        watched = logical.Watched((source,), dict(schema), source.name) if given.negative != "allow" else source
        return Relation(watched)
    int64 = Type("int64")
    beside = (logical.PRESENT, logical.ORDER, *((logical.MOMENT, logical.SEQUENCE) if given.lasting else ()))
    rows = replace(source, schema=schema | dict.fromkeys(beside, int64))
    return Relation(logical.Upsert((rows,), dict(schema), key, source.name, given.lasting))


def localized_columns(relation: Relation, zone: str) -> Relation:
    """Return an input's collection with the columns of timestamps in UTC as timestamps of the pipeline's zone."""
    moved = {name: localized(kind, zone) for name, kind in relation.schema.items()}
    if moved == relation.schema:
        return relation
    columns = tuple(
        (name, Column(name, kind) if kind == moved[name] else Cast(Column(name, kind), moved[name]))
        for name, kind in relation.schema.items()
    )
    return relation.over(logical.Apply((relation.node,), moved, MapStep(columns)))


def _meaning(given: model.InputSpec) -> str:
    """Return the options of an input that affect the rows read, beside its columns, as text for its fingerprint."""
    texts = [given.diff, given.delete_when, given.order_by]
    parts = [given.format, *(text.value if text else "" for text in texts), "flattened" if given.flattened else ""]
    if given.csv is not None:
        parts += [f"{name}={value!r}" for name, value in given.csv.stated()]
    if given.arrives:
        parts.append("arrival")
    if any(kind.zone not in {None, UTC} for _, kind in (given.columns or {}).values()):
        parts.append("texts without an offset by the clocks of zones")
    return "" if given.format == "updates" and parts[1:] == ["diff", *[""] * 3] else " ".join(parts)


def _met_by_the_log(spec: model.Spec, output: model.OutputSpec, relation: Relation) -> list[DdError]:
    """Return an error for each column of an output with the name of one of the log's own columns, time or diff."""
    errors: list[DdError] = []
    for name in _own_columns(spec):
        if name in relation.schema:
            source = output.source.value
            rename = f"rename: {{{name}: {name}_1}}"
            error = SpecError(
                f"outputs.{output.name.value}: '{source}' has a column '{name}', as the log itself has",
                span=output.source.span,
                hint=f"rename it: `- {rename}` at the end of '{source}'"
                if source in spec.collections
                else f"write a collection that renames it: `{{from: {source}, apply: [{{{rename}}}]}}`",
            )
            errors.append(error)
    return errors


def _own_columns(spec: model.Spec) -> tuple[str, ...]:
    """Return the names of the columns that the outputs' logs have beside their data; coordinates of a product time keep the inputs' names."""
    time = next((given.time for given in spec.inputs.values()), ())
    return (*(text.value for text in time), "diff") if len(time) > 1 else ("time", "diff")
