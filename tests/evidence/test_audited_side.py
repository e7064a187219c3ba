"""A shelf's examples as two sides: audited and held out."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from audit_pipeline.catalogue.contracts import EXAMPLES
from audit_pipeline.catalogue.files import table_from_rows
from audit_pipeline.evidence.sides import relabel_against_held_out


def examples(*rows: tuple[str, int | None, str]) -> pa.Table:
    """Rows of (id, label, split)."""
    return table_from_rows([_row(*row) for row in rows], EXAMPLES)


def _row(name: str, label: int | None, split: str) -> dict[str, Any]:
    return {
        "example_id": name,
        "benchmark": "shelf_64",
        "document_id": name,
        "text": f"text of {name}",
        "context": None,
        "label": label,
        "split": split,
        "published": date(2020, 1, 1),
        "words": 3,
        "language": "en",
        "collection": "c",
        "group": name,
        "run_id": "run",
    }


def test_audited_texts_stand_against_held_out_ones_and_known_members_are_left_out() -> None:
    given = examples(
        ("mine", None, "evaluation"),
        ("known", 1, "calibration"),
        ("new", 0, "calibration"),
        ("unused", None, "calibration"),
    )
    found = relabel_against_held_out(given)
    assert found is not None
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
def test_where_something_is_labelled_or_nothing_held_out_there_is_nothing_to_rewrite(given: Any) -> None:
    assert relabel_against_held_out(examples(*given)) is None
