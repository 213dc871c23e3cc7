"""A view as a Mermaid flowchart, which GitHub and others show in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.render.drawing import words_of
from ddcli.render.units import loop_title
from ddcli.screen import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.render.view import OperatorView, View

STYLES = {
    "input": "fill:#effaf3,stroke:#6fbf8b,color:#1d2430",
    "output": "fill:#fff6e8,stroke:#e0a44c,color:#1d2430",
    "keeps": "fill:#eef4ff,stroke:#7aa2e3,color:#1d2430",
    "shared": "fill:#eef4ff,stroke:#1d4ed8,stroke-width:3px,color:#1d2430",
}


def mermaid(view: View) -> list[str]:
    """Return a view as the lines of a flowchart."""
    names = {each.id: f"n{at}" for at, each in enumerate(view.operators)}
    lines = ["flowchart TD", *_scope(view, names, None, "  ")]
    for each in view.operators:
        lines += [f"  {names[source]} --> {names[each.id]}" for source in dict.fromkeys(each.inputs)]
    for loop in view.loops:
        lines += [f"  {names[source]} -. next round .-> {names[target]}" for source, target in loop.feedback]
    for style, definition in STYLES.items():
        if those := [names[each.id] for each in view.operators if _style(each) == style]:
            lines += [f"  classDef {style} {definition}", f"  class {','.join(those)} {style}"]
    return lines


def _scope(view: View, names: dict[str, str], scope: str | None, indent: str) -> Iterator[str]:
    """Yield the lines of a loop's operators, and of the loops in it as subgraphs."""
    counts = view.counts()
    for each in view.operators:
        if each.loop == scope:
            words = words_of(view, each)
            head = f"<b>{as_label(words.kind)}</b>" + (f" {as_label(words.name)}" if words.name else "")
            yield f'{indent}{names[each.id]}["{"<br/>".join([head, *map(as_label, [*words.says, *words.counted])])}"]'
    for at, loop in enumerate(view.loops):
        if loop.parent == scope:
            yield f'{indent}subgraph l{at}["{as_label(loop_title(loop, counts.get(loop.id)))}"]'
            yield from _scope(view, names, loop.id, indent + "  ")
            yield f"{indent}end"


def _style(operator: OperatorView) -> str:
    if operator.kind in ("input", "output"):
        return operator.kind
    return "shared" if operator.shared else "keeps" if operator.keeps else ""


def as_label(text: str) -> str:
    """Return a text with characters that mean something in Mermaid or HTML as character codes."""
    return "".join(
        letter if letter.isalnum() or letter in " ,.:+-_=/*·→()" else f"#{ord(letter)};" for letter in visible(text)
    )
