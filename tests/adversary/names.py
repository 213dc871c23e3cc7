"""Names that steer a screen, lead elsewhere, look like options or like ours: of files, columns, collections, pipelines, outputs, and in values."""

from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, Any

from tests.adversary.case import Case, Numbered
from tests.adversary.yaml_text import yaml

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.adversary.shop import Shop

PIECES = (
    *(
        "\x1b[31;5m",
        "\x1b]0;t\x07",
        "\n::error ::forged",
        "\r",
        "\t",
        "\b",
        "\x9b31m",
        "\x7f",
        "\u202e",
        "\u2066",
        "\u200b",
    ),
    *(
        "\U000e0041",
        "\u2028",
        "\ufeff",
        "\u0301",
        "\udcff",
        "##[error]",
        "::error::",
        "::set-output name=x::",
        "<b>",
        "|",
    ),
    *(
        "..",
        ".",
        "-",
        "--",
        "--state=../elsewhere",
        "-o",
        "~",
        "$HOME",
        "$(touch x)",
        "`id`",
        ";",
        "&",
        "*",
        "?",
        "[",
        "]",
    ),
    *(
        "{",
        "}",
        "{day}",
        "=",
        "%2e%2e%2f",
        "\\",
        "'",
        '"',
        "#",
        ": ",
        ",",
        " ",
        "@",
        "!",
        "s3:",
        "file:",
        "http:",
        "\u65e5",
        "\xdf",
    ),
    *(
        "CON",
        ".tmp",
        ".part",
        "_progress.json",
        "LOCK",
        ".parquet",
        ".dd-tmp",
        "updates-1-2.parquet",
        "_delta_log",
        "metadata",
    ),
    *(
        "null",
        "true",
        "1e5",
        "0x10",
        "day=1",
        "_time",
        "_diff",
        "_key",
        "time",
        "diff",
        "day",
        "region",
        "select",
        "a",
        "b",
    ),
)
LONG = ("x" * 200, "\u202e" * 80, "y" * 5000, "%s" * 100)
PLACES = (
    "name",
    "input",
    "folder",
    "file",
    "region",
    "amount",
    "kept",
    "export",
    "totals",
    "output",
    "target",
    "test",
    "value",
    "pipeline",
)
"""What in the shop below has a name."""


def text(chance: random.Random) -> str:
    """Return a hostile text."""
    drawn = [chance.choice(PIECES) for _ in range(chance.choice((1, 1, 2, 3)))]
    if chance.random() < 0.1:
        drawn.insert(chance.randrange(len(drawn) + 1), chance.choice(LONG))
    return "".join(drawn)


def as_file(name: str, ending: str = "") -> str:
    """Return a text as a file may be called."""
    data = os.fsencode(name.encode("utf-8", "surrogateescape").replace(b"/", b"_").replace(b"\0", b"_"))[
        : 250 - len(ending)
    ]
    return os.fsdecode((data if data not in {b".", b"..", b""} else b"dots") + ending.encode())


def named(chance: random.Random) -> dict[str, str]:
    """Return a name for each place, some of them hostile."""
    names = {place: place for place in PLACES}
    for place in chance.sample(PLACES, chance.choice((1, 1, 2, 3, len(PLACES)))):
        names[place] = text(chance)
    names["folder"], names["target"] = as_file(names["folder"]), as_file(names["target"])
    names["file"], names["pipeline"] = as_file(names["file"], ".csv"), as_file(names["pipeline"], ".yaml")
    return names


