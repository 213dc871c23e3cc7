"""What becomes of files that were taken in whole: `consumed: keep`, `forget`, or an archive."""

import errno
import json
import os
import shutil

import polars as pl
import pytest

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.job import consumed_files
from ddcli.store.state.manifest import read_newest
from tests.draws import some
from tests.harness import contents, files
from tests.store.support import Dead, Faulty, Interrupted, names

HEAD = "name: p\ninputs:\n  a: {{path: {path}, format: {format}, columns: {{k: int64, v: string}}, consumed: {consumed}}}\n"
ARCHIVE = "{archive: done/}"
MOVE = [
    getattr(consumed_files, name)
    for name in ("archive", "move", "_name", "_is_there", "_copy", "_drop", "_put_back", "_same")
]


def csv(*rows):
    return "k,v\n" + "".join(f"{k},{v}\n" for k, v in rows)


def pipeline(shop, consumed, *, path="in/", format_="append", more=""):
    shop.write("p.yaml", HEAD.format(path=path, format=format_, consumed=consumed) + f"outputs: {{a: out/}}\n{more}")


def ran(shop, command, *arguments, code=0):
    result = shop(command, "p.yaml", *arguments)
    assert result.code == code, result.err
    return result


def test_consumed_files_are_moved_and_a_rebuild_reads_them_there(shop):
    pipeline(shop, ARCHIVE)
    shop.write("in/1.csv", csv((1, "a")))
    shop.write("in/deep/2.csv", csv((2, "b")))
    ran(shop, "run")
    assert names(shop.folder / "in") == []
    assert names(shop.folder / "done") == ["1.csv", "deep/2.csv"]
    before = files(shop.folder / "out", shop.folder / "done")
    assert "nothing new" in ran(shop, "run").err
    ran(shop, "run", "--full-refresh", "all")
    assert contents(shop.folder / "out") == {(1, "a"): 1, (2, "b"): 1}
    assert files(shop.folder / "done") == {path: data for path, data in before.items() if "done" in path.parts}
    assert "done/1.csv:2" in ran(shop, "why", "a", "k=1").out
    pipeline(
        shop,
        ARCHIVE,
        more="collections: {c: {from: a, apply: [{reduce: {by: [k], n: count(*)}}]}}\n".replace("outputs", ""),
    )
    text = (shop.folder / "p.yaml").read_text().replace("outputs: {a: out/}", "outputs: {a: out/, c: c/}")
    shop.write("p.yaml", text)
    ran(shop, "run")
    assert contents(shop.folder / "c") == {(1, 1): 1, (2, 1): 1}


def test_a_file_of_the_same_name_is_another_one(shop):
    pipeline(shop, ARCHIVE, path="in/export.csv")
    for number in (1, 2, 3):
        shop.write("in/export.csv", csv((number, "x")))
        ran(shop, "run")
        assert "nothing new" in ran(shop, "run").err
    assert names(shop.folder / "done") == ["2/export.csv", "3/export.csv", "export.csv"]
    assert contents(shop.folder / "out") == {(1, "x"): 1, (2, "x"): 1, (3, "x"): 1}
    err = ran(shop, "retract", "in/export.csv", code=3).err
    assert "several files of this name" in err
    assert "'done/2/export.csv'" in err
    ran(shop, "retract", "done/2/export.csv")
    assert contents(shop.folder / "out") == {(1, "x"): 1, (3, "x"): 1}
    ran(shop, "run", "--full-refresh", "all")
    assert contents(shop.folder / "out") == {(1, "x"): 1, (3, "x"): 1}


def test_nothing_that_lies_in_the_archive_is_replaced(shop):
    pipeline(shop, ARCHIVE)
    shop.write("in/1.csv", csv((1, "a")))
    shop.write("done/1.csv", "mine")
    ran(shop, "run")
    assert (shop.folder / "done/1.csv").read_text() == "mine"
    assert (shop.folder / "done/2/1.csv").read_text() == csv((1, "a"))
    source, target = shop.write("x", "one"), shop.write("y", "two")
    with pytest.raises(Exception, match="another file is at"):
        consumed_files.move(ddcli.store.state.directory.Files(), source, target, lambda path: path == source)
    assert (source.read_text(), target.read_text()) == ("one", "two")


