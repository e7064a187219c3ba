"""Neighbourhood: the text compared with neighbours, texts that differ from it in one token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.detectors.loss import compute_mean_logprob
from audit_pipeline.detectors.min_k import is_count

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
            reason = f"the text has {len(sums)} neighbours of the {n} that the score averages"
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
    passes="1 + n, and making the neighbours",
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
