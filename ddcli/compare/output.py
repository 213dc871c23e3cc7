"""A comparison in the chosen format: text, JSON, Markdown, HTML, or a change log in Parquet.

Markdown is for a comment in a pull request or a step summary: a table, details folded, within GitHub's limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import polars as pl

from ddcli.compare.columns import WIDEST, type_name
from ddcli.compare.page import MARKS, column_words, left_out, notes, page, plain, rows_of, texts, verdict
from ddcli.compare.pairs import ADDED, CHANGE, CHANGED, COUNT, KEY, NEW, OLD, REMOVED
from ddcli.compare.pipelines import Differences
from ddcli.errors import UsageError
from ddcli.render.rows import write_rows
from ddcli.screen import coloured, json_text, plural, say, visible
from ddcli.screen import markdown as escaped
from ddcli.sources.change_log import DIFF, TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.compare.diff import Difference
    from ddcli.compare.page import ChangedRow


LIMIT = 65_000
"""The most bytes of a comment: GitHub takes 65 536 characters."""
LONGEST = 500
"""The most characters of a cell's text that are shown."""
NAMED = 100
"""The most outputs that are the same and are named."""


def markdown(titled: Sequence[tuple[str | None, Difference]], notes: Sequence[str], limit: int | None) -> str:
    """Return `notes`, then each difference under its title, with as many changed rows as fit; of several outputs the titles of those that are the same, last."""
    shown, plainly = _apart(titled)
    first = [(title, found, found.first(limit) if limit != 0 else None) for title, found in shown]
    same = [f"✅ {_listed(plainly, _code)}", ""] if plainly else []
    most = max((frame.height for _, _, frame in first if frame is not None), default=0)
    cut = [escaped(note[:LONGEST] + "…" if len(note) > LONGEST else note) for note in notes]
    while True:
        parts = [_section(title, found, None if frame is None else frame.head(most)) for title, found, frame in first]
        text = "\n".join([*_total(titled), *cut, *parts, *same])
        if len(text.encode()) <= LIMIT:
            return text
        if most == 0:
            return (
                text.encode()[:LIMIT].decode(errors="ignore").rpartition("\n")[0]
                + "\n\n(cut: more than a comment holds)\n"
            )
        most //= 2


def _apart(titled: Titled) -> tuple[Titled, list[str]]:
    """Return the differences to show, and of several outputs the names of those that are the same, with nothing else to show."""
    same = [
        title
        for title, found in titled
        if title and len(titled) > 1 and found.same and not found.columns and not notes(found)
    ]
    return [(title, found) for title, found in titled if title not in same], same


def _listed(names: Sequence[str], form: Callable[[str], str]) -> str:
    more = [f"{len(names) - NAMED:,} more"] if len(names) > NAMED else []
    return f"same: {', '.join([*map(form, names[:NAMED]), *more])}"


def _total(titled: Sequence[tuple[str | None, Difference]]) -> list[str]:
    """Return a line that counts the outputs that differ, if there are several."""
    if len(titled) < 2:
        return []
    differ = [found for _, found in titled if not found.same]
    rows = sum(found.rows for found in differ)
    counted = f"; {rows:,} rows" if differ else ""
    return [f"**{len(differ)} of {len(titled):,} outputs differ{counted}**", ""]


def _mark(found: Difference) -> str:
    """Return a sign: a difference may be intended, one beyond a bound is not."""
    if found.ok:
        return "✅"
    return "📝" if found.settings.max_changed is None else "❌"


def _section(title: str | None, found: Difference, shown: pl.DataFrame | None) -> str:
    a, b = found.a, found.b
    lines = [
        f"### {_mark(found)} {_code(title) if title else f'{_code(a.label)} → {_code(b.label)}'}",
        "",
        verdict(found),
        "",
    ]
    counts = [f"{count:,}" for count in (a.rows, b.rows, *found.tally.values())]
    lines += _table(["A rows", "B rows", *found.tally], [counts])
    for line in notes(found):
        lines += ["", f"> {escaped(line)}"]
    if found.columns:
        lines += [
            "",
            *_table(
                ["column", "difference"], [[_code(each.column), escaped(column_words(each))] for each in found.columns]
            ),
        ]
    if cells := [[_code(name), f"{count:,}"] for name, count in found.changed_cells]:
        lines += ["", *_table(["column", "changed cells"], cells)]
    if shown is not None and shown.height:
        total, rest = found.changes.height, left_out(shown.height, found.changes.height)
        counted = f"{total:,} {plural(total, 'change')}" if rest is None else f"{shown.height:,} of {total:,} changes"
        lines += ["", f"<details><summary>{counted}</summary>", ""]
        lines += _table(
            ["", *map(_code, found.compared.key), "row"], map(_markdown_row, rows_of(shown, found.compared, texts))
        )
        lines += ["", *([rest, ""] if rest else []), "</details>"]
    elif found.rows and (rest := left_out(0, found.changes.height)):
        lines += ["", rest]
    return "\n".join([*lines, ""])


