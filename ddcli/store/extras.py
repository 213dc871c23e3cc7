"""Packages that only some pipelines need, and the extra of ours that brings each."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ddcli.errors import UsageError
from ddcli.version import install_command

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
