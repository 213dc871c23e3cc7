"""A comparison in the chosen format: text, JSON, Markdown, HTML, or a change log in Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Literal

from ddcli.compare.pipelines import Differences
from ddcli.errors import UsageError
from ddcli.screen import json_text, rich_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.compare.difference import Difference

    Titled = Sequence[tuple[str | None, Difference]]

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
        from ddcli.compare.markdown import markdown

        return [markdown(titled, notes, limit)]
    if form == "html":
        from ddcli.compare.page import page

        return [page(titled, notes, limit)]
    from ddcli.compare.text import json_lines, to_json

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
    from rich.console import Console

    from ddcli.compare.text import text_lines

    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    for line in notes:
        console.print(rich_text(line))
    for at, (title, one) in enumerate(titled):
        if title is not None:
            if at or notes:
                console.print()
            console.print(rich_text(f"output {title}", "bold"))
        for text in text_lines(one, limit):
            console.print(text)


def _parquet(titled: Titled, out: BinaryIO) -> None:
    from ddcli.compare.updates import updates
    from ddcli.render.rows import write_rows

    if len(titled) != 1:
        raise UsageError("a change log is of one output", hint="choose it with `--select`")
    write_rows(updates(titled[0][1]), "parquet", out)
