"""Statements whose filters and joins were moved mean what they mean as they are written, and fail where they did."""

import random

from ddcli.errors import DdError, SpecErrors
from ddcli.plan.generations import Generation
from ddcli.plan.logical import Graph
from tests.draws import chance, many
from tests.reference.expressions import Fails
from tests.reference.model import Model, total
from tests.sql.generate import TABLES, Statements
from tests.sql.judge import bound, states
from tests.sql.test_judge import STATEMENTS


def meaning(node, rows):
    """Return the result of a statement's node over these tables, None where it fails on a row, and whether a value failed that nobody needs."""
    model = Model({name: total(table.items()) for name, table in rows.items()}, (0,), frozenset(TABLES))
    try:
        return model.output(node), model.failed
    except Fails:
        return None, True


def test_planned_statements_mean_what_is_written():
    """Those above, and random ones, joins in any order, over tables after each of several changes."""
    rng = chance("planned statements")
    moved = 0
    texts = [*STATEMENTS, *(Statements(random.Random(rng.random())).statement() for _ in range(many(120)))]
    for text in texts:
        try:
            written = Graph({"out": bound(text)})
        except (DdError, SpecErrors):
            continue
        generation = Generation.of(written, choices=lambda *_: True)
        planned = generation.moved(written).graph
        if planned.fingerprint == written.fingerprint:
            continue
        moved += 1
        for rows in states(random.Random(rng.random()), changes=3):
            wanted, failed = meaning(written.outputs["out"], rows)
            found, _ = meaning(planned.outputs["out"], rows)
            # A run computes a value whether it is needed or not: as written it fails, too.
            assert found == wanted or (found is None and failed), text
    assert moved > len(texts) // 20
