"""A spine through whatever may happen to it, against plain counts: in memory and in files, held, imported, shared, lost.

The arrangement is in several shards, each with a trace of its own. Committed, it is compacted by hand, shared with readers in other
pipelines, who read by the manifest of some earlier moment, and opened again, perhaps in more passes than it has shards.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ddcli.circuit.traces import StateTraces
from ddcli.engine import kernels
from ddcli.engine.kernels import uniform
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.join import Arrange
from ddcli.engine.pool import Pool
from ddcli.engine.records import decode_records, encode_records
from ddcli.engine.rounds import Interval, before, times_of
from ddcli.engine.times import LEAST, Frontier
from ddcli.engine.trace import policy
from ddcli.engine.trace.spine import MemoryBatch
from ddcli.engine.trace.trace_import import ImportedTrace
from ddcli.expressions.types import parse_type
from ddcli.job.sizes import Sizes
from ddcli.sources.arrangement_input import SharedReader
from ddcli.store.batch import compaction, file, paged_rows, stored_batch
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.gate import Files
from ddcli.store.state.contents import batch_directory
from ddcli.store.state.directory import Hold, State, holding, read_claims, write_hold
from ddcli.store.state.entries import InputEntry
from ddcli.store.state.manifest import Manifest, read_newest
from ddcli.store.state.shared_arrangements import Shared, mark_of
from ddcli.store.state.upkeep import compact_state, reshard_state
from tests.draws import many
from tests.secret import SECRET

STEPS = int(os.environ.get("DD_MACHINE_STEPS", "50"))
NAME = "arranged"
NOTHING = {"generations": [], "outline": {"outputs": {}, "nodes": {}}}
"""What a state says of its plan where it has none."""
KEYS = {
    "int64": [-3, 0, 1, 2, 2**40],
    "int64?": [-3, 0, 1, 2, None],
    "string?": ["", "a", "b", "thirteen bytes", None],
}
VALUES = 3
SIDES = {1: 10, 2: 5, 3: 3}
"""Times have so many values in each coordinate; frontiers have one more."""
SMALL = [
    (policy, "FUEL", 1),
    (policy, "LARGE", 1),
    (policy, "LITTLE", 1),
    (policy, "MOST_RUNS", 2),
    (uniform, "LEAST", 1),
    (uniform, "REPEATED", 2),
    (file, "GROUP", 2),
    (file, "PAGE", 1),
    (stored_batch, "FEW", 2),
    (paged_rows, "TOGETHER", 4),
    (paged_rows, "LOOKED_INTO", 2),
    (paged_rows, "APART", 1),
    (compaction, "BLOCK", 4),
    (compaction, "GROUP", 2),
    (compaction, "MOST", 6),
    (compaction, "CHUNK", 4),
    (compaction, "FUEL", 1),
]

PICK = st.integers(0, 200)
ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, VALUES - 1), PICK, st.sampled_from([-1, 1, 1, 2])), max_size=12
)
POINTS = st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=2)
STRIDES = st.lists(st.tuples(*[st.sampled_from([0, 0, 1, 2])] * 3), min_size=1, max_size=2)
SEALS = st.lists(st.tuples(ROWS, STRIDES, st.sampled_from([0, 0, 0, 1, 4]), st.booleans()), min_size=1, max_size=6)
SOME = st.sets(st.integers(0, 4), min_size=1)


@dataclass
class Holder:
    """Who holds the traces, from a frontier on."""

    since: Frontier
    holds: list

    def release(self):
        for hold in self.holds:
            hold.release()


@dataclass
class Import:
    """Who imports the traces as of `begin`, and what was `given` to him of what he has `taken`."""

    begin: Frontier
    taken: Frontier
    traces: list[ImportedTrace]
    given: list = field(default_factory=list)

    @property
    def since(self):
        return self.taken.join(self.begin)

    def release(self):
        for trace in self.traces:
            trace.release()


@dataclass
class Reader:
    """Who reads the committed arrangement from another pipeline: what he has taken, the rows that this means, and by what he reads."""

    name: str
    begin: Frontier
    known: InputEntry | None = None
    meant: list = field(default_factory=list)
    given: list = field(default_factory=list)
    pinned: tuple | None = None


class Machine(RuleBasedStateMachine):
    """`updates` are rows [key number, value, times, diff] that were sealed, `committed` those of the newest manifest."""

    def __init__(self):
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        for module, name, value in SMALL:
            self.patch.setattr(module, name, value)

    def teardown(self):
        self.patch.undo()
        shutil.rmtree(self.directory)

    @initialize(
        nt=st.integers(1, 3),
        kind=st.sampled_from(sorted(KEYS)),
        shards=st.sampled_from([1, 1, 2, 3]),
        past=st.sampled_from([{}, {}, {NAME: 2}, {NAME: None}]),
        fuel=st.sampled_from([1, 1, 4, 1000]),
        joined=st.booleans(),
    )
    def begin(self, nt, kind, shards, past, fuel, joined):
        self.patch.setattr(policy, "LEAST_FUEL", fuel)
        self.patch.setattr(compaction, "LEAST", fuel)
        self.nt, self.shards, self.past, self.joined = nt, shards, past, joined
        self.side = SIDES[nt]
        self.key, self.value = (Layout({name: parse_type(text)}) for name, text in (("k", kind), ("v", "int64")))
        self.nk = self.key.width
        self.layout = BatchLayout(self.key, self.value, nt)
        self.records = [(value,) for value in KEYS[kind]]
        self.keys = encode_records(self.records, self.key, Pool(SECRET))
        self.numbers = {tuple(lanes): number for number, lanes in enumerate(self.keys.tolist())}
        self.grid = np.array(list(itertools.product(range(self.side + 1), repeat=nt)))
        self.updates, self.waiting, self.committed, self.readers = [], [], [], []
        self.upper = Frontier([(LEAST,) * nt])
        self.open(1)

    # --- what it means ------------------------------------------------------------------------------------------------

    def frontier(self, points):
        return Frontier(tuple(x % (self.side + 1) for x in point[: self.nt]) for point in points)

    def between(self, frontier, upper):
        """Return a frontier that is not after `upper`."""
        return Frontier([*frontier, *upper])

    def counts(self, rows):
        """Return how often each record is there at each time of the grid, as an array (keys, values, *times)."""
        found = np.zeros((len(self.keys), VALUES) + (self.side + 1,) * self.nt, np.int64)
        if len(rows):
            rows = np.array(rows)
            at = (rows[:, 0], rows[:, 1], *np.maximum(rows[:, 2:-1], 0).T)
            np.add.at(found, at, rows[:, -1])
            for axis in range(2, 2 + self.nt):
                found = found.cumsum(axis)
        return found.reshape(len(self.keys), VALUES, -1)

    def rows(self, matrices):
        """Return a trace's updates as rows of the model."""
        return [
            [self.numbers[tuple(row[: self.nk])], *row[self.nk :]] for matrix in matrices for row in matrix.tolist()
        ]

    def check(self, matrices, rows, since, what):
        """Compare what matrices say with what rows mean, at all times at or after a frontier."""
        seen = ~before(self.grid, since)
        got, want = self.counts(self.rows(matrices))[..., seen], self.counts(rows)[..., seen]
        wrong = np.argwhere(got != want)
        assert not len(wrong), f"{what}: {wrong.tolist()} of the times {self.grid[seen].tolist()}"

    def moved(self, rows, begin, upper):
        """Return those rows that are before `upper` once their times are joined with the beginning's."""
        moved = np.array(rows, np.int64).reshape(-1, self.nt + 3)
        moved[:, 2:-1] = np.maximum(moved[:, 2:-1], np.array(begin.as_time()))
        return moved[before(moved[:, 2:-1], upper)]

    def matrices(self):
        return [matrix for trace in self.traces for matrix in trace.matrices()]

    # --- the spine in memory --------------------------------------------------------------------------------------------

    @rule(rows=ROWS)
    def insert(self, rows):
        """Have updates come at open times, the earliest more often."""
        times = [time for time in self.grid.tolist() if max(time) < self.side and self.upper.less_equal(tuple(time))]
        for number, value, pick, diff in rows if times else ():
            self.waiting.append([number, value, *times[pick % min(len(times), 1 + pick % 11)], diff])

    @rule(seals=SEALS, wanted=SOME)
    def insert_and_seal(self, seals, wanted):
        for rows, strides, runs, follows in seals:
            self.insert(rows)
            self.seal(strides, runs)
            if follows and self.may_advance():
                self.advance_to(self.upper)
        self.look_up(wanted)

    def seal(self, strides, runs):
        """Close times; the updates are inserted as a batch, or appended as so many runs, as those of rounds are."""
        begin = [max(x, 0) for x in self.upper.as_time()]
        steps = [[min(x + y, self.side) for x, y in zip(begin, step, strict=False)] for step in strides]
        upper = self.upper.join(Frontier(map(tuple, steps)))
        due = [row for row in self.waiting if not upper.less_equal(tuple(row[2:-1]))]
        self.waiting = [row for row in self.waiting if upper.less_equal(tuple(row[2:-1]))]
        picture = [matrix for matrix in self.matrices() if len(matrix)]
        seen = self.counts(self.rows(picture))
        lanes = [[*self.keys[row[0]].tolist(), *row[1:]] for row in due]
        matrix = np.array(lanes, np.int64).reshape(-1, self.layout.width)
        owners = kernels.shard_of(np.ascontiguousarray(matrix[:, : self.nk]), self.nk, len(self.traces))
        for shard, trace in enumerate(self.traces):
            encode_records(self.records, self.key, self.pools[shard])
            own = matrix[owners == shard]
            for part in range(runs):
                trace.append(kernels.consolidate(own[part::runs].copy()))
            if runs:
                trace.advance_frontier(upper)
            else:
                interval = Interval(self.upper, upper)
                arrange = Arrange(range(self.layout.record.width), trace, joined=self.joined)
                arrange.step([Delta(own)], interval)
                arrange.seal(interval)
        self.upper = upper
        self.updates += due
        assert (self.counts(self.rows(picture)) == seen).all(), "a reader keeps the picture that he took"

    def may_advance(self):
        """Return whether times need not stay apart for the state: a run that inserts once doesn't merge them, this one may."""
        return not self.past and not self.readers

    @precondition(may_advance)
    @rule(points=POINTS)
    def advance(self, points):
        self.advance_to(self.between(self.since.join(self.frontier(points)), self.upper))

    def advance_to(self, since):
        """Let the operators read from later on."""
        self.since = since
        for trace in self.traces:
            trace.set_logical_compaction(since)

    @rule(points=POINTS, through=st.sampled_from(["closed", "upper", "since"]))
    def hold(self, points, through):
        since = self.between(self.traces[0].since.join(self.frontier(points)), self.upper)
        reach = {"closed": Frontier(), "upper": self.upper, "since": since}[through]
        self.holders.append(Holder(since, [trace.hold(since, reach) for trace in self.traces]))

    @precondition(lambda self: self.holders)
    @rule(pick=PICK, points=POINTS, frees=st.booleans())
    def move_hold(self, pick, points, frees):
        holder = self.holders[pick % len(self.holders)]
        holder.since = self.between(holder.since.join(self.frontier(points)), self.upper)
        for hold in holder.holds:
            further = hold.through.join(self.frontier(points)) if hold.through else Frontier()
            hold.advance(holder.since, Frontier() if frees else further)

    @precondition(lambda self: self.holders or self.imports)
    @rule(pick=PICK)
    def release(self, pick):
        both = [*self.holders, *self.imports]
        who = both[pick % len(both)]
        (self.holders if who in self.holders else self.imports).remove(who)
        who.release()

    @rule(points=POINTS)
    def import_traces(self, points):
        begin = self.between(self.traces[0].since.join(self.frontier(points)), self.upper)
        begin, nothing = Frontier([begin.as_time()]), Frontier([(LEAST,) * self.nt])
        if not self.traces[0].since.dominates(begin):
            return  # of several elements the meet is none
        self.imports.append(Import(begin, nothing, [ImportedTrace(trace, begin, nothing) for trace in self.traces]))

    @precondition(lambda self: self.imports)
    @rule(pick=PICK, points=POINTS)
    def take(self, pick, points):
        """Take what is new up to a frontier: each update once."""
        who = self.imports[pick % len(self.imports)]
        upper = self.between(who.taken.join(self.frontier(points)), self.upper)
        upper = upper if who.taken.dominates(upper) else who.taken
        for trace in who.traces:
            fresh = trace.next_before(upper)
            assert kernels.is_consolidated(fresh)
            times = times_of(fresh, self.nt)
            assert not before(times, who.taken).any()
            assert before(times, upper).all()
            who.given.append(fresh)
            trace.take(upper)
        who.taken = upper
        self.check(who.given, self.moved(self.updates, who.begin, upper), Frontier([(0,) * self.nt]), "given over")

    @rule(wanted=SOME)
    def look_up(self, wanted):
        """Look up a few keys, in the ways that operators do."""
        chosen = kernels.sort_by(self.keys[sorted(wanted)], range(self.nk))
        owners = kernels.shard_of(chosen, self.nk, len(self.traces))
        found, matched = [], []
        for shard, trace in enumerate(self.traces):
            trace.release()  # else what is looked at after each step is looked up in memory
            keys = np.ascontiguousarray(chosen[owners == shard])
            if not len(keys):
                continue
            tail = np.zeros((len(keys), 1 + self.nt), np.int64)
            probe = np.concatenate([keys, tail, np.ones((len(keys), 1), np.int64)], axis=1)
            for into, some in ((found, trace.batches_for(keys)), (matched, trace.matching(probe))):
                for matrix in map(kernels.matrix, some):
                    rows = kernels.gather(matrix, self.nk, keys)
                    into.append(rows)
                    decode_records(rows, self.layout.record, self.pools[shard])
            for batch in trace.batches:
                assert not isinstance(batch, StoredBatch) or len(batch.for_keys(keys)) <= batch.rows
        meant = [row for row in self.updates if row[0] in wanted]
        self.check(found, meant, self.readable(), "a lookup")
        self.check(matched, meant, self.readable(), "matching")

    def readable(self):
        """Return the frontier from which on somebody may read."""
        return Frontier(
            time for since in (self.since, *(who.since for who in (*self.holders, *self.imports))) for time in since
        )

    # --- the spine in files ---------------------------------------------------------------------------------------------

    def open(self, factor):
        """Open what is committed, `factor` passes a shard; 0: one over all of them."""
        manifest = read_newest(self.directory)
        passes = self.shards * factor or 1
        self.pools = [Pool(SECRET) for _ in range(passes)]
        self.since = self.upper
        self.kept = StateTraces(
            self.directory,
            manifest,
            self.pools,
            self.upper,
            Sizes(self.shards, passes, 1),
            claims=read_claims(self.directory),
            past=self.past,
        )
        self.traces = [self.kept.trace(NAME, self.key, self.value, self.nt, shard) for shard in range(passes)]
        self.holders, self.imports = [], []

    @rule(
        seals=SEALS,
        wanted=SOME,
        factor=st.sampled_from([1, 0, 2, 3]),
        action=st.sampled_from(
            ["", "", "compact", "share", "share", "share and compact", "reshard", "reshard and share"]
        ),
        mine=st.booleans(),
        reads=st.sampled_from([0, 1, 1, 3]),
    )
    def spill(self, seals, wanted, factor, action, mine, reads):
        """Take in some more, commit, and start again with nothing in memory; readers may read what is new, each as one of so many."""
        self.insert_and_seal(seals, wanted)
        for who in (*self.holders, *self.imports):
            who.release()
        with State.open(self.directory, {}) as state, state.begin() as transaction:
            for trace in self.traces:
                self.kept.write(trace, transaction, self.upper, frozenset() if mine else None)
            manifest = Manifest(
                "p",
                self.upper.elements,
                arrangements=self.kept.entries(self.upper),
                exports={NAME: NAME},
                cache={"time": {f"t{at}": "int64" for at in range(self.nt)}, "seen": None, "plan": NOTHING},
                secret=SECRET.hex(),
            )
            transaction.commit(manifest)
        self.committed = [*self.updates]
        self.begin_anew(factor, action)
        for at in range(len(self.readers) if reads else 0):
            self.take_shared(at, reads, None)

    @precondition(lambda self: read_newest(self.directory))
    @rule(factor=st.sampled_from([0, 1, 2]), action=st.sampled_from(["", "compact", "share", "reshard"]))
    def lose(self, factor, action):
        """Die, and begin anew from what was committed; what was taken in since is read again."""
        self.waiting += self.updates[len(self.committed) :]
        self.updates = [*self.committed]
        self.upper = Frontier(read_newest(self.directory).upper)
        self.begin_anew(factor, action)

    def begin_anew(self, factor, action):
        """Do what is done between runs, look at the files, and open them."""
        if "share" in action and len(self.readers) < 2:
            self.readers.append(Reader(f"reader{len(self.readers)}", self.upper))
            self.pin(-1)
        if "reshard" in action:
            self.shards = self.shards % 3 + 1
            reshard_state(self.directory, self.shards)
        if "compact" in action:
            compact_state(self.directory)
        self.look_at_files()
        self.open(factor)

    def look_at_files(self):
        entry = read_newest(self.directory).arrangements[NAME]
        found = []
        for shard, files in enumerate(entry.shards):
            place = batch_directory(self.directory, NAME, shard)
            stored = [StoredBatch(place / file.name, file, self.layout, Pool(SECRET)) for file in files]
            assert {path.name for path in place.glob("*")} >= {file.name for file in files}
            for _, run in itertools.groupby(stored, lambda batch: batch.entry.run):
                parts = sorted((batch.matrix() for batch in run), key=lambda matrix: matrix[0].tolist())
                assert kernels.is_consolidated(kernels.concat(parts)), "files of a run are one sorted batch"
                found += parts
        since = Frontier(entry.since)
        self.check(found, self.committed, since, "the files")
        for reader in self.readers:
            if reader.known:
                assert since.dominates(Frontier(reader.known.upper))

    # --- readers in other pipelines ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.readers)
    @rule(pick=PICK)
    def pin(self, pick):
        """Begin to read by the newest manifest."""
        reader = self.readers[pick % len(self.readers)]
        if reader.pinned:
            return
        manifest = read_newest(self.directory)
        bound = reader.known.upper if reader.known else manifest.upper
        marks = (*([reader.known.mark] if reader.known else []), mark_of(manifest))
        hold = Hold(reader.name, "", (NAME,), bound, bound, manifest.number, marks)
        self.claim(hold)
        shared = Shared(self.directory, NAME, manifest, hold)
        names = [f"t{at}" for at in range(self.nt)]
        reader.pinned = SharedReader(shared, names, None, reader.known), manifest, [*self.committed]

    @precondition(lambda self: self.readers)
    @rule(pick=PICK, shards=st.integers(1, 4), most=st.sampled_from([None, 1]))
    def take_shared(self, pick, shards, most):
        """Read what is new by the manifest of that moment, whatever has been committed since; then hold no more than is to be told apart."""
        self.pin(pick)
        reader = self.readers[pick % len(self.readers)]
        source, manifest, meant = reader.pinned
        if reader.known:
            taken = Frontier(reader.known.upper)
            known = [
                batch.matrix()
                for shard in range(shards)
                for batch in source.batches(taken, shard, shards, Pool(SECRET))
            ]
            self.check(known, reader.meant, taken, "what a reader has taken")
            again = source.take(self.layout.record.names, None, reader.known.upper, most).slices
            parts = [piece.matrix(self.layout.record, Pool(SECRET)) for piece in again]
            assert all(before(times_of(part, self.nt), taken).all() for part in parts), "all of it was taken before"
            self.check(parts, reader.meant, taken, "what a reader reads again")
        lower = reader.known.upper if reader.known else None
        slices = source.take(self.layout.record.names, lower, manifest.upper, most).slices
        reader.given += [piece.matrix(self.layout.record, Pool(SECRET)) for piece in slices]
        self.check(reader.given, meant, reader.begin, "what a reader was given")
        reader.known = InputEntry(manifest.upper, (), source.schema.to_json())
        reader.meant, reader.pinned = meant, None
        self.claim(Hold(reader.name, "", (NAME,), manifest.upper, manifest.upper, marks=(mark_of(manifest),)))

    def claim(self, hold):
        files = Files()
        with holding(self.directory, files):
            write_hold(self.directory, hold, files)

    # --- what always holds ----------------------------------------------------------------------------------------------

    @invariant()
    def holders_are_heeded(self):
        for trace in self.traces:
            assert trace.since.dominates(self.readable())
            for who in self.holders:
                assert all(trace.through.dominates(hold.through) for hold in who.holds if hold.trace is trace)

    @invariant()
    def it_accumulates_to_what_was_inserted(self):
        self.check(self.matrices(), self.updates, self.readable(), "the traces")
        for who in self.imports:
            found = [matrix for trace in who.traces for matrix in trace.matrices()]
            self.check(found, self.moved(self.updates, who.begin, who.taken), who.taken, "an import")

    @invariant()
    def batches_are_in_order(self):
        for trace in self.traces:
            for batch in trace.batches:
                matrix = batch.matrix()
                assert kernels.is_consolidated(matrix)
                # Of a batch that several passes share, each has its own rows.
                assert len(matrix) == batch.rows or not isinstance(batch, StoredBatch | MemoryBatch)
                assert not before(times_of(matrix, self.nt), batch.lower).any()
            fresh = [batch for batch in trace.batches if isinstance(batch, MemoryBatch)]
            assert trace.batches[len(trace.batches) - len(fresh) :] == fresh, "what is new comes after what is stored"
            for older, younger in itertools.pairwise(fresh):
                assert older.upper.dominates(younger.upper)
            assert all(batch.upper.dominates(self.upper) for batch in fresh)


Machine.TestCase.settings = settings(max_examples=many(10), stateful_step_count=STEPS)
TestMachine = Machine.TestCase
