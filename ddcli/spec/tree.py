"""YAML text as a document of nodes with their places, by the rules of YAML 1.2's core schema; the parser's errors are reworded.

PyYAML scans and parses; the meaning of a plain scalar is decided here, because PyYAML follows YAML 1.1, where `on` is true
and `012` is ten. Keys are always text, so a column may be called `on` or `2013`.

YAML's own punctuation can cut an SQL expression, a comma in a flow collection, ` #` in a plain scalar: such places are found for hints.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import Span, SpecError, Text
from ddcli.spec.file import OPEN, expand, is_variable

if TYPE_CHECKING:
    from collections import abc


QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
DANGLING = re.compile(r"(?:[-+*/|,(=<>]|\b(?:and|or|not|in|is|like|between|when|then|else|case))$", re.IGNORECASE)


def balance(expression: str) -> int:
    """Return the number of parentheses that an expression leaves open; negative if it closes more than it opens.

    >>> balance("coalesce(x"), balance("')' || upper(x)")
    (1, 0)
    """
    bare = QUOTED.sub("", expression)
    return bare.count("(") - bare.count(")")


def unfinished(expression: str) -> bool:
    """Return whether an expression must continue: it has an open quote or parenthesis, or an operator at its end."""
    bare = QUOTED.sub("''", expression)
    return (
        balance(expression) > 0
        or bare.count("'") % 2 == 1
        or bare.count('"') % 2 == 1
        or bool(DANGLING.search(bare.rstrip()))
    )


def cut_by_comma(parts: abc.Sequence[str]) -> tuple[int, int] | None:
    """Return the parts of a flow collection where one expression begins and ends, if a comma cut one.

    One part must open a parenthesis and a later one close it: whole expressions never look like that.

    >>> cut_by_comma(["region", "coalesce(region", "0)", "day", "d"])
    (1, 2)
    """
    depth, first = 0, 0
    for index, part in enumerate(parts):
        change = balance(part)
        if depth <= 0 < change:
            depth, first = 0, index
        depth += change
        if change < 0 and depth == 0 and index > first:
            return first, index
    return None


MAX_NODES = 100_000  # after aliases are followed: a file of a few lines can stand for billions
MAX_DEPTH = 100

CORE_SCHEMA = (
    ("null", re.compile(r"null|Null|NULL|~|")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("int", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    ("float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")),
)
SECRETS = "spark."
"""The prefix of the paths of values that may have secrets: these are never kept."""
IMPLIED_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
COMMENT = re.compile(r"\s*#")
NEWLINE = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(eq=False, slots=True)
class Scalar:
    """A scalar as it is written. `kind` is its type in the core schema: null, bool, int, float or str.

    `plain`: without quotes. `comment` is the place of a comment that ends its line: perhaps it was meant to belong.
    `free`: in quotes and one variable as a whole, which braces and brackets want in quotes: it may be a number as well.
    """

    text: Text
    kind: str
    plain: bool
    comment: Span | None = None
    free: bool = False

    def may_be(self, kind: str) -> bool:
        """Return whether it can be read as a value of a kind."""
        return self.kind == kind or (self.free and scalar_kind(self.text.value) == kind)

    @property
    def span(self) -> Span:
        """Return its place."""
        return self.text.span


@dataclass(eq=False, slots=True)
class Sequence:
    """A list. `flow`: written with brackets."""

    items: tuple[Node, ...]
    span: Span
    flow: bool


@dataclass(eq=False, slots=True)
class Mapping:
    """A mapping; keys are distinct. `flow`: written with braces."""

    entries: tuple[tuple[Text, Node], ...]
    span: Span
    flow: bool

    def get(self, key: str) -> Node | None:
        """Return the value of a key, or None."""
        return next((node for text, node in self.entries if text.value == key), None)


@dataclass(eq=False, slots=True)
class Broken:
    """A value whose error is already recorded: its readers report no more."""

    span: Span


Node = Scalar | Sequence | Mapping | Broken


class SourceText:
    """The lines of a file, and spans in it."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.lines = NEWLINE.split(text)
        self._shown: dict[int, str] = {}

    def line(self, index: int) -> str:
        """Return a line (from 0), "" beyond the end."""
        return self.lines[index] if index < len(self.lines) else ""

    def span(self, line: int, column: int, length: int = 1) -> Span:
        """Return the place of a 0-based line and column. A tab or control character is shown as one space."""
        if line not in self._shown:
            self._shown[line] = CONTROL.sub(" ", self.line(line))
        return Span(self.file, line + 1, column + 1, max(length, 1), self._shown[line])


