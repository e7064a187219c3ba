"""Blind controls: classifiers that separate the two sides without the model.

The control of words uses TF-IDF of word unigrams and bigrams. If the script has no blanks between words, it uses
character n-grams (n = 1 to 3). It learns vocabulary and weights on the training folds only. The classifier is logistic
regression with C = 10 and balanced classes. Balanced classes keep the intercept independent of the share of members,
which differs between folds if groups have unequal sizes. So the log odds of all folds have the same zero and the same
scale, and are pooled.

A control counts as not computed if its classifier learned nothing. Such a classifier has no features, predicts the
same for every text, or knows no word of more than 90% of the texts. Its AUROC of 0.5 would be meaningless.

Intervals are somewhat too narrow. With random labels (400 generated texts, 100 draws) the pooled AUROC is 0.50 on
average. Its standard deviation is 0.039, but the variance of the scores implies 0.028. So 84 of 100 intervals contain
0.5, instead of 95. The variance treats the scores as fixed, but each text also trains the classifiers of other texts.
That doubles the variance if there is no difference to find. More folds or repeated folds do not help. Be careful with
an interval that barely excludes a limit of the split verdict.

All controls use the same folds by group, so their AUROCs are comparable. Every control needs at least 200 texts.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.splits.text_traits import find_years_and_months
from audit_pipeline.statistics.intervals import NO_INTERVAL, GroupedSides, Measurement, measure_auroc
from audit_pipeline.statistics.roc import AUROC, Floats, Places, compute_roc_points
from audit_pipeline.tables import MEMBER, NON_MEMBER

NAME = "blind_control"
MIN_EXAMPLES = 200
FOLDS = 5
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "km", "my"})

MAX_LIBLINEAR_TEXTS = 50_000
"""Maximum number of training texts for the solver liblinear. With more texts, newton-cg is faster."""
_MAX_FEATURES = 200_000
_MAX_UNKNOWN_SHARE = 0.9
_NOT_COMPUTED = "the blind control was not computed"
_WORD = r"(?u)\b\w+\b"

Matrix = Any
"""A dense or sparse feature matrix for scikit-learn, with one row per text."""
FoldFeatures = Callable[[Places, Places], tuple[Matrix, Matrix] | str]
"""A function of the positions of the training texts and of the held-out texts.

It returns the features of both. They are learnt from the training texts only. If there are no features, it returns the
reason.
"""


@dataclass(frozen=True, eq=False)
class BlindControl:
    """The scores of a control.

    Attributes:
        scores: The out-of-fold log odds of membership of each example, or None if they were not computed.
        reason: The reason if there are no scores.
        method: The description of features and classifier.
    """

    scores: Floats | None
    reason: str | None
    method: str


@dataclass(frozen=True, eq=False)
class Folds:
    """The cross-validation folds of labelled examples.

    Attributes:
        parts: The positions of the training texts and of the held-out texts of each fold.
        labels: The labels, of shape (n_examples,).
        reason: The reason if the folds cannot be used.
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
    """Compute the control of words for labelled examples.

    The result does not depend on the order of the examples. The control needs 200 examples and 5 groups per side. With
    fewer groups, a side would have no text in the held-out part of some fold.

    Args:
        example_ids: The id of each example.
        texts: The text of each example.
        labels: 0 or 1 for each example.
        groups: The group of each example.
        language: The language of the texts (ISO 639-1).
        seed: The seed of the folds.

    Raises:
        DataError: If the arguments differ in length.
    """
    folds = split_folds_by_group(example_ids, labels, groups, seed=seed)
    if len(texts) != len(folds.labels):
        raise DataError("the blind control needs one id, text, label and group for each example")
    ngrams = "word 1-2-grams"
    options: dict[str, Any] = {"token_pattern": _WORD, "ngram_range": (1, 2)}
    if is_unspaced(language):
        ngrams = "character 1-3-grams"
        options = {"analyzer": "char", "ngram_range": (1, 3)}
    n_unknown = 0

    @cache
    def count_all_terms() -> Matrix:
        # The import is local, so that modules that import this module do not wait for scikit-learn.
        from sklearn.feature_extraction.text import CountVectorizer  # noqa: PLC0415

        from audit_pipeline.splits.sklearn_equivalents import count_terms  # noqa: PLC0415

        return count_terms(texts, CountVectorizer(**options).build_analyzer())

    def compute_features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        from audit_pipeline.splits.sklearn_equivalents import compute_tf_idf  # noqa: PLC0415

        features = compute_tf_idf(count_all_terms(), training, held_out, _MAX_FEATURES)
        if features is None:
            return "the texts contain no words"
        nonlocal n_unknown
        n_unknown += int((np.diff(features[1].indptr) == 0).sum())
        return features

    control = cross_fit(folds, compute_features, f"TF-IDF of {ngrams}")
    if control.scores is not None and n_unknown > _MAX_UNKNOWN_SHARE * len(texts):
        reason = (
            f"the classifier learned nothing: {n_unknown} of {len(texts)} texts share no word with its training texts"
        )
        return BlindControl(None, f"{_NOT_COMPUTED}: {reason}", control.method)
    return control


