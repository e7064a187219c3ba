"""The rank of a text among all texts of its benchmark, by several detectors.

Labels and splits are never looked at, and every text is treated alike: a score depends on the texts as a set. So texts
that are exchangeable have exchangeable scores, and p-values against calibration texts hold (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import scipy

from audit_pipeline.config.problems import did_you_mean
from audit_pipeline.detectors.combined import NAME, RANKS, split_detector_names
from audit_pipeline.detectors.detector import Detector, Settings
from audit_pipeline.detectors.detector_inputs import TextStatistics, UnmetNeed
from audit_pipeline.detectors.registry import ONE_PASS
from audit_pipeline.errors import ConfigError
from audit_pipeline.scoring.needs.provider import Lookup, Provider, ScoringScope

Floats = npt.NDArray[np.float64]
Ranks = Sequence[float] | UnmetNeed

_IN_PARTS = (
    "a text is ranked among all texts of a benchmark, and a file is scored in parts: make the texts a benchmark"
    " (config/benchmarks.yaml) and audit that"
)
_IN_CONTEXT = "texts in the context of an input are not ranked"
_NOT_RUN = UnmetNeed("the model has not been run on the text when the others were ranked: run it again")


class RanksProvider(Provider[Mapping[str, Ranks]]):
    """The mid-ranks of a text by the detectors of each list that the settings name, each at its default setting.

    All texts have to be asked for at once. Raises ConfigError where a list names what is no one-pass detector.
    """

    need = RANKS

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        super().__init__(scope, settings)
        self._lists: dict[str, list[Detector]] = {}
        for of in dict.fromkeys(str(setting["of"]) for setting in settings):
            names = split_detector_names(of)
            if unknown := [name for name in names if name not in ONE_PASS]:
                hint = did_you_mean(unknown[0], ONE_PASS)
                raise ConfigError(f"{NAME}.of: there is no one-pass detector '{unknown[0]}'; {hint}")
            self._lists[of] = [ONE_PASS[name] for name in names]

    def explain_missing(self) -> str | None:
        if self._scope.in_parts:
            return _IN_PARTS
        return _IN_CONTEXT if self._scope.in_context else None

    def build_lookup(self, texts: Sequence[str]) -> Lookup[Mapping[str, Ranks]]:
        index = self._read_index(texts)
        found = {text: statistics for text in texts if (statistics := index.find(text)) is not None}
        ranked = {of: rank_texts_by_detectors(found, detectors) for of, detectors in self._lists.items()}
        return lambda scored: {of: ranks.get(scored.whole, _NOT_RUN) for of, ranks in ranked.items()}


def rank_texts_by_detectors(texts: Mapping[str, TextStatistics], detectors: Sequence[Detector]) -> Mapping[str, Ranks]:
    """Of each text its mid-rank by each detector at its default, divided by the number of texts that all of them score.

    A text that one of them does not score has none, and the reason.
    """
    lacking, scores = dict[str, UnmetNeed](), dict[str, list[float | None]]()
    for text, own in texts.items():
        outcomes = {detector.name: detector.score(own, [detector.default])[0] for detector in detectors}
        unscored = [f"{name} does not score it: {found.reason}" for name, found in outcomes.items() if found.reason]
        if unscored:
            lacking[text] = UnmetNeed(unscored[0])
        else:
            scores[text] = [outcome.score for outcome in outcomes.values()]
    table = np.array(list(scores.values()), dtype=np.float64).reshape(len(scores), len(detectors))
    return {**lacking, **dict(zip(scores, compute_mid_ranks(table).tolist(), strict=True))}


def compute_mid_ranks(scores: Floats) -> Floats:
    """The place of each of n texts among all by each of d detectors, in (0, 1]; ties share theirs: [n, d] of [n, d]."""
    return np.asarray(scipy.stats.rankdata(scores, axis=0) / max(len(scores), 1))