def test_what_waits_for_its_time_stays(shop):
    shop.write(
        "p.yaml",
        "name: p\ninputs:\n  a: {path: in/, format: append, time: k, columns: {k: int64, v: string}, consumed: {archive: done/}}\n"
        "outputs: {a: out/}\n",
    )
    shop.write("in/1.csv", csv((1, "a"), (5, "b")))
    shop.write("in/2.csv", csv((2, "c")))
    ran(shop, "run", "--until", "3")
    assert (names(shop.folder / "in"), names(shop.folder / "done")) == (["1.csv"], ["2.csv"])
    ran(shop, "run", "--until", "9")
    assert (names(shop.folder / "in"), names(shop.folder / "done")) == ([], ["1.csv", "2.csv"])
    shop.write("in/2.csv", csv((9, "d")))
    ran(shop, "run")
    assert names(shop.folder / "done") == ["1.csv", "2.csv", "2/2.csv"]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_file_that_another_replaces_while_it_is_moved_loses_no_row(shop, monkeypatch, in_place, links):
    """Whenever it comes, by another name that gets this one or by writing into the file, the next run reads it: it is tried at each line of the move."""
    pipeline(shop, ARCHIVE)
    link = os.link
    if not links:

        def no_link(source, target, **options):
            if "done" in str(target) and not str(source).endswith(".dd-tmp"):
                raise OSError(errno.EXDEV, "another file system")
            link(source, target, **options)

        monkeypatch.setattr(os, "link", no_link)
    first, later = csv((1, "a")), csv((9, "b"))

    def replace():
        if in_place:
            (shop.folder / "in/1.csv").write_text(later)
        else:
            shop.write("new.csv", later).replace(shop.folder / "in/1.csv")

    for at in some(range(1, 1000)):
        for place in ("in", "done", "out", ".dd"):
            shutil.rmtree(shop.folder / place, ignore_errors=True)
        shop.write("in/1.csv", first)
        with Interrupted(MOVE, at, replace) as interrupted:
            run(shop.folder / "p.yaml")
        if interrupted.where is None:
            assert at > 15
            break
        assert (shop.folder / "in/1.csv").read_text() == later, interrupted.where
        run(shop.folder / "p.yaml")
        assert contents(shop.folder / "out") == {(1, "a"): 1, (9, "b"): 1}, interrupted.where
        assert names(shop.folder / "in") == [], interrupted.where
        assert [path.read_text() for path in (shop.folder / "done").rglob("1.csv")].count(later) == 1
        assert not list(shop.folder.rglob("*.dd-tmp"))


@pytest.mark.parametrize("links", [True, False])
def test_a_run_that_dies_loses_nothing_and_the_next_one_moves(shop, monkeypatch, links):
    """Also where a file can have no second name, as on another file system."""

    def no_link(*_):
        raise OSError(errno.EXDEV, "another file system")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    pipeline(shop, ARCHIVE)
    ended = False
    at = iter(some(range(200)))
    while not ended:
        for place in ("in", "done", "out", ".dd"):
            shutil.rmtree(shop.folder / place, ignore_errors=True)
        shop.write("in/1.csv", csv((1, "a")))
        shop.write("in/2.csv", csv((2, "b")))
        (shop.folder / "done").mkdir()
        faulty = Faulty(next(at), after=links)
        with monkeypatch.context() as patch:
            patch.setattr(ddcli.store.state.directory, "Files", lambda faulty=faulty: faulty)
            try:
                run(shop.folder / "p.yaml")
                ended = True
            except Dead:
                pass
        assert {*names(shop.folder / "in"), *names(shop.folder / "done")} >= {"1.csv", "2.csv"}
        run(shop.folder / "p.yaml")
        assert (names(shop.folder / "in"), names(shop.folder / "done")) == ([], ["1.csv", "2.csv"])
        assert contents(shop.folder / "out") == {(1, "a"): 1, (2, "b"): 1}


