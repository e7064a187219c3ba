"""Continuations that a model generates after a prefix, compared with the true text.

The share of a document that was recalled is measured as by Ahmed et al. 2026, in a plain form. A word is recalled if it
belongs to a block of at least ``BLOCK_WORDS`` words that both texts contain in the same order.

A suffix is reproduced nearly verbatim if at most a given number of tokens of the continuation differ from it. Beam
search yields a lower bound of the probability of this event (Cooper et al. 2026). Each token of a continuation is
sampled from the ``BEST_TOKENS`` most likely tokens, as for ``log_p_top``. Continuations are as long as the suffix.

The search drops continuations in which too many tokens differ, and follows the most likely of the others. It always
follows the suffix itself. If even all remaining tokens of a continuation may differ, its whole probability counts and
the search stops following it. Therefore the bound is larger than the paper's sum over finished beams.

The beam search is implemented here, because transformers' beam search returns the best beams and not this sum.
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

_DRAWS_PER_BATCH = 64


def generate_suffix(model: TokenizedModel, forward: ForwardPass, window: EncodedText) -> str:
    """Continue the prefix of a window greedily by as many tokens as its suffix has, and return the generated text."""
    prefix, suffix = split_prefix_and_suffix(window)
    return model.tokenizer.decode(generate_greedily(forward, prefix, len(suffix)))


def compare_given_text(suffix: str, given_text: str) -> dict[str, object]:
    """Compare the text of a suffix with the model's continuation.

    Words are separated by white space.

    Returns:
        Columns of EXTRACTION_WINDOWS: an excerpt of the continuation and the number of words of the suffix. The column
        ``words_in_common`` is the length of the longest run of words that both texts share.
    """
    words = suffix.split()
    common = SequenceMatcher(None, words, given_text.split(), autojunk=False).find_longest_match().size
    return {"given_text": cut_excerpt(given_text), "suffix_words": len(words), "words_in_common": common}


def generate_greedily(forward: ForwardPass, prefix: Sequence[int], tokens: int) -> list[int]:
    """Generate ``tokens`` token ids after ``prefix``, always with the model's most likely token."""
    with forward.running():
        [continuation] = _generate_token_ids(forward, prefix, tokens, 1, do_sample=False)
    return continuation


def count_hits(forward: ForwardPass, window: EncodedText, draws: int, seed: int) -> int:
    """Count the sampled continuations of a window's prefix that equal its suffix.

    Sampling uses transformers' own code. It shares nothing with the pass that computes the probability.

    Args:
        forward: The loaded model.
        window: The window.
        draws: The number of continuations. Each token is sampled from the ``BEST_TOKENS`` most likely tokens.
        seed: The seed. The same seed yields the same continuations on the same machine.
    """
    prefix, suffix = split_prefix_and_suffix(window)
    hits = 0
    cuda_devices = []
    if forward.device.type == "cuda":
        cuda_devices.append(forward.device)
    with forward.running(), torch.random.fork_rng(devices=cuda_devices):
        torch.manual_seed(seed)
        for batch_begin in range(0, draws, _DRAWS_PER_BATCH):
            count = min(_DRAWS_PER_BATCH, draws - batch_begin)
            drawn = _generate_token_ids(forward, prefix, len(suffix), count, do_sample=True, top_k=BEST_TOKENS)
            hits += sum(continuation == suffix for continuation in drawn)
    return hits


def _generate_token_ids(
    forward: ForwardPass, prefix: Sequence[int], tokens: int, count: int, **options: Any
) -> list[list[int]]:
    ids = torch.tensor([prefix] * count, device=forward.device)
    network = forward.model
    settings = GenerationConfig(pad_token_id=0, max_new_tokens=tokens, **options)
    # transformers fills missing settings from the model's own configuration. Its penalties and suppressed tokens would
    # change the distribution whose probability is reported.
    model_settings = network.generation_config
    network.generation_config = settings
    try:
        sequences = network.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings
        )
    finally:
        network.generation_config = model_settings
    return [sequence[len(prefix) :].tolist() for sequence in sequences]


BLOCK_WORDS = 20
"""The minimum number of consecutive words that count as recalled."""


