"""The whole file: its sections, read into a `Spec`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ddcli.errors import Span, SpecError, Text, UsageError, suggestion_and_list
from ddcli.expressions.moments import is_zone
from ddcli.expressions.types import ARRIVAL, UTC, localized
from ddcli.spec import model
from ddcli.spec.budget import BUDGET
from ddcli.spec.checks import CHECKS, expanded
from ddcli.spec.file import AT, digest_of, read_text
from ddcli.spec.include import ANCHORS, KEY, Includes
from ddcli.spec.inputs import INPUT
from ddcli.spec.model import LOGS, Clock, InputSpec
from ddcli.spec.names import NO_ONE, check_names
from ddcli.spec.shapes import (
    As,
    ByKind,
    Defined,
    JsonSchema,
    Key,
    Many,
    NodePlace,
    Notes,
    Pairs,
    Record,
    Refused,
    Shape,
    missing,
    shape,
)
from ddcli.spec.tables import HISTORY, output_mapping
from ddcli.spec.tests import tests
from ddcli.spec.tree import Mapping, Node, Scalar, parse_tree
from ddcli.spec.values import (
    A_SOURCE,
    FLOW,
    LISTED,
    NAME,
    PATH,
    SOURCE,
    Choice,
    Whole,
    Words,
    operator_schema,
    path_fault,
    query_text,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from collections.abc import Mapping as Table

    from ddcli.spec.shapes import OperatorForm


CLOCKS: tuple[str, ...] = get_args(Clock)


def default_clock(inputs: Collection[InputSpec]) -> Clock:
    """Return the clock of a file that names none: `arrival` where no input is a log of changes and none speaks of times."""
    logs = (given.format in LOGS and not given.table for given in inputs)
    return "event" if any(logs) or any(map(_speaks_of_times, inputs)) else "arrival"


def on_arrival(given: InputSpec, notes: Notes) -> InputSpec:
    """Return an input whose rows have the time of the run that reads them; report keys that don't fit that."""
    path = f"inputs.{given.name.value}"
    if given.arrangement is not None:
        hint = "read an output of that pipeline as a log instead, `path: ../out/orders/`: its updates get the times of this one's runs; or write `clock: event`, under which each other input needs a time column"
        notes.refuse(path, "an imported arrangement has the times of its pipeline, not of runs", given.name.span, hint)
    elif given.named is not None and (given.table or given.format not in LOGS):
        hint = "leave `time` out, or write `clock: event`"
        if not given.table:
            hint = f"leave `time` out: '{given.named.value}' is a data column as any other; or write `clock: event`"
        problem = "under `clock: arrival` the time of a row is the run that reads it"
        notes.refuse(f"{path}.time", problem, given.named.span, hint)
    elif given.max_ahead is not None:
        problem, hint = (
            "under `clock: arrival` no row is ahead of the clock",
            "leave `max_ahead` out, or write `clock: event`",
        )
        notes.refuse(f"{path}.max_ahead", problem, given.max_ahead.span, hint)
    elif given.late != "error":
        problem, hint = "under `clock: arrival` no row is late", "leave `late` out, or write `clock: event`"
        notes.refuse(f"{path}.late", problem, given.name.span, hint)
    ignored = tuple(text.value for text in given.time) if given.format == "updates" and not given.table else ()
    return replace(given, time=(Text(ARRIVAL, given.name.span),), ignored=given.ignored or ignored)


def on_event(given: InputSpec, notes: Notes) -> None:
    """Report keys of an input that don't fit the times of a column."""
    if given.table and given.named is None:
        hint = "write `time: version` (an integer) or `time: committed` (a timestamp) under it"
        hint += given.clock_hint or ", or `clock: arrival` at the top of the file"
        notes.refuse(
            f"inputs.{given.name.value}", "the rows of a table have no time of their own", given.name.span, hint
        )
    if given.format == "snapshots" and given.order_by is not None:
        hint = "leave `order_by` out: the time decides which table is newer"
        hint += given.clock_hint or "; or write `clock: arrival`"
        notes.refuse(
            f"inputs.{given.name.value}.order_by", "tables are in the order of their time", given.order_by.span, hint
        )


