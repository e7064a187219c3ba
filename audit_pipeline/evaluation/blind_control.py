"""The blind control: how well the two sides are told apart by a classifier that never sees the model.

What belongs here: word n-grams, logistic regression, cross-validation by group. What does not: what its AUROC says
of a benchmark (claims.py), metrics and intervals of its scores (metrics.py, intervals.py).

TF-IDF of word unigrams and bigrams (character n-grams of one to three where the script has no blanks between words),
vocabulary and weights learnt on the training folds only. Logistic regression with C = 10 and balanced classes: the
intercept then does not follow the share of members in the training folds, which differs from fold to fold where groups
are of unequal size. So the log odds of all folds, from equally large training sets, share one zero and one scale and
are pooled.

Measured on labels drawn at random (400 made-up texts, 100 draws): the pooled AUROC is 0.50 on average, with a standard
deviation of 0.039 where a bootstrap of the scores says 0.028, so 84 of 100 intervals hold 0.5 rather than 95. The
bootstrap takes the scores as given, but each text is scored by the others and helps to score them, which doubles the
variance where there is nothing to find. Neither more folds nor repeated ones change that. Read an interval that only
just clears a limit with care.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold

from audit_pipeline.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.evaluation.metrics import Floats

NAME = "blind_control"
MIN_EXAMPLES = 200
FOLDS = 5
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "km", "my"})

_MAX_FEATURES = 200_000
_WORD = r"(?u)\b\w+\b"


@dataclass(frozen=True, eq=False)
class BlindControl:
    """Out-of-fold log odds of membership, one an example in the order given; or None and the reason why not read."""

    scores: Floats | None
    reason: str | None
    method: str


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

    It is not read on fewer than 200 examples, or where either side has fewer than 5 groups: every fold needs texts
    of both sides whose groups the classifier has not seen. Raises DataError for unequal lengths.
    """
    classes = np.asarray(labels)
    if not len(example_ids) == len(texts) == len(classes) == len(groups):
        raise DataError("the blind control needs one id, text, label and group for each example")
    characters = language.lower().split("-")[0] in UNSPACED_LANGUAGES
    method = (
        f"TF-IDF of {'character 1-3-grams' if characters else 'word 1-2-grams'} and logistic regression, "
        f"out-of-fold log odds of {FOLDS} folds by group"
    )
    reason = _too_small(classes, groups)
    if reason is None:
        canonical = sorted(range(len(texts)), key=lambda index: (groups[index], example_ids[index]))
        scores, reason = _out_of_fold(
            [texts[index] for index in canonical],
            classes[canonical],
            np.asarray([groups[index] for index in canonical], dtype=object),
            characters,
            seed,
        )
    if reason is not None:
        return BlindControl(None, f"the blind control was not read: {reason}", method)
    in_given_order = np.empty(len(texts))
    in_given_order[canonical] = scores
    return BlindControl(in_given_order, None, method)


def _too_small(classes: npt.NDArray[np.integer], groups: Sequence[str]) -> str | None:
    if len(classes) < MIN_EXAMPLES:
        return f"{len(classes)} labelled examples, it needs {MIN_EXAMPLES}"
    for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)):
        n_groups = len({group for group, one in zip(groups, classes, strict=True) if one == label})
        if n_groups < FOLDS:
            return f"the {name} are of {n_groups} group{'s' * (n_groups != 1)}, it needs {FOLDS}"
    return None


def _vectoriser(characters: bool) -> TfidfVectorizer:
    if characters:
        return TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True, max_features=_MAX_FEATURES)
    return TfidfVectorizer(token_pattern=_WORD, ngram_range=(1, 2), sublinear_tf=True, max_features=_MAX_FEATURES)


def _out_of_fold(
    texts: Sequence[str],
    classes: npt.NDArray[np.integer],
    groups: npt.NDArray[np.object_],
    characters: bool,
    seed: int,
) -> tuple[Floats, str | None]:
    scores = np.zeros(len(texts))
    terms_of = _vectoriser(characters).build_analyzer()
    folds = StratifiedGroupKFold(n_splits=FOLDS, shuffle=True, random_state=seed)
    for training, held_out in folds.split(texts, classes, groups):
        if len(np.unique(classes[training])) < 2:
            return scores, "the groups are too unequal in size: a training fold has one side only"
        if not any(terms_of(texts[index]) for index in training):
            return scores, "the texts hold no words"
        vectoriser = _vectoriser(characters)
        features = vectoriser.fit_transform([texts[index] for index in training])
        # liblinear: one thread, no random numbers, and on these sparse features ten times as fast as lbfgs.
        classifier = LogisticRegression(C=10.0, class_weight="balanced", solver="liblinear", max_iter=1000)
        classifier.fit(features, classes[training])
        if len(held_out):
            scores[held_out] = classifier.decision_function(vectoriser.transform([texts[i] for i in held_out]))
    return scores, None
