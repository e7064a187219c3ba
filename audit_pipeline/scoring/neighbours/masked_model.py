"""The proposer that takes neighbours from a masked language model, as Mattern et al. (2023) do."""

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
from audit_pipeline.models.conversion import list_special_ids, read_tokenizer_files
from audit_pipeline.models.locate import LocatedModel, locate
from audit_pipeline.models.model_checks import build_read_error
from audit_pipeline.models.weights import choose_default_device
from audit_pipeline.scoring.neighbours.proposer import create_random_generator, format_cost, select_distinct
from audit_pipeline.tables import Kind
from audit_pipeline.token_statistics.tokens import widen_spans

SHARE = 0.15
CANDIDATES = 10
_LONGEST_WINDOW = 512
# Some models, such as RoBERTa, number positions from the id of the padding token on, so two positions are unavailable.
_POSITIONS_KEPT_BACK = 2
_TOKENS_PER_BATCH = 1024
# Candidates are searched among the most likely tokens. Most of the other tokens are no words.
_SEARCHED_TOKENS = 64
_LONGEST_WORD = 30
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_WORD_MARKS = ("Ġ", "▁")
_READ_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)


class MaskedModelProposer:
    """A proposer that replaces one word per neighbour by a candidate of a masked language model.

    A random share of the text's words is masked, one word at a time, so that the model reads all other words. The
    likeliest words other than the original are the candidates. They are ordered by the score of a swap,
    p(candidate) / (1 - p(original)) (Mattern et al., Findings of ACL 2023). If they are too few, the next share of the
    words is masked.

    The paper differs in two points. It masks every word (``share`` = 1). It blurs a word by dropout on its embedding
    instead of masking it.

    A word is a unit of the masked model's tokenizer with letters and digits, of at most 30 characters. For Chinese,
    choose a model whose tokenizer splits between characters. The candidate replaces the word and copies its capitals.
    All other characters are unchanged. Long texts are read in windows around the masked word. Weights are read from
    safetensors only, and code of a repository is never run.

    All methods raise ModelError if the files are missing, or if they hold no masked language model with a fast
    tokenizer.
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
        """Store the options. The model is loaded at its first use.

        Args:
            entry: The entry of the masked language model.
            share: Share of the words that are masked in one step.
            candidates: Number of candidates per word.
            device: The device. By default a GPU if there is one.
            notify: A callback with the progress in texts.
        """
        # The model runs in float32. In bfloat16 candidates would tie, and the hardware would break the ties.
        self._entry = entry.model_copy(update={"dtype": "float32", "trust_remote_code": False})
        self._share = share
        self._candidates = candidates
        self._device = device or choose_default_device()
        self._notify = notify

    def describe_cost(self, texts: Sequence[str], n: int) -> str:
        """Return the cost: a pass of the masked model per masked word. The weights are not loaded.

        If candidates of a text coincide, more words are masked than counted here.
        """
        passes = tokens = 0
        for text in dict.fromkeys(texts):
            ids, words = self._find_words(text)
            step = self._compute_words_per_step(words)
            masked = min(len(words), step * max(1, math.ceil(n / self._candidates / step)))
            passes += masked
            tokens += masked * (min(len(ids), self._room) + sum(map(len, self._frame)))
        return format_cost(self._entry.name, passes, tokens, texts, n)

    def propose(self, texts: Sequence[str], n: int, seed: int) -> list[list[str]]:
        """Propose neighbours, see Proposer.propose. Distinct texts never share a batch."""
        neighbours: dict[str, list[str]] = {}
        distinct_texts = dict.fromkeys(texts)
        for text in distinct_texts:
            neighbours[text] = select_distinct(text, self._generate_neighbours(text, seed), n)
            self._notify(f"neighbours of {len(neighbours):,} of {len(distinct_texts):,} texts by {self._entry.name}")
        return [list(neighbours[text]) for text in texts]

    def _generate_neighbours(self, text: str, seed: int) -> Iterator[str]:
        ids, words = self._find_words(text)
        order = create_random_generator(text, seed).permutation(len(words)).tolist()
        step = self._compute_words_per_step(words)
        for start in range(0, len(order), step):
            chosen = [words[i] for i in order[start : start + step]]
            swaps: list[_Swap] = []
            for batch in self._batch_masked_words(ids, chosen):
                swaps += self._compute_swaps(batch)
            # The sort is stable: among equal swaps, the word that was chosen earlier comes first.
            for swap in sorted(swaps, key=lambda swap: -swap.score):
                yield text[: swap.word.char_begin] + swap.replacement + text[swap.word.char_end :]

    def _compute_words_per_step(self, words: Sequence[_Word]) -> int:
        return max(1, math.ceil(self._share * len(words)))

    def _find_words(self, text: str) -> tuple[list[int], list[_Word]]:
        """Return the token ids of a text, and the words that can be replaced."""
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

    def _batch_masked_words(self, ids: Sequence[int], words: Sequence[_Word]) -> Iterator[list[_Masked]]:
        """Yield the text with each word masked in turn. Windows of a batch have equal length, so none is padded."""
        by_length: dict[int, list[_Masked]] = {}
        for word in words:
            masked = self._mask_word(ids, word)
            by_length.setdefault(len(masked.ids), []).append(masked)
        for length, windows in by_length.items():
            batch_size = max(1, _TOKENS_PER_BATCH // length)
            for start in range(0, len(windows), batch_size):
                yield windows[start : start + batch_size]

    def _mask_word(self, ids: Sequence[int], word: _Word) -> _Masked:
        masked = [*ids[: word.token_begin], self._tokenizer.mask_token_id, *ids[word.token_end :]]
        start = max(0, min(word.token_begin - self._room // 2, len(masked) - self._room))
        window = masked[start : start + self._room]
        before, after = self._frame
        mask_position = len(before) + word.token_begin - start
        return _Masked(word, ids[word.token_begin], [*before, *window, *after], mask_position)

    @torch.inference_mode()
    def _compute_swaps(self, batch: Sequence[_Masked]) -> list[_Swap]:
        ids = torch.tensor([masked.ids for masked in batch], device=self._device)
        logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        at_mask = logits[torch.arange(len(batch)), torch.tensor([masked.mask_position for masked in batch])]
        p = at_mask.double().softmax(-1)
        best = p.topk(min(_SEARCHED_TOKENS, p.shape[-1]), dim=-1)
        swaps: list[_Swap] = []
        for row, masked in enumerate(batch):
            # A word of several tokens has no probability as a single token.
            is_single_token = masked.word.token_end == masked.word.token_begin + 1
            p_original = float(p[row, masked.original_token]) if is_single_token else 0.0
            scores: dict[str, float] = {}
            for token, p_token in zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True):
                replacement = self._find_replacement(masked, token)
                if replacement is not None:
                    # If p_original is 1, the difference is only rounding. The limit keeps the order of the candidates.
                    scores.setdefault(replacement, p_token / max(1.0 - p_original, 1e-12))
                if len(scores) == self._candidates:
                    break
            swaps.extend(_Swap(score, masked.word, replacement) for replacement, score in scores.items())
        return swaps

    def _find_replacement(self, masked: _Masked, token: int) -> str | None:
        """Return a token as a replacement of the masked word, or None if it is no word or the same word."""
        if token in self._special or token >= len(self._tokenizer):
            return None
        if self._starts_word(token) != self._starts_word(masked.original_token):
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
        with self._convert_read_errors("tokenizer"):
            tokenizer = read_tokenizer_files(self._located.folder, self._entry.name)
        if not tokenizer.is_fast:
            raise ModelError(f"{self._entry.name} has no fast tokenizer (tokenizer.json): character offsets need it")
        if tokenizer.mask_token_id is None:
            raise ModelError(f"{self._entry.name} has no mask token: name a masked language model, such as a BERT")
        return tokenizer

    @cached_property
    def _model(self) -> torch.nn.Module:
        transformers_logging.disable_progress_bar()
        with self._convert_read_errors("weights"):
            model, loading = AutoModelForMaskedLM.from_pretrained(
                self._located.folder,
                dtype=torch.float32,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
        missing = sorted(loading["missing_keys"])
        if missing:
            # transformers fills missing tensors with random numbers and continues.
            raise ModelError(
                f"the weights of {self._entry.name} lack {len(missing)} tensors of a masked language model, such as "
                f"{missing[0]}. Name a model that includes its masked-language-modelling head."
            )
        model = model.to(self._device).eval()
        model.requires_grad_(requires_grad=False)
        return model  # type: ignore[no-any-return]

    @contextmanager
    def _convert_read_errors(self, part: str) -> Iterator[None]:
        """Raise ModelError if a file cannot be read inside the context."""
        try:
            yield
        except _READ_ERRORS as error:
            raise build_read_error(self._entry.name, self._located.folder, part, error) from error

    @cached_property
    def _config(self) -> Any:
        with self._convert_read_errors("configuration"):
            return AutoConfig.from_pretrained(self._located.folder, trust_remote_code=False)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """Return the special tokens that the tokenizer adds before and after a text."""
        encoded = self._tokenizer("a", return_special_tokens_mask=True)
        ids = encoded["input_ids"]
        text_positions = [i for i, is_special in enumerate(encoded["special_tokens_mask"]) if not is_special]
        return ids[: text_positions[0]], ids[text_positions[-1] + 1 :]

    @cached_property
    def _room(self) -> int:
        """Return the number of text tokens that fit into a window."""
        longest = getattr(self._config, "max_position_embeddings", None) or _LONGEST_WINDOW + _POSITIONS_KEPT_BACK
        window = min(_LONGEST_WINDOW, int(self._tokenizer.model_max_length), longest - _POSITIONS_KEPT_BACK)
        return max(1, window - sum(map(len, self._frame)))

    @cached_property
    def _special(self) -> frozenset[int]:
        return list_special_ids(self._tokenizer)


@dataclass(frozen=True)
class _Word:
    """A word of the text, with its ranges of characters and of tokens."""

    text: str
    char_begin: int
    char_end: int
    token_begin: int
    token_end: int


class _Masked(NamedTuple):
    """A window of the text with a masked word.

    Attributes:
        word: The masked word.
        original_token: The first token of the word.
        ids: The token ids of the window.
        mask_position: The position of the mask in the window.
    """

    word: _Word
    original_token: int
    ids: list[int]
    mask_position: int


class _Swap(NamedTuple):
    """A replacement of a word, with its score."""

    score: float
    word: _Word
    replacement: str


def _extract_word(text: str, tokens: Sequence[int], offsets: Sequence[Sequence[int]]) -> _Word | None:
    """Return the word in a group of tokens, or None if the group holds several words or further characters."""
    group_start = offsets[tokens[0]][0]
    group_end = offsets[tokens[-1]][1]
    matches = list(_WORD.finditer(text, group_start, group_end))
    if len(matches) != 1 or len(matches[0].group()) > _LONGEST_WORD:
        return None
    word = matches[0].group()
    begin, end = matches[0].span()
    word_tokens = [token for token in tokens if offsets[token][0] < end and offsets[token][1] > begin]
    covered = text[offsets[word_tokens[0]][0] : offsets[word_tokens[-1]][1]]
    # A token may include blanks, which do not belong to the word.
    if covered.strip() != word:
        return None
    return _Word(word, begin, end, word_tokens[0], word_tokens[-1] + 1)


def _match_capitals(original: str, candidate: str) -> str:
    """Return the candidate with the capitals of the original. Uncased models propose lower case only."""
    if not candidate.islower():
        return candidate
    if len(original) > 1 and original.isupper():
        return candidate.upper()
    return candidate[0].upper() + candidate[1:] if original[0].isupper() else candidate
