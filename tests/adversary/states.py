"""What somebody does to a state and to an output: other things in the place of each file, and other words in each file of JSON."""

from __future__ import annotations

import json
import os
import socket
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.store.files.gate import checksum
from tests.adversary.case import Case
from tests.adversary.shop import forge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.adversary.shop import Shop

TREE = "../elsewhere"
"""The canary's tree, as seen from the shop's folder."""


def places(shop: Shop) -> list[str]:
    """Return each path of a state and an output that commands use, and those that they are about to make."""
    there = [path.relative_to(shop.folder) for root in (shop.state, shop.output) for path in (root, *root.rglob("*"))]
    number = int(shop.manifest.stem) + 1
    batch = next(path for path in there if "arrangements" in path.parts and path.suffix == ".parquet").parent
    updates = "updates-4-5.parquet"
    coming = [
        ".dd/shop/spill",
        f".dd/shop/spill/{0:06d}",
        f".dd/shop/manifest/{number:09d}.json",
        f".dd/shop/manifest/.{number:09d}.json.{number:09d}.dd-tmp",
        f".dd/shop/runs/{number:09d}.json",
        f"{batch}/{number:09d}-0000.parquet",
        f"{batch}/.{number:09d}-0000.parquet.{number:09d}.dd-tmp",
        "out/totals/_lock",
        f"out/totals/{updates}",
        f"out/totals/.{updates}.{number:09d}.dd-tmp",
        f"out/totals/._progress.json.{number:09d}.dd-tmp",
        f".dd/shop/errors/.{updates}.{number:09d}.dd-tmp",
        ".dd/shop/arrangements/strange",
        "copy",
        "copy/manifest",
        "copy/LOCK",
    ]
    return sorted({*map(str, there), *coming})


def remove(path: Path) -> None:
    """Remove a file, or a directory with all in it."""
    if path.is_dir() and not path.is_symlink():
        for below in path.iterdir():
            remove(below)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def to_tree(shop: Shop, path: Path) -> None:
    path.symlink_to(shop.canary.tree)


def to_file(shop: Shop, path: Path) -> None:
    path.symlink_to(shop.canary.tree / ".profile")


def to_nothing(shop: Shop, path: Path) -> None:
    path.symlink_to(shop.canary.tree / "new")


def to_itself(_shop: Shop, path: Path) -> None:
    path.symlink_to(path.name)


def a_pipe(_shop: Shop, path: Path) -> None:
    os.mkfifo(path)


def a_socket(_shop: Shop, path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path has 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name[:90])
    finally:
        os.chdir(here)


