"""How much of a document a model gives when it is let go on from the document's beginning.

What belongs here: going on through more tokens than the model's context holds, and how much of the true text is in what
came. What does not: single windows (near_verbatim.py, generate.py).

The measure is that of Ahmed et al. 2026 in a plain form: the words of the true text that stand in blocks of at least
``BLOCK_WORDS`` words which both texts have, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from audit_pipeline.errors import DataError
from audit_pipeline.extraction.generate import generate_greedily
from audit_pipeline.extraction.windows import own_tokens
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.batches import LocalPass
from audit_pipeline.token_statistics.encode import encode, window_and_stride

BLOCK_WORDS = 20

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Recall:
    """How much of a true text is in a given one: ``recalled`` of its ``words`` stand in blocks, and the last block ends
    before the character ``left_at`` of the true text; 0 where there is no block."""

    words: int
    recalled: int
    left_at: int

    @property
    def share(self) -> float | None:
        """The share of the words that stand in blocks; None where the text is shorter than a block."""
        return self.recalled / self.words if self.words >= BLOCK_WORDS else None


@dataclass(frozen=True)
class LongRun:
    """What a model gave of the characters ``begin`` to ``end`` of a document, which are so many ``tokens``."""

    tokens: int
    begin: int
    end: int
    recall: Recall

    @property
    def left_at(self) -> int:
        """The character of the document from which on the model gives no block of it any more."""
        return self.begin + self.recall.left_at


def long_run(model: TokenizedModel, forward: LocalPass, document: str, prefix: int, tokens: int) -> LongRun:
    """Give the model the first ``prefix`` tokens of a document and let it go on by its first choices, for ``tokens``
    tokens or as many as the document has. Raises DataError where the document ends with the prefix.
    """
    [text] = encode(model, [document])
    ids = text.token_id[: min(own_tokens(text), prefix + tokens)].tolist()
    if len(ids) <= prefix:
        raise DataError(f"the document has no token behind its first {prefix:,}: there is nothing to go on to")
    start = [] if text.start_token_id is None else [text.start_token_id]
    given = _continued(model, forward, start, ids[:prefix], len(ids) - prefix)
    begin, end = int(text.char_end[prefix - 1]), int(text.char_end[len(ids) - 1])
    # A token that ends a text is no part of a word.
    decoded = model.tokenizer.decode([one for one in given if one not in model.tokenizer.special_ids])
    return LongRun(len(given), begin, end, recall(document[begin:end], decoded))


def recall(true: str, given: str) -> Recall:
    """How many words of ``true`` stand in blocks of ``BLOCK_WORDS`` words or more that ``given`` has as well.

    Words are what stands between white space. A word that differs ends a block.
    """
    words = list(_WORD.finditer(true))
    blocks = list(_blocks([word.group() for word in words], _WORD.findall(given)))
    last = max((begin + size for begin, size in blocks), default=0)
    return Recall(len(words), sum(size for _, size in blocks), words[last - 1].end() if last else 0)


def _blocks(true: Sequence[str], given: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where the blocks of two texts begin in the first, and how many words they have: the longest one, and then those
    on either side of it, as in difflib's own; but where the longest is too short, no other is looked for."""
    matcher = SequenceMatcher(None, true, given, autojunk=False)
    waiting = [(0, len(true), 0, len(given))]
    while waiting:
        begin, end, given_begin, given_end = waiting.pop()
        found = matcher.find_longest_match(begin, end, given_begin, given_end)
        if found.size >= BLOCK_WORDS:
            yield found.a, found.size
            waiting.append((begin, found.a, given_begin, found.b))
            waiting.append((found.a + found.size, end, found.b + found.size, given_end))


def _continued(
    model: TokenizedModel, forward: LocalPass, start: Sequence[int], prompt: Sequence[int], tokens: int
) -> list[int]:
    """What the model goes on with behind its own words, ``tokens`` of them.

    Where its context is full, it is given the last tokens of it anew, behind the start token: as many as a pass over a
    long text has before the tokens that it scores.
    """
    window, stride = window_and_stride(model)
    room, known = window - len(start), list(prompt)
    while (left := len(prompt) + tokens - len(known)) > 0:
        last = known if len(known) < room else known[stride - room :]
        known += generate_greedily(forward, [*start, *last], min(left, room - len(last)))
    return known[len(prompt) :]