@dataclass(frozen=True)
class Recall:
    """The words of a true text that a generated text contains.

    Attributes:
        words: The number of words of the true text.
        recalled: The number of these words in blocks of ``BLOCK_WORDS`` or more words that both texts contain.
        last_end: The character of the true text after the last block. 0 if there is no block.
    """

    words: int
    recalled: int
    last_end: int

    @property
    def share(self) -> float | None:
        """Return the share of words in blocks, or None if the text is shorter than a block."""
        if self.words < BLOCK_WORDS:
            return None
        return self.recalled / self.words


@dataclass(frozen=True)
class Continuation:
    """The comparison of a generated continuation with a document.

    Attributes:
        tokens: The number of generated tokens.
        begin: The first character of the document that the continuation should reproduce.
        end: The character after the part that the continuation should reproduce.
        words: The number of words of this part of the document.
        recalled: The number of these words in blocks that the continuation reproduces.
        recall: The share of these words in such blocks, or None if the part is shorter than a block.
        left_at: The character of the document after the last such block. Without a block, it equals ``begin``.
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
    """Continue a document greedily after its first tokens, and compare the continuation with the document.

    Args:
        model: The model with its tokenizer.
        forward: The loaded model, which generates the continuation.
        document: The whole text.
        prefix: The number of the document's tokens that the model reads.
        tokens: The maximum number of tokens to generate. The end of the document limits it, too.

    Raises:
        DataError: If the document ends with the prefix.
    """
    [text] = encode(model, [document])
    n_tokens = min(count_tokens_with_characters(text), prefix + tokens)
    ids = text.token_id[:n_tokens].tolist()
    if n_tokens <= prefix:
        raise DataError(
            f"The document ends within its first {prefix:,} tokens, so there is no text to compare a continuation "
            "with. Use a shorter --prefix."
        )
    start = []
    if text.start_token_id is not None:
        start.append(text.start_token_id)
    generated = _generate_beyond_context(model, forward, start, ids[:prefix], n_tokens - prefix)
    begin = int(text.char_end[prefix - 1])
    end = int(text.char_end[n_tokens - 1])
    # Special tokens, such as the end of a text, belong to no word.
    decoded = model.tokenizer.decode([token for token in generated if token not in model.tokenizer.special_ids])
    recall = measure_recall(document[begin:end], decoded)
    return Continuation(
        tokens=len(generated),
        begin=begin,
        end=end,
        words=recall.words,
        recalled=recall.recalled,
        recall=recall.share,
        left_at=begin + recall.last_end,
    )


def measure_recall(true_text: str, generated_text: str) -> Recall:
    """Count the words of ``true_text`` in blocks of at least ``BLOCK_WORDS`` words that ``generated_text`` shares.

    Words are separated by white space. A word that differs ends a block.
    """
    words = list(re.finditer(r"\S+", true_text))
    matcher = SequenceMatcher(None, [word.group() for word in words], generated_text.split(), autojunk=False)
    recalled = 0
    last_word = 0
    for block in matcher.get_matching_blocks():
        if block.size >= BLOCK_WORDS:
            recalled += block.size
            last_word = max(last_word, block.a + block.size)
    last_end = 0
    if last_word:
        last_end = words[last_word - 1].end()
    return Recall(len(words), recalled, last_end)


def _generate_beyond_context(
    model: TokenizedModel, forward: ForwardPass, start: Sequence[int], prompt: Sequence[int], tokens: int
) -> list[int]:
    """Return the next ``tokens`` token ids after ``prompt``. The generated tokens become part of the context.

    If the context is full, the model restarts with the start token and the last tokens of the text so far. The number
    of these tokens is the overlap of two neighbouring windows in a pass over a long text.
    """
    window, stride = window_and_stride(model)
    max_ids = window - len(start)
    n_total = len(prompt) + tokens
    ids = list(prompt)
    while len(ids) < n_total:
        context = ids
        if len(ids) >= max_ids:
            context = ids[stride - max_ids :]
        count = min(n_total - len(ids), max_ids - len(context))
        ids += generate_greedily(forward, [*start, *context], count)
    return ids[len(prompt) :]


Ints = npt.NDArray[np.int64]


def bound_near_verbatim(forward: ForwardPass, window: EncodedText, differing: int, beams: int) -> float:
    """Compute a lower bound of the log-probability of a continuation near the suffix of a window.

    A continuation is near if at most ``differing`` tokens differ from the suffix, position by position. The bound is
    deterministic, because nothing is sampled.

    Args:
        forward: The loaded model.
        window: The window.
        differing: The maximum number of tokens that may differ.
        beams: The number of continuations to follow at a time.

    Returns:
        The bound in nats. Minus infinity if no followed continuation ends near the suffix.
    """
    prefix, suffix = split_prefix_and_suffix(window)
    # Arrays of shape (n_beams,): log-probability, number of differing tokens, and whether the beam equals the suffix.
    beam_log_p = np.zeros(1)
    beam_differing = np.zeros(1, dtype=np.int64)
    beam_is_suffix = np.ones(1, dtype=np.bool_)
    certain_log_p: list[Floats] = []
    with forward.running():
        followed = _Beams(forward, prefix)
        for n_remaining, token in zip(reversed(range(len(suffix))), suffix, strict=True):
            ids, token_log_p = _select_likeliest(followed.logits(), token)
            # Arrays of shape (n_beams, BEST_TOKENS): every beam with each of its next tokens.
            log_p = beam_log_p[:, None] + token_log_p
            is_suffix = beam_is_suffix[:, None] & (ids == token)
            n_differing = beam_differing[:, None] + (ids != token)
            is_certain = n_differing + n_remaining <= differing
            certain_log_p.append(log_p[is_certain])
            candidates = np.flatnonzero((n_differing <= differing) & ~is_certain)
            # The suffix itself comes first, then the most likely continuations.
            order = np.lexsort((-log_p.flat[candidates], ~is_suffix.flat[candidates]))
            chosen = candidates[order[:beams]]
            if not len(chosen):
                break
            followed.extend(chosen // ids.shape[1], ids.flat[chosen])
            beam_log_p = log_p.flat[chosen]
            beam_differing = n_differing.flat[chosen]
            beam_is_suffix = is_suffix.flat[chosen]
    return min(0.0, float(np.logaddexp.reduce(np.concatenate(certain_log_p))))


class _Beams:
    """Continuations of one prefix that run through the model in one batch."""

    def __init__(self, forward: ForwardPass, prefix: Sequence[int]) -> None:
        self._model = forward.model
        self._ids = torch.tensor([prefix], device=forward.device)
        self._new = self._ids
        # Keys and values are cached only if a check at loading showed that the model computes the same with the cache.
        # Otherwise each step runs the model on the whole beams.
        self._cache: DynamicCache | None = None
        if forward.packed:
            self._cache = DynamicCache(config=forward.model.config)

    def logits(self) -> torch.Tensor:
        """Return the logits of the next token of each continuation: float32 of shape (n_beams, n_vocabulary)."""
        if self._cache is None:
            output = self._model(input_ids=self._ids, use_cache=False)
        else:
            output = self._model(input_ids=self._new, past_key_values=self._cache, use_cache=True)
        logits: torch.Tensor = output.logits
        return logits[:, -1].float()

    def extend(self, parents: Ints, tokens: Ints) -> None:
        """Replace the continuations by new continuations that are one token longer.

        Args:
            parents: The index of the continuation that each new continuation extends, of shape (n_new_beams,).
            tokens: The token that is appended to each parent, of shape (n_new_beams,).
        """
        rows = torch.from_numpy(parents).to(self._ids.device)
        self._new = torch.from_numpy(tokens).to(self._ids.device)[:, None]
        self._ids = torch.cat([self._ids[rows], self._new], dim=1)
        if self._cache is not None:
            self._cache.reorder_cache(rows)


def _select_likeliest(logits: torch.Tensor, token: int) -> tuple[Ints, Floats]:
    """Select the ``BEST_TOKENS`` most likely tokens of each row of logits.

    Args:
        logits: A tensor of shape (n_beams, n_vocabulary).
        token: A token that is selected if it ties with the last selected token.

    Returns:
        Two arrays of shape (n_beams, BEST_TOKENS): the token ids, and their log-probabilities among these tokens.
    """
    best = logits.topk(min(BEST_TOKENS, logits.shape[1]), dim=1)
    is_tied = (logits[:, token] >= best.values[:, -1]) & ~(best.indices == token).any(dim=1)
    best.indices[is_tied, -1] = token
    return best.indices.cpu().numpy(), torch.log_softmax(best.values.double(), dim=1).cpu().numpy()
