"""Inputs: the keys of all, and those that each format adds."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ddcli.errors import Text, did_you_mean
from ddcli.expressions.tree import delimited, in_backticks
from ddcli.spec import model
from ddcli.spec.csv_options import csv_dialect
from ddcli.spec.shapes import As, ByKind, JsonSchema, Key, NodePlace, Notes, Nothing, Record, Refused, Shape, shape
from ddcli.spec.tables import ABOUT, DATABASE, PLACES
from ddcli.spec.tables import EXAMPLES as TABLE_EXAMPLES
from ddcli.spec.tree import Mapping, Node, Scalar
from ddcli.spec.values import COLUMN, COLUMNS, EXPRESSION, NAME, PATH, Choice, InputColumns, Words, declared, flag

INFER, GROW = "infer", "grow"
IMPORT = "import"
"""The format of an input that is another pipeline's arrangement."""
SHARE = Words(
    "a share or a number of rows",
    r"[0-9]+|[0-9]+(\.[0-9]+)?%",
    "write a share of the table, `50%`, or a number of rows",
)
FILE_NAME = Words(
    "a pattern of names",
    r"[^{}]*(\{[^\W\d]\w*\}[^{}]*)+",
    "it names columns in braces, `people-{day}.csv`, and stands for the file's own name",
)
NEGATIVE = Key(
    Choice("policy", ("allow", "warn", "error")),
    about="records whose multiplicity is negative; warn and error keep the input in the state; default: allow",
)
LATE = ("error", "arrive", "quarantine", "advance")
"""The treatments of rows at closed times; `advance` is the former name of `arrive`."""
AHEAD = Words(
    "a length of time",
    r"none|\d+\s*(second|minute|hour|day|week)s?",
    "write `2 days` (weeks, hours, minutes, seconds), or `none`",
)
LENGTH = Words(
    "a length of time",
    r"\d+\s*(second|minute|hour|day|week)s?",
    "write `90 days` (weeks, hours, minutes, seconds)",
)
_ARCHIVE: Record[Text] = Record(
    lambda _, arguments: arguments["archive"],
    {"archive": Key(PATH, required=True, about="directory that they are moved to, relative to this file")},
    "keep, forget or an archive",
    "{archive: done/orders/}",
)
CONSUMED: Shape[str | Text] = ByKind(
    "keep, forget or an archive",
    scalar=Choice("policy", ("keep", "forget")),  # type: ignore[arg-type] # a word is a value of either
    mapping=_ARCHIVE,  # type: ignore[arg-type]
    hint="write `keep`, `forget` or `{archive: done/orders/}`",
)
_SEVERAL: Shape[tuple[Text, ...]] = ByKind(
    "a column or a list of columns", scalar=As(COLUMN, lambda _, name: (name,)), sequence=COLUMNS
)


_DIFF: Shape[Text | None] = ByKind("a column", scalar=As(COLUMN, lambda _, name: name), nothing=Nothing(lambda _: None))

