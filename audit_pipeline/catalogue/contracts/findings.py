"""Everything that is concluded from a pair's scores.

What belongs here: the declarations of the tables of findings. What does not: any statistic (metrics/, evidence/). A
table that is declared here, and that evidence/findings.py fills, is written, explained, stored and forgotten as the
others are.
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.catalogue.contracts.common import (
    BENCHMARK,
    CI_HIGH,
    CI_LOW,
    CLAIM_LEVEL,
    COLLECTION,
    DETECTOR,
    GROUP,
    IS_DEFAULT,
    MODEL,
    PARAMETERS,
    RUN_ID,
    build_rate_columns,
)
from audit_pipeline.catalogue.table import Column, Table

_AUDITED = "where the method compares audited with held-out texts: audited texts, whose label is unknown"


def _build_findings_table(
    name: str,
    comment: str,
    *,
    columns: tuple[Column, ...],
    key: tuple[str, ...] = (),
    current: str = "",
    made_from: tuple[str, ...] = ("examples", "scores"),
) -> Table:
    """A table to which every run on a pair adds its findings; ``key``: beside run, benchmark and model."""
    return Table(
        name,
        comment,
        (*columns, RUN_ID),
        ("run_id", "benchmark", "model", *key),
        per="pair",
        kept="runs",
        made_from=made_from,
        current=current,
    )


EVALUATIONS = _build_findings_table(
    "evaluations",
    "every metric of every run",
    current="the metrics",
    key=("detector", "parameters", "metric"),
    columns=(
        MODEL,
        BENCHMARK,
        DETECTOR.with_changes("the detector, or blind_control"),
        PARAMETERS,
        IS_DEFAULT,
        Column("n_members", pa.int32(), f"members with a score; {_AUDITED}", ge=0),
        Column("n_nonmembers", pa.int32(), "non-members, or held-out texts, with a score", ge=0),
        Column("n_groups", pa.int32(), "groups that the interval is over", ge=0),
        Column("n_not_scored", pa.int32(), "labelled examples of the evaluation split without a score", ge=0),
        Column("metric", pa.string(), "auroc, tpr_at_5_fpr, … (metrics/roc.py, docs/intervals.md)"),
        Column("value", pa.float64(), "the metric; null where it is not defined", null=True),
        CI_LOW,
        CI_HIGH,
        Column("method", pa.string(), "how value and interval were computed, or why they are null"),
        Column("split_verdict", pa.string(), "what the blind control says of the benchmark's two sides"),
        CLAIM_LEVEL,
    ),
)

DECISIONS = _build_findings_table(
    "decisions",
    "the thresholds that every run chose on calibration texts, and what they achieved",
    current="the thresholds, and what they achieved,",
    key=("detector", "parameters", "rule", "alpha"),
    columns=(
        MODEL,
        BENCHMARK,
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        Column(
            "rule",
            pa.string(),
            "largest_accuracy | marginal | certified: how the threshold was chosen",
            one_of=("largest_accuracy", "marginal", "certified"),
        ),
        Column(
            "alpha", pa.float64(), "the false-positive rate aimed at; null for largest_accuracy", null=True, ge=0, le=1
        ),
        Column("threshold", pa.float64(), "texts with at least this score are called members; null: none", null=True),
        Column("status", pa.string(), "ok | refused: there is no threshold, reason says why", one_of=("ok", "refused")),
        Column("reason", pa.string(), "why there is no threshold; null where there is one", null=True),
        Column("n_calibration_groups", pa.int32(), "groups of calibration non-members", ge=0),
        Column("n_calibration_nonmembers", pa.int32(), "calibration non-members with a score", ge=0),
        Column("n_calibration_members", pa.int32(), "calibration members with a score", ge=0),
        Column("n_nonmembers", pa.int32(), "evaluation non-members that the rate was achieved on", ge=0),
        *build_rate_columns("fpr", "achieved on the evaluation split, which chose nothing"),
        Column("n_members", pa.int32(), "evaluation members that the rate was achieved on", ge=0),
        *build_rate_columns("tpr", "achieved on the evaluation split"),
        Column("method", pa.string(), "how threshold and intervals were computed"),
    ),
)

GROUP_TESTS = _build_findings_table(
    "group_tests",
    "the p- and q-values of every group of every run",
    current="the p- and q-values of groups",
    key=("detector", "parameters", "group"),
    columns=(
        MODEL,
        BENCHMARK,
        GROUP,
        COLLECTION,
        Column("label", pa.int8(), "1 member, 0 non-member, null unknown or of both", null=True, ge=0, le=1),
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        Column("n_texts", pa.int32(), "texts of the group with a score", ge=0),
        Column(
            "n_compared", pa.int32(), "of them, how many the statistic is the mean of; the same in calibration", ge=0
        ),
        Column("statistic", pa.float64(), "mean score of the compared texts"),
        Column(
            "p_value",
            pa.float64(),
            "conformal: (1 + calibration groups with a statistic as high) / (n + 1)",
            ge=0,
            le=1,
        ),
        Column("q_bh", pa.float64(), "Benjamini-Hochberg over the groups tested by this detector", ge=0, le=1),
        Column("q_by", pa.float64(), "Benjamini-Yekutieli over the groups tested by this detector", ge=0, le=1),
        Column(
            "q_ledger", pa.float64(), "Benjamini-Yekutieli over the groups and every detector of the pair", ge=0, le=1
        ),
        Column("n_calibration_groups", pa.int32(), "calibration groups that it was compared with", ge=0),
        Column("n_tests", pa.int32(), "groups tested by this detector", ge=0),
        Column("n_ledger", pa.int32(), "groups tested by all detectors of the pair", ge=0),
        CLAIM_LEVEL,
        Column("method", pa.string(), "how the p-value was computed"),
        Column(
            "direction",
            pa.string(),
            "which of the pair's labelled texts the detector scores higher: training (members) | opposite "
            "(non-members) | none (neither, clearly); null: no texts of a side are known",
            null=True,
            one_of=("training", "opposite", "none"),
        ),
    ),
)

CONTAMINATION_RATES = _build_findings_table(
    "contamination_rates",
    "the share of texts flagged in every group, collection and benchmark",
    current="the contamination rates",
    key=("detector", "parameters", "rule", "alpha", "unit", "name"),
    columns=(
        MODEL,
        BENCHMARK,
        Column(
            "unit",
            pa.string(),
            "group | collection | benchmark: what the rate is of",
            one_of=("group", "collection", "benchmark"),
        ),
        Column("name", pa.string(), "the group, collection or benchmark"),
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        Column(
            "rule",
            pa.string(),
            "largest_accuracy | marginal | certified: the threshold that flags",
            one_of=("largest_accuracy", "marginal", "certified"),
        ),
        Column(
            "alpha", pa.float64(), "the false-positive rate aimed at; null for largest_accuracy", null=True, ge=0, le=1
        ),
        Column("n_texts", pa.int32(), "texts with a score", ge=0),
        Column("n_groups", pa.int32(), "groups that they are of", ge=0),
        Column("n_flagged", pa.int32(), "texts with at least the threshold's score", ge=0),
        *build_rate_columns(
            "flagged", "their share: as table 4 of Raoof et al. 2025 and table 2 of Shi et al. 2024", null=False
        ),
        *build_rate_columns("fpr", "of the threshold on calibration non-members"),
        *build_rate_columns("tpr", "of the threshold on calibration members"),
        Column("status", pa.string(), "ok | refused: of the corrected rate", one_of=("ok", "refused")),
        Column("reason", pa.string(), "why there is no corrected rate; null where there is one", null=True),
        Column("corrected", pa.float64(), "(flagged - FPR) / (TPR - FPR), clipped to 0 and 1", null=True, ge=0, le=1),
        Column(
            "corrected_low",
            pa.float64(),
            "lower end of its 95% interval, over all three terms; null where the calibration texts contradict it",
            null=True,
            ge=0,
            le=1,
        ),
        Column("corrected_high", pa.float64(), "upper end of its 95% interval", null=True, ge=0, le=1),
        Column("assumption", pa.string(), "what must be true for the corrected rate to hold"),
        CLAIM_LEVEL,
    ),
)

COMPARISONS = _build_findings_table(
    "comparisons",
    "pairs of detectors compared on the same texts",
    current="the comparisons of detectors",
    key=("detector", "parameters", "other", "other_parameters"),
    columns=(
        MODEL,
        BENCHMARK,
        DETECTOR,
        Column("parameters", pa.string(), "canonical JSON of its parameters"),
        Column("other", pa.string(), "the detector it is compared with, or blind_control"),
        Column("other_parameters", pa.string(), "canonical JSON of its parameters"),
        Column("n_members", pa.int32(), f"members with a score of both; {_AUDITED}", ge=0),
        Column("n_nonmembers", pa.int32(), "non-members, or held-out texts, with a score of both", ge=0),
        Column("n_groups", pa.int32(), "groups that the standard error is over", ge=0),
        Column(
            "difference", pa.float64(), "AUROC of the detector less that of the other, on the same texts", ge=-1, le=1
        ),
        Column(
            "standard_error",
            pa.float64(),
            "of the difference, over the groups; null where there is none",
            null=True,
            ge=0,
        ),
        CI_LOW,
        CI_HIGH,
        Column(
            "p_value",
            pa.float64(),
            "two-sided, of no difference; null where there is no standard error",
            null=True,
            ge=0,
            le=1,
        ),
        Column("method", pa.string(), "how interval and p-value were computed, or why they are null"),
    ),
)

CALIBRATION_CHECKS = _build_findings_table(
    "calibration_checks",
    "the false-positive rate that thresholds keep on held-out halves",
    current="the calibration checks",
    key=("detector", "parameters", "rule", "alpha"),
    columns=(
        MODEL,
        BENCHMARK,
        DETECTOR,
        PARAMETERS,
        Column("rule", pa.string(), "marginal | certified", one_of=("marginal", "certified")),
        Column("alpha", pa.float64(), "the false-positive rate aimed at", ge=0, le=1),
        Column("splits", pa.int32(), "random halves that the non-members were divided into", ge=0),
        Column("n_groups", pa.int32(), "groups of non-members", ge=0),
        Column(
            "mean_fpr",
            pa.float64(),
            "mean false-positive rate on the other halves; null: refused",
            null=True,
            ge=0,
            le=1,
        ),
        Column("standard_error", pa.float64(), "of that mean over the splits (they overlap)", null=True, ge=0),
        Column("over_alpha", pa.float64(), "share of the splits whose rate exceeds alpha", null=True, ge=0, le=1),
        Column("reason", pa.string(), "why there is none; null where there is one", null=True),
    ),
)

# Several commands add tests of their own, so that the latest run does not hold the latest of each: its view says which.
CORPUS_TESTS = _build_findings_table(
    "corpus_tests",
    "tests of a whole set of texts at once; current_corpus_tests holds the latest of each test",
    key=("test",),
    columns=(
        MODEL,
        Column("benchmark", pa.string(), "the benchmark, set of canaries or test set"),
        Column(
            "test",
            pa.string(),
            "dataset_inference | canary_rank | sharded_permutation",
            one_of=("dataset_inference", "canary_rank", "sharded_permutation"),
        ),
        Column(
            "status",
            pa.string(),
            "ok | refused: the test's conditions are not met, reason says which",
            one_of=("ok", "refused"),
        ),
        Column("reason", pa.string(), "why there is no p-value; null where there is one", null=True),
        Column(
            "p_value", pa.float64(), "one-sided: the smaller, the less likely without training", null=True, ge=0, le=1
        ),
        Column("statistic", pa.float64(), "what the test compares", null=True),
        Column("n", pa.int64(), "audited texts, published canaries, or items of the test set", ge=0),
        Column(
            "n_held_out", pa.int64(), "held-out texts, other canaries or permutations that it is compared with", ge=0
        ),
        Column("assumption", pa.string(), "what must be true for the p-value to hold"),
        CLAIM_LEVEL,
        Column("method", pa.string(), "how it was computed"),
        Column(
            "direction",
            pa.string(),
            "which texts score higher where a difference is found (5%): training (audited ones) | opposite (held-out "
            "ones) | none; null: the test knows one direction only, or was refused",
            null=True,
            one_of=("training", "opposite", "none"),
        ),
        Column(
            "detectable_auroc",
            pa.float64(),
            "how often an audited text (or the published order) has to be the likelier one for this test to find it"
            " four times in five, with one p-value at 5%; null: refused, or a rank of canaries, which is exact",
            null=True,
            ge=0,
            le=1,
        ),
    ),
)

PAIR_ANSWERS = _build_findings_table(
    "pair_answers",
    "what the scores of a model on a benchmark come to, in words, as every run concluded it",
    current="the answers from scores",
    made_from=("evaluations", "group_tests", "decisions", "contamination_rates", "corpus_tests"),
    columns=(
        MODEL,
        BENCHMARK,
        Column("outcome", pa.string(), "the kind of the answer"),
        Column(
            "sign",
            pa.string(),
            "found | stands out | nothing found | no conclusion: what the kind comes to",
            one_of=("found", "stands out", "nothing found", "no conclusion"),
        ),
        Column("headline", pa.string(), "the answer in one sentence"),
        Column("explanation", pa.string(), "in a few sentences, which say no more than the claim level allows"),
        Column("question", pa.string(), "what was asked"),
        Column("how_sure", pa.string(), "how sure the answer is; no more than the claim level allows"),
        Column("what_would_change", pa.string(), "what would change the answer"),
        Column("sides", pa.string(), "what an AUROC compares: labelled | audited against held-out | none"),
        CLAIM_LEVEL.with_changes(null=True, description="null where nothing was evaluated"),
        Column("claim_stated_by", pa.string(), "whose word the level rests on; null: more than a word", null=True),
        Column("split_verdict", pa.string(), "what the blind control says of the two sides", null=True),
        DETECTOR.with_changes("the detector that answers; null where none of several was named", null=True),
        Column(
            "detector_chosen",
            pa.string(),
            "default: one of ours; named; alone: the only one",
            null=True,
            one_of=("default", "named", "alone"),
        ),
        PARAMETERS.with_changes(null=True),
        Column("warning", pa.string(), "what to heed when reading the AUROC", null=True),
        Column("tested", pa.int64(), "documents (groups of texts) that were tested; null: none", null=True, ge=0),
        Column(
            "standing_out",
            pa.int64(),
            "of them, those with q_bh at most 0.05; where no detector was named, q_ledger by some detector",
            null=True,
            ge=0,
        ),
        Column(
            "detectors", pa.int64(), "detectors that the q-values allow for: 1 where one was named", null=True, ge=0
        ),
        Column("tests", pa.int64(), "p-values that they allow for: documents times detectors", null=True, ge=0),
        Column(
            "can_stand_out",
            pa.int64(),
            "of these, those by detectors of which it is not known that they run against training",
            null=True,
            ge=0,
        ),
        Column(
            "direction",
            pa.string(),
            "which of the labelled texts score higher: training (members) | opposite | none; null: none are known",
            null=True,
            one_of=("training", "opposite", "none"),
        ),
        Column("calibration_groups", pa.int64(), "the fewest comparison documents of any test", null=True, ge=0),
        Column("calibration_groups_in_all", pa.int64(), "comparison documents that there are", null=True, ge=0),
        Column("smallest_q", pa.float64(), "the smallest q-value that so many allow", null=True, ge=0, le=1),
    ),
)
