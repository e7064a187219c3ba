"""Tables of the detectors' scores, and of everything that statistics/findings.py concludes from a pair's scores."""

from __future__ import annotations

from functools import partial
from typing import Literal

import pyarrow as pa

from audit_pipeline.tables.common import (
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
    build_run_table,
)
from audit_pipeline.tables.table import (
    Column,
    Table,
    boolean,
    choice,
    count,
    double,
    fraction,
    int8,
    int32,
    int64,
    list_type_of,
    string,
    strings,
)

ScoreStatus = Literal["ok", "not_applicable", "failed"]

_AUDITED = "of audited texts if the metric compares audited texts of unknown membership with held-out texts"

RANKED_AMONG_ALL = "combined"
"""The detector that combines ranks among all texts of the benchmark, so a text's score depends on the other texts."""

SCORES = Table(
    "scores",
    "every score of every run",
    order="as read",
    current="the scores",
    key=("run_id", "benchmark", "model", "detector", "parameters", "example_id"),
    partitioned_by="pair",
    storage="runs",
    made_from=("examples", "token_statistics", "token_frequencies"),
    columns=(
        string("example_id", "the scored example"),
        MODEL.with_changes("the model's name in config/models.yaml, hub id or path"),
        BENCHMARK,
        DETECTOR,
        PARAMETERS,
        boolean(
            "is_default",
            "whether parameters are the detector's default parameters, including the benchmark's own settings",
        ),
        double("score", "the score; higher means more likely a member; null unless status is ok", null=True),
        choice("status", ("ok", "not_applicable", "failed")),
        string("reason", "why there is no score; null if there is a score", null=True),
        RUN_ID,
    ),
)

HIGHLIGHTS = build_run_table(
    "highlights",
    "the texts with the highest scores, token by token",
    current="the most suspicious texts",
    key=("detector", "parameters", "example_id"),
    made_from=("examples", "token_statistics", "scores"),
    columns=(
        SCORES.column("example_id"),
        DETECTOR,
        PARAMETERS,
        int32("place", "rank of the text's score among the evaluated texts, 1 for the highest", ge=1),
        double("score", "the text's score"),
        strings("pieces", "at most 50 words of the text, as tokens of the model", quotes_text=True),
        Column("token_scores", list_type_of(pa.float64()), "score of each token in pieces"),
        Column(
            "counted",
            list_type_of(pa.bool_()),
            "whether the token is among the lowest k% of token scores, which the text's score averages",
        ),
        count("n_tokens", "number of scored tokens of the whole text"),
    ),
)

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
        count("n_members", f"number of members with a score, or {_AUDITED}"),
        count("n_nonmembers", "number of non-members, or held-out texts, with a score"),
        count("n_groups", "number of groups that the interval is computed over"),
        count("n_not_scored", "number of labelled examples of the evaluation split without a score"),
        string("metric", "auroc, tpr_at_5_fpr, … (statistics/roc.py, docs/intervals.md)"),
        double("value", "value of the metric; null if it is undefined", null=True),
        CI_LOW,
        CI_HIGH,
        string("method", "how value and interval were computed, or why they are null"),
        string("split_verdict", "verdict of the blind control on the benchmark's two sides"),
        CLAIM_LEVEL,
    ),
)

