"""The manifest: everything that a state consists of, in one JSON file that is replaced as a whole.

The manifest with the highest number is the truth. A file that neither it nor a list or segment of it names (see `batch_lists` and `register`) is not
part of the state. Only the newest is kept: the files that an older one named are removed with it, so a state could not return to it anyway. A
manifest gets its name by a rename after its bytes are on the disk, so a crash leaves no torn one; a damaged one (its checksum is its first field) is
damage to the disk or by hand, and is never skipped in favour of an older one.

This module imports no third-party library: a run with nothing new reads a manifest and nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ddcli.dataclass import frozen
from ddcli.errors import StateError
from ddcli.privacy import hide
from ddcli.store.batch.checked_files import RESTORE
from ddcli.store.files.access import fs, read_bytes
from ddcli.store.files.gate import checksum, one_by_one
from ddcli.store.state.batch_lists import BatchRegister, indices_of
from ddcli.store.state.document import (
    ARRANGEMENT,
    BATCH,
    BRANCH,
    BRANCHES,
    FOLDER,
    IDENTITY,
    MIRROR,
    OF_LOG,
    OF_OUTPUT,
    SEGMENT,
    WAITING,
    WAITING_FOLDER,
    columns_of,
    count_of,
    integer_of,
    mapping_of,
    named,
    path_of,
    text_of,
    texts_of,
)
from ddcli.store.state.entries import (
    ArrangementEntry,
    FileEntry,
    InputEntry,
    InputFile,
    OutputEntry,
    Size,
    Times,
    frontier_of,
    register_of,
    split_path,
)
from ddcli.store.state.register import SEGMENTS, Register, RegisterEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.files.gate import Written
    from ddcli.store.state.batch_lists import BatchList

    Read = Callable[[str], bytes]
T = TypeVar("T", bound=RegisterEntry)

FORMAT = 10
SECRET = 16
"""Bytes of a secret."""
NAME = re.compile(r"([0-9]{9})\.json")
LAST = 999_999_999
BUSY = "the state was committed during each attempt, and files of earlier commits are gone: repeat the command between runs"

_LATELY: dict[Path, tuple[Manifest, bytes, str | None]] = {}
"""The manifest that was read or written last, and its bytes: a run looks several times which is the newest, and a round of a watch reads the one of the last round.

If it was read from an object store, it has an entity tag: while a listing has the same one it is not fetched again."""


def nothing_planned() -> dict[str, Any]:
    """Return the driver's cache for a pipeline without inputs and outputs."""
    return {"time": {}, "seen": None, "plan": {"generations": [], "outline": {"outputs": {}, "nodes": {}}}}


def branch_of(directory: Path) -> tuple[str, int] | None:
    """Return the name of the branch that has a directory, and the number of the commit that it began at; None for the directory of another state.

    >>> from pathlib import PurePath
    >>> branch_of(PurePath(".dd/sales/branches/q4@000000012"))
    ('q4', 12)
    """
    found = BRANCH.fullmatch(directory.name) if directory.parent.name == BRANCHES else None
    return None if found is None else (found[1], int(found[2]))


def home_of(directory: Path, name: str) -> Path:
    """Return the directory of the state that a file in a manifest's directory belongs to: of a branch, all files up to the commit that it began at are main's.

    Names of batches, bundles and segments begin with the number of their commit, and a branch counts on from main's. So no file
    of a branch has the number of one that it shares.

    >>> from pathlib import PurePath
    >>> branch = PurePath(".dd/sales/branches/q4@000000012")
    >>> [str(home_of(branch, name)) for name in ("000000012-0001.parquet", "000000013-0001.parquet")]
    ['.dd/sales', '.dd/sales/branches/q4@000000012']
    """
    branch = branch_of(directory)
    return directory.parent.parent if branch and int(name[:9]) <= branch[1] else directory


