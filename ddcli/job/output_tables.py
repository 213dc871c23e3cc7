"""Outputs that are tables of other programs, and the test whether each is up to its log. Imports no third-party library: a run with nothing new looks here."""

from __future__ import annotations

import hashlib
import os
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddcli.errors import InputError
from ddcli.spec.model import DATABASE, SPARK, database_file
from ddcli.spec.variables import is_given
from ddcli.store.files.access import is_there, real
from ddcli.store.files.objects import locate
from ddcli.store.mirrors.delta_commits import is_as_left
from ddcli.store.state.register import keys_of, pick
from ddcli.store.tables.file_identity import size_and_time
from ddcli.store.targets.mark import directory_of, read_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.spec.model import Spec, TargetSpec
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.targets.mark import CommitRecord


LOCAL = {"", "localhost", "127.0.0.1", "::1"}
"""The names of this machine; directories with a socket are on it, too."""


def check_server(uri: str) -> None:
    """Raise InputError if a password of the environment would go to a server that only the file names."""
    if is_given(uri):
        return
    if uri.startswith("mysql"):
        options = _client_options()
        own = [os.environ.get("MYSQL_HOST", ""), options.get("host", "")]
        source = "MYSQL_PWD" if os.environ.get("MYSQL_PWD") else "~/.my.cnf" if options.get("password") else ""
        _check([urlsplit(uri).hostname or ""], own, source, "MYSQL_HOST")
    elif uri.startswith("postgres"):
        from psycopg.conninfo import conninfo_to_dict

        _check_postgres(str(conninfo_to_dict(uri).get("host") or "").split(","))


def check_catalog(properties: Mapping[str, str]) -> None:
    """Raise InputError if a password of the environment would go to the server of a catalog that a file describes."""
    uri = properties.get("uri", "")
    if uri.startswith("postgres") and not is_given(uri):
        from sqlalchemy.engine import make_url

        _check_postgres([make_url(uri).host or ""])


def _check_postgres(hosts: Iterable[str]) -> None:
    _check(hosts, os.environ.get("PGHOST", "").split(","), _password_of_postgres(), "PGHOST")


def _password_of_postgres() -> str:
    """Return the name of the place with a password that libpq would send to any server; a line of ~/.pgpass is for the host that it names."""
    for variable in ("PGPASSWORD", "PGSERVICE"):
        if os.environ.get(variable):
            return variable
    named = os.environ.get("PGPASSFILE") or os.path.expanduser("~/.pgpass")  # noqa: PTH111 - that of `Path` is an error where the user has no home
    try:
        lines = Path(named).read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return f"{named}, which has a line for all hosts," if any(line.startswith("*:") for line in lines) else ""


def _client_options() -> Mapping[str, str]:
    """Return the options of [client] in ~/.my.cnf, which a connection has."""
    found = RawConfigParser(allow_no_value=True, strict=False)
    try:
        found.read(os.path.expanduser("~/.my.cnf"), "utf-8")  # noqa: PTH111 - as above
    except (Error, OSError, UnicodeDecodeError):
        return {"password": "?"}
    return {name: value or "" for name, value in found["client"].items()} if found.has_section("client") else {}


def _check(hosts: Iterable[str], own: Iterable[str], source: str, variable: str) -> None:
    known = {*LOCAL, *(host.strip("'\"").lower() for host in own)}
    for host in hosts:
        if source and host.lower() not in known and not host.startswith("/"):
            more = "; or write it to ~/.pgpass, with this host" if variable == "PGHOST" else ""
            raise InputError(
                f"the password of {source} would go to '{host}', which only the pipeline file names",
                hint=f"if it is yours, set {variable}={host}, or the whole URI as a variable: `${{DATABASE}}`{more}",
            )


def catalogue_file(uri: str, base: Path) -> Path:
    """Return the file of a catalogue of DuckLake; of one on a server a name in the directory where relative paths begin."""
    return real(locate(base, database_file(uri) or "catalogue"))


def is_followed(spec: Spec, base: Path, state: Path, manifest: Manifest) -> bool:
    """Return whether the tables of all outputs seem to be up to their logs, and as their last commits left them."""
    for name, output in spec.outputs.items():
        if output.target is None or name not in manifest.outputs:
            continue
        marks = read_marks(directory_of(state, name))
        if marks.done is None or marks.next is not None:
            return False
        if place_in(manifest.outputs[name], output.target, base) != (marks.done.log, marks.done.upto):
            return False
        if not _is_as_left(output.target, base, marks.done):
            return False
    return True


def place_in(log: OutputEntry, target: TargetSpec, base: Path) -> tuple[str, int]:
    """Return the end of a log: its identity, and the commit that wrote to it last. The identity is another one for each form of a history, and each file that it begins from."""
    keys = [*keys_of(log.files)][-1:]
    identity = log.log
    if target.history:
        parts = [log.log, *([text.value for text in columns] for columns in (target.history, target.track))]
        if target.begin is not None:
            parts.append(_beginning(real(locate(base, target.begin.value))))
        form = repr(tuple(parts))
        identity = hashlib.sha256(form.encode()).hexdigest()[:16]
    return identity, max((file.commit for file in pick(log.files, keys)), default=0)


def _beginning(path: Path) -> list[Any]:
    """Return how a file is told from a later one: with none, the history can't be written."""
    return [str(path), size_and_time(path) if is_there(path) else {}]


def place_of(target: TargetSpec, base: Path) -> Path:
    """Return the path of a table that is in no catalog, or of the file of its database."""
    path = database_file(target.place.value) if target.kind == DATABASE else target.place.value
    return real(locate(base, path))


def stated(target: TargetSpec) -> dict[str, Any]:
    """Return a table's place in a database, or in Spark with its key, as the file states it: anything more would need a server's answer."""
    if target.kind == SPARK:
        return {SPARK: target.place.value, "key": [text.value for text in target.key]}
    return {"to": target.place.value, "table": target.called}


def _is_as_left(target: TargetSpec, base: Path, mark: CommitRecord) -> bool:
    if target.kind == "delta":
        return is_as_left(place_of(target, base), mark.left)
    if target.kind == DATABASE:
        return mark.left == stated(target) and (target.product == "postgres" or is_there(place_of(target, base)))
    if target.kind == SPARK:
        return {name: mark.left.get(name) for name in stated(target)} == stated(target)
    if target.kind == "parquet":
        path = place_of(target, base)
        return is_there(path) and mark.left == size_and_time(path)
    return True
