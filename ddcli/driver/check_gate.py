"""The checks at a commit: judged by the updates that it adds to their collections, they may refuse it."""

from __future__ import annotations

import getpass
import io
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.errors import UsageError, suggestion
from ddcli.job.verdict import (
    ACCEPTED,
    KEPT,
    MOST_ACCEPTED,
    SHOWN,
    begun,
    kept_of,
    measured,
    measured_as,
    number_of,
    record_text,
    refuse,
    without_measures,
)
from ddcli.store.batch.checked_files import read_checked
from ddcli.store.log.writer import DIFF
from ddcli.store.state.outputs import output_paths

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.job.request import Request
    from ddcli.job.verdict import Verdict
    from ddcli.sinks.side_logs import NotedUpdates
    from ddcli.spec.model import CheckSpec, Spec
    from ddcli.store.state.directory import State
    from ddcli.store.state.manifest import Manifest


@dataclass
class CheckGate:
    """The checks of a request at one commit, judged by the updates of their collections that it adds. `continues` returns whether the log of a
    check has the updates of earlier commits.
    """

    request: Request
    before: Manifest | None
    noted: Mapping[str, NotedUpdates]
    removed: Counter[str]
    continues: Callable[[str], bool]
    _found: dict[str, tuple[Verdict, dict[str, Any] | None]] = field(default_factory=dict)

    def judge(self) -> dict[str, Verdict]:
        """Return the verdict of each check."""
        self._found = {name: self._verdict(name, check) for name, check in self.request.spec.checks.items()}
        return {name: verdict for name, (verdict, _) in self._found.items()}

    def refuse(self) -> None:
        """Raise CheckError if a check stops the run.

        Taking back a time, and forgetting rows, are demands of a person that no check stops.
        """
        if self._found and self.request.decided.reopened is None and not self._forgets:
            refuse(self.request.spec, {name: verdict for name, (verdict, _) in self._found.items()})

    def and_then(self, request: Request, noted: Mapping[str, NotedUpdates], removed: Counter[str]) -> CheckGate:
        """Return the gate of the one commit that this one becomes with a later one, which adds these updates."""
        both = {name: self.noted[name].and_then(later) for name, later in noted.items()}
        return replace(self, request=request, noted=both, removed=self.removed + removed, _found={})

    @property
    def _forgets(self) -> bool:
        return self.request.decided.forgetting is not None

    def written(self, manifest: Manifest) -> Manifest:
        """Return a manifest with the numbers of its checks, and the acceptances of those that fail."""
        before = self.before.cache if self.before else {}
        accepted = list(before.get(ACCEPTED, ()))
        if self._forgets:
            accepted = without_measures(self.request.spec, accepted)
        elif not self._found:
            return manifest
        kept: dict[str, Any] = {}
        at = datetime.now(UTC).isoformat(timespec="seconds")
        for name, (verdict, measures) in self._found.items():
            kept[name] = kept_of(self.request.spec.checks[name], verdict.violations, verdict.problems, measures)
            if verdict.accepted is not None:
                kept[name]["accepted"] = verdict.accepted
                accepted.append({"check": name, "at": at, "by": verdict.accepted, "found": verdict.words})
            elif self._forgets and (word := before.get(KEPT, {}).get(name, {}).get("accepted")):
                kept[name]["accepted"] = word
        notes = ({KEPT: kept} if kept else {}) | ({ACCEPTED: accepted[-MOST_ACCEPTED:]} if accepted else {})
        others = {name: each for name, each in manifest.cache.items() if name != ACCEPTED}
        return replace(manifest, cache=others | notes)

    def _verdict(self, name: str, check: CheckSpec) -> tuple[Verdict, dict[str, Any] | None]:
        """Return the verdict of a check, and its measures after this commit.

        Where rows are forgotten, a measure has no former value from which it has changed, as that may have had such rows.
        """
        known = self.before.cache.get(KEPT, {}).get(name) if self.before and self.continues(name) else None
        noted = self.noted.get(name)
        net = noted.net() if noted else None
        verdict = begun(check)
        measures: dict[str, Any] | None = None
        if check.measures:
            held = known.get("measures") if known else None
            same = known is not None and known.get("measured", measured_as(check)) == measured_as(check)
            before = held if same and not self._forgets else None
            after = held or {}
            if net is None or net.height:
                rows = [] if net is None else [row for row in net.iter_rows(named=True) if row[DIFF] > 0]
                after = {column: number_of(value) for row in rows for column, value in row.items() if column != DIFF}
            measures = after
            verdict = replace(verdict, problems=measured(check, before, after, self.removed, self.request.clock.now))
        else:
            total = (known["violations"] if known else 0) + (noted.total if noted else 0)
            verdict = replace(verdict, violations=total, new=None if net is None else 0)
            if net is not None and net.height:
                added = net.filter(net[DIFF] > 0)
                first = tuple(added.head(SHOWN).drop(DIFF).iter_rows(named=True))
                new, texts = int(added[DIFF].sum()), tuple(map(record_text, first))
                verdict = replace(verdict, new=new, first=texts, records=first)
        if not verdict.passed and name in self.request.decided.accepts:
            verdict = replace(verdict, accepted=self.request.decided.accepts[name])
        if (
            verdict.stops
            and verdict.violations
            and not verdict.first
            and known
            and net is not None
            and not self._forgets
        ):
            first = self._known_violations(name, net)
            verdict = replace(verdict, first=tuple(map(record_text, first)), records=first)
        return verdict, measures

    def _known_violations(self, name: str, net: pl.DataFrame) -> tuple[dict[str, Any], ...]:
        """Return the first violations that the last commit had and this one has: the log's, with the run's changes."""
        assert self.before is not None, "it has them"
        log, place = self.before.outputs[name], output_paths(self.request.state, self.before)[name]
        updates = [pl.read_parquet(io.BytesIO(read_checked(place / file.name, file))) for file in log.files]
        parts = [frame.select(*log.schema, DIFF) for frame in [*updates, *([net] if net.height else [])]]
        sums = pl.concat(parts).group_by(*log.schema, maintain_order=True).agg(pl.col(DIFF).sum())
        return tuple(sums.filter(pl.col(DIFF) > 0).head(SHOWN).drop(DIFF).iter_rows(named=True))


