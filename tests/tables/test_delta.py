"""Tables of Delta Lake as inputs."""

import contextlib
import json
import random
import re
import shutil
from collections import Counter

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.driver.watch import is_whole, look, watched
from ddcli.errors import InputError, SpecErrors, UsageError
from ddcli.job.request import read_request
from ddcli.store.files.gate import Files
from ddcli.store.mirrors import equal_parts, mirror
from ddcli.store.mirrors.delta import DeltaSource
from ddcli.version import install_command
from tests.draws import SEED, many
from tests.harness import snapshot
from tests.store.support import Dead, Faulty
from tests.tables.histories import FEED, MAPPED, DeltaHistory, actions_of, commit, deletion_vector

PIPELINE = "name: p\ninputs: {{orders: {{delta: table/{more}}}}}\noutputs: {{orders: out/}}\n"
COLUMNS = ["k", "v", "p", "at"]


class Mirrored:
    """A pipeline over a table of which it copies the input."""

    def __init__(self, folder, more=""):
        self.folder = folder
        columns = ", columns: {k: int64?, v: string?, p: string?, at: 'datetime[us, UTC]?'}"
        self.file = folder / "p.yaml"
        self.file.write_text(PIPELINE.format(more=more + columns))

    def run(self, **options):
        return run(self.file, **options)

    def contents(self, as_of="latest"):
        """Return the records that the output holds."""
        return Counter({tuple(row): diff for *row, diff in read_log(self.folder / "out", as_of=as_of).rows()})


@pytest.mark.parametrize("seed", range(many(8)))
def test_a_random_history(tmp_path, monkeypatch, seed):
    """After each run the output is what the table's package reads, and, by version, what it reads as of each version that was read."""
    draw = random.Random(f"{SEED}-{seed}")
    monkeypatch.setattr(equal_parts, "LEAST", (1, 1 << 12)[seed % 3 == 0])
    monkeypatch.setattr(mirror, "FILES", (2, 64)[seed % 3 == 1])
    monkeypatch.setattr(equal_parts, "SAMPLE", (1, 256)[seed % 3 == 2])
    monkeypatch.setattr(equal_parts, "NEAR", (0, 4)[seed % 2])
    history = DeltaHistory(tmp_path / "table", draw)
    stepwise = draw.random() < 0.6
    mirrored = Mirrored(tmp_path, draw.choice([", time: version", ", time: committed"]) if stepwise else "")
    by_version = "version" in mirrored.file.read_text()
    mirrored.run()
    first = history.version
    for _ in range(draw.randrange(2, 5)):
        steps = [history.change() for _ in range(draw.randrange(3))]
        summary = mirrored.run()
        assert mirrored.contents() == history.contents(columns=COLUMNS), steps
        if set(steps) <= {"compact", "checkpoint"}:
            assert not summary.changed
    for version in range(first, history.version + 1) if by_version else ():
        assert mirrored.contents(version) == history.contents(version, COLUMNS), version
    assert not mirrored.run().changed


def made(folder, rows=((1, "a"), (2, "b"), (3, "c")), **options):
    """Write a table of rows, a file for each of them; return its path."""
    table = str(folder / "table")
    for at, row in enumerate(rows):
        frame = pl.DataFrame([row], ["k", "v"], orient="row")
        write_deltalake(table, frame, mode="append", **(options if not at else {}))
    return table


def pipeline(folder, inputs="{delta: table/}", head=""):
    """Write a pipeline that copies an input."""
    file = folder / "p.yaml"
    file.write_text(f"name: p\n{head}inputs: {{orders: {inputs}}}\noutputs: {{orders: out/}}\n")
    return file


def held(folder):
    return {tuple(row) for row in read_log(folder / "out", as_of="latest").rows()}


