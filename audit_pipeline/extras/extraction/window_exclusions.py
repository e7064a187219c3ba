"""The windows that are set apart, because a model can reproduce them without training on the document.

They are no evidence of memorisation. Only windows that the model reproduces are examined. A window is set apart for one
of four reasons:

- Its suffix continues the pattern of its prefix (a list, a refrain).
- The same words are in several of the documents (a licence, a publisher's preface).
- A reference model, which was not trained on the document, reproduces it, too.
- Its suffix is about as likely after prefixes of other documents as after its own prefix (Tiwari et al. 2026). It is
  statistically common, not memorised.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.word_hashes import Hashes, hash_runs
from audit_pipeline.extras.extraction import WindowLengths, window_probabilities
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.memorisation import Mask, Windows, select_strongest_windows, windows_from_rows
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.claims import REPRODUCED_FROM
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.tables import SetApart, text_sha256
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.prefixed_texts import compute_prefixed_parts, has_room
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.tokens import EncodedText, Prefix, encode

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import Backend, BackendOf

COMMON_RUN = 20
"""The length of a run in tokens. Runs of this length are assumed not to occur twice by chance. A suffix with fewer
tokens is compared as a whole."""
MIN_BOILERPLATE_DOCUMENTS = 3
"""The number of documents that must contain a run to make it boilerplate."""
MAX_OTHER_DOCUMENTS = 10
"""The maximum number of other documents whose prefixes are tried for a suffix."""
MIN_OTHER_DOCUMENTS = 5
"""The minimum number of other documents. With fewer documents, a single one could decide the result."""
MEMORISED_RATIO = 10.0
"""The ratio that separates memorised passages from passages that are likely anyway.

