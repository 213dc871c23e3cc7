"""The steps of random histories: what a person does to files, pipeline and state, and what the commands must answer then."""

from __future__ import annotations

import contextlib
import copy
import json
import traceback

import duckdb
import pytest

import ddcli.store.state.directory
from tests.histories.history import (
    Source,
    WrongError,
    as_time,
    clean,
    summed,
)
from tests.histories.inputs import Column, Content, Entry, Input, RefusedError
from tests.histories.questions import Questions
from tests.judge.sizes import cut, few
from tests.spark.support import Here, started
from tests.store.support import Dead, Faulty


class Driver(Questions):
    """A history, with its steps."""

    only = None
    """A step that every second one is."""

    @contextlib.contextmanager
    def sizes(self):
        """Have runs of some histories go the ways of large data: out of core, in many parts, or as tasks; and all tasks done here."""
        seed, way = self.chance.randrange(1 << 32), self.chance.random()
        self.note("way", way)
        with contextlib.ExitStack() as stack:
            if way < 0.3:
                stack.enter_context(cut(self.options.get("shards", 1), seed))
            elif way < 0.5:
                stack.enter_context(few(self.chance.choice([0, 5])))
            stack.enter_context(started(Here(seed)))
            yield

    def step(self):
        steps = [
            *[self.add] * 5,
            *[self.change] * 4,
            self.remove,
            self.remove,
            self.come_back,
            self.come_back,
            self.touch,
            self.rename,
        ]
        steps += [
            self.retract,
            self.retract,
            *[self.edit] * 4,
            self.refresh,
            self.compact,
            self.reshard,
            self.reopen,
            self.ask,
            self.ask,
            self.verify,
        ]
        steps += [
            self.why,
            self.diff,
            self.dry,
            self.log_commands,
            self.branch,
            self.forget,
            self.sum_up,
            self.bisect,
            self.list_inputs,
            self.feed,
            self.without,
            self.scenarios,
            self.die,
        ]
        step = getattr(self, self.only) if self.only and self.chance.random() < 0.5 else self.chance.choice(steps)
        self.note("-", step.__name__)
        step()

    def files(self, where=lambda _each: True, of="disk"):
        return [
            (each, name)
            for each in self.inputs
            if not each.tables and where(each)
            for name in getattr(each, of)
            if name not in each.added
        ]

    def settle(self):
        """Run; where that is refused, put right what is refused, as the documentation offers, and run again."""
        for _ in range(4):
            if self.predicted() is not None:
                return self.run(*self.chance.choice([(), (), (), ("-w", 1), ("-w", 2), ("--engine", "spark")]))
            if self.run() is not None:
                raise WrongError("a run was not refused")
            self.put_right()
        raise AssertionError("the driver could not put the inputs right")

    def put_right(self):
        for each in self.inputs:
            if each.tables:
                continue
            for name, entry in [*each.read.items()]:
                if name in each.added or (
                    each.changed == "replace" and (name in each.disk or each.missing != "retract")
                ):
                    continue
                now = each.disk.get(name)
                if now is None or now.version != entry.content.version:
                    self.restore(each, name, entry.content)
            for name, content in [*each.disk.items()]:
                if name not in each.read:
                    try:
                        if each.time:
                            each.check_late(name, content, self.upper)
                    except RefusedError:
                        self.note("remove", name)
                        each.remove(name)

    def restore(self, each, name, content):
        version = each.versions
        each.write(name, [dict(row) for row in content.rows])
        each.versions = version
        each.disk[name] = content
        each.gone.pop(name, None)
        self.note("restore", f"{each.name}/{name}")

    def add(self):
        for _ in range(self.chance.randint(1, 3)):
            self.supply(self.chance.choice(self.inputs))
        self.settle()

    def change(self):
        """Change some files: rows go, others come."""
        found = self.files()
        for each, name in self.chance.sample(found, min(len(found), self.chance.choice([1, 1, 2]))):
            self.rewrite(each, name)
        if self.chance.random() < 0.3:
            self.supply(self.chance.choice(self.inputs))
        self.settle()

    def rewrite(self, each, name):
        rows = [dict(row) for row in each.disk[name].rows]
        kept = [row for row in rows if self.chance.random() < 0.6]
        late = each.changed == "replace" and name in each.read
        more = self.rows_for(each, self.chance.randint(0, 3), late=late)
        if each.format == "snapshots" or each.time:
            marks = {(*(row[k] for k in each.key), row.get("t")) for row in kept}
            more = [row for row in more if not each.key or (*(row[k] for k in each.key), row.get("t")) not in marks]
        if kept + more:
            each.write(name, kept + more)
            self.note("rewrite", f"{each.name}/{name}", kept + more)

    def remove(self):
        found = self.files()
        for each, name in self.chance.sample(found, min(len(found), self.chance.choice([1, 1, 2]))):
            each.remove(name)
            self.note("remove", f"{each.name}/{name}")
        self.settle()

    def come_back(self):
        """Have a file come back that was gone, as it was or with other rows."""
        found = self.files(of="gone")
        if found:
            each, name = self.chance.choice(found)
            if name in each.disk:
                return
            content = each.gone[name]
            if self.clock == "event" and name not in each.read:
                return
            self.restore(each, name, content)
            if self.chance.random() < 0.5:
                self.rewrite(each, name)
        self.settle()

    def touch(self):
        found = self.files()
        if found:
            each, name = self.chance.choice(found)
            self.restore(each, name, each.disk[name])
        self.settle()

    def rename(self):
        found = self.files(
            lambda each: (
                each.format in ("append", "updates") and (each.changed == "replace" or each.missing == "retract")
            ),
            of="read",
        )
        found = [(each, name) for each, name in found if name in each.disk and name not in each.withdrawn]
        if found:
            each, name = self.chance.choice(found)
            other = f"r{self.chance.randrange(100)}.{name.rpartition('.')[2]}"
            if other not in each.disk and other not in each.read and other not in each.withdrawn:
                each.rename(name, other)
                self.note("rename", f"{each.name}/{name}", other)
        self.settle()

    def retract(self):
        """Withdraw files, or those that are missing."""
        if self.predicted() is None:
            return self.settle()
        if self.chance.random() < 0.3:
            lost = [(each, name) for each, name in self.files(of="read") if name not in each.disk]
            lost = [
                (each, name)
                for each, name in lost
                if all(content.version != each.read[name].content.version for content in each.disk.values())
            ]
            self.run("--missing", command="retract", retract=lost)
            return None
        found = [
            (each, name) for each, name in self.files(of="read")
            if name not in each.disk or each.disk[name].version == each.read[name].content.version
        ]  # fmt: skip
        if found:
            chosen = self.chance.sample(found, min(len(found), self.chance.choice([1, 1, 2])))
            self.run(*(f"{each.name}/{name}" for each, name in chosen), "--again", command="retract", retract=chosen)
            if self.chance.random() < 0.5:
                each, name = chosen[0]
                if name in each.disk:
                    self.rewrite(each, name)
                self.settle()
        return None

    def edit(self):
        """Edit the pipeline, look at the effect, and apply it."""
        self.settle()
        before = self.collections, self.outputs, copy.deepcopy(self.present)
        old = {name: spec["from"] for name, spec in self.outputs.items()}
        self.expected()
        columns = self.shapes()
        if not self.draw_edit():
            self.collections, self.outputs, _ = before
            return
        self.write_pipeline()
        effect = self.expected()
        now = self.shapes()
        shaped = [
            name for name, spec in self.outputs.items()
            if name in old and spec["path"] == before[1][name]["path"] and columns[old[name]] != now[spec["from"]]
        ]  # fmt: skip
        if self.chance.random() < 0.6 and not any(each.tables for each in self.inputs):
            self.against(before, effect)
        if self.chance.random() < 0.3:
            code, _, _ = self.dd("run", "p.yaml", "-o", "json", codes=(0, 4))
            if code:
                self.check_kept(before)
        for name in shaped:  # a table of a database has the columns that it began with
            if "to" in self.outputs[name]:
                with duckdb.connect(self.folder / "marts.duckdb") as base:
                    base.execute(f'drop table "{name}"')
                self.note("drop table", name)
        extra = [word for name in shaped for word in ("--rewrite", name)]
        if shaped:
            self.past = [(at, {name: past[name] for name in past if name not in shaped}) for at, past in self.past]
        moved = {
            name
            for name, spec in self.outputs.items()
            if name not in before[1] or spec["path"] != before[1][name]["path"]
        }
        self.past = [
            (at, {name: past[name] for name in past if name not in moved and name in self.outputs})
            for at, past in self.past
        ]
        self.run("--apply", *extra)

    def check_kept(self, before):
        """See that a refused edit left the outputs as they are."""
        now = self.collections, self.outputs
        self.collections, self.outputs, _ = before
        self.judge("an edit that is not applied")
        self.collections, self.outputs = now

    def draw_edit(self):
        """Edit the collections or the outputs; return whether that was possible."""
        chance = self.chance
        what = chance.choice(["collection", "collection", "collection", "column", "output", "path", "drop", "new"])
        if what in ("collection", "column"):
            at = chance.randrange(len(self.collections))
            old, below = self.collections[at], [*self.collections[:at]]
            known = [Source(each.name, each.seen()) for each in self.inputs] + below
            for _ in range(10):
                made = self.edited(old, known) if what == "collection" else self.widened(old)
                if made and self.accepts_at(at, made):
                    self.collections = [*below, made, *self.collections[at + 1 :]]
                    return True
            return False
        if what == "new":
            made = self.writer.collection(self.writer.name("n"), self.known())
            if not self.accepts(made):
                return False
            self.collections = [*self.collections, made]
            self.outputs = {**self.outputs, f"o_{made.name}": {"path": f"out/{made.name}/", "from": made.name}}
            return True
        if what == "output":
            free = [each.name for each in self.known() if f"o_{each.name}" not in self.outputs]
            if not free:
                return False
            name = chance.choice(free)
            path = f"out/{name}-{self.writer.name('again')}/"
            self.outputs = {**self.outputs, f"o_{name}": {"path": path, "from": name}}
            return True
        name = chance.choice([*self.outputs])
        if what == "path":
            self.outputs = {**self.outputs, name: {**self.outputs[name], "path": f"out/{self.writer.name('moved')}/"}}
            return True
        if len(self.outputs) < 2:
            return False
        self.outputs = {each: spec for each, spec in self.outputs.items() if each != name}
        return True

    def accepts_at(self, at, made):
        """Return whether all collections above still stand when one is another."""
        before = self.collections
        try:
            self.collections = [*before[:at], made, *before[at + 1 :]]
            self.answers(sample=True)
        except duckdb.Error:
            return False
        else:
            text = self.text(
                self.collections, {"probe": {"path": "probe/", "from": self.collections[-1].name}}, name="probe"
            )
            outputs = {
                f"probe_{name}": {"path": f"probe/{name}/", "from": spec["from"]} for name, spec in self.outputs.items()
            }
            text = self.text(self.collections, outputs, name="probe")
            (self.folder / "probe.yaml").write_text(text)
            code, _, err = self.quietly("check", "probe.yaml")
            (self.folder / "probe.yaml").unlink()
            if code:
                self.refusals[err[:3000]] += 1
            return code == 0
        finally:
            self.collections = before

    def edited(self, old, known):
        """Return a collection with a filter more, or another one with the name."""
        chance = self.chance
        if chance.random() < 0.6:
            condition = self.writer.condition(old.columns)
            spec = {**old.spec, "apply": [*old.spec.get("apply", []), {"filter": condition}]}
            return type(old)(old.name, spec, f"select * from ({old.sql}) where {condition}", old.columns)
        return self.writer.collection(old.name, known)

    def widened(self, old):
        made, kind = self.writer.expression(old.columns)
        name = self.writer.name("x")
        spec = {**old.spec, "apply": [*old.spec.get("apply", []), {"extend": {name: made}}]}
        return type(old)(
            old.name, spec, f"select *, {made} as {name} from ({old.sql})", [*old.columns, Column(name, kind, True)]
        )

    def against(self, before, effect):
        """Compare `dd diff --against` with the difference of what DuckDB computes from both files."""
        both = [name for name in self.outputs if name in before[1]]
        code, out, err = self.dd("diff", "--against", ".dd/p", "p.yaml", "-o", "json", "--limit", 1000, codes=(0, 1, 2))
        if code == 2 and "no common column" in err:
            return
        self.check_effect(
            f"an edit by {code}", json.loads(out), code, {name: (before[2][name], effect[name]) for name in both}
        )

    def die(self):
        """Have a run die at a file operation: an output is as before, or as after the run, and the next run completes it."""
        self.supply(self.chance.choice(self.inputs))
        after = self.predicted()
        if after is None:
            return self.settle()
        before, files = self.present, Faulty(self.chance.randrange(60), after=self.chance.random() < 0.5)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Dead):
            patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
            self.note("$ dd run p.yaml, which dies at file operation", files.at)
            self.quietly("run", "p.yaml")
        found = {name: clean(summed(self.log(name))) for name in self.outputs}
        _, out, _ = self.dd("run", "p.yaml", "-o", "json")
        summary = json.loads(out)
        if not (self.past and summary["time"] and as_time(summary["time"]) > self.past[-1][0]):
            summary["time"] = None  # nothing has been committed since: that is the time of an earlier run
        self.commit(after, summary | {"changed": True}, None)
        self.judge("a run that died")
        for name, seen in found.items():
            if seen not in (clean(before[name]), clean(self.present[name])):
                raise WrongError(f"{name} after a run that died is neither as before nor as after it: {seen}")
        return None

    def refresh(self):
        self.settle()
        self.run("--full-refresh", self.chance.choice(["all", *self.outputs]))

    def compact(self):
        self.dd("state", "compact", "p.yaml")
        self.dd("state", "verify", "p.yaml")
        self.judge("dd state compact")

    def reshard(self):
        self.dd(
            "state",
            "reshard",
            "p.yaml",
            "--shards",
            self.chance.randint(1, 4),
            codes=(0, 2) if "shards" in self.options else (0,),
        )
        self.judge("dd state reshard")
        self.settle()

    def reopen(self):
        """Open times again, and close them."""
        if self.clock == "arrival" or self.predicted() is None:
            return self.settle()
        if self.upper < 2:
            return None
        since = self.chance.randrange(1, self.upper)
        self.dd("state", "reopen", "p.yaml", "--from", since)
        self.upper = since
        self.past = [(at, past) for at, past in self.past if at < since]
        self.judge("dd state reopen")
        self.settle()
        return None

    def dry(self):
        """Run without a commit: nothing changes, and the summary says what the next run does."""
        self.supply(self.chance.choice(self.inputs))
        if self.predicted() is None:
            return self.settle()
        past, upper = [*self.past], self.upper
        _, out, _ = self.dd("run", "p.yaml", "-n", "-o", "json")
        dry = json.loads(out)
        self.past, self.upper = past, upper
        self.judge("a dry run")
        code, _, _ = self.dd("plan", "p.yaml", "--exit-code", codes=(0, 10))
        state, self.chance = self.chance, NoUntil(self.chance)
        summary = self.run()
        self.chance = state
        if summary and {n: v["rows"] for n, v in dry["outputs"].items()} != {
            n: v["rows"] for n, v in summary["outputs"].items()
        }:
            raise WrongError(f"a dry run said {dry['outputs']}, the run {summary['outputs']}")
        if summary and summary["changed"] and code == 0:
            raise WrongError("dd plan --exit-code saw nothing to do, and the run changed something")
        return None

    def branch(self):
        """Begin a branch, change it, and merge or drop it; until then main stays as it is."""
        if self.settle() is None:
            return
        name = self.writer.name("b")
        self.dd("branch", "new", name, "p.yaml")
        self.judge("dd branch new")
        mine = copy.copy(self)
        mine.inputs = [copy.copy(each) for each in self.inputs]
        mine.past = []
        mine.outputs = {o: {"path": branched(s["path"], name), "from": s["from"]} for o, s in self.outputs.items()}
        more = self.add_file(mine, name) if self.chance.random() < 0.7 else ()
        if self.chance.random() < 0.5 and self.edit_branch(mine, name):
            more = (*more, "--apply")
        if self.chance.random() < 0.3:
            self.supply(self.chance.choice([each for each in self.inputs if not each.tables] or self.inputs))
        mine.run("--branch", name, *more)
        self.judge("a branch's run")
        sides = (f"p.yaml@{side}" for side in ("main", name))
        code, out, _ = self.dd("diff", *sides, "-o", "json", codes=(0, 1))
        differing = [o for o in self.outputs if clean(self.present[o]) != clean(mine.present[o])]
        if bool(differing) != bool(code):
            raise WrongError(f"dd diff of a branch: {code}, but {differing} differ: {out}")
        if self.chance.random() < 0.3:
            self.add()
        if self.chance.random() < 0.3 or self.predicted() is None:
            self.dd("branch", "drop", name, "p.yaml")
            self.settle()
            return
        before = self.collections, [each.added for each in self.inputs]
        for each, other in zip(self.inputs, mine.inputs, strict=True):
            each.added = other.added
        self.collections = mine.collections
        after = self.predicted()
        if after is None:  # the added file is late by now
            self.collections = before[0]
            for each, added in zip(self.inputs, before[1], strict=True):
                each.added = added
            self.dd("branch", "merge", name, "p.yaml", codes=(3,))
            self.dd("branch", "drop", name, "p.yaml")
            self.settle()
            return
        _, out, _ = self.dd("branch", "merge", name, "p.yaml", "-o", "json")
        self.commit(after, json.loads(out)["run"])
        self.judge("dd branch merge")

    def add_file(self, mine, name):
        """Have a branch read a file from another place; return the options of its run."""
        fit = [each for each in mine.inputs if not each.tables and each.format in ("append", "updates")]
        if not fit:
            return ()
        each = self.chance.choice(fit)
        rows = each.rows(self.chance, 3, self.times())
        file = Input(f"aside-{name}", self.folder, each.format, each.columns, time=each.time)
        file.write(f"{name}.csv", rows)
        self.note("write", f"{file.name}/{name}.csv", rows)
        each.added = {**each.added, f"+{name}": Content(file.disk[f"{name}.csv"].rows, f"+{name}")}
        return "--with", f"{each.name}+={file.name}/{name}.csv"

    def edit_branch(self, mine, name):
        """Edit a collection in a branch's file, so that the outputs' columns stay; return whether that was possible."""
        at = self.chance.randrange(len(self.collections))
        old = self.collections[at]
        condition = self.writer.condition(old.columns)
        spec = {**old.spec, "apply": [*old.spec.get("apply", []), {"filter": condition}]}
        made = type(old)(old.name, spec, f"select * from ({old.sql}) where {condition}", old.columns)
        if not self.accepts_at(at, made):
            return False
        mine.collections = [*self.collections[:at], made, *self.collections[at + 1 :]]
        text = self.text(mine.collections, self.outputs)
        (self.folder / f"p@{name}.yaml").write_text(text)
        self.note("the branch's pipeline", text)
        return True

    def forget(self):
        """Forget rows of an input, which are then removed from its files: nothing is left of them."""
        candidates = [each for each in self.inputs if not each.tables and each.format in ("append", "upsert")]
        if not candidates or self.settle() is None or self.chance.random() < 0.5:
            return
        each = self.chance.choice(candidates)
        if any(name not in each.disk for name in each.read) or each.withdrawn or {*each.disk} != {*each.read}:
            return
        key = self.chance.randrange(5)
        if any(all(dict(row)["id"] == key for row in content.rows) for content in each.disk.values()):
            return
        for name, content in [*each.disk.items()]:
            rows = [dict(row) for row in content.rows]
            kept = [row for row in rows if row["id"] != key]
            if len(kept) < len(rows):
                each.write(name, kept)
                self.note("without", key, f"{each.name}/{name}")
                each.read[name] = Entry(each.disk[name], each.read[name].order)
        for other in self.inputs:
            other.gone = {}
        self.dd("forget", "p.yaml", "--input", each.name, "--where", f"id = {key}")
        self.past = []
        self.judge("dd forget")
        self.settle()

    def sum_up(self):
        """Sum up the logs: their contents and their latest times stay."""
        self.dd("log", "compact", "p.yaml")
        self.past = self.past[-1:]
        self.judge("dd log compact")


class NoUntil:
    """Chance by which a run closes all times."""

    def __init__(self, chance):
        self.of = chance

    def random(self):
        self.of.random()
        return 1.0

    def __getattr__(self, name):
        return getattr(self.of, name)


def branched(path, name):
    """Return where a branch has an output."""
    return path.rstrip("/") + f"@{name}/"


def follow(folder, chance, steps, only=None):
    """Follow one history; return what is wrong, or None, and the steps."""
    made = Driver(folder, chance)
    made.only = only
    try:
        with made.sizes():
            made.run()
            for _ in range(steps):
                made.step()
    except WrongError as wrong:
        return str(wrong), made
    except Exception:  # noqa: BLE001 - a fault of the product, or of the driver
        return traceback.format_exc(), made
    return None, made