def a_device(_shop: Shop, path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        os.mkfifo(path)


def a_directory(_shop: Shop, path: Path) -> None:
    path.mkdir()
    (path / "mine.txt").write_text("mine")


def a_file(_shop: Shop, path: Path) -> None:
    path.write_text("another's")


def a_second_name(shop: Shop, path: Path) -> None:
    path.hardlink_to(shop.canary.tree / ".profile")


def a_closed_file(_shop: Shop, path: Path) -> None:
    path.write_text("another's")
    path.chmod(0)


def a_closed_directory(_shop: Shop, path: Path) -> None:
    path.mkdir(mode=0)


def a_deep_file(_shop: Shop, path: Path) -> None:
    path.write_bytes(b"[" * 200_000)


def a_file_of_holes(_shop: Shop, path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


THINGS: tuple[Callable[[Shop, Path], None], ...] = (
    to_tree,
    to_file,
    to_nothing,
    to_itself,
    a_pipe,
    a_socket,
    a_device,
    a_directory,
    a_file,
    a_second_name,
    a_closed_file,
    a_closed_directory,
    a_deep_file,
    a_file_of_holes,
)


def replaced(shop: Shop) -> Iterator[Case]:
    """Yield each path with something else in its place. What a link replaces is not made anew: that leads into the tree as well."""

    def do(place: str, thing: Callable[[Shop, Path], None], shop: Shop) -> None:
        path = shop.folder / place
        remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        thing(shop, path)

    for place in places(shop):
        for thing in THINGS:
            if place in {".dd/shop", "out/totals", "copy"} and thing in {to_nothing, a_closed_directory}:
                continue  # a root may be reached through a link, which may lead to a new directory
            yield Case(f"{place} is {thing.__name__}", partial(do, place, thing))


HOSTILE: tuple[Any, ...] = (
    "../../../elsewhere/.profile",
    "../../elsewhere",
    "../elsewhere/docs",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a\0b",
    "x" * 70_000,
    "\x1b[2J\x1b]0;owned\x07\n::error::owned",
    "\ud800",
    "s3://bucket/key",
    "file:///etc/passwd",
    "list[" * 20_000,
    "${HOME}",
    "*",
    "string",
    "date",
    -1,
    0,
    1,
    2,
    999_999_999,
    1 << 70,
    1e308,
    None,
    True,
    [],
    {},
    [[]],
)


def spots(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where in a tree of JSON there is a value; of a key of a mapping with `None` at the end."""
    if path:
        yield path
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        if isinstance(tree, dict) and path:
            yield (*path, key, None)
        yield from spots(value, (*path, key))


def with_other(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a tree with another value, or with another key, in a place."""
    if not path:
        return value
    if path[1:] == (None,):
        return {
            (value if isinstance(value, str) else str(value)) if key == path[0] else key: v for key, v in tree.items()
        }
    if isinstance(tree, dict):
        return {key: with_other(v, path[1:], value) if key == path[0] else v for key, v in tree.items()}
    return [with_other(v, path[1:], value) if at == path[0] else v for at, v in enumerate(tree)]


def said(shop: Shop) -> Iterator[Case]:
    """Yield each file of JSON with each of its values, and keys, replaced by something hostile."""

    def do(place: str, spot: tuple[Any, ...], value: Any, shop: Shop) -> None:
        path = shop.folder / place
        tree = with_other(json.loads(path.read_bytes()), spot, value)
        if path.parent.name == "manifest":
            forge(path, tree)
            return
        data = json.dumps(tree).encode()
        path.write_bytes(data)
        if path.parent.name == "registers":
            shop.forge(_with_segment(json.loads(shop.manifest.read_bytes()), path.name, data))

    files = [shop.manifest, shop.reader_manifest, *shop.state.glob("holds/*.json")]
    files += [shop.state / "LOCK", shop.output / "_progress.json"]
    files += sorted(shop.state.glob("runs/*.json"))[-1:] + sorted(shop.state.glob("registers/*.json"))
    for path in files:
        place = str(path.relative_to(shop.folder))
        for spot in spots(json.loads(path.read_bytes())):
            for value in HOSTILE:
                where = ".".join(map(str, spot))
                yield Case(f"{place} says {value!r:.40} at {where}", partial(do, place, spot, value))


def _with_segment(tree: Any, name: str, data: bytes) -> Any:
    """Return a manifest that says of a segment or a list what is now so."""
    if isinstance(tree, dict):
        return {key: _with_segment(value, name, data) for key, value in tree.items()}
    if isinstance(tree, list) and tree[:1] == [name]:
        return [name, len(data), checksum(data), *tree[3:]]
    return [_with_segment(value, name, data) for value in tree] if isinstance(tree, list) else tree


PATHS = (
    TREE,
    f"../../{TREE}",
    f"../../{TREE}/docs",
    f"../../{TREE}/new",
    f"../../../../{TREE}/0",
    f"../../{TREE}/.profile",
    "000000001-0000.parquet",
    "updates-start-2.parquet",
)


def paths(shop: Shop) -> Iterator[Case]:
    """Yield manifests in which a text, wherever it is, leads into the tree; and those in which only one thing does."""

    def do(spot: tuple[Any, ...], value: str, less: dict[str, Any], shop: Shop) -> None:
        tree = json.loads(shop.manifest.read_bytes()) | less
        if less:
            tree["outputs"]["totals"]["files"] = []
        tree = with_other(tree, spot, str(shop.canary.tree / ".profile") if value == "/" else value)
        shop.forge(tree)

    tree = json.loads(shop.manifest.read_bytes())
    for spot in spots(tree):
        if spot[-1] is not None and not isinstance(_at(tree, spot), str):
            continue
        for value in (*PATHS, "/"):
            yield Case(f"{value} at {'.'.join(map(str, spot))}", partial(do, spot, value, {}))
    for value in PATHS:  # an output of which no file is missed
        yield Case(f"an empty output at {value}", partial(do, ("outputs", "totals", "path"), value, {"publish": []}))
        old = {"publish": [], "format": 3}
        yield Case(f"an empty output of before at {value}", partial(do, ("outputs", "totals", "path"), value, old))


def _at(tree: Any, spot: tuple[Any, ...]) -> Any:
    for key in spot:
        tree = tree[key]
    return tree


def publishing(shop: Shop) -> Iterator[Case]:
    """Yield manifests that would have files renamed, where the file to rename is there."""
    names = (".updates-start-2.parquet.000000001.dd-tmp", "updates-start-2.parquet", ".profile", "evil.txt", "LOCK")
    folders = ("", "arrangements/", "late/sales/", TREE + "/", "../../" + TREE + "/", "../../out/totals/")

    def do(source: str, target: str, shop: Shop) -> None:
        tree = json.loads(shop.manifest.read_bytes())
        path = shop.state / source
        if not path.exists() and path.parent.is_dir() and "elsewhere" not in source:
            path.write_text("evil")
        shop.forge(tree | {"publish": [[source, target]]})

    for source in (folder + name for folder in folders for name in names):
        for target in (folder + name for folder in folders for name in names):
            yield Case(f"publish {source} as {target}", partial(do, source, target))


def strangers(shop: Shop) -> Iterator[Case]:
    """Yield directories of other people in the place of a state, with names like ours; and what they keep in a state or an output."""

    def instead(name: str, shop: Shop) -> None:
        remove(shop.state)
        where = shop.state / name
        where.mkdir(parents=True)
        for file in ("letter.txt", "000000001-0000.parquet", "000000"):
            (where / file).write_text("dear reader")

    def beside(name: str, shop: Shop) -> None:
        path = shop.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("dear reader")

    for name in ("arrangements", "arrangements/people/0", "spill", "manifest", "holds", "runs", "late/sales", "errors"):
        yield Case(f"another's {name}", partial(instead, name), kept=(f".dd/shop/{name}",))
    directories = sorted({path for path in (shop.state, *shop.state.rglob("*"), shop.output) if path.is_dir()})
    for directory in (*directories, shop.state / "spill", shop.state / "arrangements/music/1"):
        for name in ("letter.txt", ".hidden", "draft.dd-tmp", ".mine.dd-tmp", "mine/letter.txt"):
            place = str((directory / name).relative_to(shop.folder))
            yield Case(f"a stranger: {place}", partial(beside, place), kept=(place,))


GENERATORS = (replaced, said, paths, publishing, strangers)