DECISIONS = _build_findings_table(
    "decisions",
    "the thresholds that every run chose on calibration texts, and the rates that they achieved",
    current="the thresholds, and what they achieved,",
    key=("detector", "parameters", "rule", "alpha"),
    columns=(
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        choice("rule", ("largest_accuracy", "marginal", "certified"), "how the threshold was chosen"),
        fraction("alpha", "target false-positive rate; null for largest_accuracy", null=True),
        double(
            "threshold",
            "texts with at least this score are classified as members; null if there is no threshold",
            null=True,
        ),
        choice("status", ("ok", "refused"), "refused if there is no threshold, see reason"),
        string("reason", "why there is no threshold; null if there is a threshold", null=True),
        count("n_calibration_groups", "number of groups of calibration non-members"),
        count("n_calibration_nonmembers", "number of calibration non-members with a score"),
        count("n_calibration_members", "number of calibration members with a score"),
        count("n_nonmembers", "number of evaluation non-members that fpr is computed from"),
        *build_rate_columns("fpr", "false-positive rate on the evaluation split, on which no threshold was chosen"),
        count("n_members", "number of evaluation members that tpr is computed from"),
        *build_rate_columns("tpr", "true-positive rate on the evaluation split"),
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
        int8("label", "1 for members, 0 for non-members, null if unknown or mixed", null=True, ge=0, le=1),
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        count("n_texts", "number of texts of the group with a score"),
        count(
            "n_compared",
            "number of texts of the group that the statistic averages; calibration groups are averaged over the same "
            "number of texts",
        ),
        double("statistic", "mean score of the n_compared texts"),
        fraction("p_value", "conformal p-value: (1 + calibration groups with a statistic at least as high) / (n + 1)"),
        fraction("q_bh", "Benjamini-Hochberg q-value over the groups that this detector tests"),
        fraction("q_by", "Benjamini-Yekutieli q-value over the groups that this detector tests"),
        fraction("q_ledger", "Benjamini-Yekutieli q-value over all groups and all detectors of the pair"),
        count("n_calibration_groups", "number of calibration groups in the comparison"),
        count("n_tests", "number of groups that this detector tests"),
        count("n_ledger", "number of tests of groups by all detectors of the pair"),
        CLAIM_LEVEL,
        string("method", "how the p-value was computed"),
        string(
            "direction",
            "which of the pair's labelled texts the detector scores higher: training (members) | opposite "
            "(non-members) | none (no clear difference); null if a side has no known texts",
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
        choice("unit", ("group", "collection", "benchmark"), "unit of the rate"),
        string("name", "the group, collection or benchmark"),
        DETECTOR,
        PARAMETERS,
        IS_DEFAULT,
        choice("rule", ("largest_accuracy", "marginal", "certified"), "rule of the threshold"),
        fraction("alpha", "target false-positive rate; null for largest_accuracy", null=True),
        count("n_texts", "number of texts with a score"),
        count("n_groups", "number of groups of the texts with a score"),
        count("n_flagged", "number of texts with a score of at least the threshold"),
        *build_rate_columns(
            "flagged",
            "share of flagged texts (as in table 4 of Raoof et al. 2025 and table 2 of Shi et al. 2024)",
            null=False,
        ),
        *build_rate_columns("fpr", "false-positive rate of the threshold on calibration non-members"),
        *build_rate_columns("tpr", "true-positive rate of the threshold on calibration members"),
        choice("status", ("ok", "refused"), "refused if there is no corrected rate, see reason"),
        string("reason", "why there is no corrected rate; null if there is a corrected rate", null=True),
        fraction("corrected", "corrected rate: (flagged - FPR) / (TPR - FPR), clipped to [0, 1]", null=True),
        fraction(
            "corrected_low",
            "lower end of the 95% interval of corrected, which covers the error of all three rates; null if the "
            "calibration texts contradict the corrected rate",
            null=True,
        ),
        fraction("corrected_high", "upper end of the 95% interval of corrected", null=True),
        string("assumption", "assumption under which the corrected rate is valid"),
        CLAIM_LEVEL,
    ),
)

COMPARISONS = _build_findings_table(
    "comparisons",
    "comparisons of two detectors on the same texts",
    current="the comparisons of detectors",
    key=("detector", "parameters", "other", "other_parameters"),
    columns=(
        DETECTOR,
        string("parameters", "canonical JSON of the detector's parameters"),
        string("other", "the other detector, or blind_control"),
        string("other_parameters", "canonical JSON of the other detector's parameters"),
        count("n_members", f"number of members with scores of both detectors, or {_AUDITED}"),
        count("n_nonmembers", "number of non-members, or held-out texts, with scores of both detectors"),
        count("n_groups", "number of groups that the standard error is computed over"),
        double("difference", "AUROC of the detector minus AUROC of the other detector, on the same texts", ge=-1, le=1),
        double(
            "standard_error",
            "standard error of the difference, over the groups; null if it is undefined",
            null=True,
            ge=0,
        ),
        CI_LOW,
        CI_HIGH,
        fraction("p_value", "two-sided p-value of no difference; null without a standard error", null=True),
        string("method", "how interval and p-value were computed, or why they are null"),
    ),
)

CALIBRATION_CHECKS = _build_findings_table(
    "calibration_checks",
    "false-positive rates of thresholds on held-out halves of the non-members",
    current="the calibration checks",
    key=("detector", "parameters", "rule", "alpha"),
    columns=(
        DETECTOR,
        PARAMETERS,
        choice("rule", ("marginal", "certified")),
        fraction("alpha", "target false-positive rate"),
        count("splits", "number of random splits of the non-members into halves"),
        count("n_groups", "number of groups of non-members"),
        fraction(
            "mean_fpr",
            "mean false-positive rate on the halves on which no threshold was chosen; null if refused",
            null=True,
        ),
        double("standard_error", "standard error of mean_fpr over the splits, which overlap", null=True, ge=0),
        fraction("over_alpha", "share of the splits with a rate above alpha", null=True),
        string("reason", "why the check was refused; null if the check was not refused", null=True),
    ),
)

# Several commands add tests, so the latest run does not contain the latest result of every test. The view
# current_corpus_tests selects the latest result of each test.
CORPUS_TESTS = _build_findings_table(
    "corpus_tests",
    "tests of a whole set of texts at once; current_corpus_tests has the latest result of each test",
    key=("test",),
    benchmark=string("benchmark", "the benchmark, the secret file of twins, or the test set"),
    columns=(
        choice("test", ("dataset_inference", "twins", "sharded_permutation")),
        choice("status", ("ok", "refused"), "refused if the conditions of the test are not met, see reason"),
        string("reason", "why there is no p-value; null if there is a p-value", null=True),
        fraction("p_value", "one-sided p-value: small values are unlikely without training", null=True),
        double("statistic", "test statistic", null=True),
        int64("n", "number of audited texts, items of twins, or items of the test set", ge=0),
        int64("n_held_out", "number of held-out texts, secret versions or permutations in the comparison", ge=0),
        string("assumption", "assumption under which the p-value is valid"),
        CLAIM_LEVEL,
        string("method", "how the p-value was computed"),
        string(
            "direction",
            "which texts score higher at a level of 5%: training (audited texts) | opposite (held-out texts) | none; "
            "null if the test has only one direction, or was refused",
            null=True,
            one_of=("training", "opposite", "none"),
        ),
        double(
            "detectable_auroc",
            "smallest AUROC that the test detects with a power of 80% at a level of 5%: how often an audited text (or "
            "the published order or version) must be more likely than its comparison. Above 1 if no AUROC suffices; "
            "null if refused",
            null=True,
            ge=0,
        ),
    ),
)

TWINS = _build_findings_table(
    "twins",
    "tests whether a model scores published versions above secret versions, by detector and group; p_value is not "
    "corrected for the number of rows; corpus_tests has the p-value of the whole test",
    current="the tests of twins",
    key=("detector", "parameters", "group"),
    benchmark=string("benchmark", "the benchmark, or the secret file of the items"),
    made_from=("examples",),
    columns=(
        DETECTOR.with_changes("the detector; all for the combination of the detectors that were chosen in advance"),
        PARAMETERS,
        GROUP.with_changes("the group of items; empty for all items"),
        count("items", "number of items with scores of all versions"),
        count("left_out", "number of items without a score of some version"),
        count("others", "number of unpublished versions of the items with scores of all versions"),
        *build_rate_columns(
            "superiority",
            "share of an item's unpublished versions with a lower score than its published version (ties count half), "
            "averaged over items; 0.5 by chance",
        ),
        fraction("p_value", "one-sided p-value of the rank sum under the random draw; null if refused", null=True),
        double("detectable_auroc", "smallest superiority that the test detects with a power of 80%", null=True, ge=0),
        string("reason", "why there is no p-value; null if there is a p-value", null=True),
        string("method", "how p-value and interval were computed"),
    ),
)

PAIR_ANSWERS = _build_findings_table(
    "pair_answers",
    "the answer in words that every run concluded from the scores of a model on a benchmark",
    current="the answers from scores",
    made_from=("evaluations", "group_tests", "decisions", "contamination_rates", "corpus_tests"),
    columns=(
        string("outcome", "kind of the answer, such as evidence_of_training (docs/report.md)"),
        choice("sign", ("found", "stands out", "nothing found", "no conclusion"), "verdict of the answer"),
        string("headline", "the answer in one sentence"),
        string("explanation", "the answer in a few sentences, which claim no more than the claim level allows"),
        string("question", "the question that the answer answers"),
        string("how_sure", "certainty of the answer, at most what the claim level allows"),
        string("what_would_change", "what would change the answer"),
        string("sides", "the two sides of an AUROC: labelled | audited against held-out | none"),
        CLAIM_LEVEL.with_changes(null=True, description="level of the claim; null if nothing was evaluated"),
        string(
            "claim_stated_by",
            "person or publisher whose statement the level depends on; null if it depends on no statement",
            null=True,
        ),
        string("split_verdict", "verdict of the blind control on the two sides", null=True),
        DETECTOR.with_changes(
            "the detector of the answer; null if several detectors were scored and none was chosen in advance",
            null=True,
        ),
        string(
            "detector_chosen",
            "how the detector was chosen: default (by Corpus Audit) | named (by the user) | alone (the only detector)",
            null=True,
            one_of=("default", "named", "alone"),
        ),
        PARAMETERS.with_changes(null=True),
        string("warning", "caveat for reading the AUROC", null=True),
        int64("tested", "number of tested documents (groups of texts); null if none was tested", null=True, ge=0),
        int64(
            "standing_out",
            "tested documents with q_bh at most 0.05; without a chosen detector, with q_ledger at most 0.05 by some "
            "detector",
            null=True,
            ge=0,
        ),
        int64(
            "detectors",
            "number of detectors that the q-values are corrected for; 1 if one was chosen in advance",
            null=True,
            ge=0,
        ),
        int64(
            "tests",
            "number of p-values that the q-values are corrected for: documents times detectors",
            null=True,
            ge=0,
        ),
        int64(
            "can_stand_out",
            "number of p-values that can count as evidence. The p-values of detectors that rank known members below "
            "non-members do not count",
            null=True,
            ge=0,
        ),
        string(
            "direction",
            "which labelled texts score higher: training (members) | opposite (non-members) | none; null if no labels "
            "are known",
            null=True,
            one_of=("training", "opposite", "none"),
        ),
        int64("calibration_groups", "minimum number of comparison documents over the tests", null=True, ge=0),
        int64("calibration_groups_in_all", "total number of comparison documents", null=True, ge=0),
        fraction("smallest_q", "smallest q-value that the number of comparison documents allows", null=True),
    ),
)