def test_only_files_that_differ_are_read(tmp_path, monkeypatch):
    """Of 20 files one is rewritten and one added: four rows are read, and two versions that only rearrange read none."""
    table, read = made(tmp_path, [(at, "a") for at in range(20)]), []
    file = pipeline(tmp_path)
    run(file)
    plain = DeltaSource._read
    monkeypatch.setattr(DeltaSource, "_read", lambda *args: read.append(plain(*args)) or read[-1])
    DeltaTable(table).update(predicate="k = 7", updates={"v": "'z'"})
    write_deltalake(table, pl.DataFrame({"k": [20, 21], "v": ["b", "c"]}), mode="append")
    summary = run(file)
    assert (summary.inputs["orders"].rows, sum(frame.height for frame in read)) == (4, 4)
    DeltaTable(table).optimize.compact()
    DeltaTable(table).create_checkpoint()
    read.clear()
    assert not run(file).changed
    assert not read
    assert held(tmp_path) == {(at, "z" if at == 7 else "a", 1) for at in range(20)} | {(20, "b", 1), (21, "c", 1)}


@pytest.mark.parametrize("gone", ["log", "files"])
@pytest.mark.parametrize("time", ["", ", time: version"])
def test_what_is_vacuumed_is_compared_with_the_mirror(tmp_path, gone, time):
    table = made(tmp_path)
    file = pipeline(tmp_path, f"{{delta: table/{time}}}")
    run(file)
    DeltaTable(table).update(predicate="k = 1", updates={"v": "'z'"})
    DeltaTable(table).delete("k = 2")
    write_deltalake(table, pl.DataFrame({"k": [3], "v": ["c"]}), mode="append")
    DeltaTable(table).create_checkpoint()
    if gone == "files":
        DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    else:
        for path in sorted((tmp_path / "table" / "_delta_log").glob("*.json"))[:-2]:
            path.unlink()
    run(file)
    assert held(tmp_path) == {(1, "z", 1), (3, "c", 2)}
    assert not run(file).changed


def test_deletion_vectors(tmp_path):
    """A vector deletes rows of a file that stays, another one more, and a restore takes both back."""
    table = str(tmp_path / "table")
    write_deltalake(table, pl.DataFrame({"k": [1, 2, 3, 4]}))
    file = pipeline(tmp_path, "{delta: table/, time: version}")
    (added,) = actions_of(table, "add")
    removed = {name: added[name] for name in ("path", "partitionValues", "size")} | {"dataChange": True}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    run(file)
    some, more = ({"deletionVector": deletion_vector(rows)} for rows in ([1], [1, 3]))
    commit(table, {"protocol": protocol}, {"remove": removed}, {"add": added | some})
    run(file)
    assert held(tmp_path) == {(1, 1), (3, 1), (4, 1)}
    commit(table, {"remove": removed | some}, {"add": added | more})
    commit(table, {"remove": removed | more}, {"add": added})
    run(file)
    held_at = {at: {k for k, _ in read_log(tmp_path / "out", as_of=at).rows()} for at in range(4)}
    assert held_at == {0: {1, 2, 3, 4}, 1: {1, 3, 4}, 2: {1, 3}, 3: {1, 2, 3, 4}}


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_removed_file_need_not_have_its_partition(tmp_path, monkeypatch, partitioned):
    """Where the table has no partitions, as tables that `dd` wrote; else all rows are compared."""
    table = str(tmp_path / "table")
    write_deltalake(table, pl.DataFrame({"k": [1, 2, 3], "p": ["a"] * 3}), partition_by=["p"] if partitioned else None)
    file = pipeline(tmp_path)
    run(file)
    compared = []
    plain = DeltaSource.difference
    monkeypatch.setattr(DeltaSource, "difference", lambda *given: compared.append(given) or plain(*given))
    (added,) = actions_of(table, "add")
    name = f"{added['path']}-other.parquet"
    path = tmp_path / "table" / name
    pl.DataFrame({"k": [1, 3, 4]} if partitioned else {"k": [1, 3, 4], "p": ["a"] * 3}).write_parquet(path)
    added |= {"path": name, "size": path.stat().st_size}
    commit(table, {"remove": {"path": name.removesuffix("-other.parquet"), "dataChange": True}}, {"add": added})
    run(file)
    assert held(tmp_path) == {(1, "a", 1), (3, "a", 1), (4, "a", 1)}
    assert bool(compared) == partitioned


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "damage", [b"", b"PAR1", "footer", "length", None], ids=["empty", "torn", "footer", "length", "gone"]
)
def test_a_damaged_file_of_a_table_is_an_error_of_the_input(tmp_path, first, damage):
    """Whether all files are read or those that are new; the run after the repair goes on."""
    table = made(tmp_path)
    file = pipeline(tmp_path)
    if not first:
        run(file)
        DeltaTable(table).update(predicate="k = 2", updates={"v": "'z'"})
    path = tmp_path / "table" / actions_of(table, "add")[-1]["path"]
    whole = path.read_bytes()
    if damage is None:
        path.unlink()
    elif damage == "length":  # deltalake ends the process over it
        path.write_bytes(whole[:-8] + b"\xff" * 4 + whole[-4:])
    else:
        path.write_bytes(whole[:-24] + b"\xff" * 16 + whole[-8:] if damage == "footer" else damage)
    with pytest.raises(InputError, match=f"can't be read: .*|{path.name}") as caught:
        run(file)
    assert "RESTORE" in caught.value.hint
    assert str(tmp_path / "table") in caught.value.place
    path.write_bytes(whole)
    run(file)
    assert held(tmp_path) == {(1, "a", 1), (2, "b" if first else "z", 1), (3, "c", 1)}


