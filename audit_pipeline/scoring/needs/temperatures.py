"""The model's distribution at other temperatures.

What belongs here: asking for it, and finding a text's own. What does not: computing it, which is done in the text's own
pass or from its cached logits (token_statistics/), and the score (detectors/).
"""

from __future__ import annotations

from collections.abc import Sequence

from audit_pipeline.catalogue.contracts import BETAS, KINDS, Kind, text_sha256
from audit_pipeline.detectors.acmia import TEMPERATURES
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.statistics import Lacking, Temperatures
from audit_pipeline.scoring.needs.provider import Provider, Read, ScoringScope, TextWithStatistics
from audit_pipeline.token_statistics.cached_texts import collect_lists_by_text, read_statistics

_NOT_RUN = Lacking("other temperatures are not cached for the text: run the model on it again")


class TemperaturesProvider(Provider[Temperatures]):
    """The distribution of every token at each of the cached inverse temperatures."""

    need = TEMPERATURES
    kinds: Sequence[Kind] = ("temperatures",)

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        self._model, self._where = scope.model, scope.where

    def missing(self) -> None:
        return None

    def read(self, texts: Sequence[str]) -> Read[Temperatures]:
        by_text = collect_lists_by_text(
            read_statistics(self._model, texts, self._where, "temperatures"), KINDS["temperatures"].statistics
        )

        def find(scored: TextWithStatistics) -> Temperatures | Lacking:
            found = by_text.get(text_sha256(scored.whole))
            if found is None:
                return _NOT_RUN
            own = {name: values.reshape(-1, len(BETAS))[scored.context_tokens :] for name, values in found.items()}
            return Temperatures(
                log_sum_p_beta=own["log_sum_p_beta"],
                mean=own["mean_at_beta"],
                std=own["std_at_beta"],
                vocab_size=self._model.vocab_size,
            )

        return find
