"""All findings from scores: of labelled benchmarks, shelves and unlabelled texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from made_rows import example, examples_table, score, scores_table

from audit_pipeline import tables as contracts
from audit_pipeline.splits.evaluation_split import compute_assessed_split
from audit_pipeline.statistics.findings import Findings, compute_findings
from audit_pipeline.statistics.score_columns import HELD_OUT_COMPARISON, relabel_for_comparison
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import SCORES, Pair, canonical_json

PAIR = Pair("made_64", "a model")
TABLES = (
    "comparisons",
    "decisions",
    "group_tests",
    "contamination_rates",
    "calibration_checks",
    "corpus_tests",
    "evaluations",
)


def made(sides: dict[tuple[int | None, str], tuple[int, float]], *, seed: int = 7) -> tuple[pa.Table, pa.Table]:
    """Return scores of two detectors, and examples. ``sides`` has a number of groups and a mean by label and split."""
    generator = np.random.default_rng(seed)
    examples: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for (label, split), (groups, mean) in sides.items():
        for group in range(groups):
            for text in range(2):
                name = f"{label} {split} {group} {text}"
                words = generator.choice(["ash", "birch", "cedar", "elm", "fir", "oak", "pine", "yew"], size=12)
                own = {"benchmark": PAIR.benchmark, "group": f"{label} {split} {group}", "run_id": "built"}
                examples.append(example(name, text=" ".join(words), label=label, split=split, **own))
                for detector, parameters in (("loss", {}), ("min_k_plus_plus", {"k": 0.2})):
                    by = {"detector": detector, "parameters": canonical_json(parameters), "run_id": "scored"}
                    value = float(mean + generator.normal())
                    scores.append(score(name, value, model=PAIR.model, benchmark=PAIR.benchmark, **by))
    return scores_table(scores), examples_table(examples)


def conclude(scores: pa.Table, examples: pa.Table, design: str) -> Findings:
    split = compute_assessed_split(relabel_for_comparison(examples), design, "en")
    return compute_findings(scores, examples, PAIR, split, "found")


def rows(found: Findings, table: str, **where: object) -> list[dict[str, Any]]:
    return [row for row in found.tables[table].to_pylist() if all(row[name] == value for name, value in where.items())]


@pytest.fixture(scope="module")
def randomised() -> Findings:
    """Return findings of a randomised benchmark whose members score higher, with calibration texts of both sides."""
    scores, examples = made(
        {
            (1, "calibration"): (80, 1.5),
            (0, "calibration"): (80, 0.0),
            (1, "evaluation"): (60, 1.5),
            (0, "evaluation"): (60, 0.0),
        }
    )
    return conclude(scores, examples, "randomised")


def test_every_table_is_as_its_contract_has_it_and_evaluations_come_last(randomised: Findings) -> None:
    assert tuple(randomised.tables) == TABLES
    for name, table in randomised.tables.items():
        assert table.schema == contracts.TABLES[name].schema, name
        assert table.num_rows, name
        assert set(table["run_id"].to_pylist()) == {"found"}
        assert set(table["model"].to_pylist()) == {PAIR.model}


def test_a_labelled_benchmark_is_decided_on_its_calibration_split(randomised: Findings) -> None:
    assert randomised.evaluation.claim_level == "sound test"
    thresholds = {(row["rule"], row["alpha"]): row for row in rows(randomised, "decisions", detector="loss")}
    marginal = thresholds["marginal", 0.05]
    assert marginal["status"] == "ok"
    assert marginal["n_calibration_groups"] == 80
    assert marginal["fpr"] <= 0.15
    assert marginal["tpr"] > marginal["fpr"]
    assert thresholds["certified", 0.05]["status"] == "ok", "80 groups are over the 59 that are needed"
    assert thresholds["certified", 0.01]["status"] == "refused"
    assert "299" in thresholds["certified", 0.01]["reason"]
    (inference,) = rows(randomised, "corpus_tests")
    assert inference["status"] == "ok"
    assert inference["p_value"] < 0.001
    tests = rows(randomised, "group_tests", detector="loss")
    assert len(tests) == 120
    assert np.mean([row["p_value"] for row in tests if row["label"] == 1]) < 0.2
    assert 0.3 < np.mean([row["p_value"] for row in tests if row["label"] == 0]) < 0.7
    (rate,) = rows(randomised, "contamination_rates", detector="loss", unit="benchmark", rule="marginal")
    assert rate["status"] == "ok"
    assert rate["corrected_low"] <= 0.5 <= rate["corrected_high"], "half of the evaluated texts are members"
    (compared,) = rows(randomised, "comparisons", detector="loss", other="min_k_plus_plus")
    assert compared["ci_low"] < compared["difference"] < compared["ci_high"]


def test_ranks_among_all_texts_are_no_feature_of_dataset_inference() -> None:
    scores, examples = made({(1, "evaluation"): (60, 0.2), (0, "evaluation"): (60, 0.0)})
    split = compute_assessed_split(relabel_for_comparison(examples), "randomised", "en")
    labels = dict(zip(examples["example_id"].to_pylist(), examples["label"].to_pylist(), strict=True))
    given = scores.filter(pc.equal(scores["detector"], "loss")).to_pylist()

    def p_value(detector: str) -> float:
        more = [{**row, "detector": detector, "score": float(labels[row["example_id"]])} for row in given]
        both = pa.concat_tables([scores, table_from_rows(more, SCORES)])
        (inference,) = rows(compute_findings(both, examples, PAIR, split, "found"), "corpus_tests")
        return float(inference["p_value"])

    (alone,) = rows(compute_findings(scores, examples, PAIR, split, "found"), "corpus_tests")
    assert p_value("combined") == alone["p_value"]
    assert p_value("another") < alone["p_value"], "another detector that knows the labels is one"


def test_a_temporal_benchmark_without_calibration_refuses_tests_and_thresholds() -> None:
    scores, examples = made({(1, "evaluation"): (60, 0.5), (0, "evaluation"): (60, 0.0)})
    found = conclude(scores, examples, "temporal")
    assert found.evaluation.claim_level == "screening only"
    assert {row["status"] for row in rows(found, "decisions")} == {"refused"}
    assert not rows(found, "group_tests")
    assert not rows(found, "contamination_rates")
    (inference,) = rows(found, "corpus_tests")
    assert inference["status"] == "refused"
    assert inference["p_value"] is None


def test_a_shelf_is_compared_with_held_out_texts_and_known_members_are_not_audited() -> None:
    scores, examples = made(
        {(None, "evaluation"): (20, 2.0), (0, "calibration"): (100, 0.0), (1, "calibration"): (30, 2.0)}
    )
    found = conclude(scores, examples, "exchangeable")
    assert found.evaluation.reason is None
    evaluations = rows(found, "evaluations", detector="loss", metric="auroc")
    assert [(row["n_members"], row["n_nonmembers"]) for row in evaluations] == [(40, 200)]
    assert evaluations[0]["value"] > 0.8
    assert all(row["method"].startswith(HELD_OUT_COMPARISON) for row in rows(found, "evaluations"))
    tests = rows(found, "group_tests", detector="min_k_plus_plus")
    assert len(tests) == 20
    assert {row["label"] for row in tests} == {None}
    assert {row["n_calibration_groups"] for row in tests} == {100}
    assert sum(row["q_bh"] <= 0.05 for row in tests) > 10
    assert all(row["q_by"] >= row["q_bh"] for row in tests)
    (rate,) = rows(found, "contamination_rates", detector="min_k_plus_plus", unit="benchmark", rule="marginal")
    assert rate["n_texts"] == 40
    assert rate["status"] == "ok"
    assert rate["corrected_low"] > 0.5


def test_unlabelled_texts_have_scores_and_no_findings() -> None:
    scores, examples = made({(None, "evaluation"): (10, 0.0)})
    found = conclude(scores, examples, "unlabelled")
    assert found.evaluation.reason is not None
    assert {name: table.num_rows for name, table in found.tables.items() if name != "decisions"} == dict.fromkeys(
        [name for name in TABLES if name != "decisions"], 0
    )
    assert {row["status"] for row in rows(found, "decisions")} == {"refused"}