def test_large_files_are_read_in_parts(tmp_path, monkeypatch):
    """Rows that were moved from several files to one, in parts of which each has rows of its own."""
    monkeypatch.setattr(equal_parts, "PIECE", 20)
    table = str(tmp_path / "table")
    for first in (0, 50, 100):
        write_deltalake(table, pl.DataFrame({"k": range(first, first + 50)}), mode="append")
    file = pipeline(tmp_path)
    run(file)
    read = []
    plain = DeltaSource._read
    monkeypatch.setattr(DeltaSource, "_read", lambda *given: read.append((found := plain(*given)).height) or found)
    keys = [*range(100, 150), *range(50), *range(50, 70), 1000, *range(71, 100)]
    pl.DataFrame({"k": keys}).write_parquet(tmp_path / "table/new.parquet", row_group_size=25)
    removed = [{"remove": {"path": one["path"], "dataChange": True}} for one in actions_of(table, "add")]
    added = actions_of(table, "add")[0] | {"path": "new.parquet"}
    commit(table, *removed, {"add": added})
    run(file)
    assert sorted(read) == [25] * 6 + [50] * 3
    assert held(tmp_path) == {(key, 1) for key in keys}


@pytest.mark.parametrize(("engine", "trusted"), [("Apache-Spark/4.0.0", True), ("delta-rs:1.0", False)])
def test_a_change_feed_counts_where_its_writer_is_faithful(tmp_path, engine, trusted):
    """The feed here says what the files don't, so it shows which of them was read."""
    table = made(tmp_path)
    file = pipeline(tmp_path)
    run(file)
    feed = tmp_path / "table" / "_change_data"
    feed.mkdir()
    rows = [(1, "a", "update_preimage"), (1, "fed", "update_postimage"), (2, "b", "delete"), (9, "i", "insert")]
    pl.DataFrame(rows, ["k", "v", "_change_type"], orient="row").write_parquet(feed / "c.parquet")
    action = {"path": "_change_data/c.parquet", "size": 1, "partitionValues": {}, "dataChange": False}
    added = actions_of(table, "add")[0]
    removed = {name: added[name] for name in ("path", "partitionValues", "size")} | {"dataChange": True}
    commit(table, {"remove": removed}, {"cdc": action}, engine=engine)
    run(file)
    kept = {(3, "c", 1)}
    assert held(tmp_path) == kept | ({(1, "fed", 1), (9, "i", 1)} if trusted else {(2, "b", 1)})


def test_a_feed_that_lacks_a_row_is_not_read(tmp_path):
    """Of a row that an update makes equal to another deltalake's feed has the old value alone: once it has both, it may count."""
    table = str(tmp_path / "table")
    write_deltalake(table, pl.DataFrame({"k": [1, 2], "v": ["c", "z"]}), configuration=FEED)
    file = pipeline(tmp_path)
    run(file)
    DeltaTable(table).update(predicate="k > 0", updates={"k": "2", "v": "'z'"})
    feed = pl.DataFrame(DeltaTable(table).load_cdf(1, 1))
    assert [row[-3:-2] for row in feed.rows()] == [("update_preimage",)]
    run(file)
    assert held(tmp_path) == {(2, "z", 2)}