def gate_of(
    state: State | None,
    request: Request,
    before: Manifest | None,
    noted: Mapping[str, NotedUpdates],
    removed: Counter[str],
    continues: Callable[[str], bool],
) -> CheckGate:
    """Return the checks at the next commit, with the updates of a commit that waits to become one with it."""
    if (waiting := waiting_gate(state)) is not None:
        return waiting.and_then(request, noted, removed)
    return CheckGate(request, before, noted, removed, continues)


def waiting_gate(state: State | None) -> CheckGate | None:
    """Return the checks at a commit that waits to become one with the next one."""
    return state.checks if state is not None and isinstance(state.checks, CheckGate) else None


def refuse_waiting(state: State | None) -> None:
    """Raise CheckError if a check stops the commit that waits for the next one: there is none."""
    if (waiting := waiting_gate(state)) is not None:
        waiting.refuse()


def accepting(spec: Spec, names: Sequence[str], reason: str | None) -> Mapping[str, str]:
    """Return the acceptance of each of some checks: the user and the reason. Raises UsageError for an unknown check, or without a reason."""
    if not names:
        if reason is not None:
            raise UsageError("`--reason` needs `--accept`", hint="name the check: `--accept NAME`")
        return {}
    if not (reason or "").strip():
        raise UsageError(
            "`--accept` takes a reason", hint="state it: `--reason 'the supplier sends it again tomorrow'`"
        )
    known = {check.title: name for name, check in spec.checks.items()} | {name: name for name in spec.checks}
    for name in names:
        if name not in known:
            hint = suggestion(name, known, f"checks: {', '.join(spec.checks) or 'none'}")
            raise UsageError(f"no check is named '{name}'", place=str(spec.path), hint=hint)
    return {known[name]: f"{_user()}: {reason}" for name in names}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "an unnamed user"
