"""Results as notebooks show them: drawings, tables and trees, by IPython's formatters.

A formatter is registered by the name of a type, so nothing of ours is imported before a result is there to be shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddcli.compare.diff import Difference
    from ddcli.provenance.explanation import Answer
    from ddcli.render.view import View


def register(shell: Any) -> None:
    """Register the formatters in an IPython shell; None, outside of one, has none."""
    if shell is None:
        return
    html = shell.display_formatter.formatters["text/html"]
    html.for_type_by_name("ddcli.compare.diff", "Difference", _difference)
    html.for_type_by_name("ddcli.provenance.explanation", "Answer", _answer)
    html.for_type_by_name("ddcli.render.view", "View", _view)


def _difference(found: Difference) -> str:
    from ddcli.compare.page import fragment

    return fragment(found)


def _answer(answer: Answer) -> str:
    from ddcli.provenance.trees import as_html

    return as_html(answer)


def _view(view: View) -> str:
    from ddcli.render.drawing import draw, svg

    return svg(draw(view))
