"""Outputs that are tables of Postgres: what it alone can; tests/tables/test_database_outputs.py has what all databases can."""

from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import DdError, EngineError
from tests.draws import chance, many
from tests.tables import foreign_tables
from tests.tables.database_followers import DatabaseFollower
from tests.tables.test_output_types import write


@pytest.fixture(params=[False, True], ids=["rows", "keyed"])
def make(request, tmp_path, database, execute):
    """Return what makes a pipeline in a folder of its own, over an empty database."""

    def made(at):
        execute("drop schema if exists marts cascade", "create schema marts")
        return DatabaseFollower(tmp_path / f"shop{at}", database, keyed=request.param)

    return made


@pytest.mark.in_turn
def test_tables_that_others_declared(tmp_path, database, execute):
    """What a client reads is what was written, or the run is refused and the table is as it was."""
    written = set()
    for seed in range(many(120)):
        execute("drop schema if exists marts cascade", *foreign_tables.PREPARED)
        folder = tmp_path / str(seed)
        folder.mkdir()
        written.add(foreign_tables.judge_declaration(folder, database, seed, execute))
    assert written == {False, True}


@pytest.mark.parametrize("key", [False, True], ids=["rows", "keyed"])
@pytest.mark.parametrize("declared", foreign_tables.CHANGED["postgres"])
def test_declarations_that_change_rows(tmp_path, database, execute, declared, key):
    if "loose" in declared and not key:
        pytest.skip("a row without a key is no other one's")
    execute("drop schema if exists marts cascade", *foreign_tables.PREPARED)
    foreign_tables.judge_changed(tmp_path, database, declared, execute, key=key)


def test_two_copies_of_a_state_at_once(make, tmp_path):
    """Both write the table; each commit is whole, and who comes second sees that, or writes all."""
    one = make(0)
    draw = chance("two copies")
    one.supply(draw)
    one.run()
    one.supply(draw)
    other = one.copy(tmp_path / "other")
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(each.run) for each in (one, other)]:
            try:
                done.result()
            except DdError as error:
                assert "another run writes the table" in error.problem  # noqa: PT017 - one of them may win
    for each in (one, other):
        each.run()
        each.check()


def test_a_column_that_becomes_another_type(make, execute):
    each = make(0)
    each.supply(chance("before"))
    each.run()
    execute("alter table marts.t alter column city type uuid using gen_random_uuid()")
    each.supply(chance("of identities"), rows=30)
    with pytest.raises(EngineError) as refused:
        each.run()
    assert "the table's columns or rules differ from the output's" in refused.value.hint


def test_a_change_is_found_by_an_index(make, execute):
    """So it costs as much as it is large, however many rows the table has."""
    each = make(0)
    each.supply(chance("index"))
    each.run()
    (definition,) = [
        row[0] for row in execute("select indexdef from pg_indexes where schemaname = 'marts' and tablename = 't'")
    ]
    assert ("(city)" if each.keyed else "hash_record_extended(ROW(city, amount), (0)::bigint)") in definition


def test_what_can_not_be_written(tmp_path, database, execute):
    """The run is committed, the error names the table, and the next run goes on."""
    frame = write(tmp_path, {"x": ("string?", pl.String, ["a\0b", None])}, f"to: '{database}', table: marts.t")
    with pytest.raises(EngineError, match=r"the table can't be written: .*marts") as caught:
        run(tmp_path / "p.yaml")
    assert "table marts.t" in str(caught.value)
    assert database.partition("?")[0] not in str(caught.value)
    execute("create schema marts")
    with pytest.raises(EngineError, match="NUL"):
        run(tmp_path / "p.yaml")
    gone = frame.head(1).with_columns(time=pl.lit(1, pl.Int64), diff=pl.lit(-1, pl.Int64))
    gone.write_parquet(tmp_path / "in/1.parquet")
    run(tmp_path / "p.yaml")
    assert execute("select * from marts.t") == [(None,)]
    text = (tmp_path / "p.yaml").read_text()
    (tmp_path / "p.yaml").write_text(text.replace("postgres@", "guest@").replace("marts.t", "other"))
    with pytest.raises(EngineError, match="permission denied"):
        run(tmp_path / "p.yaml")


def test_a_server_that_is_silent(make, execute, monkeypatch):
    """The run is committed, and the next one writes the table, whatever became of the transaction."""
    follower = make(0)
    draw = chance("silent")
    follower.supply(draw)
    follower.run()
    execute(
        "create function marts.wait() returns trigger language plpgsql as 'begin perform pg_sleep(30); return null; end'",
        "create trigger wait before update on marts.dd_commits execute function marts.wait()",
    )
    follower.supply(draw)
    with monkeypatch.context() as patch:
        patch.setenv("DDCLI_DATABASE_TIMEOUT", "1")  # what has to succeed may take longer on a busy machine
        with pytest.raises(EngineError, match="the server has been silent for 1 s"):
            follower.run()
    execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'dd'")
    execute("drop trigger wait on marts.dd_commits")
    follower.run()
    follower.check()


def test_a_table_gets_a_column_and_a_wider_type(tmp_path, database, execute):
    execute("drop schema if exists marts cascade", "create schema marts")
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(
        "name: p\ninputs: {t: {path: in/, format: append, columns: grow}}\n"
        f"outputs: {{t: {{path: out/, as: table, to: '{database}', table: marts.t}}}}\n"
    )
    (tmp_path / "in").mkdir()
    pl.DataFrame({"k": [1], "v": [5]}, {"k": pl.Int64, "v": pl.Int32}).write_parquet(tmp_path / "in/1.parquet")
    run(pipeline)
    later = {"k": [2], "v": [1 << 40], "w": ["x"]}
    pl.DataFrame(later, {"k": pl.Int64, "v": pl.Int64, "w": pl.String}).write_parquet(tmp_path / "in/2.parquet")
    run(pipeline)
    assert execute("select k, v, w from marts.t order by k") == [(1, 5, None), (2, 1 << 40, "x")]