def test_forgotten_files_may_go_and_come_back(shop):
    pipeline(shop, "forget", format_="upsert, key: [k]")
    first = shop.write("in/1.csv", csv((1, "a"), (2, "b")))
    ran(shop, "run")
    data = first.read_bytes()
    first.unlink()
    assert "nothing new" in ran(shop, "run").err
    shop.write("in/2.csv", csv((1, "c")))
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1, "c"): 1, (2, "b"): 1}
    for command in (["run", "--full-refresh", "all"], ["retract", "in/2.csv"], ["why", "a", "k=1"]):
        name, *rest = command
        err = ran(shop, name, *rest, code=3).err
        assert "in/1.csv: error: the input 'a' can't be read again: a file of it is gone (`consumed: forget`)" in err
    first.write_bytes(data)
    assert "nothing new" in ran(shop, "run").err
    ran(shop, "retract", "in/2.csv")
    assert contents(shop.folder / "out") == {(1, "a"): 1, (2, "b"): 1}
    first.unlink()
    shop.write("in/3.csv", csv((3, "d")))
    ran(shop, "run")
    first.write_text(csv((4, "new")))
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1, "a"): 1, (2, "b"): 1, (3, "d"): 1, (4, "new"): 1}
    (entry,) = (file for file in read_newest(shop.folder / ".dd/p").inputs["a"].files if file.forgotten)
    assert entry.path == "1.csv"


def test_what_is_kept_answers_for_what_is_forgotten(shop):
    """A changed pipeline is built from arrangements where these have all that it reads."""
    pipeline(shop, "forget", format_="upsert, key: [k]")
    shop.write("in/1.csv", csv((1, "a")))
    ran(shop, "run")
    (shop.folder / "in/1.csv").unlink()
    text = (shop.folder / "p.yaml").read_text().replace("outputs: {a: out/}", "outputs: {a: out/, c: c/}")
    shop.write("p.yaml", f"{text}collections: {{c: {{from: a, apply: [{{filter: k > 0}}]}}}}\n")
    ran(shop, "run")
    assert contents(shop.folder / "c") == {(1, "a"): 1}


def test_a_changed_file_is_refused_also_where_files_may_go(shop):
    pipeline(shop, "forget")
    shop.write("in/1.csv", csv((1, "a")))
    ran(shop, "run")
    shop.write("in/1.csv", csv((1, "a"), (2, "b")))
    assert "has changed" in ran(shop, "run", code=3).err


@pytest.mark.parametrize(
    ("consumed", "problem"),
    [
        ("{archive: in/done/}", "inputs.a.consumed: writes into 'in/', where the input 'a' reads"),
        ("{archive: .dd/p/}", "'.dd/p/' and the directory of the state contain each other"),
        ("{archive: out/}", "outputs.a: 'out/' and the directory of the 'inputs.a.consumed' contain each other"),
        (
            "{archive: s3://b/done/}",
            "the input is not in an object store, its archive is: no file is moved between the two",
        ),
        ("archive", "unknown policy 'archive'"),
        ("{archve: x/}", "unknown key 'archve'"),
    ],
)
def test_what_is_refused(shop, consumed, problem):
    pipeline(shop, consumed)
    shop.write("in/1.csv", csv((1, "a")))
    result = shop("check", "p.yaml")
    assert result.code == 2, result.err
    assert problem in result.err


def test_a_log_that_another_pipeline_writes_is_not_archived(shop):
    pipeline(shop, "keep")
    shop.write("in/1.csv", csv((1, "a")))
    ran(shop, "run")
    shop.write("q.yaml", "name: q\ninputs:\n  a: {path: out/, consumed: {archive: done/}}\noutputs: {a: q/}\n")
    result = shop("run", "q.yaml")
    assert result.code == 3
    assert "the input 'a' is a log that somebody writes" in result.err


def test_an_archived_file_that_is_gone(shop):
    pipeline(shop, ARCHIVE)
    for number in (1, 2):
        shop.write(f"in/{number}.csv", csv((number, "a")))
    ran(shop, "run")
    (shop.folder / "done/1.csv").unlink()
    shop.write("in/3.csv", csv((3, "a")))
    ran(shop, "run")
    err = ran(shop, "run", "--full-refresh", "all", code=3).err
    assert err.startswith(
        "done/1.csv: error: the input 'a' can't be read again: an archived file of it is gone\nhint: put it back, or withdraw it"
    )
    ran(shop, "retract", "done/1.csv")
    assert contents(shop.folder / "out") == {(2, "a"): 1, (3, "a"): 1}


