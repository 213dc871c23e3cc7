"""Columns with tags: no command that can show a row shows a hidden value, in any format or message; `--show` and data files have them all."""

import contextlib
import re
import shlex
import shutil
from types import SimpleNamespace

import polars as pl
import pytest

from ddcli import run, why
from ddcli.cli.main import COMMANDS
from tests.harness import Folder, contents, files, write_log
from tests.tables.followers import COLUMNS, KINDS, Follower

SECRET = "zanzibar"  # noqa: S105 - an address
MAIL = f"{SECRET}@secret.example"
SHOP = """\
dd: 1
name: shop
inputs:
  people:
    path: in/people/
    format: upsert
    key: [id]
    columns: {id: int64, email: {type: string, tags: [pii]}, city: string}
  orders: {path: in/orders/, columns: {order_id: int64, person: int64, amount: int64}, late: quarantine}
errors: quarantine
collections:
  named: {sql: "select o.order_id, p.email as contact, o.amount, p.city from orders o join people p on o.person = p.id"}
  cities: {sql: "select city, count(*) as n, max(upper(contact)) as last from named group by city"}
  numbers: {sql: "select id, cast(email as int64) as number from people"}
checks:
  - {unique: [contact], of: named, name: one, otherwise: warn}
  - {row: length(email) > 0, of: people, name: filled}
outputs:
  named: out/named/
  cities: out/cities/
  numbers: out/numbers/
  table: {from: named, as: table, parquet: lake/named.parquet}
  history: {from: people, as: history, key: [id], parquet: lake/people.parquet}
tests:
  - {name: none, given: {people: []}, expect: {collection: cities, contents: []}}
"""
BAD = """\
dd: 1
name: bad
inputs: {people: {path: in/people/, INPUT, columns: {id: int64, email: {type: TYPE, tags: [pii]}, city: string}}}
collections: {out: {COLLECTION}}
checks: [CHECKS]
outputs: {out: bad/}
"""
CODE = """\
def lower(row):
    raise ValueError(f"no address: {row['email']}")
def wrong(row):
    return {"email": [row["email"]]}
"""
PEOPLE = f"id,email,city,time\n1,{MAIL},Rome,1\n2,b@{SECRET}.example,Oslo,1\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder whose logs, quarantines, checks and states have secret values."""
    shop = Folder(tmp_path_factory.mktemp("people"), SimpleNamespace(readouterr=lambda: ("", "")))
    shop.write("in/people/1.csv", PEOPLE)
    shop.write("in/orders/1.csv", "order_id,person,amount,time,diff\n10,1,5,1,1\n11,2,7,1,1\n12,1,3,1,1\n")
    shop.write("p.yaml", SHOP)
    other = SHOP.replace("name: shop", "name: other").replace("out/", "other/").replace("lake/", "pond/")
    shop.write("q.yaml", other.replace("upper(contact)", "contact"))
    with contextlib.chdir(shop.folder):
        assert shop("run", "p.yaml").code == 0
        shop.write("in/people/2.csv", f"id,email,city,time\n1,new@{SECRET}.example,Bern,2\n3,{SECRET},,2\n")
        shop.write("in/orders/2.csv", "order_id,person,amount,time,diff\n13,3,1,2,1\n9,3,1,1,1\n14,x,1,2,1\n")
        assert shop("run", "p.yaml").code == 0
        assert shop("run", "q.yaml").code == 0
    shop.write("s.yaml", "a: {with: people+=fix.csv}\nb: {set: {people: {email: \"email || 'x'\", where: id = 1}}}\n")
    shop.write("fix.csv", f"id,email,city,time\n1,fix@{SECRET}.example,Bern,3\n")
    return shop.folder


@pytest.fixture
def people(made, shop):
    """Return a copy of that folder, in which commands run: to make it takes longer than they do."""
    shutil.copytree(made, shop.folder, dirs_exist_ok=True)
    return shop


