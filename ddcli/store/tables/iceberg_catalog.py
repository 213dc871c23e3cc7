"""Catalogs of Iceberg, and their tables, whose files are opened through the gate of `access`: pyiceberg's file IO, behind one of ours.

A catalog is one of pyiceberg's configuration, which is a person's own, or one that a pipeline file describes. The latter gets nothing of the
configuration: else a stranger's file would choose the place to which your credentials are sent.

Whoever writes a table must not choose the code that opens its files, their endpoint or its credentials, but pyiceberg reads these from properties in the table's metadata. So catalogs are
given our IO (`py-io-impl`), which has the properties of the catalog alone, and pyiceberg sees only those properties of the metadata that `PASSED` lists.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import EMPTY_DICT

from ddcli.errors import InputError
from ddcli.store.files.foreign import HINT, below, check_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.io import InputStream
    from pyiceberg.table import Table


IO = "py-io-impl"
OWN_IO = "dd.configured-io"
"""The property that holds the IO which a person has configured: it is the one behind ours."""
METADATA = ".metadata.json"
PASSED = (
    "commit.", "format-version", "gc.", "history.", "read.", "schema.", "write.avro.", "write.delete.", "write.distribution-mode",
    "write.format.default", "write.merge.", "write.metadata.compression-codec", "write.metadata.delete-after-commit.enabled",
    "write.metadata.metrics.", "write.metadata.previous-versions-max", "write.orc.", "write.parquet.", "write.target-file-size-bytes",
    "write.update.", "write.upsert.", "dd/",
)  # fmt: skip
"""The beginnings of the names of a table's properties that pyiceberg sees: none names code, a place, a proxy or a credential."""


