"""The view of an operator plan: operators, loops as boxes around them, and the counts of the last runs.

A view is a pure function of a plan, a manifest and records of runs; `explain` reads those. All drawings show a `View`, or
one folded to its collections, with the operators of each as one box.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import OUTPUT, RowCounts
from ddcli.plan import loops, physical
from ddcli.plan.estimates import PastRun, estimated_rows
from ddcli.plan.physical import EXPORT, HISTORY, WAITING
from ddcli.plan.words import columns
from ddcli.screen import plural
from ddcli.store.state.entries import Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.job.summary import RunRecord
    from ddcli.plan.generations import Plan
    from ddcli.plan.node import Node
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.store.state.manifest import Manifest


@frozen
class HeldState:
    """The size of the state of an operator."""

    rows: int
    bytes: int
    files: int


@frozen
class OperatorView:
    """An operator, an input or an output. `id` stays the same from run to run, as long as the operator computes the same.

    `names` are its collection's names in the pipeline file, `says` describes the operator beyond its `kind`, `loop` is the innermost loop
    around it. `readers` read its collection; an arrangement with several is shared. `keeps`: it has state. `work` is the class of
    `Node.work` that bounds its work for a change. `estimated` are the rows that the last run was expected to put out, estimated from the
    runs before.
    """

    id: str
    kind: str
    names: tuple[str, ...]
    says: tuple[str, ...]
    columns: Mapping[str, str]
    inputs: tuple[str, ...]
    readers: tuple[str, ...]
    loop: str | None = None
    keeps: bool = False
    held: HeldState | None = None
    work: str | None = None
    estimated: int | None = None

    @property
    def shared(self) -> bool:
        """Return whether it is an arrangement with several readers."""
        return self.kind == "arrange" and len(self.readers) > 1


@frozen
class LoopView:
    """A loop: a box around its body's operators, in the loop `parent`. `feedback` are pairs of a body's operator and its variable.

    `bound` is the number of rounds; None: until nothing changes.
    """

    id: str
    variables: tuple[str, ...]
    parent: str | None
    bound: int | None
    feedback: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class View:
    """The view of a pipeline's plan, operators before their readers, with the records of its last runs, oldest first."""

    name: str
    operators: tuple[OperatorView, ...]
    loops: tuple[LoopView, ...]
    outputs: Mapping[str, str]
    runs: tuple[RunRecord, ...] = ()
    _counted: dict[int, dict[str, RowCounts]] = field(default_factory=dict)

    @property
    def run(self) -> RunRecord | None:
        """The last run, if there is one."""
        return self.runs[-1] if self.runs else None

    def counts(self, run: RunRecord | None = None) -> Mapping[str, RowCounts]:
        """Return the counts of each operator and loop in a run, by default the last one, by id."""
        run = run or self.run
        if run is None:
            return {}
        if run.number not in self._counted:
            known = {*(each.id for each in self.operators), *(each.id for each in self.loops)}
            found = {name: count for name, count in run.operators.items() if name in known}
            self._counted[run.number] = found | _outputs(run, known)
        return self._counted[run.number]

    def to_json(self) -> dict[str, Any]:
        """Return the view as JSON."""
        counts = self.counts()
        return {
            "name": self.name,
            "operators": [
                {**asdict(each), "shared": each.shared, "counts": _plain(counts.get(each.id))}
                for each in self.operators
            ],
            "loops": [{**asdict(each), "counts": _plain(counts.get(each.id))} for each in self.loops],
            "outputs": dict(self.outputs),
            "runs": [run_json(run) for run in self.runs],
        }


def _outputs(run: RunRecord, known: Iterable[str]) -> dict[str, RowCounts]:
    """Return a run's counts of the outputs: the updates from its summary, the seconds of writing from the operators' counts."""
    found = {}
    for name, made in run.summary["outputs"].items():
        if (at := OUTPUT + name) in known:
            seconds = run.operators[at].seconds if at in run.operators else 0.0
            found[at] = RowCounts(0, made["rows"], made["inserted"], seconds)
    return found


def _plain(count: RowCounts | None) -> dict[str, Any] | None:
    return count.to_json() | {"retracted": count.retracted} if count else None


