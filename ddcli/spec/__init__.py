"""Pipeline files: from YAML text to a checked model, with every error at its place.

Readers are imported when they are first called: only `load_spec` and `parse_spec` need a YAML parser.

* bounds: the figures of a budget
* budget: the most that a run and its operators may take
* check_model: the checks of a file, as plain values
* checks: checks, and the collections of violations that they become
* clock: the clock of a pipeline, which decides the time of rows
* column_shapes: names, columns, expressions and orders
* csv_options: the key `csv` of an input
* document: the whole file
* excerpts: the texts of collections
* file: the text of a pipeline file
* include: inputs and collections of other files
* inputs: inputs and their formats
* loops: collections and loops
* model: the content of a file as plain values
* names: names across a file
* operator_model: the operators of a file, as plain values
* operators: the operators: one table of shapes
* outputs: outputs, and the tables that follow them
* reader: places, errors, and reading that continues after an error
* shapes: lists, mappings, alternatives
* syntax: text to a YAML document
* tables: inputs that are tables of other programs
* test_model: the tests of a file as plain values
* tests: the tests of a pipeline
* traps: the places where YAML's punctuation cuts an expression
* tree: YAML nodes with places
* values: texts, expressions, numbers, types, references
* variables: variables in values
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.errors import SpecError
    from ddcli.spec.model import Spec


def load_spec(path: Path) -> Spec:
    """Return the model of a pipeline file, or raise `SpecErrors` with everything that is wrong in it.

    Raises `UsageError` for a file that can't be read or is not UTF-8.
    """
    from ddcli.spec import document

    return document.load_spec(path)


def read_spec(path: Path) -> tuple[Spec | None, list[SpecError]]:
    """Return the valid part of a pipeline file and all its errors. The valid part is complete enough to check names.

    Raises `UsageError` as `load_spec` does.
    """
    from ddcli.spec import document

    return document.read_spec(path)


def included_files(path: Path) -> list[Path]:
    """Return the files that a pipeline file includes, directly or not, also those that can't be read; none of a file that can't be read itself."""
    from ddcli.spec import document

    return document.included_files(path)


def parse_spec(text: str, file: str) -> Spec:
    """Return the model of a pipeline file's text, or raise `SpecErrors`. `file` is the name that errors show."""
    from ddcli.spec import document

    return document.parse_spec(text, file)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of pipeline files, for editors.

    It knows shapes and keys; names, types of columns and expressions are checked by `load_spec` and the planner.
    """
    from ddcli.spec import document

    return document.json_schema()
