"""The blind control: how well the two sides are told apart by a classifier that never sees the model.

What belongs here: word n-grams, logistic regression, cross-validation by group. What does not: what its AUROC says
of a benchmark (claims.py), metrics and intervals of its scores (metrics.py, intervals.py), and classifiers of other
features (split_quality/), which are fitted by the same folds.

TF-IDF of word unigrams and bigrams (character n-grams of one to three where the script has no blanks between words),
vocabulary and weights learnt on the training folds only. Logistic regression with C = 10 and balanced classes: the
intercept then does not follow the share of members in the training folds, which differs from fold to fold where groups
are of unequal size. So the log odds of all folds, from equally large training sets, share one zero and one scale and
are pooled.

A classifier that learned nothing (no features, the same prediction for every text, or no word of nine texts in ten) is
no control: it was not computed, and its AUROC of 0.5 is none.

Measured on labels drawn at random (400 made-up texts, 100 draws): the pooled AUROC is 0.50 on average, with a standard
deviation of 0.039 where a bootstrap of the scores says 0.028, so 84 of 100 intervals hold 0.5 rather than 95. The
bootstrap takes the scores as given, but each text is scored by the others and helps to score them, which doubles the
variance where there is nothing to find. Neither more folds nor repeated ones change that. Read an interval that only
just clears a limit with care.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.curves import Floats

NAME = "blind_control"
MIN_EXAMPLES = 200
FOLDS = 5
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "km", "my"})

_MAX_FEATURES = 200_000
_MOST_UNKNOWN = 0.9
_NOT_COMPUTED = "the blind control was not computed"
_WORD = r"(?u)\b\w+\b"

Places = npt.NDArray[np.intp]
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


def blind_control(
    example_ids: Sequence[str],
    texts: Sequence[str],
    labels: npt.ArrayLike,
    groups: Sequence[str],
    *,
    language: str,
    seed: int = 0,
) -> BlindControl:
    """The blind control of n labelled examples (labels 0 or 1), the same for every order of them.

    It is not computed on fewer than 200 examples, or where either side has fewer than 5 groups: every fold needs texts
    of both sides whose groups the classifier has not seen. Raises DataError for unequal lengths.
    """
    folds = folds_by_group(example_ids, labels, groups, seed=seed)
    if len(texts) != len(folds.labels):
        raise DataError("the blind control needs one id, text, label and group for each example")
    characters = is_unspaced(language)

    counted: list[Matrix] = []
    unknown = 0

    def features(training: Places, held_out: Places) -> tuple[Matrix, Matrix] | str:
        # Imported where it is read: whoever only knows the control's name waits for no scikit-learn.
        from audit_pipeline.separability.term_counts import count_terms, tf_idf  # noqa: PLC0415

        if not counted:
            counted.append(count_terms(texts, _analyser(characters)))
        found = tf_idf(counted[0], training, held_out, _MAX_FEATURES)
        if found is None:
            return "the texts hold no words"
        nonlocal unknown
        unknown += int((np.diff(found[1].indptr) == 0).sum())
        return found

    control = cross_fitted(folds, features, f"TF-IDF of {'character 1-3-grams' if characters else 'word 1-2-grams'}")
    if control.scores is not None and unknown > _MOST_UNKNOWN * len(texts):
        why = f"it learned nothing: {unknown} of {len(texts)} texts share no word with those that it learns from"
        return BlindControl(None, f"{_NOT_COMPUTED}: {why}", control.method)
    return control


def is_unspaced(language: str) -> bool:
    """Whether the language (ISO 639-1) is written without blanks between words."""
    return language.lower().split("-")[0] in UNSPACED_LANGUAGES


def folds_by_group(example_ids: Sequence[str], labels: npt.ArrayLike, groups: Sequence[str], *, seed: int = 0) -> Folds:
    """The folds of n labelled examples (labels 0 or 1), the same for every order of them.

    There are none on fewer than 200 examples, or where either side has fewer than 5 groups. Raises DataError for
    unequal lengths.
    """
    classes = np.asarray(labels)
    if not len(example_ids) == len(classes) == len(groups):
        raise DataError("the blind control needs one id, text, label and group for each example")
    reason = _too_small(classes, groups)
    if reason is not None:
        return Folds((), classes, reason)
    canonical = np.array(sorted(range(len(classes)), key=lambda index: (groups[index], example_ids[index])))
    by_group = np.asarray(groups, dtype=object)[canonical]
    # Imported where it is read: whoever only knows its name waits for no scikit-learn.
    from sklearn.model_selection import StratifiedGroupKFold  # noqa: PLC0415

    drawn = StratifiedGroupKFold(n_splits=FOLDS, shuffle=True, random_state=seed)
    parts = tuple(
        (canonical[training], canonical[held_out])
        for training, held_out in drawn.split(canonical, classes[canonical], by_group)
    )
    if any(len(np.unique(classes[training])) < 2 for training, _ in parts):
        reason = "the groups are too unequal in size: a training fold has one side only"
    return Folds(parts, classes, reason)


def cross_fitted(folds: Folds, features: FoldFeatures, what: str) -> BlindControl:
    """A logistic regression of membership on ``features`` (``what`` names them), out of fold.

    ``features`` is asked once for each fold, and not where there are none.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    method = f"{what} and logistic regression, out-of-fold log odds of {FOLDS} folds by group"
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
    if reason is None and all(np.ptp(scores[held_out]) == 0 for _, held_out in folds.parts if len(held_out)):
        reason = "it learned nothing: all texts of a fold get the same prediction"
    if reason is not None:
        return BlindControl(None, f"{_NOT_COMPUTED}: {reason}", method)
    return BlindControl(scores, None, method)


def _too_small(classes: npt.NDArray[np.integer], groups: Sequence[str]) -> str | None:
    if len(classes) < MIN_EXAMPLES:
        return f"{len(classes)} labelled examples, it needs {MIN_EXAMPLES}"
    for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)):
        n_groups = len({group for group, one in zip(groups, classes, strict=True) if one == label})
        if n_groups < FOLDS:
            return f"the {name} are of {n_groups} group{'s' * (n_groups != 1)}, it needs {FOLDS}"
    return None


def _analyser(characters: bool) -> Callable[[str], list[str]]:
    """The terms of a text: words one by one and two by two, or characters up to three by three."""
    from sklearn.feature_extraction.text import CountVectorizer  # noqa: PLC0415

    kinds = (
        {"analyzer": "char", "ngram_range": (1, 3)} if characters else {"token_pattern": _WORD, "ngram_range": (1, 2)}
    )
    terms_of: Callable[[str], list[str]] = CountVectorizer(**kinds).build_analyzer()
    return terms_of