def run_json(run: RunRecord) -> dict[str, Any]:
    """Return the figures of a run for the small plots, as JSON."""
    written = sum(int(made["rows"]) for made in run.summary["outputs"].values())
    return {
        "number": run.number,
        "began": run.began,
        "upper": run.summary.get("upper"),
        "seconds": round(run.seconds, 4),
        "rows_read": run.rows,
        "rows_written": written,
        "state_bytes": run.state_bytes,
    }


def view_of(
    name: str,
    plan: Plan,
    names: Mapping[str, str],
    paths: Mapping[str, str],
    manifest: Manifest | None,
    runs: Iterable[RunRecord],
    verdicts: Mapping[str, str],
) -> View:
    """Return the view of a plan. `names` are the logical fingerprints of collections and inputs by name; `paths` are the outputs' paths, `verdicts` the words for the checks' verdicts."""
    graph = plan.graph
    times = next((scan.nt for scan in graph.scans().values()), 1)
    called = _names_by_node(plan, names)
    shown = [node for node in graph.nodes if not isinstance(node, loops.Iterate)]
    around = {node.loop: node for node in graph.nodes if isinstance(node, loops.Iterate)}
    inputs = {node.fingerprint: _inputs(node, around) for node in shown}
    outputs = {name: node for name, node in graph.outputs.items() if not name.startswith(EXPORT)}
    exported: dict[str, list[str]] = defaultdict(list)
    for export, node in graph.outputs.items():
        if export.startswith(EXPORT + HISTORY):
            exported[node.fingerprint].append(f"for the history {export.removeprefix(EXPORT + HISTORY)}")
        elif export.startswith(EXPORT):
            exported[node.fingerprint].append(f"exported as {export.removeprefix(EXPORT)}")
    readers: dict[str, list[str]] = defaultdict(list)
    for reader, given in inputs.items():
        for source in given:
            readers[source].append(reader)
    for output, node in outputs.items():
        readers[node.fingerprint].append(OUTPUT + output)
    records = tuple(runs)
    expected = _expected(graph, manifest, records)
    operators = [
        OperatorView(
            id=node.fingerprint,
            kind=node.kind,
            names=tuple(called.get(node.fingerprint, ())),
            says=(*node.details(), *exported[node.fingerprint], *_bound(node)),
            work=node.work,
            columns={name: str(kind) for name, kind in node.schema.items()}
            if isinstance(node, physical.Scan)  # whose names are the file's
            else columns(node.schema, node.texts()),
            inputs=tuple(inputs[node.fingerprint]),
            readers=tuple(dict.fromkeys(readers[node.fingerprint])),
            loop=_loop_of(node, around),
            keeps=node.keeps_state(times),
            held=_held(node.fingerprint, manifest),
            estimated=expected.get(node.fingerprint),
        )
        for node in shown
    ]
    operators += [
        OperatorView(OUTPUT + name, "output", (name,), _of_output(name, paths, verdicts), {}, (node.fingerprint,), ())
        for name, node in outputs.items()
    ]
    found = [_loop(node, graph.nodes, around) for node in around.values()]
    return View(name, tuple(operators), tuple(found), {each: OUTPUT + each for each in outputs}, records)