def test_what_could_not_be_moved_is_moved_before_it_is_withdrawn(shop, monkeypatch):
    """Else it would lie there as a new file."""
    pipeline(shop, ARCHIVE)
    shop.write("in/1.csv", csv((1, "a")))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        err = ran(shop, "run", code=5).err
        assert "the run is committed" in err
    assert names(shop.folder / "in") == ["1.csv"]
    ran(shop, "retract", "in/1.csv")
    assert (names(shop.folder / "in"), names(shop.folder / "done")) == ([], ["1.csv"])
    assert contents(shop.folder / "out") == {}


def test_a_file_that_another_input_reads_is_not_moved_from_under_it(shop):
    shop.write(
        "p.yaml",
        "name: p\ninputs:\n  a: {path: in/, format: append, columns: {k: int64, v: string}, consumed: {archive: done/}}\n"
        "  b: {path: in/1.csv, format: append, columns: {k: int64, v: string}}\noutputs: {a: out/, b: b/}\n",
    )
    shop.write("in/1.csv", csv((1, "a")))
    assert "the inputs 'a' and 'b' both read the file" in ran(shop, "run", code=3).err
    assert names(shop.folder / "in") == ["1.csv"]


COPY = "p.yaml", "q.yaml"


def copied(shop, old="name: p", new="name: q"):
    """Write the pipeline under another name, with outputs of its own."""
    text = (shop.folder / "p.yaml").read_text()
    shop.write("q.yaml", text.replace(old, new).replace("out/", "q/"))


@pytest.mark.parametrize("name", ["p", "q"])
def test_pipelines_are_compared_over_the_archive_too(shop, name):
    """Under whatever name, with or without a state; what was withdrawn, archived or not, belongs to neither."""
    pipeline(shop, ARCHIVE)
    for number in (1, 2):
        shop.write(f"in/{number}.csv", csv((number, "a")))
    ran(shop, "run")
    shop.write("in/3.csv", csv((3, "a")))
    copied(shop, "{a: out/}", "{a: out/}\ncollections: {b: {from: a, apply: [{filter: k != 1}]}}".replace("out", "q"))
    text = (shop.folder / "q.yaml").read_text()
    shop.write("q.yaml", text.replace("name: p", f"name: {name}").replace("{a: q/}", "{a: {from: b, path: q/}}"))
    before = files(shop.folder)
    result = shop("diff", *COPY, "--key", "k", "-o", "json")
    assert result.code == 1, result.err
    (change,) = json.loads(result.out)["outputs"]["a"]["changes"]
    assert change["key"] == {"k": 1}
    assert files(shop.folder) == before
    ran(shop, "retract", "done/1.csv")
    assert shop("diff", *COPY).code == 0
    shop.write("in/1.csv", csv((1, "b")))
    assert shop("diff", *COPY).code == 1


def test_pipelines_are_not_compared_without_a_file_that_is_gone(shop):
    pipeline(shop, "forget")
    shop.write("in/1.csv", csv((1, "a")))
    ran(shop, "run")
    copied(shop)
    assert shop("diff", *COPY).code == 0
    (shop.folder / "in/1.csv").unlink()
    for command in (["diff", *COPY], ["run", "p.yaml", "--full-refresh", "all"]):
        result = shop(*command)
        assert result.code == 3, result.err
        assert "in/1.csv: error: the input 'a' can't be read again: a file of it is gone" in result.err


def test_what_an_archive_has_of_others_is_noted(shop):
    pipeline(shop, ARCHIVE)
    shop.write("in/1.csv", csv((1, "a")))
    ran(shop, "run")
    note = "inputs.a: its archive 'done/' has 1 file that this pipeline has not read"
    assert note not in shop("check", "p.yaml").err
    copied(shop)
    assert shop("diff", *COPY, "-o", "json").code == 0
    assert note in shop("check", "q.yaml").err
    assert note in shop("run", "q.yaml").err
    shop.write("in/2.csv", csv((2, "b")))
    assert note in shop("run", "q.yaml").err
    assert note not in shop("check", "q.yaml").err
    assert note not in shop("run", "q.yaml").err
    shutil.rmtree(shop.folder / ".dd")
    result = shop("diff", *COPY)
    assert result.code == 3
    assert (
        "p.yaml: error: there is nothing to compare: the inputs of the pipeline have no rows\nhint: inputs.a: its"
        in (result.err)
    )
    shop.write("in/3.csv", csv((2, "b")))
    notes = json.loads(shop("diff", *COPY, "-o", "json").out)["notes"]
    assert notes[0] == (
        "input a of A: its archive 'done/' has 2 files that this pipeline has not read: they are not compared"
    )


