"""Whatever somebody does to the files that `dd` opens: it ends as documented, in time, and touches nothing else."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddcli.store.files import foreign
from tests.adversary import files, names, pipelines, states, tables
from tests.adversary.attack import GENERATORS, attack
from tests.adversary.canary import FILES
from tests.adversary.case import SECONDS, Case, Numbered, judge
from tests.adversary.runner import Ending
from tests.adversary.shop import commands
from tests.adversary.yaml_text import yaml
from tests.draws import chance, many, some

DRAWN = os.environ.get("DD_ADVERSARY") or many(6)
"""How many cases of each generator are tried, each with one command; `all`: all, each with every command, where there is an end to them."""


@pytest.fixture(scope="module")
def begun():
    """Return a shop that is copied for each case, and what calls commands there."""
    with attack() as begun:
        yield begun


FOUND = [
    *(
        (f".dd/shop/{place} is {thing}", command)
        for place in ("arrangements", "spill", "holds", "manifest", "runs", "late", "errors", "LOCK", "holds/LOCK")
        for thing in ("to_tree", "to_file", "a_second_name", "a_pipe")
        for command in (("run", "pipeline.yaml"),)
    ),
    (".dd/shop/LOCK is to_file", ("state", "unlock", "pipeline.yaml")),
    (".dd/shop/arrangements is to_tree", ("state", "gc", "--state", ".dd/shop")),
    ("out/totals/updates-start-2.parquet is a_pipe", ("log", "out/totals/")),
    ("out/totals/_progress.json is a_pipe", ("run", "pipeline.yaml")),
    ("publish evil.txt as ../../../elsewhere/.profile", ("run", "pipeline.yaml")),
    ("publish evil.txt as ../../../elsewhere/.profile", ("state", "gc", "--state", ".dd/shop")),
    ("an empty output at ../../../elsewhere", ("state", "gc", "--state", ".dd/shop")),
    ("an empty output of before at ../../../elsewhere", ("state", "compact", "--state", ".dd/shop")),
    ("out/totals is to_tree", ("state", "reshard", "pipeline.yaml", "--shards", "3")),
    ("out/totals/_lock is to_itself", ("run", "pipeline.yaml")),
    (".dd/shop/manifest/000000003.json is a_file_of_holes", ("state", "ls", "pipeline.yaml")),
    ("late rows at '../elsewhere/'", ("run", "hostile.yaml")),
    *(
        (case, ("run", "pipeline.yaml", "--full-refresh", *refresh))
        for case in (".dd/shop/errors is a_file", ".dd/shop/errors/updates-3-4.parquet is a_directory")
        for refresh in (("all",), ("totals", "--memory", "256MiB"))
    ),
    *(
        (
            f".dd/shop/manifest/000000003.json says '*' at cache.plan.generations.0.{place}.None",
            ("run", "pipeline.yaml"),
        )
        for place in ("read.once", "read.several", "joins.first", "joins.written")
    ),
    *(
        (f".dd/{which}/manifest/00000000{number}.json says {said}", ("run", f"{file}.yaml", *more))
        for which, number, file in (("shop", 3, "pipeline"), ("reader", 3, "reader"))
        for said in ("{} at inputs.sales.schema", "'string' at inputs.sales.None")
        for more in ((), ("--dry-run",))
    ),
    (".dd/shop/manifest/000000003.json says 'string' at outputs.totals.None", ("run", "pipeline.yaml")),
    (".dd/shop/manifest/000000003.json says {} at cache", ("run", "pipeline.yaml", "--dry-run")),
    (".dd/shop/registers/000000002-0000.json says None at 1.0", ("state", "gc", "--state", ".dd/shop")),
    (".dd/shop/runs/000000003.json says [] at summary.outputs.totals.inserted", ("explain", "pipeline.yaml")),
    ("another's spill", ("run", "pipeline.yaml")),
    ("another's arrangements/people/0", ("run", "pipeline.yaml")),
]
"""What did harm once: a case, and a command."""


def test_what_did_harm_once(begun):
    cases = {
        case.name: case
        for generator in (*states.GENERATORS, pipelines.ways_out)
        for case in begun.cases(generator.__name__)
    }
    wrong = [each for name, command in some(FOUND) for each in begun.wrong(cases[name], command)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.in_turn
@pytest.mark.parametrize("generator", GENERATORS)
def test_nothing_hostile_does_harm(generator, begun):
    """A failure names the seed of its case; `make soak CASE=...` tries that again."""
    if DRAWN == "all":
        cases = begun.cases(generator)
        drawn = (
            []
            if isinstance(cases, Numbered)
            else [(case, each) for case in cases for each in case.commands or commands(begun.shop)]
        )
        wrong = [each for case in drawn for each in begun.wrong(*case)]
        assert not wrong, "\n".join(wrong)
        return
    draw = chance(generator)
    seeds = [draw.randrange(1 << 32) for _ in range(int(DRAWN))]
    wrong = [f"CASE={generator}:{seed}\n{each}" for seed in seeds for each in begun.wrong(*begun.draw(generator, seed))]
    assert not wrong, "\n".join(wrong)


def test_commands_do_well_where_nobody_is_hostile(begun):
    """Else nothing would be tried: each of them opens the state."""
    for command in commands(begun.shop):
        copy = begun.shop.copy(begun.folder / "around")
        ending = begun.runner.run(copy.folder, command, SECONDS)
        assert ending.code in {0, 1} if command[0] == "diff" else ending.code == 0, (command, ending)


def test_hostile_pipelines_do_well_without_what_is_hostile(begun):
    """Else a generator would try one refusal again and again."""
    copy = begun.shop.copy(begun.folder / "around")
    (copy.folder / "hostile.yaml").write_text(pipelines.with_operators("{filter: amount > 1}"))
    for command in pipelines.READING:
        assert begun.runner.run(copy.folder, command, SECONDS).code == 0, command
    plain = {place: place for place in names.PLACES} | {"file": "file.csv"}
    (copy.folder / "in/folder").mkdir()
    (copy.folder / "in/folder/file.csv").write_text("day,region,amount\n1,value,3\n")
    (copy.folder / "plain.yaml").write_text(yaml(names.pipeline(plain, quoted=True)))
    called = [("run", "plain.yaml"), ("test", "plain.yaml"), ("query", "plain.yaml", "totals", "region=value")]
    called += [("run", "hostile.yaml"), ("test", "hostile.yaml")]
    for at, how in enumerate(files.FORMATS[:2]):
        (copy.folder / "in/hostile").mkdir(exist_ok=True)
        (copy.folder / "in/hostile/0.csv").write_bytes(files.content("csv"))
        (copy.folder / "hostile.yaml").write_text(files.pipeline(how))
        for command in called if at == 0 else called[-1:]:
            ending = begun.runner.run(copy.folder, command, SECONDS)
            assert ending.code == 0, (command, ending)


def test_what_reaches_out_is_seen(begun):
    """An input in an object store is looked for in the network, where there is none."""
    copy = begun.shop.copy(begun.folder / "around")
    (copy.folder / "far.yaml").write_text("dd: 1\nname: far\ninputs: {a: s3://bucket/a/}\noutputs: {a: out/far/}\n")
    ending = begun.runner.run(copy.folder, ("run", "far.yaml"), SECONDS)
    assert ending.reached
    assert judge(Case("", lambda shop: None), ending, [])


def test_what_does_harm_is_seen(begun):
    """The judge is judged: a canary that is touched in any way, a bug of ours, a process that stays."""
    copy = begun.shop.copy(begun.folder / "around")
    canary = copy.canary
    canary.look()
    assert canary.touched() == []
    (canary.tree / ".profile").write_bytes(FILES[".profile"] + b"evil")
    (canary.tree / "docs/letter.txt").touch()
    (canary.tree / "empty").unlink()
    (canary.tree / "empty-directory/new").touch()
    (copy.folder / "in/sales/0.csv").write_text("evil")
    assert {name.removeprefix("elsewhere/") for name in canary.touched()} > {
        ".profile",
        "docs/letter.txt",
        "empty",
        "empty-directory/new",
        "shop/in/sales/0.csv",
    }
    fine = Ending(4, "error: refused", 1.0, 1 << 20, [], timed_out=False)
    case = Case("", lambda shop: None)
    assert judge(case, fine, []) == []
    for change in (
        {"reached": ["the network"]},
        {"seconds": 31.0},
        {"said": "\x1b[31m"},
        {"code": 70},
        {"code": -9},
        {"timed_out": True},
        {"left": ["sleep"]},
        {"bytes": 1 << 40},
    ):
        assert len(judge(case, Ending(**{**vars(fine), **change}), [])) == 1
    assert len(judge(case, fine, [".profile"])) == 1


@pytest.mark.parametrize("path", ["../../../hidden.parquet", "HIDDEN", "file://HIDDEN"])
def test_rows_of_a_file_elsewhere_would_be_seen(shop, monkeypatch, path):
    """Without the gate for paths of tables such rows are in an output, so the judge of hostile tables can find them; with it they are refused."""
    around = shop.folder / "around"
    (around / "shop").mkdir(parents=True)
    placed = SimpleNamespace(around=around, folder=around / "shop")
    hidden = tables.hide(placed)
    monkeypatch.chdir(placed.folder)
    # A table with column mapping reads nothing by the names of the hidden file's columns.
    plain = (each for each in tables.delta_files() if not any(b"columnMapping" in text for text in each.values()))
    table_files = dict(next(plain))
    tables.leading_to(table_files, path.replace("HIDDEN", str(hidden)), hidden.stat().st_size)
    tables.write_table(placed, table_files)

    def leaked():
        return [each for each in Path("out").rglob("*.parquet") if tables.HIDDEN.encode() in each.read_bytes()]

    found = shop("run", "hostile.yaml")
    assert found.code == 3
    assert "the table names a file outside of its folder" in found.err
    assert not leaked()
    monkeypatch.setattr(foreign, "leads_out", lambda _name: False)
    assert shop("run", "hostile.yaml").code == 0
    assert leaked()
