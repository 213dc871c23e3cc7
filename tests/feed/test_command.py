"""`dd feed`: what it prints and keeps, what may race, and what is refused."""

import contextlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from ddcli.errors import LockedError, StateError, UsageError
from ddcli.feed.delivery import OutputFeed
from ddcli.store.state.consumers import Consumer, read_consumers
from ddcli.store.state.directory import State
from ddcli.store.state.entries import UPDATES
from tests.harness import ORDER_COLUMNS, snapshot

FEED = ("feed", "out/totals", "--consumer", "mail")


def more(shop, *rows):
    """Have rows come at the next time, and run."""
    time = 3 + len([*(shop.folder / "orders").iterdir()])
    shop.log(f"orders/{time}.parquet", [(region, amount, time, 1) for region, amount in rows], **ORDER_COLUMNS)
    assert shop("run", "orders.yaml", "--quiet").code == 0


def csv(shop, *arguments):
    result = shop(*FEED, "-o", "csv", *arguments)
    assert result.code == 0, result.err
    return result.out.splitlines()[1:], result.err


@pytest.fixture
def fed(orders):
    """Return a folder with an output of one commit."""
    assert orders("run", "orders.yaml", "--quiet").code == 0
    return orders


def test_a_record_that_changed_often_comes_once_and_again_until_it_is_acknowledged(fed):
    rows, said = csv(fed)
    assert rows == ["north,1,5,1", "south,1,7,1"]
    assert said == "position 0-1: acknowledge it with `--ack 0-1`, or `--ack` for the last\n"
    assert fed(*FEED, "--ack").err == "consumer 'mail' is at 1\n"
    assert csv(fed) == ([], "nothing new since 1\n")
    for _ in range(9):
        more(fed, ("south", 1))
    rows, said = csv(fed)
    assert rows == ["south,1,7,-1", "south,10,16,1"]
    assert csv(fed) == (rows, said)  # whoever was killed asks again
    more(fed, ("west", 2))
    assert csv(fed)[0] == [*rows, "west,1,2,1"]
    assert fed(*FEED, "--ack", "1-10").err == "consumer 'mail' is at 10\n"
    assert csv(fed)[0] == ["west,1,2,1"]


def test_what_cancels_out_is_not_delivered_and_moves_the_consumer_all_the_same(fed):
    csv(fed)
    fed(*FEED, "--ack")
    more(fed, ("south", 1))
    more(fed, ("south", -1), ("south", 0))
    fed.log("orders/x.parquet", [("south", 1, 9, -1), ("south", -1, 9, -1), ("south", 0, 9, -1)], **ORDER_COLUMNS)
    fed("run", "orders.yaml", "--quiet")
    assert csv(fed)[0] == []
    assert fed(*FEED, "--ack").err == "consumer 'mail' is at 4\n"


def test_of_two_processes_of_one_consumer_one_acknowledges(fed):
    csv(fed)
    more(fed, ("south", 1))
    csv(fed)
    assert fed(*FEED, "--ack", "0-1").code == 0
    refused = fed(*FEED, "--ack", "0-2")
    assert refused.code == 75
    assert "consumer 'mail' is at 1, and these changes are from 0 on" in refused.err
    assert csv(fed)[0] == ["south,1,7,-1", "south,2,8,1"]


def test_many_who_race_get_the_changes_and_acknowledge_once(fed):
    """Threads, each with a lock of its own; every round of changes is acknowledged by one of them."""
    taken = []

    def consume(_):
        feed = OutputFeed.open("out/totals", fed.folder)
        found = next(feed.follow("mail", [None]))
        with contextlib.suppress(UsageError, LockedError):
            feed.acknowledge("mail", found.since, found.position)
            taken.append((found.since, found.position))

    for _ in range(3):
        more(fed, ("south", 1))
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(consume, range(4)))
    positions = sorted(set(taken))
    assert [since for since, _ in positions] == [0, *(position for _, position in positions[:-1])]
    assert positions[-1][1] == 4


def test_who_follows_gets_each_commit_and_acknowledges_all_of_them(fed):
    """Each time what is new since the time before; a log that is written anew meanwhile ends it."""

    def commits():
        yield
        more(fed, ("south", 1))
        yield
        more(fed, ("south", 1))
        more(fed, ("west", 2))
        yield
        fed("run", "orders.yaml", "--rewrite", "totals", "--quiet")
        yield

    found = OutputFeed.open("out/totals", fed.folder).follow("mail", commits())
    assert [next(found).token for _ in range(2)] == ["0-1", "0-2"]
    last = next(found)
    assert last.changes.rows() == [("south", 2, 8, -1), ("south", 3, 9, 1), ("west", 1, 2, 1)]
    assert fed(*FEED, "--ack", last.token).err == "consumer 'mail' is at 4\n"
    with pytest.raises(StateError, match="was rewritten"):
        next(found)


