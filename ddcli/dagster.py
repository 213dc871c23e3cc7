"""Assets of Dagster for pipeline files: a pipeline is one operation, its outputs are assets, its checks are asset checks.

    import dagster
    from ddcli.dagster import assets

    defs = dagster.Definitions(assets=assets("pipelines/"))

The operation is `ddcli.run`, which commits all outputs of a pipeline together. Another orchestrator needs the same of the library: the pipelines
with those that each reads from (`find_pipelines`), the names of their inputs (`dataset_of_input`), the summary of a run, its checks, and its errors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.cli.openlineage import dataset_of_input
from ddcli.commands.check import bound_pipeline
from ddcli.commands.pipelines import find_pipelines, lineage_of
from ddcli.driver.run import run
from ddcli.errors import DdError, EngineError, LockedError, failed_checks
from ddcli.job.summary import OutputSummary
from ddcli.plan.pipeline_file import load_spec
from ddcli.version import package

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddcli.commands.pipelines import Pipeline
    from ddcli.job.summary import RunSummary
    from ddcli.spec.model import Spec

PASSING = (EngineError, LockedError)
"""The errors after which the same run may succeed, so that Dagster may retry it. After all others a person must act."""
NO_CHANGE = OutputSummary(0, 0, 0, None)


def assets(*paths: Path | str, retry_policy: Any = None, **options: Any) -> list[Any]:
    """Return the assets of pipeline files, and of those right in directories, for `dagster.Definitions`. `options` are keywords of `ddcli.run`.

    An output's key is the names of its pipeline and its own. An input that none of the pipelines writes is an external asset; its key is the
    name of the dataset in OpenLineage. Reads pipeline files and no data. Raises SpecErrors for a broken file.
    """
    dagster = package("dagster")
    pipelines, _ = find_pipelines(map(Path, paths))
    return [_Operation(dagster, each, options).definition(retry_policy) for each in pipelines]


def _spec_of(pipeline: Pipeline) -> Spec:
    return (
        pipeline.spec if pipeline.spec is not None else load_spec(pipeline.path)
    )  # the latter raises the file's errors


class _Operation:
    """A pipeline as an operation of Dagster."""

    def __init__(self, dagster: Any, pipeline: Pipeline, options: Mapping[str, Any]) -> None:
        self._dagster, self._path, self._options, self._spec = dagster, pipeline.path, options, _spec_of(pipeline)
        name = self._spec.name.value
        self._outputs = {
            each: dagster.AssetKey([name, each]) for each in self._spec.outputs if each not in self._spec.checks
        }
        self._inputs = {each: dagster.AssetKey(self._upstream(pipeline, each)) for each in self._spec.inputs}

    def _upstream(self, pipeline: Pipeline, name: str) -> list[str]:
        """Return the key of the asset behind an input."""
        for other in pipeline.needs:
            if output := pipeline.origin(self._spec.inputs[name], other):
                return [_spec_of(other).name.value, output]
        namespace, place = dataset_of_input(self._spec, name, self._path.absolute().parent)
        return [part for part in re.split(r"[:/]+", f"{namespace}/{place}") if part]

    def definition(self, retry_policy: Any) -> Any:
        """Return the assets and checks of the operation."""
        dagster, upstream = self._dagster, list(dict.fromkeys(self._inputs.values()))
        checks = [
            dagster.AssetCheckSpec(
                name, asset=self._checked(name), description=check.title, blocking=check.otherwise == "fail"
            )
            for name, check in self._spec.checks.items()
        ]
        decorator = dagster.multi_asset(
            name=re.sub(r"\W", "_", self._spec.name.value),
            description=f"Runs `{self._path}`: all its outputs are one commit.",
            specs=[dagster.AssetSpec(key, deps=upstream, kinds={"dd"}) for key in self._outputs.values()],
            check_specs=checks,
            retry_policy=retry_policy,
        )

        def operation(context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - Dagster takes a type for a part of its protocol
            yield from self._run(context)

        return decorator(operation)

    def _checked(self, name: str) -> Any:
        """Return the key of the asset that a check is shown at: its output, one of its collection, or else the pipeline's first."""
        of = self._spec.checks[name].of
        named = None if of is None else of.value
        found = (key for each, key in self._outputs.items() if named in {each, self._spec.outputs[each].source.value})
        return next(found, next(iter(self._outputs.values())))

    def _run(self, context: Any) -> Iterator[Any]:
        """Yield the results of a run: its checks, and what it wrote to each output. Raises dagster.Failure for an error."""
        try:
            summary = run(self._path, say=context.log.info, **self._options)
        except DdError as error:
            for each in failed_checks(error):
                yield self._check_result(each.check, each.verdict)
            raise self._failure(error) from error
        for line in summary.lines():
            context.log.info(line)
        for name, verdict in summary.checks.items():
            yield self._check_result(name, verdict.to_json())
        yield from self._materialized(summary)

    def _failure(self, error: DdError) -> Exception:
        failure: Exception = self._dagster.Failure(
            error.render(),
            metadata={"exit_code": error.exit_code, **({"hint": error.hint} if error.hint else {})},
            allow_retries=isinstance(error, PASSING),
        )
        return failure

    def _check_result(self, name: str, verdict: Mapping[str, Any]) -> Any:
        severity = self._dagster.AssetCheckSeverity
        fails = verdict["otherwise"] == "fail" and verdict["accepted"] is None
        shown = {
            key: verdict[key]
            for key in ("violations", "new", "first", "problems", "accepted")
            if verdict[key] not in (None, (), [])
        }
        return self._dagster.AssetCheckResult(
            asset_key=self._checked(name),
            check_name=name,
            passed=verdict["passed"],
            severity=severity.ERROR if fails else severity.WARN,
            metadata={key: list(value) if isinstance(value, tuple) else value for key, value in shown.items()},
        )

    def _materialized(self, summary: RunSummary) -> Iterator[Any]:
        """Yield a materialization of each output. Dagster plots the metadata that are numbers."""
        dagster = self._dagster
        columns, lineage = dict[str, list[Any]](), dict[str, dict[str, list[Any]]]()
        for each in lineage_of(bound_pipeline(self._path)):
            columns.setdefault(each.name.of, []).append(dagster.TableColumn(each.name.column, each.type))
            lineage.setdefault(each.name.of, {})[each.name.column] = [
                dagster.TableColumnDep(self._inputs[source.of], source.column) for source in each.sources
            ]
        for name, key in self._outputs.items():
            wrote = [each.get(name, NO_CHANGE) for each in (summary.rebuilt, summary.outputs)]
            numbers = {
                "updates": sum(each.rows for each in wrote),
                "inserted": sum(each.inserted for each in wrote),
                "retracted": sum(each.retracted for each in wrote),
                "seconds": summary.seconds,
                "state_rows": summary.state_rows,
                "state_bytes": summary.state_bytes,
            }
            yield dagster.MaterializeResult(
                asset_key=key,
                metadata={
                    **{key: number for key, number in numbers.items() if number is not None},
                    **({"closed_before": summary.upper} if summary.upper else {}),
                    "dagster/column_schema": dagster.TableSchema(columns=columns[name]),
                    "dagster/column_lineage": dagster.TableColumnLineage(lineage[name]),
                },
            )
