"""The provider of the ranks of a text among all texts of its benchmark, by several detectors.

Labels and splits are never read, and every text is treated alike. A score depends only on the set of texts.
Exchangeable texts therefore have exchangeable scores, and p-values against calibration texts hold (docs/statistics.md).
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
from audit_pipeline.scoring.needs.provider import Lookup, Provider, ScoringScope, TextWithStatistics

Floats = npt.NDArray[np.float64]
Ranks = Sequence[float] | UnmetNeed

_IN_PARTS = (
    "a text is ranked among all texts of a benchmark, and a file is scored in parts: make the texts a benchmark"
    " (config/benchmarks.yaml) and audit that"
)
_IN_CONTEXT = "texts in the context of an input are not ranked"
_NOT_RUN = UnmetNeed("the model has not been run on the text when the others were ranked: run it again")


class RanksProvider(Provider[Mapping[str, Ranks]]):
    """The provider of a text's mid-ranks by the detectors of each list in the settings.

    Each detector has its default setting. All texts must be looked up in one call.
    """

    need = RANKS

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        """Read the lists of detectors from the settings.

        Raises:
            ConfigError: If a list names an unknown detector or a detector that requires extra passes.
        """
        super().__init__(scope, settings)
        self._detectors_by_list: dict[str, list[Detector]] = {}
        for detector_list in dict.fromkeys(str(setting["of"]) for setting in settings):
            names = split_detector_names(detector_list)
            for name in names:
                if name not in ONE_PASS:
                    hint = did_you_mean(name, ONE_PASS)
                    raise ConfigError(f"{NAME}.of: there is no one-pass detector '{name}'; {hint}")
            self._detectors_by_list[detector_list] = [ONE_PASS[name] for name in names]

    def explain_missing(self) -> str | None:
        """Return the reason why texts of a file, and texts with a context, are not ranked. None for other texts."""
        if self._scope.in_parts:
            return _IN_PARTS
        return _IN_CONTEXT if self._scope.in_context else None

    def build_lookup(self, texts: Sequence[str]) -> Lookup[Mapping[str, Ranks]]:
        """Rank all texts and return the lookup of a text's ranks by list."""
        index = self._read_index(texts)
        statistics_by_text: dict[str, TextStatistics] = {}
        for text in texts:
            statistics = index.find(text)
            if statistics is not None:
                statistics_by_text[text] = statistics
        ranks_by_list: dict[str, Mapping[str, Ranks]] = {}
        for detector_list, detectors in self._detectors_by_list.items():
            ranks_by_list[detector_list] = rank_texts_by_detectors(statistics_by_text, detectors)

        def look_up(scored: TextWithStatistics) -> Mapping[str, Ranks]:
            return {name: ranks.get(scored.model_input, _NOT_RUN) for name, ranks in ranks_by_list.items()}

        return look_up


def rank_texts_by_detectors(texts: Mapping[str, TextStatistics], detectors: Sequence[Detector]) -> Mapping[str, Ranks]:
    """Return for each text its mid-rank by each detector at its default setting.

    Ranks are divided by the number of texts that all detectors score. A text that a detector cannot score has the
    reason instead of ranks.
    """
    unscored: dict[str, UnmetNeed] = {}
    scores: dict[str, list[float | None]] = {}
    for text, statistics in texts.items():
        outcomes = {detector.name: detector.score(statistics, [detector.default])[0] for detector in detectors}
        reasons = [
            f"{name} does not score it: {outcome.reason}" for name, outcome in outcomes.items() if outcome.reason
        ]
        if reasons:
            unscored[text] = UnmetNeed(reasons[0])
        else:
            scores[text] = [outcome.score for outcome in outcomes.values()]
    table = np.array(list(scores.values()), dtype=np.float64).reshape(len(scores), len(detectors))
    ranks = compute_mid_ranks(table).tolist()
    return {**unscored, **dict(zip(scores, ranks, strict=True))}


def compute_mid_ranks(scores: Floats) -> Floats:
    """Return the mid-ranks of texts by each detector, divided by the number of texts: in (0, 1].

    Args:
        scores: Array of shape (n_texts, n_detectors).

    Returns:
        Array of shape (n_texts, n_detectors). Tied texts share their rank.
    """
    return np.asarray(scipy.stats.rankdata(scores, axis=0) / max(len(scores), 1))
