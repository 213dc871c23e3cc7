"""The explanation of a record: traced, and checked by a run of the pipeline over the traced updates alone. The violations of failed checks are traced too."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.driver.prepare import copy_directory
from ddcli.driver.tables import read_settled, tables_as_now
from ddcli.engine.counts import SILENT
from ddcli.engine.times import BEYOND, Frontier, Time
from ddcli.errors import DdError, NegativeAnswer, Span, SpecError, Text, UsageError, failed_checks, suggestion
from ddcli.job.request import newest_of, read_request, refuse_code
from ddcli.plan.test_steps import collection_named, read_value
from ddcli.provenance.changes import Changes
from ddcli.provenance.file_history import FileHistory, ReplacedBy
from ddcli.provenance.inputs import Inputs
from ddcli.provenance.question import Absence, Explained, Missing, Question, hindrances, shown_leaves
from ddcli.sources.arrangement_input import SharedReader
from ddcli.spec.tree import Scalar, parse_tree, scalar_kind
from ddcli.store.texts import format_time, null_hint, parse_condition, parse_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.counts import Progress
    from ddcli.engine.lanes import Matrix
    from ddcli.errors import CheckError, CheckErrors
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.plan.node import Node
    from ddcli.provenance.evaluated_plan import Record
    from ddcli.provenance.inputs import Where
    from ddcli.provenance.sentences import Leaf


LARGEST = 32 << 20
"""Bytes of all files of the inputs, at most."""
TRACED = 6
"""The violations that are traced, of all checks together."""
SHOWN = 3
"""The rows that are named of one violation."""


@dataclass(frozen=True)
class Answer:
    """The explanations of the first of the `matching` records, as of the time `at`: of their existence, or of their `change`.

    Its `repr`, which notebooks and logs keep, has no value of a record.
    """

    inputs: Inputs
    collection: str
    node: Node = field(repr=False)
    at: Time
    change: bool
    matching: int
    explained: tuple[Explained, ...] = field(repr=False)
    seconds: float
    read: int
    names: dict[str, str]
    fed: dict[str, Matrix] = field(repr=False)
    subject: str
    places: dict[Leaf, list[Where]] = field(default_factory=dict, repr=False)
    missing: Missing | None = field(default=None, repr=False)
    """The reason why no such record exists."""
    until: Time | None = None
    """The last time at which a missing record changed."""
    replaced: ReplacedBy | None = None
    """The last run that replaced or withdrew files with which a missing record went."""
    null_hint: str | None = None
    """The hint for a search for the text 'null', which may mean null."""

    @property
    def time(self) -> str:
        """The time, as a person writes it."""
        return format_time(self.at, self.inputs.kinds)


def why(
    path: Path | str,
    collection: str,
    values: Mapping[str, Any],
    *,
    at: str | None = None,
    change: bool = False,
    state: Path | None = None,
    limit: int = 5,
) -> Answer:
    """Return the updates of inputs for which a collection has the records with these `values`; see `dd why`. A notebook shows them as trees.

        >>> why("pipelines/airborne.yaml", "airborne", {"carrier": "HA"}).matching
        0

    Without a record the answer has the reason why there is none. Raises UsageError for an unknown name, and the errors of the file and its inputs.
    """
    return explain(Path(path), collection, values, at=at, change=change, state=state, limit=limit)


def explain(
    path: Path,
    collection: str,
    keys: Sequence[str] | Mapping[str, Any],
    *,
    at: str | None = None,
    change: bool = False,
    state: Path | None = None,
    limit: int = 5,
    no_code: bool = False,
    progress: Progress = SILENT,
) -> Answer:
    """Return the reasons why a collection has records with the values `keys` (`column=value`, or a mapping) at the time `at`.

    Without a time, at the last closed time, or before any run, at the last in the inputs. With `change`, return the reasons of their
    change at that time, by default the last at which any of them changed. At most `limit` records are explained, and at most `limit` of a
    group shown. `no_code` refuses a pipeline that names Python functions. `progress` hears of the stages. Raises NegativeAnswer if none has changed; if none exists, the
    answer states why it is `missing`.
    """
    request = read_request(path, state)
    refuse_code(request.spec, no_code=no_code)

    def look() -> Answer:
        with tables_as_now(request, wanted=newest_of(request) is None) as now, copy_directory() as copies:
            newest = newest_of(now)
            replaced = newest is not None and any(entry.replaced for entry in newest.inputs.values())
            history = FileHistory(now, copies) if replaced else None
            return _explain(now, history, collection, keys, at, progress, change=change, limit=limit)

    try:
        return read_settled(request, look)
    finally:
        progress.end()


def _explain(
    request: Request,
    history: FileHistory | None,
    collection: str,
    keys: Sequence[str] | Mapping[str, Any],
    at: str | None,
    progress: Progress,
    *,
    change: bool,
    limit: int,
) -> Answer:
    started, path = clock.perf_counter(), request.spec.path
    inputs = Inputs.of(request)
    time = _time(inputs, at, history)
    inputs = history.inputs(inputs, time[0]) if history and len(time) == 1 else inputs
    known = {**inputs.relations, **request.spec.outputs}
    if collection not in known:
        hint = suggestion(collection, known, f"collections: {', '.join(known)}")
        raise UsageError(f"no collection, input or output is named '{collection}'", place=str(path), hint=hint)
    named = collection_named(request.spec, collection)
    node = inputs.relations[named].node
    if isinstance(keys, Mapping):
        values = _known_columns(keys, node.schema)
        keys = [f"{name}={value}" for name, value in values.items()]
    else:
        values = read_keys(keys, node.schema)
    asked = Question(inputs, node, values, time, limit)
    subject = f"'{collection}' with {' and '.join(keys)}"
    progress.begin(f"looking for {subject}")
    replaced = partial(history.last, named, asked) if history else lambda *_: None
    answer = (
        _changing(asked, subject, progress, replaced, given=at is not None)
        if change
        else _existing(asked, subject, progress)
    )
    names = {relation.node.fingerprint: name for name, relation in reversed(inputs.relations.items())}
    places: dict[Leaf, list[Where]] = {}
    question, records, explained, missing = answer
    for each in (*(each.reason for each in explained), *hindrances(missing)):
        places |= question.places(shown_leaves(each))
    return Answer(
        inputs=inputs,
        collection=collection,
        node=node,
        at=question.time,
        change=change,
        matching=records,
        explained=explained,
        seconds=clock.perf_counter() - started,
        read=sum(map(len, question.fed.values())),
        names=names,
        fed=question.fed,
        places=places,
        missing=missing,
        subject=subject,
        null_hint=null_hint(values),
        until=_last_change(question) if missing is not None else None,
        replaced=replaced() if missing is not None else None,
    )


Found = tuple[Question, int, tuple[Explained, ...], Missing | None]
"""The answered question, the number of records, the explanations of the first of them, or the reason why none exists."""


def _existing(question: Question, subject: str, progress: Progress) -> Found:
    """Find the records that exist."""
    found = question.records()
    if not len(found):
        progress.begin(f"looking for the reason why there is no {subject}")
        question = Question(
            question.inputs, question.node, question.values, question.time, question.limit, missing=True
        )
        return question, 0, (), Absence(question).of(question.node, question.values)
    return question, len(found), _explained(question.explained, found.first(question.limit), subject, progress), None


def _explained(
    explained: Callable[[Record, int], Explained], pairs: Sequence[tuple[Record, int]], subject: str, progress: Progress
) -> tuple[Explained, ...]:
    """Return the explanation of each record, given with its count."""
    progress.begin(f"tracing {subject} to the inputs", len(pairs))
    made = []
    for pair in pairs:
        made.append(explained(*pair))
        progress.advance()
    return tuple(made)


def _last_change(question: Question) -> Time | None:
    """Return the last time at which a missing record changed; None if it never existed."""
    history = question.history().matrix
    return tuple(history[:, -len(question.time) - 1 : -1].max(axis=0).tolist()) if len(history) else None


def not_there(answer: Answer) -> NegativeAnswer:
    """Return the error for an answer without a record; its hint states until when one existed."""
    kinds = answer.inputs.kinds
    hint = _never_existed(answer.inputs)
    if answer.replaced is not None and (answer.until is None or answer.until[0] < answer.replaced.until):
        hint = f"there was one until {answer.replaced.words}: `--as-of '{format_time((answer.replaced.until - 1,), kinds)}'` shows it"
    elif answer.until is not None:
        hint = f"there was one until {format_time(answer.until, kinds)}: `--change` shows why"
    if answer.null_hint:
        hint += f"; {answer.null_hint}"
    return NegativeAnswer(f"there is no record of {answer.subject} at {answer.time}", hint=hint)


def _never_existed(inputs: Inputs) -> str:
    """Return the words for a record that never existed in the present inputs: the outputs may have had it from a withdrawn file."""
    withdrawn = any(reader.listing.withdrawn for reader in inputs.readers.values())
    apart = ", without the files that were withdrawn" if withdrawn else ""
    return f"no such record has existed at any earlier time either, by the inputs as they are now{apart}"


def _changing(
    asked: Question,
    subject: str,
    progress: Progress,
    replaced: Callable[[int | None], ReplacedBy | None],
    *,
    given: bool,
) -> Found:
    """Find the records that changed at the `given` time, or at the last time at which one did."""
    kinds = asked.inputs.kinds
    if len(kinds) > 1:
        hint = "without `--change`, `--as-of` takes a time of several coordinates"
        raise UsageError("a time with several coordinates has no single time right before it", hint=hint)
    history = asked.history()
    times = sorted(set(history.matrix[:, -2].tolist()))
    last = replaced(asked.time[0] if given else None)
    if last is not None and (given or not times or times[-1] < last.until):
        sides = [format_time((time,), kinds) for time in (last.until - 1, last.until)]
        hint = f"`--as-of '{sides[0]}'` and `--as-of '{sides[1]}'`, without `--change`, explain both"
        rows = f": {last.rows}" if last.rows else ""
        raise NegativeAnswer(f"the record of {subject} changed at {sides[1]} with {last.words}{rows}", hint=hint)
    if not times or (given and asked.time[0] not in times):
        listed = ", ".join(format_time((time,), kinds) for time in times[-3:])
        hint = f"it last changed at {listed}" if times else _never_existed(asked.inputs)
        raise NegativeAnswer(f"no record of {subject} changed at {format_time(asked.time, kinds)}", hint=hint)
    now = asked.at((times[-1],)) if times[-1] != asked.time[0] else asked
    changes = Changes(now.at((times[-1] - 1,)), now)
    found = changes.differing(now.node, now.values)
    return now, len(found), _explained(changes.explained, found.first(now.limit), subject, progress), None


def _time(inputs: Inputs, at: str | None, history: FileHistory | None) -> Time:
    """Return the time of the question: the given one, else the last closed one, or a later correction's, else the last in the inputs."""
    if at is not None:
        try:
            (corner,) = parse_until(at, inputs.time).corners()
        except UsageError as error:
            raise UsageError(error.problem, hint=(error.hint or "").replace("--until", "--as-of")) from None
        return corner
    manifest = newest_of(inputs.request)
    if manifest is not None and manifest.upper:
        corners = Frontier(manifest.upper).corners()
        if len(corners) == 1 and BEYOND not in corners[0]:
            corrected = history.changes(history.replaced)[-1:] if history and len(corners[0]) == 1 else []
            return tuple(max(value - 1, *corrected) if corrected else value - 1 for value in corners[0])
    latest = inputs.latest()
    if latest is None:
        raise UsageError(
            "the inputs have no rows yet", place=str(inputs.request.spec.path), hint="choose a time with `--as-of`"
        )
    return latest


