"""Recall of a text by hand, and continuations of a tiny model that was trained on a passage."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from taught import PASSAGE, Taught, filler

from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.continuations import Recall, continue_document, measure_recall
from audit_pipeline.token_statistics.tokens import encode, window_and_stride

pytestmark = pytest.mark.usefixtures("one_thread")

PREFIX = 16


def words(name: str, number: int) -> list[str]:
    return [f"{name}{one}" for one in range(number)]


def text(*parts: Sequence[str]) -> str:
    return " ".join(word for part in parts for word in part)


A, B, SHORT = words("a", 25), words("b", 21), words("c", 19)


LINES = "\r\n ".join(A) + "\r\n\r\nelse"


@pytest.mark.parametrize(
    ("true", "given", "expected"),
    [
        (text(A), text(A), Recall(25, 25, len(text(A)))),
        # A block has twenty words.
        (text(A, SHORT), text(SHORT), Recall(44, 0, 0)),
        (text(A, SHORT, ["d"]), text(SHORT, ["d"]), Recall(45, 20, len(text(A, SHORT, ["d"])))),
        # A word that differs ends a block and not the run.
        (
            text(A, ["x"], B, ["y"], SHORT),
            text(A, ["z", "z"], B, ["z"], SHORT),
            Recall(25 + 1 + 21 + 1 + 19, 46, len(text(A, ["x"], B))),
        ),
        # Blocks in another order do not both count; what is given twice counts once.
        (text(A, B), text(B, A), Recall(46, 25, len(text(A)))),
        (text(A), text(A, A), Recall(25, 25, len(text(A)))),
        # Positions are characters of the original text.
        (LINES, text(A), Recall(26, 25, LINES.index("\r\n\r\nelse"))),
    ],
)
def test_words_in_blocks_by_hand(true: str, given: str, expected: Recall) -> None:
    assert measure_recall(true, given) == expected
    assert expected.share == expected.recalled / expected.words


def test_a_text_shorter_than_a_block_has_no_share() -> None:
    assert measure_recall(text(SHORT), text(SHORT)).share is None
    assert measure_recall("", "").share is None


def test_a_model_continues_the_taught_passage_to_its_end(taught: Taught) -> None:
    [whole] = encode(taught.model, [PASSAGE])
    window, _ = window_and_stride(taught.model)
    # So long that the model has to go on behind its own words alone.
    assert len(whole.token_id) > window + 10
    found = continue_document(taught.model, taught.forward, PASSAGE, PREFIX, 1000)
    assert (found.tokens, found.end) == (len(whole.token_id) - PREFIX, len(PASSAGE))
    assert (found.recall, found.left_at) == (1.0, len(PASSAGE))
    longer = continue_document(taught.model, taught.forward, f"{PASSAGE} {filler(80, 9)}", PREFIX, 1000)
    assert (longer.left_at, longer.recalled, longer.words) == (len(PASSAGE), found.words, found.words + 80)


def test_the_requested_number_of_tokens_is_generated(taught: Taught) -> None:
    found = continue_document(taught.model, taught.forward, PASSAGE, PREFIX, 40)
    [whole] = encode(taught.model, [PASSAGE])
    assert (found.tokens, found.begin, found.end) == (40, whole.char_end[PREFIX - 1], whole.char_end[PREFIX + 39])
    assert found.words == len(PASSAGE[found.begin : found.end].split())


def test_a_model_does_not_continue_an_unknown_text(taught: Taught) -> None:
    found = continue_document(taught.model, taught.forward, filler(160, 3), PREFIX, 120)
    assert (found.recall, found.left_at) == (0.0, found.begin)


def test_a_document_that_ends_within_the_prefix_is_refused(taught: Taught) -> None:
    with pytest.raises(DataError, match="ends within its first 16 tokens"):
        continue_document(taught.model, taught.forward, "Two words.", PREFIX, 40)