def renaming(source: Any, target: Any) -> tuple[str, str]:
    """Return a renaming within one directory: one that publishes a file of an output or a mirror from its temporary name, or one that retires it.

    >>> renaming("../out/.updates-0-1.parquet.000000001.dd-tmp", "../out/updates-0-1.parquet")[1]
    '../out/updates-0-1.parquet'
    """
    (before, waiting), (directory, name) = split_path(path_of(source)), split_path(path_of(target))
    if (BATCH if MIRROR.fullmatch(directory) else OF_LOG).fullmatch(waiting):
        named(WAITING, name)
    elif FOLDER.fullmatch(name):
        named(WAITING_FOLDER, waiting)
    else:
        named(WAITING, waiting)
        if MIRROR.fullmatch(directory) or not OF_LOG.fullmatch(name):
            named(BATCH if MIRROR.fullmatch(directory) else OF_OUTPUT, name)
    if before != directory:
        raise ValueError(f"a renaming to another directory: {target!r:.80}")
    return source, target


@frozen
class Manifest:
    """A state, whole.

    `pipeline` is the SHA-256 of the pipeline file's bytes, `plan` the fingerprint of its physical graph. `publish` holds
    (temporary, final) paths relative to the state: renames that belong to this commit and may be done again. `exports` are the
    arrangements that other pipelines may read, by name. `secret` is the key of the hash of values, in hexadecimal digits (see
    `engine.secret`): the order of rows in batches and the shard of a key depend on it. `cache` belongs to the driver. `identity` distinguishes
    the state from others; `file` is the pipeline file that it belongs to, relative to the state (see `outputs`). `bundles` are
    those that have batches, with their sizes.
    """

    name: str
    upper: Times
    number: int = 0
    pipeline: str = ""
    plan: str = ""
    engine: str = ""
    inputs: dict[str, InputEntry] = field(default_factory=dict)
    arrangements: dict[str, ArrangementEntry] = field(default_factory=dict)
    outputs: dict[str, OutputEntry] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    publish: tuple[tuple[str, str], ...] = ()
    secret: str = ""
    cache: dict[str, Any] = field(default_factory=nothing_planned)
    identity: str = ""
    file: str = ""
    bundles: dict[str, int] = field(default_factory=dict)
    batches: BatchRegister | None = field(default=None, compare=False, repr=False)
    """The register of the batches, as the file has it; None before it is written. Another manifest made of this one may have other arrangements: see `batch_register`."""

    @property
    def files(self) -> list[FileEntry]:
        """The batch files of all arrangements."""
        return [file for entry in self.arrangements.values() for file in entry.files]

    @property
    def size(self) -> Size:
        """The size of the state: of its batches, and in bytes also of its inputs' ledgers."""
        batches, ledgers = (
            Size.of(self.files),
            [file for entry in self.inputs.values() for file in (*entry.ledger, *entry.keys)],
        )
        return replace(batches, bytes=batches.bytes + Size.of(ledgers).bytes)

    @property
    def reopenings(self) -> int:
        """Return how often the state was reopened: files that are written after a reopening have names of their own."""
        return int(self.cache.get("reopenings", 0))

    @property
    def secret_bytes(self) -> bytes:
        """Return the secret as bytes."""
        return bytes.fromhex(self.secret)

    def numbered(self, number: int, publish: tuple[tuple[str, str], ...], identity: str = "") -> Manifest:
        """Return the manifest as a commit writes it."""
        return replace(self, number=number, publish=publish, identity=identity)

    def stored(
        self,
        before: Manifest | None,
        write: Callable[[bytes], tuple[str, Written]],
        indices: Sequence[BatchList] = (),
    ) -> Manifest:
        """Return the manifest with registers that go on from the registers of the one before; `write` makes segments and lists of them, tasks have made `indices` of batches."""

        def stored(kind: type[T], files: Sequence[T], known: Sequence[T]) -> Register[T]:
            return register_of(kind, known).become(files).stored(write)

        old = before or Manifest("", ())
        inputs, outputs = {}, {}
        for name, given in self.inputs.items():
            known = old.inputs[name].files if name in old.inputs else ()
            inputs[name] = replace(given, files=stored(InputFile, given.files, known))
        for name, made in self.outputs.items():
            wrote = old.outputs[name].files if name in old.outputs else ()
            outputs[name] = replace(made, files=stored(FileEntry, made.files, wrote))
        batches = old.batch_register().become(self.arrangements).stored(write, indices)
        return replace(self, inputs=inputs, outputs=outputs, batches=batches)

    def read_anew(self) -> Manifest:
        """Return the manifest for reading inputs from the beginning: without the newest tables so far."""
        schemas = {name: {k: v for k, v in each.schema.items() if k != "newest"} for name, each in self.inputs.items()}
        return replace(self, inputs={name: replace(each, schema=schemas[name]) for name, each in self.inputs.items()})

    def batch_register(self) -> BatchRegister:
        """Return the register of the batches of its arrangements."""
        if self.batches is not None and self.batches.arrangements is self.arrangements:
            return self.batches
        return BatchRegister.of(self.arrangements)

    def segments(self) -> Iterator[str]:
        """Yield the names of the segments that its registers have, and of the lists of its batches."""
        inputs, outputs = ([entry.files for entry in entries.values()] for entries in (self.inputs, self.outputs))
        for files in (*inputs, *outputs):
            if isinstance(files, Register):
                yield from (segment.name for segment in files.segments)
        for each, _ in self.batch_register().lists:
            yield each.file.name
            yield from (part.name for part in each.parts)

    def to_bytes(self) -> bytes:
        """Return the manifest as the JSON text that `read_manifest` reads; the first field is the checksum of all after it."""
        tree = {"format": FORMAT} | {name: getattr(self, name) for name in FIELDS}
        tree["batches"] = self.batch_register().to_json()
        text = json.dumps(tree, default=lambda entry: entry.to_json(), ensure_ascii=False, separators=(",", ":"))
        rest = text.encode()[1:] + b"\n"
        return _head(rest) + rest

    @classmethod
    def from_json(cls, tree: dict[str, Any], read: Read, known: Collection[BatchList] = ()) -> Self:
        """Return the manifest of a JSON tree; `read` returns the content of a segment, or of a list that is not `known`.

        Raises KeyError, TypeError or ValueError for content that `dd` never writes.
        """

        def each(name: str, from_json: Callable[..., Any], *more: Any) -> dict[str, Any]:
            return {key: from_json(entry, *more) for key, entry in mapping_of(tree[name]).items()}

        plain = {name: tree[name] for name in FIELDS}
        if len(bytes.fromhex(text_of(tree["secret"]))) not in (0, SECRET):
            raise ValueError("no secret")
        for name in ("name", "pipeline", "plan", "engine"):
            text_of(tree[name])
        if tree["file"]:
            path_of(tree["file"])
        named(IDENTITY, tree["identity"])
        count_of(tree["number"])
        check_cache(mapping_of(tree["cache"]))
        plain["upper"] = frontier_of(tree["upper"])
        plain["publish"] = tuple(renaming(source, target) for source, target in tree["publish"])
        plain["inputs"] = each("inputs", InputEntry.from_json, read)
        plain["batches"] = BatchRegister.from_json(mapping_of(tree["batches"]), read, known)
        counts = {name: count_of(entry["shards"]) for name, entry in mapping_of(tree["arrangements"]).items()}
        shards = plain["batches"].shards(counts)
        plain["arrangements"] = plain["batches"].arrangements = {
            name: ArrangementEntry.from_json(entry, shards[name]) for name, entry in tree["arrangements"].items()
        }
        plain["outputs"] = each("outputs", OutputEntry.from_json, read)
        for identity, entry in plain["arrangements"].items():
            named(ARRANGEMENT, identity)
            check_bundles(entry, mapping_of(tree["bundles"]))
        if not set(mapping_of(tree["exports"]).values()) <= plain["arrangements"].keys():
            raise ValueError("an export of no arrangement")
        return cls(**plain)


