"""Blind controls beside that of words: classifiers of membership that see characters, length or dates, and no model.

What belongs here: the features of each control, and AUROC and interval of any of them. What does not: the folds and the
classifier (separability/blind_control.py, whose control of words is the one that binds), and what an AUROC means for a
claim (metrics/claims.py).

On the same texts all are scored out of fold in the same folds by group, and resampled by the same draws, so that their
AUROCs are comparable. None is read on fewer than 200 texts.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from audit_pipeline.metrics.curves import Floats
from audit_pipeline.metrics.declared import AUROC
from audit_pipeline.metrics.intervals import NO_INTERVAL, RESAMPLES, GroupBootstrap, Interval
from audit_pipeline.metrics.metrics import ALL_EQUAL, rank, weighted_metrics
from audit_pipeline.separability.blind_control import (
    BlindControl,
    FoldFeatures,
    Matrix,
    Places,
    cross_fitted,
    folds_by_group,
    is_unspaced,
)
from audit_pipeline.separability.dates_in_text import DatesInText, dates_in

WORDS, CHARACTERS, LENGTH, DATES = "words", "characters", "length", "dates"

LENGTH_UNITS = ("words", "characters", "utf8_bytes", "zlib_bytes")

MOST_CHARACTERS = 4_000_000
"""That the character control reads, of all texts together: memory and time are bounded, 400 of each of 10,000 texts."""

_AUROC = (AUROC.name,)
_BUCKETS = 1 << 20
_MIN_TEXTS = 2
_FURTHEST = 4.0


@dataclass(frozen=True)
class ControlAuroc:
    """The AUROC of one control over ``n`` texts, None with the reason in ``method`` where it was not computed."""

    name: str
    auroc: float | None
    interval: Interval
    n: int
    method: str


def other_controls(
    example_ids: Sequence[str],
    texts: Sequence[str],
    labels: npt.ArrayLike,
    groups: Sequence[str],
    *,
    language: str,
    word_counts: Sequence[int],
    seed: int = 0,
) -> dict[str, BlindControl]:
    """The controls beside that of words of n labelled examples (labels 0 or 1), the same for every order of them.

    By name. ``word_counts`` are the texts' lengths in words of the benchmark's unit, for the control of length. In a
    script without blanks between words the control of words has character n-grams already, so there is none of
    characters. Raises DataError for unequal lengths.
    """
    folds = folds_by_group(example_ids, labels, groups, seed=seed)
    found = {}
    if not is_unspaced(language):
        first = MOST_CHARACTERS // max(1, len(texts))
        what = "TF-IDF of character 3-5-grams"
        if any(len(text) > first for text in texts):
            what += f" of each text's first {first} characters"
        found[CHARACTERS] = cross_fitted(folds, character_features([text[:first] for text in texts], (3, 5)), what)
    length = dense_features(length_features(texts, word_counts))
    dates = date_features([dates_in(text) for text in texts])
    return {
        **found,
        LENGTH: cross_fitted(folds, length, "words, characters, bytes and zlib bytes of each text"),
        DATES: cross_fitted(folds, dates, "years and months mentioned in each text"),
    }


def measure_controls(
    controls: dict[str, BlindControl],
    labels: npt.ArrayLike,
    groups: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[ControlAuroc]:
    """AUROC and 95% interval of each control, in the order given, on the same bootstrap resamples of groups."""
    classes = np.asarray(labels)
    rankings = {name: rank(one.scores, classes) for name, one in controls.items() if one.scores is not None}
    aurocs = {name: float(weighted_metrics(ranking, names=_AUROC)[0, 0]) for name, ranking in rankings.items()}
    intervals: dict[str, tuple[Interval, str]] = {}
    if rankings:
        bootstrap = GroupBootstrap(groups, classes, resamples=resamples, seed=seed)
        resampled = bootstrap.metrics(list(rankings.values()), _AUROC)[:, :, 0]
        for (name, auroc), values in zip(aurocs.items(), resampled, strict=True):
            # Scores that are all equal tie everywhere, so their resamples do not scatter.
            tied = len(rankings[name].tie_end) == 1
            intervals[name] = (NO_INTERVAL, ALL_EQUAL) if tied else bootstrap.interval_of(AUROC, auroc, values)
    found = []
    for name, control in controls.items():
        interval, drawn = intervals.get(name, (NO_INTERVAL, ""))
        method = control.reason or "; ".join([control.method, AUROC.meaning, drawn])
        found.append(ControlAuroc(name, aurocs.get(name), interval, len(classes), method))
    return found


def worst(measured: Sequence[ControlAuroc]) -> ControlAuroc | None:
    """The control with the highest AUROC, the first of equal ones; None where none was read."""
    read = [(one.auroc, -place, one) for place, one in enumerate(measured) if one.auroc is not None]
    return max(read, key=lambda entry: entry[:2])[2] if read else None


def character_features(texts: Sequence[str], lengths: tuple[int, int]) -> FoldFeatures:
    """TF-IDF of character n-grams of the given lengths, learnt in each fold from those in two or more training texts.

    Counted once for all folds, when the first asks, in 2^20 buckets of a hash that learns nothing from any text.
    """
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer  # noqa: PLC0415 - it is heavy

    vectoriser = HashingVectorizer(
        analyzer="char", ngram_range=lengths, n_features=_BUCKETS, norm=None, alternate_sign=False
    )

    @cache
    def counted() -> Matrix:
        return vectoriser.transform(texts)

    def features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        counts = counted()
        learnt = counts[training]
        shared = np.flatnonzero(np.bincount(learnt.indices, minlength=_BUCKETS) >= _MIN_TEXTS)
        if not len(shared):
            return "the texts have no characters in common"
        weights = TfidfTransformer(sublinear_tf=True)
        # On its own line: weights are learnt before they are used.
        fitted = weights.fit_transform(learnt[:, shared])
        return fitted, weights.transform(counts[held_out][:, shared]) if len(held_out) else fitted[:0]

    return features


def length_features(texts: Sequence[str], word_counts: Sequence[int]) -> Floats:
    """Logarithms of the four lengths, and zlib bytes for each byte: [n, 5]."""
    sizes = text_lengths(texts, word_counts)
    return np.column_stack([np.log1p(sizes), sizes[:, 3] / np.maximum(1.0, sizes[:, 2])])


def text_lengths(texts: Sequence[str], word_counts: Sequence[int]) -> Floats:
    """Words, characters, UTF-8 bytes and zlib bytes of each text, as ``LENGTH_UNITS`` names them: [n, 4]."""
    rows = []
    for text, words in zip(texts, word_counts, strict=True):
        encoded = text.encode()
        rows.append((words, len(text), len(encoded), len(zlib.compress(encoded))))
    return np.asarray(rows, dtype=np.float64).reshape(-1, len(LENGTH_UNITS))


def date_features(found: Sequence[DatesInText]) -> FoldFeatures:
    """Whether a text mentions a year, how many years and months, and its first, mean and last year."""
    rows = np.full((len(found), 6), np.nan)
    for row, dates in zip(rows, found, strict=True):
        row[:3] = bool(dates.years), np.log1p(len(dates.years)), np.log1p(len(dates.months))
        if dates.years:
            row[3:] = min(dates.years), sum(dates.years) / len(dates.years), max(dates.years)
    dense = dense_features(rows)

    def features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        if not rows[training, :3].any():
            return "too few texts mention a year or a month"
        return dense(training, held_out)

    return features


def dense_features(rows: Floats) -> FoldFeatures:
    """The columns of ``rows`` [n, d] in standard deviations from their mean, cut off at 4, and the squares of those.

    Mean and deviation are those of the training texts. NaN stands for no value and counts as the mean. The squares let
    a linear classifier see a side that is more spread out.
    """

    def features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        learnt = rows[training]
        known = ~np.isnan(learnt)
        count = np.maximum(1, known.sum(axis=0))
        mean = np.where(known, learnt, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, learnt - mean, 0.0) ** 2).sum(axis=0) / count)
        # A column that does not vary says nothing; rounding must not make it say something.
        spread[spread <= 1e-9 * np.maximum(1.0, np.abs(mean))] = np.inf

        def standard(some: Floats) -> Floats:
            z = np.clip(np.where(np.isnan(some), 0.0, (some - mean) / spread), -_FURTHEST, _FURTHEST)
            return np.hstack([z, z**2])

        return standard(learnt), standard(rows[held_out])

    return features
