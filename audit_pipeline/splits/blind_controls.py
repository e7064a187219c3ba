"""Blind controls: how well classifiers that never see the model separate the two sides.

Of words: TF-IDF of word unigrams and bigrams (character n-grams of one to three where the script has no blanks between
words), vocabulary and weights learnt on the training folds only. Logistic regression with C = 10 and balanced classes:
the intercept then does not follow the share of members in the training folds, which differs from fold to fold where
groups are of unequal size. So the log odds of all folds, from equally large training sets, share one zero and one scale
and are pooled.

A classifier that learned nothing (no features, the same prediction for every text, or no word of nine texts in ten) is
no control: it was not computed, and its AUROC of 0.5 is none.

Measured on labels drawn at random (400 made-up texts, 100 draws): the pooled AUROC is 0.50 on average, with a standard
deviation of 0.039 where the variance of the scores says 0.028, so 84 of 100 intervals hold 0.5 rather than 95. That
variance takes the scores as given, but each text is scored by the others and helps to score them, which doubles the
variance where there is nothing to find. Neither more folds nor repeated ones change that. Read an interval that only
just clears a limit with care.

On the same texts all controls are scored out of fold in the same folds by group, so that their AUROCs are comparable.
Those apart from that of words are not read on fewer than 200 texts.

A temporal split is made by date, so a text that names a year often names its own side. What is read: numbers of four
digits from 1500 to 2099 that are not part of a longer number or a word, an amount of money or the decimals of a number
(`1999`, `1990s`, `2024-03-01`, `1.3.2024`, `2024年`), Chinese years in digits (二〇二四年), English month names, and
the months of dates that are all digits and begin with the year (`2024-03`, `2024/3/1`, `2024年3月`). Two-digit years
and written-out ones are not read. A number such as "1800 people" is taken for a year: as many of those on both sides
do no harm.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.intervals import NO_INTERVAL, GroupedSides, Measurement, measure_auroc
from audit_pipeline.statistics.roc import AUROC, Floats, Places, roc_points
from audit_pipeline.tables import MEMBER, NON_MEMBER

NAME = "blind_control"
MIN_EXAMPLES = 200
FOLDS = 5
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "km", "my"})

_MAX_FEATURES = 200_000
_MOST_UNKNOWN = 0.9
_NOT_COMPUTED = "the blind control was not computed"
_WORD = r"(?u)\b\w+\b"

Matrix = Any
"""Rows of features, dense or sparse, as scikit-learn takes them."""
FoldFeatures = Callable[[Places, Places], tuple[Matrix, Matrix] | str]
"""The features of the texts at the training and at the held-out places, learnt from the former alone; or why none."""


@dataclass(frozen=True, eq=False)
class BlindControl:
    """Out-of-fold log odds of membership, one per example in the order given; or None and the reason."""

    scores: Floats | None
    reason: str | None
    method: str


@dataclass(frozen=True, eq=False)
class Folds:
    """Which examples learn and which are scored: ``parts`` are (training, held-out) positions, ``labels`` [n].

    ``reason`` says why there are none that can be used.
    """

    parts: tuple[tuple[Places, Places], ...]
    labels: npt.NDArray[np.integer]
    reason: str | None


def compute_blind_control(
    example_ids: Sequence[str],
    texts: Sequence[str],
    labels: npt.ArrayLike,
    groups: Sequence[str],
    *,
    language: str,
    seed: int = 0,
) -> BlindControl:
    """Return the blind control of n labelled examples (labels 0 or 1), the same for every order of them.

    It is not computed on fewer than 200 examples, or where either side has fewer than 5 groups: every fold needs texts
    of both sides whose groups the classifier has not seen. Raises DataError for unequal lengths.
    """
    folds = split_folds_by_group(example_ids, labels, groups, seed=seed)
    if len(texts) != len(folds.labels):
        raise DataError("the blind control needs one id, text, label and group for each example")
    characters = is_unspaced(language)
    kinds = (
        {"analyzer": "char", "ngram_range": (1, 3)} if characters else {"token_pattern": _WORD, "ngram_range": (1, 2)}
    )
    unknown = 0

    @cache
    def counted() -> Matrix:
        # Imported where it is used: other importers need not wait for scikit-learn.
        from sklearn.feature_extraction.text import CountVectorizer  # noqa: PLC0415

        from audit_pipeline.splits.term_counts import count_terms  # noqa: PLC0415

        return count_terms(texts, CountVectorizer(**kinds).build_analyzer())

    def features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        from audit_pipeline.splits.term_counts import compute_tf_idf  # noqa: PLC0415

        found = compute_tf_idf(counted(), training, held_out, _MAX_FEATURES)
        if found is None:
            return "the texts hold no words"
        nonlocal unknown
        unknown += int((np.diff(found[1].indptr) == 0).sum())
        return found

    control = cross_fit(folds, features, f"TF-IDF of {'character 1-3-grams' if characters else 'word 1-2-grams'}")
    if control.scores is not None and unknown > _MOST_UNKNOWN * len(texts):
        why = f"it learned nothing: {unknown} of {len(texts)} texts share no word with those that it learns from"
        return BlindControl(None, f"{_NOT_COMPUTED}: {why}", control.method)
    return control


def is_unspaced(language: str) -> bool:
    """Return whether the language (ISO 639-1) is written without blanks between words."""
    return language.lower().split("-")[0] in UNSPACED_LANGUAGES


def split_folds_by_group(
    example_ids: Sequence[str], labels: npt.ArrayLike, groups: Sequence[str], *, seed: int = 0
) -> Folds:
    """Return the folds of n labelled examples (labels 0 or 1), the same for every order of them.

    There are none on fewer than 200 examples, or where either side has fewer than 5 groups. Raises DataError for
    unequal lengths.
    """
    classes = np.asarray(labels)
    if not len(example_ids) == len(classes) == len(groups):
        raise DataError("the blind control needs one id, text, label and group for each example")
    if len(classes) < MIN_EXAMPLES:
        return Folds((), classes, f"{len(classes)} labelled examples, it needs {MIN_EXAMPLES}")
    for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)):
        n_groups = len({group for group, own in zip(groups, classes, strict=True) if own == label})
        if n_groups < FOLDS:
            reason = f"the {name} are of {n_groups} group{'s' * (n_groups != 1)}, it needs {FOLDS}"
            return Folds((), classes, reason)
    canonical = np.array(sorted(range(len(classes)), key=lambda index: (groups[index], example_ids[index])))
    by_group = np.asarray(groups, dtype=object)[canonical]
    # Imported where it is used: other importers need not wait for scikit-learn.
    from audit_pipeline.splits.stratified_folds import FastStratifiedGroupKFold  # noqa: PLC0415

    folds = FastStratifiedGroupKFold(n_splits=FOLDS, shuffle=True, random_state=seed)
    parts = tuple(
        (canonical[training], canonical[held_out])
        for training, held_out in folds.split(by_group, classes[canonical], by_group)
    )
    has_single_side = any(len(np.unique(classes[training])) < 2 for training, _ in parts)
    problem = "the groups are too unequal in size: a training fold has one side only" if has_single_side else None
    return Folds(parts, classes, problem)


def cross_fit(folds: Folds, features: FoldFeatures, feature_description: str) -> BlindControl:
    """Return a logistic regression of membership on ``features`` (``feature_description`` names them), out of fold.

    ``features`` is asked once for each fold, and not where there are none.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    method = f"{feature_description} and logistic regression, out-of-fold log odds of {FOLDS} folds by group"
    scores = np.zeros(len(folds.labels))
    reason = folds.reason
    for training, held_out in folds.parts if reason is None else ():
        found = features(training, held_out)
        if isinstance(found, str):
            reason = found
            break
        # liblinear: one thread, no random numbers, and on these sparse features ten times as fast as lbfgs.
        classifier = LogisticRegression(C=10.0, class_weight="balanced", solver="liblinear", max_iter=1000)
        classifier.fit(found[0], folds.labels[training])
        if len(held_out):
            scores[held_out] = classifier.decision_function(found[1])
        # The features of two folds need not be in memory at once.
        del found
    if reason is None and all(np.ptp(scores[held_out]) == 0 for _, held_out in folds.parts if len(held_out)):
        reason = "it learned nothing: all texts of a fold get the same prediction"
    if reason is not None:
        return BlindControl(None, f"{_NOT_COMPUTED}: {reason}", method)
    return BlindControl(scores, None, method)


