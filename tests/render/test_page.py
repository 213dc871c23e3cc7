"""The page, as a browser has it: what must be seen is seen, nothing overlaps, nothing is loaded, and no text becomes a script."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import random
import re
import shutil
import struct
import subprocess
import zlib
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

import ddcli.plan
from ddcli.commands.explain import explain
from ddcli.commands.pipelines import find_lineage
from ddcli.expressions.tree import Literal, Step
from ddcli.expressions.types import Type
from ddcli.plan.groupings import Threshold
from ddcli.plan.logical import SignedSum
from ddcli.plan.node import Node
from ddcli.render.drawing import draw, svg
from ddcli.render.page import BOUNDS, MEANINGS, meaning, page, sparkline
from ddcli.spec.model import WORK_CLASSES
from tests.harness import ROOT, copy_root, run
from tests.render.chromium import look_at
from tests.render.graphs import EVIL, evil, view_of_shape

NEAR = 0.75
PIPELINES = ("airborne", "components", "delays", "reachable", "risk", "scc", "shortest", "skip_level")


def many(count=40, seed=3):
    """Return a made-up view of many collections, with loops in a loop."""
    draw_from = random.Random(seed)
    edges = {
        (draw_from.randrange(max(0, b - 6), b), b)
        for b in range(1, count)
        for _ in range(draw_from.choice([1, 1, 2, 3]))
    }
    return view_of_shape((count, sorted(edges), [(5, 25), (7, 12), (15, 22)]), "many", runs=7)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the pages of all pipelines, run twice, of a made-up one and of an evil one, as views and texts."""
    folder = copy_root(tmp_path_factory.mktemp("pages") / "root")
    views = {}
    for name in PIPELINES:
        for until in ("--until 480", "--until 720") if name == "airborne" else ("",):
            assert run(f"dd run pipelines/{name}.yaml {until}", folder).code == 0
        views[name] = explain(folder / f"pipelines/{name}.yaml")
    views["many"], views["evil"] = many(), evil()
    report = find_lineage([folder / "pipelines/airborne.yaml"])
    return {name: (view, page(draw(view), report if name == "airborne" else None)) for name, view in views.items()}


@pytest.fixture(scope="module")
def seen(pages, tmp_path_factory):
    """Return what a browser measures of each page, and what it says."""
    found, said = look_at([text for _, text in pages.values()], tmp_path_factory.mktemp("browser"))
    return dict(zip(pages, found, strict=True)), said


def meet(one, other):
    return (
        one[0] < other[2] - NEAR and other[0] < one[2] - NEAR and one[1] < other[3] - NEAR and other[1] < one[3] - NEAR
    )


def within(outer, inner):
    return all(a <= b + NEAR for a, b in zip(outer[:2], inner[:2], strict=True)) and all(
        a >= b - NEAR for a, b in zip(outer[2:], inner[2:], strict=True)
    )


def test_the_browser_has_nothing_to_say_and_nothing_to_load(pages, seen):
    found, said = seen
    assert said == []
    for name, (_, text) in pages.items():
        assert found[name]["requests"] == []
        assert not re.search(
            r"(src|href|url\()\s*=?\s*[\"']?(https?:|//)", text.replace("http://www.w3.org/2000/svg", "")
        )


def test_every_operator_is_there_with_its_numbers(pages, seen):
    for name, (view, _) in pages.items():
        there = seen[0][name]
        assert [box["n"] for box in there["boxes"]] == [str(at) for at in range(len(view.operators))]
        assert there["table"] == 1 + len(view.operators)
        for box, operator in zip(there["boxes"], view.operators, strict=True):
            count = view.counts().get(operator.id)
            assert box["words"].startswith(operator.kind)
            assert box["shared"] == operator.shared
            if count and count.rows_out and count.rows_out < 1000:
                expected = rf"( \(\S+( [kMGT])? expected\))?  \+{count.inserted} -{count.retracted}"
                assert any(re.search(rf"\b{count.rows_out} rows{expected}", line) for line in box["all"])
            if operator.held:
                assert any(f"{operator.held.rows} rows" in line or " k rows" in line for line in box["all"]), box["all"]


