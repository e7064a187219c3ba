"""The text in lower case.

What belongs here: which texts have one, and the model's pass over them. What does not: the score (detectors/).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.lowercase import LOWERCASED
from audit_pipeline.detectors.statistics import Lacking, StatisticsIndex, TextStatistics
from audit_pipeline.scoring.needs.provider import (
    BY_ITSELF,
    OnProgress,
    Provider,
    Read,
    ScoringScope,
    TextWithStatistics,
)
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import Plan, plan, read_statistics
from audit_pipeline.token_statistics.run import RunSummary, compute

_NOT_RUN = Lacking("the model has not been run on the text in lower case: run it again")


def list_lowercased_texts(texts: Iterable[str]) -> list[str]:
    """The texts in lower case, of those that lower case changes."""
    return [text.lower() for text in texts if text.lower() != text]


class LowercaseProvider(Provider[TextStatistics]):
    """The statistics of the text in lower case; its own where it is in lower case already."""

    need = LOWERCASED
    passes = 1

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        self._model, self._where = scope.model, scope.where
        self._in_context = scope.in_context

    @staticmethod
    def derived(texts: Sequence[str]) -> Sequence[str]:
        return list_lowercased_texts(texts)

    def missing(self) -> str | None:
        return BY_ITSELF if self._in_context else None

    def plan(self, texts: Sequence[str]) -> Plan:
        return plan(self._model, list_lowercased_texts(texts), self._where)

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        backend = partial(backend_of, self._model)
        return compute(self._model, list_lowercased_texts(texts), self._where, backend, on_progress=on_progress)

    def read(self, texts: Sequence[str]) -> Read[TextStatistics]:
        index = StatisticsIndex(
            read_statistics(self._model, list_lowercased_texts(texts), self._where), self._model.gives
        )

        def find(scored: TextWithStatistics) -> TextStatistics | Lacking:
            lower = scored.own.text.lower()
            found = scored.own if lower == scored.own.text else index.find(lower)
            return _NOT_RUN if found is None else found

        return find
