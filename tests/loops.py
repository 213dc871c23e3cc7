"""Loops that several tests run, as they stand in a pipeline file: the least label that reaches a node, and what nodes reach."""

from textwrap import indent


def indented(column: int, loop: str) -> str:
    """Return a loop as it stands at a column of a file, from 0."""
    return indent(loop, " " * column)


LEAST_LABEL = """\
iterate:
  variables: {best: labels}
  body:
    best:
      from: best
      apply:
        - join: {with: links, on: {node: src}}
        - map: {node: dst, label: label}
        - concat: labels
        - reduce: {by: [node], label: min(label)}
  result: best
"""
"""The least of the `labels` {node, label} that reach a node over `links` {src, dst}."""

REACHED = """\
iterate:
  variables: {pairs: links}
  body:
    pairs:
      from: pairs
      apply:
        - join: {with: links, as: next, on: {dst: src}}
        - map: {src: src, dst: next.dst}
        - concat: links
        - distinct
  result: pairs
"""
"""Pairs {src, dst} of which the second can be reached from the first over distinct `links`."""