COMMON = {
    "path": Key(PATH, required=True, about="directory, file or glob, relative to this file"),
    "format": Key(Choice("format", model.FORMATS), about="the format of the rows; default: updates"),
    "columns": Key(
        ByKind(
            "a mapping of columns to types, infer or grow", scalar=Choice("word", (INFER, GROW)), mapping=InputColumns()
        ),
        about="checked if declared, otherwise read from the files; text needs them, or infer: what the first run finds counts; "
        "grow: also what later files add",
    ),
    "file_name": Key(FILE_NAME, about="columns in the names of files: people-{day}.csv"),
    "csv": Key(csv_dialect, about="how csv_dialect files are written"),
    "rounding": Key(
        Choice("rounding", ("half_up",)),
        about="round decimals of text with more digits than their column has; default: refuse them",
    ),
    "late": Key(Choice("policy", LATE), about="rows at closed times; default: error"),
    "max_ahead": Key(
        AHEAD, about="refuse rows that are ahead of the clock by more; default: 1 day, of dates and timestamps"
    ),
    "quarantine": Key(PATH, about="directory for late rows put aside; default: in the state"),
    "consumed": Key(CONSUMED, about="files that were read whole: keep (default), forget, or an archive"),
}
TIME = Key(_SEVERAL, about="the time column, or several for a product order; default: time")
ONE_TIME = Key(As(COLUMN, lambda _, name: (name,)), about="the time column; default: time")
KEY = Key(_SEVERAL, about="the columns that identify records")
OWN: dict[str, dict[str, Key]] = {
    "updates": {
        "time": TIME,
        "diff": Key(_DIFF, about="the diff column; null: every row is +1; default: diff"),
        "negative": NEGATIVE,
    },
    "append": {"time": TIME},
    "upsert": {
        "time": ONE_TIME,
        "key": Key(_SEVERAL, required=True, about=KEY.about),
        "delete_when": Key(EXPRESSION, about="rows that delete; default: all other columns are null"),
        "order_by": Key(EXPRESSION, about="of a key's rows at one time the one with the greatest counts"),
    },
    "snapshots": {
        "time": ONE_TIME,
        "key": KEY,
        "order_by": Key(EXPRESSION, about="under the clock of arrivals: rows with the greatest are the newest table"),
        "max_delete": Key(SHARE, about="refuse a snapshot that deletes more: 50%, or a number of rows"),
    },
    "debezium": {
        "time": Key(ONE_TIME.shape, about="default: ts_ms, flattened __ts_ms"),
        "key": Key(_SEVERAL, about="the table's key: events hold its new record; without a key, also the old one"),
        "order_by": Key(EXPRESSION, about="place in the source's log; default: source.lsn, flattened __lsn"),
        "negative": NEGATIVE,
        "flattened": Key(flag, about="rows as the transform ExtractNewRecordState leaves them"),
    },
    "delta_cdf": {"time": Key(ONE_TIME.shape, about="default: _commit_version"), "negative": NEGATIVE},
}
assert tuple(OWN) == model.FORMATS
EXAMPLES = {"upsert": "{path: landing/orders/, format: upsert, key: [order_id]}"}
DEFAULT_TIMES = {"debezium": "ts_ms", "delta_cdf": "_commit_version"}
DEFAULT_FLATTENED = "__ts_ms"


def _input(place: NodePlace, arguments: dict[str, Any]) -> model.InputSpec:
    kind = arguments.get("format", "updates")
    time = DEFAULT_FLATTENED if arguments.get("flattened") else DEFAULT_TIMES.get(kind, "time")
    default: dict[str, Any] = {"time": (Text(time, place.word.span),)}
    if kind == "updates":
        default["diff"] = Text("diff", place.word.span)
    if arguments.get("columns") in (INFER, GROW):
        default |= {"columns": None, "infers": True, "grows": arguments.pop("columns") == GROW}
    if "columns" in arguments:
        default |= declared(arguments.pop("columns"))
    if not isinstance(arguments.get("changed", ""), str):
        default["replaced_within"], arguments["changed"] = arguments["changed"], "replace"
    named = arguments["time"][0] if "time" in arguments else None
    if arguments.get("late") == "advance":
        default["late"] = arguments.pop("late") and "arrive"
    return model.InputSpec(place.word, **(default | arguments), named=named)


def _table(place: NodePlace, arguments: dict[str, Any]) -> model.InputSpec:
    """Return the input of a table: its mirror's own columns but the time and the diff are no data."""
    (kind,) = (name for name in model.TABLES if name in arguments)
    where = arguments.pop(kind)
    arguments |= where if isinstance(where, dict) else {"path": where}
    span = place.word.span
    if kind == "database" and (name := arguments.pop("from_table", None)) is not None:
        quoted = in_backticks if where.value.startswith("mysql") else delimited
        table = ".".join(map(quoted, name.value.split(".")))
        arguments["query"] = replace(name, value=f"select * from {table}")  # noqa: S608 - quoted
    arguments |= declared(arguments.pop("columns", ()))
    named = arguments.pop("time", None)
    times = model.TABLE_TIMES
    given = model.InputSpec(
        place.word,
        time=(Text(times[named or "version"], span),),
        diff=Text(model.TABLE_DIFF, span),
        follows=arguments["columns"] is None,
        **arguments,
    )
    ignored = tuple(column for name, column in times.items() if name != named)
    return replace(given, table=kind, named=Text(named, span) if named else None, ignored=ignored)