def check_bundles(entry: ArrangementEntry, bundles: Mapping[str, Any]) -> None:
    """Check that the bundles of an arrangement's batches are among these. Raises as `Manifest.from_json` does."""
    for shard in entry.shards:
        for file in shard:
            if file.bundle and file.at + file.size > count_of(bundles[file.bundle]):
                raise ValueError(f"a batch beyond the end of its bundle: {file.name!r:.80}")


def check_cache(cache: Mapping[str, Any]) -> None:
    """Check the form of the driver's part. Raises as `Manifest.from_json` does."""
    time, seen, plan = columns_of(cache["time"]), cache["seen"], cache["plan"]
    if seen is not None and len([integer_of(value) for value in seen]) != len(time):
        raise ValueError("as many times seen as there are coordinates")
    if cache.get("due") is not None:
        integer_of(cache["due"])
    count_of(cache.get("reopenings", 0)), count_of(cache.get("forgot", 0))
    for identity, number in mapping_of(cache.get("built", {})).items():
        named(ARRANGEMENT, identity), count_of(number)
    for files in (
        *mapping_of(cache.get("unclean", {})).values(),
        *mapping_of(cache.get("forgotten_rows", {})).values(),
    ):
        texts_of([text for pair in mapping_of(files).items() for text in pair])
    for name, horizon in mapping_of(cache.get("horizons", {})).items():
        text_of(name), integer_of(horizon)
    if cache.get("clock", "event") not in {"arrival", "event"}:
        raise ValueError(f"no clock: {cache['clock']!r:.80}")
    _check_plan(mapping_of(plan))


