"""The verdicts of checks: the number of violations after a run, those that are new, and the measures that left their range."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import field, fields, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.errors import CheckError, CheckErrors
from ddcli.privacy import previewed
from ddcli.screen import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.spec.model import CheckSpec, Limit, Otherwise, Spec
    from ddcli.store.state.manifest import Manifest

KEPT = "checks"
"""The key under which a manifest keeps the numbers of its checks."""
ACCEPTED = "accepted"
"""The key under which a manifest keeps the acceptances of failing checks, the newest last."""
MOST_ACCEPTED = 100
FORGOTTEN = "rows were forgotten since"
"""The finding of an acceptance whose measures had rows that are forgotten."""
SHOWN = 5
"""The violations that a report shows."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@frozen
class Verdict:
    """The result of a check at a commit.

    `new` are the violations that the commit adds, None if they are too many to be told from others; `first` are the first of these as text, `records` the same as values: notebooks and logs keep the `repr`, which has none.
    `problems` are the measures that are out of their range. `accepted` names who let the commit pass, and why.
    """

    title: str
    place: str
    kind: str
    of: str | None
    otherwise: Otherwise
    violations: int = 0
    new: int | None = 0
    first: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    accepted: str | None = None
    records: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def passed(self) -> bool:
        """Return whether there is no violation."""
        return self.violations == 0 and not self.problems

    @property
    def stops(self) -> bool:
        """Return whether the run must not commit."""
        return self.otherwise == "fail" and not self.passed and self.accepted is None

    @property
    def words(self) -> str:
        """Return the violations in words."""
        if self.problems:
            return "; ".join(self.problems)
        count = f"{self.violations:,} {plural(self.violations, 'violation')}"
        if self.otherwise == "quarantine":
            count = f"{self.violations:,} {plural(self.violations, 'row')} put aside"
        if self.new is None or not self.violations:
            return count
        known = max(0, self.violations - self.new)
        return f"{count}: {self.new:,} new" + (f", {known:,} known" if known else "")

    def line(self) -> str:
        """Return the verdict as a line of a summary."""
        word = "aside " if self.otherwise == "quarantine" else "accept" if self.accepted else "warn  "
        return f"  {word} {self.title}: {self.words}" + (f" (accepted by {self.accepted})" if self.accepted else "")

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "records"} | {
            "passed": self.passed
        }


def begun(check: CheckSpec) -> Verdict:
    """Return the verdict of a check that nothing violates."""
    return Verdict(check.title, check.place, check.kind, check.of.value if check.of else None, check.otherwise)


def number_of(value: Any) -> float | None:
    """Return a measure as a number: a time in microseconds since 1970, in UTC.

    >>> number_of(dt.date(1970, 1, 2)), number_of(Decimal("1.5"))
    (86400000000.0, 1.5)
    """
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (moment - EPOCH) / dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - EPOCH.date()) / dt.timedelta(microseconds=1)
    if isinstance(value, dt.timedelta):
        return value / dt.timedelta(microseconds=1)
    return float(value) if isinstance(value, int | float | Decimal) else None


def measured_as(check: CheckSpec) -> list[str]:
    """Return what the measures of a check are of: a measure has changed since the last commit only if that measured the same."""
    return [check.kind, check.of.value if check.of else "", *(measure.name for measure in check.measures)]


