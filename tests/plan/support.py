"""Short ways from the text of a pipeline to its plan."""

import re

from ddcli.errors import DdError, SpecErrors
from ddcli.expressions.types import parse_type
from ddcli.plan.build import build
from ddcli.plan.lower import lower
from ddcli.plan.pipeline_file import parse_spec

SCHEMAS = {
    "t": {"k": "int64", "v": "int64", "s": "string", "n": "int64?", "f": "float64", "d": "decimal(10, 2)"},
    "u": {"k": "int64", "w": "int64", "s": "string"},
    "m": {"manager": "int64", "employee": "int64"},
    "w": {"i": "int32", "n": "int64?", "u": "uint64", "d": "date", "m": "datetime[ms]", "t": "datetime[us]?", "z": "datetime[ns, UTC]", "s": "string"},
}  # fmt: skip
HEAD = "dd: 1\nname: p\ninputs: {t: t/, u: u/, m: m/, w: w/}\ncollections:\n"


def chain(*operators, source="t", name="c"):
    """Return a collection of operators as it is written; in a file of one, the first is on line 8."""
    return f"  {name}:\n    from: {source}\n    apply:\n" + "".join(f"      - {operator}\n" for operator in operators)


def logical(collections, outputs="{c: out/}", time=("int64",)):
    """Return the logical graph of a file with these collections, or raise what is wrong with it."""
    named = f"{{path: \\1/, time: [{', '.join(f't{at}' for at in range(len(time)))}]}}"
    head = HEAD if len(time) == 1 else re.sub(r"(\w)/", named, HEAD)
    spec = parse_spec(f"{head}{collections}outputs: {outputs}\n", "p.yaml")
    schemas = {name: {c: parse_type(kind) for c, kind in columns.items()} for name, columns in SCHEMAS.items()}
    return build(spec, schemas, [parse_type(kind) for kind in time])


def plan(collections, outputs="{c: out/}"):
    """Return the physical graph of a file with these collections."""
    return lower(logical(collections, outputs))


def planned(*operators, source="t"):
    """Return the physical graph of one chain."""
    return plan(chain(*operators, source=source))


def schema(*operators, source="t"):
    """Return the columns of a chain's result as texts."""
    (node,) = logical(chain(*operators, source=source)).outputs.values()
    return {name: str(kind) for name, kind in node.schema.items()}


def nodes(graph, kind):
    """Return the nodes of a kind: a class of nodes by name."""
    return [node for node in graph.nodes if kind in {each.__name__ for each in type(node).__mro__}]


def kinds(graph):
    """Return the names of all nodes' kinds, inputs before readers."""
    return [type(node).__name__ for node in graph.nodes]


def problems(collections, outputs="{c: out/}", time=("int64",)):
    """Return what is wrong with a file: (line:column problem, hint) each."""
    try:
        logical(collections, outputs, time)
    except (SpecErrors, DdError) as error:
        found = error.errors if isinstance(error, SpecErrors) else [error]
        return [(f"{e.span.line}:{e.span.column} {e.problem}", e.hint) for e in found]
    raise AssertionError("nothing is wrong")
