"""Pages in a headless Chromium: loaded all at once, measured where they are, with what the browser had to say of them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MARK = "what was found: "

MEASURE = """
function rectangle(element) { const r = element.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; }
function measure(frame) {
  const page = frame.contentDocument, view = frame.contentWindow;
  const isOpen = name => !page.querySelector(`.pane[data-pane=${name}]`).hidden;
  const overview = page.querySelector('.overview'), pane = rectangle(overview), first = isOpen('collections');
  const folded = [...overview.querySelectorAll('.box')].map(box => {
    box.dispatchEvent(new view.MouseEvent('click', {bubbles: true}));
    const shown = [...page.querySelectorAll('aside section')].filter(each => !each.hidden);
    return {rect: rectangle(box.querySelector('rect')), words: [...box.querySelectorAll('text')].map(each => each.textContent), shown: shown.map(each => each.innerText)};
  });
  const unfolded = [...page.querySelectorAll('button[data-all]')].map(button => {
    button.click();
    const lit = [...page.querySelectorAll('.graph .box:not(.apart)')].map(each => each.dataset.n), open = isOpen('operators');
    page.querySelector('.bar [data-pane=collections]').click();
    return {numbers: button.dataset.all.split(' '), lit, open};
  });
  const widths = ['1.25', '0.8', 'fit'].map(each => {
    page.querySelector(`.bar [data-zoom="${each}"]`).click();
    return overview.querySelector('svg').getBoundingClientRect().width;
  });
  page.querySelector('.bar [data-pane=operators]').click();
  const scale = Number(page.querySelector('.graph').dataset.scale);
  const boxes = [...page.querySelectorAll('.graph .box')].map(box => ({
    n: box.dataset.n, rect: rectangle(box.querySelector('rect')), words: box.querySelector('text').textContent,
    all: [...box.querySelectorAll('text')].map(each => each.textContent), texts: [...box.querySelectorAll('text')].map(rectangle),
    title: box.querySelector('title').textContent, shared: box.classList.contains('shared'),
  }));
  const lines = [...page.querySelectorAll('.graph .lines path')].map(path => {
    const length = path.getTotalLength(), matrix = path.getScreenCTM(), points = [];
    for (let at = 0; at <= 60; at++) {
      const point = path.getPointAtLength(length * at / 60).matrixTransform(matrix);
      points.push([point.x, point.y]);
    }
    return {from: path.dataset.from, to: path.dataset.to ?? null, back: path.classList.contains('back'), points};
  });
  const loops = [...page.querySelectorAll('.graph .loop')].map(loop => ({rect: rectangle(loop.querySelector('rect')), text: rectangle(loop.querySelector('text'))}));
  const clicked = [];
  for (const box of page.querySelectorAll('.graph .box')) {
    box.dispatchEvent(new view.MouseEvent('click', {bubbles: true}));
    clicked.push({n: box.dataset.n, shown: [...page.querySelectorAll('aside section')].filter(each => !each.hidden).map(each => each.innerText)});
  }
  const button = page.querySelector('td button');
  if (button) button.click();
  const focused = page.activeElement?.dataset?.n ?? null;
  return {
    pane, first, folded, unfolded, widths, scale, boxes, lines, loops, clicked, focused, title: page.title, heading: page.querySelector('h1').textContent,
    margins: [...page.querySelectorAll('h1, h2, .pane:not([hidden])')].map(each => rectangle(each)[0]),
    width: page.documentElement.scrollWidth, window: view.innerWidth, table: page.querySelector('main > .wide table')?.rows.length ?? 0,
    plots: [...page.querySelectorAll('.plots title')].map(each => each.textContent), scripts: page.scripts.length,
    untitled: [...page.querySelectorAll('svg')].filter(each => !each.querySelector('title')).length,
    requests: view.performance.getEntriesByType('resource').map(each => each.name),
    paper: view.getComputedStyle(page.body).backgroundColor,
  };
}
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map(measure);
  document.body.textContent = MARK + JSON.stringify(found);
});
"""


def browser():
    """Return a Chromium, or skip the test with the reason."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


def look_at(pages, folder, *options, width=1300):
    """Return what is measured of each page, and the lines that the browser has said of any."""
    frames = "".join(f'<iframe width="{width}" height="1000" srcdoc="{html.escape(page)}"></iframe>' for page in pages)
    outer = folder / "outer.html"
    outer.write_text(
        f"<!doctype html><meta charset=utf-8><body>{frames}<script>const MARK = {json.dumps(MARK)};{MEASURE}</script>"
    )
    command = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
    ]
    command += [
        f"--user-data-dir={folder / 'profile'}",
        *options,
        "--virtual-time-budget=5000",
        "--dump-dom",
        outer.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    text = html.unescape(done.stdout)
    assert MARK in text, done.stderr[-3000:]
    found = json.JSONDecoder().raw_decode(text[text.index(MARK) + len(MARK) :])[0]
    return found, re.findall(r".*:CONSOLE.*", done.stderr)
