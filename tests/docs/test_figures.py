"""The figures of docs/statistics-explained.md are drawn, and the page quotes their numbers."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image

from audit_pipeline.statistics.roc import compute_roc_points
from docs.write_pages import DOCS
from docs.writers.figures import FPR, MEMBERS_AHEAD, drawn, facts, figures, shelf

PAGE = DOCS / "statistics-explained.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_page_tells_the_numbers_of_the_figures() -> None:
    assert {name: said for name, said in facts().items() if said not in TEXT} == {}


def test_every_figure_of_the_page_is_drawn_and_kept() -> None:
    made = figures()
    assert {f"figures/{name}" for name in made} == set(re.findall(r"\]\((figures/[^)]+)\)", TEXT))
    for name, content in made.items():
        kept = Image.open(DOCS / "figures" / name)
        assert kept.size == Image.open(io.BytesIO(content)).size, "run make docs"


def test_the_curve_s_mark_is_the_share_above_the_threshold() -> None:
    sides = drawn(200)
    # Ten of 200 non-members may lie above the threshold, so that it lies just above the eleventh.
    eleventh = np.sort(sides.of(0))[-11]
    found = (sides.of(1) > eleventh).mean()
    curve = compute_roc_points(sides.scores, sides.labels)
    assert curve.tpr[curve.fpr <= FPR].max() == pytest.approx(found)


def test_invented_scores_are_as_far_apart_as_they_are_said_to_be() -> None:
    for texts_per_group in (1, 10):
        sides = drawn(50_000, texts_per_group=texts_per_group)
        assert sides.of(1).mean() - sides.of(0).mean() == pytest.approx(MEMBERS_AHEAD, abs=0.05)
        assert sides.of(0).std() == pytest.approx(1, abs=0.05)
        assert len(set(sides.groups)) == 100_000 // texts_per_group


def test_a_book_stands_out_where_it_is_below_the_line_of_the_figure() -> None:
    books = shelf()
    order = np.sort(books.p)
    below = np.flatnonzero(order <= 0.05 * np.arange(1, len(order) + 1) / len(order))
    assert (books.q <= 0.05).sum() == below.max() + 1
