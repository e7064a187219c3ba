"""What an audit scores, and what that needs beside the model: reference model and token frequencies.

What belongs here: choosing detectors and settings for a benchmark, and finding what they need. What does not: running
it (passes.py), and the formulas (detectors/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from audit_pipeline.benchmarks.build import read_manifest
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors import dc_pdd, infilling
from audit_pipeline.detectors.needs import Need
from audit_pipeline.detectors.registry import Overrides, select, settings_up_to, settings_with
from audit_pipeline.errors import AuditError, ConfigError, ModelError, TransientError
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, load_tokenizer
from audit_pipeline.references.frequencies import FrequencyLookup, frequencies_of, read_frequencies
from audit_pipeline.scoring.passes import Passes, Selection, needs_of, passes_for


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


def passes_of(
    selection: Selection, model: TokenizedModel, paths: DataPaths, *, frequencies: Path | None = None
) -> Passes:
    """What the selection needs beside the model, and why there is none where there is none.

    The reference model and corpus are those of the model's entry; ``frequencies`` is a table that the user names.
    Raises DataError where that cannot be read or was counted with another tokenizer, and the error of a hub that could
    not be reached: it may be reached later.
    """
    needs = needs_of(selection)
    absent: dict[Need, str] = {}
    reference, found = None, FrequencyLookup(None, None, {})
    if Need.REFERENCE_MODEL in needs:
        try:
            reference = reference_model_of(model, paths)
        except AuditError as error:
            if isinstance(error, TransientError):
                raise
            absent[Need.REFERENCE_MODEL] = str(error)
    if Need.FREQUENCY_TABLE in needs:
        try:
            found = _frequencies(model, paths, frequencies)
        except AuditError as error:
            if frequencies is not None or isinstance(error, TransientError):
                raise
            absent[Need.FREQUENCY_TABLE] = str(error)
        if found.reason is not None:
            absent[Need.FREQUENCY_TABLE] = found.reason
    passes = passes_for(selection, reference=reference, frequencies=found.frequencies, absent=absent)
    upstream = dict(found.upstream)
    if reference is not None:
        identity = reference.identity
        upstream[f"reference_model/{reference.entry.name}"] = (
            f"{identity.model_fingerprint}/{identity.tokenizer_fingerprint}"
        )
    return replace(passes, upstream=upstream)


def upstream_now(model: TokenizedModel, paths: DataPaths) -> Mapping[str, str] | None:
    """The reference model and the token frequencies that an audit would take now, with their versions.

    None where the hub cannot be reached, or what is there cannot be read: nothing is known of them now.
    """
    try:
        return passes_of(select(), model, paths).upstream
    except AuditError:
        return None


def is_extra(upstream: str) -> bool:
    """Whether an entry of a lineage row's upstream is a reference model or a table of token frequencies."""
    return upstream.startswith(("reference_model/", "token_frequencies/"))


def reference_model_of(model: TokenizedModel, paths: DataPaths) -> TokenizedModel:
    """The reference model of the model's entry; raises ModelError where it names none, or what loading one raises."""
    if model.entry.reference_model is None:
        raise ModelError(f"no reference model: give {model.entry.name} a reference_model in config/models.yaml")
    return load_tokenizer(resolve_model(model.entry.reference_model, load_models()), paths)


def _frequencies(model: TokenizedModel, paths: DataPaths, given: Path | None) -> FrequencyLookup:
    if model.entry.start_token_policy != "always":
        return FrequencyLookup(None, "dc_pdd scores the first token too: it needs the start-token policy 'always'", {})
    if given is not None:
        return FrequencyLookup(read_frequencies(given, model), None, {})
    if model.entry.reference_corpus is None:
        raise ConfigError(f"no reference corpus: give {model.entry.name} a reference_corpus in config/models.yaml")
    return frequencies_of(model.entry.reference_corpus, model, paths)
