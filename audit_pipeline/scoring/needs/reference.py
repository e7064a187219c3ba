"""The same text under a reference model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.reference import REFERENCE_MODEL
from audit_pipeline.errors import AuditError, ModelError, TransientError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel, build_reference_upstream, load_reference_model
from audit_pipeline.scoring.needs.provider import Lookup, OnProgress, Provider, SeenIdentities
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.run import RunSummary, compute


class ReferenceProvider(Provider[TextStatistics]):
    """The statistics of the text under the reference model that the audited model's entry names.

    Where a user waits, one that is named and cannot be had is an error: a typing error must not pass for a detector
    that does not apply.
    """

    need = REFERENCE_MODEL
    not_run = "the reference model has not been run on the text: run the audit again"
    other_model = True
    source = "reference_model"

    @staticmethod
    def read_seen_versions(model: ModelEntry, seen: SeenIdentities, paths: DataPaths) -> Mapping[str, str] | None:
        name = model.reference_model
        if name is None:
            return {}
        if name not in seen:
            return None
        weights, tokenizer = seen[name]
        return {f"reference_model/{name}": f"{weights}/{tokenizer or None}"}

    @cached_property
    def _reference(self) -> TokenizedModel | str:
        """The reference model, or why there is none."""
        entry = self._scope.model.entry
        try:
            found = load_reference_model(self._scope.model, self._scope.paths)
            if found is not None and found.identity.is_unasked:
                raise ModelError(f"{found.entry.name} has not been asked yet: run the audit when its server answers")
            return found or f"no reference model: give {entry.name} a reference_model in config/models.yaml"
        except TransientError:
            raise
        except AuditError as error:
            if self._scope.user_inputs is not None:
                raise ModelError(f"the reference model: {error}") from error
            return str(error)

    @property
    def _reference_model(self) -> TokenizedModel:
        if isinstance(self._reference, str):
            raise ModelError(self._reference)
        return self._reference

    def explain_missing(self) -> str | None:
        return self._reference if isinstance(self._reference, str) else None

    @property
    def upstream(self) -> Mapping[str, str]:
        return build_reference_upstream(self._reference_model)

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        model = self._reference_model
        return compute(model, texts, self._where, partial(backend_of, model), on_progress=on_progress)

    def build_lookup(self, texts: Sequence[str]) -> Lookup[TextStatistics]:
        index = self._read_index(texts, self._reference_model)
        return lambda scored: index.find(scored.whole, len(scored.whole) - len(scored.own.text))