def kept_of(
    check: CheckSpec, violations: int, problems: Sequence[str], measures: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what a manifest keeps of a check after a commit; `measures` of one that has some."""
    kept: dict[str, Any] = {"violations": violations}
    kept |= {"problems": list(problems)} if problems else {}
    return kept | ({} if measures is None else {"measures": measures, "measured": measured_as(check)})


def measured(
    check: CheckSpec, before: Mapping[str, Any] | None, after: Mapping[str, Any], removed: Mapping[str, int], now: int
) -> tuple[str, ...]:
    """Return the measures of a check that are out of their range, in words, with the values of the last commit and of this one.

    A change has no range at the first commit. `removed` are the rows that the commit removes, by output.
    """
    problems = []
    for measure in check.measures:
        value = after.get(measure.column) if measure.column else None
        if check.kind == "fresh":
            problems += _stale(measure.name, measure.limit, value, now)
            continue
        if before is None:
            continue
        if measure.column is None:
            count = float(removed.get(measure.output, 0))
            limit, base = measure.limit, before.get("measure_rows") or 0.0
            if count > (limit.most or 0.0) * (base if limit.relative else 1):
                rows = f"{count:,.0f} {plural(int(count), 'row')} removed of {base:,.0f}"
                problems.append(f"{rows}, more than {limit.written}")
        else:
            problems += _changed(measure.name, measure.limit, before.get(measure.column) or 0.0, value or 0.0)
    return tuple(problems)


def _changed(name: str, limit: Limit, before: float, after: float) -> list[str]:
    least, most = limit.least or 0.0, limit.most or 0.0
    scale = abs(before) if limit.relative else 1.0
    if least * scale <= after - before <= most * scale:
        return []
    change = f" ({(after - before) / abs(before):+.1%})" if before else ""
    return [f"{name} changed from {before:,.12g} to {after:,.12g}{change}, outside of {limit.written}"]


def _stale(name: str, limit: Limit, value: float | None, now: int) -> list[str]:
    if value is None:
        return [f"{name} is null: there is no row to be fresh"]
    age = now - value
    if limit.most is None or age <= limit.most:
        return []
    return [f"{name} is {length(age / 1e6)} old, more than {limit.written}"]


def length(seconds: float) -> str:
    """Return a length of time for people.

    >>> length(7260), length(59.5)
    ('2 hours', '60 seconds')
    """
    for size, unit in UNITS:
        if seconds >= size * 2 or size == 1:
            count = round(seconds / size)
            return f"{count:,} {plural(count, unit)}"
    raise AssertionError("a second is the last unit")


def verdicts_of(spec: Spec, manifest: Manifest, now: int) -> dict[str, Verdict]:
    """Return the verdicts of the last commit; `fresh` is judged at the present time."""
    found = {}
    kept = manifest.cache.get(KEPT, {})
    for name, check in spec.checks.items():
        if name not in kept:
            continue
        entry = kept[name]
        problems = tuple(entry.get("problems", ()))
        if check.kind == "fresh":
            problems = measured(check, None, entry.get("measures") or {}, {}, now)
        given = begun(check)
        found[name] = Verdict(
            given.title,
            given.place,
            given.kind,
            given.of,
            given.otherwise,
            violations=entry["violations"],
            new=None,
            problems=problems,
            accepted=None if check.kind == "fresh" else entry.get("accepted"),
        )
    return found


def without_measures(spec: Spec, accepted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return acceptances for a state whose rows are forgotten: what a check found is kept where it is a number of violations."""
    counting = {name for name, check in spec.checks.items() if not check.measures}
    return [{**each, "found": each["found"] if each["check"] in counting else FORGOTTEN} for each in accepted]


def record_text(record: Mapping[str, Any]) -> str:
    """Return a record as a person reads it.

    >>> record_text({"id": 1, "name": None})
    '{id: 1, name: null}'
    """
    texts = (
        json.dumps(value) if value is None or isinstance(value, bool) else str(value)
        for value in previewed(record).values()
    )
    return "{" + ", ".join(f"{name}: {text}" for name, text in zip(record, texts, strict=True)) + "}"


def refuse(spec: Spec, verdicts: Mapping[str, Verdict], done: str = "nothing is committed") -> None:
    """Raise the errors of the checks that stop a run; `done` states the consequence."""
    stopping = [(spec.checks[name], each) for name, each in verdicts.items() if each.stops]
    options = " ".join(f"--accept {check.name.value}" for check, _ in stopping if check.kind != "fresh")
    errors = [_error(check, each, done, options) for check, each in stopping]
    if errors:
        raise errors[0] if len(errors) == 1 else CheckErrors(errors)


def _error(check: CheckSpec, verdict: Verdict, done: str, accepting: str) -> CheckError:
    shown = [*verdict.first]
    left = (verdict.new or 0) - len(shown)
    if shown and left > 0:
        shown.append(f"and {left:,} more")
    of = f" of '{verdict.of}'" if verdict.of else ""
    hint = (
        f"correct the input, and run again; or let this commit pass: repeat the command with `{accepting} --reason ...`"
    )
    if check.kind == "fresh":
        hint = "later rows make it fresh again; `otherwise: warn` reports it without an error"
    return CheckError(
        f"{verdict.place}: the check '{verdict.title}'{of} failed: {verdict.words}; {done}",
        shown,
        verdict.to_json(),
        check.name.value,
        verdict.records,
        span=check.span,
        hint=hint,
    )


def verdict_of(values: Mapping[str, Any]) -> Verdict:
    """Return a verdict of its plain values; behind its first violations are the rows that they come from, where these are known."""
    names = {each.name for each in fields(Verdict)}
    verdict = Verdict(**{name: value for name, value in values.items() if name in names})
    rows = {at: f"  ({', '.join(named)})" for at, named in enumerate(values.get("rows", ())) if named}
    first = tuple(f"{text}{rows.get(at, '')}" for at, text in enumerate(verdict.first))
    left = (verdict.new or 0) - len(first)
    return replace(verdict, first=(*first, f"and {left:,} more") if first and left > 0 else first)
