"""Labels in a benchmark's rows: what is said of those that mean nothing."""

from __future__ import annotations

import pytest

from audit_pipeline.benchmarks.labelled_rows import parse_label_column
from audit_pipeline.readers.text_rows import Row, UnusableRowError

LONG = f"its label is '{'word ' * 6}…', not "


def read_label(value: object, meanings: dict[str, int] | None = None) -> int | None:
    return parse_label_column(Row("a:1", 0, {"label": value}), "label", meanings or {})


@pytest.mark.parametrize(
    ("value", "label"), [(1, 1), (0, 0), (True, 1), (0.0, 0), ("1", 1), (" 0 ", 0), ("", None), (None, None)]
)
def test_labels_as_files_spell_them(value: object, label: int | None) -> None:
    assert read_label(value) == label


@pytest.mark.parametrize(
    ("value", "meanings", "reason"),
    [
        *((value, None, "not 0, 1 or null") for value in (-1, 2, 0.5, "yes", "01", [1], float("nan"))),
        # With shifted columns it is the text, which may be in copyright; reasons are in manifests.
        ("word " * 1000, None, f"{LONG}0, 1 or null"),
        ("word " * 1000, {"yes": 1}, f"{LONG}yes or null"),
        ("maybe", None, "its label is 'maybe', not 0, 1 or null"),
        (list(range(10_000)), None, "its label is [0, 1, 2, 3, 4, 5, 6, 7, 8, 9,…, not 0, 1 or null"),
    ],
)
def test_what_is_no_label_is_named_and_a_whole_text_is_not_quoted(
    value: object, meanings: dict[str, int] | None, reason: str
) -> None:
    with pytest.raises(UnusableRowError) as error:
        read_label(value, meanings)
    assert str(error.value).endswith(reason)
