"""The files of a table of Iceberg, opened through the gate of `table_folder`: pyiceberg's file IO, behind one of ours.

pyiceberg lets the properties in a table's metadata choose the code that opens its files, their endpoint and its credentials. But whoever
writes a table must not choose these. So catalogs are given this IO (`py-io-impl`), which has the properties of the catalog
alone, and pyiceberg sees only the properties of `PASSED` of those that metadata hold.
"""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import EMPTY_DICT

from ddcli.errors import InputError
from ddcli.store.tables.table_folder import HINT, below, check_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.io import InputStream

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
            raise InputError("the metadata of the table is no JSON object", place=self.location)
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
        raise InputError("the properties in the table's metadata are no mapping")
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
