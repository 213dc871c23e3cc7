"""`dd forget`: what it reports and refuses, and that nothing of forgotten rows is left in any byte."""

import io
import json
import re
import shutil

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.plan import generations
from ddcli.store.state.document import RUNS
from ddcli.store.state.manifest import read_newest
from ddcli.store.tables.compression import packed, unpacked
from tests.harness import contents, read_log

PIPELINE = """\
dd: 1
name: shop
errors: quarantine
inputs:
  sales:
    path: in/sales/
    format: append
    columns: {customer: string, region: string, amount: int64}
    time: day
    late: quarantine
  people: {path: in/people/, format: upsert, key: [customer], columns: {customer: string, email: string}, time: day}
collections:
  sold:
    from: sales
    apply: [{map: {customer: customer, region: region, amount: amount, share: 100 / amount}}]
  totals:
    from: sold
    apply: [{reduce: {by: [region], orders: count(*), amount: sum(amount), first: min(customer)}}]
  named:
    from: sold
    apply: [{join: {with: people, on: [customer]}}]
  emails:
    from: named
    apply: [{project: [email]}]
outputs:
  totals: out/totals/
  named: out/named/
  emails: {path: out/emails/, history: all}
"""
MARKS = (b"ann-MARK", b"old-MARK", b"new-MARK")
RUNS_OF = [
    {
        "sales/1.csv": "customer,region,amount,day\nann-MARK,north,5,1\nbob,north,3,1\nann-MARK,south,9,2\nann-MARK,north,0,1\neve,east,x,1\n",
        "people/1.csv": "customer,email,day\nann-MARK,old-MARK,1\nbob,bob@x,1\n",
    },
    {"sales/2.csv": "customer,region,amount,day\nbob,south,4,3\neve,north,7,3\n"},
    {
        "sales/3.csv": "customer,region,amount,day\nann-MARK,north,2,4\nann-MARK,west,7,1\nann-MARK,west,x,4\n",
        "people/2.csv": "customer,email,day\nann-MARK,new-MARK,4\neve,eve@x,4\n",
    },
]
WHERE = ("--where", "customer = 'ann-MARK'")


@pytest.fixture(scope="module")
def ran_thrice(tmp_path_factory):
    """Return a folder with a pipeline that has run three times, over rows of which some are marked."""
    folder = tmp_path_factory.mktemp("marked")
    (folder / "shop.yaml").write_text(PIPELINE)
    for files in RUNS_OF:
        for name, text in files.items():
            (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "in" / name).write_text(text)
        run(folder / "shop.yaml")
    return folder


@pytest.fixture
def marked(shop, ran_thrice):
    """Return a copy of this folder, in which commands run."""
    shutil.copytree(ran_thrice, shop.folder, dirs_exist_ok=True)
    return shop


def with_marks(folder, places=(".dd", "out")):
    """Return the files of state and outputs in which a mark is, in their bytes or in what these are when they are decoded."""
    found = set()
    for place in places:
        for path in (folder.folder / place).rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                if path.suffix == ".parquet":
                    data += pl.read_parquet(path).write_json().encode()
                found |= {str(path.relative_to(folder.folder)) for mark in MARKS if mark in data}
    return found


def clean(folder):
    for path in (folder.folder / "in").rglob("*.csv"):
        path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "MARK" not in line))


