import math

import made_rows
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import examples_table, scores_table
from profiles import max_examples

from audit_pipeline.detectors import registry
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.splits.evaluation_split import compute_assessed_split, select_labelled_examples
from audit_pipeline.statistics import roc
from audit_pipeline.statistics.evaluation import compare_detectors, evaluate
from audit_pipeline.statistics.intervals import GroupedSides, measure_auroc_of_scores
from audit_pipeline.statistics.roc import METRICS, OF_SCORES, compute_metrics, compute_roc_points
from audit_pipeline.statistics.share_bounds import measure_share
from audit_pipeline.tables import EVALUATIONS, Pair

GENERATOR = np.random.default_rng(11)
WORDS = [f"word{index}" for index in range(300)]
MARGIN = roc.MARGIN.name
FPR_LIMITS = {name: metric.at_fpr for name, metric in METRICS.items() if metric.at_fpr is not None}
K2, K5 = '{"k":0.2}', '{"k":0.5}'


def example(index, label, group=None, split="evaluation", text=None):
    own = {"label": label, "split": split, "group": group or f"g{index}"}
    return made_rows.example(f"{index:016d}", text=text or " ".join(GENERATOR.choice(WORDS, 12)), **own)


def score(example_id, value, detector="loss", parameters="{}", status="ok", **pair):
    is_default = registry.is_default(detector, parameters)
    own = {"detector": detector, "parameters": parameters, "is_default": is_default, "status": status}
    return made_rows.score(example_id, value, **own, **pair)


def run(scores, examples, design="temporal", *, matched=False, assessed_on=None):
    split = compute_assessed_split(examples_table(assessed_on or examples), design, "en", matched=matched)
    return evaluate(scores_table(scores), examples_table(examples), split, Pair("b", "m"), "r2")


def measure_named_share(name, scores, labels, groups):
    return measure_share(METRICS[name], compute_roc_points(scores, labels), GroupedSides(groups, labels))


def rows_of(found, detector, parameters="{}"):
    rows = [row for row in found.table.to_pylist() if (row["detector"], row["parameters"]) == (detector, parameters)]
    # The margin over the blind control comes last, for detectors, where the control is read.
    assert [row["metric"] for row in rows if row["metric"] != MARGIN] == list(OF_SCORES)
    return {row["metric"]: row for row in rows}


