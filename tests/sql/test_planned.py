"""Statements whose filters and joins were moved mean what they mean as they are written, and fail where they did."""

import random

from ddcli.errors import DdError, SpecErrors
from ddcli.plan.generations import Generation
from ddcli.plan.node import Graph
from ddcli.plan.optimizer import sharing
from tests.draws import chance, many
from tests.reference.expressions import Fails
from tests.reference.model import Model, total
from tests.sql.generate import TABLES, Statements
from tests.sql.judge import bound, states
from tests.sql.test_judge import STATEMENTS
from tests.sql.test_pipelines import joining, varied


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
    assert moved > len(texts) // 25


def test_statements_that_filter_one_table_otherwise_mean_what_is_written(monkeypatch):
    """Three with other numbers in them, whatever share of the rows is expected to pass."""
    rng = chance("statements over one table")
    monkeypatch.setattr(sharing, "OFTEN", 0.1)
    kept = 0
    for _ in range(many(240)):
        text = joining(rng) if rng.random() < 0.5 else Statements(random.Random(rng.random())).statement()
        found = {}
        for at, each in enumerate([text, joining(rng), varied(text, rng)]):
            try:
                found[f"o{at}"] = bound(each)
            except (DdError, SpecErrors):
                continue
        written = Graph(found)
        shares = [1.0, rng.choice([0.0, 0.5, 1.0]), 1.0]
        generation = Generation.of(written, share=lambda side, shares=shares: shares[int(side.identity, 16) % 3])
        planned = generation.moved(written).graph
        if not generation.wholes:
            continue
        kept += 1
        for rows in states(random.Random(rng.random()), changes=2):
            for name in found:
                wanted, failed = meaning(written.outputs[name], rows)
                got, _ = meaning(planned.outputs[name], rows)
                assert got == wanted or (got is None and failed), text
    assert kept > many(240) // 5
