"""Pipeline files read with the table of operators: to a checked model, with every error at its place.

The readers are imported when they are first called: they need a YAML parser.
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
    from ddcli.spec.file import read_text
    from ddcli.spec.variables import check_used

    spec = parse_spec(read_text(path), str(path))
    check_used()
    return spec


def parse_spec(text: str, file: str) -> Spec:
    """Return the model of a pipeline file's text, or raise `SpecErrors` with everything that is wrong in it. `file` is the name that errors show."""
    from ddcli.errors import SpecErrors

    spec, errors = parse_partly(text, file)
    if errors or spec is None:
        raise SpecErrors(errors)
    return spec


def read_spec(path: Path) -> tuple[Spec | None, list[SpecError]]:
    """Return the valid part of a pipeline file and all its errors. The valid part is complete enough to check names.

    Raises `UsageError` as `load_spec` does.
    """
    from ddcli.spec.file import read_text

    return parse_partly(read_text(path), str(path))


def parse_partly(text: str, file: str) -> tuple[Spec | None, list[SpecError]]:
    """Return the valid part of a pipeline file's text and all its errors.

    Inputs, collections and outputs with errors are left out, so others may refer to names that are missing from the result. Without
    a pipeline name, inputs and outputs there is no valid part: None.
    """
    from ddcli.plan.operators.table import OPERATORS
    from ddcli.spec import document

    return document.parse_partly(text, file, OPERATORS)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of pipeline files, for editors.

    It knows shapes and keys; names, types of columns and expressions are checked by `load_spec` and the planner.
    """
    from ddcli.plan.operators.table import OPERATORS
    from ddcli.spec import document

    return document.json_schema(OPERATORS)
