"""`dd completion`: the script that lets a shell complete commands, options, pipeline files and names in them."""

from __future__ import annotations

import click

from ddcli.screen import say_own

PROGRAM = "ddcli"
ALSO = {
    "bash": "complete -o nosort -o default -F _ddcli_completion dd",
    "zsh": "compdef _ddcli_completion dd",
    "fish": 'complete --no-files --command dd --arguments "(_ddcli_completion)"',
}
"""The settings that complete `dd` like `ddcli`; in bash, words that have no completion, such as `if=FILE`, like files."""


@click.command("completion", short_help="Print a script for completion in a shell.")
@click.argument("shell", type=click.Choice(list(ALSO)))
def command(shell: str) -> None:
    """Print a script with which SHELL completes commands, options, pipeline files and the names in them.

    \b
    bash:  eval "$(ddcli completion bash)"                                  in ~/.bashrc
    zsh:   eval "$(ddcli completion zsh)"                                   in ~/.zshrc, after compinit
    fish:  ddcli completion fish > ~/.config/fish/completions/ddcli.fish

    The script calls `ddcli`, never the system's `dd`, even if that is first on the PATH.

    \b
    Examples:
      dd completion bash
      dd completion fish
    """
    from click.shell_completion import get_completion_class

    from ddcli.cli.main import COMPLETE, cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    complete = kind(cli, {}, PROGRAM, COMPLETE)
    # Not `complete.source()`: for bash that runs a bash, and warns of versions before 4.4 on stderr.
    script = complete.source_template % complete.source_vars()
    say_own(script.replace("$1)", f"{PROGRAM})") + ALSO[shell])