def is_unspaced(language: str) -> bool:
    """Return True if the language (ISO 639-1) is written without blanks between words."""
    return language.lower().split("-")[0] in UNSPACED_LANGUAGES


def split_folds_by_group(
    example_ids: Sequence[str], labels: npt.ArrayLike, groups: Sequence[str], *, seed: int = 0
) -> Folds:
    """Split labelled examples (labels 0 or 1) into folds that keep each group together.

    The result does not depend on the order of the examples. There are no folds if there are fewer than 200
    examples, or if a side has fewer than 5 groups. ``reason`` then contains the reason.

    Raises:
        DataError: If the arguments differ in length.
    """
    classes = np.asarray(labels)
    if not len(example_ids) == len(classes) == len(groups):
        raise DataError("the blind control needs one id, text, label and group for each example")
    if len(classes) < MIN_EXAMPLES:
        return Folds((), classes, f"there are {len(classes)} labelled examples, but {MIN_EXAMPLES} are required")
    for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)):
        n_groups = len(set(itertools.compress(groups, classes == label)))
        if n_groups < FOLDS:
            reason = f"the {name} belong to {n_groups} group{'s' * (n_groups != 1)}, but {FOLDS} are required"
            return Folds((), classes, reason)
    canonical = np.array(sorted(range(len(classes)), key=lambda index: (groups[index], example_ids[index])))
    sorted_groups = np.asarray(groups, dtype=object)[canonical]
    # The import is local, so that modules that import this module do not wait for scikit-learn.
    from audit_pipeline.splits.sklearn_equivalents import FastStratifiedGroupKFold  # noqa: PLC0415

    folds = FastStratifiedGroupKFold(n_splits=FOLDS, shuffle=True, random_state=seed)
    parts = []
    imbalance = None
    for training, held_out in folds.split(sorted_groups, classes[canonical], sorted_groups):
        parts.append((canonical[training], canonical[held_out]))
        if len(np.unique(classes[canonical[training]])) < 2:
            imbalance = "the groups are too unequal in size: a training fold contains only one side"
    return Folds(tuple(parts), classes, imbalance)


def cross_fit(folds: Folds, compute_features: FoldFeatures, feature_description: str) -> BlindControl:
    """Fit a logistic regression of membership in each fold and return the out-of-fold scores.

    Args:
        folds: The folds. If they cannot be used, the result has no scores, and the reason of the folds.
        compute_features: The function that computes the features of a fold. It is called once per fold.
        feature_description: A description of the features for ``BlindControl.method``.
    """
    method = f"{feature_description} and logistic regression, out-of-fold log odds of {FOLDS} folds by group"
    if folds.reason is not None:
        return BlindControl(None, f"{_NOT_COMPUTED}: {folds.reason}", method)
    scores = np.zeros(len(folds.labels))
    for training, held_out in folds.parts:
        features = compute_features(training, held_out)
        if isinstance(features, str):
            return BlindControl(None, f"{_NOT_COMPUTED}: {features}", method)
        scores[held_out] = _compute_log_odds(features[0], folds.labels[training], features[1])
        # Without this line, the features of two folds would be in memory at the same time.
        del features
    if all(np.ptp(scores[held_out]) == 0 for _, held_out in folds.parts if len(held_out)):
        reason = "the classifier learned nothing: all texts of a fold have the same prediction"
        return BlindControl(None, f"{_NOT_COMPUTED}: {reason}", method)
    return BlindControl(scores, None, method)


