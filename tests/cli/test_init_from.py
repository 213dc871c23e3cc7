# ruff: noqa: DTZ001, DTZ007 - datetimes without zone are a type of their own
"""`dd init --from`: the pipeline files that it writes over folders of exports run, and hold what the files hold."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import openpyxl
import polars as pl
import pytest
import yaml

from ddcli.commands.check import check
from ddcli.commands.first_pipeline import begin
from ddcli.driver.run import run
from ddcli.errors import InputError, UsageError
from tests.draws import many
from tests.harness import ROOT

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own
EXPORTS = ROOT / "fixtures/exports"


def begun(tmp_path, data):
    """Return the inputs of the pipelines over a folder, after they have run."""
    for name, text in begin(data, tmp_path).items():
        (tmp_path / name).write_text(text)
        assert check(tmp_path / name).errors == (), text
        run(tmp_path / name)
    return tmp_path


def held(tmp_path, name):
    """Return the collection that an output holds, its time left out."""
    found = pl.concat(map(pl.read_parquet, sorted((tmp_path / "out" / name).glob("*.parquet"))))
    count: Counter = Counter()
    for *row, diff in found.drop("time").iter_rows():
        count[tuple(row)] += diff
    return +count


def texts(path, encoding, delimiter):
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode(encoding)), delimiter=delimiter))


def amount(text):
    return Decimal(text.replace(",", ".")) if text and text != "NULL" else None


def test_european_csv(tmp_path):
    rows = [row for path in sorted(EXPORTS.glob("european/*.csv")) for row in texts(path, "utf-8-sig", ";")]
    wanted = Counter(
        (
            int(row["Beleg"]),
            datetime.strptime(row["Datum"], "%d.%m.%Y").date(),
            row["Filiale"],
            amount(row["Betrag"]),
            amount(row["Rabatt"]),
            row["Bemerkung"] or None,
        )
        for row in rows
    )
    assert len(wanted) == 40
    assert held(begun(tmp_path, EXPORTS / "european"), "kasse") == wanted
    text = (tmp_path / "european.yaml").read_text()
    assert 'csv: {"delimiter": ";", "date_format": "%d.%m.%Y", "decimal": ","}' in text


def test_columns_that_are_nearly_numbers_or_dates(tmp_path):
    """A total's name, a currency and the escapes of Postgres's text format are doubts; a code and a version are text without one."""
    (tmp_path / "in").mkdir()
    rows = [f"0{at + 1}.10.2026;{at},50 €;({at}%);v{at};1.2.{at}" for at in range(9)] + ["Summe;12,50 €;(11%);v9;1.2.9"]
    rows += [row.replace(".10.", ".11.").replace("Summe", "09.11.2026") for row in rows]
    (tmp_path / "in/bank.csv").write_text("Tag;Betrag;Anteil;Code;Version\n" + "\n".join(rows) + "\n")
    (tmp_path / "in/copy.tsv").write_text("1\ta\\tb\n2\t\\N\n3\tc\n")
    text = begin(tmp_path / "in", tmp_path)["in.yaml"]
    found = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": string" in line)
    assert (
        found["Tag"] == "string  # ? text, as 'Summe' is no date, which the other values are: see `errors: quarantine`"
    )
    assert (
        found["Betrag"] == "string  # ? text, as each number has ' €' beside it: take it off with `replace` and `cast`"
    )
    assert "'(' and '%)'" in found["Anteil"]
    assert (found["Code"], found["Version"]) == ("string", "string")
    assert "escapes of Postgres's text format" in found["column1"]


def test_a_column_without_a_name_is_left_out(tmp_path):
    """As of an index that pandas writes."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text(",x\n0,5\n1,6\n")
    assert held(begun(tmp_path, tmp_path / "in"), "a") == {(5,): 1, (6,): 1}
    assert "# a column without a name is left out" in (tmp_path / "in.yaml").read_text()


def test_latin_tabs(tmp_path):
    rows = [row for path in sorted(EXPORTS.glob("latin/*.tsv")) for row in texts(path, "cp1252", "\t")]
    wanted = Counter(
        (
            int(row["kunde"]),
            row["name"],
            row["ort"],
            row["plz"],
            datetime.fromisoformat(row["angelegt"]),
            amount(row["umsatz"]),
        )
        for row in rows
    )
    assert held(begun(tmp_path, EXPORTS / "latin"), "customers") == wanted
    text = (tmp_path / "latin.yaml").read_text()
    assert '"windows-1252", "null": ["NULL"]}  # ? the bytes are not UTF-8' in text
    assert "plz: string  # ? text, because of leading zeros" in text


