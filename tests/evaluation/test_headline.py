"""The detector that answers is chosen by its name alone."""

from __future__ import annotations

import pytest

from audit_pipeline.evaluation.headline import headline_detector


@pytest.mark.parametrize(
    ("scored", "chosen"),
    [
        ({"loss", "infilling", "min_k_plus_plus", "min_k"}, "min_k_plus_plus"),
        ({"loss", "min_k"}, "min_k"),
        ({"zlib", "loss"}, "loss"),
        ({"theirs", "mine"}, "mine"),
        (set(), None),
    ],
)
def test_the_first_of_the_list_or_else_by_name(scored: set[str], chosen: str | None) -> None:
    assert headline_detector(scored) == chosen
