"""The tokens of a document's windows, and the cached log-probabilities of these tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.extras.extraction import WindowLengths
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics import claims
from audit_pipeline.tables import KINDS, Kind, digest, text_sha256
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.cached_texts import CacheLocation, Prepared, open_caches, prepare_single_windows
from audit_pipeline.token_statistics.run import Progress, RunSummary, run_prepared
from audit_pipeline.token_statistics.tokens import EncodedText, encode, window_and_stride

_CHARACTERS_PER_TOKEN = 8
# A window is encoded from a slice of the document. The cut at the end of the slice can change the last tokens, so the
# slice needs this many tokens after the window.
_SPARE_TOKENS = 8


def explain_window_too_long(model: TokenizedModel, lengths: WindowLengths) -> str | None:
    """Return why a window does not fit into the model's context, or None if it fits."""
    context_length, _ = window_and_stride(model)
    if lengths.window + 1 <= context_length:
        return None
    return (
        f"a window of {lengths.prefix} + {lengths.suffix} tokens and a start token do not fit into the "
        f"{context_length:,} tokens of context that {model.entry.name} is run with; use a shorter prefix or suffix"
    )


def explain_too_long_windows(
    model: TokenizedModel, documents: Sequence[SearchedDocument], lengths: WindowLengths
) -> str | None:
    """Return why the windows of documents do not fit into the model's context, or None if they fit.

    The windows of answers differ in length, so each answer has its own reason (:func:`encode_answer_window`).
    """
    if documents and all(document.answer is not None for document in documents):
        return None
    return explain_window_too_long(model, lengths)


def encode_document_windows(
    model: TokenizedModel, document: SearchedDocument, starts: Sequence[int], lengths: WindowLengths
) -> list[EncodedText]:
    """Encode the windows of a document that begin at given characters.

    An answer has at most one window, which begins with the conversation. Other documents have windows as
    :func:`encode_windows_at` returns them.
    """
    if document.answer is None:
        return encode_windows_at(model, document.text, starts, lengths)
    if not len(starts):
        return []
    window = encode_answer_window(model, document, lengths.suffix).window
    return [] if window is None else [window]


class AnswerWindow(NamedTuple):
    """The window of an answer, or the reason why the answer has no window."""

    window: EncodedText | None
    problem: str | None


def encode_answer_window(model: TokenizedModel, document: SearchedDocument, suffix: int) -> AnswerWindow:
    """Encode the window of an answer: all tokens before the answer, and the first tokens of the answer.

    The text is tokenized as a whole. A token that begins before the answer and ends in it belongs to the answer.

    Args:
        model: The model whose tokenizer is used.
        document: A conversation up to an answer.
        suffix: The number of tokens of the answer. Claims are made for suffixes of this length, so an answer with fewer
            tokens has no window.
    """
    answer = document.answer
    if answer is None:
        raise ValueError(f"{document.name} is not an answer")
    if answer.problem is not None:
        return AnswerWindow(None, answer.problem)
    [text] = encode(model, [document.text])
    n_tokens = count_tokens_with_characters(text)
    prefix = int(np.searchsorted(text.char_end[:n_tokens], answer.start, side="right"))
    lengths = WindowLengths(prefix, suffix)
    context_length, _ = window_and_stride(model)
    if n_tokens - prefix < suffix:
        return AnswerWindow(None, claims.ANSWER_TOO_SHORT)
    if prefix == 0:
        return AnswerWindow(None, claims.ANSWER_WITHOUT_CONTEXT)
    if lengths.window + 1 > context_length:
        return AnswerWindow(None, claims.ANSWER_BEYOND_CONTEXT)
    return AnswerWindow(_cut_window(text, 0, text_sha256(document.text), lengths), None)


def encode_windows_at(
    model: TokenizedModel, document: str, starts: Iterable[int], lengths: WindowLengths
) -> list[EncodedText]:
    """Encode the windows of a document that begin at given characters.

    A window holds the first tokens of the text that begins at its start, as the model's tokenizer cuts this text. The
    model reads nothing before the window except its start token.

    Args:
        model: The model whose tokenizer is used.
        document: The whole text.
        starts: The first characters of the windows.
        lengths: The lengths of prefix and suffix.

    Returns:
        Windows in the order of their starts. Windows that would end after the document are missing. ``text_sha256`` is
        the digest of the document, spans are characters of the document, and scored tokens are the suffix.
    """
    sha256 = text_sha256(document)
    windows_by_start: dict[int, EncodedText] = {}
    waiting = list(starts)
    slice_length = _CHARACTERS_PER_TOKEN * lengths.window
    while waiting:
        too_short: list[int] = []
        slices = [document[start : start + slice_length] for start in waiting]
        for start, encoded in zip(waiting, encode(model, slices), strict=True):
            is_document_end = start + slice_length >= len(document)
            min_tokens = lengths.window
            if not is_document_end:
                min_tokens += _SPARE_TOKENS
            if count_tokens_with_characters(encoded) >= min_tokens:
                windows_by_start[start] = _cut_window(encoded, start, sha256, lengths)
            elif not is_document_end:
                too_short.append(start)
        waiting = too_short
        slice_length *= 2
    return [windows_by_start[start] for start in sorted(windows_by_start)]