def test_workbooks(tmp_path):
    wanted: Counter = Counter()
    for path in sorted(EXPORTS.glob("excel/*.xlsx")):
        for number, on, room, nights, price, breakfast in list(openpyxl.load_workbook(path)["Bookings"].values)[1:]:
            day = on.date() if isinstance(on, datetime) else on
            wanted[number, day, room, nights, Decimal(str(price)).quantize(Decimal("0.01")), breakfast] += 1
    assert sum(wanted.values()) == 24
    assert held(begun(tmp_path, EXPORTS / "excel"), "bookings_Q") == wanted


def test_events_with_schemas(tmp_path):
    rows = {}
    for path in sorted(EXPORTS.glob("debezium/*")):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            if event := json.loads(line)["payload"]:
                row = event["after"]
                rows[(row or event["before"])["id"]] = row
    wanted = Counter(
        (row["id"], row["status"], Decimal(str(row["total"])).quantize(Decimal("0.01"))) for row in rows.values() if row
    )
    assert len(wanted) > 3
    assert held(begun(tmp_path, EXPORTS / "debezium"), "orders") == wanted


def test_daily_snapshots_with_gaps(tmp_path):
    last = max(EXPORTS.glob("snapshots/*.csv"))
    day = date.fromisoformat(last.stem.removeprefix("stock-"))
    wanted = Counter((row["article"], int(row["on_hand"]), day) for row in texts(last, "utf-8", ","))
    assert held(begun(tmp_path, EXPORTS / "snapshots"), "stock") == wanted
    assert "format: snapshots  # ? each file looks like" in (tmp_path / "snapshots.yaml").read_text()


def test_the_fixtures_are_what_their_script_makes(tmp_path, monkeypatch):
    from tests.test_fixtures import load_script

    made = load_script("make_exports")
    monkeypatch.setattr(made, "FOLDER", tmp_path / "exports")
    made.main()
    for path in EXPORTS.rglob("*"):
        if path.is_file() and path.suffix in (".csv", ".tsv", ".gz"):
            same = (tmp_path / "exports" / path.relative_to(EXPORTS)).read_bytes()
            assert (
                (gzip.decompress(same) == gzip.decompress(path.read_bytes()))
                if path.suffix == ".gz"
                else same == path.read_bytes()
            )


def test_a_mixed_folder_is_several_inputs_of_one_pipeline(tmp_path):
    data = tmp_path / "data"
    (data / "orders").mkdir(parents=True)
    for day in ("2024-01-01", "2024-01-02"):
        (data / f"orders/{day[-1]}.csv").write_text(f"id,total,place,time\n1,2.50,a,{day}\n2,,b,{day}\n")
        (data / f"visits-{day}.ndjson").write_text(f'{{"page": "p{day}", "at": "{day} 10:00:00"}}\n')
    (data / "people.json").write_text(
        '[{"id": 1, "name": "ann", "born": "2000-01-02"}, {"id": 2, "name": null, "born": "2001-01-01"}]'
    )
    (data / "words.csv").write_text("word\na\n")
    (data / "half.csv").write_text('a,b\n"1')
    (data / "notes.txt").write_text("nothing")
    files = begin(data, tmp_path)
    assert list(files) == ["data.yaml"]
    text = files["data.yaml"]
    assert "path: data/orders/" in text
    assert "path: data/people.json" in text
    assert 'path: "data/visits-*.ndjson"' in text
    assert 'file_name: "visits-{day}.ndjson"' in text
    assert "format: upsert" in text.split("orders:")[1].split("people")[0]
    assert "path: data/words.csv" in text
    assert "# half: data/half.csv is left out: " in text
    begun(tmp_path, data)
    last = date(2024, 1, 2)
    assert held(tmp_path, "orders") == {(1, Decimal("2.50"), "a", last): 1, (2, None, "b", last): 1}
    assert held(tmp_path, "visits") == {
        (f"p2024-01-0{n}", datetime(2024, 1, n, 10), date(2024, 1, n)): 1 for n in (1, 2)
    }
    assert held(tmp_path, "words") == {("a",): 1}
    # A day that comes again, corrected, and one that comes late: neither is refused.
    (data / "orders/0.csv").write_text("id,total,place,time\n1,9.00,c,2023-12-31\n")
    (data / "orders/3.csv").write_text("id,total,place,time\n1,3.50,z,2024-01-03\n")
    run(tmp_path / "data.yaml")
    assert held(tmp_path, "orders") == {(1, Decimal("3.50"), "z", date(2024, 1, 3)): 1, (2, None, "b", last): 1}
    (data / "events.ndjson").write_text(
        '{"op": "c", "before": null, "after": {"id": 1, "n": 2}, "ts_ms": 5, "source": {"lsn": 7}}\n'
    )
    assert list(begin(data, tmp_path)) == ["data.yaml", "data_events.yaml"]


