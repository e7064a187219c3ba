"""From one model's scores on one benchmark to everything that is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.splits.assessment import AssessedSplit
from audit_pipeline.statistics.dataset_inference import NAME, ComparedTexts, build_feature_matrix, run_dataset_inference
from audit_pipeline.statistics.evaluation import Evaluation, compare_detectors, evaluate
from audit_pipeline.statistics.membership_decisions import compute_decision_tables
from audit_pipeline.statistics.score_columns import IN_WORDS, relabel_for_comparison
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import CORPUS_TESTS, EVALUATIONS, MEMBER, NON_MEMBER, RANKED_AMONG_ALL, Pair


@dataclass(frozen=True, eq=False)
class Findings:
    """The evaluation, and every table to be written, by name; ``evaluations`` is among them."""

    evaluation: Evaluation
    tables: Mapping[str, pa.Table]


def compute_findings(scores: pa.Table, examples: pa.Table, pair: Pair, split: AssessedSplit, run_id: str) -> Findings:
    """Metrics, comparisons, thresholds, tests and rates of one pair (``scores``: SCORES, ``examples``: EXAMPLES).

    ``split`` is what was assessed on the examples as :func:`relabel_for_comparison` gives them. Where nothing audited
    is labelled but something is held out, metrics are those of audited against held-out texts, and ``method`` says so.
    Raises DataError as :func:`evaluate` does.
    """
    compared = relabel_for_comparison(examples)
    is_relabelled = compared is not examples
    own = scores.filter(pc.is_in(scores["example_id"], value_set=compared["example_id"])) if is_relabelled else scores
    evaluation = evaluate(own, compared, split, pair, run_id)
    evaluations = evaluation.table
    if is_relabelled:
        methods = pa.array([f"{IN_WORDS}; {method}" for method in evaluations["method"].to_pylist()], pa.string())
        evaluations = evaluations.set_column(EVALUATIONS.names.index("method"), EVALUATIONS.field("method"), methods)
    return Findings(
        evaluation,
        {
            "comparisons": compare_detectors(evaluation.columns, pair, run_id),
            **compute_decision_tables(scores, examples, pair, run_id, claim_level=evaluation.claim_level),
            "corpus_tests": _run_corpus_tests(scores, examples, evaluation, split.design, pair, run_id),
            # Last: where they are, the others are.
            "evaluations": evaluations,
        },
    )


def _run_corpus_tests(
    scores: pa.Table, examples: pa.Table, evaluation: Evaluation, design: str, pair: Pair, run_id: str
) -> pa.Table:
    """Dataset inference of the audited texts against the non-members.

    Audited are the evaluated texts of unknown label, and the non-members then of both splits; where none is unknown,
    the members and the non-members of the evaluation split. Where the audited ones are unknown, known members say which
    way the scores run.
    """
    evaluated, label = pc.equal(examples["split"], "evaluation"), examples["label"]
    is_unknown, is_member, is_nonmember = (
        pc.fill_null(mask, False) for mask in (pc.is_null(label), pc.equal(label, MEMBER), pc.equal(label, NON_MEMBER))
    )
    any_unknown = pc.any(pc.and_(evaluated, is_unknown)).as_py()
    held_out = is_nonmember if any_unknown else pc.and_(is_nonmember, evaluated)
    compared = pc.or_(held_out, pc.and_(evaluated, is_unknown if any_unknown else is_member))
    used = pc.or_(compared, is_member) if any_unknown else compared
    texts = pa.table({"example_id": examples["example_id"], "group": examples["group"], "held_out": held_out})
    texts = texts.append_column("compared", compared).filter(used)
    # Every detector at every setting, but for ranks among all texts: these tie the tested half to the fitted one.
    is_feature = pc.not_equal(scores["detector"], RANKED_AMONG_ALL)
    scores = scores.filter(pc.and_(is_feature, pc.is_in(scores["example_id"], value_set=texts["example_id"])))
    features = build_feature_matrix(
        scores["example_id"].to_pylist(),
        pc.binary_join_element_wise(scores["detector"], scores["parameters"], " ").to_pylist(),
        pc.if_else(pc.equal(scores["status"], "ok"), scores["score"], None).to_pylist(),
    )
    texts = texts.take(pc.index_in(pa.array(features.example_ids, pa.string()), value_set=texts["example_id"]))
    tested = texts["compared"].to_numpy()
    if not tested.any() or not pc.any(held_out).as_py():
        return CORPUS_TESTS.empty_table()
    groups = np.array(texts["group"].to_pylist(), dtype=object)
    result = run_dataset_inference(
        ComparedTexts(features.values[tested], features.names, texts["held_out"].to_numpy()[tested], groups[tested]),
        design=design,
        claim_level=evaluation.claim_level,
        known_members=(features.values[~tested], groups[~tested]),
    )
    own = {name: value for name, value in vars(result).items() if name in CORPUS_TESTS.names}
    named = {"model": pair.model, "benchmark": pair.benchmark, "test": NAME, "run_id": run_id}
    return table_from_rows([{**named, "status": result.status, **own}], CORPUS_TESTS)
