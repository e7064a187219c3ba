"""Everything that is concluded from a pair's scores: tables that statistics/findings.py fills."""

from __future__ import annotations

from functools import partial

from audit_pipeline.tables.common import (
    CI_HIGH,
    CI_LOW,
    CLAIM_LEVEL,
    COLLECTION,
    DETECTOR,
    GROUP,
    IS_DEFAULT,
    PARAMETERS,
    build_rate_columns,
    build_run_table,
)
from audit_pipeline.tables.table import choice, count, double, fraction, int8, int64, string

_AUDITED = "where the method compares audited with held-out texts: audited texts, whose label is unknown"


_build_findings_table = partial(build_run_table, made_from=("examples", "scores"))

EVALUATIONS = _build_findings_table(
    "evaluations",
    "every metric of every run",
    current="the metrics",
    key=("detector", "parameters", "metric"),
    columns=(
        DETECTOR.with_changes("the detector, or blind_control"),
        PARAMETERS,
        IS_DEFAULT,
        count("n_members", f"members with a score; {_AUDITED}"),
        count("n_nonmembers", "non-members, or held-out texts, with a score"),
        count("n_groups", "groups that the interval is over"),
        count("n_not_scored", "labelled examples of the evaluation split without a score"),
        string("metric", "auroc, tpr_at_5_fpr, … (statistics/roc.py, docs/intervals.md)"),
        double("value", "the metric; null where it is not defined", null=True),
        CI_LOW,
        CI_HIGH,
        string("method", "how value and interval were computed, or why they are null"),
        string("split_verdict", "what the blind control says of the benchmark's two sides"),
        CLAIM_LEVEL,
    ),
)

DECISIONS = _build_findings_table(
    "decisions",
    "the thresholds that every run chose on calibration texts, and what they achieved",
    current="the thresholds, and what they achieved,",
    key=("detector", "parameters", "rule", "alpha"),
    columns=(
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        choice("rule", ("largest_accuracy", "marginal", "certified"), "how the threshold was chosen"),
        fraction("alpha", "the false-positive rate aimed at; null for largest_accuracy", null=True),
        double("threshold", "texts with at least this score are called members; null: none", null=True),
        choice("status", ("ok", "refused"), "there is no threshold, reason says why"),
        string("reason", "why there is no threshold; null: there is one", null=True),
        count("n_calibration_groups", "groups of calibration non-members"),
        count("n_calibration_nonmembers", "calibration non-members with a score"),
        count("n_calibration_members", "calibration members with a score"),
        count("n_nonmembers", "evaluation non-members that the rate was achieved on"),
        *build_rate_columns("fpr", "achieved on the evaluation split, which chose nothing"),
        count("n_members", "evaluation members that the rate was achieved on"),
        *build_rate_columns("tpr", "achieved on the evaluation split"),
        string("method", "how threshold and intervals were computed"),
    ),
)