def test_nothing_to_begin_with_and_nothing_overwritten(tmp_path):
    with pytest.raises(UsageError, match="there is no such directory"):
        begin(tmp_path / "data", tmp_path)
    with pytest.raises(UsageError, match="there is no such directory") as caught:
        begin(Path("s3://shop/orders/"), tmp_path)
    assert "copy some here" in str(caught.value.hint)
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError, match="it has no file of a kind that is read"):
        begin(tmp_path / "data", tmp_path)


NAMES = ["id", "a b", "time", "diff", "Größe", "x:y", "null", "# c", "day"]


def test_random_tables_run_as_they_are_begun(tmp_path):
    """What is begun runs, whatever columns are called and hold; and each value is there as the file has it."""
    for seed in range(many(25)):
        chance = random.Random(f"init {seed}")
        names = ["on", *chance.sample(NAMES, chance.randrange(1, 5))]
        makers = {
            "int": lambda c=chance: str(c.randrange(10**6)),
            "text": lambda c=chance: c.choice(["a a", "b;c", "d,e", 'f"g', "é"]),
            "phone": lambda c=chance: f"+49{c.randrange(10**7)}",
            "code": lambda c=chance: f"0{c.randrange(999)}",
            "dot": lambda c=chance: f"{c.randrange(999)}.{c.randrange(99):02}",
            "date": lambda c=chance: f"{c.randrange(1, 29):02}.{c.randrange(1, 13):02}.2024",
        }
        kinds = {name: "date" if name == "on" else chance.choice(list(makers)) for name in names}
        rows = [{name: makers[kind]() for name, kind in kinds.items()} for _ in range(chance.randrange(2, 9))]
        for row in rows[1:]:
            row.update({name: "" for name in names[1:] if chance.random() < 0.1})
        folder, cut = tmp_path / str(seed), chance.choice([len(rows), 1])
        lacks = (
            {name for name in names[1:] if name not in ("time", "diff") and chance.random() < 0.3}
            if cut < len(rows)
            else set()
        )
        quoting, delimiter = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), chance.choice([",", ";", "\t"])
        encoding = chance.choice(["utf-8", "utf-16"])
        (folder / "data/things").mkdir(parents=True)
        for part, left, at in ((rows[:cut], set(), 1), (rows[cut:], lacks, 2)):
            if part:
                with (folder / f"data/things/{at}.csv").open("w", newline="", encoding=encoding) as file:
                    there = [name for name in names if name not in left]
                    writer = csv.DictWriter(file, there, delimiter=delimiter, quoting=quoting, extrasaction="ignore")
                    writer.writeheader()
                    writer.writerows(part)
        for row in rows[cut:]:
            row.update(dict.fromkeys(lacks))
        begun(folder, folder / "data")
        begun_input = yaml.safe_load((folder / "data.yaml").read_text())["inputs"]["things"]
        if begun_input["format"] == "upsert":
            continue
        typed = [row[name] for row in rows for name in names if kinds[name] in ("int", "dot", "date")]
        empty = "" if quoting == csv.QUOTE_ALL and "" not in typed else None
        wanted = Counter(
            tuple(
                value_of(kinds[name], row[name]) if row[name] else None if row[name] is None else empty
                for name in names
            )
            for row in rows
        )
        assert held(folder, "things") == wanted, seed


