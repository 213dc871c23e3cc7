"""The test of documents can fail: what is wrong in a block is found, and nothing else is."""

import click
import duckdb
import pytest

from ddcli.errors import SpecErrors
from tests import shown
from tests.harness import copy_root

RIGHT = {
    "a command and its output": """\
```console
$ dd check pipelines/reachable.yaml
pipelines/reachable.yaml: ok, 1 input
  reachable: origin string?, dest string?
```
""",
    "lines that are left out": "```console\n$ dd check pipelines/reachable.yaml\n...\n```\n",
    "what a shell does, over several lines": "```console\n$ cat > a.txt <<'END'\n> one\n> END\n$ cat a.txt | tr e E\nonE\n```\n",
    "python": "```console\n$ python -c 'import duckdb; print(1)'\n1\n```\n",
    "an error and how it ended": "```console\n$ dd check gone.yaml; echo $?\ngone.yaml: error: there is no such pipeline file\n...\n2\n```\n",
    "how long and how large": "```console\n$ echo took 0.12 s, 7.5 kB '  ' a1b2c3d4\ntook 3 ms, 1 B a1b2c3d5e6f7\n```\n",
    "the day on which it was written": "```console\n$ date +%F\n2020-01-31\n```\n",
    "operators": "```yaml\n- filter: a > 1\n- semijoin: {with: others, on: [a]}\n```\n",
    "sections": "```yaml\ncollections:\n  b:\n    from: a\n    apply: [distinct]\n```\n",
    "outputs alone": "```yaml\noutputs: {a: out/}\n```\n",
    "a pipeline with its file": """\
```csv
# in/a.csv
x,time
1,0
```
```yaml
# own.yaml
dd: 1
name: own
inputs: {a: {path: in/, columns: {x: int64}}}
outputs: {a: out/}
```
```console
$ dd check own.yaml
own.yaml: ok, 1 input
  a: x int64
```
""",
    "what can't be run": "```sh\npip install x.whl\n*/5 * * * *  cd /srv && ddcli run a.yaml -q >> log 2>&1\ndd if=/dev/zero of=x\n```\n",
    "a program": "```python\nprint(1 + 1)  # 2\n```\n",
    "a query": "```sql\nselect count(*) from 'fixtures/legs/*.parquet'\n```\n",
    "a workflow": "```yaml\n# .github/workflows/a.yml\njobs: {a: {steps: [{run: dd check pipelines/scc.yaml}]}}\n```\n",
}
WRONG = {
    "another output": "```console\n$ echo one\ntwo\n```\n",
    "an output more": "```console\n$ echo one\none\ntwo\n```\n",
    "an output less": "```console\n$ echo one\n```\n",
    "another day": "```console\n$ echo 2020-01-31\n2020-01-30\n```\n",
    "no command": "```console\none\n```\n",
    "an operator that is not there": "```yaml\n- fliter: a > 1\n```\n",
    "a key that is not there": "```yaml\ninputs: {a: {path: a/, formt: upsert}}\n```\n",
    "a pipeline that is nowhere": "```yaml\ndd: 1\nname: own\ninputs: {a: a/}\noutputs: {a: out/}\n```\n",
    "a pipeline that is wrong": "```yaml\n# own.yaml\ndd: 1\nname: own\ninputs: {a: a/}\noutputs: {b: out/}\n```\n",
    "an option that is not there": "```sh\ndd run a.yaml --nope\n```\n",
    "a command that is not there": "```sh\n0 5 * * * ddcli rnu a.yaml\n```\n",
    "no script": "```sh\nif then\n```\n",
    "a program that prints something else": "```python\nprint(1 + 1)  # 3\n```\n",
    "a query over nothing": "```sql\nselect * from 'gone/*.parquet'\n```\n",
    "a workflow that fails": "```yaml\n# .github/workflows/a.yml\njobs: {a: {steps: [{run: dd check gone.yaml}]}}\n```\n",
    "a language that nobody speaks": "```klingon\nnuqneH\n```\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return copy_root(tmp_path_factory.mktemp("shown") / "root")


def follow(document, folder):
    (blocks,) = shown.sections(document).values()
    assert blocks
    for block in blocks:
        shown.follow(block, folder)


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_passes(folder, what):
    (folder / "in").mkdir(exist_ok=True)
    follow(RIGHT[what], folder)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_fails(folder, what):
    with pytest.raises((AssertionError, SpecErrors, click.ClickException, duckdb.Error)):
        follow(WRONG[what], folder)


def test_blocks_are_found_in_their_sections():
    document = "```sh\na\n```\n\n## One\n\ntext\n\n```sh\nb\n```\n```csv\nc\n```\n## Two\n"
    found = shown.sections(document)
    assert list(found) == ["the beginning", "One", "Two"]
    assert [(block.language, block.text, block.line) for block in found["One"]] == [
        ("sh", "b\n", 9),
        ("csv", "c\n", 12),
    ]


@pytest.mark.parametrize("value", ["51b30347", "51930347", "abcdeffe"])
def test_a_shown_hash_stands_for_any(value):
    shown.compare("dd log", "Rome pii:0c1f22aa 1\n", f"Rome pii:{value} 1\n")
    with pytest.raises(AssertionError):
        shown.compare("dd log", "Rome pii:0c1f22aa 1\n", "Rome pii:Oslo 1\n")
