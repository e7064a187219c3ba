"""The labelled texts of the evaluation split: what members are told from non-members on, with a model and without.

What belongs here: reading them out of a table of examples, in one order. What does not: scores and metrics of them
(evidence/), and classifiers that see no model (blind_control.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import EXAMPLES, MEMBER, NON_MEMBER
from audit_pipeline.catalogue.tables import checked
from audit_pipeline.errors import DataError


@dataclass(frozen=True, eq=False)
class LabelledExamples:
    """The labelled examples of the evaluation split, by group and id: [n] each."""

    example_ids: list[str]
    texts: list[str]
    labels: npt.NDArray[np.int8]
    groups: list[str]

    def __len__(self) -> int:
        return len(self.example_ids)


def labelled_examples(examples: pa.Table) -> LabelledExamples:
    """The examples of the evaluation split that have a label.

    Raises DataError for a missing column, a null, a label other than 0 and 1, or an example_id that occurs twice.
    """
    names = ("example_id", "text", "label", "split", "group")
    table = checked(
        examples.select([name for name in names if name in examples.column_names]),
        pa.schema([EXAMPLES.field(name) for name in names]),
    )
    if pc.count_distinct(table["example_id"]).as_py() != table.num_rows:
        raise DataError("an example_id occurs twice in the benchmark: build the benchmark again")
    table = table.filter(pc.and_(pc.equal(table["split"], "evaluation"), pc.is_valid(table["label"])))
    table = table.sort_by([("group", "ascending"), ("example_id", "ascending")])
    labels = np.asarray(table["label"].to_numpy(), dtype=np.int8)
    if not np.isin(labels, (MEMBER, NON_MEMBER)).all():
        raise DataError("a label is neither 1 (member), 0 (non-member) nor null: build the benchmark again")
    ids, texts, groups = (table[name].to_pylist() for name in ("example_id", "text", "group"))
    return LabelledExamples(ids, texts, labels, groups)
