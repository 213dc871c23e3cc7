"""The present verdicts of a pipeline's checks, from its state, as text, JSON and JUnit's XML, and the rows that are put aside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from ddcli.dataclass import frozen
from ddcli.engine.times import Frontier
from ddcli.errors import DdError
from ddcli.job.paths import unparsed_below
from ddcli.job.request import error_directory, late_directory, newest_of, read_request
from ddcli.job.verdict import ACCEPTED, verdict_of, verdicts_of
from ddcli.screen import near, visible
from ddcli.sinks.side_logs import rows_in
from ddcli.store.state.outputs import file_of
from ddcli.store.texts import format_frontier, json_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddcli.job.verdict import Verdict
    from ddcli.spec.model import CheckSpec
    from ddcli.store.state.manifest import Manifest


@frozen
class CheckReport:
    """The checks of a pipeline with their verdicts at the last commit, their logs in the state, and the accepted commits, the newest last."""

    pipeline: str
    checks: dict[str, CheckSpec]
    verdicts: dict[str, Verdict]
    logs: dict[str, Path]
    accepted: tuple[dict[str, str], ...]
    upper: str | None

    @property
    def failed(self) -> bool:
        """Return whether a check has violations for which a run would not commit."""
        return any(verdict.otherwise == "fail" and not verdict.passed for verdict in self.verdicts.values())

    def lines(self) -> Iterator[str]:
        """Yield a line for each check, and the last acceptances."""
        for name, check in self.checks.items():
            verdict = self.verdicts.get(name)
            if verdict is None:
                yield f"?     {check.title}: no run has judged it"
                continue
            word = "ok  " if verdict.passed else {"quarantine": "aside"}.get(verdict.otherwise, verdict.otherwise)
            words = f": {verdict.words}  ({near(str(self.logs[name]))})" if not verdict.passed else ""
            yield f"{word:<5} {check.title}{words}"
        last = list(dict.fromkeys(each["at"] for each in self.accepted))[-3:]
        for each in (each for each in self.accepted if each["at"] in last):
            yield f"accepted {each['check']} at {each['at']} by {each['by']}: {each['found']}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "pipeline": self.pipeline,
            "upper": self.upper and json_time(self.upper),
            "checks": {
                name: (self.verdicts[name].to_json() | {"log": str(self.logs[name])} if name in self.verdicts else None)
                for name in self.checks
            },
            "accepted": list(self.accepted),
        }

    def suite(self, *, of_run: bool = False) -> ET.Element:
        """Return the report as a suite of JUnit's XML, with a case for each check. `of_run`: a check with which somebody let the run pass has not failed."""
        unknown = [name for name in self.checks if name not in self.verdicts]
        failed = [
            name
            for name, each in self.verdicts.items()
            if each.otherwise == "fail" and not each.passed and not (of_run and each.accepted)
        ]
        suite = new_suite(self.pipeline, tests=len(self.checks), failures=len(failed), skipped=len(unknown))
        for name, check in self.checks.items():
            case = new_case(suite, check.title, file=check.span.file, line=str(check.span.line))
            if name in unknown:
                ET.SubElement(case, "skipped", message="no run has judged it")
            elif name in failed:
                body = ET.SubElement(case, "failure", message=visible(self.verdicts[name].words))
                lines = [self.verdicts[name].words, *self.verdicts[name].first]
                body.text = f"{check.span}: {check.place}: " + "\n".join(map(visible, lines))
            elif not self.verdicts[name].passed:
                ET.SubElement(case, "system-out").text = visible(self.verdicts[name].line().strip())
        return suite


def new_suite(title: str, *, tests: int, failures: int = 0, errors: int = 0, skipped: int = 0) -> ET.Element:
    """Return a suite of JUnit's XML without its cases."""
    counts = {"tests": tests, "failures": failures, "errors": errors, "skipped": skipped}
    return ET.Element("testsuite", {"name": visible(title)} | {name: str(count) for name, count in counts.items()})


