"""Text to a YAML document, with the parser's errors reworded and with places in the file."""

from __future__ import annotations

import re
from typing import Any

from ddcli.errors import SpecError
from ddcli.spec.tree import MAX_DEPTH, SourceText, SpecTree, build
from ddcli.spec.variables import OPEN

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
