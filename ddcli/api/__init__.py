"""The Python library: a dataflow in a program, on the same plan and engine as a pipeline file.

    df = Dataflow()
    manages = df.input("manages", {"manager": "int64", "employee": "int64"})
    skip = manages.join(manages, on={"manager": "employee"}, name="up").map(employee="employee", skip="up.manager").output()
    manages.insert((1, 2)); manages.insert((0, 1)); manages.advance_to(1); manages.flush()
    df.step()
    skip.updates()      # [((2, 0), 0, 1)]

Expressions are written as in pipeline files. No update of a time is emitted until the frontier of every input has passed it.

* collection: multisets of records that change with time, and their operators
* dataflow: inputs, collections, outputs, and the steps that close times; SQL queries over collections
* functions: arguments of methods, and Python functions as operators
* loops: loop variables, and the loops that close over them
* passes: a step over a dataflow's shards: side by side, or in one pass over all; the traces of all shards of an arrangement as one
* sessions: the inputs of a program's updates, and times as a program writes them
* traces: the updates of a collection, and handles on arrangements: to read them as of a time, or import them elsewhere
"""

from ddcli.api.collection import Arranged, Collection
from ddcli.api.dataflow import Dataflow
from ddcli.api.functions import followed_by
from ddcli.api.loops import Loop, Variable
from ddcli.api.sessions import Input, Upserts
from ddcli.api.traces import Output, Probe, TraceHandle

__all__ = [
    "Arranged",
    "Collection",
    "Dataflow",
    "Input",
    "Loop",
    "Output",
    "Probe",
    "TraceHandle",
    "Upserts",
    "Variable",
    "followed_by",
]
