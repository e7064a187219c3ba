"""Labels in a benchmark's rows: what is said of those that mean nothing."""

from __future__ import annotations

import pytest

from audit_pipeline.benchmarks.labelled_rows import parse_label_column
from audit_pipeline.readers.rows import Row, UnusableRowError

LONG = f"its label is '{'word ' * 6}…', not "


@pytest.mark.parametrize(
    ("value", "meanings", "reason"),
    [
        ("word " * 1000, None, f"{LONG}0, 1 or null"),
        ("word " * 1000, {"yes": 1}, f"{LONG}yes or null"),
        ("maybe", None, "its label is 'maybe', not 0, 1 or null"),
        (list(range(10_000)), None, "its label is [0, 1, 2, 3, 4, 5, 6, 7, 8, 9,…, not 0, 1 or null"),
    ],
)
def test_a_label_that_is_a_whole_text_is_not_quoted_whole(
    value: object, meanings: dict[str, int] | None, reason: str
) -> None:
    """With shifted columns it is the text, which may be in copyright; reasons are in manifests."""
    with pytest.raises(UnusableRowError) as error:
        parse_label_column(Row("a:1", 0, {"label": value}), "label", meanings or {})
    assert str(error.value) == reason