def test_nothing_overlaps(seen):
    for name, there in seen[0].items():
        for one, other in itertools.combinations(there["boxes"], 2):
            assert not meet(one["rect"], other["rect"]), (name, one["words"], other["words"])
        for box in there["boxes"]:
            for text, words in zip(box["texts"], box["all"], strict=True):
                assert within(box["rect"], text), (name, words)
        for loop in there["loops"]:
            assert within(loop["rect"], loop["text"]), name
            assert not any(meet(loop["text"], box["rect"]) for box in there["boxes"]), name
            assert all(
                within(loop["rect"], box["rect"]) or not meet(loop["rect"], box["rect"]) for box in there["boxes"]
            )
        for line in there["lines"]:
            for x, y in line["points"]:
                for box in there["boxes"]:
                    left, top, right, bottom = box["rect"]
                    inside = left + NEAR < x < right - NEAR and top + NEAR < y < bottom - NEAR
                    assert not inside, (name, line["from"], line["to"], box["words"])


def test_a_page_opens_on_the_collections(pages, seen):
    """All of them are to be seen at once; each unfolds to its operators, and each operator is in one of them."""
    for name, (view, _) in pages.items():
        there = seen[0][name]
        assert there["first"]
        for one, other in itertools.combinations(there["folded"], 2):
            assert not meet(one["rect"], other["rect"]), (name, one["words"], other["words"])
        assert all(within(there["pane"], box["rect"]) for box in there["folded"]), name
        for box in there["folded"]:
            (shown,) = box["shown"]
            assert "Unfold its operators" in shown
        numbers = [number for each in there["unfolded"] for number in each["numbers"]]
        assert sorted(map(int, numbers)) == [*range(len(view.operators))], name
        assert all(each["lit"] == each["numbers"] and each["open"] for each in there["unfolded"]), name
        larger, smaller, fitting = there["widths"]
        assert larger > smaller
        assert fitting <= there["pane"][2] - there["pane"][0]
    words = [" ".join(box["words"]) for box in seen[0]["risk"]["folded"]]
    expected = ["input", "accused", "pairs", "links", "at_risk", "output"]
    assert all(any(word in text for text in words) for word in expected)
    assert len(words) == 8


def test_a_click_shows_details(pages, seen):
    for name, (view, _) in pages.items():
        for click, operator in zip(seen[0][name]["clicked"], view.operators, strict=True):
            (shown,) = click["shown"]
            assert shown.startswith(operator.kind)
            for word in operator.kind.split(" + "):
                assert name in ("many", "evil") or meaning(word, None)[0] in shown
            for column in operator.columns if name != "evil" else ():
                assert column in shown
        assert seen[0][name]["focused"] == "0", "from the table one comes to the box"


def test_each_kind_of_operator_is_explained():
    """Each word that a node has for its work is explained, and no other word is."""
    for module in pkgutil.iter_modules(ddcli.plan.__path__):
        importlib.import_module(f"ddcli.plan.{module.name}")
    classes = [Node]
    for each in classes:
        classes += each.__subclasses__()
    kinds = {each.kind for each in classes if isinstance(each.kind, str)}
    kinds |= {step.kind for step in get_args(Step) if isinstance(step.kind, str)} | {"map", "project", "output"}
    kinds |= {SignedSum((), {}, signs).kind for signs in ((-1,), (1, -1), (1, 1))}
    kinds |= {Threshold((), {}, function).kind for function in (None, Literal(1, Type("int64")))}
    assert {*MEANINGS} <= kinds
    assert [kind for kind in sorted(kinds) if not meaning(kind, None)] == []
    assert {*BOUNDS} == {*WORK_CLASSES}


def test_runs_are_plotted(pages, seen):
    assert seen[0]["airborne"]["plots"][0].startswith("rows read: 763, at least 763, at most 996")
    assert seen[0]["many"]["plots"] == [
        "rows read: 7.0 k, at least 1.0 k, at most 7.0 k",
        "rows written: 0, at least 0, at most 0",
        "time: 3.50 s, at least 500.0 ms, at most 3.50 s",
        "state: 1.0 MB, at least 1.0 MB, at most 1.0 MB",
    ]
    assert all(page["untitled"] == 0 for page in seen[0].values())


