"""Variables and included files: what they say is what one file without them would, and errors have their own places."""

import os
import re
from dataclasses import replace
from pathlib import Path

import click
import pytest

from ddcli.cli.arguments import PipelineFile
from ddcli.cli.main import cli
from ddcli.commands.pipelines import find_pipelines
from ddcli.errors import SpecErrors, UsageError
from ddcli.plan.pipeline_file import load_spec, parse_spec
from ddcli.spec.document import included_files
from ddcli.spec.file import check_used, variables_of_call
from ddcli.spec.include import DEEPEST, MOST
from tests.draws import chance, many
from tests.spec.test_reading import plain

ENTRIES = {
    "inputs": {
        "orders": '{path: "data/orders/", format: "upsert", key: ["id"], columns: {id: "int64", region: "string?"}}',
        "customers": '"data/customers/*.csv"',
        "late": '{path: "/data/late", late: "quarantine", quarantine: "late/aside/"}',
        "moved": '{path: "data/moved/", consumed: {archive: "data/archive"}}',
        "shared": '{import: {state: ".dd/other/", arrangement: "by_id"}}',
    },
    "collections": {
        "north": '{from: "orders", apply: [{filter: "region = \'north\' and id > 10"}]}',
        "counted": '{from: "north", apply: [{reduce: {by: ["region"], n: "count(*)"}}]}',
        "asked": '{sql: "select region, count(*) as n from orders where id > 7 group by region"}',
    },
    "outputs": {
        "counted": '{path: "out/counted/"}',
        "asked": '{path: "out/asked/", keep: "7 days"}',
        "north": '{as: "table", parquet: "marts/north.parquet"}',
        "tabled": '{from: "north", as: "table", to: "sqlite:///marts/shop.db"}',
    },
}
WORD = re.compile(r"(?<=[\"' /])\w+(?=[\"' /])")
FOLDERS = (".", "shared", "shared/deep", "other")


def written(entries):
    """Return the text of sections with these entries."""
    return "".join(
        f"{section}:\n" + "".join(f"  {name}: {text}\n" for name, text in found.items())
        for section, found in entries.items()
        if found
    )


def moved(text, name, folder):
    """Return an input as it is written in a file of this folder."""
    between = os.path.relpath(".", folder)
    if between == ".":
        return text
    text = re.sub(r'((?:path|quarantine|state|archive|parquet): "|sqlite:///)(?!/)', rf"\g<1>{between}/", text)
    return text.replace('"data/customers', f'"{between}/data/customers') if name == "customers" else text


@pytest.mark.parametrize("number", range(many(40)))
def test_parts_say_what_the_whole_does(number, tmp_path):
    random = chance("parts", number)
    variables = {}

    def varied(text):
        def replaced(found):
            if random.random() > 0.3:
                return found[0]
            cut = random.randrange(len(found[0]))
            name = f"v{random.randrange(9)}"
            if variables.setdefault(name, found[0][cut:]) != found[0][cut:]:
                return found[0]
            return found[0][:cut] + random.choice(["${%s}", "${%s:-other}"]) % name

        return WORD.sub(replaced, text)

    files = [tmp_path / folder / f"f{number}.yaml" for number, folder in enumerate(random.sample(FOLDERS, 3))]
    parts = [{section: {} for section in ENTRIES} for _ in range(4)]
    for section, entries in ENTRIES.items():
        for name, text in entries.items():
            at = random.randrange(4)
            folder = files[at - 1].parent.relative_to(tmp_path) if at else "."
            here = moved(text, name, folder) if section != "collections" else text
            parts[at][section][name] = varied(here)
    includes = [[] for _ in range(4)]
    for at in range(1, 4):
        includes[random.randrange(at)].append(at)
        if random.random() < 0.3:  # also by another way
            includes[random.randrange(at)].append(at)
    main = tmp_path / "main.yaml"
    for at, path in enumerate([main, *files]):
        path.parent.mkdir(parents=True, exist_ok=True)
        listed = [os.path.relpath(files[one - 1], path.parent) for one in dict.fromkeys(includes[at])]
        key = f"include: [{', '.join(listed)}]\n" if listed else ""
        path.write_text(key + written(parts[at]))
    with variables_of_call(variables):
        found = load_spec(main)
    (tmp_path / "whole.yaml").write_text("name: main\n" + written(ENTRIES))
    whole = load_spec(tmp_path / "whole.yaml")
    same = replace(found, fragments=(), variables=(), path=whole.path, inputs=normal(found), collections={}, outputs={})
    assert plain(same) == plain(replace(whole, inputs=normal(whole), collections={}, outputs={}))
    assert places(found) == places(whole)
    assert {n: plain(c) for n, c in found.collections.items()} == {n: plain(c) for n, c in whole.collections.items()}
    assert {Path(path) for path, _ in found.fragments} == set(files) == set(included_files(main))


