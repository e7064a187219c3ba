"""Windows that are set apart: a model can give them word for word without training on the document.

Only windows that the model reproduces are examined. Four things make one no sign of memorisation: its suffix continues
the pattern of its prefix (a list, a refrain); the same words are in several of the documents (a licence, a preface of
the publisher); a reference model, which was not trained on the document, reproduces it, too; it is as likely after
prefixes of other documents.
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
"""A run of so many consecutive tokens does not occur twice by chance; of a shorter suffix, all of it."""
SEVERAL = 3
"""A run that is in so many documents is boilerplate."""

Ints = npt.NDArray[np.integer]


def is_prefix_repeated(prefix: Ints, suffix: Ints) -> bool:
    """Whether a run of ``COMMON_RUN`` tokens of the suffix [k] begins in the prefix [a], too.

    It may end in the suffix: a repetition continues, also after a prefix that is shorter than a run.
    """
    length = compute_run_length(len(suffix))
    begun = _hash_runs(np.concatenate([prefix, suffix]), length)[: len(prefix)]
    return bool(np.isin(_hash_runs(suffix, length), begun).any())


def have_common_run(tokens: Ints, other: Ints) -> bool:
    """Whether a run of ``COMMON_RUN`` tokens is in both [n], [m]; where one has fewer, all of it."""
    length = compute_run_length(min(len(tokens), len(other)))
    return bool(np.isin(_hash_runs(tokens, length), _hash_runs(other, length)).any())


def find_boilerplate(documents: Sequence[Ints], length: int) -> Hashes:
    """The runs of ``length`` tokens that are in ``SEVERAL`` of the documents or more, as hashes, sorted.

    documents: the tokens of each, none given twice.
    """
    if len(documents) < SEVERAL:
        return np.empty(0, dtype=np.uint64)
    of_each = [np.unique(_hash_runs(document, length)) for document in documents]
    runs, counts = np.unique(np.concatenate(of_each), return_counts=True)
    return np.asarray(runs[counts >= SEVERAL])


def is_boilerplate(suffix: Ints, boilerplate_hashes: Hashes) -> bool:
    """Whether a run of the suffix [k] is among those that :func:`find_boilerplate` gave for that length."""
    return bool(np.isin(_hash_runs(suffix, compute_run_length(len(suffix))), boilerplate_hashes).any())


def compute_run_length(suffix: int) -> int:
    """The length of the runs that suffixes of ``suffix`` tokens are searched for."""
    return min(COMMON_RUN, suffix)


def explain_set_apart(prefix: Ints, suffix: Ints, get_boilerplate: Callable[[], Hashes]) -> SetApart | None:
    """Why the text alone sets a window that the model reproduces apart; None where it does not.

    get_boilerplate: gives what :func:`find_boilerplate` found; called where the suffix does not repeat its prefix.
    """
    if is_prefix_repeated(prefix, suffix):
        return "repeats its prefix"
    return "in several documents" if is_boilerplate(suffix, get_boilerplate()) else None


def _hash_runs(tokens: Ints, length: int) -> Hashes:
    """A hash of every run of ``length`` tokens: [max(0, n - length + 1)]."""
    return hash_runs(tokens.astype(np.uint64), length)


@dataclass(frozen=True, eq=False)
class Exclusions:
    """Of the windows of a document, [n] each: why they are set apart (None: they are not), the reference model's
    log-probability of their suffix, and the log of its mean probability after prefixes of other documents (NaN: not
    computed).
    """

    reasons: tuple[SetApart | None, ...]
    reference_log_p: Floats
    prior_log_p: Floats

    @property
    def is_set_apart(self) -> Mask:
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
    """Judge the windows of each document.

    The ``reference`` model, which was not trained on the documents, is run only on those that nothing else sets apart.
    """

    @cache
    def boilerplate() -> Hashes:
        return find_boilerplate(
            # The same text twice is one document.
            [window.token_id for window in encode(model, list(dict.fromkeys(document.text for document in documents)))],
            compute_run_length(lengths.suffix),
        )

    reasons: list[list[SetApart | None]] = [[None] * len(window) for window in windows]
    unexplained: list[tuple[int, int]] = []
    for number, (document, window) in enumerate(zip(documents, windows, strict=True)):
        places = np.flatnonzero(window.reproduced)
        tokens = encode_windows_at(model, document.text, window.start[places].tolist(), lengths) if len(places) else []
        for place, cut in zip(places.tolist(), tokens, strict=True):
            ids = cut.token_id
            reasons[number][place] = explain_set_apart(ids[: cut.first_scored], ids[cut.first_scored :], boilerplate)
            if reasons[number][place] is None:
                unexplained.append((number, place))
    log_p = [np.full(len(window), np.nan) for window in windows]
    if reference is not None and unexplained:
        backend = partial(backend_of, reference)
        scored = _score_by_reference(reference, documents, windows, unexplained, caches, backend, on_progress)
        for (number, place), (value, reproduced) in zip(unexplained, scored, strict=True):
            log_p[number][place] = value
            if reproduced:
                reasons[number][place] = "predictable"
    return [
        Exclusions(tuple(reasons_of_document), values, np.full(len(values), np.nan))
        for reasons_of_document, values in zip(reasons, log_p, strict=True)
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
    """The reference model's log-probability of each ``unexplained`` suffix, and whether it reproduces it.

    NaN, and no, where it cannot read the window: its context is too short, or there is nothing before the suffix.
    """
    cut: list[EncodedText | None] = []
    for number, place in unexplained:
        window = windows[number]
        between = int(window.start[place]), int(window.begin[place]), int(window.end[place])
        cut += encode_windows_between(reference, documents[number].text, [between])
    readable = [window for window in cut if window is not None]
    run_windows(reference, readable, caches, backend, on_progress)
    rows = read_windows(reference, readable, caches)
    own = windows_from_rows(rows)
    at = {
        place: n for n, place in enumerate(zip(rows.column("text_sha256").to_pylist(), own.start.tolist(), strict=True))
    }
    numbers = [None if window is None else at[window.text_sha256, int(window.char_start[0])] for window in cut]
    return [(np.nan, False) if n is None else (float(own.log_p[n]), bool(own.reproduced[n])) for n in numbers]