def _meant(word: Text) -> str | None:
    """Return the key of some format that a word is, or is nearest to."""
    known = {name for keys in (COMMON, *OWN.values()) for name in keys}
    return word.value if word.value in known else did_you_mean(word.value, sorted(known))


def _schema() -> JsonSchema:
    others = [_IMPORT, *_TABLES.values()]
    return {"anyOf": [*(_one(kind, record) for kind, record in _RECORDS.items()), *(each.schema() for each in others)]}


@shape(_schema)
def input_by_format(node: Node, place: NodePlace, notes: Notes) -> model.InputSpec:
    """Return an input from a mapping whose keys depend on its format."""
    assert isinstance(node, Mapping)
    if node.get("import") is not None:
        return _IMPORT.read(node, place, notes)
    for kind, record in _TABLES.items():
        if node.get(kind) is not None:
            if kind == "database" and (node.get("table") is None) == (node.get("query") is None):
                hint = "for example `{database: sqlite:///shop.db, table: orders}`"
                raise notes.refuse(place.path, "must have `table` or `query`, and not both", place.word.span, hint)
            where = node.get("spark")
            if isinstance(where, Mapping) and (where.get("table") is None) == (where.get("query") is None):
                hint = "for example `{spark: {table: shop.orders}}`"
                raise notes.refuse(
                    f"{place.path}.spark", "must have `table` or `query`, and not both", where.span, hint
                )
            given = record.read(node, place, notes)
            _check(node, place, notes, given)
            return given
    # Other errors depend on the format, also if its key is misspelt, which the record reports.
    written = node.get("format") or next((value for word, value in node.entries if _meant(word) == "format"), None)
    known = isinstance(written, Scalar) and written.text.value in OWN
    kind = written.text.value if isinstance(written, Scalar) and known else "updates"
    if written is None or known:
        wrong = False
        for word, _ in node.entries:
            formats = [other for other, keys in OWN.items() if word.value in keys]
            if formats and kind not in formats:
                hint = f"it is a key of the format{'s' if len(formats) > 1 else ''} {', '.join(formats)}"
                notes.refuse(place.path, f"the format '{kind}' has no key {word.value!r}", word.span, hint)
                wrong = True
        if wrong:
            raise Refused
        given = _RECORDS[kind].read(node, place, notes)
        _check(node, place, notes, given)
        return given
    return _RECORDS[kind].read(node, place, notes)