def test_following_ends_after_some_time(fed):
    result = fed(*FEED, "--follow", "--timeout", "0.05", "-o", "json")
    assert [json.loads(line)["region"] for line in result.out.splitlines()] == ["north", "south"]
    result = fed(*FEED, "--follow", "--timeout", "0.05", "--into", "to")
    assert result.err == "to: 2 changes, 0-1\n"


def test_consumers_are_listed_and_dropped(fed):
    none = fed("feed", "out/totals", "--list")
    assert (none.out, none.err) == ("", "no consumers; `dd feed out/totals --consumer NAME` begins one\n")
    csv(fed)
    fed("feed", "out/totals", "--consumer", "index")
    fed(*FEED, "--ack")
    more(fed, ("south", 1))
    listed = json.loads(fed("feed", "out/totals", "--list", "-o", "json").out)
    assert listed == [
        {"consumer": "index", "acknowledged": 0, "offered": [1], "files": 2, "passed": False},
        {"consumer": "mail", "acknowledged": 1, "offered": [], "files": 1, "passed": False},
    ]
    assert fed("feed", "out/totals", "--list").out.splitlines()[1].split() == ["index", "0", "2"]
    consumers = json.loads(fed("state", "ls", "orders.yaml", "-o", "json").out)["consumers"]
    assert consumers[1] == {"consumer": "mail", "output": "totals", "acknowledged": 1, "passed": False}
    assert fed(*FEED, "--drop").err == "dropped: consumer 'mail' was at 1\n"
    missing = fed(*FEED, "--drop")
    assert (missing.code, missing.err.splitlines()[1]) == (2, "hint: consumers: index")
    assert csv(fed)[0] == ["north,1,5,1", "south,2,8,1"]
    assert fed("reset", "orders.yaml", "--outputs", "--yes").code == 0
    assert not (fed.folder / ".dd/orders").exists()


@pytest.mark.parametrize("name", ["../mail", "", "a/b", ".mail", "-m", "ü", "m\n", "x" * 101, "a b", "\0"])
def test_a_name_that_is_no_files_is_refused(fed, name):
    before = snapshot(fed.folder)
    for more_ in ([], ["--ack"], ["--drop"]):
        result = fed("feed", "out/totals", f"--consumer={name}", *more_)
        assert result.code == 2
        assert "is not a name for a consumer" in result.err
    assert snapshot(fed.folder) == before


def test_a_consumer_that_nobody_knows_acknowledges_nothing(fed):
    """It was dropped, or its name is mistyped: what it has got would come again, unnoticed."""
    csv(fed)
    for words in (["--ack"], ["--ack", "0-1"]):
        refused = fed("feed", "out/totals", "--consumer", "mial", *words)
        assert refused.code == 2
        assert "has no consumer 'mial'" in refused.err
        assert "did you mean 'mail'?" in refused.err
    assert [each.name for each in read_consumers(fed.folder / ".dd/orders")] == ["mail"]


def test_an_output_that_has_nothing_yet_can_be_acknowledged(shop):
    shop.log("in/0.parquet", [("a", 1, 0, 1), ("a", 1, 0, -1)], **ORDER_COLUMNS)
    shop.write("p.yaml", "name: p\ninputs: {given: in/}\noutputs: {given: out/}\n")
    assert shop("run", "p.yaml", "-q").code == 0
    feed = ("feed", "out", "--consumer", "mail")
    assert shop(*feed).err == "nothing new since 0\n"
    assert (shop(*feed, "--ack").code, shop(*feed, "--ack").err) == (0, "consumer 'mail' is at 0\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--ack", "1"], "'1' is not a position"),
        (["--ack", "0-" + "9" * 99], "its numbers are too large"),
        (["--ack", "0-9"], "was not offered 0-9"),
        (["--ack", "7-9"], "was not offered 7-9"),
        (["--ack", "--drop"], "exclude each other"),
        (["--ack", "--follow"], "--follow waits for changes"),
        (["--follow", "-o", "parquet"], "Parquet has an end"),
        (["--count", "1"], "need --follow"),
        (["--list"], "--list is about all consumers"),
    ],
)
def test_what_makes_no_sense_is_refused(fed, arguments, problem):
    csv(fed)
    result = fed(*FEED, *arguments)
    assert result.code == 2
    assert problem in result.err
    assert "not offered" not in problem or "its offers: 0-1\n" in result.err
    assert fed("feed", "out/totals").code == 2
    assert [each.acknowledged for each in read_consumers(fed.folder / ".dd/orders")] == [0]


