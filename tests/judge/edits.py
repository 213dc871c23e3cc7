"""Edits of a pipeline file that keep it valid: operators that keep columns come and go, outputs are added and removed, names change."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from tests.yaml_text import read_yaml, write_yaml

PLAIN: list[Any] = [
    "distinct",
    "negate",
    "consolidate",
    {"threshold": "count * 2"},
    {"filter": "1 < 2"},
    {"filter": "1 > 2"},
]


SETTLING: list[Any] = ["consolidate", {"filter": "1 < 2"}, {"filter": "1 > 2"}]
"""Those that a loop settles with if it did without them: others may have it go round ten thousand times."""


def lists_of_operators(tree: Any, plain: list[Any] = PLAIN) -> list[tuple[list, list[Any]]]:
    """Return every `apply` list in a tree, those of loops' bodies and of collections in place too, with what may come and go there."""
    found = []
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        if key == "apply":
            found.append((value, plain))
        found += lists_of_operators(value, SETTLING if key == "iterate" else plain)
    return found


@st.composite
def edits(draw, text: str) -> str:
    """Give the text of a pipeline that is another in one to three places."""
    tree = read_yaml(text)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["insert", "insert", "remove", "count", "add", "drop", "nothing"]))
        lists = lists_of_operators(tree.get("collections", {}))
        if kind == "insert" and lists:
            operators, plain = draw(st.sampled_from(lists))
            operators.insert(draw(st.integers(0, len(operators))), copy.deepcopy(draw(st.sampled_from(plain))))
        elif kind == "remove":
            places = [(one, at) for one, plain in lists for at, operator in enumerate(one) if operator in plain]
            if places:
                operators, at = draw(st.sampled_from(places))
                del operators[at]
        elif kind == "count":  # never null, as some other aggregates are
            reduces = [each["reduce"] for operators, _ in lists for each in operators if "reduce" in each]
            columns = [
                (one, name) for one in reduces for name in one if name not in ("by", "function", "columns", "values")
            ]
            if columns:
                one, name = draw(st.sampled_from(columns))
                one[name] = "count(*)"
        elif kind == "add":
            named = [name for name, collection in tree.get("collections", {}).items() if "from" in collection]
            if named:
                source = draw(st.sampled_from(named))
                name = f"added{len(tree['outputs'])}_{draw(st.integers(0, 9))}"
                tree["outputs"][name] = {"path": f"out/{name}/", "from": source}
        elif kind == "drop" and len(tree["outputs"]) > 1:
            del tree["outputs"][draw(st.sampled_from(sorted(tree["outputs"])))]
    return write_yaml(tree, default_flow_style=None, allow_unicode=True)


def reformatted(text: str) -> str:
    """Return the text with other formatting, and its sections in another order."""
    tree = read_yaml(text)
    turned = {key: tree[key] for key in reversed(tree)}
    return "# the same\n" + write_yaml(turned, default_flow_style=False, width=60, allow_unicode=True)
