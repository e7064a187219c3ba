"""Continuations: what a model gives when it goes on behind a prefix, and how near that comes to the true text.

What belongs here: first choices and draws behind a window's prefix, which is proof by doing; going on from a document's
beginning through more tokens than the model's context holds; beams, and how far each is from the suffix. What does not:
the probability of the suffix itself, which needs no drawing (conclusions.py).

How much of a document came is measured as Ahmed et al. 2026 do, in a plain form: the words of the true text that stand
in blocks of at least ``BLOCK_WORDS`` words which both texts have, in the same order.

How likely a model gives a suffix nearly word for word is a lower bound, by beam search (Cooper et al. 2026). Every
token of a continuation is drawn from the ``BEST_TOKENS`` likeliest, as for ``log_p_top``. Continuations are as long as
the suffix. Those that can no longer end near it are dropped, and of the others the likeliest are gone on with, the
suffix itself always among them. A beam that can only end near the suffix, however it goes on, counts whole and is not
run on: the bound is larger for it than the sum over finished beams that the paper takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig
from transformers.cache_utils import DynamicCache

from audit_pipeline.catalogue.contracts import BEST_TOKENS
from audit_pipeline.errors import DataError
from audit_pipeline.extraction.windows import own_tokens, split_prefix_and_suffix
from audit_pipeline.metrics.roc import Floats
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.batches import LocalPass
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import EncodedText, encode, window_and_stride

_DRAWS_AT_ONCE = 64


@dataclass(frozen=True)
class Generated:
    """``greedy``: what the model goes on with when it always takes its first choice. ``hits``: how many of ``draws``
    continuations, every token drawn from the ``BEST_TOKENS`` likeliest, were the suffix word for word."""

    greedy: str
    hits: int
    draws: int


def generate(model: TokenizedModel, forward: LocalPass, window: EncodedText, draws: int, seed: int) -> Generated:
    """Let the model go on behind the prefix of ``window``, once by its first choices and ``draws`` times at random.

    The same seed draws the same continuations on the same machine. Drawing is transformers' own, which shares nothing
    with the pass that the probability comes from.
    """
    prefix, suffix = split_prefix_and_suffix(window)
    greedy = generate_greedily(forward, prefix, len(suffix))
    return Generated(model.tokenizer.decode(greedy), forward.apply(_hits, prefix, suffix, draws, seed), draws)


def generate_greedily(forward: LocalPass, prefix: Sequence[int], tokens: int) -> list[int]:
    """The ``tokens`` that the model goes on with behind ``prefix`` when it always takes its first choice."""
    return forward.apply(_generate_greedily, prefix, tokens)


def _generate_greedily(forward: ForwardPass, prefix: Sequence[int], tokens: int) -> list[int]:
    with forward.running():
        [found] = _continued(forward, prefix, tokens, 1, do_sample=False)
    return found


def _hits(forward: ForwardPass, prefix: Sequence[int], suffix: Sequence[int], draws: int, seed: int) -> int:
    """How many of ``draws`` continuations of ``prefix`` are ``suffix``."""
    hits = 0
    with forward.running(), torch.random.fork_rng(devices=_devices(forward)):
        torch.manual_seed(seed)
        for begin in range(0, draws, _DRAWS_AT_ONCE):
            some = min(_DRAWS_AT_ONCE, draws - begin)
            drawn = _continued(forward, prefix, len(suffix), some, do_sample=True, top_k=BEST_TOKENS)
            hits += sum(one == suffix for one in drawn)
    return hits


def _continued(forward: ForwardPass, prefix: Sequence[int], tokens: int, count: int, **how: Any) -> list[list[int]]:
    ids, network = torch.tensor([prefix] * count, device=forward.device), forward.model
    settings = GenerationConfig(pad_token_id=0, max_new_tokens=tokens, **how)
    # transformers takes what is not set from the model's own configuration: its penalties and suppressed tokens would
    # give other draws than those whose probability is told.
    of_model = network.generation_config
    network.generation_config = settings
    try:
        found = network.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings
        )
    finally:
        network.generation_config = of_model
    return [one[len(prefix) :].tolist() for one in found]


def _devices(forward: ForwardPass) -> list[torch.device]:
    return [forward.device] if forward.device.type == "cuda" else []


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
    given = _continued_at_length(model, forward, start, ids[:prefix], len(ids) - prefix)
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


def _continued_at_length(
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


Ints = npt.NDArray[np.int64]
_Distance = tuple[Ints, Ints, Ints]


@dataclass(frozen=True)
class Nearness:
    """What counts as near: a continuation that differs from the suffix in at most ``tokens`` tokens, place by place
    (Hamming), or where ``edits``, in so many tokens that are replaced, put in or left out (Levenshtein). ``beams`` is
    how many continuations are gone on with at a time."""

    tokens: int
    beams: int
    edits: bool


def near_verbatim(forward: LocalPass, window: EncodedText, near: Nearness) -> float:
    """The log of a lower bound of the probability that the model gives a continuation near the suffix of ``window``.

    The same bound for the same model and window: nothing is drawn. Minus infinity where no continuation that was
    followed ends near the suffix.
    """
    return forward.apply(_bound, *split_prefix_and_suffix(window), near)


def _bound(forward: ForwardPass, prefix: Sequence[int], asked: Sequence[int], near: Nearness) -> float:
    suffix = np.array(asked, dtype=np.int64)
    measure = _step_edit_distance if near.edits else _step_hamming_distance
    # What a beam's distance is computed from: its differing tokens so far, or its row of the table of edits.
    state = np.arange(len(suffix) + 1)[None] if near.edits else np.zeros(1, dtype=np.int64)
    log_p, is_text = np.zeros(1), np.ones(1, dtype=np.bool_)
    certain: list[Floats] = []
    with forward.running():
        beams = _Beams(forward, prefix)
        for step, token in enumerate(asked):
            ids, log_next = _likeliest(beams.logits(), token)
            every, on_text = log_p[:, None] + log_next, is_text[:, None] & (ids == token)
            states, least, most = measure(state, ids, suffix, step)
            certain.append(every[most <= near.tokens])
            open_ = np.flatnonzero((least <= near.tokens) & (most > near.tokens))
            # The text itself first, then the likeliest.
            order = np.lexsort((-every.flat[open_], ~on_text.flat[open_]))
            kept = open_[order[: near.beams]]
            if not len(kept):
                break
            beams.go_on(kept // ids.shape[1], ids.flat[kept])
            state = states.reshape(-1, *state.shape[1:])[kept]
            log_p, is_text = every.flat[kept], on_text.flat[kept]
    return min(0.0, float(np.logaddexp.reduce(np.concatenate(certain))))


class _Beams:
    """The model behind continuations of one prefix, all in one batch."""

    def __init__(self, forward: ForwardPass, prefix: Sequence[int]) -> None:
        self._model = forward.model
        self._ids = self._new = torch.tensor([prefix], device=forward.device)
        # Without what the check at loading found to be right with keys and values, beams are run anew.
        self._cache = DynamicCache(config=forward.model.config) if forward.packed else None

    def logits(self) -> torch.Tensor:
        """The logits of the token behind each continuation: [beams, V], float32."""
        if self._cache is None:
            found = self._model(input_ids=self._ids, use_cache=False)
        else:
            found = self._model(input_ids=self._new, past_key_values=self._cache, use_cache=True)
        logits: torch.Tensor = found.logits
        return logits[:, -1].float()

    def go_on(self, parents: Ints, tokens: Ints) -> None:
        """From now on the continuations are those of the numbers ``parents``, each with one of ``tokens`` behind it."""
        of = torch.from_numpy(parents).to(self._ids.device)
        self._new = torch.from_numpy(tokens).to(self._ids.device)[:, None]
        self._ids = torch.cat([self._ids[of], self._new], dim=1)
        if self._cache is not None:
            self._cache.reorder_cache(of)


def _likeliest(logits: torch.Tensor, token: int) -> tuple[Ints, Floats]:
    """The ``BEST_TOKENS`` likeliest tokens of each row of ``logits`` [beams, V], and the log-probability of each among
    them: [beams, BEST_TOKENS]. ``token`` is one of them where it is tied with the last."""
    best = logits.topk(min(BEST_TOKENS, logits.shape[1]), dim=1)
    tied = (logits[:, token] >= best.values[:, -1]) & ~(best.indices == token).any(dim=1)
    best.indices[tied, -1] = token
    return best.indices.cpu().numpy(), torch.log_softmax(best.values.double(), dim=1).cpu().numpy()


def _step_hamming_distance(state: Ints, ids: Ints, suffix: Ints, step: int) -> _Distance:
    """Differing tokens with each of ``ids`` [beams, k] at the place ``step``: so far, in the end at least, at most."""
    so_far = state[:, None] + (ids != suffix[step])
    return so_far, so_far, so_far + (len(suffix) - step - 1)


def _step_edit_distance(state: Ints, ids: Ints, suffix: Ints, step: int) -> _Distance:
    """As :func:`_step_hamming_distance`, in edits; ``state`` [beams, n + 1] holds the edits from a beam to each
    beginning of the suffix, and so does the first result [beams, k, n + 1]."""
    places = np.arange(len(suffix) + 1)
    before = state[:, None, :]
    rows = np.empty((*ids.shape, len(places)), dtype=np.int64)
    rows[..., 0] = step + 1
    rows[..., 1:] = np.minimum(before[..., 1:] + 1, before[..., :-1] + (ids[..., None] != suffix))
    # Tokens left out of the suffix cost one each from wherever it is cheapest.
    rows = np.minimum.accumulate(rows - places, axis=-1) + places
    left, left_of_suffix = len(suffix) - step - 1, len(suffix) - places
    least = (rows + np.abs(left_of_suffix - left)).min(axis=-1)
    most = (rows + np.maximum(left_of_suffix, left)).min(axis=-1)
    return rows, least, most