def _compute_log_odds(features: Matrix, labels: npt.NDArray[np.integer], held_out_features: Matrix) -> Floats:
    """Fit a logistic regression to training texts and return the log odds of the held-out texts.

    Both solvers minimise the same function, in which the intercept is the weight of a constant feature. They use one
    thread and no random numbers.
    """
    # The import is local because scikit-learn is slow to load.
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    options: dict[str, Any] = {"C": 10.0, "class_weight": "balanced", "max_iter": 1000}
    # liblinear is ten times as fast as lbfgs. With many texts, its copy of the features no longer fits into the
    # processor's cache, and newton-cg is faster. Its tolerance makes it as exact as liblinear.
    if len(labels) <= MAX_LIBLINEAR_TEXTS:
        classifier = LogisticRegression(solver="liblinear", **options)
    else:
        classifier = LogisticRegression(solver="newton-cg", tol=1e-8, fit_intercept=False, **options)
        features = _append_constant(features)
        held_out_features = _append_constant(held_out_features)
    classifier.fit(features, labels)
    if not held_out_features.shape[0]:
        return np.zeros(0)
    return np.asarray(classifier.decision_function(held_out_features))


def _append_constant(features: Matrix) -> Matrix:
    """Append a feature that is 1 for every text."""
    # The import is local because scipy is slow to load.
    from scipy import sparse  # noqa: PLC0415

    ones = np.ones((features.shape[0], 1))
    if sparse.issparse(features):
        return sparse.hstack([features, ones], format="csr")
    return np.hstack([features, ones])


WORDS = "words"
CHARACTERS = "characters"
LENGTH = "length"
DATES = "dates"

LENGTH_UNITS = ("words", "characters", "utf8_bytes", "zlib_bytes")

MAX_CHARACTERS = 4_000_000
"""Maximum number of characters that the control of characters reads in all texts together. It bounds memory and time.

With 10,000 texts the control reads 400 characters of each text.
"""

_N_BUCKETS = 1 << 20
_MIN_TEXTS = 2
_MAX_DEVIATIONS = 4.0


@dataclass(frozen=True)
class ControlAuroc(Measurement):
    """The AUROC of a blind control.

    Attributes:
        name: The name of the control.
        n: The number of texts.
    """

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
    """Compute the controls of characters, length and dates for labelled examples.

    The result does not depend on the order of the examples. If the language has no blanks between words, the control
    of characters is omitted, because the control of words reads characters already.

    Args:
        example_ids: The id of each example.
        texts: The text of each example.
        labels: 0 or 1 for each example.
        groups: The group of each example.
        language: The language of the texts (ISO 639-1).
        word_counts: The lengths of the texts in words, in the benchmark's unit, for the control of length.

    Returns:
        The controls by name.

    Raises:
        DataError: If the arguments differ in length.
    """
    folds = split_folds_by_group(example_ids, labels, groups)
    controls = {}
    if not is_unspaced(language):
        max_characters = MAX_CHARACTERS // max(1, len(texts))
        description = "TF-IDF of character 3-5-grams"
        if max(map(len, texts), default=0) > max_characters:
            description += f" of each text's first {max_characters} characters"
        characters = build_character_features([text[:max_characters] for text in texts], (3, 5))
        controls[CHARACTERS] = cross_fit(folds, characters, description)
    lengths = build_dense_features(compute_length_features(texts, word_counts))
    controls[LENGTH] = cross_fit(folds, lengths, "words, characters, bytes and zlib bytes of each text")
    controls[DATES] = cross_fit(folds, build_date_features(texts), "years and months mentioned in each text")
    return controls


def measure_controls(
    controls: dict[str, BlindControl], labels: npt.ArrayLike, groups: Sequence[str]
) -> list[ControlAuroc]:
    """Compute the AUROC and its 95% interval of each control, in the order of ``controls``."""
    sides = GroupedSides(groups, labels)
    n = len(sides.labels)
    aurocs = []
    for name, control in controls.items():
        if control.scores is None:
            aurocs.append(ControlAuroc(None, NO_INTERVAL, control.reason or control.method, name, n))
            continue
        measured = measure_auroc(compute_roc_points(control.scores, sides.labels), sides)
        method = "; ".join([control.method, AUROC.meaning, measured.method])
        aurocs.append(ControlAuroc(measured.value, measured.interval, method, name, n))
    return aurocs


def find_strongest_control(controls: Sequence[ControlAuroc]) -> ControlAuroc | None:
    """Return the first control with the highest AUROC, or None if no control has an AUROC."""
    measured = [control for control in controls if control.value is not None]
    return max(measured, key=lambda control: control.value or 0.0, default=None)


