"""The text in lower case."""

from __future__ import annotations

from collections.abc import Sequence

from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.lowercase import LOWERCASED
from audit_pipeline.scoring.needs.provider import DerivedTextsProvider, Lookup, TextWithStatistics


class LowercaseProvider(DerivedTextsProvider[TextStatistics]):
    """The statistics of the text in lower case; its own where it is in lower case already."""

    need = LOWERCASED
    not_run = "the model has not been run on the text in lower case: run it again"
    passes = 1

    @staticmethod
    def list_derived(texts: Sequence[str]) -> Sequence[str]:
        return [text.lower() for text in texts if text.lower() != text]

    def build_lookup(self, texts: Sequence[str]) -> Lookup[TextStatistics]:
        index = self._read_index(self._flatten_derived_texts(texts))

        def find(scored: TextWithStatistics) -> TextStatistics | None:
            lower = scored.own.text.lower()
            return scored.own if lower == scored.own.text else index.find(lower)

        return find
