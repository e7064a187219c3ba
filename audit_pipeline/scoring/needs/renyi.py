"""Sums over powers of the probabilities, for Rényi entropies.

What belongs here: whether they are wanted, and finding a text's own. What does not: computing them, which is done in
the text's own pass or from its cached logits (token_statistics/), and the score (detectors/).
"""

from __future__ import annotations

from collections.abc import Sequence

from audit_pipeline.catalogue.contracts import KINDS, Kind, text_sha256
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.max_renyi import OF_POWER_SUMS, POWER_SUMS
from audit_pipeline.detectors.statistics import Lacking, PowerSums
from audit_pipeline.scoring.needs.provider import Provider, Read, ScoringScope, TextWithStatistics
from audit_pipeline.token_statistics.cached_texts import collect_lists_by_text, read_statistics

_NOT_RUN = Lacking("the sums for Rényi entropies of this order are not cached for the text: run the model on it again")


class RenyiProvider(Provider[PowerSums]):
    """The sums of every token, where some setting has an order that is made of them."""

    need = POWER_SUMS

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        self._model, self._where = scope.model, scope.where
        self._wanted = any(setting["alpha"] in OF_POWER_SUMS for setting in settings)

    @property
    def kinds(self) -> Sequence[Kind]:
        return ("renyi",) if self._wanted else ()

    @property
    def along(self) -> Sequence[Kind]:
        return () if self._wanted else ("renyi",)

    def missing(self) -> None:
        return None

    def read(self, texts: Sequence[str]) -> Read[PowerSums]:
        cached = read_statistics(self._model, texts if self._wanted else (), self._where, "renyi")
        by_text = collect_lists_by_text(cached, KINDS["renyi"].statistics)

        def find(scored: TextWithStatistics) -> PowerSums | Lacking:
            found = by_text.get(text_sha256(scored.whole))
            if found is None:
                return _NOT_RUN
            return PowerSums(**{name: values[scored.context_tokens :] for name, values in found.items()})

        return find
