"""The events that a step reports to Dagster for its cells, with their version tags and checks.

A cell is a partition of an asset, such as the scores of one model on one benchmark.

Dagster writes version tags only for events that a step yields, and with the same version for all partitions of a run.
So this module writes the tags itself. Dagster shows a cell as stale if its tags ``input_data_version`` differ from the
current versions of its inputs. The tags are read when the cell begins, so that a change during the run counts.

The module also converts results to Dagster metadata: column schemas, row counts, tables and links.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.data_version import extract_data_version_from_entry
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.events import AssetMaterializationPlannedData
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from audit_pipeline.pipeline.registry import OBSERVED, get_stage
from audit_pipeline.pipeline.stage import SOURCE, CheckResult, Stage, StageCheck, StageResult, UiMetadata
from audit_pipeline.sources.config import all_sources
from audit_pipeline.tables import PairStatus, Table, description_of

EVERY_PAIR_RAN = "every_pair_ran"
VALUES_IN_LIMITS = "values_in_limits"
_NO_VERSION = "INITIAL"
"""Dagster's version of an asset that was never materialised."""
_NO_EVENT = "NULL"
"""Dagster's event pointer of an asset that was never materialised."""
_EVALUATED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}


def list_checks(stage: Stage) -> dict[str, StageCheck]:
    """Return the checks of a stage: its declared checks, and the checks of its pairs and of its column limits."""
    checks = dict(stage.checks)
    if len(stage.dimensions) > 1:
        checks[EVERY_PAIR_RAN] = StageCheck(
            "The asset was computed for the pair. If it was not computed, the result of the check has the reason.",
            is_warning=False,
        )
    limited = dict.fromkeys(column.name for table in stage.tables for column in table.columns if column.has_limits)
    if limited:
        description = f"Every value of these columns is within its column's limits: {', '.join(limited)}."
        checks[VALUES_IN_LIMITS] = StageCheck(description, is_warning=False)
    return checks


@dataclass(frozen=True)
class SkippedCell:
    """A cell that was not made.

    Attributes:
        status: The status of the cell.
        stage: The stage that failed or did not apply.
        reason: The reason.
    """

    status: PairStatus
    stage: str
    reason: str