def _check(node: Mapping, place: NodePlace, notes: Notes, given: model.InputSpec) -> None:
    """Report keys that don't fit together."""
    if given.flattened and not given.key:
        hint = "a flattened event holds its key's new record: name the columns, `key: [id]`"
        raise notes.refuse(place.path, "the key 'key' is missing", place.word.span, hint)
    if given.csv and not given.csv.has_header and given.columns is None and not given.infers:
        hint = "declare them under `columns`, in the order that they have in the files, or write `columns: infer`"
        raise notes.refuse(
            f"{place.path}.csv", "files without a header don't name their columns", place.word.span, hint
        )
    if (wrong := _unnamed(given) or _not_optional(given) or _not_growing(given) or _no_data(given)) is not None:
        columns = next(value for word, value in node.entries if word.value == "columns")
        raise notes.refuse(f"{place.path}.columns", wrong[0], columns.span, wrong[1])
    if given.late == "arrive" and (reason := _unmovable(given)):
        span = next(node.span for word, node in node.entries if word.value == "late")
        raise notes.refuse(f"{place.path}.late", reason[0], span, reason[1])
    if given.negative != "allow" and (given.key or len(given.time) > 1):
        why = "of its keys each has one record" if given.key else "its time has several coordinates"
        span = next(node.span for word, node in node.entries if word.value == "negative")
        raise notes.refuse(
            f"{place.path}.negative", f"this input can't be watched: {why}", span, "leave `negative` out"
        )
    for policy, action, what in (
        ("changed", "replace", "be replaced in"),
        ("missing", "retract", "be missing from"),
    ):
        if getattr(given, policy) != action or given.consumed == "keep":
            continue
        span = next(node.span for word, node in node.entries if word.value == policy)
        hint = "leave one of both out: the other files of an input are read again when one is replaced, in their places"
        raise notes.refuse(f"{place.path}.{policy}", f"files that are `consumed` have no place to {what}", span, hint)
    if given.quarantine is not None and given.late != "quarantine":
        hint = "set `late: quarantine`, too, or leave it out"
        raise notes.refuse(f"{place.path}.quarantine", "late rows are not put aside", given.quarantine.span, hint)
    for key in given.key:
        if given.columns is not None and key.value not in given.columns:
            listed = f"declared are: {', '.join(given.columns)}"
            raise notes.refuse(f"{place.path}.key", f"'{key.value}' is not under `columns`", key.span, listed)


def _one(kind: str, record: Record[model.InputSpec]) -> JsonSchema:
    schema = record.schema()
    schema["properties"] = schema["properties"] | {"format": {"enum": [kind]}}
    if kind != "updates":
        schema["required"] = [*schema["required"], "format"]
    return schema


def _unnamed(given: model.InputSpec) -> tuple[str, str] | None:
    """Return the reason why an input can't have columns under several names, and a hint; None if it can, or has none."""
    if not given.former:
        return None
    if given.csv and not given.csv.has_header:
        return "files without a header have no names, so `from` is not used", "write the type alone"
    if given.format == "debezium" and not given.flattened:
        return "events of Debezium have one table's columns, so `from` is not used", "write the type alone"
    taken = set(given.columns or ())
    for column, others in given.former.items():
        for name in others:
            if name in taken and name != column:
                return f"'{name}' is a name of two columns", "keep it under one of them"
        taken |= set(others)
    return None


def _not_optional(given: model.InputSpec) -> tuple[str, str] | None:
    """Return the reason why a file can't lack some columns that are optional, and a hint; None if it can."""
    if not given.optional:
        return None
    if given.csv and not given.csv.has_header:
        return "files without a header have all columns, so none is optional", "write the type alone"
    if given.format == "debezium" and not given.flattened:
        return "events of Debezium have one table's columns, so none is optional", "write the type alone"
    fixed = {text.value for text in (*given.key, *((given.diff,) if given.diff else ()))}
    for name in given.optional:
        if name in fixed:
            return f"'{name}' is a column of the key or the diff, so each file must have it", "write the type alone"
        if given.columns is not None and not given.columns[name][1].nullable:
            return (
                f"'{name}' is null in files without it",
                f"let it be null: `{{type: {given.columns[name][1]}?, optional: true}}`",
            )
    return None


def _no_data(given: model.InputSpec) -> tuple[str, str] | None:
    """Return the reason why a column can't have tags, and a hint; None if all can."""
    if given.diff and given.diff.value in given.tags:
        return f"'{given.diff.value}' is the diff, which no command hides", "leave its tags out"
    return None


def _not_growing(given: model.InputSpec) -> tuple[str, str] | None:
    """Return the reason why an input's columns can't grow, and a hint; None if they can, or need not."""
    if given.grows and given.csv and not given.csv.has_header:
        return "files without a header don't name new columns", "declare them, or write `columns: infer`"
    if given.grows and given.format == "debezium" and not given.flattened:
        return (
            "events of Debezium have one table's columns, which can't grow",
            "declare them, or write `columns: infer`",
        )
    return None


