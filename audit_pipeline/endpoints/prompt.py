"""What is sent of a text: the tokens of a window, and for servers that take strings alone, the string of these tokens.

What belongs here: which tokens are sent, which of them are scored, and making sure that a string means them. What does
not: requests and answers (dialects/), which windows there are (token_statistics/windows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from audit_pipeline.errors import ModelError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.encode import EncodedText, encode
from audit_pipeline.token_statistics.windows import Window


class NoStringError(ModelError):
    """A window of a text that cannot be sent to a server that takes strings alone."""


@dataclass(frozen=True)
class PromptString:
    """A prompt as a string, and where each of its tokens begins in it, in every way that servers count characters."""

    text: str
    starts: frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class Prompt:
    """The tokens ``ids`` that are sent, of which the last ``scored`` ones are scored; ``sha256`` names the text.

    ``spelled`` is the string that means these tokens, where the server takes no ids.
    """

    sha256: str
    ids: tuple[int, ...]
    scored: int
    spelled: PromptString | None = None

    @property
    def cost(self) -> int:
        """Tokens that the server runs: these, the one that it generates, and a start token that it may put in front."""
        return len(self.ids) + 1 + (self.spelled is not None)


def prompt_of(
    model: TokenizedModel, text: EncodedText, window: Window, before: Sequence[int] = (), *, spelled: bool = False
) -> Prompt:
    """What is sent of ``window`` of ``text`` behind the tokens ``before``.

    A server that starts by itself is not sent the start token that stands for nothing of the text. Raises NoStringError
    where ``spelled`` and no string means these tokens: a window that begins within a character, a prefix whose last
    characters would form a token with the text's first.
    """
    start = (text.start_token_id,) if window.has_start_token and text.start_token_id is not None else ()
    ids = (*before, *start, *text.token_id[window.begin : window.end].tolist())
    endpoint = model.entry.endpoint
    if endpoint is not None and endpoint.starts_by_itself and (before or start) and _is_started(model):
        ids = ids[1:]
    string = _spelled(model, ids, text.text_sha256) if spelled else None
    return Prompt(text.text_sha256, ids, window.end - window.score_from, string)


def _is_started(model: TokenizedModel) -> bool:
    """Whether the tokenizer puts a start token in front of every text, and of every prefix."""
    return encode(model, ["a"])[0].start_token_id is not None


def _spelled(model: TokenizedModel, ids: tuple[int, ...], sha256: str) -> PromptString:
    string = model.tokenizer.decode(ids)
    [again] = model.tokenizer.encode([string], add_special_tokens=False)
    if tuple(again.ids) != ids:
        raise NoStringError(
            f"no string means the tokens of a window of the text with sha256 {sha256}, and the server takes strings "
            "alone: raise window where the text is longer than it"
        )
    special = [
        (end - start) * (one in model.tokenizer.special_ids)
        for one, (start, end) in zip(ids, again.offsets, strict=True)
    ]
    starts = [start for start, _ in again.offsets]
    ways = (
        starts,
        # llama-cpp-python does not count the characters of special tokens.
        [start - left_out for start, left_out in zip(starts, accumulate(special[:-1], initial=0), strict=True)],
        # Elsewhere tokens are decoded one by one: each part of a character counts as one.
        accumulate((len(model.tokenizer.decode([one])) for one in ids[:-1]), initial=0),
    )
    return PromptString(string, frozenset(map(tuple, ways)))
