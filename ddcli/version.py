"""The version of the package, the place that it was installed from, and the extra of it that brings each package that only some pipelines need."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ddcli.errors import UsageError

__version__ = "0.1.0"

NAME = "ddcli"
INSTALLERS = {"pipx_metadata.json": "pipx install --force", "uv-receipt.toml": "uv tool install"}
"""The commands that install a program into its own environment, and the file that each leaves there."""


def origin() -> dict[str, Any] | None:
    """Return the source that the package was installed from, in the form of PEP 610; None where an index had it."""
    import json
    from importlib import metadata

    checkout = Path(__file__).resolve().parents[1]
    try:
        recorded = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        here = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
        return here if (checkout / "pyproject.toml").exists() else None
    found: dict[str, Any] | None = json.loads(recorded) if recorded else None
    return found


def install_command(extra: str = "") -> str:
    """Return the command that installs the package from where this one came from, with an extra.

    Nobody has registered the name in the public index: a command with the name alone could install somebody else's code.
    """
    from shlex import quote

    source, wanted = origin(), f"[{extra}]" if extra else ""
    command = next((each for file, each in INSTALLERS.items() if Path(sys.prefix, file).exists()), "pip install")
    if source is None:
        return f"{command} {quote(NAME + wanted)}"
    path = local_path(source)
    if path is not None:
        editable = "--editable " if source.get("dir_info", {}).get("editable") else ""
        return f"{command} {editable}{quote(path + wanted)}"
    return f"{command} {quote(f'{NAME}{wanted} @ {remote_url(source)}')}"


def local_path(source: dict[str, Any]) -> str | None:
    """Return the path of a source on this machine; None for one that other machines can read as well."""
    from urllib.request import url2pathname

    parts = urlsplit(source["url"])
    return url2pathname(parts.path) if parts.scheme == "file" and "vcs_info" not in source else None


def remote_url(source: dict[str, Any]) -> str:
    """Return the URL of a source as pip takes it: without a password, and at the commit that was installed."""
    parts = urlsplit(source["url"])
    user, _, host = parts.netloc.rpartition("@")
    # `git@host` names an account that everybody uses; anything longer may be a token.
    url = urlunsplit(parts._replace(netloc=f"git@{host}" if user == "git" else host, fragment=""))
    if control := source.get("vcs_info"):
        url = f"{control['vcs']}+{url}@{control['commit_id']}"
    folder = source.get("subdirectory")
    return f"{url}#subdirectory={folder}" if folder else url


EXTRAS = {
    "dagster": ("assets of Dagster", "dagster"),
    "deltalake": ("tables of Delta Lake", "delta"),
    "duckdb": ("databases of DuckDB", "duckdb"),
    "obstore": ("paths that begin with s3://, gs:// or az://", "s3"),
    "opentelemetry-exporter-otlp-proto-http": ("traces and metrics of OpenTelemetry", "otel"),
    "openpyxl": ("Excel workbooks", "excel"),
    "prometheus_client": ("metrics", "metrics"),
    "openlineage-python": ("events of OpenLineage", "openlineage"),
    "psycopg": ("databases of Postgres", "postgres"),
    "pymysql": ("databases of MySQL", "mysql"),
    "pyiceberg": ("tables of Iceberg", "iceberg"),
    "sqlalchemy": ("catalogs of Iceberg in databases", "iceberg"),
}
MODULES = {
    "openlineage-python": "openlineage",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
}
"""The module of a package that has another name."""
PRODUCTS = {
    "delta": "deltalake", "iceberg": "pyiceberg", "postgres": "psycopg", "mysql": "pymysql", "duckdb": "duckdb",
}  # fmt: skip
"""The package that writes tables of a product, where one is needed."""


def check_package(name: str) -> None:
    """Raise UsageError where a package is not installed. Imports nothing of it."""
    try:
        found = importlib.util.find_spec(MODULES.get(name, name))
    except ModuleNotFoundError:  # of a package around it
        found = None
    if found is None:
        needing, extra = EXTRAS[name]
        raise UsageError(f"{needing} need the package {name}", hint=install_command(extra))


def package(name: str) -> Any:
    """Return a package, imported. Raises UsageError where it is not installed."""
    check_package(name)
    return importlib.import_module(name)


def package_version(package: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
