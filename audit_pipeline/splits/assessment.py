"""The assessment of a benchmark's split without a model: the blind control and the verdict.

The control is computed once per benchmark. Every evaluation of the benchmark, for any model, uses this result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.splits import blind_controls
from audit_pipeline.splits.evaluation_texts import select_labelled_examples
from audit_pipeline.statistics.claims import ClaimLevel, SplitVerdict, decide_claim_level, decide_split_verdict
from audit_pipeline.statistics.intervals import Interval
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import BLIND_SCORES

MEASURE = "blind_auroc"
"""The measure in split_quality for the AUROC of one blind control."""
WORST = "worst_blind_auroc"
"""The measure in split_quality for the highest AUROC of the blind controls."""


@dataclass(frozen=True, eq=False)
class AssessedSplit:
    """The blind control of words of one benchmark, and the verdict that follows from it.

    Attributes:
        design: How members and non-members were obtained.
        matched: True if the sides were chosen to be hard to separate.
        verdict: The verdict on the split, from the design and the control.
        auroc: The AUROC of the control.
        control: One score for each of ``example_ids``, or no scores and the reason.
        example_ids: The ids of the labelled examples.
    """

    design: str
    matched: bool
    verdict: SplitVerdict
    auroc: blind_controls.ControlAuroc
    control: blind_controls.BlindControl
    example_ids: Sequence[str]

    @property
    def claim_level(self) -> ClaimLevel:
        """Return the strongest claim that the benchmark allows."""
        return decide_claim_level(self.design, self.verdict)

    def align_control(self, example_ids: Sequence[str]) -> blind_controls.BlindControl:
        """Return the control with its scores in the order of ``example_ids``.

        Raises:
            DataError: If the control has scores for other examples than ``example_ids``.
        """
        if self.control.scores is None:
            return self.control
        positions = pc.index_in(pa.array(example_ids, pa.string()), value_set=pa.array(self.example_ids, pa.string()))
        if positions.null_count or len(positions) != len(self.example_ids):
            raise DataError(
                f"the blind control has scores for {len(self.example_ids)} texts, but other texts are evaluated: "
                "assess the split again"
            )
        return blind_controls.BlindControl(self.control.scores[positions.to_numpy()], None, self.control.method)

    def table(self, benchmark: str, run_id: str) -> pa.Table:
        """Return the control's scores (schema BLIND_SCORES). The table is empty if the control was not computed."""
        if self.control.scores is None:
            return table_from_rows([], BLIND_SCORES)
        shared = {"benchmark": benchmark, "method": self.control.method, "run_id": run_id}
        rows = []
        for example_id, score in zip(self.example_ids, self.control.scores.tolist(), strict=True):
            rows.append({**shared, "example_id": example_id, "score": score})
        return table_from_rows(rows, BLIND_SCORES)


def compute_assessed_split(
    examples: pa.Table, design: str, language: str, *, matched: bool = False, seed: int = 0
) -> AssessedSplit:
    """Compute the blind control on all labelled examples of the evaluation split.

    Args:
        examples: The examples of one benchmark (schema EXAMPLES).
        design: How members and non-members were obtained.
        language: The language of the texts (ISO 639-1).
        matched: True if the sides were chosen to be hard to separate.
        seed: The seed of the folds.

    Raises:
        DataError: In the cases of :func:`select_labelled_examples`.
        ConfigError: If the design is unknown.
    """
    labelled = select_labelled_examples(examples)
    control = blind_controls.compute_blind_control(
        labelled.example_ids, labelled.texts, labelled.labels, labelled.groups, language=language, seed=seed
    )
    (auroc,) = blind_controls.measure_controls({blind_controls.WORDS: control}, labelled.labels, labelled.groups)
    verdict = decide_split_verdict(design, auroc.interval, matched=matched)
    return AssessedSplit(design, matched, verdict, auroc, control, labelled.example_ids)


def assessed_split_from_tables(design: str, matched: bool, quality: pa.Table, scores: pa.Table) -> AssessedSplit:
    """Return the stored assessment from its tables (schemas SPLIT_QUALITY and BLIND_SCORES)."""
    (row,) = (row for row in quality.to_pylist() if row["measure"] == MEASURE and row["part"] == blind_controls.WORDS)
    auroc = blind_controls.ControlAuroc(
        row["value"], Interval(row["ci_low"], row["ci_high"]), row["method"], blind_controls.WORDS, row["n"]
    )
    control = blind_controls.BlindControl(None, row["method"], row["method"])
    if len(scores):
        control = blind_controls.BlindControl(scores["score"].to_numpy(), None, scores["method"][0].as_py())
    return AssessedSplit(design, matched, row["split_verdict"], auroc, control, scores["example_id"].to_pylist())