_HAN_DIGITS = str.maketrans("〇零一二三四五六七八九", "00123456789")
_HAN_YEAR = re.compile(r"[〇零一二三四五六七八九]{4}(?=\s*年)")
_YEAR = re.compile(
    r"(?<![A-Za-z0-9$€£¥#])(?<!\d[.,])(?P<plain>(?:1[5-9]|20)\d\d)s?(?![A-Za-z0-9%])(?![.,]\d{3}(?!\d))"
    r"|(?<![\d.])\d{1,2}\.\d{1,2}\.(?P<dotted>(?:1[5-9]|20)\d\d)(?![A-Za-z0-9])",
    re.ASCII,
)
_NUMERIC_MONTH = re.compile(r"(?<![\d.])(?:1[5-9]|20)\d\d\s*(?:[-/.]|年)\s*(1[0-2]|0?[1-9])(?!\d)")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# "may" and "march" are verbs too: only with a capital letter are they months.
_MONTH_NAME = re.compile(
    r"\b(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\b"
)


def find_years_and_months(text: str) -> tuple[list[int], list[int]]:
    """Return the years (1500 to 2099) and months (1 to 12) that ``text`` mentions, repeated ones too; see the module.

    Years are in the order of the text, months too, but names first.
    """
    plain = unicodedata.normalize("NFKC", text)
    plain = _HAN_YEAR.sub(lambda found: found.group().translate(_HAN_DIGITS), plain)
    names = [_MONTHS.index(found[:3]) + 1 for found in _MONTH_NAME.findall(plain)]
    numbers = [int(found) for found in _NUMERIC_MONTH.findall(plain)]
    return [int(found["plain"] or found["dotted"]) for found in _YEAR.finditer(plain)], names + numbers