def check_times(given: InputSpec, notes: Notes) -> None:
    """Report an input's times that are used as data: under the clock of arrivals a column `time` is data as any other."""
    times = {*given.ignored, *(text.value for text in given.time)}
    columns = given.columns or {}
    wrong = [("key", key, f"'{key.value}' is the time", "a key has it for all times") for key in given.key]
    for names, problem, hint in (
        (given.optional, "is the time, so each file must have it", "write the type alone"),
        (given.tags, "is the time, which no command hides", "leave its tags out"),
    ):
        wrong += [("columns", columns[name][0], f"'{name}' {problem}", hint) for name in names if name in columns]
    for part, at, problem, hint in wrong:
        if at.value in times:
            notes.refuse(f"inputs.{given.name.value}.{part}", problem, at.span, hint)


def beside_import(inputs: Sequence[tuple[Text, InputSpec]]) -> list[tuple[Text, InputSpec]]:
    """Return the inputs of a file, each with the name of an import beside it, if there is one: hints then don't propose `clock: arrival`."""
    name = next((given.name.value for _, given in inputs if given.arrangement is not None), "")
    return [(text, replace(given, beside=name)) for text, given in inputs]


def _speaks_of_times(given: InputSpec) -> bool:
    return given.named is not None or given.late != "error" or given.max_ahead is not None


def _iterate(place: NodePlace, arguments: dict[str, Any]) -> model.Iterate:
    body = {name.value: collection for name, collection in arguments.pop("body")}
    rounds = arguments.pop("rounds", {})
    return model.Iterate(body=body, span=place.word.span, place=place.path, **arguments, **rounds)


def _collection(place: NodePlace, arguments: dict[str, Any]) -> model.CollectionSpec:
    return model.CollectionSpec(place.word, **arguments)


def _a_collection() -> Shape[model.CollectionSpec]:
    return collection


A_COLLECTION: Shape[model.CollectionSpec] = Defined("collection", _a_collection)
RESULT = Words("the name of a collection in the body")
RESULTS: Shape[Any] = ByKind(
    "a collection of the body, or a list of them",
    scalar=RESULT,
    sequence=Many(RESULT, "a list of collections of the body", distinct=True),
)
GUARD = {"guard": Key(Whole(1), required=True, about="an error if it still changes after so many rounds")}
ROUNDS: Shape[dict[str, Any]] = ByKind(
    "a number of rounds, or a mapping",
    scalar=As(Whole(1), lambda _, rounds: {"bound": rounds}),
    mapping=Record(lambda _, arguments: arguments, GUARD, "a mapping", "{guard: 100}"),
    hint="write `max_rounds: 20` to stop there, `max_rounds: {guard: 20}` for an error if it changes still",
)
ITERATE: Shape[model.Iterate] = Record(
    _iterate,
    {
        "variables": Key(
            Pairs(NAME, A_SOURCE, "a mapping of variables to their initial collections"),
            required=True,
            about="each with its initial collection: an input, a collection, or one in place",
        ),
        "body": Key(
            Pairs(NAME, A_COLLECTION, "a mapping of names to collections", things=True),
            required=True,
            about="a collection for each variable, its value in the next round, and any others",
        ),
        "result": Key(RESULTS, required=True, about="the loop's result; of a list, each as name.result"),
        "max_rounds": Key(ROUNDS, about="a bound, or {guard: n}; default: {guard: 10000}", argument="rounds"),
    },
    "a mapping",
    "{variables: {best: labels}, body: {best: {from: best, apply: [distinct]}}, result: best}",
)
ON = {
    "on": Key(
        Words("an engine", "spark|local", "the engines are `spark` and `local`"),
        about="where it is computed with `--engine auto`: spark or local; default: by how much there is to do",
    )
}
BEGINNING = Record(_collection, FLOW | ON, "a mapping with `from`", "{from: orders, apply: [distinct]}")
LOOPING = Record(
    _collection,
    {"iterate": Key(ITERATE, required=True, about="a loop", argument="sources"), "apply": FLOW["apply"]} | ON,
    "a mapping with `iterate`",
    "{iterate: {variables: {best: labels}, body: {best: {from: best}}, result: best}}",
)


QUERYING = Record(
    _collection,
    {
        "sql": Key(query_text, required=True, about="a query, over inputs and collections by name", argument="sources"),
        "apply": FLOW["apply"],
    }
    | ON,
    "a mapping with `sql`",
    "{sql: select id from orders where amount > 100}",
)


