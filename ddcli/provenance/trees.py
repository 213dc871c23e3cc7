"""Explanations as trees for a person, bisections as lines, and both as JSON."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from ddcli.privacy import preview, previewed
from ddcli.provenance.question import below
from ddcli.provenance.sentences import asked_values, named_values, shown_value
from ddcli.screen import json_value, plural, rich_text
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import polars as pl
    from rich.text import Text
    from rich.tree import Tree

    from ddcli.provenance.bisection import Bisection, Culprit
    from ddcli.provenance.explanation import Answer
    from ddcli.provenance.inputs import Where
    from ddcli.provenance.question import Explained, Missing
    from ddcli.provenance.sentences import Reason
    from ddcli.provenance.verification import OutputProof, TableProof, Verification

SCOPES = {
    "witness": "checked: {} alone {} it",
    "whole": "checked: {} alone {} it (a smaller choice of them did not)",
    "everything": "no smaller explanation passed the check: {} alone {} it, which are all that may matter",
}


SHOWN_ROWS = 3
"""The rows of a query that a bisection's line shows."""
DEEPEST = 100
"""The most levels of a tree that are shown; a derivation over hundreds of rounds has hundreds of levels."""
CHANGES = {
    "witness": "checked: added to what was there before, {} made the change",
    "everything": "no smaller explanation passed the check: {}, all that may matter of that time, made the change",
}


WIDE = 160
"""The width of trees on a page."""


def trees(answer: Answer) -> Iterator[Tree]:
    """Yield a tree for each record that is explained."""
    from rich.tree import Tree

    for each in answer.explained:
        text = f"{record_text(answer, each)}{_times(each.reason, each.count)} at {answer.time}"
        head = _parts((f"{answer.collection}: ", "bold"), (text, ""))
        tree = Tree(head, guide_style="dim")
        _add(tree, answer, each.reason, {id(each.reason)}, head=True)
        yield tree


def as_html(answer: Answer) -> str:
    """Return the trees of an answer as a part of a page."""
    from rich.console import Console

    console = Console(record=True, file=io.StringIO(), width=WIDE, highlight=False)
    for tree, each in zip(trees(answer), answer.explained, strict=True):
        console.print(tree)
        console.print(verdict(each))
    if answer.missing is not None:
        console.print(missing_tree(answer, answer.missing))
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def missing_tree(answer: Answer, missing: Missing) -> Tree:
    """Return the tree of a missing record."""
    from rich.tree import Tree

    tree = Tree(
        _parts((f"{answer.collection}: ", "bold"), (f"no {shown(asked_values(missing.values))} at {answer.time}", "")),
        guide_style="dim",
    )
    _add_missing(tree, answer, missing, set(), head=True)
    return tree


def _add_missing(
    tree: Tree, answer: Answer, missing: Missing, seen: set[int], depth: int = 0, *, head: bool = False
) -> None:
    """Add an absence to a tree, with a line of its own if it has a reason or its collection a name."""
    name = None if head else answer.names.get(missing.node.fingerprint)
    branch = tree
    if name or missing.why:
        texts = [rich_text(f"{name}: no {shown(asked_values(missing.values))}", "bold")] if name else []
        branch = tree.add(rich_text("  ").join([*texts, *([rich_text(missing.why)] if missing.why else [])]))
    if missing.hindrance is not None:
        _add(branch, answer, missing.hindrance, {id(missing.hindrance)})
    if depth == DEEPEST and missing.because:
        branch = branch.add(_dim("and so on, down to"))
    for each in _because(missing, depth):
        if id(each) in seen:
            branch.add(_dim(f"no {shown(asked_values(each.values))}: see above"))
            continue
        seen.add(id(each))
        _add_missing(branch, answer, each, seen, depth + 1)


def _because(missing: Missing, depth: int) -> Iterable[Missing]:
    """Return the absences that are shown below one; in a tree that is too deep, the lowest ones."""
    if depth < DEEPEST:
        return missing.because
    return [each for each in below(missing) if not each.because and each is not missing]


def record_text(answer: Answer, each: Explained) -> str:
    """Return an explained record as a person reads it."""
    return shown(dict(zip(answer.node.schema, each.record, strict=True)))


def verdict(each: Explained) -> str:
    """Return the result of an explanation's check in words."""
    updates = f"this {each.updates} update" if each.updates == 1 else f"these {each.updates:,} updates"
    produce = "produces" if each.updates == 1 else "produce"
    if not each.checked:
        return f"NOT checked: {updates} alone {'does' if each.updates == 1 else 'do'} not produce it"
    if each.reason.everything and not each.reason.change:
        return f"{updates} alone {produce} it: all that may matter, as not every record was traced"
    if each.reason.change:
        return CHANGES[each.scope].format(updates if each.updates else "nothing but the time")
    return SCOPES[each.scope].format(updates, produce)


