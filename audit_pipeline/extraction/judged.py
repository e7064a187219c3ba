"""Which of a search's windows are set apart, as no sign of memorisation.

What belongs here: the tokens of windows that the model reproduces, and the reference model's pass over them. What does
not: the rules (set_apart.py), and what is concluded from what is left (conclude.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from audit_pipeline.catalogue.contracts import SetApart
from audit_pipeline.extraction.conclude import Mask, Windows, windows_from
from audit_pipeline.extraction.documents import SearchedDocument
from audit_pipeline.extraction.set_apart import Hashes, boilerplate, run_of, why
from audit_pipeline.extraction.windows import WindowLengths, read_windows, run_windows, window_between, windows_at
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.encode import EncodedText, encode
from audit_pipeline.token_statistics.kept import Caches
from audit_pipeline.token_statistics.run import Progress

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.backend import Backend


@dataclass(frozen=True)
class Reference:
    """A model that was not trained on the documents, and what loads it."""

    model: TokenizedModel
    backend: Callable[[], Backend]
    on_progress: Callable[[Progress], None] | None = None


@dataclass(frozen=True, eq=False)
class Judged:
    """Of the windows of a document, [n] each: why they are set apart (None: they are not), and the reference model's
    log-probability of their suffix (NaN: it was not asked)."""

    reasons: tuple[SetApart | None, ...]
    reference_log_p: Floats

    @property
    def apart(self) -> Mask:
        return np.array([reason is not None for reason in self.reasons], dtype=np.bool_)


def judge(
    model: TokenizedModel,
    documents: Sequence[SearchedDocument],
    windows: Sequence[Windows],
    lengths: WindowLengths,
    caches: Caches,
    reference: Reference | None,
) -> list[Judged]:
    """The windows of each document, judged. The reference model is run on those alone that nothing else sets apart."""

    @cache
    def known() -> Hashes:
        return boilerplate(
            # The same text twice is one document.
            [one.token_id for one in encode(model, list(dict.fromkeys(document.text for document in documents)))],
            run_of(lengths.suffix),
        )

    reasons: list[list[SetApart | None]] = [[None] * len(window) for window in windows]
    asked: list[tuple[int, int]] = []
    for number, (document, one) in enumerate(zip(documents, windows, strict=True)):
        places = np.flatnonzero(one.reproduced)
        tokens = windows_at(model, document.text, one.start[places].tolist(), lengths) if len(places) else []
        for place, window in zip(places.tolist(), tokens, strict=True):
            ids = window.token_id
            reasons[number][place] = why(ids[: window.first_scored], ids[window.first_scored :], known)
            if reasons[number][place] is None:
                asked.append((number, place))
    log_p = [np.full(len(window), np.nan) for window in windows]
    if reference is not None and asked:
        for (number, place), (value, reproduced) in zip(
            asked, _by_reference(reference, documents, windows, asked, caches), strict=True
        ):
            log_p[number][place] = value
            if reproduced:
                reasons[number][place] = "predictable"
    return [Judged(tuple(some), values) for some, values in zip(reasons, log_p, strict=True)]


def _by_reference(
    reference: Reference,
    documents: Sequence[SearchedDocument],
    windows: Sequence[Windows],
    asked: Sequence[tuple[int, int]],
    caches: Caches,
) -> list[tuple[float, bool]]:
    """The reference model's log-probability of each suffix that is ``asked`` for, and whether it reproduces it.

    NaN, and no, where it cannot read the window: its context is too short, or nothing stands before the suffix.
    """
    cut: list[EncodedText | None] = []
    for number, place in asked:
        one = windows[number]
        places = (int(values[place]) for values in (one.start, one.begin, one.end))
        cut.append(window_between(reference.model, documents[number].text, *places))
    readable = [one for one in cut if one is not None]
    run_windows(reference.model, readable, caches, reference.backend, reference.on_progress)
    rows = read_windows(reference.model, readable, caches)
    own = windows_from(rows)
    at = {
        place: n for n, place in enumerate(zip(rows.column("text_sha256").to_pylist(), own.start.tolist(), strict=True))
    }
    numbers = [None if one is None else at[one.text_sha256, int(one.char_start[0])] for one in cut]
    return [(np.nan, False) if n is None else (float(own.log_p[n]), bool(own.reproduced[n])) for n in numbers]