def scalar_kind(text: str) -> str:
    """Return the type of a plain scalar in the core schema.

    >>> [scalar_kind(text) for text in ("on", "012", "1e3", "~", "true")]
    ['str', 'int', 'float', 'null', 'bool']
    """
    return next((kind for kind, pattern in CORE_SCHEMA if pattern.fullmatch(text)), "str")


@dataclass(eq=False, slots=True)
class SpecTree:
    """A document: its root, if there is one, the errors of its tree, the variables in it with their values, and its number of nodes."""

    root: Node | None
    errors: list[SpecError]
    variables: dict[str, str | None]
    size: int = 0


def build(root: Any, source: SourceText) -> SpecTree:
    """Return the located tree of a composed YAML document."""
    builder = _Builder(source)
    node, size = builder.sized(root, "")
    return SpecTree(node, builder.errors, builder.variables, size)


class _Builder:
    """The builder of located nodes from PyYAML's. A node reached by several aliases is built once and shared."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.errors: list[SpecError] = []
        self.variables: dict[str, str | None] = {}
        self.built: dict[int, tuple[Node, int]] = {}
        self.open: set[int] = set()

    def refuse(self, path: str, problem: str, span: Span, hint: str | None = None) -> Broken:
        self.errors.append(SpecError(f"{path}: {problem}" if path else problem, span=span, hint=hint))
        return Broken(span)

    def sized(self, raw: Any, path: str) -> tuple[Node, int]:
        """Return the node and the number of nodes in it, with aliases followed."""
        if id(raw) in self.built:
            return self.built[id(raw)]
        span = self.span_of(raw)
        if id(raw) in self.open:
            return self.refuse(
                path, "an anchor contains itself", span, "an alias is not allowed inside its own anchor"
            ), 1
        if raw.tag not in IMPLIED_TAGS:
            tag = raw.tag.replace("tag:yaml.org,2002:", "!!")
            return self.refuse(path, f"the tag {tag!r} means nothing here", span, "remove it, or quote the value"), 1
        self.open.add(id(raw))
        node: Node
        if raw.id == "scalar":
            node, size = self.expanded(self.scalar(raw), path), 1
        else:
            node, size = self.mapping(raw, path) if raw.id == "mapping" else self.sequence(raw, path)
        self.open.discard(id(raw))
        if size > MAX_NODES:
            node, size = self.refuse(path, "aliases become too many nodes", span, f"at most {MAX_NODES}"), 1
        self.built[id(raw)] = node, size
        return node, size

    def span_of(self, raw: Any) -> Span:
        """Return the place of a node: up to its end if that is on the same line."""
        start, end = raw.start_mark, raw.end_mark
        one_line = start.line == end.line and (raw.id == "scalar" or raw.flow_style)
        return self.source.span(start.line, start.column, end.column - start.column if one_line else 1)

    def scalar(self, raw: Any) -> Scalar:
        start, end = raw.start_mark, raw.end_mark
        if raw.style in ("|", ">"):
            span = self.block_span(start.line, end.line)
            value = raw.value.strip()
            lines = self.block_lines(span, value.count("\n")) if raw.style == "|" else ()
            return Scalar(Text(value, span, 0, lines), "str", plain=False)
        inset, column = 1 if raw.style else 0, start.column
        line = self.source.line(start.line)
        written = line[start.column : end.column] if start.line == end.line else line[start.column :].rstrip()
        if prefix := re.match(r"(?:[&!]\S*\s+)+", written):  # an anchor or a tag is no part of the text
            column, written = column + prefix.end(), written[prefix.end() :]
        if inset:
            # After an escape an offset in the value is no longer an offset in the file: end the span there.
            escape = re.search(r"\\" if raw.style == '"' else "''", written[1:-1])
            written = written[: escape.start() + 2] if escape else written
        text = Text(raw.value, self.source.span(start.line, column, len(written)), inset)
        rest = COMMENT.match(self.source.line(end.line), end.column)
        comment = self.source.span(end.line, rest.end() - 1) if rest else None
        kind = "str" if inset else scalar_kind(raw.value)
        return Scalar(text, kind, plain=not inset, comment=comment)

    def expanded(self, scalar: Scalar, path: str) -> Node:
        """Return a value with its variables replaced; the result decides the type of a value without quotes."""
        if OPEN not in scalar.text.value:
            return scalar
        try:
            text = expand(scalar.text, self.variables, secrets=path.startswith(SECRETS))
        except SpecError as error:
            return self.refuse(path, error.problem, error.span or scalar.span, error.hint)
        kind = scalar_kind(text.value) if scalar.plain else "str"
        free = not scalar.plain and is_variable(scalar.text.value)
        return Scalar(text, kind, scalar.plain, scalar.comment, free)

    def block_span(self, first: int, end: int) -> Span:
        """Return the place of the first line of text of a block scalar, so that offsets in that line are exact."""
        for index in range(first + 1, end + 1):
            if line := self.source.line(index).strip():
                return self.source.span(index, self.source.line(index).index(line), len(line))
        return self.source.span(first, 0)

    def block_lines(self, first: Span, more: int) -> tuple[Span, ...]:
        """Return the places of the lines after the first of a block whose lines stay as they are, without their indentation."""
        lines = range(first.line, first.line + more)
        return tuple(
            self.source.span(line, first.column - 1, len(self.source.line(line)) - first.column + 1) for line in lines
        )

    def sequence(self, raw: Any, path: str) -> tuple[Node, int]:
        sized = [self.sized(item, f"{path}[{index}]") for index, item in enumerate(raw.value)]
        items = tuple(node for node, _ in sized)
        span, flow = self.span_of(raw), bool(raw.flow_style)
        size = 1 + sum(size for _, size in sized)
        if flow and (cut := self.cut(items)):
            return self.refuse_cut(path, *cut), size
        return Sequence(items, span, flow), size

    def mapping(self, raw: Any, path: str) -> tuple[Node, int]:
        entries: dict[str, tuple[Text, Node]] = {}
        parts: list[Node] = []
        size = 1
        for raw_key, raw_value in raw.value:
            key = self.key(raw_key, path)
            name = key.text.value if isinstance(key, Scalar) else "?"
            value, inner = self.sized(raw_value, f"{path}.{name}" if path else name)
            parts += [key, value]
            size += inner
            if not isinstance(key, Scalar):
                continue
            if name in entries:
                self.refuse(
                    path, f"duplicate key {name!r}, first at {entries[name][0].span}", key.span, "keep one of the two"
                )
                continue
            entries[name] = key.text, value
        span, flow = self.span_of(raw), bool(raw.flow_style)
        if flow and (cut := self.cut(parts)):
            return self.refuse_cut(path, *cut), size
        return Mapping(tuple(entries.values()), span, flow), size

    def key(self, raw: Any, path: str) -> Node:
        span = self.span_of(raw)
        if raw.id != "scalar":
            what = "a list" if raw.id == "sequence" else "a mapping"
            return self.refuse(
                path, f"a key can't be {what}", span, "keys are plain words; quote one that has brackets or braces"
            )
        key = self.scalar(raw)
        if key.plain and key.text.value == "<<":
            hint = "write the keys out, or give the whole value an anchor"
            return self.refuse(path, "merge keys (`<<`) are not part of YAML 1.2", span, hint)
        if not key.text.value:
            return self.refuse(path, "a key is missing before the colon", span, "write `key: value`")
        return key

    def cut(self, parts: list[Node] | tuple[Node, ...]) -> tuple[Scalar, Scalar] | None:
        plain = [part for part in parts if isinstance(part, Scalar) and part.plain and part.text.value]
        found = cut_by_comma([part.text.value for part in plain])
        return (plain[found[0]], plain[found[1]]) if found else None

    def refuse_cut(self, path: str, first: Scalar, last: Scalar) -> Broken:
        span, end = first.span, last.span
        hint = "quote the expression"
        if span.line == end.line:
            whole = span.source[span.column - 1 : end.column - 1 + end.length]
            span = Span(span.file, span.line, span.column, len(whole), span.source)
            hint += f': "{whole}"' if '"' not in whole else ""
        return self.refuse(path, f"a comma cuts the expression after {first.text.value!r}", span, hint)


QUOTE = 'quote the value: "..." (a plain one can\'t hold `: `, ` #`, or begin with a special character)'


def parse_tree(text: str, file: str) -> SpecTree:
    """Return the located tree of a YAML text (without a root if it is empty or no YAML) and all that is wrong with it."""
    import yaml

    text = text.removeprefix("\ufeff")
    source = SourceText(text, file)
    try:
        deep = too_deep(text, _loader())
        root = None if deep else compose(text)
    except yaml.MarkedYAMLError as error:
        return SpecTree(None, [_in_our_words(error, source)], {})
    except (yaml.reader.ReaderError, UnicodeEncodeError):
        return SpecTree(None, [_bad_character(text, source)], {})
    if deep:
        span = source.span(deep.line, deep.column)
        return SpecTree(None, [SpecError("nested too deeply", span=span, hint=f"at most {MAX_DEPTH} levels")], {})
    return build(root, source) if root else SpecTree(None, [], {})


def compose(text: str) -> Any:
    """Return PyYAML's root node of a text without a byte order mark, None for an empty one. Call it after `too_deep`."""
    import yaml

    return yaml.compose(text, Loader=_loader())