def encode_windows_between(
    model: TokenizedModel, document: str, spans: Sequence[tuple[int, int, int]]
) -> list[EncodedText | None]:
    """Encode the windows between given characters with the tokenizer of this model.

    Args:
        model: The model. The spans may come from another model.
        document: The whole text.
        spans: The characters start, begin and end of each window. The suffix holds the tokens that end after ``begin``.

    Returns:
        One window per span. A window is None if nothing precedes its suffix, or if it is longer than the context.
    """
    sha256 = text_sha256(document)
    context_length, _ = window_and_stride(model)
    windows: list[EncodedText | None] = []
    texts = encode(model, [document[start:end] for start, _, end in spans])
    for (start, begin, _), text in zip(spans, texts, strict=True):
        prefix_length = int(np.searchsorted(text.char_end, begin - start, side="right"))
        length = count_tokens_with_characters(text)
        has_context = prefix_length > 0 or text.start_token_id is not None
        if prefix_length < length < context_length and has_context:
            lengths = WindowLengths(prefix_length, length - prefix_length)
            windows.append(_cut_window(text, start, sha256, lengths))
        else:
            windows.append(None)
    return windows


def count_tokens_with_characters(text: EncodedText) -> int:
    """Count the tokens of a text without those that the tokenizer appends, because these have no characters."""
    tokens = np.flatnonzero(text.char_end)
    if not len(tokens):
        return 0
    return int(tokens[-1]) + 1


def _cut_window(text: EncodedText, start: int, sha256: str, lengths: WindowLengths) -> EncodedText:
    cut = slice(lengths.window)
    char_start = text.char_start[cut] + start
    char_end = text.char_end[cut] + start
    # If a character belongs to tokens of both sides, the suffix begins at the end of the prefix.
    char_start[lengths.prefix] = char_end[lengths.prefix - 1]
    return replace(
        text,
        text_sha256=sha256,
        token_id=text.token_id[cut],
        char_start=char_start,
        char_end=char_end,
        first_scored=lengths.prefix,
    )


def split_prefix_and_suffix(window: EncodedText) -> tuple[list[int], list[int]]:
    """Return the token ids of the prefix, including a start token, and of the suffix."""
    ids = window.token_id.tolist()
    prefix = ids[: window.first_scored]
    if window.start_token_id is not None:
        prefix = [window.start_token_id, *prefix]
    return prefix, ids[window.first_scored :]


def run_windows(
    model: TokenizedModel,
    windows: Sequence[EncodedText],
    location: CacheLocation,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
    kind: Kind = "extraction",
) -> RunSummary:
    """Run the model on the windows that the cache of ``kind`` lacks, and write their rows batch by batch."""
    caches = open_caches(location)
    prepared = _prepare_windows(model, windows, caches.of(model, kind), kind)
    return run_prepared(model, prepared, caches, backend, on_progress=on_progress)


def count_tokens_to_run(
    model: TokenizedModel, windows: Sequence[EncodedText], location: CacheLocation, kind: Kind = "extraction"
) -> int:
    """Count the tokens that :func:`run_windows` would run the model on."""
    prepared = _prepare_windows(model, windows, open_caches(location).of(model, kind), kind)
    return sum(window.length for window in prepared.windows)


def read_windows(model: TokenizedModel, windows: Sequence[EncodedText], location: CacheLocation) -> pa.Table:
    """Return the cached rows of windows, one row per window, by document digest and start (schema EXTRACTION).

    Rows with an unknown log-probability (NaN) are left out, because no conclusion can be drawn from their windows.
    """
    keys = (compute_row_key(model, window) for window in windows)
    rows = open_caches(location).of(model, "extraction").read(keys)
    logprobs = rows["logprob"].combine_chunks()
    unknown = pc.unique(pc.list_parent_indices(logprobs).filter(pc.is_nan(logprobs.flatten())))
    is_known = np.ones(len(rows), dtype=np.bool_)
    is_known[unknown.to_numpy()] = False
    return rows.filter(pa.array(is_known)).sort_by([("text_sha256", "ascending"), ("start", "ascending")])


def _prepare_windows(model: TokenizedModel, windows: Sequence[EncodedText], cache: PartCache, kind: Kind) -> Prepared:
    windows_by_key = {compute_row_key(model, window, kind): window for window in windows}
    missing_keys = cache.missing(windows_by_key)
    missing = {key: window for key, window in windows_by_key.items() if key in missing_keys}
    return prepare_single_windows(kind, missing, cached=len(windows_by_key) - len(missing))


def compute_row_key(model: TokenizedModel, window: EncodedText, kind: Kind = "extraction") -> str:
    """Compute the cache key of a window's row. It includes everything that can change the row."""
    return digest(
        window.text_sha256,
        int(window.char_start[0]),
        int(window.char_end[-1]),
        window.token_id.tolist(),
        window.first_scored,
        window.start_token_id,
        model.identity.model_fingerprint,
        model.identity.tokenizer_fingerprint,
        kind,
        KINDS[kind].version,
    )
