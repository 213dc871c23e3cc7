"""A pipeline whose functions, in the module `deadly` beside it, kill what runs them."""

from __future__ import annotations

from inspect import getsource

from tests.spark.servers import parent

PIPELINE = """
dd: 1
name: doomed
inputs: {a: {path: in/, columns: {k: int64}}}
collections:
  b:
    from: a
    apply:
      - map: {function: deadly:early, columns: {k: int64}}
      - count: {by: [k], as: n}
      - map: {function: deadly:late, columns: {k: int64, n: int64}}
      - distinct
outputs: {b: out/b/}
"""
DEADLY_HEAD = f"""\
import os, signal, time
from pathlib import Path

HERE = Path(__file__).parent

{getsource(parent)}
def once(name):
    try:
        (HERE / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

"""
"""How the text of such a module begins: `parent`, and `once`, which returns True to one process alone."""
