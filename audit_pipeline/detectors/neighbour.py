"""The text against its neighbours: texts that differ from it in a word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from audit_pipeline.detectors.detector import Detector, Outcome, Parameter, Settings
from audit_pipeline.detectors.detector_inputs import Need, TextStatistics
from audit_pipeline.detectors.loss import mean_logprob
from audit_pipeline.detectors.min_k import is_count

NEIGHBOURS: Need[Sequence[TextStatistics]] = Need("neighbours", "extra passes (neighbours)")
"""The statistics of each neighbour that the model was run on, in order; at least one."""


def _neighbour(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    """mean l(x) - the mean, over the first n neighbours, of mean l(neighbour): the loss of Mattern et al., negated.

    A neighbour without a scored token does not count. One running sum serves every n.
    """
    means = [mean_logprob(neighbour) for neighbour in statistics.of(NEIGHBOURS) if len(neighbour)]
    sums = np.cumsum(np.array(means, dtype=np.float64))
    own = mean_logprob(statistics)
    return [_outcome(own, sums, int(setting["n"])) for setting in settings]


def _outcome(own: float, sums: np.ndarray[tuple[int], np.dtype[np.float64]], n: int) -> Outcome:
    if len(sums) < n:
        return Outcome.not_applicable(f"the text has {len(sums)} neighbours of the {n} that the score averages")
    return Outcome.from_score(own - float(sums[n - 1]) / n)


NEIGHBOUR = Detector(
    name="neighbour",
    title="Neighbourhood",
    summary="mean log-likelihood of the text minus that of texts which differ from it in a word",
    source="Mattern et al., Findings of ACL 2023; n = 25 as in Duan et al., 2024",
    needs=(NEIGHBOURS,),
    passes="1 + n, and making the neighbours",
    compute=_neighbour,
    parameters={
        "n": Parameter(
            default=25,
            grid=(5, 10, 25),
            description="how many of the first neighbours are averaged",
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
        "How good the neighbours are: where the proposer puts in worse words, every text looks like a member. Fixed "
        "phrases and names have worse neighbours than plain prose."
    ),
)
