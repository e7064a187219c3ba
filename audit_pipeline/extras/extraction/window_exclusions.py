"""The windows that are set apart, because a model can reproduce them without training on the document.

They are no evidence of memorisation. Only windows that the model reproduces are examined. A window is set apart for one
of four reasons:

- Its suffix continues the pattern of its prefix (a list, a refrain).
- The same words are in several of the documents (a licence, a publisher's preface).
- A reference model, which was not trained on the document, reproduces it, too.
- Its suffix is about as likely after prefixes of other documents as after its own prefix (priors.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from audit_pipeline.extras.corpora.word_hashes import Hashes, hash_runs
from audit_pipeline.extras.extraction.defaults import WindowLengths
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.extras.extraction.memorisation import Mask, Windows, windows_from_rows
from audit_pipeline.extras.extraction.window_probabilities import (
    encode_windows_at,
    encode_windows_between,
    read_windows,
    run_windows,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.tables import SetApart
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.tokens import EncodedText, encode

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import Backend, BackendOf

COMMON_RUN = 20
"""The length of a run in tokens. Runs of this length are assumed not to occur twice by chance. A suffix with fewer
tokens is compared as a whole."""
MIN_BOILERPLATE_DOCUMENTS = 3
"""The number of documents that must contain a run to make it boilerplate."""

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


def explain_set_apart(prefix: Ints, suffix: Ints, get_boilerplate: Callable[[], Hashes]) -> SetApart | None:
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
    """The judgement of the n windows of a document.

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


def judge_windows(
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
        # Documents with the same text count once.
        texts = list(dict.fromkeys(document.text for document in documents))
        tokens_by_text = [text.token_id for text in encode(model, texts)]
        return find_boilerplate(tokens_by_text, compute_run_length(lengths.suffix))

    reasons: list[list[SetApart | None]] = [[None] * len(document_windows) for document_windows in windows]
    unexplained: list[tuple[int, int]] = []
    for document_number, (document, document_windows) in enumerate(zip(documents, windows, strict=True)):
        window_numbers = np.flatnonzero(document_windows.reproduced)
        if not len(window_numbers):
            continue
        starts = document_windows.start[window_numbers].tolist()
        encoded = encode_windows_at(model, document.text, starts, lengths)
        for window_number, window in zip(window_numbers.tolist(), encoded, strict=True):
            prefix = window.token_id[: window.first_scored]
            suffix = window.token_id[window.first_scored :]
            reason = explain_set_apart(prefix, suffix, get_boilerplate)
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
        encoded += encode_windows_between(reference, documents[document_number].text, [span])
    readable = [window for window in encoded if window is not None]
    run_windows(reference, readable, caches, backend, on_progress)
    rows = read_windows(reference, readable, caches)
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
