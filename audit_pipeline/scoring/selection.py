"""What an audit scores: detectors and settings for a benchmark.

What belongs here: choosing them. What does not: running and scoring them (session.py), and the formulas (detectors/).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from audit_pipeline.benchmarks.build import read_manifest
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors import dc_pdd, infilling
from audit_pipeline.detectors.registry import Overrides, select, settings_up_to, settings_with
from audit_pipeline.errors import AuditError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.scoring.session import Selection, Session


def overrides_of(benchmark: str, paths: DataPaths) -> Overrides:
    """What a benchmark fixes of detectors: infilling's m, by its length or as its entry says, and DC-PDD's a."""
    manifest = read_manifest(paths, benchmark)
    steps = manifest["spec"].get("infilling_m") or infilling.steps_for(manifest["words"])
    bound = manifest["spec"].get("dc_pdd_a")
    return {infilling.NAME: {"m": steps}, **({dc_pdd.NAME: {"a": float(bound)}} if bound is not None else {})}


def audit_selection(overrides: Overrides) -> Selection:
    """What an audit scores: every detector that is not on request, at every setting of its grid and of ``overrides``.

    Of infilling, every m up to that of the benchmark: what one pass over branches of that length gives.
    """
    found = []
    for detector, settings in select(grid=True):
        fixed = overrides.get(detector.name, {})
        chosen = settings_up_to if detector.name == infilling.NAME else settings_with
        found.append((detector, chosen(detector, fixed, settings)))
    return found


def audit_session(benchmark: str, model: TokenizedModel, paths: DataPaths, contexts: Iterable[str | None]) -> Session:
    """The session of an audit of ``benchmark``, whose examples stand behind ``contexts``."""
    selection = audit_selection(overrides_of(benchmark, paths))
    return Session(model, selection, paths, benchmark=benchmark, in_context=any(contexts))


def upstream_now(model: TokenizedModel, paths: DataPaths) -> Mapping[str, str]:
    """What the needs of an audit would bring now, a reference model and token frequencies, with their versions."""
    try:
        return Session(model, select(), paths).upstream
    except AuditError:
        # The hub cannot be reached: nothing is known of them now.
        return {}