def new_case(suite: ET.Element, name: str, **more: str) -> ET.Element:
    """Return a new case of a suite, with more attributes."""
    attributes = {each: visible(value) for each, value in {"name": name, **more}.items()}
    return ET.SubElement(suite, "testcase", {"classname": suite.attrib["name"], **attributes})


def junit(suites: Iterable[ET.Element]) -> bytes:
    """Return JUnit's XML for CI systems: a suite for each pipeline."""
    whole = ET.Element("testsuites")
    whole.extend(suites)
    ET.indent(whole)
    found: bytes = ET.tostring(whole, encoding="utf-8", xml_declaration=True)
    return found + b"\n"


def put_junit(path: Path, state: Path | None, tree: dict[str, Any]) -> None:
    """Write the verdicts of the checks of a run, or of several, which have the record of `--summary`, into `path`."""
    path.write_bytes(junit(_suite_of(record, state) for record in tree.get("pipelines", [tree])))


def _suite_of(record: Mapping[str, Any], state: Path | None) -> ET.Element:
    """Return the suite of a run by its record: the verdicts of its checks, verdicts of the last commit where it judged none; only the reason if it was skipped, or failed for another one."""
    error, path = record["error"], Path(record["pipeline"])
    if record["skipped"] is not None or (error is not None and "checks" not in error):
        suite = new_suite(path.stem, tests=1, errors=int(error is not None), skipped=int(error is None))
        case = new_case(suite, "run", file=str(path))
        if error is None:
            ET.SubElement(case, "skipped", message=visible(record["skipped"]))
        else:
            body = ET.SubElement(case, "error", message=visible(error["problem"]))
            body.text = "\n".join(visible(line) for line in (error["place"], error["problem"], error["hint"]) if line)
        return suite
    found = checks(path, state)
    judged = error["checks"] if error is not None else record["summary"]["checks"].values()
    names = {check.title: name for name, check in found.checks.items()}
    verdicts = {names[each["title"]]: verdict_of(each) for each in judged}
    return replace(found, verdicts=found.verdicts | verdicts).suite(of_run=True)


def checks(pipeline: Path, state: Path | None = None, now: str | None = None) -> CheckReport:
    """Return the verdicts of a pipeline's checks at the last commit, none before the first."""
    from ddcli.job.inputs import find_time

    request = read_request(pipeline, state, now=now)
    manifest = newest_of(request)
    logs = {name: request.outputs[name] for name in request.spec.checks}
    if manifest is None:
        return CheckReport(request.spec.name.value, request.spec.checks, {}, logs, (), None)
    verdicts = verdicts_of(request.spec, manifest, request.clock.now)
    accepted = tuple(manifest.cache.get(ACCEPTED, ()))
    upper = format_frontier(Frontier(manifest.upper), list(find_time(manifest).values()))
    return CheckReport(request.spec.name.value, request.spec.checks, verdicts, logs, accepted, upper)


def rows_aside(directory: Path, manifest: Manifest, pipeline: Path | None) -> list[dict[str, Any]]:
    """Return the logs with rows that are put aside now, with their numbers: late, failed or unreadable rows, and those that a check quarantines.

    The paths of logs are in the pipeline file; without one, or with one that is broken, nothing is known of them.
    """
    file = pipeline or file_of(directory, manifest)
    try:
        request = read_request(file, directory) if file is not None and file.is_file() else None
    except DdError:
        request = None
    if request is None:
        return []
    spec, errors = request.spec, error_directory(request)
    logs = [("late", name, late_directory(request, name)) for name in spec.inputs]
    logs += [("failed", "", errors), *(("unreadable", name, unparsed_below(errors, name)) for name in spec.inputs)]
    found = [{"why": why, "of": of, "rows": rows_in(path), "path": str(path)} for why, of, path in logs]
    verdicts = verdicts_of(spec, manifest, request.clock.now)
    found += [
        {"why": "check", "of": check.title, "rows": verdicts[name].violations, "path": str(request.outputs[name])}
        for name, check in spec.checks.items()
        if check.otherwise == "quarantine" and name in verdicts
    ]
    return [each for each in found if each["rows"]]
