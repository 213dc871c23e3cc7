"""The batches that a manifest names: the latest in the manifest itself, for large states in immutable lists; small ones together in bundles.

A manifest is written whole by each commit, so it names only some hundred batches itself. When there are more than `LATELY`, they move into lists,
files of the state that never change, as the segments of registers do. A merge removes batches: the manifest has, for each list, the positions of
those that are in the state no more. A list is written anew, with what is left of it, when half of it is gone, or when as many new batches come as it
has. Where tasks have written indices of their batches, large ones, the list of their commit names these. So a commit writes in proportion to the
batches that it adds and removes, however many the state has: in all an entry is written again some three times, and no commit writes more than `MOST`
others again.

A *bundle* is one file with the small batches of one commit, or most of a task's, so that these cost one write and one flush, not one for each arrangement. It is a tar archive whose
members have the paths that the files would have in the state: `tar -xf` makes Parquet of it that any
reader opens. The manifest has, for each batch in a bundle, the bundle and the offset in it. A bundle never changes. It is removed when no manifest
names a batch of it any more; and since most of its batches may be dead long before, a commit copies the live ones of the worst bundle into its own.
Bundles of tasks are as many as these were, and large: tasks empty them, and a commit of one process copies no more of them than it writes itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.store.state.document import BATCH, BEYOND, BUNDLE, CHECKSUM, SEGMENT, mapping_of, named, text_of
from ddcli.store.state.entries import FileEntry, Times, frontier_of, times
from ddcli.store.state.register import Segment, segment_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ddcli.store.files.gate import Written
    from ddcli.store.state.entries import ArrangementEntry

    Listed = tuple[str, int, FileEntry]
    Key = tuple[str, int, str]
    Shards = tuple[tuple[FileEntry, ...], ...]


LATELY = 512
"""Batches that are named in the manifest itself: 80 kB."""
LISTS = 64
"""Lists after which some are written anew however few batches come: each commit of tasks may add one."""
DENSE = 16
"""The batches of an index on the average from which on a list names indices of tasks: fewer are quicker to write again than to read in so many parts."""
MOST = 2048
"""Batches of a list at most, and of older lists that a commit writes again."""
SHARDS = 1 << 24
"""Shards of all arrangements at most."""
HEX = 16
WIDTH = 12
"""Values in the row of a batch that is in a bundle."""


@frozen
class BatchList:
    """A list: its file, and its batches, each with its arrangement and its shard. They are in the file, or in its `parts`, indices that tasks have written."""

    file: Segment
    batches: tuple[Listed, ...]
    parts: tuple[Segment, ...] = ()

    def left(self, gone: int) -> list[Listed]:
        """Return the batches that are in the state, all but those at positions whose bit is set in `gone`."""
        return [each for at, each in enumerate(self.batches) if not gone >> at & 1] if gone else list(self.batches)


class BatchRegister:
    """The batches of some `arrangements`: `lists`, each with the bits of the batches that are gone from it, and the `latest`, by arrangement, shard and name."""

    def __init__(
        self,
        lists: Iterable[tuple[BatchList, int]] = (),
        latest: Iterable[Listed] = (),
        arrangements: Mapping[str, ArrangementEntry] | None = None,
    ) -> None:
        self.lists = tuple(lists)
        self.latest = {(name, shard, file.name): file for name, shard, file in latest}
        self.arrangements = arrangements or {}

    @classmethod
    def of(cls, arrangements: Mapping[str, ArrangementEntry]) -> BatchRegister:
        """Return the register that names all batches of some arrangements in the manifest itself."""
        return cls((), listed(arrangements), arrangements)

    def shards(self, counts: Mapping[str, int]) -> dict[str, Shards]:
        """Return the batches of each shard of the arrangements that have these numbers of shards, in order. Raises ValueError or KeyError for others."""
        shards: dict[str, Shards] = {}
        if sum(counts.values()) > SHARDS:
            raise ValueError("too many shards")
        found: dict[str, dict[int, list[FileEntry]]] = {name: {} for name in counts}
        every = (each.left(gone) for each, gone in self.lists)
        for name, shard, file in chain(_listed(self.latest), *every):
            if shard >= counts[name]:
                raise ValueError(f"a batch of shard {shard} of {counts[name]}")
            found[name].setdefault(shard, []).append(file)
        for name, count in counts.items():
            full = {at: tuple(sorted(files, key=_order)) for at, files in found[name].items()}
            shards[name] = tuple([full.get(at, ()) for at in range(count)])
        return shards

    def become(self, arrangements: Mapping[str, ArrangementEntry]) -> BatchRegister:
        """Return the register of these arrangements."""
        gone, new = _changes(self.arrangements, arrangements)
        latest, inside = dict(self.latest), set()
        for key in gone:
            if latest.pop(key, None) is None:
                inside.add(key)
        lists = []
        for each, bits in self.lists:
            if inside:
                for at, (name, shard, file) in enumerate(each.batches):
                    if (name, shard, file.name) in inside and not bits >> at & 1:
                        bits |= 1 << at
                        inside.discard((name, shard, file.name))
            lists.append((each, bits))
        assert not inside, "each batch of a state is in a list or in the manifest"
        return BatchRegister(lists, _listed(latest | new), arrangements)

    def stored(self, write: Callable[[bytes], tuple[str, Written]], indices: Sequence[BatchList] = ()) -> BatchRegister:
        """Return the register as a manifest may name it, with few batches that are in no list; `write` makes the file of a list, tasks have made `indices`."""
        lists = [(each, gone) for each, gone in self.lists if gone.bit_count() < each.file.count]
        others, joined = dict(self.latest), []
        if indices and len(others) > LATELY:
            taken = [
                others.get((name, shard, file.name)) == file for each in indices for name, shard, file in each.batches
            ]
            if sum(taken) >= DENSE * len(indices):
                made, gone = _joined(indices, taken, write)
                joined.append((made, gone))
                for name, shard, file in made.left(gone):
                    del others[name, shard, file.name]
        latest = list(_listed(others))
        if len(latest) <= LATELY and len(lists) <= LISTS:
            return BatchRegister([*lists, *joined], latest, self.arrangements)
        rewritten = due([(each.file.count, each.file.count - gone.bit_count()) for each, gone in lists], len(latest))
        moved = [*latest, *(batch for at in rewritten for batch in lists[at][0].left(lists[at][1]))]
        moved.sort(key=lambda batch: (*batch[:2], batch[2].name))
        kept = [each for at, each in enumerate(lists) if at not in rewritten]
        count = -(-len(moved) // MOST)
        for at in range(count):
            part = tuple(moved[at * len(moved) // count : (at + 1) * len(moved) // count])
            name, written = write(list_bytes(part))
            kept.append((BatchList(Segment(name, written.size, written.checksum, len(part)), part), 0))
        return BatchRegister([*kept, *joined], (), self.arrangements)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a manifest holds of it."""
        lists = [[*each.file.to_row(), f"{gone:x}"] for each, gone in self.lists]
        return {"lists": lists, "latest": _tree(_listed(self.latest))}

    @classmethod
    def from_json(
        cls, tree: dict[str, Any], read: Callable[[str], bytes], known: Collection[BatchList] = ()
    ) -> BatchRegister:
        """Return the register from its part of a manifest; `read` returns the content of a list that is not `known`.

        Raises as `Manifest.from_json` does.
        """
        parsed = {tuple(each.file.to_row()): each for each in known}
        lists = []
        for *row, bits in tree["lists"]:
            gone = int(text_of(bits), HEX)
            each = parsed.get(tuple(row)) or _read_list(row, read)
            if not 0 <= gone < 1 << each.file.count:
                raise ValueError("more batches gone than a list has")
            lists.append((each, gone))
        return cls(lists, _batches(tree["latest"]))


