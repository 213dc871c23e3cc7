"""The format `dd` over logs in an object store: as in files, each batch is there once, also where its commit dies."""

from collections import Counter
from contextlib import suppress

import pytest

pytest.importorskip("pyspark")

import ddcli
from ddcli.driver.run import run
from ddcli.errors import InputError
from ddcli.spark import commits, sinks
from ddcli.spark.commits import WriterBatch
from tests.draws import some
from tests.harness import contents
from tests.spark.formats import added, read, stream
from tests.spark.test_commits import there, write
from tests.store.support import Dead, Faulty


def test_a_log_is_written_streamed_and_read(bucket, tmp_path):
    log = bucket / "in"
    for number in (0, 0, 1):
        write(log, [(number, "a"), (number, "a"), (7, None)], WriterBatch("x", number))
    meant = Counter({(0, "a"): 2, (1, "a"): 2, (7, None): 2})
    s3a = str(log).replace("s3://", "s3a://")
    assert added(read(s3a, partitions="2")[0]) == added(read(s3a, readChangeFeed="true")[0]) == meant
    rows, _, offset = stream(s3a)
    assert added(rows) == meant
    write(log, [(7, None)], WriterBatch("x", 2))
    assert added(stream(s3a, offset)[0]) == {(7, None): 1}
    (tmp_path / "p.yaml").write_text(
        f"name: p\nclock: arrival\ninputs: {{rows: {log}/}}\noutputs: {{rows: {bucket}/out/}}\n"
    )
    run(tmp_path / "p.yaml")
    assert added(read(bucket / "out")[0]) == meant + Counter({(7, None): 1})


def state_of(log):
    """Return the records of a log; None where no commit is there as a whole."""
    with suppress(InputError):
        return there(log)


@pytest.mark.in_turn
@pytest.mark.parametrize("whole", [0, 1 << 30])
@pytest.mark.parametrize("after", [*some([False, True])])
def test_a_commit_that_dies_is_there_once_when_it_is_repeated(bucket, tmp_path, monkeypatch, after, whole):
    """Whatever request is the last one; a folder, whose objects appear one after the other, is left out until all are there, and a pipeline that reads some of them goes on with the others."""
    monkeypatch.setattr(commits, "WHOLE", whole)
    counter = Faulty()
    with monkeypatch.context() as patch:
        patch.setattr(commits, "Files", lambda: counter)
        patch.setattr(sinks, "Files", lambda: counter)
        write(bucket / "count", [(1, "a"), (2, "b")], WriterBatch("x", 0))
    for at in some(range(len(counter.log))):
        log = bucket / f"{at}/in"
        files = Faulty(at, after=after)
        with monkeypatch.context() as patch:
            patch.setattr(commits, "Files", lambda files=files: files)
            patch.setattr(sinks, "Files", lambda files=files: files)
            with pytest.raises(Dead):
                write(log, [(1, "a"), (2, "b")], WriterBatch("x", 0))
        meant = Counter({(1, "a"): 1, (2, "b"): 1})
        pipeline = tmp_path / f"{at}/p.yaml"
        pipeline.parent.mkdir()
        pipeline.write_text(f"name: p\nclock: arrival\ninputs: {{rows: {log}/}}\noutputs: {{rows: out/}}\n")
        if any(path.name.endswith(".parquet") and path.name[0] != "." for path, _ in log.below()):
            assert state_of(log) in ([meant] if whole else [meant, None])
            run(pipeline)
        write(log, [(1, "a"), (2, "b")], WriterBatch("x", 0))
        assert there(log) == meant
        write(log, [(3, "c")], WriterBatch("x", 1))
        assert Counter(dict.fromkeys(ddcli.read_log(log).select("k", "s").rows(), 1)) == meant + Counter({(3, "c"): 1})
        run(pipeline)
        assert Counter(contents(pipeline.parent / "out")) == meant + Counter({(3, "c"): 1})
        assert {path.relative_to(log).parts[0][:1] for path, _ in log.below()} == {"_", "u"}, "nothing is left over"