def _known_columns(values: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return values of columns. Raises UsageError for an unknown column."""
    for name in values:
        if name not in schema:
            hint = suggestion(name, schema, f"columns: {', '.join(schema)}")
            raise UsageError(f"there is no column '{name}'", hint=hint)
    return dict(values)


def read_keys(keys: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Parse conditions `column=value` and `column is null` and return their values, in the types of the columns."""
    values: dict[str, Any] = {}
    for key in keys:
        name, written = parse_condition(key, schema)
        kind = schema[name]
        if written is None and not kind.nullable:
            raise UsageError(f"the column '{name}' is never null", hint="write it as `column=value`")
        values[name] = None if written is None else _value(name, written, kind)
    return values


def _value(name: str, written: str, kind: Type) -> Any:
    of_text = kind.kind != "bool" and not kind.is_numeric
    scalar = Scalar(Text(written, Span("", 1, 1)), "str" if of_text else scalar_kind(written), plain=True)
    try:
        return read_value((parse_tree(written, "").root or scalar) if kind.depth else scalar, kind, f"'{name}'")
    except SpecError as error:
        raise UsageError(error.problem, hint=error.hint) from None


# --- violations of checks ------------------------------------------------------------------------------------------------


def name_rows(error: CheckError | CheckErrors, path: Path, state: Path | None) -> None:
    """Add the files and lines that its first violations come from to the error of failed checks; leave it as it is where they can't be found.

    A few violations of each check are traced as records are, by the inputs as the run saw them, and only where these are small: a report must not
    take longer than the run.
    """
    try:
        request = read_request(path, state)
        if request.spec.tables:  # the updates of a run that failed are in no mirror
            return
        inputs = Inputs.of(request)
        if sum(reader.listing.size for reader in inputs.readers.values()) > LARGEST or (at := inputs.latest()) is None:
            return
        errors = failed_checks(error)
        for each in errors:
            of = request.spec.checks[each.check].of
            only = of.value if of is not None and of.value in request.spec.inputs else None
            traced = each.records[: TRACED // len(errors) or 1]
            each.locate([_places_of(inputs, each.check, record, at, only) for record in traced], SHOWN)
    except DdError:  # the report of the checks is the one that counts
        return


def _places_of(inputs: Inputs, check: str, record: Mapping[str, Any], at: Time, only: str | None) -> list[str]:
    """Return the places of the rows, of all inputs or of one, without which there would be no such violation; none where it can't be traced."""
    question = Question(inputs, inputs.relations[check].node, dict(record), at, SHOWN + 1)
    named = [
        str(place)
        for found in question.records().first(1)
        for (name, _), several in question.places(shown_leaves(question.explained(*found).reason)).items()
        for place in several
        if only in (None, name) and not isinstance(inputs.readers[name], SharedReader)
    ]
    return list(dict.fromkeys(named))
