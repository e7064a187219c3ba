"""Texts as input of a model: their tokens, and the windows and batches in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import ModelError
from audit_pipeline.models.tokenized_model import KnownModel, TokenizedModel
from audit_pipeline.tables import KINDS, TOPK_ENTRIES, Kind, digest_each, text_sha256

IntArray = npt.NDArray[np.int32]
_Tokens = tuple[list[int], list[tuple[int, int]], list[int]]

_TEXTS_PER_CALL = 1024
# Minimum length of the windows of a large batch, relative to its longest.
_MIN_RELATIVE_LENGTH = 0.95


@dataclass(frozen=True)
class Prefix:
    """A prefix that precedes texts in the model's input.

    Attributes:
        sha256: Digest of its text.
        ids: Its token ids, including its start token.
    """

    sha256: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class EncodedText:
    """One text with its tokens.

    Attributes:
        text_sha256: Digest of the text.
        token_id: Token ids without the start token: [n].
        char_start: Position of each token's first character in the text: [n].
        char_end: Position after each token's last character in the text: [n].
        start_token_id: Id of the token before the text, or None.
        first_scored: Index of the first scored token.
    """

    text_sha256: str
    token_id: IntArray
    char_start: IntArray
    char_end: IntArray
    start_token_id: int | None
    first_scored: int

    @property
    def n_scored(self) -> int:
        """Return the number of scored tokens."""
        return max(0, len(self.token_id) - self.first_scored)


def window_and_stride(model: KnownModel) -> tuple[int, int]:
    """Return the length and the stride of windows in tokens, from the model's entry or its context length."""
    window = min(model.entry.window or model.context_length, model.context_length)
    stride = min(model.entry.stride or max(1, window // 2), max(1, window - 2))
    return window, stride


def cache_keys(model: TokenizedModel, texts_sha256: Iterable[str], kind: Kind, steps: int = 0) -> dict[str, str]:
    """Return the cache keys of texts by their sha256. A key covers exactly what can change a row.

    ``steps`` is the length of the branches, for the kind ``branches``.
    """
    distinct = list(dict.fromkeys(texts_sha256))
    start_token = None
    if model.entry.start_token_policy == "always":
        start_token = model.start_token
    settings: list[object] = []
    if kind == "topk":
        settings.append(TOPK_ENTRIES)
    if kind == "branches":
        settings.append(steps)
    keys = digest_each(
        distinct,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        model.entry.start_token_policy,
        start_token,
        *window_and_stride(model),
        kind,
        KINDS[kind].version,
        *settings,
    )
    return dict(zip(distinct, keys, strict=True))


def encode(model: TokenizedModel, texts: Sequence[str]) -> list[EncodedText]:
    """Encode ``texts`` under the model's start-token policy.

    With the policy 'always', the text's own tokens follow one start token, and all of them are scored. With
    'tokenizer', the tokenizer decides if a start token is added. Without a start token, the first token is not scored,
    as in the papers' code. An endpoint that omits the first log-probability never scores the first token.

    Raises:
        ModelError: If the tokenizer gives ids that the model does not have.
    """
    encoded: list[EncodedText] = []
    # Texts are encoded in pieces, to limit the memory of the tokenizer's lists.
    for start in range(0, len(texts), _TEXTS_PER_CALL):
        encoded.extend(_encode_piece(model, texts[start : start + _TEXTS_PER_CALL]))
    return encoded


def wrap_token_ids(ids: IntArray, start_token_id: int | None = None) -> EncodedText:
    """Return token ids without a text as an encoded text, for checks and measurements."""
    no_positions = np.zeros(len(ids), dtype=np.int32)
    return EncodedText("", ids, no_positions, no_positions, start_token_id, int(start_token_id is None))


def encode_prefix(model: TokenizedModel, text: str) -> Prefix:
    """Encode a prefix separately from the text after it, with the start token of the model's policy."""
    [encoded] = encode(model, [text])
    start = () if encoded.start_token_id is None else (encoded.start_token_id,)
    return Prefix(encoded.text_sha256, (*start, *encoded.token_id.tolist()))


def put_after(prefix: Prefix, text: EncodedText) -> EncodedText:
    """Return ``text`` as it follows ``prefix``, with all tokens scored. Its start token is the prefix's last token."""
    return replace(text, start_token_id=prefix.ids[-1], first_scored=0)


def _encode_piece(model: TokenizedModel, texts: Sequence[str]) -> list[EncodedText]:
    always = model.entry.start_token_policy == "always"
    drops_first = model.entry.host.server_adds_start_token
    tokens = _tokenize(model, texts)
    all_ids = np.fromiter(chain.from_iterable(ids for ids, _, _ in tokens), np.int32)
    bounds = chain.from_iterable(chain.from_iterable(offsets for _, offsets, _ in tokens))
    all_spans = np.fromiter(bounds, np.int32).reshape(-1, 2)
    encoded = []
    end = 0
    for text, (ids, offsets, special) in zip(texts, tokens, strict=True):
        begin = end
        end += len(ids)
        start_token_id: int | None = model.start_token_id if always else None
        if not always and ids and special[0] and tuple(offsets[0]) == (0, 0):
            start_token_id = ids[0]
            begin += 1
        spans = widen_spans(text, all_spans[begin:end])
        encoded.append(
            EncodedText(
                text_sha256=text_sha256(text),
                token_id=all_ids[begin:end],
                char_start=spans[:, 0],
                char_end=spans[:, 1],
                start_token_id=start_token_id,
                first_scored=0 if start_token_id is not None and not drops_first else 1,
            )
        )
    return encoded


def widen_spans(text: str, spans: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Extend the character ``spans`` [tokens, 2] of a text in place, so that every character belongs to a token.

    A tokenizer omits characters that it composes with others, strips or drops. They go to the token before them, and
    white space goes to the token after it. Tokens that the tokenizer appends to the text, such as an end token, have no
    characters.
    """
    if not len(spans) or (spans[-1, 1] == len(text) and spans[0, 0] == 0 and (spans[1:, 0] <= spans[:-1, 1]).all()):
        return spans
    if not spans[:, 1].any():
        return spans
    starts, ends = spans[: np.flatnonzero(spans[:, 1])[-1] + 1].T
    covered = np.maximum.accumulate(ends)
    before = np.concatenate([[0], covered[:-1]])
    for token in np.flatnonzero(starts > before):
        gap = text[before[token] : starts[token]]
        boundary = 0
        if token:
            boundary = before[token] + len(gap.rstrip())
        # All byte tokens of a composed character are extended to the end of the character.
        ends[np.searchsorted(ends[:token], before[token]) : token] = boundary
        starts[token] = boundary
    ends[np.searchsorted(ends, covered[-1]) :] = len(text)
    return spans


def _tokenize(model: TokenizedModel, texts: Sequence[str], *, special_as_text: bool = False) -> list[_Tokens]:
    """Return ids, character spans and special-token marks of each text."""
    batch = model.tokenizer.encode(
        texts,
        add_special_tokens=model.entry.start_token_policy != "always",
        special_as_text=special_as_text,
    )
    tokens: list[_Tokens] = [(encoding.ids, encoding.offsets, encoding.special_tokens_mask) for encoding in batch]
    beyond = [i for i, (ids, _, _) in enumerate(tokens) if max(ids, default=0) >= model.vocab_size]
    if beyond and special_as_text:
        raise ModelError(
            f"the tokenizer of {model.entry.name} gives token ids beyond the {model.vocab_size} ids of the model. "
            "Use the tokenizer and the weights of one model: these do not belong together."
        )
    if beyond:
        # A text may contain the spelling of a special token that the model lacks (Gemma 3's image token). It is then
        # read as ordinary characters.
        replacements = _tokenize(model, [texts[i] for i in beyond], special_as_text=True)
        for i, replacement in zip(beyond, replacements, strict=True):
            tokens[i] = replacement
    return tokens


@dataclass(frozen=True)
class Window:
    """Tokens ``begin:end`` of text number ``text``. The window scores the tokens ``score_from:end``."""

    text: int
    begin: int
    end: int
    score_from: int
    has_start_token: bool

    @property
    def length(self) -> int:
        """Return the number of tokens that pass the model."""
        return self.end - self.begin + self.has_start_token


def cut_windows(text: int, encoded: EncodedText, window: int, stride: int) -> list[Window]:
    """Return the windows that score every token of a text once. A text without scored tokens has none.

    A short text is one window. In a longer text, windows move on by ``stride`` tokens, and the last window ends with
    the text. So each token after the first window has at least ``window - stride - 1`` tokens before it.
    """
    if encoded.n_scored == 0:
        return []
    has_start = encoded.start_token_id is not None
    capacity = window - has_start
    n = len(encoded.token_id)
    end = min(capacity, n)
    windows = [Window(text, 0, end, encoded.first_scored, has_start)]
    while end < n:
        scored_from = end
        end = min(end + stride, n)
        windows.append(Window(text, end - capacity, end, scored_from, has_start))
    return windows


def iterate_batches(
    windows: Iterable[Window],
    token_budget: int,
    *,
    min_tokens: int | None = None,
    equal_lengths: bool = False,
    length_step: int | None = None,
    prefix_length: int = 0,
    pad_length: Callable[[int], int] = lambda length: length,
) -> Iterator[Sequence[Window]]:
    """Yield windows in batches of at most ``token_budget`` padded tokens, longest first.

    Args:
        windows: The windows.
        token_budget: Maximum number of padded tokens per batch. A longer window is a batch of its own.
        min_tokens: Number of padded tokens from which a batch ends before a window that is more than 5% shorter than
            its longest. None: only the budget ends a batch.
        equal_lengths: Only windows of equal length share a batch, for models that padding disturbs.
        length_step: Windows up to this length never share a batch with longer ones.
        prefix_length: Number of tokens that run before each window.
        pad_length: Function from the length of the longest window to the padded length of the batch.
    """
    if min_tokens is None:
        min_tokens = token_budget
    batch: list[Window] = []
    padded_length = 0
    for window in sorted(windows, key=lambda window: (-window.length, window.text, window.begin)):
        # The longest windows come first. The first window of a batch sets its padded length, and a lack of memory shows
        # at once.
        if batch:
            is_full = (len(batch) + 1) * padded_length > token_budget
            is_large = len(batch) * padded_length >= min_tokens
            is_much_shorter = (
                is_large and prefix_length + pad_length(window.length) < _MIN_RELATIVE_LENGTH * padded_length
            )
            is_other_length = equal_lengths and window.length != batch[0].length
            is_other_side = (
                length_step is not None
                and prefix_length + window.length <= length_step < prefix_length + batch[0].length
            )
            if is_full or is_much_shorter or is_other_length or is_other_side:
                yield batch
                batch = []
        if not batch:
            padded_length = prefix_length + pad_length(window.length)
        batch.append(window)
    if batch:
        yield batch


def build_batch_arrays(
    encoded: Sequence[EncodedText], batch: Sequence[Window], length: int, prefix_ids: Sequence[int] = ()
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]], list[IntArray]]:
    """Return the arrays of a batch of windows.

    Args:
        encoded: The texts.
        batch: The windows.
        length: Padded length, including the prefix.
        prefix_ids: Tokens before every window.

    Returns:
        Token ids [windows, length], padded with 0. Per window, the flat positions of the logits that predict its scored
        tokens. Per window, the ids of its scored tokens.
    """
    ids = np.zeros((len(batch), length), dtype=np.int64)
    ids[:, : len(prefix_ids)] = prefix_ids
    rows: list[npt.NDArray[np.int64]] = []
    targets: list[IntArray] = []
    for index, window in enumerate(batch):
        text = encoded[window.text]
        shift = len(prefix_ids) + window.has_start_token
        if text.start_token_id is not None:
            ids[index, len(prefix_ids)] = text.start_token_id
        ids[index, shift : len(prefix_ids) + window.length] = text.token_id[window.begin : window.end]
        scored = np.arange(window.score_from, window.end)
        # The logits that predict a token are at the position before it.
        rows.append(index * length + (scored - window.begin) + shift - 1)
        targets.append(text.token_id[window.score_from : window.end])
    return ids, rows, targets
