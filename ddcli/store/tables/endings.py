"""The kind and the packing of a file, by the endings of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PACKINGS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
"""The packing of a file, by the last ending of its name."""
PARQUET, IPC, CSV, NDJSON, ORC, AVRO, EXCEL = "Parquet", "Arrow IPC", "CSV", "NDJSON", "ORC", "Avro", "Excel"
TEXTS = (CSV, NDJSON, EXCEL)
"""Kinds of files that have the types of columns from the pipeline."""
KINDS = {
    ".arrow": IPC,
    ".ipc": IPC,
    ".feather": IPC,
    ".csv": CSV,
    ".tsv": CSV,
    ".ndjson": NDJSON,
    ".jsonl": NDJSON,
    ".json": NDJSON,
}
KINDS |= dict.fromkeys((".txt", ".dat", ".data"), CSV)
KINDS |= {".orc": ORC, ".avro": AVRO, ".xlsx": EXCEL}


def packing_of(name: str) -> str:
    """Return the ending of a packed file's name, in small letters; "" for a file that is not packed.

    >>> packing_of("a.csv.GZ"), packing_of("a.csv")
    ('.gz', '')
    """
    name = name.lower()
    return next((ending for ending in PACKINGS if name.endswith(ending)), "")


def bare(name: str) -> str:
    """Return a name in small letters without the ending of its packing.

    >>> bare("A.csv.gz"), bare("a.csv")
    ('a.csv', 'a.csv')
    """
    return name.lower().removesuffix(packing_of(name))


def name_of_kind(path: Path) -> str:
    """Return the kind of a file by the ending of its name: Parquet if nothing else."""
    ending = bare(path.name)
    return KINDS.get(ending[ending.rfind(".") :] if "." in ending else "", PARQUET)
