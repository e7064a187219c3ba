"""The headline detector is chosen by its name alone."""

from __future__ import annotations

import pytest

from audit_pipeline.statistics.evaluate_options import choose_headline_detector


@pytest.mark.parametrize(
    ("scored", "chosen"),
    [
        ({"loss", "infilling", "min_k_plus_plus", "min_k"}, "min_k_plus_plus"),
        ({"loss", "min_k"}, "min_k"),
        ({"zlib", "loss"}, "loss"),
        ({"theirs", "mine"}, None),
        ({"mine"}, "mine"),
        (set(), None),
    ],
)
def test_the_headline_is_the_first_preferred_or_the_only_detector(scored: set[str], chosen: str | None) -> None:
    assert choose_headline_detector(scored) == chosen


def test_the_named_detector_is_the_headline_or_none() -> None:
    assert choose_headline_detector({"loss", "theirs"}, "theirs") == "theirs"
    assert choose_headline_detector({"loss", "min_k"}, "theirs") is None, "never another one in its place"
