"""How often each token occurs in a reference corpus."""

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
    """The table that the user gives, else that of the corpus which the model's entry names; the same for every text.

    Raises DataError where the user's table cannot be read or was counted with another tokenizer.
    """

    need = FREQUENCY_TABLE
    source = "token_frequencies"

    @staticmethod
    def read_seen_versions(model: ModelEntry, seen: SeenIdentities, paths: DataPaths) -> Mapping[str, str] | None:
        _, tokenizer = seen[model.name]
        try:
            return read_table_version(model, tokenizer, paths) if tokenizer else None
        except AuditError:
            return None

    @cached_property
    def _lookup(self) -> tuple[TokenFrequencies | None, Mapping[str, str], str | None]:
        """The table, the data version that it is of, for the lineage; and why there is none."""
        given = self._scope.user_inputs.frequencies if self._scope.user_inputs is not None else None
        if given is not None and self._model.entry.start_token_policy == "always":
            return read_frequencies(given, self._model), {}, None
        try:
            return *find_frequencies(self._model, self._scope.paths), None
        except TransientError:
            raise
        except AuditError as error:
            return None, {}, str(error)

    def explain_missing(self) -> str | None:
        return self._lookup[2]

    @property
    def upstream(self) -> Mapping[str, str]:
        return self._lookup[1]

    def build_lookup(self, texts: Sequence[str]) -> Lookup[TokenFrequencies]:
        table = self._lookup[0]
        assert table is not None, "asked only where nothing is missing"
        return lambda scored: table