SHOWS = [
    "log out/named",
    "log out/cities --as-of latest -o csv",
    "log out/named -o jsonl --consolidate",
    "log .dd/shop/errors",
    "log .dd/shop/errors/_unparsed/orders",
    "log .dd/shop/logs/one",
    "query p.yaml people id=1",
    "query p.yaml cities city=Bern -o json",
    "sql 'select upper(contact) as x from named' --from p.yaml -o csv",
    "sql 'select email || city as x from people' --from p.yaml --as-of latest -o json",
    "sql \"select contact as x from 'out/named/'\"",
    "sql \"select upper(contact) as x from 'out/named/*.parquet'\"",
    "sql \"select email || 'x' as y from 'lake/people.parquet'\" -o json",
    "sql \"select contact as x from 'lake/named.parquet' union all select email from 'lake/people.parquet'\"",
    "log 'out/named/*.parquet'",
    "log lake/people.parquet --time valid_from",
    "diff lake/people.parquet in/people/1.csv --key id",
    "diff 'out/named/*.parquet' 'other/named/*.parquet' -o json",
    "diff lake/named.parquet pond/named.parquet --key order_id -o markdown",
    "why p.yaml cities city=Bern",
    "why p.yaml cities city=Bern -o json",
    f"why p.yaml named contact={MAIL} --limit 5",
    "why p.yaml cities city=Rome",
    "diff out/named other/named --from 1 --to 2 --key order_id",
    "diff out/cities other/cities --key city -o markdown",
    "diff out/cities other/cities --key city -o html",
    "diff out/cities other/cities -o json",
    "diff out/cities other/cities -o jsonl",
    "diff p.yaml q.yaml --key cities=city",
    "diff p.yaml --against .dd/shop --without in/people/2.csv",
    "run p.yaml --scenarios s.yaml",
    "run p.yaml --scenarios s.yaml -o json",
    "branch merge q4 p.yaml",
    "branch merge q4 p.yaml -o json",
    "diff p.yaml@main p.yaml@q4",
    "checks p.yaml",
    "checks p.yaml -o json",
    "bisect p.yaml 'select max(last) as x from cities' --bad 'is not null'",
    "bisect p.yaml 'select max(last) as x from cities' --bad 'is not null' -o json",
    "verify p.yaml --all",
    "verify p.yaml --all -o json",
    "plan p.yaml",
    "explain p.yaml",
    "explain p.yaml -o html",
    "state ls p.yaml",
    "state show p.yaml -a 'people by id'",
    "inputs p.yaml",
    "doctor p.yaml",
    "test p.yaml",
    "run p.yaml",
    "lineage p.yaml",
    "check p.yaml",
    "forget p.yaml -n --where 'id = 1' --input people",
    "retract p.yaml in/people/2.csv -n",
]
NO_ROWS = {"completion", "convert", "feed", "functions", "import", "init", "reset", "schema", "wait"}
"""Commands that show no row; `feed` and `convert` deliver data as it is."""


@pytest.mark.parametrize("line", SHOWS)
def test_no_command_shows_a_hidden_value(people, line):
    words = shlex.split(line)
    if "q4" in line:
        conflict(people)
    result = people(*words)
    said = (result.out + result.err).replace(MAIL, "") if MAIL in line else result.out + result.err
    assert result.code in (0, 1), result.err
    assert SECRET not in said.lower(), said


def conflict(people):
    """Begin a branch with a file that has a row of a key of which main has another row that it has not read."""
    assert people("branch", "new", "q4", "p.yaml").code == 0
    assert people("run", "p.yaml", "--branch", "q4", "--with", "people+=fix.csv").code == 0
    people.write("in/people/3.csv", f"id,email,city,time\n1,main@{SECRET}.example,Bern,3\n")


def test_a_conflict_shows_which_rows(people):
    conflict(people)
    result = people("branch", "merge", "q4", "p.yaml")
    assert result.code == 1
    shown = re.findall(r"email=(pii:[0-9a-f]{8}), city=Bern", result.out)
    assert len({*shown}) == 2
    shown = people("branch", "merge", "q4", "p.yaml", "--show", "pii").out
    assert f"email=main@{SECRET}.example" in shown
    assert f"email=fix@{SECRET}.example" in shown