@shape(lambda: {"anyOf": [BEGINNING.schema(), LOOPING.schema(), QUERYING.schema()]})
def collection(node: Node, place: NodePlace, notes: Notes) -> model.CollectionSpec:
    """Return a collection: with `iterate` a loop, with `sql` a query, else `from` others."""
    words = {word.value: word for word, _ in node.entries} if isinstance(node, Mapping) else {}
    if isinstance(node, Mapping) and "sql" in words:
        for other in ("from", "iterate"):
            if other in words:
                problem = f"begins with `{other}` and with `sql`: it is one or the other"
                raise notes.refuse(place.path, problem, words[other].span, "name other collections in the query")
        return QUERYING.read(node, place, notes)
    if not isinstance(node, Mapping) or "iterate" not in words:
        return BEGINNING.read(node, place, notes)
    wrong = "from" in words
    if wrong:
        problem = "begins `from` others and with `iterate`: it is one or the other"
        notes.refuse(place.path, problem, words["from"].span, "name the loop's initial collections under `variables`")
        node = Mapping(tuple(entry for entry in node.entries if entry[0].value != "from"), node.span, node.flow)
    read = LOOPING.read(node, place, notes)
    if read.apply and isinstance(read.sources, model.Iterate) and isinstance(read.sources.result, tuple):
        problem = f"{NO_ONE} to apply operators to"
        hint = f"begin a collection `from: {read.names[0]}`, or name one result without brackets"
        notes.refuse(place.path, problem, words["apply"].span, hint)
        wrong = True
    if wrong:
        raise Refused
    return read


VERSION = "1"
PIPELINE_NAME = Words(
    "a name",
    r"\w[\w.-]*",
    "a name is made of letters, digits, `_`, `-` and `.`: the state's directory has it",
    path_fault,
)


@shape(lambda: {"type": ["string", "integer", "number", "boolean"]})
def setting(node: Node, place: NodePlace, notes: Notes) -> Text:
    """Return the value of a setting: any scalar, as it is written."""
    if not isinstance(node, Scalar) or not node.text.value:
        raise notes.mismatch(node, place, "a value")
    return node.text


@shape(lambda: {"type": "string", "examples": ["Europe/Berlin", UTC]})
def time_zone(node: Node, place: NodePlace, notes: Notes) -> str:
    """Return the name of a time zone."""
    if not isinstance(node, Scalar) or not is_zone(node.text.value):
        name = node.text.value if isinstance(node, Scalar) else ""
        problem = f"no time zone is named {name!r}" if name else "the name of a time zone is expected"
        raise notes.refuse(place.path, problem, node.span, "for example `timezone: Europe/Berlin`")
    return node.text.value


ERRORS: Shape[model.Errors | None] = ByKind(
    "fail, quarantine or a mapping",
    scalar=As(
        Choice("policy", ("fail", "quarantine")), lambda _, word: model.Errors() if word == "quarantine" else None
    ),
    mapping=Record(
        lambda _, arguments: model.Errors(**arguments),
        {"quarantine": Key(PATH, required=True, about="directory for the log of records that failed", argument="path")},
        "a mapping",
        "{quarantine: errors/}",
    ),
)


SETTING = Words(
    "the name of a setting", r"spark\.[\w.-]+", "Spark's settings are named `spark.executor.memory` and the like"
)
REMOTE = Words("the address of Spark Connect", r"sc://[^\s/]+.*", "write it as sc://host:15002")
SPARK: Shape[model.SparkSpec] = Record(
    lambda _, arguments: model.SparkSpec(**arguments),
    {
        "master": Key(Words("a master"), about="local[4], spark://host:7077, yarn, k8s://..."),
        "remote": Key(REMOTE, about="the address of Spark Connect, in place of a master"),
        "conf": Key(Pairs(SETTING, setting, "a mapping of settings"), about="Spark's settings"),
    },
    "a mapping",
    "{master: spark://host:7077}",
)


@shape(lambda: {"enum": [int(VERSION)]})
def language_version(node: Node, place: NodePlace, notes: Notes) -> str:
    """Return the version of the language."""
    if not isinstance(node, Scalar):
        raise notes.mismatch(node, place, f"the version of the file's language, `dd: {VERSION}`")
    if node.text.value != VERSION:
        hint = f"this dd reads version {VERSION}: write `dd: {VERSION}`, or get a newer dd"
        raise notes.refuse("", f"unknown version {node.text.value!r} of the file's language", node.span, hint)
    return VERSION