def test_only_an_output_is_fed_from(fed):
    for place, code in (("orders", 3), ("out", 3), ("nowhere", 3)):
        result = fed("feed", place, "--consumer", "mail")
        assert (result.code, "not an output of a pipeline" in result.err) == (code, True), result.err
    shutil.copytree(fed.folder / "out/totals", fed.folder / "out/copy")
    assert "writes no such output" in fed("feed", "out/copy", "--consumer", "mail").err
    shutil.move(fed.folder / ".dd", fed.folder / "elsewhere")
    assert "state does not exist" in fed(*FEED).err
    shutil.move(fed.folder / "elsewhere", fed.folder / ".dd")
    assert fed(*FEED, "--state", ".dd/orders").code == 0


def test_an_output_that_was_written_anew_asks_its_consumers_to_begin_anew(fed):
    csv(fed)
    fed(*FEED, "--ack")
    assert fed("run", "orders.yaml", "--rewrite", "totals", "--quiet").code == 0
    for arguments in ([], ["--ack"]):
        refused = fed(*FEED, *arguments)
        assert refused.code == 4
        assert "rewritten since consumer 'mail' got it" in refused.err
    fed("feed", "out/totals", "--consumer", "late")
    assert fed("feed", "out/totals", "--list").out.splitlines()[1:] == [
        "late                 0                        1",
        "mail                 1  written anew: --drop it",
    ]
    listed = json.loads(fed("feed", "out/totals", "--list", "-o", "json").out)
    assert [each["passed"] for each in listed] == [False, True]
    assert fed(*FEED, "--drop").code == 0
    assert csv(fed)[0] == ["north,1,5,1", "south,1,7,1"]


def test_a_renamed_output_keeps_its_consumers(fed):
    csv(fed)
    fed(*FEED, "--ack")
    text = (fed.folder / "orders.yaml").read_text()
    fed.write("orders.yaml", text.replace("  totals: out/totals/", "  sums: {from: totals, path: out/totals/}"))
    more(fed, ("south", 1))
    assert csv(fed)[0] == ["south,1,7,-1", "south,2,8,1"]


def test_a_state_that_was_put_back_is_noticed(fed):
    csv(fed)
    shutil.copytree(fed.folder / ".dd", fed.folder / "kept/.dd")
    shutil.copytree(fed.folder / "out", fed.folder / "kept/out")
    more(fed, ("south", 1))
    csv(fed)
    fed(*FEED, "--ack")
    consumers = fed.folder / ".dd/orders/consumers"
    shutil.copytree(consumers, fed.folder / "consumers")
    for name in (".dd", "out"):
        shutil.rmtree(fed.folder / name)
        shutil.move(fed.folder / "kept" / name, fed.folder / name)
    shutil.rmtree(consumers)
    shutil.move(fed.folder / "consumers", consumers)
    refused = fed(*FEED)
    assert refused.code == 4
    assert "the consumer is at 2, and the output at 1" in refused.err


def test_a_commit_that_is_not_published_is_waited_for(fed, monkeypatch):
    monkeypatch.setattr("ddcli.feed.delivery.PATIENCE", 0)
    csv(fed)
    fed(*FEED, "--ack")
    more(fed, ("south", 1))
    (newest,) = [path for path in (fed.folder / "out/totals").glob(f"{UPDATES}*") if "start" not in path.name]
    newest.rename(newest.with_name(f".{newest.name}.000000002.dd-tmp"))
    refused = fed(*FEED)
    assert refused.code == 75
    assert "isn't fully published" in refused.err
    State.open(fed.folder / ".dd/orders", {"totals": fed.folder / "out/totals"}).close()
    assert csv(fed)[0] == ["south,1,7,-1", "south,2,8,1"]


def test_a_damaged_file_is_not_delivered(fed):
    (path,) = (fed.folder / "out/totals").glob("*.parquet")
    data = bytearray(path.read_bytes())
    data[40] ^= 4
    path.write_bytes(data)
    refused = fed(*FEED)
    assert (refused.code, refused.out) == (4, "")
    assert str(path.name) in refused.err


@pytest.mark.parametrize(
    "tree",
    [
        "",
        "[]",
        "null",
        {"acknowledged": -1},
        {"acknowledged": 2, "offered": [1]},
        {"before": 3},
        {"offered": ["1"]},
        {"name": "../x"},
        {"name": "other"},
        {"log": "ff"},
        {"output": 1},
        {"strange": 1},
    ],
)
def test_a_consumers_file_that_dd_never_wrote_is_refused(fed, tree):
    csv(fed)
    (path,) = (fed.folder / ".dd/orders/consumers").glob("*.json")
    text = tree if isinstance(tree, str) else json.dumps(json.loads(path.read_text()) | tree)
    path.write_text(text)
    refused = fed(*FEED)
    assert refused.code == 4
    assert str(path.name) in refused.err


def test_older_offers_lapse():
    consumer = Consumer("mail", "0" * 16, "out")
    for position in range(1, 100):
        consumer = consumer.offering(position)
    assert consumer.offered == tuple(range(84, 100))
    assert consumer.acknowledging(0, 90).offered == tuple(range(91, 100))
