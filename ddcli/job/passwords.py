"""The passwords that the environment has for databases, and the servers that may get them.

A pipeline file may be a stranger's, and a server may ask a client for its password in clear text. So no password goes to a server that only the
file names: it is a person's own if the environment names it, too.
"""

from __future__ import annotations

import os
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ddcli.errors import InputError
from ddcli.spec.variables import is_given

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