def normal(spec):
    """Return the inputs by name, in one order, with paths without detours."""

    def clean(text):
        return text and replace(text, value=os.path.normpath(text.value))

    return {
        name: replace(
            given,
            path=clean(given.path),
            quarantine=clean(given.quarantine),
            consumed=clean(given.archive) or given.consumed,
        )
        for name, given in sorted(spec.inputs.items())
    }


def places(spec):
    """Return the places of outputs by name, without detours."""
    return {name: re.sub(r"[^/]+/\.\./", "", os.path.normpath(each.place.value)) for name, each in spec.outputs.items()}


def test_checks_and_tests_of_parts(tmp_path):
    shared = tmp_path / "shared/a.yaml"
    shared.parent.mkdir()
    shared.write_text(
        "inputs: {a: in/}\ncollections: {b: {from: a}}\nchecks: [{unique: [x], of: a}]\n"
        "tests:\n  - {name: one, given: {a: rows/a.csv}, expect: {collection: b, contents: rows/b.csv}}\n"
    )
    (tmp_path / "p.yaml").write_text(
        "include: shared/a.yaml\noutputs: {b: out/}\nchecks: [{unique: [y], of: b}]\ntests: [{name: two, given: {a: c.csv}}]\n"
    )
    spec = load_spec(tmp_path / "p.yaml")
    assert [*spec.checks] == ["a_unique_x", "b_unique_y"]
    first, second = spec.tests
    assert [first.name.value, second.name.value] == ["one", "two"]
    assert first.steps[0].given[0][1].file.value == "shared/rows/a.csv"
    assert first.steps[0].expect[0].contents.file.value == "shared/rows/b.csv"
    assert second.steps[0].given[0][1].file.value == "c.csv"


def errors_of(text, file="p.yaml"):
    with pytest.raises(SpecErrors) as caught:
        parse_spec(text, str(file))
    return [(str(error.span), error.problem, error.hint or "") for error in caught.value.errors]