def test_added_columns(tmp_path):
    """Declared beforehand they are refused, declared afterwards null in older rows; undeclared the pipeline changes with the table."""
    table = made(tmp_path)
    file = pipeline(tmp_path, "{delta: table/, columns: {k: int64?, n: float64?}}")
    with pytest.raises(InputError, match="the table has no column 'n'"):
        run(file)
    file = pipeline(tmp_path, "{delta: table/, columns: {k: int64?}}")
    run(file)
    write_deltalake(table, pl.DataFrame({"k": [9], "n": [1.5]}), mode="append", schema_mode="merge")
    run(file)
    assert held(tmp_path) == {(1, 1), (2, 1), (3, 1), (9, 1)}
    other = tmp_path / "other.yaml"
    other.write_text(
        "name: q\ninputs: {orders: {delta: table/}}\ncollections: {c: {from: orders, apply: [project: [k]]}}\n"
        "outputs: {c: out2/}\n"
    )
    run(other)
    write_deltalake(table, pl.DataFrame({"k": [10], "m": ["x"]}), mode="append", schema_mode="merge")
    run(other)
    assert read_log(tmp_path / "out2", as_of="latest")["k"].to_list() == [1, 2, 3, 9, 10]
    file = pipeline(tmp_path, "{delta: table/, columns: {k: int64?, n: float64?}}")
    run(file, apply=True, rewrite=frozenset({"orders"}))
    assert held(tmp_path) == {(1, None, 1), (2, None, 1), (3, None, 1), (9, 1.5, 1), (10, None, 1)}


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (pl.DataFrame({"k": ["x"], "v": ["y"]}), "version 3 of the table has 'k' as string, which was int64"),
        (pl.DataFrame({"k": [1]}), "version 3 of the table has no column 'v' any more"),
    ],
)
def test_other_changes_of_columns_are_refused(tmp_path, frame, problem):
    table, file = made(tmp_path), pipeline(tmp_path)
    run(file)
    before = held(tmp_path), snapshot(tmp_path / ".dd/p/tables/orders")
    write_deltalake(table, frame, mode="overwrite", schema_mode="overwrite")
    write_deltalake(table, frame, mode="append")
    with pytest.raises(InputError) as caught:
        run(file)
    assert problem in caught.value.problem
    assert "dd reset" in caught.value.hint
    assert (held(tmp_path), snapshot(tmp_path / ".dd/p/tables/orders")) == before


def test_another_table_in_its_place_is_refused(tmp_path):
    made(tmp_path)
    file = pipeline(tmp_path)
    run(file)
    shutil.rmtree(tmp_path / "table")
    made(tmp_path, [(1, "x")] * 5)
    with pytest.raises(InputError, match="another table"):
        run(file)


def test_an_empty_text_of_a_partition_is_null(tmp_path):
    """By the protocol, in the first run as in later ones, which read file by file."""
    table = tmp_path / "table"
    write_deltalake(table, pl.DataFrame({"k": [1, 2], "p": ["", "x"], "v": ["", "y"]}), partition_by=["p"])
    file = pipeline(tmp_path)
    run(file)
    assert held(tmp_path) == {(1, None, "", 1), (2, "x", "y", 1)}
    write_deltalake(table, pl.DataFrame({"k": [3], "p": [""], "v": [""]}), mode="append")
    run(file)
    assert held(tmp_path) == {(1, None, "", 1), (2, "x", "y", 1), (3, None, "", 1)}
    DeltaTable(table).delete("k = 1")
    run(file)
    assert held(tmp_path) == {(2, "x", "y", 1), (3, None, "", 1)}


@pytest.mark.parametrize("feature", ["typeWidening", "clustering-x"])
def test_features_that_are_not_read_are_refused(tmp_path, feature):
    table, file = made(tmp_path), pipeline(tmp_path)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    commit(table, {"protocol": protocol | {"readerFeatures": [feature], "writerFeatures": [feature]}})
    with pytest.raises(InputError, match=feature):
        run(file)


