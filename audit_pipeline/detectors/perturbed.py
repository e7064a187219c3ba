"""Neighbourhood and PAC: the text compared with changed copies of it, which the model reads in extra passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings, for_each_setting
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.detectors.loss import compute_mean_logprob
from audit_pipeline.detectors.min_k import K, compute_lowest_means, is_count

NEIGHBOURS: Need[Sequence[TextStatistics]] = Need("neighbours", "extra passes (neighbours)", ("topk",))
"""The requirement of the statistics of the text's neighbours, in order. There is at least one neighbour."""


def _score_neighbours(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    """Score each setting by mean l(x) minus the mean of l over the tokens of a neighbour, averaged over n neighbours.

    This is the loss difference of Mattern et al., negated. Neighbours without a scored token are ignored. The first
    n other neighbours are used. One running sum serves every n.
    """
    means = [compute_mean_logprob(neighbour) for neighbour in statistics.get_extra(NEIGHBOURS) if len(neighbour)]
    sums = np.cumsum(np.array(means, dtype=np.float64))
    mean = compute_mean_logprob(statistics)
    scores = []
    for setting in settings:
        n = int(setting["n"])
        if len(sums) < n:
            reason = f"the text has {len(sums)} neighbours, but the score averages {n}"
            scores.append(Outcome.not_applicable(reason))
        else:
            scores.append(Outcome.from_score(mean - float(sums[n - 1]) / n))
    return scores


NEIGHBOUR = Detector(
    name="neighbour",
    title="Neighbourhood",
    summary="mean log-likelihood of the text minus that of texts which differ from it in a token",
    source="Mattern et al., Findings of ACL 2023; n = 25 as in Duan et al., 2024",
    needs=(NEIGHBOURS,),
    passes="1 + n, and the passes that make the neighbours",
    compute=_score_neighbours,
    parameters={
        "n": Parameter(
            default=25,
            grid=(5, 10, 25),
            description="the number of neighbours that are averaged, in order",
            requirement="a whole number above 0",
            accepts=is_count,
        )
    },
    on_request=True,
    equation="(mean of l_t over the text) - (mean over the first n neighbours of the mean of l_t over the neighbour)",
    reported=(
        "No figure of Mattern et al. 2023 is given here. In Zhang et al. 2025 it has an AUROC of 66.6, 64.9 and 69.3 "
        "on WikiMIA at 32, 64 and 128 words, the mean of five models (table 1), and 52.0 to 53.8 on MIMIR (table 2)."
    ),
    also_reads=(
        "How good the neighbours are: if the proposer inserts worse words, every text looks like a member. Fixed "
        "phrases and names have worse neighbours than plain prose."
    ),
)


TEXT = "text"
STREAM = "stream"
_SEEDS = (TEXT, STREAM)
_LOWEST_SHARE = 0.3
_HIGHEST_SHARE = 0.05


class CopySettings(NamedTuple):
    """The settings by which copies of a text with swapped words are made.

    Attributes:
        alpha: The share of words that are swapped in a copy.
        n: The number of copies.
        seeds: The source of random numbers: `text` (a seed from the text) or `stream` (one stream for all texts).
    """

    alpha: float
    n: int
    seeds: str

    @classmethod
    def from_setting(cls, setting: Settings) -> CopySettings:
        """Return the copying settings in a setting of PAC."""
        return cls(float(setting["alpha"]), int(setting["n"]), str(setting["seeds"]))


COPIES: Need[Mapping[CopySettings, Sequence[TextStatistics]]] = Need(
    "copies", "extra passes (copies with words swapped)"
)
"""The requirement of the statistics of all n copies of the text, by copying settings."""


def compute_polarized_distance(logprob: npt.ArrayLike) -> float:
    """Compute the mean of the highest 5% minus the mean of the lowest 30% of n >= 1 log-likelihoods, in nats.

    Each mean includes at least one value. The distance is NaN if a value is not finite.
    """
    values = np.asarray(logprob, dtype=np.float64)
    [highest] = -compute_lowest_means(-values, [_HIGHEST_SHARE])
    [lowest] = compute_lowest_means(values, [_LOWEST_SHARE])
    return float(highest - lowest)


def _score_pac(statistics: TextStatistics, setting: Settings) -> Outcome:
    """Compute the mean polarised distance of the copies minus that of the text, which is the authors' score, negated.

    In a text that the model has read, few tokens are far less likely than the others. Swapping words changes that.
    """
    copies = statistics.get_extra(COPIES)[CopySettings.from_setting(setting)]
    distance = compute_polarized_distance(statistics.logprob)
    if all(copy.text == statistics.text for copy in copies):
        return Outcome.not_applicable("no copy differs from the text: it has no two words that could be swapped")
    if not all(len(copy) for copy in copies):
        return Outcome.not_applicable("a copy of the text has no scored token")
    distances = [compute_polarized_distance(copy.logprob) for copy in copies]
    return Outcome.from_score(float(np.mean(distances)) - distance)


PAC = Detector(
    name="pac",
    title="PAC",
    summary="how much swapped words increase the distance between the likeliest and the least likely tokens",
    source="Ye et al., Findings of ACL 2024 (PAC)",
    needs=(COPIES,),
    passes="1 + n",
    compute=for_each_setting(_score_pac),
    parameters={
        "alpha": replace(K, default=0.3, grid=(0.3,), description="the share of the words that is swapped in a copy"),
        "n": Parameter(
            default=5,
            grid=(5,),
            description="the number of copies that are averaged; each needs one pass",
            requirement="a whole number above 0",
            accepts=is_count,
        ),
        "seeds": Parameter(
            default=TEXT,
            grid=(TEXT,),
            description="the seed of the random swaps: the text itself (text), or one seed for the whole file (stream)",
            requirement=f"{TEXT} or {STREAM}",
            accepts=lambda value: value in _SEEDS,
            quiet=True,
        ),
    },
    on_request=True,
    equation=(
        "mean over n copies of PD(copy) - PD(x); PD = mean of the max(1, int(0.05 n_t)) highest of the n_t values l_t "
        "- mean of the max(1, int(0.3 n_t)) lowest; a copy is the text after max(1, int(alpha * words)) swaps of "
        "words"
    ),
    reported=(
        "The abstract of Ye et al. 2024: 4.5 AUC points more than other detectors on WikiMIA on average, and 5.9 on "
        "StackMIAsub. Their copies use one stream of random numbers, so they depend on a text's position in the file."
    ),
    also_reads=(
        "How much swapping words spoils the text: free word order, lists and code suffer less than prose with a "
        "strict word order. Texts without blanks between words have no copies."
    ),
)