@pytest.mark.parametrize(
    "line",
    [
        "log out/kept --as-of latest -o csv",
        "log .dd/same/errors/_unparsed/people -o csv",
        "sql \"select email from 'out/kept/'\"",
        "sql \"select email from 'lake/kept.parquet'\"",
        "sql \"select email from '.dd/same/errors/_unparsed/people/'\"",
        "sql 'select email from people' --from same.yaml",
        "query same.yaml people id=1",
        "why same.yaml kept id=1",
        "diff out/kept same.parquet",
    ],
)
def test_a_value_has_one_digest_in_all_commands_on_a_state(shop, line):
    """Also in the logs of rows that are put aside."""
    pipeline = SHOP.partition("  orders:")[0].replace("name: shop", "name: same")
    shop.write(
        "same.yaml",
        pipeline
        + "errors: quarantine\noutputs: {kept: {from: people, path: out/kept/, as: table, parquet: lake/kept.parquet}}\n",
    )
    shop.write("in/people/1.csv", f"id,email,city,time\n1,{MAIL},Rome,1\n2,{MAIL},,1\n")
    assert shop("run", "same.yaml").code == 0
    pl.DataFrame({"id": [1], "email": ["other"], "city": ["Rome"]}).write_parquet(shop.folder / "same.parquet")
    found = [{*re.findall("pii:[0-9a-f]{8}", shop(*shlex.split(each)).out)} for each in (line, "log out/kept")]
    assert len(found[1]) == 1
    assert found[1] <= found[0], line


@pytest.mark.parametrize("form", ["table", "log"])
@pytest.mark.parametrize("kind", sorted({*KINDS} - {"parquet"}))
def test_files_of_tables_of_other_kinds_have_the_tags(shop, kind, form):
    """Not only those of Parquet tables: `dd sql` reads any file by its name."""
    table = Follower(shop.folder, kind, form)
    text = (shop.folder / "shop.yaml").read_text()
    shop.write("shop.yaml", text.replace("sales: in/", "sales: {path: in/, columns: {city: {tags: [pii]}}}"))
    for time in (1, 2):
        write_log(shop.folder / f"in/{time}.parquet", [(f"{SECRET}{time}", 5, time, 1)], COLUMNS)
        result = shop("run", "shop.yaml")
        assert result.code == 0, result.err
    assert {row[0] for row in table.read()} == {f"{SECRET}1", f"{SECRET}2"}
    written = [
        path.relative_to(shop.folder) for path in sorted(table.path.rglob("*.parquet")) if "_log" not in str(path)
    ]
    assert written
    for path in written:
        for line in (["sql", f"select upper(city) as x from '{path}'"], ["log", str(path), "--time", "amount"]):
            result = shop(*line)
            assert result.code == 0, result.err
            assert SECRET not in (result.out + result.err).lower()
            assert "pii:" in result.out
    assert SECRET in shop("sql", f"select city from '{written[0]}'", "--show", "pii").out


@pytest.mark.parametrize("otherwise", ["warn", "fail"])
def test_no_report_for_other_programs_has_a_hidden_value(people, otherwise):
    """JUnit's XML, annotations, events of OpenLineage and metrics, of checks that fail by rows with such values, and of failed runs."""
    text = SHOP.replace("name: shop", "name: watched").replace("out/", "watched/").replace("lake/", "pool/")
    text = text.replace("length(email) > 0", "length(email) > 90").replace("otherwise: warn", f"otherwise: {otherwise}")
    people.write("w.yaml", text.replace("name: filled", f"name: filled, otherwise: {otherwise}"))
    people.write(
        "wrong.yaml", text.replace("name: watched", "name: wrong").replace("contents: []", "contents: [{city: Rome}]")
    )
    said = []
    for words, code in (
        (
            ["run", "w.yaml", "--junit", "run.xml", "--metrics", "run.prom", "--openlineage", "run.json"],
            0 if otherwise == "warn" else 7,
        ),
        (["checks", "w.yaml", "--junit", "checks.xml"], 0),
        (["check", "w.yaml", "-o", "github"], 0),
        (["test", "wrong.yaml", "-o", "github", "--junit", "test.xml"], 1),
    ):
        result = people(*words)
        assert result.code == code, result.err
        said += [result.out, result.err]
    for name, mark in (
        ("run.xml", "filled"),
        ("run.prom", "filled"),
        ("run.json", "email"),
        ("checks.xml", "filled"),
        ("test.xml", "none"),
    ):
        said.append((people.folder / name).read_text())
        assert mark in said[-1], name
    assert SECRET not in "".join(said).lower()


