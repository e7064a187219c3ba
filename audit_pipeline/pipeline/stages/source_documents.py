"""The stage of the sources' documents: one asset a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from audit_pipeline.errors import ConfigError
from audit_pipeline.pipeline.stage import REFRESH_SOURCES, Check, Finding, Inputs, Made, Shown, Stage, StageRun
from audit_pipeline.sources.config import all_sources, load_source_settings
from audit_pipeline.sources.store import SourceReport, read_settings_digest, refresh_source
from audit_pipeline.store.files import read_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import DOCUMENTS

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Situation

_LEFT_OUT = 50


def _fetch(run: StageRun) -> Made:
    """Fetch the documents of one source; one that the user has not set up is no failure of a run that refreshes all."""
    settings = load_source_settings()
    if (missing_setting := settings.for_source(run.partition).missing_setting) is not None:
        run.log.info(f"{run.partition} is not configured: {missing_setting}")
        shown = Shown(0, {"to be set": missing_setting})
        return Made(None, shown, {"complete": Finding(False, missing_setting)}, "not_applicable")
    report = refresh_source(run.partition, run.paths, run.run_id, settings, str(all_sources()[run.partition].version))
    for missing in report.missing:
        run.log.warning(f"missing: {missing.part}: {missing.reason}")
    lacking = [(item.part, item.reason) for item in report.missing]
    left_out = [(item.part, item.reason) for item in report.left_out[:_LEFT_OUT]]
    tables = {"missing": (("part", "reason"), lacking), "left out": (("part", "reason"), left_out)}
    complete = Finding(not report.missing, shown=Shown(tables=tables))
    return Made(report.data_version, _summarise_documents(report), {"complete": complete})


def _summarise_documents(report: SourceReport) -> Shown:
    kept = [(name, count, report.kept.get(name, 0)) for name, count in report.by_collection.items()]
    return Shown(
        report.documents,
        {"missing parts": len(report.missing), "left out": len(report.left_out)},
        {"documents": (("collection", "documents", "kept from earlier"), kept)},
        paths={"path": report.path},
    )


def _note_missing(source: str, paths: DataPaths) -> Iterator[str]:
    manifest = read_json(paths.source_manifest(source))
    for item in manifest["missing"]:
        yield f"missing from {source}: {item['part']}: {item['reason']}"
    if left_out := manifest["left_out"]:
        yield f"left out of {source}: {len(left_out)}, the first {left_out[0]['part']}: {left_out[0]['reason']}"


def _inputs(source: str, situation: Situation) -> Inputs:
    settings = situation.source_settings
    wanted = settings.digest_for(source)
    missing_setting = settings.for_source(source).missing_setting
    if missing_setting is not None and read_settings_digest(source, situation.paths) != wanted:
        raise ConfigError(f"{source} is not configured: {missing_setting}")
    return {"settings": wanted}


DOCUMENTS_STAGE = Stage(
    name="documents",
    description="Dated documents of a source.",
    dimensions=("source",),
    group="1_sources",
    job=REFRESH_SOURCES,
    make=_fetch,
    tables=(DOCUMENTS,),
    checks={"complete": Check("Every part of the source arrived this time.")},
    kinds=frozenset({"python", "parquet"}),
    late_after_days=8,
    step="fetching documents: {}",
    first="the source {} is fetched first",
    absent="its documents are not there",
    words={"settings": "its settings or files changed since it was fetched"},
    notes=_note_missing,
    partitions=lambda scope, situation: situation.list_sources(scope),
    inputs=_inputs,
    recorded=lambda source, situation: (
        {"settings": digest} if (digest := read_settings_digest(source, situation.paths)) else None
    ),
)
FETCHED_AGAIN = {DOCUMENTS_STAGE.name: "it is to be fetched again"}
"""What a scope makes again whatever is there."""