def _unmovable(given: model.InputSpec) -> tuple[str, str] | None:
    """Return the reason why late rows of an input can't be moved to a later time, and a hint; None if they can."""
    if given.format == "snapshots":
        hint = "set `late: quarantine`; or `clock: arrival` at the top of the file, under which no table is late"
        return "a late table can't be moved to a later time: the newer one there is whole", hint
    if given.key and given.order_by is None and given.format != "debezium":
        hint = "name the column that decides which row of a key is newer, `order_by: updated_at`; or set `late: quarantine`"
        return "a late row that is moved to a later time needs an order among the rows of its key", hint
    return None


_WITHIN: Record[Text] = Record(
    lambda _, arguments: arguments["replace"],
    {"replace": Key(LENGTH, required=True, about="how old a file may be whose rows are replaced: 90 days")},
    "refuse, replace or a bound",
    "{replace: 90 days}",
)
_CHANGED = Key(
    ByKind(
        "refuse, replace or a bound",
        scalar=Choice("policy", ("refuse", "replace")),
        mapping=_WITHIN,
        hint="write `refuse`, `replace` or `{replace: 90 days}`",
    ),
    about="a file of other content under the name of one that was read: refuse it (default), or replace its rows; `{replace: 90 days}`: if it was not older when it was read",
)
_MISSING = Key(
    Choice("policy", ("refuse", "retract")),
    about="a file that was read and is gone: refuse it (default), or take its rows out",
)
_RECORDS = {
    kind: Record(
        _input,
        COMMON | {"changed": _CHANGED, "missing": _MISSING} | keys,
        "a path or a mapping",
        EXAMPLES.get(kind, "{path: landing/orders/}"),
    )
    for kind, keys in OWN.items()
}
_TABLES = {
    kind: Record(
        _table,
        (DATABASE if kind == "database" else {})
        | {
            kind: Key(PLACES[kind], required=True, about=ABOUT[kind]),
            "time": Key(
                Choice("time", tuple(model.TABLE_TIMES)),
                about="version, an integer, or committed, a timestamp; default: the run that takes a row in",
            ),
            "columns": Key(
                InputColumns(in_files=False),
                about="some of the table's; default: all, and those that it gets later",
            ),
        }
        | {name: COMMON[name] for name in ("late", "max_ahead", "quarantine")},
        "a mapping",
        TABLE_EXAMPLES[kind],
    )
    for kind in model.TABLES
}
_SHARED: Record[dict[str, Text]] = Record(
    lambda _, arguments: arguments,
    {
        "state": Key(
            PATH,
            required=True,
            about="the exporting pipeline's state directory, relative to this file",
            argument="path",
        ),
        "arrangement": Key(NAME, required=True, about="the name under which it is exported"),
    },
    "a mapping",
    "{state: .dd/orders/, arrangement: orders_by_customer}",
)
_IMPORT: Record[model.InputSpec] = Record(
    lambda place, arguments: model.InputSpec(
        place.word, time=arguments.get("time", (Text("time", place.word.span),)), format=IMPORT, **arguments["shared"]
    ),
    {
        "import": Key(_SHARED, required=True, about="an arrangement of another pipeline", argument="shared"),
        "time": TIME,
    },
    "a mapping",
    "{import: {state: .dd/orders/, arrangement: orders_by_customer}}",
)
INPUT = ByKind(
    "a path or a mapping",
    scalar=As(PATH, lambda place, path: _input(place, {"path": path})),
    mapping=input_by_format,
    hint="for example `orders: landing/orders/`",
)


def allowed(text: str, rows: int) -> int:
    """Return the number of rows, of `rows`, that `max_delete` allows to be deleted.

    >>> allowed("50%", 5), allowed("7", 5)
    (2, 7)
    """
    return int(rows * float(text[:-1]) / 100) if re.search("%$", text) else int(text)
