"""Copies of a text with swapped words: their random numbers, their passes and their scores."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_files import write_rows
from tiny_models import SENTENCES, Tiny, never, twin_statistics

from audit_pipeline.detectors.perturbed import STREAM, TEXT, CopySettings, compute_polarized_distance
from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.readers.formats import open_texts
from audit_pipeline.scoring.file import ChunkLimits, score_file
from audit_pipeline.scoring.needs.derived_texts import draw_word_orders, make_shuffled_copies
from audit_pipeline.scoring.needs.provider import UserInputs, list_derived_texts
from audit_pipeline.scoring.session import Selection, Session
from audit_pipeline.store.paths import DataPaths

pytestmark = pytest.mark.usefixtures("one_thread")

# One stands twice, and right behind itself.
TEXTS = [*SENTENCES[:3], SENTENCES[2], "word", SENTENCES[0]]


def pac(seeds: str) -> Selection:
    return select_detectors(["pac"], overrides={"pac": {"seeds": seeds}})


def scored_file(texts: Sequence[str], seeds: str, tiny: Tiny, folder: Path, at_a_time: int) -> list[float | None]:
    """Return the scores of a file that is scored in chunks of ``at_a_time`` rows."""
    model, forward = tiny("llama")
    file = write_rows(folder / f"{at_a_time}.jsonl", [{"text": text} for text in texts])
    out = folder / f"{at_a_time}.parquet"
    limits = ChunkLimits(texts=at_a_time)
    paths = DataPaths(folder / "data")
    score_file(open_texts(file), out, model, pac(seeds), paths, lambda wanted: forward, bounds=limits)
    return [row["score"] for row in pq.read_table(out).to_pylist()]


def by_hand(text: str, copies: Sequence[str], tiny: Tiny) -> float:
    """Compute the score from passes of the bare model."""
    own, *others = (
        compute_polarized_distance(twin_statistics(*tiny("llama"), one)["logprob"]) for one in (text, *copies)
    )
    return float(np.mean(others)) - own


@given(words=st.integers(1, 60), alpha=st.floats(0.05, 1), n=st.integers(1, 6), seed=st.integers(0, 2**64 - 1))
def test_a_copy_has_every_word_once_and_the_seed_decides(words: int, alpha: float, n: int, seed: int) -> None:
    found = draw_word_orders(words, alpha, n, random.Random(seed))
    assert [sorted(one) for one in found] == [list(range(words))] * n
    moved = [sum(place != word for place, word in enumerate(one)) for one in found]
    assert max(moved) <= 2 * max(1, int(alpha * words))
    assert found == draw_word_orders(words, alpha, n, random.Random(seed))


def test_the_draws_of_a_seed_are_unchanged() -> None:
    """Otherwise cached copies would not be found."""
    assert draw_word_orders(4, 0.3, 3, random.Random(0)) == [[3, 1, 2, 0], [0, 1, 3, 2], [0, 1, 3, 2]]
    assert draw_word_orders(10, 0.3, 2, random.Random(1)) == [
        [0, 7, 9, 3, 1, 5, 6, 4, 8, 2],
        [6, 3, 2, 1, 4, 5, 7, 0, 8, 9],
    ]


def test_copies_keep_every_blank() -> None:
    text = " two  words "
    assert {"".join(sorted(one)) for one in make_shuffled_copies(text, CopySettings(0.5, 4, TEXT))} == {
        "".join(sorted(text))
    }
    assert make_shuffled_copies("word", CopySettings(0.3, 2, TEXT)) == ["word", "word"]


@pytest.mark.parametrize("at_a_time", [1, 2, len(TEXTS)])
def test_the_copies_of_a_text_do_not_depend_on_its_position(at_a_time: int, tiny: Tiny, tmp_path: Path) -> None:
    way = CopySettings(0.3, 5, TEXT)
    expected = [None if text == "word" else by_hand(text, make_shuffled_copies(text, way), tiny) for text in TEXTS]
    assert scored_file(TEXTS, TEXT, tiny, tmp_path, at_a_time) == [
        None if one is None else pytest.approx(one, abs=2e-3) for one in expected
    ]


@pytest.mark.parametrize("at_a_time", [1, 2, len(TEXTS)])
def test_one_stream_goes_over_the_rows_of_a_file_in_their_order(at_a_time: int, tiny: Tiny, tmp_path: Path) -> None:
    stream = random.Random(0)
    copies = [make_shuffled_copies(text, CopySettings(0.3, 5, STREAM), stream) for text in TEXTS]
    assert copies[2] != copies[3], "a text that stands there twice has other copies"
    found = scored_file(TEXTS, STREAM, tiny, tmp_path, at_a_time)
    assert found[4] is None
    for place in (0, 1, 2, 3, 5):
        assert found[place] == pytest.approx(by_hand(TEXTS[place], copies[place], tiny), abs=2e-3), place
    assert found[2] != found[3]


def test_what_is_planned_is_run_once(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    paths, texts = DataPaths(tmp_path), list(SENTENCES[:3])
    session = Session(model, pac(TEXT), paths, user_inputs=UserInputs())
    planned = session.plan(texts)
    [words] = session.describe_extra_costs(texts)
    assert words.startswith("pac: 5 copies of each text")
    summary = session.run(texts, lambda wanted: forward)
    assert (
        summary.extra_passes["copies"].tokens_computed == planned.tokens_to_run - summary.text_pass.tokens_computed > 0
    )
    assert session.extra_pass_counts == {"copies": 5}
    again = Session(model, pac(TEXT), paths, user_inputs=UserInputs())
    assert again.describe_extra_costs(texts) == []
    assert again.run(texts, never).extra_passes["copies"].tokens_computed == 0


def test_copies_that_were_not_run_are_the_reason(tiny: Tiny, tmp_path: Path) -> None:
    model, forward = tiny("llama")
    Session(model, [], DataPaths(tmp_path)).run(TEXTS[:2], lambda wanted: forward)
    rows = Session(model, pac(TEXT), DataPaths(tmp_path)).score(["a"], TEXTS[:1]).to_pylist()
    assert [(row["status"], "run on every copy" in row["reason"]) for row in rows] == [("not_applicable", True)]


@pytest.mark.parametrize(
    ("seeds", "where", "words"),
    [
        (STREAM, {}, "depend on the order of the rows of a file"),
        (TEXT, {"in_context": True}, "the text is scored after a context"),
        (STREAM, {"in_context": True, "user_inputs": UserInputs()}, "the text is scored after a context"),
    ],
)
def test_audits_with_a_stream_and_texts_after_a_context_have_no_copies(
    seeds: str, where: Mapping[str, object], words: str, tiny: Tiny, tmp_path: Path
) -> None:
    session = Session(tiny("llama")[0], pac(seeds), DataPaths(tmp_path), **where)  # type: ignore[arg-type]
    [reason] = session.unmet_requirements.values()
    assert words in reason


def test_the_copies_are_found_when_a_text_is_forgotten() -> None:
    text = SENTENCES[0]
    assert set(make_shuffled_copies(text, CopySettings(0.3, 5, TEXT))) <= set(list_derived_texts([text]))