def _check_plan(plan: Mapping[str, Any]) -> None:
    """Check the form of the kept parts of a plan. Raises as `Manifest.from_json` does."""
    for generation in plan["generations"]:
        texts_of(generation["once"])
        for name, words in (("read", ("once", "several")), ("joins", ("first", "written"))):
            if name in generation:
                for word in words:
                    texts_of(mapping_of(generation[name])[word])
        for joined in mapping_of(generation.get("deltas") or {}).values():
            if not isinstance(joined, bool):
                raise ValueError("joins that neither are delta joins nor are not")  # noqa: TRY004 - as in text_of
        for filters in mapping_of(generation.get("wholes") or {}).values():
            if not all(isinstance(above, bool) for above in mapping_of(filters).values()):
                raise ValueError("filters that are neither asked of joins nor below them")
        for columns in mapping_of(generation["columns"]).values():
            texts_of(columns)
    texts_of([text for pair in mapping_of(plan.get("work", {})).items() for text in pair])
    outline = plan["outline"]
    texts_of(list(mapping_of(outline["outputs"]).values()))
    texts_of([text for pair in mapping_of(outline.get("collections", {})).items() for text in pair])
    for names in mapping_of(outline.get("tables", {})).values():
        texts_of(names)
    for kind, words, inputs in mapping_of(outline["nodes"]).values():
        texts_of([kind, words]), texts_of(inputs)


FIELDS = tuple(entry.name for entry in fields(Manifest) if entry.name != "batches")


def check_number(number: Any, path: Path) -> None:
    """Raise ValueError if a manifest has another number than its name, or there can be no next one."""
    if number != int(path.stem) or number >= LAST:
        raise ValueError(f"it has the number {number!r:.80}")


def _head(rest: bytes) -> bytes:
    return b'{"crc32":"%s",' % checksum(rest).encode()


def manifest_path(state: Path, number: int) -> Path:
    """Return the path of the manifest with this number."""
    return state / "manifest" / f"{number:09d}.json"


def manifest_numbers(state: Path) -> list[int]:
    """Return the numbers of the manifests in a state, in order. Temporary files are none."""
    return sorted(int(entry.path.stem) for entry in fs(state / "manifest").entries(NAME))


def read_newest(state: Path) -> Manifest | None:
    """Return the manifest that is the truth, or None where there is no state.

    Takes no lock: a manifest is replaced as a whole. When a commit drops the one that was just found, look again.
    """
    while found := fs(state / "manifest").entries(NAME):
        newest = max(found, key=lambda entry: entry.path.name)
        try:
            manifest = read_manifest(newest.path, newest.tag)
        except FileNotFoundError:
            continue
        hide({}, manifest.identity)
        return manifest
    return None


