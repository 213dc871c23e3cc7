"""`dd schema`: the JSON Schema of pipeline files, for editors."""

from __future__ import annotations

import click

from ddcli.screen import json_text, say


@click.command("schema", short_help="Print the JSON Schema of pipeline files, for editors.")
def command() -> None:
    """Print the JSON Schema (draft 2020-12) of pipeline files: an editor completes keys by it and marks errors.

    Editors with the YAML language server (VS Code, Neovim, JetBrains, ...) find it by a comment at the top of a pipeline:
    `# yaml-language-server: $schema=dd.schema.json`. Names, types and expressions are checked by `dd check`.

    \b
    Example:
      dd schema > dd.schema.json
    """
    from ddcli.plan.pipeline_file import json_schema

    say(*json_text(json_schema(), indent=2).split("\n"))
