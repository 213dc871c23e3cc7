"""The budget of a run: the bounds of file and command, which the run's cost is compared with before it commits."""

from __future__ import annotations

import time as clock
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import OUTPUT, Counts
from ddcli.errors import BudgetError, Span, UsageError, did_you_mean, suggestion
from ddcli.job.summary import size_of
from ddcli.screen import plural, shell
from ddcli.spec.model import EXAMPLES, UNITS, WORK_CLASSES, parse_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddcli.engine.counts import RowCounts
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.plan.pipeline_file import OperatorPlace
    from ddcli.spec.model import Bounds, Budget
    from ddcli.store.state.entries import ArrangementEntry


EACH = "operator."
"""The prefix on the command line of the names of bounds on each operator."""


@frozen
class RunBound:
    """A bound: its name, such as `budget.rows`, the most that it allows, and its place in the file, if it has one."""

    name: str
    most: float
    span: Span | None = None


@frozen
class RunCost:
    """The cost of a run so far: its operators' counts, the seconds by the clock, and the bytes that it wrote, by operator or output."""

    counts: Counts
    seconds: float = 0.0
    bytes: Mapping[str, int] = field(default_factory=dict)

    def by_operator(self, what: str) -> dict[str, float]:
        """Return rows, seconds or bytes by operator. Rows are not counted for loops, whose operators count, or for outputs, which only write."""
        if what == "bytes":
            return {**self.bytes}
        own = {name: count for name, count in self.counts.items() if not count.turns}
        if what == "seconds":
            return {name: count.seconds for name, count in own.items()}
        return {name: count.rows for name, count in own.items() if not name.startswith(OUTPUT)}


@dataclass(frozen=True)
class RunBudget:
    """The bounds of a run, of each operator, and of the operators of some collections, by unit; the run began at `began`."""

    run: Mapping[str, RunBound]
    operator: Mapping[str, RunBound]
    collections: Mapping[str, Mapping[str, RunBound]] = field(default_factory=dict)
    work: Mapping[str | None, tuple[str, Span | None]] = field(default_factory=dict)
    """The worst class of work that is allowed, by collection; under None, of all others."""
    whole: str = "the run"
    """The name in messages of the work that `run` bounds."""
    began: float = field(default_factory=clock.perf_counter)

    def check(self, spent: RunCost, places: Callable[[], Mapping[str, OperatorPlace]]) -> None:
        """Raise BudgetError, at the operator that took most, if a run has exceeded a bound; `places` returns the operators' places in the file."""
        for what, limit in self.run.items():
            found = spent.by_operator(what)
            took = spent.seconds if what == "seconds" else sum(found.values())
            if took > limit.most:
                raise _exceeded(limit, what, took, self.whole, found, spent.counts, places())
        if not self.operator and not any(self.collections.values()):
            return
        for what in UNITS:
            limits = [limits[what] for limits in (self.operator, *self.collections.values()) if what in limits]
            if not limits:
                continue
            least = min(limit.most for limit in limits)
            for name, took in sorted(spent.by_operator(what).items(), key=lambda each: -each[1]):
                if took > least:  # `places` is costly, so it is called only for an error
                    place = places().get(name)
                    own = self.collections.get(place.collection or "", {}) if place else {}
                    limit_of = own.get(what) or self.operator.get(what)
                    if limit_of and took > limit_of.most:
                        raise _exceeded(limit_of, what, took, None, {name: took}, spent.counts, places())

    def check_work(self, graph: PhysicalGraph, places: Callable[[], Mapping[str, OperatorPlace]]) -> list[BudgetError]:
        """Return an error for each operator of a plan whose work is of a worse class than the file allows, at its place."""
        if not self.work:
            return []
        errors = []
        for node in graph.nodes:
            found, place = node.work, places().get(node.fingerprint)
            most, span = self.work.get(place.collection if place else None) or self.work.get(None) or (None, None)
            if found is None or most is None or WORK_CLASSES.index(found) <= WORK_CLASSES.index(most):
                continue
            details = node.details()
            how = f" ({'; '.join(details)})" if details else ""
            errors.append(
                BudgetError(
                    f"{place.path if place else 'the pipeline'}: work: {found}, but the budget is {most}: "
                    f"{place.kind if place else 'an operator'}{how}",
                    span=place.span if place else span,
                    hint=f"`--budget work={found}` allows this"
                    if span is None
                    else f"the budget is at {span}; `collections: {{NAME: {{work: {found}}}}}` in it allows this for one collection",
                )
            )
        return errors


