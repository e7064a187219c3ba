"""What an audit scores: detectors and settings for a benchmark.

What belongs here: choosing them. What does not: running and scoring them (session.py), and the formulas (detectors/).
"""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.benchmarks.built import BuiltBenchmark
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors import combined, infilling
from audit_pipeline.detectors.registry import Overrides, select, settings_at, settings_up_to, settings_with
from audit_pipeline.errors import AuditError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.scoring.session import Selection, Session


def audit_selection(overrides: Overrides) -> Selection:
    """What an audit scores: every detector that is not on request, at every setting of its grid and of ``overrides``.

    Of infilling, every m up to that of the benchmark: what one pass over branches of that length gives. Of what takes
    passes of its own for every value, the default. Of combined the benchmark's list alone: it is named beforehand, so
    that there is nothing to choose from.
    """
    special = {infilling.NAME: settings_up_to, combined.NAME: settings_at}
    return [
        (detector, special.get(detector.name, settings_with)(detector, overrides.get(detector.name, {}), settings))
        for detector, settings in select(grid=True, overrides=_build_single_value_defaults())
    ]


def _build_single_value_defaults() -> Overrides:
    """The defaults of those parameters of which each further value takes passes of its own."""
    return {
        detector.name: {name: detector.default[name] for name, one in detector.parameters.items() if one.passes_each}
        for detector, _ in select()
    }


def audit_session(benchmark: BuiltBenchmark, model: TokenizedModel, paths: DataPaths) -> Session:
    """The session of an audit of ``benchmark``."""
    selection = audit_selection(benchmark.overrides)
    return Session(model, selection, paths, benchmark=benchmark.name, in_context=any(benchmark.contexts))


def upstream_now(model: TokenizedModel, paths: DataPaths) -> Mapping[str, str] | None:
    """What the needs of an audit would bring now, a reference model and token frequencies, with their versions.

    None where the hub cannot be reached, or what is there cannot be read: nothing is known of them now.
    """
    try:
        return Session(model, select(), paths).upstream
    except AuditError:
        return None