def _markdown_row(row: ChangedRow) -> list[str]:
    if row.change == CHANGED:
        cells = [f"{_code(name)}: {_code(old)} → {_code(new)}" for name, (old, new) in row.cells.items()]
    else:
        cells = [f"{_code(name)}: {_code(value)}" for name, value in row.cells.items()]
    times = f" x{row.count:,}" if row.count > 1 else ""
    return [f"{MARKS[row.change]}{times}", *map(_code, row.key.values()), ", ".join(cells)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _code(text: str) -> str:
    """Return text as code in which Markdown, HTML and `@` have no effect."""
    cut = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return f"<code>{escaped(cut)}</code>"


if TYPE_CHECKING:
    Titled = Sequence[tuple[str | None, Difference]]


COLOURS = {ADDED: "green", REMOVED: "red", CHANGED: "yellow"}
ARROW = " -> "


def text_lines(found: Difference, limit: int | None) -> Iterator[str]:
    """Yield the lines of a comparison, visible and with colours, with at most `limit` changed rows (None: all)."""
    labels = [visible(side.label) for side in (found.a, found.b)]
    wide = max(map(len, labels))
    for name, label, side in zip(("A", "B"), labels, (found.a, found.b), strict=True):
        yield f"{name}  {label:<{wide}}  {side.rows:,} rows  ({side.kind})"
    yield visible(f"key  {', '.join(found.compared.key)}" if found.compared.key else "no key: whole rows are compared")
    for line in notes(found):
        yield visible(f"note: {line}")
    if found.columns:
        yield from ("", "columns")
        for each in found.columns:
            yield coloured(f"  {each.column}: {column_words(each)}", "yellow")
    yield from ("", "rows")
    counts = found.tally
    if not found.compared.key:
        del counts[CHANGED]
    width = max(len(f"{count:,}") for count in counts.values())
    for what, count in counts.items():
        yield coloured(f"  {what:<8} {count:>{width},}", COLOURS.get(what) if count else None)
    if cells := [(visible(name), count) for name, count in found.changed_cells]:
        yield from ("", "changed cells")
        long = max(len(name) for name, _ in cells)
        for name, count in cells:
            yield f"  {name:<{long}} {count:>{width},}"
    yield from _rows(found, limit)
    yield from ("", coloured(verdict(found), "green" if found.ok else "red", bold=True))


def _rows(found: Difference, limit: int | None) -> Iterator[str]:
    if not found.rows or limit == 0:
        return
    first = found.first(limit)
    yield ""
    for row in rows_of(first, found.compared, texts):
        yield _row(row)
    if (rest := left_out(first.height, found.changes.height)) is not None:
        yield rest


def _row(row: ChangedRow) -> str:
    colour, key = COLOURS[row.change], "  ".join(f"{name}={value}" for name, value in row.key.items())
    if row.change == CHANGED:
        pairs = row.cells.items()
        cells = [
            f"{visible(name)}: {coloured(old, 'red')}{ARROW}{coloured(new, 'green')}" for name, (old, new) in pairs
        ]
    else:
        cells = [coloured(f"{name}={value}", colour) for name, value in row.cells.items()]
    keyed = [coloured(key, colour, bold=True)] if key else []
    times = [coloured(f"x{row.count:,}", bold=True)] if row.count > 1 else []
    return f"{coloured(MARKS[row.change], colour)} {'  '.join([*keyed, *cells, *times])}"


def to_json(found: Difference, limit: int | None) -> dict[str, Any]:
    """Return the difference as JSON, with at most `limit` changed rows (None: all)."""
    first = found.first(limit) if limit != 0 else None
    rows = [] if first is None else [row.to_json() for row in rows_of(first, found.compared, plain)]
    allowed = found.settings.max_changed
    return {
        "same": found.same,
        "ok": found.ok,
        "verdict": verdict(found),
        "a": found.a.to_json(),
        "b": found.b.to_json(),
        "key": list(found.compared.key) or None,
        "max_changed": None if allowed is None else str(allowed),
        "rows": found.tally,
        "cells": {name: count for name, count in found.cells.items() if count},
        "columns": [
            {"column": each.column, "change": each.change, "a": each.a, "b": each.b, "note": each.note}
            for each in found.columns
        ],
        "notes": notes(found),
        "changes": rows,
        "changes_left_out": found.changes.height - len(rows),
    }


def json_lines(found: Difference, limit: int | None, output: str | None = None) -> Iterator[str]:
    """Yield a line for each changed row, in order of the key; in no order if all are wanted and don't fit in memory.

    `output` is the name of the pipeline's output that is compared.
    """
    named = {} if output is None else {"output": output}
    streams = limit is None and not found.changes.fits
    for frame in found.changes.frames() if streams else (found.first(limit),):
        for row in rows_of(frame, found.compared, plain):
            yield json_text({**named, **row.to_json()})


WIDE = (pl.Int128, pl.UInt128)
OTHERWISE = "leave the column out with `--ignore`, or choose another `-o`"


def updates(found: Difference) -> Iterator[pl.DataFrame]:
    """Yield the updates, each record once: the compared columns in their common types, the time, and the diff; at least one frame.

    Integers of 128 bits, in which int64 is compared with uint64, are decimals, as Parquet has no such integers. The time is that as of
    which B was read, if it is a log that was read as of one, else 0. Values within their tolerance are unchanged.
    """
    at = found.at or {TIME: pl.Series([0], dtype=pl.Int64)}
    if taken := sorted({*at, DIFF} & set(found.compared.names)):
        raise UsageError(
            f"the rows have a column '{taken[0]}', a name that a change log needs for its own column",
            hint="rename it, or choose another `-o`",
        )
    names = found.compared.names
    wide = [name for name in names if found.compared.types[name] in WIDE]
    for name, kind in found.compared.types.items():
        if name not in wide and _holds_wide(kind):
            raise UsageError(f"the column '{name}' is {type_name(kind)}, which Parquet can't hold", hint=OTHERWISE)
    for frame in found.changes.frames():
        sides = []
        for prefix, other, sign in ((OLD, ADDED, -1), (NEW, REMOVED, 1)):
            key = [pl.col(KEY + name).alias(name) for name in found.compared.key]
            values = [pl.col(prefix + name).alias(name) for name in found.compared.values]
            sides.append(
                frame.filter(pl.col(CHANGE) != other).select(*key, *values, (sign * pl.col(COUNT)).alias(DIFF))
            )
        summed = pl.concat(sides).group_by(names).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0).sort(names)
        times = [pl.lit(value[0], value.dtype).alias(name) for name, value in at.items()]
        yield summed.select(*names, *times, DIFF).with_columns(_decimal(summed[name]) for name in wide)


