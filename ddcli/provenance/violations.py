"""The rows of files that the violations of failed checks come from, for the report of a run that commits nothing.

A few violations of each check are traced as `dd why` traces records, by the inputs as the run saw them, and only where these are small: a
report must not take longer than the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.errors import CheckErrors, DdError
from ddcli.job.request import read_request
from ddcli.provenance.inputs import Inputs
from ddcli.provenance.question import Question
from ddcli.sources.arrangement_input import SharedReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ddcli.engine.times import Time
    from ddcli.errors import CheckError
    from ddcli.provenance.inputs import Where

LARGEST = 32 << 20
"""Bytes of all files of the inputs, at most."""
TRACED = 6
"""The violations that are traced, of all checks together."""
SHOWN = 3
"""The rows that are named of one violation."""


def name_rows(error: CheckError | CheckErrors, path: Path, state: Path | None) -> None:
    """Add the files and lines that its first violations come from to the error of failed checks; leave it as it is where they can't be found."""
    try:
        request = read_request(path, state)
        if request.spec.tables:  # the updates of a run that failed are in no mirror
            return
        inputs = Inputs.of(request)
        if sum(reader.listing.size for reader in inputs.readers.values()) > LARGEST or (at := inputs.latest()) is None:
            return
        errors = error.errors if isinstance(error, CheckErrors) else (error,)
        for each in errors:
            of = request.spec.checks[each.check].of
            only = of.value if of is not None and of.value in request.spec.inputs else None
            traced = each.records[: TRACED // len(errors) or 1]
            each.locate([_places(inputs, each.check, record, at, only) for record in traced], SHOWN)
    except DdError:  # the report of the checks is the one that counts
        return


def _places(inputs: Inputs, check: str, record: Mapping[str, Any], at: Time, only: str | None) -> list[str]:
    """Return the places of the rows, of all inputs or of one, without which there would be no such violation; none where it can't be traced."""
    question = Question(inputs, inputs.relations[check].node, dict(record), at, SHOWN + 1)
    found = question.records()
    if not len(found):
        return []
    chosen = found.rows(np.arange(1))
    ((traced, count),) = zip(chosen.records(), chosen.counts(), strict=True)
    places = question.places(question.explained(traced, count).reason)
    named = [
        _text(place)
        for (name, _), several in places.items()
        for place in several
        if only in (None, name) and not isinstance(inputs.readers[name], SharedReader)
    ]
    return list(dict.fromkeys(named))


def _text(place: Where) -> str:
    return place.file if place.row is None else f"{place.file}, row {place.row}"