GROUP_TESTS = _build_findings_table(
    "group_tests",
    "the p- and q-values of every group of every run",
    order="any",
    current="the p- and q-values of groups",
    key=("detector", "parameters", "group"),
    columns=(
        GROUP,
        COLLECTION,
        int8("label", "1 member, 0 non-member, null unknown or of both", null=True, ge=0, le=1),
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        count("n_texts", "texts of the group with a score"),
        count("n_compared", "of them, how many the statistic is the mean of; the same in calibration"),
        double("statistic", "mean score of the compared texts"),
        fraction("p_value", "conformal: (1 + calibration groups with a statistic as high) / (n + 1)"),
        fraction("q_bh", "Benjamini-Hochberg over the groups tested by this detector"),
        fraction("q_by", "Benjamini-Yekutieli over the groups tested by this detector"),
        fraction("q_ledger", "Benjamini-Yekutieli over the groups and every detector of the pair"),
        count("n_calibration_groups", "calibration groups that it was compared with"),
        count("n_tests", "groups tested by this detector"),
        count("n_ledger", "groups tested by all detectors of the pair"),
        CLAIM_LEVEL,
        string("method", "how the p-value was computed"),
        string(
            "direction",
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
    order="any",
    current="the contamination rates",
    key=("detector", "parameters", "rule", "alpha", "unit", "name"),
    columns=(
        choice("unit", ("group", "collection", "benchmark"), "what the rate is of"),
        string("name", "the group, collection or benchmark"),
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        choice("rule", ("largest_accuracy", "marginal", "certified"), "the threshold that flags"),
        fraction("alpha", "the false-positive rate aimed at; null for largest_accuracy", null=True),
        count("n_texts", "texts with a score"),
        count("n_groups", "groups that they are of"),
        count("n_flagged", "texts with at least the threshold's score"),
        *build_rate_columns(
            "flagged", "their share: as table 4 of Raoof et al. 2025 and table 2 of Shi et al. 2024", null=False
        ),
        *build_rate_columns("fpr", "of the threshold on calibration non-members"),
        *build_rate_columns("tpr", "of the threshold on calibration members"),
        choice("status", ("ok", "refused"), "of the corrected rate"),
        string("reason", "why there is no corrected rate; null: there is one", null=True),
        fraction("corrected", "(flagged - FPR) / (TPR - FPR), clipped to 0 and 1", null=True),
        fraction(
            "corrected_low",
            "lower end of its 95% interval, over all three terms; null where the calibration texts contradict it",
            null=True,
        ),
        fraction("corrected_high", "upper end of its 95% interval", null=True),
        string("assumption", "what must be true for the corrected rate to hold"),
        CLAIM_LEVEL,
    ),
)

COMPARISONS = _build_findings_table(
    "comparisons",
    "pairs of detectors compared on the same texts",
    current="the comparisons of detectors",
    key=("detector", "parameters", "other", "other_parameters"),
    columns=(
        DETECTOR,
        string("parameters", "canonical JSON of its parameters"),
        string("other", "the detector it is compared with, or blind_control"),
        string("other_parameters", "canonical JSON of its parameters"),
        count("n_members", f"members with a score of both; {_AUDITED}"),
        count("n_nonmembers", "non-members, or held-out texts, with a score of both"),
        count("n_groups", "groups that the standard error is over"),
        double("difference", "AUROC of the detector minus that of the other, on the same texts", ge=-1, le=1),
        double("standard_error", "of the difference, over the groups; null where there is none", null=True, ge=0),
        CI_LOW,
        CI_HIGH,
        fraction("p_value", "two-sided, of no difference; null where there is no standard error", null=True),
        string("method", "how interval and p-value were computed, or why they are null"),
    ),
)

CALIBRATION_CHECKS = _build_findings_table(
    "calibration_checks",
    "the false-positive rate that thresholds keep on held-out halves",
    current="the calibration checks",
    key=("detector", "parameters", "rule", "alpha"),
    columns=(
        DETECTOR,
        PARAMETERS,
        choice("rule", ("marginal", "certified")),
        fraction("alpha", "the false-positive rate aimed at"),
        count("splits", "random halves that the non-members were divided into"),
        count("n_groups", "groups of non-members"),
        fraction("mean_fpr", "mean false-positive rate on the other halves; null: refused", null=True),
        double("standard_error", "of that mean over the splits (they overlap)", null=True, ge=0),
        fraction("over_alpha", "share of the splits whose rate exceeds alpha", null=True),
        string("reason", "why there is none; null: there is one", null=True),
    ),
)

# Several commands add tests of their own, so that the latest run does not hold the latest of each: its view says which.
CORPUS_TESTS = _build_findings_table(
    "corpus_tests",
    "tests of a whole set of texts at once; current_corpus_tests holds the latest of each test",
    key=("test",),
    benchmark=string("benchmark", "the benchmark, secret file of twins or test set"),
    columns=(
        choice("test", ("dataset_inference", "twins", "sharded_permutation")),
        choice("status", ("ok", "refused"), "the test's conditions are not met, reason says which"),
        string("reason", "why there is no p-value; null: there is one", null=True),
        fraction("p_value", "one-sided: the smaller, the less likely without training", null=True),
        double("statistic", "what the test compares", null=True),
        int64("n", "audited texts, items of twins, or items of the test set", ge=0),
        int64("n_held_out", "held-out texts, secret versions or permutations that it is compared with", ge=0),
        string("assumption", "what must be true for the p-value to hold"),
        CLAIM_LEVEL,
        string("method", "how it was computed"),
        string(
            "direction",
            "which texts score higher where a difference is found (5%): training (audited ones) | opposite (held-out "
            "ones) | none; null: the test knows one direction only, or was refused",
            null=True,
            one_of=("training", "opposite", "none"),
        ),
        double(
            "detectable_auroc",
            "how often an audited text (or the published order or version) has to be the likelier one for this test to"
            " find it four times in five, with one p-value at 5%; above 1: it never is; null: refused",
            null=True,
            ge=0,
        ),
    ),
)

TWINS = _build_findings_table(
    "twins",
    "tests whether a model scores published versions above secret ones, by detector and group; p_value is of that row "
    "alone, and the answer is that of corpus_tests",
    current="the tests of twins",
    key=("detector", "parameters", "group"),
    benchmark=string("benchmark", "the benchmark or secret file of the items"),
    made_from=("examples",),
    columns=(
        DETECTOR.with_changes("the detector; all: those that were chosen beforehand, together"),
        PARAMETERS,
        GROUP.with_changes("the group of items; empty: all items"),
        count("items", "items with a score of every version"),
        count("left_out", "items that lack a score of a version"),
        count("others", "versions of these items that were not published"),
        *build_rate_columns(
            "superiority",
            "mean over items of the share of an item's other versions that its published version scores above (ties "
            "half), so that every item counts once; 0.5: chance",
        ),
        fraction("p_value", "of the sum of ranks under the draw, one-sided; null: refused", null=True),
        double("detectable_auroc", "the superiority that it would find four times in five", null=True, ge=0),
        string("reason", "why there is no p-value; null where there is one", null=True),
        string("method", "how p-value and interval were computed"),
    ),
)

PAIR_ANSWERS = _build_findings_table(
    "pair_answers",
    "what the scores of a model on a benchmark come to, in words, as every run concluded it",
    current="the answers from scores",
    made_from=("evaluations", "group_tests", "decisions", "contamination_rates", "corpus_tests"),
    columns=(
        string("outcome", "the kind of the answer"),
        choice("sign", ("found", "stands out", "nothing found", "no conclusion"), "what the kind comes to"),
        string("headline", "the answer in one sentence"),
        string("explanation", "in a few sentences, which say no more than the claim level allows"),
        string("question", "what was asked"),
        string("how_sure", "how sure the answer is; no more than the claim level allows"),
        string("what_would_change", "what would change the answer"),
        string("sides", "what an AUROC compares: labelled | audited against held-out | none"),
        CLAIM_LEVEL.with_changes(null=True, description="null where nothing was evaluated"),
        string("claim_stated_by", "whose word the level rests on; null: more than a word", null=True),
        string("split_verdict", "what the blind control says of the two sides", null=True),
        DETECTOR.with_changes("the detector that answers; null where none of several was named", null=True),
        string(
            "detector_chosen",
            "default: one of ours; named; alone: the only one",
            null=True,
            one_of=("default", "named", "alone"),
        ),
        PARAMETERS.with_changes(null=True),
        string("warning", "what to heed when reading the AUROC", null=True),
        int64("tested", "documents (groups of texts) that were tested; null: none", null=True, ge=0),
        int64(
            "standing_out",
            "of them, those with q_bh at most 0.05; where no detector was named, q_ledger by some detector",
            null=True,
            ge=0,
        ),
        int64("detectors", "detectors that the q-values allow for: 1 where one was named", null=True, ge=0),
        int64("tests", "p-values that they allow for: documents times detectors", null=True, ge=0),
        int64(
            "can_stand_out",
            "of these, those by detectors that are not known to run against training",
            null=True,
            ge=0,
        ),
        string(
            "direction",
            "which of the labelled texts score higher: training (members) | opposite | none; null: none are known",
            null=True,
            one_of=("training", "opposite", "none"),
        ),
        int64("calibration_groups", "the fewest comparison documents of any test", null=True, ge=0),
        int64("calibration_groups_in_all", "comparison documents that there are", null=True, ge=0),
        fraction("smallest_q", "the smallest q-value that so many allow", null=True),
    ),
)