@pytest.fixture(scope="module")
def small():
    """Return scores and examples of 24 texts in 12 groups by two settings of one detector, without a blind control."""
    examples = [example(index, index // 2 % 2, group=f"g{index // 2}") for index in range(24)]
    scores = []
    for row in examples:
        for parameters in (K2, K5):
            scores.append(score(row["example_id"], GENERATOR.normal() + row["label"], "min_k", parameters))
    return scores, examples


def test_values_and_intervals_are_those_of_the_metric_code(small):
    scores, examples = small
    found = run(scores, examples)
    assert found.table.schema.equals(EVALUATIONS.schema)
    assert found.reason is None
    labels = [row["label"] for row in examples]
    groups = [row["group"] for row in examples]
    for parameters in (K2, K5):
        values = [row["score"] for row in scores if row["parameters"] == parameters]
        expected = compute_metrics(values, labels)
        expected_intervals = {
            "auroc": measure_auroc_of_scores(values, labels, groups).interval,
            "fpr_at_95_tpr": measure_named_share("fpr_at_95_tpr", values, labels, groups).interval,
        }
        for metric, row in rows_of(found, "min_k", parameters).items():
            if metric in expected_intervals:
                interval = expected_intervals[metric]
                assert row["value"] == expected[metric]
                assert (row["ci_low"], row["ci_high"]) == (interval.low, interval.high)
                assert "12 groups" in row["method"] or "in 6 groups" in row["method"]
            assert (row["n_members"], row["n_nonmembers"], row["n_groups"], row["n_not_scored"]) == (12, 12, 12, 0)
            assert (row["model"], row["benchmark"], row["run_id"]) == ("m", "b", "r2")
    assert (
        "ties count half; 95% interval by the variance over 12 groups" in rows_of(found, "min_k", K2)["auroc"]["method"]
    )
    assert "95% Clopper-Pearson interval" in rows_of(found, "min_k", K2)["fpr_at_95_tpr"]["method"]


def test_a_rate_that_too_few_groups_cannot_resolve_is_null(small):
    found = run(*small)
    for metric in FPR_LIMITS:
        row = rows_of(found, "min_k", K2)[metric]
        assert (row["value"], row["ci_low"], row["ci_high"]) == (None, None, None)
        assert row["method"] == (
            "not resolvable with 6 groups of non-members (12 texts): the smallest FPR that can be measured is 1/6"
        )


def test_tprs_have_the_bounds_of_a_share(large):
    found = run(*large)
    by_detector = {column.detector: column for column in found.columns}
    for detector in ("loss", "blind_control"):
        column, rows = by_detector[detector], rows_of(found, detector)
        for metric in FPR_LIMITS:
            expected = measure_named_share(metric, column.scores, column.labels, column.groups)
            row = rows[metric]
            assert row["value"] == expected.value
            assert (row["ci_low"], row["ci_high"]) == (expected.interval.low, expected.interval.high)
            assert row["method"].endswith(expected.method)
        values = compute_metrics(column.scores, column.labels)
        assert [rows[metric]["value"] for metric in OF_SCORES[:3]] == [values[metric] for metric in OF_SCORES[:3]]
        assert rows["tpr_at_01_fpr"]["value"] is None  # 120 non-members
    assert rows_of(found, "blind_control")["tpr_at_1_fpr"]["method"].startswith("TF-IDF")


def test_a_small_benchmark_has_no_blind_control(small):
    found = run(*small)
    for row in rows_of(found, "blind_control").values():
        assert (row["value"], row["ci_low"], row["ci_high"]) == (None, None, None)
        assert (
            row["method"] == "the blind control was not computed: there are 24 labelled examples, but 200 are required"
        )
        assert (row["n_members"], row["n_not_scored"]) == (0, 24)
    assert (found.split_verdict, found.claim_level) == ("undetermined", "screening only")
    assert MARGIN not in found.table["metric"].to_pylist()
    assert [column.key for column in found.columns] == [("min_k", K2), ("min_k", K5)]


def test_row_order_and_what_belongs_elsewhere_do_not_matter(small):
    scores, examples = small
    expected = run(scores, examples).table
    elsewhere = [
        example(100, 1, split="calibration"),
        example(101, None),
    ]
    more = [
        score(elsewhere[0]["example_id"], 99.0, "min_k", K2),
        score(elsewhere[1]["example_id"], 99.0, "min_k", K2),
        score(examples[0]["example_id"], 99.0, "loss", model="another"),
        score(examples[0]["example_id"], 99.0, "loss", benchmark="another"),
    ]
    assert run([*more, *scores[::-1]], [*elsewhere, *examples[::-1]]).table.equals(expected)


def test_a_detector_is_evaluated_on_the_texts_it_scored(small):
    scores, examples = small
    some = []
    for index, row in enumerate(scores):
        if row["parameters"] == K2 and index % 8 == 0:
            status = "failed" if index % 16 else "not_applicable"
            some.append({**row, "score": None, "status": status, "reason": "because"})
        elif row["parameters"] != K2 or index != 2:  # one row is not there at all
            some.append(row)
    found = run(some, examples)
    left = [row for row in some if row["parameters"] == K2 and row["status"] == "ok"]
    labels = {row["example_id"]: row["label"] for row in examples}
    auroc = rows_of(found, "min_k", K2)["auroc"]
    assert (
        auroc["value"]
        == compute_metrics([row["score"] for row in left], [labels[row["example_id"]] for row in left])["auroc"]
    )
    assert auroc["n_not_scored"] == 7
    assert auroc["n_members"] + auroc["n_nonmembers"] == 17
    assert rows_of(found, "min_k", K5)["auroc"]["n_not_scored"] == 0
    whole = rows_of(run(*small), "min_k", K5)
    assert rows_of(found, "min_k", K5) == whole


def test_a_detector_without_any_score_has_rows_with_the_reason(small):
    _, examples = small
    found = run([score(row["example_id"], None, status="not_applicable") for row in examples], examples)
    for row in rows_of(found, "loss").values():
        assert row["value"] is None
        assert row["method"] == "not defined: there are no members and no non-members with a score"
        assert row["n_not_scored"] == 24


def test_one_class_is_null_with_the_reason(small):
    examples = [example(index, 1) for index in range(30)]
    found = run([score(row["example_id"], float(index)) for index, row in enumerate(examples)], examples)
    for row in rows_of(found, "loss").values():
        assert (row["value"], row["ci_low"], row["ci_high"]) == (None, None, None)
        assert row["method"] == "not defined: there are no non-members with a score"
        assert (row["n_members"], row["n_nonmembers"]) == (30, 0)


def test_equal_scores_have_a_value_and_no_interval(large):
    """A number without spread has no interval, and neither has a margin that is computed from it."""
    _, examples = large
    scores = [score(row["example_id"], 0.25) for row in examples]
    rows = rows_of(run(scores, examples), "loss")
    assert rows["auroc"]["value"] == 0.5
    assert MARGIN not in rows
    for row in rows.values():
        assert (row["ci_low"], row["ci_high"]) == (None, None)
        assert row["method"] == "no interval: all scores are equal, so they separate nothing" or row["value"] is None
    almost = [score(row["example_id"], 0.25 + (place == 0)) for place, row in enumerate(examples)]
    assert rows_of(run(almost, examples), "loss")["auroc"]["ci_low"] is not None


def test_an_unlabelled_benchmark_has_no_rows_and_a_reason():
    examples = [example(index, None) for index in range(5)] + [example(9, 1, split="calibration")]
    found = run([score(row["example_id"], 1.0) for row in examples], examples)
    assert found.table.num_rows == 0
    assert found.table.schema.equals(EVALUATIONS.schema)
    assert "no example of the evaluation split has a label" in found.reason
    assert found.claim_level == "screening only"


@pytest.fixture(scope="module")
def large():
    """Return scores and examples of 240 texts. Members share a word, so the blind control beats the detector."""
    examples, scores = [], []
    for index in range(240):
        label = index % 2
        words = [*GENERATOR.choice(WORDS, 12), *(["telltale"] if label and index % 10 != 1 else [])]
        examples.append(example(index, label, text=" ".join(words)))
        scores.append(score(examples[-1]["example_id"], GENERATOR.normal() + 0.7 * label))
    return scores, examples


def test_the_blind_control_is_a_row_and_gives_the_verdict(large):
    found = run(*large)
    blind = rows_of(found, "blind_control")
    assert blind["auroc"]["value"] > 0.75
    assert blind["auroc"]["ci_low"] <= blind["auroc"]["value"] <= blind["auroc"]["ci_high"]
    assert blind["auroc"]["method"].startswith("TF-IDF of word 1-2-grams and logistic regression")
    assert (blind["auroc"]["n_members"], blind["auroc"]["n_not_scored"]) == (120, 0)
    assert {row["split_verdict"] for row in found.table.to_pylist()} == {"separable without a model"}
    assert {row["claim_level"] for row in found.table.to_pylist()} == {"screening only"}
    assert found.columns[-1].detector == "blind_control"
    assert compute_metrics(found.columns[-1].scores, found.columns[-1].labels)["auroc"] == blind["auroc"]["value"]


def test_the_margin_is_paired_and_raises_no_level(large):
    found = run(*large)
    margin = rows_of(found, "loss")[MARGIN]
    auroc = rows_of(found, "loss")["auroc"]["value"]
    blind = rows_of(found, "blind_control")["auroc"]["value"]
    assert margin["value"] == pytest.approx(auroc - blind)
    assert MARGIN not in rows_of(found, "blind_control")
    assert margin["ci_low"] < margin["value"] < margin["ci_high"] < 0

    scores, examples = large
    labels = {row["example_id"]: row["label"] for row in examples}
    perfect = [{**row, "score": float(labels[row["example_id"]])} for row in scores]
    better = run(perfect, examples)
    assert rows_of(better, "loss")[MARGIN]["ci_low"] > 0
    assert better.claim_level == found.claim_level == "screening only"


def test_the_margin_of_a_partly_scored_detector_is_on_its_own_texts(large):
    scores, examples = large
    found = run(scores[:150], examples)
    ids = {row["example_id"] for row in scores[:150]}
    control = found.columns[-1]
    order = select_labelled_examples(examples_table(examples)).example_ids
    kept = np.array([example_id in ids for example_id in order])
    blind_there = compute_metrics(control.scores[kept], control.labels[kept])["auroc"]
    own = rows_of(found, "loss")["auroc"]["value"]
    assert rows_of(found, "loss")[MARGIN]["value"] == pytest.approx(own - blind_there)


def test_designs_decide_the_claim():
    examples = [example(index, index % 2) for index in range(240)]
    scores = [score(row["example_id"], float(index % 7)) for index, row in enumerate(examples)]
    shuffled = run(scores, examples, design="randomised")
    assert (shuffled.split_verdict, shuffled.claim_level) == ("randomised by design", "sound test")
    with pytest.raises(ConfigError, match="no benchmark design 'secret'"):
        run(scores, examples, design="secret")


def test_every_setting_of_the_grid_gets_its_rows(small):
    _, examples = small
    scores = [
        score(row["example_id"], GENERATOR.normal(), detector.name, detector.to_json(setting))
        for row in examples
        for detector, settings in registry.select_detectors(["loss", "min_k", "infilling"], grid=True)
        for setting in settings
    ]
    found = run(scores, examples)
    assert found.table.num_rows == (1 + 20 + 80 + 1) * 5
    expected = {("loss", "{}"), ("min_k", K2), ("infilling", '{"k":0.2,"m":5}'), ("blind_control", "{}")}
    defaults = {(row["detector"], row["parameters"]) for row in found.table.to_pylist() if row["is_default"]}
    assert defaults == expected
    # A benchmark may fix a parameter: its value is then the default's, as the scores say.
    table = scores_table(scores).drop_columns("is_default")
    table = registry.mark_defaults(table, {"infilling": {"m": 1}})
    found = run(table.to_pylist(), examples)
    defaults = {(row["detector"], row["parameters"]) for row in found.table.to_pylist() if row["is_default"]}
    assert defaults - expected == {("infilling", '{"k":0.2,"m":1}')}
    assert {column.detector for column in found.columns if column.is_default} >= {"loss", "min_k", "infilling"}


def test_scores_that_do_not_belong_are_refused(small):
    scores, examples = small
    with pytest.raises(DataError, match="has several scores of the text"):
        run([*scores, scores[0]], examples)
    with pytest.raises(DataError, match="1 scores belong to examples that are not in benchmark b"):
        run([*scores, score("f" * 16, 1.0)], examples)
    for bad in (math.nan, math.inf, None):
        with pytest.raises(DataError, match="not a finite number"):
            run([score(examples[0]["example_id"], bad)], examples)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 6), st.booleans()), min_size=2))
@max_examples(60)
def test_every_interval_has_a_width_and_contains_its_value(rows):
    examples = [example(index, int(label), f"g{group}", text="a") for index, (_, _, group, label) in enumerate(rows)]
    scores = [
        score(examples[index]["example_id"], float(values[place]), detector)
        for index, values in enumerate(rows)
        for place, detector in enumerate(("loss", "zlib"))
    ]
    found = run(scores, examples)
    compared = compare_detectors(found.columns, Pair("b", "m"), "r").to_pylist()
    intervals = [(row["value"], row["ci_low"], row["ci_high"]) for row in found.table.to_pylist()]
    for value, low, high in intervals + [(row["difference"], row["ci_low"], row["ci_high"]) for row in compared]:
        assert (low is None) == (high is None)
        if low is not None:
            assert low <= value <= high
            assert low < high
    for row in compared:
        if row["p_value"] is not None:
            assert (row["p_value"] < 0.05) == (not row["ci_low"] <= 0 <= row["ci_high"])