def test_nothing_is_left_in_any_byte(marked):
    before = with_marks(marked)
    assert {name.split("/")[0] for name in before} == {".dd", "out"}
    done = marked("forget", "shop.yaml", *WHERE, "--input", "sales", "--input", "people", "-o", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["inputs"] == {"sales": {"rows": 6, "undecided": 0}, "people": {"rows": 2, "undecided": 0}}
    assert {path.rsplit("/", 1)[1] for path in found["still_in"]} == {"1.csv", "2.csv", "3.csv"}
    assert not with_marks(marked)
    rewritten = {each["was"].partition("/out/")[2] for each in found["rewritten"] if "/out/" in (each["was"] or "")}
    assert rewritten == {name.removeprefix("out/") for name in before if name.startswith("out/")} | {
        f"totals/updates-{times}.parquet" for times in ("start-3", "3-4", "4-5")
    }
    assert marked("log", "out/totals", "region=north", "-o", "csv").out.splitlines()[1:] == [
        "north,1,3,bob,1,1",
        "north,1,3,bob,3,-1",
        "north,2,10,bob,3,1",
    ]
    assert marked("state", "verify", "shop.yaml").code == 0
    assert marked("query", "shop.yaml", "people", "customer=ann-MARK").code == 1


def test_rows_stay_away(marked):
    """No command reads a file again that still has such rows; once they are gone from it, all goes on."""
    arguments = ("forget", "shop.yaml", *WHERE, "--input", "sales", "--input", "people")
    assert marked(*arguments).code == 0
    refused = marked("run", "shop.yaml", "--full-refresh", "all")
    assert refused.code == 4
    assert "would come back" in refused.err
    clean(marked)
    assert marked("run", "shop.yaml").code == 3
    again = marked(*arguments, "-o", "json")
    found = json.loads(again.out)
    assert (found["still_in"], found["inputs"]["sales"]["rows"]) == ([], 0)
    assert not [each for each in found["rewritten"] if "/out/" in (each["was"] or "")]
    (marked.folder / "in/sales/4.csv").write_text("customer,region,amount,day\nbob,north,1,9\n")
    assert marked("run", "shop.yaml").code == 0
    assert marked("run", "shop.yaml", "--full-refresh", "all").code == 0
    assert not with_marks(marked)


def test_rows_that_were_forgotten_before_do_not_come_back(marked):
    """A file that still has them is refused by a command that forgets others, of this input or of another one; once they are gone from it, all goes on."""
    assert marked("forget", "shop.yaml", *WHERE, "--input", "sales").code == 0
    assert marked("forget", "shop.yaml", *WHERE, "--input", "sales").code == 0
    before = read_log(marked.folder / "out/named")
    for arguments in (("--where", "amount = 3"), ("--where", "email = 'old-MARK'"), (*WHERE, "--input", "people")):
        refused = marked("forget", "shop.yaml", *arguments)
        assert refused.code == 4
        assert "other rows that an earlier `dd forget` has removed" in refused.err
    assert read_log(marked.folder / "out/named").equals(before)
    clean(marked)
    assert marked("forget", "shop.yaml", *WHERE, "--input", "sales").code == 0
    assert marked("forget", "shop.yaml", "--where", "amount = 3").code == 0


def test_rows_that_are_gone_already(marked):
    """Where the inputs have been cleaned before, one command does it all."""
    clean(marked)
    done = marked("forget", "shop.yaml", *WHERE, "--input", "sales", "--input", "people", "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["still_in"] == []
    assert not with_marks(marked)
    assert marked("run", "shop.yaml").code == 0


DOWN = """\
dd: 1
name: down
inputs:
  named: out/named/
collections:
  counted:
    from: named
    apply: [{reduce: {by: [email], orders: count(*)}}]
outputs:
  counted: down/
"""


def test_downstream(marked):
    """A pipeline that has read an output refuses the other files, and forgets the rows itself; then it goes on."""
    marked.write("down.yaml", DOWN)
    assert marked("run", "down.yaml").code == 0
    assert marked("forget", "shop.yaml", *WHERE, "--input", "sales", "--input", "people").code == 0
    marked.write("in/sales/4.csv", "customer,region,amount,day\nbob,north,1,9\n")
    clean(marked)
    assert marked("forget", "shop.yaml", *WHERE, "--input", "sales", "--input", "people").code == 0
    assert marked("run", "shop.yaml").code == 0
    assert marked("run", "down.yaml").code == 3
    done = marked("forget", "down.yaml", *WHERE)
    assert done.code == 0, done.err
    assert marked("run", "down.yaml").code == 0
    assert marked("log", "down", "--as-of", "latest", "-o", "csv").out.split() == [
        "email,orders,diff",
        "bob@x,3,1",
        "eve@x,1,1",
    ]
    assert not any(mark in path.read_bytes() for path in (marked.folder / "down").iterdir() for mark in MARKS)


IMPORTING = """\
dd: 1
name: importing
inputs: {sales: {import: {state: .dd/shop/, arrangement: sold}}}
collections: {counted: {from: sales, apply: [{reduce: {by: [customer], orders: count(*)}}]}}
outputs: {counted: counted/}
"""


def test_importing(marked):
    """A pipeline that imports an arrangement begins anew, as the report says, and its outputs get the difference."""
    path = marked.folder / "shop.yaml"
    path.write_text(
        path.read_text().replace(
            "  totals:\n    from: sold\n",
            "  kept: {from: sold, apply: [{arrange: {by: [customer], export: sold}}]}\n  totals:\n    from: sold\n",
            1,
        )
    )
    assert marked("run", "shop.yaml").code == 0
    marked.write("importing.yaml", IMPORTING)
    assert marked("run", "importing.yaml").code == 0
    done = marked("forget", "shop.yaml", *WHERE, "--input", "sales", "-o", "json")
    (reader,) = json.loads(done.out)["readers"]
    assert reader.startswith("importing-")
    marked.write("in/sales/4.csv", "customer,region,amount,day\nbob,north,1,9\n")
    went = marked("run", "importing.yaml")
    assert went.code == 0, went.err
    assert "some of its rows were forgotten" in went.err
    assert marked("log", "counted", "--as-of", "latest", "-o", "csv").out.split() == [
        "customer,orders,diff",
        "bob,2,1",
        "eve,1,1",
    ]
    assert marked("run", "importing.yaml").code == 0
    assert any(mark in path.read_bytes() for path in (marked.folder / "counted").iterdir() for mark in MARKS)
    clean(marked)
    assert marked("forget", "shop.yaml", *WHERE, "--input", "sales").code == 0
    assert marked("run", "shop.yaml").code == 0
    assert marked("forget", "importing.yaml", *WHERE).code == 4  # the other has gone on
    assert marked("run", "importing.yaml").code == 0
    done = marked("forget", "importing.yaml", *WHERE)
    assert done.code == 0, done.err
    assert not with_marks(marked, ("counted", ".dd/importing"))
    assert marked("log", "counted", "--as-of", "latest", "-o", "csv").out.split() == [
        "customer,orders,diff",
        "bob,3,1",
        "eve,1,1",
    ]
    marked.write("in/sales/5.csv", "customer,region,amount,day\nbob,north,1,11\n")
    assert marked("run", "shop.yaml").code == 0
    assert marked("run", "importing.yaml").code == 0
    assert marked("log", "counted", "--as-of", "latest", "-o", "csv").out.split() == [
        "customer,orders,diff",
        "bob,4,1",
        "eve,1,1",
    ]


def test_rows_that_an_exporter_has_are_refused(marked):
    path = marked.folder / "shop.yaml"
    export = "  kept: {from: sold, apply: [{arrange: {by: [customer], export: sold}}]}\n  totals:\n    from: sold\n"
    path.write_text(path.read_text().replace("  totals:\n    from: sold\n", export, 1))
    assert marked("run", "shop.yaml").code == 0
    marked.write("importing.yaml", IMPORTING)
    assert marked("run", "importing.yaml").code == 0
    refused = marked("forget", "importing.yaml", *WHERE)
    assert refused.code == 4
    assert "have that pipeline forget them first" in refused.err


@pytest.mark.parametrize("apply", ["[{filter: a > 0}]", "[{reduce: {n: count(*)}}]"])
def test_a_log_without_rows_keeps_a_file_with_its_columns(shop, apply):
    """By copies of rows, or by computing everything anew; and again, when the log has none."""
    text = "dd: 1\nname: p\ninputs: {t: {path: in/, format: append, columns: {a: int64}}}\n"
    shop.write("shop.yaml", f"{text}collections: {{b: {{from: t, apply: {apply}}}}}\noutputs: {{b: out/}}\n")
    for number in (1, 2):
        shop.write(f"in/{number}.csv", "a\n1\n2\n")
        assert shop("run", "shop.yaml").code == 0
        assert shop("forget", "shop.yaml", "--where", "a > 0").code == 0
        assert pl.scan_parquet(shop.folder / "out/*.parquet").select("diff").sum().collect().item() == 0
        assert shop("state", "verify", "shop.yaml").code == 0


def test_a_dry_run_changes_nothing(marked):
    before = with_marks(marked)
    done = marked("forget", "shop.yaml", *WHERE, "--input", "sales", "-n", "-o", "json")
    assert json.loads(done.out)["inputs"]["sales"]["rows"] == 6
    assert with_marks(marked) == before


def test_what_is_in_records_of_runs_and_locks_goes(marked):
    records = marked.folder / ".dd/shop" / RUNS
    path = next(iter(records.iterdir()))
    tree = json.loads(path.read_text())
    next(iter(tree["summary"]["inputs"].values()))["example"] = "customer = ann-MARK"
    path.write_text(json.dumps(tree))
    done = marked.process("forget", "shop.yaml", *WHERE, "--input", "sales", "--input", "people")
    assert done.code == 0
    assert not with_marks(marked)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--where", "customer = 'x'"], "2 inputs have the columns of the condition: sales, people"),
        (["--where", "nobody = 'x'"], "no column is named `nobody`"),
        (["--where", "amount + 1"], "not true or false"),
        (["--where", "1 = 1", "--input", "sales"], "names no column"),
        (["--where", "email = 'x'", "--input", "salez"], "did you mean 'sales'?"),
        (["--where", "email ="], "--where:1"),
    ],
)
def test_refused(marked, arguments, said):
    before = with_marks(marked)
    done = marked("forget", "shop.yaml", *arguments)
    assert done.code == 2
    assert said in done.err
    assert with_marks(marked) == before


