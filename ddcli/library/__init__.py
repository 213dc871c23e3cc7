"""The interactive surface: a dataflow in a Python program, on the same plan and engine as a pipeline file.

    df = Dataflow()
    manages = df.input("manages", {"manager": "int64", "employee": "int64"})
    skip = manages.join(manages, on={"manager": "employee"}, name="up").map(employee="employee", skip="up.manager").output()
    manages.insert((1, 2)); manages.insert((0, 1)); manages.advance_to(1); manages.flush()
    df.step()
    skip.updates()      # [((2, 0), 0, 1)]

Expressions are those of pipeline files. Nothing is emitted for a time until the frontier of every input has passed it.
"""

from ddcli.library.arranged import Arranged
from ddcli.library.collection import Collection
from ddcli.library.dataflow import Dataflow
from ddcli.library.functions import followed_by
from ddcli.library.loops import Loop, Variable
from ddcli.library.outputs import Output, Probe
from ddcli.library.sessions import Input, Upserts
from ddcli.library.traces import TraceHandle

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
