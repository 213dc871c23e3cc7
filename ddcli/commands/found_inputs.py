"""The inputs that `dd init --from` guesses from the files in a folder: formats, columns, keys and times."""

from __future__ import annotations

import re
from dataclasses import field, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import InputError
from ddcli.expressions.csv_dialect import DEFAULT, Dialect, is_named
from ddcli.expressions.tree import quoted, to_be_read
from ddcli.sources.inference import events_of, first_objects, first_rows, images_of, of_objects
from ddcli.store.tables.column_types import FoundColumns, first_is_row, look_of, widest
from ddcli.store.tables.compression import UTF_8, east_asian, unpacked, wrong_encoding
from ddcli.store.tables.footers import Footers
from ddcli.store.tables.input_path import (
    CSV,
    EXCEL,
    NDJSON,
    ONLY_WHERE_NAMED,
    bare,
    name_of_kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.sources.inference import TextColumns
    from ddcli.store.tables.listing import Listing

FILES = 30
"""The most files of an input that are read."""
YEAR, TWO = r"(?:19|20)\d{2}", r"\d{2}"
DATED = re.compile(
    rf"(?P<before>.*?)(?<!\d)(?P<part>(?P<day>{YEAR}(?P<s1>[-_.]?){TWO}(?P=s1){TWO}|{TWO}(?P<s2>[-_.]){TWO}(?P=s2){YEAR})|(?P<month>{YEAR}[-_.](?:0[1-9]|1[0-2])))(?!\d)(?P<after>.*)",
    re.ASCII,
)
"""The first date in a file's name, or else its first month."""
ISO_WAYS = ("%Y-%m-%d", "%Y%m%d")
"""The dates in names that are read without an option."""
NUMBERED = re.compile(r"[-_. ]*\d[\d\-_T]*", re.ASCII)
NAMED_KEY = re.compile(r"(?i)(.*[_ -])?(id|nr|no|number|nummer|key|code|sku|uuid)|.*Id", re.ASCII)
FEW, TIMES_FEW = 8, 5
"""The values of a column, at most, that are the only ones it may have, if it has each of them so many times."""
NAMED_TIME = re.compile(r"(?i).*(updated|modified|changed|time|date|datum|day|tag|created|_at|\bat)\b.*", re.ASCII)
TIMES = ("date", "datetime[us]", "datetime[us, UTC]", "datetime[ms]", "datetime[ns]")
COMMON = 0.5
"""The share of a file's keys that the next file must have, too, if both are whole tables."""
MOST_SKIPPED = 5
ALIKE = "name those that are alike by a glob of their own"


@dataclass
class FoundInput:
    """An input as guessed from its files: `given` are its keys in the pipeline file, `doubts` are remarks by key, or by column."""

    name: str
    path: str
    files: list[Path]
    given: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    """The columns that some of the files lack."""
    checks: list[tuple[str, str, Any]] = field(default_factory=list)
    """The checks that all rows meet so far: the kind and the column of each, and for `in` and `refers` what its values are in."""
    values: dict[str, list[str | None]] = field(default_factory=dict)
    """Values of the columns in the first rows of some files."""
    key: str | None = None
    """The column whose values are unique in these rows."""
    former: dict[str, list[str]] = field(default_factory=dict)
    """The other names of columns in some of the files."""
    table: str = ""
    """The kind of table, if another program keeps it."""
    why_not: str | None = None
    """The reason why the files can't be an input as they are."""


def find(root: Path, shown: str, listing: Listing) -> list[FoundInput]:
    """Guess the inputs from the files below a folder; `shown` is its path in the pipeline file.

    The files in a folder below it are one input; others are grouped by their names without dates and numbers.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    named = [one.path for one in listing.passed if one.why == ONLY_WHERE_NAMED]
    for path in sorted([*(file.path for file in listing.files), *named]):
        folder, _, rest = path.partition("/")
        stem, ending = _parts(path.rpartition("/")[2])
        if rest and "=" not in folder:
            groups.setdefault((folder, "/*" + ending if is_values_name(ending) else ""), []).append(path)
        else:
            groups.setdefault((NUMBERED.sub("", stem).strip("-_. ") or root.name, ending), []).append(path)
    found: list[FoundInput] = []
    for (name, ending), paths in groups.items():
        in_folder = not ending or ending.startswith("/")
        where = f"{shown}/{name}{ending or '/'}" if in_folder else _glob(shown, paths, ending, alone=len(groups) == 1)
        made = re.sub(r"\W+", "_", name).strip("_") or "input"
        names = {one.name for one in found}
        unique = next(each for at in range(len(groups) + 1) if (each := f"{made}_{at}" if at else made) not in names)
        given = FoundInput(unique, where, [root / path for path in sorted(paths)])
        try:
            _look_at(given)
        except (InputError, OSError, ValueError) as error:
            given.why_not = getattr(error, "problem", None) or str(error)
        found.append(given)
    for given in found:
        _find_sets(given)
        _find_references(given, [one for one in found if one.key and one is not given])
    return found


def is_written_again(given: FoundInput) -> bool:
    """Return whether the files of an input are named by day or part: a program that makes such files may write one again."""
    names = [path.name for path in given.files]
    parts = len(names) > 1 and all(NUMBERED.search(_parts(name)[0]) for name in names)
    return parts or all(DATED.fullmatch(name) for name in names)


def _find_sets(given: FoundInput) -> None:
    """Add a check for each column of text that has few values."""
    for name, values in given.values.items():
        some = dict.fromkeys(value for value in values if value)
        if (
            given.columns.get(name, "").startswith("string")
            and 1 < len(some) <= FEW
            and len(values) >= TIMES_FEW * len(some)
        ):
            given.checks.append(("in", name, sorted(some)))


def _find_references(given: FoundInput, others: Sequence[FoundInput]) -> None:
    """Add a check for each column whose values are all keys of one other input, if it is named after that or its key."""
    for name, values in given.values.items():
        some = {value for value in values if value}
        fitting = [
            one
            for one in others
            if one.key is not None
            and name != given.key
            and some
            and some <= {*one.values[one.key]}
            and (_letters(name) == _letters(one.key) or _letters(name).startswith(_letters(one.name).rstrip("s")))
        ]
        if len(fitting) == 1:
            given.checks.append(("refers", name, f"{fitting[0].name}.{fitting[0].key}"))


def _parts(name: str) -> tuple[str, str]:
    """Return a file's name without its endings, and the endings."""
    plain = bare(name)
    kind = plain[plain.rfind(".") :] if "." in plain else ""
    at = name.lower().rfind(kind) if kind else len(name)
    return name[:at], name[at:]


def _glob(shown: str, paths: Sequence[str], ending: str, *, alone: bool) -> str:
    if alone and not is_values_name(ending):
        return f"{shown}/"
    if len(paths) == 1:
        return f"{shown}/{paths[0]}"
    stems = [_parts(path.rpartition("/")[2])[0] for path in paths]
    common = next(
        stems[0][:end] for end in range(len(stems[0]), -1, -1) if all(s.startswith(stems[0][:end]) for s in stems)
    )
    common = re.split(r"\d", common, maxsplit=1)[0]
    return f"{shown}/{common}*{ending}"


def is_values_name(ending: str) -> bool:
    """Return whether files with this ending are taken in only if a path names them."""
    return bare(f"a{ending}").endswith(".json")


def _look_at(given: FoundInput) -> None:
    """Find columns, format, key and time of an input."""
    some = given.files if len(given.files) <= FILES else [*given.files[: FILES // 2], *given.files[-FILES // 2 :]]
    kind = name_of_kind(given.files[0])
    if len({name_of_kind(path) for path in given.files}) > 1:
        given.doubts["path"] = "files of several kinds"
    if kind == NDJSON and _is_debezium(given, some):
        return
    dialect, found = DEFAULT, FoundColumns()
    if kind == CSV:
        dialect = _dialect(given, some)
    found.delimiter = dialect.separator
    tables = [first_rows(path, dialect) for path in some]
    if kind in (CSV, NDJSON, EXCEL):
        if kind != NDJSON and dialect.has_header:
            tables = _with_one_name(given, tables)
        names = list(dict.fromkeys(name for table in tables for name in table if is_named(name)))
        if kind != NDJSON:
            names = _in_files(given, tables, names, has_header=dialect.has_header or kind == EXCEL)
        if any("" in table for table in tables):
            given.doubts["path"] = "a column without a name is left out"
        texts = {name: [value for table in tables for value in table.get(name, [None])] for name in names}
        found.look_at(texts, is_csv=kind == CSV)
        given.columns, given.doubts = (
            dict(found.types),
            {f"columns.{k}": v for k, v in found.doubts.items()} | given.doubts,
        )
        if kind == CSV:
            options = {key: value for key, value in found.options.items() if (key, value) != ("decimal", ".")}
            if options := given.given.pop("csv", {}) | options:
                given.given["csv"] = options
    else:
        given.columns = {
            name: str(kind).removesuffix("?") for name, kind in Footers(None, {}).footer(given.files[0]).items()
        }
    with to_be_read():
        _meaning(given, tables, declared=kind in (CSV, NDJSON, EXCEL))


def _with_one_name(given: FoundInput, tables: Sequence[TextColumns]) -> list[TextColumns]:
    """Return tables in which a column that was renamed has the newest of its names; note the others.

    It was renamed if one name follows the other, with values of the same type, and they have the same letters, or are the only two.
    """
    having = {
        name: [at for at, table in enumerate(tables) if name in table]
        for name in dict.fromkeys(name for table in tables for name in table if is_named(name))
    }
    partial = {name: at for name, at in having.items() if len(at) < len(tables)}
    kinds = {name: _kind_of_values([tables[at][name] for at in found]) for name, found in partial.items()}
    newest: dict[str, str] = {}
    for name, found in partial.items():
        alike = [one for one, at in partial.items() if at[-1] + 1 == found[0] and kinds[one] == kinds[name]]
        same = [one for one in alike if _letters(one) == _letters(name)]
        alone = alike if len(partial) == 2 and alike else []
        if len(same or alone) == 1:
            newest[(same or alone)[0]] = name
    covered = {name: list(at) for name, at in partial.items()}
    for former, name in newest.items():
        covered[name] += covered[former]
    for former, name in [*newest.items()][::-1]:
        newest[former] = newest.get(name, name)
    whole = {name for name in newest.values() if len(covered[name]) == len(tables)}
    for former, name in newest.items():
        if name in whole:
            given.former.setdefault(name, []).append(former)
            given.doubts[f"columns.{name}"] = "it is the same column under several names"
    return [
        {newest[name] if newest.get(name) in whole else name: values for name, values in table.items()}
        for table in tables
    ]


def _letters(name: str) -> str:
    """Return the letters and digits of a name.

    >>> _letters("Province/State") == _letters("province_state")
    True
    """
    return re.sub(r"[\W_]", "", name).casefold()


def _kind_of_values(values: Sequence[list[str | None]]) -> str:
    """Return the type of a column of text, by its values in several files."""
    found = FoundColumns()
    found.look_at({"column": [value for each in values for value in each]}, is_csv=True)
    return found.types["column"].removesuffix("?")


def _in_files(given: FoundInput, tables: Sequence[TextColumns], names: Sequence[str], *, has_header: bool) -> list[str]:
    """Return the columns of files of text, and note those that some of them lack."""
    counts = {name: sum(name in table for table in tables) for name in names}
    lacking = {name: count for name, count in counts.items() if count < len(tables)}
    if not names:
        raise InputError("it has no row to find columns from")
    if lacking and not has_header:
        raise InputError("its files have no header, and not as many columns each", hint=ALIKE)
    if len(lacking) == len(names):
        raise InputError("its files have no column in common", hint=ALIKE)
    given.optional = {*lacking}
    given.doubts |= {
        f"columns.{name}": f"only {count} of {len(tables)} files have it, it is null in the others"
        for name, count in lacking.items()
    }
    return [*names]


def _is_debezium(given: FoundInput, files: Sequence[Path]) -> bool:
    """Return whether an input's rows are Debezium's events; if so, set its columns, key and order from them."""
    bodies = events_of(first_objects(files[0]))
    if bodies is None:
        return False
    texts = of_objects(images_of(bodies))
    names = list(texts)
    given.given["format"] = "debezium"
    given.columns = FoundColumns().look_at(texts, is_csv=False).types
    key = next((name for name in names if NAMED_KEY.fullmatch(name)), None)
    if key is not None:
        given.given["key"] = [key]
        given.doubts["key"] = "the table's primary key?"
        sources = [body.get("source") for body in bodies]
        if not all(isinstance(source, dict) and "lsn" in source for source in sources):
            has_pos = all(isinstance(source, dict) and "pos" in source for source in sources)
            given.given["order_by"] = "source.pos" if has_pos else "ts_ms"
            given.doubts["order_by"] = "of two changes at one time the one with the greater value is later"
    return True


def _dialect(given: FoundInput, files: Sequence[Path]) -> Dialect:
    """Return the dialect of CSV files, and add the options that differ from the defaults to the input."""
    options: dict[str, Any] = {}
    encoding = _encoding(given, files)
    if encoding != UTF_8:
        options["encoding"] = encoding
    plain = replace(DEFAULT, encoding=encoding)
    tabs = bare(files[0].name).endswith(".tsv")
    look = look_of(files[0], plain)
    for skip in () if "skip" in look else range(MOST_SKIPPED + 1):
        width, delimiter = widest(files[0], replace(plain, skip=skip))
        if width > 1:
            if delimiter != ("\t" if tabs else ","):
                options["delimiter"] = delimiter
            if skip:
                options["skip"] = skip
                given.doubts["csv"] = "the first lines don't look like a header"
            break
    options |= {name: value for name, value in look.items() if "skip" in look}
    if first_is_row(files[0], replace(plain, **options)):
        options["header"] = False
        row = "the first line looks like a row, so the columns are numbered: name them, in their order"
        given.doubts["csv"] = "; ".join(filter(None, (given.doubts.get("csv"), row)))
    if options:
        given.given["csv"] = options
    return replace(plain, **options)


def _encoding(given: FoundInput, files: Iterable[Path]) -> str:
    """Guess the encoding of files from their bytes."""
    for path in files:
        if wrong := wrong_encoding(path, UTF_8):
            name = re.search(r"encoding: ([\w-]+)", wrong[1])
            return name[1] if name else UTF_8
        with unpacked(path) as file:
            data = file.read(1 << 22)
        try:
            data[: data.rfind(b"\n") + 1].decode(UTF_8)
        except UnicodeDecodeError:
            given.doubts["csv"] = "the bytes are not UTF-8, and don't state what else they are"
            return east_asian(data[: data.rfind(b"\n") + 1]) or "windows-1252"
    return UTF_8


def _meaning(given: FoundInput, tables: Sequence[dict[str, list[str | None]]], *, declared: bool) -> None:
    """Guess the format, the key, and the column that orders the rows of a key."""
    day, order = _named_days(given, declared=declared)
    in_all = {name: kind for name, kind in given.columns.items() if name not in given.optional}
    names = [name for name in in_all if name != day]
    in_each = [name for name in names if _is_key(given, name) and all(_is_unique(table.get(name)) for table in tables)]
    named = [name for name in names if _is_key(given, name) and NAMED_KEY.fullmatch(name)]
    key = next((name for name in in_each if name in named), in_each[0] if in_each and in_each[0] == names[0] else None)
    if day and key and len(tables) > 1 and _are_whole_tables([set(table[key]) for table in tables]):
        given.given |= {"format": "snapshots", "key": [key], "order_by": order}
        given.doubts["format"] = (
            f"each file looks like the whole table of its {day}; if it has only what is new: append"
        )
        return
    times = [name for name, kind in in_all.items() if kind in TIMES]
    time = day or next((name for name in times if NAMED_TIME.fullmatch(name)), times[0] if times else None)
    candidate = key or (named[0] if named else None)
    given.values = {name: [value for table in tables for value in table.get(name, [])] for name in in_all}
    values = [value for table in tables for value in table.get(candidate, [])] if candidate else []
    repeated = len(set(values)) < len(values)
    if repeated and time is not None:
        moments = [
            at if time == day else value
            for at, table in enumerate(tables)
            for value in table.get(time) or [None] * len(table.get(candidate or "", []))
        ]
        if len(set(zip(values, moments, strict=True))) == len(values):
            given.given |= {"format": "upsert", "key": [candidate], "order_by": order if time == day else quoted(time)}
            given.doubts["key"] = (
                f"values of '{candidate}' occur several times: of each, the row with the latest '{time}' counts; if all rows do: append"
            )
            return
    given.given["format"] = "append"
    if repeated:
        given.doubts["format"] = (
            f"values of '{candidate}' occur several times{' at one time' if time else ''}; if only the last row of each counts: upsert, with `key` and `order_by`"
        )
    elif candidate:
        given.doubts["format"] = (
            f"each '{candidate}' is unique so far; if later rows replace earlier ones: upsert, with `key: [{candidate}]`"
        )
        if values and None not in values and "" not in values:
            # Declared columns refuse nulls by their types.
            given.key = candidate
            given.checks += [(kind, candidate, None) for kind in ("unique", *(() if declared else ("not_null",)))]


def _named_days(given: FoundInput, *, declared: bool) -> tuple[str | None, str]:
    """Return the column of the days or months in the names of all files, if these have one, and an expression that orders by it; add their pattern to the input."""
    matches = [match for path in given.files if (match := DATED.fullmatch(path.name))]
    shapes = {(match["before"], match["after"], match["s1"], match["s2"], match["month"] is None) for match in matches}
    if len(matches) < len(given.files) or len(shapes) != 1:
        return None, ""
    ((before, after, first, second, daily),) = shapes
    name, parts = "day" if daily else "month", [match["part"] for match in matches]
    ways = ("%Y{0}%m{0}%d",) if first is not None else ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y")
    forms = [way.format(first or second or "") for way in ways] if daily else [f"%Y{parts[0][4]}%m"]
    forms = [form for form in forms if _all_dates(parts, form)]
    if not forms or name in given.columns or any(mark in before + after for mark in "{}"):
        return None, ""
    kind = _kind_of_days(given, forms) if daily else "string"
    if not declared and kind != "date":
        return None, ""
    given.given["file_name"] = f"{before}{{{name}}}{after}"
    if declared:
        given.columns[name] = kind
    if kind == "date":
        return name, quoted(name)
    return name, f"strptime({name}, '{forms[0]}')" if daily else f"strptime({name} || '-01', '{forms[0]}-%d')"


def _kind_of_days(given: FoundInput, forms: Sequence[str]) -> str:
    """Return the type of a column of the dates in names, which have one of these formats; state the format in the input's options of CSV where that is needed.

    Dates in an input's rows have the same format as those in its names: where they differ, the column stays text.
    """
    if len(forms) > 1:
        doubt = f"the dates in the files' names are read as {forms[0]}, and may also be {forms[1]}"
        given.doubts["file_name"] = doubt
    if forms[0] in ISO_WAYS:
        return "date"
    rows_have_dates = "date" in given.columns.values() or "date_format" in given.given.get("csv", {})
    if name_of_kind(given.files[0]) != CSV or rows_have_dates:
        return "string"
    given.given["csv"] = {**given.given.get("csv", {}), "date_format": forms[0]}
    return "date"


def _all_dates(parts: Sequence[str], form: str) -> bool:
    try:
        return all(datetime.strptime(part, form) for part in parts)  # noqa: DTZ007 - dates have no zone
    except ValueError:
        return False


def _is_key(given: FoundInput, name: str) -> bool:
    return given.columns[name] in ("int64", "string", "int32", "uint64", "uint32")


def _is_unique(values: Sequence[str | None] | None) -> bool:
    return values is not None and None not in values and "" not in values and len(set(values)) == len(values)


def _are_whole_tables(keys: Sequence[set[str | None]]) -> bool:
    """Return whether most keys of each file are in the next one, too."""
    shares = [len(one & other) / max(len(one), 1) for one, other in pairwise(keys)]
    return sum(shares) / len(shares) >= COMMON
