"""What the plan says of state, against what the engine asks for."""

from hypothesis import given
from hypothesis import strategies as st

from ddcli.circuit.graph import assemble
from ddcli.engine.pool import Pool
from ddcli.engine.scope import Scope
from ddcli.engine.times import LEAST, Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.plan.changes import WAITING
from ddcli.plan.generations import plan
from tests.judge.harness import graph_of
from tests.judge.logs import cases
from tests.judge.test_random import SEARCH
from tests.secret import SECRET


class Asked:
    """Gives empty traces, and remembers whose."""

    def __init__(self):
        self.identities = set()

    def trace(self, identity, key, value, nt, shard=0, by=None):
        self.identities.add(identity)
        return Trace(key.width, value.width, nt, since=Frontier([(LEAST,) * nt]))


@SEARCH
@given(st.tuples(st.integers(1, 3), st.booleans()).flatmap(lambda kind: cases(nt=kind[0], looping=kind[1])))
def test_the_plan_knows_which_nodes_keep_state(case):
    """A node that it forgot would lose its state with the next change of the file."""
    graph, nt = plan(graph_of(case)).graph, len(case.times)
    asked = Asked()
    assemble(graph, Scope(nt), asked, Pool(SECRET), lambda label, updates: None, case.time_types)
    told = {node.fingerprint for node in graph.nodes if node.keeps_state(nt)}
    assert told == {identity.removesuffix(WAITING) for identity in asked.identities}
