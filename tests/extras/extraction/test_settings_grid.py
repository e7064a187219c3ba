"""The grid of settings: probabilities against the whole softmax, and the p-value over all settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from taught import DOCUMENTS, Taught, filler
from tiny_models import forward_of, save_model, tokenized

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.extraction import WindowLengths
from audit_pipeline.extras.extraction.continuations import compare_given_text, generate_suffix
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.settings_grid import (
    FROM_BEGINNING,
    SAMPLING_OF_SEARCH,
    SAMPLING_SETTINGS,
    DocumentGrid,
    Grid,
    GridFindings,
    GridSetting,
    build_grid,
    compute_grid_p_values,
    iterate_grid_rows,
)
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.tables import DECODINGS
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread")

ROOM = 320
CLOSE = ExtractionSettings(prefix=16, suffix=24, stride="chars:10")
ASKED = ExtractionSettings(prefix=25, suffix=50, stride="tiled", grid=True)
LONG = SearchedDocument("long", filler(240, 1))
SHORT = SearchedDocument("short", filler(70, 2), side="held_out")
NONE = SearchedDocument("none", "Two words.")


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    """Return a random model whose context fits the longest prefix."""
    folder = save_model(tmp_path_factory.mktemp("random") / "llama", max_position_embeddings=ROOM)
    model = tokenized(folder, folder / "data")
    return Taught(model, forward_of(model))


def run(taught: Taught, documents: Sequence[SearchedDocument], folder: Path) -> GridFindings:
    found = taught.search(folder, ASKED, documents).run_grid(taught.load)
    assert found is not None
    return found


def test_every_setting_equals_the_whole_softmax(random: Taught, tmp_path: Path) -> None:

    @torch.inference_mode()
    def by_the_bare_model(taught: Taught, document: str, start: int, begin: int, end: int) -> np.ndarray:
        """Compute each suffix token's log-probability under each of ``SAMPLING_SETTINGS`` with the bare model.

        The suffix lies between the characters ``begin`` and ``end``, and the text before it begins at ``start``.
        The result has the shape (n_tokens, n_ways).
        """
        [text] = encode(taught.model, [document[start:end]])
        ids = [taught.model.start_token_id, *text.token_id.tolist()]
        first = int((text.char_end + start <= begin).sum())
        logits = taught.forward.model(input_ids=torch.tensor([ids])).logits[0, first:-1].double().numpy()
        found = []
        for row, token in zip(logits, ids[first + 1 :], strict=True):
            order = np.argsort(-row, kind="stable")
            rank, of_token = int((row > row[token]).sum()), []
            for temperature, drawn_from in DECODINGS:
                p = np.exp((row - row.max()) / temperature)
                p /= p.sum()
                before = np.concatenate([[0.0], np.cumsum(p[order])])[:-1]
                kept = {
                    "all": np.ones(len(row), dtype=bool),
                    "top-k 40": np.arange(len(row)) < 40,
                    "top-p 0.9": before < 0.9,
                }[drawn_from]
                of_token.append(math.log(p[token] / p[order[kept]].sum()) if kept[rank] else -math.inf)
            found.append([*of_token, 0.0 if rank == 0 else -math.inf])
        return np.array(found)

    findings = run(random, [LONG], tmp_path)
    grid, [document] = findings.grid, findings.documents
    assert grid == Grid((25, 50, 100, 200, 0), (20, 30, 50), GridSetting(25, 50, *SAMPLING_OF_SEARCH))
    [tokens] = encode(random.model, [LONG.text])
    places = list(range(25, len(tokens.token_id) - 49, 50))
    assert len(places) >= 8
    reached_finite = 0
    for prefix in grid.prefixes:
        at = [place for place in places if (place >= prefix if prefix else place + 50 < ROOM)]
        assert document.begins[prefix].tolist() == [tokens.char_end[place - 1] for place in at]
        for number, place in enumerate(at):
            start = tokens.char_start[place - prefix] if prefix and place > prefix else 0
            steps = by_the_bare_model(random, LONG.text, start, tokens.char_end[place - 1], tokens.char_end[place + 49])
            expected = [steps[:suffix, way].sum() for suffix in grid.suffixes for way in range(len(SAMPLING_SETTINGS))]
            np.testing.assert_allclose(document.log_p[prefix][:, number], expected, atol=0.01, rtol=1e-5)
            reached_finite += int(np.isfinite(expected).sum())
    assert reached_finite > 500
    # The same places for every prefix, and as rows of the table.
    rows = list(iterate_grid_rows(document, grid))
    assert len(rows) == 5 * 3 * len(SAMPLING_SETTINGS)
    [named] = [row for row in rows if row["is_named"]]
    setting = grid.list_settings(25).index(grid.search_setting)
    values = document.log_p[25][setting]
    assert (named["prefix_tokens"], named["suffix_tokens"], named["places"]) == (25, 50, len(places))
    best = int(values.argmax())
    expected_best = (float(values[best]), int(document.begins[25][best])) if np.isfinite(values[best]) else (None, None)
    assert (named["log_p"], named["start"]) == expected_best
    drawn_from_all = next(
        row
        for row in rows
        if (row["prefix_tokens"], row["suffix_tokens"], row["temperature"], row["drawn_from"]) == (200, 20, 1.0, "all")
    )
    number = grid.list_settings(200).index(GridSetting(200, 20, 1.0, "all"))
    assert drawn_from_all["log_p"] == document.log_p[200][number].max()
    assert drawn_from_all["reached"] == 0


def test_the_named_setting_equals_the_search(taught: Taught, tmp_path: Path) -> None:
    options = ExtractionSettings(prefix=12, suffix=50, stride="chars:1", grid=True)
    text = SearchedDocument("text", filler(70, 6))
    asked = taught.search(tmp_path, options, [text])
    [found], findings = asked.run(taught.load), asked.run_grid(taught.load)
    assert findings is not None
    assert findings.grid.prefixes == (12, FROM_BEGINNING)
    assert findings.grid.suffixes == (20, 30, 50)
    [document], settings = findings.documents, findings.grid.list_settings(12)
    named, greedy = (
        document.log_p[12][settings.index(setting)]
        for setting in (findings.grid.search_setting, GridSetting(12, 50, 0.0, "all"))
    )
    [tokens] = encode(taught.model, [text.text])
    windows = {start: number for number, start in enumerate(found.windows.start.tolist())}
    compared = [windows[int(tokens.char_start[25 + 50 * place - 12])] for place in range(len(named))]
    assert len(compared) >= 2
    assert found.windows.begin[compared].tolist() == document.begins[12].tolist()
    assert np.isfinite(named).any()
    np.testing.assert_allclose(named, found.windows.log_p_top[compared], atol=1e-3)
    assert (greedy == 0).tolist() == found.windows.reproduced_greedily[compared].tolist()


def test_batches_and_order_change_nothing(random: Taught, tmp_path: Path) -> None:
    [together, *_] = run(random, [LONG, SHORT, NONE], tmp_path / "together").documents
    [nothing, short, again] = run(random, [NONE, SHORT, LONG], tmp_path / "other order").documents
    [alone] = run(random, [LONG], tmp_path / "alone").documents
    assert (nothing.max_suffix_count, nothing.log_p, 0 < short.max_suffix_count < alone.max_suffix_count) == (
        0,
        {},
        True,
    )
    assert 200 not in short.log_p
    for other in (together, again):
        assert other.log_p.keys() == alone.log_p.keys()
        for prefix, log_p in alone.log_p.items():
            np.testing.assert_array_equal(other.begins[prefix], alone.begins[prefix])
            np.testing.assert_allclose(other.log_p[prefix], log_p, atol=0.01, rtol=1e-5)


def test_a_grid_is_run_once_and_then_read(random: Taught, tmp_path: Path) -> None:
    asked = random.search(tmp_path, ASKED, [LONG, SHORT])
    planned, before = asked.count_grid_tokens(), random.forward.tokens_run
    [first, _] = run(random, [LONG, SHORT], tmp_path).documents
    assert 0 < planned <= random.forward.tokens_run - before
    again = random.search(tmp_path, ASKED, [LONG, SHORT])
    assert again.count_grid_tokens() == 0
    found = again.run_grid(lambda _: pytest.fail("everything is in the cache"))
    assert found is not None
    np.testing.assert_array_equal(found.documents[0].log_p[100], first.log_p[100])


def test_no_grid_without_a_request_or_for_a_server(random: Taught, tmp_path: Path) -> None:
    def never(_: object) -> NoReturn:
        pytest.fail("no model is run")

    plain = random.search(tmp_path, ASKED.override(grid=False), [LONG])
    assert (plain.run_grid(never), plain.count_grid_tokens()) == (None, 0)
    endpoint = Endpoint(url="http://127.0.0.1:1/v1", model="m", dialect="vllm", top_logprobs=40)
    entry = random.model.entry.model_copy(update={"endpoint": endpoint})
    model = replace(random.model, located=replace(random.model.located, entry=entry))
    behind = random._replace(model=model).search(tmp_path, ASKED, [LONG])
    assert (behind.run_grid(never), behind.count_grid_tokens()) == (None, 0)


def test_the_lengths_of_a_search_are_in_the_grid() -> None:
    assert build_grid(WindowLengths(50, 50), 2048).prefixes == (25, 50, 100, 200, 0)
    assert build_grid(WindowLengths(40, 60), 2048) == Grid(
        (25, 40, 50, 100, 200, 0), (20, 30, 50, 60), GridSetting(40, 60, 1.0, "top-k 40")
    )
    # A prefix, a suffix and a start token have to fit.
    assert build_grid(WindowLengths(50, 50), 151).prefixes == (25, 50, 100, 0)
    assert build_grid(WindowLengths(50, 50), 150).prefixes == (25, 50, 0)


def of(values: Sequence[Sequence[float]], prefix: int = 25) -> DocumentGrid:
    """Return a document with log-probabilities of shape (n_settings, n_places) at one prefix length."""
    return DocumentGrid({prefix: np.arange(len(values[0]))}, {prefix: np.array(values)})


def test_p_values_by_hand() -> None:
    held_out = [of([[-2], [-3]]), of([[-3], [-4]]), of([[-4], [-5]])]
    # The document is the strongest of four at the first setting, another document at the second: 2 of 4.
    assert compute_grid_p_values([of([[-1], [-9]])], held_out) == [0.5]
    assert compute_grid_p_values([of([[-1], [-1]])], held_out) == [0.25]
    # A tie counts against significance. The two strongest at the first setting have a rank of 2 / 4. Three of four
    # documents have this rank or a smaller rank at some setting.
    assert compute_grid_p_values([of([[-2], [-9]])], held_out) == [0.75]
    # A suffix that cannot be drawn is the weakest; a document without one has no p-value.
    assert compute_grid_p_values([of([[-math.inf], [-math.inf]]), DocumentGrid({}, {})], held_out) == [1.0, None]
    assert compute_grid_p_values([of([[-1], [-9]])], [DocumentGrid({}, {})]) == [None]


def test_a_setting_that_a_compared_document_lacks_is_skipped() -> None:
    def both(first: float, second: float) -> DocumentGrid:
        return DocumentGrid({25: np.arange(1), 200: np.arange(1)}, {25: np.array([[first]]), 200: np.array([[second]])})

    held_out = [both(-1, -5), both(-2, -5), both(-3, -5)]
    assert compute_grid_p_values([both(-9, -1)], held_out) == [0.5]
    assert compute_grid_p_values([both(-9, -1)], [*held_out, of([[-4]])]) == [1.0]
    assert compute_grid_p_values([of([[-9]])], held_out) == [1.0]


def test_equally_many_suffixes_are_compared_on_both_sides() -> None:
    """Compare a long document with 19 held-out documents of three suffixes. Their middle suffix is the strongest."""
    held_out = [of([[-9.0, -1.0, -9.0]])] * 19
    # The first, the third and the last of five suffixes are compared. A single suffix is compared with the first.
    assert compute_grid_p_values([of([[-8.0, 0.0, -8.0, 0.0, -8.0]])], held_out) == [1.0]
    assert compute_grid_p_values([of([[-8.5]])], held_out) == [0.05]


@given(
    st.integers(2, 9).flatmap(
        lambda settings: st.lists(
            st.lists(st.integers(-3, 0).map(float), min_size=settings, max_size=settings), min_size=2, max_size=12
        )
    )
)
def test_p_values_of_a_set_are_valid(values: list[list[float]]) -> None:
    """Check P(p <= a) <= a if each document of a set is compared with the others."""
    documents = [of([[value] for value in own]) for own in values]
    p_values = []
    for number, document in enumerate(documents):
        others = [*documents[:number], *documents[number + 1 :]]
        p_values += compute_grid_p_values([document], others)
    for level in {value for value in p_values if value is not None}:
        assert sum(value is not None and value <= level + 1e-12 for value in p_values) <= level * len(documents) + 1e-9


def test_greedy_text_is_compared_with_the_suffix(taught: Taught, tmp_path: Path) -> None:
    [planted] = (asked := taught.search(tmp_path, CLOSE, DOCUMENTS[:1])).run(taught.load)
    windows, text = planted.windows, planted.document.text
    greedy, other = np.flatnonzero(windows.reproduced_greedily)[0], int(windows.log_p.argmin())
    suffix, other_suffix = (text[windows.begin[number] : windows.end[number]] for number in (greedy, other))
    given = generate_suffix(taught.model, taught.forward, asked.encode_window(planted, int(greedy)))
    words = suffix.split()
    expected = {"given_text": " ".join(words[:25]), "suffix_words": len(words), "words_in_common": len(words)}
    assert compare_given_text(suffix, given) == expected
    given = generate_suffix(taught.model, taught.forward, asked.encode_window(planted, other))
    assert compare_given_text(other_suffix, given)["words_in_common"] < len(other_suffix.split())


@pytest.mark.parametrize(
    ("suffix", "given", "common"),
    [
        ("a b c d e", "x b c d y a b", 3),
        ("a\nb  c", "a b c", 3),
        ("a b", "c d", 0),
        ("a b", "", 0),
        # A word that comes often is no noise.
        (" ".join(["the"] * 300), " ".join(["the"] * 250), 250),
    ],
)
def test_words_in_common_by_hand(suffix: str, given: str, common: int) -> None:
    assert compare_given_text(suffix, given)["words_in_common"] == common
