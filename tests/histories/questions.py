"""What commands answer without changing anything, beside what plain Python and DuckDB know of the same history."""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections import Counter

import duckdb

from tests.histories.history import EPOCH, History, WrongError, all_rows, clean, conditions, record, said, texted
from tests.histories.inputs import Entry, Input, load


class Questions(History):
    """A history that is asked."""

    def ask(self):
        """Ask by SQL over what is committed."""
        for _ in range(10):
            made = self.writer.by_sql("q", self.known())
            try:
                _, (wanted,) = self.answers(until=self.upper if self.clock == "event" else None, more=[made.sql])
            except duckdb.Error:
                continue
            code, out, err = self.quietly("sql", made.sql, "--from", "p.yaml", "-o", "json")
            self.note("$ dd sql", json.dumps(made.sql), code, said(err))
            if code == 2:
                self.refusals[err[:3000]] += 1
                continue
            if code:
                raise WrongError(f"dd sql {made.sql!r}: {code}: {err}")
            self.same_json(f"dd sql {made.sql!r}", out, wanted)
            return

    def same_json(self, what, out, wanted):
        """Compare rows in JSON with records: as text where JSON has no type."""
        found = Counter()
        for row in json.loads(out):
            found[record({name: texted(value) for name, value in row.items()})] += 1
        self.same(what, found, in_text(wanted))

    def verify(self):
        """`dd verify` finds the outputs right; unchanged files are all that it needs."""
        if self.predicted() is None:
            return self.settle()
        share = self.chance.choice([("--all",), ("--all",), ("--slice", "1/2"), ("--slice", "2/2"), ("--slice", "1/1")])
        changed = [
            (e, n) for e, n in self.files(of="read") if n in e.disk and e.disk[n].version != e.read[n].content.version
        ]
        gone = [(e, n) for e, n in self.files(of="read") if n not in e.disk]
        code, out, err = self.dd("verify", "p.yaml", *share, codes=(0, 3) if changed or gone else (0,))
        del code, out, err
        self.dd("state", "verify", "p.yaml")
        return None

    def why(self):
        """`dd why` explains a record that there is, by rows that are in the files that it names, and no other."""
        name = self.chance.choice([*self.outputs])
        wanted = self.present.get(name) or {}
        records = [each for each, count in wanted.items() if count > 0]
        if not records or self.predicted() is None:
            return
        each = self.chance.choice(sorted(records, key=str))
        asked = conditions(each)
        code, out, err = self.dd("why", "p.yaml", name, *asked, "-o", "json", "--limit", 3, codes=(0, 1, 3))
        matching = sum(1 for one in records if conditions(one) == asked)
        if code == 1:
            raise WrongError(f"dd why {name} {asked}: no such record, but there is: {out} {err}")
        if code == 0:
            report = json.loads(out)
            if not report["records"] or report["matching"] < 1:
                raise WrongError(f"dd why {name} {asked} shows none of {matching}: {out}")
            self.leaves(report)
        others = [(column, value) for column, value in each if isinstance(value, int) and not isinstance(value, bool)]
        if others:
            column, _ = self.chance.choice(others)
            code, out, _ = self.dd("why", "p.yaml", name, f"{column}=77777", "-o", "json", codes=(0, 1, 3))
            if code == 0:
                raise WrongError(f"dd why {name} {column}=77777 explains what is not there: {out}")

    def leaves(self, report):
        """See that each update that explains a record is of a row that was read."""
        sources = {each.name: each for each in self.inputs}

        def visit(reason):
            for update in reason["updates"]:
                each = sources.get(update["input"])
                if each is None or each.tables or each.format == "debezium":
                    continue
                names = [column.name for column in each.seen()]
                if not update["record"].keys() <= {*names, "t"}:
                    continue
                values = tuple((name, texted(update["record"][name])) for name in names if name in update["record"])
                known = {tuple((name, value) for name, value in zip(names, row, strict=True) if name in update["record"]) for row in
                         (tuple(texted(v) for v in r) for r in all_rows(each))}  # fmt: skip
                if values not in known:
                    raise WrongError(f"dd why names a row that no file has: {update}")
            for below in reason["because"]:
                visit(below)

        for each in report["records"]:
            if each.get("reason"):
                visit(each["reason"])

    def query(self):
        """`dd query` finds the records with a key."""
        name = self.chance.choice([*self.outputs])
        records = sorted((each for each, count in self.present.get(name, {}).items() if count > 0), key=str)
        if not records:
            return
        each = dict(self.chance.choice(records))
        chosen = self.chance.sample([*each], self.chance.randint(1, min(2, len(each))))
        asked = conditions([(column, each[column]) for column in chosen])
        code, out, _ = self.dd("query", "p.yaml", name, *asked, "-o", "json", codes=(0, 1, 2, 3))
        if code == 0:
            found = Counter()
            for row in json.loads(out):
                diff = row.pop("diff")
                found[record({n: texted(v) for n, v in row.items()})] += diff
            wanted = {tuple((n, texted(v)) for n, v in one): count for one, count in self.present[name].items()
                      if all(dict(one)[column] == each[column] for column in chosen)}  # fmt: skip
            self.same(f"dd query {name} {asked}", found, wanted)
        elif code == 1:
            raise WrongError(f"dd query {name} {asked} finds nothing")

    def log_commands(self):
        """`dd log --as-of` has what the log had at a time; `dd query` what is there now."""
        self.query()
        if self.past:
            at, past = self.chance.choice(self.past)
            for name in past:
                if name in self.outputs:
                    shown = at if self.clock == "event" else (EPOCH + dt.timedelta(microseconds=at)).isoformat(" ")
                    _, out, _ = self.dd("log", self.outputs[name]["path"], "--as-of", shown, "-o", "json")
                    found = Counter()
                    for row in json.loads(out):
                        diff = row.pop("diff")
                        found[record({n: texted(v) for n, v in row.items()})] += diff
                    wanted = in_text(past[name])
                    columns = {n for one in wanted for n, _ in one}
                    found = Counter(
                        {tuple((n, v) for n, v in one if n in columns or v is not None): c for one, c in found.items()}
                    )
                    self.same(f"dd log {name} --as-of {shown}", found, wanted)

    def diff(self):
        """`dd diff --from --to` has the difference of two times."""
        name = self.chance.choice([*self.outputs])
        times = [(at, past[name]) for at, past in self.past if name in past]
        if len(times) < 2:
            return
        (one, first), (two, second) = sorted(self.chance.sample(times, 2), key=lambda pair: pair[0])
        shown = [
            str(at) if self.clock == "event" else (EPOCH + dt.timedelta(microseconds=at)).isoformat(" ")
            for at in (one, two)
        ]
        code, out, _ = self.dd(
            "diff", self.outputs[name]["path"], "--from", shown[0], "--to", shown[1], "-o", "json", codes=(0, 1)
        )
        if (code == 0) != (clean(first) == clean(second)):
            raise WrongError(f"dd diff {name} --from {shown[0]} --to {shown[1]}: {code}: {out}")

    def bisect(self):
        """`dd bisect` finds the first time at which a condition fails."""
        name = self.chance.choice([*self.outputs])
        times = [(at, sum(past[name].values())) for at, past in self.past if name in past]
        if len(times) < 2 or self.predicted() is None or len(times) < len(self.past):
            return
        bound = self.chance.choice([count for _, count in times])
        first = next((at for at, count in times if count > bound), None)
        said_so = f"select count(*) as n from {name}"
        code, out, err = self.dd("bisect", "p.yaml", said_so, "--bad", f"> {bound}", "-o", "json", codes=(0, 1, 3))
        del err
        if code == 0 and first is None:
            raise WrongError(f"dd bisect finds a failure, but {bound} is never exceeded: {out}")
        if code == 1 and first is not None and times[0][1] <= bound:
            raise WrongError(f"dd bisect finds no failure of {name} > {bound}: {times}")

    def list_inputs(self):
        """`dd inputs` knows each file's state."""
        _, out, _ = self.dd("inputs", "p.yaml", "-o", "json")
        listed = json.loads(out)["inputs"]
        for each in self.inputs:
            if each.tables:
                continue
            states = {one["file"]: one["state"] for one in listed.get(each.name, ())}
            for name, content in each.disk.items():
                if name in each.read:
                    wanted = {"read", "waiting"} if each.read[name].content.version == content.version else {"changed"}
                elif name in each.withdrawn:
                    wanted = {"withdrawn"} if each.withdrawn[name] == content.version else {"repaired"}
                elif self.renamed(each, content):
                    continue
                else:
                    wanted = {"new"}
                if states.get(name) not in wanted:
                    raise WrongError(f"dd inputs: {each.name}/{name} is {states.get(name)}, not {wanted}")

    def renamed(self, each, content):
        return any(entry.content.version == content.version for entry in each.read.values())

    def feed(self):
        """Feed a consumer: what it gets adds up to the output."""
        name = self.chance.choice([*self.outputs])
        path, held = self.outputs[name]["path"], self.folder / f"held-{name}.json"
        code, out, _ = self.dd("feed", path, "--consumer", "mail", "-o", "json", codes=(0, 4))
        if code == 4:
            self.dd("feed", path, "--consumer", "mail", "--drop")
            held.unlink(missing_ok=True)
            _, out, _ = self.dd("feed", path, "--consumer", "mail", "-o", "json")
        rows = json.loads(out) if out.strip() else []
        before = json.loads(held.read_text()) if held.exists() else []
        held_path = self.outputs[name].get("path")
        if before and before[0] != held_path:
            before = []
        found = Counter()
        for row in [*before[1:], *rows]:
            row = dict(row)
            diff = row.pop("diff")
            found[tuple((n, v) for n, v in record({n: texted(v) for n, v in row.items()}) if v is not None)] += diff
        wanted = Counter()
        for each, count in self.present[name].items():
            wanted[tuple((n, texted(v)) for n, v in each if v is not None)] += count
        self.same(f"what a consumer of {name} got", found, wanted)
        self.dd("feed", path, "--consumer", "mail", "--ack")
        held.write_text(json.dumps([held_path, *before[1:], *rows]))

    def check_effect(self, what, report, code, pairs):
        """Compare a report of `dd diff --against` with the contents of outputs before and after."""
        differing = [name for name, (old, new) in pairs.items() if clean(old) != clean(new)]
        if differing and code == 0:
            raise WrongError(f"dd diff --against sees no difference by {what}, but {differing} differ")
        for name, (old, new) in pairs.items():
            found = report["outputs"].get(name)
            if found is None or found["columns"] or {n for r in new for n, _ in r} - {n for r in old for n, _ in r}:
                continue
            changes = {"removed": Counter(), "added": Counter()}
            for change in found["changes"]:
                changes[change["change"]][record({n: texted(v) for n, v in change["row"].items()})] += change["count"]
            self.same(f"dd diff --against: {what}: {name}: removed", changes["removed"], in_text(old - new))
            self.same(f"dd diff --against: {what}: {name}: added", changes["added"], in_text(new - old))

    def left_out(self):
        """Return an input, one of its files that is as it was read, and the input's rows without it; None if there is none."""
        found = [
            (each, name)
            for each in self.inputs
            if not each.tables
            for name in each.read
            if name in each.disk and each.disk[name].version == each.read[name].content.version
        ]
        if not found or self.predicted() is None:
            return None
        each, name = self.chance.choice(found)
        less = copy.copy(each)
        less.read = {other: entry for other, entry in each.read.items() if other != name}
        return each, name, less.present(self.closed)

    def without(self):
        """Compare the effect of a file that is left out."""
        found = self.left_out()
        if not found or self.settle() is None or not (found := self.left_out()):
            return
        each, name, rows = found
        after = self.expected(instead={each.name: rows})
        asked = ("--against", ".dd/p", "p.yaml", "--without", f"{each.name}/{name}", "-o", "json", "--limit", 1000)
        code, out, err = self.dd("diff", *asked, codes=(0, 1, 3))
        if code == 3 and "was withdrawn before" in err:
            return
        self.check_effect(asked[-5], json.loads(out), code, {o: (self.present[o], after[o]) for o in self.outputs})

    def scenarios(self):
        """Run scenarios: a file is left out, one is added, and rows have other values."""
        if self.settle() is None:
            return
        asked, wanted = {}, {}
        if found := self.left_out():
            each, name, rows = found
            asked["less"], wanted["less"] = {"without": f"{each.name}/{name}"}, {each.name: rows}
        files = [each for each in self.inputs if not each.tables]
        fit = [each for each in files if each.format in ("append", "updates")]
        if fit and self.clock == "arrival":
            each = self.chance.choice(fit)
            added = Input("scenario", self.folder, each.format, each.columns)
            added.write(f"s{self.number}-{len(self.steps)}.csv", each.rows(self.chance, 3))
            self.note("write scenario", added.disk)
            name, content = next(iter(added.disk.items()))
            more = copy.copy(each)
            more.read = {**each.read, "+more": Entry(content, (self.number + 1, []))}
            asked["more"], wanted["more"] = {"with": f"{each.name}+=scenario/{name}"}, {each.name: more.present()}
        if files:
            each = self.chance.choice(files)
            fixed = {*each.key, each.order_by, "op", each.time}
            free = [column for column in each.seen() if column.name not in fixed and column.kind in ("int", "text")]
            if free and each.format != "debezium":
                column, condition = self.chance.choice(free), self.writer.condition(each.seen())
                value = f"{column.name} + 1" if column.kind == "int" else f"{column.name} || 'z'"
                load(self.base, "before", each.seen(), each.present(self.closed))
                query = f"select * replace (case when {condition} then {value} else {column.name} end as {column.name}) from before"
                asked["other"] = {"set": {each.name: {column.name: value, "where": condition}}}
                wanted["other"] = {each.name: self.base.execute(query).fetchall()}
        if not asked:
            return
        (self.folder / "what-if.yaml").write_text(json.dumps(asked, ensure_ascii=False))
        self.note("scenarios", asked)
        _, out, _ = self.dd("run", "p.yaml", "--scenarios", "what-if.yaml", "-o", "json")
        listed = json.loads(out)
        self.note("  ", out[:2000])
        found = {(scenario, name): Counter() for scenario in asked for name in self.outputs}
        for name, rows in listed.items():
            for row in rows:
                scenario, diff = row.pop("scenario"), row.pop("diff")
                found[scenario, name if name in self.outputs else only(self.outputs)][
                    record({n: texted(v) for n, v in row.items()})
                ] += diff
        for scenario, instead in wanted.items():
            after = self.expected(instead=instead)
            for name in self.outputs:
                change = in_text(after[name])
                change.subtract(in_text(self.present[name]))
                self.same(f"scenario {scenario} of {name}", found[scenario, name], change)


def only(outputs):
    (name,) = outputs
    return name


def in_text(counts):
    """Return records with values as JSON has them."""
    found = Counter()
    for each, count in counts.items():
        found[tuple((name, texted(value)) for name, value in each)] += count
    return found