WRONG = {
    "inputs: {a: '${NOT_SET}/x'}": ("1:14", "inputs.a: the variable 'NOT_SET' is not set", "--var NOT_SET="),
    "inputs: {a: 'in/${NOT_SET'}": ("1:17", "is not closed", "close it"),
    "inputs: {a: 'in/${a b}'}": ("1:17", "'${a b}' is no variable", "${NAME:-default}"),
    "inputs: {a: 'in/${A:?no}'}": ("1:17", "'${A:?no}' is no variable", "${NAME:-default}"),
    "inputs: {a: ${DIR}/x}": ("1:14", "a variable without quotes is inside braces", 'quote it: "${DIR}/x"'),
    "inputs: {a: 's3://${DB_PASSWORD}@b/x'}": ("1:19", "'DB_PASSWORD' is a secret by its name", "AWS_ACCESS_KEY_ID"),
    "inputs: {a: x/}\nshards: ${N:-many}": ("2:9", "must be a whole number", ""),
    "inputs: {a: x/}\ninclude: gone.yaml": ("2:10", "'gone.yaml': there is no such file", "relative to"),
    "inputs: {a: x/}\ninclude: [{a: b}]": ("2:11", "must be a file or a list of files, found a mapping", ""),
    "inputs: {a: x/}\ninclude: s3://b/x.yaml": ("2:10", "is not a file of this machine", ""),
    "inputs: {a: x/}\ninclude: [p.yml, p.yml]": ("2:18", "'p.yml' is listed twice", ""),
    "inputs: {a: x/}\ninclude: .": ("2:10", "not a plain file", ""),
    "inputs: {a: x/}\ninclude: pipe": ("2:10", "not a plain file", ""),
    "inputs: {a: x/}\ninclude: loop": ("2:10", "'loop': ", ""),
    "inputs: {a: x/}\ninclude: bytes": ("2:10", "not UTF-8", ""),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_can_not_be_replaced_or_included_is_refused_at_its_place(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("bytes").write_bytes(b"\xff")
    Path("p.yml").write_text("x-a: 1\n")
    place, problem, hint = WRONG[text]
    ((found, what, why),) = errors_of(f"{text}\noutputs: {{a: out/}}\n")
    assert found == f"p.yaml:{place}"
    assert problem in what
    assert hint in why


def test_a_missing_file_is_the_only_error_where_it_may_have_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((_, problem, _),) = errors_of("include: gone.yaml\ncollections: {b: {from: a}}\noutputs: {b: out/}\n")
    assert problem == "include: 'gone.yaml': there is no such file"


INNER = {
    "inputs: {b: {path: x/, lat: error}}": "inner.yaml:1:24: unknown key 'lat'",
    "inputs: {b: x/\n": "inner.yaml:1:9: a '}' is missing",
    "inputs: [b]\n": "inner.yaml:1:9: must be a mapping of names, found a list",
    "budget: {rows: 1}": "inner.yaml:1:1: an included file has no key 'budget'",
    "clock: event": "inner.yaml:1:1: the including file has another `clock`",
    "timezone: Europe/Rome": "inner.yaml:1:1: the including file has another `timezone`",
    "name: [a]": "inner.yaml:1:1: an included file has no key 'name'",
    "checks: {b: x/}": "inner.yaml:1:9: checks: must be a list, found a mapping",
    "inputs: {a: y/}": "p.yaml:2:10: defined a second time, first at inner.yaml:1:10",
    "collections:\n  b: {from: nobody}": "inner.yaml:2:13: no input or collection is named 'nobody'",
    "inputs:\n  b: '${NOT_SET}'": "inner.yaml:2:7: the variable 'NOT_SET' is not set",
    "include: gone.yaml": "inner.yaml:1:10: there is no such file",
    "include: p.yaml": "inner.yaml:1:10: the file includes itself: p.yaml -> inner.yaml -> p.yaml",
    "- a": "p.yaml:1:10: must be a mapping, found a list",
}


@pytest.mark.parametrize("text", INNER)
def test_an_error_points_into_the_file_that_it_is_in(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("inner.yaml").write_text(text)
    Path("p.yaml").write_text("include: inner.yaml\ninputs: {a: x/}\noutputs: {a: out/}\n")
    place, _, problem = INNER[text].partition(": ")
    ((found, what, _),) = errors_of(Path("p.yaml").read_text())
    assert (found, problem in what) == (place, True)


def test_includes_are_bounded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(DEEPEST + 3):
        Path(f"{number}.yaml").write_text(f"include: {number + 1}.yaml\n")
    ((place, problem, hint),) = errors_of("include: 0.yaml\ninputs: {a: x/}\noutputs: {a: out/}\n")
    assert (place, problem) == (f"{DEEPEST - 1}.yaml:1:10", "include: includes too much")
    assert f"{DEEPEST} inside each other" in hint
    names = [f"a{number}.yaml" for number in range(MOST + 5)]
    for name in names:
        Path(name).write_text("x-a: 1\n")
    problems = errors_of(f"include: [{', '.join(names)}]\ninputs: {{a: x/}}\noutputs: {{a: out/}}\n")
    assert {problem for _, problem, _ in problems} == {"include: includes too much"}
    for name in ("b0.yaml", "b1.yaml", "b2.yaml"):  # of each the aliases stand for half of what is allowed
        lists = "".join(f"x-{at + 1}: &a{at + 1} [{', '.join([f'*a{at}'] * 10)}]\n" for at in range(4))
        Path(name).write_text(f"x-0: &a0 [1, 2, 3]\n{lists}")
    problems = errors_of("include: [b0.yaml, b1.yaml, b2.yaml]\ninputs: {a: x/}\noutputs: {a: out/}\n")
    assert [place for place, _, _ in problems] == ["p.yaml:1:29"]
    with Path("large.yaml").open("wb") as file:
        file.truncate(1 << 40)
    ((_, problem, _),) = errors_of("include: large.yaml\ninputs: {a: x/}\noutputs: {a: out/}\n")
    assert "larger than 16 MiB" in problem


def test_credentials_in_a_path_are_refused_and_not_shown(monkeypatch):
    monkeypatch.setenv("STORE", "s3://me:hunter22@bucket/x")
    with pytest.raises(SpecErrors) as caught:
        parse_spec("inputs: {a: '${STORE}/in/'}\noutputs: {a: out/}\n", "p.yaml")
    assert "inputs.a: a path has no credentials in it" in caught.value.render()
    assert "hunter22" not in caught.value.render()


def test_places_in_a_text_with_variables_are_those_of_the_file():
    text = """\
inputs: {a: x/}
collections:
  b:
    sql: |
      select id
      from a where id > ${FIRST} and x = '${SECOND}' and y $${z}
outputs: {b: out/}
"""
    with variables_of_call({"FIRST": "1000000", "SECOND": "x"}):
        value = parse_spec(text.replace("y $${z}", "y = '$${z}'"), "p.yaml").collections["b"].sources.text
    assert value.value.endswith("id > 1000000 and x = 'x' and y = '${z}'")
    line = text.splitlines()[5]
    for word in ("select", "from", "where", "and x", "x = ", "and y"):
        span = value.at(value.value.index(word), len(word))
        assert (span.line, span.source[span.column - 1 :][: len(word)]) == (5 + (word != "select"), word)
    span = value.at(value.value.index("1000000") + 3)
    assert line[span.column - 1 :][: span.length] == "${FIRST}"


def test_values_are_of_the_type_that_they_look_like_and_the_call_comes_first(monkeypatch):
    text = "inputs: {a: x/}\ncollections: {b: {from: a, apply: [{reduce: {n: '${WHAT:-count(*)}'}}]}}\noutputs: {b: '$${o}/${D}'}\nshards: ${N}\n"
    monkeypatch.setenv("N", "3")
    monkeypatch.setenv("D", "env")
    monkeypatch.setenv("WHAT", "")
    spec = parse_spec(text, "p.yaml")
    assert (spec.shards, spec.outputs["b"].path.value) == (3, "${o}/env")
    (reduce,) = spec.collections["b"].apply
    assert reduce.name == "reduce"
    assert "count(*)" in str(plain(reduce))
    with variables_of_call({"N": "4", "D": "call"}):
        again = parse_spec(text, "p.yaml")
        check_used()
    assert (again.shards, again.outputs["b"].path.value) == (4, "${o}/call")
    assert spec.variables != again.variables
    with variables_of_call({"NN": "4"}):
        parse_spec(text, "p.yaml")
        with pytest.raises(UsageError, match="--var NN: the pipeline has no variable of this name"):
            check_used()


def test_a_variable_in_quotes_may_be_a_number_and_is_text_where_text_is_wanted():
    text = "inputs: {a: {path: x/, format: append}}\n"
    text += "name: '${NAME:-true}'\noutputs: {a: out/}\n"
    text += 'collections: {b: {from: a, apply: [{top_k: {k: "${N:-2}", order_by: [x]}}]}}\n'
    spec = parse_spec(text, "p.yaml")
    assert (spec.collections["b"].apply[0].arguments["k"], spec.name.value) == (2, "true")
    for wrong in ('"1"', '"1${N:-2}"', '"${N:-x}"'):
        with pytest.raises(SpecErrors, match="must be a whole number"):
            parse_spec(text.replace('"${N:-2}"', wrong), "p.yaml")


def test_a_variable_is_stated_once():
    with pytest.raises(click.BadParameter, match="'MIN' is set twice"):
        cli.main(["check", "p.yaml", "--var", "MIN=1", "--var", "MIN=2"], standalone_mode=False)


def test_a_secret_is_allowed_under_spark_and_no_message_shows_it(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter22")
    text = "inputs: {a: x/}\noutputs: {a: out/}\nspark: {remote: '%s'}\n"
    spec = parse_spec(text % "sc://host/;token=${MY_TOKEN}", "p.yaml")
    assert spec.spark.remote.value == "sc://host/;token=hunter22"
    assert spec.variables == ()
    with pytest.raises(SpecErrors) as caught:
        parse_spec(text % "host/;token=${MY_TOKEN}", "p.yaml")
    assert "hunter22" not in caught.value.render()
    assert "${MY_TOKEN}" in caught.value.render()


def test_every_command_that_reads_a_pipeline_takes_variables():
    def commands(group):
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            yield from commands(command) if isinstance(command, click.Group) else [command]

    found = {
        command: "var" in [option.name for option in command.params]
        for command in commands(cli)
        if any(isinstance(option.type, PipelineFile) for option in command.params)
    }
    assert len(found) > 10
    assert all(found.values()), [command.name for command, has in found.items() if not has]


def test_a_directory_of_pipelines_may_have_the_files_that_they_include(tmp_path):
    (tmp_path / "a.yaml").write_text("include: shared.yaml\noutputs: {orders: out/a/}\n")
    (tmp_path / "b.yaml").write_text("include: shared.yaml\noutputs: {orders: '${B:-out/b/}'}\n")
    (tmp_path / "forgot.yaml").write_text("inputs: {orders: in/}\n")
    (tmp_path / "shared.yaml").write_text("inputs: {orders: in/}\n")
    found, passed = find_pipelines([tmp_path])
    assert ({one.path.name for one in found}, passed) == ({"a.yaml", "b.yaml", "forgot.yaml"}, [])
