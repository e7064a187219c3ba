"""The findings of a pair (a model and a benchmark): all tables that are computed from the model's scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.splits.evaluation_split import AssessedSplit
from audit_pipeline.statistics.dataset_inference import (
    NAME,
    ComparedTexts,
    DatasetInference,
    build_feature_matrix,
    run_dataset_inference,
)
from audit_pipeline.statistics.evaluation import Evaluation, compare_detectors, evaluate
from audit_pipeline.statistics.membership_decisions import compute_decision_tables
from audit_pipeline.statistics.score_columns import HELD_OUT_COMPARISON, relabel_for_comparison
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import CORPUS_TESTS, EVALUATIONS, MEMBER, NON_MEMBER, RANKED_AMONG_ALL, Pair

_MAX_NAMED_FEATURES = 5


@dataclass(frozen=True, eq=False)
class Findings:
    """The findings about a model on a benchmark.

    Attributes:
        evaluation: The evaluation.
        tables: All tables to write, by name, including ``evaluations``.
    """

    evaluation: Evaluation
    tables: Mapping[str, pa.Table]


def compute_findings(scores: pa.Table, examples: pa.Table, pair: Pair, split: AssessedSplit, run_id: str) -> Findings:
    """Compute the metrics, comparisons, thresholds, tests and rates of a pair.

    If no audited text is labelled but some texts are held out, the metrics compare audited with held-out texts. The
    column ``method`` then states that.

    Args:
        scores: The scores (schema SCORES).
        examples: The examples (schema EXAMPLES).
        pair: The pair.
        split: The assessment of the examples, relabelled by :func:`relabel_for_comparison`.
        run_id: The id of the run, written to the tables.

    Raises:
        DataError: In the cases of :func:`evaluate`.
    """
    compared = relabel_for_comparison(examples)
    is_relabelled = compared is not examples
    compared_scores = scores
    if is_relabelled:
        compared_scores = scores.filter(pc.is_in(scores["example_id"], value_set=compared["example_id"]))
    evaluation = evaluate(compared_scores, compared, split, pair, run_id)
    evaluations = evaluation.table
    if is_relabelled:
        methods = pa.array(
            [f"{HELD_OUT_COMPARISON}; {method}" for method in evaluations["method"].to_pylist()], pa.string()
        )
        evaluations = evaluations.set_column(EVALUATIONS.names.index("method"), EVALUATIONS.field("method"), methods)
    return Findings(
        evaluation,
        {
            "comparisons": compare_detectors(evaluation.columns, pair, run_id),
            **compute_decision_tables(scores, examples, pair, run_id, claim_level=evaluation.claim_level),
            "corpus_tests": _run_corpus_tests(scores, examples, evaluation, split.design, pair, run_id),
            # The evaluations are written last: if they exist, the other tables exist too.
            "evaluations": evaluations,
        },
    )


def _run_corpus_tests(
    scores: pa.Table, examples: pa.Table, evaluation: Evaluation, design: str, pair: Pair, run_id: str
) -> pa.Table:
    """Run dataset inference of the audited texts against the non-members.

    If some evaluated texts have an unknown label, these are the audited texts. They are compared with the non-members
    of both splits, and the known members show the direction of the scores. If all evaluated texts are labelled, the
    members of the evaluation split are the audited texts. They are compared with the non-members of that split.
    """
    label = examples["label"]
    is_evaluated = pc.equal(examples["split"], "evaluation")
    is_unknown = pc.is_null(label)
    is_member = pc.fill_null(pc.equal(label, MEMBER), False)
    is_nonmember = pc.fill_null(pc.equal(label, NON_MEMBER), False)
    if pc.any(pc.and_(is_evaluated, is_unknown)).as_py():
        held_out = is_nonmember
        compared = pc.or_(held_out, pc.and_(is_evaluated, is_unknown))
        used = pc.or_(compared, is_member)
    else:
        held_out = pc.and_(is_nonmember, is_evaluated)
        compared = pc.or_(held_out, pc.and_(is_evaluated, is_member))
        used = compared
    texts = pa.table({"example_id": examples["example_id"], "group": examples["group"], "held_out": held_out})
    texts = texts.append_column("compared", compared).filter(used)
    # A detector that ranks a text among all texts is omitted, because its scores make the tested half depend on the
    # fitted half.
    is_feature = pc.not_equal(scores["detector"], RANKED_AMONG_ALL)
    scores = scores.filter(pc.and_(is_feature, pc.is_in(scores["example_id"], value_set=texts["example_id"])))
    features = build_feature_matrix(
        scores["example_id"].to_pylist(),
        pc.binary_join_element_wise(scores["detector"], scores["parameters"], " ").to_pylist(),
        pc.if_else(pc.equal(scores["status"], "ok"), scores["score"], None).to_pylist(),
    )
    texts = texts.take(pc.index_in(pa.array(features.example_ids, pa.string()), value_set=texts["example_id"]))
    is_tested = texts["compared"].to_numpy()
    if not is_tested.any() or not pc.any(held_out).as_py():
        return CORPUS_TESTS.empty_table()
    groups = np.array(texts["group"].to_pylist(), dtype=object)
    is_held_out = texts["held_out"].to_numpy()
    result = run_dataset_inference(
        ComparedTexts(features.values[is_tested], features.names, is_held_out[is_tested], groups[is_tested]),
        design=design,
        claim_level=evaluation.claim_level,
        known_members=(features.values[~is_tested], groups[~is_tested]),
    )
    row = {name: value for name, value in vars(result).items() if name in CORPUS_TESTS.names}
    row["model"] = pair.model
    row["benchmark"] = pair.benchmark
    row["test"] = NAME
    row["run_id"] = run_id
    row["status"] = result.status
    row["method"] = describe_method(result)
    return table_from_rows([row], CORPUS_TESTS)


def describe_method(result: DatasetInference) -> str:
    """Return the sentence about the method of a dataset inference, which tables and reports show."""
    parts = [
        f"{result.n_features} feature{'' if result.n_features == 1 else 's'}, ridge regression of group means, "
        "one-sided Welch test of group means of the other half in the direction of training, "
        f"{result.n_splits} random splits by group, twice the median p-value"
    ]
    if result.undirected_p_value is not None:
        part = f"{result.n_splits_with_training} of {result.n_splits} fitted halves run in the direction of training"
        if result.n_features_against:
            part += f", up to {result.n_features_against} feature(s) omitted because known members have lower scores"
        if result.n_splits_with_training < result.n_splits:
            part += f" (p = {result.undirected_p_value:.2g} regardless of direction)"
        parts.append(part)
    if result.omitted_features:
        n_texts = result.n + result.n_held_out
        descriptions = [f"{name} (missing for {n} of {n_texts} texts)" for name, n in result.omitted_features.items()]
        part = f"omitted: {', '.join(descriptions[:_MAX_NAMED_FEATURES])}"
        n_more = len(descriptions) - _MAX_NAMED_FEATURES
        if n_more > 0:
            part += f" and {n_more} more"
        parts.append(part)
    return "; ".join(parts)
