"""The tokens behind the highest scores, and the 50 words of a text that are shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_workspace import Workspace, made_documents, temporal
from tiny_models import forward_of

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.scoring.pair_scores import (
    MAX_HIGHLIGHTS,
    mark_lowest_tokens,
    run_passes,
    score_and_store_pair,
    select_excerpt,
)
from audit_pipeline.store.files import read_table
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import EXCERPT_WORDS, HIGHLIGHTS, SCORES, Pair
from audit_pipeline.token_statistics.cached_texts import read_statistics

PAIR = Pair("made_60", "tiny")


def spans_of(text: str, *, step: int = 3) -> list[tuple[int, int]]:
    """Return the spans of a text in tokens of ``step`` characters."""
    return [(start, min(start + step, len(text))) for start in range(0, len(text), step)]


def test_the_lowest_share_of_tokens_is_marked_the_first_of_equal_ones() -> None:
    assert mark_lowest_tokens(np.array([3.0, 1.0, 2.0, 1.0, 9.0]), 0.4).tolist() == [False, True, False, True, False]
    assert mark_lowest_tokens(np.array([1.0, 1.0, 1.0]), 0.2).tolist() == [True, False, False]


def test_a_short_text_is_shown_whole() -> None:
    text = "one two  three"
    shown = select_excerpt(text, spans_of(text), np.zeros(5, dtype=bool))
    assert "".join(shown.pieces) == text
    assert shown.tokens == (0, 1, 2, 3, 4)


def test_the_excerpt_has_the_most_marked_tokens() -> None:
    words = [f"w{number:03d}" for number in range(200)]
    text = " ".join(words)
    spans = [(5 * number - (number > 0), 5 * number + 4) for number in range(200)]
    counted = np.zeros(200, dtype=bool)
    counted[[0, 120, 130, 140]] = True
    shown = select_excerpt(text, spans, counted)
    # The first stretch of 50 that holds words 120 to 140 begins with word 91.
    assert "".join(shown.pieces) == " ".join(words[91:141])
    assert shown.tokens == tuple(range(91, 141))


def test_a_text_without_blanks_is_cut_by_its_characters() -> None:
    text = "\u0f40" * 20_000
    shown = select_excerpt(text, spans_of(text), np.ones(len(spans_of(text)), dtype=bool))
    assert len("".join(shown.pieces)) <= 500
    assert len(shown.pieces) == len(shown.tokens) > 100


@given(
    st.text(alphabet="ab \n\u4e2d\u6587é", min_size=1, max_size=400),
    st.integers(1, 7),
    st.integers(0, 2**32 - 1),
)
def test_an_excerpt_is_part_of_the_text_and_has_at_most_50_words(text: str, step: int, seed: int) -> None:
    spans = spans_of(text, step=step)
    counted = np.random.default_rng(seed).random(len(spans)) < 0.3
    shown = select_excerpt(text, spans, counted)
    joined = "".join(shown.pieces)
    assert joined in text
    assert len(shown.pieces) == len(shown.tokens)
    han = sum("\u4e00" <= one <= "\u9fff" for one in joined)
    rest = "".join(" " if "\u4e00" <= one <= "\u9fff" else one for one in joined)
    assert han + len(rest.split()) <= EXCERPT_WORDS + step


@pytest.mark.usefixtures("one_thread")
def test_the_highest_scores_are_highlighted_with_their_lowest_tokens(workspace: Workspace) -> None:
    workspace.write_benchmarks(made=temporal([60]))
    workspace.fetch(*made_documents(3, 70))
    workspace.build("made_60")
    model, paths = workspace.model("tiny"), workspace.paths
    tokens = LineageStep.now("tokens", "token_statistics", "1")
    run_passes(PAIR, model, paths, lambda: forward_of(model), tokens, kinds=["base"], logits_budget=0)
    score_and_store_pair(PAIR, model, paths, LineageStep.now("scored", "scores", "1"))

    scores = read_table(paths.run_file("scores", PAIR.partition, "scored"), SCORES, label="scores").to_pylist()
    shown = read_table(
        paths.run_file("highlights", PAIR.partition, "scored"), HIGHLIGHTS, label="highlights"
    ).to_pylist()
    headline = {
        row["example_id"]: row["score"]
        for row in scores
        if row["detector"] == "min_k_plus_plus" and json.loads(row["parameters"]) == {"k": 0.2}
    }
    highest = sorted(headline, key=lambda one: (-headline[one], one))[:MAX_HIGHLIGHTS]
    assert [row["example_id"] for row in shown] == highest
    assert [row["place"] for row in shown] == list(range(1, len(highest) + 1))
    texts = dict(
        zip(*(read_built(paths, "made_60").examples[name].to_pylist() for name in ("example_id", "text")), strict=True)
    )
    index = StatisticsIndex(read_statistics(model, list(texts.values()), paths))
    for row in shown:
        text = texts[row["example_id"]]
        piece = "".join(row["pieces"])
        assert piece in text
        assert len(piece.split()) <= EXCERPT_WORDS < len(text.split())
        assert row["detector"] == "min_k_plus_plus"
        statistics = index.find(text)
        assert statistics is not None
        z = (statistics.logprob.astype(float) - statistics.mean) / np.maximum(statistics.std.astype(float), 1e-6)
        count = max(1, int(len(z) * 0.2))
        assert np.isclose(np.sort(z)[:count].mean(), row["score"])
        # Those that count are the ones below the k-th lowest.
        bound = np.sort(z)[count - 1]
        assert all(
            (score <= bound) == counted for score, counted in zip(row["token_scores"], row["counted"], strict=True)
        )
        assert row["n_tokens"] == len(z)
