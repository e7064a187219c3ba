"""Windows of documents as a model's tokens, and how likely the model finds them, cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.extras.extraction.defaults import WindowLengths
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.tables import KINDS, Kind, digest, text_sha256
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.cached_texts import CacheLocation, Prepared, open_caches, prepare_single_windows
from audit_pipeline.token_statistics.run import Progress, RunSummary, run_prepared
from audit_pipeline.token_statistics.tokens import EncodedText, encode, window_and_stride

_CHARACTERS_A_TOKEN = 8
# Tokens after the window that its slice needs, unless the document ends: the cut may change the last ones.
_BEYOND = 8


def explain_window_too_long(model: TokenizedModel, lengths: WindowLengths) -> str | None:
    """Why a window does not fit into the model's context; None where it does."""
    room, _ = window_and_stride(model)
    if lengths.window + 1 <= room:
        return None
    return (
        f"a window of {lengths.prefix} + {lengths.suffix} tokens and a start token do not fit into the {room:,} "
        f"tokens of context that {model.entry.name} is run with: make the window shorter"
    )


def encode_windows_at(
    model: TokenizedModel, document: str, starts: Iterable[int], lengths: WindowLengths
) -> list[EncodedText]:
    """The windows of a document that begin at the characters ``starts``, those that end within it, in their order.

    A window is the first tokens of the text from its beginning on, as the model's tokenizer cuts that text: the model
    sees nothing else (but a start token, by the model's policy). Its ``text_sha256`` is the document's, its spans are
    places in the document, its scored tokens are the suffix.
    """
    sha256 = text_sha256(document)
    found: dict[int, EncodedText] = {}
    waiting, size = list(starts), _CHARACTERS_A_TOKEN * lengths.window
    while waiting:
        short: list[int] = []
        for start, window in zip(waiting, encode(model, [document[at : at + size] for at in waiting]), strict=True):
            ends = start + size >= len(document)
            if count_tokens_with_characters(window) >= lengths.window + (0 if ends else _BEYOND):
                found[start] = _cut_window(window, start, sha256, lengths)
            elif not ends:
                short.append(start)
        waiting, size = short, 2 * size
    return [found[start] for start in sorted(found)]


def encode_windows_between(
    model: TokenizedModel, document: str, places: Sequence[tuple[int, int, int]]
) -> list[EncodedText | None]:
    """The windows from character ``start`` to ``end`` as this model cuts them into tokens, whatever model they were
    made for.

    places: ``start``, ``begin`` and ``end`` of each, whose suffix is of the tokens that end after the character
    ``begin``. None where the model cannot read it: there is nothing before the suffix, or it is longer than the context
    that the model is run with.
    """
    sha256, (room, _) = text_sha256(document), window_and_stride(model)
    windows: list[EncodedText | None] = []
    texts = encode(model, [document[start:end] for start, _, end in places])
    for (start, begin, _), text in zip(places, texts, strict=True):
        first = int(np.searchsorted(text.char_end, begin - start, side="right"))
        own = count_tokens_with_characters(text)
        is_readable = first < own < room and (first > 0 or text.start_token_id is not None)
        windows.append(_cut_window(text, start, sha256, WindowLengths(first, own - first)) if is_readable else None)
    return windows


def count_tokens_with_characters(text: EncodedText) -> int:
    """How many tokens there are without those that the tokenizer appends to the text: these have no characters."""
    own = np.flatnonzero(text.char_end)
    return int(own[-1]) + 1 if len(own) else 0


def _cut_window(text: EncodedText, start: int, sha256: str, lengths: WindowLengths) -> EncodedText:
    cut = slice(lengths.window)
    char_start, char_end = text.char_start[cut] + start, text.char_end[cut] + start
    # Of a character in tokens on both sides: the suffix begins where its prefix ends.
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
    """The tokens that the model is given, its start token among them, and those of the suffix."""
    start = [] if window.start_token_id is None else [window.start_token_id]
    ids = window.token_id.tolist()
    return [*start, *ids[: window.first_scored]], ids[window.first_scored :]


def run_windows(
    model: TokenizedModel,
    windows: Sequence[EncodedText],
    location: CacheLocation,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
    kind: Kind = "extraction",
) -> RunSummary:
    """Run the model on those of ``windows`` that the cache of ``kind`` (extraction or grid) lacks, and write their rows
    as they come.
    """
    caches = open_caches(location)
    prepared = _prepare_windows(model, windows, caches.of(model, kind), kind)
    return run_prepared(model, prepared, caches, backend, on_progress=on_progress)


def count_tokens_to_run(
    model: TokenizedModel, windows: Sequence[EncodedText], location: CacheLocation, kind: Kind = "extraction"
) -> int:
    """How many tokens :func:`run_windows` would run the model on."""
    prepared = _prepare_windows(model, windows, open_caches(location).of(model, kind), kind)
    return sum(window.length for window in prepared.windows)


def read_windows(model: TokenizedModel, windows: Sequence[EncodedText], location: CacheLocation) -> pa.Table:
    """The cached rows (EXTRACTION) of ``windows``, each once, by their beginning.

    Those with a log-probability that is not known (NaN) are left out: whether they can be drawn is not known either.
    """
    keys = (compute_row_key(model, window) for window in windows)
    rows = open_caches(location).of(model, "extraction").read(keys)
    logprobs = rows["logprob"].combine_chunks()
    unknown = pc.unique(pc.list_parent_indices(logprobs).filter(pc.is_nan(logprobs.flatten())))
    is_known = np.ones(len(rows), dtype=np.bool_)
    is_known[unknown.to_numpy()] = False
    return rows.filter(pa.array(is_known)).sort_by([("text_sha256", "ascending"), ("start", "ascending")])


def _prepare_windows(model: TokenizedModel, windows: Sequence[EncodedText], cache: PartCache, kind: Kind) -> Prepared:
    keys = {compute_row_key(model, window, kind): window for window in windows}
    missing = cache.missing(keys)
    absent = {key: window for key, window in keys.items() if key in missing}
    return prepare_single_windows(kind, absent, cached=len(keys) - len(absent))


def compute_row_key(model: TokenizedModel, window: EncodedText, kind: Kind = "extraction") -> str:
    """The key of a window's row of ``kind``: whatever can change the row is in it."""
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