def build_character_features(texts: Sequence[str], lengths: tuple[int, int]) -> FoldFeatures:
    """Build the TF-IDF features of character n-grams that occur in at least two training texts.

    The n-grams are counted once for all folds, at the first call. They are hashed into 2^20 buckets. So the counts do
    not depend on the texts in the training folds.

    Args:
        texts: The texts.
        lengths: The minimum and maximum length of the n-grams, in characters.
    """
    # The import is local because scikit-learn is slow to load.
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer  # noqa: PLC0415

    vectoriser = HashingVectorizer(
        analyzer="char", ngram_range=lengths, n_features=_N_BUCKETS, norm=None, alternate_sign=False
    )

    @cache
    def count_ngrams() -> Matrix:
        return vectoriser.transform(texts)

    def compute_features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        counts = count_ngrams()
        learnt = counts[training]
        shared = np.flatnonzero(np.bincount(learnt.indices, minlength=_N_BUCKETS) >= _MIN_TEXTS)
        if not len(shared):
            return "no two texts share a sequence of characters"
        weights = TfidfTransformer(sublinear_tf=True)
        fitted = weights.fit_transform(learnt[:, shared])
        if not len(held_out):
            return fitted, fitted[:0]
        return fitted, weights.transform(counts[held_out][:, shared])

    return compute_features


def compute_length_features(texts: Sequence[str], word_counts: Sequence[int]) -> Floats:
    """Compute the logarithms of the four lengths, and zlib bytes per byte, of shape (n_texts, 5)."""
    sizes = measure_text_lengths(texts, word_counts)
    return np.column_stack([np.log1p(sizes), sizes[:, 3] / np.maximum(1.0, sizes[:, 2])])


def measure_text_lengths(texts: Sequence[str], word_counts: Sequence[int]) -> Floats:
    """Measure words, characters, UTF-8 bytes and zlib bytes of each text, of shape (n_texts, 4).

    The columns are in the order of ``LENGTH_UNITS``.
    """
    rows = []
    for text, word_count in zip(texts, word_counts, strict=True):
        encoded = text.encode()
        rows.append((word_count, len(text), len(encoded), len(zlib.compress(encoded))))
    return np.asarray(rows, dtype=np.float64).reshape(-1, len(LENGTH_UNITS))


def build_date_features(texts: Sequence[str]) -> FoldFeatures:
    """Build the features of mentioned dates, of shape (n_texts, 6).

    The first column is 1 if the text mentions a year, else 0. The next two columns are the logarithms of the numbers of
    years and months. The last three columns are the first, mean and last year.
    """
    rows = np.full((len(texts), 6), np.nan)
    for row, text in zip(rows, texts, strict=True):
        years, months = find_years_and_months(text)
        row[:3] = [bool(years), np.log1p(len(years)), np.log1p(len(months))]
        if years:
            row[3:] = [min(years), sum(years) / len(years), max(years)]
    compute_dense = build_dense_features(rows)

    def compute_features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        if not rows[training, :3].any():
            return "no training text mentions a year or a month"
        return compute_dense(training, held_out)

    return compute_features


def build_dense_features(rows: Floats) -> FoldFeatures:
    """Build standardised features and their squares from dense columns.

    Each column is expressed in standard deviations from its mean, clipped at 4. Mean and deviation come from the
    training texts. NaN means a missing value and is replaced by the mean. The squares let a linear classifier separate
    sides that differ in spread.

    Args:
        rows: The columns, of shape (n_texts, n_columns).
    """

    def compute_features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        learnt = rows[training]
        known = ~np.isnan(learnt)
        count = np.maximum(1, known.sum(axis=0))
        mean = np.where(known, learnt, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, learnt - mean, 0.0) ** 2).sum(axis=0) / count)
        # A constant column has no information. An infinite spread makes it 0, instead of magnified rounding errors.
        spread[spread <= 1e-9 * np.maximum(1.0, np.abs(mean))] = np.inf

        def standardise(values: Floats) -> Floats:
            deviations = np.where(np.isnan(values), 0.0, (values - mean) / spread)
            z = np.clip(deviations, -_MAX_DEVIATIONS, _MAX_DEVIATIONS)
            return np.hstack([z, z**2])

        return standardise(learnt), standardise(rows[held_out])

    return compute_features