def pipeline(names: dict[str, str], quoted: bool) -> dict[str, Any]:
    """Return the pipeline that has these names."""
    region, amount = (
        f'"{names[name].replace(chr(34), chr(34) * 2)}"' if quoted else names[name] for name in ("region", "amount")
    )
    columns = {"day": "int64", names["region"]: "string", names["amount"]: "int64"}
    return {
        "dd": 1,
        "name": names["name"],
        "inputs": {names["input"]: {"path": f"in/{names['folder']}/", "format": "append", "time": "day", "columns": columns, "late": "quarantine"}},
        "errors": "quarantine",
        "collections": {
            names["kept"]: {"from": names["input"], "apply": [{"arrange": {"by": [names["region"]], "export": names["export"]}}]},
            names["totals"]: {"from": names["kept"], "apply": [{"filter": f"{region} is not null"}, {"reduce": {"by": [names["region"]], "sum": f"sum(100 % {amount})"}}]},
        },
        "outputs": {names["output"]: {"path": f"out/{names['target']}/", "from": names["totals"]}},
        "tests": [{
            "name": names["test"],
            "given": {names["input"]: [{"day": 1, names["region"]: names["value"], names["amount"]: 7}]},
            "expect": {"collection": names["totals"], "contents": [{names["region"]: names["value"], "sum": 2}]},
        }],
    }  # fmt: skip


def names(_shop: Shop) -> Sequence[Case]:
    """Return pipelines with hostile names, run once; and whatever people then call."""

    def make(chance: random.Random) -> Case:
        names = named(chance)
        tree = pipeline(names, quoted=chance.random() < 0.9)
        rows = io.StringIO()
        days = [[1, names["value"], 3], [2, names["value"], 0], [2, "south", 5], [1, "late", 1]]
        csv.writer(rows).writerows([["day", names["region"], names["amount"]], *days])
        data = rows.getvalue().encode("utf-8", "surrogateescape")

        def do(shop: Shop) -> None:
            folder = shop.folder / "in" / names["folder"]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / names["file"]).write_bytes(data)
            (shop.folder / names["pipeline"]).write_text(yaml(tree))

        where = f"{names['region']}={names['value']}"
        file, target, source = names["pipeline"], f"out/{names['target']}/", f"in/{names['folder']}/"
        state = ("state", chance.choice(("ls", "verify", "gc", "compact", "show", "unlock")))
        return Case(
            f"names {names}",
            do,
            first=(("run", file),),
            commands=(
                ("run", file),
                ("run", file, "-o", "json", "--profile"),
                ("run", file, "--full-refresh", names["output"]),
                ("run", file, "--log-format", "json", "--summary", "out/summary.json", "-v"),
                ("check", file, "--format", chance.choice(("text", "json", "github"))),
                ("plan", file, "-o", chance.choice(("text", "json"))),
                ("explain", file, "-o", chance.choice(("text", "json", "mermaid", "svg", "html"))),
                ("test", file, "--format", chance.choice(("text", "json", "github")), "--junit", "out/junit.xml"),
                ("inputs", file, "-o", chance.choice(("text", "json"))),
                ("lineage", file, "-o", chance.choice(("text", "json", "mermaid", "html"))),
                ("why", file, names["totals"], where),
                ("why", file, names["totals"], where, "-o", "json", "--change"),
                ("query", file, names["totals"], where),
                ("query", file, names["kept"], where, "-o", chance.choice(("json", "jsonl"))),
                ("log", target, "-o", chance.choice(("text", "json", "jsonl"))),
                ("log", target, "--as-of", "latest", "-k", where),
                ("log", f"{source}{names['file']}", "--columns", yaml({names["region"]: "string"})),
                ("diff", target, "out/totals/", "-o", chance.choice(("text", "json", "jsonl", "markdown", "html"))),
                ("diff", target, "--key", names["region"], "--from", "1", "--to", "3"),
                ("convert", file, "out/converted", "--input", names["input"]),
                ("convert", f"{source}{names['file']}", "out/converted", "--format", "append", "--time", "day"),
                (*state, file),
                (*state, "--state", f".dd/{names['name']}"),
                ("state", "export", file, "copy"),
                ("state", "release", file, "--reader", names["input"]),
                (*("log", "diff", "check", "run")[chance.randrange(4) :][:1], text(chance).replace("\0", "_")),
            ),
        )

    return Numbered(make)


GENERATORS = (names,)
