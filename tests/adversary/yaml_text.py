"""Pipelines as trees, as texts that say them whatever their names are, and as the texts that different people and programs would write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml as pyyaml

if TYPE_CHECKING:
    import random

PLAIN = re.compile(r"""(["'])(\w[\w.()*]*\??)\1""")
"""Text in quotes that most people would write without."""
STYLES = (None, None, "'", '"', "|", ">")
TAGS = ("!!str", "!!map", "!!int", "!", "!mine", "&an ", "!!binary")


def yaml(tree: Any) -> str:
    r"""Return a tree as YAML in flow style, each letter that could mean something in an escape.

    >>> print(yaml({"a": [1, "x\n\u202e"]}))
    {"a": [1, "x\U0000000a\U0000202e"]}
    """
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{yaml(str(key))}: {yaml(value)}" for key, value in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(yaml, tree)) + "]"
    if isinstance(tree, str):
        return '"' + "".join(map(_letter, tree)) + '"'
    return "~" if tree is None else str(tree).lower() if isinstance(tree, bool) else str(tree)


def _letter(letter: str) -> str:
    plain = letter.isascii() and letter.isprintable() and letter not in '"\\'
    return letter if plain else f"\\U{ord(letter):08x}"


def restyled(text: str, chance: random.Random) -> bytes:
    """Return the bytes of a pipeline file written in other styles: most say the same, some are no pipeline any more."""
    root = pyyaml.compose(text, pyyaml.CBaseLoader)
    nodes = _nodes(root)
    flowing = chance.choice((0.0, 0.1, 0.5))
    for node in nodes:
        if isinstance(node, pyyaml.ScalarNode):
            node.style = chance.choice(STYLES) if chance.random() < 0.3 else node.style
        else:
            node.flow_style = chance.random() < flowing or (bool(node.flow_style) and chance.random() < 0.7)
    if chance.random() < 0.3:
        _aliased(nodes, chance)
    written = pyyaml.serialize(
        root, Dumper=pyyaml.SafeDumper, width=chance.choice((20, 80, 1 << 30)), allow_unicode=True
    )
    return _bytes(_marked(PLAIN.sub(lambda each: each[2 if chance.random() < 0.7 else 0], written), chance), chance)


def _nodes(root: pyyaml.Node) -> list[pyyaml.Node]:
    if isinstance(root, pyyaml.ScalarNode):
        return [root]
    parts = root.value if isinstance(root, pyyaml.SequenceNode) else [each for entry in root.value for each in entry]
    return [root, *(node for part in parts for node in _nodes(part))]


def _aliased(nodes: list[pyyaml.Node], chance: random.Random) -> None:
    """Write values that are equal once, with an anchor, or have a key twice."""
    known: dict[str, pyyaml.Node] = {}
    for mapping in nodes:
        if not isinstance(mapping, pyyaml.MappingNode):
            continue
        for at, (key, value) in enumerate(mapping.value):
            same = known.setdefault(pyyaml.serialize(value), value)
            mapping.value[at] = (key, same if chance.random() < 0.7 else value)
        if mapping.value and chance.random() < 0.02:
            mapping.value.append(chance.choice(mapping.value))


def _marked(text: str, chance: random.Random) -> str:
    """Return a text with comments, tags, tabs, blank lines or a very long line."""
    lines = text.splitlines()
    for _ in range(chance.choice((0, 0, 1, 3))):
        at = chance.randrange(len(lines))
        line = lines[at]
        end = re.match(r"[^:]*:( |$)|", line).end()
        lines[at] = chance.choice(
            (
                f"{line}  # {chance.choice(('a comment', chr(0x1F600), '[', '${X}'))}",
                f"{line[:end].rstrip()} {chance.choice(TAGS)} {line[end:]}",
                line.replace("  ", "\t", 1),
                f"{line}\n\n   ",
                f"# {'x' * 1_000_000}\n{line}",
                f"{line}{' ' * 1_000_000}",
                f"{line}\t",
                line.replace(": ", ":", 1),
            )
        )
    return "\n".join(lines) + chance.choice(("\n", "", "\n...\n", "\n\n"))


def _bytes(text: str, chance: random.Random) -> bytes:
    """Return a text as an editor saves it."""
    text = chance.choice(("", "", "", "\ufeff", "---\n", "%YAML 1.2\n---\n", "# first\n")) + text
    text = text.replace("\n", chance.choice(("\n", "\n", "\r\n", "\r", "\u2028")))
    return text.encode(chance.choice(("utf-8",) * 8 + ("utf-16", "cp1252")), "replace")
