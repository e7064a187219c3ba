"""config/stages.yaml: which stages on request an audit makes, on which benchmarks, and with which options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.problems import Fault, InvalidEntryError, did_you_mean
from audit_pipeline.config.validation import StrictSettings, validate_as
from audit_pipeline.pipeline.freshness import parse_pair
from audit_pipeline.pipeline.stage import Stage
from audit_pipeline.pipeline.stages.registry import STAGES


class _Benchmarks(StrictSettings):
    benchmarks: tuple[str, ...] | None = None


@dataclass(frozen=True)
class StageEntry:
    """What is asked of a stage. ``benchmarks``: None: of all; ``options``: what its asset is run with."""

    benchmarks: tuple[str, ...] | None
    options: Mapping[str, Any] = field(default_factory=dict)


def _build_stage_entry(name: str, fields: Any, folder: Path) -> StageEntry:
    on_request = {stage.name: stage for stage in STAGES if stage.is_on_request}
    if name not in on_request:
        raise InvalidEntryError([Fault((), f"there is no such stage on request; {did_you_mean(name, on_request)}")])
    given = dict(fields or {})
    benchmarks = validate_as(_Benchmarks, {key: given.pop(key) for key in ("benchmarks",) if key in given}).benchmarks
    options = on_request[name].options
    chosen = validate_as(_Benchmarks if options is None else options, given)
    return StageEntry(benchmarks, {} if options is None else chosen.model_dump(mode="json"))


FILE = EntryFile("stages.yaml", None, "stage", "it says what audits also make", _build_stage_entry, is_optional=True)


def load_stage_entries(folder: Path | None = None) -> Entries[StageEntry]:
    """The entries of stages.yaml in a folder, the configuration's by default; none where there is no such file.

    Raises ConfigError where the file cannot be read.
    """
    return FILE.load(folder)


def is_asked_for(stage: Stage, partition: str, entries: Mapping[str, StageEntry]) -> bool:
    """Whether audits make this partition of a stage on request."""
    entry = entries.get(stage.name)
    return entry is not None and (entry.benchmarks is None or parse_pair(partition).benchmark in entry.benchmarks)
