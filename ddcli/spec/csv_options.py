"""The key `csv` of an input: the dialect of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.expressions.csv_dialect import Dialect
from ddcli.expressions.moments import FormatError, has_time, parts_of
from ddcli.spec.shapes import (
    As,
    ByKind,
    JsonSchema,
    Key,
    Many,
    NodePlace,
    Notes,
    Nothing,
    Record,
    Refused,
    Shape,
    shape,
)
from ddcli.spec.tree import Mapping, Node, Scalar
from ddcli.spec.values import Choice, Whole, flag

if TYPE_CHECKING:
    from ddcli.errors import Span

ENCODINGS = (
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "iso-8859-2", "iso-8859-15", "windows-1250",
    "windows-1251", "windows-1252", "windows-1253", "windows-1254", "windows-1255", "windows-1256", "windows-1257",
    "windows-1258", "koi8-r", "cp437", "cp850", "mac-roman", "shift_jis", "cp932", "euc-jp", "euc-kr", "cp949", "gbk",
    "gb18030", "big5", "cp950",
)  # fmt: skip
MEANT = {"shift_jis": "cp932"}
"""The encodings that files of a name have: on Windows Shift JIS has had more characters from the beginning."""
THOUSANDS = (".", ",", "'", "\u2019", " ", "\u00a0", "\u202f", "_")
LONGEST = 100
"""Characters of a text that a file has at a place."""
MOST_SKIPPED = 1_000_000


@dataclass(eq=False, repr=False, slots=True)
class FileText(Shape[str]):
    """A text of a file as it is written, of `least` to `most` characters, and without those in `none`."""

    wants: str
    most: int = LONGEST
    none: str = "\n\r\0"
    hint: str | None = None
    least: int = 1

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> str:
        if not isinstance(node, Scalar) or (node.kind == "null" and not node.text.value):
            raise notes.mismatch(node, place, self.wants, self.hint)
        text = node.text.value
        if len(text) < self.least:
            raise notes.refuse(place.path, f"must be {self.wants}, found an empty text", node.span, self.hint)
        if len(text) > self.most or any(each in self.none for each in text) or not (self.most > 1 or text.isascii()):
            raise notes.refuse(place.path, f"{text[:LONGEST]!r} can't be {self.wants}", node.span, self.hint)
        return text

    def _schema(self) -> JsonSchema:
        return {"type": ["string", "integer", "number", "boolean", "null"], "minLength": self.least}


@dataclass(eq=False, repr=False, slots=True)
class MomentFormat(Shape[str]):
    """A format of dates, or of timestamps, in directives of `strptime`."""

    timed: bool

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> str:
        wants = "a format of timestamps, `%d.%m.%Y %H:%M`" if self.timed else "a format of dates, `%d.%m.%Y`"
        if not isinstance(node, Scalar) or not node.text.value or node.kind == "null":
            raise notes.mismatch(node, place, wants)
        text = node.text.value
        try:
            parts_of(text)
        except FormatError as error:
            problem = f"{text!r} is no format: {error}"
            raise notes.refuse(place.path, problem, node.span, f"for example {wants}") from None
        if not self.timed and has_time(text):
            hint = "name it `timestamp_format`"
            raise notes.refuse(place.path, f"{text!r} is a format of timestamps", node.span, hint)
        return text

    def _schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


ONE = 'one character of ASCII that is no letter and no digit; a tab is "\\t", in double quotes'
_ALPHANUMERIC = "".join(map(chr, range(128)))
_ALPHANUMERIC = "".join(each for each in _ALPHANUMERIC if each.isalnum() or each in "\n\r\0")
_NULL_HINT = "an empty field is null without it, two quotes by `''`; quote what YAML takes for null: `'null'`"
_NULL = FileText("a text that is null", hint=_NULL_HINT, least=0)
KEYS = {
    "delimiter": Key(
        FileText("a delimiter", 1, _ALPHANUMERIC, ONE), about="between fields; default: a comma, in .tsv a tab"
    ),
    "quote": Key(
        ByKind(
            "a character",
            scalar=FileText("a quote", 1, _ALPHANUMERIC, ONE),
            nothing=Nothing(lambda _: None),
            hint="`quote: null` where no field is in quotes",
        ),
        about='around fields; null: no field is in quotes; default: "',
    ),
    "encoding": Key(As(Choice("encoding", ENCODINGS), lambda _, name: MEANT.get(name, name)), about="default: utf-8"),
    "null": Key(
        ByKind(
            "a text or a list of texts",
            scalar=As(_NULL, lambda _, text: (text,)),
            sequence=Many(_NULL, "a list of texts"),
            hint=_NULL_HINT,
        ),
        about="texts that are null, as an empty field is",
    ),
    "decimal": Key(Choice("decimal sign", (".", ",")), about="the decimal sign of floats and decimals; default: ."),
    "thousands": Key(
        Choice("mark", THOUSANDS),
        about="the mark between groups of three digits; if it is the point, the decimal sign is the comma",
    ),
    "date_format": Key(MomentFormat(timed=False), about="how dates are written: %d.%m.%Y"),
    "timestamp_format": Key(MomentFormat(timed=True), about="how timestamps are written: %d.%m.%Y %H:%M"),
    "header": Key(
        flag,
        about="false: the columns are as in `columns`, in order; default: true, but inferred columns ask where it looks otherwise",
    ),
    "comment": Key(FileText("the beginning of a comment"), about="lines that begin with it are skipped"),
    "skip": Key(Whole(0, MOST_SKIPPED), about="lines before the header to skip"),
}


def _built(_: NodePlace, arguments: dict[str, Any]) -> Dialect:
    if arguments.get("thousands") == ".":
        arguments = {"decimal": ",", **arguments}
    return Dialect(**arguments)


_OPTIONS = Record(_built, KEYS, "a mapping of options", '{delimiter: ";", decimal: ","}', least=1)


@shape(_OPTIONS.schema)
def csv_dialect(node: Node, place: NodePlace, notes: Notes) -> Dialect:
    """Return the options; none is in the way of another."""
    given = _OPTIONS.read(node, place, notes)
    assert isinstance(node, Mapping)
    delimiters = given.delimiter or ",\t"
    if given.quote and given.quote in delimiters:
        raise _clash(node, place, notes, "quote", "delimiter" if given.delimiter else "default delimiter")
    for name in ("delimiter", "quote"):
        other = getattr(given, name)
        if given.comment and other and given.comment.startswith(other):
            raise _clash(node, place, notes, "comment", name)
    if given.thousands == given.decimal:
        raise _clash(node, place, notes, "thousands", "decimal sign")
    return given


def _clash(node: Mapping, place: NodePlace, notes: Notes, name: str, other: str) -> Refused:
    span: Span = next(value.span for word, value in node.entries if word.value == name)
    return notes.refuse(f"{place.path}.{name}", f"it begins as the {other} does", span, "they must be different")
