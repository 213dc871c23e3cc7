"""Pipelines that are large in one way: each works, in time that grows with their size, or a limit is named.

`DDCLI_TEST_DEEP=10000 pytest tests/cli/test_size.py` tries what is asked for; here it is less, with less of a stack.
"""

import cProfile
import os
import sys

import polars as pl
import pytest

from tests.draws import some
from tests.harness import contents

HEAD = "dd: 1\nname: large\ninputs:\n  a: {path: in/, columns: {k: int64, v: int64}}\ncollections:\n"
TAIL = "outputs: {o: {path: out/, from: last}}\n"
DEEP = int(os.environ.get("DDCLI_TEST_DEEP", "260"))
STACK = 240
"""Frames that a command may use: less than one for each of what is `DEEP`."""


@pytest.fixture
def shallow():
    """Have a stack of which not much is left."""
    before, frame, depth = sys.getrecursionlimit(), sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    yield lambda: sys.setrecursionlimit(depth + STACK)
    sys.setrecursionlimit(before)


def operators(each, count):
    return "  last: {from: a, apply: [" + ", ".join(each(at) for at in range(count)) + "]}\n"


def chained(order, count, apply="filter: v <> {at}"):
    lines = [
        f"  c{at}: {{from: {f'c{at - 1}' if at else 'a'}, apply: [{apply.format(at=at)}]}}\n" for at in range(count)
    ]
    return "".join(lines[::order]) + f"  last: {{from: c{count - 1}}}\n"


def loops(count):
    """Loops one after the other, each of which begins with what the one before gives and reads that in its body, too."""
    text = "".join(
        f"  c{at}: {{iterate: {{variables: {{x: {before}}}, body: {{x: {{from: x, apply: [concat: {before}, distinct]}}}}, result: x}}}}\n"
        for at in range(count)
        for before in [f"c{at - 1}" if at else "a"]
    )
    return text + f"  last: {{from: c{count - 1}}}\n"