def test_each_command_is_tried(shop):
    assert {line.split()[0] for line in SHOWS} | NO_ROWS == set(COMMANDS)


@pytest.mark.parametrize(
    "line",
    [
        "log out/named",
        "query p.yaml people id=1",
        "sql 'select contact from named' --from p.yaml -o json",
        "why p.yaml cities city=Bern",
        "diff out/cities other/cities -o markdown",
    ],
)
def test_show_has_the_values(people, line):
    result = people(*shlex.split(line), "--show", "pii")
    assert SECRET in result.out.lower()


def test_data_files_are_those_of_a_pipeline_without_tags(people):
    plain = (
        SHOP.replace("{type: string, tags: [pii]}", "string")
        .replace("name: shop", "name: plain")
        .replace("out/", "plain/")
        .replace("lake/", "flat/")
    )
    people.write("plain.yaml", plain)
    assert people("run", "plain.yaml").code == 0
    assert contents(people.folder / "plain/named") == contents(people.folder / "out/named")
    parquet = [path for path in files(people.folder / "out") if path.suffix == ".parquet"]
    assert parquet
    assert "tags" not in (people.folder / "plain/named/_progress.json").read_text()


@pytest.mark.parametrize(
    ("given", "kind", "collection", "check", "problem"),
    [
        ("format: append", "int64", "from: people", "", "can't be read as int64"),
        ("format: append", "string", 'sql: "select cast(email as date) as day from people"', "", "in the row where email = pii:"),
        ("format: append", "string", 'sql: "select email as a, sum(9223372036854775807) as n from people group by a"', "", "in the group where email = pii:"),
        ("format: snapshots, key: [email]", "string", "from: people", "", "is twice in the snapshot"),
        ("format: updates, diff: id, negative: error", "string", "from: people", "", "has the multiplicity -"),
        ("format: append", "string", "from: people", "{row: id > 100, of: people, name: large}", "large"),
        ("format: append", "string", "from: people", "{unique: [email], of: people, name: one}", "one"),
        ("format: append", "string", "from: people, apply: [{map: {function: 'people_code:lower', columns: {email: string}}}]", "", "raised ValueError for the row"),
        ("format: append", "string", "from: people, apply: [{map: {function: 'people_code:wrong', columns: {email: string}}}]", "", "returned pii:"),
    ],
)  # fmt: skip
def test_no_message_quotes_a_hidden_value(shop, given, kind, collection, check, problem):
    shop.write("people_code.py", CODE)
    rows = f"-1,{MAIL},Rome,1\n-2,{MAIL},Rome,1\n"
    header, rows = (
        ("email,city,time,id\n", f"{MAIL},Rome,1,-1\n") if "diff" in given else ("id,email,city,time\n", rows)
    )
    shop.write("in/people/1.csv", header + rows)
    text = BAD.replace("INPUT", given).replace("TYPE", kind).replace("COLLECTION", collection).replace("CHECKS", check)
    shop.write("bad.yaml", text.replace("id: int64, ", "") if "diff" in given else text)
    for words in (["run", "bad.yaml"], ["run", "bad.yaml", "--show", "pii"]):
        result = shop(*words)
        assert result.code in (3, 7), result.err
        said = result.out + result.err
        assert (SECRET in said) == ("--show" in words), said
        assert problem in said or "--show" in words, said