@dataclass
class CellEvents:
    """Reporter of the cells of a step.

    Attributes:
        context: Dagster's context of the step.
    """

    context: dg.AssetExecutionContext
    _inputs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """The input tags of the cells that began, by stage and partition."""
    _observations: dict[tuple[dg.AssetKey, str | None], dg.EventLogRecord | None] = field(default_factory=dict)
    """The observation of each input that the run read first. Later changes do not affect a loaded model."""

    def report_begun(self, stage: Stage, partition: str) -> None:
        """Report the beginning of a cell, and remember the current versions of its inputs.

        A cell is a partition of an asset. Its beginning is reported by Dagster's event "planned".
        """
        planned = AssetMaterializationPlannedData(dg.AssetKey(stage.name), partition=partition)
        event = dg.DagsterEvent.build_asset_materialization_planned_event(
            self.context.run.job_name, self.context.op_execution_context.op.name, planned
        )
        self.context.instance.report_dagster_event(event, self.context.run.run_id, logging.DEBUG)
        self._inputs[stage.name, partition] = self._read_input_tags(stage, partition)

    def report_made(self, stage: Stage, partition: str, key: str, result: StageResult) -> None:
        """Report a cell as materialised, and the results of its checks."""
        version = result.data_version
        if not version:
            version = self.context.run.run_id if result.status == "done" else result.status
        metadata = {"status": result.status, **build_metadata(result.metadata)}
        self._report_materialisation(stage, key, version, metadata)
        for name in list_checks(stage):
            self._report_check(stage, partition, name, result.checks.get(name, CheckResult(True)))

    def report_current(self, stage: Stage, partition: str, key: str, ledger_version: str) -> None:
        """Report a current cell as materialised without a new product, with its latest metadata and check results.

        As a result, a backfill ends, a cell without events becomes green, and a stale mark disappears.

        Args:
            stage: The cell's stage.
            partition: The cell's partition.
            key: Dagster's key of the partition.
            ledger_version: The data version in the ledger. It is used if Dagster has no event of the cell.
        """
        record = self.fetch_latest_materialisation(stage, partition)
        version = ledger_version
        metadata: dict[str, Any] = {"status": "done"}
        if record is not None and record.asset_materialization is not None:
            latest = record.asset_materialization
            version = (latest.tags or {}).get("dagster/data_version", version)
            metadata = dict(latest.metadata)
        metadata["kept"] = "the cell is current according to the ledger, so it was not rebuilt"
        self._report_materialisation(stage, key, version, metadata)
        for name in list_checks(stage):
            self._report_check(stage, partition, name, self._read_latest_result(stage, partition, name))

    def report_not_applicable(self, stage: Stage, partition: str, key: str, cell: SkippedCell) -> None:
        """Report a cell that does not apply as materialised, so that it is neither due nor failed."""
        metadata = {"status": cell.status, "stage": cell.stage, "reason": cell.reason}
        self._report_materialisation(stage, key, cell.status, metadata)
        for name in list_checks(stage):
            result = CheckResult(True)
            if name == EVERY_PAIR_RAN:
                result = _build_skipped_result(partition, cell)
            self._report_check(stage, partition, name, result, is_warning=True)

    def report_unrequested(self, stage: Stage, partition: str) -> None:
        """Report the latest check results of a cell that audits do not make.

        The run planned these checks, so Dagster expects results.
        """
        for name in list_checks(stage):
            self._report_check(stage, partition, name, self._read_latest_result(stage, partition, name))

    def report_failed(self, stage: Stage, partition: str, cell: SkippedCell) -> None:
        """Report why a cell failed: as a check result, and as an observation, which the UI lists on the cell's page."""
        if EVERY_PAIR_RAN in list_checks(stage):
            self._report_check(stage, partition, EVERY_PAIR_RAN, _build_skipped_result(partition, cell))
        metadata = {"status": cell.status, "reason": cell.reason}
        self.context.log_event(dg.AssetObservation(dg.AssetKey(stage.name), partition=partition, metadata=metadata))

    def fetch_latest_materialisation(self, stage: Stage, partition: str) -> dg.EventLogRecord | None:
        """Return the latest materialisation of a cell, or None if it has none."""
        cell = dg.AssetRecordsFilter(dg.AssetKey(stage.name), asset_partitions=[partition])
        records: Sequence[dg.EventLogRecord] = self.context.instance.fetch_materializations(cell, limit=1).records
        if not records:
            return None
        return records[0]

    def _report_materialisation(self, stage: Stage, key: str, version: str, metadata: Mapping[str, Any]) -> None:
        partition = str(key)
        inputs = self._inputs.get((stage.name, partition)) or self._read_input_tags(stage, partition)
        tags = {
            **inputs,
            "dagster/data_version": version,
            "dagster/data_version_is_user_provided": "true",
            "dagster/code_version": stage.code_version,
        }
        if isinstance(key, dg.MultiPartitionKey):
            # The UI finds partitions with two dimensions by these tags.
            tags |= {f"dagster/partition/{name}": value for name, value in key.keys_by_dimension.items()}
        event = dg.AssetMaterialization(dg.AssetKey(stage.name), partition=key, metadata=metadata, tags=tags)
        self.context.log_event(event)

    def _read_input_tags(self, stage: Stage, partition: str) -> dict[str, str]:
        """Return the tags with the current versions of a cell's inputs."""
        tags: dict[str, str] = {}
        for key, dep_partition in _iterate_upstream_cells(stage, partition):
            name = key.to_user_string()
            record = self._fetch_version_record(key, dep_partition)
            version_value = _NO_VERSION
            event_pointer = _NO_EVENT
            if record is not None:
                event_pointer = str(record.storage_id)
                version = extract_data_version_from_entry(record.event_log_entry)
                if version is not None:
                    version_value = version.value
            tags[f"dagster/input_data_version/{name}"] = version_value
            tags[f"dagster/input_event_pointer/{name}"] = event_pointer
        return tags

    def _fetch_version_record(self, key: dg.AssetKey, partition: str | None) -> dg.EventLogRecord | None:
        instance = self.context.instance
        if key.to_user_string() not in OBSERVED:
            latest: dg.EventLogRecord | None = instance.get_latest_data_version_record(key, partition_key=partition)
            return latest
        if (key, partition) not in self._observations:
            record = instance.get_latest_data_version_record(key, is_source=True, partition_key=partition)
            self._observations[key, partition] = record
        return self._observations[key, partition]

    def _read_latest_result(self, stage: Stage, partition: str, name: str) -> CheckResult:
        """Return the latest result of a check for a cell. If the check was never evaluated, it counts as passed."""
        history = self.context.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey(stage.name), name),
            limit=1,
            status=_EVALUATED,
            partition_filter=PartitionKeyFilter(key=partition),
        )
        event = history[0].event if history else None
        if event is None or event.dagster_event is None:
            return CheckResult(True, "the check was never evaluated, because nothing was made")
        evaluation = event.dagster_event.asset_check_evaluation_data
        return CheckResult(evaluation.passed, evaluation.description, UiMetadata(values=dict(evaluation.metadata)))

    def _report_check(
        self, stage: Stage, partition: str, name: str, result: CheckResult, *, is_warning: bool = False
    ) -> None:
        """Report a check result for the latest materialisation of the cell, so that the UI shows it as current."""
        check = list_checks(stage)[name]
        if dg.AssetCheckKey(dg.AssetKey(stage.name), name) not in self.context.selected_asset_check_keys:
            return
        record = self.fetch_latest_materialisation(stage, partition)
        target = None
        if record is not None:
            target = AssetCheckEvaluationTargetMaterializationData(
                storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
            )
        self.context.log_event(
            dg.AssetCheckEvaluation(
                dg.AssetKey(stage.name),
                name,
                passed=result.passed,
                metadata=build_metadata(result.metadata),
                target_materialization_data=target,
                severity=choose_severity(is_warning=check.is_warning or is_warning),
                description=result.description,
                blocking=check.blocking,
                partition=partition,
            )
        )