LARGE = {
    "filters": operators(lambda at: f"filter: v <> {at}", DEEP),
    "columns computed of each other": operators(lambda at: "extend: {v: v + 0}", DEEP),
    "reductions": operators(lambda at: "reduce: {by: [k], v: sum(v)}", DEEP),
    "joins": operators(lambda at: "semijoin: {with: a, on: [k]}", DEEP),
    "sums": operators(lambda at: "{concat: [a]}, distinct", DEEP),
    "collections": chained(1, DEEP),
    "collections from the last to the first": chained(-1, DEEP),
    "collections that are kept": chained(1, DEEP, "distinct"),
    "loops": loops(DEEP // 4),
    "sources": "  last: {from: [" + ", ".join(["a"] * DEEP) + "], apply: [distinct]}\n",
}


COMMANDS = [["check", "p.yaml"], ["run", "p.yaml"]]
LOOKS = [
    ["explain", "p.yaml"],
    ["explain", "p.yaml", "--format", "svg"],
    ["why", "p.yaml", "o", "k=1"],
    ["why", "p.yaml", "o", "k=1", "--change"],
    ["why", "p.yaml", "o", "k=7", "-o", "json"],
]


@pytest.mark.parametrize("what", [*some(LARGE)])
def test_a_pipeline_may_be_long(shop, shallow, what):
    shop.log("in/1.parquet", [(1, 20_000, 0, 1), (2, 30_000, 0, 1)], k=int, v=int, time=int, diff=int)
    shop.write("p.yaml", HEAD + LARGE[what] + TAIL)
    shallow()
    for command in COMMANDS:
        result = shop(*command)
        assert result.code == 0, (command, result.err[-1000:])
    assert contents(shop.folder / "out") == {(1, 20_000): 1, (2, 30_000): 1}


def test_a_long_pipeline_can_be_looked_at(shop, shallow):
    shop.log("in/1.parquet", [(1, 20_000, 0, 1), (2, 30_000, 0, 1)], k=int, v=int, time=int, diff=int)
    shop.write("p.yaml", HEAD + LARGE["joins"] + TAIL)
    shallow()
    for command in some(LOOKS):
        result = shop(*command)
        assert result.code == ("k=7" in command), (command, result.err[-1000:])


def test_what_is_missing_twice_is_told_once(shop):
    """Each collection is the join of the one before with itself: a tree of what is missing would have a million leaves."""
    shop.log("in/1.parquet", [(1, 20_000, 0, 1)], k=int, v=int, time=int, diff=int)
    text = chained(1, 20, "join: {{with: SELF, on: [k], as: r}}, map: {{k: k, v: v}}, distinct")
    for at in range(20):
        text = text.replace("SELF", f"c{at - 1}" if at else "a", 1)
    shop.write("p.yaml", HEAD + text + TAIL)
    for form in ("text", "json"):
        result = shop("why", "p.yaml", "o", "k=7", "-o", form)
        assert result.code == 1, result.err
        assert len(result.out) < 20_000


def test_a_deep_file_says_where(shop):
    shop.write("p.yaml", HEAD + "  last:\n    from: " + "{from: " * 120)
    result = shop("check", "p.yaml")
    assert result.code == 2
    assert result.err.startswith("p.yaml:7:")
    assert "nested too deeply" in result.err


def test_a_long_line_is_shown_around_its_place(shop):
    names = ", ".join(f"c{at}: int64" for at in range(3000))
    shop.write("p.yaml", HEAD.replace("k: int64, v: int64", f"{names}, x: int65") + "  last: {from: a}\n" + TAIL)
    result = shop("check", "p.yaml")
    assert result.code == 2
    line, mark = result.err.splitlines()[1:3]
    assert len(line) < 500
    assert line[mark.index("^") :].startswith("int65")
    assert mark.count("^") == 5


def test_deep_json_is_refused(shop):
    """What comes from elsewhere may nest as deep as it likes."""
    deep = "[" * 100_000 + "]" * 100_000
    shop.log("in/1.parquet", [(1, 20_000, 0, 1)], k=int, v=int, time=int, diff=int)
    shop.write("in/_progress.json", f'{{"upper": {deep}}}')
    shop.write("p.yaml", HEAD + "  last: {from: a, apply: [distinct]}\n" + TAIL)
    result = shop("run", "p.yaml")
    assert (result.code, "_progress.json" in result.err) == (3, True)
    shop.write("in/_progress.json", '{"upper": [[5]]}')
    assert shop("run", "p.yaml").code == 0
    shop.write("text/1.ndjson", f'{{"k": 1, "v": {deep}}}\n')
    shop.write("text.yaml", "dd: 1\nname: text\ninputs: {a: {path: text/}}\noutputs: {o: {path: text_out/, from: a}}\n")
    for command in ("check", "run"):
        result = shop(command, "text.yaml")
        assert result.code == 3, result.err


def test_twice_the_columns_are_twice_the_work(shop):
    """Counted in calls, which are the same however busy the machine is."""

    def work(count):
        names = [f"c{at}" for at in range(count)]
        columns = {name: [1, 1, 2] for name in names} | {"time": [0, 0, 1], "diff": [1, 1, 1]}
        (shop.folder / f"in{count}").mkdir(exist_ok=True)
        pl.DataFrame(columns).write_parquet(shop.folder / f"in{count}" / "1.parquet")
        text = HEAD.replace("k: int64, v: int64", ", ".join(f"{name}: int64" for name in names))
        text = text.replace("in/", f"in{count}/").replace("large", f"large{count}")
        shop.write("p.yaml", text + "  last: {from: a, apply: [distinct]}\n" + TAIL.replace("out/", f"out{count}/"))
        profile = cProfile.Profile()
        profile.enable()
        codes = [shop("check", "p.yaml").code, shop("run", "p.yaml").code]
        profile.disable()
        assert codes == [0, 0]
        return sum(each.callcount for each in profile.getstats())

    work(10)
    assert work(800) < 2.4 * work(400)
