"""The Infilling Score: how much better the text's own token makes what follows than the model's first choice would."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import (
    Detector,
    Outcome,
    Parameter,
    Settings,
    boolean_parameter,
    by_group,
    reads_columns,
)
from audit_pipeline.detectors.detector_inputs import BranchStatistics, Need, TextStatistics
from audit_pipeline.detectors.min_k import K, score_lowest_means, z_scores
from audit_pipeline.tables import SIGMA_FLOOR

Floats = npt.NDArray[np.float64]

NAME = "infilling"
_SHORT_TEXT_WORDS = 32

BRANCHES: Need[BranchStatistics] = Need("branches", "extra passes (branches)", ("branches",))
"""The counterfactual branches of the text's tokens."""


def choose_future_token_count(words: int | None) -> int:
    """The number of future tokens m for texts of so many words: 1 up to 32 words, else 5 (Raoof et al. 2025, 4.4.1).

    None: texts of any length, which take 5.
    """
    return 1 if words is not None and words <= _SHORT_TEXT_WORDS else 5


def token_ratios(
    statistics: TextStatistics, branches: BranchStatistics, m: int, *, own_moments: bool = True, last_token: bool = True
) -> Floats:
    """r_i of each of the n tokens (Raoof et al. 2025, eq. 10 and 11): [n], float64.

    With z = (l - mu) / sigma at a token's own place, x*_i the argmax at i, and T the last token,
    r_i = z_i(x_i) - z_i(x*_i) + sum over j = i + 1 .. min(i + m, T) of z_j(original) - z_j(x*_i in the place of x_i);
    exactly 0 where x_i is x*_i. ``own_moments``: a branch is standardised by its own mu and sigma, as in the authors'
    code; else by the original's (Algorithm 1). ``last_token``: whether T counts as a future token; the authors' code
    leaves it out. ``m`` is at most ``branches.m``.
    """
    n = len(statistics)
    z = z_scores(statistics)
    deviation = np.maximum(statistics.std.astype(np.float64), SIGMA_FLOOR)
    ratio = np.asarray(z - (statistics.max_logprob.astype(np.float64) - statistics.mean) / deviation)
    ratio[statistics.argmax_id == statistics.token_id] = 0.0
    lengths = np.diff(branches.offsets)
    # Every value of every branch: whose it is, and which step of it.
    owner = np.repeat(np.arange(n), lengths)
    step = np.arange(len(owner)) - branches.offsets[:-1][owner] + 1
    future = owner + step
    counted = (step <= m) & (future < n if last_token else future < n - 1)
    owner, future = owner[counted], future[counted]
    if own_moments:
        branch_z = branches.z[counted].astype(np.float64)
    else:
        branch_z = (branches.logprob[counted].astype(np.float64) - statistics.mean[future]) / deviation[future]
    np.add.at(ratio, owner, z[future] - branch_z)
    return ratio


def _infilling(statistics: TextStatistics, settings: Sequence[Settings]) -> list[Outcome]:
    branches = statistics.of(BRANCHES)
    if not (np.isfinite(statistics.std).all() and np.isfinite(branches.z).all()):
        return [Outcome.failed("a token's standard deviation or a branch is not a finite number")] * len(settings)

    def group(given: Settings, same: Sequence[Settings]) -> list[Outcome]:
        m = int(given["m"])
        if m > branches.m:
            reason = f"m={m} needs branches of {m} tokens, the cache has {branches.m}: run the model with m={m}"
            return [Outcome.not_applicable(reason)] * len(same)
        ratios = token_ratios(
            statistics,
            branches,
            m,
            own_moments=given["branch_moments"] == "own",
            last_token=bool(given["last_token_as_future"]),
        )
        return score_lowest_means(ratios, same)

    return by_group(settings, ("m", "branch_moments", "last_token_as_future"), group)


INFILLING = Detector(
    name=NAME,
    title="Infilling score",
    summary="mean of the k% lowest ratios of the text's own token to the model's first choice, by what follows each",
    source="Raoof et al., ICLR 2025, eq. 10 and 11 (Infilling Score)",
    needs=(BRANCHES,),
    passes="1 + m × the share of tokens that are not the argmax",
    reads=reads_columns("mean", "std", "max_logprob", "argmax_id"),
    compute=_infilling,
    parameters={
        "k": K,
        "m": Parameter(
            default=5,
            grid=(0, 1, 3, 5, 10, 20, 50, 100),
            description="how many tokens after each are compared; benchmarks of up to 32 words have 1",
            requirement="a whole number from 0 to 1000",
            accepts=lambda value: type(value) is int and 0 <= value <= 1000,
        ),
        "branch_moments": Parameter(
            default="own",
            grid=("own",),
            description="whose mean and deviation standardise a branch: its own, or the original text's",
            requirement="own or original",
            accepts=lambda value: value in ("own", "original"),
            quiet=True,
        ),
        "last_token_as_future": boolean_parameter(
            "look at the text's last token, too; the authors' code leaves it out"
        ),
    },
    equation=(
        "mean of the max(1, int(k * n)) lowest r_i; r_i = z_i(x_i) - z_i(x*_i) + the sum over j = i + 1 ... min(i + "
        "m, n) of z_j(text as it is) - z_j(x*_i in the place of x_i), where x*_i is the model's first choice at i and "
        "z = (l - mu) / max(sigma, 1e-6) at a token's own place; r_i = 0 where x_i is x*_i"
    ),
    reported=(
        "Raoof et al. 2025 (table 1): an AUROC of 76.6, 75.8, 76.2 and 81.8 on WikiMIA at 32, 64, 128 and 256 words, "
        "the mean of seven models and, up to 128 words, of original and paraphrased texts (Min-K%++: 74.6, 73.3, 73.9 "
        "and 72.7). Which k and m are good was found on WikiMIA, too."
    ),
    also_reads=(
        "How much the text's own words prepare what follows them: a stock phrase or a repeated name scores high in a "
        "text that was never seen, so style and topic move it."
    ),
)