def _of_output(name: str, paths: Mapping[str, str], verdicts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words for an output: its path, and a check's verdict."""
    return (paths[name], *([verdicts[name]] if name in verdicts else []))


def _expected(graph: PhysicalGraph, manifest: Manifest | None, runs: Sequence[RunRecord]) -> dict[str, int]:
    """Return the rows that each operator was expected to put out in the last run, estimated from the runs before."""
    if manifest is None or not runs or runs[-1].number != manifest.number:
        return {}
    held = {name: sum(file.rows for file in entry.files) for name, entry in manifest.arrangements.items()}
    past: list[PastRun] = []
    for run in reversed(runs):
        for name, count in run.operators.items():
            if name in held:
                held[name] = max(0, held[name] - count.inserted + count.retracted)
        past.append(
            PastRun({name: (count.rows_in, count.rows_out) for name, count in run.operators.items()}, dict(held))
        )
    last = runs[-1].operators
    scans = graph.scans()
    taken = {name: last[scan.fingerprint].rows_out if scan.fingerprint in last else 0 for name, scan in scans.items()}
    found = estimated_rows(graph, taken, past[0].held, past[1:])
    return {name: round(rows) for name, rows in found.items() if name in last}


def _bound(node: Node) -> list[str]:
    """Return the bound of a node's work in words, if it is more than the change."""
    found = node.work
    return [] if found in (None, "change") else [f"work: {found}"]


def _names_by_node(plan: Plan, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the file's names of physical nodes, by fingerprint, as far as these are collections of the file."""
    called: dict[str, list[str]] = defaultdict(list)
    for generation, part in zip(plan.generations, plan.parts, strict=True):
        lowered = generation.joined(generation.nodes(part), generation.lowered(part))
        for name, meant in names.items():
            node = lowered.get(meant)
            if node is not None and name not in called[node.fingerprint]:
                called[node.fingerprint].append(name)
    for node in plan.graph.nodes:
        if isinstance(node, loops.Iterate):
            for variable in _variables(node, plan.graph.nodes):
                called[variable.fingerprint].insert(0, node.names[variable.index].value)
        elif isinstance(node, physical.Scan):
            called[node.fingerprint] = [node.name]  # an input has its own name alone
    return called


def _inputs(node: Node, around: Mapping[str, loops.Iterate]) -> list[str]:
    """Return the fingerprints of the nodes that a node reads: a `Leave` reads the loop's body, a variable its initial collection."""
    if isinstance(node, loops.LoopVariable):
        return [around[node.loop].initials[node.index].fingerprint]
    if isinstance(node, loops.Leave):
        (iterate,) = node.inputs
        assert isinstance(iterate, loops.Iterate)
        return [iterate.bodies[node.which].fingerprint]
    return [child.fingerprint for child in node.inputs]


def _loop_of(node: Node, around: Mapping[str, loops.Iterate]) -> str | None:
    """Return the innermost loop around a node, on whose round it depends."""
    innermost = max(node.free, key=lambda loop: loop.depth, default=None)
    return around[innermost.name].fingerprint if innermost else None


def _loop(node: loops.Iterate, nodes: Iterable[Node], around: Mapping[str, loops.Iterate]) -> LoopView:
    variables = _variables(node, nodes)
    feedback = [(node.bodies[each.index].fingerprint, each.fingerprint) for each in variables]
    names = tuple(name.value for name in node.names)
    return LoopView(node.fingerprint, names, _loop_of(node, around), node.bound, tuple(feedback))


def _variables(node: loops.Iterate, nodes: Iterable[Node]) -> list[loops.LoopVariable]:
    return [each for each in nodes if isinstance(each, loops.LoopVariable) and each.loop == node.loop]


def _held(fingerprint: str, manifest: Manifest | None) -> HeldState | None:
    """Return the size of a node's state, including rows that wait for their time."""
    entries = manifest.arrangements if manifest else {}
    found = [entries[name] for name in (fingerprint, fingerprint + WAITING) if name in entries]
    if not found:
        return None
    size = Size.of([file for entry in found for file in entry.files])
    return HeldState(size.rows, size.bytes, size.batches)


ENDS = ("input", "output")


def folded(view: View) -> tuple[View, tuple[tuple[int, ...], ...]]:
    """Return a view with a box for each collection, input and output, and the numbers of the operators in each, in the order of the view that was folded.

    An operator without a name belongs to the collection of its first reader, whose definition it is a part of; so does an operator in a loop,
    where names are the loop's own variables. One that nothing reads, an arrangement for a history, has the name of what it reads.
    """
    home = _homes(view)
    members: dict[str, list[int]] = {}
    for at, each in enumerate(view.operators):
        members.setdefault(home[each.id], []).append(at)
    inputs: dict[str, dict[str, None]] = {name: {} for name in members}
    readers: dict[str, dict[str, None]] = {name: {} for name in members}
    for each in view.operators:
        for source in each.inputs:
            if home[source] != home[each.id]:
                inputs[home[each.id]][home[source]] = None
                readers[home[source]][home[each.id]] = None
    made = {
        name: _box(name, [view.operators[at] for at in numbers], tuple(inputs[name]), tuple(readers[name]))
        for name, numbers in members.items()
    }
    # Sources before their readers: operators are, but not the first ones of their collections.
    ordered = _in_order(made)
    counted = _counts(view, {name: [view.operators[at] for at in members[name]] for name in ordered})
    place = {name: at for at, name in enumerate(ordered)}
    boxes = tuple(
        replace(made[name], inputs=tuple(source for source in made[name].inputs if place[source] < place[name]))
        for name in ordered
    )
    found = View(view.name, boxes, (), view.outputs, view.runs[-1:], counted)
    return found, tuple(tuple(members[name]) for name in ordered)


def _homes(view: View) -> dict[str, str]:
    """Return the box of each operator."""
    home: dict[str, str] = {}
    of_loop: dict[str, str] = {}
    for each in reversed(view.operators):  # readers come after those that they read
        named = each.names if each.loop is None else ()
        found = [home[reader] for reader in each.readers if reader in home and not reader.startswith(OUTPUT)]
        if each.kind in ENDS:
            home[each.id] = f"{each.kind}:{each.names[0] if each.names else each.id}"
        elif named:
            home[each.id] = f"collection:{named[0]}"
        elif each.loop is not None and each.loop in of_loop:
            home[each.id] = of_loop[each.loop]
        else:
            inner = [name for name in found if name.startswith("collection:")]
            ends = [
                reader.names[0] for reader in view.operators if reader.id in each.readers and reader.kind == "output"
            ]
            home[each.id] = inner[0] if inner else f"collection:{ends[0] if ends else _source(each, view)}"
        if each.loop is not None:
            of_loop.setdefault(each.loop, home[each.id])
    return home


def _source(operator: OperatorView, view: View) -> str:
    """Return the name of the nearest collection or input that an operator reads: it keeps that for itself, as for a history."""
    by_id = {each.id: each for each in view.operators}
    reached = [operator]
    for each in reached:  # it grows
        if each.names:
            return each.names[0]
        reached += [by_id[source] for source in each.inputs]
    return operator.id


def _box(
    name: str, operators: Sequence[OperatorView], inputs: tuple[str, ...], readers: tuple[str, ...]
) -> OperatorView:
    """Return the box of some operators: the last of them makes the collection."""
    last = operators[-1]
    if last.kind in ENDS:
        return replace(last, id=name, inputs=inputs, readers=readers, loop=None)
    loops = len({each.loop for each in operators if each.loop is not None})
    says = [
        f"{len(operators)} {plural(len(operators), 'operator')}"
        + (f", {loops} {plural(loops, 'loop')}" if loops else "")
    ]
    held = [each.held for each in operators if each.held is not None]
    size = (
        HeldState(*(sum(getattr(each, part) for each in held) for part in ("rows", "bytes", "files"))) if held else None
    )
    title = name.removeprefix("collection:")
    names = last.names if last.loop is None and last.names else (title,)
    keeps = any(each.keeps for each in operators)
    return OperatorView(name, "collection", names, tuple(says), last.columns, inputs, readers, None, keeps, size)


def _in_order(made: Mapping[str, OperatorView]) -> list[str]:
    """Return the names of boxes, each after those that it reads, as far as these make no circle."""
    ordered: dict[str, None] = {}
    begun: set[str] = set()
    pending = [(name, False) for name in reversed([*made])]
    while pending:
        name, done = pending.pop()
        if done:
            ordered[name] = None
        elif name not in begun:
            begun.add(name)
            pending.append((name, True))
            pending += [(source, False) for source in reversed(made[name].inputs)]
    return list(ordered)


def _counts(view: View, members: Mapping[str, Sequence[OperatorView]]) -> dict[int, dict[str, RowCounts]]:
    """Return the counts of each box in the last run: the rows that its last operator put out, and the seconds of all."""
    if view.run is None:
        return {}
    known = view.counts()
    found = {}
    for name, operators in members.items():
        counts = [count for each in operators if (count := known.get(each.id)) is not None]
        last = known.get(operators[-1].id)
        if counts:
            seconds = sum(count.seconds for count in counts)
            found[name] = (
                replace(last, rows_in=0, seconds=seconds)
                if last
                else replace(counts[-1], rows_in=0, rows_out=0, inserted=0, seconds=seconds)
            )
    return {view.run.number: found}