def shown(record: dict[str, Any]) -> str:
    """Return a record as a person reads it."""
    return "{" + ", ".join(f"{name}: {shown_value(value)}" for name, value in previewed(record).items()) + "}"


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as JSON has it."""
    return {name: json_value(value) for name, value in previewed(record).items()}


def _times(reason: Reason, count: int) -> str:
    if reason.change:
        return f" {count:+d}"
    return "" if count == 1 else f", {count} times"


def _add(tree: Tree, answer: Answer, reason: Reason, seen: set[int], depth: int = 0, *, head: bool = False) -> None:
    """Add a reason to a tree: a line with the operator, and with the record if it differs from the one below."""
    if depth == DEEPEST:
        tree.add(_dim(_cut(reason)))
        return
    if reason.updates is not None:
        for update in _update_lines(answer, reason):
            tree.add(update)
        return
    line = _line(answer, reason, head=head)
    branch = tree if line is None else tree.add(line)
    for note in reason.notes:
        branch.add(_dim(note))
    for each in reason.because:
        if id(each) in seen and each.updates is None and each.because:
            branch.add(_dim(f"{shown(_values(each))}: see above"))
            continue
        seen.add(id(each))
        _add(branch, answer, each, seen, depth + 1)
    if reason.more:
        branch.add(_dim(f"and {reason.more:,} more"))


def _cut(reason: Reason) -> str:
    """Return the line in place of the rest of a tree that is too deep."""
    return f"and so on, down to {len(reason.leaves):,} {plural(len(reason.leaves), 'update')}"


def _parts(*parts: tuple[str, str]) -> Text:
    """Return a line of texts, each in its style."""
    return rich_text("").join(rich_text(text, style) for text, style in parts if text)


def _dim(text: str) -> Text:
    return rich_text(text, "dim")


def _line(answer: Answer, reason: Reason, *, head: bool) -> Text | None:
    """Return the line of a reason; None if it adds nothing to the line above."""
    name = None if head else answer.names.get(reason.node.fingerprint)
    same = len(reason.because) == 1 and _values(reason.because[0]) == _values(reason)
    values = _values(reason)  # none if they are all of the plan's own columns
    record = f"{shown(values)}{_times(reason, reason.count)}" if values and not head and (name or not same) else ""
    number = "" if reason.number is None or not reason.says else f", round {reason.number + 1}"
    parts = [(f"{name}:" if name else "", "bold"), (record, ""), (f"{reason.says}{number}", "cyan")]
    texts = [rich_text(text, style) for text, style in parts if text]
    return rich_text(" ").join(texts) if texts else None


def _values(reason: Reason) -> dict[str, Any]:
    return named_values(reason.node, reason.record)


def _update_lines(answer: Answer, reason: Reason) -> Iterator[Text]:
    """Yield a line for each update of an input, with its places in files."""
    for each in updates(answer, reason):
        where = ", ".join(_where(place) for place in each["at"])
        yield _parts(
            (f"{each['input']}: ", "bold"),
            (f"{shown(each['record'])} ", ""),
            (f"{each['diff']:+d} at {each['time']}", "green" if each["diff"] > 0 else "red"),
            (f"  ({where})" if where else "", "dim"),
            (f"  {reason.says}" if reason.says else "", "cyan"),
        )


def _where(place: dict[str, Any]) -> str:
    text: str = place["file"] if place["row"] is None else f"{place['file']}, row {place['row']}"
    came, went = place.get("came"), place.get("went")
    text += f", came with the run of {came}" if came else ""
    return text + (f", went with {'that' if came else 'the run'} of {went}" if went else "")


def _place(place: Where) -> dict[str, Any]:
    """Return a place as JSON; of a file that was replaced with the runs with which the row came and went."""
    runs = {name: run for name, run in (("came", place.came), ("went", place.went)) if run}
    return {"file": place.file, "row": place.row, **runs}


def updates(answer: Answer, reason: Reason) -> Iterator[dict[str, Any]]:
    """Yield the updates of an input that a reason consists of, as JSON."""
    source, numbers = reason.source, reason.updates
    assert source is not None
    assert numbers is not None
    matrix, kinds = answer.fed[source.name][numbers], answer.inputs.kinds
    for (record, time, diff), number in zip(answer.inputs.show(source, matrix), numbers.tolist(), strict=True):
        places = answer.places.get((source.name, number), [])
        yield {
            "input": source.name,
            "record": _plain(record),
            "time": format_time(time, kinds),
            "diff": diff,
            "at": [_place(place) for place in places],
        }


# --- as JSON ------------------------------------------------------------------------------------------------------


def to_json(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON."""
    return {
        "pipeline": str(answer.inputs.request.spec.path),
        "collection": answer.collection,
        "at": answer.time,
        "change": answer.change,
        "matching": answer.matching,
        "read": answer.read,
        "seconds": round(answer.seconds, 4),
        "missing": None if answer.missing is None else _missing(answer, answer.missing, set()),
        "records": [
            {
                "record": _plain(dict(zip(answer.node.schema, each.record, strict=True))),
                "count": each.count,
                "scope": each.scope,
                "checked": each.checked,
                "updates": each.updates,
                "reason": _reason(answer, each.reason),
            }
            for each in answer.explained
        ],
    }