def choose_severity(*, is_warning: bool) -> dg.AssetCheckSeverity:
    """Return Dagster's severity of a failed check."""
    if is_warning:
        return dg.AssetCheckSeverity.WARN
    return dg.AssetCheckSeverity.ERROR


def _build_skipped_result(partition: str, cell: SkippedCell) -> CheckResult:
    has_failed = cell.status == "failed"
    counts = {"failed": int(has_failed), "not applicable": int(not has_failed)}
    return CheckResult(False, f"{partition}: {cell.status.replace('_', ' ')}: {cell.reason}", UiMetadata(values=counts))


def _iterate_upstream_cells(stage: Stage, partition: str) -> Iterator[tuple[dg.AssetKey, str | None]]:
    """Yield the assets that a cell is made of, each with its partition, or with None for all partitions."""
    names = dict(zip(stage.dimensions, partition.split("|", 1), strict=True))
    for dep in stage.deps:
        kind, _, product = dep.partition("/")
        above = get_stage(kind)
        if above.dimensions == SOURCE:
            sources = [product] if product else list(all_sources())
            for source in sources:
                yield dg.AssetKey([kind, source]), None
        elif above.dimensions == stage.dimensions:
            yield dg.AssetKey(kind), partition
        elif len(above.dimensions) == 1 and above.dimensions[0] in names:
            yield dg.AssetKey(kind), names[above.dimensions[0]]
        else:
            yield dg.AssetKey(kind), None
    for name in stage.observes:
        yield dg.AssetKey(name), names[OBSERVED[name].dimension]


REPORT_URL = "CORPUS_AUDIT_REPORT_URL"
"""Environment variable with the address at which `corpus-audit dev` serves the report."""
_BREAKS = re.compile(r"(?<=[:/_|])(?=\w)")


def build_column_schema(table: Table) -> dg.TableSchema:
    """Return the column schema of a table, which the UI shows."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                type=str(field.type),
                description=description_of(field),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in table.schema
        ]
    )


def build_code_references(function: Callable[..., object], label: str) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return the metadata that links to the declaration of a function."""
    code = function.__code__
    reference = dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno, label=label)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _link_page(page: Path) -> dg.MetadataValue:
    """Return a link to a page of the report if `corpus-audit dev` serves the report, else the page's path."""
    url = os.environ.get(REPORT_URL)
    if url is None:
        return dg.MetadataValue.path(page)
    return dg.MetadataValue.url(urljoin(url, quote(page.name)))


def build_metadata(metadata: UiMetadata) -> dict[str, Any]:
    """Return metadata in Dagster's types, in the order in which the UI shows it."""
    shown: dict[str, Any] = {}
    for name, picture in metadata.pictures.items():
        shown[name] = dg.MetadataValue.md(picture)
    if metadata.rows is not None:
        shown["dagster/row_count"] = metadata.rows
    shown |= metadata.values
    for name, (header, body) in metadata.tables.items():
        shown[name] = build_markdown_table(header, body)
    for name, path in metadata.paths.items():
        shown[name] = dg.MetadataValue.path(path)
    if metadata.page is not None:
        shown["page"] = _link_page(metadata.page)
    return shown


def build_markdown_table(header: tuple[str, ...], body: Sequence[tuple[object, ...]]) -> dg.MetadataValue:
    """Return a small table. Cells are escaped, because names and reasons can have untrusted text.

    Zero-width spaces allow line breaks after :, /, _ and |. Otherwise a long name hides the next columns in a narrow
    window.
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in body:
        cells = [_escape_cell(_BREAKS.sub("\u200b", str(value))) for value in row]
        lines.append("| " + " | ".join(cells) + " |")
    return dg.MetadataValue.md("\n".join(lines))


_MARKUP = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {character: f"&#{ord(character)};" for character in "|`[]()\\*_~!"}
)
"""The characters of Markdown and HTML markup as entities. A backslash before a character would not be a safe escape,
because the text can have a backslash in front of it."""


def _escape_cell(value: object) -> str:
    """Return a value on one line, without markup."""
    return " ".join(str(value).splitlines()).translate(_MARKUP)
