"""Choosing sides that are hard to separate without a model: members and non-members matched on topic and length.

After propensity-score matching (Rosenbaum and Rubin 1983). First, in ten rounds, those texts are left out whose side
is most obvious from their character n-grams (out of fold, learnt again each round, as in AFLite: Le Bras et al. 2020),
until a tenth more than are wanted are left, or by chance as soon as the sides can hardly be separated. Of these,
the optimal assignment makes pairs of one text per side that are near each other in propensity, topic (TF-IDF of words,
reduced by SVD) and length, and the nearest pairs are taken.

Choosing by a classifier and measuring by the same one flatters. So the choice is by characters and by folds of its own,
the measurement by the blind control's words and folds (in a script without blanks both see characters). They still have
much in common, and a smaller set is harder to separate anyway, because less is learnt from it. So apart from `before`
and `after` there are `at_random`, as many texts drawn blindly, and `after_by_all`, the chosen texts read by a
classifier that learns from the whole pool. Matching has achieved what `after` is below `at_random`; where
`after_by_all` stays high, the difference is still there for who has more texts to learn it from. An `after` well below
0.5 is no better than 0.5: near-duplicates on the two sides mislead a classifier that has learnt from one about the
other.
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
from audit_pipeline.splits.blind_controls import (
    MOST_CHARACTERS,
    WORDS,
    BlindControl,
    ControlAuroc,
    FoldFeatures,
    build_character_features,
    compute_blind_control,
    cross_fit,
    is_unspaced,
    measure_controls,
    split_folds_by_group,
)
from audit_pipeline.statistics.claims import MILD_BELOW
from audit_pipeline.statistics.roc import Floats, Places, compute_metrics
from audit_pipeline.tables import MEMBER, NON_MEMBER

CALIPER = 0.25
"""Standard deviations by which a pair may differ in propensity and in length; pairs beyond are taken last."""

_LABELS = (MEMBER, NON_MEMBER)
_ROUNDS = 10
_SPARE = 1.1
_TOPICS = 50
_BUCKETS = 1 << 16
_BEYOND_CALIPER = 1e3


@dataclass(frozen=True, eq=False)
class Matched:
    """The chosen texts and what choosing them achieved.

    ``indices`` are their positions among the texts given, ascending, as many of each side. ``beyond_caliper`` counts
    the pairs that differ by more than the caliper. The four AUROCs are explained in the module's docstring.
    """

    indices: tuple[int, ...]
    before: ControlAuroc
    after: ControlAuroc
    at_random: ControlAuroc
    after_by_all: ControlAuroc
    beyond_caliper: int


def match_sides(
    texts: Sequence[str],
    labels: npt.ArrayLike,
    groups: Sequence[str],
    per_side: int,
    seed: int,
    language: str,
) -> Matched:
    """``per_side`` members (label 1) and non-members (label 0) of n texts that are hard to separate.

    Classifiers never score a text of a group that they have learnt from; of a group some texts may be chosen and some
    not. The choice depends on the texts and on ``seed``, not on their order.
    Raises DataError for unequal lengths, a label other than 0 and 1, fewer than ``per_side`` texts on a side, and a
    ``per_side`` below 1.
    """
    classes = np.asarray(labels)
    if not len(texts) == len(classes) == len(groups):
        raise DataError("matching needs one text, label and group for each example")
    if not np.isin(classes, (MEMBER, NON_MEMBER)).all():
        raise DataError("a label is neither 1 (member) nor 0 (non-member): leave unlabelled texts out of matching")
    if per_side < 1:
        raise DataError(f"matching needs at least one text per side; per_side is {per_side}")
    for name, label in (("members", MEMBER), ("non-members", NON_MEMBER)):
        count = int((classes == label).sum())
        if count < per_side:
            raise DataError(f"matching cannot choose {per_side} {name} out of {count}: ask for fewer or add texts")
    # Copies of a text in one group and on one side are taken for each other: which is chosen makes no difference.
    order = sorted(range(len(texts)), key=lambda place: (groups[place], texts[place], int(classes[place])))
    pool = _Pool([texts[i] for i in order], classes[order], [groups[i] for i in order], seed, language)
    everything = np.arange(len(order))
    pairs, beyond = _match_nearest_pairs(pool, *_select_least_obvious(pool, per_side), per_side)
    chosen = np.sort(pairs.ravel())
    by_all = pool.control(everything)
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(np.flatnonzero(pool.labels == label), per_side, replace=False) for label in _LABELS]
    at_random = np.sort(np.concatenate(drawn))
    learnt_from_all = None if by_all.scores is None else by_all.scores[chosen]
    return Matched(
        indices=tuple(sorted(order[place] for place in chosen)),
        before=pool.auroc(everything, by_all),
        after=pool.auroc(chosen, pool.control(chosen)),
        at_random=pool.auroc(at_random, pool.control(at_random)),
        after_by_all=pool.auroc(
            chosen, BlindControl(learnt_from_all, by_all.reason, f"{by_all.method}, learnt from all {len(order)} texts")
        ),
        beyond_caliper=beyond,
    )


@dataclass(frozen=True, eq=False)
class _Pool:
    """The texts to choose from, in an order that does not depend on how they were given."""

    texts: list[str]
    labels: npt.NDArray[np.integer]
    groups: list[str]
    seed: int
    language: str

    def format_place_ids(self, places: Places) -> list[str]:
        return [f"{place:09d}" for place in places]

    def control(self, places: Places) -> BlindControl:
        return compute_blind_control(
            self.format_place_ids(places),
            [self.texts[place] for place in places],
            self.labels[places],
            [self.groups[place] for place in places],
            language=self.language,
            seed=self.seed,
        )

    def auroc(self, places: Places, control: BlindControl) -> ControlAuroc:
        groups = [self.groups[place] for place in places]
        (found,) = measure_controls({WORDS: control}, self.labels[places], groups)
        return replace(found, method=control.reason or control.method)


def _select_least_obvious(pool: _Pool, per_side: int) -> tuple[Places, Floats]:
    """Return the places of a tenth more than ``per_side`` texts per side, and their log odds of being members."""
    features = build_character_features(
        [text[: MOST_CHARACTERS // len(pool.texts)] for text in pool.texts],
        (1, 3) if is_unspaced(pool.language) else (3, 5),
    )
    generator = np.random.default_rng(pool.seed)
    places = np.arange(len(pool.texts))
    n_wanted = math.ceil(_SPARE * per_side)
    full = {label: int((pool.labels == label).sum()) for label in _LABELS}
    rounds = _ROUNDS if max(full.values()) > n_wanted else 0
    for number in range(1, rounds + 1):
        log_odds = _log_odds(pool, places, features, pool.seed + number)
        remaining = []
        for label in _LABELS:
            side = generator.permutation(np.flatnonzero(pool.labels[places] == label))
            n_kept = round(full[label] * min(1.0, n_wanted / full[label]) ** (number / rounds))
            obvious = log_odds[side] if label == MEMBER else -log_odds[side]
            remaining.append(side[np.argsort(obvious, kind="stable")[:n_kept]])
        places = places[np.sort(np.concatenate(remaining))]
    return places, _log_odds(pool, places, features, pool.seed + _ROUNDS + 1)


def _log_odds(pool: _Pool, places: Places, features: FoldFeatures, seed: int) -> Floats:
    """Out-of-fold log odds of membership; all 0 where there are too few texts or groups, or the sides are hardly told
    apart any more (AUROC below .60, as in the split verdict).

    From there on the log odds are mostly noise, and to go by noise is to choose texts that happen to resemble the other
    side: classifiers would then be wrong more often than right, which is no better match.
    """
    folds = split_folds_by_group(
        pool.format_place_ids(places), pool.labels[places], [pool.groups[place] for place in places], seed=seed
    )

    found = cross_fit(
        folds, lambda training, held_out: features(places[training], places[held_out]), "character n-grams"
    ).scores
    if found is None or compute_metrics(found, pool.labels[places])["auroc"] < MILD_BELOW:
        return np.zeros(len(places))
    return found


def _match_nearest_pairs(pool: _Pool, places: Places, log_odds: Floats, per_side: int) -> tuple[Places, int]:
    """The ``per_side`` nearest pairs of the optimal assignment, [per_side, 2], and how many are beyond the caliper."""
    texts = [pool.texts[place] for place in places]
    topics = _compute_topics(texts, pool)
    near = np.column_stack([log_odds, np.log1p([len(text) for text in texts])])
    spread = near.std(axis=0)
    near = (near - near.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
    member, other = (np.flatnonzero(pool.labels[places] == label) for label in _LABELS)
    apart = np.abs(near[member][:, None, :] - near[other][None, :, :])
    beyond = np.asarray((apart > CALIPER).any(axis=2))
    cost = apart.sum(axis=2) + 1.0 - topics[member] @ topics[other].T + _BEYOND_CALIPER * beyond
    # Rounded, so that the last bits of a matrix product do not decide between equals.
    rows, columns = linear_sum_assignment(np.round(cost, 9))
    best = np.argsort(np.round(cost[rows, columns], 9), kind="stable")[:per_side]
    rows, columns = rows[best], columns[best]
    return np.column_stack([places[member[rows]], places[other[columns]]]), int(beyond[rows, columns].sum())


def _compute_topics(texts: Sequence[str], pool: _Pool) -> Floats:
    """Topic vectors of length 1 (0 for a text without words): [n, at most 50]."""
    unspaced = is_unspaced(pool.language)
    vectoriser = HashingVectorizer(
        analyzer="char" if unspaced else "word",
        ngram_range=(1, 2) if unspaced else (1, 1),
        n_features=_BUCKETS,
        norm=None,
        alternate_sign=False,
    )
    counts = vectoriser.transform(texts)
    if not counts.nnz:
        return np.zeros((len(texts), 1))
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    reduced = TruncatedSVD(min(_TOPICS, len(texts) - 1), random_state=pool.seed).fit_transform(weights)
    lengths = np.linalg.norm(reduced, axis=1, keepdims=True)
    return np.asarray(np.divide(reduced, lengths, out=np.zeros_like(reduced), where=lengths > 0))