def _decimal(values: pl.Series) -> pl.Series:
    try:
        return values.cast(pl.Decimal(WIDEST, 0))
    except pl.exceptions.InvalidOperationError:
        problem = f"the column '{values.name}' has integers of more than {WIDEST} digits, which Parquet can't hold"
        raise UsageError(problem, hint=OTHERWISE) from None


def _holds_wide(kind: object) -> bool:
    """Return whether a type is, or holds, an integer of 128 bits."""
    inner = [field.dtype for field in kind.fields] if isinstance(kind, pl.Struct) else [getattr(kind, "inner", None)]
    return kind in WIDE or any(_holds_wide(each) for each in inner if each is not None)


Form = Literal["text", "json", "jsonl", "markdown", "html", "parquet"]


def show(found: Difference | Differences, form: Form, limit: int | None, out: BinaryIO) -> None:
    """Write a comparison, with at most `limit` changed rows of each output (None: all)."""
    titled: Titled = list(found.outputs.items()) if isinstance(found, Differences) else [(None, found)]
    notes = found.lines() if isinstance(found, Differences) else []
    if form == "text":
        _text(titled, notes, limit)
    elif form == "parquet":
        _parquet(titled, out)
    else:
        out.writelines(piece.encode() for piece in _pieces(found, titled, notes, form, limit))
    out.flush()


def _pieces(
    found: Difference | Differences, titled: Titled, notes: Sequence[str], form: Form, limit: int | None
) -> Iterable[str]:
    if form == "markdown":
        return [markdown(titled, notes, limit)]
    if form == "html":
        return [page(titled, notes, limit)]

    if form == "jsonl":
        return (f"{line}\n" for title, one in titled for line in json_lines(one, limit, title))
    if isinstance(found, Differences):
        tree = {
            "same": found.same,
            "ok": found.ok,
            "outputs": {name: to_json(one, limit) for name, one in found.outputs.items()},
            "only_a": list(found.only_a),
            "only_b": list(found.only_b),
            "failing_checks": list(found.failing),
            "notes": list(found.notes),
        }
    else:
        tree = to_json(found, limit)
    return [json_text(tree) + "\n"]


def _text(titled: Titled, notes: Sequence[str], limit: int | None) -> None:
    """Print `notes`, then each difference under its title; of several outputs the titles of those that are the same, last."""
    shown, plainly = _apart(titled)
    parts = [[visible(line) for line in notes]] if notes else []
    for title, one in shown:
        heading = [] if title is None else [coloured(f"output {title}", bold=True)]
        parts.append([*heading, *text_lines(one, limit)])
    if plainly:
        parts.append([coloured(_listed(plainly, str), "green")])
    for at, part in enumerate(parts):
        say(*([""] * bool(at)), *part, styled=True)


def _parquet(titled: Titled, out: BinaryIO) -> None:
    if len(titled) != 1:
        raise UsageError("a change log is of one output", hint="choose it with `--select`")
    write_rows(updates(titled[0][1]), "parquet", out)
