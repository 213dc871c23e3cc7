"""A query of another program as dd's SQL: the same text but for single words, so a place in one has a place in the other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

from ddcli.dataclass import frozen
from ddcli.errors import Span, SpecError
from ddcli.expressions.statement import is_own
from ddcli.expressions.tree import delimited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNWRITABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]")
"""The characters that can't stand unescaped in a block of a YAML file."""
Edit = tuple[int, int, str]
"""The start and end of a replaced part, and its replacement."""


@frozen
class Translation:
    """The text of a query in the pipeline, its compiled text, and the edits between them."""

    text: str
    file: str
    compiled: str
    edits: tuple[Edit, ...]

    def place(self, offset: int, length: int = 1) -> Span:
        """Return the place in the compiled file of a character of the text."""
        moved = 0
        for start, end, new in self.edits:
            if offset < start + moved:
                break
            if offset < start + moved + len(new):
                return span(self.file, self.compiled, start, max(1, end - start))
            moved += len(new) - (end - start)
        return span(self.file, self.compiled, offset - moved, length)


def span(file: str, text: str, offset: int, length: int = 1) -> Span:
    """Return a place in a text."""
    offset = min(offset, len(text))
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[start : len(text) if end < 0 else end]
    return Span(file, text.count("\n", 0, offset) + 1, offset - start + 1, length, line)


def unreadable(error: Exception, line: int = 1) -> tuple[int, int, str]:
    """Return the line and the column of a parser's error, counted from 1, and the problem; `line` is for an error without a place."""
    first = (getattr(error, "errors", None) or [{}])[0]
    why = str(first.get("description") or "")
    problem = "this can't be read as SQL" + (f": {why}" if why and "class" not in why else "")
    return first.get("line") or line, first.get("col") or 1, problem


def table_edits(tree: exp.Expr, code: str, file: str, names: Mapping[tuple[str, ...], str]) -> list[Edit]:
    """Return edits that replace tables by their names in the pipeline, with the old names as aliases."""
    edits: list[Edit] = []
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            continue
        parts = [part for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part]
        key = tuple(part.name.lower() for part in parts)
        start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
        if len(parts) == 1 and is_own(node, node.name):
            continue
        if key not in names:
            problem = f"`{code[start:end]}` is not a model, seed, snapshot or source of the project"
            hint = "name it by `ref` or `source`, and compile the project again"
            raise SpecError(problem, span=span(file, code, start, end - start), hint=hint)
        name = names[key]
        if is_own(node, name):
            problem = f"a `with` has a table `{name}`, the name of this one in the pipeline"
            raise SpecError(problem, span=span(file, code, start, end - start), hint="rename the table of the `with`")
        called = re.split(r"[/\\]", key[-1])[-1].split(".")[0] if len(parts) == 1 else node.name
        alias = "" if node.alias or called.lower() == name.lower() else f" as {quoted(called)}"
        edits.append((start, end, quoted(name) + alias))
    return edits


def margins(code: str) -> list[Edit]:
    """Return edits that remove blank space before and after the query: a block of YAML can't begin or end with it."""
    start, end = len(code) - len(code.lstrip()), len(code.rstrip())
    return [each for each in ((0, start, ""), (end, len(code), "")) if each[0] < each[1]]


def edited(code: str, edits: Sequence[Edit]) -> str:
    """Apply edits, which are in order and don't overlap, to a text."""
    parts, last = [], 0
    for start, end, new in edits:
        parts += [code[last:start], new]
        last = end
    return "".join([*parts, code[last:]])


def quoted(name: str) -> str:
    """Return a name in SQL, quoted if needed."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name, re.IGNORECASE | re.ASCII):
        tokens = DuckDB().tokenize(name)
        if len(tokens) == 1 and tokens[0].token_type == TokenType.VAR:
            return name
    return delimited(name)