def test_no_repr_of_a_result_has_a_hidden_value(people):
    """Notebooks keep them beside what they show, and programs log them."""
    text = SHOP.replace("name: shop", "name: noted").replace("out/", "noted/").replace("lake/", "pit/")
    people.write(
        "n.yaml", text.replace("length(email) > 0", "length(email) > 90").replace("filled}", "filled, otherwise: warn}")
    )
    with contextlib.chdir(people.folder):
        summary = run("n.yaml")
        answer = why("n.yaml", "named", {"city": "Bern"})
    assert any(SECRET in str(verdict.records) for verdict in summary.checks.values())
    assert answer.explained
    assert SECRET not in repr(summary) + summary._repr_html_() + repr(answer)


@pytest.mark.parametrize(
    ("name", "lines", "given", "problem"),
    [
        ("1.csv", f"id,email,city,time\n{MAIL},1,Rome,1\n", "", "in column 'id' can't be read as int64"),
        ("1.csv", f"7,{MAIL},Rome,1\n2,b,Oslo,1\n", "", "the file has no column 'id'"),
        ("1.csv", f"{MAIL},{MAIL},Rome,1\n", "", "twice"),
        (f"email={MAIL}/1.csv", "id,city,time\n1,Rome,1\n", "", "'email' is in the names of files or folders"),
        (f"p-{MAIL}.csv", "id,city,time\n1,Rome,1\n", "file_name: 'p-{email}.csv', ", "'email' is in the names of"),
    ],
)
def test_no_message_quotes_a_hidden_value_in_the_place_of_another(shop, name, lines, given, problem):
    """A shifted line, a row in place of the header, and names of files."""
    shop.write(f"in/people/{name}", lines)
    text = BAD.replace("INPUT", f"{given}format: append").replace("TYPE", "string")
    shop.write("bad.yaml", text.replace("COLLECTION", "from: people").replace("CHECKS", ""))
    for words in (["run", "bad.yaml"], ["plan", "bad.yaml"]):
        result = shop(*words)
        said = result.out + result.err
        assert SECRET not in said, said
        if words[0] == "run":
            assert result.code == 3, said
            assert problem in said


def test_an_imported_arrangement_brings_the_tags_of_its_columns(shop):
    columns = "columns: {id: int64, email: EMAIL, city: string}"
    exporter = f"""\
dd: 1
name: exporter
inputs: {{people: {{path: in/people/, {columns}}}}}
collections:
  kept: {{from: people, apply: [{{map: {{id: id, contact: upper(email)}}}}]}}
  shared: {{from: kept, apply: [{{arrange: {{by: [id], export: by_id}}}}]}}
outputs: {{kept: out/kept/}}
"""
    importer = """\
dd: 1
name: importer
inputs: {given: {import: {state: .dd/exporter/, arrangement: by_id}}}
outputs: {given: out/given/}
"""
    shop.write("in/people/1.csv", "id,email,city,time,diff\n1,SECRET,Rome,1,1\n".replace("SECRET", SECRET))
    for step, (tagged, hidden) in enumerate(
        [("string", False), ("{type: string, tags: [pii]}", True), ("string", False)]
    ):
        shop.write("e.yaml", exporter.replace("EMAIL", tagged))
        shop.write("i.yaml", importer)
        assert shop("run", "e.yaml").code == 0
        shop.write(f"in/people/{step + 2}.csv", f"id,email,city,time,diff\n{step + 2},{SECRET},Rome,{step + 2},1\n")
        if step:
            assert shop("run", "e.yaml").code == 0
        for words in (
            ["run", "i.yaml"],
            ["log", "out/given"],
            ["why", "i.yaml", "given", "id=1"],
            ["sql", "--from", "i.yaml", "select * from given"],
        ):
            result = shop(*words)
            assert result.code == 0, result.err
            said = result.out + result.err
            assert (SECRET.upper() in said) == (not hidden and words[0] != "run"), (words, said)