OUTPUT = ByKind(
    "a path or a mapping",
    scalar=As(PATH, lambda place, path: model.OutputSpec(place.word, source=place.word, path=path)),
    mapping=output_mapping,
    hint="for example `orders: marts/orders/`",
)
INCLUDE: Shape[Any] = ByKind(
    "a file or a list of files",
    scalar=Words("a file"),
    sequence=Many(Words("a file"), "a list of files", least=0),
    hint="for example `include: shared/inputs.yaml`",
)
SECTIONS = {
    "dd": Key(language_version, about=f"the version of this language; default: {VERSION}", argument="version"),
    "name": Key(PIPELINE_NAME, about="names the state, .dd/<name>/ beside this file; default: the file's name"),
    KEY: Key(INCLUDE, about="files with inputs, collections, outputs, checks and tests for this one, relative to it"),
    "clock": Key(
        Choice("clock", CLOCKS),
        about="times of rows: of the run that reads them (arrival), or of a column (event); default: arrival, "
        "unless an input is a log of changes or names a time",
    ),
    "timezone": Key(
        time_zone,
        about="zone by whose clocks timestamps with a zone are cast, cut and shown, Europe/Berlin; default: UTC",
    ),
    "inputs": Key(Pairs(NAME, INPUT, "a mapping of names to inputs", things=True), required=True),
    "collections": Key(Pairs(NAME, A_COLLECTION, "a mapping of names to collections", things=True, least=0)),
    "outputs": Key(Pairs(NAME, OUTPUT, "a mapping of names to outputs", things=True), required=True),
    "state": Key(PATH, about="directory; default: .dd/<name>/ beside this file"),
    "history": Key(HISTORY, about="how much of the past arrangements keep: a number of times, 7 days, all"),
    "shards": Key(Whole(1, 4096), about="into how many parts arrangements are cut when they are made"),
    "errors": Key(
        ERRORS, about="records on which an expression fails, and rows that can't be read: fail (default) or quarantine"
    ),
    "spark": Key(SPARK, about="where Spark is, for `--engine spark`"),
    "budget": Key(BUDGET, about="the most that a run may take, before its commit: rows, seconds, bytes; and work"),
    "checks": Key(CHECKS, about="conditions on inputs and collections that a run must meet before it commits"),
    "tests": Key(tests, about="steps of input updates, and their expected results: see dd test"),
}
EXAMPLES = {"inputs": "add `inputs: {orders: landing/orders/}`", "outputs": "add `outputs: {orders: marts/orders/}`"}


def included_files(path: Path) -> list[Path]:
    """Return the files that a pipeline file includes, also those that can't be read."""
    try:
        tree = parse_tree(read_text(path), str(path))
    except UsageError:
        return []
    if not isinstance(tree.root, Mapping):
        return []
    includes = Includes(str(path), Notes(), {})
    includes.merged(tree.root)
    return [Path(file) for file, _ in includes.fragments]


def parse_partly(
    text: str, file: str, operators: Table[str, OperatorForm], queries: Table[str, Iterable[str]] | None = None
) -> tuple[model.Spec | None, list[SpecError]]:
    """Return the valid part of a pipeline file's text, whose collections apply `operators`, and all its errors. `queries` are known (see `Notes`).

    Inputs, collections and outputs with errors are left out, so others may refer to names that are missing from the result. Without
    a pipeline name, inputs and outputs there is no valid part: None.
    """
    tree = parse_tree(text, file)
    notes = Notes(errors=tree.errors, operators=operators, queries=queries or {})
    root, fragments = tree.root, list[tuple[str, str]]()
    try:
        before = len(notes.errors)
        if isinstance(root, Mapping) and root.get(KEY) is not None:
            includes = Includes(file, notes, tree.variables)
            root, fragments = includes.merged(root), includes.fragments
        spec = _read(root, file, notes, whole=len(notes.errors) == before)
        variables = tuple(sorted((name, digest_of(value)) for name, value in tree.variables.items()))
        return replace(spec, fragments=tuple(fragments), variables=variables), notes.errors
    except Refused:
        return None, notes.errors
    except RecursionError:
        return None, [SpecError("nested too deeply", place=file)]


def _check_sections(root: Mapping, notes: Notes, *, whole: bool) -> None:
    """Report the sections that a file lacks; raise Refused if it is not whole, as what is missing may be elsewhere."""
    if not whole:
        raise Refused
    for name in missing(SECTIONS, root):
        notes.refuse("", f"the key {name!r} is missing", root.span, EXAMPLES[name])