WORDS, CHARACTERS, LENGTH, DATES = "words", "characters", "length", "dates"

LENGTH_UNITS = ("words", "characters", "utf8_bytes", "zlib_bytes")

MOST_CHARACTERS = 4_000_000
"""That the character control reads, of all texts together: memory and time are bounded, 400 of each of 10,000 texts."""

_BUCKETS = 1 << 20
_MIN_TEXTS = 2
_FURTHEST = 4.0


@dataclass(frozen=True)
class ControlAuroc(Measurement):
    """The AUROC of the control ``name`` over ``n`` texts."""

    name: str
    n: int


def compute_other_controls(
    example_ids: Sequence[str],
    texts: Sequence[str],
    labels: npt.ArrayLike,
    groups: Sequence[str],
    *,
    language: str,
    word_counts: Sequence[int],
) -> dict[str, BlindControl]:
    """The controls apart from that of words of n labelled examples (labels 0 or 1), the same for every order of them.

    By name. ``word_counts`` are the texts' lengths in words of the benchmark's unit, for the control of length. In a
    script without blanks between words the control of words has character n-grams already, so there is none of
    characters. Raises DataError for unequal lengths.
    """
    folds = split_folds_by_group(example_ids, labels, groups)
    found = {}
    if not is_unspaced(language):
        first = MOST_CHARACTERS // max(1, len(texts))
        what = "TF-IDF of character 3-5-grams"
        if any(len(text) > first for text in texts):
            what += f" of each text's first {first} characters"
        found[CHARACTERS] = cross_fit(folds, build_character_features([text[:first] for text in texts], (3, 5)), what)
    length = build_dense_features(compute_length_features(texts, word_counts))
    dates = build_date_features(texts)
    return {
        **found,
        LENGTH: cross_fit(folds, length, "words, characters, bytes and zlib bytes of each text"),
        DATES: cross_fit(folds, dates, "years and months mentioned in each text"),
    }


def measure_controls(
    controls: dict[str, BlindControl], labels: npt.ArrayLike, groups: Sequence[str]
) -> list[ControlAuroc]:
    """AUROC and 95% interval of each control, in the order given."""
    sides = GroupedSides(groups, labels)
    found = []
    for name, control in controls.items():
        if control.scores is None:
            found.append(ControlAuroc(None, NO_INTERVAL, control.reason or control.method, name, len(sides.labels)))
            continue
        measured = measure_auroc(roc_points(control.scores, sides.labels), sides)
        method = "; ".join([control.method, AUROC.meaning, measured.method])
        found.append(ControlAuroc(measured.value, measured.interval, method, name, len(sides.labels)))
    return found


def find_strongest_control(controls: Sequence[ControlAuroc]) -> ControlAuroc | None:
    """Return the control with the highest AUROC, the first of equal ones; None where none was read."""
    read = [control for control in controls if control.value is not None]
    return max(read, key=lambda control: control.value or 0.0, default=None)


def build_character_features(texts: Sequence[str], lengths: tuple[int, int]) -> FoldFeatures:
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


def compute_length_features(texts: Sequence[str], word_counts: Sequence[int]) -> Floats:
    """Logarithms of the four lengths, and zlib bytes for each byte: [n, 5]."""
    sizes = measure_text_lengths(texts, word_counts)
    return np.column_stack([np.log1p(sizes), sizes[:, 3] / np.maximum(1.0, sizes[:, 2])])


def measure_text_lengths(texts: Sequence[str], word_counts: Sequence[int]) -> Floats:
    """Words, characters, UTF-8 bytes and zlib bytes of each text, as ``LENGTH_UNITS`` names them: [n, 4]."""
    rows = []
    for text, words in zip(texts, word_counts, strict=True):
        encoded = text.encode()
        rows.append((words, len(text), len(encoded), len(zlib.compress(encoded))))
    return np.asarray(rows, dtype=np.float64).reshape(-1, len(LENGTH_UNITS))


def build_date_features(texts: Sequence[str]) -> FoldFeatures:
    """Return whether a text mentions a year, how many years and months, and its first, mean and last year."""
    rows = np.full((len(texts), 6), np.nan)
    for row, text in zip(rows, texts, strict=True):
        years, months = find_years_and_months(text)
        row[:3] = bool(years), np.log1p(len(years)), np.log1p(len(months))
        if years:
            row[3:] = min(years), sum(years) / len(years), max(years)
    dense = build_dense_features(rows)

    def features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        if not rows[training, :3].any():
            return "too few texts mention a year or a month"
        return dense(training, held_out)

    return features


def build_dense_features(rows: Floats) -> FoldFeatures:
    """The columns of ``rows`` [n, d] in standard deviations from their mean, cut off at 4, and the squares of those.

    Mean and deviation are those of the training texts. NaN means no value and counts as the mean. The squares let
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

        def standardise(values: Floats) -> Floats:
            z = np.clip(np.where(np.isnan(values), 0.0, (values - mean) / spread), -_FURTHEST, _FURTHEST)
            return np.hstack([z, z**2])

        return standardise(learnt), standardise(rows[held_out])

    return features