def _loader() -> Any:
    """Return libyaml's loader where PyYAML has it: 20 times as fast, and right about `string?` in braces, which YAML 1.1 forbids."""
    import yaml

    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def too_deep(text: str, loader: Any) -> Any | None:
    """Return the place where a document nests too deeply, else None. The composer recurses in C, where such nesting ends the process, so call this first.

    Raises the error of YAML's parser for a text that is no YAML.
    """
    import yaml

    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += event.__class__.__name__.endswith("StartEvent") - event.__class__.__name__.endswith("EndEvent")
            if depth > MAX_DEPTH:
                return event.start_mark
    except yaml.MarkedYAMLError as error:
        # libyaml 0.2.6 looks ahead, and stops at 1000 brackets before it returns the first.
        if "nesting depth" in (error.problem or ""):
            return error.problem_mark
        raise
    return None


def _bad_character(text: str, source: SourceText) -> SpecError:
    """Return the complaint about the first character that YAML does not allow."""
    match = re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    if match is None:
        return SpecError("not a text that YAML can hold", place=source.file)
    before = SourceText(text[: match.start()], source.file).lines
    hint = "remove it, or escape it in double quotes"
    span = source.span(len(before) - 1, len(before[-1]))
    return SpecError(f"the character {match[0]!r} is not allowed in YAML", span=span, hint=hint)