def _joined(
    indices: Sequence[BatchList], taken: Iterable[bool], write: Callable[[bytes], tuple[str, Written]]
) -> tuple[BatchList, int]:
    """Return a list that names indices, with the bits of their batches that are not `taken` from it."""
    batches = tuple(chain.from_iterable(each.batches for each in indices))
    gone = int("".join("0" if each else "1" for each in taken)[::-1], 2)
    parts = tuple(each.file for each in indices)
    name, written = write(segment_bytes([part.to_row() for part in parts]))
    return BatchList(Segment(name, written.size, written.checksum, len(batches)), batches, parts), gone


def indices_of(contents: Iterable[bytes]) -> list[str]:
    """Return the names of the indices that lists with these contents name."""
    return [named(SEGMENT, row[0]) for data in contents if data.startswith(b"[") for row in json.loads(data)]


def due(lists: Sequence[tuple[int, int]], fresh: int) -> list[int]:
    """Return which lists, of (batches, batches left), to write anew together with `fresh` batches, those with the fewest left first.

    Lists that are half gone, and small ones that have no more than come; no more than `most_again` batches in all.

    >>> due([(2048, 1000), (2048, 1100), (600, 600), (900, 900)], 700)
    [2, 0]
    """
    found, room = [], most_again(fresh)
    for at in sorted(range(len(lists)), key=lambda at: lists[at][1]):
        count, left = lists[at]
        room -= left
        if room < 0:
            break
        if 2 * left <= count or left <= min(fresh, MOST // 2):
            found.append(at)
        else:
            room += left
    return found


def most_again(fresh: int) -> int:
    """Return the batches of older lists that a commit of `fresh` batches writes again at most: a large commit leaves more of them to the next one."""
    return MOST if fresh <= MOST else MOST // 2


def list_bytes(batches: Iterable[Listed]) -> bytes:
    """Return the content of a list: JSON, a batch a line."""
    parts = []
    for name, rows in _tree(batches).items():
        lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
        parts.append(f"{json.dumps(name)}:[\n{lines}]")
    return ("{" + ",\n".join(parts) + "}\n").encode()


def _read_list(row: list[Any], read: Callable[[str], bytes]) -> BatchList:
    """Return the list that a manifest describes by `row`."""
    file = Segment.from_row(row, read)
    tree = json.loads(file.data)
    if isinstance(tree, list):
        indices = [_read_list(part, read) for part in tree]
        if any(each.parts for each in indices):
            raise ValueError("an index of indices")
        batches, parts = (
            tuple(chain.from_iterable(each.batches for each in indices)),
            tuple(each.file for each in indices),
        )
    else:
        batches, parts = tuple(_batches(tree)), ()
    if len(batches) != file.count:
        raise ValueError(f"a list of {len(batches)} batches, not {file.count}")
    return BatchList(Segment(file.name, file.size, file.checksum, file.count), batches, parts)


def _changes(
    before: Mapping[str, ArrangementEntry], now: Mapping[str, ArrangementEntry]
) -> tuple[set[Key], dict[Key, FileEntry]]:
    """Return the keys of the batches that are gone or differ, and the batches that are new or differ, by their keys."""
    gone: set[Key] = set()
    new: dict[Key, FileEntry] = {}
    for name in {**before, **now}:
        old, young = (each[name].shards if name in each else () for each in (before, now))
        for shard in range(max(len(old), len(young))):
            had, has = (each[shard] if shard < len(each) else () for each in (old, young))
            if had is has or had == has:
                continue
            left, right = ({file.name: file for file in files} for files in (had, has))
            gone |= {(name, shard, one) for one, file in left.items() if right.get(one) != file}
            new |= {(name, shard, one): file for one, file in right.items() if left.get(one) != file}
    return gone, new


def listed(arrangements: Mapping[str, ArrangementEntry]) -> Iterator[Listed]:
    """Yield the batches of arrangements, each with its arrangement and shard."""
    for name, entry in arrangements.items():
        for shard, files in enumerate(entry.shards):
            yield from ((name, shard, file) for file in files)


def _listed(batches: Mapping[Key, FileEntry]) -> Iterator[Listed]:
    return ((name, shard, file) for (name, shard, _), file in batches.items())


def _order(file: FileEntry) -> tuple[int, str]:
    """Return the place of a file in its shard: see `compaction.in_order`."""
    return file.run, file.name


def _tree(batches: Iterable[Listed]) -> dict[str, list[list[Any]]]:
    """Return batches as JSON has them: rows by arrangement."""
    found: dict[str, list[list[Any]]] = defaultdict(list)
    for name, shard, file in batches:
        row = [shard, file.name, file.rows, file.size, file.checksum, file.lower, file.upper, file.since]
        row += [file.footer, file.run, *((file.bundle, file.at) if file.bundle else ())]
        found[name].append(row)
    return found


def _batches(tree: Any) -> Iterator[Listed]:
    """Yield the batches that `_tree` wrote. Raises ValueError, TypeError or KeyError for rows that it can't have written."""
    known: dict[Any, tuple[Times | None, Times, Times | None]] = {}
    for arrangement, rows in mapping_of(tree).items():
        for row in rows:
            if len(row) not in (WIDTH - 2, WIDTH):
                raise ValueError(f"a batch of {len(row)} values")
            shard, name, count, size, sum_, lower, upper, since, footer, run = row[: WIDTH - 2]
            bundle, at = row[WIDTH - 2 :] or ("", 0)
            numbers = shard, count, size, run, at
            if {*map(type, numbers)} != {int} or min(numbers) < 0 or max(numbers) >= BEYOND:
                raise ValueError(f"no numbers of a batch: {numbers!r:.80}")
            named(BATCH, name), named(CHECKSUM, sum_), text_of(footer), bundle == "" or named(BUNDLE, bundle)
            key = _single_times(lower, upper, since)
            bounds = known.get(key) if key else None
            if bounds is None:
                bounds = times(lower), frontier_of(upper), times(since)
                if key:
                    known[key] = bounds
            yield arrangement, shard, FileEntry(name, count, size, sum_, *bounds, footer, run, bundle, at)


def _single_times(lower: Any, upper: Any, since: Any) -> tuple[Any, ...] | None:
    """Return the times of three frontiers that have one of one coordinate each, as nearly all do, and many the same; None for others."""
    try:
        ((before,),), ((after,),), ((least,),) = lower, upper, since
    except (ValueError, TypeError):
        return None
    return (before, after, least) if type(before) is type(after) is type(least) is int else None


BUNDLES = "bundles"
"""The directory of a state with its bundles."""
FEW = 8
"""The number of a commit's batch files up to which each is a file of its own: these are flushed together in little more time than one."""
SMALL = 64 << 10
"""The bytes of the largest batch file that is put into a bundle."""
FULL = 8 << 20
"""Bytes of new batches that a bundle takes: they are in memory until the commit. Further batches get files of their own."""
MOST_BUNDLES = 32
"""Bundles of a state that runs in one process have written: each has to be opened by a run that reads a batch of it."""
SLACK = 1 << 20
"""The bytes of dead batches that may be in bundles, beside as many as are alive."""
BLOCK = 512
"""Bytes of a block of tar: a member's header is one, and its content is filled up to whole ones."""
END = bytes(2 * BLOCK)
NAME, PREFIX = 100, 155
"""The bytes that tar has for the last part of a path, and for the parts before it."""


class Bundle:
    """A bundle in the making."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    def add(self, path: str, data: bytes) -> int:
        """Add a file that would have this path in the state; return at which byte it begins."""
        at = self.size + BLOCK
        self._parts += [_header(path, len(data)), data, bytes(-len(data) % BLOCK)]
        self.size += footprint(len(data))
        return at

    def content(self) -> bytes:
        """Return its bytes."""
        return b"".join([*self._parts, END])


def members(content: bytes) -> dict[int, int] | None:
    """Return the size of each member of a bundle by its offset; None where headers, padding or end are not as `Bundle` writes them."""
    found, at = {}, 0
    while any(header := content[at : at + BLOCK]):
        try:
            name, size, folder = header[:NAME], int(header[124:135], 8), header[345 : 345 + PREFIX]
            path = b"/".join(part.rstrip(b"\0") for part in (folder, name)).decode()
        except ValueError:
            return None
        data, end = at + BLOCK, at + footprint(size)
        if header != _header(path, size) or any(content[data + size : end]):
            return None
        found[data], at = size, end
    return found if content[at:] == END else None


def inside(arrangement: str, shard: int, name: str) -> str:
    """Return the path in a state that a batch file has, and its member of a bundle."""
    return f"arrangements/{arrangement}/{shard}/{name}"


def worthwhile(batches: int, *, often: bool) -> bool:
    """Return whether a commit of `batches` batches makes a bundle; if commits come `often`, two batches are enough.

    >>> worthwhile(3, often=False), worthwhile(3, often=True)
    (False, True)
    """
    return batches > (1 if often else FEW)


def fits(path: str, size: int, most: int | None = None) -> bool:
    """Return whether a file may go into a bundle: it has `most` bytes at most, and tar has room for its path."""
    folder, _, name = path.rpartition("/")
    return size <= (SMALL if most is None else most) and len(name) <= NAME and len(folder) <= PREFIX


def alone(file: FileEntry) -> FileEntry:
    """Return the entry of a batch when it has a file of its own."""
    return replace(file, bundle="", at=0) if file.bundle else file


def footprint(size: int) -> int:
    """Return the number of bytes of a bundle that a file of this size takes.

    >>> footprint(1), footprint(512), footprint(513)
    (1024, 1024, 1536)
    """
    return BLOCK - -size // BLOCK * BLOCK


def is_of_task(name: str) -> bool:
    """Return whether a task has written the bundle of this name, which then has the number of its bundle at the end."""
    return "-b" in name


def worn(bundles: Mapping[str, tuple[int, int]], written: int = 0) -> set[str]:
    """Return which bundles, of (bytes, bytes alive), to empty in a commit that has `written` so many bytes itself, those with the smallest part alive first.

    As many as it takes until no more is dead in all others than is alive, `SLACK` aside, and there are no more than `MOST_BUNDLES`. Bundles of tasks are judged by
    themselves: they may be any number, and no more than `FULL` bytes of them are copied, or as many as were written.

    >>> worn({"1": (9 << 20, 1 << 20), "2": (9 << 20, 8 << 20), "3": (1 << 20, 1 << 20)})
    set()
    >>> sorted(worn({"1": (12 << 20, 1 << 20), "2": (9 << 20, 8 << 20), "3": (1 << 20, 0)}))
    ['1', '3']
    """
    emptied = set()
    for of_tasks in (False, True):
        some = {name: each for name, each in bundles.items() if is_of_task(name) == of_tasks}
        size, alive = (sum(each[at] for each in some.values()) for at in (0, 1))
        left, room = len(some), max(FULL, written)
        for name in sorted(some, key=lambda name: (bundles[name][1] / max(1, bundles[name][0]), name)):
            if size <= 2 * alive + SLACK and (of_tasks or left <= MOST_BUNDLES):
                break
            room -= some[name][1]
            if of_tasks and room < 0:
                break
            size, left = size - (some[name][0] - some[name][1]), left - 1
            emptied.add(name)
    return emptied


def _header(path: str, size: int) -> bytes:
    """Return the header of a member, as POSIX has it: a plain file that its owner may write and all may read, of no time and no owner."""
    folder, _, name = path.rpartition("/")
    fields = [name.encode().ljust(NAME, b"\0"), b"0000644\0", b"0000000\0" * 2, b"%011o\0" % size, b"00000000000\0"]
    rest = b"0".ljust(101, b"\0") + b"ustar\x0000".ljust(88, b"\0") + folder.encode().ljust(PREFIX, b"\0")
    before = b"".join(fields)
    total = sum(before) + 8 * ord(" ") + sum(rest)
    return (before + b"%06o\0 " % total + rest).ljust(BLOCK, b"\0")
