"""The gate before a commit: the checks of the pipeline see the state after the run, and stop it where they fail."""

from __future__ import annotations

import getpass
import io
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import UsageError, suggestion
from ddcli.job.verdict import (
    ACCEPTED,
    KEPT,
    MOST_ACCEPTED,
    SHOWN,
    begun,
    measured,
    number_of,
    record_text,
    refuse,
)
from ddcli.store.state.outputs import output_paths
from ddcli.store.state.verify import read_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from ddcli.job.request import Request
    from ddcli.job.summary import Verdict
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.spec.model import CheckSpec, Spec
    from ddcli.store.state.manifest import Manifest

NOTHING = "nothing is committed"
DIFF = "diff"


@dataclass
class CheckGate:
    """The checks of a request at one commit. `continues` returns whether the log of a check has the updates of earlier commits."""

    request: Request
    before: Manifest | None
    writer: OutputWriter
    continues: Callable[[str], bool]
    _found: dict[str, tuple[Verdict, dict[str, Any] | None]] = field(default_factory=dict)

    def judge(self) -> dict[str, Verdict]:
        """Return the verdict of each check, or raise CheckError if one of them stops the run.

        Taking back a time, and forgetting rows, are demands of a person that no check stops.
        """
        request = self.request
        self._found = {name: self._verdict(name, check) for name, check in request.spec.checks.items()}
        found = {name: verdict for name, (verdict, _) in self._found.items()}
        if request.decided.reopened is None and request.decided.forgetting is None:
            refuse(request.spec, found, NOTHING)
        return found

    def noted(self, manifest: Manifest) -> Manifest:
        """Return a manifest with the numbers of its checks, and the acceptances of those that fail."""
        if not self._found:
            return manifest
        kept: dict[str, Any] = {}
        accepted = list(self.before.cache.get(ACCEPTED, ())) if self.before else []
        at = datetime.now(UTC).isoformat(timespec="seconds")
        for name, (verdict, measures) in self._found.items():
            kept[name] = {"violations": verdict.violations}
            kept[name] |= {"problems": list(verdict.problems)} if verdict.problems else {}
            kept[name] |= {"measures": measures} if measures is not None else {}
            if verdict.accepted is not None:
                kept[name]["accepted"] = verdict.accepted
                accepted.append({"check": name, "at": at, "by": verdict.accepted, "found": verdict.words})
        notes = {KEPT: kept} | ({ACCEPTED: accepted[-MOST_ACCEPTED:]} if accepted else {})
        return replace(manifest, cache=manifest.cache | notes)

    def _verdict(self, name: str, check: CheckSpec) -> tuple[Verdict, dict[str, Any] | None]:
        """Return the verdict of a check, and its measures after this commit."""
        known = self.before.cache.get(KEPT, {}).get(name) if self.before and self.continues(name) else None
        counts, noted = self.writer.summaries(), self.writer.noted.get(name)
        net = noted.net() if noted else None
        verdict = begun(check)
        measures: dict[str, Any] | None = None
        if check.measures:
            before = known.get("measures") if known else None
            after = before or {}
            if net is None or net.height:
                rows = [] if net is None else [row for row in net.iter_rows(named=True) if row["diff"] > 0]
                after = {column: number_of(value) for row in rows for column, value in row.items() if column != "diff"}
            removed = {output: one.retracted for output, one in counts.items()}
            measures = after
            verdict = replace(verdict, problems=measured(check, before, after, removed, self.request.clock.now))
        else:
            total = (known["violations"] if known else 0) + (noted.total if noted else 0)
            verdict = replace(verdict, violations=total, new=None)
            if net is not None:
                added = net.filter(net["diff"] > 0)
                first = tuple(added.head(SHOWN).drop("diff").iter_rows(named=True))
                new, texts = int(added["diff"].sum()), tuple(map(record_text, first))
                verdict = replace(verdict, new=new, first=texts, records=first)
        if not verdict.passed and name in self.request.decided.accepts:
            verdict = replace(verdict, accepted=self.request.decided.accepts[name])
        if verdict.stops and verdict.violations and not verdict.first:
            first = self._known_violations(name, net)
            verdict = replace(verdict, first=tuple(map(record_text, first)), records=first)
        return verdict, measures

    def _known_violations(self, name: str, net: pl.DataFrame | None) -> tuple[dict[str, Any], ...]:
        """Return the first violations that the last commit had and this one has: the log's, with the run's changes."""
        import polars as pl

        assert self.before is not None, "it has them"
        log, place = self.before.outputs[name], output_paths(self.request.state, self.before)[name]
        updates = [pl.read_parquet(io.BytesIO(read_checked(place / file.name, file))) for file in log.files]
        parts = [
            frame.select(*log.schema, DIFF) for frame in [*updates, *([] if net is None or not net.height else [net])]
        ]
        sums = pl.concat(parts).group_by(*log.schema, maintain_order=True).agg(pl.col(DIFF).sum())
        return tuple(sums.filter(pl.col(DIFF) > 0).head(SHOWN).drop(DIFF).iter_rows(named=True))


def accepting(spec: Spec, names: Sequence[str], reason: str | None) -> Mapping[str, str]:
    """Return the acceptance of each of some checks: the user and the reason. Raises UsageError for an unknown check, or without a reason."""
    if not names:
        if reason is not None:
            raise UsageError("`--reason` is that of `--accept`", hint="name the check: `--accept NAME`")
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
