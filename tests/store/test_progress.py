import pytest

from ddcli.engine.times import LEAST
from ddcli.errors import InputError
from ddcli.store.log.progress import PROGRESS, progress_bytes, read_progress


@pytest.mark.parametrize("upper", [((5,),), ((3, 0), (0, 4)), ((LEAST, 4), (3, LEAST)), ()])
def test_progress_is_read_as_written(tmp_path, upper):
    (tmp_path / PROGRESS).write_bytes(progress_bytes(upper))
    assert read_progress(tmp_path) == upper


def test_the_least_coordinate_is_written_as_null(tmp_path):
    (tmp_path / PROGRESS).write_bytes(progress_bytes(((LEAST, 4), (3, LEAST))))
    assert (tmp_path / PROGRESS).read_text() == '{"upper": [[null, 4], [3, null]]}\n'


def test_a_log_may_have_no_progress(tmp_path):
    assert read_progress(tmp_path) is None
    (tmp_path / "file").touch()
    assert read_progress(tmp_path / "file") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"upper": 5}',
        '{"upper": [5]}',
        '{"upper": [[]]}',
        '{"upper": [[1.5]]}',
        '{"upper": [[true]]}',
        '{"upper": [[1], [1, 2]]}',
        '{"upper": [null]}',
        '{"upper": [[9223372036854775808]]}',
    ],
)
def test_senseless_progress_is_refused(tmp_path, text):
    (tmp_path / PROGRESS).write_text(text)
    with pytest.raises(InputError, match="progress") as caught:
        read_progress(tmp_path)
    assert caught.value.place == str(tmp_path / PROGRESS)
