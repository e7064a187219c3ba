"""The provider of a text's statistics under a reference model instead of the audited model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.reference import REFERENCE_MODEL
from audit_pipeline.errors import AuditError, ModelError, TransientError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel, build_reference_upstream, load_reference_model
from audit_pipeline.scoring.needs.provider import Lookup, OnProgress, Provider, SeenIdentities, TextWithStatistics
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.run import RunSummary, compute


class ReferenceProvider(Provider[TextStatistics]):
    """The provider of the text's statistics under the reference model that the audited model's entry names.

    If the reference model cannot be loaded for a user's file, scoring fails. Otherwise a misspelt name would look like
    a detector that does not apply. In an audit, the detector has no scores and states the reason.
    """

    need = REFERENCE_MODEL
    not_run = "the reference model has not been run on the text: run the audit again"
    runs_other_model = True
    source = "reference_model"

    @staticmethod
    def read_seen_versions(model: ModelEntry, seen: SeenIdentities, paths: DataPaths) -> Mapping[str, str] | None:
        """Return the version of the reference model, or None if it was never seen."""
        name = model.reference_model
        if name is None:
            return {}
        if name not in seen:
            return None
        weights, tokenizer = seen[name]
        return {f"reference_model/{name}": f"{weights}/{tokenizer or None}"}

    @cached_property
    def _reference(self) -> TokenizedModel | str:
        """Return the reference model, or the reason why it is missing."""
        entry = self._model.entry
        try:
            reference = load_reference_model(self._model, self._scope.paths)
            if reference is not None and reference.identity.is_unasked:
                raise ModelError(
                    f"{reference.entry.name} has not been asked yet: run the audit when its server answers"
                )
            return reference or f"no reference model: give {entry.name} a reference_model in config/models.yaml"
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
        """Return why the reference model is missing, or None if it is loaded."""
        return self._reference if isinstance(self._reference, str) else None

    @property
    def upstream(self) -> Mapping[str, str]:
        """Return the version of the reference model."""
        return build_reference_upstream(self._reference_model)

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        """Run the reference model over the texts."""
        model = self._reference_model
        return compute(model, texts, self._location, partial(backend_of, model), on_progress=on_progress)

    def build_lookup(self, texts: Sequence[str]) -> Lookup[TextStatistics]:
        """Return the lookup of a text's statistics under the reference model, without the tokens of its context."""
        index = self._read_index(texts, self._reference_model)

        def look_up(scored: TextWithStatistics) -> TextStatistics | None:
            n_context_characters = len(scored.model_input) - len(scored.statistics.text)
            return index.find(scored.model_input, n_context_characters)

        return look_up