def _reason(answer: Answer, reason: Reason, depth: int = 0) -> dict[str, Any]:
    cut = depth == DEEPEST
    return {
        "collection": answer.names.get(reason.node.fingerprint),
        "operator": reason.says or None,
        "round": None if reason.number is None else reason.number + 1,
        "record": _plain(_values(reason)),
        "count": reason.count,
        "notes": [*reason.notes, *([_cut(reason)] if cut else [])],
        "updates": [] if reason.updates is None else list(updates(answer, reason)),
        "because": [] if cut else [_reason(answer, each, depth + 1) for each in reason.because],
        "more": reason.more,
    }


def _missing(answer: Answer, missing: Missing, seen: set[int], depth: int = 0) -> dict[str, Any]:
    """Return an absence as JSON; a part that several share is written where it comes first."""
    because = [] if id(missing) in seen else _because(missing, depth)
    seen.add(id(missing))
    return {
        "collection": answer.names.get(missing.node.fingerprint),
        "values": _plain(asked_values(missing.values)),
        "why": missing.why or None,
        "hindrance": None if missing.hindrance is None else _reason(answer, missing.hindrance),
        "because": [_missing(answer, each, seen, depth + 1) for each in because],
    }


# --- bisections ---------------------------------------------------------------------------------------------------


def bisection_lines(found: Bisection) -> Iterator[str]:
    """Yield a bisection as lines for a person."""
    yield f"fails at {found.at}: {_rows_text(found.now)}; before: {_rows_text(found.before)}  ({found.condition})"
    if found.run is None:
        yield "run: its record is gone; a state keeps the records of the last runs"
    else:
        edited = "the pipeline file was as before"
        if found.corrected:
            edited = f"it replaced or withdrew files: {', '.join(found.corrected)}"
        elif found.rebuilt:
            edited = f"the pipeline file had been edited, so it recomputed: {', '.join(found.rebuilt)}"
        yield f"run: commit {found.run.number}, begun {found.run.began}; {edited}"
    for name, lines in _spans(found.culprits):
        yield f"{name}: {lines}"
    if found.without is not None:
        them = "it" if len(found.culprits) == 1 else "them"
        yield f"without {them} it would be {_rows_text(found.without)}"
    if found.holds_again is not None:
        yield f"it holds again from {found.holds_again} on"


def _rows_text(rows: pl.DataFrame) -> str:
    """Return the first rows of a query; of one value that alone."""
    if rows.shape == (1, 1):
        return shown_value(preview(rows.columns[0], rows.item()))
    texts = [shown(row) for row in rows.head(SHOWN_ROWS).iter_rows(named=True)]
    more = rows.height - len(texts)
    return ", ".join(texts) + (f" and {more:,} more" if more else "") if texts else "no rows"


def _spans(culprits: Iterable[Culprit]) -> Iterator[tuple[str, str]]:
    """Yield each input with places of its updates: lines or rows that follow each other together, and a single update with its record."""
    places: dict[tuple[str, str, str, bool], list[int]] = {}
    for each in culprits:
        for place in each.at:
            file, _, line = place.file.rpartition(":")
            if place.row is not None:
                places.setdefault((each.input, place.file, "row", each.went), []).append(place.row)
            elif line.isdigit():
                places.setdefault((each.input, file, "line", each.went), []).append(int(line))
            else:
                places.setdefault((each.input, place.file, "", each.went), [])
    for (name, file, unit, went), numbers in places.items():
        former = " of the file before it was replaced or withdrawn" if went else ""
        if not unit:
            yield name, f"{file}{former and ', rows'}{former}"
            continue
        runs: list[list[int]] = []
        for number in sorted(set(numbers)):
            if runs and number == runs[-1][-1] + 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        texts = [
            f"{plural(len(run), unit)} {run[0]} to {run[-1]}" if len(run) > 1 else f"{unit} {run[0]}" for run in runs
        ]
        yield name, f"{file}, {', '.join(texts)}{former}"


