"""The two sides of a shelf: audited and held-out texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from made_rows import example, examples_table

from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.tables import EXAMPLES


def examples(*rows: tuple[str, int | None, str]) -> pa.Table:
    """Return a table of rows (id, label, split)."""
    return examples_table(example(name, label=label, split=split) for name, label, split in rows)


def test_audited_texts_stand_against_held_out_ones_and_known_members_are_left_out() -> None:
    given = examples(
        ("mine", None, "evaluation"),
        ("known", 1, "calibration"),
        ("new", 0, "calibration"),
        ("unused", None, "calibration"),
    )
    found = relabel_for_comparison(given)
    assert found.schema == EXAMPLES.schema
    assert {row["example_id"]: (row["label"], row["split"]) for row in found.to_pylist()} == {
        "mine": (1, "evaluation"),
        "new": (0, "evaluation"),
    }


@pytest.mark.parametrize(
    "given",
    [
        (("a", 1, "evaluation"), ("b", None, "evaluation"), ("c", 0, "calibration")),
        (("a", None, "evaluation"), ("b", 1, "calibration")),
        (("b", 0, "calibration"),),
        (),
    ],
)
def test_labelled_benchmarks_and_those_without_held_out_texts_are_unchanged(given: Any) -> None:
    unchanged = examples(*given)
    assert relabel_for_comparison(unchanged) is unchanged
