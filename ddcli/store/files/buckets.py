"""Buckets of object stores: their addresses and credentials, which are in the environment, where each vendor's tools have them.

AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_NAME, GOOGLE_APPLICATION_CREDENTIALS, ...
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from ddcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMES = ("s3://", "gs://", "az://")
WRITTEN = "write it as s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")
"""The variables with the address of a store that stands in for Azure or Google's; S3's has AWS_ALLOW_HTTP."""
ABFSS = re.compile(r"abfss?://([^@/]+)@([a-z0-9]+)\.dfs\.core\.windows\.net(/.*)?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
SETTINGS = (
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BASE_URL",
)
"""The variables with the store's address and credentials that tasks on other machines get."""
OWN = frozenset(os.environ)
"""The variables that this process was started with."""
PATIENCE = timedelta(seconds=30)
"""The time for which a request is tried again before the store counts as out of reach."""


def settings_in_use() -> dict[str, str]:
    """Return the environment's `SETTINGS` if this process has opened a bucket, for processes on other machines that do its work."""
    return {name: os.environ[name] for name in SETTINGS if name in os.environ} if bucket.cache_info().currsize else {}


def adopt_settings(settings: Mapping[str, str]) -> None:
    """Use the settings of another process. Those that this machine has itself stay: they may name its own role or endpoint."""
    new = {name: value for name, value in settings.items() if name not in OWN and os.environ.get(name) != value}
    if new:
        os.environ.update(new)
        bucket.cache_clear()  # a bucket keeps the credentials that it was opened with


def library() -> Any:
    """Return the library, which few need."""
    from ddcli.version import package

    return package("obstore")


STORES = {
    "s3:": (
        "S3Store",
        "AWS_ENDPOINT_URL, AWS_REGION and the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ...)",
    ),
    "gs:": ("GCSStore", "the credentials (GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT_KEY, ...)"),
    "az:": (
        "AzureStore",
        "AZURE_STORAGE_ACCOUNT_NAME and the credentials (AZURE_STORAGE_ACCOUNT_KEY, AZURE_CLIENT_ID, ...)",
    ),
}
"""The library's class for each scheme, and the settings that a person may have got wrong."""


@cache
def bucket(scheme: str, name: str, *, retries: int = 10) -> Any:
    """Return a bucket, by a plain name: another one could be a host of its own in the URL of a request, which has the credentials with it (`evil.example?`)."""
    if scheme not in STORES or not _BUCKET.fullmatch(name):
        problem = f"'{name}' is not the name of a bucket"
        raise UsageError(problem, hint=f"{WRITTEN}: a name has letters, digits, `.`, `_` and `-`")
    if scheme == "az:" and not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise UsageError(f"the account of the container '{name}' is not known", hint="set AZURE_STORAGE_ACCOUNT_NAME")
    library()
    import obstore.store

    plain = any(os.environ.get(each, "").startswith("http://") for each in ENDPOINTS)
    options = {"client_options": {"allow_http": True}} if plain else {}
    retry = {"retry_timeout": PATIENCE, "max_retries": retries}
    return getattr(obstore.store, STORES[scheme][0])(name, retry_config=retry, **options)


def container_of(url: str, container: str, account: str, key: str) -> str:
    """Return the container and the key of a URL of Azure that names an account, which must be the environment's: its credentials are for no other."""
    if account != os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise UsageError(
            f"the account '{account}' is not the one of AZURE_STORAGE_ACCOUNT_NAME",
            place=url,
            hint=f"set AZURE_STORAGE_ACCOUNT_NAME={account} and its credentials",
        )
    return f"{container}{key}"


def remedy(scheme: str) -> str:
    """Return the hint for a store that answers no request: the settings that may be wrong."""
    address = os.environ.get("AWS_ENDPOINT_URL", "")
    if scheme == "s3:" and address.startswith("http://") and "AWS_ALLOW_HTTP" not in os.environ:
        return "AWS_ENDPOINT_URL has an address without TLS: write `https://`, or set AWS_ALLOW_HTTP=true"
    return f"check {STORES[scheme][1]}"


def quoted(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a store's report of an object with its tag in quotes, as in HTTP: Azure's listings leave them out."""
    tag = entry.get("e_tag")
    return {**entry, "e_tag": f'"{tag}"'} if tag and not tag.endswith('"') else entry