@pytest.mark.parametrize("measured", [True, False])
def test_what_an_accepted_measure_was_goes(shop, measured):
    """It came from the rows, also where the file has the check no longer. The name and the reason stay, and so does a number of violations."""
    text = "name: p\ninputs: {a: {path: in/, format: append, columns: {k: int64, v: int64}}}\noutputs: {a: out/}\nchecks:\n"
    change, few = "  - {change: {sum(v): [0, 5]}, of: a, name: change}\n", "  - {row: v < 9, of: a, name: few}\n"
    shop.write("p.yaml", text + change + few)
    shop.write("in/1.csv", "k,v\n1,1\n")
    assert shop("run", "p.yaml").code == 0
    shop.write("in/2.csv", "k,v\n2,7654321\n3,10\n")
    assert shop("run", "p.yaml", "--accept", "change", "--accept", "few", "--reason", "told").code == 0
    if not measured:
        shop.write("p.yaml", text + few)
        assert shop("run", "p.yaml", "--apply", "--accept", "few", "--reason", "told").code == 0
    seen = [path for path in (shop.folder / ".dd").rglob("*.json") if re.search(r"7,?654,?33", path.read_text())]
    assert seen
    assert shop("forget", "p.yaml", "--where", "k = 2").code == 0
    kept = [path.read_text() for path in (shop.folder / ".dd").rglob("*.json")]
    assert not [each for each in kept if re.search(r"7,?654,?3[23]", each)]
    cache = read_newest(shop.folder / ".dd/p").cache
    found = {(each["check"], each["found"]) for each in cache["accepted"]}
    assert found >= {("change", "rows were forgotten since"), ("few", "2 violations: 2 new")}
    assert cache["checks"]["few"]["violations"] == 1
    assert "told" in cache["checks"]["few"]["accepted"]


