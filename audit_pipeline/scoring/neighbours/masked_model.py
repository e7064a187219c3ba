"""Neighbours from a masked language model, the papers' way."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForMaskedLM
from transformers.utils import logging as transformers_logging

from audit_pipeline.errors import ModelError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.locate import LocatedModel, locate
from audit_pipeline.models.model_checks import build_read_error
from audit_pipeline.models.tokenizer_files import list_special_ids, read_tokenizer_files
from audit_pipeline.models.weights import choose_default_device
from audit_pipeline.scoring.neighbours.proposer import create_random_generator, format_cost, select_distinct
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics.tokens import widen_spans

SHARE = 0.15
CANDIDATES = 10
_LONGEST_WINDOW = 512
# Some models number positions from the padding token's id on: two positions are not available.
_POSITIONS_KEPT_BACK = 2
_TOKENS_A_BATCH = 1024
# Candidates are looked for among so many of the most likely tokens; most of the rest are no words.
_LOOKED_AT = 64
_LONGEST_WORD = 30
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_WORD_MARKS = ("Ġ", "▁")
_READ_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)


class MaskedModelProposer:
    """Replaces one word per neighbour by a masked language model's candidate for its place.

    Each of a ``share`` of the text's words, at random, is masked alone, so that the model sees all other words, and the
    ``candidates`` likeliest words other than the original are taken. Best first means by Mattern et al.'s score of a
    swap, p(candidate) / (1 - p(original)) (Findings of ACL 2023). Where that gives fewer neighbours than
    are wanted, further words are masked, as many at a time, after the first. The paper differs in two points: it
    looks at every word (``share`` = 1), and it blurs the word by dropout on its embedding where here it is masked.

    A word is what the masked model's own tokenizer takes for one, of letters and digits, of at most 30 characters: for
    Chinese take a model whose tokenizer splits between characters. The candidate is spliced into the text, with the
    capitals of the word it replaces; nothing else of the text changes. Long texts go through the model in windows
    around the masked word. Weights are read from safetensors only and code of a repository is never run.

    Raises ModelError where the files cannot be had or hold no masked language model with a fast tokenizer.
    """

    kinds: Sequence[Kind] = ()

    def __init__(
        self,
        entry: ModelEntry,
        *,
        share: float = SHARE,
        candidates: int = CANDIDATES,
        device: str | None = None,
        notify: Callable[[str], None] = lambda how_far: None,
    ) -> None:
        # float32 always: in bfloat16 candidates would tie, and the ties break as the hardware likes.
        self._entry = entry.model_copy(update={"dtype": "float32", "trust_remote_code": False})
        self._share = share
        self._candidates = candidates
        self._device = device or choose_default_device()
        self._notify = notify

    def describe_cost(self, texts: Sequence[str], n: int) -> str:
        """One pass of the masked model a masked word; needs its files, not its weights.

        A text whose candidates coincide may need more words than are counted here.
        """
        passes = tokens = 0
        for text in dict.fromkeys(texts):
            ids, words = self._words(text)
            step = self._compute_words_per_step(words)
            masked = min(len(words), step * max(1, math.ceil(n / self._candidates / step)))
            passes += masked
            tokens += masked * (min(len(ids), self._room) + sum(map(len, self._frame)))
        return format_cost(self._entry.name, passes, tokens, texts, n)

    def propose(self, texts: Sequence[str], n: int, seed: int) -> list[list[str]]:
        """As Proposer.propose; each distinct text is worked on once, and never in a batch with another."""
        found: dict[str, list[str]] = {}
        different = dict.fromkeys(texts)
        for text in different:
            found[text] = select_distinct(text, self._neighbours(text, seed), n)
            self._notify(f"neighbours of {len(found):,} of {len(different):,} texts by {self._entry.name}")
        return [list(found[text]) for text in texts]

    def _neighbours(self, text: str, seed: int) -> Iterator[str]:
        ids, words = self._words(text)
        order = create_random_generator(text, seed).permutation(len(words)).tolist()
        step = self._compute_words_per_step(words)
        for start in range(0, len(order), step):
            chosen = [words[i] for i in order[start : start + step]]
            swaps = [swap for batch in self._batches(ids, chosen) for swap in self._compute_swaps(batch)]
            # Stable: of equal swaps, those of the word that was chosen first come first.
            for swap in sorted(swaps, key=lambda swap: -swap.score):
                yield text[: swap.word.char_begin] + swap.replacement + text[swap.word.char_end :]

    def _compute_words_per_step(self, words: Sequence[_Word]) -> int:
        return max(1, math.ceil(self._share * len(words)))

    def _words(self, text: str) -> tuple[list[int], list[_Word]]:
        """The text's token ids, and the words that can be replaced."""
        encoded = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
        )
        ids: list[int] = encoded["input_ids"]
        groups: dict[int, list[int]] = {}
        for token, group in enumerate(encoded.word_ids(0)):
            if group is not None:
                groups.setdefault(group, []).append(token)
        spans = widen_spans(text, np.array(encoded["offset_mapping"], dtype=np.int32).reshape(-1, 2)).tolist()
        words = [_extract_word(text, tokens, spans) for tokens in groups.values()]
        return ids, [word for word in words if word is not None]

    def _batches(self, ids: Sequence[int], words: Sequence[_Word]) -> Iterator[list[_Masked]]:
        """The text with one word masked, each word once, in batches of one length: nothing is padded."""
        by_length: dict[int, list[_Masked]] = {}
        for word in words:
            masked = self._mask_word(ids, word)
            by_length.setdefault(len(masked.ids), []).append(masked)
        for length, same in by_length.items():
            size = max(1, _TOKENS_A_BATCH // length)
            for start in range(0, len(same), size):
                yield same[start : start + size]

    def _mask_word(self, ids: Sequence[int], word: _Word) -> _Masked:
        masked = [*ids[: word.token_begin], self._tokenizer.mask_token_id, *ids[word.token_end :]]
        first = max(0, min(word.token_begin - self._room // 2, len(masked) - self._room))
        window = masked[first : first + self._room]
        before, after = self._frame
        place = len(before) + word.token_begin - first
        return _Masked(word, ids[word.token_begin], [*before, *window, *after], place)

    @torch.inference_mode()
    def _compute_swaps(self, batch: Sequence[_Masked]) -> list[_Swap]:
        ids = torch.tensor([masked.ids for masked in batch], device=self._device)
        logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        at_mask = logits[torch.arange(len(batch)), torch.tensor([masked.place for masked in batch])]
        p = at_mask.double().softmax(-1)
        best = p.topk(min(_LOOKED_AT, p.shape[-1]), dim=-1)
        swaps: list[_Swap] = []
        for row, masked in enumerate(batch):
            # A word of several tokens has no probability as one token.
            is_single_token = masked.word.token_end == masked.word.token_begin + 1
            p_own = float(p[row, masked.own]) if is_single_token else 0.0
            taken: dict[str, float] = {}
            for token, p_token in zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True):
                replacement = self._find_replacement(masked, token)
                if replacement is not None:
                    # 1 - p_own is rounding where p_own is 1; the candidates' own order holds then.
                    taken.setdefault(replacement, p_token / max(1.0 - p_own, 1e-12))
                if len(taken) == self._candidates:
                    break
            swaps.extend(_Swap(score, masked.word, replacement) for replacement, score in taken.items())
        return swaps

    def _find_replacement(self, masked: _Masked, token: int) -> str | None:
        """The token as a word in the place of the masked token; None where it is no word, or the same."""
        if token in self._special or token >= len(self._tokenizer):
            return None
        if self._starts_word(token) != self._starts_word(masked.own):
            return None
        candidate = str(self._tokenizer.decode([token], clean_up_tokenization_spaces=False)).strip()
        if not _WORD.fullmatch(candidate) or candidate.casefold() == masked.word.text.casefold():
            return None
        return _match_capitals(masked.word.text, candidate)

    def _starts_word(self, token: int) -> bool:
        return str(self._tokenizer.convert_ids_to_tokens(token)).startswith(_WORD_MARKS)

    @cached_property
    def _located(self) -> LocatedModel:
        located = locate(self._entry)
        if located.gguf is not None:
            raise ModelError(
                f"{self._entry.name} is a .gguf file: a masked language model is a folder with safetensors"
            )
        return located

    @cached_property
    def _tokenizer(self) -> Any:
        with self._faults_as_errors("tokenizer"):
            tokenizer = read_tokenizer_files(self._located.folder, self._entry.name)
        if not tokenizer.is_fast:
            raise ModelError(f"{self._entry.name} has no fast tokenizer (tokenizer.json): character offsets need it")
        if tokenizer.mask_token_id is None:
            raise ModelError(f"{self._entry.name} has no mask token: name a masked language model, such as a BERT")
        return tokenizer

    @cached_property
    def _model(self) -> torch.nn.Module:
        transformers_logging.disable_progress_bar()
        with self._faults_as_errors("weights"):
            model, loading = AutoModelForMaskedLM.from_pretrained(
                self._located.folder,
                dtype=torch.float32,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
        if missing := sorted(loading["missing_keys"]):
            # transformers fills them with random numbers and goes on.
            raise ModelError(
                f"the weights of {self._entry.name} lack {len(missing)} tensors of a masked language model, "
                f"{missing[0]} first: name a model with its masked-language head"
            )
        model = model.to(self._device).eval()
        model.requires_grad_(requires_grad=False)
        return model  # type: ignore[no-any-return]

    @contextmanager
    def _faults_as_errors(self, part: str) -> Iterator[None]:
        """What is raised within it of a file that cannot be read becomes ModelError."""
        try:
            yield
        except _READ_ERRORS as error:
            raise build_read_error(self._entry.name, self._located.folder, part, error) from error

    @cached_property
    def _config(self) -> Any:
        with self._faults_as_errors("configuration"):
            return AutoConfig.from_pretrained(self._located.folder, trust_remote_code=False)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens that the tokenizer puts before and after a text."""
        encoded = self._tokenizer("a", return_special_tokens_mask=True)
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        own = [i for i, mark in enumerate(special) if not mark]
        return ids[: own[0]], ids[own[-1] + 1 :]

    @cached_property
    def _room(self) -> int:
        """How many of a text's tokens fit into one window."""
        longest = getattr(self._config, "max_position_embeddings", None) or _LONGEST_WINDOW + _POSITIONS_KEPT_BACK
        window = min(_LONGEST_WINDOW, int(self._tokenizer.model_max_length), longest - _POSITIONS_KEPT_BACK)
        return max(1, window - sum(map(len, self._frame)))

    @cached_property
    def _special(self) -> frozenset[int]:
        return list_special_ids(self._tokenizer)


@dataclass(frozen=True)
class _Word:
    """A word of the text: its tokens and its characters."""

    text: str
    char_begin: int
    char_end: int
    token_begin: int
    token_end: int


class _Masked(NamedTuple):
    """A window of the text with ``word`` masked at ``place``; ``own`` is the word's first token."""

    word: _Word
    own: int
    ids: list[int]
    place: int


class _Swap(NamedTuple):
    score: float
    word: _Word
    replacement: str


def _extract_word(text: str, tokens: Sequence[int], offsets: Sequence[Sequence[int]]) -> _Word | None:
    """The one word in a stretch that the tokenizer keeps together; None where its tokens hold more than the word."""
    start, end = offsets[tokens[0]][0], offsets[tokens[-1]][1]
    found = list(_WORD.finditer(text, start, end))
    if len(found) != 1 or len(found[0].group()) > _LONGEST_WORD:
        return None
    begin, end = found[0].span()
    within = [token for token in tokens if offsets[token][0] < end and offsets[token][1] > begin]
    own_start, own_end = offsets[within[0]][0], offsets[within[-1]][1]
    # The blanks of a span are the token's, but not the word's.
    if text[own_start:own_end].strip() != found[0].group():
        return None
    return _Word(found[0].group(), begin, end, within[0], within[-1] + 1)


def _match_capitals(original: str, candidate: str) -> str:
    """``candidate`` with the capitals of ``original``: models that know no capitals propose none."""
    if not candidate.islower():
        return candidate
    if len(original) > 1 and original.isupper():
        return candidate.upper()
    return candidate[0].upper() + candidate[1:] if original[0].isupper() else candidate
