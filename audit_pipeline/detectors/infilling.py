"""Infilling Score: how well the text's own token, rather than the model's first choice, predicts the next tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors import detector
from audit_pipeline.detectors.detector_inputs import BranchStatistics, Need, TextStatistics
from audit_pipeline.detectors.min_k import K, compute_z_scores, score_lowest_means
from audit_pipeline.tables import SIGMA_FLOOR

Floats = npt.NDArray[np.float64]

NAME = "infilling"
_SHORT_TEXT_WORDS = 32

BRANCHES: Need[BranchStatistics] = Need("branches", "extra passes (branches)", ("branches",))
"""The requirement of counterfactual branches: the text's next tokens after a token is replaced."""


def choose_future_token_count(words: int | None) -> int:
    """Return the number m of future tokens: 1 for texts of up to 32 words, else 5 (Raoof et al. 2025, section 4.4.1).

    ``words`` is None for texts of any length, which use 5.
    """
    return 1 if words is not None and words <= _SHORT_TEXT_WORDS else 5


def compute_token_ratios(
    statistics: TextStatistics, branches: BranchStatistics, m: int, *, own_moments: bool = True, last_token: bool = True
) -> Floats:
    """Compute r_i of each of the n tokens (Raoof et al. 2025, eq. 10 and 11).

    z = (l - mu) / sigma is the standardised log-probability of a token at its position. x*_i is the argmax at i, and T
    is the last token. Then

        r_i = z_i(x_i) - z_i(x*_i) + sum over j = i + 1 .. min(i + m, T) of z_j(original) - z_j(x*_i replaces x_i)

    r_i is exactly 0 if x_i is x*_i.

    Args:
        statistics: The statistics of the text.
        branches: The branches of the text.
        m: The number of future tokens, at most ``branches.m``.
        own_moments: True standardises a branch by its own mean and standard deviation, as in the authors' code. False
            uses those of the original text (Algorithm 1 in the paper).
        last_token: True includes the last token T among the future tokens. The authors' code omits it.

    Returns:
        A float64 array of shape (n,).
    """
    n = len(statistics)
    z = compute_z_scores(statistics)
    deviation = np.maximum(statistics.std.astype(np.float64), SIGMA_FLOOR)
    ratio = np.asarray(z - (statistics.max_logprob.astype(np.float64) - statistics.mean) / deviation)
    ratio[statistics.argmax_id == statistics.token_id] = 0.0
    lengths = np.diff(branches.offsets)
    # Each value of a branch has three indices. These are the position i of the branch, the step within the branch, and
    # the position j in the text.
    position = np.repeat(np.arange(n), lengths)
    step = np.arange(len(position)) - branches.offsets[:-1][position] + 1
    future = position + step
    end = n if last_token else n - 1
    is_counted = (step <= m) & (future < end)
    position = position[is_counted]
    future = future[is_counted]
    if own_moments:
        branch_z = branches.z[is_counted].astype(np.float64)
    else:
        branch_z = (branches.logprob[is_counted].astype(np.float64) - statistics.mean[future]) / deviation[future]
    np.add.at(ratio, position, z[future] - branch_z)
    return ratio


def _score_infilling(statistics: TextStatistics, settings: Sequence[detector.Settings]) -> list[detector.Outcome]:
    branches = statistics.get_extra(BRANCHES)
    if not (np.isfinite(statistics.std).all() and np.isfinite(branches.z).all()):
        return [detector.Outcome.failed("a token's standard deviation or a branch is not a finite number")] * len(
            settings
        )

    def score_group(shared: detector.Settings, group: Sequence[detector.Settings]) -> list[detector.Outcome]:
        m = int(shared["m"])
        if m > branches.m:
            reason = f"m={m} requires branches of {m} tokens, but the cache has {branches.m}. Run the model with m={m}."
            return [detector.Outcome.not_applicable(reason)] * len(group)
        ratios = compute_token_ratios(
            statistics,
            branches,
            m,
            own_moments=shared["branch_moments"] == "own",
            last_token=bool(shared["last_token_as_future"]),
        )
        return score_lowest_means(ratios, group)

    return detector.by_group(settings, ("m", "branch_moments", "last_token_as_future"), score_group)


INFILLING = detector.Detector(
    name=NAME,
    title="Infilling score",
    summary="how much better the text's tokens predict the following tokens than the model's first choices do: mean of "
    "the k% lowest",
    source="Raoof et al., ICLR 2025, eq. 10 and 11 (Infilling Score)",
    needs=(BRANCHES,),
    passes="1 + m × the share of tokens that are not the argmax",
    reads=detector.reads_columns("mean", "std", "max_logprob", "argmax_id"),
    compute=_score_infilling,
    parameters={
        "k": K,
        "m": detector.Parameter(
            default=5,
            grid=(0, 1, 3, 5, 10, 20, 50, 100),
            description=(
                "the number of following tokens that are compared; benchmarks with texts of up to 32 words use 1"
            ),
            requirement="a whole number from 0 to 1000",
            accepts=lambda value: type(value) is int and 0 <= value <= 1000,
        ),
        "branch_moments": detector.Parameter(
            default="own",
            grid=("own",),
            description="the mean and standard deviation that standardise a branch: of the branch itself (own), or of "
            "the original text (original)",
            requirement="own or original",
            accepts=lambda value: value in ("own", "original"),
            quiet=True,
        ),
        "last_token_as_future": detector.boolean_parameter(
            "compare the text's last token, too; the authors' code omits it"
        ),
    },
    equation=(
        "mean of the max(1, int(k * n)) lowest r_i; r_i = z_i(x_i) - z_i(x*_i) + the sum over j = i + 1 ... min(i + "
        "m, n) of z_j(original text) - z_j(text with x*_i instead of x_i); x*_i is the model's first choice at i, and "
        "z = (l - mu) / max(sigma, 1e-6) at a token's position; r_i = 0 if x_i is x*_i"
    ),
    reported=(
        "Raoof et al. 2025 (table 1) report AUROCs of 76.6, 75.8, 76.2 and 81.8 on WikiMIA at 32, 64, 128 and 256 "
        "words. Min-K%++ has 74.6, 73.3, 73.9 and 72.7. The figures are means over seven models, and up to 128 words "
        "also over original and paraphrased texts. The authors chose k and m on WikiMIA, too, so the figures may be "
        "too high."
    ),
    also_reads=(
        "How well the text's words predict the following words: a stock phrase or a repeated name scores high in a "
        "text that was never seen. So style and topic change the score."
    ),
)