def _read(root: Node | None, file: str, notes: Notes, *, whole: bool) -> model.Spec:
    """Read all sections, check the names that they use, and build the model of the valid parts.

    If it is not the `whole` text, as an included file could not be read, a name or a section that is missing here is no error: the file may have it.
    """
    if root is None:
        raise Refused if notes.errors else notes.refuse("", "the file is empty", Span(file, 1, 1), EXAMPLES["inputs"])
    if not isinstance(root, Mapping):
        raise notes.mismatch(root, NodePlace("", Text("", root.span), ""), "a mapping", EXAMPLES["inputs"])
    found: dict[str, Any] = {}
    for word, node in sorted(root.entries, key=lambda entry: entry[0].value != "dd"):
        key = SECTIONS.get(word.value)
        if word.value.startswith(ANCHORS):
            continue
        try:
            if key is None:
                hint = suggestion_and_list(word.value, SECTIONS, f"keys: {', '.join(SECTIONS)}")
                raise notes.refuse("", f"unknown key {word.value!r}", word.span, hint)
            found[key.argument or word.value] = key.shape.read(node, NodePlace(word.value, word, word.value), notes)
        except Refused as refused:
            if word.value == "dd":  # another version may be another language: no further error would be sure
                raise
            if key is not None and refused.kept is not None:
                found[key.argument or word.value] = refused.kept
    _check_sections(root, notes, whole=whole)
    if root.get("name") is None:
        found["name"] = _default_name(root, file, notes)
    written = found.pop("checks", ())
    checks, named_root = expanded(written, found, root, notes) if written else (None, root)
    check_names(named_root, found, notes)
    if not {"name", "inputs", "outputs"} <= found.keys():
        raise Refused
    found.pop("version", None)
    inputs = [given for _, given in found["inputs"]]
    found["clock"] = found.get("clock") or default_clock(inputs)
    if found["clock"] == "arrival":
        found["inputs"] = [(name, on_arrival(given, notes)) for name, given in found["inputs"]]
    else:
        found["inputs"] = beside_import(found["inputs"])
        for _, given in found["inputs"]:
            on_event(given, notes)
    for _, given in found["inputs"]:
        check_times(given, notes)
    found["inputs"] = [(name, _of_zone(given, found.get("timezone", UTC))) for name, given in found["inputs"]]
    if found.get("errors"):
        found["inputs"] = [(name, replace(given, quarantines=True)) for name, given in found["inputs"]]
    wrong = {".".join(error.problem.partition(":")[0].split(".")[:2]) for error in notes.errors}
    named = {
        part: {text.value: value for text, value in found.get(part, ()) if f"{part}.{text.value}" not in wrong}
        for part in ("inputs", "collections", "outputs")
    }
    return model.Spec(**(found | (checks.sections(named, wrong) if checks else named)), path=Path(file))


def _of_zone(given: model.InputSpec, zone: str) -> model.InputSpec:
    """Return an input whose declared columns have the pipeline's zone in the place of UTC, but for its times."""
    times = {text.value for text in given.time}
    if given.columns is None:
        return given
    columns = {
        name: (text, kind if name in times else localized(kind, zone)) for name, (text, kind) in given.columns.items()
    }
    return replace(given, columns=columns)


def _default_name(root: Mapping, file: str, notes: Notes) -> Text:
    """Return the name of the file, without its ending, and without the name of a branch, as the pipeline's."""
    name = Path(file).stem.partition(AT)[0]
    try:
        PIPELINE_NAME.check(Text(name, root.span), NodePlace("", Text("", root.span), ""), Notes())
    except Refused:
        problem = f"the file's name, {name!r}, can't be the pipeline's"
        raise notes.refuse("", problem, root.span, f"add `name: orders`: {PIPELINE_NAME.rule}") from None
    return Text(name, root.span)


def json_schema(operators: Table[str, OperatorForm]) -> JsonSchema:
    """Return the JSON Schema of pipeline files."""
    definitions = {
        "operator": operator_schema(operators),
        "apply": LISTED.schema(),
        "source": SOURCE.schema(),
        "collection": collection.schema(),
    }
    sections = {
        name: key.shape.schema() | ({"description": key.about} if key.about else {}) for name, key in SECTIONS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a pipeline of dd",
        "type": "object",
        "properties": sections,
        "anyOf": [{"required": ["inputs", "outputs"]}, {"required": [KEY]}],
        "patternProperties": {f"^{ANCHORS}": {"description": "for anchors: nobody else reads it"}},
        "additionalProperties": False,
        "$defs": definitions,
    }
