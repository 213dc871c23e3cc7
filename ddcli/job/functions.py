"""The Python functions that a pipeline file names: all are forbidden, or loaded, before anything is computed."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ddcli.errors import SpecError, SpecErrors
from ddcli.spec.model import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.errors import Text
    from ddcli.spec.model import SparkSpec, Spec
    from ddcli.spec.operator_model import PythonFunction

NO_CODE = "DDCLI_NO_CODE"
IN_PROCESS = re.compile(r"local(\[[0-9*]+(, *[0-9]+)?\])?")
"""The masters that run in this process: `local`, `local[4]`, `local[*, 2]`."""
MODEL = "ddcli.spec.operator_model"
"""The module of the class of functions: until it is imported, there is no function."""


def functions_of(spec: Spec) -> Iterator[PythonFunction]:
    """Yield the functions that a file names."""
    model = sys.modules.get(MODEL)
    pending: list[Any] = [*spec.collections.values()] if model else []
    while pending:
        each = pending.pop()
        if isinstance(each, model.PythonFunction):  # type: ignore[union-attr]
            yield each
        elif is_dataclass(each):
            pending += [getattr(each, field.name) for field in fields(each)]
        elif isinstance(each, tuple | dict):
            pending += each.values() if isinstance(each, dict) else each


def refuse_code(spec: Spec, *, no_code: bool = False) -> None:
    """Raise SpecErrors at each function that a file names, at its queries in Spark and its settings of Spark, if none of its code may run.

    `no_code`, or DDCLI_NO_CODE, forbids it. The command line's settings of Spark are allowed: they aren't the file's.
    """
    if not no_code and os.environ.get(NO_CODE, "") in ("", "0"):
        return
    word = "--no-code" if no_code else f"{NO_CODE}={os.environ[NO_CODE]}"
    errors = []
    for function in functions_of(spec):
        name = function.name.value
        problem = f"the Python function `{name}` would run, which {word} forbids"
        hint = f"read module `{name.partition(':')[0]}`, and leave {word} out if you trust it; `check`, `plan` and `explain` run no code"
        errors.append(SpecError(problem, span=function.name.span, hint=hint))
    for given in spec.inputs.values():
        # Functions of Spark's SQL call any method of Java, and read any file.
        if given.table == SPARK and given.query is not None:
            problem = f"inputs.{given.name.value}.spark: a query in Spark may call code of Java, which {word} forbids"
            errors.append(
                SpecError(problem, span=given.query.span, hint="name a `table`, perhaps a view of this query")
            )
    for text in _brings_code(spec.spark):
        problem = f"`spark`: '{text.value}' may bring code to run, which {word} forbids"
        errors.append(SpecError(problem, span=text.span, hint="name Spark's address with --master and --conf"))
    if errors:
        raise SpecErrors(errors)


def _brings_code(spark: SparkSpec | None) -> list[Text]:
    """Return the values of a file's `spark` that may bring code: all but a master in this process.

    Settings name jars, programs, agents and servers that get credentials, and new ones with each version of Spark, so none is allowed by its name. A Spark
    elsewhere sends data that is unpickled here.
    """
    if spark is None:
        return []
    addresses = [one for one in (spark.master, spark.remote) if one is not None and not IN_PROCESS.fullmatch(one.value)]
    return [*addresses, *(name for name, _ in spark.conf)]


def load_functions(spec: Spec) -> None:
    """Import the modules of all functions that a file names. They lie beside the file, wherever its data are. Raises SpecErrors with each that can't be imported, at its place."""
    errors, folder = [], spec.path.absolute().parent
    for function in functions_of(spec):
        from ddcli.expressions.python import Named, define, load_function

        name = function.name
        try:
            load_function(Named(name.value, str(folder), define(name.value, str(folder)).text, span=name.span))
        except SpecError as error:
            errors.append(SpecError(error.problem, span=name.span, hint=error.hint))
    if errors:
        raise SpecErrors(errors)