def test_a_table_of_deltalake_for_deletion_vectors_is_read(tmp_path):
    """It asks for variants, too, though no column is one."""
    table, file = made(tmp_path, configuration={"delta.enableDeletionVectors": "true"}), pipeline(tmp_path)
    run(file)
    DeltaTable(table).delete("k = 2")
    run(file)
    assert held(tmp_path) == {(1, "a", 1), (3, "c", 1)}


def described(table, change, *, partitioned=(), **more):
    """Commit a description of a table with its fields changed by a function."""
    known = DeltaTable(table)
    schema = json.loads(known.schema().to_json())
    change(schema["fields"])
    metadata = known.metadata()
    action = {
        "id": str(metadata.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [*partitioned],
        "configuration": metadata.configuration | more,
    }
    commit(table, {"metaData": action})


def test_columns_of_other_names_in_files(tmp_path):
    """As Spark writes them: partitions are known by the names in files; a file may lack a column."""
    table = tmp_path / "table"
    write_deltalake(table, pl.DataFrame({"k": [1, 2], "p": ["x", "y"]}), configuration=MAPPED)
    fields = json.loads(DeltaTable(table).schema().to_json())["fields"]
    stored = {field["name"]: field["metadata"]["delta.columnMapping.physicalName"] for field in fields}
    (old,) = actions_of(table, "add")
    commit(table, {"remove": {"path": old["path"], "partitionValues": {}, "dataChange": True}})
    described(str(table), lambda _: None, partitioned=["p"])

    def add(name, rows, p):
        pl.DataFrame({stored["k"]: rows}).write_parquet(table / name)
        size = (table / name).stat().st_size
        action = {"path": name, "partitionValues": {stored["p"]: p}, "size": size, "modificationTime": 1}
        commit(table, {"add": action | {"dataChange": True}})
        return action

    first = add("1.parquet", [1, 2], "x")
    file = pipeline(tmp_path)
    run(file)
    assert held(tmp_path) == {(1, "x", 1), (2, "x", 1)}
    add("2.parquet", [2, 3], None)
    assert run(file).changed
    assert held(tmp_path) == {(1, "x", 1), (2, "x", 1), (2, None, 1), (3, None, 1)}
    commit(table, {"remove": first | {"dataChange": True}})
    run(file)
    assert held(tmp_path) == {(2, None, 1), (3, None, 1)}


def test_a_renamed_column_is_refused_and_one_with_a_former_name_is_another(tmp_path):
    table = made(tmp_path, configuration=MAPPED)
    file = pipeline(tmp_path)
    run(file)
    described(table, lambda fields: fields[1].update(name="w"))
    with pytest.raises(InputError, match="version 3 of the table has no column 'v' any more"):
        run(file)

    def another(fields):
        about = {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-3"}
        fields[1] = {"name": "v", "type": "string", "nullable": True, "metadata": about}

    described(table, another, **{"delta.columnMapping.maxColumnId": "3"})
    with pytest.raises(InputError, match="version 4 of the table has another column under the name 'v'"):
        run(file)


def test_names_in_files_that_come_with_a_new_description_are_compared_as_a_whole(tmp_path):
    """A version that replaces the table names its columns in files anew: those of the files before are no longer known."""
    table, file = made(tmp_path), pipeline(tmp_path)
    run(file)
    about = {
        name: {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"}
        for at, name in enumerate("kv", 1)
    }
    gone = [action["path"] for action in actions_of(table, "add")]
    pl.DataFrame({"col-1": [2, 4], "col-2": ["b", "d"]}).write_parquet(tmp_path / "table/new.parquet")
    new = {"path": "new.parquet", "partitionValues": {}, "size": (tmp_path / "table/new.parquet").stat().st_size}
    schema = json.loads(DeltaTable(table).schema().to_json())
    for field in schema["fields"]:
        field["metadata"] = about[field["name"]]
    metadata = DeltaTable(table).metadata()
    described_anew = {"id": str(metadata.id), "format": {"provider": "parquet", "options": {}}}
    described_anew |= {"schemaString": json.dumps(schema), "partitionColumns": []}
    described_anew |= {"configuration": MAPPED | {"delta.columnMapping.maxColumnId": "2"}}
    removed = [{"remove": {"path": path, "partitionValues": {}, "dataChange": True}} for path in gone]
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    added = {"add": new | {"modificationTime": 1, "dataChange": True}}
    commit(table, protocol, {"metaData": described_anew}, *removed, added)
    run(file)
    assert held(tmp_path) == {(2, "b", 1), (4, "d", 1)}


@pytest.mark.parametrize("kind", ["id", "struct", "variant"])
def test_other_mappings_and_variants_are_refused(tmp_path, kind):
    table, file = made(tmp_path, configuration=MAPPED), pipeline(tmp_path)

    def change(fields):
        about = {"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-3"}
        inner = {"name": "a", "type": "long", "nullable": True, "metadata": about}
        struct = {"type": "struct", "fields": [inner]}
        fields[1] |= {"type": {"id": "string", "struct": struct, "variant": "variant"}[kind]}

    described(table, change, **{"delta.columnMapping.mode": "id" if kind == "id" else "name"})
    reason = {"id": "columnMapping by id", "struct": "columnMapping in the struct v", "variant": "variant"}[kind]
    with pytest.raises(InputError, match=reason):
        run(file)


def test_a_run_that_dies_anywhere_counts_each_version_once(tmp_path, monkeypatch):
    """Whatever operation of the store is the last one, the next run ends at the table's contents."""
    table, file = made(tmp_path), pipeline(tmp_path, "{delta: table/, columns: {k: int64?, v: string?}}")
    run(file)
    DeltaTable(table).delete("k = 2")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    counted = Faulty()
    monkeypatch.setattr("ddcli.store.state.directory.Files", lambda: counted)
    run(file)
    dead = [at for at in counted.changes if "/tables/" in str(counted.log[at][1])]
    assert len(dead) >= 3
    for at in [*dead, dead[-1] + 1, len(counted.log) - 1]:
        for after in (False, True):
            for name in (".dd", "out"):
                shutil.rmtree(tmp_path / name)
            for path, data in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            faulty = Faulty(at, Dead, after)
            monkeypatch.setattr("ddcli.store.state.directory.Files", lambda faulty=faulty: faulty)
            with contextlib.suppress(Dead):
                run(file)
            monkeypatch.setattr("ddcli.store.state.directory.Files", Files)
            run(file)
            assert held(tmp_path) == {(1, "a", 1), (3, "c", 1)}, (at, after)
            assert not list((tmp_path / ".dd").rglob("*.dd-tmp"))


def test_what_a_run_would_do_leaves_the_mirror(shop):
    """A dry run and a plan read what the next run would, and neither makes a state nor moves a mirror."""
    table, _ = made(shop.folder), pipeline(shop.folder)
    assert "3 updates" in shop("run", "p.yaml", "--dry-run").err
    assert not (shop.folder / ".dd").exists()
    assert "orders: 1 new file, 3 updates" in shop("plan", "p.yaml").out
    assert shop("run", "p.yaml").code == 0
    DeltaTable(table).delete("k = 2")
    before = snapshot(shop.folder / ".dd")
    assert "orders: 1 new file, 1 update" in shop("plan", "p.yaml").out
    assert "1 update" in shop("run", "p.yaml", "--dry-run").err
    assert snapshot(shop.folder / ".dd") == before


def test_commands_about_a_table(shop):
    made(shop.folder)
    pipeline(shop.folder)
    assert "orders: k int64?, v string?" in shop("check", "p.yaml").out
    assert shop("run", "p.yaml").code == 0
    assert "'k'" not in shop("why", "p.yaml", "orders", "k=1").err
    result = shop("retract", "p.yaml", "table/a.parquet")
    assert result.code == 3
    assert "the input 'orders' is a table: its files are not withdrawn" in result.err
    pipeline(shop.folder, "{delta: table/, columns: {k: string}}")
    result = shop("check", "p.yaml")
    assert result.code == 3
    assert "'k' is int64 in the table" in result.out + result.err
    pipeline(shop.folder, "{delta: elsewhere/}")
    assert "inputs.orders: " in shop("run", "p.yaml").err


WRONG = {
    ("{delta: table/}", "clock: event\n"): "the rows of a table have no time of their own",
    ("{delta: table/, time: version}", "clock: arrival\n"): "under `clock: arrival` the time of a row is the run",
    ("{delta: table/, time: day}",): "unknown time 'day'",
    ("{delta: table/, key: k}",): "unknown key 'key'",
}


@pytest.mark.parametrize(("given", "problem"), WRONG.items())
def test_a_file_that_names_a_table_wrongly(tmp_path, given, problem):
    with pytest.raises(SpecErrors) as caught:
        run(pipeline(tmp_path, *given))
    assert problem in caught.value.errors[0].problem


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    made(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UsageError) as caught:
        run(pipeline(tmp_path))
    assert caught.value.hint == install_command("delta")


def test_a_table_is_what_a_folder_with_a_log_becomes(shop):
    """`dd init --from`: the folder itself, or the tables in it; columns that a log has itself are renamed."""
    write_deltalake(shop.folder / "lake/orders", pl.DataFrame({"k": [1], "time": [2]}))
    write_deltalake(shop.folder / "lake/items", pl.DataFrame({"k": [1]}))
    (shop.folder / "lake" / "notes.csv").write_text("a\n1\n")
    assert shop("init", "all", "--from", "lake").code == 0
    text = (shop.folder / "all/lake.yaml").read_text()
    assert "orders: {delta: ../lake/orders/}" in text
    assert "notes_csv: ../lake/notes.csv is left out" in text
    assert shop("run", "all/lake.yaml").code == 0
    assert shop("init", "one", "--from", "lake/items").code == 0
    assert shop("run", "one/items.yaml").code == 0


def test_the_refusal_of_its_files_names_the_line_that_reads_it(shop):
    made(shop.folder)
    pipeline(shop.folder, "{path: table/}")
    result = shop("run", "p.yaml")
    assert result.code == 3
    line = re.search(r"write `(\{delta: .*\})`", result.err)[1]
    pipeline(shop.folder, line)
    assert shop("run", "p.yaml").code == 0
    assert held(shop.folder) == {(1, "a", 1), (2, "b", 1), (3, "c", 1)}


def test_a_watch_sees_a_new_version(shop):
    table, file = made(shop.folder), pipeline(shop.folder)
    request = read_request(file)
    seen = look(file, request)
    write_deltalake(table, pl.DataFrame({"k": [4], "v": ["d"]}), mode="append")
    now = look(file, request)
    assert now != seen
    assert is_whole(request, seen, now)
    assert shop.folder / "table/_delta_log" in watched(request)


def test_tests_of_a_pipeline_over_a_table(shop):
    made(shop.folder)
    given = "{orders: [{k: 1, v: x}, {k: 2, v: y}, {k: 2, v: y, diff: -1}]}"
    steps = f"tests: [{{name: t, given: {given}, expect: {{collection: orders, contents: [{{k: 1, v: x}}]}}}}]\n"
    file = pipeline(shop.folder)
    file.write_text(file.read_text() + steps)
    result = shop("test", "p.yaml")
    assert result.code == 0, result


def test_sql_and_why(shop):
    """They read what was taken in, and the table as it is where that is asked for, or nothing was."""
    table, _ = made(shop.folder), pipeline(shop.folder)
    assert shop("sql", "select count(*) as n from orders", "--from", "p.yaml", "-o", "csv").out.split() == ["n", "3"]
    assert shop("why", "p.yaml", "orders", "k=1").code == 0
    assert not (shop.folder / ".dd").exists()
    shop("run", "p.yaml")
    ask = "sql", "select v from orders where k > 2", "--from", "p.yaml", "-o", "csv"
    write_deltalake(table, pl.DataFrame({"k": [4], "v": ["new"]}), mode="append")
    assert shop(*ask).out.split() == ["v", "c"]
    assert shop(*ask, "--as-of", "latest").out.split() == ["v", "c", "new"]
    assert "tables/orders/" in shop("why", "p.yaml", "orders", "k=1").out