def test_columns_are_shown_with_their_origin(pages, seen):
    """Each has a row, to which its name leads."""
    _, text = pages["airborne"]
    for name in ("airborne.carrier", "airborne.flights", "airborne.name"):
        assert f'<tr id="{name}">' in text
    assert '<a href="#flights.carrier">' in text


def test_texts_stay_texts(seen):
    there = seen[0]["evil"]
    escapes = {letter: f"\\u{ord(letter):04x}" if ord(letter) > 0xFF else f"\\x{ord(letter):02x}" for letter in EVIL}
    shown = "".join(letter if letter.isprintable() else escapes[letter] for letter in EVIL)
    assert there["title"] == f"{shown}: operators"
    assert there["heading"] == shown
    assert there["scripts"] == 1
    assert shown in there["clicked"][0]["shown"][0]


def test_the_page_is_as_wide_as_the_window(seen):
    assert all(page["width"] <= page["window"] for page in seen[0].values())


def test_all_parts_of_a_page_begin_at_one_margin(seen):
    for name, found in seen[0].items():
        assert min(found["margins"]) >= 10, name
        assert max(found["margins"]) - min(found["margins"]) < NEAR, name


def test_dark_and_narrow(pages, tmp_path):
    (found, narrow), said = look_at(
        [pages["airborne"][1], pages["many"][1]], tmp_path, "--blink-settings=preferredColorScheme=0", width=420
    )
    assert said == []
    assert found["paper"] == "rgb(17, 21, 28)"
    assert narrow["width"] <= narrow["window"]


def test_a_picture_stands_alone(pages):
    """It is well-formed XML, with its style and without anything to press."""
    for view, _ in pages.values():
        root = ET.fromstring(svg(draw(view)))  # noqa: S314 - our own
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not [each for each in root.iter() if each.get("role") == "button"]


def test_a_plot_begins_at_zero():
    plot = sparkline([0.0, 5.0, 10.0], "words & more", 100, 50)
    assert '<polyline points="4.0,46.0 50.0,25.0 96.0,4.0"/>' in plot
    assert "<title>words &amp; more</title>" in plot
    assert "nan" not in sparkline([0.0], "none")


def test_a_picture_has_plain_colours_too(pages):
    """Programs that know no variables (librsvg, Inkscape) take the first colour of each pair; in a browser the second one counts."""
    style = re.search(r"<style>(.*)</style>", svg(draw(pages["airborne"][0])), re.DOTALL)[1]
    variables = re.findall(r"([a-z-]+): var\(", style)
    assert len(variables) > 15
    assert len(re.findall(r"([a-z-]+): #[0-9a-f]+; \1: var\(", style)) == len(variables)


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="needs librsvg: apt-get install librsvg2-bin")
@pytest.mark.parametrize("name", ["airborne", "times"])
def test_a_picture_is_light_in_another_renderer(name, tmp_path):
    picture = tmp_path / "picture.png"
    subprocess.run(["rsvg-convert", str(ROOT / f"docs/{name}.svg"), "-o", str(picture)], check=True, timeout=300)
    assert black_share(picture.read_bytes()) < 0.1


def black_share(data):
    """Return the share of dark pixels in a PNG of 8 bits a channel."""
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert (depth, colour) in {(8, 2), (8, 6)}
    size = 3 if colour == 2 else 4
    at, packed = 8, b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        packed += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    raw, before, dark = zlib.decompress(packed), bytes(size * width), 0
    for row in range(height):
        start = row * (size * width + 1)
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + size * width])
        for place in range(len(line)):
            left, corner = (line[place - size], before[place - size]) if place >= size else (0, 0)
            line[place] = (line[place] + predicted(kind, left, before[place], corner)) % 256
        dark += sum(
            max(line[each : each + 3]) < 20 and (size == 3 or line[each + 3] > 200)
            for each in range(0, len(line), size)
        )
        before = bytes(line)
    return dark / (width * height)


def predicted(kind, left, above, corner):
    """Return the value from which a PNG's filter of this kind counts."""
    nearest = min((left, above, corner), key=lambda each: abs(left + above - corner - each))
    return [0, left, above, (left + above) // 2, nearest][kind]