def test_a_changed_pipeline_is_refused(marked):
    path = marked.folder / "shop.yaml"
    path.write_text(path.read_text().replace("100 / amount", "200 / amount"))
    done = marked("forget", "shop.yaml", *WHERE, "--input", "sales")
    assert done.code == 4
    assert "rows are forgotten of what the state was made by" in done.err


def test_a_vanished_file_is_refused(marked):
    (marked.folder / "in/sales/2.csv").unlink()
    done = marked("forget", "shop.yaml", *WHERE, "--input", "sales")
    assert done.code == 3
    assert "has vanished: '2.csv'" in done.err


def test_no_state(shop):
    shop.write("shop.yaml", PIPELINE)
    shop.write("in/sales/1.csv", RUNS_OF[0]["sales/1.csv"])
    shop.write("in/people/1.csv", RUNS_OF[0]["people/1.csv"])
    done = shop("forget", "shop.yaml", *WHERE)
    assert done.code == 4


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".ndjson", ".parquet", ".arrow"])
def test_archived_files(shop, ending):
    """Archived files lose the rows, and nothing else; the state knows them as they are then."""
    shop.write(
        "p.yaml",
        """\
name: p
inputs:
  a: {path: in/, format: append, time: t, columns: {k: string, v: "string?"}, consumed: {archive: done/}}
outputs:
  a: out/
""",
    )
    rows = [("bob", "x\ny", 1), ("ann-MARK", 'quoted, "MARK"\nline', 1), ("eve", None, 2)]
    frame = pl.DataFrame(rows, ["k", "v", "t"], orient="row")
    write = {".csv": pl.DataFrame.write_csv, ".ndj": pl.DataFrame.write_ndjson, ".par": pl.DataFrame.write_parquet}
    path = shop.folder / f"in/sub/1{ending}"
    path.parent.mkdir(parents=True)
    data = io.BytesIO()
    write.get(ending[:4], pl.DataFrame.write_ipc)(frame, data)
    path.write_bytes(packed(data.getvalue(), path.name))
    assert shop("run", "p.yaml").code == 0
    archived = shop.folder / f"done/sub/1{ending}"
    done = shop("forget", "p.yaml", "--where", "k = 'ann-MARK'", "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["still_in"] == []
    assert str(archived) in {each["was"] for each in json.loads(done.out)["rewritten"]}
    with unpacked(archived) as file:
        text = file.read()
    assert b"MARK" not in text
    left = frame.filter(pl.col("k") != "ann-MARK")
    if ending.startswith((".csv", ".ndj")):
        data = io.BytesIO()
        write[ending[:4]](left, data)
        assert text == data.getvalue()
    else:
        assert (pl.read_parquet if ending == ".parquet" else pl.read_ipc)(archived).equals(left)
    assert shop("run", "p.yaml", "--full-refresh", "all").code == 0
    assert sorted(read_log(shop.folder / "out")["k"]) == ["bob", "eve"]
    # A person may have removed rows from the archive, too.
    if ending == ".csv":
        archived.write_text("k,v,t\nbob,,1\n")
        assert shop("forget", "p.yaml", "--where", "k = 'eve'").code == 0
        assert read_log(shop.folder / "out").rows() == [("bob", None, 1, 1)]


def test_archived_files_of_other_kinds_are_refused(shop):
    shop.write(
        "p.yaml",
        """\
name: p
inputs: {a: {path: in/, format: append, time: t, columns: {k: string}, consumed: {archive: done/}}}
outputs: {a: out/}
""",
    )
    (shop.folder / "in").mkdir()
    pl.DataFrame({"k": ["ann-MARK", "bob"], "t": [1, 1]}).write_avro(shop.folder / "in/1.avro")
    assert shop("run", "p.yaml").code == 0
    refused = shop("forget", "p.yaml", "--where", "k = 'bob'")
    assert refused.code == 3
    assert "rows can't be left out of a file of this kind" in refused.err
    assert read_log(shop.folder / "out").height == 2


def test_tables_follow(marked):
    """A table has the other rows after the command; a Parquet file no byte of those that were forgotten, a database may have pages of them."""
    path = marked.folder / "shop.yaml"
    tables = (
        "  lake: {from: named, as: table, parquet: lake/named.parquet}\n"
        "  base: {from: named, as: table, to: 'sqlite:///lake/base.db'}\n"
    )
    path.write_text(path.read_text() + tables)
    assert marked("run", "shop.yaml").code == 0
    assert with_marks(marked, ["lake"]) >= {"lake/named.parquet"}
    done = marked("forget", "shop.yaml", *WHERE, "--input", "sales", "--input", "people", "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["versions_in"] == ["base"]
    assert "lake/named.parquet" not in with_marks(marked, ["lake"])
    assert not with_marks(marked)
    assert pl.read_parquet(marked.folder / "lake/named.parquet")["customer"].sort().to_list() == ["bob", "bob", "eve"]


@pytest.fixture
def unread(shop):
    """Return a folder with a pipeline that has run over two rows, of which one can't be read."""
    shop.write("shop.yaml", PIPELINE)
    shop.write("in/sales/1.csv", "customer,region,amount,day\nbob,north,3,1\neve,east,x,1\n")
    shop.write("in/people/1.csv", "customer,email,day\nbob,bob@x,1\n")
    assert shop("run", "shop.yaml").code == 0
    return shop


@pytest.mark.parametrize(
    "where", ["amount is null", "coalesce(amount, 0) = 0", "case when amount > 5 then false else true end"]
)
def test_a_value_that_can_not_be_read_is_no_null(unread, where):
    done = unread("forget", "shop.yaml", "--where", where, "-n", "-o", "json")
    assert json.loads(done.out)["inputs"]["sales"]["undecided"] == 1, done.err


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("lower(customer) = 'eve' or amount > 3", {"rows": 1, "undecided": 0}),
        ("amount + 1 > 3", {"rows": 1, "undecided": 1}),
    ],
)
def test_what_is_known_of_a_row_that_can_not_be_read_decides(unread, where, found):
    done = unread("forget", "shop.yaml", "--where", where, "-n", "-o", "json")
    assert json.loads(done.out)["inputs"]["sales"] == found, done.err


def test_rows_are_forgotten_of_a_state_whose_joins_would_be_chosen_otherwise_by_now(shop, monkeypatch):
    """A run has nothing to change about that, so nobody could be sent to one."""
    pairs = "select a.k as x, c.v as y from e a join e b on b.k = a.v join e c on c.k = b.v"
    shop.write(
        "p.yaml",
        f'dd: 1\nname: p\ninputs: {{e: e/}}\ncollections: {{paths: {{sql: "{pairs}"}}}}\noutputs: {{paths: out/}}\n',
    )
    rows = [(at, at + 1, 0, 1) for at in range(6)]
    shop.log("e/1.parquet", rows, k=pl.Int64, v=pl.Int64, time=pl.Int64, diff=pl.Int64)
    monkeypatch.setattr("ddcli.job.kept_plan.load", lambda *_: None)
    with monkeypatch.context() as older:
        older.setitem(generations.plan.__kwdefaults__, "deltas", False)
        assert shop("run", "p.yaml").code == 0
    result = shop("forget", "p.yaml", "--where", "k = 0")
    assert result.code == 0, result.err
    assert contents(shop.folder / "out") == {(at, at + 3): 1 for at in range(1, 4)}