def value_of(kind, text):
    """Return what a text is in the type that its column gets."""
    if kind == "date":
        return datetime.strptime(text, "%d.%m.%Y").date()  # as the file has it
    return Decimal(text) if kind == "dot" else int(text) if kind == "int" else text


def test_days_that_could_be_months_are_a_question(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("n,day\n1,01/02/2024\n")
    text = begin(tmp_path / "data", tmp_path)["data.yaml"]
    assert "day: date  # ? the values fit %d/%m/%Y and %m/%d/%Y: see `date_format`" in text
    (tmp_path / "data/a.csv").write_text("n,day\n1,01/13/2024\n")
    assert "%m/%d/%Y" in begin(tmp_path / "data", tmp_path)["data.yaml"]
    assert held(begun(tmp_path, tmp_path / "data"), "a") == {(1, date(2024, 1, 13)): 1}


@pytest.mark.parametrize("name", ["on", "Last change", 'a "b"', "order", "zuletzt geändert"])
def test_a_column_that_decides_may_have_any_name(tmp_path, name):
    (tmp_path / "data").mkdir()
    with (tmp_path / "data/things.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[name, "id"], ["13.02.2024", "a"], ["14.02.2024", "a"], ["15.02.2024", "b"]])
    begun(tmp_path, tmp_path / "data")
    assert sorted(id_ for _, id_ in held(tmp_path, "things")) == ["a", "b"]


def test_a_column_that_some_files_lack_is_optional_with_a_question_mark(tmp_path, shop):
    """What is begun runs and has the column; a key or time is never one that files lack."""
    shop.write("data/1.csv", "a,b\n1,2\n")
    shop.write("data/2.csv", "a,b,day,id\n1,2,2024-01-02,7\n1,3,2024-01-03,7\n")
    shop.write("data/3.csv", "x,y\n1,2\n")
    found = shop("init", "p", "--from", "data")

    assert found.code == 2
    assert "its files have no column in common" in found.err
    (shop.folder / "data/3.csv").unlink()
    (shop.folder / "data/orders").mkdir()
    shop.write("data/orders/1.csv", "n,n\n1,2\n")
    found = shop("init", "p", "--from", "data")
    assert "note: ../data/orders/ is left out: the header has the name 'n' twice" in found.err
    text = (shop.folder / "p/data.yaml").read_text()
    why = "# ? only 1 of 2 files have it, it is null in the others"
    assert f'      day: {{type: "date?", optional: true}}  {why}\n' in text
    assert f'      id: {{type: "int64?", optional: true}}  {why}\n' in text
    assert shop("run", "p/data.yaml").code == 0
    days = (date(2024, 1, 2), date(2024, 1, 3))
    assert held(shop.folder / "p", "data") == {(1, 2, None, None): 1, (1, 2, days[0], 7): 1, (1, 3, days[1], 7): 1}


def test_checks_of_sets_and_references_hold(tmp_path, shop):
    """They are comments; without the marks the rows meet them, and others don't. Files named by part are replaced."""
    shop.write("data/customers.csv", "id,land\n" + "".join(f"{at},{'no' if at % 2 else 'DE'}\n" for at in range(20)))
    for part in range(2):
        rows = (f"{100 * part + at},{at},{['open', 'paid'][at % 2]}\n" for at in range(15))
        shop.write(f"data/orders_{part}.csv", "order,customer_id,state\n" + "".join(rows))
    assert shop("init", "p", "--from", "data").code == 0
    text = (shop.folder / "p/data.yaml").read_text().replace("# checks:", "checks:").replace("#   - ", "  - ")
    shop.write("p/data.yaml", text)
    read = yaml.safe_load(text)
    assert "changed" not in read["inputs"]["customers"]
    assert read["inputs"]["orders"]["changed"] == "replace"
    assert {"refers": {"customer_id": "customers.id"}, "of": "orders"} in read["checks"]
    assert {"in": {"state": ["open", "paid"]}, "of": "orders"} in read["checks"]
    assert shop("run", "p/data.yaml").code == 0
    shop.write("data/orders_2.csv", "order,customer_id,state\n900,77,lost\n")
    found = shop("run", "p/data.yaml")
    assert (found.code, "orders_in_state" in found.err, "orders_refers_customer_id" in found.err) == (7, True, True)


@pytest.mark.parametrize("name", ["time", "diff"])
def test_a_column_with_a_name_of_logs_may_be_in_some_files_alone(tmp_path, shop, name):
    shop.write("data/s_1.csv", f"a,{name}\n1,2\n")
    shop.write("data/s_2.csv", "a\n3\n")
    assert shop("init", "p", "--from", "data").code == 0
    result = shop("run", "p/data.yaml")
    assert result.code == 0, result.err
    assert held(shop.folder / "p", "s") == {(1, 2): 1, (3, None): 1}


def test_files_without_a_header_that_differ_in_width_are_left_out_with_a_note(tmp_path, shop):
    """Their columns have no names by which one could be found missing, so no file of a pipeline reads them."""
    shop.write("data/orders/1.csv", "1,2.5\n2,3.5\n")
    shop.write("data/orders/2.csv", "1,2.5,7\n2,3.5,8\n")
    shop.write("data/more/1.csv", "1,2.5\n2,3.5\n")
    found = shop("init", "p", "--from", "data")
    assert "note: ../data/orders/ is left out: its files have no header, and not as many columns each" in found.err
    assert shop("run", "p/data.yaml").code == 0


def test_numbers_are_read_by_their_marks_or_are_a_question(tmp_path):
    """Marks between thousands become an option where other values show which they are; more decimals than were seen are refused."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("Betrag;Anzahl;Preis\n1.234,56;1.000;0,52\n500,00;12;1,25\n")
    (tmp_path / "data/b.csv").write_text('total,count,price\n"1,234.56","1,000",0.52\n500.00,12,1.25\n')
    (tmp_path / "data/c.csv").write_text("n;menge\n1;1.000\n2;2.500\n")
    text = begin(tmp_path / "data", tmp_path)["data.yaml"]
    given = yaml.safe_load(text)["inputs"]
    assert given["a"]["csv"] == {"delimiter": ";", "thousands": ".", "decimal": ","}
    assert given["b"]["csv"] == {"thousands": ","}
    assert "menge: string  # ? text, as '1.000' has a decimal sign or a mark between thousands" in text
    assert 'price: "decimal(18, 2)"  # ? a value with more decimals is refused; float64 if it is measured' in text
    begun(tmp_path, tmp_path / "data")
    rows = {(Decimal("1234.56"), 1000, Decimal("0.52")): 1, (Decimal("500.00"), 12, Decimal("1.25")): 1}
    assert held(tmp_path, "a") == held(tmp_path, "b") == rows
    assert held(tmp_path, "c") == {(1, "1.000"): 1, (2, "2.500"): 1}
    (tmp_path / "data/b2.csv").write_text("total,count,price\n1,2,0.004\n")
    said = yaml.safe_load(text)
    said["inputs"] = {"b": said["inputs"]["b"] | {"path": "data/b*.csv"}}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(said | {"name": "more", "outputs": {"b": "more/"}}))
    with pytest.raises(InputError, match=r"'0\.004' in column 'price' has more digits"):
        run(tmp_path / "more.yaml")


def test_files_without_a_header_have_numbered_columns_and_a_question(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/airports.txt").write_text("nothing that is read")
    (tmp_path / "data/airports.csv").write_text('1,"Goroka Airport",-6.081689834590001\n2,"Madang Airport",\\N\n')
    text = begin(tmp_path / "data", tmp_path)["data.yaml"]
    assert 'csv: {"header": false, "null": ["\\\\N"]}  # ? the first line looks like a row' in text
    begun(tmp_path, tmp_path / "data")
    assert held(tmp_path, "airports") == {(1, "Goroka Airport", -6.081689834590001): 1, (2, "Madang Airport", None): 1}


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp932", "㈱山田①のA\uff5eB、髙橋さん"),
        ("cp949", "서울 똠방각하 (주)"),
        ("windows-1252", "Größe, Ärger, façade “x” ¼"),
        ("windows-1252", "Äpfel und Ärger"),
    ],
)
def test_the_encoding_of_a_windows_is_found(encoding, text, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_bytes(f'id,v\n1,"{text}"\n'.encode(encoding))
    assert held(begun(tmp_path, tmp_path / "data"), "a") == {(1, text): 1}
    assert f'csv: {{"encoding": "{encoding}"}}  # ? the bytes are not UTF-8' in (tmp_path / "data.yaml").read_text()


def test_the_line_by_which_excel_knows_the_delimiter_is_skipped(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("sep=;\nid;v\n1;x\n")
    assert held(begun(tmp_path, tmp_path / "data"), "a") == {(1, "x"): 1}
    assert 'csv: {"delimiter": ";", "skip": 1}' in (tmp_path / "data.yaml").read_text()


@pytest.mark.parametrize(
    ("names", "rows", "option", "order", "last"),
    [
        (("2020-01-22", "2020-01-23"), "3", None, "day", date(2020, 1, 23)),
        (("20101120", "20101121"), "3", None, "day", date(2010, 11, 21)),
        (("01-22-2020", "01-23-2020"), "3", "%m-%d-%Y", "day", date(2020, 1, 23)),
        (("22.01.2020", "23.01.2020"), "3", "%d.%m.%Y", "day", date(2020, 1, 23)),
        (("2020_01_22", "2020_01_23"), "3", "%Y_%m_%d", "day", date(2020, 1, 23)),
        (("31-12-2019", "01-01-2020"), "2020-01-01", None, "strptime(day, '%d-%m-%Y')", "01-01-2020"),
        (("2020_01", "2020_02"), "3", None, "strptime(month || '-01', '%Y_%m-%d')", "2020_02"),
    ],
)
def test_dates_in_names_of_files_are_found_in_many_formats(tmp_path, names, rows, option, order, last):
    data = tmp_path / "data"
    (data / "cases").mkdir(parents=True)
    for name in names:
        (data / f"cases/r-{name}x.csv").write_text(f"region,seen\nnorth,{rows}\nsouth,{rows}\n")
    text = begin(data, tmp_path)["data.yaml"]
    assert f'file_name: "r-{{{"month" if "month" in order else "day"}}}x.csv"' in text
    assert (f'csv: {{"date_format": "{option}"}}' in text) if option else "csv" not in text.replace(".csv", "")
    assert f"order_by: {order}" in text.replace('"', "")
    assert "may also be" not in text
    begun(tmp_path, data)
    seen = date(2020, 1, 1) if "-" in rows else 3
    assert held(tmp_path, "cases") == {("north", seen, last): 1, ("south", seen, last): 1}


@pytest.mark.parametrize("name", ["20209999", "1234567890123", "2020_13", "31-02-2020", "202001"])
def test_numbers_in_names_of_files_that_are_no_dates_stay_names(tmp_path, name):
    (tmp_path / "data").mkdir()
    (tmp_path / f"data/{name}.csv").write_text("region,seen\nnorth,3\n")
    assert "file_name" not in begin(tmp_path / "data", tmp_path)["data.yaml"]


def test_days_and_months_that_may_be_exchanged_are_a_question(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("01-02-2020", "02-02-2020"):
        (tmp_path / f"data/{name}.csv").write_text("region,seen\nnorth,3\n")
    text = begin(tmp_path / "data", tmp_path)["data.yaml"]
    assert "# ? the dates in the files' names are read as %d-%m-%Y, and may also be %m-%d-%Y" in text


def test_files_of_days_and_parts_are_replaced_if_they_come_again(tmp_path):
    for name in ("days/2024-01-01", "days/2024-01-02", "parts/1", "parts/2", "towns/a", "towns/b"):
        path = tmp_path / f"data/{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"n,place\n{ord(name[-1]) % 16},x\n7{ord(name[-1]) % 16},y\n")
    begun(tmp_path, tmp_path / "data")
    (tmp_path / "data/days/2024-01-01.csv").write_text("n,place\n1,z\n71,y\n")
    run(tmp_path / "data.yaml")
    assert {row[:2] for row in held(tmp_path, "days")} == {(1, "z"), (71, "y"), (2, "x"), (72, "y")}
    (tmp_path / "data/parts/1.csv").write_text("n,place\n1,z\n7,y\n")
    run(tmp_path / "data.yaml")
    assert {row[:2] for row in held(tmp_path, "parts")} == {(1, "z"), (7, "y"), (2, "x"), (72, "y")}
    (tmp_path / "data/towns/a.csv").write_text("n,place\n1,z\n7,y\n")
    with pytest.raises(InputError, match="already read has changed"):
        run(tmp_path / "data.yaml")


def test_exports_of_a_spreadsheet_and_of_postgres(tmp_path):
    """Letters stay readable, null is found where a database writes it, and words of a language for true are a question."""
    (tmp_path / "in").mkdir()
    text = "sep=;\r\nArtikel;Preis;Geändert am;Aktiv;Notiz\r\nM4;1.200,05;31.01.2024 08:30;WAHR;\\N\r\nM5;0,12;01.02.2024 17:05;FALSCH;neu\r\n"
    (tmp_path / "in/lager.csv").write_bytes(text.encode("cp1252"))
    assert held(begun(tmp_path, tmp_path / "in"), "lager") == {
        ("M4", Decimal("1200.05"), datetime(2024, 1, 31, 8, 30), "WAHR", None): 1,
        ("M5", Decimal("0.12"), datetime(2024, 2, 1, 17, 5), "FALSCH", "neu"): 1,
    }
    written = (tmp_path / "in.yaml").read_text()
    assert '      "Geändert am": "datetime[us]"\n' in written
    assert (
        "Aktiv: string  # ? text; `\"Aktiv\" = 'WAHR'` is a bool, if WAHR and FALSCH stand for true and false"
        in written
    )
    assert "Notiz: string?  # ? \\N is read as null: see `null`" in written


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_checks_that_all_rows_meet_so_far_are_proposed(tmp_path, shop, kind):
    """They become checks when their marks of comments are removed."""
    for at in range(2):
        frame = pl.DataFrame({"id": [2 * at, 2 * at + 1], "v": ["a", "a"]})
        path = shop.folder / f"in/{at}.{kind}"
        path.parent.mkdir(exist_ok=True)
        frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    assert shop("init", "p", "--from", "in").code == 0
    path = shop.folder / "p/in.yaml"
    lines = path.read_text().splitlines()
    proposed = lines[lines.index(next(line for line in lines if line.startswith("# checks:"))) :]
    assert "?" in proposed[0]
    assert proposed[1] == "#   - {unique: [id], of: in}"
    path.write_text("\n".join([*lines[: -len(proposed)], *(line.removeprefix("# ") for line in proposed)]) + "\n")
    assert shop("run", path).code == 0
    shop.write("in/2.csv" if kind == "csv" else "in/x.csv", "id,v\n1,b\n")
    if kind == "csv":
        done = shop("run", path)
        assert done.code == 7
        assert "unique" in done.err


def test_a_renamed_column_gets_its_names_with_a_question_mark(tmp_path):
    """Names of the same letters are one column, and so are the only two, if their values are alike and one follows the other."""
    data = tmp_path / "data"
    for folder, headers in {
        "days": ["Province/State,Last Update,n", "Province_State,Last_Update,n", "Province_State,Last_Update,n,lat"],
        "one": ["id,town", "id,city"],
        "kinds": ["id,town", "id,born"],
        "back": ["id,town", "id,city", "id,town"],
    }.items():
        (data / folder).mkdir(parents=True)
        for at, header in enumerate(headers):
            row = ",".join({"born": "2024-03-01", "lat": "1.5"}.get(name, f"{at}x") for name in header.split(","))
            (data / folder / f"part-{at}.csv").write_text(f"{header}\n{row}\n")
    begun(tmp_path, data)
    text = (tmp_path / "data.yaml").read_text()
    given = yaml.safe_load(text)["inputs"]
    assert given["days"]["columns"]["Province_State"] == {"type": "string", "from": ["Province/State"]}
    assert given["days"]["columns"]["Last_Update"] == {"type": "string", "from": ["Last Update"]}
    assert given["one"]["columns"]["city"] == {"type": "string", "from": ["town"]}
    optional = {"type": "string?", "optional": True}
    assert given["kinds"]["columns"] == {"id": "string", "town": optional, "born": optional | {"type": "date?"}}, text
    assert given["back"]["columns"] == {"id": "string", "town": optional, "city": optional}, text
    assert text.count("# ? it is the same column under several names") == 3
    lat = Decimal("1.5")
    assert held(tmp_path, "days") == {(*(f"{at}x",) * 3, lat if at == 2 else None): 1 for at in range(3)}
