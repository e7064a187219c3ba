"""Passages that are likely anyway: as likely after prefixes of other documents as after their own.

A suffix that is as likely after unrelated prefixes as after its own is statistically common, not memorised (Tiwari et
al. 2026). Only what the model reproduces and nothing else sets apart is asked about: where there is nothing of it, this
costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from audit_pipeline.extras.extraction.defaults import WindowLengths
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.memorisation import Mask, Windows, select_strongest_windows
from audit_pipeline.extras.extraction.window_exclusions import Exclusions, have_common_run
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at, split_prefix_and_suffix
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.claims import REPRODUCED_FROM
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.prefixed_texts import compute_prefixed_parts
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.tokens import EncodedText, Prefix

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import Backend

OTHER_PREFIXES = 10
"""A suffix is asked for after the prefixes of so many other documents, or of as many as there are."""
LEAST_OTHERS = 5
"""With fewer other documents nothing is asked: one of them would decide."""
TIMES_LIKELIER = 10.0
"""A passage is likely anyway where it is less than so many times likelier after its own prefix than after those of
other documents, or where it would count as reproduced after these. Tiwari et al. 2026 give no threshold for all models
and texts; this one was chosen here, before anything was searched with it."""


def is_likely_anyway(log_p: float, prior_log_p: float) -> bool:
    """Whether a passage with these log-probabilities is no sign of memorisation; not where the second is NaN."""
    return log_p - prior_log_p < math.log(TIMES_LIKELIER) or prior_log_p >= math.log(REPRODUCED_FROM)


def judge_by_priors(
    model: TokenizedModel,
    documents: Sequence[SearchedDocument],
    windows: Sequence[Windows],
    judged: Sequence[Exclusions],
    lengths: WindowLengths,
    caches: Caches,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Exclusions]:
    """The judgements of the windows of each document, those that are likely anyway set apart as well.

    Asked are passages: the strongest windows that do not overlap. Every other window overlaps one of them, and has the
    verdict of that which it shares most characters with.
    """
    masks = [own.reproduced & ~judgement.is_set_apart for own, judgement in zip(windows, judged, strict=True)]
    asked = [select_strongest_windows(own, mask) for own, mask in zip(windows, masks, strict=True)]
    passages = [
        (number, window)
        for number, places in enumerate(asked)
        if places
        for window in encode_windows_at(
            model, documents[number].text, windows[number].start[sorted(places)].tolist(), lengths
        )
    ]
    if not passages:
        return list(judged)
    priors = iter(_compute_priors(model, documents, passages, caches, backend, on_progress))
    return [
        _judge_document(own, judgement, mask, {place: next(priors) for place in sorted(places)})
        for own, judgement, mask, places in zip(windows, judged, masks, asked, strict=True)
    ]


def _judge_document(windows: Windows, judged: Exclusions, mask: Mask, priors: Mapping[int, float]) -> Exclusions:
    """The judgement of a document whose passages, by the number of their window, have these ``priors``."""
    reasons, prior_log_p = list(judged.reasons), judged.prior_log_p.copy()
    for place, prior in priors.items():
        prior_log_p[place] = prior
    for number in np.flatnonzero(mask).tolist():
        nearest = max(
            priors,
            key=lambda place: (
                min(windows.end[number], windows.end[place]) - max(windows.begin[number], windows.begin[place])
            ),
        )
        if is_likely_anyway(float(windows.log_p[nearest]), priors[nearest]):
            reasons[number] = "likely anyway"
    return replace(judged, reasons=tuple(reasons), prior_log_p=prior_log_p)


def _compute_priors(
    model: TokenizedModel,
    documents: Sequence[SearchedDocument],
    passages: Sequence[tuple[int, EncodedText]],
    caches: Caches,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
) -> list[float]:
    """The log of the mean probability of each passage's suffix after prefixes of other documents.

    passages: the number of the document, and the window. NaN where fewer than ``LEAST_OTHERS`` other documents have a
    prefix for it. Every token is drawn from the whole distribution, as for ``log_p``. All passages are asked for after
    the same prefixes as far as they may be, so that a prefix is run once for all.
    """
    chosen = _choose_prefixes(model, documents, passages)
    asked: dict[Prefix, list[int]] = {}
    for number, prefixes in enumerate(chosen):
        for prefix in prefixes:
            asked.setdefault(prefix, []).append(number)
    log_p: list[list[float]] = [[] for _ in passages]
    for prefix, numbers in asked.items():
        suffixes = [_cut_suffix(passages[number][1]) for number in numbers]
        found = compute_prefixed_parts(model, suffixes, prefix, caches, backend, on_progress)
        for number, value in zip(numbers, found, strict=True):
            log_p[number].append(value)
    return [float(np.logaddexp.reduce(values)) - math.log(len(values)) if values else math.nan for values in log_p]


def _choose_prefixes(
    model: TokenizedModel, documents: Sequence[SearchedDocument], passages: Sequence[tuple[int, EncodedText]]
) -> list[list[Prefix]]:
    """The prefixes that each passage is asked for after; none where too few other documents have one.

    A document gives one, of as many tokens as the passage's own, from a place that a hash decides. Held-out documents
    come first. The same text twice is one document. A prefix that shares a run of tokens with the passage's window, of
    another edition of its document, does not serve: it would be the passage's own.
    """
    order = sorted(documents, key=lambda document: (document.side != "held_out", _hash_text(document.text)))
    texts = list(dict.fromkeys(document.text for document in order))

    @cache
    def cut(text: str, tokens: int) -> Prefix | None:
        return _cut_prefix(model, text, tokens)

    chosen = []
    for number, window in passages:
        candidates = (cut(text, window.first_scored) for text in texts if text != documents[number].text)
        serving = (
            prefix
            for prefix in candidates
            if prefix is not None and not have_common_run(np.array(prefix.ids[-window.first_scored :]), window.token_id)
        )
        prefixes = list(islice(serving, OTHER_PREFIXES))
        chosen.append(prefixes if len(prefixes) >= LEAST_OTHERS else [])
    return chosen


def _cut_prefix(model: TokenizedModel, text: str, tokens: int) -> Prefix | None:
    """A prefix of so many tokens as windows of ``text`` have it; None where the text is too short."""
    # At about eight characters a token at most, there are as many tokens after it.
    start = _hash_text(text) % max(1, len(text) - 8 * (tokens + 1))
    windows = encode_windows_at(model, text, [start], WindowLengths(tokens, 1))
    if not windows:
        return None
    ids, _ = split_prefix_and_suffix(windows[0])
    return Prefix(text_sha256(text[start : int(windows[0].char_end[tokens - 1])]), tuple(ids))


def _hash_text(text: str) -> int:
    return int(text_sha256(text), 16)


def _cut_suffix(window: EncodedText) -> EncodedText:
    cut = slice(window.first_scored, None)
    return replace(
        window,
        token_id=window.token_id[cut],
        char_start=window.char_start[cut],
        char_end=window.char_end[cut],
        first_scored=0,
    )
