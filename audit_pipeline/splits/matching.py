"""Matching: the choice of members and non-members that are hard to separate without a model.

The method is a variant of propensity-score matching (Rosenbaum and Rubin 1983) in two steps:

1. Ten rounds remove the texts whose side is most obvious from their character n-grams. A classifier predicts the side
   out of fold and is trained again in each round, as in AFLite (Le Bras et al. 2020). The rounds end with 10% more
   texts than requested. If the sides are hard to separate already, the removed texts are random.
2. The optimal assignment pairs the remaining texts across sides. Its cost is the distance in propensity, topic (TF-IDF
   of words, reduced by SVD) and length. The nearest pairs are chosen.

If one classifier both chooses texts and measures the result, the measurement is too optimistic. So the choice uses
characters and its own folds, and the measurement uses the words and folds of the blind control. In a script without
blanks both use characters. The two classifiers still share information. Besides, a smaller set is always harder to
separate, because a classifier learns less from it. Hence four AUROCs are reported:

- `before`: all texts.
- `after`: the chosen texts.
- `at_random`: a random sample of the same size.
- `after_by_all`: the chosen texts, scored by a classifier that is trained on all texts.

The effect of matching is the difference between `at_random` and `after`. If `after_by_all` is high, a classifier with
more training texts can still separate the sides. A value of `after` well below 0.5 is no better than 0.5: it comes from
near-duplicates on both sides, which mislead the classifier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from audit_pipeline.errors import DataError
from audit_pipeline.splits import blind_controls
from audit_pipeline.statistics.claims import MILD_BELOW
from audit_pipeline.statistics.roc import Floats, Places, compute_metrics
from audit_pipeline.tables import MEMBER, NON_MEMBER

CALIPER = 0.25
"""Maximum difference of a pair in propensity and in length, in standard deviations. Other pairs are chosen last."""

_LABELS = (MEMBER, NON_MEMBER)
_N_ROUNDS = 10
_SPARE_FACTOR = 1.1
_N_TOPICS = 50
_N_BUCKETS = 1 << 16
_CALIPER_PENALTY = 1e3


@dataclass(frozen=True, eq=False)
class Matched:
    """The chosen texts and the effect of the choice.

    Attributes:
        indices: The positions of the chosen texts in the input, ascending. Both sides have the same number.
        before: The AUROC on all texts. The module docstring explains the four AUROCs.
        after: The AUROC on the chosen texts.
        at_random: The AUROC on a random sample of the same size.
        after_by_all: The AUROC on the chosen texts of a classifier that is trained on all texts.
        beyond_caliper: The number of pairs that differ by more than ``CALIPER``.
    """

    indices: tuple[int, ...]
    before: blind_controls.ControlAuroc
    after: blind_controls.ControlAuroc
    at_random: blind_controls.ControlAuroc
    after_by_all: blind_controls.ControlAuroc
    beyond_caliper: int


def match_sides(
    texts: Sequence[str],
    labels: npt.ArrayLike,
    groups: Sequence[str],
    per_side: int,
    seed: int,
    language: str,
) -> Matched:
    """Choose ``per_side`` members (label 1) and non-members (label 0) that are hard to separate.

    Classifiers never score a text of a group that they were trained on. The choice may include only some texts of a
    group. It depends on the texts and on ``seed``, not on their order.

    Raises:
        DataError: If the arguments differ in length, a label is not 0 or 1, a side has fewer than ``per_side`` texts,
            or ``per_side`` is below 1.
    """
    classes = np.asarray(labels)
    _check_matching_input(texts, classes, groups, per_side)
    # Equal texts of one group and one side are interchangeable, so their order does not matter.
    order = sorted(range(len(texts)), key=lambda place: (groups[place], texts[place], int(classes[place])))
    sorted_texts = np.asarray(texts, dtype=object)[order]
    sorted_groups = np.asarray(groups, dtype=object)[order]
    pool = _Pool(sorted_texts, classes[order], sorted_groups, seed, language)
    all_places = np.arange(len(order))
    pairs, beyond_caliper = _match_nearest_pairs(pool, *_select_least_obvious(pool, per_side), per_side)
    chosen = np.sort(pairs.ravel())
    control_of_all = pool.compute_control(all_places)
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(np.flatnonzero(pool.labels == label), per_side, replace=False) for label in _LABELS]
    at_random = np.sort(np.concatenate(drawn))
    scores_by_all = None
    if control_of_all.scores is not None:
        scores_by_all = control_of_all.scores[chosen]
    method_by_all = f"{control_of_all.method}, learnt from all {len(order)} texts"
    return Matched(
        indices=tuple(np.sort(np.asarray(order)[chosen]).tolist()),
        before=pool.measure_control(all_places, control_of_all),
        after=pool.measure_control(chosen, pool.compute_control(chosen)),
        at_random=pool.measure_control(at_random, pool.compute_control(at_random)),
        after_by_all=pool.measure_control(
            chosen, blind_controls.BlindControl(scores_by_all, control_of_all.reason, method_by_all)
        ),
        beyond_caliper=beyond_caliper,
    )


def _check_matching_input(
    texts: Sequence[str], classes: npt.NDArray[np.integer], groups: Sequence[str], per_side: int
) -> None:
    if not len(texts) == len(classes) == len(groups):
        raise DataError("matching requires one text, label and group for each example")
    if not np.isin(classes, (MEMBER, NON_MEMBER)).all():
        raise DataError("a label is neither 1 (member) nor 0 (non-member). Remove unlabelled texts before matching.")
    if per_side < 1:
        raise DataError(f"matching requires at least one text per side, but per_side is {per_side}")
    for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)):
        count = int((classes == label).sum())
        if count < per_side:
            raise DataError(f"matching cannot choose {per_side} {name} out of {count}. Lower per_side, or add texts.")


@dataclass(frozen=True, eq=False)
class _Pool:
    """The texts to choose from, in an order that does not depend on the order of the input.

    Each array has shape (n_texts,).
    """

    texts: npt.NDArray[np.object_]
    labels: npt.NDArray[np.integer]
    groups: npt.NDArray[np.object_]
    seed: int
    language: str

    def format_place_ids(self, places: Places) -> list[str]:
        return [f"{place:09d}" for place in places]

    def compute_control(self, places: Places) -> blind_controls.BlindControl:
        return blind_controls.compute_blind_control(
            self.format_place_ids(places),
            self.texts[places].tolist(),
            self.labels[places],
            self.groups[places].tolist(),
            language=self.language,
            seed=self.seed,
        )

    def measure_control(self, places: Places, control: blind_controls.BlindControl) -> blind_controls.ControlAuroc:
        (auroc,) = blind_controls.measure_controls(
            {blind_controls.WORDS: control}, self.labels[places], self.groups[places].tolist()
        )
        return replace(auroc, method=control.reason or control.method)


def _select_least_obvious(pool: _Pool, per_side: int) -> tuple[Places, Floats]:
    """Select 10% more than ``per_side`` texts of each side, by the rounds of the module docstring.

    Returns:
        The positions of the selected texts, and their log odds of membership.
    """
    max_characters = blind_controls.MAX_CHARACTERS // len(pool.texts)
    lengths = (1, 3) if blind_controls.is_unspaced(pool.language) else (3, 5)
    features = blind_controls.build_character_features([text[:max_characters] for text in pool.texts], lengths)
    generator = np.random.default_rng(pool.seed)
    places = np.arange(len(pool.texts))
    n_wanted = math.ceil(_SPARE_FACTOR * per_side)
    full: dict[int, int] = {}
    for label in _LABELS:
        full[label] = int((pool.labels == label).sum())
    n_rounds = _N_ROUNDS if max(full.values()) > n_wanted else 0
    for number in range(1, n_rounds + 1):
        log_odds = _compute_log_odds(pool, places, features, pool.seed + number)
        remaining = []
        for label in _LABELS:
            side = generator.permutation(np.flatnonzero(pool.labels[places] == label))
            n_remaining = round(full[label] * min(1.0, n_wanted / full[label]) ** (number / n_rounds))
            obviousness = log_odds[side] if label == MEMBER else -log_odds[side]
            remaining.append(side[np.argsort(obviousness, kind="stable")[:n_remaining]])
        places = places[np.sort(np.concatenate(remaining))]
    return places, _compute_log_odds(pool, places, features, pool.seed + _N_ROUNDS + 1)


def _compute_log_odds(pool: _Pool, places: Places, features: blind_controls.FoldFeatures, seed: int) -> Floats:
    """Compute the out-of-fold log odds of membership, of shape (n_places,).

    The result is all 0 if there are too few texts or groups, or if the AUROC is below .60, as in the split verdict.
    Below that AUROC the log odds are mostly noise. A choice by noise favours texts that happen to resemble the other
    side. Classifiers are then wrong more often than right, which is no better match.
    """
    folds = blind_controls.split_folds_by_group(
        pool.format_place_ids(places), pool.labels[places], pool.groups[places].tolist(), seed=seed
    )
    scores = blind_controls.cross_fit(
        folds, lambda training, held_out: features(places[training], places[held_out]), "character n-grams"
    ).scores
    if scores is None or compute_metrics(scores, pool.labels[places])["auroc"] < MILD_BELOW:
        return np.zeros(len(places))
    return scores


def _match_nearest_pairs(pool: _Pool, places: Places, log_odds: Floats, per_side: int) -> tuple[Places, int]:
    """Return the nearest pairs of the optimal assignment, and the number of pairs beyond the caliper.

    The pairs have shape (per_side, 2): the position of a member and the position of a non-member.
    """
    texts = pool.texts[places].tolist()
    topics = _compute_topics(texts, pool)
    traits = np.column_stack([log_odds, np.log1p(list(map(len, texts)))])
    spread = traits.std(axis=0)
    traits = (traits - traits.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
    members = np.flatnonzero(pool.labels[places] == MEMBER)
    nonmembers = np.flatnonzero(pool.labels[places] == NON_MEMBER)
    distances = np.abs(traits[members][:, None, :] - traits[nonmembers][None, :, :])
    is_beyond = np.asarray((distances > CALIPER).any(axis=2))
    cost = distances.sum(axis=2) + 1.0 - topics[members] @ topics[nonmembers].T + _CALIPER_PENALTY * is_beyond
    # Costs are rounded, so that the last bits of a matrix product do not decide between equal costs.
    rows, columns = linear_sum_assignment(np.round(cost, 9))
    nearest = np.argsort(np.round(cost[rows, columns], 9), kind="stable")[:per_side]
    rows = rows[nearest]
    columns = columns[nearest]
    pairs = np.column_stack([places[members[rows]], places[nonmembers[columns]]])
    return pairs, int(is_beyond[rows, columns].sum())


def _compute_topics(texts: Sequence[str], pool: _Pool) -> Floats:
    """Compute topic vectors of length 1, of shape (n_texts, at most 50). A text without words has the zero vector."""
    analyzer = "word"
    ngram_range = (1, 1)
    if blind_controls.is_unspaced(pool.language):
        analyzer = "char"
        ngram_range = (1, 2)
    vectoriser = HashingVectorizer(
        analyzer=analyzer, ngram_range=ngram_range, n_features=_N_BUCKETS, norm=None, alternate_sign=False
    )
    counts = vectoriser.transform(texts)
    if not counts.nnz:
        return np.zeros((len(texts), 1))
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    reduced = TruncatedSVD(min(_N_TOPICS, len(texts) - 1), random_state=pool.seed).fit_transform(weights)
    lengths = np.linalg.norm(reduced, axis=1, keepdims=True)
    return np.asarray(np.divide(reduced, lengths, out=np.zeros_like(reduced), where=lengths > 0))