def bisection_json(found: Bisection) -> dict[str, Any]:
    """Return a bisection as JSON."""

    def rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
        return [_plain(row) for row in frame.iter_rows(named=True)]

    return {
        "condition": found.condition,
        "at": found.at,
        "before": rows(found.before),
        "now": rows(found.now),
        "without": None if found.without is None else rows(found.without),
        "run": None if found.run is None else {"number": found.run.number, "began": found.run.began},
        "rebuilt": list(found.rebuilt),
        "replaced": found.corrected,
        "updates": [
            {
                "input": each.input,
                "record": _plain(each.record),
                "diff": each.diff,
                "went": each.went,
                "at": [{"file": place.file, "row": place.row} for place in each.at],
            }
            for each in found.culprits
        ],
        "holds_again": found.holds_again,
        "notes": found.notes,
    }


def verification_lines(found: Verification, limit: int) -> Iterator[str]:
    """Yield the lines of a verification, with at most `limit` records of each output that differ."""
    what = found.slice.words if found.slice else "all of it"
    left = len(found.unproven)
    also = f", {left:,} {plural(left, 'output')} not verified" if left else ""
    yield f"{found.pipeline}: {what}" + (f", at {found.at}" if found.at else "") + f", {found.seconds:.2f} s{also}"
    for proof in found.proofs:
        of = "" if proof.column is None else f"{proof.values:,} {plural(proof.values, 'value')} of {proof.column}, "
        count = f"{of}{proof.rows:,} {plural(proof.rows, 'record' if found.slice else 'update')}"
        verdict = (
            "right" if proof.same else f"{proof.differing.height:,} {plural(proof.differing.height, 'record')} differ"
        )
        yield f"  {proof.name}: {count}: {verdict}"
        yield from _differing(proof, limit, "by the inputs, not in the log", "in the log, not by the inputs")
    for name, log in found.logs.items():
        if log.fault:
            yield f"  {name}: its log is damaged: {log.fault}"
    for title, same in found.arrangements.items():
        if not same:
            yield f"  the state's rows of `{title}` are not what the inputs say: `dd run --full-refresh all` rebuilds them"
    if found.arrangements and all(found.arrangements.values()):
        kept = len(found.arrangements)
        yield f"  {kept:,} {plural(kept, 'arrangement')} of the state: right"
    for why in dict.fromkeys(found.uncompared.values()):
        titles = [title for title, reason in found.uncompared.items() if reason == why]
        also = "; `--all` compares them" if found.slice else ""
        yield f"  {len(titles):,} {plural(len(titles), 'arrangement')} of the state not compared: {why}{also}"
        yield from (f"    {title}" for title in titles)
    for name, table in found.tables.items():
        wrong = table.differing.height + table.others
        verdict = "right" if table.same else table.fault or f"{wrong:,} {plural(wrong, 'record')} differ"
        yield f"  {name} in {table.place}: {verdict}"
        yield from _differing(table, limit, "in the log, not in the table", "in the table, not in the log")
        if table.others:
            yield f"    - {table.others:,} {plural(table.others, 'row')} in the table, like no record of the log"
    for name, why in found.unproven.items():
        yield f"  {name}: not verified: {why}; `--all` verifies it"
    for name, why in found.lagging.items():
        yield f"  {name}: its table is not compared: {why}"


def _differing(proof: OutputProof | TableProof, limit: int, lacking: str, added: str) -> Iterator[str]:
    """Yield lines for the first records that differ: those that are `lacking`, and those that are `added`."""
    for record, diff in proof.first(limit):
        times = f" ({abs(diff):,} times)" if abs(diff) > 1 else ""
        yield f"    {'+' if diff > 0 else '-'} {shown(record)}{times}: {lacking if diff > 0 else added}"
    if proof.differing.height > limit:
        yield f"    {proof.differing.height - limit:,} more not shown: see --limit"


def verification_json(found: Verification, limit: int) -> dict[str, Any]:
    """Return a verification as JSON, with at most `limit` records of each output that differ."""
    return {
        "pipeline": found.pipeline,
        "at": found.at,
        "same": found.same,
        "slice": found.slice
        and {
            "number": found.slice.number + 1,
            "parts": found.slice.parts,
            "covered": found.slice.covered,
        },
        "outputs": {
            proof.name: {
                "column": proof.column,
                "values": proof.values,
                "records": proof.rows,
                "differ": proof.differing.height,
                "first": _first(proof, limit),
            }
            for proof in found.proofs
        },
        "tables": {
            name: {
                "place": table.place,
                "differ": table.differing.height + table.others,
                "first": _first(table, limit),
                "fault": table.fault,
            }
            for name, table in found.tables.items()
        },
        "logs": {name: {"fingerprint": log.fingerprint, "fault": log.fault} for name, log in found.logs.items()},
        "arrangements": found.arrangements,
        "uncompared": found.uncompared,
        "not_compared": found.lagging,
        "unproven": found.unproven,
        "seconds": found.seconds,
    }


def _first(proof: OutputProof | TableProof, limit: int) -> list[dict[str, Any]]:
    return [{"diff": diff, "record": _plain(record)} for record, diff in proof.first(limit)]
