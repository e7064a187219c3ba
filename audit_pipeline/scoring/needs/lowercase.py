"""The text in lower case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from audit_pipeline.detectors.lowercase import LOWERCASED
from audit_pipeline.detectors.statistics import TextStatistics
from audit_pipeline.scoring.needs.provider import DerivedTextsProvider, Read, TextWithStatistics


def list_lowercased_texts(texts: Iterable[str]) -> list[str]:
    """The texts in lower case, of those that lower case changes."""
    return [text.lower() for text in texts if text.lower() != text]


class LowercaseProvider(DerivedTextsProvider[TextStatistics]):
    """The statistics of the text in lower case; its own where it is in lower case already."""

    need = LOWERCASED
    not_run = "the model has not been run on the text in lower case: run it again"
    passes = 1

    @staticmethod
    def derived(texts: Sequence[str]) -> Sequence[str]:
        return list_lowercased_texts(texts)

    def make(self, texts: Sequence[str]) -> Sequence[str]:
        return list_lowercased_texts(texts)

    def read(self, texts: Sequence[str]) -> Read[TextStatistics]:
        index = self._read_index(self.make(texts))

        def find(scored: TextWithStatistics) -> TextStatistics | None:
            lower = scored.own.text.lower()
            return scored.own if lower == scored.own.text else index.find(lower)

        return find
