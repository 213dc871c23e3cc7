"""Daily reports as public ones arrive: files are rewritten for days, columns are renamed, one file has its header twice. After each day outputs equal recomputation, and their updates are the rows that differ."""

from __future__ import annotations

from collections import Counter

import polars as pl

from tests.draws import chance, many

DAYS = min(60, max(15, many(60)))
RENAMED, TWICE = DAYS * 2 // 3, DAYS // 2
PLACES = [(f"p{at % 7}" if at % 5 else "", f"c{at % 4}", at) for at in range(24)]
OLD, NEW = ("Province/State", "Country/Region", "Deaths"), ("Province_State", "Country_Region", "Deaths")
PIPELINE = """
clock: arrival
inputs:
  reports:
    path: in/
    format: append
    file_name: "{{day}}.csv"
    changed: replace
    columns: {{day: date, {province}, {country}, Deaths: "int64?"}}
collections:
  deaths: {{sql: "select country, day, sum(Deaths) as deaths, count(*) as places from reports group by country, day"}}
outputs: {{reports: out/reports/, deaths: out/deaths/}}
"""


def pipeline(*new):
    """Return the pipeline with these names of columns beside the old ones."""
    names = zip(("province", "country"), OLD, new or OLD, strict=False)
    stated = [
        f'{column}: {{type: string?, from: ["{old}"{f", {name}" if name != old else ""}]}}'
        for column, old, name in names
    ]
    return PIPELINE.format(province=stated[0], country=stated[1])


def day_of(number):
    return f"2020-{1 + number // 28:02}-{1 + number % 28:02}"


def written(shop, number, header, rows, *, twice=False):
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    shop.write(f"in/{day_of(number)}.csv", "\n".join(lines[:1] * (1 + twice) + lines[1:]) + "\n")


def expected(files):
    """Return the collections of both outputs, from scratch over the files."""
    reports, deaths = Counter(), {}
    for number, rows in files.items():
        day = day_of(number)
        for province, country, count in rows:
            reports[day, province or None, country, count] += 1
            total, places = deaths.get((country, day), (0, 0))
            deaths[country, day] = total + count, places + 1
    return {"reports": reports, "deaths": Counter({(*key, *values): 1 for key, values in deaths.items()})}


def held(shop, name):
    """Return the collection that an output holds, and the sum of the sizes of its updates."""
    frame = pl.concat([pl.read_parquet(path) for path in (shop.folder / "out" / name).glob("*.parquet")])
    frame = frame.drop("time").with_columns(pl.col("day").cast(pl.String))
    found = Counter()
    for *row, diff in frame.iter_rows():
        found[tuple(row)] += diff
    return Counter({row: count for row, count in found.items() if count}), frame["diff"].abs().sum()


def test_days_of_reports_cost_the_rows_that_differ(shop):
    random, files, pending, former = chance("daily reports"), {}, {}, expected({})
    differing = dict.fromkeys(former, 0)
    shop.write("p.yaml", pipeline())
    for number in range(DAYS):
        header = OLD if number < RENAMED else NEW
        files[number] = [(province, country, size + number) for province, country, size in PLACES]
        changed = {number, *(day for day, times in pending.items() if times and random.random() < 0.3)}
        pending = {day: times - (day in changed) for day, times in pending.items()} | {number: random.randint(0, 7)}
        for day in changed:
            if day != number:  # some counts are corrected, at times a place comes or goes
                rows = [(p, c, n + (random.random() < 0.1)) for p, c, n in files[day]]
                files[day] = rows[random.random() < 0.2 :] + [("new", "c1", 1)] * (random.random() < 0.2)
            written(shop, day, header, files[day], twice=number == TWICE and day == number)
        if number in (TWICE, RENAMED):
            found = shop("run", "p.yaml", "--quiet")
            assert found.code == 3
            # Corrections of many files are a commit of their own before that of the new file.
            others = expected({day: rows for day, rows in files.items() if day != number})
            assert {name: held(shop, name)[0] for name in former} in (former, others)
            if number == TWICE:
                assert f"{day_of(number)}.csv:2: error: 'Deaths' in column 'Deaths' can't be read as int64" in found.err
                written(shop, number, header, files[number])
            else:
                assert 'from: ["Province/State", Province_State]' in found.err
                shop.write("p.yaml", pipeline(*NEW))
        assert shop("run", "p.yaml", "--quiet").code == 0
        now = expected(files)
        for name, rows in now.items():
            differing[name] += sum(abs(rows[row] - former[name][row]) for row in rows | former[name])
            collection, updates = held(shop, name)
            assert collection == rows, (number, name)
            assert updates <= 1.1 * differing[name], (number, name)
        former = now
