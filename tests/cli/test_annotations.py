"""Errors as workflow commands: what GitHub reads back is what was said, at its place."""

import re
from urllib.parse import unquote

import pytest

from ddcli.cli.messages import annotation
from ddcli.errors import EngineError, InputError, Span, SpecError, SpecErrors


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def read(command):
    """Return the properties and the message of a workflow command, unescaped as GitHub's runner does."""
    found = re.fullmatch(r"::error (?P<properties>[^:\n]*)::(?P<message>[^\n]*)", command)
    properties = dict(part.split("=", 1) for part in found["properties"].split(","))
    return {name: unquote(text) for name, text in properties.items()}, unquote(found["message"])


def test_an_error_at_a_place():
    error = SpecError("no column 'amont'", span=Span("p.yaml", 9, 11, 5, "from: amont"), hint="did you mean 'amount'?")
    assert annotation(error) == (
        "::error file=p.yaml,line=9,col=11,endColumn=15,title=dd%3A pipeline file::"
        "no column 'amont'%0Ahint: did you mean 'amount'?"
    )


def test_what_would_end_a_command_is_escaped():
    nasty = "100%, of: a\nb::c\r%0A"
    properties, message = read(annotation(SpecError(nasty, span=Span(f"a,b:c%{'=x'}.yaml", 1, 2))))
    assert properties["file"] == "a,b:c%=x.yaml"
    assert message == r"100%, of: a\nb::c\r%0A"


def test_several_errors_are_a_line_each():
    errors = SpecErrors([SpecError("second", span=Span("p.yaml", 2, 1)), SpecError("first", span=Span("p.yaml", 1, 1))])
    assert [read(line)[1] for line in annotation(errors).splitlines()] == ["first", "second"]


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("there.csv", {"file": "there.csv"}),
        ("there.csv:7", {"file": "there.csv", "line": "7"}),
        ("there.csv:7:3", {"file": "there.csv", "line": "7", "col": "3", "endColumn": "3"}),
    ],
)
def test_a_place_that_is_a_file_is_named(somewhere, place, where):
    (somewhere / "there.csv").touch()
    assert read(annotation(InputError("bad", place=place))) == ({**where, "title": "dd: input refused"}, "bad")


def test_a_place_that_is_no_file_is_told():
    error = EngineError("no answer", place="s3://bucket/state")
    assert read(annotation(error)) == ({"title": "dd: failed"}, "s3://bucket/state: no answer")
    assert read(annotation(EngineError("no answer"))) == ({"title": "dd: failed"}, "no answer")


def test_files_are_named_from_the_root_of_the_repository(somewhere, monkeypatch):
    (somewhere / "sub").mkdir()
    monkeypatch.chdir(somewhere / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(somewhere))
    for given, named in [("p.yaml", "sub/p.yaml"), (str(somewhere / "p.yaml"), "p.yaml"), ("/else/p.yaml",) * 2]:
        assert read(annotation(SpecError("x", span=Span(given, 1, 1))))[0]["file"] == named
