"""The file config/stages.yaml: the optional assets that audits make, with their benchmarks and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.problems import Fault, InvalidEntryError, did_you_mean
from audit_pipeline.config.validation import StrictSettings, validate_as
from audit_pipeline.pipeline.stage import Stage
from audit_pipeline.tables import parse_pair


class _Benchmarks(StrictSettings):
    benchmarks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class StageEntry:
    """An entry of stages.yaml.

    Attributes:
        benchmarks: The benchmarks that the asset is made for, or None for all.
        options: The options that the asset is made with.
    """

    benchmarks: tuple[str, ...] | None
    options: Mapping[str, Any] = field(default_factory=dict)


def build_stages_file(stages: Iterable[Stage]) -> EntryFile[StageEntry]:
    """Return the declaration of stages.yaml. Each entry has the name of a stage that is made only on request."""
    on_request = {stage.name: stage for stage in stages if stage.is_on_request}

    def build_entry(name: str, fields: Any, folder: Path) -> StageEntry:
        if name not in on_request:
            hint = did_you_mean(name, on_request)
            raise InvalidEntryError([Fault((), f"there is no stage on request with this name; {hint}")])
        option_fields = dict(fields or {})
        benchmark_fields = {}
        if "benchmarks" in option_fields:
            benchmark_fields["benchmarks"] = option_fields.pop("benchmarks")
        benchmarks = validate_as(_Benchmarks, benchmark_fields).benchmarks
        options = on_request[name].options
        if options is None:
            validate_as(_Benchmarks, option_fields)
            return StageEntry(benchmarks)
        return StageEntry(benchmarks, validate_as(options, option_fields).model_dump(mode="json"))

    return EntryFile(
        "stages.yaml", None, "stage", "it lists the optional assets that audits make", build_entry, is_optional=True
    )


def load_stage_entries(stages: Iterable[Stage], folder: Path | None = None) -> Entries[StageEntry]:
    """Return the entries of stages.yaml. If the file is missing, there are no entries.

    Args:
        stages: The stages that may have entries. Entries of other stages count as broken.
        folder: The folder of the configuration. By default the workspace's.

    Raises:
        ConfigError: If the file cannot be read.
    """
    return build_stages_file(stages).load(folder)


def is_stage_requested(stage: Stage, partition: str, entries: Mapping[str, StageEntry]) -> bool:
    """Return whether config/stages.yaml requests this partition of a stage that is made only on request."""
    entry = entries.get(stage.name)
    return entry is not None and (entry.benchmarks is None or parse_pair(partition).benchmark in entry.benchmarks)