def read_manifest(path: Path, tag: str | None = None) -> Manifest:
    """Read one manifest and the segments that it names. Another format or a damaged file is a `StateError` (exit code 4).

    An object with this entity `tag` is not read if it was the last one. Raises FileNotFoundError if it isn't there (any more).
    """
    lately, content, its_tag = _LATELY.get(path, (None, b"", None))
    if lately is not None and tag is not None and tag == its_tag:
        return lately
    data = read_bytes(path)
    if lately is not None and data == content:
        remember(path, data, lately, tag or its_tag)
        return lately
    damaged = StateError("the manifest of the state is damaged", place=str(path), hint=RESTORE)
    try:
        tree = json.loads(data)
        version = tree["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged from None
    # The version is judged first: a newer format may well put its checksum elsewhere.
    if isinstance(version, int) and version > FORMAT:
        raise StateError(
            f"the state was written by a newer version: its format is {version}, this version reads {FORMAT}",
            place=str(path),
            hint="run a newer `dd`, or use another state directory with `--state`",
        )
    rest = data[len(_head(b"")) :]
    if data != _head(rest) + rest or not isinstance(version, int):
        raise damaged
    if version < FORMAT:
        raise StateError(
            f"the state was written by an older version: its format is {version}, this version reads {FORMAT}",
            place=str(path),
            hint="run that version, or start again: `dd reset PIPELINE --outputs`",
        )
    state = path.parent.parent
    fetched: dict[str, bytes] = {}

    def read(name: str) -> bytes:
        if name in fetched:
            return fetched[name]
        try:
            return read_bytes(home_of(state, name) / SEGMENTS / name)
        except FileNotFoundError:
            if not fs(path).exists():
                raise  # both were dropped by a commit meanwhile
            raise StateError(
                "a file of the state is gone", place=str(home_of(state, name) / SEGMENTS / name), hint=RESTORE
            ) from None

    try:
        check_number(tree["number"], path)
        lists = _known_lists(path)
        if not fs(path).is_local:  # a request each: they go side by side
            places = [
                home_of(state, name) / SEGMENTS / name
                for name in _segments_of(tree) - {each.file.name for each in lists}
            ]
            one_by_one(lambda place: fetched.update({place.name: read(place.name)}), places)
            rows = tree["batches"]["lists"]
            indices = [
                home_of(state, name) / SEGMENTS / name
                for name in indices_of(fetched[row[0]] for row in rows if row[0] in fetched)
            ]
            one_by_one(lambda place: fetched.update({place.name: read(place.name)}), indices)
        manifest = Manifest.from_json(tree, read, lists)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(
            f"the manifest of the state has content that `dd` never writes: {error}", place=str(path), hint=RESTORE
        ) from None
    remember(path, data, manifest, tag)
    return manifest


def _known_lists(path: Path) -> list[BatchList]:
    """Return the lists of the manifest that was read or written last, if it is of the same state: most of them are in the next one, too."""
    known = [manifest.batches for other, (manifest, *_) in _LATELY.items() if other.parent == path.parent]
    return [each for batches in known if batches is not None for each, _ in batches.lists]


def _segments_of(tree: dict[str, Any]) -> set[str]:
    """Return the names of the segments and lists that a manifest's JSON has."""
    registers = (*mapping_of(tree["inputs"]).values(), *mapping_of(tree["outputs"]).values())
    rows = [row for each in registers for row in each["segments"]]
    rows += tree["batches"]["lists"]
    return {named(SEGMENT, row[0]) for row in rows}


def remember(path: Path, data: bytes, manifest: Manifest, tag: str | None = None) -> None:
    """Remember the manifest that these bytes hold: a later read of the same bytes at this path need not parse them."""
    _LATELY.clear()
    _LATELY[path] = manifest, data, tag