def test_what_only_looks_moves_nothing(shop):
    """Also where a dead run has left what is to be moved."""
    pipeline(
        shop,
        ARCHIVE,
        more="tests:\n- name: t\n  given: {a: [{k: 1, v: a}]}\n  expect: {collection: a, contents: [{k: 1, v: a}]}\n",
    )
    first = shop.write("in/1.csv", csv((1, "a")))
    ran(shop, "run")
    copied(shop)
    (shop.folder / "done/1.csv").rename(first)
    shop.write("in/2.csv", csv((2, "a")))
    before = files(shop.folder)
    for command in (["diff", "q.yaml"], ["test"], ["explain"], ["check"], ["plan"], ["run", "-n"], ["why", "a", "k=1"]):
        result = shop(*command[:1], "p.yaml", *command[1:])
        assert result.code == 0, result.err
    assert files(shop.folder) == before


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_input_all_files_of_which_are_archived_has_its_columns_still(shop, kind):
    """Also where its path is a glob, or where only the files state their columns."""
    columns = ", columns: infer" if kind == "csv" else ""
    shop.write(
        "p.yaml",
        f"name: p\ninputs:\n  a: {{path: 'in/*.{kind}', format: append, consumed: {{archive: done/}}{columns}}}\n"
        "collections: {c: {from: a, apply: [{filter: k > 0}]}}\noutputs: {c: out/}\n"
        "tests:\n- name: t\n  given: {a: [{k: 1, v: a}]}\n  expect: {collection: c, contents: [{k: 1, v: a}]}\n",
    )
    (shop.folder / "in").mkdir()
    frame = pl.DataFrame({"k": [1], "v": ["a"]})
    frame.write_csv(shop.folder / "in/1.csv") if kind == "csv" else frame.write_parquet(shop.folder / "in/1.parquet")
    ran(shop, "run")
    assert names(shop.folder / "in") == []
    for command in ("test", "explain"):
        ran(shop, command)
    assert "c: k int64?, v string?" in ran(shop, "check").out


JOINED = """name: p
inputs:
  a: {path: in/, format: append, columns: {k: int64, v: string}, consumed: forget}
  b: {path: b/, format: upsert, key: [k], columns: {k: int64, w: string}, consumed: forget}
collections: {j: {from: a, apply: [{join: {with: b, on: [k]}}]}}
outputs: {j: out/}
"""


def test_a_query_reads_of_files_that_are_gone_what_the_state_keeps_of_them(shop):
    """Also whether there has been a row at all, on which the row of an aggregate depends; what is not kept is refused."""
    shop.write("p.yaml", JOINED)
    shop.write("in/1.csv", csv((1, "a"), (2, "b")))
    shop.write("b/1.csv", "k,w\n1,x\n")
    ran(shop, "run")
    for name in ("in", "b"):
        (shop.folder / name / "1.csv").unlink()
    for query, answer in {
        "select k, v from a": ["1  a", "2  b"],
        "select sum(k) as s from a": ["3"],
        "select count(*) as n, max(k) as m from a where k > 9": ["0  null"],
        "select v, w from j": ["a  x"],
        "select count(*) as n from b": ["1"],
    }.items():
        assert shop("sql", "--from", "p.yaml", query).out.splitlines()[1:] == answer, query
    shop.write("p.yaml", JOINED.replace("from: a, apply: [", "from: a, apply: [{filter: k = 9}, "))
    shop.write("in/2.csv", csv((3, "c")))
    ran(shop, "reset", "--outputs", "--yes")
    ran(shop, "run")
    (shop.folder / "in/2.csv").unlink()
    refused = shop("sql", "--from", "p.yaml", "select count(*) as n from a")
    assert refused.code == 3
    assert "the input 'a' can't be read again: a file of it is gone (`consumed: forget`), '2.csv'" in refused.err


def test_an_archive_of_objects_is_in_an_object_store(shop):
    pipeline(shop, ARCHIVE, path="s3://b/in/")
    assert "the input is in an object store, its archive is not" in ran(shop, "check", code=2).err
    pipeline(shop, "{archive: s3://b/in/done/}", path="s3://b/in/")
    assert "writes into 's3://b/in/', where the input 'a' reads" in ran(shop, "check", code=2).err
