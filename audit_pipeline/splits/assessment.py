"""What is known of a benchmark's split without any model: the blind control, read once, and the verdict.

Every evaluation of a benchmark takes blind control and verdict from here, whichever model it is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.splits.blind_controls import (
    WORDS,
    BlindControl,
    ControlAuroc,
    compute_blind_control,
    measure_controls,
)
from audit_pipeline.splits.evaluation_texts import select_labelled_examples
from audit_pipeline.statistics.claims import ClaimLevel, SplitVerdict, decide_claim_level, decide_split_verdict
from audit_pipeline.statistics.intervals import Interval
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import BLIND_SCORES

MEASURE, WORST = "blind_auroc", "worst_blind_auroc"
"""The rows of split_quality that hold AUROCs of blind controls, and the highest of them."""


@dataclass(frozen=True, eq=False)
class AssessedSplit:
    """The blind control of words of one benchmark, and what it says of the split.

    ``design``: how members and non-members came about; ``matched``: whether they were chosen to be hard to separate.
    ``control`` has a score for each of ``example_ids``, or none and the reason; ``auroc`` is its AUROC.
    """

    design: str
    matched: bool
    verdict: SplitVerdict
    auroc: ControlAuroc
    control: BlindControl
    example_ids: Sequence[str]

    @property
    def claim_level(self) -> ClaimLevel:
        """The most that may be claimed from the benchmark."""
        return decide_claim_level(self.design, self.verdict)

    def align_control(self, example_ids: Sequence[str]) -> BlindControl:
        """The control's scores in the order of ``example_ids``; raises DataError for a text that it has no score of."""
        if self.control.scores is None:
            return self.control
        places = pc.index_in(pa.array(example_ids, pa.string()), value_set=pa.array(self.example_ids, pa.string()))
        if places.null_count or len(places) != len(self.example_ids):
            raise DataError("the blind control was read on other texts than are evaluated: assess the split again")
        return BlindControl(self.control.scores[places.to_numpy()], None, self.control.method)

    def table(self, benchmark: str, run_id: str) -> pa.Table:
        """Return the control's scores (schema BLIND_SCORES); no row where it was not computed."""
        scores = [] if self.control.scores is None else self.control.scores.tolist()
        same = {"benchmark": benchmark, "method": self.control.method, "run_id": run_id}
        ids = self.example_ids if scores else ()
        rows = (
            same | {"example_id": example_id, "score": score} for example_id, score in zip(ids, scores, strict=True)
        )
        return table_from_rows(rows, BLIND_SCORES)


def compute_assessed_split(
    examples: pa.Table, design: str, language: str, *, matched: bool = False, seed: int = 0
) -> AssessedSplit:
    """Read the blind control on the labelled examples of the evaluation split (schema EXAMPLES), all of them.

    ``language`` is theirs (ISO 639-1). Raises DataError as :func:`select_labelled_examples` does, ConfigError for an
    unknown design.
    """
    labelled = select_labelled_examples(examples)
    control = compute_blind_control(
        labelled.example_ids, labelled.texts, labelled.labels, labelled.groups, language=language, seed=seed
    )
    (auroc,) = measure_controls({WORDS: control}, labelled.labels, labelled.groups)
    verdict = decide_split_verdict(design, auroc.interval, matched=matched)
    return AssessedSplit(design, matched, verdict, auroc, control, labelled.example_ids)


def assessed_split_from_tables(design: str, matched: bool, quality: pa.Table, scores: pa.Table) -> AssessedSplit:
    """Return the split as it was assessed, from its tables (schemas SPLIT_QUALITY and BLIND_SCORES)."""
    (row,) = (
        measured for measured in quality.to_pylist() if (measured["measure"], measured["part"]) == (MEASURE, WORDS)
    )
    auroc = ControlAuroc(row["value"], Interval(row["ci_low"], row["ci_high"]), row["method"], WORDS, row["n"])
    control = BlindControl(None, row["method"], row["method"])
    if len(scores):
        control = BlindControl(scores["score"].to_numpy(), None, scores["method"][0].as_py())
    return AssessedSplit(design, matched, row["split_verdict"], auroc, control, scores["example_id"].to_pylist())
