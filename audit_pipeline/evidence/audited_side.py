"""Audited texts of unknown label, compared with held-out texts, which the model cannot have read.

What belongs here: how the examples of such a benchmark are read as members and non-members. What does not: metrics of
them (evaluate.py).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import EXAMPLES, MEMBER, NON_MEMBER

IN_WORDS = "audited texts (membership unknown) are compared with held-out texts, the non-members"
_BEFORE = "audited texts, of which nobody knows, stand in the members' place, held-out texts are the non-members"
"""The same as earlier versions wrote it."""


def is_against_held_out(method: str | None) -> bool:
    """Whether a metric's ``method`` says that it compares audited with held-out texts."""
    return (method or "").startswith((IN_WORDS, _BEFORE))


def as_compared(examples: pa.Table) -> pa.Table:
    """The examples (schema EXAMPLES) whose labels are compared: theirs, or those of :func:`against_held_out`."""
    compared = against_held_out(examples)
    return examples if compared is None else compared


def against_held_out(examples: pa.Table) -> pa.Table | None:
    """The examples (schema EXAMPLES) as audited against held-out: what is audited has label 1, what is held out 0.

    All of them are in the evaluation split then. The AUROC is how well the two are told apart: .5 where the audited
    texts were read no more than the held-out ones, but for chance. None where some text to evaluate is labelled, or
    nothing is held out: there is nothing to rewrite.
    """
    evaluated = pc.equal(examples["split"], "evaluation")
    held_out = pc.fill_null(
        pc.and_(pc.equal(examples["split"], "calibration"), _has_label(examples, NON_MEMBER)), False
    )
    labelled = pc.any(pc.and_(evaluated, pc.is_valid(examples["label"]))).as_py()
    if labelled or not pc.any(held_out).as_py() or not pc.any(evaluated).as_py():
        return None
    audited = examples.filter(evaluated)
    sides = (
        (audited, MEMBER),
        (examples.filter(held_out), NON_MEMBER),
    )
    return pa.concat_tables(_set_label_and_split(table, label) for table, label in sides)


def _has_label(examples: pa.Table, label: int) -> pa.ChunkedArray:
    return pc.equal(examples["label"], label)


def _set_label_and_split(examples: pa.Table, label: int) -> pa.Table:
    columns = {
        "label": pa.array([label] * len(examples), pa.int8()),
        "split": pa.array(["evaluation"] * len(examples), pa.string()),
    }
    for name, values in columns.items():
        examples = examples.set_column(examples.schema.get_field_index(name), EXAMPLES.field(name), values)
    return examples