A passage is likely anyway if its probability after its own prefix is less than this many times that after other
prefixes. It is also likely anyway if it would count as reproduced after other prefixes. Tiwari et al. 2026 give no
threshold for all models and texts. This value was chosen here before any search used it.
"""

Ints = npt.NDArray[np.integer]


def is_prefix_repeated(prefix: Ints, suffix: Ints) -> bool:
    """Return True if a run of ``COMMON_RUN`` tokens of the suffix also begins in the prefix.

    The run may end in the suffix, because a repetition also continues after a prefix that is shorter than a run.
    """
    length = compute_run_length(len(suffix))
    prefix_runs = _hash_runs(np.concatenate([prefix, suffix]), length)[: len(prefix)]
    return bool(np.isin(_hash_runs(suffix, length), prefix_runs).any())


def have_common_run(tokens: Ints, other: Ints) -> bool:
    """Return True if two texts share a run of ``COMMON_RUN`` tokens, or the whole of a shorter text."""
    length = compute_run_length(min(len(tokens), len(other)))
    return bool(np.isin(_hash_runs(tokens, length), _hash_runs(other, length)).any())


def find_boilerplate(documents: Sequence[Ints], length: int) -> Hashes:
    """Find the runs of ``length`` tokens that at least ``MIN_BOILERPLATE_DOCUMENTS`` documents contain.

    Args:
        documents: The tokens of each document, without duplicate documents.
        length: The length of the runs.

    Returns:
        The sorted hashes of the runs.
    """
    if len(documents) < MIN_BOILERPLATE_DOCUMENTS:
        return np.empty(0, dtype=np.uint64)
    runs_by_document = [np.unique(_hash_runs(document, length)) for document in documents]
    runs, counts = np.unique(np.concatenate(runs_by_document), return_counts=True)
    return np.asarray(runs[counts >= MIN_BOILERPLATE_DOCUMENTS])


def is_boilerplate(suffix: Ints, boilerplate_hashes: Hashes) -> bool:
    """Return True if a suffix contains a run that :func:`find_boilerplate` returned for the same length."""
    return bool(np.isin(_hash_runs(suffix, compute_run_length(len(suffix))), boilerplate_hashes).any())


def compute_run_length(suffix: int) -> int:
    """Return the length of the runs to compare for suffixes of ``suffix`` tokens."""
    return min(COMMON_RUN, suffix)


def find_set_apart_reason(prefix: Ints, suffix: Ints, get_boilerplate: Callable[[], Hashes]) -> SetApart | None:
    """Return the reason in the documents' texts to set a reproduced window apart, or None if there is no such reason.

    Args:
        prefix: The token ids of the prefix.
        suffix: The token ids of the suffix.
        get_boilerplate: Returns the result of :func:`find_boilerplate`. It is called only if the suffix does not repeat
            the prefix.
    """
    if is_prefix_repeated(prefix, suffix):
        return "repeats its prefix"
    if is_boilerplate(suffix, get_boilerplate()):
        return "in several documents"
    return None


def _hash_runs(tokens: Ints, length: int) -> Hashes:
    """Hash every run of ``length`` tokens. The result has the shape (max(0, n - length + 1),)."""
    return hash_runs(tokens.astype(np.uint64), length)


@dataclass(frozen=True, eq=False)
class Exclusions:
    """The excluded windows of a document with n windows.

    Attributes:
        reasons: For each window, why it is set apart, or None if it is not.
        reference_log_p: Array of shape (n,): the reference model's log-probability of each suffix. NaN if not computed.
        prior_log_p: Array of shape (n,): the log of each suffix's mean probability after prefixes of other documents.
            NaN if not computed.
    """

    reasons: tuple[SetApart | None, ...]
    reference_log_p: Floats
    prior_log_p: Floats

    @property
    def is_set_apart(self) -> Mask:
        """Return a mask of shape (n,) of the windows that are set apart."""
        return np.array([reason is not None for reason in self.reasons], dtype=np.bool_)


def find_exclusions(
    model: TokenizedModel,
    documents: Sequence[SearchedDocument],
    windows: Sequence[Windows],
    lengths: WindowLengths,
    caches: Caches,
    reference: TokenizedModel | None,
    backend_of: BackendOf,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Exclusions]:
    """Determine which windows of each document are set apart, from the documents' texts and a reference model.

    The ``reference`` model was not trained on the documents. It is run only on reproduced windows for which the texts
    provide no reason.
    """

    @cache
    def get_boilerplate() -> Hashes:
        # Documents with the same text count once, and so do the answers of one conversation.
        texts = list(dict.fromkeys(document.whole_text for document in documents))
        tokens_by_text = [text.token_id for text in encode(model, texts)]
        return find_boilerplate(tokens_by_text, compute_run_length(lengths.suffix))

    reasons: list[list[SetApart | None]] = [[None] * len(document_windows) for document_windows in windows]
    unexplained: list[tuple[int, int]] = []
    for document_number, (document, document_windows) in enumerate(zip(documents, windows, strict=True)):
        window_numbers = np.flatnonzero(document_windows.reproduced)
        if not len(window_numbers):
            continue
        starts = document_windows.start[window_numbers].tolist()
        encoded = window_probabilities.encode_document_windows(model, document, starts, lengths)
        for window_number, window in zip(window_numbers.tolist(), encoded, strict=True):
            prefix = window.token_id[: window.first_scored]
            suffix = window.token_id[window.first_scored :]
            reason = find_set_apart_reason(prefix, suffix, get_boilerplate)
            reasons[document_number][window_number] = reason
            if reason is None:
                unexplained.append((document_number, window_number))
    log_p = [np.full(len(document_windows), np.nan) for document_windows in windows]
    if reference is not None and unexplained:
        backend = partial(backend_of, reference)
        scored = _score_by_reference(reference, documents, windows, unexplained, caches, backend, on_progress)
        for (document_number, window_number), (value, is_reproduced) in zip(unexplained, scored, strict=True):
            log_p[document_number][window_number] = value
            if is_reproduced:
                reasons[document_number][window_number] = "predictable"
    return [
        Exclusions(tuple(document_reasons), values, np.full(len(values), np.nan))
        for document_reasons, values in zip(reasons, log_p, strict=True)
    ]


def _score_by_reference(
    reference: TokenizedModel,
    documents: Sequence[SearchedDocument],
    windows: Sequence[Windows],
    unexplained: Sequence[tuple[int, int]],
    caches: Caches,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None,
) -> list[tuple[float, bool]]:
    """Score the windows of ``unexplained`` with the reference model. Each is a document number and a window number.

    Returns:
        The log-probability of each suffix, and whether the model reproduces it. The result is (NaN, False) if the
        reference model cannot read the window, because its context is too short or nothing precedes the suffix.
    """
    encoded: list[EncodedText | None] = []
    for document_number, window_number in unexplained:
        spans = windows[document_number]
        span = (int(spans.start[window_number]), int(spans.begin[window_number]), int(spans.end[window_number]))
        encoded += window_probabilities.encode_windows_between(reference, documents[document_number].text, [span])
    readable = [window for window in encoded if window is not None]
    window_probabilities.run_windows(reference, readable, caches, backend, on_progress)
    rows = window_probabilities.read_windows(reference, readable, caches)
    reference_windows = windows_from_rows(rows)
    row_keys = zip(rows.column("text_sha256").to_pylist(), reference_windows.start.tolist(), strict=True)
    number_by_key = {key: number for number, key in enumerate(row_keys)}
    scores: list[tuple[float, bool]] = []
    for window in encoded:
        if window is None:
            scores.append((np.nan, False))
            continue
        number = number_by_key[window.text_sha256, int(window.char_start[0])]
        scores.append((float(reference_windows.log_p[number]), bool(reference_windows.reproduced[number])))
    return scores


def is_likely_anyway(log_p: float, prior_log_p: float) -> bool:
    """Return True if a passage is likely anyway, so that it is no sign of memorisation.

    Args:
        log_p: The log-probability of the passage after its own prefix.
        prior_log_p: The log of its mean probability after other prefixes. If it is NaN, the result is False.
    """
    return log_p - prior_log_p < math.log(MEMORISED_RATIO) or prior_log_p >= math.log(REPRODUCED_FROM)


def exclude_by_priors(
    model: TokenizedModel,
    documents: Sequence[SearchedDocument],
    windows: Sequence[Windows],
    exclusions: Sequence[Exclusions],
    lengths: WindowLengths,
    caches: Caches,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Exclusions]:
    """Set apart the windows that are likely anyway.

    The prior of a window is the mean probability of its suffix after prefixes of other documents. Priors are computed
    only for passages: the most likely windows that do not overlap. Every other window overlaps a passage. It gets the
    result of the passage with which it shares the most characters.

    Args:
        model: The model that is searched.
        documents: All documents.
        windows: The windows of each document.
        exclusions: For each document, the windows that are already set apart for other reasons.
        lengths: The lengths of prefix and suffix.
        caches: The caches of statistics.
        backend: Returns the loaded model. It is called only if a statistic is not cached.
        on_progress: Receives the progress of a pass.

    Returns:
        The exclusions of each document, with the new reasons.
    """
    masks: list[Mask] = []
    passage_numbers: list[list[int]] = []
    passages: list[tuple[int, EncodedText]] = []
    for document_number, (document_windows, document_exclusions) in enumerate(zip(windows, exclusions, strict=True)):
        mask = document_windows.reproduced & ~document_exclusions.is_set_apart
        numbers = sorted(select_strongest_windows(document_windows, mask))
        masks.append(mask)
        passage_numbers.append(numbers)
        if numbers:
            starts = document_windows.start[numbers].tolist()
            document = documents[document_number]
            encoded = window_probabilities.encode_document_windows(model, document, starts, lengths)
            passages += [(document_number, window) for window in encoded]
    if not passages:
        return list(exclusions)
    priors = iter(_compute_priors(model, documents, passages, caches, backend, on_progress))
    updated = []
    for document_windows, document_exclusions, mask, numbers in zip(
        windows, exclusions, masks, passage_numbers, strict=True
    ):
        priors_by_window = {number: next(priors) for number in numbers}
        updated.append(_add_prior_exclusions(document_windows, document_exclusions, mask, priors_by_window))
    return updated


def _add_prior_exclusions(
    windows: Windows, exclusions: Exclusions, mask: Mask, priors: Mapping[int, float]
) -> Exclusions:
    """Return the exclusions of a document, with those by the priors of its passages.

    Args:
        windows: The windows of the document.
        exclusions: The exclusions so far.
        mask: The windows to examine.
        priors: The prior of each passage, in nats, by the number of its window.
    """
    reasons = list(exclusions.reasons)
    prior_log_p = exclusions.prior_log_p.copy()
    for passage, prior in priors.items():
        prior_log_p[passage] = prior
    for number in np.flatnonzero(mask).tolist():
        nearest = max(priors, key=partial(_compute_overlap, windows, number))
        if is_likely_anyway(float(windows.log_p[nearest]), priors[nearest]):
            reasons[number] = "likely anyway"
    return replace(exclusions, reasons=tuple(reasons), prior_log_p=prior_log_p)


def _compute_overlap(windows: Windows, number: int, other: int) -> int:
    """Compute how many characters the suffixes of two windows share. Negative if there is a gap between them."""
    last_begin = max(windows.begin[number], windows.begin[other])
    return int(min(windows.end[number], windows.end[other]) - last_begin)


def _compute_priors(
    model: TokenizedModel,
    documents: Sequence[SearchedDocument],
    passages: Sequence[tuple[int, EncodedText]],
    caches: Caches,
    backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None = None,
) -> list[float]:
    """Compute the log of the mean probability of each passage's suffix after prefixes of other documents.

    Each token is sampled from the whole distribution, as for ``log_p``. Passages share prefixes if possible, so that
    one pass over a prefix serves all of them. Each of ``passages`` is a document number and a window.

    Returns:
        One value per passage, in nats. NaN if fewer than ``MIN_OTHER_DOCUMENTS`` other documents have a prefix for it.
    """
    passages_by_prefix: dict[Prefix, list[int]] = {}
    for number, prefixes in enumerate(_choose_prefixes(model, documents, passages)):
        for prefix in prefixes:
            passages_by_prefix.setdefault(prefix, []).append(number)
    log_p: list[list[float]] = [[] for _ in passages]
    for prefix, numbers in passages_by_prefix.items():
        suffixes = [_cut_suffix(passages[number][1]) for number in numbers]
        suffix_log_p = compute_prefixed_parts(model, suffixes, prefix, caches, backend, on_progress)
        for number, value in zip(numbers, suffix_log_p, strict=True):
            log_p[number].append(value)
    return [_compute_log_mean(values) for values in log_p]


def _compute_log_mean(log_values: Sequence[float]) -> float:
    if not log_values:
        return math.nan
    return float(np.logaddexp.reduce(log_values)) - math.log(len(log_values))


def _choose_prefixes(
    model: TokenizedModel, documents: Sequence[SearchedDocument], passages: Sequence[tuple[int, EncodedText]]
) -> list[list[Prefix]]:
    """Choose the prefixes of other documents for each passage.

    Each other document provides one prefix, as long as the passage's own prefix. A hash of its text decides its
    position. Held-out documents come first. Documents with the same text count once. A prefix is rejected if it shares
    a run of tokens with the passage's window. Its document is then another edition of the passage's document.

    If the passage is an answer, each other conversation provides everything before one of its answers.

    Returns:
        The prefixes of each passage. A passage has none if fewer than ``MIN_OTHER_DOCUMENTS`` documents provide one.
    """
    order = sorted(documents, key=lambda document: (document.side != "held_out", _hash_text(document.text)))
    other_documents: dict[str, SearchedDocument] = {}
    for document in order:
        other_documents.setdefault(document.whole_text, document)

    @cache
    def cut_prefix(text: str, tokens: int) -> Prefix | None:
        return _cut_prefix(model, text, tokens)

    @cache
    def cut_context(text: str) -> Prefix | None:
        return _cut_context(model, other_documents[text])

    chosen = []
    for document_number, window in passages:
        prefixes: list[Prefix] = []
        document = documents[document_number]
        for text in other_documents:
            if len(prefixes) == MAX_OTHER_DOCUMENTS:
                break
            if text == document.whole_text:
                continue
            if document.answer is not None:
                context = cut_context(text)
                if context is not None and _is_other_context(model, context, window):
                    prefixes.append(context)
                continue
            prefix = cut_prefix(text, window.first_scored)
            if prefix is None:
                continue
            prefix_ids = np.array(prefix.ids[-window.first_scored :])
            if not have_common_run(prefix_ids, window.token_id):
                prefixes.append(prefix)
        if len(prefixes) < MIN_OTHER_DOCUMENTS:
            prefixes = []
        chosen.append(prefixes)
    return chosen


def _cut_prefix(model: TokenizedModel, text: str, tokens: int) -> Prefix | None:
    """Cut a prefix of ``tokens`` tokens out of a text, like that of a window. Return None if the text is too short."""
    # A token rarely has more than eight characters, so enough tokens follow the start.
    start = _hash_text(text) % max(1, len(text) - 8 * (tokens + 1))
    windows = window_probabilities.encode_windows_at(model, text, [start], WindowLengths(tokens, 1))
    if not windows:
        return None
    ids, _ = window_probabilities.split_prefix_and_suffix(windows[0])
    return Prefix(text_sha256(text[start : int(windows[0].char_end[tokens - 1])]), tuple(ids))


def _cut_context(model: TokenizedModel, document: SearchedDocument) -> Prefix | None:
    """Return the tokens before an answer, or None if the document has no answer that can be searched."""
    if document.answer is None:
        return None
    window = window_probabilities.encode_answer_window(model, document, 1).window
    if window is None:
        return None
    ids, _ = window_probabilities.split_prefix_and_suffix(window)
    return Prefix(text_sha256(document.text[: document.answer.start]), tuple(ids))


def _is_other_context(model: TokenizedModel, context: Prefix, window: EncodedText) -> bool:
    """Return True if a context is unlike the window of an answer, and the answer fits after it.

    Conversations often begin with the same system message, and their last questions often end with the same
    instruction. Therefore the tokens with which both contexts begin or end are not compared.
    """
    if not has_room(model, context, window.n_scored):
        return False
    own_prefix, suffix = window_probabilities.split_prefix_and_suffix(window)
    other_ids = np.array(context.ids)
    n_begin = _count_equal_tokens(own_prefix, context.ids)
    if n_begin == min(len(own_prefix), len(other_ids)):
        return False
    n_end = _count_equal_tokens(own_prefix[n_begin:][::-1], context.ids[n_begin:][::-1])
    if n_begin + n_end == len(other_ids):
        return False
    own_ids = np.array([*own_prefix[n_begin : len(own_prefix) - n_end], *suffix])
    return not have_common_run(other_ids[n_begin : len(other_ids) - n_end], own_ids)


def _count_equal_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which two sequences begin alike."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


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