def _in_our_words(error: Any, source: SourceText) -> SpecError:
    """Return the parser's error with a hint. The two parsers of PyYAML word theirs differently; this uses only their common parts."""
    mark = error.problem_mark or error.context_mark
    begin = error.context_mark or mark
    line = source.line(mark.line)
    character = line[mark.column : mark.column + 1]
    before = line[: mark.column].rstrip()
    context, problem = error.context or "", error.problem or ""
    span = source.span(mark.line, mark.column)
    if character == "\t" or ("\t" in line[: len(line) - len(line.lstrip())]):
        column = line.index("\t")
        return SpecError("a tab in the indentation", span=source.span(mark.line, column), hint="indent with spaces")
    if "start any token" in problem:
        return SpecError(f"a value can't begin with {character!r}", span=span, hint=QUOTE)
    if "mapping values are not allowed" in problem:
        if glued := re.match(r"\s*(?:- )?(\w+:)\S", source.line(mark.line - 1) if mark.line else ""):
            span = source.span(mark.line - 1, glued.start(1), len(glued[1]))
            return SpecError("a colon without a space after it", span=span, hint="write `key: value`")
        hint = "quote the value if the colon belongs to it; if not, check the indentation"
        return SpecError("a colon in a place where no key can be", span=span, hint=hint)
    if "end of stream" in problem and "quoted" in context:
        return SpecError(
            "a quote is not closed", span=source.span(begin.line, begin.column), hint="close it on the same line"
        )
    if "flow" in context:
        kind, close = ("braces", "}") if "mapping" in context else ("brackets", "]")
        if mark.line >= len(source.lines) or mark.line != begin.line:
            return SpecError(
                f"a {close!r} is missing", span=source.span(begin.line, begin.column), hint=f"close it with {close!r}"
            )
        if line[mark.column - 1 : mark.column + 1] == OPEN:
            value = re.match(r"[^\s,\]]*?\}[^\s,\]}]*", line[mark.column :])
            hint = "quote it" + (f': "${value[0]}"' if value else "")
            return SpecError(f"a variable without quotes is inside {kind}", span=span, hint=hint)
        what = f"{character!r} is unexpected inside {kind}"
        return SpecError(
            what, span=span, hint="quote the expression: brackets, braces, quotes and commas cut a plain one"
        )
    if "single document" in context:
        return SpecError(
            "a second document begins here", span=span, hint="a pipeline file is one document: remove the `---`"
        )
    if "alias" in problem or "alias" in context:
        return SpecError("`*` begins an alias, and there is no such anchor above", span=span, hint=QUOTE)
    if before.endswith(("'", '"')) and character:
        hint = "an expression that begins with a quote is quoted whole: \"'paid' = status\""
        return SpecError("text after a quoted value", span=span, hint=hint)
    if "block" in context:
        return SpecError("the line does not fit those above it", span=span, hint="check the indentation and the colons")
    return SpecError(f"{context}: {problem}" if context else problem, span=span, hint=QUOTE)
