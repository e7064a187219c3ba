"""The token frequencies that a detector needs: how often each token occurs in a reference corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from audit_pipeline.detectors.dc_pdd import FREQUENCY_TABLE
from audit_pipeline.detectors.detector_inputs import TokenFrequencies
from audit_pipeline.errors import AuditError, TransientError
from audit_pipeline.extras.corpora.frequencies import find_frequencies, read_frequencies, read_table_version
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.scoring.needs.provider import Lookup, Provider, SeenIdentities
from audit_pipeline.store.paths import DataPaths


class FrequenciesProvider(Provider[TokenFrequencies]):
    """The provider of token frequencies. All texts share one table.

    The table comes from the user, or else from the reference corpus of the model's entry. A user's table that is
    unreadable or belongs to another tokenizer raises DataError.
    """

    need = FREQUENCY_TABLE
    source = "token_frequencies"

    @staticmethod
    def read_seen_versions(model: ModelEntry, seen: SeenIdentities, paths: DataPaths) -> Mapping[str, str] | None:
        """Return the data version of the table without loading the model.

        ``seen`` has the last known fingerprints of each model. The result is None if that of the tokenizer is unknown,
        or if the table is unreadable.
        """
        _, tokenizer = seen[model.name]
        if not tokenizer:
            return None
        try:
            return read_table_version(model, tokenizer, paths)
        except AuditError:
            return None

    @cached_property
    def _lookup(self) -> tuple[TokenFrequencies | None, Mapping[str, str], str | None]:
        """Return the table, its data version for the lineage, and the reason if the table is missing."""
        inputs = self._scope.user_inputs
        is_usable = self._model.entry.start_token_policy == "always"
        if inputs is not None and inputs.frequencies is not None and is_usable:
            return read_frequencies(inputs.frequencies, self._model), {}, None
        try:
            return *find_frequencies(self._model, self._scope.paths), None
        except TransientError:
            raise
        except AuditError as error:
            return None, {}, str(error)

    def explain_missing(self) -> str | None:
        """Return why the table is missing or unreadable, or None if it is usable."""
        return self._lookup[2]

    @property
    def upstream(self) -> Mapping[str, str]:
        """Return the data version of the table by its name in the lineage."""
        return self._lookup[1]

    def build_lookup(self, texts: Sequence[str]) -> Lookup[TokenFrequencies]:
        """Return a function that maps each text to its token frequencies: the same table for every text."""
        table = self._lookup[0]
        assert table is not None, "callers check explain_missing() before"
        return lambda scored: table
