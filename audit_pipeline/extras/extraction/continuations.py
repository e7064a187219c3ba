"""Continuations: what a model generates after a prefix, and how near that is to the true text.

How much of a document was reproduced is measured as by Ahmed et al. 2026, in a plain form: the words of the true text
in blocks of at least ``BLOCK_WORDS`` words that both texts have, in the same order.

How likely a model gives a suffix nearly word for word is a lower bound, by beam search (Cooper et al. 2026). Every
token of a continuation is drawn from the ``BEST_TOKENS`` likeliest, as for ``log_p_top``. Continuations are as long as
the suffix. Those that can no longer end near it are dropped, and the likeliest of the others are continued, the suffix
itself always among them. A beam that ends near the suffix whatever follows counts whole and is run no further: this
makes the bound larger than the paper's sum over finished beams.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import GenerationConfig
from transformers.cache_utils import DynamicCache

from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.documents import cut_excerpt
from audit_pipeline.extras.extraction.window_probabilities import count_tokens_with_characters, split_prefix_and_suffix
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.tables import BEST_TOKENS
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import EncodedText, encode, window_and_stride

_DRAWS_AT_ONCE = 64


def generate_suffix(model: TokenizedModel, forward: ForwardPass, window: EncodedText) -> str:
    """Generate what the model gives in place of the suffix of ``window`` when it always takes its first choice."""
    prefix, suffix = split_prefix_and_suffix(window)
    return model.tokenizer.decode(generate_greedily(forward, prefix, len(suffix)))


def compare_given_text(suffix: str, given_text: str) -> dict[str, object]:
    """Compare the text of a suffix with what the model gives in its place, as the columns of EXTRACTION_WINDOWS.

    ``given_text``: as much of it as may be quoted; ``suffix_words``: words of the suffix; ``words_in_common``: the
    longest run of words that both share. Words are separated by white space.
    """
    words = suffix.split()
    common = SequenceMatcher(None, words, given_text.split(), autojunk=False).find_longest_match().size
    return {"given_text": cut_excerpt(given_text), "suffix_words": len(words), "words_in_common": common}


def generate_greedily(forward: ForwardPass, prefix: Sequence[int], tokens: int) -> list[int]:
    """The next ``tokens`` after ``prefix`` when the model always takes its first choice."""
    with forward.running():
        [found] = _generate_token_ids(forward, prefix, tokens, 1, do_sample=False)
    return found


def count_hits(forward: ForwardPass, window: EncodedText, draws: int, seed: int) -> int:
    """Count how many of ``draws`` continuations of the prefix of ``window`` are its suffix word for word.

    Every token is drawn from the ``BEST_TOKENS`` likeliest. The same seed draws the same continuations on the same
    machine. Drawing is transformers' own, which shares nothing with the pass that the probability comes from.
    """
    prefix, suffix = split_prefix_and_suffix(window)
    hits = 0
    devices = [forward.device] if forward.device.type == "cuda" else []
    with forward.running(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        for begin in range(0, draws, _DRAWS_AT_ONCE):
            count = min(_DRAWS_AT_ONCE, draws - begin)
            drawn = _generate_token_ids(forward, prefix, len(suffix), count, do_sample=True, top_k=BEST_TOKENS)
            hits += sum(continuation == suffix for continuation in drawn)
    return hits


def _generate_token_ids(
    forward: ForwardPass, prefix: Sequence[int], tokens: int, count: int, **options: Any
) -> list[list[int]]:
    ids, network = torch.tensor([prefix] * count, device=forward.device), forward.model
    settings = GenerationConfig(pad_token_id=0, max_new_tokens=tokens, **options)
    # transformers takes what is not set from the model's own configuration: its penalties and suppressed tokens would
    # give other draws than those whose probability is reported.
    of_model = network.generation_config
    network.generation_config = settings
    try:
        found = network.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings
        )
    finally:
        network.generation_config = of_model
    return [token_ids[len(prefix) :].tolist() for token_ids in found]


BLOCK_WORDS = 20


@dataclass(frozen=True)
class Recall:
    """How much of a true text is in a given one: ``recalled`` of its ``words`` are in blocks, and the last block ends
    before the character ``last_end`` of the true text; 0 where there is no block.
    """

    words: int
    recalled: int
    last_end: int

    @property
    def share(self) -> float | None:
        """The share of the words that are in blocks; None where the text is shorter than a block."""
        return self.recalled / self.words if self.words >= BLOCK_WORDS else None


@dataclass(frozen=True)
class Continuation:
    """What a model generated for the characters ``begin`` to ``end`` of a document, in ``tokens`` tokens.

    ``words``, ``recalled`` and ``recall``: as :class:`Recall` has them. ``left_at``: the character of the document
    after which the model gives no further block of it.
    """

    tokens: int
    begin: int
    end: int
    words: int
    recalled: int
    recall: float | None
    left_at: int


def continue_document(
    model: TokenizedModel, forward: ForwardPass, document: str, prefix: int, tokens: int
) -> Continuation:
    """Give the model the first ``prefix`` tokens of a document and let it continue by its first choices, for ``tokens``
    tokens or as many as the document has. Raises DataError where the document ends with the prefix.
    """
    [text] = encode(model, [document])
    ids = text.token_id[: min(count_tokens_with_characters(text), prefix + tokens)].tolist()
    if len(ids) <= prefix:
        raise DataError(f"the document has no token after its first {prefix:,}, so there is nothing to continue to")
    start = [] if text.start_token_id is None else [text.start_token_id]
    generated = _generate_beyond_context(model, forward, start, ids[:prefix], len(ids) - prefix)
    begin, end = int(text.char_end[prefix - 1]), int(text.char_end[len(ids) - 1])
    # A token that ends a text is no part of a word.
    decoded = model.tokenizer.decode([token for token in generated if token not in model.tokenizer.special_ids])
    found = measure_recall(document[begin:end], decoded)
    return Continuation(len(generated), begin, end, found.words, found.recalled, found.share, begin + found.last_end)


def measure_recall(true_text: str, generated_text: str) -> Recall:
    """How many words of ``true_text`` are in blocks of ``BLOCK_WORDS`` words or more that ``generated_text`` shares.

    Words are separated by white space. A word that differs ends a block.
    """
    words = list(re.finditer(r"\S+", true_text))
    matcher = SequenceMatcher(None, [word.group() for word in words], generated_text.split(), autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size >= BLOCK_WORDS]
    last = max((block.a + block.size for block in blocks), default=0)
    return Recall(len(words), sum(block.size for block in blocks), words[last - 1].end() if last else 0)


def _generate_beyond_context(
    model: TokenizedModel, forward: ForwardPass, start: Sequence[int], prompt: Sequence[int], tokens: int
) -> list[int]:
    """The next ``tokens`` after ``prompt``, the model's own words among the context.

    Where its context is full, the model restarts from the start token and the last tokens of it: as many as a pass over
    a long text has before the tokens that it scores.
    """
    window, stride = window_and_stride(model)
    room, ids = window - len(start), list(prompt)
    while (missing := len(prompt) + tokens - len(ids)) > 0:
        last = ids if len(ids) < room else ids[stride - room :]
        ids += generate_greedily(forward, [*start, *last], min(missing, room - len(last)))
    return ids[len(prompt) :]


Ints = npt.NDArray[np.int64]


def bound_near_verbatim(forward: ForwardPass, window: EncodedText, differing: int, beams: int) -> float:
    """The log of a lower bound of the probability that the model gives a continuation near the suffix of ``window``.

    Near is what differs from the suffix in at most ``differing`` tokens, place by place. ``beams`` is how many
    continuations are followed at a time. The bound is the same for the same model and window: nothing is drawn. Minus
    infinity where no followed continuation ends near the suffix.
    """
    prefix, suffix = split_prefix_and_suffix(window)
    log_p, n_differing, is_text = np.zeros(1), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.bool_)
    certain: list[Floats] = []
    with forward.running():
        followed = _Beams(forward, prefix)
        for remaining, token in zip(reversed(range(len(suffix))), suffix, strict=True):
            ids, log_next = _select_likeliest(followed.logits(), token)
            every, on_text = log_p[:, None] + log_next, is_text[:, None] & (ids == token)
            so_far = n_differing[:, None] + (ids != token)
            is_certain = so_far + remaining <= differing
            certain.append(every[is_certain])
            open_ = np.flatnonzero((so_far <= differing) & ~is_certain)
            # The text itself first, then the likeliest.
            order = np.lexsort((-every.flat[open_], ~on_text.flat[open_]))
            chosen = open_[order[:beams]]
            if not len(chosen):
                break
            followed.extend(chosen // ids.shape[1], ids.flat[chosen])
            log_p, n_differing, is_text = every.flat[chosen], so_far.flat[chosen], on_text.flat[chosen]
    return min(0.0, float(np.logaddexp.reduce(np.concatenate(certain))))


class _Beams:
    """Continuations of one prefix, run through the model in one batch."""

    def __init__(self, forward: ForwardPass, prefix: Sequence[int]) -> None:
        self._model = forward.model
        self._ids = self._new = torch.tensor([prefix], device=forward.device)
        # Where the check at loading did not confirm cached keys and values, every beam is run from its start again.
        self._cache = DynamicCache(config=forward.model.config) if forward.packed else None

    def logits(self) -> torch.Tensor:
        """The logits of the token after each continuation: [beams, V], float32."""
        if self._cache is None:
            found = self._model(input_ids=self._ids, use_cache=False)
        else:
            found = self._model(input_ids=self._new, past_key_values=self._cache, use_cache=True)
        logits: torch.Tensor = found.logits
        return logits[:, -1].float()

    def extend(self, parents: Ints, tokens: Ints) -> None:
        """Replace the continuations by those numbered ``parents``, each followed by one of ``tokens``."""
        of = torch.from_numpy(parents).to(self._ids.device)
        self._new = torch.from_numpy(tokens).to(self._ids.device)[:, None]
        self._ids = torch.cat([self._ids[of], self._new], dim=1)
        if self._cache is not None:
            self._cache.reorder_cache(of)


def _select_likeliest(logits: torch.Tensor, token: int) -> tuple[Ints, Floats]:
    """The ``BEST_TOKENS`` likeliest tokens of each row of ``logits`` [beams, V], and the log-probability of each among
    them: [beams, BEST_TOKENS]. ``token`` is one of them where it is tied with the last.
    """
    best = logits.topk(min(BEST_TOKENS, logits.shape[1]), dim=1)
    tied = (logits[:, token] >= best.values[:, -1]) & ~(best.indices == token).any(dim=1)
    best.indices[tied, -1] = token
    return best.indices.cpu().numpy(), torch.log_softmax(best.values.double(), dim=1).cpu().numpy()