def run_budget(budget: Budget | None, given: Mapping[str, str], *, work: bool = False) -> RunBudget | None:
    """Return the budget of a run: the file's, with the bounds of the call in place of its own. Raises UsageError for a bound that does not exist.

    None if there is no bound at all. With `work` the call may bound only the class of work.
    """
    run = {**_limits(budget.run, "budget")} if budget else {}
    operator = {**_limits(budget.operator, "budget.operator")} if budget else {}
    classes: dict[str | None, tuple[str, Span | None]] = {}
    collections: dict[str, Mapping[str, RunBound]] = {}
    if budget:
        for name, bounds in budget.collections:
            collections[name.value] = _limits(bounds, f"budget.collections.{name.value}")
        named = [(None, budget.run), *((name.value, bounds) for name, bounds in budget.collections)]
        classes = {name: (bounds.work.value, bounds.work.span) for name, bounds in named if bounds.work}
    for bound, text in given.items():
        _check_known(bound, work=work)
        if work:
            if text not in WORK_CLASSES:
                hint = suggestion(text, WORK_CLASSES, f"classes: {', '.join(WORK_CLASSES)}", mark="")
                raise UsageError(f"--budget work={text}: there is no such class of work", hint=hint)
            classes[None] = text, None
            continue
        limits, what = (operator, bound.removeprefix(EACH)) if bound.startswith(EACH) else (run, bound)
        limits.pop(what, None)
        if text != "none":
            try:
                limits[what] = RunBound(f"--budget {bound}", parse_bound(what, text))
            except ValueError:
                hint = f"write it as {EXAMPLES[what]}; `{bound}=none` lifts the file's bound"
                raise UsageError(f"--budget {bound}={text}: not a number of {what}", hint=hint) from None
    found = RunBudget(run, operator, collections, classes)
    return found if run or operator or collections or classes else None


def _check_known(name: str, *, work: bool) -> None:
    """Raise UsageError for a name that is no bound of a run, or of a check of `work`."""
    of_run, of_check = [*UNITS, *(EACH + what for what in UNITS)], ["work"]
    names, others = (of_check, of_run) if work else (of_run, of_check)
    if name in others:
        one, other = ("dd check", "dd run") if work else ("dd run", "dd check")
        hint = f"bounds of `{one}`: {', '.join(names)}; `budget` in the file takes the bounds of both"
        raise UsageError(f"--budget {name}: this is a bound of `{other}`, not of `{one}`", hint=hint)
    if name not in names:
        near = did_you_mean(name, names)
        listed = f"bounds: {', '.join(names)}"
        raise UsageError(
            f"--budget {name}: there is no such bound", hint=f"did you mean {near}? {listed}" if near else listed
        )


def _limits(bounds: Bounds, path: str) -> dict[str, RunBound]:
    texts = {"rows": bounds.rows, "seconds": bounds.seconds, "bytes": bounds.bytes}
    return {
        what: RunBound(f"{path}.{what}", parse_bound(what, text.value), text.span)
        for what, text in texts.items()
        if text
    }


def _exceeded(
    limit: RunBound,
    what: str,
    took: float,
    whole: str | None,
    by_operator: Mapping[str, float],
    counts: Mapping[str, RowCounts],
    places: Mapping[str, OperatorPlace],
) -> BudgetError:
    """Return the error of a bound that an operator, or all of them together (`whole`), have exceeded, at the place of the one that took most."""
    most = max(by_operator, key=lambda each: (by_operator[each], each), default="")
    place = places.get(most)
    words = place.words if place else "an operator"
    problem = (
        f"{limit.name}: {whole or words} took {_figure(what, took)}, and the budget is {_figure(what, limit.most)}"
    )
    if whole and most:
        problem += f"; most of it, {_figure(what, by_operator[most])}, {words}"
    if what == "rows" and most in counts:
        count = counts[most]
        problem += f" ({count.rows_in:,} in, {count.rows_out:,} out, {count.rows_read:,} read)"
    lift = limit.name.removeprefix("--budget ").removeprefix("budget.")
    return BudgetError(
        problem,
        span=place.span if place else limit.span,
        hint=f"nothing was committed. The budget is {_where(limit.span)}; `{shell('dd', 'run', '--budget', f'{lift}=none')}` runs without it"
        if not limit.name.startswith("budget.collections")
        else f"nothing was committed. The budget is {_where(limit.span)}",
    )


def _where(span: Span | None) -> str:
    return f"at {span}" if span else "the command's"


def _figure(what: str, value: float) -> str:
    if what == "bytes":
        return size_of(value)
    return f"{value:,.0f} {plural(round(value), 'row')}" if what == "rows" else f"{value:,.3g} s"


def written_bytes(
    number: int, arrangements: Mapping[str, ArrangementEntry], outputs: Mapping[str, int]
) -> dict[str, int]:
    """Return the bytes that the commit with this number writes: of its `arrangements` by operator, and of outputs by name."""
    from ddcli.plan.physical import WAITING

    own = f"{number:09d}-"
    found = {OUTPUT + name: size for name, size in outputs.items()}
    for name, entry in arrangements.items():
        operator = name.removesuffix(WAITING)
        size = sum(file.size for file in entry.files if file.name.startswith(own))
        found[operator] = found.get(operator, 0) + size
    return found