class TableFiles(FileIO):
    """Opens the files below a table's folder; while that is unknown, only the files of metadata that a catalog names."""

    def __init__(self, properties: Mapping[str, Any] = EMPTY_DICT, folder: str | None = None) -> None:
        super().__init__(dict(properties))
        self.folder = folder
        self._behind: FileIO | None = None

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        self._check(location)
        if (path := local_path(location)) is not None:
            check_plain(path)
        found = self._files(location).new_input(location)
        return _Metadata(found) if self.folder is None else found

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        self._check(location)
        return self._files(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file."""
        place = location if isinstance(location, str) else location.location
        self._check(place)
        self._files(place).delete(location)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder of the table; none if the IO that a person has configured can't list."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        self._check(folder)
        files = self._files(folder)
        if not isinstance(files, PyArrowFileIO):
            return []
        from pyarrow.fs import FileSelector

        scheme, host, path = files.parse_location(folder, files.properties)
        found = files.fs_by_scheme(scheme, host).get_file_info(FileSelector(path, allow_not_found=True))
        return [file.base_name for file in found]

    def _check(self, location: str) -> None:
        if self.folder is not None:
            below(location, self.folder)
        elif not location.endswith(METADATA):
            raise InputError(f"the table names a file before its folder is known: '{location}'", hint=HINT)

    def _files(self, location: str) -> FileIO:
        if self._behind is None:
            properties = {name: value for name, value in self.properties.items() if name not in {IO, OWN_IO}}
            if OWN_IO in self.properties:
                properties[IO] = self.properties[OWN_IO]
            self._behind = load_file_io(properties, location)
        return self._behind


class _Metadata(InputFile):
    """A table's metadata, with the properties that pass."""

    def __init__(self, file: InputFile) -> None:
        super().__init__(file.location)
        self._file = file

    def __len__(self) -> int:
        return len(self._data())

    def exists(self) -> bool:
        """Return whether there is such a file."""
        return self._file.exists()

    def open(self, seekable: bool = True) -> InputStream:
        """Return the file's content."""
        return io.BytesIO(self._data())

    def tree(self) -> dict[str, Any]:
        """Return the metadata as they are."""
        with self._file.open() as file:
            tree = json.loads(_unpacked(self.location, file.read()))
        if not isinstance(tree, dict):
            raise InputError("the metadata of the table is not a JSON object", place=self.location)
        return tree

    def _data(self) -> bytes:
        tree = self.tree()
        tree["properties"] = passed(tree.get("properties"))
        data = json.dumps(tree).encode()
        return gzip.compress(data) if _is_packed(self.location) else data


def passed(properties: object) -> dict[str, Any]:
    """Return the properties of a table that pyiceberg sees.

    >>> passed({"write.parquet.compression-codec": "zstd", "py-io-impl": "os.system", "s3.endpoint": "http://example.org"})
    {'write.parquet.compression-codec': 'zstd'}
    """
    if properties is not None and not isinstance(properties, dict):
        raise InputError("the properties in the table's metadata are not a mapping")
    return {name: value for name, value in (properties or {}).items() if name.startswith(PASSED)}


def left_out(files: TableFiles, location: str) -> list[str]:
    """Return the properties in a table's metadata that pyiceberg doesn't see."""
    file = files.new_input(location)
    assert isinstance(file, _Metadata), "the folder is unknown"
    return sorted(name for name in file.tree().get("properties") or {} if not name.startswith(PASSED))


def folder_of(metadata: str) -> str:
    """Return the folder of the table whose metadata are in this file.

    >>> folder_of("s3://lake/shop/items/metadata/00001-a.metadata.json")
    's3://lake/shop/items'
    """
    directory = metadata.rpartition("/")[0]
    return directory.removesuffix("/metadata")


def local_path(location: str) -> Path | None:
    """Return the path of a file on this machine; None for others, and for locations that only pyiceberg reads correctly."""
    path = location.removeprefix("file://")
    return Path(path) if path.startswith("/") and not {"?", "#", "%"} & {*path} else None


def _is_packed(location: str) -> bool:
    return location.endswith(".gz.metadata.json")


def _unpacked(location: str, data: bytes) -> bytes:
    return gzip.decompress(data) if _is_packed(location) else data


FILES = f"{TableFiles.__module__}.{TableFiles.__qualname__}"
SQLITE, YAML = "sqlite:///", ".pyiceberg.yaml"
ANSWERED = {
    "prefix", "rest-page-size", "namespace-separator", "snapshot-loading-mode", "scan-planning-mode", "view-endpoints-supported",
    "s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.region", "client.region", "s3.force-virtual-addressing",
    "s3.connect-timeout", "s3.request-timeout", "s3.server-side-encryption", "s3.sse.kms-key-id", "gcs.oauth2.token",
    "gcs.oauth2.token-expires-at", "gcs.project-id", "adls.sas-token",
}  # fmt: skip
"""The properties of a server's answer that are used: none names code, another server or a file, and none replaces a person's token for the server."""
KEYS = {"s3.access-key-id", "s3.secret-access-key"}
"""The properties with which an answer may choose the endpoint, too: requests there are signed with its own keys."""
EMPTY: Mapping[str, Any] = MappingProxyType({})


def open_catalog(name: str, properties: Mapping[str, str], *, writes: bool) -> Catalog:
    """Return a catalog. Without `writes` nothing is made in it: neither the database of one, nor the tables in that."""
    from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType, infer_catalog_type

    given: dict[str, Any] = dict(properties) or _configured(name)
    kind = CatalogType(str(given["type"]).lower()) if given.get("type") else infer_catalog_type(name, given)
    if IO in given:
        given[OWN_IO] = given[IO]
    given[IO] = FILES
    if kind == CatalogType.SQL and not writes:
        given["init_catalog_tables"] = "false"
        given["uri"] = _only_read(str(given.get("uri", "")))
    if kind == CatalogType.REST:
        return _rest(name, given)
    assert kind is not None, "else pyiceberg has raised"
    return AVAILABLE_CATALOGS[kind](name, given)


def with_own_files(table: Table) -> Table:
    """Return a table whose files are opened by us, in its folder, with the properties of its catalog; and with its own properties that pass."""
    from pyiceberg.table import Table

    own, catalog = table.metadata.properties, table.catalog.properties
    stated = {
        name: value for name, value in table.io.properties.items() if name not in own and catalog.get(name) != value
    }
    properties = {**catalog, **answered({**stated, **table.config})}
    metadata = table.metadata.model_copy(update={"properties": passed(own)})
    files = TableFiles(properties, folder_of(table.metadata_location or f"{metadata.location}/metadata/"))
    return Table(table.name(), metadata, table.metadata_location, files, table.catalog, table.config)


def loses_properties(table: Table) -> list[str]:
    """Return the properties of a table that a commit would lose: a server keeps all, other catalogs those that pyiceberg sees."""
    from pyiceberg.catalog import MetastoreCatalog

    if not isinstance(table.catalog, MetastoreCatalog):
        return []
    return left_out(TableFiles(table.catalog.properties), table.metadata_location)


def answered(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return those properties of a server's answer that are used: see `ANSWERED`.

    >>> answered({"s3.region": "eu-central-1", "py-io-impl": "os.system", "s3.endpoint": "http://example.org", "token": "x"})
    {'s3.region': 'eu-central-1'}
    """
    more = {"s3.endpoint"} if properties.keys() >= KEYS else set()
    return {name: value for name, value in properties.items() if name in ANSWERED | more}


def _configured(name: str) -> dict[str, Any]:
    from pyiceberg.utils.config import Config

    _refuse_configuration_here()
    config = Config()
    found = config.get_catalog_config(name)
    if not found:
        known = ", ".join(sorted(config.get_known_catalogs()))
        hint = f"it has: {known}" if known else f"add it to ~/{YAML}, or set PYICEBERG_CATALOG__{name.upper()}__URI"
        raise InputError(f"pyiceberg's configuration has no catalog '{name}'", hint=hint)
    return dict(found)


def _refuse_configuration_here() -> None:
    """Raise InputError where pyiceberg would read a configuration in the current folder, as it does where a person has none: it may name code."""
    homes = [Path(home) for home in (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~")) if home]  # noqa: PTH111 - without one it stays as it is
    if Path(YAML).exists() and not any((home / YAML).is_file() for home in homes):
        hint = "if it is yours, set PYICEBERG_HOME to this folder"
        raise InputError(f"`dd` doesn't read the configuration of pyiceberg in the current folder, '{YAML}'", hint=hint)


def _only_read(uri: str) -> str:
    """Return the URI of SQLAlchemy for a database that is only read: SQLite makes a file that is not there."""
    if not uri.startswith(SQLITE) or "?" in uri or uri in {SQLITE, f"{SQLITE}:memory:"}:
        return uri
    return f"{SQLITE}file:{quote(uri.removeprefix(SQLITE))}?mode=ro&uri=true"


def _rest(name: str, properties: dict[str, Any]) -> Catalog:
    """Return a catalog on a server: it answers with properties, its own and tables', and pyiceberg imports the code that these name."""
    from pyiceberg.catalog.rest import RestCatalog

    if "_load_file_io" not in vars(RestCatalog):
        raise InputError("this version of pyiceberg opens the tables of servers in another way; `dd` needs 0.12")

    class OwnFiles(RestCatalog):
        @property
        def properties(self) -> dict[str, Any]:
            return self._found

        @properties.setter
        def properties(self, found: dict[str, Any]) -> None:
            self._found = {**properties, **answered(dict(found.items() - properties.items()))}

        @property
        def uri(self) -> str:
            return str(properties["uri"])

        @uri.setter
        def uri(self, found: str) -> None:
            if found != properties["uri"]:
                raise InputError(
                    f"the catalog's server names another server for requests with your token: '{found}'",
                    hint=f"if it is yours, set it as the `uri` of the catalog '{name}' in pyiceberg's configuration",
                )

        def _load_file_io(self, properties: Mapping[str, Any] = EMPTY, location: str | None = None) -> TableFiles:
            return TableFiles({**self.properties, **answered(properties)})  # there is no other way in

    return OwnFiles(name, **properties)
