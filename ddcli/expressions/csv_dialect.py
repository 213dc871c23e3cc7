"""The dialect of CSV files: their delimiter and encoding, their nulls, dates and numbers.

The default is UTF-8 with commas, double quotes and a header; `.tsv` has tabs.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen

if TYPE_CHECKING:
    from collections.abc import Container

    from ddcli.expressions.types import Type

WRITTEN = {
    "date": "a date is written 2013-01-31, or in CSV as `csv: {date_format: '%d.%m.%Y'}` states; ",
    "datetime": "a timestamp is written 2013-01-31 06:30:00, or in CSV as `csv: {timestamp_format: ...}` states; ",
    "time": "a time is written 06:30:00; ",
    "bool": "it is written true or false; ",
}
"""The forms of values as text, by kind."""


GROUPED = re.compile(r"[+-]?\d{1,3}([.,'\u2019\u00a0\u202f ])\d{3}(\1\d{3})*([.,]\d*)?", re.ASCII)
"""Numbers with marks between thousands."""
UNNAMED = "\0unnamed column "
"""The begin of our names of a CSV file's columns without a name, after the first of them; then comes the number of the column."""


@frozen
class Dialect:
    """A dialect of CSV, each field an option of a pipeline file, but for `names`. `delimiter` None: a comma, in `.tsv` a tab; `quote` None: no field is in quotes.

    `null` are texts that mean null, besides an empty field. Lines that begin with `comment` are skipped where a record would
    begin, and so are the first `skip` lines of a file. Without a `header` a file's columns are `names`, without those in its path;
    None: there is one, unless an input whose columns are inferred looks otherwise. `thousands` may be between three digits each.
    """

    delimiter: str | None = None
    quote: str | None = '"'
    encoding: str = "utf-8"
    null: tuple[str, ...] = ()
    decimal: str = "."
    thousands: str | None = None
    date_format: str | None = None
    timestamp_format: str | None = None
    header: bool | None = None
    comment: str | None = None
    skip: int = 0
    names: tuple[str, ...] = ()

    @property
    def separator(self) -> str:
        """Return the letter between the fields of a record."""
        return self.delimiter or ","

    @property
    def has_header(self) -> bool:
        """Return whether the first record has the names of the columns."""
        return self.header is not False

    @property
    def is_plain(self) -> bool:
        """Return whether a file is records of UTF-8 from its header on, as polars reads them."""
        return self.has_header and self.encoding == "utf-8" and self.comment is None and not self.skip

    def stated(self) -> list[tuple[str, object]]:
        """Return the options that change the meaning of files, as they differ from their defaults."""
        options = [(option.name, option.default, getattr(self, option.name)) for option in fields(self)]
        return [(name, value) for name, default, value in options if value != default and value is not True]

    def of(self, name: str, partition: Container[str]) -> Dialect:
        """Return the dialect of a file, by its name without the ending of a compression; `partition` has the columns in its path."""
        tabs = self.delimiter is None and name.endswith(".tsv")
        names = () if self.has_header else tuple(column for column in self.names if column not in partition)
        return replace(self, delimiter="\t", names=names) if tabs else replace(self, names=names)

    def form_of(self, kind: Type) -> str | None:
        """Return the stated format of the values of a type."""
        return {"date": self.date_format, "datetime": self.timestamp_format}.get(kind.kind)

    def hint(self, kind: Type, value: str) -> str:
        """Return the beginning of a hint for a text that is no value of a type: the form in which text must have it, of types that people write in several forms."""
        if kind.is_numeric and self.thousands is None and (mark := GROUPED.fullmatch(value)):
            return f"numbers with marks between thousands need `csv: {{thousands: {json.dumps(mark[1], ensure_ascii=False)}}}`; "
        form = self.form_of(kind)
        if form:
            return f"a {kind.kind} is written as `csv` states, {form}; "
        if (kind.is_float or kind.kind == "decimal") and self.decimal != ".":
            thousands = f"`{self.thousands}`" if self.thousands else "nothing"
            return f"a number is written with `{self.decimal}` as `csv` states, and {thousands} between its thousands; "
        return WRITTEN.get(kind.kind, "")


DEFAULT = Dialect()


def is_named(name: str) -> bool:
    """Return whether the header of a CSV file names a column: each other one has a name of ours, the first an empty one."""
    return bool(name) and not name.startswith(UNNAMED)
